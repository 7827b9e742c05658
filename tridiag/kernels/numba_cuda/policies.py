"""What the kernels of `tridiag.kernels.numba_cuda.scans` must know of a recurrence of first order, in scalar code.

A part is what some rows make of the state before them. Each function is compiled for the CPU when the CPU calls it,
which is how it is tested, and for the GPU when a kernel does. Numbers have the type of the sequence, so that no
constant is a float64 where it is float32. The arithmetic is that of `tridiag/cuda/src/stretches.cu`, and of
`tridiag.algorithms.logsumexp`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tridiag.algorithms import logsumexp
from tridiag.algorithms.logsumexp import DOUBLE, ROOM, SINGLE
from tridiag.algorithms.recurrence import SMALL, TRUSTED

compiled = njit(error_model="numpy")


class Policy(NamedTuple):
    """A recurrence of first order."""

    coefficients: bool  # whether there are any
    part_words: int  # the numbers of a part
    start: tuple[float, ...]  # the state before the first row, if nothing is given
    nothing: Callable[..., Any]  # () -> the part of no rows
    extend: Callable[..., Any]  # (part, a, x) -> the part of one row more
    join: Callable[..., Any]  # (part, part of the rows behind it) -> part
    apply: Callable[..., Any]  # (part, state) -> the state behind it
    sound: Callable[..., Any]  # part -> whether it can be trusted
    known: Callable[..., Any]  # state -> whether parts can be applied to it
    step: Callable[..., Any]  # (state, a, x) -> the state behind one row more
    value: Callable[..., Any]  # state -> y
    keep: Callable[..., Any]  # (memory, k, part): to column k
    kept: Callable[..., Any]  # (memory, k) -> the part there
    keep_state: Callable[..., Any]
    kept_state: Callable[..., Any]


@functools.cache
def linear(dtype: str) -> Policy:
    """y[t] = a[t] y[t-1] + x[t]. A part is factor small^times y + value; the state is y."""
    number = getattr(np, dtype)
    real = number(0).real.dtype.type
    small = real(SMALL[np.dtype(real).itemsize])
    large, trusted, one, zero, limit = real(1) / small, real(TRUSTED), number(1), number(0), real(1)

    @compiled
    def size(x):
        return abs(x.real) + abs(x.imag)

    @compiled
    def rescale(factor, times):
        """The factor in the range that products of two leave by no underflow."""
        if times > 0 and size(factor) >= limit:
            factor, times = factor * small, times - 1
        while size(factor) < small and factor != zero:
            factor, times = factor * large, times + 1
        return factor, times

    @compiled
    def nothing():
        return one, zero, 0

    @compiled
    def extend(part, a, x):
        factor, times = rescale(a, 0)
        factor, times = rescale(part[0] * factor, part[2] + times)
        return factor, x + a * part[1], times

    @compiled
    def join(before, after):
        factor, times = rescale(before[0] * after[0], before[2] + after[2])
        return factor, apply(after, before[1]), times

    @compiled
    def apply(part, y):
        total = part[0] * y
        for _ in range(part[2]):
            if total == zero:
                break
            total = total * small
        return total + part[1]

    @compiled
    def known(y):
        return size(y) - size(y) == 0

    @compiled
    def sound(part):
        return size(part[0]) <= trusted and known(part[1])

    @compiled
    def step(y, a, x):
        return x + a * y

    @compiled
    def value(y):
        return y

    @compiled
    def keep(memory, k, part):
        memory[0, k], memory[1, k], memory[2, k] = part[0], part[1], number(part[2])

    @compiled
    def kept(memory, k):
        return memory[0, k], memory[1, k], int(memory[2, k].real)

    @compiled
    def keep_state(memory, k, y):
        memory[0, k] = y

    @compiled
    def kept_state(memory, k):
        return memory[0, k]

    return Policy(
        True, 3, (0.0,), nothing, extend, join, apply, sound, known, step, value, keep, kept, keep_state, kept_state
    )


@functools.cache
def logarithmic(dtype: str) -> Policy:
    """y[t] = log(exp(y[t-1]) + exp(x[t])). A part, and the state, is `logsumexp.State` without a shift."""
    number = getattr(np, dtype)
    far = number(logsumexp.far(float(np.finfo(dtype).eps)))
    least = number(math.log2(np.finfo(dtype).tiny))
    ln2 = SINGLE if dtype == "float32" else DOUBLE
    high_ln2, low_ln2, inverse = number(ln2.high), number(ln2.low), number(1 / math.log(2))
    zero, half, one, two, room = number(0), number(0.5), number(1), number(2), number(ROOM)
    least_mantissa = number(0.75)
    start = logsumexp.nowhere(float(far))
    nowhere, lowest = number(start[0]), number(start[-1])

    @compiled
    def clamp(x, limit):
        return limit if x > limit else -limit if x < -limit else x

    @compiled
    def power_of_two(exponent):
        """For an integer that is not positive; 0 below the normal range, and for NaN."""
        return number(math.ldexp(one, int(exponent))) if exponent >= least else zero

    @compiled
    def nearest(x):
        """The nearest integer; Numba's ``round`` takes float64 for it."""
        k = number(int(x))
        return k + one if x - k > half else k - one if x - k < -half else k

    @compiled
    def exponential(x):
        """m and k with exp(x) = m 2**k; x beyond ``far`` is taken for that."""
        x = clamp(x, far)
        k = nearest(x * inverse) if x == x else zero
        r = (x - k * high_ln2) - k * low_ln2
        return number(math.exp(clamp(r, room))), k

    @compiled
    def add(state, m, k, x):
        """exp(y) + exp(x) with exp(x) = m 2**k."""
        scale = state[0] if state[0] > k else k
        before, added = power_of_two(state[0] - scale), power_of_two(k - scale)
        first, second = state[1] * before, m * added
        high = first + second
        part = high - first
        low = state[2] * before + ((first - (high - part)) + (second - part))
        return scale, high, low, x if x > state[3] else state[3]

    @compiled
    def nothing():
        return nowhere, zero, zero, lowest

    @compiled
    def step(state, a, x):
        m, k = exponential(x)
        return add(state, m, k, x)

    @compiled
    def join(before, after):
        scale, high, low, largest = add(before, after[1], after[0], after[3])
        return scale, high, low + after[2] * power_of_two(after[0] - scale), largest

    @compiled
    def apply(part, state):
        return join(state, part)

    @compiled
    def always(part):
        return True

    @compiled
    def value(state):
        total = state[1] + state[2]
        if total != total:
            return total
        if abs(state[3]) >= far:
            return state[3]
        if total == zero:
            return lowest
        m, exponent = math.frexp(total)
        m, e = number(m), number(exponent)
        if m < least_mantissa:
            m, e = m * two, e - one
        e = e + state[0]
        return e * high_ln2 + (e * low_ln2 + number(math.log(m)))

    @compiled
    def keep(memory, k, state):
        memory[0, k], memory[1, k], memory[2, k], memory[3, k] = state

    @compiled
    def kept(memory, k):
        return memory[0, k], memory[1, k], memory[2, k], memory[3, k]

    return Policy(
        False, 4, start, nothing, step, join, apply, always, always, step, value, keep, kept, keep, kept
    )  # fmt: skip


POLICIES = {"linear_recurrence": linear, "logcumsumexp": logarithmic}
