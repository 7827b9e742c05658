"""`cupy.ndarray`: a NumPy array in wraps, which nothing but an explicit copy brings back to the host.

It refuses what CuPy refuses, and more where that finds mistakes: any NumPy array beside it, arrays of a device that is
not the current one, and NumPy's functions. New memory holds no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cupy import machine
from cupy.cuda import runtime
from cupy.cuda.device import Device
from cupy.cuda.memory import MemoryPointer, allocate

Host = np.ndarray[Any, Any]
SCALARS = (bool, int, float, complex, np.generic)


def known(dtype: Any) -> np.dtype[Any]:
    """A dtype that CuPy has, in this machine's byte order."""
    dtype = np.dtype(dtype).newbyteorder("=")
    if dtype.kind not in "?biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def new(shape: Any, dtype: Any, order: str = "C") -> ndarray:
    """An array in memory of its own, on the current device."""
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    dtype = known(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return ndarray._wrap(np.ndarray(shape, dtype, allocate(size), order=order), runtime.getDevice())


def made(values: Any) -> ndarray:
    """A new array that holds values computed on the host."""
    values = np.asarray(values)
    columns = values.ndim > 1 and values.flags.f_contiguous and not values.flags.c_contiguous
    array = new(values.shape, values.dtype, "F" if columns else "C")
    array._host[...] = values
    return array


def host(x: Any) -> Any:
    """What an operation on the current device may read: its arrays, and scalars."""
    if isinstance(x, ndarray):
        if x._device != runtime.getDevice():
            raise ValueError(
                f"The device where the array resides ({x._device}) is different from the current device "
                f"({machine.current}). Peer access is unavailable between these devices."
            )
        return x._host
    if isinstance(x, SCALARS):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def compute(function: Callable[..., Any], *operands: Any, **options: Any) -> ndarray:
    """A new array of what NumPy computes from arrays and scalars, of which one at least is an array."""
    with np.errstate(all="ignore"):
        return made(function(*map(host, operands), **options))


def operator(function: Callable[..., Any], swapped: bool = False) -> Any:
    def apply(self: ndarray, *other: Any) -> ndarray:
        return compute(function, *other, self) if swapped else compute(function, self, *other)

    return apply


def in_place(function: Callable[..., Any]) -> Any:
    def apply(self: ndarray, other: Any) -> ndarray:
        with np.errstate(all="ignore"):
            function(host(self), host(other), out=self._host, casting="same_kind")
        return self

    return apply


class Flags:
    """As CuPy's: nothing is read-only."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, flags.owndata
        self.fnc, self.forc = flags.fnc, flags.forc


class ndarray:
    __module__ = "cupy"
    __array_ufunc__ = None  # so that NumPy arrays leave their operators to this class, which refuses them
    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        raise NotImplementedError("make arrays by cupy.empty")

    @classmethod
    def _wrap(cls, values: Host, device: int) -> ndarray:
        array = object.__new__(cls)
        array._host, array._device, array._data = values, device, None
        return array

    def _view(self, values: Host) -> ndarray:
        return self._wrap(values, self._device)

    def __array__(self, *args: Any, **options: Any) -> Host:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    # what is known without reading values

    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    flags = property(lambda self: Flags(self._host.flags))
    device = property(lambda self: Device(self._device))
    T = property(lambda self: self._view(self._host.T))

    @property
    def data(self) -> MemoryPointer:
        if self._data is None:
            self._data = MemoryPointer(self._host, self._device)
        return self._data

    def __len__(self) -> int:
        return len(self._host)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
            "version": 3,
            "stream": 1,
        }

    # what reads values waits for the device

    def get(self, stream: Any = None, order: str = "C", out: Host | None = None, blocking: bool = True) -> Host:
        machine.synchronise()
        values = np.array(self._host, order=order)
        if out is None:
            return values
        out[...] = values
        return out

    def item(self, *args: Any) -> Any:
        return self.get().item(*args)

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    # views and copies

    def __getitem__(self, key: Any) -> ndarray:
        chosen = self._host[indices(key)]
        return made(chosen) if picks(key) else self._view(self._host[whole(as_tuple(key))])

    def __setitem__(self, key: Any, value: Any) -> None:
        host(self)[indices(key)] = host(value)

    def set(self, values: Host) -> None:
        if values.dtype != self.dtype or values.shape != self.shape:
            raise ValueError(f"wanted {self.dtype} of shape {self.shape}, got {values.dtype} of shape {values.shape}")
        self._host[...] = values

    def fill(self, value: Any) -> None:
        host(self)[...] = value.item() if isinstance(value, np.ndarray | ndarray) else value

    def copy(self, order: str = "C") -> ndarray:
        copied = new(self.shape, self.dtype, order if order in "CF" else "C")
        copied._host[...] = self._host
        return copied

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        if not copy and self.dtype == dtype:
            return self
        with np.errstate(all="ignore"):
            return made(host(self).astype(known(dtype), order))

    def view(self, dtype: Any = None) -> ndarray:
        return self._view(self._host.view() if dtype is None else self._host.view(dtype))

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        reshaped = self._host.reshape(shape, order=order)
        return self._view(reshaped) if np.may_share_memory(reshaped, self._host) else made(reshaped)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._host.transpose(*axes))

    def swapaxes(self, first: int, second: int) -> ndarray:
        return self._view(self._host.swapaxes(first, second))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        return self._view(self._host.diagonal(offset, axis1, axis2))

    def squeeze(self, axis: Any = None) -> ndarray:
        return self._view(self._host.squeeze(axis))

    def repeat(self, repeats: int, axis: int | None = None) -> ndarray:
        return compute(np.repeat, self, repeats=repeats, axis=axis)

    @property
    def real(self) -> ndarray:
        return self._view(self._host.real) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> ndarray:
        return self._view(self._host.imag) if self.dtype.kind == "c" else compute(np.zeros_like, self)

    # reductions give arrays, of no axis where none is left

    def all(self, axis: Any = None, out: None = None, keepdims: bool = False) -> ndarray:
        return compute(np.all, self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, out: None = None, keepdims: bool = False) -> ndarray:
        return compute(np.any, self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> ndarray:
        return compute(np.max, self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> ndarray:
        return compute(np.min, self, axis=axis, keepdims=keepdims)

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> ndarray:
        return compute(np.sum, self, axis=axis, dtype=dtype, keepdims=keepdims)

    def argmax(self, axis: Any = None) -> ndarray:
        return compute(np.argmax, self, axis=axis)

    def cumsum(self, axis: int | None = None) -> ndarray:
        return compute(np.cumsum, self, axis=axis)

    def mean(self, axis: Any = None) -> ndarray:
        return compute(np.mean, self, axis=axis)

    def conj(self) -> ndarray:
        return compute(np.conj, self) if self.dtype.kind == "c" else self

    __neg__, __pos__, __abs__, __invert__ = map(operator, (np.negative, np.positive, np.abs, np.invert))
    __eq__, __ne__ = operator(np.equal), operator(np.not_equal)
    __lt__, __le__, __gt__, __ge__ = map(operator, (np.less, np.less_equal, np.greater, np.greater_equal))


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "matmul": np.matmul,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
for name, function in BINARY.items():
    setattr(ndarray, f"__{name}__", operator(function))
    setattr(ndarray, f"__r{name}__", operator(function, swapped=True))
    setattr(ndarray, f"__i{name}__", in_place(function))


def whole(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same key; a single entry is an array too."""
    return key if any(part is ... for part in key) else (*key, ...)


def as_tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def picks(key: Any) -> bool:
    """Whether an index names entries one by one, so that they are copied."""
    return any(isinstance(part, ndarray) for part in as_tuple(key))


def indices(key: Any) -> tuple[Any, ...]:
    """An index as NumPy takes it. Arrays of the host are none."""
    parts = as_tuple(key)
    if any(isinstance(part, np.ndarray | list) for part in parts):
        raise IndexError("Unsupported type of index: an array of the host")
    return tuple(host(part) if isinstance(part, ndarray) else part for part in parts)
