"""The inner loops of `tridiag.kernels.partition.kernel`: a block of chunks of one long system, a chunk in each lane.

A chunk is as many rows as all others; its last row is its separator. Rows are contiguous in memory: a piece of a cache
line of each lane is read and transposed in registers. Reduction tells how the ends of a chunk depend on its
neighbours; then, with the separators known, each chunk is solved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.load_store import in_lanes, out_of_lanes
from tridiag.kernels.access.rows import Rows, lines_of_rows, rows_of_lines
from tridiag.kernels.partition import state as P
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I1, Code
from tridiag.kernels.thomas.loops import least_quotient, lossless, no_quotient

# What a reduction tells: no certificate, or a row that remains is so little that the matrix may be singular; the first
# row, the last row feels the other end.
UNSURE, TOP_FEELS, BOTTOM_FEELS = 1, 2, 4

# The fields of a record, one for each row of a chunk that is solved with pivoting; only the first are kept where the
# solution is not to be corrected.
UPPER, UPPER2, RIGHT, ITERATE, INVERSE, LOWER, LOWER2, SWAPS = range(8)
FEW_FIELDS, FIELDS = 4, 8

PIECE = 4  # real numbers of each lane that are read at a time
ROWS_AHEAD = 16
OPERANDS = (P.A, P.B, P.C, P.D)
DECAYED, DECAYED_PIVOTED = 1e-4, 1e-2  # eps: a coupling below counts as none; the residuals tell where that was wrong
LEAST, MOST = 0.75, 1 / el.CANCELLATION  # of the certificate; the latter over eps

CHUNKS = Library("chunks")


class Bands:
    """a, b, c and d of a block, and where its solution goes."""

    def __init__(self, code: Code, plan: Any, block: Value) -> None:
        self.code, self.height = code, code.lanes // code.parts
        self.size = code.parts * code.size_of_real
        lane = plan.height * self.size
        self.rows_of_block, start = lane * code.lanes, block * (lane * code.lanes)
        lanes = [lane * k for k in range(code.lanes)]
        self.steps = [plan.step[k] for k in OPERANDS]
        bases = [plan.lines[k] + step * start for k, step in zip(OPERANDS, self.steps, strict=True)]
        target = plan.lines[P.X] + start
        self.bases, self.targets = [[base + k for k in lanes] for base in bases], [target + k for k in lanes]

    def pieces(self, bases: list[Value], at: Value, count: int) -> list[Any]:
        """Rows of an operand, ``count`` of each lane."""
        code = self.code
        kind = ir.VectorType(code.real, count * code.parts)
        return rows_of_lines(code, in_lanes(code, [code.load_as(kind, base + at) for base in bases]))

    def rows(self, i: Value, ask: bool = False) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        """Rows i, i + 1 ... of a cache line; ``ask`` for the same rows of the next block."""
        code, count = self.code, PIECE // self.code.parts
        share = code.lanes * count // self.height if ask else 0
        for first in range(0, self.height, count):
            asked = slice(first // count * share, (first // count + 1) * share)
            bands = []
            for bases, step in zip(self.bases, self.steps, strict=True):
                bands.append(self.pieces(bases, (i + first) * (step * self.size), count))
                for base in bases[asked]:
                    code.prefetch(base + i * (step * self.size) + self.rows_of_block)
            for k in range(count):
                yield first + k, *(band[k] for band in bands)

    def store(self, i: Value, row: Callable[[int], Any]) -> None:
        """The rows of a cache line of x, last one first."""
        code, at = self.code, i * self.size
        for base in self.targets:
            code.prefetch(base + (at - ROWS_AHEAD * self.size), write=True)
        rows = [row(k) for k in reversed(range(self.height))][::-1]
        for base, line in zip(self.targets, out_of_lanes(code, lines_of_rows(code, rows)), strict=True):
            code.store_as(base + at, line)


class Scattered(Bands):
    """... of rows anywhere: a table holds the address of every lane's first row, of a, b, c, d, x and the new x."""

    def __init__(self, code: Code, plan: At, table: Value) -> None:
        self.code, self.height = code, code.lanes // code.parts
        self.size = code.parts * code.size_of_real
        self.steps = [plan.step[k] for k in OPERANDS]
        *self.bases, self.x, self.targets = (
            [code.word(table + 8 * (k * code.lanes + lane)) for lane in range(code.lanes)] for k in range(6)
        )


