"""NumPy's spelling of the array operations, and how its arguments become systems."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.arrays import refuse_dtype


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


def convert(name: str, x: Any) -> Any:
    """An array or a scalar of a dtype that can be solved in; lists and the like become arrays."""
    x = x if isinstance(x, int | float | complex) and not isinstance(x, bool) else np.asarray(x)
    dtype = np.result_type(x)
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        refuse_dtype(name, dtype.name)
    return x


def result_dtype(arguments: Any) -> str:
    """NumPy's promotion; integers become float64."""
    dtype = np.result_type(*arguments)
    return "float64" if dtype.kind in "iu" else dtype.name


def cast(x: Any, dtype: str) -> Any:
    return np.asarray(x, np.dtype(dtype))


def boolean(x: Any) -> Any:
    return np.asarray(x)


def device(arguments: Any) -> str:
    return "cpu"


def traced(arguments: Any) -> bool:
    return False
