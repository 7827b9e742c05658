"""Functions of NumPy's C API by their addresses, for compiled code that makes arrays."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

EMPTY = 184  # the place of PyArray_Empty in the table of functions, the same in all versions of NumPy


def empty_array() -> int:
    """The address of PyArray_Empty(axes, lengths, dtype, fortran), which takes a reference to the dtype for itself."""
    try:
        module = importlib.import_module("numpy._core._multiarray_umath")
    except ModuleNotFoundError:  # before NumPy 2
        module = importlib.import_module("numpy.core._multiarray_umath")
    pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    functions = (ctypes.c_void_p * (EMPTY + 1)).from_address(pointer(vars(module)["_ARRAY_API"], None))
    address = functions[EMPTY]
    assert address is not None
    return address
