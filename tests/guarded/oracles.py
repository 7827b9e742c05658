"""What results are compared with: definitions, followed term by term, and how far rounding may lead away from them.

Bounds are running error bounds: beside every value goes the sum of the absolute values of its terms, and the sum of
those over all operations that a term has been through. So a value where nothing cancels is held to some units in its
last place, and one where all cancels to that of what cancelled. None of it is taken from the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}
LEAST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}  # the smallest positive number
HUGE = {"float32": 2.0**127, "float64": 2.0**1023}
REAL = {"complex64": "float32", "complex128": "float64", "float16": "float32", "bfloat16": "float32"}
WIDER: dict[str, Any] = {"float32": (np.float64, np.complex128), "float64": (np.longdouble, np.clongdouble)}
Array = Any


def real_of(dtype: Any) -> str:
    """The precision in which a dtype is computed."""
    name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
    return REAL.get(name, name)


# ------------------------------------------------------------------------------------------------- systems, rows last


def bands(a: Array, b: Array, c: Array, keep: Array, periodic: bool, transpose: bool) -> tuple[Array, Array, Array]:
    """What multiplies x[i-1], x[i], x[i+1] in row i; exact zeros where nothing does, which then is never read."""
    n = b.shape[-1]
    if transpose:
        a, c = np.roll(c, 1, -1), np.roll(a, -1, -1)
    inner = np.ones((2, n), bool)
    if not periodic:
        inner[0, 0] = inner[1, -1] = False
    below = np.where(inner[0] & keep & np.roll(keep, 1, -1), a, 0)
    above = np.where(inner[1] & keep & np.roll(keep, -1, -1), c, 0)
    return below, np.where(keep, b, 1), above


def product(matrix: tuple[Array, Array, Array], x: Array) -> tuple[Array, Array]:
    """A x, and |A| |x|; a coupling that is zero multiplies nothing."""
    total, size = 0, 0
    for entry, by in zip(matrix, (1, 0, -1), strict=True):
        term = np.where(entry == 0, 0, entry * np.roll(x, by, -1))
        total, size = total + term, size + abs(term)
    return total, size


def backward_errors(x: Array, matrix: tuple[Array, Array, Array], d: Array) -> tuple[Array, Array]:
    """Of every system the componentwise backward error, and the normwise one, in eps; as in LAPACK's xGERFS, what
    rounding to subnormal numbers can reach is kept away from zero. What was rounded to half precision, once, is given
    half a unit in the last place."""
    real, given = real_of(x.dtype), x.dtype.name
    wide = WIDER[real][np.iscomplexobj(x)]
    matrix, d, x = tuple(v.astype(WIDER[real][np.iscomplexobj(v)]) for v in matrix), d.astype(wide), x.astype(wide)
    found, size = product(matrix, x)
    residual, floor = abs(d - found), 4 * TINY[real] / EPS[real]
    if given in LEAST:
        rounded = 0.501 * np.maximum(abs(x) * EPS[given], LEAST[given])
        residual = np.maximum(residual - product(tuple(map(abs, matrix)), rounded)[1], 0)
    scale = size + abs(d)
    norm = sum(map(abs, matrix)).max(-1) * abs(x).max(-1) + abs(d).max(-1)
    return (residual / np.maximum(scale, floor)).max(-1) / EPS[real], residual.max(-1) / np.maximum(norm, floor) / EPS[
        real
    ]


@njit(cache=True)
def gauss(below, diagonal, above, d):  # type: ignore[no-untyped-def]
    """The solution of one system that is not periodic, in the precision of its arrays, with pivoting as xGTSV.

    NaN where a pivot is 0: Numba's division of complex numbers raises.
    """
    n = len(d)
    b, c, second, x = diagonal.copy(), above.copy(), np.zeros_like(d), d.copy()
    for i in range(n - 1):
        low, next_b, next_c, next_x = below[i + 1], b[i + 1], c[i + 1], x[i + 1]
        if abs(low) > abs(b[i]):
            low, b[i] = b[i], low
            next_b, c[i] = c[i], next_b
            next_c, second[i] = second[i], next_c
            next_x, x[i] = x[i], next_x
        if b[i] == 0:
            return np.full_like(d, np.nan)
        factor = low / b[i]
        b[i + 1], c[i + 1], x[i + 1] = next_b - factor * c[i], next_c - factor * second[i], next_x - factor * x[i]
    if b[n - 1] == 0:
        return np.full_like(d, np.nan)
    for i in range(n - 1, -1, -1):
        rest = x[i]
        if i < n - 1:
            rest -= c[i] * x[i + 1]
        if i < n - 2:
            rest -= second[i] * x[i + 2]
        x[i] = rest / b[i]
    return x


@njit(cache=True)
def determinant(below, diagonal, above):  # type: ignore[no-untyped-def]
    """The determinant of one matrix that is not periodic, scaled; the same of absolute values; the logarithm of the
    scale. By the recurrence of its leading minors."""
    one, two, size_one, size_two, scale = diagonal[0] * 1.0, diagonal[0] * 0.0 + 1.0, abs(diagonal[0]), 1.0, 0.0
    for i in range(1, len(diagonal)):
        coupled = below[i] * above[i - 1]
        one, two = diagonal[i] * one - coupled * two, one
        size_one, size_two = abs(diagonal[i]) * size_one + abs(coupled) * size_two, size_one
        factor = max(size_one, size_two)
        if factor > 0:
            one, two, size_one, size_two = one / factor, two / factor, size_one / factor, size_two / factor
            scale += np.log(factor)
    return one, size_one, scale


# ---------------------------------------------------------------------------------------------------- recurrences


@njit(cache=True)
def recurrence(coefficients, x, init, given):  # type: ignore[no-untyped-def]
    """y, the sums of the absolute values of their terms, and those over all operations that terms have been through.

    ``coefficients`` (count, n, order), ``x`` (count, n), ``init`` (count, order), the latest value first.
    """
    count, n, order = coefficients.shape
    y, size, path = np.empty_like(x), np.empty(x.shape), np.empty(x.shape)
    for s in range(count):
        for t in range(n):
            value, terms, been = x[s, t], abs(x[s, t]), 0.0
            for k in range(order):
                at = t - 1 - k
                if at >= 0:
                    value += coefficients[s, t, k] * y[s, at]
                    terms += abs(coefficients[s, t, k]) * size[s, at]
                    been += abs(coefficients[s, t, k]) * path[s, at]
                elif given:
                    value += coefficients[s, t, k] * init[s, -1 - at]
                    terms += abs(coefficients[s, t, k]) * abs(init[s, -1 - at])
            y[s, t], size[s, t], path[s, t] = value, terms, been + (1 + order) * terms
    return y, size, path


@njit(cache=True)
def log_recurrence(log_a, x, init, given):  # type: ignore[no-untyped-def]
    """y[t] = logaddexp(log_a[t] + y[t-1], x[t]), and what rounding of all steps, in units of eps, may do to it."""
    count, n = x.shape
    y, bound = np.empty_like(x), np.empty(x.shape)
    for s in range(count):
        before, error, present = init[s], 0.0, given
        for t in range(n):
            term, value = x[s, t], x[s, t]
            if present:
                moved = log_a[s, t] + before
                if np.isnan(moved) or np.isnan(term):
                    value = np.nan
                elif moved == -np.inf or term == np.inf:
                    value, error = term, 0.0
                elif term == -np.inf or moved == np.inf:
                    value = moved
                    error += abs(log_a[s, t]) + abs(moved)
                else:
                    top, low = max(moved, term), min(moved, term)
                    value = top + np.log1p(np.exp(low - top))
                    weight = np.exp(moved - value)
                    error = weight * (error + abs(log_a[s, t]) + abs(moved))
            y[s, t], bound[s, t] = value, error
            before, present = value, True
    return y, bound


@njit(cache=True)
def matrix_recurrence(matrices, x, init, given):  # type: ignore[no-untyped-def]
    """The same as `recurrence` of matrices (count, n, m, m), ``x`` (count, n, m), ``init`` (count, m)."""
    count, n, m = x.shape
    y, size, path = np.empty_like(x), np.empty(x.shape), np.empty(x.shape)
    for s in range(count):
        for t in range(n):
            for i in range(m):
                value, terms, been = x[s, t, i], abs(x[s, t, i]), 0.0
                for j in range(m):
                    a = matrices[s, t, i, j]
                    if t > 0:
                        value += a * y[s, t - 1, j]
                        terms += abs(a) * size[s, t - 1, j]
                        been += abs(a) * path[s, t - 1, j]
                    elif given:
                        value += a * init[s, j]
                        terms += abs(a) * abs(init[s, j])
                y[s, t, i], size[s, t, i], path[s, t, i] = value, terms, been + (1 + m) * terms
    return y, size, path


# ------------------------------------------------------------------------------------------------------- alignments


@njit(cache=True)
def add(x, y):  # type: ignore[no-untyped-def]
    """logaddexp."""
    if x == -np.inf or y == np.inf or np.isnan(y):
        return y
    if y == -np.inf or x == np.inf or np.isnan(x):
        return x
    top, low = max(x, y), min(x, y)
    return top + np.log1p(np.exp(low - top))


@njit(cache=True)
def align(scores, rows, columns, gap, gap_open, temperature):  # type: ignore[no-untyped-def]
    """The smooth score of one pair, over temperature, cell by cell after Gotoh: of alignments that end with a match, or
    with a gap in either sequence; a gap may follow a match or a gap in the other one."""
    nothing = -np.inf
    total, opened, longer = nothing, gap_open / temperature, gap / temperature
    before = np.full((3, columns + 1), nothing)
    for i in range(1, rows + 1):
        here = np.full((3, columns + 1), nothing)
        for j in range(1, columns + 1):
            s = scores[i - 1, j - 1] / temperature
            here[0, j] = s + add(0.0, add(add(before[0, j - 1], before[1, j - 1]), before[2, j - 1]))
            here[1, j] = add(add(before[0, j], before[2, j]) + opened, before[1, j] + longer)
            here[2, j] = add(add(here[0, j - 1], here[1, j - 1]) + opened, here[2, j - 1] + longer)
            for k in range(3):
                total = add(total, here[k, j])
        before = here
    return total
