"""Results whose rows lie contiguous go to memory past the caches, a piece of every lane at a time, by way of scratch.

So whole cache lines are written, and memory is not read in order to be overwritten.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import OPTIONS


def put_lanes(put: Any) -> Any:
    """What writes a piece of every lane, which lie end to end in scratch memory, by `moves.put_past_caches`."""

    @njit(**OPTIONS)
    def put_pieces(zero, scratch, targets, move, size):
        """One of every lane, ``move`` bytes from where the lane lies; those that meet in memory go there as one."""
        lanes, lane = lanes_of(zero, ()), 0
        while lane < lanes:
            first, target = lane, word(targets + 8 * lane)
            lane += 1
            while lane < lanes and word(targets + 8 * lane) == target + (lane - first) * size:
                lane += 1
            put(zero, (scratch + first * size, 0, target + move, 0, (lane - first) * size, 1))

    return put_pieces
