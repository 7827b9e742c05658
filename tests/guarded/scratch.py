"""What compiled kernels call in the place of `malloc` and `free`: blocks in pages of their own that are full of NaN.

A block ends, or begins, where its pages do, is gone when it is freed, and may be refused. `install` before any kernel
is loaded; the process never goes back.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, types

from tridiag.kernels.memory import fetch_add, set_word, swap, word

PAGE, ALIGNED = 4096, 16
PATTERN, MAGIC = 0xFF, 0x7472696467756172
NEVER = 2**62
# the words: blocks until one is refused, whether those after it are too, how many were; blocks begin where pages do;
# blocks beside which was written, the size of the last such; how many were asked for; then the addresses of blocks
LEFT, ALL, REFUSED, BEGIN, DAMAGED, SIZE_OF_DAMAGED, ASKED, BLOCKS = range(0, 64, 8)
MOST = 8192  # blocks at a time that are known

_words = np.zeros(BLOCKS // 8 + MOST, np.int64)
_words[LEFT // 8] = NEVER
_installed: list[Any] = []


def build() -> tuple[Any, Any]:
    """The functions malloc and free. A block has a page before it that tells what it is, two pages further down."""
    words = int(_words.ctypes.data)
    mmap = types.ExternalFunction("mmap", types.int64(types.int64, types.uint64, *[types.int32] * 3, types.int64))
    munmap = types.ExternalFunction("munmap", types.int32(types.int64, types.uint64))
    protect = types.ExternalFunction("mprotect", types.int32(types.int64, types.uint64, types.int32))
    memset = types.ExternalFunction("memset", types.int64(types.int64, types.int32, types.uint64))

    def malloc(size):  # type: ignore[no-untyped-def]
        fetch_add(words + ASKED, 1)
        left = fetch_add(words + LEFT, -1)
        if left == 1 or (left < 1 and word(words + ALL) != 0):
            fetch_add(words + REFUSED, 1)
            return 0
        length = max(types.int64(size), 1)
        room = (length + PAGE - 1) // PAGE * PAGE
        start = mmap(0, types.uint64(room + 3 * PAGE), 0, 34, -1, 0)  # MAP_PRIVATE | MAP_ANONYMOUS
        if start == -1:
            return 0
        pages = start + 2 * PAGE
        protect(start, types.uint64(PAGE), 3)
        protect(pages, types.uint64(room), 3)
        memset(pages, PATTERN, types.uint64(room))
        block = pages
        if word(words + BEGIN) == 0:
            block += room - (length + ALIGNED - 1) // ALIGNED * ALIGNED
        set_word(start, MAGIC)
        set_word(start + 8, length)
        set_word(start + 16, room)
        for k in range(MOST):
            if swap(words + BLOCKS + 8 * k, 0, block):
                set_word(start + 24, k)
                return block
        set_word(start + 24, -1)
        return block

    def free(block):  # type: ignore[no-untyped-def]
        if block == 0:
            return 0
        pages = block // PAGE * PAGE
        start = pages - 2 * PAGE
        if word(start) != MAGIC:
            fetch_add(words + DAMAGED, 1)
            set_word(words + SIZE_OF_DAMAGED, -1)
            return 0
        length, room, k = word(start + 8), word(start + 16), word(start + 24)
        harmed = 0
        for at in range(block + length, pages + room):
            harmed += is_other(at)
        for at in range(pages, block):
            harmed += is_other(at)
        if harmed != 0:
            fetch_add(words + DAMAGED, 1)
            set_word(words + SIZE_OF_DAMAGED, length)
        if k >= 0:
            swap(words + BLOCKS + 8 * k, block, 0)
        munmap(start, types.uint64(room + 3 * PAGE))
        return 0

    from numba import njit

    @njit
    def is_other(at):  # type: ignore[no-untyped-def]
        return 0 if word(at // 8 * 8) >> (8 * (at % 8)) & 0xFF == PATTERN else 1

    one = cfunc(types.int64(types.uint64), error_model="numpy", nopython=True)(malloc)
    return one, cfunc(types.int64(types.int64), error_model="numpy", nopython=True)(free)


def install() -> None:
    """Before any kernel of this process is loaded."""
    if not _installed:
        from tridiag.kernels.cache import _kernels

        assert not _kernels, "kernels are loaded already, and call malloc of the C library"
        _installed.extend(build())
        for name, function in zip(("malloc", "free"), _installed, strict=True):
            llvm.add_symbol(name, function.address)


def begin(at_begin: bool = False, fail_at: int = 0, all_after: bool = False) -> None:
    """Of the blocks that follow: where they lie, and which is refused, counted from 1, or that and all after it."""
    _words[BEGIN // 8], _words[ALL // 8], _words[LEFT // 8] = at_begin, all_after, fail_at or NEVER
    _words[REFUSED // 8] = _words[ASKED // 8] = _words[DAMAGED // 8] = 0


def asked() -> int:
    """How many blocks were asked for since `begin`."""
    return int(_words[ASKED // 8])


def refused() -> int:
    return int(_words[REFUSED // 8])


def check() -> None:
    """While no kernel runs: nothing was written beside blocks, and all but those that are kept have been freed."""
    if _words[DAMAGED // 8]:
        raise AssertionError(f"scratch memory: written beside a block of {_words[SIZE_OF_DAMAGED // 8]} bytes")
    for block in _words[BLOCKS // 8 :][_words[BLOCKS // 8 :] != 0]:
        at = int(block)
        length = ctypes.c_int64.from_address(at // PAGE * PAGE - 2 * PAGE + 8).value
        first = ctypes.c_int64.from_address(at)
        # A block that `tridiag.kernels.shelf` keeps begins with its size. Of none it is too small, and freed: so the
        # next call gets one of exactly its size, full of NaN.
        if first.value not in (length, 0):
            ctypes.c_int64.from_address(at).value = 0
            raise AssertionError(f"scratch memory: a block of {length} bytes was never freed")
        first.value = 0
