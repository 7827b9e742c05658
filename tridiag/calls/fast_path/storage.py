"""Memory for copies of matrices and their factors, which is kept for others when nobody has the former any more.

Pages that the system has to clear cost as much as the factors. The C library gives large memory back to the system
whenever it is freed.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SMALLEST = 128 * 1024  # bytes; what is no larger the C library keeps, and a table of calls makes
KEPT = 128 * 1024 * 1024  # bytes of memory that nobody has, at most


class Pool:
    """Memory of some sizes: what nobody has, and what is lent."""

    def __init__(self) -> None:
        self.free: dict[int, list[Array]] = {}  # by size, that of which none was free for the longest time first
        self.lent: dict[int, tuple[weakref.ref[Array], Array]] = {}  # by the addresses of the former

    def take(self, size: int) -> Array:
        """So many bytes or more, which come back when the array, and the last one that is a view of it, are gone."""
        if not SMALLEST < size <= KEPT:
            return np.empty(size, np.uint8)
        size = rounded(size)
        try:
            memory = self.free[size].pop()
        except (KeyError, IndexError):
            memory = np.empty(size, np.uint8)
        lent: Array = np.frombuffer(memory.data, np.uint8)  # of which views are views, not of the memory
        watched = weakref.ref(lent, self.come_back)
        self.lent[id(watched)] = watched, memory
        return lent

    def come_back(self, gone: weakref.ref[Array]) -> None:
        _, memory = self.lent.pop(id(gone))
        self.free.setdefault(memory.nbytes, []).append(memory)
        while sum([size * len(pieces) for size, pieces in list(self.free.items())]) > KEPT:
            pieces = self.free.pop(next(iter(list(self.free)), 0), [])
            if pieces and pieces[-1] is memory:  # of the last size that is left: as many of it as there is room for
                self.free[memory.nbytes] = pieces[: KEPT // memory.nbytes]
                break


def rounded(size: int) -> int:
    """The next of four sizes from one power of two to the next, so that storages of nearly one size share memory."""
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


POOL = Pool()
