"""How JAX runs the verbs, and what it is told of derivatives: one module for each kind of problem."""

from tridiag.derivatives.jax_blocks import solve_block
from tridiag.derivatives.jax_determinants import slogdet
from tridiag.derivatives.jax_recurrences import recurrence
from tridiag.derivatives.jax_systems import factor, reciprocal_condition, solve, solve_perturbed, status_alone

__all__ = [
    "factor", "reciprocal_condition", "recurrence", "slogdet", "solve", "solve_block", "solve_perturbed",
    "status_alone",
]  # fmt: skip
