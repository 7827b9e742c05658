"""`tridiag.algorithms.logsumexp` as compiled loops over rows of lanes, a sequence in each lane.

Several rows are one vector in what does not wait for the row before, so that the processor works on all at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tridiag.algorithms import logsumexp
from tridiag.algorithms.logsumexp import State
from tridiag.kernels.access.operands import ask, operand_in
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.simd.explog import Exponents, Lanes, as_integers, as_reals, moved
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

ROWS = 4  # a power of two
LARGEST, PRODUCT, SLOT = 3, 6, 8  # rows of lanes in a slot: a state, the sum of log_a in two numbers
LOGSUMS = Library("logsums", short=True)


def load_state(code: Code, address: Value) -> State:
    return State(*(code.load(address + k * code.row) for k in range(PRODUCT)))


def store_state(code: Code, address: Value, state: State) -> None:
    for k, x in enumerate(state):
        code.store(address + k * code.row, x)


def begin(code: Code, slot: Value) -> None:
    store_state(code, slot, logsumexp.nothing(Lanes(code), code.real_zero()))
    for k in (PRODUCT, PRODUCT + 1):
        code.store(slot + k * code.row, code.real_zero())


def begin_given(code: Code, slot: Value, init: Value) -> None:
    store_state(code, slot, logsumexp.given(Lanes(code), code.load(init)))


def begin_term(code: Code, slot: Value, init: Value) -> None:
    """Where there is no log_a: as a term before the first, so that nothing is in the shift."""
    ops, nothing = Lanes(code), logsumexp.nothing(Lanes(code), code.real_zero())
    store_state(code, slot, logsumexp.step(ops, nothing, code.load(init)))


def joined(code: Code, rows: Sequence[Value]) -> Value:
    """A power of two of rows, end to end."""
    if len(rows) == 1:
        return rows[0]
    return joined(code, [code.join(x, y) for x, y in zip(rows[::2], rows[1::2], strict=True)])


def row_of(code: Code, x: Value, k: int) -> Value:
    return code.part(x, k * code.lanes, code.lanes)


def sweep(code: Code, state: Any, rows: Value, ahead: Ahead, steps: Callable[[Value, Any, int], Any]) -> Any:
    """Steps 0 <= t < rows, several at a time."""

    def some(count: int) -> Callable[[Value, Any], Any]:
        def body(t: Value, state: Any) -> Any:
            ahead.ask(t, count)
            return steps(t, state, count)

        return body

    even = rows / ROWS * ROWS
    for count, first, last in ((ROWS, code.integer(0), even), (1, even, rows)):
        state = code.fori(first, last, some(count), state, step=count)
    return state


class Ahead:
    """Asks for memory that will be used some rows after those at hand, of which the first is row ``first``."""

    def __init__(self, code: Code, bindings: Value, first: Value, *operands: int) -> None:
        self.code, self.first = code, first
        self.operands = [operand_in(code, bindings, k) for k in operands]

    def ask(self, t: Value, count: int) -> None:
        for operand in self.operands:
            for k in range(count):
                ask(self.code, operand, self.first + t + k)


def run_plain(code: Code, words: Sequence[Value], ahead: Ahead, put: Any = None) -> None:
    ops, (x, x_step, slot, rows) = Lanes(code), words

    def steps(t: Value, state: Any, count: int) -> Any:
        state = State(*state)
        terms = joined(code, [code.load(x + (t + k) * x_step) for k in range(count)])
        m, exponents = ops.exponential(terms)
        found = []
        for k in range(count):
            state = logsumexp.add(ops, state, *(row_of(code, v, k) for v in (m, exponents, terms)))
            found.append((state.scale, state.high + state.low, state.largest))
        if put is not None:
            put(t, logsumexp.value(ops, *(joined(code, part) for part in zip(*found, strict=True))), count)
        return state

    store_state(code, slot, State(*sweep(code, load_state(code, slot), rows, ahead, steps)))


def run_ordinary(code: Code, words: Sequence[Value], ahead: Ahead, put: Any = None) -> Value:
    """The same at three quarters of the cost; whether all numbers were ordinary. If not, the slot is as before.

    Ordinary are a state and terms of a size below 2**(digits - 2), not NaN, where the scale does not rise by more than
    half the range of numbers. Terms far below the state at the beginning, -inf too, count as so far below it that even
    in great numbers they make no difference.
    """
    ops, exponents = Lanes(code), Exponents(code)
    x, x_step, slot, rows = words
    state, (rise, depth) = load_state(code, slot), (900, 100) if code.size_of_real == 8 else (60, 55)
    least = ops.times_ln2(state.scale, code.splat(-depth * math.log(2)))
    one = exponents.numbers.bias << exponents.numbers.digits

    def step(t: Value, carried: Any) -> Any:
        scale, high, low, largest = carried
        ahead.ask(t, 1)
        x_t = code.load(x + t * x_step)
        m, power = exponents.exponential(code.where(least > x_t, least, x_t))
        top = code.where(scale > power, scale, power)
        kept = scale - top
        high, error = logsumexp.two_sum(exponents.scaled(high, kept), exponents.scaled(m, power - top))
        low = ops.multiply_add(low, as_reals(code, moved(code, kept, exponents.numbers.digits) + one), error)
        if put is not None:
            put(t, high + low, top)
        return top, high, low, logsumexp.larger(ops, x_t, largest)

    carried = exponents.of(state.scale), state.high, state.low, state.largest
    scale, high, low, largest = code.fori(0, rows, step, carried)
    scale = exponents.real(scale)
    limit = 2.0 ** (exponents.numbers.digits - 2)
    ordinary = (ops.size(state.scale) < limit) & (scale - state.scale < rise) & (largest < limit)
    ordinary = ordinary & (state.high == state.high)  # `scaled` keeps no NaN
    every = code.bits(ordinary) == 2**code.lanes - 1
    chosen = [
        code.where(code.everywhere(every), u, v) for u, v in zip((scale, high, low, largest), state, strict=False)
    ]
    scale, high, low, largest = chosen
    store_state(code, slot, state._replace(scale=scale, high=high, low=low, largest=largest))
    return code.pick(every, code.integer(1), code.integer(0))


def writer(code: Code, y: Value, y_step: Value) -> Callable[[Value, Value, int], None]:
    def put(t: Value, values: Value, count: int) -> None:
        for k in range(count):
            code.store(y + (t + k) * y_step, row_of(code, values, k))

    return put


def scan_plain(code: Code, *words: Value) -> None:
    """Rows of y from rows of x, ``*_step`` bytes apart; the state in a slot goes on. `Ahead` tells of ``bindings``."""
    x, x_step, y, y_step, slot, rows, bindings, i = words
    ahead = Ahead(code, bindings, i, J.TERMS, J.RESULT)
    run_plain(code, (x, x_step, slot, rows), ahead, writer(code, y, y_step))


def total_plain(code: Code, *words: Value) -> None:
    """The same with no y."""
    *rows, bindings, i = words
    run_plain(code, rows, Ahead(code, bindings, i, J.TERMS))


def scan_ordinary(code: Code, *words: Value) -> Value:
    """As `scan_plain`, or 0: `run_ordinary`. Sums come first, then their logarithms, which keep other units busy."""
    x, x_step, y, y_step, slot, rows, bindings, i, scales = words
    ahead, exponents = Ahead(code, bindings, i, J.TERMS, J.RESULT), Exponents(code)

    def put(t: Value, total: Value, scale: Value) -> None:
        code.store(y + t * y_step, total)
        code.store_as(scales + t * code.row, scale)

    def logarithms(t: Value, state: Any) -> Any:
        at = y + t * y_step
        code.store(at, exponents.logarithm(code.load(at), as_integers(code, code.load(scales + t * code.row))))
        return state

    ordinary = run_ordinary(code, (x, x_step, slot, rows), ahead, put)
    code.fori(0, rows * ordinary, logarithms)
    return ordinary


def total_ordinary(code: Code, *words: Value) -> Value:
    *rows, bindings, i = words
    return run_ordinary(code, rows, Ahead(code, bindings, i, J.TERMS))


def run_weighted(code: Code, words: Sequence[Value], ahead: Ahead, put: Any = None) -> None:
    """With rows of log_a, whose sum goes on too."""
    ops = Lanes(code)
    a, a_step, x, x_step, slot, rows = words
    product = tuple(code.load(slot + k * code.row) for k in (PRODUCT, PRODUCT + 1))

    def steps(t: Value, carried: Any, count: int) -> Any:
        state, (total, rest) = State(*carried[0]), carried[1]
        found = []
        for k in range(count):
            log_a, term = code.load(a + (t + k) * a_step), code.load(x + (t + k) * x_step)
            state = logsumexp.step(ops, state, term, log_a)
            found.append((state.scale, state.high + state.low, state.largest, state.shift + state.shift_low))
            if put is None:
                total, error = logsumexp.two_sum(total, log_a)
                rest = rest + error
        if put is not None:
            put(t, logsumexp.value(ops, *(joined(code, part) for part in zip(*found, strict=True))), count)
        return state, (total, rest)

    state, product = sweep(code, (load_state(code, slot), product), rows, ahead, steps)
    store_state(code, slot, State(*state))
    for k, x in enumerate(product):
        code.store(slot + (PRODUCT + k) * code.row, x)


def scan_weighted(code: Code, *words: Value) -> None:
    a, a_step, x, x_step, y, y_step, slot, rows, bindings, i = words
    ahead = Ahead(code, bindings, i, J.LOG_A, J.TERMS, J.RESULT)
    run_weighted(code, (a, a_step, x, x_step, slot, rows), ahead, writer(code, y, y_step))


def total_weighted(code: Code, *words: Value) -> None:
    *rows, bindings, i = words
    run_weighted(code, rows, Ahead(code, bindings, i, J.LOG_A, J.TERMS))


def spread_slot(code: Code, at: Value) -> tuple[State, Value]:
    """One lane of a slot in all lanes: its state, and the sum of log_a."""
    *fields, total, rest = (code.spread(at + k * code.row) for k in range(SLOT))
    return State(*fields), code.where(rest == rest, total + rest, total)


def merge(code: Code, *words: Value) -> None:
    """From the total of a chunk of a sequence to the state before it; that behind it takes the place of ``end``.

    ``chunk``: its place among the lanes of all slots; ``given``: whether there is a state before it, in ``end``.
    """
    slots, chunk, weighted, given, end = words
    ops, group = Lanes(code), chunk / code.lanes
    at = slots + group * (SLOT * code.row) + (chunk - group * code.lanes) * code.size_of_real
    (state, _), (own, log_a) = spread_slot(code, end), spread_slot(code, at)
    for field, x in enumerate(state):
        code.store_as(at + field * code.row, code.extract(x, 0))
    plain = logsumexp.merge(ops, state, own)
    heavy = logsumexp.step(ops, state, logsumexp.result(ops, own, True), log_a)
    alone = code.everywhere(given == 0)
    for field, (x, u, v) in enumerate(zip(own, heavy, plain, strict=True)):
        merged = code.where(alone, x, code.where(code.everywhere(weighted != 0), u, v))
        code.store_as(end + field * code.row, code.extract(merged, 0))


BEGIN, BEGIN_GIVEN = LOGSUMS.add("begin", begin), LOGSUMS.add("begin_given", begin_given)
BEGIN_TERM = LOGSUMS.add("begin_term", begin_term)
SCAN_PLAIN, TOTAL_PLAIN = LOGSUMS.add("scan_plain", scan_plain), LOGSUMS.add("total_plain", total_plain)
SCAN_ORDINARY = LOGSUMS.add("scan_ordinary", scan_ordinary)
TOTAL_ORDINARY = LOGSUMS.add("total_ordinary", total_ordinary)
SCAN_WEIGHTED = LOGSUMS.add("scan_weighted", scan_weighted)
TOTAL_WEIGHTED = LOGSUMS.add("total_weighted", total_weighted)
MERGE = LOGSUMS.add("merge", merge)
