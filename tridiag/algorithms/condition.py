"""Condition numbers in the 1-norm: |A| as the largest sum of a column, |A^-1| as solves of a few vectors tell it.

Hager 1984, Higham 1988 (FORTRAN codes for estimating the one-norm), as in LAPACK's xGTCON: from a vector of equal
entries along the gradient of |A^-1 x| to the unit vector that promises most, and to others from there; last a vector of
alternating signs, for matrices that are made to deceive. What is found is a column of the inverse, so that its norm is
no more than that of the inverse, and seldom less than a third of it. O(n).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.algorithms.scaled import exponent_of, larger_part, times_power
from tridiag.problems.forms import Form

Solver = Callable[[Any, bool], Any]
STEPS = 4  # two do nearly always; LAPACK stops after as many


def reciprocal(
    ops: Any, solve: Solver, matrix: Matrix, form: Form, status: Any, again: Callable[[Any], Any] | None = None
) -> Any:
    """1 / (|A| |A^-1|) of every matrix, 0 of those that are singular, 1 of those without rows.

    What is solved with is as `near_one` gives it.
    ``solve(d, transpose)`` is A^-1 d or A^-T d. ``again(d)`` is A^-1 d with its derivatives, where these are wanted:
    they are those of the estimate, and of |A^-1| itself where that is the norm of a single column and was found.
    """
    columns = bands(ops, matrix, form._replace(transpose=True))
    kept = ops.broadcast(ops.one(ops.full((1,) * len(form.shape), 1, matrix[1])), form.matrix_shape)
    if matrix[3] is not None:
        kept = ops.where(matrix[3], kept, ops.zero(kept))
    one_norm = largest(ops, abs(kept) * sum(abs(band) for band in columns), form.axis)
    norm, vector = norm_of_inverse(ops, solve, kept, form.axis)
    norm = norm if again is None else size_of(ops, again(vector), form.axis) / size_of(ops, vector, form.axis)
    found, none = (ops.reshape(x, form.matrix_batch) for x in (1 / one_norm / norm, largest(ops, abs(kept), form.axis)))
    broken = (ops.reshape(one_norm, form.matrix_batch) - ops.reshape(one_norm, form.matrix_batch)) != 0
    lost = (found != found) & ~broken  # the inverse is not finite
    found = ops.where((ops.reshape(status, form.matrix_batch) != 0) | lost, ops.zero(found), found)
    return ops.where(none == 0, ops.one(found), found)


def near_one(ops: Any, matrix: Matrix, form: Form, constant: Matrix | None = None) -> Matrix:
    """The matrices, each times a power of two, so that its largest entry is 1/2 to 1 and no norm is out of range.

    ``constant`` are the matrices without their derivatives, where they have some.
    """
    *given, where = matrix if constant is None else constant
    sub, b, sup = bands(ops, (*given, where), form)
    b = b if where is None else ops.where(where, b, ops.zero(b))
    sizes = [largest(ops, larger_part(ops, band), form.axis) for band in (sub, b, sup)]
    exponent = exponent_of(ops, functools.reduce(ops.larger, sizes))
    return *(times_power(ops, x, -exponent) for x in matrix[:3]), where


def norm_of_inverse(ops: Any, solve: Solver, kept: Any, axis: int) -> tuple[Any, Any]:
    """|A^-1|, from the rows that are kept, 1 of those and 0 of others; and a vector v with |A^-1 v| / |v| = |A^-1|."""
    at = ops.positions(kept.shape[axis], kept.ndim, axis, kept)

    def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        best, vector, x = state
        sizes = abs(x)
        sign = ops.where(sizes > 0, x.conj() / ops.where(sizes > 0, sizes, ops.one(sizes)), ops.one(x))
        place = ops.unsqueeze(abs(solve(sign, True)).argmax(axis), axis)
        unit = ops.where(at == place, kept, ops.zero(kept))
        x = solve(unit, False)
        return *larger(ops, (size_of(ops, x, axis), unit), (best, vector)), x

    start = kept / size_of(ops, kept, axis)
    x = solve(start, False)
    best, vector, _ = ops.repeat(STEPS, step, (size_of(ops, x, axis), start, x))
    alternating = kept * ops.where(at % 2 == 0, 1 + at / kept.shape[axis], -1 - at / kept.shape[axis])
    alternating = ops.converted(alternating, kept)
    size = size_of(ops, solve(alternating, False), axis) / size_of(ops, alternating, axis)
    return larger(ops, (size, alternating), (best, vector))


def size_of(ops: Any, x: Any, axis: int) -> Any:
    """|x|, the sum of the sizes of entries."""
    return ops.unsqueeze(abs(x).sum(axis), axis)


def largest(ops: Any, x: Any, axis: int) -> Any:
    return ops.unsqueeze(ops.maximum(x, axis), axis)


def larger(ops: Any, one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """The size and the vector of what is larger; NaN where the first is."""
    (x, vector), (y, before) = one, other
    first = (x > y) | (x != x)
    return ops.where(first, x, y), ops.where(first, vector, before)
