"""Powers of 2 that bring the entries of matrices together, lane by lane.

Where entries are wide apart, multipliers of rows lose digits to underflow, and pivots are chosen among numbers that
cannot be compared. Systems with such entries whose solution is not as good as is promised are solved once more, with
rows and columns multiplied by powers of 2. Their exponents are the best in the sense of least squares of what is left,
of rows and of columns in turn (Curtis and Reid, On the automatic scaling of matrices for Gaussian elimination, 1972);
last the largest entry of a row comes near 1. Residuals are those of the system as it is given.

Exponents are kept as real numbers; NaN is that of a number that has none.
"""

from __future__ import annotations

import math
from typing import Any

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.rows import COLUMN_SCALES, ROW_SCALES, SWEEPS, UPPER, Rows, planes
from tridiag.kernels.simd.powers import MANTISSA, as_integer
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.pivot_products import RAISED, bits_of, raised, real_of

TURNS = 64  # of rows and of columns


class Exponents:
    """One real number a row of lanes, in a plane of a tile."""

    def __init__(self, code: Code, base: Value, length: Value, plane: int) -> None:
        self.code, self.base = code, base + length * (plane * code.row)

    def __getitem__(self, i: Any) -> Value:
        return self.code.load_as(self.code.vector, self.base + i * self.code.row)

    def store(self, i: Any, x: Value) -> None:
        self.code.store_as(self.base + i * self.code.row, x)


class Scales:
    """The scales of the matrices of a tile."""

    def __init__(self, code: Code, base: Value, length: Value) -> None:
        self.code, self.last = code, length - 1
        self.rows, self.columns = (Exponents(code, base, length, k) for k in (ROW_SCALES, COLUMN_SCALES))

    def before(self, i: Value) -> Value:
        return self.code.pick(i == 0, self.last, i - 1)

    def after(self, i: Value) -> Value:
        return self.code.pick(i == self.last, self.code.integer(0), i + 1)

    def of_row(self, i: Value) -> tuple[Value, Value, Value]:
        """Of the entries of a row."""
        own = self.rows[i]
        return own + self.columns[self.before(i)], own + self.columns[i], own + self.columns[self.after(i)]


def number(code: Code, x: float) -> Value:
    return Value(code, code.constant(code.vector, x))


def exponent_of(code: Code, x: Any) -> Value:
    """That of the size of a number."""
    digits, size = MANTISSA[code.size_of_real], code.size(x)
    bias = 1023 if code.size_of_real == 8 else 127
    small = size < code.tiny
    field = code.shift(bits_of(code, code.where(small, raised(code, size), size)), -digits)
    found = code.to_real(field) - code.where(small, number(code, bias + RAISED), number(code, bias))
    return code.where((size > 0) & (size < math.inf), found, number(code, math.nan))


def shifted(code: Code, x: Any, exponent: Value) -> Any:
    """x times a power of 2, in two steps, none of which is out of range."""
    digits, bias = (52, 1023) if code.size_of_real == 8 else (23, 127)
    most = number(code, 2 * (bias - 1))
    exponent = code.where(exponent > most, most, code.where(exponent < -most, -most, exponent))
    half = code.call("rint", exponent * 0.5)
    for part in (half, exponent - half):
        power = as_integer(code, part) + bias
        factor = real_of(code, Value(code, code.builder.shl(power.llvm, code.constant(power.llvm.type, digits))))
        x = Complex(x.real * factor, x.imag * factor) if isinstance(x, Complex) else x * factor
    return x


def mean(code: Code, exponents: list[Value]) -> Value:
    """The mean of those that are numbers, as an integer."""
    total, count = code.real_zero(), code.real_zero()
    for x in exponents:
        total = total + code.where(x == x, x, code.real_zero())
        count = count + code.to_real(x == x)
    return code.call("rint", total / code.maximum(count, 1.0))


def larger(code: Code, x: Value, y: Value) -> Value:
    """The larger one of two, where y is a number."""
    return code.where(y > x, y, x)


