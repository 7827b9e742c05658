"""Thomas and pivoted elimination row by row in PyTorch, O(8n), on any device (`tridiag.algorithms.row_loop`)."""

from __future__ import annotations

from typing import Any

from tridiag.algorithms import block_elimination, row_loop
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.libraries.torch import Operations as ops
from tridiag.problems.forms import Blocks, Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    x, status = row_loop.solve(ops, matrix, d, form, factors)
    return (x if out is None else out.copy_(x)), status


def factor(matrix: Matrix, form: Form) -> row_loop.Factors:
    return row_loop.factor(ops, matrix, form)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """Made of differentiable operations only."""
    return row_loop.slogdet(ops, matrix, form)


def solve_block(matrix: block_elimination.Matrix, d: Any, form: Blocks) -> Any:
    return block_elimination.solve(ops, matrix, d, form)
