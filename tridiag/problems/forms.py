"""Axes and broadcasting of the arguments of a system or a recurrence: pure functions of shapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tridiag.problems.misplaced import as_an_order, as_columns, check_columns, elsewhere

Shape = tuple[int, ...]
LARGEST = 16  # rows of blocks, and of the matrices of a recurrence that is compiled


class Cut(NamedTuple):
    """How the rows of systems are spread over devices: along which axes of a mesh, and how many devices those have."""

    names: tuple[str, ...]
    parts: int
    lengths: tuple[tuple[str, int], ...] = ()  # of these axes, in the order in which the mesh has them

    @staticmethod
    def along(axes: str | tuple[str, ...] | None, lengths: Mapping[str, int]) -> Cut:
        """From axes of a mesh that has such lengths; none, and an axis by itself, as JAX writes them."""
        names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
        of_names = tuple((name, length) for name, length in lengths.items() if name in names)
        return Cut(names, math.prod(lengths[name] for name in names), of_names)


class Form(NamedTuple):
    """What a backend must know beside the arrays; static and hashable.

    Every array has the rank of ``shape``, the system axis at ``axis`` (of length n, or 1 where the entry is constant
    along it), and batch axes of full length or 1.
    """

    shape: Shape  # the broadcast shape of all arguments, the shape of the solution
    matrix_shape: Shape  # the same without the right side: where this is 1, systems share their matrix
    axis: int
    periodic: bool = False
    transpose: bool = False
    pivoting: bool | str = "auto"
    overwrite_d: bool = False
    cut: Cut | None = None  # inside `jax.shard_map`, where the rows at hand are those of a device

    @property
    def n(self) -> int:
        return self.shape[self.axis]

    @property
    def batch(self) -> Shape:
        """The batch shape of the systems."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def matrices(self) -> int:
        """How many matrices there are."""
        return math.prod(self.matrix_shape) // self.n if self.n else math.prod(self.matrix_batch)

    @property
    def matrix_batch(self) -> Shape:
        """The batch shape of the matrices."""
        return self.matrix_shape[: self.axis] + self.matrix_shape[self.axis + 1 :]

    @property
    def whole(self) -> tuple[int, ...]:
        """The axes of which no system can do with a part."""
        return (self.axis,)

    def narrowed(self, shapes: Sequence[Shape], masked: bool) -> Form:
        """For some of the systems: the shapes of their a, b, c, right sides and, last, of their mask."""
        matrix = full_length([*shapes[:3], *shapes[-1:]] if masked else shapes[:3], self)
        return self._replace(shape=tuple(map(max, *shapes)), matrix_shape=matrix)

    def in_pairs(self) -> Form:
        """Complex right sides of a real matrix as twice as many real ones, along a new last axis."""
        return self._replace(shape=(*self.shape, 2), matrix_shape=(*self.matrix_shape, 1))


