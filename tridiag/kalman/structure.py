"""A model, or a part of one, which `+` joins to others."""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from tridiag.calls.state_space import is_readable, taken, to_numpy
from tridiag.libraries.arrays import check_sequence, library_of, module_of, place_of
from tridiag.problems.state_space import PARAMETERS

Array = Any
P = ParamSpec("P")
REGISTRATION = threading.Lock()
VARIANCES = {"level", "slope", "noise", "variance"}


def where_they_are(build: Callable[P, Structure]) -> Callable[P, Structure]:
    """The same function, whose work is done on the device of its arguments, or of the arrays of a structure."""

    @functools.wraps(build)
    def run(*arguments: P.args, **named: P.kwargs) -> Structure:
        given = (*arguments, *named.values())
        with place_of([x.F if isinstance(x, Structure) else x for x in given]):
            return build(*arguments, **named)

    return run


class Structure:
    """A model, or a part of one: ``**structure`` gives a verb its arguments, ``+`` and `sum` join several.

    ``structure | {"P0": ...}`` is a dictionary of its arguments with others in their place; a P0 takes that of
    ``diffuse`` too. Parts are of one library: made of tensors, its numbers are tensors; ``items()`` serves to convert.
    Once JAX is imported structures are pytrees, with ``diffuse`` static: arguments of `jax.jit`, of `jax.tree.map`.

    Attributes: ``F, H, Q, R, m0, P0`` as in `tridiag.kalman.filter`, ``diffuse``, the states unknown at first.

    Examples
    --------
    >>> from tridiag.kalman import models
    >>> (models.local_level(1.0, noise=2.0) + models.seasonal(4, 0.5)).F
    array([[ 1.,  0.,  0.,  0.],
           [ 0., -1., -1., -1.],
           [ 0.,  1.,  0.,  0.],
           [ 0.,  0.,  1.,  0.]])
    """

    in_jax = False  # whether JAX knows that structures are pytrees

    def __init__(self, F: Array, H: Array, Q: Array, R: Array, m0: Array, P0: Array, diffuse: Sequence[int] = ()):
        self.F, self.H, self.Q, self.R, self.m0, self.P0 = F, H, Q, R, m0, P0
        self.diffuse = tuple(diffuse)
        if not (hasattr(F, "requires_grad") or Structure.in_jax):  # Dynamo would go through all that is imported
            register_in_jax()

    def keys(self) -> Iterator[str]:
        """The names of its arguments."""
        return iter((*PARAMETERS, "diffuse") if self.diffuse else PARAMETERS)

    def items(self) -> ItemsView[str, Any]:
        """The names of its arguments, and these."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:
        """Its arguments."""
        return ValuesView(self)

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def __len__(self) -> int:
        return len([*self.keys()])

    def __contains__(self, name: object) -> bool:
        return name in [*self.keys()]

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"{name!r}; a structure has {', '.join(self.keys())}")
        return getattr(self, name)

    def __repr__(self) -> str:
        shape = getattr(self.F, "shape", ())  # as a pytree it may hold anything
        return f"Structure of {shape[-1]} states, {len(self.diffuse)} unknown at first" if shape else "Structure"

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(other, Mapping):
            return NotImplemented
        own = {name: self[name] for name in self.keys() if name != "diffuse" or "P0" not in other}
        return own | dict(other)

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self} if isinstance(other, Mapping) else NotImplemented

    def __radd__(self, other: Any) -> Structure:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # what `sum` begins with

    @where_they_are
    def __add__(self, other: Structure) -> Structure:
        if not isinstance(other, Structure):
            return NotImplemented
        found = [library_of(model.F) for model in (self, other)]
        if "numpy" in found and "torch" in found:
            raise TypeError(
                f"the parts of this model are of different libraries ({found[0]} and {found[1]}); make both of "
                "tensors: a number among the arguments of each, as in seasonal(4, torch.tensor(0.1))"
            )
        both = {f"{name} of {side}": model[name] for side, model in enumerate((self, other)) for name in PARAMETERS}
        arguments = taken(both)
        ops, arrays = module_of(arguments.library).Operations, arguments.working()
        pairs = {name: (arrays[f"{name} of 0"], arrays[f"{name} of 1"]) for name in PARAMETERS}
        diagonals = {name: block_diagonal(ops, *pairs[name]) for name in ("F", "Q", "P0")}
        return Structure(
            **diagonals,
            H=beside(ops, *pairs["H"], own=2),
            R=pairs["R"][0] + pairs["R"][1],
            m0=beside(ops, *pairs["m0"], own=1),
            diffuse=(*self.diffuse, *(i + self.F.shape[-1] for i in other.diffuse)),
        )


def register_in_jax() -> None:
    """Make structures pytrees where JAX is imported, once."""
    with REGISTRATION:
        if "jax" in sys.modules and not Structure.in_jax:
            registered(sys.modules["jax"].tree_util)
            Structure.in_jax = True


def registered(tree_util: Any) -> None:
    def flatten(structure: Structure) -> tuple[list[tuple[Any, Any]], tuple[int, ...]]:
        return [(tree_util.GetAttrKey(name), getattr(structure, name)) for name in PARAMETERS], structure.diffuse

    def unflatten(diffuse: tuple[int, ...], leaves: Sequence[Any]) -> Structure:
        F, H, Q, R, m0, P0 = leaves
        return Structure(F, H, Q, R, m0, P0, diffuse)

    tree_util.register_pytree_with_keys(Structure, flatten, unflatten)


def beside(ops: Any, x: Array, z: Array, own: int) -> Array:
    """Joined along the last axis; those before the ``own`` ones broadcast."""
    batch = np.broadcast_shapes(x.shape[: x.ndim - own], z.shape[: z.ndim - own])
    x, z = (ops.broadcast(part, (*batch, *part.shape[part.ndim - own :])) for part in (x, z))
    return ops.concatenate((x, z), x.ndim - 1)


def block_diagonal(ops: Any, x: Array, z: Array) -> Array:
    """Two square matrices, with zeros beside them."""
    batch = np.broadcast_shapes(x.shape[:-2], z.shape[:-2])
    x, z = (ops.broadcast(part, (*batch, *part.shape[-2:])) for part in (x, z))
    k, m = x.shape[-1], z.shape[-1]
    rows = (
        ops.concatenate((x, ops.full((*batch, k, m), 0, x)), x.ndim - 1),
        ops.concatenate((ops.full((*batch, m, k), 0, x), z), x.ndim - 1),
    )
    return ops.concatenate(rows, x.ndim - 2)


# ------------------------------------------------------------------------------------------------ of which it is made


class Numbers(NamedTuple):
    """The numbers that a model is made of, as arrays of one library."""

    ops: Any
    given: dict[str, Array]
    library: str
    device: str

    def fixed(self, x: Any) -> Array:
        like = next(iter(self.given.values()))
        return self.ops.converted(self.ops.placed(np.asarray(x, float), like), like)

    def total(self, *terms: tuple[Any, Any]) -> Array:
        """The sum of numbers, each times a fixed matrix."""
        return sum((number * self.fixed(x) for number, x in terms[1:]), start=terms[0][0] * self.fixed(terms[0][1]))


def numbers(*arrays: str, **given: Any) -> Numbers:
    """Arrays of one library, without axes but for the ``arrays``; numbers and lists go with those of any."""
    like = next((x for x in given.values() if library_of(x) in ("torch", "cupy")), None)
    for name, x in given.items():
        if isinstance(x, list | tuple):
            check_sequence(name, x, "numpy", *([str(library_of(like))] if like is not None else []))
            x = given[name] = np.asarray(x, float) if like is None else listed(x, like)
        if name not in arrays and (shape := tuple(getattr(x, "shape", ()))):
            raise ValueError(
                f"{name} has shape {shape}; wanted one number: a model is of all series, and those that have their own "
                "take parameters of shape (series, 1, rows, columns)"
            )
    arguments = taken(given)
    for name in VARIANCES & set(given):
        check_variance(name, given[name], arguments)
    operations = module_of(arguments.library).Operations
    return Numbers(operations, arguments.working(), arguments.library, arguments.device)


def check_variance(name: str, given: Any, arguments: Any) -> None:
    """Refuse one that is known and no variance."""
    x = arguments.arrays[name]
    if is_readable(arguments.library, arguments.device, x) and not 0 <= to_numpy(x) < math.inf:
        raise ValueError(f"{name} is {given!r}; wanted a variance: a number of at least 0, and finite")


def listed(x: Sequence[Any], like: Array) -> Array:
    """Numbers as an array beside another one; in its dtype, if that is not of integers."""
    like = like + 0.0
    if hasattr(like, "new_tensor"):
        return like.new_tensor(x)
    ops = module_of(str(library_of(like))).Operations
    return ops.converted(ops.placed(np.asarray(x, float), like), like)


def unit(k: int, i: int, j: int) -> np.ndarray:
    """A matrix with one 1."""
    made = np.zeros((k, k))
    made[i, j] = 1
    return made


def unknown(n: Numbers, k: int) -> dict[str, Any]:
    """A start of which nothing is known."""
    return {"m0": n.fixed(np.zeros(k)), "P0": n.fixed(np.diag([math.inf] * k)), "diffuse": range(k)}
