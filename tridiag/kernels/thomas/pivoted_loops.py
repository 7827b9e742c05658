"""The inner loops of elimination with partial pivoting, fused and with reciprocal pivots."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.load_store import QUAD, ask, take_interleaved
from tridiag.kernels.access.rows import (
    SWEEPS,
    Mask,
    Rows,
    ask_for_bands,
    interleaved_of,
    lines_of,
    to_interleaved,
    to_lines,
)
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class Exchanging(NamedTuple):
    """The state of elimination with partial pivoting: the carried row (p0, p1 | r), what is rounding in p0, sure lanes.

    As `tridiag.algorithms.elimination.eliminate`, but with pivots kept as reciprocals. A pivot that may be a rounded
    zero, or whose reciprocal is not a normal number, is left to the divisions of `eliminate_pivoted`.
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
    views, (mask, mask_step, target, step, count, carry, good, bindings, row_zero, low) = words[:8], words[8:]
    bands = [Rows(code, views[k], views[k + 1]) for k in range(0, 8, 2)]
    keep, pivots = Mask(code, mask, mask_step), Pivots(code, target, step, carry, good)

    def row(i: Value, state: Any) -> Any:
        ask_for_bands(code, bindings, row_zero + i, 4)
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


def exchange_interleaved(code: Code, *words: Value) -> None:
    """`exchange` where lanes lie side by side; row ``begin`` is the first of all."""
    read, (target, step, groups, first, last, begin, end, carry, good) = interleaved_of(code, words[:9]), words[9:]

    def row(i: Value, state: Any) -> Any:
        bands, here = read(i, end), target + (i - first) * step

        def group(g: Value, state: Any) -> Any:
            pivots = Pivots(code, here + g * (4 * code.row), step, carry + g * (4 * code.row), good + g * 8)
            found = pivots.start(code.everywhere(i == begin))
            pivots.leave(pivots.step(code.integer(0), found, code.all_lanes(), *bands(g)))
            return state

        return code.fori(0, groups, group, state)

    code.fori(first, last, row)


def backward_exchanged_interleaved(past_caches: bool, code: Code, *words: Value) -> None:
    source, step, groups, carry, count = words[:5]

    def solve(i: Value, g: Value) -> Any:
        pivots = Pivots(code, source + g * (4 * code.row), step, carry + g * (4 * code.row), carry)
        x1, x2 = pivots.behind()
        value = pivots.substitute(i, x1, x2)
        pivots.put_behind((value, x1))
        return value

    to_interleaved(past_caches, code, words[5:], count, groups, solve)


def put_exchanged_interleaved(past_caches: bool, code: Code, *words: Value) -> None:
    """Solutions that are, as they lie in memory, in place of q of the pivot rows of some groups."""
    source, step, groups, count = words[:4]

    def solution(i: Value, g: Value) -> Any:
        return take_interleaved(code, source + i * step + g * (4 * code.row) + 3 * code.row)

    to_interleaved(past_caches, code, words[4:], count, groups, solution)


EXCHANGE, BACKWARD_EXCHANGED = (
    SWEEPS.add("exchange", exchange),
    SWEEPS.add("backward_exchanged", backward_exchanged),
)
EXCHANGE_INTERLEAVED = SWEEPS.add("exchange_interleaved", exchange_interleaved)
BACKWARD_EXCHANGED_INTERLEAVED, STREAM_EXCHANGED_INTERLEAVED = (
    SWEEPS.add("backward_exchanged_interleaved", functools.partial(backward_exchanged_interleaved, False)),
    SWEEPS.add("stream_exchanged_interleaved", functools.partial(backward_exchanged_interleaved, True)),
)
PUT_EXCHANGED_INTERLEAVED, PUT_EXCHANGED_STREAM = (
    SWEEPS.add("put_exchanged_interleaved", functools.partial(put_exchanged_interleaved, False)),
    SWEEPS.add("put_exchanged_stream", functools.partial(put_exchanged_interleaved, True)),
)
CLOSE_EXCHANGE = SWEEPS.add("close_exchange", close_exchange)
EXCHANGE_LINES, BACKWARD_EXCHANGED_LINES = (
    SWEEPS.add("exchange_lines", exchange_lines),
    SWEEPS.add("backward_exchanged_lines", backward_exchanged_lines),
)
