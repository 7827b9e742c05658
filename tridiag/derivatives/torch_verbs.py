"""How PyTorch runs the verbs, and what it is told of derivatives: one module for each kind of problem."""

from tridiag.derivatives.torch_blocks import solve_block
from tridiag.derivatives.torch_recurrences import recurrence
from tridiag.derivatives.torch_systems import (
    factor,
    find_zero_pivots,
    reciprocal_condition,
    slogdet,
    solve,
    solve_perturbed,
)

__all__ = [
    "factor",
    "find_zero_pivots",
    "reciprocal_condition",
    "recurrence",
    "slogdet",
    "solve",
    "solve_block",
    "solve_perturbed",
]
