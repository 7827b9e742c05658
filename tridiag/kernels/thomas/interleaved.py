"""Groups that lie side by side in memory, row by row through all of them."""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import set_word, word
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.bands import moved_operands
from tridiag.kernels.thomas.bind import bind_group, read_mask
from tridiag.kernels.thomas.deferred import may_wait, put_off, refine_in_cache, verifiable
from tridiag.kernels.thomas.one_vector import backward_rows, settle_group
from tridiag.kernels.thomas.pivoted_vector import EXCHANGE_GROUP
from tridiag.kernels.thomas.refine import hopeless, uncertified_lanes
from tridiag.kernels.thomas.residuals import SUBSTITUTE_VERIFIED_INTERLEAVED
from tridiag.kernels.thomas.sweeps import (
    BEGIN_PIVOTED,
    CARRIED_PIVOTED,
    CLOSE_PIVOTED,
    ELIMINATE_INTERLEAVED,
    PIVOT_INTERLEAVED,
    PUT_INTERLEAVED,
    PUT_STREAM,
    ROWS_PIVOTED,
    ROWS_PLAIN,
    SUBSTITUTE_INTERLEAVED,
    SUBSTITUTE_STREAM,
    UNPIVOT_INTERLEAVED,
    UNPIVOT_STREAM,
    X_PIVOTED,
    X_PLAIN,
)
from tridiag.kernels.thomas.workspace import STEPS, VERIFIED

WORTH_A_VECTOR = 4  # systems are refined where they fill this part of a vector, though more of them may follow
EARLY = 16  # rows after which a tile is looked at for lanes that may go on


@compiled
def solve_interleaved(zero, job, worker, first, groups):
    """Groups that lie side by side, row by row through all of them."""
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), job.rows, worker.kept
    step, good, carry = ROWS_PLAIN * row * groups, worker.good, worker.carry
    start_interleaved(zero, job, worker, first, groups)
    read_mask(zero, job, worker)
    ZERO(zero, (carry, row, groups))
    if sweep_down(zero, job, worker, groups, (), ELIMINATE_INTERLEAVED) and all_certified(zero, job, worker, groups):
        words = (y + step, step, carry, groups, n, *solution_interleaved(zero, worker), (groups - 1) * row)
        if past_caches(zero, job):
            SUBSTITUTE_STREAM(zero, words)
        else:
            SUBSTITUTE_INTERLEAVED(zero, words)
        return
    wait = job.marks == 0 and may_wait(job) and verifiable(zero, job)
    for group in range(groups):
        at, here, found = first + group * lanes, y + step + ROWS_PLAIN * group * row, good + 8 * group
        given_up = hopeless(zero, job, found, lanes)
        if given_up and wait:
            continue
        bind_group(zero, job, worker, at, lanes)
        if not given_up:
            backward_rows(zero, worker, here, step, carry + group * row, 0, n)
        settle_group(zero, job, worker, at, lanes, found, here + X_PLAIN * row, step)
    if wait:
        settle_interleaved(zero, job, worker, first, groups)


SOLVE_INTERLEAVED = STEPS.add_step(solve_interleaved)


@compiled
def settle_interleaved(zero, job, worker, first, groups):
    """The groups of a tile that were given up, as many neighbours at a time as pivot rows are kept of."""
    lanes, good, group = lanes_of(zero, ()), worker.good, 0
    while group < groups:
        end = group
        while end < min(groups, group + VERIFIED) and hopeless(zero, job, good + 8 * end, lanes):
            end += 1
        if end > group:
            EXCHANGE_VERIFIED_INTERLEAVED(zero, (job, worker, first + group * lanes, end - group, good + 8 * group))
        group = max(end, group + 1)


@compiled
def exchange_verified_interleaved(zero, job, worker, first, groups, good):
    """Groups side by side with partial pivoting, to memory; the systems that are not as good as is promised wait.

    Where they are worth a vector they are refined at once, while they are in cache, before the solution goes to memory.
    """
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), job.rows, worker.kept
    step, carry, every, unrefined = ROWS_PIVOTED * row * groups, worker.carry, (1 << lanes) - 1, worker.unrefined
    bind_group(zero, job, worker, first, lanes)
    for group in range(groups):
        set_word(good + 8 * group, every)
    operands, before = moved_operands(zero, job, worker), word(unrefined)
    BEGIN_PIVOTED(zero, (carry, groups))
    PIVOT_INTERLEAVED(zero, (*operands, (groups - 1) * row, n, groups, y, step, carry, good, 0, n))
    for group in range(groups):
        at = ROWS_PIVOTED * group * row
        sure = CLOSE_PIVOTED(zero, (y + n * step + at, step, carry + at, good + 8 * group))
        words = (*operands, group * row, y + step + at, step, n, sure, groups * row)
        fine = SUBSTITUTE_VERIFIED_INTERLEAVED(zero, words)
        put_off(unrefined, first + group * lanes, every & ~fine)
    fewest, poor = lanes // WORTH_A_VECTOR, word(unrefined) - before
    refine_in_cache(zero, job, worker, fewest, poor, first, y + step + X_PIVOTED * row, step)
    words = (y + step, step, groups, n, *solution_interleaved(zero, worker), (groups - 1) * row)
    if past_caches(zero, job):
        PUT_STREAM(zero, words)
    else:
        PUT_INTERLEAVED(zero, words)


