"""The inner loops of totals of linear recurrences, a sequence in each lane; and how totals go to memory.

The product of coefficients is m 2**e, and m between 1 and 2 in size, but where it is 0, infinite or NaN: so it neither
overflows nor underflows.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tridiag.algorithms import logsumexp
from tridiag.algorithms.logsumexp import two_sum
from tridiag.algorithms.neighbours import HIDDEN, LARGER
from tridiag.kernels.access.layouts import Contiguous, Lines
from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.operands import QUAD, addresses, ask
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.logsumexp.loops import PRODUCT, Ahead, load_state, one_if_all, sweep
from tridiag.kernels.simd.explog import Lanes
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.powers import MANTISSA, bits, integer, integers, real, shift_left
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import LINE, Code

MODERATE = {4: 60, 8: 500}  # exponents of factors of which the product with a mantissa and another one is in range
SHIFT = {4: 70, 8: 600}  # what takes any number there, or half way
NEAR = 2048  # bytes between systems that are near one another
SETS = 4096  # ... and between lines that lie in the same set of a first-level cache
QUADS = 2  # of rows that are transposed, at a time: their products are brought into range at once
LARGEST = 3  # rows of lanes of a total, before what is noted of its values
ALIKE = 2.0**10  # times the largest value that was noted: what values before it are taken to be less than
TOTALS = Library("totals", short=True)


# ------------------------------------------------------------------------------------------------ products


def normal(code: Code, product: Any, exponent: Value) -> tuple[Any, Value]:
    """A number that lies in the normal range with one before and behind it, as m 2**e; 0, inf and NaN stay."""
    width = MANTISSA[code.size_of_real]
    bias = 2 ** (8 * code.size_of_real - 2 - width) - 1
    raw = bits(code, code.size(product))
    found = Value(code, code.builder.lshr(raw.llvm, integer(code, width).llvm))
    special = (found == 0) | (found == 2 * bias + 1)
    found = code.where(special, integer(code, bias), found)
    return scaled(product, real(code, shift_left(code, 2 * bias - found, width))), exponent + (found - bias)


def scaled(x: Any, factor: Value) -> Any:
    return Complex(x.real * factor, x.imag * factor) if isinstance(x, Complex) else x * factor


def all_moderate(code: Code, factors: list[Any]) -> Value:
    """Whether every product of some of these factors and of a mantissa is in range, in all lanes."""
    limit = 2.0 ** (2 * MODERATE[code.size_of_real] // len(factors))
    sizes = [code.size(x) for x in factors]
    found = [mask for size in sizes for mask in (size >= 1 / limit, size <= limit)]
    return code.bits(functools.reduce(operator.and_, found)) == 2**code.lanes - 1


def times(code: Code, product: Any, exponent: Value, factor: Any) -> tuple[Any, Value]:
    """The product times any factor."""
    size, shift = code.size_of_real, SHIFT[code.size_of_real]
    limit, one = 2.0 ** MODERATE[size], code.real_zero() + 1.0
    large, small = code.size(factor) > limit, code.size(factor) < 1 / limit
    moved = code.where(large, one * 2.0**-shift, code.where(small, one * 2.0**shift, one))
    exponent = exponent + code.where(
        large, integer(code, shift), code.where(small, integer(code, -shift), integer(code, 0))
    )
    return normal(code, product * scaled(factor, moved), exponent)


def times_all(code: Code, product: Any, exponent: Value, factors: list[Any]) -> tuple[Any, Value]:
    """The product times some factors, an even number of them or one, at once where pairs of them are moderate."""
    if len(factors) == 1:
        return times(code, product, exponent, factors[0])
    pairs = [first * second for first, second in zip(factors[::2], factors[1::2], strict=True)]
    quick = normal(code, functools.reduce(operator.mul, [product, *pairs]), exponent)
    usual = all_moderate(code, pairs)

    def one_by_one(_: Value, state: Any) -> Any:
        found = product, exponent
        for factor in factors:
            found = times(code, *found, factor)
        return found

    return code.fori(0, code.pick(usual, code.integer(0), code.integer(1)), one_by_one, quick)


# ------------------------------------------------------------------------------------------------ rows


def begin(code: Code, slot: Value) -> None:
    store_total(code, slot, code.zero(), code.one(), integer(code, 0))


def note_value(code: Code, slot: Value) -> None:
    """The largest size that a value was found to have lies behind a total."""
    at = slot + LARGEST * code.row
    code.store_as(at, code.maximum(code.load_as(code.vector, at), code.size(code.load(slot))))


def begin_last(code: Code, slot: Value) -> None:
    begin(code, slot)
    code.store_as(slot + LARGEST * code.row, code.real_zero())


def decayed(code: Code, slot: Value) -> Value:
    """1: what was before the rows of a slot does not count, if it is not much larger than values in them; else 0."""
    value, product, exponent = load_total(code, slot)
    least, most = (integer(code, k * MODERATE[code.size_of_real]) for k in (-1, 1))
    there = power_of_two(code, code.where(exponent < least, least, code.where(exponent > most, most, exponent)))
    before = code.size(product) * there * (code.load_as(code.vector, slot + LARGEST * code.row) * ALIKE)
    small = (exponent < math.floor(math.log2(HIDDEN / LARGER * code.eps))) & (
        before <= code.size(value) * (HIDDEN * code.eps)
    )
    return one_if_all(code, (code.size(product) == 0) | small)


def power_of_two(code: Code, exponent: Value) -> Value:
    width = MANTISSA[code.size_of_real]
    return real(code, shift_left(code, exponent + (2 ** (8 * code.size_of_real - 2 - width) - 1), width))


def total(turned: bool, code: Code, *words: Value) -> None:
    """Rows of a and x, ``*_step`` bytes apart; what is in a slot goes on. `Ahead` tells of ``bindings``.

    ``alone``, 0 or 1: rows before which there is nothing, so that the coefficient of the first only counts in the
    product.
    """
    a, a_step, x, x_step, slot, rows, alone, bindings, i = words
    ahead = Ahead(code, bindings, i, J.LOG_A, J.TERMS)

    def steps(t: Value, state: Any, count: int) -> Any:
        ahead.ask(t, count)
        rows = [(code.load(a + (t + k) * a_step), code.load(x + (t + k) * x_step)) for k in range(count)]
        return some_steps(turned, code, state, rows)

    def first(t: Value, state: Any) -> Any:
        _, product, exponent = steps(t, state, 1)
        return code.load(x), product, exponent

    state = code.fori(0, alone, first, load_total(code, slot))
    ahead.first, a, x = ahead.first + alone, a + alone * a_step, x + alone * x_step
    store_total(code, slot, *sweep(code, state, rows - alone, steps))


def total_contiguous(turned: bool, backward: bool, code: Code, *words: Any) -> None:
    """Rows first <= i < last, a multiple of those that are transposed at a time, of operands that are contiguous."""
    *operands, slot, first, last = words
    layout = InOrder(code, operands)
    steps = steps_of(layout, turned, backward)
    store_total(code, slot, *down(layout, steps, backward, first, last, load_total(code, slot)))


def last_contiguous(turned: bool, backward: bool, code: Code, *words: Any) -> None:
    """The same of rows before which none may be read: no others of the next group are asked for. Values are noted."""
    *operands, slot, first, last = words
    layout, at = Contiguous(code, operands, (code.integer(0),) * 2), slot + LARGEST * code.row
    total_of = steps_of(layout, turned, backward)

    def steps(i: Value, state: Any) -> Any:
        found = total_of(i, state[0])
        return found, code.maximum(state[1], code.size(found[0]))

    begin = load_total(code, slot), code.load_as(code.vector, at)
    found, largest = down(layout, steps, backward, first, last, begin)
    store_total(code, slot, *found)
    code.store_as(at, largest)


def ask_for_rows(code: Code, operand: Any, first: Value, last: Value) -> None:
    """Ask for rows of a contiguous operand, all at once: whoever reads them next has not known of it for long."""
    size = code.parts * code.size_of_real

    def lines(i: Value, state: Any) -> Any:
        for place in addresses(code, operand.addresses.lanes):
            code.prefetch(place + i * size)
        return state

    code.fori(first, last, lines, step=LINE // size)


def steps_of(layout: Contiguous, turned: bool, backward: bool) -> Callable[..., Any]:
    """The steps of rows that are transposed at a time."""

    def steps(i: Value, state: Any) -> Any:
        rows = [*layout.read(i), *layout.read(i + layout.height, asks=False)]
        return some_steps(turned, layout.code, state, rows[::-1] if backward else rows)

    return steps


def down(layout: Contiguous, steps: Callable[..., Any], backward: bool, first: Value, last: Value, state: Any) -> Any:
    """What follows from steps over all rows, in their order."""
    height = QUADS * layout.height
    ends = (last - height, first - 1) if backward else (first + layout.code.integer(0), last)
    return layout.code.fori(*ends, steps, state, step=-height if backward else height)


class LinesInOrder(Lines):
    """Lines of the next group asked for as they lie in memory, where systems lie end to end and are near one another.

    Processors fetch ahead of few streams only, and each lane would be one. Nor do caches have room for lanes whose
    lines all lie in the same of their sets.
    """

    def __init__(self, code: Code, operand: Any) -> None:
        super().__init__(code, operand)
        ahead, end_to_end = operand.ahead, (operand.rotation == 0) & (operand.step == LINE)
        beside = (ahead <= code.lanes * NEAR) | ((ahead & (code.lanes * SETS - 1)) == 0)
        self.operand, (one, none) = operand, (code.integer(k) for k in (1, 0))
        self.in_order, self.by_lane = (code.pick(end_to_end & beside, *pair) for pair in ((one, none), (none, one)))

    def load(self, i: Value, asks: bool = True) -> list[Any]:
        def lines(_: Value, state: Any) -> Any:
            for k in range(QUAD // self.code.parts):
                ask(self.code, self.operand, i + k)
            return state

        self.code.fori(0, self.in_order, lines)
        return super().load(i, asks)

    def ask(self, places: list[Value]) -> None:
        def lines(_: Value, state: Any) -> Any:
            super(LinesInOrder, self).ask(places)
            return state

        self.code.fori(0, self.by_lane, lines)


class InOrder(Contiguous):
    """Operands whose rows are contiguous, with such lines."""

    def __init__(self, code: Code, operands: Sequence[Any]) -> None:
        super().__init__(code, operands, (code.integer(0),) * len(operands))
        self.lines = [LinesInOrder(code, x) for x in operands]


def some_steps(turned: bool, code: Code, state: Any, rows: list[Any]) -> Any:
    """What follows some rows (a, x)."""
    value, product, exponent = state
    for a, x in rows:
        value = a * (value + x) if turned else a * value + x
    return value, *times_all(code, product, exponent, [a for a, _ in rows])


def load_total(code: Code, slot: Value) -> Any:
    return code.load(slot), code.load(slot + code.row), code.load_as(integers(code), slot + 2 * code.row)


def store_total(code: Code, slot: Value, value: Any, product: Any, exponent: Value) -> None:
    code.store(slot, value)
    code.store(slot + code.row, product)
    code.store_as(slot + 2 * code.row, exponent)


def count_in(code: Code, slot: Value, a: Value) -> None:
    """A row of log_a before which there is nothing: it only counts in the sum."""
    total, error = two_sum(code.load(slot + PRODUCT * code.row), code.load(a))
    code.store(slot + PRODUCT * code.row, total)
    at = slot + (PRODUCT + 1) * code.row
    code.store(at, code.load(at) + error)


# ------------------------------------------------------------------------------------------------ to memory


def put(code: Code, words: Any, found: list[Value]) -> None:
    """One number of each lane to each plane of the result."""
    _, target, plane, used, _ = words
    lanes = first_lanes(code, used)
    for k, x in enumerate(found):
        code.store_some(target + k * plane, x, lanes)


def put_linear(code: Code, *words: Value) -> None:
    put(code, words, numbers_of(code, words[0]))


def put_last(code: Code, *words: Value) -> None:
    """As `put_linear`, and how many rows that are."""
    put(code, words, [*numbers_of(code, words[0]), code.to_real(code.repeat(words[-1], code.lanes))])


def numbers_of(code: Code, slot: Value) -> list[Value]:
    """The real numbers of a total."""
    pair: list[Value] = []
    for k in range(2):
        x = code.load(slot + k * code.row)
        pair += [x.real, x.imag] if isinstance(x, Complex) else [x]
    exponent = code.load_as(integers(code), slot + 2 * code.row)
    return [*pair, Value(code, code.builder.sitofp(exponent.llvm, code.vector))]


def put_logarithms(weighted: bool, code: Code, *words: Value) -> None:
    slot = words[0]
    found = [logsumexp.result(Lanes(code), load_state(code, slot), weighted)]
    if weighted:
        found += [code.load(slot + (PRODUCT + k) * code.row) for k in range(2)]
    put(code, words, found)


BEGIN = TOTALS.add("begin", begin)
TOTAL, TOTAL_TRANSPOSED = (
    TOTALS.add(f"total{'_transposed' * turned}", functools.partial(total, turned)) for turned in (False, True)
)


def four_ways(name: str, loop: Callable[..., None]) -> list[Any]:
    """A loop over contiguous rows, forward and backward, and both of transposed recurrences."""
    return [
        TOTALS.add(f"{name}{'_transposed' * turned}{'_backward' * backward}", functools.partial(loop, turned, backward))
        for turned in (False, True)
        for backward in (False, True)
    ]


CONTIGUOUS, LAST_CONTIGUOUS = four_ways("contiguous", total_contiguous), four_ways("last", last_contiguous)
TOTAL_FORWARD, TOTAL_BACKWARD, TRANSPOSED_FORWARD, TRANSPOSED_BACKWARD = CONTIGUOUS
LAST_FORWARD, LAST_BACKWARD, LAST_TRANSPOSED_FORWARD, LAST_TRANSPOSED_BACKWARD = LAST_CONTIGUOUS
BEGIN_LAST, NOTE_VALUE = TOTALS.add("begin_last", begin_last), TOTALS.add("note_value", note_value)
ASK_FOR_ROWS = TOTALS.add("ask_for_rows", ask_for_rows)
DECAYED = TOTALS.add("decayed", decayed)
COUNT_IN = TOTALS.add("count_in", count_in)
PUT_LINEAR, PUT_LAST = TOTALS.add("put_linear", put_linear), TOTALS.add("put_last", put_last)
PUT_LOGARITHMS, PUT_WEIGHTED = (
    TOTALS.add(f"put_{kind}", functools.partial(put_logarithms, kind == "weighted"))
    for kind in ("logarithms", "weighted")
)
