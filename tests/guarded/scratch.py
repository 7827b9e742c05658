"""What compiled kernels call in the place of `malloc` and `free`: blocks in pages of their own that are full of NaN.

A block ends, or begins, where its pages do, is gone when it is freed, and may be refused. `install` before any kernel
is loaded; the process never goes back.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, njit, types

from tridiag.kernels.runtime.placement import START_SIZE
from tridiag.kernels.simd.memory import fetch_add, set_word, swap, word

PAGE, ALIGNED = 4096, 16
PATTERN, MAGIC = 0xFF, 0x7472696467756172
NEVER = 2**62
# the words: blocks until one is refused, whether those after it are too, how many were; blocks begin where pages do;
# blocks beside which was written, the size of the last such; how many were asked for, and exist; then their addresses
LEFT, ALL, REFUSED, BEGIN, DAMAGED, SIZE_OF_DAMAGED, ASKED, LIVE, BLOCKS = range(0, 72, 8)
MOST = 8192  # blocks at a time that are known
MOST_GUARDED = 10_000  # blocks at a time that have guards: Linux counts 65 530 stretches of pages

_words = np.zeros(BLOCKS // 8 + MOST, np.int64)
_words[LEFT // 8] = NEVER
_installed: list[Any] = []


def build() -> list[Any]:
    """malloc and free; and the malloc, calloc, realloc and free of `arrays`, whose blocks are not counted.

    The page two pages before a block tells what it is.
    """
    words = int(_words.ctypes.data)
    mmap = types.ExternalFunction("mmap", types.int64(types.int64, types.uint64, *[types.int32] * 3, types.int64))
    munmap = types.ExternalFunction("munmap", types.int32(types.int64, types.uint64))
    protect = types.ExternalFunction("mprotect", types.int32(types.int64, types.uint64, types.int32))
    memset = types.ExternalFunction("memset", types.int64(types.int64, types.int32, types.uint64))
    memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.uint64))
    ours = njit(error_model="numpy")

    @ours
    def is_other(at):  # type: ignore[no-untyped-def]
        return 0 if word(at // 8 * 8) >> (8 * (at % 8)) & 0xFF == PATTERN else 1

    @ours
    def grab(size):  # type: ignore[no-untyped-def]
        length = max(types.int64(size), 1)
        room = (length + PAGE - 1) // PAGE * PAGE
        guarded = fetch_add(words + LIVE, 1) < MOST_GUARDED
        start = mmap(0, types.uint64(room + 3 * PAGE), 0 if guarded else 3, 34, -1, 0)  # MAP_PRIVATE | MAP_ANONYMOUS
        if start == -1:
            return 0
        pages = start + 2 * PAGE
        if guarded:
            protect(start, types.uint64(PAGE), 3)
            protect(pages, types.uint64(room), 3)
        memset(pages, PATTERN, types.uint64(room))
        set_word(start, MAGIC)
        set_word(start + 8, length)
        set_word(start + 16, room)
        set_word(start + 24, -1)
        return pages if word(words + BEGIN) != 0 else pages + room - (length + ALIGNED - 1) // ALIGNED * ALIGNED

    @ours
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
        fetch_add(words + LIVE, -1)
        return 0

    def malloc(size):  # type: ignore[no-untyped-def]
        fetch_add(words + ASKED, 1)
        left = fetch_add(words + LEFT, -1)
        if left == 1 or (left < 1 and word(words + ALL) != 0):
            fetch_add(words + REFUSED, 1)
            return 0
        block = grab(size)
        # what a helper is made with is its own to free when it begins, which may be after the call that made it
        if block != 0 and size != START_SIZE:
            for k in range(MOST):
                if swap(words + BLOCKS + 8 * k, 0, block):
                    set_word(block // PAGE * PAGE - 2 * PAGE + 24, k)
                    return block
        return block

    def free_block(block):  # type: ignore[no-untyped-def]
        return free(block)

    def array(context, size):  # type: ignore[no-untyped-def]
        return grab(size)

    def zeros(context, count, size):  # type: ignore[no-untyped-def]
        block = grab(count * size)
        if block != 0:
            memset(block, 0, count * size)
        return block

    def longer(context, block, size):  # type: ignore[no-untyped-def]
        made = grab(size)
        if block != 0 and made != 0:
            memcpy(made, block, min(size, types.uint64(word(block // PAGE * PAGE - 2 * PAGE + 8))))
            free(block)
        return made

    def free_array(context, block, size):  # type: ignore[no-untyped-def]
        return free(block)

    address, size = types.int64, types.uint64
    kinds = {
        malloc: address(size), free_block: address(address), array: address(address, size),
        zeros: address(address, size, size), longer: address(address, address, size),
        free_array: address(address, address, size),
    }  # fmt: skip
    return [cfunc(kind, error_model="numpy")(function) for function, kind in kinds.items()]


def install() -> None:
    """Before any kernel of this process is loaded."""
    if not _installed:
        from tridiag.kernels.runtime.object_cache import _kernels

        assert not _kernels, "kernels are loaded already, and call malloc of the C library"
        _installed.extend(build())
        for name, function in zip(("malloc", "free"), _installed, strict=False):
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


class Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy."""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("functions", ctypes.c_void_p * 5))


@functools.cache
def handlers() -> tuple[Any, Any, Handler]:
    """PyDataMem_SetHandler, and what it takes to have arrays made of our blocks."""
    from numpy._core import multiarray

    get, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    table = ctypes.cast(get(multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    put = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])
    functions = [0, *(function.address for function in _installed[2:])]
    handler = Handler(b"guarded", 1, (ctypes.c_void_p * 5)(*functions))
    return put, new(ctypes.addressof(handler), b"mem_handler", None), handler


@contextlib.contextmanager
def arrays(backend: str = "auto") -> Iterator[None]:
    """Arrays that NumPy makes meanwhile, in the package that is: results, copies, factors; they are full of NaN too.

    Not in backends that loop over rows in Python, which make thousands, and write none but through NumPy.
    """
    if backend != "auto" and not backend.startswith("numba"):
        yield
        return
    put, ours, _ = handlers()
    before = put(ours)
    try:
        yield
    finally:
        put(before)


def check_damage() -> None:
    """Nothing was written beside the blocks that are freed by now."""
    if _words[DAMAGED // 8]:
        raise AssertionError(f"scratch memory: written beside a block of {_words[SIZE_OF_DAMAGED // 8]} bytes")


def check() -> None:
    """While no kernel runs: nothing was written beside blocks, and all but those that are kept have been freed."""
    check_damage()
    for block in _words[BLOCKS // 8 :][_words[BLOCKS // 8 :] != 0]:
        at = int(block)
        length = ctypes.c_int64.from_address(at // PAGE * PAGE - 2 * PAGE + 8).value
        first = ctypes.c_int64.from_address(at)
        # A block that `tridiag.kernels.runtime.workspace_pool` keeps begins with its size. Of none it is too small, and
        # freed: so the next call gets one of exactly its size, full of NaN.
        if first.value not in (length, 0):
            ctypes.c_int64.from_address(at).value = 0
            raise AssertionError(f"scratch memory: a block of {length} bytes was never freed")
        first.value = 0
