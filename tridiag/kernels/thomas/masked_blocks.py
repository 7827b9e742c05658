"""Blocks of rows of long systems that lie side by side, of which rows are taken out.

What `tridiag.kernels.thomas.row_blocks` does with rows of a block, with the words of the mask behind its operands.
"""

from __future__ import annotations

from numba import njit

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.masked_layouts import GATHER_MASK
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.jobs.words.systems import WHERE_
from tridiag.kernels.simd.vector import OPTIONS
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
from tridiag.kernels.thomas.sweeps import BEGIN_PIVOTED, CLOSE_PIVOTED


@njit(**OPTIONS)
def read_masked(zero, job, worker, item, most):
    """The words of the layout that come first: operands, moves, the place of the last group, the mask."""
    return (*moved_operands(zero, job, worker), most, *mask_of_block(zero, job, worker, item))


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def eliminate_masked(zero, job, operands, groups, state, target, first, last, good):
    """Rows first <= i < last to ``target``, from the state before them to that behind them."""
    step = 2 * groups * bytes_of_row(zero, ())
    copy(state, target - step, step)
    words = (*operands[:9], job.rows, groups, *operands[9:], target, step, state, good, first, last)
    if is_narrow(zero, groups):
        ELIMINATE_MASKED_NARROW(zero, words)
    elif job.spans == 1:
        ELIMINATE_MASKED_STREAM(zero, words)
    else:
        ELIMINATE_MASKED(zero, words)
    copy(target + (last - first - 1) * step, state, step)


@njit(**OPTIONS)
def substitute_masked(zero, operands, i0, words):
    """Rows from ``i0`` on; the fourth word says how many groups there are."""
    mask = mask_from(operands, i0)
    if is_narrow(zero, words[3]):
        SUBSTITUTE_MASKED_NARROW(zero, (*words, *mask))
    else:
        SUBSTITUTE_MASKED(zero, (*words, *mask))


@njit(**OPTIONS)
def mask_from(operands, i0):
    """The words of the mask with row ``i0`` as the first."""
    base, stride, side = operands[9:]
    return base + i0 * stride, stride, side


@njit(**OPTIONS)
def begin_pivoted_masked(zero, job, operands, groups, state, room, first):
    """The state before row ``first`` if that were the first row, with partial pivoting: behind its entry."""
    step = 4 * groups * bytes_of_row(zero, ())
    BEGIN_PIVOTED(zero, (state, groups))
    words = (*operands[:9], job.rows, groups, *operands[9:])
    PIVOT_MASKED(zero, (*words, room + step, step, state, room, first, first + 1))


@njit(**OPTIONS)
def eliminate_pivoted_masked(zero, job, operands, groups, state, target, first, last, good):
    row, n = bytes_of_row(zero, ()), job.rows
    step = 4 * groups * row
    words = (*operands[:9], n, groups, *operands[9:])
    PIVOT_MASKED(zero, (*words, target, step, state, good, first + 1, min(last + 1, n)))
    if last == n:
        end = target + (n - 1 - first) * step
        for group in range(groups):
            CLOSE_PIVOTED(zero, (end + 4 * group * row, step, state + 4 * group * row, good + 8 * group))


@njit(**OPTIONS)
def substitute_pivoted_masked(zero, operands, i0, words):
    UNPIVOT_MASKED(zero, (*words, *mask_from(operands, i0)))
