"""The inner loops of matrices with many right sides: factors of a matrix, and substitution from them.

Factors are a / pivot and 1 / pivot in turn, and behind all of those c', which goes down in memory: so both sweeps read
them upwards. They are rows of lanes, or, where one matrix belongs to all lanes (``spread``), one number a row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tridiag.kernels.access.layouts import Contiguous, Views, to_contiguous, views_of
from tridiag.kernels.access.moves import put_interleaved, take_interleaved
from tridiag.kernels.access.operands import ask
from tridiag.kernels.access.rows import SWEEPS, Mask, Rows
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.thomas.steps import Factoring, Thomas

WIDE = 4  # groups side by side whose state stays in registers
FACTORS_AHEAD = 8192, 4096  # prefetch distances in bytes


def factors(spread: bool, code: Code, pairs: Value, above: Value) -> tuple[Rows, Rows, Rows]:
    """a / pivot and 1 / pivot, in turn, and c'."""
    part = code.parts * code.size_of_real if spread else code.row
    slopes, inverses = (Rows(code, pairs + k * part, 2 * part, spread) for k in range(2))
    return slopes, inverses, Rows(code, above, -part, spread)


def ask_for_factors(code: Code, address: Value, count: int) -> None:
    """Ask for as many bytes of factors, which are one stream of memory, twice ahead of use: see `Lines`.

    First as far streams are, then into the first level: all that the first request asks for would not stay there beside
    right sides and what is kept of rows.
    """
    for ahead in FACTORS_AHEAD:
        for line in range(0, count, LINE):
            code.prefetch(address + (ahead + line), near=ahead == min(FACTORS_AHEAD))


# ------------------------------------------------------------------------------------------------ sweeps


class Factorization:
    """Downwards, to factors; the carry holds c' of the row above."""

    def __init__(self, code: Code, rows: Sequence[Rows], carry: Value, good: Value, past_caches: bool) -> None:
        self.code, self.rows, self.between, self.good = code, rows, Rows(code, carry, 0), good
        self.past_caches = past_caches

    def carried(self) -> list[Any]:
        return [self.between[self.code.integer(0)]]

    def carry(self, above: Any) -> None:
        self.between.store(self.code.integer(0), above)

    def start(self) -> Any:
        return Factoring.start(self.code, self)

    def leave(self, state: Any) -> None:
        state.leave(self.code, self)

    def step(self, state: Any, i: Value, keep: Value, *entries: Any) -> Any:
        state, kept = state.down(self.code, keep, *entries)
        for rows, x in zip(self.rows, kept, strict=True):
            rows.store(i, x, self.past_caches)
        return state


class Forward:
    """y[i] = d[i] / pivot[i] - (a[i] / pivot[i]) y[i-1], downwards; ``asked``: of the pairs from that address on."""

    registers = 2

    def __init__(self, code: Code, slopes: Rows, inverses: Rows, y: Rows, asked: Value | None = None) -> None:
        self.code, self.slopes, self.inverses, self.y, self.asked = code, slopes, inverses, y, asked

    def of_lanes(self, code: Code, first: int) -> Forward:
        """The same of some lanes: those that ``code`` has, from one on; the first ones ask."""
        slopes, inverses, y = (x.of_lanes(code, first) for x in (self.slopes, self.inverses, self.y))
        return Forward(code, slopes, inverses, y, None if first else self.asked)

    def start(self) -> Any:
        return (self.y[self.code.integer(-1)],)

    def leave(self, state: Any) -> None:
        pass

    def step(self, state: Any, i: Value, keep: Value, d: Any) -> Any:
        code = self.code
        if self.asked is not None:
            ask_for_factors(code, self.asked + i * (2 * code.row), 2 * code.row)
        y = code.product(d, self.inverses[i]) - self.slopes[i] * state[0]
        y = code.where(keep, y, code.zero())
        self.y.store(i, y)
        return (y,)


class Backward:
    """x[i] = y[i] - c'[i] x[i+1], upwards; the carry holds x of the row behind and then that of the first."""

    def __init__(self, code: Code, above: Rows, y: Rows, carry: Value, asks: bool = False) -> None:
        self.code, self.above, self.y, self.carry, self.asks = code, above, y, Rows(code, carry, 0), asks

    def start(self) -> Any:
        return (self.carry[self.code.integer(0)],)

    def leave(self, state: Any) -> None:
        self.carry.store(self.code.integer(0), state[0])

    def solution(self, i: Value, behind: Any) -> Any:
        if self.asks:
            ask_for_factors(self.code, self.above.base + i * self.above.stride, self.code.row)
        return Thomas.up((self.above[i], self.y[i]), *behind)


