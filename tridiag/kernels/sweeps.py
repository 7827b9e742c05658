"""The inner loops: elimination and substitution over rows of lanes, one system in each lane.

Plain (Thomas), 8 flops and one division a row; pivoted (LAPACK xGTTRF), by selects; cyclic, three rows a column. The
equations are those of `tridiag.elimination`, whose functions are called here where pivots are not kept as reciprocals.

A row of lanes lies at base + i * stride. Every loop takes the mask of kept rows, a byte a lane; where no row is taken
out, all rows read the same line of ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag import elimination as el
from tridiag.kernels.moves import (
    AHEAD,
    QUAD,
    STRIDE,
    TABLE,
    addresses,
    ask,
    in_lanes,
    out_of_lanes,
    put_beside,
    take_beside,
)
from tridiag.kernels.vector import I32, LINE, Code, Complex, Library, Value


@dataclass(frozen=True)
class Rows:
    """Rows of lanes in memory."""

    code: Code
    base: Value
    stride: Any
    spread: bool = False  # one number a row, for all lanes

    def __getitem__(self, i: Any) -> Any:
        at = self.base + i * self.stride
        return self.code.spread(at) if self.spread else self.code.load(at)

    def store(self, i: Any, x: Any) -> None:
        self.code.store(self.base + i * self.stride, x)


@dataclass(frozen=True)
class Mask:
    """Rows of bytes."""

    code: Code
    base: Value
    stride: Any

    def __getitem__(self, i: Any) -> Value:
        return self.code.load_bytes(self.base + i * self.stride)


def planes(code: Code, base: Value, count: int, length: Value) -> list[Rows]:
    """Arrays of ``length`` rows, one behind the other."""
    return [Rows(code, base + length * (k * code.row), code.row) for k in range(count)]


def ask_for_bands(code: Code, aims: Value, i: Value, count: int) -> None:
    """Ask for a, b, c and perhaps the right side, which follows the mask, ahead of row i."""
    for band in range(count):
        ask(code, aims + (band if band < RIGHT else RIGHT + 1) * (TABLE + 8 * code.lanes), i)


def certified(code: Code, growth: Any, pivot: Any, diagonal: Any) -> Value:
    """`tridiag.elimination.certify`, from the product l c."""
    size, bound = code.size(pivot), code.size(diagonal)
    grown = code.size(growth) + size <= bound * el.GROWTH
    return grown & (size > code.maximum(bound * (el.CANCELLATION * code.eps), code.tiny))


WIDE = 4  # groups side by side whose state stays in registers
FACTORS_AHEAD = 8192, 4096  # prefetch distances in bytes
ROWS_AHEAD = 1  # prefetch distance where tiles are wide

# ------------------------------------------------------------------------------------------------ plain


class Plain(NamedTuple):
    """The state of plain elimination: c' and y' of the row above, the certified lanes, those without a zero pivot."""

    above: Any
    before: Any
    sure: Value
    alive: Value

    def step(self, code: Code, a: Any, b: Any, c: Any, d: Any) -> Plain:
        growth = a * self.above
        pivot = b - growth
        sure = self.sure & certified(code, growth, pivot, b)
        inverse = code.one() / pivot
        return Plain(c * inverse, (d - a * self.before) * inverse, sure, self.alive & ~(pivot == 0))

    def erased(self, code: Code, kept: Value) -> Plain:
        above, before = (code.where(kept, x, code.zero()) for x in (self.above, self.before))
        return self._replace(above=above, before=before)


def unpack(code: Code, good: Value) -> tuple[Value, Value]:
    """The two masks of an integer: certified, and above it without a zero pivot."""
    return code.mask(good), code.mask(code.shift(good, -code.lanes))


def pack(code: Code, sure: Value, alive: Value) -> Value:
    return code.bits(sure) | code.shift(code.bits(alive), code.lanes)


def eliminate(code: Code, *words: Value) -> Value:
    """Eliminate and substitute forward: c' and y' of ``count`` rows behind the row that precedes them."""
    views, (mask, mask_step, target, step, count, good, aims, row_zero) = words[:8], words[8:]
    a, b, c, d = (Rows(code, views[k], views[k + 1]) for k in range(0, 8, 2))
    keep, c1, y = Mask(code, mask, mask_step), Rows(code, target, step), Rows(code, target + code.row, step)

    def row(i: Value, state: Any) -> Any:
        ask_for_bands(code, aims, row_zero + i, 4)
        state = Plain(*state).step(code, a[i], b[i], c[i], d[i]).erased(code, keep[i])
        c1.store(i, state.above)
        y.store(i, state.before)
        return state

    last = code.integer(-1)
    *_, sure, alive = code.fori(0, count, row, (c1[last], y[last], *unpack(code, good)))
    return pack(code, sure, alive)


class Lines:
    """An operand whose rows are contiguous: a few numbers of each lane at a time are rows of lanes.

    Each cache line is asked for twice, as the processor drops requests when it has many.
    """

    def __init__(self, code: Code, operand: Value) -> None:
        self.code, self.table, self.ahead = code, operand + TABLE, code.word(operand + AHEAD)

    def places(self, i: Value) -> list[Value]:
        """The addresses are read again each time: registers are too few for them."""
        at = i * (self.code.parts * self.code.size_of_real)
        return [base + at for base in addresses(self.code, self.table)]

    def load(self, i: Value) -> list[Any]:
        code, kind, places = self.code, ir.VectorType(self.code.real, QUAD), self.places(i)
        rows = rows_of_lines(code, in_lanes(code, [code.load_as(kind, place) for place in places]))
        self.ask(places)
        return rows

    def store(self, i: Value, rows: list[Any]) -> None:
        code, places = self.code, self.places(i)
        for place, line in zip(places, out_of_lanes(code, lines_of_rows(code, rows)), strict=True):
            code.store_as(place, line)
        self.ask(places)

    def ask(self, places: list[Value]) -> None:
        for place in places:
            self.code.prefetch(place + self.ahead)


def rows_of_lines(code: Code, lines: list[Value]) -> list[Any]:
    """Real rows of lanes as rows of entries."""
    return lines if code.parts == 1 else [Complex(*lines[k : k + 2]) for k in range(0, len(lines), 2)]


def lines_of_rows(code: Code, rows: list[Any]) -> list[Value]:
    return rows if code.parts == 1 else [x for row in rows for x in (row.real, row.imag)]


def lines_of(code: Code, words: Sequence[Value]) -> Any:
    """A function (i, low, high): the bands' entries of a few rows from i on, where rows are contiguous.

    It is told the operands, and by how many rows each is moved, since a and c come from other rows where the matrix is
    transposed. The pads, of row ``low`` and before ``high``, are zero.
    """
    bands, height = [Lines(code, x) for x in words[:4]], QUAD // code.parts

    def read(i: Value, low: Value, high: Value) -> Any:
        a, b, c, d = (band.load(i + move) for band, move in zip(bands, words[4:8], strict=True))
        a[0] = code.where(code.everywhere(i == low), code.zero(), a[0])
        c[-1] = code.where(code.everywhere(i + height == high), code.zero(), c[-1])
        return zip(a, b, c, d, strict=True)

    return read


def to_lines(code: Code, output: Value, first: Value, last: Value, solution: Any, state: Any) -> Any:
    """Rows of a solution, last row first, to contiguous memory: x, state = solution(i, state)."""
    lines, height = Lines(code, output), QUAD // code.parts

    def chunk(i: Value, state: Any) -> Any:
        rows = []
        for k in reversed(range(height)):
            x, state = solution(i + k, state)
            rows.append(x)
        lines.store(i, rows[::-1])
        return state

    return code.fori(last - height, first - 1, chunk, state, step=-height)


def eliminate_lines(code: Code, *words: Value) -> Value:
    """`eliminate` where rows are contiguous: a few numbers of each lane at a time, from memory through registers."""
    bands, (target, first, last, low, high, good) = lines_of(code, words[:8]), words[8:]
    c1, y = Rows(code, target, 2 * code.row), Rows(code, target + code.row, 2 * code.row)

    def chunk(i: Value, state: Any) -> Any:
        state = Plain(*state)
        for k, entries in enumerate(bands(i, low, high)):
            state = state.step(code, *entries)
            c1.store(i - first + k, state.above)
            y.store(i - first + k, state.before)
        return state

    before = code.integer(-1)
    start = c1[before], y[before], *unpack(code, good)
    *_, sure, alive = code.fori(first, last, chunk, start, step=QUAD // code.parts)
    return pack(code, sure, alive)


def backward_lines(code: Code, *words: Value) -> None:
    """x[i] = y[i] - c'[i] x[i+1], last row first, to contiguous rows of memory."""
    source, output, carry, first, last = words
    c1, y = Rows(code, source, 2 * code.row), Rows(code, source + code.row, 2 * code.row)
    substitute_lines(code, c1, y, output, carry, first, last)


