r"""Determinants of matrices whose rows lie in several chunks: four of each chunk, multiplied as a tree.

With D(i:j) the determinant of rows and columns i to j-1, a matrix that is cut before row k has

.. math:: D(0:n) = D(0:k) D(k:n) - a_k c_{k-1} D(0:k-1) D(k+1:n),

and the same without its first row, its last, or both: a product of matrices of two rows (T. Muir, A treatise on the
theory of determinants, 1882, on continuants). All are kept as mantissa and exponent, with a bound of what rounding
in those of chunks does. Where that is as large as the determinant, as of singular matrices and of long discrete
Laplacians, the rows of such matrices alone are collected, and eliminated whole.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import scaled
from tridiag.algorithms.scaled import Scaled
from tridiag.chunked import whole
from tridiag.chunked.operands import Operands, of_system, share_memory, widened
from tridiag.chunked.rest import Rows, Solved, Systems, Verdict
from tridiag.chunked.rows import column, full, row
from tridiag.chunked.scaled import logarithm_of, of_logarithm, product_along
from tridiag.chunked.sources import Sources, makers_of
from tridiag.chunked.whole import Verb
from tridiag.libraries.arrays import working_dtype
from tridiag.libraries.numpy import Operations as ops

Array = np.ndarray[Any, Any]
ROUNDING = 8.0  # eps for each row: the error of a determinant of a chunk, relative to it


class Bounded(NamedTuple):
    """Numbers, and bounds of their errors."""

    value: Scaled
    error: Scaled


class Minors(NamedTuple):
    """The determinant of some rows that lie together; what couples them to others; products of their couplings."""

    every: Bounded
    no_first: Bounded
    no_last: Bounded
    neither: Bounded
    before: Bounded  # a of the first row,
    behind: Bounded  # c of the last one
    first: Any  # whether the first row is kept,
    last: Any  # ... and the last one,
    all: Any  # ... and all of them
    a: Bounded  # the products of all a,
    c: Bounded  # ... and all c; these two are of periodic systems

    def then(self, later: Minors) -> Minors:
        """The rows of both."""
        coupling = only_if(self.last & later.first, times(later.before, self.behind))
        every, no_last = times(self.no_last, coupling), times(self.neither, coupling)
        return Minors(
            minus(times(self.every, later.every), times(every, later.no_first)),
            minus(times(self.no_first, later.every), times(no_last, later.no_first)),
            minus(times(self.every, later.no_last), times(every, later.neither)),
            minus(times(self.no_first, later.no_last), times(no_last, later.neither)),
            self.before,
            later.behind,
            self.first,
            later.last,
            self.all & later.all,
            times(self.a, later.a),
            times(self.c, later.c),
        )

    def closed(self, rows: int) -> Bounded:
        """The determinant of the periodic matrix that these are all rows of."""
        coupling = only_if(self.first & self.last, times(self.before, self.behind))
        inner = minus(self.every, times(coupling, self.neither))
        around = [signed(1 if rows % 2 == 0 else -1, only_if(self.all, x)) for x in (self.a, self.c)]
        return minus(minus(inner, around[0]), around[1])


def times(x: Bounded, y: Bounded) -> Bounded:
    return Bounded(product(x.value, y.value), total(product(size(x.value), y.error), product(size(y.value), x.error)))


def minus(x: Bounded, y: Bounded) -> Bounded:
    return Bounded(scaled.difference(ops, x.value, y.value), total(x.error, y.error))


def product(x: Scaled, y: Scaled) -> Scaled:
    return scaled.multiplied(ops, x, y)


def total(x: Scaled, y: Scaled) -> Scaled:
    return scaled.difference(ops, x, Scaled(-y.mantissa, y.exponent))


def size(x: Scaled) -> Scaled:
    return Scaled(ops.size(x.mantissa), x.exponent)


def signed(sign: int, x: Bounded) -> Bounded:
    return x._replace(value=x.value._replace(mantissa=sign * x.value.mantissa))


def only_if(kept: Any, x: Bounded) -> Bounded:
    """x, or 0: what a row that is taken out is coupled by may be NaN."""
    return x if kept is True else Bounded(*(Scaled(*(np.where(kept, v, 0) for v in part)) for part in x))


def nothing(like: Bounded) -> Bounded:
    """0 of the same shape."""
    return Bounded(*(Scaled(*map(np.zeros_like, part)) for part in like))


def bounded(x: Scaled, relative: float) -> Bounded:
    """A number with an error of that part of its size."""
    return Bounded(x, Scaled(ops.size(x.mantissa) * relative, x.exponent))


def doubtful(x: Bounded) -> Array:
    """Which numbers may be 0, for all that rounding tells; none that is NaN, or 0 without any rounding."""
    rest = scaled.difference(ops, size(x.value), x.error).mantissa
    found: Array = (rest <= 0) & (x.error.mantissa > 0)
    return found


class Chunk(NamedTuple):
    """What the tasks of all chunks are told beside their arrays."""

    verb: Verb
    names: tuple[str, ...]
    moving: tuple[str, ...]  # those that are not constant along the axis of the systems
    axis: int
    rank: int
    periodic: bool
    dtype: str

    @np.errstate(all="ignore")
    def minors(self, rows: int, *values: Any) -> Minors:
        """A task: the determinants of a chunk of so many rows."""
        given = dict(zip(self.names, values, strict=True))
        before, behind = (bounded(self.coupling(given[name], last), 0) for name, last in (("a", False), ("c", True)))
        every, no_first, no_last = (self.minor(given, slice(i, rows - j)) for i, j in ((0, 0), (1, 0), (0, 1)))
        neither = self.minor(given, slice(1, rows - 1)) if rows > 1 else nothing(every)
        a, c = (self.along(given[name], rows) if self.periodic else nothing(every) for name in "ac")
        return Minors(every, no_first, no_last, neither, before, behind, *self.kept(given), a, c)

    def kept(self, given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Whether the first row is kept, the last one, and all of them."""
        if "where" not in given:
            return True, True, True
        keep = full(given["where"], self.axis, self.rank).astype(bool)
        return ops.row(keep, 0, self.axis), ops.row(keep, -1, self.axis), keep.all(self.axis)

    def entries(self, x: Array) -> Array:
        """Rows of an argument with all axes, in the dtype of the result."""
        return full(x, self.axis, self.rank).astype(self.dtype, copy=False)

    def coupling(self, x: Any, last: bool) -> Scaled:
        """The first or the last entry of a diagonal."""
        return scaled.split(ops, np.squeeze(self.entries(row(x, last, self.axis, self.rank)), self.axis))

    def along(self, x: Any, rows: int) -> Bounded:
        """The product of a diagonal."""
        entries = self.entries(x)
        return bounded(product_along(entries, rows, self.axis), self.rounding(rows))

    def rounding(self, rows: int) -> float:
        return ROUNDING * max(rows, 1) * float(np.finfo(self.dtype).eps)

    def minor(self, given: Mapping[str, Any], rows: slice) -> Bounded:
        """The determinant of some rows."""
        sign, logarithm = self.verb(**{n: self.some(n, x, rows) for n, x in given.items()}, axis=self.axis)
        return bounded(of_logarithm(sign, logarithm), self.rounding(rows.stop - rows.start))

    def some(self, name: str, x: Any, rows: slice) -> Any:
        if name not in self.moving:
            return x
        x = column(x, self.axis, self.rank)
        return x[(*(slice(None),) * (self.axis - (self.rank - x.ndim)), rows)]


