"""NumPy's spelling of the array operations, and how its arguments become systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tridiag.arrays import Entry, Taken, refuse_dtype

SCALARS = (int, float, complex)


class Operations:
    where = staticmethod(np.where)
    zero = staticmethod(np.zeros_like)
    one = staticmethod(np.ones_like)
    broadcast = staticmethod(np.broadcast_to)
    all = staticmethod(np.all)
    any = staticmethod(np.any)
    sign = staticmethod(np.sign)
    unsqueeze = staticmethod(np.expand_dims)
    reshape = staticmethod(np.reshape)

    @staticmethod
    def size(x: Any) -> Any:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)

    @staticmethod
    def log_abs(x: Any) -> Any:
        return np.log(np.abs(x))

    @staticmethod
    def row(x: Any, i: int, axis: int) -> Any:
        return x[(slice(None),) * axis + (i if x.shape[axis] != 1 else 0,)]

    @staticmethod
    def slice(x: Any, part: slice, axis: int) -> Any:
        return x[(slice(None),) * axis + (part,)]

    @staticmethod
    def store(x: Any, i: int, axis: int, row: Any) -> None:
        x[(slice(None),) * axis + (i,)] = row

    @staticmethod
    def concatenate(parts: Any, axis: int) -> Any:
        return np.concatenate(parts, axis=axis)

    @staticmethod
    def stretch(x: Any, n: int, axis: int) -> Any:
        return np.broadcast_to(x, (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    @staticmethod
    def positions(n: int, rank: int, axis: int, like: Any) -> Any:
        return np.arange(n).reshape((1,) * axis + (n,) + (1,) * (rank - 1 - axis))

    @staticmethod
    def maximum(x: Any, axis: int) -> Any:
        return x.max(axis=axis)

    @staticmethod
    def limits(x: Any) -> tuple[float, float]:
        info = np.finfo(x.dtype)
        return float(info.eps), float(info.tiny)

    @staticmethod
    def empty(shape: Any, like: Any) -> Any:
        return np.empty(shape, like.dtype)

    @staticmethod
    def full(shape: Any, value: int, like: Any) -> Any:
        return np.full(shape, value, like.dtype)

    @staticmethod
    def nan(x: Any) -> Any:
        return np.asarray(np.nan, x.dtype)

    @staticmethod
    def zero_status(x: Any) -> Any:
        return np.zeros(x.shape, np.int32)


def take(arguments: Mapping[str, Any], where: Any) -> Taken:
    """Everything becomes an array. A scalar promotes as a scalar, before NumPy 2 by its value: hence the setting."""
    given, promoted = list(arguments.values()), None
    if list(map(type, given)) != [np.ndarray] * len(given):
        given, promoted = from_scalars(given)
    entries = [(x.dtype, x.shape) for x in given]
    if where is None:
        return given, None, (*entries, None), promoted
    where = np.asarray(where)
    return given, where, (*entries, (where.dtype, where.shape)), promoted


def from_scalars(given: list[Any]) -> tuple[list[Any], Any]:
    """Arrays from scalars, lists and the like, and the promoted dtype if there is one."""
    given = [x if isinstance(x, SCALARS) else np.asarray(x) for x in given]
    try:
        promoted = np.result_type(*given)
    except TypeError:  # with a dtype that `check_dtype` refuses
        promoted = None
    return [np.asarray(x) for x in given], promoted


def check_dtype(name: str, entry: Entry) -> None:
    """Refuse what cannot be solved in."""
    dtype = entry[0]
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        refuse_dtype(name, dtype.name)


def result_dtype(entries: Sequence[Entry], promoted: Any) -> str:
    """NumPy's promotion; integers become float64."""
    if promoted is None:
        promoted = np.result_type(*(np.zeros((), dtype) if shape == () else dtype for dtype, shape in entries))
    return "float64" if promoted.kind in "iu" else str(promoted.name)


def has_dtype(entry: Entry, dtype: str) -> bool:
    return bool(entry[0] == np.dtype(dtype))


def cast(x: Any, dtype: str) -> Any:
    return np.asarray(x, np.dtype(dtype))


def device(entries: Sequence[Entry], promoted: Any) -> str:
    return "cpu"


def traced(entries: Sequence[Entry]) -> bool:
    return False