def backward_lines_factored(spread: bool, code: Code, *words: Value) -> None:
    """The same with c' of factors."""
    above, y, output, carry, first, last = words
    _, _, c1 = factors(spread, code, above, above)
    substitute_lines(code, c1, Rows(code, y, code.row), output, carry, first, last, not spread)


def substitute_lines(
    code: Code, c1: Rows, y: Rows, output: Value, carry_at: Value, first: Value, last: Value, factored: bool = False
) -> None:
    zero, carry = code.integer(0), Rows(code, carry_at, 0)

    def solution(i: Value, state: Any) -> tuple[Any, Any]:
        row = i - first
        x = y[row] - c1[row] * state[0]
        if factored:
            ask_for_factors(code, c1.base + row * c1.stride, code.row)
        return x, (x,)

    (x,) = to_lines(code, output, first, last, solution, (carry[zero],))
    carry.store(zero, x)


def forward_lines(spread: bool, code: Code, *words: Value) -> None:
    """`forward` where rows are contiguous."""
    pairs, right, target, first, last = words
    slopes, inverses, _ = factors(spread, code, pairs, pairs)
    given, y, height = Lines(code, right), Rows(code, target, code.row), QUAD // code.parts

    def chunk(i: Value, state: Any) -> Any:
        (before,), d = state, given.load(i)
        for k in range(height):
            row = i - first + k
            if not spread:
                ask_for_factors(code, pairs + row * (2 * code.row), 2 * code.row)
            before = code.product(d[k], inverses[row]) - slopes[row] * before
            y.store(row, before)
        return (before,)

    code.fori(first, last, chunk, (y[code.integer(-1)],), step=height)


