"""Systems whose rows lie in several chunks: reduced in each chunk, joined, and finished in each chunk.

A system that has no certificate in some chunk, or fails in the check of another, is NaN then. The rows of such systems
are collected, and these are solved whole; where there are none, those tasks do nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag import parts
from tridiag.calls.checks import check_flag
from tridiag.chunked import whole
from tridiag.chunked.operands import Operands, Place, of_system, refuse_targets, starts, widened
from tridiag.chunked.rows import column, neighbours, row
from tridiag.chunked.whole import Verb, singular
from tridiag.errors import BackendError, SingularSystemError
from tridiag.libraries.arrays import working_dtype

Array = np.ndarray[Any, Any]


class Joined(NamedTuple):
    """What is known of the systems of a chunk of the batch before they are finished."""

    values: Array  # (parts, 4, *batch), as `tridiag.parts.finish` takes them
    unsolved: Array  # the systems that could not be joined
    lost: Array  # those with NaN in the input, which are NaN throughout


class Chunk(NamedTuple):
    """What the tasks of all chunks are told beside their arrays."""

    names: tuple[str, ...]  # of the arguments
    moving: tuple[str, ...]  # those that are not constant along the axis of the systems
    axis: int
    rank: int
    transpose: bool
    dtype: str

    def ends(self, *values: Any) -> tuple[Array, Array]:
        """A task: the couplings that a transposed matrix has in the rows of the chunks beside this one."""
        given = dict(zip(self.names, values, strict=True))
        return row(given["a"], False, self.axis, self.rank), row(given["c"], True, self.axis, self.rank)

    def given(self, beside: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
        """The arguments of `tridiag.parts`; of a transposed matrix its diagonals, moved by a row."""
        given = dict(zip(self.names, values, strict=True))
        given["d"] = np.asarray(given["d"]).astype(self.dtype, copy=False)
        if self.transpose:
            before, behind = beside
            upper = self.moved("a", given["a"], None if behind is None else behind[0])
            given["a"] = self.moved("c", given["c"], None if before is None else before[1])
            given["c"] = upper
        return {**given, "axis": self.axis}

    def moved(self, name: str, x: Any, beside: Array | None) -> Array:
        """A diagonal and a row of the chunk beside; where there is none, the row does not count."""
        if name not in self.moving:
            return np.asarray(x)
        x = column(x, self.axis, self.rank)
        along = (slice(None),) * (self.axis - (self.rank - x.ndim))
        rest = x[(*along, slice(None, -1) if name == "c" else slice(1, None))]
        new = x[(*along, slice(0, 1))] if beside is None else beside
        return np.concatenate([new, rest] if name == "c" else [rest, new], axis=len(along))

    def reduce(self, beside: Any, *values: Any) -> tuple[Array, Array | None]:
        """A task: how the ends of the chunk depend on the rows beside it; and which systems hold NaN."""
        given = self.given(beside, values)
        with np.errstate(all="ignore"):
            ends = parts.reduce(**given)
        lost = np.isnan(ends[0])
        if "where" in given or not lost.any():
            return ends, None
        return ends, lost & self.holds_nan(given, lost.shape)

    def holds_nan(self, given: Mapping[str, Any], batch: Place) -> Array:
        """The systems with NaN on the diagonal or in the right side."""
        found = np.zeros(batch, bool)
        for name in "bd":
            x = column(given[name], self.axis, self.rank)
            along = self.axis - (self.rank - x.ndim)
            found |= np.isnan(x).any(axis=along) if x.ndim and along >= 0 else np.isnan(x)
        return found

    def finish(self, k: int, joined: Joined, beside: Any, *values: Any) -> Array:
        """A task: the solution in the chunk."""
        with np.errstate(all="ignore"):
            return parts.finish(**self.given(beside, values), values=joined.values[k])

    def late(self, x: Array, joined: Joined) -> Array | None:
        """A task: the systems that were joined, and whose end rows are not accurate."""
        first, last = (np.take(x, k, axis=self.axis) for k in (0, -1))
        found = (np.isnan(first) | np.isnan(last)) & ~joined.unsolved & ~joined.lost
        return found if found.any() else None

    def rows(self, unsolved: Array | None, *values: Any) -> dict[str, Array] | None:
        """A task: the rows of the systems that are to be solved whole."""
        if unsolved is None:
            return None
        given = {name: column(x, self.axis, self.rank) for name, x in zip(self.names, values, strict=True)}
        length = max(x.shape[self.axis - (self.rank - x.ndim)] for name, x in given.items() if name in self.moving)
        shape = (*unsolved.shape[: self.axis], length, *unsolved.shape[self.axis :])
        return {n: np.moveaxis(np.broadcast_to(x, shape), self.axis, -1)[unsolved] for n, x in given.items()}

    def patch(self, k: int, x: Array, found: tuple[Array, list[Array]] | None) -> Array:
        """A task: the solution, with that of the systems that were solved whole."""
        if found is None:
            return x
        x = np.array(x)
        unsolved, rows = found
        np.moveaxis(x, self.axis, -1)[unsolved] = rows[k]
        return x


def join(periodic: bool, told: Sequence[tuple[Array, Array | None]]) -> Joined:
    """A task: the values at the ends of all chunks."""
    with np.errstate(all="ignore"):
        values = parts.join(np.stack([ends for ends, _ in told]), periodic=periodic)
    lost = np.zeros(values.shape[2:], bool)
    for _, found in told:
        if found is not None:
            lost |= found
    return Joined(values, np.isnan(values).any(axis=(0, 1)) & ~lost, lost)


def remaining(joined: Joined, late: Sequence[Array | None]) -> Array | None:
    """A task: the systems to be solved whole; None: there are none."""
    found = joined.unsolved.copy()
    for some in late:
        if some is not None:
            found |= some
    return found if found.any() else None


def solve_whole(
    verb: Verb, options: Mapping[str, Any], first: Sequence[int], unsolved: Array | None, told: Sequence[Any]
) -> tuple[Array, list[Array]] | None:
    """A task: the solution of the systems whose rows were collected, and the chunks of it."""
    if unsolved is None:
        return None
    given = {name: np.concatenate([rows[name] for rows in told], axis=-1) for name in told[0]}
    try:
        x = verb(**given, **options)
    except SingularSystemError as error:
        places = np.argwhere(unsolved)[error.indices[:, 0]]
        raise singular(places + np.array(first, int), error.x) from error
    cuts = np.cumsum([rows["d"].shape[-1] for rows in told])[:-1]
    return unsolved, np.split(x, cuts, axis=-1)


def solve(verb: Verb, given: Mapping[str, Any], where: Any, out: Any, check: Any, **options: Any) -> Any:
    """`tridiag.solve` of Dask arrays; ``given`` are a, b, c and d."""
    refuse_targets(out, options.pop("overwrite_d"))
    if check is not None:
        check_flag("check", check)
    operands = of_system(verb.__name__, given, where, **options)
    told = {name: value for name, value in options.items() if name != "axis"} | {"check": check}
    if not operands.cut:
        return whole.solved(verb, operands, told)
    if operands.plan.casts:
        wide = {**given, "d": widened(given["d"], operands.plan)}
        x = solve(verb, wide, where, None, check, overwrite_d=False, **options)
        return x.astype(operands.plan.out_dtype)
    if options["backend"] != "auto":
        raise BackendError(
            f"backend is {options['backend']!r}, and the system axis is cut into {len(operands.chunks[operands.axis])} "
            "chunks, which tridiag.parts solves; leave backend out, or rechunk that axis into one chunk"
        )
    return in_parts(verb, operands, told)


def in_parts(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Tasks for systems whose rows lie in several chunks."""
    name, names, axis, plan = (
        operands.name(verb.__name__, options),
        tuple(operands.arrays),
        operands.axis,
        operands.plan,
    )
    moving = tuple(k for k, x in operands.arrays.items() if axis in operands.places[k] and operands.length(k, axis) > 1)
    chunk = Chunk(names, moving, axis, len(operands.chunks), plan.form.transpose, working_dtype(plan.result_dtype))
    begins = starts(tuple(operands.chunks[k] for k in operands.batch))
    graph: dict[Any, Any] = {}
    for batch, places in operands.parts():
        first = tuple(begins[j][k] for j, k in enumerate(batch))
        finishing = functools.partial(solve_whole, verb, options, first)
        graph.update(tasks(name, chunk, operands, batch, places, finishing))
    return operands.result(name, graph)


