"""What `tridiag.kernels.thomas.row_blocks` does with rows of a block: with partial pivoting or not, a mask or not.

``operands``: the words of a layout that come first, those of the operands and moves, the place of the last group, and
those of a mask where rows are taken out.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.masked_layouts import GATHER_MASK
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words.systems import WHERE_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.thomas.bands import moved_operands
from tridiag.kernels.thomas.block_records import copy, is_narrow, rows_of, systems_of
from tridiag.kernels.thomas.masked import step_of_lanes
from tridiag.kernels.thomas.masked_sweeps import (
    ELIMINATE_MASKED,
    ELIMINATE_MASKED_NARROW,
    ELIMINATE_MASKED_STREAM,
    PIVOT_MASKED,
    SUBSTITUTE_MASKED,
    SUBSTITUTE_MASKED_NARROW,
    UNPIVOT_MASKED,
)
from tridiag.kernels.thomas.sweeps import (
    BEGIN_PIVOTED,
    CLOSE_PIVOTED,
    ELIMINATE_INTERLEAVED,
    ELIMINATE_NARROW,
    ELIMINATE_STREAM,
    PIVOT_INTERLEAVED,
    SUBSTITUTE_INTERLEAVED,
    SUBSTITUTE_NARROW,
    UNPIVOT_INTERLEAVED,
)

PLACES = 9  # of the operands, how many come before those of a mask


# ------------------------------------------------------------------------------------------------ operands


@compiled
def read_all(zero, job, worker, item, most):
    """The operands of a block, of systems whose last group has the place ``most``."""
    return (*moved_operands(zero, job, worker), most)


@compiled
def read_masked(zero, job, worker, item, most):
    """The same with a mask."""
    return (*moved_operands(zero, job, worker), most, *mask_of_block(zero, job, worker, item))


@compiled
def mask_of_block(zero, job, worker, item):
    """Where the mask of row 0 would lie, how far the next row is, and the next lane.

    It is gathered where all systems have the same, or fill no vector, of which it has all lanes then.
    """
    lanes, (_, systems), (low, high) = lanes_of(zero, ()), systems_of(job, item), rows_of(job, item)
    operand, step = operand_of(zero, worker.bindings, WHERE_), step_of_lanes(job)
    base, stride = operand.lanes[0], operand.stride
    if step == 1 and systems >= lanes:
        return base, stride, step
    first, last = max(0, low - job.overlap - 1), min(job.rows, high + job.overlap + 1)
    used = min(lanes, systems)
    GATHER_MASK(zero, (base + first * stride, step, used, stride, last - first, worker.masks, lanes))
    return worker.masks - first * lanes, lanes, 0


@compiled
def no_mask(operands, i0):
    return ()


@compiled
def mask_from(operands, i0):
    """The words of the mask with row ``i0`` as the first."""
    base, stride, side = operands[PLACES:]
    return base + i0 * stride, stride, side


# ------------------------------------------------------------------------------------------------ rows


@compiled
def begin_plain(zero, job, operands, groups, state, room, first):
    """The state before row ``first`` if that were the first row."""
    ZERO(zero, (state, bytes_of_row(zero, ()), 2 * groups))


def plain(tiled: Any, stream: Any, narrow: Any) -> Any:
    """Rows first <= i < last to ``target``, from the state before them to that behind them, by one of these sweeps."""

    @compiled
    def eliminate(zero, job, operands, groups, state, target, first, last, good):
        step = 2 * groups * bytes_of_row(zero, ())
        copy(state, target - step, step)
        words = (*operands[:PLACES], job.rows, groups, *operands[PLACES:], target, step, state, good, first, last)
        if is_narrow(zero, groups):
            narrow(zero, words)
        elif job.spans == 1:
            stream(zero, words)
        else:
            tiled(zero, words)
        copy(target + (last - first - 1) * step, state, step)

    return eliminate


def pivoted(sweep: Any) -> tuple[Any, Any]:
    """`begin_plain` and `plain` with partial pivoting, where the state before a row is that behind its entry."""

    @compiled
    def begin(zero, job, operands, groups, state, room, first):
        step = 4 * groups * bytes_of_row(zero, ())
        BEGIN_PIVOTED(zero, (state, groups))
        words = (*operands[:PLACES], job.rows, groups, *operands[PLACES:])
        sweep(zero, (*words, room + step, step, state, room, first, first + 1))

    @compiled
    def eliminate(zero, job, operands, groups, state, target, first, last, good):
        row, n = bytes_of_row(zero, ()), job.rows
        step = 4 * groups * row
        words = (*operands[:PLACES], n, groups, *operands[PLACES:])
        sweep(zero, (*words, target, step, state, good, first + 1, min(last + 1, n)))
        if last == n:
            end = target + (n - 1 - first) * step
            for group in range(groups):
                CLOSE_PIVOTED(zero, (end + 4 * group * row, step, state + 4 * group * row, good + 8 * group))

    return begin, eliminate


def substituted(tiled: Any, mask: Any) -> Any:
    """Rows from ``i0`` on, by a sweep; the fourth word says how many groups there are."""

    @compiled
    def substitute(zero, operands, i0, words):
        tiled(zero, (*words, *mask(operands, i0)))

    return substitute


def substituted_plain(tiled: Any, narrow: Any, mask: Any) -> Any:
    """The same, one group by a sweep of its own."""
    several = substituted(tiled, mask)

    @compiled
    def substitute(zero, operands, i0, words):
        if is_narrow(zero, words[3]):
            narrow(zero, (*words, *mask(operands, i0)))
        else:
            several(zero, operands, i0, words)

    return substitute


PLAIN = (
    read_all, begin_plain, plain(ELIMINATE_INTERLEAVED, ELIMINATE_STREAM, ELIMINATE_NARROW),
    substituted_plain(SUBSTITUTE_INTERLEAVED, SUBSTITUTE_NARROW, no_mask),
)  # fmt: skip
PIVOTED = (read_all, *pivoted(PIVOT_INTERLEAVED), substituted(UNPIVOT_INTERLEAVED, no_mask))
MASKED = (
    read_masked, begin_plain, plain(ELIMINATE_MASKED, ELIMINATE_MASKED_STREAM, ELIMINATE_MASKED_NARROW),
    substituted_plain(SUBSTITUTE_MASKED, SUBSTITUTE_MASKED_NARROW, mask_from),
)  # fmt: skip
PIVOTED_MASKED = (read_masked, *pivoted(PIVOT_MASKED), substituted(UNPIVOT_MASKED, mask_from))
