"""Recurrences by a thread for each sequence: CUDA C through CuPy.

Every value comes from those before it, as in a plain loop: 2 flops a coefficient and value, and each number is read or
written once. Complex sequences with real coefficients are twice as many real ones. Vectors stay in registers, 2 m**2
flops a step. Sums of exponentials are kept as `tridiag.algorithms.logsumexp` says, about 60 operations a value.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import on
from tridiag.problems.forms import Recurrence


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    return on(x).recurrence(verb, coefficients, x, init, form, out)


linear_recurrence = functools.partial(recurrence, "linear_recurrence")
matrix_recurrence = functools.partial(recurrence, "matrix_recurrence")
log_linear_recurrence = functools.partial(recurrence, "log_linear_recurrence")
logcumsumexp = functools.partial(recurrence, "logcumsumexp")