class Judged(NamedTuple):
    """The sign, and behind it the logarithm; and which matrices may be singular, but for rounding."""

    both: Array
    verdict: Verdict


def joined(first: Minors, second: Minors) -> Minors:
    """A task: the minors of two chunks together."""
    with np.errstate(all="ignore"):
        return first.then(second)


def finished(rows: int | None, minors: Minors) -> Judged:
    """A task: what the minors of all rows tell. ``rows``: of a periodic matrix; else None."""
    with np.errstate(all="ignore"):
        found = minors.every if rows is None else minors.closed(rows)
        doubt = doubtful(found)
        return Judged(np.stack(logarithm_of(found.value), axis=-1), Verdict(doubt if doubt.any() else None))


def rows_of_doubtful(systems: Systems, sources: Sources, k: int, judged: Judged, *values: Any) -> Rows | None:
    """A task: the rows in chunk k of the matrices that may be singular; None for arguments that are made again."""
    if judged.verdict.unsolved is None:
        return None
    return systems.rows(judged.verdict, systems.restored(k, Solved(judged.both, values), sources))


def settled(systems: Systems, judged: Judged, told: Sequence[Rows | None]) -> Array:
    """A task: the sign, and behind it the logarithm, anew of the matrices whose rows were collected."""
    both, those = judged.both, judged.verdict.unsolved
    if those is None:
        return both
    both = both.copy()
    both[those] = np.stack(systems.verb(**systems.together(told), **systems.options), axis=-1)
    return both


