"""Recurrences by CUDA C through CuPy: a thread for each sequence, or several with chunks of rows in their registers.

Each number is read and written once; 2 flops a coefficient and value, or twice as many where chunks are joined. That
is for first order, of logarithms too: in tiles of rows, one after another or, of few sequences, chained from block to
block by decoupled look-back. No bit depends on the order of blocks. Where products of coefficients overflow, or are too
large to be trusted, a tile is computed step by step; those that underflow are kept in range. Complex sequences with
real coefficients are twice as many real ones. Vectors stay in registers, 2 m**2 flops a step. Sums of exponentials are
kept as `tridiag.algorithms.logsumexp` says, about 60 operations a value.

Sources: Merrill and Garland (2016), Single-pass parallel prefix scan with decoupled look-back; Blelloch (1990), Prefix
sums and their applications, for recurrences as scans.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms import kalman_rows
from tridiag.algorithms import selective_scan as selective
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import on, recurrences
from tridiag.libraries.arrays import library_of, module_of
from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.problems.state_space import Model, StateSpace


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    return on(x).recurrence(verb, coefficients, x, init, form, out)


program_of_recurrence = recurrences.program_of_call
linear_recurrence = functools.partial(recurrence, "linear_recurrence")
matrix_recurrence = functools.partial(recurrence, "matrix_recurrence")
log_linear_recurrence = functools.partial(recurrence, "log_linear_recurrence")
logcumsumexp = functools.partial(recurrence, "logcumsumexp")


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """The states of about sqrt(n) steps are stored at a time."""
    ops = module_of(library_of(operands.x) or "cupy").Operations
    return selective.run(ops, linear_recurrence, operands, form, out)


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """A thread for each series, its state in registers; 3 k**3 multiplications a step, again where digits are lost.

    Steps whose states are unknown, as `numpy_scan`.
    """
    kernels = on(y)
    if library_of(y) == "jax":
        from tridiag.derivatives import jax_kalman

        return jax_kalman.by_kernels(kernels, verb, y, model, form)
    if form.diffuse:
        return kalman_rows.from_diffuse(module_of(library_of(y)).Operations, verb, y, model, form, kernels.filtered)
    return kernels.filtered(verb, y, model, form)


def kalman_gradient(y: Any, model: Model, form: StateSpace, in_y: bool) -> Any:
    """Forwards and backwards in one launch; long series are filtered twice, and keep 2 sqrt(n) states."""
    return on(y).derivatives(y, model, form, in_y)
