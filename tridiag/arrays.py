"""Whose array is it: the library, its device and its few operations that are spelt differently.

Nothing is imported here that the caller's arrays have not loaded already.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

SUPPORTED = ("float32", "float64", "complex64", "complex128")
HALVES = ("float16", "bfloat16")
_ROOTS = {"jax": "jax", "jaxlib": "jax", "torch": "torch", "cupy": "cupy"}


def library_of(x: Any) -> str | None:
    """'numpy', 'jax', 'torch' or 'cupy'; None for a Python scalar."""
    if isinstance(x, bool | int | float | complex):
        return None
    for kind in type(x).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in _ROOTS and (root != "jax" or hasattr(x, "aval")):
            return _ROOTS[root]
    return "numpy"


def common_library(arguments: Mapping[str, Any]) -> str:
    """The one library of the arguments; NumPy arrays and scalars beside JAX arrays count as JAX's."""
    owners = {name: library_of(x) for name, x in arguments.items() if x is not None}
    for name, x in arguments.items():
        refuse(name, x)
    found = {owner for owner in owners.values() if owner is not None}
    if found == {"jax", "numpy"}:
        found = {"jax"}
    if len(found) > 1:
        told = ", ".join(f"{name}: {owner}" for name, owner in owners.items() if owner)
        raise TypeError(
            f"the arguments belong to different libraries ({told}); convert them to one: data is never moved for you"
        )
    return found.pop() if found else "numpy"


def refuse(name: str, x: Any) -> None:
    """Sparse matrices and masked arrays look like arrays and are not."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(x).__mro__}
    if any(kind.startswith(("scipy.sparse.", "cupyx.scipy.sparse.")) for kind in kinds):
        raise TypeError(
            f"{name} is a sparse matrix; pass its three diagonals as dense arrays of length n, "
            f"a[1:] = A.diagonal(-1), b = A.diagonal(), c[:-1] = A.diagonal(1)"
        )
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass {name}.data, and the rows to keep as where=~mask")


def operations(library: str) -> Any:
    """The array operations of a library."""
    return importlib.import_module(f"tridiag.libraries.{library}").Operations


def dtype_name(dtype: Any) -> str:
    """'float32' for every library's way to say so, in any byte order."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def working_dtype(name: str) -> str:
    """The dtype in which a system of that dtype is solved."""
    return "float32" if name in HALVES else name


def is_real(name: str) -> bool:
    return name.startswith("float")


def loaded(module: str) -> Any:
    """The module if somebody has imported it already."""
    return sys.modules.get(module)


def refuse_dtype(name: str, dtype: str) -> None:
    raise TypeError(
        f"{name} has dtype {dtype}; wanted a numeric dtype that computes in one of {', '.join(SUPPORTED)} "
        f"(integers, {' and '.join(HALVES)} are converted); convert {name} first"
    )
