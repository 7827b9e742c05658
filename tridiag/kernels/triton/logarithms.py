"""Sums of exponentials in Triton, of any size: the arithmetic of `tridiag.algorithms.logsumexp`, without shifts.

A state is (scale, high, low, largest). Exponentials and logarithms are polynomials, those of
`tridiag/cuda/src/logarithms.cu`: Triton's own are approximate in float32.
"""

import triton
import triton.language as tl

from tridiag.algorithms import logsumexp
from tridiag.kernels.triton.rows import by_dtype, divide

ROOM = tl.constexpr(logsumexp.ROOM)
SINGLE_HIGH, SINGLE_LOW = tl.constexpr(logsumexp.SINGLE.high), tl.constexpr(logsumexp.SINGLE.low)
DOUBLE_HIGH, DOUBLE_LOW = tl.constexpr(logsumexp.DOUBLE.high), tl.constexpr(logsumexp.DOUBLE.low)
INVERSE = tl.constexpr(1.44269504088896340736)  # 1 / log(2)
FAR_SINGLE, FAR_DOUBLE = tl.constexpr(logsumexp.far(2.0**-23)), tl.constexpr(logsumexp.far(2.0**-52))


@triton.jit
def far(x):
    """The size beyond which a result is the larger of two numbers."""
    return by_dtype(x, FAR_SINGLE, FAR_DOUBLE)


@triton.jit
def nothing_of(x):
    """The state of no rows."""
    zero = tl.full(x.shape, 0.0, x.dtype)
    return -4 * far(x), zero, zero, zero - float("inf")


@triton.jit
def clamp(x, limit):
    """NaN stays."""
    x = tl.where(x > limit, limit, x)
    return tl.where(x < -limit, -limit, x)


@triton.jit
def nearest(x):
    """The nearest integer, or 0 for NaN."""
    x = tl.where(x == x, x, 0.0)
    k = x.to(tl.int64).to(x.dtype)
    return tl.where(x - k > 0.5, k + 1, tl.where(x - k < -0.5, k - 1, k))


@triton.jit
def times_ln2(k, plus):
    """k log(2) + plus."""
    if k.dtype == tl.float32:
        return k * SINGLE_HIGH + (k * SINGLE_LOW + plus)
    else:
        return k * DOUBLE_HIGH + (k * DOUBLE_LOW + plus)


@triton.jit
def exponential_of(x):
    """m and k with exp(x) = m 2**k; x beyond `far` is taken for that."""
    x = clamp(x, far(x))
    k = nearest(x * INVERSE)
    if x.dtype == tl.float32:
        r = clamp((x - k * SINGLE_HIGH) - k * SINGLE_LOW, tl.full(x.shape, ROOM, x.dtype))
        q = 0.0013937181793153286 + r * 0.00019894912838935852
        q = 0.041666433215141296 + r * (0.008333307690918446 + r * q)
        q = 0.5 + r * (0.1666666716337204 + r * q)
    else:
        r = clamp((x - k * DOUBLE_HIGH) - k * DOUBLE_LOW, tl.full(x.shape, ROOM, x.dtype))
        q = 2.5109404672957823e-08 + r * 2.091767738180507e-09
        q = 2.7557244942221745e-06 + r * (2.7557266175047446e-07 + r * q)
        q = 0.0001984126988339433 + r * (2.4801587331670256e-05 + r * q)
        q = 0.008333333333323584 + r * (0.0013888888888881927 + r * q)
        q = 0.16666666666666674 + r * (0.04166666666666667 + r * q)
        q = 0.5 + r * q
    return 1 + r * (1 + r * q), k


@triton.jit
def logarithm_of(x):
    """l and e with log(x) = l + e log(2), of a normal number: that of 1 + f, from 3/4 to 3/2, as in fdlibm."""
    if x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
        exponent = (bits - 0x3F400000) >> 23
        f = (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1
    else:
        bits = x.to(tl.int64, bitcast=True)
        exponent = (bits - 0x3FE8000000000000) >> 52
        f = (bits - (exponent << 52)).to(tl.float64, bitcast=True) - 1
    s, half = divide(f, 2 + f), 0.5 * f * f
    square = s * s
    if x.dtype == tl.float32:
        q = 0.28532543778419495 + square * 0.23751342296600342
        q = 0.6666666865348816 + square * (0.4000031352043152 + square * q)
    else:
        q = 0.13209708242059462 + square * 0.13609030262858499
        q = 0.18181737626302938 + square * (0.15388867805613718 + square * q)
        q = 0.28571428567275936 + square * (0.2222222304835159 + square * q)
        q = 0.6666666666666666 + square * (0.4000000000000794 + square * q)
    return f - (half - s * (half + square * q)), exponent.to(x.dtype)


@triton.jit
def power_of_two(exponent):
    """For an integer that is not positive; 0 below the normal range, and for NaN."""
    if exponent.dtype == tl.float32:
        normal = exponent >= -126
        bits = (tl.where(normal, exponent, 0.0).to(tl.int32) + 127) << 23
        return tl.where(normal, bits.to(tl.float32, bitcast=True), 0.0)
    else:
        normal = exponent >= -1022
        bits = (tl.where(normal, exponent, 0.0).to(tl.int64) + 1023) << 52
        return tl.where(normal, bits.to(tl.float64, bitcast=True), 0.0)


@triton.jit
def add(state, m, k, x):
    """exp(y) + exp(x) with exp(x) = m 2**k."""
    scale, high, low, largest = state
    new_scale = tl.where(scale > k, scale, k)
    kept = power_of_two(scale - new_scale)
    first, second = high * kept, m * power_of_two(k - new_scale)
    total = first + second
    part = total - first
    error = (first - (total - part)) + (second - part)
    return new_scale, total, low * kept + error, tl.where(x > largest, x, largest)


@triton.jit
def merge(before, after):
    scale, high, low, largest = add(before, after[1], after[0], after[3])
    return scale, high, low + after[2] * power_of_two(after[0] - scale), largest


@triton.jit
def value_of(state):
    """y."""
    scale, high, low, largest = state
    total = high + low
    log, exponent = logarithm_of(tl.where(total > 0, total, 1.0))
    y = tl.where(total == 0, float("-inf"), times_ln2(scale + exponent, log))
    y = tl.where(tl.abs(largest) >= far(largest), largest, y)
    return tl.where(total == total, y, total)
