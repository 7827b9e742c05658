"""Positive numbers as a mantissa and an exponent of its own, m 2**e, both in lanes; e is an integer as wide as m.

Sums of such numbers neither overflow nor underflow, so exponentials are added without a logarithm. All that is done to
exponents is integer arithmetic, which costs less than that of reals, here also less than the instructions of AVX-512
that are made for it: scaling is an addition to the bits of the mantissa. It does not keep NaN: who needs that looks at
the arguments of the exponentials.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from tridiag.kernels.simd.fused import remainder
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

# by the bytes of a real
DEGREE = {4: 5, 8: 11}  # of the polynomial for 2**f: an error of 1 ulp
MANTISSA = {4: 23, 8: 52}  # bits
LEAST = {
    4: 100,
    8: 900,
}  # powers of 2 by which a term is at most smaller than its sum
HIGHEST = {4: 2**28, 8: 2**50}  # log2 of a product of exponentials at most
LOWEST = {4: 5 * 2**26, 8: 5 * 2**48}  # minus log2 of the smallest exponential: what is smaller counts as that
NOTHING = {4: -(2**29), 8: -(2**59)}  # the exponent of what counts as zero


class Power(NamedTuple):
    """m 2**e."""

    m: Value
    e: Value


def constant(code: Code, number: float) -> Value:
    return Value(code, code.constant(code.vector, number))


def integers(code: Code) -> ir.VectorType:
    return ir.VectorType(ir.IntType(8 * code.size_of_real), code.lanes)


def integer(code: Code, number: int) -> Value:
    """An integer in all lanes."""
    return Value(code, code.constant(integers(code), number))


def nothing(code: Code) -> Power:
    return Power(constant(code, 1.0), integer(code, NOTHING[code.size_of_real]))


def times(x: Power, y: Power) -> Power:
    return Power(x.m * y.m, x.e + y.e)


def largest(code: Code, first: Value, *others: Value) -> Value:
    """The maximum, in one instruction each; of reals the last one where that is NaN."""
    for x in others:
        first = code.where(first > x, first, x)
    return first


@functools.cache
def coefficients(degree: int) -> list[float]:
    """2**f for -1/2 <= f <= 1/2."""
    found = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return [float(c) for c in found.convert(kind=np.polynomial.Polynomial).coef]


class Exponential:
    """2**(x factor) where x is not NaN and the product at most HIGHEST / 2; the mantissa lies around 1."""

    def __init__(self, code: Code, factor: Value) -> None:
        self.code, self.factor = code, factor
        self.lowest = -float(LOWEST[code.size_of_real]) / factor
        self.coefficients = [constant(code, c) for c in coefficients(DEGREE[code.size_of_real])]

    def __call__(self, x: Value) -> Power:
        """The product is not rounded; in single precision it may have more digits than a number."""
        code, x = self.code, largest(self.code, self.lowest, x)
        whole = code.call("rint", code.product(x, self.factor))
        rest, e = remainder(code, x, self.factor, -whole), as_integer(code, whole)
        if code.size_of_real == 4:
            more = code.call("rint", rest)
            rest, e = rest - more, e + as_integer(code, more)
        *lower, value = self.coefficients
        for c in reversed(lower):
            value = value * rest + c
        return Power(value, e)


def as_integer(code: Code, x: Value) -> Value:
    """A whole number as an integer."""
    if code.size_of_real == 4:
        return Value(code, code.builder.fptosi(x.llvm, integers(code)))
    shift = constant(code, 1.5 * 2.0 ** MANTISSA[8])  # older processors have no instruction for it
    return bits(code, x + shift) - bits(code, shift)


def scale(code: Code, m: Value, e: Value) -> Value:
    """m 2**e for m around 1 and e <= 0."""
    size = code.size_of_real
    least = largest(code, e, integer(code, -LEAST[size]))
    return real(code, bits(code, m) + shift_left(code, least, MANTISSA[size]))


def normal(code: Code, m: Value, e: Value) -> Power:
    """The same number with 1 <= m < 2."""
    width, raw = MANTISSA[code.size_of_real], bits(code, m)
    bias = 2 ** (8 * code.size_of_real - 2 - width) - 1
    exponent = Value(code, code.builder.lshr(raw.llvm, integer(code, width).llvm))
    return Power(real(code, raw & (2**width - 1) | (bias << width)), exponent + (e - bias))


def shift_left(code: Code, x: Value, by: int) -> Value:
    return Value(code, code.builder.shl(x.llvm, integer(code, by).llvm))


def bits(code: Code, x: Value) -> Value:
    return Value(code, code.builder.bitcast(x.llvm, integers(code)))


def real(code: Code, x: Value) -> Value:
    return Value(code, code.builder.bitcast(x.llvm, code.vector))
