"""Systems whose rows lie in several long chunks: each chunk is solved alone, and the rows around each cut again.

A cut leaves out two couplings, which matters to the rows around it and decays with the distance from it. These rows, of
both chunks, are solved once more, between the first rows that stay as they are. Where the latter have residuals that
are rounding, every row has: that is all that is assumed. Systems that fail are solved whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import parts
from tridiag.algorithms.matrix_rows import bands
from tridiag.chunked.operands import Place
from tridiag.chunked.rest import Settled, Solved, Systems, Verdict, few
from tridiag.chunked.rows import full
from tridiag.chunked.sources import Sources
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks

Array = np.ndarray[Any, Any]
Ends = dict[str, tuple[Any, Any]]  # the first and the last rows of the arguments in a chunk, and of x
WIDTHS = 32, 64, 192, 512  # rows that are solved again on each side of a cut
BESIDE = 2  # rows behind these that are looked at, and that the first of them is coupled to
SHORTEST = 256  # rows of a chunk that is worth to be solved alone
SAMPLE = 4  # systems along an axis, or up to 7, which tell how the others may decay


def are_long(chunks: Sequence[int]) -> bool:
    """Whether chunks of so many rows are solved alone; those without rows are left out."""
    return min(filter(None, chunks)) >= SHORTEST


class Alone(NamedTuple):
    """Chunks that are solved alone: what their tasks are told beside their arrays."""

    systems: Systems
    periodic: bool
    held: bool = True  # whether what is solved is held until all is known, or solved again

    def solve(self, *values: Any) -> Solved:
        """A task: the solution as if nothing lay before and behind the chunk."""
        x = self.systems.solve(self.systems.given(values), self.systems.axis)
        if not self.systems.shared:
            return Solved(x, values)
        likely = any(self.systems.again) and not self.decay(values, self.reach(x.shape[self.systems.axis]), sample=True)
        kept = self.systems.kept(values, likely)
        ends = self.ends(x, values, WIDTHS[0], copied=True)
        return Solved(x if self.held or likely else None, kept, ends)

    def known(self, k: int, solved: Solved, sources: Sources | None) -> Solved:
        """The k-th chunk with its solution, solved again where that is not held."""
        if solved.x is not None or sources is None:
            return solved
        found = self.systems.restored(k, solved, sources)
        return found._replace(x=self.systems.solve(self.systems.given(found.values), self.systems.axis))

    def ends(self, x: Array, values: Sequence[Any], reach: int, copied: bool = False) -> Ends:
        """Rows at both ends that may be solved again, and those beside them; ``copied`` while caches have them."""
        axis, rank, count = self.systems.axis, self.systems.rank, reach + BESIDE
        found: Ends = {}
        for name, rows in {**self.systems.given(values), "x": x}.items():
            if not self.moves(name):
                found[name] = rows, rows
                continue
            whole = full(rows, axis, rank)
            pair = first(whole, count, axis), last(whole, count, axis)
            found[name] = (pair[0].copy(), pair[1].copy()) if copied else pair
        return found

    def all_ends(self, k: int, solved: Solved, sources: Sources) -> Ends:
        """The same of as many rows as may be solved again, of the k-th chunk."""
        found = self.systems.restored(k, self.known(k, solved, sources), sources)
        reach = self.reach(found.x.shape[self.systems.axis])
        return self.ends(found.x, found.values, reach, copied=found is not solved)

    def told(self, solved: Solved) -> Ends:
        """A task: the same for another worker: no more rows than couplings decay in."""
        reach = self.reach(solved.x.shape[self.systems.axis])
        enough = (width for width in WIDTHS if width < reach and self.decay(solved.values, width))
        return self.ends(solved.x, solved.values, next(enough, reach))

    def decay(self, values: Sequence[Any], width: int, sample: bool = False) -> bool:
        """Whether so many rows at either end separate what lies before and behind, in all systems but a few.

        In a row with t = (abs(a) + abs(c)) / abs(b) a solution decays by t / (1 + sqrt(1 - t^2)), exactly so where
        rows are alike. ``sample``: as far as the outermost rows of some systems tell.
        """
        axis, rank, failed = self.systems.axis, self.systems.rank, np.zeros((), bool)
        rows = {name: full(x, axis, rank) for name, x in self.systems.given(values).items() if name in "abc"}
        seen = width
        if sample:
            seen, rows = min(WIDTHS[0], width), {name: sampled(x, axis) for name, x in rows.items()}
        for side in (first, last):
            a, b, c = (abs(side(rows[k], seen, axis) if self.moves(k) else rows[k]) for k in "abc")
            with np.errstate(all="ignore"):
                ratio = np.minimum((a + c) / b, 1)
                ratio /= 1 + np.sqrt(1 - ratio * ratio)
            left = ratio.prod(axis) ** (width / ratio.shape[axis])
            failed = failed | (left > np.finfo(ratio.dtype).eps)  # NaN is not: no number of rows would help
        return few(int(np.count_nonzero(failed)), failed.size)

    def reach(self, rows: int) -> int:
        """How many rows may be solved again at either end of a chunk."""
        return min(WIDTHS[-1], rows // 4)

    def mend(self, ends: Sequence[Ends], widths: Sequence[int] = WIDTHS) -> Verdict:
        """A task: the rows around the cuts between chunks, and the systems that this has not solved."""
        pairs = list(itertools.pairwise(ends)) + ([(ends[-1], ends[0])] if self.periodic else [])
        if not pairs:
            return Verdict(None)
        reach = min(x.shape[self.systems.axis] for chunk in ends for x in chunk["x"]) - BESIDE
        found: list[Verdict] = []
        with np.errstate(all="ignore"):
            for width in widths:
                if width > reach:
                    break
                x, good = self.around([self.window(pair, width) for pair in pairs])
                found.append(Verdict(None if good.all() else ~good, x))
                if few(found[-1].failed, good.size):
                    break
        return min(found, key=lambda one: one.failed)

    def window(self, pair: tuple[Ends, Ends], width: int) -> dict[str, tuple[Any, Any]]:
        """The rows before a cut and those behind it, of what changes along the axis."""
        before, behind = pair
        count, axis = width + BESIDE, self.systems.axis
        return {
            name: (last(x, count, axis), first(behind[name][0], count, axis)) if self.moves(name) else (x, x)
            for name, (_, x) in before.items()
        }

    def moves(self, name: str) -> bool:
        return name == "x" or name in self.systems.moving

    def around(self, windows: Sequence[Mapping[str, tuple[Any, Any]]]) -> tuple[Array, Any]:
        """The rows around cuts solved again, and the systems in which those beside them still fit."""
        axis = self.systems.axis + 1
        rows = {name: self.stacked(name, [pair[name] for pair in windows]) for name in windows[0]}
        x = rows.pop("x")
        end, inner = x.shape[axis] - BESIDE, slice(BESIDE, -BESIDE)
        z = x[along(axis, inner)]
        given = {name: self.some(name, x, inner) for name, x in rows.items()}
        given["d"] = d = np.array(np.broadcast_to(given["d"], z.shape), x.dtype)
        d[along(axis, at(0))] -= times(x[along(axis, at(BESIDE - 1))], self.before(rows, BESIDE))
        d[along(axis, at(-1))] -= times(x[along(axis, at(end))], self.behind(rows, end - 1))
        z[...] = self.systems.solve(given, axis)
        beside = {name: self.beside(x) if self.moves(name) else x for name, x in rows.items()}
        return z, self.fit(beside, self.beside(x)).all(axis=(0, axis))

    def beside(self, x: Array) -> Array:
        """The rows before those around cuts that are solved again, with two of these, and those behind them."""
        axis = self.systems.axis + 1
        return np.concatenate([first(x, 2 * BESIDE, axis), last(x, 2 * BESIDE, axis)])

    def stacked(self, name: str, pairs: Sequence[tuple[Any, Any]]) -> Any:
        """The rows of an argument around all cuts, which lie along a new first axis."""
        if not self.moves(name):
            x = pairs[0][0]
            return x if np.ndim(x) == 0 else full(x, self.systems.axis, self.systems.rank)[None]
        axis, (one, other) = self.systems.axis, pairs[0]
        count = one.shape[axis]
        shape = (len(pairs), *one.shape[:axis], count + other.shape[axis], *one.shape[axis + 1 :])
        found = np.empty(shape, one.dtype)
        for target, (before, behind) in zip(found, pairs, strict=True):
            target[along(axis, slice(0, count))] = before
            target[along(axis, slice(count, None))] = behind
        return found

    def some(self, name: str, x: Any, rows: slice) -> Any:
        """Rows of an argument, which is one row where it does not change."""
        return x[along(self.systems.axis + 1, rows)] if self.moves(name) else x

    def before(self, rows: Mapping[str, Any], i: int) -> Any:
        """What couples row i to the one before."""
        return self.some("c", rows["c"], at(i - 1)) if self.systems.transpose else self.some("a", rows["a"], at(i))

    def behind(self, rows: Mapping[str, Any], i: int) -> Any:
        """What couples row i to the one behind."""
        return self.some("a", rows["a"], at(i + 1)) if self.systems.transpose else self.some("c", rows["c"], at(i))

    def fit(self, rows: Mapping[str, Any], x: Array) -> Array:
        """Whether the two rows in the middle have residuals that are rounding."""
        axis, i, two = self.systems.axis + 1, BESIDE - 1, slice(BESIDE - 1, BESIDE + 1)
        middle = x[along(axis, two)]
        form = Form(middle.shape, middle.shape, axis, periodic=True, transpose=self.systems.transpose)
        a, b, c, d = (self.entries(name, rows[name], two, x) for name in "abcd")
        e = times(x[along(axis, at(i - 1))], self.before(rows, i))
        f = times(x[along(axis, at(i + 2))], self.behind(rows, i + 1))
        if "where" in rows:
            keep = self.entries("where", rows["where"], two, x).astype(bool)
            a, b, c = bands(ops, (a, b, c, keep), form._replace(transpose=False))
            d, kept = np.where(keep, d, 0), ops.stretch(keep, 2, axis)
            e, f = (np.where(kept[along(axis, at(k))], v, 0) for k, v in ((0, e), (1, f)))
        good: Array = parts.accurate(ops, form, (a, b, c), d, middle, e, f, Chunks(1, 2))
        return good

    def entries(self, name: str, x: Any, rows: slice, like: Array) -> Array:
        """Rows of an argument, of the rank and the dtype of another."""
        return full(np.asarray(self.some(name, x, rows), like.dtype), self.systems.axis + 1, like.ndim)

    def settle(self, first: Place, sources: Sources, solved: Sequence[Solved]) -> Settled:
        """A task: what has to be known of other chunks before the result is."""
        verdict = self.mend([chunk.ends for chunk in solved], WIDTHS[:1])
        if verdict.unsolved is not None and not few(verdict.failed, verdict.unsolved.size):
            more = self.mend([self.all_ends(k, chunk, sources) for k, chunk in enumerate(solved)], WIDTHS[1:])
            verdict = min(verdict, more, key=lambda one: one.failed)
        return self.systems.settle(first, sources, verdict, solved)

    def result(self, k: int, count: int, settled: Settled, solved: Solved | None = None) -> Array:
        """A task: the solution in one of so many chunks."""
        x = self.systems.writeable((solved or self.known(k, settled.chunks[k], settled.sources)).x)
        axis, around = self.systems.axis, settled.verdict.around
        if around is not None:
            width = around.shape[axis + 1] // 2
            before, behind = slice(0, width), slice(width, None)
            if k > 0 or self.periodic:
                x[along(axis, before)] = around[(k - 1) % count][along(axis, behind)]
            if k < count - 1 or self.periodic:
                x[along(axis, slice(-width, None))] = around[k][along(axis, before)]
        return self.systems.put(settled, k, x)


def sampled(x: Array, axis: int) -> Array:
    """Of every axis of the batch some systems."""
    steps = (slice(None) if k == axis else slice(None, None, max(1, n // SAMPLE)) for k, n in enumerate(x.shape))
    return x[tuple(steps)]


def along(axis: int, rows: slice) -> Place | tuple[slice, ...]:
    return (*(slice(None),) * axis, rows)


def at(k: int) -> slice:
    return slice(k, k + 1 if k != -1 else None)


def first(x: Array, count: int, axis: int) -> Array:
    return x[along(axis, slice(0, count))]


def last(x: Array, count: int, axis: int) -> Array:
    return x[along(axis, slice(x.shape[axis] - count, None))]


def times(x: Array, coupling: Any) -> Array:
    """Their product, 0 where x is: a coupling to a row that is taken out may be NaN."""
    return np.where(x == 0, 0, x * coupling)
