"""LAPACK gtsv through SciPy, one call per matrix with all its right sides: partial pivoting, O(8n) flops, one thread.

"auto" refines the systems whose componentwise residual is above 4 eps by further calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from tridiag.algorithms import elimination as el
from tridiag.algorithms.matrix_rows import Matrix, bands, residual
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        if matrix[3] is not None:
            d = np.where(matrix[3], d, 0)
        d = np.broadcast_to(d, form.shape)
        diagonals = tuple(ops.stretch(band, form.n, form.axis) for band in bands(ops, matrix, form))
        x, status = gtsv(diagonals, d, form, None)
        if form.pivoting == "auto":
            x = refine(diagonals, d, form, x, status == 0)
        if matrix[3] is not None:
            x = np.where(matrix[3], x, 0)
    if out is not None:
        out[...] = x
    return (x if out is None else out), status


def gtsv(diagonals: Any, d: Any, form: Form, wanted: Any) -> tuple[Any, Any]:
    """x and status of the wanted matrices (None: all), zero elsewhere."""
    a, b, c = (np.moveaxis(np.broadcast_to(v, form.matrix_shape), form.axis, -1) for v in diagonals)
    (routine,) = get_lapack_funcs(("gtsv",), (b, d))
    x = np.zeros(form.shape, d.dtype)
    right, solution = np.moveaxis(d, form.axis, -1), np.moveaxis(x, form.axis, -1)
    status = np.zeros(form.matrix_batch, np.int32)
    for index in np.ndindex(form.matrix_batch):
        if wanted is None or wanted[index]:
            sides = tuple(k if m != 1 else slice(None) for k, m in zip(index, form.matrix_batch, strict=True))
            columns = right[sides].reshape(-1, form.n).T
            y, status[index] = one(routine, a[index], b[index], c[index], columns)
            solution[sides] = y.T.reshape(right[sides].shape)
    return x, status


def one(routine: Any, a: Any, b: Any, c: Any, columns: Any) -> tuple[Any, int]:
    """One matrix: NaN where it is singular. gtsv itself refuses n = 1, and takes no real matrix with complex sides."""
    if len(b) == 1:
        status, y = int(b[0] == 0), columns / b[:, None]
    elif np.iscomplexobj(columns) and not np.iscomplexobj(b):
        k = columns.shape[1]
        (real_routine,) = get_lapack_funcs(("gtsv",), (b,))
        *_, pairs, status = real_routine(a[1:], b, c[:-1], np.concatenate((columns.real, columns.imag), axis=1))
        y = pairs[:, :k] + 1j * pairs[:, k:]
    else:
        *_, y, status = routine(a[1:], b, c[:-1], columns)
    return (y if status == 0 else np.full_like(columns, np.nan)), status


def refine(diagonals: Any, d: Any, form: Form, x: Any, regular: Any) -> Any:
    """As `tridiag.algorithms.row_loop.refine`, solving again only the matrices that have a system to improve."""
    size = sum(map(ops.size, diagonals))
    size = np.where(size > 0, np.maximum(size, ops.limits(x)[1]), 1)  # whose inverse is finite
    scale = 1 / size  # without it gtsv takes a large row as pivot for a tiny unknown
    scaled, best = [band * scale for band in diagonals], x
    least = residual(ops, diagonals, x, d, form)[1]
    x, r = np.zeros_like(x), d
    sides = tuple(k for k, m in enumerate(form.matrix_batch) if m == 1)
    unfit = regular & (el.unfit(ops, least, 0) | np.isnan(least))  # LAPACK divides complex numbers with less care
    for step in range(1 + el.REFINE_STEPS):
        if not unfit.any():
            break
        wanted = unfit.any(axis=sides, keepdims=True)
        x = el.correct(ops, x, gtsv(scaled, r * scale, form, wanted)[0], step)
        r, error = residual(ops, diagonals, x, d, form, step)
        better = unfit & ~(error >= least)
        best, least = np.where(np.expand_dims(better, form.axis), x, best), np.where(better, error, least)
        unfit = unfit & el.unfit(ops, least, step)
    return best
