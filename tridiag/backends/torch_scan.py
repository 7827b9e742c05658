"""Recurrences row by row in PyTorch, on any device.

Linear ones (`tridiag.algorithms.recurrence`) take 2 flops a coefficient and value; those of logarithms are
`tridiag.algorithms.logsumexp`.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms import complex_sums, logsumexp, recurrence
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.torch import Operations as ops
from tridiag.problems.forms import Recurrence


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
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
