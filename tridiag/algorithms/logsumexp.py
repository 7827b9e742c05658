"""The steps of y[t] = log(exp(log_a[t] + y[t-1]) + exp(x[t])), for rows of any array library and for compiled lanes.

exp(y) is kept as (high + low) 2**scale exp(shift): the scale is the largest exponent so far and changes by exact powers
of two, the sum is compensated, and the shift, which is not 0 where there is log_a, takes what log_a leaves over whole
powers of two, in two numbers. So errors do not pile up, over any number of steps. ``largest`` is the result where it is
of a size beyond `far`, or infinite: log(exp(x) + exp(y)) is the larger of x and y there. NaN stays in ``high``.

``ops`` has the operations of one library (`Arrays`), or of lanes (`tridiag.kernels.simd.explog.Lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms import recurrence
from tridiag.problems.forms import Recurrence


class State(NamedTuple):
    """exp(y)."""

    scale: Any
    high: Any
    low: Any
    largest: Any
    shift: Any
    shift_low: Any


class Numbers(NamedTuple):
    """log(2) in two parts: the first has so few digits that its products with exponents are exact."""

    high: float
    low: float


DOUBLE = Numbers(6.93147180369123816490e-01, 1.90821492927058770002e-10)
SINGLE = Numbers(0.693359375, -2.12194440054690583e-4)
ROOM = 0.36  # above log(2) / 2
FINE = 2.0**-14  # of what is far: below that, roundings are small beside what ROOM leaves


def far(eps: float) -> float:
    """The size beyond which a result is the larger of two numbers."""
    return 64 / eps


class Arrays:
    """Exponentials and logarithms of arrays, with the power of two apart."""

    def __init__(self, ops: Any, like: Any) -> None:
        eps, tiny = ops.limits(like)
        self.ops, self.where, self.size = ops, ops.where, ops.size
        self.far, self.ln2 = far(eps), DOUBLE if eps < 1e-10 else SINGLE
        self.least = math.log2(tiny)

    def full(self, x: Any, value: float) -> Any:
        return self.ops.full(x.shape, value, x)

    def clamp(self, x: Any, limit: float) -> Any:
        """x between -limit and limit; NaN stays."""
        x = self.where(x > limit, limit, x)
        return self.where(x < -limit, -limit, x)

    def power_of_two(self, exponent: Any) -> Any:
        """2**exponent for an integer that is not positive; 0 below the normal range, and for NaN."""
        normal = exponent >= self.least
        return self.where(normal, self.ops.power_of_two(self.where(normal, exponent, 0)), 0)

    def reduced(self, x: Any) -> tuple[Any, Any]:
        """x = r + k log(2) with an integer k."""
        k = self.ops.rint(x * (1 / math.log(2)))
        return (x - k * self.ln2.high) - k * self.ln2.low, k

    def exponential(self, x: Any, correction: Any = None) -> tuple[Any, Any]:
        """m and k with exp(x + correction) = m 2**k; x beyond ``far`` is taken for that."""
        r, k = self.reduced(self.clamp(x, self.far))
        r = r if correction is None else r + correction
        return self.ops.exp(self.clamp(r, ROOM)), k

    def logarithm(self, x: Any) -> tuple[Any, Any]:
        """l and e with log(x) = l + e log(2): l is small, 0 where x is 1."""
        m, e = self.ops.parts_of(x)
        return self.ops.log(m), e

    @staticmethod
    def multiply_add(x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    def times_ln2(self, k: Any, plus: Any) -> Any:
        """k log(2) + plus."""
        return k * self.ln2.high + (k * self.ln2.low + plus)


def nothing(ops: Any, like: Any) -> State:
    """exp(y) = 0."""
    zero = ops.full(like, 0.0)
    scale, _, _, largest = nowhere(ops.far)
    return State(ops.full(like, scale), zero, zero, ops.full(like, largest), zero, zero)


def nowhere(far: float) -> tuple[float, float, float, float]:
    """The same as numbers, but for the shift: scale, high, low and largest."""
    return -4 * far, 0.0, 0.0, -math.inf


def given(ops: Any, y: Any) -> State:
    """exp(y) of a number: what is in the shift goes to the scale in the next step."""
    zero = ops.full(y, 0.0)
    return State(zero, unless_nan(ops, y, ops.full(y, 1.0)), zero, y, y, zero)


def unless_nan(ops: Any, y: Any, x: Any) -> Any:
    """x, or NaN where y is NaN."""
    return ops.where(y == y, x, y)


def larger(ops: Any, x: Any, y: Any) -> Any:
    """The larger; y where any is NaN."""
    return ops.where(x > y, x, y)


def two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """x + y and its rounding error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def is_far(ops: Any, x: Any) -> Any:
    return ops.size(x) >= ops.far


def add(ops: Any, state: State, m: Any, k: Any, x: Any) -> State:
    """exp(y) + exp(x) with exp(x) = m 2**k exp(shift); an exponent that is NaN leaves no trace, its mantissa does."""
    scale = larger(ops, state.scale, k)
    kept, added = ops.power_of_two(state.scale - scale), ops.power_of_two(k - scale)
    high, error = two_sum(state.high * kept, m * added)
    low = ops.multiply_add(state.low, kept, error)
    return state._replace(scale=scale, high=high, low=low, largest=larger(ops, x, state.largest))


