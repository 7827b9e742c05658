"""Calls with plain NumPy arrays whose facts are known: nothing is left to decide, and the kernel is called at once.

The facts (dtypes, shapes, strides, options) decide everything but where the arrays lie. Numbers of Python, and
contiguous arrays of another dtype, are cast to the one that promotion gives. What is out of the ordinary (other
arguments, halves, outputs that might overlap an argument) goes the way of all other calls.
"""

from tridiag.calls.fast_path import alignments, blocks, factored, filters, matrices, recurrences, systems
from tridiag.calls.fast_path.alignments import smith_waterman
from tridiag.calls.fast_path.blocks import solve_block
from tridiag.calls.fast_path.factored import factors, known, solve_factored
from tridiag.calls.fast_path.facts import facts_of
from tridiag.calls.fast_path.filters import kalman
from tridiag.calls.fast_path.matrices import determinants, product
from tridiag.calls.fast_path.recurrences import bound_recurrence, recurrence
from tridiag.calls.fast_path.systems import bound_call, solve

__all__ = [
    "bound_call",
    "bound_recurrence",
    "determinants",
    "factors",
    "facts_of",
    "forget",
    "kalman",
    "known",
    "product",
    "recurrence",
    "smith_waterman",
    "solve",
    "solve_block",
    "solve_factored",
]
CACHES = (
    systems.bound_call,
    recurrences.bound_recurrence,
    matrices.bound_product,
    matrices.bound_determinants,
    factored.bound_factors,
    factored.bound_factored,
    blocks.bound_blocks,
    alignments.bound_alignment,
    filters.bound_filter,
)

TABLES = (systems.SOLVES, matrices.PRODUCTS, blocks.SOLVES, *recurrences.TABLES.values())


def forget() -> None:
    """Decide anew about calls that were met before."""
    for cache in CACHES:
        cache.cache_clear()
    for table in TABLES:
        table.forget()
