"""Chunks of a long system with partial pivoting: their ends, and their solution once those are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    any_lane,
    choose,
    planes,
    read,
    write,
)
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

# The fields of a record, one for each row of a chunk that is solved with pivoting; only the first are kept where the
# solution is not to be corrected.
UPPER, UPPER2, RIGHT, ITERATE, INVERSE, LOWER, LOWER2, SWAPS = range(8)
FEW_FIELDS, FIELDS = 4, 8
DECAYED_PIVOTED = 1e-2  # the same where rows were exchanged


def pivot_column(code: Code, first: Any, second: Any, new: Any) -> tuple[Any, Any, Any, Any]:
    """One column among the three rows that hold it, as `cyclic_eliminate`, with the pivot row divided.

    Carried rows are (column k, k + 1 | rest), the new one is (k, k + 1, k + 2 | rest). Returns the two rows that are
    carried on, the divided pivot row, and what substitution needs: the inverse of the pivot, the entries eliminated.
    """
    swap = code.size(second[0]) > code.size(first[0])
    largest = code.where(swap, code.size(second[0]), code.size(first[0]))
    first, second = el.exchange(code, swap, first, second)
    other = code.size(new[0]) > largest
    inverse = code.where(other, code.one() / new[0], code.one() / first[0])  # the quotients do not wait for the choice
    first, new = el.exchange(code, other, (*first[:2], code.zero(), *first[2:]), new)
    row = [x * inverse for x in first[1:]]
    carried = [
        (
            below[1] - below[0] * row[0],
            wide - below[0] * row[1],
            *(x - below[0] * q for x, q in zip(rest, row[2:], strict=True)),
        )
        for below, wide, rest in ((second, code.zero(), second[2:]), (new, new[2], new[3:]))
    ]
    return carried[0], carried[1], row, (inverse, second[0], new[0], swap, other)


def reduce_pivoted(code: Code, *words: Value) -> Value:
    """Rows start <= i < last of each chunk, its columns between the first and the last of them eliminated.

    Rows before ``first`` were taken before.
    """
    plan, block, start, first, last, kept_at, stride = words
    bands, kept = Bands(code, plan, block).in_pieces(), Rows(code, kept_at, stride)

    def line(fresh: bool, some: Bands, lane: int, i: Value, state: Any) -> Any:
        code, none, (one, two) = some.code, some.code.zero(), state
        for k, a, b, c, d in some.rows(i, ask=True):
            if fresh and k < 2:
                one, two = two, ((c, none, a, b, d) if k == 0 else (b, c, none, a, d))
            else:
                one, two, *_ = pivot_column(code, one, two, (a, b, c, none, none, d))
        return one, two

    state = tuple(read(code, kept, 5)), tuple(read(code, kept, 5, 5))
    begun = code.pick(first == start, first + bands.height, first)
    state = bands.over(first, begun, functools.partial(line, True), state)
    waiting = [kept_at + stride * k for k in range(len(state[0]) + len(state[1]))]
    one, two = bands.in_turn(begun, last, functools.partial(line, False), state, waiting)
    write(code, kept, (*one, *two))
    *_, (_, *row, _) = bands.rows(last - bands.height)
    scale, unsure = sum_of_sizes(code, row) * P.doubt_below(code.eps), ~code.all_lanes()
    for x in (one, two):
        unsure = unsure | (sum_of_sizes(code, x[:4]) <= scale)
    top, bottom = (
        any_lane(code, ~(detached(code, one[own], one[other]) | detached(code, two[own], two[other])))
        for own, other in ((slice(2, 4), slice(0, 2)), (slice(0, 2), slice(2, 4)))
    )
    return any_lane(code, unsure) * UNSURE | top * TOP_FEELS | bottom * BOTTOM_FEELS


def sum_of_sizes(code: Code, row: Any) -> Value:
    total = code.size(row[0])
    for x in row[1:]:
        total = total + code.size(x)
    return total


def detached(code: Code, own: Any, others: Any) -> Value:
    """Whether the coefficients ``others`` of a row are nothing beside its ``own``."""
    own, others = sum_of_sizes(code, own), sum_of_sizes(code, others)
    return (others <= own * (DECAYED_PIVOTED * code.eps)) & (own > others)


def adopt_pivoted(code: Code, kept_at: Value, stride: Value, bottom: Value) -> None:
    """Two ends that do not feel each other: the relation in x_before, x_first and the one in x_last, x_after."""
    kept, below, none = Rows(code, kept_at, stride), Rows(code, bottom, code.row), code.zero()
    one, two = read(code, kept, 5), read(code, kept, 5, 5)
    top = choose(code, detached(code, one[2:4], one[:2]), one, two)
    write(code, kept, (none, none, *top[2:]))
    one, two = read(code, below, 5), read(code, below, 5, 5)
    end = choose(code, detached(code, one[:2], one[2:4]), one, two)
    write(code, kept, (*end[:2], none, none, end[4]), 5)


class Records:
    """The fields of every row of a chunk. Row k of the elimination is that of the unknown k - 1."""

    def __init__(self, code: Code, base: Value, fields: int) -> None:
        self.code, self.base, self.fields = code, base, fields

    def field(self, field: int) -> Rows:
        return Rows(self.code, self.base + field * self.code.row, self.fields * self.code.row)

    def swaps(self, i: Value, lane: int) -> Value:
        """The address of the exchanges of a row, two bits in a byte a lane, from a lane on."""
        return self.base + i * (self.fields * self.code.row) + (SWAPS * self.code.row + lane)

    def substitution(self) -> Callable[[Value, Any, Any], Any]:
        """A function (i, after, behind) that substitutes: x of row i, where x of the two rows behind it is known."""
        upper, upper2, right = (self.field(k) for k in (UPPER, UPPER2, RIGHT))

        def substitute(i: Value, after: Any, behind: Any) -> Any:
            return right[i + 1] - upper2[i + 1] * behind - upper[i + 1] * after

        return substitute


def eliminate_pivoted(code: Code, plan: At, block: Value, base: Value) -> None:
    """The records of the rows of a block, whose ends are known, by exchanges of two rows; the first row is not needed.

    Of two rows the pivot is the one whose entry is the larger beside its others: far fewer rows have a residual to be
    corrected than if rows with large entries always won.
    """
    bands, records, rows = Bands(code, plan, block).in_pieces(), Records(code, base, FEW_FIELDS), plan.height
    ends = planes(code, plan, block, P.ABOVE)
    _, top, bottom, below = read(code, ends, 4)
    upper, upper2, right, iterate = (records.field(k) for k in (UPPER, UPPER2, RIGHT, ITERATE))

    def line(some: Bands, lane: int, i: Value, state: Any) -> Any:
        code, (p0, p1, p) = some.code, state
        for k, a, b, c, d in some.rows(i, ask=True):
            size, below_size = code.size(p0), code.size(a)
            swap = below_size * (size + code.size(p1)) > size * (below_size + code.size(b) + code.size(c))
            over, under = code.one() / a, code.one() / p0  # neither row waits for the choice
            stay, go = (p1 * under, code.zero(), p * under), (b * over, c * over, d * over)
            for field, x in zip((upper, upper2, right), choose(code, swap, go, stay), strict=True):
                field.of_lanes(code, lane).store(i + k, x)
            p0, p1, p = choose(
                code, swap, (p1 - p0 * go[0], -(p0 * go[1]), p - p0 * go[2]), (b - a * stay[0], c, d - a * stay[2])
            )
            if k == 1:
                first = d - a * ends.of_lanes(code, lane)[code.integer(1)]
                p0, p1, p = choose(code, code.everywhere(i == 0), (b, c, first), (p0, p1, p))
        return p0, p1, p

    bands.over(code.integer(0), rows, line, (code.one(), code.zero(), code.zero()))
    for i, x in ((code.integer(1), top), (rows, bottom)):
        for field, value in ((upper, code.zero()), (upper2, code.zero()), (right, x)):
            field.store(i, value)
    iterate.store(rows, below)


def substitute_pivoted(code: Code, plan: At, block: Value, base: Value) -> Value:
    """x, last row first; whether it is not finite."""
    bands, records, rows = Bands(code, plan, block), Records(code, base, FEW_FIELDS), plan.height
    substitute, iterate = records.substitution(), records.field(ITERATE)

    def line(i: Value, state: Any) -> Any:
        after, behind = state

        def row(k: int) -> Any:
            nonlocal after, behind
            after, behind = substitute(i + k, after, behind), after
            iterate.store(i + k, after)
            return after

        bands.store(i, row)
        return after, behind

    code.fori(rows - bands.height, -1, line, (iterate[rows], code.zero()), step=-bands.height)
    x = iterate[code.integer(1)]
    return any_lane(code, ~(code.size(x - x) == 0))


REDUCE_PIVOTED = CHUNKS.add("reduce_pivoted", reduce_pivoted)
ADOPT_PIVOTED = CHUNKS.add("adopt_pivoted", adopt_pivoted)
ELIMINATE_PIVOTED = CHUNKS.add("eliminate_pivoted", eliminate_pivoted)
SUBSTITUTE_PIVOTED = CHUNKS.add("substitute_pivoted", substitute_pivoted)
