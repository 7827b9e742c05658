"""Powers of 2 that bring the entries of matrices together, in any eager library.

Where entries are wide apart, multipliers of rows lose digits to underflow, and pivots are chosen among numbers that
cannot be compared. Exponents of rows and of columns in turn are the best in the sense of least squares of what is left
(Curtis and Reid, On the automatic scaling of matrices for Gaussian elimination, 1972); last the largest entry of a row
comes near 1.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from tridiag.algorithms.matrix_rows import shift
from tridiag.algorithms.scaled import exponent_of, larger_part, times_power
from tridiag.problems.forms import Form

Array = Any
TURNS = 64  # of rows and of columns
NOTHING = -(2.0**20)  # below all exponents


class Scales(NamedTuple):
    """The exponents of rows and of columns, and the scaled bands."""

    rows: Array
    columns: Array
    bands: tuple[Array, Array, Array]


def exponents_of(ops: Any, x: Array) -> tuple[Array, Array]:
    """Those of numbers, and where there are any."""
    size = larger_part(ops, x)
    return exponent_of(ops, size), (size > 0) & (size < math.inf)


def are_wide(ops: Any, bands: tuple[Array, ...], axis: int) -> Array:
    """Where the entries of a matrix span more than twice the binary digits of a number."""
    digits = -round(math.log2(ops.limits(bands[1].real)[0]))

    def largest(sign: float) -> Array:
        """The largest exponent of a matrix, or minus the smallest one."""
        of_bands = []
        for exponents, there in map(functools.partial(exponents_of, ops), bands):
            of_bands.append(ops.maximum(ops.where(there, sign * exponents, ops.zero(exponents) + NOTHING), axis))
        return functools.reduce(ops.larger, of_bands)

    return largest(1.0) + largest(-1.0) > 2 * digits


def find(ops: Any, bands: tuple[Array, Array, Array], form: Form) -> Scales:
    """``bands`` as `tridiag.algorithms.matrix_rows.bands` gives them, each of the whole shape."""
    found = [exponents_of(ops, band) for band in bands]
    columns = ops.zero(found[1][0])

    def moved(x: Array, by: int) -> Array:
        return shift(ops, x, form.axis, by, True)

    def along_rows(columns: Array) -> list[tuple[Array, Array]]:
        beside = moved(columns, 1), columns, moved(columns, -1)
        return [(x + k, there) for (x, there), k in zip(found, beside, strict=True)]

    def along_columns(rows: Array) -> list[tuple[Array, Array]]:
        lower, diagonal, upper = ((x + rows, there) for x, there in found)
        return [(moved(lower[0], -1), moved(lower[1], -1)), diagonal, (moved(upper[0], 1), moved(upper[1], 1))]

    def mean(exponents: list[tuple[Array, Array]]) -> Array:
        zero = ops.zero(columns)
        total = sum((ops.where(there, x, zero) for x, there in exponents), zero)
        count = sum((ops.where(there, zero + 1, zero) for _, there in exponents), zero)
        return ops.rint(total / ops.larger(count, zero + 1))

    for _ in range(TURNS):
        rows = -mean(along_rows(columns))
        columns = -mean(along_columns(rows))
    most = functools.reduce(
        ops.larger, (ops.where(there, x, ops.zero(x) + NOTHING) for x, there in along_rows(columns))
    )
    rows = ops.where(most > NOTHING, -most, ops.zero(most))
    lower, diagonal, upper = bands
    scaled = (
        times_power(ops, lower, rows + moved(columns, 1)),
        times_power(ops, diagonal, rows + columns),
        times_power(ops, upper, rows + moved(columns, -1)),
    )
    return Scales(rows, columns, scaled)


def scaled_right(ops: Any, scales: Scales, d: Array, axis: int) -> tuple[Array, Array]:
    """A right side as that of the scaled matrices, and the exponents of what it is divided by as well."""
    exponents, there = exponents_of(ops, d)
    found = ops.where(there, exponents + scales.rows, ops.zero(exponents + scales.rows) + NOTHING)
    most = ops.unsqueeze(ops.maximum(found, axis), axis)
    most = ops.where(most > NOTHING, most, ops.zero(most))
    return times_power(ops, d, scales.rows - most), most