def beside_of(code: Code, words: Sequence[Value]) -> Any:
    """A function (i, end): a function (g) that reads the bands of group g at row i, where lanes lie side by side.

    It is told the operands, and by how many rows each is moved. The pads, of row 0 and before ``end``, are not read.
    """
    aims, moves, zero = words[:4], words[4:8], code.integer(0)
    strides, tables = [code.word(x + STRIDE) for x in aims], [code.word(x + TABLE) for x in aims]

    def read(i: Value, end: Value) -> Any:
        top, bottom = i == 0, i == end - 1
        rows = [i + code.pick(pad, zero, move) for pad, move in zip((top, top, bottom, top), moves, strict=True)]
        bases = [table + k * stride for table, k, stride in zip(tables, rows, strides, strict=True)]

        def group(g: Value) -> Any:
            for base, stride in zip(bases, strides, strict=True):
                for line in range(0, code.row, LINE):
                    code.prefetch(base + stride * ROWS_AHEAD + g * code.row + line)
            a, b, c, d = (take_beside(code, base + g * code.row) for base in bases)
            a, c = (code.where(code.everywhere(pad), code.zero(), x) for pad, x in ((top, a), (bottom, c)))
            return a, b, c, d

        return group

    return read


def to_beside(past_caches: bool, code: Code, x: Value, x_step: Value, count: Value, groups: Value, solve: Any) -> None:
    """Rows of solutions, last row first, to memory where lanes lie side by side: solve(i, g)."""

    def row(i: Value, state: Any) -> Any:
        def group(g: Value, state: Any) -> Any:
            address = x + i * x_step + g * code.row
            if not past_caches:
                for line in range(0, code.row, LINE):
                    code.prefetch(address - x_step * ROWS_AHEAD + line, write=True)
            put_beside(code, address, solve(i, g), past_caches)
            return state

        return code.fori(0, groups, group, state)

    code.fori(count - 1, -1, row, step=-1)


def eliminate_beside(code: Code, *words: Value) -> None:
    """`eliminate` where lanes lie side by side: all groups of a tile row by row, as they lie in memory."""
    read, (target, step, groups, first, last, end, good) = beside_of(code, words[:8]), words[8:]

    def row(i: Value, state: Any) -> Any:
        here, bands = target + (i - first) * step, read(i, end)

        def group(g: Value, state: Any) -> Any:
            at, found = here + g * (2 * code.row), good + g * 8
            plain = Plain(code.load(at - step), code.load(at - step + code.row), *unpack(code, code.word(found)))
            plain = plain.step(code, *bands(g))
            code.store(at, plain.above)
            code.store(at + code.row, plain.before)
            code.store_as(found, pack(code, plain.sure, plain.alive))
            return state

        return code.fori(0, groups, group, state)

    code.fori(first, last, row)


def backward_beside(past_caches: bool, code: Code, *words: Value) -> None:
    source, step, groups, x, x_step, carry, count = words

    def solve(i: Value, g: Value) -> Any:
        at, kept = source + i * step + g * (2 * code.row), carry + g * code.row
        value = code.load(at + code.row) - code.load(at) * code.load(kept)
        code.store(kept, value)
        return value

    to_beside(past_caches, code, x, x_step, count, groups, solve)


def factor(code: Code, *words: Value) -> Value:
    """The same without a right side, to the factors of ``count`` rows; the carry holds c' of the row above."""
    views, (mask, mask_step, pairs, above_at, carry_at, count, good, aims, row_zero) = words[:6], words[6:]
    a, b, c = (Rows(code, views[k], views[k + 1]) for k in range(0, 6, 2))
    keep, carry = Mask(code, mask, mask_step), Rows(code, carry_at, 0)
    slopes, inverses, kept = factors(False, code, pairs, above_at)

    def row(i: Value, state: Any) -> Any:
        above, sure, alive = state
        ask_for_bands(code, aims, row_zero + i, 3)
        below, diagonal = a[i], b[i]
        growth = below * above
        pivot = diagonal - growth
        sure = sure & certified(code, growth, pivot, diagonal)
        alive = alive & ~(pivot == 0)
        inverse = code.one() / pivot
        above = code.where(keep[i], c[i] * inverse, code.zero())
        slopes.store(i, below * inverse)
        inverses.store(i, inverse)
        kept.store(i, above)
        return above, sure, alive

    zero = code.integer(0)
    above, sure, alive = code.fori(0, count, row, (carry[zero], *unpack(code, good)))
    carry.store(zero, above)
    return pack(code, sure, alive)


