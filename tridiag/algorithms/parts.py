"""A system cut into parts of rows: what each tells of its ends, the system that joins them, and each part finished.

Of a part of rows 0 .. m-1, with e = a[0] x[-1] and f = c[m-1] x[m] what it is coupled to,

    x[m-1] = last + last_before e + last_behind f,      x[0] = first + first_before e + first_last x[m-1].

Put together, the parts of a system are a tridiagonal system of their last unknowns (H. H. Wang 1981; the two-level
scheme of PaScaL_TDMA, Kim et al. 2021): six numbers of each part are all that has to be known elsewhere. Once its last
unknown and e are known, a part is finished by plain Thomas.

Stability: the elimination inside of parts carries the certificate of `tridiag.algorithms.elimination`; what joins them
fills, so the rows at the ends of parts are judged by their residuals, and what joins them by the bound of its pivots in
`tridiag.algorithms.regularity`.

All is elementwise over arrays that have an axis of parts in place of that of rows; ``ops`` is their library.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tridiag.algorithms.regularity import regular
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks, chunks_of

FEWEST_JUDGED = 4  # rows of a part that kernels judge
ACCURATE = 7.0  # eps: more is no backward error of a row between parts, which is promised to be at most 8

Array = Any
Bands = tuple[Array, Array, Array]


class Relations(NamedTuple):
    """What is told of parts; NaN of those without certificate."""

    last: Array
    last_before: Array
    last_behind: Array
    first: Array
    first_before: Array
    first_last: Array


def of_matrix(relations: Relations) -> list[Array]:
    """Those that do not depend on right sides."""
    return [relations.last_before, relations.last_behind, relations.first_before, relations.first_last]


def with_right_sides(last: Array, first: Array, kept: Array) -> Relations:
    """The relations from the two numbers that depend on right sides, and those of the matrix."""
    return Relations(last, kept[0], kept[1], first, kept[2], kept[3])


class Chain(NamedTuple):
    """The tridiagonal system of the last unknowns of parts."""

    a: Array
    b: Array
    c: Array
    d: Array
    size: Array  # of the terms whose sums the entries of b are


def chain(ops: Any, relations: Relations, before: Array, behind: Array, axis: int, periodic: bool = False) -> Chain:
    """What joins parts along an axis, whose entries a[0] are ``before`` and whose entries c[m-1] ``behind``.

    The first row's a multiplies what is before all parts, and the last row's c what is behind them; unless ``periodic``
    the latter is no last unknown but f over that entry.
    """
    after = [following(ops, x, axis) for x in (before, relations.first, relations.first_before, relations.first_last)]
    n = relations.last.shape[axis]
    own = behind * relations.last_behind
    a, b, c = -(relations.last_before * before), -(own * after[2] * after[0]), -(own * after[3])
    d = own * after[1]
    if not periodic:  # what follows the last part is none of these
        at_end = ops.positions(n, relations.last.ndim, axis, relations.last) == n - 1
        zero = ops.zero(b)
        b, c, d = ops.where(at_end, zero, b), ops.where(at_end, -own, c), ops.where(at_end, zero, d)
    one = ops.one(b)
    return Chain(a, one + b, c, relations.last + d, ops.size(one) + ops.size(b))


def following(ops: Any, x: Array, axis: int) -> Array:
    """The entry of the next part, that of the first one behind the last."""
    n = x.shape[axis]
    return ops.concatenate([ops.slice(x, slice(1, n), axis), ops.slice(x, slice(0, 1), axis)], axis)


def preceding(ops: Any, x: Array, axis: int) -> Array:
    """The entry of the part before, that of the last one before the first."""
    n = x.shape[axis]
    return ops.concatenate([ops.slice(x, slice(n - 1, n), axis), ops.slice(x, slice(0, n - 1), axis)], axis)


def uncoupled(ops: Any, relations: Relations, axis: int, periodic: bool) -> tuple[Relations, Array, Array]:
    """The relations, and 1 for every part that is coupled to the one before, and to the one behind; else 0.

    None is at the ends, unless ``periodic``; nor where the other part ends with a row that is taken out, which depends
    on nothing. What multiplies such couplings may be NaN, and is 0 then.
    """
    one, n = ops.one(relations.last), relations.last.shape[axis]
    k = ops.positions(n, one.ndim, axis, one)
    last, first = no_last(relations), no_first(relations)
    alone = preceding(ops, last, axis), following(ops, first, axis)
    ends = k == 0, k == n - 1
    cut = [x | end if not periodic else x for x, end in zip(alone, ends, strict=True)]
    zero = ops.zero(one)
    relations = relations._replace(
        last_before=ops.where(cut[0], zero, relations.last_before),
        first_before=ops.where(cut[0], zero, relations.first_before),
        last_behind=ops.where(cut[1], zero, relations.last_behind),
    )
    return relations, ops.where(cut[0], zero, one), ops.where(cut[1], zero, one)


def no_last(x: Relations) -> Array:
    """Whether the last row of a part is taken out: it depends on nothing."""
    return (x.last == 0) & (x.last_before == 0) & (x.last_behind == 0)


def no_first(x: Relations) -> Array:
    """The same of the first row."""
    return (x.first == 0) & (x.first_before == 0) & ((x.first_last == 0) | no_last(x))


def first_of(ops: Any, relations: Relations, e: Array, last: Array) -> Array:
    """First unknowns, to the last bit the same wherever they are computed: no product is fused with a sum.

    What would multiply an e that is 0, as where nothing is before, may be NaN.
    """
    before = ops.where(e == 0, ops.zero(e), relations.first_before * e)
    return relations.first + ops.keep(before) + ops.keep(relations.first_last * last)


class Known(NamedTuple):
    """What parts are finished with."""

    e: Array  # what the first row is coupled to, times the coupling,
    first: Array  # its own first unknown, as all others take it
    last: Array
    f: Array  # ... and the last row


def join(
    ops: Any,
    solve: Callable[..., Array],
    relations: Relations,
    periodic: bool,
    around: tuple[Array, Array] | None = None,
) -> tuple[Known, tuple[Array, Array]]:
    """What joins parts along the first axis, solved by ``solve(form, a, b, c, d)``; NaN where it may be singular.

    With it, whether each part is coupled to the one before, and to the one behind: 1 or 0.
    ``around``: what couples each part to the one before and to the one behind, where that is not in the relations.
    """
    relations, *there = uncoupled(ops, relations, 0, periodic)
    before, behind = there
    if around is not None:
        before, behind = (ops.where(x == 0, ops.zero(x), entry) for x, entry in zip(there, around, strict=True))
    system = chain(ops, relations, before, behind, 0, periodic)
    last = solve_chain(solve, system, 0, periodic)
    last = ops.where(regular(ops, system.a, system.b, system.c, system.size), last, ops.nan(last))
    e = before * preceding(ops, last, 0)
    first = first_of(ops, relations, e, last)
    return Known(e, first, last, behind * following(ops, first, 0)), (there[0], there[1])


def coupled(
    relations: Relations, before: Array, behind: Array, times: Callable[..., Array] = operator.mul
) -> Relations:
    """The same of the unknowns beside a part, by what couples it to them, in the place of e and f."""
    return relations._replace(
        last_before=times(relations.last_before, before),
        last_behind=times(relations.last_behind, behind),
        first_before=times(relations.first_before, before),
    )


def solve_chain(solve: Callable[..., Array], system: Chain, axis: int, periodic: bool) -> Array:
    """The last unknowns of all parts, by ``solve(form, a, b, c, d)``."""
    shape = system.d.shape
    a, c = system.a, system.c
    if periodic and shape[axis] == 1:
        return (system.d) / (system.b + a + c)
    if periodic and shape[axis] == 2:  # both couplings are to the other part
        a, c, periodic = a + c, a + c, False
    return solve(Form(shape, shape, axis, periodic=periodic), a, system.b, c, system.d)


# ------------------------------------------------------------------------------------------------ the promise


def accurate(ops: Any, form: Form, bands: Bands, d: Array, x: Array, e: Array, f: Array, chunks: Chunks) -> Array:
    """The systems whose rows at the ends of a part, and of its chunks, have residuals that are rounding."""
    axis, n = form.axis, form.n
    ends = [chunks.rows * (k + 1) - 1 for k in range(chunks.number)]
    rows = sorted({min(k, n - 1) for k in (0, 1, *ends, n - 1)})
    a, b, c = bands

    def at(x: Array, by: int = 0) -> Array:
        return rows_of(ops, x, [min(max(k + by, 0), n - 1) for k in rows], axis)

    below, above = (at(c, -1), at(a, 1)) if form.transpose else (at(a), at(c))
    place = ops.positions(len(rows), len(form.shape), axis, x)
    terms = (
        ops.where(place == 0, e, below * at(x, -1)),
        at(b) * at(x),
        ops.where(place == len(rows) - 1, f, above * at(x, 1)),
        -at(d),
    )
    eps, tiny = ops.limits(x)
    scale = sum(ops.size(term) for term in terms)
    if scale.dtype != x.dtype:  # a product of complex numbers can be half that of their sizes
        scale = scale * 0.5
    least = 4 * tiny / eps + ops.zero(scale)
    bound = ops.where(scale > least, scale, least) * (ACCURATE * eps)
    error = ops.maximum(ops.size(terms[0] + terms[1] + terms[2] + terms[3]) / bound, axis)
    return ops.unsqueeze(error <= 1, axis)


def joined(whole: Relations, first: Relations, start: Array, end: Array) -> Relations:
    """The relations of all parts together, from those of their chain and of the first part.

    ``start``: what multiplies e in the chain's first row, ``end`` what multiplies f in its last.
    """
    own = first.first_last
    return Relations(
        whole.last,
        whole.last_before * start,
        whole.last_behind * end,
        first.first + own * whole.first,
        first.first_before + own * whole.first_before * start,
        own * whole.first_last,
    )


# ------------------------------------------------------------------------------------------------ a part in chunks


class Sweeps(Protocol):
    """What reduces and finishes the chunks of a part, of arrays of one library."""

    ops: Any

    def dtype(self, d: Array) -> Any:
        """NumPy's dtype of an array."""

    def reduce(self, form: Form, chunks: Chunks, bands: Bands, d: Array) -> Relations:
        """The relations of all chunks: an axis of them in place of that of rows."""

    def finish(self, form: Form, chunks: Chunks, bands: Bands, d: Array, e: Array, last: Array) -> Array:
        """x in the rows of all chunks, and anything in others; of the shape of the part."""

    def finish_judged(self, form: Form, chunks: Chunks, bands: Bands, d: Array, known: Known) -> tuple[Array, Array]:
        """x of chunks that have all rows, and what `finished` tells of each, whose elimination is certified as well."""

    def put(self, x: Array, rows: Array, first: int, axis: int) -> Array:
        """x with its rows from the first of those on replaced."""


