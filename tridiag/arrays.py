"""Whose array is it: the library, its device and its few operations that are spelt differently.

Nothing is imported here that the caller's arrays have not loaded already.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

Entry = tuple[Any, ...]  # the static facts of one argument: its dtype or type, its shape, and what its library adds
# the arguments as their library takes them; the mask; the entries of both (None: no mask); what else promotion takes
Taken = tuple[list[Any], Any, tuple[Any, ...], Any]

SUPPORTED = ("float32", "float64", "complex64", "complex128")
HALVES = ("float16", "bfloat16")
_ROOTS = {"jax": "jax", "jaxlib": "jax", "torch": "torch", "cupy": "cupy"}


def library_of(x: Any) -> str | None:
    """'numpy', 'jax', 'torch' or 'cupy'; None for a Python scalar."""
    kind: type = type(x)
    return library_of_type(kind)


@functools.lru_cache(256)
def library_of_type(kind: type) -> str | None:
    if issubclass(kind, bool | int | float | complex):
        return None
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        if root in _ROOTS and (root != "jax" or hasattr(kind, "aval")):
            return _ROOTS[root]
    return "numpy"


def common_library(names: tuple[str, ...], arguments: tuple[Any, ...]) -> str:
    """The one library of the arguments (None is none); NumPy arrays and scalars beside JAX arrays count as JAX's."""
    return library_of_types(names, *map(type, arguments))


@functools.lru_cache(256)
def library_of_types(names: tuple[str, ...], *kinds: type) -> str:
    given = {name: kind for name, kind in zip(names, kinds, strict=True) if kind is not type(None)}
    owners = {name: library_of_type(kind) for name, kind in given.items()}
    for name, kind in given.items():
        refuse(name, kind)
    found = {owner for owner in owners.values() if owner is not None}
    if found == {"jax", "numpy"}:
        found = {"jax"}
    if len(found) > 1:
        told = ", ".join(f"{name}: {owner}" for name, owner in owners.items() if owner)
        raise TypeError(
            f"the arguments belong to different libraries ({told}); convert them to one: data is never moved for you"
        )
    return found.pop() if found else "numpy"


def refuse(name: str, kind: type) -> None:
    """Sparse matrices and masked arrays look like arrays and are not."""
    kinds = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
    if any(kind.startswith(("scipy.sparse.", "cupyx.scipy.sparse.")) for kind in kinds):
        raise TypeError(
            f"{name} is a sparse matrix; pass its three diagonals as dense arrays of length n, "
            f"a[1:] = A.diagonal(-1), b = A.diagonal(), c[:-1] = A.diagonal(1)"
        )
    if issubclass(kind, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; pass {name}.data, and the rows to keep as where=~mask")


@functools.cache
def module_of(library: str) -> ModuleType:
    """What the package needs to know of a library."""
    return importlib.import_module(f"tridiag.libraries.{library}")


@functools.lru_cache(256)
def dtype_name(dtype: Any) -> str:
    """'float32' for every library's way to say so, in any byte order."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def working_dtype(name: str) -> str:
    """The dtype in which a system of that dtype is solved."""
    return "float32" if name in HALVES else name


def is_real(name: str) -> bool:
    return name.startswith("float")


def refuse_dtype(name: str, dtype: str) -> None:
    raise TypeError(
        f"{name} has dtype {dtype}; wanted a numeric dtype that computes in one of {', '.join(SUPPORTED)} "
        f"(integers, {' and '.join(HALVES)} are converted); convert {name} first"
    )
