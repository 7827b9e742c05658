"""CuPy's spelling of the array operations: on the current device, which `place` makes that of the arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cupy
import numpy as np

from tridiag.libraries.arrays import Entry, Taken, refuse_dtype
from tridiag.libraries.indexing import Indexing
from tridiag.libraries.numpy import Operations as NumPyOperations
from tridiag.libraries.numpy import dtype as dtype
from tridiag.libraries.numpy import is_traced as is_traced
from tridiag.libraries.numpy import traced as traced

LEAST = 7, 5  # the oldest compute capability that CUDA 13 compiles for


class Operations(NumPyOperations):
    xp = cupy
    zero = vanished = staticmethod(cupy.zeros_like)
    one = staticmethod(cupy.ones_like)
    broadcast = staticmethod(cupy.broadcast_to)
    all = staticmethod(cupy.all)
    any = staticmethod(cupy.any)
    sign = staticmethod(cupy.sign)
    copy = staticmethod(cupy.array)
    unsqueeze = staticmethod(cupy.expand_dims)
    transpose = staticmethod(cupy.transpose)
    reshape = staticmethod(cupy.reshape)
    exp = staticmethod(cupy.exp)
    log = staticmethod(cupy.log)
    cos = staticmethod(cupy.cos)
    sin = staticmethod(cupy.sin)
    rint = staticmethod(cupy.rint)
    larger = staticmethod(cupy.maximum)
    clip = staticmethod(cupy.clip)
    placed = staticmethod(lambda x, like: cupy.asarray(x))
    quotient = staticmethod(Indexing.quotient)

    @staticmethod
    def exponent_of(x: Any) -> Any:
        return cupy.frexp(x)[1].astype(np.float64)

    @staticmethod
    def power_of_two(exponent: Any) -> Any:
        return cupy.ldexp(cupy.ones((), exponent.dtype), exponent.astype(np.int32))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        if isinstance(condition, bool):
            return x if condition else y
        return cupy.where(condition, x, y)


def place(arrays: Iterable[Any]) -> contextlib.AbstractContextManager[Any]:
    """Where work on arrays is done: the device on which they are."""
    return next((x.device for x in arrays if isinstance(x, cupy.ndarray)), contextlib.nullcontext())


def taking(names: Sequence[str], kinds: Sequence[type]) -> Callable[..., Taken]:
    """How arguments of these types are taken."""
    return take


def take(given: list[Any], where: Any) -> Taken:
    """Arrays and scalars as they are, but a mask is an array; and the devices, of which there should be one."""
    everything = [*given, where]
    devices = {x.device.id for x in everything if isinstance(x, cupy.ndarray)}
    if where is not None and not isinstance(where, cupy.ndarray):
        with place(given):
            where = cupy.asarray(where)
    mask = None if where is None else entry(where)
    return given, where, (*map(entry, given), mask), tuple(sorted(devices))


def entry(x: Any) -> Entry:
    """Dtype and shape; of a Python scalar its type, which promotes weakly."""
    return (x.dtype, x.shape) if isinstance(x, cupy.ndarray | np.generic) else (type(x), ())


def check_dtype(name: str, entry: Entry) -> None:
    """Refuse what cannot be solved in."""
    dtype = entry[0]
    if dtype is bool or (isinstance(dtype, np.dtype) and dtype.kind not in "iufc"):
        refuse_dtype(name, getattr(dtype, "name", "bool"))


def result_dtype(entries: Sequence[Entry], devices: Any) -> str:
    """NumPy's promotion, which is CuPy's; integers become float64."""
    promoted = np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind, _ in entries))
    return "float64" if promoted.kind in "iu" else str(promoted.name)


def integer_dtype(entries: Sequence[Entry], devices: Any) -> None:
    """No backend runs recurrences of integers on a GPU: they become floating-point numbers."""


def has_dtype(entry: Entry, name: str) -> bool:
    return not isinstance(entry[0], type) and bool(entry[0] == np.dtype(name))


def normal(generator: Any, shape: Sequence[int], like: Any) -> Any:
    """Standard normal numbers, drawn on the device by a `cupy.random.Generator`."""
    if not isinstance(generator, cupy.random.Generator):
        raise TypeError(f"generator is {generator!r}; CuPy arrays want a cupy.random.Generator, as of default_rng()")
    return generator.standard_normal(tuple(shape), like.dtype)


def cast(x: Any, dtype: str) -> Any:
    return cupy.asarray(x, np.dtype(dtype))


def device(entries: Sequence[Entry], devices: tuple[int, ...]) -> str:
    """CUDA; older devices are told apart, so that no backend claims them."""
    if len(devices) > 1:
        found = ", ".join(f"cuda:{k}" for k in devices)
        raise TypeError(f"the arrays are on different devices: {found}; move them to one")
    if cupy.cuda.runtime.is_hip:
        return "rocm"
    digits = cupy.cuda.Device(devices[0]).compute_capability
    major, minor = int(digits[:-1]), int(digits[-1])
    reason = f"cuda with compute capability {major}.{minor} (at least {LEAST[0]}.{LEAST[1]} is needed)"
    return "cuda" if (major, minor) >= LEAST else reason