# ------------------------------------------------------------------------------------------------ functions


def factor(past_caches: bool, code: Code, *words: Value) -> None:
    """Rows of matrices; words of the views of three bands before these."""
    pairs, above_at, carry, good, count = words[10:]
    sweep = Factorization(code, factors(False, code, pairs, above_at), carry, good, past_caches)
    views_of(code, words[:10], 3).down(0, count, sweep)


def forward(spread: bool, code: Code, *words: Value) -> None:
    """y' of ``count`` rows."""
    pairs, d, d_step, mask, mask_step, y_at, y_step, count, asked, row_zero = words
    slopes, inverses, _ = factors(spread, code, pairs, pairs)
    views = Views(code, [Rows(code, d, d_step)], Mask(code, mask, mask_step), lambda i: ask(code, asked, row_zero + i))
    views.down(0, count, Forward(code, slopes, inverses, Rows(code, y_at, y_step)))


def forward_contiguous(spread: bool, code: Code, *words: Value) -> None:
    """`forward` where rows are contiguous."""
    pairs, right, target, first, last = words
    slopes, inverses, _ = factors(spread, code, pairs, pairs)
    sweep = Forward(code, slopes, inverses, Rows(code, target, code.row), None if spread else pairs)
    Contiguous(code, [right], [0]).down(first, last, sweep)


def backward(spread: bool, code: Code, *words: Value) -> None:
    """x of ``count`` rows in place of y'."""
    above_at, y_at, mask, mask_step, carry, count, asked, row_zero = words
    _, _, above = factors(spread, code, above_at, above_at)
    y = Rows(code, y_at, code.row)
    views = Views(code, (), Mask(code, mask, mask_step), lambda i: ask(code, asked, row_zero + i))
    views.up(y, count, Backward(code, above, y, carry))


def backward_contiguous(spread: bool, code: Code, *words: Value) -> None:
    """The same to contiguous rows of memory."""
    above_at, y, output, carry, first, last, rest = words
    _, _, above = factors(spread, code, above_at, above_at)
    sweep = Backward(code, above, Rows(code, y, code.row), carry, not spread)
    to_contiguous(code, output, first, last, sweep, rest=rest)


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
    """L^T x = z in place: w[i] = z[i] - (a[i+1] / pivot[i+1]) w[i+1], x[i] = w[i] / pivot[i].

    The pivot of a row that is taken out may be NaN.
    """
    pairs, above_at, mask, mask_step, z_at, z_step, count = words
    slopes, inverses, _ = factors(spread, code, pairs, above_at)
    keep, z, last = Mask(code, mask, mask_step), Rows(code, z_at, z_step), count - 1

    def row(i: Value, state: Any) -> Any:
        w = code.where(keep[i], z[i] - slopes[i + 1] * state[0], code.zero())
        z.store(i, code.where(keep[i], w * inverses[i], code.zero()))
        return (w,)

    w = code.where(keep[last], z[last], code.zero())
    z.store(last, code.where(keep[last], w * inverses[last], code.zero()))
    code.fori(last - 1, -1, row, (w,), step=-1)


def both(body: Any) -> Any:
    """The function for rows of lanes, and for one number a row."""
    name = body.__name__
    return (
        SWEEPS.add(name, functools.partial(body, False)),
        SWEEPS.add(f"{name}_shared", functools.partial(body, True)),
    )


FACTOR = SWEEPS.add("factor", functools.partial(factor, False))
FACTOR_PAST_CACHES = SWEEPS.add("factor_past_caches", functools.partial(factor, True))
FORWARD, FORWARD_SHARED = both(forward)
BACKWARD, BACKWARD_SHARED = both(backward)
FORWARD_CONTIGUOUS, FORWARD_CONTIGUOUS_SHARED = both(forward_contiguous)
BACKWARD_CONTIGUOUS, BACKWARD_CONTIGUOUS_SHARED = both(backward_contiguous)
FORWARD_WIDE = SWEEPS.add("forward_wide", forward_wide)
BACKWARD_WIDE = SWEEPS.add("backward_wide", functools.partial(backward_wide, False))
STREAM_WIDE = SWEEPS.add("stream_wide", functools.partial(backward_wide, True))
FORWARD_TRANSPOSED, FORWARD_TRANSPOSED_SHARED = both(forward_transposed)
BACKWARD_TRANSPOSED, BACKWARD_TRANSPOSED_SHARED = both(backward_transposed)
