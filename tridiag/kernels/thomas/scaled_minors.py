"""Determinants of matrices whose entries lie anywhere in the range: leading minors, all numbers with exponents apart.

D[i] = b[i] D[i-1] - a[i] c[i-1] D[i-2] (Golub and Van Loan, Matrix Computations, section 8.4): of a matrix whose
entries differ from the given ones in their last bits, whatever their sizes, and 0 where zeros make it so. That of a
cyclic matrix is D[n] less the same without the first and the last row times their coupling, less (-1)^n times the
product of all a and that of all c (Muir, A treatise on the theory of determinants, 1882). Slower than elimination:
for matrices of which that loses digits to underflow, or overflows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.algorithms import minors
from tridiag.kernels.access.layouts import views_of
from tridiag.kernels.access.rows import SWEEPS, UPPER, planes
from tridiag.kernels.simd.powers import MANTISSA
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, Code
from tridiag.kernels.thomas.pivot_products import (
    EXPONENTS,
    PRODUCT,
    RAISED,
    ROOM,
    WORDS,
    bits_of,
    largest,
    raised,
    real_of,
    scaled,
    sign_and_logarithm,
)

# what lies in memory between two calls: D of the last row is PRODUCT, and of the row before BEFORE, each with int64
# exponents; c of the last row; and the lanes all of whose entries are finite, in the first one of WORDS
BEFORE, ABOVE, EXPONENTS_BEFORE, ROOM_OF_MINORS = 0, 1, ROOM, ROOM + 2
PIVOT_ROW = 5  # planes of a pivot row of a cyclic matrix, behind UPPER
NOTHING = -(2**40)  # the exponent of 0


class Scaled(NamedTuple):
    """mantissa 2**exponent, the mantissa of size 1 to 2, or 0."""

    mantissa: Any
    exponent: Value


def words_of(code: Code) -> ir.VectorType:
    return ir.VectorType(I64, code.lanes)


def exponents(code: Code, number: int) -> Value:
    return Value(code, code.constant(words_of(code), number))


def split(code: Code, x: Any, exponent: Value | int = 0) -> Scaled:
    """x 2**exponent, of a finite x."""
    digits, (bias, most) = MANTISSA[code.size_of_real], (1023, 2047) if code.size_of_real == 8 else (127, 255)
    size = largest(code, x)
    there, small = size > 0, size < code.tiny
    x, size = (code.where(small, raised(code, y), y) for y in (x, size))
    power = code.shift(bits_of(code, size), -digits) - bias
    mantissa = scaled(code, x, power, digits, bias, most)
    wide = power if code.size_of_real == 8 else Value(code, code.builder.sext(power.llvm, words_of(code)))
    wide = wide + exponent
    wide = code.where(small, wide - RAISED, wide)
    return Scaled(code.where(there, mantissa, code.zero()), code.where(there, wide, exponents(code, NOTHING)))


def times(code: Code, x: Scaled, y: Scaled) -> Scaled:
    return split(code, x.mantissa * y.mantissa, x.exponent + y.exponent)


def minus(code: Code, x: Scaled, y: Scaled) -> Scaled:
    """x - y; what is below all digits of the other counts for nothing."""
    bias = 1023 if code.size_of_real == 8 else 127
    top = code.where(x.exponent > y.exponent, x.exponent, y.exponent)

    def shifted(x: Scaled) -> Any:
        by, least = x.exponent - top, exponents(code, 1 - bias)
        by = code.where(by > least, by, least) + bias
        if code.size_of_real == 4:
            by = Value(code, code.builder.trunc(by.llvm, bits_of(code, code.real_zero()).llvm.type))
        power = real_of(code, code.shift(by, MANTISSA[code.size_of_real]))
        return times_real(x.mantissa, power)

    return split(code, shifted(x) - shifted(y), top)


def times_real(x: Any, y: Value) -> Any:
    return type(x)(x.real * y, x.imag * y) if hasattr(x, "real") else x * y


class Minors(NamedTuple):
    """D of the last row and of the one before, c of the last row, and the lanes all of whose entries are finite."""

    last: Scaled
    before: Scaled
    above: Any
    finite: Value

    @staticmethod
    def start(code: Code) -> Minors:
        one, nothing = Scaled(code.one(), exponents(code, 0)), Scaled(code.zero(), exponents(code, NOTHING))
        return Minors(one, nothing, code.zero(), code.all_lanes())

    def next(self, code: Code, a: Any, b: Any, c: Any) -> Minors:
        finite = self.finite
        for x in (a, b, c):
            finite = finite & (largest(code, x) < math.inf)
        coupling = times(code, split(code, a), split(code, self.above))
        terms = times(code, split(code, b), self.last), times(code, coupling, self.before)
        return Minors(minus(code, *terms), self.last, c, finite)


class Kept:
    """Minors in some memory."""

    def __init__(self, code: Code, memory: Value) -> None:
        self.code, self.numbers = code, [memory + k * code.row for k in (PRODUCT, BEFORE, ABOVE)]
        self.exponents = [memory + k * code.row for k in (EXPONENTS, EXPONENTS_BEFORE)]
        self.finite = memory + WORDS * code.row

    def load(self) -> Minors:
        code = self.code
        last, before, above = map(code.load, self.numbers)
        powers = [code.load_as(words_of(code), place) for place in self.exponents]
        finite = code.mask(code.word(self.finite))
        return Minors(Scaled(last, powers[0]), Scaled(before, powers[1]), above, finite)

    def store(self, state: Minors) -> None:
        code = self.code
        for place, x in zip(self.numbers, (state.last.mantissa, state.before.mantissa, state.above), strict=True):
            code.store(place, x)
        for place, power in zip(self.exponents, (state.last.exponent, state.before.exponent), strict=True):
            code.store_as(place, power)
        code.store_as(self.finite, code.bits(state.finite))


def begin(code: Code, memory: Value) -> None:
    Kept(code, memory).store(Minors.start(code))


def go_on(code: Code, *words: Value) -> None:
    """Rows of a view of three bands."""
    *layout, memory, count = words
    code.fused = False  # two products that are one number leave 0
    views, kept = views_of(code, layout, 3), Kept(code, memory)

    def row(i: Value, state: Minors) -> Minors:
        return state.next(code, *(band[i] for band in views.bands))

    kept.store(code.fori(0, count, row, kept.load()))


def close(code: Code, memory: Value) -> Value:
    """What `pivot_products.close` leaves, and the lanes whose determinant is 0."""
    last = Kept(code, memory).load().last
    singular = last.mantissa == 0
    if code.parts == 1:
        sign, total = sign_and_logarithm(code, last.mantissa, last.exponent)
        code.store(memory, code.where(singular, code.splat(-math.inf), total))
        code.store(memory + PRODUCT * code.row, code.where(singular, code.zero(), sign))
    return code.bits(singular)


def close_cyclic(code: Code, tile: Value, rows: Value, memory: Value) -> Value:
    """The same of the matrices in a tile, all rows of which are at hand."""
    code.fused = False
    bands, kept = planes(code, tile, 3, rows), Kept(code, memory)
    one, first, last = Scaled(code.one(), exponents(code, 0)), code.integer(0), rows - 1

    def row(i: Value, state: Minors) -> Minors:
        return state.next(code, *(band[i] for band in bands))

    def without_corner(i: Value, state: Minors) -> Minors:
        cut = code.everywhere(i == first)
        a, b, c = (band[i] for band in bands)
        return state.next(code, code.where(cut, code.zero(), a), b, c)

    def along(i: Value, state: Any) -> Any:
        return tuple(times(code, x, split(code, bands[k][i])) for x, k in zip(state, (0, 2), strict=True))

    every = code.fori(first, rows, without_corner, Minors.start(code))
    inner = code.fori(first + 1, last, row, Minors.start(code))
    corner = times(code, split(code, bands[0][first]), split(code, bands[2][last]))
    found = minus(code, every.last, times(code, corner, inner.last))
    odd = code.everywhere((rows & 1) == 1)
    for x in code.fori(first, rows, along, (one, one)):
        found = minus(code, found, Scaled(code.where(odd, -x.mantissa, x.mantissa), x.exponent))
    kept.store(every._replace(last=found))
    return close(code, memory)


def cyclic_lost(code: Code, tile: Value, rows: Value) -> Value:
    """The lanes of an eliminated tile where digits may be lost to the range of numbers: see `minors`."""
    bands = planes(code, tile, 3, rows)
    pivots = planes(code, tile + rows * (UPPER * code.row), PIVOT_ROW, rows)

    def row(i: Value, state: Any) -> Any:
        least, most = state
        for band in bands:
            size = largest(code, band[i])
            least = code.where((size > 0) & (size < least), size, least)
            most = code.where((size < math.inf) & (size > most), size, most)
        return least, most

    def column(i: Value, lowest: Any) -> Any:
        size = code.real_zero()
        for plane in pivots:
            size = code.maximum(size, largest(code, plane[i]))
        return (code.where((size > 0) & (size < lowest[0]), size, lowest[0]),)

    infinity = Value(code, code.constant(code.vector, math.inf))
    least, most = code.fori(0, rows, row, (infinity, code.real_zero()))
    (lowest,) = code.fori(1, rows - 1, column, (infinity,))
    return code.bits(minors.beyond(code, least, most) | minors.sunk(code, lowest, most))


BEGIN_SCALED, GO_ON_SCALED, CLOSE_SCALED, CLOSE_CYCLIC, CYCLIC_LOST = (
    SWEEPS.add("begin_scaled_minors", begin),
    SWEEPS.add("go_on_with_scaled_minors", go_on),
    SWEEPS.add("close_scaled_minors", close),
    SWEEPS.add("close_cyclic_minors", close_cyclic),
    SWEEPS.add("cyclic_lost", cyclic_lost),
)
