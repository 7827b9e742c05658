"""Thomas and pivoted elimination row by row in NumPy, O(8n): the reference (`tridiag.algorithms.row_loop`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import block_elimination, row_loop
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Blocks, Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        x, status = row_loop.solve(ops, matrix, d, form, factors)
    if out is not None:
        out[...] = x
    return (x if out is None else out), status


def factor(matrix: Matrix, form: Form) -> row_loop.Factors:
    with np.errstate(all="ignore"):
        return row_loop.factor(ops, matrix, form)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        return row_loop.slogdet(ops, matrix, form)


def solve_block(matrix: block_elimination.Matrix, d: Any, form: Blocks) -> Any:
    with np.errstate(all="ignore"):
        return block_elimination.solve(ops, matrix, d, form)
