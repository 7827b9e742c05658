"""Few, long systems: chunks of rows eliminated in the lanes of vectors and split over threads, then what joins them.

The kernels are in `tridiag.kernels.partition.kernel`: O(17n) flops plain, about one and a half times the memory traffic
of a sweep that nothing limits but memory. Systems too short to cut are solved row by row. Operands that do not lie
contiguous along the systems, and those of masked systems, are copied first. The right sides of one matrix are solved
one by one. Stability: certificate, partial pivoting, refinement, as `tridiag.algorithms.elimination`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.backends.numba_thomas import REGULAR, Extents, checked, extents, view
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.systems import granted, make_partition_job, restored
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import Call, call_of
from tridiag.libraries.arrays import library_of
from tridiag.problems.forms import Form


def call_for(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any]) -> Call:
    """The kernel for arrays of these shapes and strides; it runs as a function of a, b, c, where, d, x."""
    return call_of(make_partition_job, form, shapes, strides, dtypes, granted(form))


def bound_solve(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any]) -> Callable[..., bool]:
    """The solve of such arrays as a function of a, b, c, where, d, x; it tells whether some system may be singular."""
    return checked(form, lambda: call_for(form, shapes, strides, dtypes).run)


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    library = library_of(d)
    if library == "jax":
        from tridiag.xla import systems

        return systems.solve_long(matrix, d, form, factors), None
    if library == "torch":
        result = d.new_empty(form.shape) if out is None else out
        _, status = solve(tuple(map(view, matrix)), view(d), form, view(result))
        return result, status
    x = np.empty(form.shape, d.dtype) if out is None else out
    operands = *matrix, d, x
    call = call_for(form, *extents(operands), (matrix[1].dtype, d.dtype))
    return x, None if check(call.run(*operands)) else REGULAR


def factor_of_jax_arrays(matrix: Matrix, form: Form) -> Any:
    """As that of `numba_thomas`, which keeps the same."""
    from tridiag.xla import systems

    return systems.factor_long(matrix, form)


def adjoint_of_jax_arrays(matrix: Matrix, g: Any, x: Any, form: Form) -> Any:
    """The backward pass: w, and the gradients of a, b and c, all of the shape of x."""
    from tridiag.xla import systems

    return systems.adjoint_long(matrix, g, x, form)


def find_zero_pivots(matrix: Matrix, form: Form) -> Any:
    """For each matrix 0, or 1 + the row of the first zero pivot of elimination with partial pivoting."""
    if library_of(matrix[1]) == "torch":
        import torch

        return torch.as_tensor(find_zero_pivots(tuple(map(view, matrix)), form))
    return bound_zero_pivots(form, *extents((*matrix, None, None)), matrix[1].dtype)(*matrix)


def bound_zero_pivots(
    form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]
) -> Callable[..., np.ndarray[Any, Any]]:
    """The same of such matrices as a function of a, b, c, where: what a solve with d = 0 tells."""
    form = form._replace(pivoting=form.pivoting or "auto", shape=form.matrix_shape)
    d = np.broadcast_to(np.zeros((), dtype), form.shape)
    given = (*shapes[:4], form.shape, form.shape), (*strides[:4], d.strides, contiguous(form.shape, dtype.itemsize))

    def zero_pivots(*matrix: Any) -> np.ndarray[Any, Any]:
        call, status = call_for(form, *given, (dtype, dtype)), np.zeros(form.matrices, np.int32)
        check(call.run(*matrix, d, np.empty(form.shape, dtype), status))
        return np.array(restored(call.job, status, form))

    return zero_pivots