def wide(code: Code, base: Value, length: Value, errors: Value, lanes: Value) -> Value:
    """Of the given lanes those to be solved with scales; ``errors`` becomes what their solutions are to be better than.

    Their entries span more than twice the binary digits of a number. Solutions in other lanes stay: none is better
    than an error of 0. What is no number counts as a solution with half of the digits.
    """
    bands = planes(code, base, 3, length)

    def row(i: Value, state: Any) -> Any:
        least, most = state
        for band in bands:
            size = code.size(band[i])
            known = (size > 0) & (size < math.inf)
            least = code.where(known & (size < least), size, least)
            most = code.where(known & (size > most), size, most)
        return least, most

    least, most = code.fori(0, length, row, (number(code, math.inf), code.real_zero()))
    tried = code.mask(lanes) & (most * code.eps * code.eps > least)
    error = code.load_as(code.vector, errors)
    bar = code.where(error < 1 / code.eps, error, number(code, math.sqrt(code.eps)))
    code.store_as(errors, code.where(tried, bar, code.real_zero()))
    return code.bits(tried)


def find_scales(code: Code, base: Value, length: Value) -> None:
    """The scales of the matrices of a tile, which then are multiplied by them; their factors are written over."""
    bands, scales = planes(code, base, 3, length), Scales(code, base, length)
    lower, diagonal, upper = exponents = [Exponents(code, base, length, UPPER + k) for k in range(3)]

    def begin(i: Value, state: Any) -> Any:
        for band, found in zip(bands, exponents, strict=True):
            found.store(i, exponent_of(code, band[i]))
        scales.columns.store(i, code.real_zero())
        return state

    def along_row(i: Value) -> list[Value]:
        around = scales.before(i), i, scales.after(i)
        return [x[i] + scales.columns[k] for x, k in zip(exponents, around, strict=True)]

    def along_column(i: Value) -> list[Value]:
        around = (upper, scales.before(i)), (diagonal, i), (lower, scales.after(i))
        return [x[k] + scales.rows[k] for x, k in around]

    def balance_row(i: Value, state: Any) -> Any:
        scales.rows.store(i, -mean(code, along_row(i)))
        return state

    def balance_column(i: Value, state: Any) -> Any:
        scales.columns.store(i, -mean(code, along_column(i)))
        return state

    def turn(_: Value, state: Any) -> Any:
        code.fori(0, length, balance_row)
        code.fori(0, length, balance_column)
        return state

    def multiply(i: Value, state: Any) -> Any:
        most = number(code, -math.inf)
        for x in along_row(i):
            most = larger(code, most, x)
        scales.rows.store(i, code.where(most > -math.inf, -most, code.real_zero()))
        for band, exponent in zip(bands, scales.of_row(i), strict=True):
            band.store(i, shifted(code, band[i], exponent))
        return state

    code.fori(0, length, begin)
    code.fori(0, TURNS, turn)
    code.fori(0, length, multiply)


def scale_right(code: Code, base: Value, length: Value, right: Value, divided: Value) -> None:
    """A right side as that of the scaled matrices; to ``divided`` the exponents of what it is divided by as well."""
    scales, y = Scales(code, base, length), Rows(code, right, code.row)

    def measure(i: Value, state: Any) -> Any:
        return (larger(code, state[0], exponent_of(code, y[i]) + scales.rows[i]),)

    def scale(i: Value, state: Any) -> Any:
        y.store(i, shifted(code, y[i], scales.rows[i] - most))
        return state

    (most,) = code.fori(0, length, measure, (number(code, -math.inf),))
    most = code.where(most > -math.inf, most, code.real_zero())
    code.store_as(divided, most)
    code.fori(0, length, scale)


def restore(code: Code, base: Value, length: Value, solution: Value, divided: Value) -> None:
    """The solution of the scaled matrices as that of the systems."""
    scales, x = Scales(code, base, length), Rows(code, solution, code.row)
    most = code.load_as(code.vector, divided)

    def row(i: Value, state: Any) -> Any:
        x.store(i, shifted(code, x[i], scales.columns[i] + most))
        return state

    code.fori(0, length, row)


def not_solved(code: Code, errors: Value) -> Value:
    """The lanes whose solution is not as good as is promised."""
    return code.bits(~(code.load_as(code.vector, errors) <= el.REFINE_ABOVE * code.eps))


NOT_SOLVED, WIDE, FIND_SCALES, SCALE_RIGHT, RESTORE = (
    SWEEPS.add("not_solved", not_solved),
    SWEEPS.add("wide", wide),
    SWEEPS.add("find_scales", find_scales),
    SWEEPS.add("scale_right", scale_right),
    SWEEPS.add("restore", restore),
)
