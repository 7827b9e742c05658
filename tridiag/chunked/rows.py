"""Rows at the ends of chunks, which the chunks beside them need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Block = Sequence[int]


def column(x: Any, axis: int, rank: int) -> Array:
    """An argument of a verb as one that is aligned to the right: a 1-D one lies along the axis of the systems."""
    x = np.asarray(x)
    return x.reshape((-1,) + (1,) * (rank - 1 - axis)) if x.ndim == 1 else x


def full(x: Any, axis: int, rank: int) -> Array:
    """The same with all axes of the result."""
    x = column(x, axis, rank)
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


def row(x: Any, last: bool, axis: int, rank: int) -> Array:
    """The first or the last row of an argument of a verb, aligned to the right."""
    x = column(x, axis, rank)
    along = axis - (rank - x.ndim)
    if x.ndim == 0 or along < 0:
        return x
    return x[(slice(None),) * along + (slice(-1, None) if last else slice(0, 1),)]


def neighbours(parts: Sequence[Block], k: int, periodic: bool) -> tuple[Block | None, Block | None]:
    """The chunk before one of those of a system, and the one behind; None where there is none."""
    before = parts[k - 1] if k > 0 or periodic else None
    behind = parts[(k + 1) % len(parts)] if k + 1 < len(parts) or periodic else None
    return before, behind


def select(keep: Any, x: Array) -> Array:
    """x where a mask is, 0 elsewhere, NaN or not."""
    return x if keep is None else np.where(keep, x, 0)
