"""Recurrences row by row in PyTorch, on any device.

Linear ones (`tridiag.algorithms.recurrence`) take 2 flops a coefficient and value; those of logarithms are
`tridiag.algorithms.logsumexp`.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms import complex_sums, kalman_rows, logsumexp, recurrence
from tridiag.algorithms import selective_scan as selective
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.torch import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.problems.state_space import Model, StateSpace


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if not (x.is_floating_point() or x.is_complex()) and recurrence.is_doubled(coefficients, form):
        y = recurrence.doubled(ops, coefficients[0], x, init, form)
        return y.contiguous() if out is None else out.copy_(y)
    y = ops.empty(form.shape, x) if out is None else out
    recurrence.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    logsumexp.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if not x.is_complex():
        return log_linear_recurrence(coefficients, x, init, form, out)
    y = complex_sums.logcumsumexp(ops, linear_recurrence, x, form)
    return y if out is None else out.copy_(y)


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """The states of about sqrt(n) steps are stored at a time."""
    return selective.run(ops, linear_recurrence, operands, form, out)


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """Kalman filters step by step, as `numpy_scan`."""
    run = functools.partial(kalman_rows.run, ops)
    if form.diffuse:
        return kalman_rows.from_diffuse(ops, verb, y, model, form, run)
    return run(verb, y, model, form)
