"""`tridiag.solve` of Dask arrays: the tasks, where systems lie whole in their chunks and where they are cut.

Where the tasks share their memory two or three for each chunk are enough, and one or two for each chunk of the batch.
Where they may not, as on a cluster, two more tell what little of a chunk is needed elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.checks import check_check
from tridiag.chunked import cuts, parts, whole
from tridiag.chunked.held import is_held
from tridiag.chunked.operands import (
    Operands,
    Place,
    Steps,
    of_system,
    refuse_targets,
    share_memory,
    starts,
    widened,
)
from tridiag.chunked.rest import Settled, Solved, Systems
from tridiag.chunked.rows import neighbours
from tridiag.chunked.sources import Makers, Sources, makers_of
from tridiag.chunked.whole import Verb
from tridiag.errors import BackendError
from tridiag.libraries.arrays import working_dtype

# what tasks make, in an order in which none needs a later one
STEPS = "alone", "ends", "reduce", "join", "finish", "late", "verdict", "rows", "settle"


def solve(
    verb: Verb, given: Mapping[str, Any], where: Any, out: Any, check: Any, singular: str = "nan", **options: Any
) -> Any:
    """`tridiag.solve` of Dask arrays; ``given`` are a, b, c and d."""
    refuse_targets(out, options.pop("overwrite_d"))
    check_check(check)
    operands = of_system(verb.__name__, given, where, **options)
    told = {name: value for name, value in options.items() if name != "axis"} | {"check": check}
    if not operands.cut:
        return whole.solved(verb, operands, told | {"singular": singular})
    if singular != "nan":
        raise ValueError(
            f"singular is {singular!r}, which looks at whole systems, and the system axis is cut into "
            f"{len(operands.chunks[operands.axis])} chunks; rechunk that axis into one chunk"
        )
    if operands.plan.casts:
        wide = {**given, "d": widened(given["d"], operands.plan)}
        x = solve(verb, wide, where, None, check, overwrite_d=False, **options)
        return x.astype(operands.plan.out_dtype)
    if options["backend"] != "auto":
        raise BackendError(
            f"backend is {options['backend']!r}, and the system axis is cut into {len(operands.chunks[operands.axis])} "
            "chunks, which several solvers share; leave backend out, or rechunk that axis into one chunk"
        )
    return of_cut_systems(verb, operands, told)


def holds_solved(operands: Operands, shared: bool, makers: Makers) -> bool:
    """Whether chunks that are solved alone are held until all rows are known, or solved again."""
    return not shared or is_held(operands, makers.again)


def of_cut_systems(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Tasks for systems whose rows lie in several chunks."""
    axis, shared, chunks = operands.axis, share_memory(), operands.chunks
    name, names = operands.name(verb.__name__, {**options, "shared": shared}), tuple(operands.arrays)
    makers = makers_of(operands, shared)
    systems = Systems(verb, names, operands.moving, axis, len(chunks), dict(options), shared, makers.again)
    begins = starts(tuple(chunks[k] for k in operands.batch))
    long = cuts.are_long(chunks[axis])
    chunk: Any = (
        cuts.Alone(systems, operands.plan.form.periodic, holds_solved(operands, shared, makers))
        if long
        else parts.Chunk(systems, working_dtype(operands.plan.result_dtype))
    )
    steps: Steps = {f"{step}-{name}": {} for step in STEPS}
    for batch, places in operands.parts():
        first = tuple(begins[j][k] for j, k in enumerate(batch))
        group = Group(name, operands, systems, batch, places, first, makers.of(places))
        for key, task in (group.alone(chunk) if long else group.joined(chunk)).items():
            steps[key[0]][key] = task
    settled, solved = f"settle-{name}", [] if shared else [f"{'alone' if long else 'finish'}-{name}"]
    steps = {step: tasks for step, tasks in steps.items() if tasks or step in (settled, *solved)}
    results = Results(chunk, tuple(k for k, length in enumerate(chunks[axis]) if length), operands.plan.out_dtype)
    return operands.made_of(name, steps, settled, solved, results)