class Reduced(NamedTuple):
    """A part that is reduced: what is told of it, and what finishing it takes."""

    relations: Any  # `Relations`; None where a part is only to be finished
    chunks: Chunks
    before: Array = None  # what couples each chunk to the one before it; of the first one 1
    chain: Any = None  # of its chunks, and of the rows in none
    inner: Any = None  # that chain, reduced


def chunked(sweeps: Sweeps, form: Form, d: Array) -> Chunks:
    """How a part is cut."""
    return chunks_of(form.n, max(1, math.prod(form.batch)), sweeps.dtype(d))


def to_finish(sweeps: Sweeps, form: Form, bands: Bands, d: Array) -> Reduced:
    """What finishing a part takes; of one in a single chunk nothing has to be reduced."""
    chunks = chunked(sweeps, form, d)
    return Reduced(None, chunks) if chunks.number == 1 else reduce(sweeps, form, bands, d)


def reduce(sweeps: Sweeps, form: Form, bands: Bands, d: Array) -> Reduced:
    """The part whose rows these are; ``a[0]`` and ``c[m-1]`` are not read."""
    ops, axis, chunks = sweeps.ops, form.axis, chunked(sweeps, form, d)
    relations = sweeps.reduce(form, chunks, bands, d)
    rest = form.n - chunks.number * chunks.rows
    if chunks.number == 1:
        return Reduced(relations, chunks)
    if rest:
        tail = sweeps.reduce(with_rows(form, rest), Chunks(1, rest), *last_rows(ops, form, bands, d, rest))
        relations = Relations(*(ops.concatenate(pair, axis) for pair in zip(relations, tail, strict=True)))
    before, behind = couplings(ops, form, bands, chunks)
    system = chain(ops, relations, before, behind, axis)
    inner = reduce(sweeps, with_rows(form, system.d.shape[axis])._replace(transpose=False), system[:3], system.d)
    n, head = system.d.shape[axis], Relations(*(ops.slice(x, slice(0, 1), axis) for x in relations))
    start, end = ops.slice(system.a, slice(0, 1), axis), ops.slice(system.c, slice(n - 1, n), axis)
    return Reduced(joined(inner.relations, head, start, end), chunks, before, system, inner)


