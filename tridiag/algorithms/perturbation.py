"""Singular matrices, perturbed until their solutions are finite: (A + delta I) x = d.

Elimination of a singular matrix meets a zero pivot. LAPACK's xLAGTS replaces it by eps times the largest entry, and
doubles that while the division would overflow. The same amount on the whole diagonal leaves the matrix tridiagonal or
cyclic, so that every backend solves with it and the derivatives are those of any other system, delta held fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.problems.forms import Form

EPS = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
}
GROWTH = 64.0  # of delta, while a solution is not finite
TRIES = 12  # after nine delta is larger than all entries of double precision, and the matrix dominant


def not_finite(ops: Any, x: Any, axis: int) -> Any:
    """1 where some row is not finite, else 0; the axis is kept."""
    size = ops.size(x)
    return ops.unsqueeze(ops.maximum(ops.where((x - x) == 0, ops.zero(size), ops.one(size)), axis), axis)


def unsolved(ops: Any, d: Any, x: Any, form: Form) -> Any:
    """1 for matrices with a solution that is not finite though its right side is, else 0."""
    found = not_finite(ops, x, form.axis) * (1 - not_finite(ops, d, form.axis))
    for k, n in enumerate(form.matrix_shape):
        if n == 1 != form.shape[k]:
            found = ops.unsqueeze(ops.maximum(found, k), k)
    return found


def first_shift(ops: Any, matrix: Matrix, form: Form, eps: float) -> Any:
    """Eps times the largest entry of each matrix, or eps where all are 0; 0 where one is not finite."""
    below, diagonal, above = bands(ops, matrix, form)
    if matrix[3] is not None:
        diagonal = ops.where(matrix[3], diagonal, ops.zero(diagonal))
    largest: Any = None
    for band in (below, diagonal, above):
        size = ops.unsqueeze(ops.maximum(ops.size(band), form.axis), form.axis)
        largest = size if largest is None else ops.where((size > largest) | (size != size), size, largest)
    shift = eps * ops.where(largest > 0, largest, ops.one(largest))
    _, tiny = ops.limits(shift)
    shift = ops.where(shift > tiny, shift, tiny + ops.zero(shift))
    return ops.where((largest - largest) == 0, shift, ops.zero(shift))


def grown(ops: Any, shift: Any, first: Any, matrices: Any) -> Any:
    """The shifts with those of some matrices grown."""
    return ops.where(matrices > 0, ops.where(shift > 0, GROWTH * shift, first), shift)


def shifted(matrix: Matrix, shift: Any) -> Matrix:
    a, b, c, where = matrix
    return a, b + shift, c, where


def perturb(ops: Any, solve: Callable[[Matrix], Any], matrix: Matrix, d: Any, x: Any, form: Form, eps: float) -> Any:
    """What is added to the diagonal of each matrix, and x with that; None where nothing is to be added.

    ``x`` is the solution with the matrices as they are. Reads values, as a loop of Python has to.
    """
    d, shift, first = right_side(ops, d, matrix[3]), None, None
    for _ in range(TRIES):
        if surely_finite(x):
            break
        matrices = unsolved(ops, d, x, form)
        if not ops.any(matrices > 0):
            break
        first = first_shift(ops, matrix, form, eps) if first is None else first
        shift = grown(ops, ops.zero(first) if shift is None else shift, first, matrices)
        x = solve(shifted(matrix, shift))
    return None if shift is None else (shift, x)


def surely_finite(x: Any) -> bool:
    """Whether all of x is finite, unless its sum overflows."""
    total = x.sum()
    return bool((total - total) == 0)


def right_side(ops: Any, d: Any, where: Any) -> Any:
    """d, and 0 in rows that are taken out."""
    return d if where is None else ops.where(where, d, ops.zero(d))
