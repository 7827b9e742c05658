"""Systems whose rows lie in several short chunks: reduced in each chunk, joined, and finished in each chunk.

A system that has no certificate in some chunk, or fails in the check of another, is NaN then, and is solved whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag import parts
from tridiag.chunked.operands import Place
from tridiag.chunked.rest import Settled, Solved, Systems, Verdict, few
from tridiag.chunked.rows import column, row
from tridiag.chunked.sources import Sources

Array = np.ndarray[Any, Any]
THROUGH = 2.0**-10  # a dependence of one end of a chunk on the other that may cost digits where chunks are joined


class Joined(NamedTuple):
    """What is known of the systems of a chunk of the batch before they are finished."""

    values: Array  # (parts, 4, *batch), as `tridiag.parts.finish` takes them
    unsolved: Array  # the systems that could not be joined
    lost: Array  # those with NaN in the input, which are NaN throughout
    likely: bool  # whether some may have to be solved whole: none is joined, or many are coupled through whole chunks


class Lost(NamedTuple):
    """The systems that hold NaN in a chunk."""

    anywhere: Array
    unseen: Array  # those of which it is not asked whether they are singular


class Chunk(NamedTuple):
    """What the tasks of all chunks are told beside their arrays."""

    systems: Systems
    dtype: str

    @property
    def axis(self) -> int:
        return self.systems.axis

    @property
    def rank(self) -> int:
        return self.systems.rank

    def ends(self, *values: Any) -> tuple[Array, Array]:
        """A task: the couplings that a transposed matrix has in the rows of the chunks beside this one."""
        given = self.systems.given(values)
        return row(given["a"], False, self.axis, self.rank), row(given["c"], True, self.axis, self.rank)

    def given(self, beside: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
        """The arguments of `tridiag.parts`; of a transposed matrix its diagonals, moved by a row."""
        given = self.systems.given(values)
        given["d"] = np.asarray(given["d"]).astype(self.dtype, copy=False)
        if self.systems.transpose:
            before, behind = beside
            upper = self.moved("a", given["a"], None if behind is None else behind[0])
            given["a"] = self.moved("c", given["c"], None if before is None else before[1])
            given["c"] = upper
        return {**given, "axis": self.axis}

    def moved(self, name: str, x: Any, beside: Array | None) -> Array:
        """A diagonal and a row of the chunk beside; where there is none, the row does not count."""
        if name not in self.systems.moving:
            return np.asarray(x)
        x = column(x, self.axis, self.rank)
        along = (slice(None),) * (self.axis - (self.rank - x.ndim))
        rest = x[(*along, slice(None, -1) if name == "c" else slice(1, None))]
        new = x[(*along, slice(0, 1))] if beside is None else beside
        return np.concatenate([new, rest] if name == "c" else [rest, new], axis=len(along))

    def reduce(self, beside: Any, *values: Any) -> tuple[Array, Lost | None]:
        """A task: how the ends of the chunk depend on the rows beside it; and which systems hold NaN.

        Where singular systems are to be told, those with NaN in the right side alone are joined without it: NaN says
        nothing of a matrix.
        """
        given = self.given(beside, values)
        with np.errstate(all="ignore"):
            ends = parts.reduce(**given)
        without = np.isnan(ends[0])
        if "where" in given or not without.any():
            return ends, None
        in_matrix, in_sides = (without & self.holds_nan(given[name], without.shape) for name in "bd")
        lost = in_matrix | in_sides
        in_sides &= ~in_matrix
        if self.systems.options["check"] is False:
            return ends, Lost(lost, lost)
        if in_sides.any():
            given["d"] = np.where(np.expand_dims(in_sides, self.axis), 0, given["d"])
            with np.errstate(all="ignore"):
                ends = parts.reduce(**given)
        return ends, Lost(lost, in_matrix)

    def holds_nan(self, x: Any, batch: Place) -> Array:
        """The systems with NaN on the diagonal, or in the right side."""
        x = column(x, self.axis, self.rank)
        along = self.axis - (self.rank - x.ndim)
        found = np.isnan(x).any(axis=along) if x.ndim and along >= 0 else np.isnan(x)
        return np.broadcast_to(found, batch)

    def finish(self, k: int, joined: Joined, beside: Any, *values: Any) -> Solved:
        """A task: the solution in the chunk."""
        with np.errstate(all="ignore"):
            x = parts.finish(**self.given(beside, values), values=joined.values[k])
        return Solved(x, self.systems.kept(values, joined.likely))

    def late(self, solved: Solved, joined: Joined) -> Array | None:
        """A task: the systems that were joined, and whose end rows are not accurate."""
        first, last = (np.take(solved.x, k, axis=self.axis) for k in (0, -1))
        found = (np.isnan(first) | np.isnan(last)) & ~joined.unsolved & ~joined.lost
        return found if found.any() else None

    def settle(self, first: Place, sources: Sources, joined: Joined, solved: Sequence[Solved]) -> Settled:
        """A task: what has to be known of other chunks before the result is."""
        late = [self.late(chunk, joined) for chunk in solved]
        return self.systems.settle(first, sources, verdict(joined, late), solved)

    def result(self, k: int, count: int, settled: Settled, solved: Solved | None = None) -> Array:
        """A task: the solution in one of so many chunks, with that of the systems that were solved whole."""
        return self.systems.put(settled, k, (solved or settled.chunks[k]).x)


def join(periodic: bool, told: Sequence[tuple[Array, Lost | None]]) -> Joined:
    """A task: the values at the ends of all chunks."""
    with np.errstate(all="ignore"):
        values = parts.join(np.stack([ends for ends, _ in told]), periodic=periodic)
    lost, unseen = np.zeros(values.shape[2:], bool), np.zeros(values.shape[2:], bool)
    for _, found in told:
        if found is not None:
            lost |= found.anywhere
            unseen |= found.unseen
    unsolved = np.isnan(values).any(axis=(0, 1)) & ~unseen
    if lost.any():
        values = np.where(lost, np.nan, values)
    through = np.max([abs(ends[[1, 5]]) for ends, _ in told], axis=(0, 1))  # of one end on what is behind the other
    likely = bool(unsolved.any()) or not few(int(np.count_nonzero(through > THROUGH)), through.size)
    return Joined(values, unsolved, lost, likely)


def verdict(joined: Joined, late: Sequence[Array | None]) -> Verdict:
    """A task: the systems to be solved whole."""
    found = joined.unsolved.copy()
    for some in late:
        if some is not None:
            found |= some
    return Verdict(found if found.any() else None)
