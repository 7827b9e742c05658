"""Products with tridiagonal matrices whose rows lie in several chunks: each is told of the row beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tridiag.chunked import whole
from tridiag.chunked.operands import of_system, refuse_targets, widened
from tridiag.chunked.rows import neighbours, row, select
from tridiag.chunked.whole import Verb

Array = np.ndarray[Any, Any]


class End(NamedTuple):
    """What a row gives to the row beside it, and whether it is kept."""

    value: Array
    kept: Array | None


class Chunk(NamedTuple):
    """A product within a chunk: what its tasks are told beside their arrays."""

    verb: Verb
    names: tuple[str, ...]
    axis: int
    rank: int
    transpose: bool

    def ends(self, *values: Any) -> tuple[End, End]:
        """A task: what the first row gives to the chunk before, and the last row to the one behind."""
        given = dict(zip(self.names, values, strict=True))

        def end(last: bool) -> End:
            x = row(given["x"], last, self.axis, self.rank)
            if self.transpose:
                with np.errstate(all="ignore"):
                    x = x * row(given["c" if last else "a"], last, self.axis, self.rank)
            return End(x, self.kept(given, last))

        return end(False), end(True)

    def kept(self, given: Mapping[str, Any], last: bool) -> Array | None:
        """Whether an end row is kept."""
        return row(given["where"], last, self.axis, self.rank) if "where" in given else None

    def product(self, before: tuple[End, End] | None, behind: tuple[End, End] | None, *values: Any) -> Array:
        """A task: the product within the chunk, and what the rows beside it add."""
        given = dict(zip(self.names, values, strict=True))
        y: Array = self.verb(**given, axis=self.axis, transpose=self.transpose)
        for beside, last in ((before, False), (behind, True)):
            if beside is None:
                continue
            with np.errstate(all="ignore"):
                add, kept = beside[0 if last else 1]
                if not self.transpose:
                    coupling = row(given["c" if last else "a"], last, self.axis, self.rank)
                    add = add * coupling
                place = (slice(None),) * self.axis + (slice(-1, None) if last else slice(0, 1),)
                y[place] += select(self.kept(given, last), select(kept, add))
        return y


def product(verb: Verb, given: Mapping[str, Any], where: Any, out: Any, **options: Any) -> Any:
    """`tridiag.matmul` of Dask arrays; ``given`` are a, b, c and x."""
    refuse_targets(out)
    renamed = {"d" if name == "x" else name: x for name, x in given.items()}
    operands = of_system(verb.__name__, renamed, where, **options)
    arrays, places = (
        {"x" if k == "d" else k: x for k, x in part.items()} for part in (operands.arrays, operands.places)
    )
    operands = operands._replace(arrays=arrays, places=places)
    flags = {name: bool(options[name]) for name in ("periodic", "transpose")}
    if not operands.cut:
        return whole.mapped(verb, operands, flags)
    if operands.plan.casts:
        wide = {**given, "x": widened(given["x"], operands.plan)}
        return product(verb, wide, where, None, **options).astype(operands.plan.out_dtype)
    name, names = operands.name(verb.__name__, flags), tuple(operands.arrays)
    chunk = Chunk(verb, names, operands.axis, len(operands.chunks), flags["transpose"])
    graph: dict[Any, Any] = {}
    for _, parts in operands.parts():
        for k, index in enumerate(parts):
            blocks = operands.blocks(names, index)
            graph[(f"ends-{name}", *index)] = (chunk.ends, *blocks)
            beside = neighbours(parts, k, flags["periodic"])
            told = [None if other is None else (f"ends-{name}", *other) for other in beside]
            graph[(name, *index)] = (chunk.product, *told, *blocks)
    return operands.result(name, graph)
