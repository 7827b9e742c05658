"""What compiled kernels call in the place of `pthread_create`: from a chosen call on there are no more threads."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, types

from tridiag.kernels.simd.memory import call, fetch_add

NEVER, AGAIN = 2**62, 11  # EAGAIN
LEFT, REFUSED = 0, 8
_words = np.array([NEVER, 0], np.int64)
_installed: list[Any] = []


def install() -> None:
    """Before any kernel of this process is loaded; it never goes back."""
    if _installed:
        return
    words = int(_words.ctypes.data)
    real = int(ctypes.cast(ctypes.CDLL(None).pthread_create, ctypes.c_void_p).value or 0)

    def create(handle, attributes, function, argument):  # type: ignore[no-untyped-def]
        if fetch_add(words + LEFT, -1) <= 1:
            fetch_add(words + REFUSED, 1)
            return AGAIN
        return types.int32(call(real, (handle, attributes, function, argument)))

    _installed.append(cfunc(types.int32(*[types.int64] * 4), error_model="numpy", nopython=True)(create))
    llvm.add_symbol("pthread_create", _installed[0].address)


def begin(fail_from: int = 0) -> None:
    """Of the threads that follow, those from one on, counted from 1, cannot be started; 0: all can."""
    _words[:] = fail_from or NEVER, 0


def refused() -> int:
    return int(_words[1])
