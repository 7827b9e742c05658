"""A stand-in for CuPy, for tests without a GPU: strict, small, its devices pretended (`cupy.machine`).

Arrays lie in host memory and everything is computed at once, by NumPy; `RawModule` builds CUDA C for the CPU. Only what
the package and its tests use is here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cupy import cuda
from cupy import random as random
from cupy.arrays import compute, known, made, ndarray, new
from cupy.raw import RawKernel as RawKernel
from cupy.raw import RawModule as RawModule

__version__ = "14.0.0+standin"
bool_, int8, int16, int32, int64 = np.bool_, np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float16, float32, float64, complex64, complex128 = np.float16, np.float32, np.float64, np.complex64, np.complex128
inf, nan, newaxis = np.inf, np.nan, np.newaxis
dtype, generic, finfo, result_type = np.dtype, np.generic, np.finfo, np.result_type

_pool = cuda.MemoryPool()


def get_default_memory_pool() -> cuda.MemoryPool:
    return _pool


# ------------------------------------------------------------------------------------------------ to and from the host


def array(x: Any, dtype: Any = None, copy: bool | None = True, order: str = "K", **options: Any) -> ndarray:
    """A copy of an array of either side, of numbers or of lists of them."""
    if isinstance(x, ndarray):
        changed = x if dtype is None else x.astype(dtype, copy=False)
        return changed.copy() if copy and changed is x else changed
    values = np.asarray(x)
    return made(values.astype(known(values.dtype if dtype is None else dtype), order="K" if order is None else order))


def asarray(x: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> ndarray:
    if type(x).__module__.startswith(("jaxlib", "jax.")):  # a buffer of XLA, whose memory CuPy takes as it is
        return ndarray._wrap(np.asarray(x), cuda.get_device_id())
    return array(x, dtype, copy, order)


def from_dlpack(x: Any) -> ndarray:
    """The memory of an array of another library."""
    return ndarray._wrap(np.from_dlpack(x), cuda.get_device_id())


def ascontiguousarray(x: Any, dtype: Any = None) -> ndarray:
    x = asarray(x, dtype)
    return x if x.flags.c_contiguous else x.copy()


def asfortranarray(x: Any, dtype: Any = None) -> ndarray:
    x = asarray(x, dtype)
    return x if x.flags.f_contiguous else x.copy("F")


def asnumpy(x: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return x.get(stream, order, out) if isinstance(x, ndarray) else np.asarray(x, order=order)


# ------------------------------------------------------------------------------------------------ new arrays


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return new(shape, dtype, order)


def full(shape: Any, value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    made_array = new(shape, np.result_type(value) if dtype is None else dtype, order)
    made_array[...] = value
    return made_array


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, dtype, order)


def full_like(x: ndarray, value: Any, dtype: Any = None) -> ndarray:
    return full(x.shape, value, x.dtype if dtype is None else dtype)


def empty_like(x: ndarray, dtype: Any = None) -> ndarray:
    return new(x.shape, x.dtype if dtype is None else dtype)


def zeros_like(x: ndarray, dtype: Any = None) -> ndarray:
    return full_like(x, 0, dtype)


def ones_like(x: ndarray, dtype: Any = None) -> ndarray:
    return full_like(x, 1, dtype)


def arange(*bounds: int, dtype: Any = None) -> ndarray:
    return made(np.arange(*bounds, dtype=dtype))


def eye(n: int, dtype: Any = float) -> ndarray:
    return made(np.eye(n, dtype=dtype))


# ------------------------------------------------------------------------------------------------ views


def broadcast_to(x: ndarray, shape: Any) -> ndarray:
    return x._view(np.broadcast_to(x._host, shape))


def broadcast_arrays(*arrays: ndarray) -> list[ndarray]:
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def expand_dims(x: ndarray, axis: Any) -> ndarray:
    return x._view(np.expand_dims(x._host, axis))


def moveaxis(x: ndarray, source: Any, destination: Any) -> ndarray:
    return x._view(np.moveaxis(x._host, source, destination))


def transpose(x: ndarray, axes: Any = None) -> ndarray:
    return x.transpose(axes)


def reshape(x: ndarray, shape: Any, order: str = "C") -> ndarray:
    return x.reshape(shape, order=order)


def swapaxes(x: ndarray, first: int, second: int) -> ndarray:
    return x.swapaxes(first, second)


def copy(x: ndarray, order: str = "K") -> ndarray:
    return x.copy()


# ------------------------------------------------------------------------------------------------ computation


def where(condition: Any, x: Any, y: Any) -> ndarray:
    return compute(np.where, condition.astype("?", copy=False), x, y)


def concatenate(parts: Any, axis: int | None = 0) -> ndarray:
    return compute(lambda *arrays: np.concatenate(arrays, axis=axis), *parts)


def stack(parts: Any, axis: int = 0) -> ndarray:
    return compute(lambda *arrays: np.stack(arrays, axis=axis), *parts)


def take(x: ndarray, rows: Any, axis: int | None = None) -> ndarray:
    return compute(lambda values: np.take(values, rows, axis), x)


def roll(x: ndarray, shift: int, axis: int | None = None) -> ndarray:
    return compute(lambda values: np.roll(values, shift, axis), x)


def einsum(formula: str, *operands: ndarray) -> ndarray:
    return compute(lambda *arrays: np.einsum(formula, *arrays), *operands)


def all(x: ndarray, axis: Any = None) -> ndarray:
    return x.all(axis)


def flatnonzero(x: ndarray) -> ndarray:
    return compute(np.flatnonzero, x)


def any(x: ndarray, axis: Any = None) -> ndarray:
    return x.any(axis)


def iscomplexobj(x: Any) -> bool:
    return bool(x.dtype.kind == "c") if isinstance(x, ndarray) else np.iscomplexobj(x)


def may_share_memory(x: Any, y: Any) -> bool:
    return isinstance(x, ndarray) and isinstance(y, ndarray) and np.may_share_memory(x._host, y._host)


def _solve(matrix: ndarray, right: ndarray) -> ndarray:
    return compute(np.linalg.solve, matrix, right)


linalg = SimpleNamespace(solve=_solve)


def _elementwise(name: str) -> Any:
    function = getattr(np, name)

    def apply(*operands: Any) -> ndarray:
        if not [x for x in operands if isinstance(x, ndarray)]:
            raise TypeError(f"Unsupported type {type(operands[0])}")
        return compute(function, *operands)

    apply.__name__ = name
    return apply


def frexp(x: ndarray) -> tuple[ndarray, ndarray]:
    return compute(lambda y: np.frexp(y)[0], x), compute(lambda y: np.frexp(y)[1], x)


for _name in (
    *(
        "abs",
        "clip",
        "conj",
        "cos",
        "exp",
        "isfinite",
        "isnan",
        "ldexp",
        "log",
        "logical_and",
        "logical_not",
        "logical_or",
    ),
    *("maximum", "minimum", "rint", "sign", "sin", "sqrt"),
):
    globals()[_name] = _elementwise(_name)
