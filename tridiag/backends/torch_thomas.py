"""Thomas and pivoted elimination row by row in PyTorch, O(8n) flops a system, on any device (`tridiag.eager`)."""

from __future__ import annotations

from typing import Any

from tridiag import blocks, eager
from tridiag.libraries.torch import Operations
from tridiag.rows import Matrix
from tridiag.shapes import Blocks, Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    x, status = eager.solve(Operations, matrix, d, form, factors)
    return (x if out is None else out.copy_(x)), status


def factor(matrix: Matrix, form: Form) -> eager.Factors:
    return eager.factor(Operations, matrix, form)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """Made of differentiable operations only."""
    return eager.slogdet(Operations, matrix, form)


def solve_block(matrix: blocks.Matrix, d: Any, form: Blocks) -> Any:
    return blocks.solve(Operations, matrix, d, form)