def finished(sweeps: Sweeps, form: Form, bands: Bands, d: Array, reduced: Reduced, known: Known) -> tuple[Array, Array]:
    """x of a part, and the systems whose rows at the ends of the part, and of its chunks, have residuals of rounding.

    The first unknown is the one that is known.
    """
    if reduced.chunks.number == 1 and form.n >= FEWEST_JUDGED:
        return sweeps.finish_judged(form, reduced.chunks, bands, d, known)
    x = finish(sweeps, form, bands, d, reduced, known.e, known.last)
    if form.n > 1:
        x = sweeps.put(x, known.first, 0, form.axis)
    return x, accurate(sweeps.ops, form, bands, d, x, known.e, known.f, reduced.chunks)


def finish(sweeps: Sweeps, form: Form, bands: Bands, d: Array, reduced: Reduced, e: Array, last: Array) -> Array:
    """x of a part, from e and its last unknown."""
    ops, axis, (count, rows, _) = sweeps.ops, form.axis, reduced.chunks
    if count == 1:
        return sweeps.finish(form, reduced.chunks, bands, d, e, last)
    system, rest = reduced.chain, form.n - count * rows
    outer = with_rows(form, system.d.shape[axis])._replace(transpose=False)
    start = ops.slice(system.a, slice(0, 1), axis)
    found = finish(sweeps, outer, system[:3], system.d, reduced.inner, start * e, last)
    inside = ops.slice(reduced.before * preceding(ops, found, axis), slice(1, outer.n), axis)
    entries = ops.concatenate([e, inside], axis)
    x = sweeps.finish(form, reduced.chunks, bands, d, *(ops.slice(v, slice(0, count), axis) for v in (entries, found)))
    if not rest:
        return x
    ends = (ops.slice(v, slice(count, count + 1), axis) for v in (entries, found))
    tail = sweeps.finish(with_rows(form, rest), Chunks(1, rest), *last_rows(ops, form, bands, d, rest), *ends)
    return sweeps.put(x, tail, count * rows, axis)


