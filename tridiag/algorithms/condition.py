"""Condition numbers in the 1-norm: |A| as the largest sum of a column, |A^-1| as solves of a few vectors tell it.

Hager 1984, Higham 1988 (FORTRAN codes for estimating the one-norm), as in LAPACK's xGTCON: from a vector of equal
entries along the gradient of |A^-1 x| to the unit vector that promises most, and to others from there; last a vector of
alternating signs, for matrices that are made to deceive. What is found is a column of the inverse, so that its norm is
no more than that of the inverse, and seldom less than a third of it. O(n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.problems.forms import Form

STEPS = 4  # two do nearly always; LAPACK stops after as many


def reciprocal(ops: Any, solve: Callable[[Any, bool], Any], matrix: Matrix, form: Form, status: Any) -> Any:
    """1 / (|A| |A^-1|) of every matrix, 0 of those that are singular; ``solve(d, transpose)`` is A^-1 d or A^-T d."""
    columns = bands(ops, matrix, form._replace(transpose=True))
    kept = ops.broadcast(ops.one(ops.full((1,) * len(form.shape), 1, matrix[1])), form.matrix_shape)
    if matrix[3] is not None:
        kept = ops.where(matrix[3], kept, ops.zero(kept))
    one_norm = largest(ops, abs(kept) * sum(abs(band) for band in columns), form.axis)
    found = ops.reshape(1 / one_norm / norm_of_inverse(ops, solve, kept, form.axis), form.matrix_batch)
    broken = (ops.reshape(one_norm, form.matrix_batch) - ops.reshape(one_norm, form.matrix_batch)) != 0
    lost = (found != found) & ~broken  # the inverse is not finite
    return ops.where((ops.reshape(status, form.matrix_batch) != 0) | lost, ops.zero(found), found)


def norm_of_inverse(ops: Any, solve: Callable[[Any, bool], Any], kept: Any, axis: int) -> Any:
    """|A^-1|, from the rows that are kept, 1 of those and 0 of others."""
    at = ops.positions(kept.shape[axis], kept.ndim, axis, kept)

    def size_of(x: Any) -> Any:
        return ops.unsqueeze(abs(x).sum(axis), axis)

    def step(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        best, x = state
        sizes = abs(x)
        sign = ops.where(sizes > 0, x.conj() / ops.where(sizes > 0, sizes, ops.one(sizes)), ops.one(x))
        place = ops.unsqueeze(abs(solve(sign, True)).argmax(axis), axis)
        x = solve(ops.where(at == place, kept, ops.zero(kept)), False)
        return larger(ops, size_of(x), best), x

    x = solve(kept / size_of(kept), False)
    best, _ = ops.repeat(STEPS, step, (size_of(x), x))
    alternating = kept * ops.where(at % 2 == 0, 1 + at / kept.shape[axis], -1 - at / kept.shape[axis])
    return larger(ops, size_of(solve(ops.converted(alternating, kept), False)) / size_of(alternating), best)


def largest(ops: Any, x: Any, axis: int) -> Any:
    return ops.unsqueeze(ops.maximum(x, axis), axis)


def larger(ops: Any, x: Any, y: Any) -> Any:
    """NaN where x is."""
    return ops.where((x > y) | (x != x), x, y)
