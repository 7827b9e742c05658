"""Groups that lie side by side, of which rows are taken out: row by row through all of them.

The mask is read where it lies if that of neighbours is side by side; else that of a tile is gathered before.
"""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.masked_layouts import GATHER_MASK
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import WHERE_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import set_word, word
from tridiag.kernels.thomas.bands import moved_operands
from tridiag.kernels.thomas.bind import bind_group, read_mask
from tridiag.kernels.thomas.interleaved import (
    all_certified,
    exchange,
    past_caches,
    solution_interleaved,
    start_interleaved,
    sweep_down,
)
from tridiag.kernels.thomas.masked_sweeps import (
    ELIMINATE_MASKED,
    ELIMINATE_MASKED_NARROW,
    PIVOT_MASKED,
    SUBSTITUTE_MASKED,
    SUBSTITUTE_MASKED_NARROW,
    SUBSTITUTE_MASKED_STREAM,
    UNPIVOT_MASKED,
    UNPIVOT_MASKED_STREAM,
)
from tridiag.kernels.thomas.one_vector import SOLVE_GROUP, backward_rows, settle_group
from tridiag.kernels.thomas.refine import hopeless, uncertified_lanes
from tridiag.kernels.thomas.sweeps import (
    ROWS_PLAIN,
    X_PLAIN,
)
from tridiag.kernels.thomas.workspace import STEPS

FEW_ROWS = 64  # of a group that fills no vector, after which it is looked at for systems without certificate


@compiled
def step_of_lanes(job):
    """Bytes from the mask of a system to that of its neighbour."""
    return field(job, J.AXES + J.AXIS_WORDS * (job.matrix_axes - 1) + 1 + WHERE_)


@compiled
def masks_of_tile(zero, job, worker, groups):
    """Where the mask of some groups lies, how far the next row, and the next lane; the first of them is bound."""
    lanes, n, operand = lanes_of(zero, ()), job.rows, operand_of(zero, worker.bindings, WHERE_)
    base, step = operand.lanes[0], step_of_lanes(job)
    if step == 1:
        return base, operand.stride, step
    count, side = (1, 0) if step == 0 else (groups, 1)
    for group in range(count):
        place = base + group * lanes * step
        GATHER_MASK(zero, (place, step, lanes, operand.stride, n, worker.masks + group * lanes, count * lanes))
    return worker.masks, count * lanes, side


@compiled
def start_masked(zero, job, worker, first, groups):
    """As `start_interleaved`; where the mask of the groups lies."""
    start_interleaved(zero, job, worker, first, groups)
    return masks_of_tile(zero, job, worker, groups)


@compiled
def solve_masked(zero, job, worker, first, groups):
    """Groups that lie side by side, row by row through all of them."""
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), job.rows, worker.kept
    step, good, carry = ROWS_PLAIN * row * groups, worker.good, worker.carry
    if groups == 1 and parts_of(zero, ()) == 1 and solve_narrow(zero, job, worker, first, lanes):
        return
    mask = start_masked(zero, job, worker, first, groups)
    ZERO(zero, (carry, row, groups))
    if sweep_down(zero, job, worker, groups, mask, ELIMINATE_MASKED) and all_certified(zero, job, worker, groups):
        words = y + step, step, carry, groups, n, *solution_interleaved(zero, worker), (groups - 1) * row, *mask
        if past_caches(zero, job):
            SUBSTITUTE_MASKED_STREAM(zero, words)
        else:
            SUBSTITUTE_MASKED(zero, words)
        return
    for group in range(groups):
        at, found = first + group * lanes, good + 8 * group
        bind_group(zero, job, worker, at, lanes)
        read_mask(zero, job, worker)
        low, high = worker.low, worker.high
        here = y + (low + 1) * step + ROWS_PLAIN * group * row
        if not hopeless(zero, job, found, lanes):
            backward_rows(zero, worker, here, step, carry + group * row, low, high)
        settle_group(zero, job, worker, at, lanes, found, here + X_PLAIN * row, step)


SOLVE_MASKED = STEPS.add_step(solve_masked)


@compiled
def solve_masked_group(zero, job, worker, first, used, follows):
    """A group at an end of a tile, of neighbours that fill no vector; or systems that lie anyhow."""
    if parts_of(zero, ()) == 2 or job.interleaved == 0 or not solve_narrow(zero, job, worker, first, used):
        SOLVE_GROUP(zero, (job, worker, first, used, 0))


SOLVE_MASKED_GROUP = STEPS.add_step(solve_masked_group)


@compiled
def solve_narrow(zero, job, worker, first, used):
    """A group of neighbours to memory, its state in registers; False where a system has no certificate."""
    lanes, row, n, step = lanes_of(zero, ()), bytes_of_row(zero, ()), job.rows, ROWS_PLAIN * bytes_of_row(zero, ())
    y, good, most = worker.kept, worker.good, (used - lanes) * bytes_of_real(zero, ())
    bind_group(zero, job, worker, first, used)
    mask = gather(zero, job, worker, used)
    operands = (*moved_operands(zero, job, worker), most)
    set_word(good, (1 << 2 * lanes) - 1)
    ZERO(zero, (y, row, ROWS_PLAIN))
    ZERO(zero, (worker.carry, row, 1))
    for i in range(0, n, FEW_ROWS):
        last = min(i + FEW_ROWS, n)
        places = y + (i + 1) * step, step, worker.carry, good
        ELIMINATE_MASKED_NARROW(zero, (*operands, n, 1, *mask, *places, i, last))
        if uncertified_lanes(zero, job, word(good), used) != 0 or stopping_at(i // FEW_ROWS, 64):
            return False
    words = y + step, step, worker.carry, 1, n, *solution_interleaved(zero, worker), most
    SUBSTITUTE_MASKED_NARROW(zero, (*words, *mask))
    return True


@compiled
def gather(zero, job, worker, used):
    """The mask of so many lanes of the group that is bound, in whole vectors; its words are as of `masks_of_tile`."""
    lanes, operand = lanes_of(zero, ()), operand_of(zero, worker.bindings, WHERE_)
    if used == lanes and step_of_lanes(job) == 1:
        return operand.lanes[0], operand.stride, 0
    words = operand.lanes[0], step_of_lanes(job), used, operand.stride, job.rows, worker.masks, lanes
    GATHER_MASK(zero, words)
    return worker.masks, lanes, 0


@compiled
def exchange_masked(zero, job, worker, first, groups):
    """As `solve_masked`, with partial pivoting."""
    mask = start_masked(zero, job, worker, first, groups)
    exchange(zero, job, worker, first, groups, mask, PIVOT_MASKED, UNPIVOT_MASKED, UNPIVOT_MASKED_STREAM)


EXCHANGED_MASKED = STEPS.add_step(exchange_masked)
