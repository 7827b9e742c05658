"""Covariances of one series as sums of w c c^T over columns c, number by number: columns lie as rows of k numbers.

As in `tridiag.algorithms.kalman_columns` and `tridiag.algorithms.kalman_diffuse`.
"""

from __future__ import annotations

import numpy as np

from tridiag.algorithms.kalman_diffuse import NOISE
from tridiag.algorithms.kalman_rotations import ROUNDING
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.many_states.roots import finite, inverse, negligible
from tridiag.kernels.many_states.steps import number, put_number
from tridiag.kernels.simd.compiled import compiled

EPS_SINGLE, EPS_DOUBLE = (float(np.finfo(kind).eps) for kind in (np.float32, np.float64))


@compiled
def eps_of(zero):
    return EPS_SINGLE if bytes_of_real(zero, ()) == 4 else EPS_DOUBLE


@compiled
def clean(zero, x, terms, k):
    """A sum, 0 where it is rounding alone; ``terms``: the sum of their sizes."""
    return x if abs(x) > NOISE * k * eps_of(zero) * terms or x != x else 0.0


@compiled
def difference(zero, x, y):
    """x - y, or 0 where that is rounding alone."""
    found = x - y
    return 0.0 if abs(found) <= ROUNDING * eps_of(zero) * (abs(x) + abs(y)) else found


@compiled
def copied(zero, source, count, target):
    for i in range(count):
        put_number(zero, target, i, number(zero, source, i))


@compiled
def are_all_0(zero, numbers, count):
    left = 0
    for j in range(count):
        left += number(zero, numbers, j) != 0
    return left == 0


@compiled
def moved(zero, F, k, rows, count, room):
    """Each of some rows x becomes F x."""
    width = bytes_of_real(zero, ())
    for c in range(count):
        row = rows + c * k * width
        copied(zero, row, k, room)
        for i in range(k):
            total = 0.0
            for j in range(k):
                total += number(zero, F, i * k + j) * number(zero, room, j)
            put_number(zero, row, i, total)


@compiled
def take_columns(zero, cov, k, parts, weights, least):
    """Those of L D L^T of a covariance, which is overwritten; a variance that is 0 but for rounding is 0."""
    for j in range(k):
        put_number(zero, least, j, 4 * k * eps_of(zero) * finite(number(zero, cov, j * k + j)))
    for j in range(k):
        pivot = finite(number(zero, cov, j * k + j))
        weight = 0.0 if pivot <= number(zero, least, j) else pivot
        put_number(zero, weights, j, weight)
        inverted = inverse(weight)
        for i in range(k):
            below = finite(number(zero, cov, j * k + i)) * inverted if i > j else 0.0
            put_number(zero, parts, j * k + i, 1.0 if i == j else below)
        for i in range(j + 1, k):
            share = number(zero, parts, j * k + i)
            for m in range(j + 1, k):
                put_number(
                    zero, cov, i * k + m, number(zero, cov, i * k + m) - share * number(zero, cov, j * k + m)
                )  # fmt: skip


@compiled
def orthogonal(zero, parts, weights, count, k, length, scaled, columns, found):
    """The first k columns of the same covariance, by weighted Gram-Schmidt; those given are overwritten.

    Rows of so many numbers.
    """
    for j in range(k):
        variance = 0.0
        for m in range(count):
            first = number(zero, parts, m * length + j)
            put_number(zero, scaled, m, first * number(zero, weights, m))
            variance += first * first * number(zero, weights, m)
        variance = 0.0 if variance < negligible(zero) else variance
        inverted = inverse(variance)
        put_number(zero, found, j, variance)
        for i in range(length):
            total = 1.0 if i == j else 0.0
            if i > j:
                for m in range(count):
                    total += number(zero, parts, m * length + i) * (number(zero, scaled, m) * inverted)
            put_number(zero, columns, j * length + i, total)
        for m in range(count):
            first = number(zero, parts, m * length + j)
            for i in range(j + 1, length):
                x = number(zero, parts, m * length + i)
                taken = number(zero, columns, j * length + i) * first
                put_number(zero, parts, m * length + i, difference(zero, x, taken))


@compiled
def take_columns_in(zero, parts, weights, count, k, load, before, row):
    """The columns once ``load @ x`` is known; ``before``: its variance by those that were taken in, ``row`` its
    covariances with x. That variance by all.
    """
    for c in range(count):
        part, sight = parts + c * k * bytes_of_real(zero, ()), 0.0
        for i in range(k):
            sight += number(zero, part, i) * number(zero, load, i)
        weight = number(zero, weights, c)
        common = weight * sight
        after, share = before + common * sight, sight * inverse(before)
        for i in range(k):
            x, known = number(zero, part, i), number(zero, row, i)
            put_number(zero, part, i, x - known * share)
            put_number(zero, row, i, known + x * common)
        if after != 0:
            put_number(zero, weights, c, weight * (before * inverse(after)))
        before = after
    return before


@compiled
def without(zero, A, rows, q, u, here):
    """The directions that are left once the one that was seen is known: a column less, the others turned."""
    scale = 0.0
    for j in range(q):
        scale += number(zero, u, j) * number(zero, u, j)
    scale = 2 / scale if scale > 0 else 2.0
    for i in range(rows):
        scaled = 0.0
        for j in range(q):
            scaled += number(zero, A, i * q + j) * number(zero, u, j)
        scaled *= scale
        for j in range(q):
            x, y = number(zero, A, i * q + j), scaled * number(zero, u, j)
            put_number(zero, A, i * q + j, 0.0 if j == here else clean(zero, x - y, abs(x) + abs(y), rows))
