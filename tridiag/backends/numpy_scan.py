"""Linear recurrences row by row in NumPy, 2 flops a coefficient and value: the reference (`tridiag.recursion`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag import recursion
from tridiag.libraries.numpy import Operations as ops
from tridiag.recursion import Rows
from tridiag.shapes import Recurrence


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        recursion.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y
