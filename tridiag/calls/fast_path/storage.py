"""Memory for copies of matrices and their factors, which is kept for others when nobody has the former any more.

Pages that the system has to clear cost as much as the factors. The C library gives large memory back to the system
whenever it is freed.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SMALLEST = 128 * 1024  # bytes; what is smaller the C library keeps
KEPT = 64 * 1024 * 1024  # bytes of memory that nobody has, at most
WASTE = 2  # times what was asked for, at most, of memory that is found again


class Pool:
    """Memory by its address: what nobody has, the latest last, and what is lent."""

    def __init__(self) -> None:
        self.free: dict[int, Array] = {}
        self.lent: dict[int, tuple[weakref.ref[Array], Array]] = {}  # by the addresses of the former

    def take(self, size: int) -> Array:
        """So many bytes or more, which come back when the array, and the last one that is a view of it, are gone."""
        if not SMALLEST <= size <= KEPT:
            return np.empty(size, np.uint8)
        memory = self.found(size)
        if memory is None:
            memory = np.empty(size, np.uint8)
        lent: Array = np.frombuffer(memory.data, np.uint8)  # of which views are views, not of the memory
        watched = weakref.ref(lent, self.come_back)
        self.lent[id(watched)] = watched, memory
        return lent

    def found(self, size: int) -> Array | None:
        """The smallest piece that is large enough, and not much larger."""
        fitting = [(piece.nbytes, at) for at, piece in list(self.free.items()) if size <= piece.nbytes <= WASTE * size]
        for _, at in sorted(fitting):
            piece = self.free.pop(at, None)  # another thread may have taken it
            if piece is not None:
                return piece
        return None

    def come_back(self, gone: weakref.ref[Array]) -> None:
        _, memory = self.lent.pop(id(gone))
        self.free[memory.__array_interface__["data"][0]] = memory
        while sum([piece.nbytes for piece in list(self.free.values())]) > KEPT:
            self.free.pop(next(iter(list(self.free)), 0), None)


POOL = Pool()
