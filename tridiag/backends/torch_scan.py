"""Recurrences row by row in PyTorch, on any device.

Linear ones (`tridiag.recursion`) take 2 flops a coefficient and value; those of logarithms are `tridiag.logsum`.
"""

from __future__ import annotations

from typing import Any

from tridiag import logsum, recursion
from tridiag.libraries.torch import Operations as ops
from tridiag.recursion import Rows
from tridiag.shapes import Recurrence


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    recursion.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    logsum.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


logcumsumexp = log_linear_recurrence
