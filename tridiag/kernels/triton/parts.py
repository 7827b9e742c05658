"""What rows of a recurrence of first order make of the state before them, in Triton (`tridiag/cuda/src/stretches.cu`).

Of y[t] = a[t] y[t-1] + x[t] a part is factor SMALL^times y + value, and the state is (y,). With LOGARITHMIC, that is
y[t] = log(exp(y[t-1]) + exp(x[t])), both are a state of `tridiag.kernels.triton.logarithms`. Rows that are not there
have the coefficient 1 and the term 0, or -inf. What a lane has of its chunk is a tuple of ROWS tiles.
"""

import triton
import triton.language as tl

from tridiag.algorithms import recurrence
from tridiag.kernels.triton.chunks import ROWS
from tridiag.kernels.triton.logarithms import add, exponential_of, merge, nothing_of, value_of
from tridiag.kernels.triton.rows import by_dtype, either

TRUSTED = tl.constexpr(recurrence.TRUSTED)
SMALL_SINGLE, SMALL_DOUBLE = tl.constexpr(recurrence.SMALL[4]), tl.constexpr(recurrence.SMALL[8])
SCALINGS = tl.constexpr(3)  # that bring the smallest number to SMALL
VANISHED = tl.constexpr(6)  # after so many the largest is 0


@triton.jit
def any_lane(flag):
    """Whether any lane of a tile says so."""
    return tl.reduce(tl.reduce(flag.to(tl.int32), 0, either), 0, either) != 0


@triton.jit
def small(x):
    return by_dtype(x, SMALL_SINGLE, SMALL_DOUBLE)


@triton.jit
def raised(factor, times):
    """A factor below SMALL scaled up, once."""
    low = (tl.abs(factor) < small(factor)) & (factor != 0)
    if factor.dtype == tl.float32:
        return tl.where(low, factor * (1 / SMALL_SINGLE), factor), times + low.to(tl.int32)
    else:
        return tl.where(low, factor * (1 / SMALL_DOUBLE), factor), times + low.to(tl.int32)


@triton.jit
def product(x, x_times, y, y_times):
    """Of two factors in range, in range."""
    factor, times = raised(x * y, x_times + y_times)
    large = (times > 0) & (tl.abs(factor) >= 1)
    return tl.where(large, factor * small(factor), factor), times - large.to(tl.int32)


@triton.jit
def linear_part(a, x):
    factor, value, times = a[0], x[0], tl.full(x[0].shape, 0, tl.int32)
    cut = factor == 0
    vanishing = (tl.abs(factor) < small(factor)) & (cut == 0)
    for j in tl.static_range(1, ROWS):
        factor = factor * a[j]
        value = x[j] + a[j] * value
        cut = cut | (a[j] == 0)
        vanishing = vanishing | ((tl.abs(factor) < small(factor)) & (cut == 0))
    if any_lane(vanishing):  # digits may be lost
        factor = tl.full(value.shape, 1.0, value.dtype)
        for j in tl.static_range(ROWS):
            own, own_times = a[j], tl.full(value.shape, 0, tl.int32)
            for _ in tl.static_range(SCALINGS):
                own, own_times = raised(own, own_times)
            factor, times = product(factor, times, own, own_times)
    return factor, value, times


@triton.jit
def linear_apply(part, y):
    factor, value, times = part
    total = factor * y
    for k in tl.static_range(VANISHED):
        total = tl.where(times > k, total * small(total), total)
    return total + value


@triton.jit
def nothing(x, LOGARITHMIC: tl.constexpr):
    """The part of no rows."""
    if LOGARITHMIC:
        return nothing_of(x)
    else:
        return tl.full(x.shape, 1.0, x.dtype), tl.full(x.shape, 0.0, x.dtype), tl.full(x.shape, 0, tl.int32)


@triton.jit
def part_of(a, x, LOGARITHMIC: tl.constexpr):
    """Of the rows of chunks."""
    if LOGARITHMIC:
        state = nothing_of(x[0])
        for j in tl.static_range(ROWS):
            state = step(state, x[j], x[j], LOGARITHMIC)
        return state
    else:
        return linear_part(a, x)


@triton.jit
def join(before, after, LOGARITHMIC: tl.constexpr):
    if LOGARITHMIC:
        return merge(before, after)
    else:
        factor, times = product(before[0], before[2], after[0], after[2])
        return factor, linear_apply(after, before[1]), times


@triton.jit
def apply(part, state, LOGARITHMIC: tl.constexpr):
    """The state behind rows."""
    if LOGARITHMIC:
        return merge(state, part)
    else:
        return (linear_apply(part, state[0]),)


@triton.jit
def known(state, LOGARITHMIC: tl.constexpr):
    """Whether parts can be applied to a state."""
    if LOGARITHMIC:
        return state[0] == state[0]
    else:
        return state[0] - state[0] == 0


@triton.jit
def sound(part, LOGARITHMIC: tl.constexpr):
    """Whether a part can be trusted."""
    if LOGARITHMIC:
        return part[0] == part[0]
    else:
        return (tl.abs(part[0]) <= TRUSTED) & (part[1] - part[1] == 0)


@triton.jit
def step(state, a, x, LOGARITHMIC: tl.constexpr):
    """The state behind one row."""
    if LOGARITHMIC:
        m, k = exponential_of(x)
        return add(state, m, k, x)
    else:
        return (x + a * state[0],)


@triton.jit
def value(state, LOGARITHMIC: tl.constexpr):
    if LOGARITHMIC:
        return value_of(state)
    else:
        return state[0]


@triton.jit
def select(chosen, state, otherwise):
    """Of two states or parts."""
    found = ()
    for j in tl.static_range(len(state)):
        found = found + (tl.where(chosen, state[j], otherwise[j]),)
    return found