def couplings(ops: Any, form: Form, bands: Bands, chunks: Chunks) -> tuple[Array, Array]:
    """What couples each chunk, and the rows in none, to the one before and to the one behind; 1 at the ends."""
    (a, _, c), axis, n = bands, form.axis, form.n
    starts = [*range(0, chunks.number * chunks.rows, chunks.rows)]
    starts += [chunks.number * chunks.rows] if n > chunks.number * chunks.rows else []
    before, behind = rows_of(ops, a, starts[1:], axis), rows_of(ops, c, [k - 1 for k in starts[1:]], axis)
    if form.transpose:
        before, behind = behind, before
    start, end = (ops.one(ops.slice(x, slice(0, 1), axis)) for x in (before, behind))
    return ops.concatenate([start, before], axis), ops.concatenate([behind, end], axis)


def rows_of(ops: Any, x: Array, rows: list[int], axis: int) -> Array:
    """Some rows of an array, which may be constant along the axis."""
    if x.shape[axis] == 1:
        return ops.stretch(x, len(rows), axis)
    together = rows == [*range(rows[0], rows[0] + len(rows))]
    return ops.slice(x, slice(rows[0], rows[-1] + 1), axis) if together else ops.take(x, rows, axis)


def last_rows(ops: Any, form: Form, bands: Bands, d: Array, count: int) -> tuple[Bands, Array]:
    a, b, c, d = (
        x if x.shape[form.axis] == 1 else ops.slice(x, slice(form.n - count, form.n), form.axis) for x in (*bands, d)
    )
    return (a, b, c), d


def with_rows(form: Form, n: int) -> Form:
    shape = (*form.shape[: form.axis], n, *form.shape[form.axis + 1 :])
    return form._replace(shape=shape, matrix_shape=shape)