def planes(code: Code, plan: At, block: Value, plane: int, count: int = 1) -> Rows:
    """Planes of the plan at a block."""
    stride = plan.blocks * code.row
    return Rows(code, plan.planes + stride * plane + block * code.row, stride)


def read(code: Code, rows: Rows, count: int, first: int = 0) -> list[Any]:
    return [rows[code.integer(first + k)] for k in range(count)]


def write(code: Code, rows: Rows, values: Any, first: int = 0) -> None:
    for k, x in enumerate(values):
        rows.store(code.integer(first + k), x)


def choose(code: Code, mask: Value, x: Any, y: Any) -> tuple[Any, ...]:
    return tuple(code.where(mask, u, v) for u, v in zip(x, y, strict=True))


def any_lane(code: Code, mask: Value) -> Value:
    return code.pick(code.bits(mask) != 0, code.integer(1), code.integer(0))


# ------------------------------------------------------------------------------------------------ plain


class Certificate:
    """`tridiag.algorithms.elimination.certify` of all rows, from the extremes of q = b / pivot.

    With l c = b - pivot the certificate |l c| + |pivot| <= 3 |b| reads |q - 1| + 1 <= 3 |q|, which for real numbers is
    |q + 1/4| >= 3/4. No NaN gets lost: it stays in the elimination until the last row.
    """

    @staticmethod
    def start(code: Code) -> tuple[Value, Value]:
        one = Value(code, code.constant(code.vector, 1.0))
        return one, one

    @staticmethod
    def watch(code: Code, extremes: tuple[Value, Value], quotient: Any) -> tuple[Value, Value]:
        low, high = extremes
        if code.parts == 1:
            size = margin = code.magnitude(quotient + (1 - LEAST))
        else:
            size = code.size(quotient)
            margin = (size * el.GROWTH - code.size(quotient - code.one())) * LEAST
        return code.where(low < margin, low, margin), code.where(high > size, high, size)

    @staticmethod
    def holds(code: Code, extremes: tuple[Value, Value]) -> Value:
        low, high = extremes
        return (low >= LEAST) & (high <= MOST / code.eps)


def reduce_plain(code: Code, *words: Value) -> Value:
    """Rows first <= i < last of each chunk: how x at both ends depends on x before the chunk and behind these rows.

    The last row of the chunk is left out.
    """
    plan: Any
    plan, block, first, last, kept_at, stride = words
    bands, kept = Bands(code, plan, block), Rows(code, kept_at, stride)
    end = plan.height - bands.height

    def line(i: Value, state: Any) -> Any:
        ends, extremes = state
        for k, a, b, c, d in bands.rows(i, ask=True):
            y, y_before, above, x, x_before, x_own = ends
            inverse = code.one() / (b - a * above)
            extremes = Certificate.watch(code, extremes, b * inverse)
            y, y_before, above = (d - a * y) * inverse, -(a * y_before) * inverse, c * inverse
            new = y, y_before, above, x + x_own * y, x_before + x_own * y_before, -(x_own * above)
            ends = choose(code, code.everywhere(i == end), ends, new) if k == bands.height - 1 else new
        return ends, extremes

    state = tuple(read(code, kept, 6)), Certificate.start(code)
    ends, extremes = code.fori(first, last, line, state, step=bands.height)
    write(code, kept, ends)
    top, bottom = (any_lane(code, ~(code.size(ends[k]) <= DECAYED * code.eps)) for k in (P.FIRST_OWN, P.LAST_BEFORE))
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


def keep_separators(code: Code, plan: At, block: Value) -> None:
    """The rows of the separators to their planes."""
    bands = Bands(code, plan, block)
    *_, (_, *row) = bands.rows(plan.height - bands.height)
    write(code, planes(code, plan, block, 0), row, P.SEPARATOR)