def ask_for_factors(code: Code, address: Value, count: int) -> None:
    """Ask for as many bytes of factors, which are one stream of memory, twice ahead of use: see `Lines`."""
    for ahead in FACTORS_AHEAD:
        for line in range(0, count, LINE):
            code.prefetch(address + (ahead + line))


def factors(spread: bool, code: Code, pairs: Value, above: Value) -> tuple[Rows, Rows, Rows]:
    """a / pivot and 1 / pivot, in turn, and c', which goes down in memory: so both sweeps read it upwards."""
    part = code.parts * code.size_of_real if spread else code.row
    slopes, inverses = (Rows(code, pairs + k * part, 2 * part, spread) for k in range(2))
    return slopes, inverses, Rows(code, above, -part, spread)


def forward(spread: bool, code: Code, *words: Value) -> None:
    """y' of ``count`` rows from factors: y[i] = d[i] / pivot[i] - (a[i] / pivot[i]) y[i-1]."""
    pairs, d, d_step, mask, mask_step, y_at, y_step, count, asked, row_zero = words
    slopes, inverses, _ = factors(spread, code, pairs, pairs)
    given, keep, y = Rows(code, d, d_step), Mask(code, mask, mask_step), Rows(code, y_at, y_step)

    def row(i: Value, state: Any) -> Any:
        ask(code, asked, row_zero + i)
        before = code.where(keep[i], code.product(given[i], inverses[i]) - slopes[i] * state[0], code.zero())
        y.store(i, before)
        return (before,)

    code.fori(0, count, row, (y[code.integer(-1)],))


def backward(spread: bool, code: Code, *words: Value) -> None:
    """x[i] = y[i] - c'[i] x[i+1] for ``count`` rows, last first; the carry holds x behind and then before them."""
    c, c_step, y, y_step, mask, mask_step, x_at, x_step, carry_at, count, asked, row_zero = words
    above, given = Rows(code, c, c_step, spread), Rows(code, y, y_step)
    keep, target, carry = Mask(code, mask, mask_step), Rows(code, x_at, x_step), Rows(code, carry_at, 0)

    def row(i: Value, state: Any) -> Any:
        x = code.where(keep[i], given[i] - above[i] * state[0], code.zero())
        target.store(i, x)
        ask(code, asked, row_zero + i)
        return (x,)

    (x,) = code.fori(count - 1, -1, row, (carry[code.integer(0)],), step=-1)
    carry.store(code.integer(0), x)


def forward_wide(code: Code, *words: Value) -> None:
    """y' from the factors of one matrix, of WIDE groups of right sides that lie side by side in memory, row by row."""
    pairs, d, d_step, ahead, target, count = words
    slopes, inverses, _ = factors(True, code, pairs, pairs)

    def row(i: Value, state: Any) -> Any:
        slope, inverse, new = slopes[i], inverses[i], []
        for g, before in enumerate(state):
            at = d + i * d_step + g * code.row
            for line in range(0, code.row, LINE):
                code.prefetch(at + ahead + line)
            y = code.product(take_beside(code, at), inverse) - slope * before
            code.store(target + i * (WIDE * code.row) + g * code.row, y)
            new.append(y)
        return tuple(new)

    code.fori(0, count, row, (code.zero(),) * WIDE)


def backward_wide(past_caches: bool, code: Code, *words: Value) -> None:
    """x to memory."""
    above, source, x, x_step, ahead, count = words
    _, _, c1 = factors(True, code, above, above)

    def row(i: Value, state: Any) -> Any:
        factor, new = c1[i], []
        for g, after in enumerate(state):
            value = code.load(source + i * (WIDE * code.row) + g * code.row) - factor * after
            at = x + i * x_step + g * code.row
            for line in range(0, 0 if past_caches else code.row, LINE):
                code.prefetch(at + ahead + line)
            put_beside(code, at, value, past_caches)
            new.append(value)
        return tuple(new)

    code.fori(count - 1, -1, row, (code.zero(),) * WIDE, step=-1)


def forward_transposed(spread: bool, code: Code, *words: Value) -> None:
    """U^T z = d in place: z[i] = d[i] - c'[i-1] z[i-1], all rows."""
    pairs, above_at, mask, mask_step, z_at, z_step, count = words
    _, _, above = factors(spread, code, pairs, above_at)
    keep, z = Mask(code, mask, mask_step), Rows(code, z_at, z_step)

    def row(i: Value, state: Any) -> Any:
        value = code.where(keep[i], z[i] - above[i - 1] * state[0], code.zero())
        z.store(i, value)
        return (value,)

    code.fori(1, count, row, (z[code.integer(0)],))


def backward_transposed(spread: bool, code: Code, *words: Value) -> None:
    """L^T x = z in place: w[i] = z[i] - (a[i+1] / pivot[i+1]) w[i+1], x[i] = w[i] / pivot[i]."""
    pairs, above_at, mask, mask_step, z_at, z_step, count = words
    slopes, inverses, _ = factors(spread, code, pairs, above_at)
    keep, z, last = Mask(code, mask, mask_step), Rows(code, z_at, z_step), count - 1

    def row(i: Value, state: Any) -> Any:
        w = code.where(keep[i], z[i] - slopes[i + 1] * state[0], code.zero())
        z.store(i, w * inverses[i])
        return (w,)

    w = code.where(keep[last], z[last], code.zero())
    z.store(last, w * inverses[last])
    code.fori(last - 1, -1, row, (w,), step=-1)