def merge(ops: Any, state: State, other: State) -> State:
    """exp(y) + exp(z), both without a shift."""
    merged = add(ops, state, other.high, other.scale, other.largest)
    return merged._replace(low=merged.low + other.low * ops.power_of_two(other.scale - merged.scale))


def multiply(ops: Any, state: State, log_a: Any) -> State:
    """exp(log_a + y): whole powers of two to the scale, the rest to the shift."""
    far = is_far(ops, state.largest) & (state.high == state.high)
    zero = ops.full(state.high, 0.0)
    total, error = two_sum(ops.where(far, state.largest, state.shift), log_a)
    error = ops.where(is_far(ops, total) | (total != total), zero, error + ops.where(far, zero, state.shift_low))
    # it does not grow over the steps; of a large log_a it is what any sum rounds, for which `term` has no room
    shift = total + error
    error = ops.where(ops.size(shift) < FINE * ops.far, error - (shift - total), zero)
    shift, k = ops.reduced(ops.clamp(shift, 2 * ops.far))  # from one end of what is not far beyond the other
    return State(
        scale=ops.where(far, zero, state.scale) + k,
        high=ops.where(far, ops.full(zero, 1.0), state.high),
        low=ops.where(far, zero, state.low),
        largest=state.largest + log_a,
        shift=ops.clamp(shift, ROOM),
        shift_low=error,
    )


def term(ops: Any, state: State, x: Any) -> tuple[Any, Any]:
    """m and k with exp(x) = m 2**k exp(shift)."""
    move, error = two_sum(x, -state.shift)
    lost = ops.where(is_far(ops, move) | (move != move), ops.full(x, 0.0), error - state.shift_low)
    return ops.exponential(move, lost)


def value(ops: Any, scale: Any, total: Any, largest: Any, shift: Any = None) -> Any:
    """y, from parts of a state; ``total`` is high + low, ``shift`` both parts of it."""
    log, exponent = ops.logarithm(total)
    y = ops.times_ln2(scale + exponent, log if shift is None else log + shift)
    return unless_nan(ops, total, ops.where(is_far(ops, largest), largest, y))


def step(ops: Any, state: State, x: Any, log_a: Any = None) -> State:
    """One row: log_a = 0 where there is none."""
    if log_a is None:
        m, k = ops.exponential(x)
    else:
        state = multiply(ops, state, log_a)
        m, k = term(ops, state, x)
    return add(ops, state, m, k, x)


def result(ops: Any, state: State, shifted: bool) -> Any:
    return value(
        ops,
        state.scale,
        state.high + state.low,
        state.largest,
        state.shift + state.shift_low if shifted else None,
    )


# ------------------------------------------------------------------------------------------- along an axis

Rows = tuple[Any, ...]  # (log_a,) or (); what is before the first step, (y,) or ()


def start(ops: Any, x: Any, init: Rows, form: Recurrence) -> State:
    """The state before the first step."""
    rows = Arrays(ops, x)
    if init:
        return given(rows, ops.broadcast(ops.row(init[0], 0, form.axis), form.batch))
    return nothing(rows, ops.broadcast(ops.row(x, 0, form.axis), form.batch))


def row_step(
    ops: Any, coefficients: Rows, x: Any, state: State, form: Recurrence, i: Any, given: bool
) -> tuple[State, Any]:
    """The state after step i, and y."""
    rows = Arrays(ops, x)
    term = ops.broadcast(ops.row(x, recurrence.row_of(form, i), form.axis), form.batch)
    log_a = None
    if coefficients:
        log_a = ops.broadcast(recurrence.coefficient(ops, coefficients[0], 1, form, i, given), form.batch)
    state = step(rows, state, term, log_a)
    return state, result(rows, state, bool(coefficients))


def run(ops: Any, coefficients: Rows, x: Any, init: Rows, form: Recurrence, store: Callable[[int, Any], None]) -> None:
    """Row by row; ``store(t, row)`` takes them. About 60 operations a value, one exp and one log among them."""
    state = start(ops, x, init, form)
    for i in range(form.n):
        state, y = row_step(ops, coefficients, x, state, form, i, bool(init))
        store(recurrence.row_of(form, i), y)


def shares(ops: Any, coefficients: Rows, x: Any, y: Any, init: Rows, form: Recurrence) -> tuple[Any, Any, Any]:
    """p = exp(log_a[t] + y[t-1] - y[t]) and q = exp(x[t] - y[t]): how much of y' comes from before, and from x'.

    So derivatives are a linear recurrence, y'[t] = p[t] (log_a'[t] + y'[t-1]) + q[t] x'[t], with p + q = 1. Where y is
    infinite both are 0, and where it is NaN q is, and what takes the place of p as the factor of log_a' and of init',
    the third; p is finite.
    """
    before = recurrence.behind(ops, y, 1, init, form)
    steps = ops.positions(form.n, len(form.shape), form.axis, y)
    follows = steps == steps if init else steps < form.steps - 1 if form.reverse else steps > 0
    kept = follows & (y - y == 0)
    p = ops.exp(ops.where(kept, (coefficients[0] + before if coefficients else before) - y, -math.inf))
    q = ops.exp(ops.where(abs(y) == math.inf, -math.inf, x - y))
    return p, q, ops.where(follows & (y != y), y, p) if coefficients else p
