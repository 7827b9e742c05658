"""Kernels as functions of arrays that CPython calls itself: ctypes takes longer than a small system to be solved.

A function is made for one template: some words about the call, then the words of the job. Every call has a job of its
own, a copy of those in which only the addresses of the arrays are new; so calls may overlap.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tridiag.kernels.runtime.object_cache import made_by, obtain

# the words of a template, byte offsets: the kernel, its helpers, the bytes of the job, whether other Python threads run
# meanwhile, the addresses of None and of the type of integers, the job
KERNEL, HELPERS, SIZE, LONG, NONE, INTEGER, JOB = range(0, 56, 8)
# what a call returns; BROKEN: elimination met a zero pivot in some system; RAISED: a handler of a signal has
SOLVED, BROKEN, NO_MEMORY, RAISED = range(4)
HEAD = object.__basicsize__  # where a NumPy array holds the address of its memory (PyArrayObject_fields in its C API)
WORTH_A_SWITCH = 5_000  # unknowns; below, getting the GIL back may take longer than the call
METH_FASTCALL = 0x80
BEFORE_JOB = 64  # bytes before a job, for what a call keeps there (`python_entry`)
LISTEN = 50_000_000  # nanoseconds after which the main thread runs the handlers of signals, during a call

Thing = TypeVar("Thing")
raised = threading.local()  # ``error``: what the latest first call of a kernel raised in a thread (`kernels.on_demand`)


class Method(ctypes.Structure):
    """PyMethodDef of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


make_function: Any = ctypes.pythonapi.PyCFunction_NewEx
make_function.restype, make_function.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


ENTRY = "call", made_by("runtime.python_entry.build")  # a kernel, and what builds it


def lasting(made: Thing) -> Thing:
    """What native code points at until a process ends, when Python frees things in any order: this it never does."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made


@functools.cache
def method() -> Method:
    return lasting(Method(b"kernel", obtain(*ENTRY).address, METH_FASTCALL, None))


def function(kernel: int, words: Any, helpers: int, unknowns: int) -> Callable[..., int]:
    """The kernel at an address as a function of the arrays of a job, in the order of its pointers; None is no array.

    An integer is the address of memory that the caller keeps.
    """
    head = kernel, helpers, 8 * len(words), unknowns >= WORTH_A_SWITCH, id(None), id(int)
    made: Callable[..., int] = make_function(ctypes.byref(method()), np.array([*head, *words], np.int64), None)
    return made


def check(result: int) -> bool:
    """Whether elimination met a zero pivot in some system."""
    if result == NO_MEMORY:
        error, raised.error = getattr(raised, "error", None), None
        if error is not None:
            raise error
        raise MemoryError("no memory for the rows that the elimination keeps; solve fewer or shorter systems at a time")
    return result == BROKEN