def cut(code: Code, a: Value, b: Value, c: Value, mask: Value, count: Value) -> None:
    """Take rows out of the bands: couplings to them are cut, their diagonal is 1."""
    bands, keep = [Rows(code, x, code.row) for x in (a, b, c)], Mask(code, mask, code.lanes)

    def row(i: Value, state: Any) -> Any:
        kept = keep[i]
        coupled = kept & keep[i - 1], kept, kept & keep[i + 1]
        for band, here, gone in zip(bands, coupled, (code.zero(), code.one(), code.zero()), strict=True):
            band.store(i, code.where(here, band[i], gone))
        return state

    code.fori(0, count, row)


def erase(code: Code, x: Value, mask: Value, mask_step: Value, count: Value) -> None:
    """Zero in the rows that are taken out."""
    rows, keep = Rows(code, x, code.row), Mask(code, mask, mask_step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(keep[i], rows[i], code.zero()))
        return state

    code.fori(0, count, row)


def merge(code: Code, *words: Value) -> None:
    """x = y in some lanes."""
    x, x_step, y, y_step, lanes, count = words
    rows, others, chosen = Rows(code, x, x_step), Rows(code, y, y_step), code.mask(lanes)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(chosen, others[i], rows[i]))
        return state

    code.fori(0, count, row)


def fill(number: float, code: Code, x: Value, step: Value, count: Value) -> None:
    rows = Rows(code, x, step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.splat(number))
        return state

    code.fori(0, count, row)


# ------------------------------------------------------------------------------------------------ pivoted


class Exchanging(NamedTuple):
    """The state of elimination with partial pivoting: the carried row (p0, p1 | r), what is rounding in p0, sure lanes.

    As `tridiag.elimination.eliminate`, but with pivots kept as reciprocals. A pivot that may be a rounded zero, or
    whose reciprocal is not a normal number, is left to the divisions of `eliminate_pivoted`.
    """

    p0: Any
    p1: Any
    r: Any
    rounding: Value
    sure: Value

    def invert(self, code: Code, pivot: Any) -> tuple[Any, Value]:
        size = code.size(pivot)
        return code.one() / pivot, self.sure & (size > code.maximum(self.rounding, code.tiny)) & (size < 1 / code.tiny)

    def step(self, code: Code, kept: Value, a: Any, b: Any, c: Any, d: Any) -> tuple[Exchanging, tuple[Any, ...]]:
        """The state after a row, and 1 / q0, q1, q2 and q of the pivot row before it."""
        swap, nothing = code.size(a) > code.size(self.p0), code.zero()
        (q0, q1, q), (o0, o1, o) = el.exchange(code, swap, (self.p0, self.p1, self.r), (a, b, d))
        inverse, sure = self.invert(code, q0)
        multiplier = o0 * inverse
        p0, p1 = o1 - multiplier * q1, code.where(swap, -(multiplier * c), c)
        state = (p0, code.one()), (p1, nothing), (o - multiplier * q, nothing)
        p0, p1, r = (code.where(kept, x, gone) for x, gone in state)
        rounding = code.size(o1) * (el.CANCELLATION * code.eps)
        return Exchanging(p0, p1, r, rounding, sure), (inverse, q1, code.where(swap, c, nothing), q)


class Pivots:
    """Where the pivot rows of a group are kept, a row of memory behind their row, and what is carried on."""

    def __init__(self, code: Code, source: Value, step: Value, carry: Value, good: Value) -> None:
        self.code, self.carry, self.good, self.zero = code, carry, good, code.integer(0)
        self.kept = [Rows(code, source + k * code.row, step) for k in range(4)]
        self.carried = [Rows(code, carry + k * code.row, 0) for k in range(3)]

    def start(self, begins: Value) -> Exchanging:
        """The state left by the rows above; or, at the first row, that of an unknown x[-1] = 0."""
        code = self.code
        above = code.one(), code.zero(), code.zero()
        p0, p1, r = (code.where(begins, x, rows[self.zero]) for x, rows in zip(above, self.carried, strict=True))
        rounding = code.load_as(code.vector, self.carry + 3 * code.row)
        sure = code.mask(code.word(self.good))
        return Exchanging(p0, p1, r, code.where(begins, code.real_zero(), rounding), sure)

    def step(self, i: Value, state: Exchanging, kept: Value, *entries: Any) -> Exchanging:
        """Row i, which is behind the pivot row that it completes."""
        state, pivot = state.step(self.code, kept, *entries)
        for rows, x in zip(self.kept, pivot, strict=True):
            rows.store(i - 1, x)
        return state

    def leave(self, state: Any) -> None:
        (*carried, rounding, sure) = state
        for rows, x in zip(self.carried, carried, strict=True):
            rows.store(self.zero, x)
        self.code.store_as(self.carry + 3 * self.code.row, rounding)
        self.code.store_as(self.good, self.code.bits(sure))

    def behind(self) -> tuple[Any, Any]:
        """x of the two rows behind."""
        x1, x2, _ = (rows[self.zero] for rows in self.carried)
        return x1, x2

    def put_behind(self, state: tuple[Any, Any]) -> None:
        for rows, x in zip(self.carried[:2], state, strict=True):
            rows.store(self.zero, x)

    def substitute(self, i: Value, x1: Any, x2: Any) -> Any:
        inverse, q1, q2, q = (rows[i] for rows in self.kept)
        return (q - q1 * x1 - q2 * x2) * inverse