class Recurrence(NamedTuple):
    """What a backend must know of a recurrence beside its arrays; static and hashable.

    Every array has the rank of ``shape``. Coefficients and x have length n along ``axis``, or 1 where they are constant
    along it; the values before the first step have 1. Batch axes have the full length or 1.
    """

    shape: Shape  # the broadcast shape of coefficients and x, the shape of the result
    axis: int
    reverse: bool = False
    transpose: bool = False  # the other way, and a coefficient lies in the row of the value that it multiplies
    matrices: bool = False  # values are vectors along the last axis, and a coefficient has one more axis at its end
    cut: Cut | None = None  # inside `jax.shard_map`, where the rows at hand are those of a device

    @property
    def n(self) -> int:
        return self.shape[self.axis]

    @property
    def steps(self) -> int:
        """The rows of all devices."""
        return self.n * self.cut.parts if self.cut else self.n

    @property
    def batch(self) -> Shape:
        """The shape of one row."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def backward(self) -> bool:
        """Whether the last row comes first."""
        return self.reverse != self.transpose

    def narrowed(self, shapes: Sequence[Shape], masked: bool) -> Recurrence:
        """For some of the sequences: the shapes of their arrays."""
        return self._replace(shape=full_length([shape[: len(self.shape)] for shape in shapes], self))

    @property
    def whole(self) -> tuple[int, ...]:
        """The axes of which no sequence can do with a part."""
        return (self.axis, len(self.shape) - 1) if self.matrices else (self.axis,)


class Blocks(NamedTuple):
    """What a backend must know of block tridiagonal systems beside their arrays; static and hashable.

    Blocks are (*batch, n, m, m), right sides (*batch, n, m, k): k of them share a matrix. Every axis before the last
    two has the full length, or 1 where an array is constant along it.
    """

    shape: Shape  # (*batch, n, m, k), that of the solution
    transpose: bool = False

    @property
    def axis(self) -> int:
        """That of the block rows, in all arrays."""
        return len(self.shape) - 3

    @property
    def n(self) -> int:
        return self.shape[-3]

    @property
    def size(self) -> int:
        """The rows of a block."""
        return self.shape[-2]

    @property
    def sides(self) -> int:
        """The right sides of a matrix."""
        return self.shape[-1]

    @property
    def batch(self) -> Shape:
        return self.shape[:-3]

    @property
    def whole(self) -> tuple[int, ...]:
        """The axes of which no system can do with a part; blocks have others in the place of right sides."""
        return tuple(range(self.axis, len(self.shape)))

    def narrowed(self, shapes: Sequence[Shape], masked: bool) -> Blocks:
        """For some of the systems: the shapes of their arrays."""
        batch = (max(lengths) for lengths in zip(*(shape[: self.axis] for shape in shapes), strict=True))
        return self._replace(shape=(*batch, *self.shape[self.axis :]))


def full_length(shapes: Sequence[Shape], form: Form | Recurrence) -> Shape:
    """The broadcast shape, with all rows."""
    lengths = [max(some) for some in zip(*shapes, strict=True)]
    lengths[form.axis] = form.n
    return tuple(lengths)


def normalise_axis(axis: int, rank: int) -> int:
    """The axis as a number from 0 to rank - 1."""
    if not -rank <= axis < rank:
        raise ValueError(
            f"axis {axis} is out of range: the arguments broadcast to {rank} dimension(s); "
            f"give an axis from {-rank} to {rank - 1}"
        )
    return axis % rank


def lift(shape: Shape, rank: int, axis: int) -> Shape:
    """The shape with ones put in: a 1-D argument lies along ``axis``, any other aligns to the right as in NumPy."""
    if len(shape) == 1:
        return (1,) * axis + shape + (1,) * (rank - 1 - axis)
    return (1,) * (rank - len(shape)) + shape


def broadcast(shapes: Mapping[str, Shape], given: Mapping[str, Shape], more: Callable[[], str] = str) -> Shape:
    """The broadcast of equally long shapes; the error names the argument that does not fit, and then tells ``more``."""
    if math.prod(map(len, shapes.values())) == 0:
        return ()
    result: list[int] = []
    for lengths in zip(*shapes.values(), strict=True):
        wanted = [k for k in lengths if k != 1] or [1]
        result.append(wanted[0])
        for name, length in zip(shapes, lengths, strict=True):
            if length not in (1, wanted[0]):
                hints = f"{elsewhere(shapes, given)}{as_columns(given)}{more()}"
                listed = ", ".join(f"{key} {value}" for key, value in given.items())
                raise ValueError(
                    f"the shapes do not broadcast: {listed}; {name} has length {length} where another argument has "
                    f"{wanted[0]}; every axis must have the full length or 1{hints}"
                )
    return tuple(result)


def align(given: Mapping[str, Shape], axis: int) -> tuple[dict[str, Shape], int]:
    """The lifted shape of every argument, and the axis counted from the front."""
    rank = max(map(len, given.values()))
    if rank == 0:
        raise ValueError(
            "all arguments are scalars, which do not tell how many rows there are; at least one must be an array that "
            f"has the system axis, such as {list(given)[-1]}: numpy.full(n, {list(given)[-1]}) for n rows"
        )
    axis = normalise_axis(axis, rank)
    lifted = {name: lift(shape, rank, axis) for name, shape in given.items()}
    check_full_length(lifted, given, axis)
    broadcast(lifted, given)
    check_columns(lifted, given, axis)
    return lifted, axis


def align_recurrence(
    rows: Mapping[str, Shape], states: Mapping[str, Shape], axis: int
) -> tuple[dict[str, Shape], dict[str, Shape], int]:
    """The lifted shapes of what has rows and of the values before the first, and the axis counted from the front."""
    rank = max(map(len, rows.values()))
    if rank == 0:
        raise ValueError("all arguments are scalars; at least one must be an array that has the axis of the recurrence")
    axis = normalise_axis(axis, rank)
    lifted = {name: lift(shape, rank, axis) for name, shape in rows.items()}
    full = broadcast(lifted, rows, lambda: as_an_order(rows.get("a", ())))
    check_columns(lifted, rows, axis)
    batch = full[:axis] + full[axis + 1 :]
    return lifted, {name: lift_state(name, shape, batch, axis) for name, shape in states.items()}, axis


def align_matrices(given: Mapping[str, Shape]) -> tuple[dict[str, Shape], Shape]:
    """The lifted shapes of A, x and perhaps init, and the broadcast shape of the result."""
    matrix, vector = given["A"], given["x"]
    size = check_matrices(given, "A", "x")
    if not size:
        raise ValueError(f"A has shape {matrix}; wanted matrices with at least one row")
    rank = max(len(matrix) - 2, len(vector) - 1)
    if rank == 0:
        raise ValueError(f"A has shape {matrix} and x {vector}: one of them must have the axis of the steps")
    lifted = {"A": (1,) * (rank + 2 - len(matrix)) + matrix, "x": (1,) * (rank + 1 - len(vector)) + vector}
    steps = {"A": lifted["A"][:-2], "x": lifted["x"][:-1]}
    shape = (*broadcast(steps, given), size)
    if "init" in given:
        batch = (*shape[:-2], size)
        if not given["init"] or given["init"][-1] != size:
            raise ValueError(
                f"init has shape {given['init']}; wanted one that ends in {size} and broadcasts to {batch}"
            )
        lifted["init"] = lift_state("init", given["init"], batch, rank - 1)
    return lifted, shape


class Sides(NamedTuple):
    """How right sides (..., n, m) are brought to the form of `Blocks`, and solutions back."""

    shape: Shape  # of the solution, for the caller
    shared: tuple[int, ...]  # the axes along which matrices are constant

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the right sides, those of matrices first."""
        return *(k for k in range(len(self.shape)) if k not in self.shared), *self.shared

    @property
    def inverse(self) -> tuple[int, ...]:
        return tuple(self.order.index(k) for k in range(len(self.shape)))


