"""Systems of which rows are taken out and that do not lie side by side."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.thomas.bands import knows_ends, moved_operands, straight_masked
from tridiag.kernels.thomas.masked_sweeps import (
    ELIMINATE_MASKED_CONTIGUOUS,
    ELIMINATE_MASKED_TURNED,
    SUBSTITUTE_MASKED_CONTIGUOUS,
)
from tridiag.kernels.thomas.one_vector import solve_bound
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN
from tridiag.kernels.thomas.workspace import STEPS


@compiled
def mask_at_first(zero, worker):
    """Where the mask of the first row of a group lies."""
    return worker.mask + lanes_of(zero, ())


@compiled
def eliminate_masked(zero, job, worker, first, last):
    """As `one_vector.eliminate_straight`."""
    low, step = worker.low, ROWS_PLAIN * bytes_of_row(zero, ())
    places = worker.kept + (first - low + 1) * step, step, worker.carry, worker.good
    layout = (*moved_operands(zero, job, worker), low, worker.high, mask_at_first(zero, worker))
    if knows_ends(zero, job):
        ELIMINATE_MASKED_TURNED(zero, (*layout, *places, first, last))
    else:
        ELIMINATE_MASKED_CONTIGUOUS(zero, (*layout, *places, first, last))


@compiled
def substitute_masked(zero, worker, at, x, first, last, rest):
    """As `one_vector.substitute_straight`."""
    step, mask = ROWS_PLAIN * bytes_of_row(zero, ()), mask_at_first(zero, worker)
    SUBSTITUTE_MASKED_CONTIGUOUS(zero, (at, step, worker.carry, x, first, last, rest, mask))


@compiled
def solve_masked_rows(zero, job, worker, first, used, follows):
    """As `one_vector.solve_group`."""
    solve_bound(zero, job, worker, first, used, follows, straight_masked, eliminate_masked, substitute_masked)


SOLVE_MASKED_ROWS = STEPS.add_step(solve_masked_rows)
