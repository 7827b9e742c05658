"""Thomas and pivoted elimination row by row in NumPy, O(8n) flops a system: the reference (`tridiag.eager`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag import blocks, eager
from tridiag.libraries.numpy import Operations
from tridiag.rows import Matrix
from tridiag.shapes import Blocks, Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        x, status = eager.solve(Operations, matrix, d, form, factors)
    if out is not None:
        out[...] = x
    return (x if out is None else out), status


def factor(matrix: Matrix, form: Form) -> eager.Factors:
    with np.errstate(all="ignore"):
        return eager.factor(Operations, matrix, form)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        return eager.slogdet(Operations, matrix, form)


def solve_block(matrix: blocks.Matrix, d: Any, form: Blocks) -> Any:
    with np.errstate(all="ignore"):
        return blocks.solve(Operations, matrix, d, form)
