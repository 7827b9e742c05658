"""One group: plain elimination and substitution, or with partial pivoting throughout."""

from __future__ import annotations

from numba import njit

from tridiag.kernels import job as J
from tridiag.kernels.aims import aim_next, mask_view, operand_of
from tridiag.kernels.bands import moved_operands, straight, views_of_block
from tridiag.kernels.exchanging import (
    BACKWARD_EXCHANGED,
    BACKWARD_EXCHANGED_LINES,
    CLOSE_EXCHANGE,
    EXCHANGE,
    EXCHANGE_LINES,
)
from tridiag.kernels.hard import finish_group, hard_lanes, hopeless
from tridiag.kernels.lanes import ZERO
from tridiag.kernels.memory import set_word, word
from tridiag.kernels.moves import bytes_of_row, lanes_of, store_rows
from tridiag.kernels.sweeps import BACKWARD, BACKWARD_LINES, ELIMINATE, ELIMINATE_LINES
from tridiag.kernels.vector import OPTIONS
from tridiag.kernels.worker import AIMS, BLOCK, CARRY, GOOD, HIGH, LOW, WHOLE, X_, ZEROS, Y, field

EARLY = 32  # rows after which a tile is looked at for lanes that may go on


@njit(**OPTIONS)
def eliminate_block(zero, job, worker, i0, i1, target):
    """One block of rows: its bands, then the sweep."""
    views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
    step, aims, good = 2 * bytes_of_row(zero, ()), word(worker + AIMS), word(worker + GOOD)
    set_word(good, ELIMINATE(zero, (*views, mask, mask_step, target, step, i1 - i0, word(good), aims, i0)))


@njit(**OPTIONS)
def solve_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, one in each lane; ``follows``: behind the group before."""
    row = bytes_of_row(zero, ())
    aim_next(zero, job, worker, first, used, follows)
    if not (sweep_down(zero, job, worker, used) and sweep_up(zero, job, worker, used)):
        finish_group(zero, job, worker, first, used, word(worker + GOOD), word(worker + Y) + 3 * row, 2 * row)


@njit(**OPTIONS)
def sweep_down(zero, job, worker, used):
    """c' and y' of all rows of a group, and its certificates; gives up and returns False when no lane has one left."""
    row, low, high = bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    y, good = word(worker + Y), word(worker + GOOD)
    ZERO(zero, (y, row, 2))
    set_word(good, (1 << 2 * lanes_of(zero, ())) - 1)
    first, last = straight(zero, job, worker)
    eliminate_blocks(zero, job, worker, low, first)
    for i in range(first, last, EARLY):
        eliminate_straight(zero, job, worker, i, min(i + EARLY, last))
        if hopeless(zero, job, good, used):
            return False
    eliminate_blocks(zero, job, worker, last, high)
    return not hopeless(zero, job, good, used)


@njit(**OPTIONS)
def eliminate_blocks(zero, job, worker, first, last):
    for i0 in range(first, last, BLOCK):
        target = word(worker + Y) + (i0 - word(worker + LOW) + 1) * 2 * bytes_of_row(zero, ())
        eliminate_block(zero, job, worker, i0, min(i0 + BLOCK, last), target)


@njit(**OPTIONS)
def eliminate_straight(zero, job, worker, first, last):
    row, low, good = bytes_of_row(zero, ()), word(worker + LOW), word(worker + GOOD)
    target = word(worker + Y) + (first - low + 1) * 2 * row
    words = target, first, last, low, word(worker + HIGH), word(good)
    set_word(good, ELIMINATE_LINES(zero, (*moved_operands(zero, job, worker), *words)))


@njit(**OPTIONS)
def sweep_up(zero, job, worker, used):
    """x of all rows of a group, in place of y'; or to memory at once if no lane needs more, which is the result."""
    lanes, row, low, high = lanes_of(zero, ()), bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    carry, x = word(worker + CARRY), operand_of(zero, word(worker + AIMS), X_)
    ZERO(zero, (carry, row, 1))
    first, last = straight(zero, job, worker)
    hard, dead = hard_lanes(zero, job, word(word(worker + GOOD)), lanes)
    if used != lanes or hard | dead != 0 or last <= first:
        backward_block(zero, job, worker, low, high, False)
        return False
    store_rows(zero, x, 0, low, word(worker + ZEROS), 0, lanes)
    store_rows(zero, x, high, field(job, J.ROWS), word(worker + ZEROS), 0, lanes)
    backward_block(zero, job, worker, last, high, True)
    BACKWARD_LINES(zero, (word(worker + Y) + (first - low + 1) * 2 * row, x, carry, first, last))
    backward_block(zero, job, worker, low, first, True)
    return True


