"""Whose array is it: the library, its device and its few operations that are spelt differently.

Nothing is imported here that the caller's arrays have not loaded already.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tridiag.libraries import foreign

Entry = tuple[Any, ...]  # the static facts of one argument: its dtype or type, its shape, and what its library adds
# the arguments as their library takes them; the mask; the entries of both (None: no mask); what else promotion takes
Taken = tuple[list[Any], Any, tuple[Any, ...], Any]

SUPPORTED = ("float32", "float64", "complex64", "complex128")
HALVES = ("float16", "bfloat16")
_ROOTS = {"jax": "jax", "jaxlib": "jax", "torch": "torch", "cupy": "cupy"}


def library_of(x: Any) -> str | None:
    """'numpy', 'jax', 'torch' or 'cupy'; None for a scalar of Python or NumPy, which goes with every array."""
    kind: type = type(x)
    return library_of_type(kind)


def place_of(arrays: Iterable[Any]) -> contextlib.AbstractContextManager[Any]:
    """Where work on arrays is done: the device of those of CuPy is the current one meanwhile."""
    arrays = list(arrays)
    return module_of("cupy").place(arrays) if "cupy" in map(library_of, arrays) else contextlib.nullcontext()


@functools.lru_cache(256)
def library_of_type(kind: type) -> str | None:
    if issubclass(kind, bool | int | float | complex | np.generic):
        return None
    for base in kind.__mro__:
        root = base.__module__.partition(".")[0]
        if root in _ROOTS and (root != "jax" or hasattr(kind, "aval")):
            return _ROOTS[root]
    return "numpy"


@functools.lru_cache(256)
def taking(names: tuple[str, ...], *kinds: type) -> tuple[str, Callable[..., Taken]]:
    """What the types of some arguments, and last of a mask, decide: their one library, and how it takes them."""
    library = agreed(dict(zip((*names, "where"), kinds, strict=True)))
    check_given(names, kinds)
    return library, module_of(library).taking(names, kinds)


def check_given(names: Sequence[str], kinds: Sequence[type]) -> None:
    """Refuse None for an argument that has to be there."""
    for name, kind in zip(names, kinds, strict=False):
        if kind is type(None):
            raise TypeError(f"{name} is None; wanted numbers: an array, or one for all")


CONVERSIONS = {  # of two libraries to one
    frozenset(
        {"numpy", "torch"}
    ): ". torch.from_numpy(x) shares the memory of a NumPy array, x.numpy() that of a tensor; "
    "a Python number or NumPy scalar goes with tensors as it is",
    frozenset({"cupy", "numpy"}): ". cupy.asarray(x) takes a NumPy array to the GPU, cupy.asnumpy(x) one back",
    frozenset({"jax", "torch"}): ". torch.from_dlpack(x) and jax.dlpack.from_dlpack(x) share memory",
}


def agreed(kinds: Mapping[str, type]) -> str:
    """The one library of some arguments; None is none. NumPy arrays and scalars beside JAX arrays count as JAX's."""
    owners = {name: owner(name, kind) for name, kind in kinds.items() if kind is not type(None)}
    found = {library for library in owners.values() if library is not None}
    if found == {"jax", "numpy"}:
        found = {"jax"}
    if len(found) > 1:
        lists = {name: kinds[name].__name__ for name in owners if issubclass(kinds[name], list | tuple)}
        listed = ", ".join(f"{name}: {lists.get(name, library)}" for name, library in owners.items() if library)
        raise TypeError(
            f"the arguments belong to different libraries ({listed}); convert them to one: data is never moved for you"
            + (CONVERSIONS.get(frozenset(found)) or "")
        )
    return found.pop() if found else "numpy"


@functools.lru_cache(256)
def owner(name: str, kind: type) -> str | None:
    """The library of an argument, which must not be what only looks like an array."""
    refuse(name, kind)
    return library_of_type(kind)


def refuse(name: str, kind: type) -> None:
    """Refuse what only looks like an array, or is more than one (`tridiag.libraries.foreign`)."""
    reason = foreign.refusal(kind)
    if reason is None and library_of_type(kind) == "numpy":
        reason = foreign.refusal_of_stranger(kind)
    if reason is not None:
        full = foreign.full_name(kind).removeprefix("builtins.")
        told = {"masked": foreign.instead_of_a_mask(name), "dense": foreign.instead_of_sparse(name, kind)}
        raise TypeError(f"{name} {reason.format(name=name, kind=full, wanted=foreign.wanted(name), **told)}")


def check_sequence(name: str, x: Any, *taken: str) -> None:
    """Refuse a list or tuple of what is no number and no array of the libraries ``taken``."""
    if isinstance(x, list | tuple):
        foreign.check_elements(name, x, owner, taken)


@functools.cache
def module_of(library: str) -> ModuleType:
    """What the package needs to know of a library."""
    return importlib.import_module(f"tridiag.libraries.{library}")


def connected_in(library: str, y: Any, arguments: Iterable[Any]) -> Any:
    """What no argument counts in, as part of the graph of all, as the results of PyTorch's operations are."""
    return module_of(library).connected(y, arguments) if library == "torch" else y


@functools.lru_cache(256)
def dtype_name(dtype: Any) -> str:
    """'float32' for every library's way to say so, in any byte order."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def working_dtype(name: str) -> str:
    """The dtype in which a system of that dtype is solved."""
    return "float32" if name in HALVES else name


def is_real(name: str) -> bool:
    return name.startswith("float")


def name_in_words(dtype: Any) -> str:
    """The name of a dtype; NumPy's own names of words, str32, are nobody's."""
    return "str" if dtype.kind == "U" else str(dtype.name)


REAL = ("scores", "gap", "gap_open", "temperature", "y", "F", "H", "Q", "R", "m0", "P0")  # arguments that must be


def refuse_dtype(name: str, dtype: str) -> None:
    taken = [kind for kind in SUPPORTED if name not in REAL or is_real(kind)]
    raise TypeError(
        f"{name} has dtype {dtype}; wanted a numeric dtype that computes in one of {', '.join(taken)} "
        f"(integers, {' and '.join(HALVES)} are converted); convert {name} first"
    )