def eliminate(code: Code, plan: At, block: Value, target: Value) -> Value:
    """c' and y' of the rows of a block; whether a lane lacks the certificate."""
    bands, step = Bands(code, plan, block), 2 * code.row
    above, given = Rows(code, target, step), Rows(code, target + code.row, step)

    def line(i: Value, state: Any) -> Any:
        above_here, before, extremes, least = state
        for k, a, b, c, d in bands.rows(i, ask=True):
            inverse = code.one() / (b - a * above_here)
            extremes = Certificate.watch(code, extremes, b * inverse)
            above_here, before = c * inverse, (d - a * before) * inverse
            least = least_quotient(code, least, above_here, c)
            above.store(i + k, above_here)
            given.store(i + k, before)
        return above_here, before, extremes, least

    before = planes(code, plan, block, P.BEFORE)[code.integer(0)]
    start = code.zero(), before, Certificate.start(code), no_quotient(code)
    *_, extremes, least = code.fori(0, plan.height, line, start, step=bands.height)
    return any_lane(code, ~(Certificate.holds(code, extremes) & lossless(code, least)))


def substitute(code: Code, plan: At, block: Value, source: Value) -> Value:
    """x, last row first, to memory; the separator is known. Whether it is not finite: behind a zero pivot no row is."""
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


# ------------------------------------------------------------------------------------------------ pivoted


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
    bands, kept, none = Bands(code, plan, block), Rows(code, kept_at, stride), code.zero()

    def line(i: Value, state: Any) -> Any:
        one, two = state
        fresh = code.everywhere(i == start)
        for k, a, b, c, d in bands.rows(i, ask=True):
            before = one
            one, two, *_ = pivot_column(code, one, two, (a, b, c, none, none, d))
            if k < 2:
                new = (c, none, a, b, d) if k == 0 else (b, c, none, a, d)
                one, two = choose(code, fresh, new if k == 0 else before, one), choose(code, fresh, new, two)
        return one, two

    state = tuple(read(code, kept, 5)), tuple(read(code, kept, 5, 5))
    one, two = code.fori(first, last, line, state, step=bands.height)
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

    def mask(self, i: Value, which: int) -> Value:
        code = self.code
        loaded = code.load_as(ir.IntType(code.lanes), self.place(i, which))
        return Value(code, code.builder.bitcast(loaded.llvm, ir.VectorType(I1, code.lanes)))

    def store_mask(self, i: Value, which: int, mask: Value) -> None:
        code = self.code
        code.store_as(self.place(i, which), Value(code, code.builder.bitcast(mask.llvm, ir.IntType(code.lanes))))

    def substitution(self) -> Callable[[Value, Any, Any], Any]:
        """A function (i, after, behind) that substitutes: x of row i, where x of the two rows behind it is known."""
        upper, upper2, right = (self.field(k) for k in (UPPER, UPPER2, RIGHT))

        def substitute(i: Value, after: Any, behind: Any) -> Any:
            return right[i + 1] - upper2[i + 1] * behind - upper[i + 1] * after

        return substitute

    def place(self, i: Value, which: int) -> Value:
        return self.base + i * (self.fields * self.code.row) + SWAPS * self.code.row + which * 8


def eliminate_pivoted(code: Code, plan: At, block: Value, base: Value) -> None:
    """The records of the rows of a block, whose ends are known, by exchanges of two rows; the first row is not needed.

    Of two rows the pivot is the one whose entry is the larger beside its others: far fewer rows have a residual to be
    corrected than if rows with large entries always won.
    """
    bands, records, rows = Bands(code, plan, block), Records(code, base, FEW_FIELDS), plan.height
    _, top, bottom, below = read(code, planes(code, plan, block, P.ABOVE), 4)
    upper, upper2, right, iterate = (records.field(k) for k in (UPPER, UPPER2, RIGHT, ITERATE))

    def line(i: Value, state: Any) -> Any:
        p0, p1, p = state
        for k, a, b, c, d in bands.rows(i, ask=True):
            size, below_size = code.size(p0), code.size(a)
            swap = below_size * (size + code.size(p1)) > size * (below_size + code.size(b) + code.size(c))
            over, under = code.one() / a, code.one() / p0  # neither row waits for the choice
            stay, go = (p1 * under, code.zero(), p * under), (b * over, c * over, d * over)
            for field, x in zip((upper, upper2, right), choose(code, swap, go, stay), strict=True):
                field.store(i + k, x)
            p0, p1, p = choose(
                code, swap, (p1 - p0 * go[0], -(p0 * go[1]), p - p0 * go[2]), (b - a * stay[0], c, d - a * stay[2])
            )
            if k == 1:
                p0, p1, p = choose(code, code.everywhere(i == 0), (b, c, d - a * top), (p0, p1, p))
        return p0, p1, p

    code.fori(0, rows, line, (code.one(), code.zero(), code.zero()), step=bands.height)
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


