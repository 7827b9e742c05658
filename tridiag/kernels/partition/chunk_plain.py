"""Chunks of a long system by plain elimination: their ends, and their solution once the separators are known."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.chunks import (
    BOTTOM_FEELS,
    CHUNKS,
    TOP_FEELS,
    UNSURE,
    Bands,
    MaskedBands,
    any_lane,
    choose,
    planes,
    read,
    write,
)
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import least_quotient, lossless, no_quotient

CENTRE, LEAST = 2 / (el.GROWTH**2 - 1), 2 * el.GROWTH / (el.GROWTH**2 - 1)  # of the certificate
MOST = 1 / el.CANCELLATION  # likewise, over eps


class Certificate:
    """`tridiag.algorithms.elimination.certify` of all rows, from the extremes of q = b / pivot.

    With l c = b - pivot the certificate |l c| + |pivot| <= G |b| reads |q - 1| + 1 <= G |q|, which for real numbers is
    |q + 2 / (G^2 - 1)| >= 2 G / (G^2 - 1). No NaN gets lost: it stays in the elimination until the last row.
    """

    @staticmethod
    def start(code: Code) -> tuple[Value, Value]:
        one = Value(code, code.constant(code.vector, 1.0))
        return one, one

    @staticmethod
    def watch(code: Code, extremes: tuple[Value, Value], quotient: Any) -> tuple[Value, Value]:
        low, high = extremes
        if code.parts == 1:
            size = margin = code.magnitude(quotient + CENTRE)
        else:
            size = code.size(quotient)
            margin = (size * el.GROWTH - code.size(quotient - code.one())) * LEAST
        return code.where(low < margin, low, margin), code.where(high > size, high, size)

    @staticmethod
    def holds(code: Code, extremes: tuple[Value, Value]) -> Value:
        low, high = extremes
        return (low >= LEAST) & (high <= MOST / code.eps)


def reduce_plain(kind: type[Bands], code: Code, *words: Value) -> Value:
    """Rows first <= i < last of each chunk: how x at both ends depends on x before the chunk and behind these rows.

    The last row of the chunk is left out.
    """
    plan: Any
    plan, block, first, last, kept_at, stride = words
    bands, kept = kind(code, plan, block).in_pieces(), Rows(code, kept_at, stride)

    def line(some: Bands, lane: int, i: Value, state: Any) -> Any:
        code, (ends, extremes) = some.code, state
        for k, a, b, c, d in some.rows(i, ask=True):
            y, y_before, above, x, x_before, x_own = ends
            _, _, inverse, above = el.eliminate_reciprocal(code, above, (a, b, c))
            extremes = Certificate.watch(code, extremes, b * inverse)
            y, y_before = (d - a * y) * inverse, -(a * y_before) * inverse
            new = y, y_before, above, x + x_own * y, x_before + x_own * y_before, -(x_own * above)
            last = k == some.height - 1
            ends = choose(code, code.everywhere(i + some.height == plan.height), ends, new) if last else new
        return ends, extremes

    ends, extremes = bands.over(first, last, line, (tuple(read(code, kept, 6)), Certificate.start(code)))
    write(code, kept, ends)
    top, bottom = (any_lane(code, ~(code.size(ends[k]) <= el.DECAYED * code.eps)) for k in (P.FIRST_OWN, P.LAST_BEFORE))
    unsure = any_lane(code, ~Certificate.holds(code, extremes))
    return unsure * UNSURE | top * TOP_FEELS | bottom * BOTTOM_FEELS


def begin_plain(code: Code, kept: Value, stride: Value) -> None:
    write(code, Rows(code, kept, stride), [code.splat(x) for x in (0.0, 1.0, 0.0, 0.0, 0.0, 1.0)])


def adopt_plain(code: Code, kept_at: Value, stride: Value, bottom: Value) -> None:
    """Two ends that do not feel each other."""
    last, _, last_own = read(code, Rows(code, bottom, code.row), 3)
    kept = Rows(code, kept_at, stride)
    write(code, kept, (last, code.zero(), last_own))
    kept.store(code.integer(P.FIRST_OWN), code.zero())


def keep_separators(kind: type[Bands], code: Code, plan: At, block: Value) -> None:
    """The rows of the separators to their planes."""
    bands = kind(code, plan, block)
    *_, (_, *row) = bands.rows(plan.height - bands.height)
    write(code, planes(code, plan, block, 0), row, P.SEPARATOR)


def eliminate(kind: type[Bands], code: Code, plan: At, block: Value, target: Value) -> Value:
    """c' and y' of the rows of a block; whether a lane lacks the certificate."""
    bands, step = kind(code, plan, block).in_pieces(), 2 * code.row
    above, given = Rows(code, target, step), Rows(code, target + code.row, step)

    def line(some: Bands, lane: int, i: Value, state: Any) -> Any:
        code, (above_here, before, extremes, least) = some.code, state
        for k, a, b, c, d in some.rows(i, ask=True):
            _, _, inverse, above_here = el.eliminate_reciprocal(code, above_here, (a, b, c))
            extremes = Certificate.watch(code, extremes, b * inverse)
            before = (d - a * before) * inverse
            least = least_quotient(code, least, above_here, c)
            above.of_lanes(code, lane).store(i + k, above_here)
            given.of_lanes(code, lane).store(i + k, before)
        return above_here, before, extremes, least

    before = planes(code, plan, block, P.BEFORE)[code.integer(0)]
    start = code.zero(), before, Certificate.start(code), no_quotient(code)
    *_, extremes, least = bands.over(code.integer(0), plan.height, line, start)
    return any_lane(code, ~(Certificate.holds(code, extremes) & lossless(code, least)))


def substitute(code: Code, plan: At, block: Value, source: Value) -> Value:
    """x, last row first, to memory; the separator is known. Whether it is not finite: behind a zero pivot no row is.

    Where it is finite, rows that are taken out, of which c' and y' are zero, are zero.
    """
    bands, step, last = Bands(code, plan, block), 2 * code.row, plan.height - 1
    above, given = Rows(code, source, step), Rows(code, source + code.row, step)
    above.store(last, code.zero())
    own = planes(code, plan, block, P.OWN)[code.integer(0)]
    given.store(last, own)
    found = given[last - 1] - above[last - 1] * own

    def line(i: Value, state: Any) -> Any:
        x = state[0]

        def row(k: int) -> Any:
            nonlocal x
            x = given[i + k] - above[i + k] * x
            return x

        bands.store(i, row)
        return (x,)

    (x,) = code.fori(last + 1 - bands.height, -1, line, (code.zero(),), step=-bands.height)
    write(code, planes(code, plan, block, P.FOUND_FIRST), (x, found))
    return any_lane(code, ~(code.size(x - x) == 0))


REDUCE_PLAIN = CHUNKS.add("reduce_plain", functools.partial(reduce_plain, Bands))
REDUCE_MASKED = CHUNKS.add("reduce_masked", functools.partial(reduce_plain, MaskedBands))
BEGIN_PLAIN, ADOPT_PLAIN = CHUNKS.add("begin_plain", begin_plain), CHUNKS.add("adopt_plain", adopt_plain)
KEEP_SEPARATORS = CHUNKS.add("keep_separators", functools.partial(keep_separators, Bands))
KEEP_SEPARATORS_MASKED = CHUNKS.add("keep_separators_masked", functools.partial(keep_separators, MaskedBands))
ELIMINATE = CHUNKS.add("eliminate", functools.partial(eliminate, Bands))
ELIMINATE_MASKED = CHUNKS.add("eliminate_masked", functools.partial(eliminate, MaskedBands))
SUBSTITUTE = CHUNKS.add("substitute", substitute)
