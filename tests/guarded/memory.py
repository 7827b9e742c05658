"""Arrays in pages of their own, between pages that may not be touched: what reads or writes beyond them is killed.

An array ends, or begins, exactly where its pages do. What it is read from cannot be written, by hardware. Whatever lies
between and around its entries is PATTERN: NaN to whom it is a number, and looked at again after the call.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

PAGE = mmap.PAGESIZE
NOTHING, READ, WRITE = 0, 1, 3  # what may be done with pages, as mprotect has it
PATTERN = 0xFF  # of bytes: a NaN in every floating-point type, and -1
AROUND = 4096  # bytes around an array that hold the pattern
C = ctypes.CDLL(None, use_errno=True)
C.mmap.restype = ctypes.c_void_p
C.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
C.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
C.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class Layout(NamedTuple):
    """How an array lies: which axes vary fastest, their gaps, signs and zero strides, and at which end of its pages."""

    order: tuple[int, ...]  # the axes, outermost first
    gaps: tuple[int, ...]  # of each axis: entries between its end and the next one's
    every: int = 1  # entries from one to the next
    odd: int = 0  # bytes more than that
    signs: tuple[int, ...] = ()  # of the strides; 0: all entries along the axis are one
    behind: bool = True  # it ends with its pages, else it begins with them
    off: int = 0  # bytes from there

    def strides(self, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
        found, step = [0] * len(shape), itemsize * self.every + self.odd
        for axis in reversed(self.order):
            sign = self.signs[axis] if self.signs else 1
            found[axis] = step * sign
            if sign:
                step *= shape[axis] + self.gaps[axis]
        return tuple(found)


def plain(rank: int, behind: bool = True) -> Layout:
    return Layout(tuple(range(rank)), (0,) * rank, behind=behind)


class Room:
    """So many bytes of whole pages, between two that may not be touched."""

    def __init__(self, size: int) -> None:
        whole = size + 2 * PAGE
        start = C.mmap(None, whole, NOTHING, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"no pages for {size} bytes")
        self.address, self.size, self.allowed = start + PAGE, size, NOTHING
        self.allow(WRITE)
        self.bytes = np.frombuffer((ctypes.c_uint8 * size).from_address(self.address), np.uint8)

    def give_back(self) -> None:
        """To the system; nothing may use it any more."""
        C.munmap(self.address - PAGE, self.size + 2 * PAGE)

    def allow(self, what: int) -> None:
        if what != self.allowed:
            assert C.mprotect(self.address, self.size, what) == 0, "mprotect"
            self.allowed = what


@dataclass(slots=True)
class Held:
    """An array of a room, and the stretch of it that holds the pattern beside its entries."""

    array: np.ndarray[Any, Any]
    room: Room
    low: int
    high: int

    def entries(self) -> np.ndarray[Any, Any]:
        """The bytes of its entries, along a last axis."""
        x = self.array
        size, at = x.itemsize, x.ctypes.data - self.room.address
        return np.ndarray((*x.shape, size), np.uint8, self.room.bytes, at, (*x.strides, 1))

    def lock(self) -> None:
        """From now on it is read only."""
        self.room.allow(READ)

    def written_beside(self) -> int:
        """How many bytes beside its entries are no longer the pattern; the entries become it."""
        self.room.allow(WRITE)
        if self.array.size:
            self.entries()[...] = PATTERN
        return int(np.count_nonzero(self.room.bytes[self.low : self.high] != PATTERN))


class Rooms:
    """Rooms of every size, used again and again; the arrays of one case are all given back at once."""

    MOST = 64  # of a size that are kept

    def __init__(self, most: int = 1 << 25) -> None:
        """Of a size as many are kept as have so many bytes together."""
        self.most = most
        self.free: dict[int, list[Room]] = {}
        self.used: list[Held] = []

    def hold(self, shape: tuple[int, ...], dtype: Any, layout: Layout | None = None) -> Held:
        """An array that may be written, all of it the pattern."""
        dtype, layout = np.dtype(dtype), layout or plain(len(shape))
        strides = layout.strides(shape, dtype.itemsize)
        reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True)] if 0 not in shape else [0]
        low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + dtype.itemsize
        span = high - low if 0 not in shape else 0
        size = PAGE << max(0, math.ceil(math.log2(max(1, span + layout.off) / PAGE)))
        kept = self.free.setdefault(size, [])
        room = kept.pop() if kept else Room(size)
        room.allow(WRITE)
        begin = size - span - layout.off if layout.behind else layout.off
        first, last = max(0, begin - AROUND), min(size, begin + span + AROUND)
        room.bytes[first:last] = PATTERN
        at = min(begin - (low if span else 0), size - 1) if not span else begin - low
        array = np.ndarray(shape, dtype, room.bytes, at, strides)
        held = Held(array, room, first, last)
        self.used.append(held)
        return held

    def copy(self, x: Any, layout: Layout | None = None) -> Held:
        """The same values; along axes of stride 0 those of the first entry."""
        x = np.asarray(x)
        held = self.hold(x.shape, x.dtype, layout)
        if layout is not None and 0 in layout.signs and x.size:
            first = tuple(slice(0, 1) if sign == 0 else slice(None) for sign in layout.signs)
            held.array[first] = x[first]
        else:
            held.array[...] = x
        return held

    def give_back(self) -> None:
        for held in self.used:
            kept = self.free[held.room.size]
            if len(kept) < min(self.MOST, self.most // held.room.size):
                kept.append(held.room)
            else:
                held.room.give_back()
        self.used.clear()