@njit(**OPTIONS)
def backward_block(zero, job, worker, first, last, store):
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    if first < last:
        at = word(worker + Y) + (first - word(worker + LOW) + 1) * 2 * row
        backward_rows(zero, worker, at, 2 * row, word(worker + CARRY), first, last)
        if store:
            store_rows(zero, x, first, last, at + row, 2 * row, lanes_of(zero, ()))


@njit(**OPTIONS)
def backward_rows(zero, worker, at, step, carry, first, last):
    """x in place of y', which lies behind c', in rows that are ``step`` bytes apart."""
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    mask, mask_step = mask_view(zero, worker, first)
    BACKWARD(zero, (at, step, at + row, step, mask, mask_step, at + row, step, carry, last - first, x, first))


@njit(**OPTIONS)
def exchange_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, with partial pivoting."""
    lanes, row, n, good = lanes_of(zero, ()), bytes_of_row(zero, ()), field(job, J.ROWS), word(worker + GOOD)
    aim_next(zero, job, worker, first, used, follows)
    keep_all_rows(zero, job, worker)
    start, last = straight(zero, job, worker)
    exchange_blocks(zero, job, worker, 0, start)
    if last > start:
        exchange_straight(zero, job, worker, start, last)
    exchange_blocks(zero, job, worker, last, n)
    end = word(worker + Y) + n * 4 * row, 4 * row, word(worker + CARRY), good
    sure = CLOSE_EXCHANGE(zero, end)
    if used == lanes and last > start and sure == (1 << lanes) - 1:
        back_exchanged(zero, job, worker, last, n, True)
        source, x = word(worker + Y) + (start + 1) * 4 * row, operand_of(zero, word(worker + AIMS), X_)
        BACKWARD_EXCHANGED_LINES(zero, (source, 4 * row, x, word(worker + CARRY), start, last))
        back_exchanged(zero, job, worker, 0, start, True)
    else:
        back_exchanged(zero, job, worker, 0, n, False)
        finish_group(zero, job, worker, first, used, good, word(worker + Y) + 7 * row, 4 * row)


@njit(**OPTIONS)
def keep_all_rows(zero, job, worker):
    """Sweep over all rows of a group, also those at the ends that are taken out, all lanes without a bad pivot yet."""
    n = field(job, J.ROWS)
    set_word(worker + WHOLE, word(worker + WHOLE) and word(worker + LOW) == 0 and word(worker + HIGH) == n)
    set_word(worker + LOW, 0)
    set_word(worker + HIGH, n)
    set_word(word(worker + GOOD), (1 << lanes_of(zero, ())) - 1)


@njit(**OPTIONS)
def exchange_blocks(zero, job, worker, first, last):
    y, step, carry, good = word(worker + Y), 4 * bytes_of_row(zero, ()), word(worker + CARRY), word(worker + GOOD)
    for i0 in range(first, last, BLOCK):
        i1 = min(i0 + BLOCK, last)
        views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
        words = y + (i0 + 1) * step, step, i1 - i0, carry, good, word(worker + AIMS), i0, 0
        EXCHANGE(zero, (*views, mask, mask_step, *words))


@njit(**OPTIONS)
def exchange_straight(zero, job, worker, first, last):
    row = bytes_of_row(zero, ())
    target = word(worker + Y) + (first + 1) * 4 * row
    words = target, 4 * row, first, last, 0, field(job, J.ROWS), word(worker + CARRY), word(worker + GOOD)
    EXCHANGE_LINES(zero, (*moved_operands(zero, job, worker), *words))


@njit(**OPTIONS)
def back_exchanged(zero, job, worker, first, last, store):
    """Rows first <= i < last of the solution, in their place and perhaps to memory."""
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    source, (mask, mask_step) = word(worker + Y) + (first + 1) * 4 * row, mask_view(zero, worker, first)
    if first < last:
        words = source, 4 * row, mask, mask_step, last - first, word(worker + CARRY), x, first
        BACKWARD_EXCHANGED(zero, words)
        if store:
            store_rows(zero, x, first, last, source + 3 * row, 4 * row, lanes_of(zero, ()))
