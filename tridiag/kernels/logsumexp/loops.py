"""`tridiag.algorithms.logsumexp` as compiled loops over rows of lanes, a sequence in each lane.

Several rows are one vector in what does not wait for the row before, so that the processor works on all at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tridiag.algorithms import logsumexp
from tridiag.algorithms.logsumexp import State
from tridiag.kernels.access.operands import ask, operand_in
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.simd.explog import Lanes, SharedScale
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.registers import joined, narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

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


def row_of(code: Code, x: Value, k: int) -> Value:
    return code.part(x, k * code.lanes, code.lanes)


def sweep(code: Code, state: Any, rows: Value, steps: Callable[..., Any], most: int = 0) -> Any:
    """Steps 0 <= t < rows, several at a time: ``most`` of them, or `together`."""
    most = most or together()
    even = rows / most * most
    for count, first, last in ((most, code.integer(0), even), (1, even, rows)):
        state = code.fori(first, last, functools.partial(steps, count=count), state, step=count)
    return state


def together() -> int:
    """Rows that are worked on at once: of no more registers than there are, half of them free, for some of each."""
    return min(ROWS, 8 * bytes_of_register() // LINE)


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
        ahead.ask(t, count)
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

    store_state(code, slot, State(*sweep(code, load_state(code, slot), rows, steps)))


class Block(NamedTuple):
    """Rows of a block, all of whose sums have one scale."""

    state: State  # before the first row, but its largest number
    shared: SharedScale
    terms: Value  # the address of rows of terms, none too small
    ordinary: Value  # 1 or 0: whether every number is, but for NaN


def begin_block(code: Code, words: Sequence[Value], ahead: Ahead) -> Block:
    """Ordinary are a state and terms of a size below a limit, where the scale rises by no more than numbers can.

    Terms far below the state at the beginning, -inf too, count as so far below it that even in great numbers they make
    no difference.
    """
    ops, (x, x_step, slot, rows, terms) = Lanes(code), words
    state, (rise, depth) = load_state(code, slot), (900, 100) if code.size_of_real == 8 else (60, 55)
    least = ops.times_ln2(state.scale, code.splat(-depth * math.log(2)))

    def row(t: Value, largest: Value) -> Value:
        ahead.ask(t, 1)
        x_t = logsumexp.larger(ops, least, code.load(x + t * x_step))
        code.store(terms + t * code.row, x_t)
        return logsumexp.larger(ops, x_t, largest)

    largest = code.fori(0, rows, row, state.largest)
    shared = SharedScale(code, largest, state.scale)
    ordinary = (ops.size(state.scale) < shared.limit) & (shared.scale - state.scale < rise) & (largest < shared.limit)
    return Block(state._replace(largest=largest), shared, terms, one_if_all(code, ordinary))


def one_if_all(code: Code, mask: Value) -> Value:
    return code.pick(code.bits(mask) == 2**code.lanes - 1, code.integer(1), code.integer(0))


def run_ordinary(code: Code, slot: Value, rows: Value, block: Block, put: Any = None) -> Value:
    """What `run_plain` does, at half of the cost; 0: not all numbers were ordinary, and the slot is as before."""
    state, shared = block.state, block.shared
    kept = Lanes(code).power_of_two(state.scale - shared.scale)
    before, sums = (state.high * kept, state.low * kept), []
    for lanes, first in narrow(code):
        carried = tuple(lanes.part(sum_, first, lanes.lanes) for sum_ in before)
        steps = sum_of(lanes, first, block, put)
        sums.append(sweep(code, carried, rows * block.ordinary, steps, abreast()))
    high, low = (joined(code, part) for part in zip(*sums, strict=True))
    every = one_if_all(code, high == high) * block.ordinary
    old = load_state(code, slot)
    new = old._replace(scale=shared.scale, high=high, low=low, largest=state.largest)
    chosen = (code.where(code.everywhere(every != 0), u, v) for u, v in zip(new, old, strict=True))
    store_state(code, slot, State(*chosen))
    return every


def sum_of(code: Code, first: int, block: Block, put: Any) -> Callable[..., Any]:
    """Some rows of some lanes, from the lane ``first`` on."""
    shared, terms = block.shared.part(code, first), block.terms + first * code.size_of_real

    def steps(t: Value, carried: tuple[Value, Value], count: int) -> tuple[Value, Value]:
        high, low = carried
        x = joined(code, [code.load(terms + (t + k) * code.row) for k in range(count)])
        powers = shared.rows(count).exponential(x)
        for k in range(count):
            high, error = sum_of_positive(code, high, row_of(code, powers, k))
            low = low + error
            if put is not None:
                put(code, first, t + k, high + low)
        return high, low

    return steps


def sum_of_positive(code: Code, x: Value, y: Value) -> tuple[Value, Value]:
    """x + y and its rounding error."""
    total, most = x + y, code.where(x > y, x, y)
    return total, code.where(x > y, y, x) - (total - most)


def abreast() -> int:
    """Rows of a narrow code that are worked on at once."""
    return 2 * LINE // bytes_of_register()


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
    x, x_step, y, y_step, slot, rows, bindings, i, terms = words
    block = begin_block(code, (x, x_step, slot, rows, terms), Ahead(code, bindings, i, J.TERMS, J.RESULT))

    def put(lanes: Code, first: int, t: Value, total: Value) -> None:
        lanes.store(y + t * y_step + first * code.size_of_real, total)

    every = run_ordinary(code, slot, rows, block, put)
    for lanes, first in narrow(code):
        steps = logarithm_of(lanes, y + first * code.size_of_real, y_step, block.shared.part(lanes, first))
        sweep(code, (), rows * every, steps, abreast())
    return every


def logarithm_of(code: Code, y: Value, y_step: Value, shared: SharedScale) -> Callable[..., Any]:
    """Some rows of sums, some lanes of them."""

    def steps(t: Value, state: Any, count: int) -> Any:
        at = [y + (t + k) * y_step for k in range(count)]
        found = shared.rows(count).logarithm(joined(code, list(map(code.load, at))))
        for k, place in enumerate(at):
            code.store(place, row_of(code, found, k))
        return state

    return steps


def total_ordinary(code: Code, *words: Value) -> Value:
    x, x_step, slot, rows, bindings, i, terms = words
    block = begin_block(code, (x, x_step, slot, rows, terms), Ahead(code, bindings, i, J.TERMS))
    return run_ordinary(code, slot, rows, block)


def run_weighted(code: Code, words: Sequence[Value], ahead: Ahead, put: Any = None) -> None:
    """With rows of log_a, whose sum goes on too."""
    ops = Lanes(code)
    a, a_step, x, x_step, slot, rows = words
    product = tuple(code.load(slot + k * code.row) for k in (PRODUCT, PRODUCT + 1))

    def steps(t: Value, carried: Any, count: int) -> Any:
        ahead.ask(t, count)
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

    state, product = sweep(code, (load_state(code, slot), product), rows, steps)
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
