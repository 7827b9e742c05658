"""Kernels that other kernels call, and that are compiled when one of them is called first.

What calls such a kernel knows the address of a word with the address of a C function: at first of one that obtains the
kernel and puts its address there, from then on of the kernel. A caller that finds the word changed behind its call
calls again, and where the kernel could not be obtained, it finds the job unsolved.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from tridiag.kernels.runtime.python_call import lasting, raised
from tridiag.kernels.table import kernel

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)  # f(job, helpers)


@functools.cache
def word_of(family: str, *arguments: Any) -> int:
    """The address of the word of a kernel of `tridiag.kernels.table`."""
    word = lasting(np.zeros(1, np.int64))

    def obtain(job: int, helpers: int) -> None:
        raised.error = None
        try:
            word[0] = kernel(family, *arguments).address
        except BaseException as error:  # Ctrl-C while it is compiled, too
            raised.error = error

    function = lasting(KERNEL(obtain))
    word[0] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return int(word.ctypes.data)
