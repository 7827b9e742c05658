"""One group: plain elimination and substitution, and what becomes of lanes without certificate."""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import store_rows
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words.systems import X_
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping, stopping_at
from tridiag.kernels.simd.memory import set_word, variable, word
from tridiag.kernels.thomas.bands import all_straight, height_of, knows_ends, moved_operands, views_of_block
from tridiag.kernels.thomas.bind import bind_next, mask_view
from tridiag.kernels.thomas.deferred import mark, may_wait, put_off, verifiable
from tridiag.kernels.thomas.pivoted_vector import EXCHANGE_VERIFIED
from tridiag.kernels.thomas.refine import FINISH_GROUP, hopeless, store_solution, uncertified_lanes
from tridiag.kernels.thomas.sweeps import (
    ELIMINATE,
    ELIMINATE_CONTIGUOUS,
    ELIMINATE_TURNED,
    ROWS_PLAIN,
    SUBSTITUTE,
    SUBSTITUTE_CONTIGUOUS,
    X_PLAIN,
)
from tridiag.kernels.thomas.workspace import (
    BLOCK,
    STEPS,
)

EARLY = 32  # rows after which a group is looked at for lanes that may go on,
VERY_EARLY = 8  # ... and the first time


@compiled
def eliminate_block(zero, job, worker, i0, i1, target):
    """One block of rows: its bands, then the sweep."""
    views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
    places = target, ROWS_PLAIN * bytes_of_row(zero, ()), worker.carry, worker.good
    ELIMINATE(zero, (*views, mask, mask_step, worker.bindings, i0, *places, variable(0), i1 - i0))


@compiled
def solve_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, one in each lane; ``follows``: behind the group before."""
    solve_bound(zero, job, worker, first, used, follows, all_straight, eliminate_straight, substitute_straight)


SOLVE_GROUP = STEPS.add_step(solve_group)


@inlined
def solve_bound(zero, job, worker, first, used, follows, rows_of, eliminate, substitute):
    """The same with some straight sweeps, and the function that tells of which rows they are."""
    row = bytes_of_row(zero, ())
    bind_next(zero, job, worker, first, used, follows)
    rows = rows_of(zero, job, worker)
    if not (
        sweep_down(zero, job, worker, used, rows, eliminate) and sweep_up(zero, job, worker, used, rows, substitute)
    ):
        good, solution = worker.good, worker.kept + (ROWS_PLAIN + X_PLAIN) * row
        settle_group(zero, job, worker, first, used, good, solution, ROWS_PLAIN * row)


@compiled
def settle_group(zero, job, worker, first, used, good, source, step):
    """The solution of a group to memory, from ``source``; lanes without certificate wait, or are left to others."""
    if stopping():
        return
    uncertified = uncertified_lanes(zero, job, word(good), used)
    whole, verified = uncertified == (1 << used) - 1, verifiable(zero, job)
    if job.marks != 0:
        if not whole:
            store_solution(zero, job, worker, source, step, used, 0)
        mark(job, first, uncertified)
    elif not may_wait(job) or (whole and not verified):
        FINISH_GROUP(zero, (job, worker, first, used, good, source, step))
    elif whole and job.interleaved == 0:
        put_off(worker.unrefined, first, uncertified & ~EXCHANGE_VERIFIED(zero, (job, worker, used)))
    else:
        if not whole:
            store_solution(zero, job, worker, source, step, used, 0)
        put_off(worker.unsolved if verified else worker.unrefined, first, uncertified)


@compiled
def sweep_down(zero, job, worker, used, rows, eliminate):
    """c' and y' of all rows of a group, and its certificates; gives up and returns False when no lane has one left."""
    row, low, high = bytes_of_row(zero, ()), worker.low, worker.high
    kept, good = worker.kept, worker.good
    ZERO(zero, (kept, row, ROWS_PLAIN))
    set_word(good, (1 << 2 * lanes_of(zero, ())) - 1)
    first, last, rest = rows
    eliminate_blocks(zero, job, worker, low, first)
    i, stop = first, min(first + VERY_EARLY, last)
    while i < last:
        eliminate(zero, job, worker, i, stop)
        if hopeless(zero, job, good, used) or stopping_at((i - first) // EARLY, 64):
            return False
        i, stop = stop, min(stop + EARLY, last)
    if rest > 0:  # with those before them, which are eliminated once more
        eliminate(zero, job, worker, high - height_of(zero), high)
    else:
        eliminate_blocks(zero, job, worker, last, high)
    return not hopeless(zero, job, good, used)


@compiled
def eliminate_blocks(zero, job, worker, first, last):
    for i0 in range(first, last, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            return
        target = worker.kept + (i0 - worker.low + 1) * ROWS_PLAIN * bytes_of_row(zero, ())
        eliminate_block(zero, job, worker, i0, min(i0 + BLOCK, last), target)


@compiled
def eliminate_straight(zero, job, worker, first, last):
    low, step = worker.low, ROWS_PLAIN * bytes_of_row(zero, ())
    places = worker.kept + (first - low + 1) * step, step, worker.carry, worker.good
    words = *moved_operands(zero, job, worker), low, worker.high, *places, first, last
    if knows_ends(zero, job):
        ELIMINATE_TURNED(zero, words)
    else:
        ELIMINATE_CONTIGUOUS(zero, words)


@compiled
def sweep_up(zero, job, worker, used, rows, substitute):
    """x of all rows of a group, in place of y'; or to memory at once if no lane needs more, which is the result."""
    lanes, row, low, high = lanes_of(zero, ()), bytes_of_row(zero, ()), worker.low, worker.high
    carry, x, none = worker.carry, operand_of(zero, worker.bindings, X_), variable(0)
    ZERO(zero, (carry, row, 1))
    first, last, rest = rows
    every, uncertified = variable(1), uncertified_lanes(zero, job, word(worker.good), lanes)
    if used != lanes or uncertified != 0 or last <= first:
        backward_block(zero, job, worker, low, high, none)
        return False
    store_rows(zero, x, none, low, worker.zeros, none, lanes)
    store_rows(zero, x, high, job.rows, worker.zeros, none, lanes)
    backward_block(zero, job, worker, last + rest, high, every)
    substitute(zero, worker, worker.kept + (first - low + 1) * ROWS_PLAIN * row, x, first, last, rest)
    backward_block(zero, job, worker, low, first, every)
    return True


@compiled
def substitute_straight(zero, worker, at, x, first, last, rest):
    SUBSTITUTE_CONTIGUOUS(zero, (at, ROWS_PLAIN * bytes_of_row(zero, ()), worker.carry, x, first, last, rest))


@compiled
def backward_block(zero, job, worker, first, last, store):
    row, x = bytes_of_row(zero, ()), operand_of(zero, worker.bindings, X_)
    if first < last:
        at = worker.kept + (first - worker.low + 1) * ROWS_PLAIN * row
        backward_rows(zero, worker, at, ROWS_PLAIN * row, worker.carry, first, last)
        if store:
            store_rows(zero, x, first, last, at + X_PLAIN * row, ROWS_PLAIN * row, lanes_of(zero, ()))


@compiled
def backward_rows(zero, worker, at, step, carry, first, last):
    """x in place of y', which lies behind c', in rows that are ``step`` bytes apart."""
    x, (mask, mask_step) = operand_of(zero, worker.bindings, X_), mask_view(zero, worker, first)
    SUBSTITUTE(zero, (at, step, carry, mask, mask_step, last - first, x, first))