def rest(code: Code, a: Any, b: Any, c: Any, d: Any, before: Any, here: Any, after: Any) -> tuple[Any, Value, Value]:
    """The residual of a row, its size, and what it is to be compared with."""
    products = a * before, b * here, c * after
    r = d - (products[0] + products[1] + products[2])
    scale = code.size(d) + 4 * code.tiny / code.eps
    for x in products:
        scale = scale + code.size(x)
    return r, code.size(r), scale


def check_rows(fields: int, code: Code, plan: At, block: Value, base: Value, before: Value, target: Value) -> None:
    """For every line of rows of a block the lanes in which one has a componentwise residual above the bar."""
    bands, iterate = Bands(code, plan, block), Records(code, base, fields).field(ITERATE)

    def line(i: Value, state: Any) -> Any:
        before, here = state
        good = code.all_lanes()
        for k, a, b, c, d in bands.rows(i):
            after = iterate[i + k + 1]
            _, size, scale = rest(code, a, b, c, d, before, here, after)
            good = good & (size <= scale * (el.REFINE_ABOVE * code.eps))
            before, here = here, after
        code.store_as(target + i * 8, code.bits(~good))
        return before, here

    start = code.load(before), iterate[code.integer(0)]
    code.fori(0, plan.height, line, start, step=bands.height)