EXCHANGE_VERIFIED_INTERLEAVED = STEPS.add_step(exchange_verified_interleaved)


@compiled
def start_interleaved(zero, job, worker, first, groups):
    """Aim at the first of some groups, every lane of which has still its certificate."""
    bind_group(zero, job, worker, first, lanes_of(zero, ()))
    for group in range(groups):
        set_word(worker.good + 8 * group, (1 << 2 * lanes_of(zero, ())) - 1)


@compiled
def solution_interleaved(zero, worker):
    """Where the first row of a solution is, and how far the next."""
    x = operand_of(zero, worker.bindings, X_)
    return x.lanes[0], x.stride


@compiled
def past_caches(zero, job):
    """Whether a solution goes straight to memory: large, in whole lines, not in place of d."""
    return job.pointers[D_] != job.pointers[X_] and job.flags & J.LARGE and begins_lines(zero, job)


@inlined
def sweep_down(zero, job, worker, groups, mask, eliminate):
    """c' and y' of all rows of all groups, and their certificates; False when no lane of any has one left.

    ``mask``: its words, if rows are taken out, as ``eliminate`` takes them.
    """
    row, n, good, y = bytes_of_row(zero, ()), job.rows, worker.good, worker.kept
    step, operands = ROWS_PLAIN * row * groups, moved_operands(zero, job, worker)
    ZERO(zero, (y, row, ROWS_PLAIN * groups))
    for i in range(0, n, EARLY):
        last = min(i + EARLY, n)
        places = y + (i + 1) * step, step, worker.carry, good
        eliminate(zero, (*operands, (groups - 1) * row, n, groups, *mask, *places, i, last))
        given_up = True
        for group in range(groups):
            given_up = given_up and hopeless(zero, job, good + 8 * group, lanes_of(zero, ()))
        if given_up or stopping_at(i // EARLY, 64):
            return False
    return True


@compiled
def exchange_interleaved(zero, job, worker, first, groups):
    """The same with partial pivoting."""
    start_interleaved(zero, job, worker, first, groups)
    read_mask(zero, job, worker)
    exchange(zero, job, worker, first, groups, (), PIVOT_INTERLEAVED, UNPIVOT_INTERLEAVED, UNPIVOT_STREAM)


EXCHANGED_INTERLEAVED = STEPS.add_step(exchange_interleaved)


@inlined
def exchange(zero, job, worker, first, groups, mask, pivot, unpivot, unpivot_stream):
    """Groups that are aimed at, with partial pivoting, to memory; ``mask``: as in `sweep_down`."""
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), job.rows, worker.kept
    step, good, carry = ROWS_PIVOTED * row * groups, worker.good, worker.carry
    operands = (*moved_operands(zero, job, worker), (groups - 1) * row)
    BEGIN_PIVOTED(zero, (carry, groups))
    pivot(zero, (*operands, n, groups, *mask, y, step, carry, good, 0, n))
    every, sure = (1 << lanes) - 1, (1 << lanes) - 1
    for group in range(groups):
        at = group * row
        end = y + n * step + ROWS_PIVOTED * at, step, carry + CARRIED_PIVOTED * at, good + 8 * group
        sure &= CLOSE_PIVOTED(zero, end)
    if sure != every:
        for group in range(groups):
            EXCHANGE_GROUP(zero, (job, worker, first + group * lanes, lanes, 0))
        return
    words = (y + step, step, carry, groups, n, *solution_interleaved(zero, worker), (groups - 1) * row, *mask)
    if past_caches(zero, job):
        unpivot_stream(zero, words)
    else:
        unpivot(zero, words)


@compiled
def all_certified(zero, job, worker, groups):
    for group in range(groups):
        if uncertified_lanes(zero, job, word(worker.good + 8 * group), lanes_of(zero, ())) != 0:
            return False
    return True


@compiled
def begins_lines(zero, job):
    """Whether groups can be placed where cache lines of the solution begin."""
    return job.flags & J.LINED != 0 and job.pointers[X_] % (bytes_of_real(zero, ()) * parts_of(zero, ())) == 0


@compiled
def extent(zero, job, tile):
    """The systems low <= k < high of a tile; from ``whole`` on, before ``rest``, they are whole groups side by side."""
    lanes, width, interleaved = lanes_of(zero, ()), job.lanes, job.interleaved
    if interleaved == 0:
        first = tile * width
        return first, first, first, min(first + width, job.matrices)
    shift = 0
    if begins_lines(zero, job):
        shift = job.pointers[X_] % LINE // (bytes_of_real(zero, ()) * parts_of(zero, ()))
    stretches = job.stretches
    origin, place = tile // stretches * interleaved, tile % stretches * width
    low, high = max(0, place - shift), min(interleaved, place + width - shift)
    whole = min(high, (low + shift + lanes - 1) // lanes * lanes - shift)
    rest = max(whole, whole + (high - whole) // lanes * lanes)
    return origin + low, origin + whole, origin + rest, origin + high
