"""`tridiag.solve` of Dask arrays: the tasks, where systems lie whole in their chunks and where they are cut.

Where the tasks share their memory two or three for each chunk are enough, and one or two for each chunk of the batch.
Where they may not, as on a cluster, two more tell what little of a chunk is needed elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tridiag.calls.checks import check_check
from tridiag.chunked import cuts, parts, whole
from tridiag.chunked.operands import Operands, Place, of_system, refuse_targets, share_memory, starts, widened
from tridiag.chunked.rest import Systems
from tridiag.chunked.rows import neighbours
from tridiag.chunked.whole import Verb
from tridiag.errors import BackendError
from tridiag.libraries.arrays import working_dtype


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


def of_cut_systems(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Tasks for systems whose rows lie in several chunks."""
    axis, shared = operands.axis, share_memory()
    name, names = operands.name(verb.__name__, {**options, "shared": shared}), tuple(operands.arrays)
    systems = Systems(verb, names, operands.moving, axis, len(operands.chunks), dict(options), shared)
    begins = starts(tuple(operands.chunks[k] for k in operands.batch))
    graph: dict[Any, Any] = {}
    for batch, places in operands.parts():
        first = tuple(begins[j][k] for j, k in enumerate(batch))
        group = Group(name, operands, systems, batch, places, first)
        shortest = min(operands.chunks[axis][place[axis]] for place in places)
        graph.update(group.alone() if shortest >= cuts.SHORTEST else group.joined())
    return operands.result(name, graph)


class Group(NamedTuple):
    """The systems of one chunk of the batch."""

    name: str  # of the result
    operands: Operands
    systems: Systems
    batch: Place
    places: Sequence[Place]  # of their chunks
    first: Place  # the index of the first system

    @property
    def periodic(self) -> bool:
        periodic: bool = self.operands.plan.form.periodic
        return periodic

    def key(self, step: str) -> Any:
        return (f"{step}-{self.name}", *self.batch)

    def keys(self, step: str) -> list[Any]:
        return [(f"{step}-{self.name}", *place) for place in self.places]

    def results(self) -> list[Any]:
        return [(self.name, *place) for place in self.places]

    def blocks(self) -> list[list[Any]]:
        return [self.operands.blocks(self.systems.names, place) for place in self.places]

    def solved(self, key: Any) -> list[Any]:
        """What a result is made of, beside what settles it: that has all chunks where tasks share their memory."""
        return [] if self.systems.shared else [key]

    def alone(self) -> dict[Any, Any]:
        """Each chunk is solved alone, and the rows around the cuts again."""
        chunk, keys, settled = cuts.Alone(self.systems, self.periodic), self.keys("alone"), self.key("settle")
        graph: dict[Any, Any] = {key: (chunk.solve, *some) for key, some in zip(keys, self.blocks(), strict=True)}
        for k, result in enumerate(self.results()):
            graph[result] = (functools.partial(chunk.result, k, len(keys)), settled, *self.solved(keys[k]))
        if self.systems.shared:
            return {**graph, settled: (functools.partial(chunk.settle, self.first), keys)}
        told = dict(zip(self.keys("ends"), ((chunk.told, key) for key in keys), strict=True))
        return {**graph, **told, **self.verdict("settle", keys, (chunk.mend, [*told]))}

    def joined(self) -> dict[Any, Any]:
        """Each chunk is reduced, these are joined, and each is finished."""
        chunk = parts.Chunk(self.systems, working_dtype(self.operands.plan.result_dtype))
        reduced, keys, joined, settled = self.keys("reduce"), self.keys("finish"), self.key("join"), self.key("settle")
        graph: dict[Any, Any] = {joined: (functools.partial(parts.join, self.periodic), reduced)}
        for k, (blocks, result) in enumerate(zip(self.blocks(), self.results(), strict=True)):
            beside = None
            if self.systems.transpose:
                graph[(f"ends-{self.name}", *self.places[k])] = (chunk.ends, *blocks)
                others = neighbours(self.places, k, self.periodic)
                beside = [None if other is None else (f"ends-{self.name}", *other) for other in others]
            graph[reduced[k]] = (chunk.reduce, beside, *blocks)
            graph[keys[k]] = (functools.partial(chunk.finish, k), joined, beside, *blocks)
            graph[result] = (functools.partial(chunk.result, k), settled, *self.solved(keys[k]))
        if self.systems.shared:
            return {**graph, settled: (functools.partial(chunk.settle, self.first), joined, keys)}
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