def exchange(code: Code, *words: Value) -> None:
    """Eliminate and substitute forward with partial pivoting."""
    views, (mask, mask_step, target, step, count, carry, good, aims, row_zero, low) = words[:8], words[8:]
    bands = [Rows(code, views[k], views[k + 1]) for k in range(0, 8, 2)]
    keep, pivots = Mask(code, mask, mask_step), Pivots(code, target, step, carry, good)

    def row(i: Value, state: Any) -> Any:
        ask_for_bands(code, aims, row_zero + i, 4)
        return pivots.step(i, Exchanging(*state), keep[i], *(band[i] for band in bands))

    pivots.leave(code.fori(0, count, row, pivots.start(code.everywhere(row_zero == low))))


def backward_exchanged(code: Code, *words: Value) -> None:
    """The solution in place of q; the carry holds x of the two rows behind, and then the first two of these."""
    source, step, mask, mask_step, count, carry, asked, row_zero = words
    keep, pivots = Mask(code, mask, mask_step), Pivots(code, source, step, carry, carry)

    def row(i: Value, state: Any) -> Any:
        ask(code, asked, row_zero + i)
        x = code.where(keep[i], pivots.substitute(i, *state), code.zero())
        pivots.kept[3].store(i, x)
        return x, state[0]

    pivots.put_behind(code.fori(count - 1, -1, row, pivots.behind(), step=-1))


def close_exchange(code: Code, *words: Value) -> Value:
    """The pivot row of the last row, and the lanes whose pivots were all fine."""
    target, step, carry, good = words
    pivots, zero, nothing = Pivots(code, target, step, carry, good), code.integer(0), code.zero()
    state = pivots.start(~code.all_lanes())
    inverse, sure = state.invert(code, state.p0)
    for rows, x in zip(pivots.kept, (inverse, nothing, nothing, state.r), strict=True):
        rows.store(zero, x)
    for carried in pivots.carried:
        carried.store(zero, nothing)
    code.store_as(good, code.bits(sure))
    return code.bits(sure)