class Results(NamedTuple):
    """Tasks that make the blocks of a result, from what settles the systems of a chunk of the batch."""

    chunk: Any  # what the tasks of the other steps are told
    numbers: Place  # of the chunks along the axis that have rows
    dtype: Any

    def __call__(self, block: Place, shape: Place, settled: Settled | None, solved: Solved | None = None) -> Any:
        """A task: the solution in a block; where tasks share their memory all chunks are in what settles them."""
        if settled is None or 0 in shape:
            return np.empty(shape, self.dtype)
        k = self.numbers.index(block[self.chunk.systems.axis])
        return self.chunk.result(k, len(self.numbers), settled, solved)


class Group(NamedTuple):
    """The systems of one chunk of the batch."""

    name: str  # of the result
    operands: Operands
    systems: Systems
    batch: Place
    places: Sequence[Place]  # of their chunks
    first: Place  # the index of the first system
    sources: Sources

    @property
    def periodic(self) -> bool:
        periodic: bool = self.operands.plan.form.periodic
        return periodic

    def key(self, step: str) -> Any:
        return (f"{step}-{self.name}", *self.batch)

    def keys(self, step: str) -> list[Any]:
        return [(f"{step}-{self.name}", *place) for place in self.places]

    def blocks(self) -> list[list[Any]]:
        return [self.operands.blocks(self.systems.names, place) for place in self.places]

    def alone(self, chunk: cuts.Alone) -> dict[Any, Any]:
        """Each chunk is solved alone, and the rows around the cuts again."""
        keys, settled = self.keys("alone"), self.key("settle")
        graph: dict[Any, Any] = {key: (chunk.solve, *some) for key, some in zip(keys, self.blocks(), strict=True)}
        if self.systems.shared:
            return {**graph, settled: (functools.partial(chunk.settle, self.first, self.sources), keys)}
        told = dict(zip(self.keys("ends"), ((chunk.told, key) for key in keys), strict=True))
        return {**graph, **told, **self.verdict("settle", keys, (chunk.mend, [*told]))}

    def joined(self, chunk: parts.Chunk) -> dict[Any, Any]:
        """Each chunk is reduced, these are joined, and each is finished."""
        reduced, keys, joined, settled = self.keys("reduce"), self.keys("finish"), self.key("join"), self.key("settle")
        graph: dict[Any, Any] = {joined: (functools.partial(parts.join, self.periodic), reduced)}
        for k, blocks in enumerate(self.blocks()):
            beside = None
            if self.systems.transpose:
                graph[(f"ends-{self.name}", *self.places[k])] = (chunk.ends, *blocks)
                others = neighbours(self.places, k, self.periodic)
                beside = [None if other is None else (f"ends-{self.name}", *other) for other in others]
            graph[reduced[k]] = (chunk.reduce, beside, *blocks)
            graph[keys[k]] = (functools.partial(chunk.finish, k), joined, beside, *blocks)
        if self.systems.shared:
            return {**graph, settled: (functools.partial(chunk.settle, self.first, self.sources), joined, keys)}
        told = dict(zip(self.keys("late"), ((chunk.late, key, joined) for key in keys), strict=True))
        return {**graph, **told, **self.verdict("settle", keys, (parts.verdict, joined, [*told]))}

    def verdict(self, settled: str, solved: Sequence[Any], task: Any) -> dict[Any, Any]:
        """Tasks that collect the rows of systems which are to be solved whole, by a verdict, and solve them."""
        verdict, rows = self.key("verdict"), self.keys("rows")
        graph = {verdict: task}
        for key, chunk in zip(rows, solved, strict=True):
            graph[key] = (self.systems.rows, verdict, chunk)
        graph[self.key(settled)] = (functools.partial(self.systems.whole, self.first), verdict, rows)
        return graph
