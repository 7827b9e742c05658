"""What libraries share whose operations run as Python meets them, and arrays with NumPy's way of indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Loops:
    """Loops of Python over steps of array operations."""

    stack: Any
    one_by_one = False  # whether entries are numbers, for which a program is written out

    @staticmethod
    def repeat(count: int, function: Any, state: Any) -> Any:
        """The state after ``state = function(k, state)`` for all k below a count."""
        for k in range(count):
            state = function(k, state)
        return state

    @classmethod
    def each(cls, count: int, function: Any, state: Any) -> tuple[Any, Any]:
        """The state after ``state, found = function(state, k)`` for all k below a count; what was found, stacked."""
        several: list[Any] = []
        for k in range(count):
            state, found = function(state, k)
            several.append(found)
        return state, None if several[0] is None else [cls.stack(parts) for parts in zip(*several, strict=True)]

    @staticmethod
    def reciprocal(x: Any) -> Any:
        return 1 / x

    @classmethod
    def row_by_row(cls, f: Callable[..., Any], x: Any, y: Any, z: Any) -> Any:
        """``f(ops, x, y, z[:, i])`` for all i at once: the rows of what it makes."""
        return f(cls, x[:, None], y[:, None], z)


class Indexing(Loops):
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
    def maximum(x: Any, axis: int) -> Any:
        return x.max(axis=axis)

    @staticmethod
    def at_most(x: Any, y: Any) -> Any:
        """x <= y, which NumPy compares by itself for numbers alone, and not for lanes of compiled code."""
        return x <= y

    @staticmethod
    def quotient(x: Any, y: Any) -> Any:
        """x / y; libraries whose complex division loses subnormal numbers have their own."""
        return x / y

    @staticmethod
    def limits(x: Any) -> tuple[float, float]:
        info = np.finfo(x.dtype)
        return float(info.eps), float(info.tiny)