def exchange_lines(code: Code, *words: Value) -> None:
    """`exchange` where rows are contiguous, as `eliminate_lines`."""
    bands, (target, step, first, last, low, high, carry, good) = lines_of(code, words[:8]), words[8:]
    pivots, every = Pivots(code, target, step, carry, good), code.all_lanes()

    def chunk(i: Value, state: Any) -> Any:
        state = Exchanging(*state)
        for k, entries in enumerate(bands(i, low, high)):
            state = pivots.step(i - first + k, state, every, *entries)
        return state

    start = pivots.start(code.everywhere(first == low))
    pivots.leave(code.fori(first, last, chunk, start, step=QUAD // code.parts))


def backward_exchanged_lines(code: Code, *words: Value) -> None:
    source, step, output, carry, first, last = words
    pivots = Pivots(code, source, step, carry, carry)

    def solution(i: Value, state: Any) -> tuple[Any, Any]:
        x1, x2 = state
        x = pivots.substitute(i - first, x1, x2)
        return x, (x, x1)

    pivots.put_behind(to_lines(code, output, first, last, solution, pivots.behind()))


def exchange_beside(code: Code, *words: Value) -> None:
    """`exchange` where lanes lie side by side, all rows."""
    read, (target, step, groups, end, carry, good) = beside_of(code, words[:8]), words[8:]

    def row(i: Value, state: Any) -> Any:
        bands, here = read(i, end), target + i * step

        def group(g: Value, state: Any) -> Any:
            pivots = Pivots(code, here + g * (4 * code.row), step, carry + g * (4 * code.row), good + g * 8)
            found = pivots.start(code.everywhere(i == 0))
            pivots.leave(pivots.step(code.integer(0), found, code.all_lanes(), *bands(g)))
            return state

        return code.fori(0, groups, group, state)

    code.fori(0, end, row)


def backward_exchanged_beside(past_caches: bool, code: Code, *words: Value) -> None:
    source, step, groups, x, x_step, carry, count = words

    def solve(i: Value, g: Value) -> Any:
        pivots = Pivots(code, source + g * (4 * code.row), step, carry + g * (4 * code.row), carry)
        x1, x2 = pivots.behind()
        value = pivots.substitute(i, x1, x2)
        pivots.put_behind((value, x1))
        return value

    to_beside(past_caches, code, x, x_step, count, groups, solve)


# planes of a pivoted tile: a, b, c, d; q0, q1, q2, multiplier (and three more of a cyclic tile); y, r, x
BANDS, RIGHT, UPPER, ITERATE, REST, BEST, PLANES = 0, 3, 4, 11, 12, 13, 14


class Status(NamedTuple):
    """For each lane 0, or 1 + the row of the first zero pivot."""

    code: Code

    def start(self) -> Value:
        code = self.code
        return Value(code, code.constant(ir.VectorType(I32, code.lanes), 0))

    def met(self, status: Value, pivot: Any, row: Value) -> Value:
        code = self.code
        number = code.repeat(Value(code, code.builder.trunc(row.llvm, I32)), code.lanes)
        return code.where((status == 0) & (pivot == 0), number, status)


def eliminate_pivoted(code: Code, *words: Value) -> None:
    """Columns 0 .. n-1 with partial pivoting; the pivot rows and multipliers to their planes."""
    base, length, swaps, mask, mask_step, status, aims, row_zero = words
    code.fused = False
    a, b, c = planes(code, base, 3, length)
    q0, q1, q2, multiplier = planes(code, base + length * (UPPER * code.row), 4, length)
    keep, met, last = Mask(code, mask, mask_step), Status(code), length - 1

    def row(i: Value, state: Any) -> Any:
        carried, found = state
        ask_for_bands(code, aims, row_zero + i, 4)
        (p0, p1), pivot = el.eliminate(code, carried, (a[i], b[i], c[i]), True)
        for plane, x in ((q0, pivot.q0), (q1, pivot.q1), (q2, pivot.q2), (multiplier, pivot.multiplier)):
            plane.store(i - 1, x)
        code.store_bytes(swaps + (i - 1) * code.lanes, pivot.swap)
        kept = keep[i]
        p0, p1 = code.where(kept, p0, code.one()), code.where(kept, p1, code.zero())
        return (p0, p1), met.met(found, pivot.q0, i)

    zero = code.integer(0)
    (p0, _), found = code.fori(1, length, row, ((b[zero], c[zero]), met.start()))
    for plane, x in ((q0, p0), (q1, code.zero()), (q2, code.zero())):
        plane.store(last, x)
    code.store_bytes(swaps + last * code.lanes, ~code.all_lanes())
    code.store_as(status, met.met(found, p0, length))


def substitute_pivoted(code: Code, *words: Value) -> None:
    """The solution in place of a right side."""
    base, length, swaps, mask, mask_step, right, asked, row_zero = words
    code.fused = False
    q0, q1, q2, multiplier = planes(code, base + length * (UPPER * code.row), 4, length)
    y, keep, swapped = Rows(code, right, code.row), Mask(code, mask, mask_step), Mask(code, swaps, code.lanes)

    def down(i: Value, state: Any) -> Any:
        pivot = el.Pivot(swapped[i - 1], multiplier[i - 1], None, None, None)
        carried, q = el.forward(code, state[0], pivot, y[i])
        y.store(i - 1, q)
        return (code.where(keep[i], carried, code.zero()),)

    def up(i: Value, state: Any) -> Any:
        x1, x2 = state
        ask(code, asked, row_zero + i)
        pivot = el.Pivot(swapped[i], None, q0[i], q1[i], q2[i])
        x = code.where(keep[i], el.backward(code, x1, x2, pivot, y[i]), code.zero())
        y.store(i, x)
        return x, x1

    zero, last = code.integer(0), length - 1
    (carried,) = code.fori(1, length, down, (y[zero],))
    y.store(last, carried)
    code.fori(last, -1, up, (code.zero(), code.zero()), step=-1)


def residual(code: Code, base: Value, length: Value, error: Value) -> None:
    """r = d - A y where it is more than rounding, and the componentwise backward error, as `tridiag.rows.residual`.

    The ends couple as in a cyclic matrix; in any other the corners are zero.
    """
    a, b, c, d = planes(code, base, 4, length)
    y, rest = planes(code, base + length * (ITERATE * code.row), 2, length)
    floor, leave, last, zero = 4 * code.tiny / code.eps, el.LEAVE_BELOW * code.eps, length - 1, code.integer(0)

    def coupling(entry: Any, x: Any) -> tuple[Any, Any]:
        """A product that is zero where the entry is, and its size."""
        gone = entry == 0
        sizes = code.size(entry) * code.size(x)
        return code.where(gone, code.zero(), entry * x), code.where(gone, code.real_zero(), sizes)

    def row(i: Value, state: Any) -> Any:
        before, here, worst = state
        after = y[code.pick(i == last, zero, i + 1)]
        below, above, diagonal = coupling(a[i], before), coupling(c[i], after), b[i] * here
        r = d[i] - (below[0] + diagonal + above[0])
        scale = below[1] + above[1] + code.size(b[i]) * code.size(here) + code.size(d[i])
        ratio = code.size(r) / code.maximum(scale, floor)
        rest.store(i, code.where(ratio <= leave, code.zero(), r))
        return here, after, code.where((ratio > worst) | (ratio != ratio), ratio, worst)

    *_, worst = code.fori(0, length, row, (y[last], y[zero], code.real_zero()))
    code.store_as(error, worst)


def judge(code: Code, base: Value, length: Value, first: Value, error: Value) -> Value:
    """Keep the iterate where it is the best so far; the lanes that are still above the bar."""
    bar = el.REFINE_ABOVE * code.eps
    residual(code, base, length, error + LINE)
    least, trial = (code.load_as(code.vector, error + k) for k in (0, LINE))
    better = ((least > bar) & (trial < least)) | code.repeat(Value(code, (first != 0).llvm), code.lanes)
    least = code.where(better, trial, least)
    code.store_as(error, least)
    y, best = base + length * (ITERATE * code.row), base + length * (BEST * code.row)
    step = code.integer(code.row)
    merge(code, best, step, y, step, code.bits(better), length)
    return code.bits(least > bar)


def improve(code: Code, base: Value, length: Value) -> None:
    """y + r; where the two cancel, an exact zero."""
    y, r = planes(code, base + length * (ITERATE * code.row), 2, length)

    def row(i: Value, state: Any) -> Any:
        y.store(i, el.correct(code, y[i], r[i]))
        return state

    code.fori(0, length, row)


def zero_pivots(code: Code, status: Value) -> Value:
    """The lanes whose status is not zero."""
    return code.bits(code.load_as(ir.VectorType(I32, code.lanes), status) != 0)


SWEEPS = Library("sweeps")
ELIMINATE, FACTOR = SWEEPS.add("eliminate", eliminate), SWEEPS.add("factor", factor)
ELIMINATE_LINES = SWEEPS.add("eliminate_lines", eliminate_lines)
ELIMINATE_BESIDE = SWEEPS.add("eliminate_beside", eliminate_beside)
BACKWARD_BESIDE, STREAM_BESIDE = (
    SWEEPS.add("backward_beside", functools.partial(backward_beside, False)),
    SWEEPS.add("stream_beside", functools.partial(backward_beside, True)),
)


def both(name: str, body: Any) -> Any:
    """The function for rows of lanes, and for one number a row."""
    return (
        SWEEPS.add(name, functools.partial(body, False)),
        SWEEPS.add(f"{name}_shared", functools.partial(body, True)),
    )


FORWARD, FORWARD_SHARED = both("forward", forward)
BACKWARD, BACKWARD_SHARED = both("backward", backward)
FORWARD_LINES, FORWARD_LINES_SHARED = both("forward_lines", forward_lines)
BACKWARD_LINES = SWEEPS.add("backward_lines", backward_lines)
BACKWARD_LINES_FACTORED, BACKWARD_LINES_SHARED = both("backward_lines_factored", backward_lines_factored)
FORWARD_WIDE = SWEEPS.add("forward_wide", forward_wide)
BACKWARD_WIDE, STREAM_WIDE = (
    SWEEPS.add("backward_wide", functools.partial(backward_wide, False)),
    SWEEPS.add("stream_wide", functools.partial(backward_wide, True)),
)
FORWARD_TRANSPOSED, FORWARD_TRANSPOSED_SHARED = both("forward_transposed", forward_transposed)
BACKWARD_TRANSPOSED, BACKWARD_TRANSPOSED_SHARED = both("backward_transposed", backward_transposed)
CUT, MERGE, ERASE = SWEEPS.add("cut", cut), SWEEPS.add("merge", merge), SWEEPS.add("erase", erase)
ZERO, NAN = (
    SWEEPS.add("zero", functools.partial(fill, 0.0)),
    SWEEPS.add("nan", functools.partial(fill, float("nan"))),
)
EXCHANGE, BACKWARD_EXCHANGED = (
    SWEEPS.add("exchange", exchange),
    SWEEPS.add("backward_exchanged", backward_exchanged),
)
EXCHANGE_BESIDE = SWEEPS.add("exchange_beside", exchange_beside)
BACKWARD_EXCHANGED_BESIDE, STREAM_EXCHANGED_BESIDE = (
    SWEEPS.add("backward_exchanged_beside", functools.partial(backward_exchanged_beside, False)),
    SWEEPS.add("stream_exchanged_beside", functools.partial(backward_exchanged_beside, True)),
)
CLOSE_EXCHANGE = SWEEPS.add("close_exchange", close_exchange)
EXCHANGE_LINES, BACKWARD_EXCHANGED_LINES = (
    SWEEPS.add("exchange_lines", exchange_lines),
    SWEEPS.add("backward_exchanged_lines", backward_exchanged_lines),
)
ELIMINATE_PIVOTED = SWEEPS.add("eliminate_pivoted", eliminate_pivoted)
SUBSTITUTE_PIVOTED = SWEEPS.add("substitute_pivoted", substitute_pivoted)
JUDGE, IMPROVE, ZERO_PIVOTS = (
    SWEEPS.add("judge", judge),
    SWEEPS.add("improve", improve),
    SWEEPS.add("zero_pivots", zero_pivots),
)
