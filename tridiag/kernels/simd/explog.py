"""Exponentials and logarithms of vectors of lanes, with the power of two apart, by polynomials alone.

exp(x) = m 2**k with m in [0.7, 1.42] for any x: nothing overflows. Errors are below one unit in the last place.
Comparisons are those of the machine's own minimum and maximum, which give the second operand where any is NaN.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from llvmlite import ir

from tridiag.algorithms.logsumexp import DOUBLE as DOUBLE_LN2
from tridiag.algorithms.logsumexp import ROOM, larger
from tridiag.algorithms.logsumexp import SINGLE as SINGLE_LN2
from tridiag.kernels.simd.fused import fused, halves, multiple_less
from tridiag.kernels.simd.processor import multiplies_and_adds
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I32, I64, Code


class Numbers(NamedTuple):
    """What depends on the precision."""

    integer: ir.IntType
    digits: int  # bits of a mantissa
    bias: int
    half_root: int  # the bits of the square root of one half
    ln2: tuple[float, float]  # high and low part
    short_ln2: tuple[float, float]  # the first of so few digits that products with half of a number's are exact
    shorter_ln2: tuple[float, float]  # ... that products with whole numbers below 2 ``limit`` are
    limit: float
    exponential: Sequence[float]  # (exp(r) - 1 - r) / r**2, lowest power first
    logarithm: Sequence[float]  # as in FreeBSD's e_log.c and e_logf.c


DOUBLE = Numbers(
    I64, 52, 1023, 0x3FE6A09E667F3BCD, (0.6931471805599453, 2.3190468138462996e-17),
    (0.6931471675634384, 1.2996506893889889e-08), (DOUBLE_LN2.high, DOUBLE_LN2.low), 2.0**20,
    (0.5000000000000001, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717,
     0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07,
     2.510038549551032e-08),
    (6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
     1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
)  # fmt: skip
SINGLE = Numbers(
    I32, 23, 127, 0x3F3504F3, (0.693147182464599609375, -1.904654323148236017e-09),
    (0.693115234375, 3.1946184945309415e-05), (SINGLE_LN2.high, SINGLE_LN2.low), 2.0**13,
    (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4),
    (0.66666662693, 0.40000972152, 0.28498786688, 0.24279078841),
)  # fmt: skip


def numbers(code: Code) -> Numbers:
    return DOUBLE if code.size_of_real == 8 else SINGLE


def polynomial(code: Code, x: Value, coefficients: Sequence[float]) -> Value:
    """Even and odd powers apart, so that the operations wait for each other half as long."""
    square, sums = x * x, []
    for part in (coefficients[::2], coefficients[1::2]):
        sums.append(code.like(x, part[-1]))
        for c in reversed(part[:-1]):
            sums[-1] = fused(code, sums[-1], square, code.like(x, c))
    return fused(code, sums[1], x, sums[0])


def as_integers(code: Code, x: Value) -> Value:
    return Value(code, code.builder.bitcast(x.llvm, ir.VectorType(numbers(code).integer, x.llvm.type.count)))


def as_reals(code: Code, x: Value) -> Value:
    return Value(code, code.builder.bitcast(x.llvm, ir.VectorType(code.real, x.llvm.type.count)))


def moved(code: Code, x: Value, by: int) -> Value:
    """Integers shifted to the left, or to the right where ``by`` is negative."""
    amount = code.like(x, abs(by)).llvm
    return Value(code, (code.builder.shl if by > 0 else code.builder.lshr)(x.llvm, amount))


class SharedScale:
    """Exponentials and logarithms of ordinary numbers that are held as multiples of one power of two, in each lane.

    ``scale`` is its exponent, a real number without fraction, of a size below ``limit``, as is what is exponentiated;
    results are normal numbers. An integer k is the last bits of 1.5 * 2**digits + k, a number between 2**digits and
    2**(digits + 1): a shift by ``digits`` makes a power of two of it.
    """

    def __init__(self, code: Code, largest: Value, scale: Value) -> None:
        """The scale is the power of two next to the largest exponential, or ``scale`` where that is larger."""
        self.code, self.numbers = code, numbers(code)
        origin = self.numbers.bias + 1.5 * 2.0**self.numbers.digits
        own = fused(code, largest, 1 / math.log(2), code.like(largest, origin)) - origin
        self.scale = code.where(own > scale, own, scale)
        self.shift, self.unit = origin - self.scale, self.numbers.bias + 2.0**self.numbers.digits - self.scale
        self.limit = 2.0 ** (self.numbers.digits - 2) if multiplies_and_adds(code.size_of_real) else self.numbers.limit

    def part(self, code: Code, first: int) -> SharedScale:
        """The same for some lanes: those that ``code`` has, from one on."""
        return self.each(code, lambda x: code.part(x, first, code.lanes))

    def rows(self, count: int) -> SharedScale:
        """The same for rows end to end."""
        code = self.code
        return self.each(code, lambda x: code.shuffle(x, x, [*range(code.lanes)] * count))

    def each(self, code: Code, change: Callable[[Value], Value]) -> SharedScale:
        made = copy.copy(self)
        made.code, made.scale, made.shift, made.unit = code, *map(change, (self.scale, self.shift, self.unit))
        return made

    def exponential(self, x: Value) -> Value:
        """exp(x) 2**-scale; of NaN, NaN."""
        code = self.code
        shifted = fused(code, x, 1 / math.log(2), self.shift)
        r = less_ln2(code, x, shifted - self.shift, True)
        power = as_reals(code, moved(code, as_integers(code, shifted), self.numbers.digits))
        return fused(code, power, less_one(code, r), power)

    def logarithm(self, x: Value) -> Value:
        """log(x 2**scale) for normal numbers x > 0."""
        code, what = self.code, self.numbers
        log, exponent = logarithm(code, x)
        power = (what.bias + what.digits) << what.digits  # of 2**digits
        return plus_ln2(code, log, as_reals(code, exponent | power) - self.unit, True)


def less_ln2(code: Code, x: Value, k: Value, short: bool = False) -> Value:
    """x - k log(2) for the integer k that is next to x / log(2): no digits of x are lost.

    ``short``: x is below the limit of `SharedScale`.
    """
    high, low = numbers(code).ln2
    if multiplies_and_adds(code.size_of_real):
        return fused(code, k, -low, fused(code, k, -high, x))
    if short:
        return multiple_less(x, k, numbers(code).shorter_ln2)
    (upper, lower), (high, low) = halves(code, k), numbers(code).short_ln2
    return ((x - upper * high) - lower * high) - k * low


def plus_ln2(code: Code, x: Value, k: Value, short: bool = False) -> Value:
    """x + k log(2) for an integer k and a small x, rounded about once; ``short``: as of `less_ln2`."""
    high, low = numbers(code).ln2
    if multiplies_and_adds(code.size_of_real):
        return fused(code, k, high, fused(code, k, low, x))
    if short:
        high, low = numbers(code).shorter_ln2
        return k * high + (k * low + x)
    (upper, lower), (high, low) = halves(code, k), numbers(code).short_ln2
    return upper * high + (lower * high + (k * low + x))


def less_one(code: Code, r: Value) -> Value:
    """exp(r) - 1 for abs(r) <= log(2) / 2."""
    return fused(code, r * r, polynomial(code, r, numbers(code).exponential), r)


def mantissa(code: Code, r: Value) -> Value:
    """exp(r) for abs(r) <= log(2) / 2."""
    return less_one(code, r) + 1.0


def logarithm(code: Code, x: Value) -> tuple[Value, Value]:
    """l and e with log(x) = l + (e - bias) log(2), for normal numbers x > 0; e is an integer."""
    what = numbers(code)
    bits = as_integers(code, x) + ((what.bias << what.digits) - what.half_root)
    f = as_reals(code, (bits & ((1 << what.digits) - 1)) + what.half_root) - 1.0
    w = f / (f + 2.0)
    z = w * w
    return fused(code, w * z, polynomial(code, z, what.logarithm), w + w), moved(code, bits, -what.digits)


class Lanes:
    """The operations of `tridiag.algorithms.logsumexp` on rows of lanes, one or several end to end."""

    def __init__(self, code: Code) -> None:
        self.code, self.where, self.size, self.numbers = code, code.where, code.size, numbers(code)
        self.far = 64 / code.eps

        code.fused = False  # where products and sums are one operation, it says so

    def full(self, x: Value, value: float) -> Value:
        return self.code.like(x, value)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        return fused(self.code, x, y, z)

    def clamp(self, x: Value, limit: float) -> Value:
        """x between -limit and limit; NaN stays."""
        high, low = self.full(x, limit), self.full(x, -limit)
        x = self.where(high < x, high, x)
        return self.where(low > x, low, x)

    def power_of_two(self, exponent: Value) -> Value:
        """2**exponent for an integer that is not positive; 0 below the normal range, and for NaN."""
        digits, bias = self.numbers.digits, self.numbers.bias
        shifted = larger(self, exponent + (2.0**digits + bias), self.full(exponent, 2.0**digits))
        return as_reals(self.code, moved(self.code, as_integers(self.code, shifted), digits))

    def reduced(self, x: Value) -> tuple[Value, Value]:
        """x = r + k log(2) with an integer k."""
        k = self.code.call("rint", x * (1 / math.log(2)))
        return less_ln2(self.code, x, k), k

    def exponential(self, x: Value, correction: Value | None = None) -> tuple[Value, Value]:
        """m and k with exp(x + correction) = m 2**k; x beyond ``far`` is taken for that."""
        r, k = self.reduced(self.clamp(x, self.far))
        r = self.clamp(r if correction is None else r + correction, ROOM)
        return mantissa(self.code, r), k

    def logarithm(self, x: Value) -> tuple[Value, Value]:
        """l and e with log(x) = l + e log(2), for normal numbers x > 0."""
        what = self.numbers
        log, exponent = logarithm(self.code, x)
        power = (what.bias + what.digits) << what.digits  # of 2**digits; a conversion would be slow
        return log, as_reals(self.code, exponent | power) - (2.0**what.digits + what.bias)

    def times_ln2(self, k: Value, plus: Value) -> Value:
        """k log(2) + plus, rounded about once."""
        return plus_ln2(self.code, plus, k)