def determinants(verb: Verb, given: Mapping[str, Any], where: Any, **options: Any) -> tuple[Any, Any]:
    """`tridiag.slogdet` of Dask arrays."""
    operands = of_system(verb.__name__, given, where, **options)
    if operands.cut and operands.plan.casts:
        wide = {name: widened(x, operands.plan) for name, x in given.items()}
        sign, logarithm = determinants(verb, wide, where, **options)
        return sign.astype(operands.plan.out_dtype), logarithm.astype(operands.plan.out_dtype)
    if not operands.cut or options["backend"] != "auto":
        return whole.determinants(verb, operands, options)
    both = in_chunks(verb, operands, options)
    logarithm = both[..., 1]
    return both[..., 0], logarithm.real if both.dtype.kind == "c" else logarithm


def in_chunks(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Tasks for matrices whose rows lie in several chunks: one a chunk, a tree, and what is in doubt."""
    name, axis, names = operands.name(verb.__name__, options), operands.axis, tuple(operands.arrays)
    periodic, dtype = bool(options["periodic"]), working_dtype(operands.plan.result_dtype)
    chunk = Chunk(verb, names, operands.moving, axis, len(operands.chunks), periodic, dtype)
    shared, closed = share_memory(), {"periodic": periodic}
    makers = makers_of(operands, shared)
    systems = Systems(verb, names, operands.moving, axis, len(operands.chunks), closed, shared, makers.again)
    rows = sum(operands.chunks[axis]) if periodic else None
    graph: dict[Any, Any] = {}
    for batch, places in operands.parts():
        keys: list[Any] = [(f"minors-{name}", *place) for place in places]
        for key, place in zip(keys, places, strict=True):
            task = functools.partial(chunk.minors, operands.chunks[axis][place[axis]])
            graph[key] = (task, *operands.blocks(names, place))
        level = 0
        while len(keys) > 1:
            pairs = [keys[k : k + 2] for k in range(0, len(keys), 2)]
            keys = [pair[0] if len(pair) == 1 else (f"join-{level}-{name}", *batch, k) for k, pair in enumerate(pairs)]
            graph |= {key: (joined, *pair) for key, pair in zip(keys, pairs, strict=True) if len(pair) == 2}
            level += 1
        judged = (f"judge-{name}", *batch)
        graph[judged] = (functools.partial(finished, rows), keys[0])
        told: list[Any] = [(f"rows-{name}", *place) for place in places]
        sources = makers.of(places)
        for k, (key, place) in enumerate(zip(told, places, strict=True)):
            blocks = [None if made else x for x, made in zip(operands.blocks(names, place), makers.again, strict=True)]
            graph[key] = (functools.partial(rows_of_doubtful, systems, sources, k), judged, *blocks)
        graph[(name, *batch, 0)] = (functools.partial(settled, systems), judged, told)
    chunks = (*(operands.chunks[k] for k in operands.batch), (2,))
    return operands._replace(chunks=chunks).result(name, graph)