def tasks(
    name: str, chunk: Chunk, operands: Operands, batch: Place, places: Sequence[Place], solve_rest: Any
) -> dict[Any, Any]:
    """The tasks for the systems of one chunk of the batch."""
    periodic, graph = operands.plan.form.periodic, {}
    joined, rest, found = ((f"{step}-{name}", *batch) for step in ("join", "remaining", "whole"))
    keys = {step: [(f"{step}-{name}", *k) for k in places] for step in ("ends", "reduce", "finish", "late", "rows")}
    for k, index in enumerate(places):
        blocks, beside = operands.blocks(chunk.names, index), None
        if chunk.transpose:
            graph[keys["ends"][k]] = (chunk.ends, *blocks)
            others = neighbours(places, k, periodic)
            beside = [None if other is None else (f"ends-{name}", *other) for other in others]
        graph[keys["reduce"][k]] = (chunk.reduce, beside, *blocks)
        graph[keys["finish"][k]] = (functools.partial(chunk.finish, k), joined, beside, *blocks)
        graph[keys["late"][k]] = (chunk.late, keys["finish"][k], joined)
        graph[keys["rows"][k]] = (chunk.rows, rest, *blocks)
        graph[(name, *index)] = (functools.partial(chunk.patch, k), keys["finish"][k], found)
    graph[joined] = (functools.partial(join, periodic), keys["reduce"])
    graph[rest] = (remaining, joined, keys["late"])
    graph[found] = (solve_rest, rest, keys["rows"])
    return graph