def begin_correction(code: Code, plan: At, table: Value, rows: Value, base: Value, ends_at: Value) -> None:
    """Eliminate rows anywhere, for corrections, and read x. ``ends``: x_before, x_after; the two rows that remain."""
    bands, records, ends = Scattered(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    fields, none = [records.field(k) for k in (UPPER, UPPER2, INVERSE, LOWER, LOWER2)], code.zero()
    iterate = records.field(ITERATE)

    def line(i: Value, state: Any) -> Any:
        one, two = state
        fresh = code.everywhere(i == 0)
        for k, x in enumerate(bands.pieces(bands.x, i * bands.size, bands.height)):
            iterate.store(i + k, x)
        for k, a, b, c, _ in bands.rows(i):
            before = one
            one, two, row, (inverse, lower, lower2, swap, other) = pivot_column(code, one, two, (a, b, c))
            for field, x in zip(fields, (*row, inverse, lower, lower2), strict=True):
                field.store(i + k, x)
            records.store_mask(i + k, 0, swap)
            records.store_mask(i + k, 1, other)
            if k < 2:
                new = (c, none) if k == 0 else (b, c)
                one, two = choose(code, fresh, new if k == 0 else before, one), choose(code, fresh, new, two)
        return one, two

    one, two = code.fori(0, rows, line, ((none, none), (none, none)), step=bands.height)
    write(code, ends, (*one, *two), 2)
    iterate.store(rows, ends[code.integer(1)])
    for field in fields[:2]:
        for i in (code.integer(1), rows):
            field.store(i, none)


def residual(code: Code, plan: At, table: Value, rows: Value, base: Value, ends_at: Value) -> Value:
    """The lanes in which a row has a componentwise residual above the bar; what is more than rounding is eliminated.

    ``ends``: x_before, x_after; the two rows that remain; from row 6 on the corrections known of x_before, x_first,
    x_last, x_after, and then, written here, the residuals of the two rows that remain.
    """
    bands, records, ends = Scattered(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    right, inverse, lower, lower2, iterate = (records.field(k) for k in (RIGHT, INVERSE, LOWER, LOWER2, ITERATE))
    above, top, bottom = read(code, ends, 3, 6)

    def line(i: Value, state: Any) -> Any:
        before, here, one, two, good = state
        fresh = code.everywhere(i == 0)
        for k, a, b, c, d in bands.rows(i):
            after = iterate[i + k + 1]
            r, size, scale = rest(code, a, b, c, d, before, here, after)
            good = good & (size <= scale * (el.REFINE_ABOVE * code.eps))
            r = code.where(size <= scale * (el.LEAVE_BELOW * code.eps), code.zero(), r)
            (pivot,), (second,) = el.exchange(code, records.mask(i + k, 0), (one,), (two,))
            (pivot,), (new,) = el.exchange(code, records.mask(i + k, 1), (pivot,), (r,))
            q = pivot * inverse[i + k]
            right.store(i + k, q)
            second, new = second - lower[i + k] * q, new - lower2[i + k] * q
            if k < 2:
                r = r - a * above - b * top if k == 0 else r - a * top
                second, new = code.where(fresh, r if k == 0 else one, second), code.where(fresh, r, new)
            one, two, before, here = second, new, here, after
        return before, here, one, two, good

    state = ends[code.integer(0)], iterate[code.integer(0)], code.zero(), code.zero(), code.all_lanes()
    *_, one, two, good = code.fori(0, rows, line, state, step=bands.height)
    write(code, ends, (one, two), 10)
    right.store(code.integer(1), top)
    right.store(rows, bottom)
    return code.bits(~good)


def correct(code: Code, plan: At, table: Value, rows: Value, base: Value, ends_at: Value, step: Value) -> None:
    """x + correction, last row first, to memory; then no correction of the ends is left."""
    bands, records, ends = Scattered(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    substitute, iterate, number = records.substitution(), records.field(ITERATE), code.repeat(step, code.lanes)

    def line(i: Value, state: Any) -> Any:
        after, behind = state

        def row(k: int) -> Any:
            nonlocal after, behind
            after, behind = substitute(i + k, after, behind), after
            x = el.correct(code, iterate[i + k], after, number)
            iterate.store(i + k, x)
            return x

        bands.store(i, row)
        return after, behind

    above, below = ends[code.integer(6)], ends[code.integer(9)]
    code.fori(rows - bands.height, -1, line, (below, code.zero()), step=-bands.height)
    before = el.correct(code, ends[code.integer(0)], above, number)
    after = el.correct(code, iterate[rows], below, number)
    write(code, ends, (before, after))
    iterate.store(rows, after)
    write(code, ends, [code.zero()] * 4, 6)


REDUCE_PLAIN, REDUCE_PIVOTED = CHUNKS.add("reduce_plain", reduce_plain), CHUNKS.add("reduce_pivoted", reduce_pivoted)
BEGIN_PLAIN, ADOPT_PLAIN = CHUNKS.add("begin_plain", begin_plain), CHUNKS.add("adopt_plain", adopt_plain)
ADOPT_PIVOTED, KEEP_SEPARATORS = (
    CHUNKS.add("adopt_pivoted", adopt_pivoted),
    CHUNKS.add("keep_separators", keep_separators),
)
ELIMINATE, SUBSTITUTE = CHUNKS.add("eliminate", eliminate), CHUNKS.add("substitute", substitute)
ELIMINATE_PIVOTED = CHUNKS.add("eliminate_pivoted", eliminate_pivoted)
SUBSTITUTE_PIVOTED = CHUNKS.add("substitute_pivoted", substitute_pivoted)
CHECK_ROWS = CHUNKS.add("check_rows", functools.partial(check_rows, FEW_FIELDS))
CHECK_CORRECTED = CHUNKS.add("check_corrected", functools.partial(check_rows, FIELDS))
BEGIN_CORRECTION = CHUNKS.add("begin_correction", begin_correction)
RESIDUAL, CORRECT = CHUNKS.add("residual", residual), CHUNKS.add("correct", correct)