def align_blocks(given: Mapping[str, Shape]) -> tuple[Blocks, Sides, dict[str, Shape]]:
    """The form, the way to it, and the lifted shapes of A, B, C and d: blocks without the axes that they lack."""
    for name in "ABC":
        size = check_matrices(given, name, "d")
        if not 1 <= size <= LARGEST:
            raise ValueError(f"{name} holds {size} x {size} matrices; wanted 1 to {LARGEST} rows")
    steps = {name: shape[: -1 if name == "d" else -2] for name, shape in given.items()}
    rank = max(map(len, steps.values()))
    if rank == 0:
        raise ValueError("no argument has the axis of the block rows: d is (..., n, m), A, B and C are (..., n, m, m)")
    steps = {name: (1,) * (rank - len(shape)) + shape for name, shape in steps.items()}
    full = broadcast(steps, given)
    shared = tuple(
        k for k in range(rank - 1) if steps["d"][k] == full[k] != 1 and all(steps[name][k] == 1 for name in "ABC")
    )
    sides = Sides((*full, size), shared)
    batch = tuple(length for k, length in enumerate(full[:-1]) if k not in shared)
    form = Blocks((*batch, full[-1], size, math.prod(full[k] for k in shared)))
    own = {name: tuple(length for k, length in enumerate(steps[name]) if k not in shared) for name in "ABC"}
    return form, sides, {name: (*own[name], size, size) if name in own else (*steps["d"], size) for name in given}


def check_matrices(given: Mapping[str, Shape], matrix: str, vector: str) -> int:
    """The size of the square matrices, which is the length of the vectors."""
    shape, size = given[matrix], given[vector][-1:]
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"{matrix} has shape {shape}; wanted square matrices along the last two axes")
    if size != shape[-1:]:
        raise ValueError(
            f"{vector} has shape {given[vector]} and {matrix} {shape}; wanted vectors of length {shape[-1]} along the "
            f"last axis of {vector}"
        )
    return shape[-1]


def lift_state(name: str, shape: Shape, batch: Shape, axis: int) -> Shape:
    """The shape of one row among others, which broadcasts to the batch as in NumPy."""
    pairs = list(itertools.zip_longest(reversed(shape), reversed(batch), fillvalue=1))
    if len(shape) > len(batch) or any(length not in (1, full) for length, full in pairs):
        raise ValueError(
            f"{name} has shape {shape}; wanted one value for each sequence, a shape that broadcasts to {batch}: "
            f"that of the result without axis {axis}"
        )
    full = (1,) * (len(batch) - len(shape)) + shape
    return (*full[:axis], 1, *full[axis:])


def check_full_length(lifted: Mapping[str, Shape], given: Mapping[str, Shape], axis: int) -> None:
    """Off-diagonals of length n - 1, as LAPACK takes them, get an error that says how to pad them."""
    n = max((lifted[name][axis] for name in lifted if name not in ("a", "c")), default=0)
    for name, pad in (("a", "one entry in front"), ("c", "one entry at the end")):
        if name in lifted and lifted[name][axis] == n - 1 and n > 2:
            raise ValueError(
                f"{name} has length {n - 1} along the system axis and the system has {n} rows (shape {given[name]}): "
                f"full length is wanted; pad {name} with {pad}, whose value is never read unless periodic=True"
            )
