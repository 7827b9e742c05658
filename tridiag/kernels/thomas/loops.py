"""The inner loops: elimination and substitution over rows of lanes, one system in each lane.

Plain (Thomas), 8 flops and one division a row; pivoted (LAPACK xGTTRF), by selects; cyclic, three rows a column. The
equations are those of `tridiag.algorithms.elimination`, whose functions are called here where pivots are not kept as
reciprocals.

A row of lanes lies at base + i * stride. Every loop takes the mask of kept rows, a byte a lane; where no row is taken
out, all rows read the same line of ones.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.load_store import QUAD, ask, put_interleaved, put_past_caches, take_interleaved
from tridiag.kernels.access.rows import (
    SWEEPS,
    Lines,
    Mask,
    Rows,
    ask_for_bands,
    interleaved_of,
    lines_of,
    to_interleaved,
    to_lines,
)
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code


def certified(code: Code, growth: Any, pivot: Any, diagonal: Any) -> Value:
    """`elimination.certify` from the product l c, without `invertible` and `lossless`, which judge many rows.

    Four times a pivot overflows where its reciprocal is no normal number, which XLA's threads take for zero.
    """
    size, bound = code.size(pivot), code.size(diagonal)
    grown = (code.size(growth) + size) * 4.0 * (0.25 / el.GROWTH) <= bound
    return grown & (size > bound * (el.CANCELLATION * code.eps))


def no_quotient(code: Code) -> Value:
    return Value(code, code.constant(code.vector, math.inf))


def least_quotient(code: Code, least: Value, quotient: Any, x: Any) -> Value:
    """The size of the smallest quotient so far; those of zeros do not count."""
    size = code.size(quotient)
    return code.where(x == 0, least, code.where(size < least, size, least))


def lossless(code: Code, least: Value) -> Value:
    """`tridiag.algorithms.elimination.lossless`, of all quotients at once."""
    return least >= code.tiny


def invertible(code: Code, pivot: Any) -> Value:
    """Where the reciprocal of a pivot is no infinity; NaN has one that is NaN."""
    return ~(code.size(pivot) <= code.tiny)


WIDE = 4  # groups side by side whose state stays in registers
FACTORS_AHEAD = 8192, 4096  # prefetch distances in bytes


class Plain(NamedTuple):
    """The state of plain elimination: c' and y' of the row above, and what the certificate is made of."""

    above: Any
    before: Any
    sure: Value
    alive: Value
    least: Value

    @staticmethod
    def start(code: Code, above: Any, before: Any, good: Value) -> Plain:
        return Plain(above, before, *unpack(code, good), no_quotient(code))

    def good(self, code: Code) -> Value:
        return pack(code, self.sure, self.alive, self.least)

    def step(self, code: Code, a: Any, b: Any, c: Any, d: Any) -> Plain:
        growth = a * self.above
        pivot = b - growth
        sure = self.sure & certified(code, growth, pivot, b)
        inverse = code.one() / pivot
        above, alive = c * inverse, self.alive & invertible(code, pivot)
        least = least_quotient(code, self.least, above, c)
        return Plain(above, (d - a * self.before) * inverse, sure, alive, least)

    def erased(self, code: Code, kept: Value) -> Plain:
        above, before = (code.where(kept, x, code.zero()) for x in (self.above, self.before))
        return self._replace(above=above, before=before)


def unpack(code: Code, good: Value) -> tuple[Value, Value]:
    """The two masks of an integer: certified, and above it invertible."""
    return code.mask(good), code.mask(code.shift(good, -code.lanes))


def pack(code: Code, sure: Value, alive: Value, least: Value) -> Value:
    return code.bits(sure & alive & lossless(code, least)) | code.shift(code.bits(alive), code.lanes)


def eliminate(code: Code, *words: Value) -> Value:
    """Eliminate and substitute forward: c' and y' of ``count`` rows behind the row that precedes them."""
    views, (mask, mask_step, target, step, count, good, bindings, row_zero) = words[:8], words[8:]
    a, b, c, d = (Rows(code, views[k], views[k + 1]) for k in range(0, 8, 2))
    keep, c1, y = Mask(code, mask, mask_step), Rows(code, target, step), Rows(code, target + code.row, step)

    def row(i: Value, state: Any) -> Any:
        ask_for_bands(code, bindings, row_zero + i, 4)
        state = Plain(*state).step(code, a[i], b[i], c[i], d[i]).erased(code, keep[i])
        c1.store(i, state.above)
        y.store(i, state.before)
        return state

    last = code.integer(-1)
    return Plain(*code.fori(0, count, row, Plain.start(code, c1[last], y[last], good))).good(code)


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
    start = Plain.start(code, c1[before], y[before], good)
    return Plain(*code.fori(first, last, chunk, start, step=QUAD // code.parts)).good(code)


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


def eliminate_interleaved(asks: bool, code: Code, *words: Value) -> None:
    """`eliminate` where lanes lie side by side: all groups of a tile row by row, as they lie in memory."""
    read, (target, step, groups, first, last, end, good) = interleaved_of(code, words[:9], asks), words[9:]

    def row(i: Value, state: Any) -> Any:
        here, bands = target + (i - first) * step, read(i, end)

        def group(g: Value, state: Any) -> Any:
            at, found = here + g * (2 * code.row), good + g * 8
            plain = Plain.start(code, code.load(at - step), code.load(at - step + code.row), code.word(found))
            plain = plain.step(code, *bands(g))
            code.store(at, plain.above)
            code.store(at + code.row, plain.before)
            code.store_as(found, plain.good(code))
            return state

        return code.fori(0, groups, group, state)

    code.fori(first, last, row)


def backward_interleaved(past_caches: bool, code: Code, *words: Value) -> None:
    source, step, groups, carry, count = words[:5]

    def solve(i: Value, g: Value) -> Any:
        at, kept = source + i * step + g * (2 * code.row), carry + g * code.row
        value = code.load(at + code.row) - code.load(at) * code.load(kept)
        code.store(kept, value)
        return value

    to_interleaved(past_caches, code, words[5:], count, groups, solve)


def agree(code: Code, *words: Value) -> None:
    """Strike out the lanes of groups where any of ``count`` rows of x and y differ by more than their last bits."""
    x_at, y_at, step, count, groups, good = words

    def group(g: Value, state: Any) -> Any:
        def row(k: Value, same: Any) -> Any:
            at = g * step + k * code.row
            x, y = code.load(x_at + at), code.load(y_at + at)
            return (same[0] & (code.size(x - y) <= code.size(y) * code.eps),)

        (same,) = code.fori(0, count, row, (code.all_lanes(),))
        found = good + g * 8
        code.store_as(found, code.word(found) & pack(code, same, same, no_quotient(code)))
        return state

    code.fori(0, groups, group)


def factor(code: Code, *words: Value) -> Value:
    """The same without a right side, to the factors of ``count`` rows; the carry holds c' of the row above."""
    views, (mask, mask_step, pairs, above_at, carry_at, count, good, bindings, row_zero) = words[:6], words[6:]
    a, b, c = (Rows(code, views[k], views[k + 1]) for k in range(0, 6, 2))
    keep, carry = Mask(code, mask, mask_step), Rows(code, carry_at, 0)
    slopes, inverses, kept = factors(False, code, pairs, above_at)

    def row(i: Value, state: Any) -> Any:
        above, sure, alive, least = state
        ask_for_bands(code, bindings, row_zero + i, 3)
        below, diagonal = a[i], b[i]
        growth = below * above
        pivot = diagonal - growth
        sure = sure & certified(code, growth, pivot, diagonal)
        alive = alive & invertible(code, pivot)
        inverse = code.one() / pivot
        slope, above = below * inverse, c[i] * inverse
        least = least_quotient(code, least_quotient(code, least, slope, below), above, c[i])
        above = code.where(keep[i], above, code.zero())
        slopes.store(i, slope)
        inverses.store(i, inverse)
        kept.store(i, above)
        return above, sure, alive, least

    zero = code.integer(0)
    above, *found = code.fori(0, count, row, (carry[zero], *unpack(code, good), no_quotient(code)))
    carry.store(zero, above)
    return pack(code, *found)


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
            y = code.product(take_interleaved(code, at), inverse) - slope * before
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
            put_interleaved(code, at, value, past_caches)
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


ELIMINATE, FACTOR = SWEEPS.add("eliminate", eliminate), SWEEPS.add("factor", factor)
ELIMINATE_LINES = SWEEPS.add("eliminate_lines", eliminate_lines)
ELIMINATE_INTERLEAVED, ELIMINATE_STREAM = (
    SWEEPS.add("eliminate_interleaved", functools.partial(eliminate_interleaved, True)),
    SWEEPS.add("eliminate_stream", functools.partial(eliminate_interleaved, False)),
)
PUT_PAST_CACHES = SWEEPS.add("put_past_caches", put_past_caches)
AGREE = SWEEPS.add("agree", agree)
BACKWARD_INTERLEAVED, STREAM_INTERLEAVED = (
    SWEEPS.add("backward_interleaved", functools.partial(backward_interleaved, False)),
    SWEEPS.add("stream_interleaved", functools.partial(backward_interleaved, True)),
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
