"""One piece of memory for copies of the diagonals of matrices, and for what is made of them; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import LINE, contiguous
from tridiag.problems.forms import Shape

Array = np.ndarray[Any, Any]


class Storage(NamedTuple):
    """Arrays one behind the other, each from a cache line on."""

    arrays: tuple[tuple[np.dtype[Any], Shape], ...]  # contiguous ones
    places: tuple[int, ...]  # in bytes, behind the first cache line
    size: int  # in bytes, wherever the memory begins

    @classmethod
    def of(cls, arrays: Sequence[tuple[np.dtype[Any], Shape]]) -> Storage:
        places, end = [], 0
        for dtype, shape in arrays:
            places.append(end)
            end += -(-math.prod(shape) * dtype.itemsize // LINE) * LINE
        return cls(tuple(arrays), tuple(places), end + LINE)

    def views(self, memory: Array) -> list[Array]:
        """The arrays in so much memory."""
        first = -memory.__array_interface__["data"][0] % LINE
        return [
            np.ndarray(shape, dtype, memory, first + place, contiguous(shape, dtype.itemsize))
            for (dtype, shape), place in zip(self.arrays, self.places, strict=True)
        ]
