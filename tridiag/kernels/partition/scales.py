"""One system times powers of 2 that bring its entries together, as `tridiag.kernels.thomas.scales` finds them.

The scaled bands and right side are a copy, which elimination row by row takes for the system meanwhile.
"""

from __future__ import annotations

import math

from numba import types

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.state import bytes_of, cut, limits, size
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import PIECE, stopping_at
from tridiag.kernels.simd.memory import load, set_half_word, set_word, store, word
from tridiag.kernels.thomas.pivot_products import RAISED
from tridiag.kernels.thomas.scales import TURNS

NOTHING = -(2**20)  # the exponent of what is no number, or 0
BANDS = 3


@compiled
def memory_of_scales(zero, n):
    """Bytes of the bands of a scaled system, the exponents of its rows and columns, and a number in passing."""
    return BANDS * n * bytes_of(zero, ()) + (2 * n + 1) * 8


@compiled
def rows_at(zero, plan, scales, i):
    return scales + BANDS * plan.rows * bytes_of(zero, ()) + i * 8


@compiled
def columns_at(zero, plan, scales, i):
    return rows_at(zero, plan, scales, plan.rows + i)


@compiled
def exponent_at(zero, plan, scales, band, i):
    """Where the exponent of an entry lies, until the scaled entry does."""
    return scales + (band * plan.rows + i) * bytes_of(zero, ())


@compiled
def field_of(zero, x, passing):
    """The bits of the exponent of a positive number."""
    store(passing, x)
    return word(passing) >> 52 if bytes_of_real(zero, ()) == 8 else types.int64(load(passing, types.int32(0)) >> 23)


@compiled
def exponent_of(zero, x, passing):
    """That of the size of a number."""
    found, (_, tiny, _, _), bias = size(x), limits(zero), 1023 if bytes_of_real(zero, ()) == 8 else 127
    if not (found > 0 and found < math.inf):
        return NOTHING
    if found < tiny:
        return field_of(zero, zero.real + found * 2.0**RAISED, passing) - bias - RAISED
    return field_of(zero, zero.real + found, passing) - bias


@compiled
def power_of_two(zero, exponent, passing):
    if bytes_of_real(zero, ()) == 8:
        set_word(passing, (exponent + 1023) << 52)
    else:
        set_half_word(passing, types.int32((exponent + 127) << 23))
    return load(passing, zero.real)


@compiled
def shifted(zero, x, exponent, passing):
    """x times a power of 2, in two steps, none of which is out of range."""
    most = 2 * (1022 if bytes_of_real(zero, ()) == 8 else 126)
    exponent = max(-most, min(most, exponent))
    half = exponent >> 1
    return x * power_of_two(zero, half, passing) * power_of_two(zero, exponent - half, passing)


@compiled
def is_wide(zero, plan):
    """Whether the entries of the matrix span more than twice the binary digits of a number."""
    least, most, eps = math.inf, 0.0, limits(zero)[0]
    for i in range(plan.rows):
        if stopping_at(i, PIECE):
            return False
        for band in range(BANDS):
            found = size(cut(zero, plan, band, i))
            if found > 0 and found < math.inf:
                least, most = min(least, found), max(most, found)
    return most * eps * eps > least


@compiled
def of_entry(zero, plan, scales, band, i):
    """The exponent of an entry of the matrix itself; NOTHING outside."""
    if i < 0 or i >= plan.rows:
        return NOTHING
    return types.int64(load(exponent_at(zero, plan, scales, band, i), types.int32(0)))


@compiled
def of_column(zero, plan, scales, i):
    return word(columns_at(zero, plan, scales, i)) if i >= 0 and i < plan.rows else 0


@compiled
def of_row(zero, plan, scales, i):
    return word(rows_at(zero, plan, scales, i)) if i >= 0 and i < plan.rows else 0


@compiled
def along_row(zero, plan, scales, band, i):
    return of_entry(zero, plan, scales, band, i) + of_column(zero, plan, scales, i + band - 1)


@compiled
def along_column(zero, plan, scales, band, i):
    """Of the row that has its entry of a band in column i."""
    row = i + 1 - band
    return of_entry(zero, plan, scales, band, row) + of_row(zero, plan, scales, row)


@compiled
def mean_of(zero, plan, scales, i, along):
    """The mean of the exponents of a row or a column, as an integer."""
    total, count = 0 * i, 0 * i
    for band in range(BANDS):
        x = along(zero, plan, scales, band, i)
        if x > NOTHING // 2:
            total, count = total + x, count + 1
    return (total + count // 2) // max(1, count)


@compiled
def find_scales(zero, plan, scales):
    """The scaled bands, and the exponents of rows and columns."""
    n, passing = plan.rows, columns_at(zero, plan, scales, plan.rows)
    for i in range(n):
        for band in range(BANDS):
            exponent = exponent_of(zero, cut(zero, plan, band, i), passing)
            set_half_word(exponent_at(zero, plan, scales, band, i), types.int32(exponent))
        set_word(columns_at(zero, plan, scales, i), 0)
    for turn in range(TURNS):
        if stopping_at(turn, 1):
            return
        for i in range(n):
            set_word(rows_at(zero, plan, scales, i), -mean_of(zero, plan, scales, i, along_row))
        for i in range(n):
            set_word(columns_at(zero, plan, scales, i), -mean_of(zero, plan, scales, i, along_column))
    for i in range(n):
        most = NOTHING
        for band in range(BANDS):
            most = max(most, along_row(zero, plan, scales, band, i))
        row = -most if most > NOTHING // 2 else 0
        set_word(rows_at(zero, plan, scales, i), row)
        for band in range(BANDS):
            exponent = row + of_column(zero, plan, scales, i + band - 1)
            entry = shifted(zero, cut(zero, plan, band, i), exponent, passing)
            store(exponent_at(zero, plan, scales, band, i), entry)


@compiled
def scale_right(zero, plan, scales, right):
    """A right side as that of the scaled system; the exponent of what it is divided by as well."""
    side, passing, most = bytes_of(zero, ()), columns_at(zero, plan, scales, plan.rows), NOTHING
    for i in range(plan.rows):
        most = max(most, exponent_of(zero, load(right + i * side, zero), passing) + of_row(zero, plan, scales, i))
    most = most if most > NOTHING // 2 else 0
    for i in range(plan.rows):
        exponent = of_row(zero, plan, scales, i) - most
        store(right + i * side, shifted(zero, load(right + i * side, zero), exponent, passing))
    return most


@compiled
def restore(zero, plan, scales, x, divided):
    """The solution of the scaled system as that of the system."""
    side, passing = bytes_of(zero, ()), columns_at(zero, plan, scales, plan.rows)
    for i in range(plan.rows):
        exponent = of_column(zero, plan, scales, i) + divided
        store(x + i * side, shifted(zero, load(x + i * side, zero), exponent, passing))


@compiled
def exchange_bands(plan, bands):
    """Let the system have other bands; those that it had: addresses, steps, and whether rows are taken out."""
    found = (
        (plan.address[P.A], plan.stride[P.A]),
        (plan.address[P.B], plan.stride[P.B]),
        (plan.address[P.C], plan.stride[P.C]),
        (plan.masked, 0),
    )
    for band in range(BANDS):
        plan.address[band] = bands[band][0]
        plan.stride[band] = bands[band][1]
    plan.masked = bands[3][0]
    return found


@compiled
def scaled_bands(zero, plan, scales):
    """Those that are found, in which no row is taken out."""
    side, n = bytes_of(zero, ()), plan.rows
    return (scales, side), (scales + n * side, side), (scales + 2 * n * side, side), (0 * n, 0)
