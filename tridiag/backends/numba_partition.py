"""Few, long systems: chunks of rows eliminated in the lanes of vectors and split over threads, then what joins them.

The kernels are in `tridiag.kernels.partition.kernel`: O(17n) flops plain, about one and a half times the memory traffic
of a sweep that nothing limits but memory. Systems too short to cut are solved row by row. Operands that do not lie
contiguous along the systems are copied first, and those of masked systems where they are eliminated with pivoting. The
right sides of one matrix are solved one by one. Stability: certificate, partial pivoting, refinement, as
`tridiag.algorithms.elimination`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.backends import numba_thomas
from tridiag.backends.numba_thomas import REGULAR, Extents, checked, extents, view
from tridiag.kernels.jobs.systems import granted, make_partition_job
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
    """As that of `numba_thomas`."""
    return numba_thomas.find_zero_pivots(matrix, form, bound_zero_pivots)


def bound_zero_pivots(
    form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]
) -> Callable[..., np.ndarray[Any, Any]]:
    """The same of such matrices as a function of a, b, c, where."""
    return numba_thomas.bound_zero_pivots(form, shapes, strides, dtype, call_for)
