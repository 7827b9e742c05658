"""The matrix as its rows and as whole bands: transposed, masked and cut where nothing may be read.

A coupling that does not exist is cut by a select, never by a multiplication with zero: 0 * NaN is NaN.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms.elimination import LEAVE_BELOW, LEAVE_LATE, UNREACHED, ZEROS_AFTER
from tridiag.problems.forms import Form

Matrix = tuple[Any, Any, Any, Any]  # a, b, c, where (or None)


def read(ops: Any, matrix: Matrix, form: Form, i: Any) -> tuple[Any, Any, Any, Any]:
    """Row i of the matrix (or of its transpose) over the batch: below, diagonal, above, and whether the row is kept."""
    a, b, c, where = matrix
    n, axis = form.n, form.axis
    before, after = (i - 1) % n, (i + 1) % n
    sub = ops.row(c, before, axis) if form.transpose else ops.row(a, i, axis)
    sup = ops.row(a, after, axis) if form.transpose else ops.row(c, i, axis)
    diagonal, keep = ops.row(b, i, axis), None
    if where is not None:
        keep = ops.row(where, i, axis)
        sub = ops.where(keep & ops.row(where, before, axis), sub, ops.zero(sub))
        sup = ops.where(keep & ops.row(where, after, axis), sup, ops.zero(sup))
        diagonal = ops.where(keep, diagonal, ops.one(diagonal))
    if not form.periodic:
        sub = ops.where(i > 0, sub, ops.zero(sub))
        sup = ops.where(i < n - 1, sup, ops.zero(sup))
    shape = form.matrix_batch
    return ops.broadcast(sub, shape), ops.broadcast(diagonal, shape), ops.broadcast(sup, shape), keep


def read_right_side(ops: Any, where: Any, d: Any, form: Form, i: Any) -> Any:
    """Row i of the right side over the full batch; 0 in rows that are taken out."""
    row = ops.row(d, i, form.axis)
    if where is not None:
        row = ops.where(ops.row(where, i, form.axis), row, ops.zero(row))
    return ops.broadcast(row, form.batch)


def shift(ops: Any, x: Any, axis: int, by: int, periodic: bool) -> Any:
    """x[i - by] at i, for by = 1 or -1; zero outside, or around the corner."""
    n = x.shape[axis]
    if n == 0:
        return x
    ends, rest = (slice(n - 1, n), slice(0, n - 1)) if by == 1 else (slice(0, 1), slice(1, n))
    around, rest = ops.slice(x, ends, axis), ops.slice(x, rest, axis)
    if not periodic:
        around = ops.zero(around)
    return ops.concatenate((around, rest) if by == 1 else (rest, around), axis)


def bands(ops: Any, matrix: Matrix, form: Form) -> tuple[Any, Any, Any]:
    """The three diagonals of the matrix (or of its transpose), with every missing coupling an exact zero."""
    a, b, c, where = matrix
    n, axis = form.n, form.axis
    sub, sup = a, c
    if form.transpose:
        sub = c if c.shape[axis] == 1 else shift(ops, c, axis, 1, True)
        sup = a if a.shape[axis] == 1 else shift(ops, a, axis, -1, True)
    if where is not None:
        where = ops.stretch(where, n, axis)
        sub = ops.where(where & shift(ops, where, axis, 1, True), sub, ops.zero(sub))
        sup = ops.where(where & shift(ops, where, axis, -1, True), sup, ops.zero(sup))
        b = ops.where(where, b, ops.one(b))
    if not form.periodic:
        i = ops.positions(n, len(form.shape), axis, b)
        sub = ops.where(i > 0, sub, ops.zero(sub))
        sup = ops.where(i < n - 1, sup, ops.zero(sup))
    return sub, b, sup


def multiply(ops: Any, diagonals: tuple[Any, Any, Any], x: Any, form: Form) -> Any:
    """A x from the whole bands."""
    sub, b, sup = diagonals
    below = shift(ops, x, form.axis, 1, form.periodic)
    return sub * below + b * x + sup * shift(ops, x, form.axis, -1, form.periodic)


def residual(ops: Any, diagonals: tuple[Any, Any, Any], x: Any, d: Any, form: Form, step: Any = 0) -> tuple[Any, Any]:
    """d - A x where it is more than rounding, and max over the rows of |d - A x| / (|A| |x| + |d|) for every system.

    The latter is the componentwise backward error (Oettli and Prager). ``step``: how many corrections there were.
    As in LAPACK's xGERFS, denominators that rounding to subnormal numbers can reach are kept away from zero. Where they
    are reached by products with entries of the row, the row is no better than UNREACHED: others come first.
    """
    r = d - multiply(ops, diagonals, x, form)
    sizes = tuple(ops.size(v) for v in diagonals)
    scale = multiply(ops, sizes, ops.size(x), form) + ops.size(d)
    parts = 1 if scale.dtype == r.dtype else 2
    if parts == 2:  # complex numbers, a product of which can be half that of their sizes
        scale = scale * 0.5
    eps, tiny = ops.limits(r)
    floor = 4 * tiny / eps
    scale = ops.where(scale > floor, scale, floor + ops.zero(scale))
    size, products = ops.size(r), floor * sizes[0] + floor * sizes[1] + floor * sizes[2]
    error, reached = size / scale, size / ops.where(scale > products, scale, products)
    most = UNREACHED * eps + ops.zero(reached)
    error = ops.where(error > most, ops.where(reached > most, reached, most), error)
    leave = LEAVE_BELOW + (step >= ZEROS_AFTER) * (LEAVE_LATE - LEAVE_BELOW)
    return ops.where(error > leave * parts * eps, r, ops.zero(r)), ops.maximum(error, form.axis)
