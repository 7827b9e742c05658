"""The driver of totals: claims items, binds groups to memory, goes over blocks of rows, puts what was found.

The job is that of `tridiag.kernels.logsumexp`, and so is the way in which groups and rows are walked; but no sequence
is cut into chunks, and in the place of the result lie the numbers of `tridiag.kernels.totals.words`, a plane of each.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.operands import CONTIGUOUS, QUAD, bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.jobs.words.logsumexp import Logsumexp
from tridiag.kernels.logsumexp.groups import point_at, total_of, view
from tridiag.kernels.logsumexp.loops import BEGIN as BEGIN_LOGARITHMS
from tridiag.kernels.logsumexp.loops import TOTAL_PLAIN, TOTAL_WEIGHTED
from tridiag.kernels.logsumexp.workspace import (
    BLOCK,
    BLOCK_INTERLEAVED,
    allocate_workspace,
    free_workspace,
    size_of_bindings,
    slot_of,
)
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.totals import words as W
from tridiag.kernels.totals.loops import (
    ASK_FOR_ROWS,
    BEGIN,
    BEGIN_LAST,
    COUNT_IN,
    DECAYED,
    LAST_BACKWARD,
    LAST_FORWARD,
    LAST_TRANSPOSED_BACKWARD,
    LAST_TRANSPOSED_FORWARD,
    NOTE_VALUE,
    PUT_LAST,
    PUT_LINEAR,
    PUT_LOGARITHMS,
    PUT_WEIGHTED,
    QUADS,
    TOTAL,
    TOTAL_BACKWARD,
    TOTAL_FORWARD,
    TOTAL_TRANSPOSED,
    TRANSPOSED_BACKWARD,
    TRANSPOSED_FORWARD,
)

JOB = RecordAt(Logsumexp)
HEAD = 4  # rows before those that go straight from memory
PIECE = 4096  # rows after which it is asked whether to end
BLOCK_LAST = 16  # rows after which a value is noted


# ------------------------------------------------------------------------------------------------ a block of rows


@compiled
def coefficients_of(zero, job, worker, bindings, i0, i1):
    return view(
        zero, job, operand_of(zero, bindings, J.LOG_A), i0, i1, worker.buffers + BLOCK * bytes_of_row(zero, ()), False
    )


@compiled
def linear(zero, job, worker, bindings, slot, x, i0, i1, starts):
    a, alone = coefficients_of(zero, job, worker, bindings, i0, i1), 1 if starts else 0
    TOTAL(zero, (*a, *x, slot, i1 - i0, alone, bindings, i0))


@compiled
def transposed(zero, job, worker, bindings, slot, x, i0, i1, starts):
    a = coefficients_of(zero, job, worker, bindings, i0, i1)
    TOTAL_TRANSPOSED(zero, (*a, *x, slot, i1 - i0, 0 * i0, bindings, i0))


@compiled
def logarithms(zero, job, worker, bindings, slot, x, i0, i1, starts):
    total_of(zero, x, slot, i1 - i0, bindings, i0, starts, worker.buffers + BLOCK * bytes_of_row(zero, ()))


@compiled
def weighted(zero, job, worker, bindings, slot, x, i0, i1, starts):
    (a, a_step), head = coefficients_of(zero, job, worker, bindings, i0, i1), 1 if starts else 0
    if starts:
        COUNT_IN(zero, (slot, a))
        TOTAL_PLAIN(zero, (*x, slot, head, bindings, i0))
    rest = i1 - i0 - head
    TOTAL_WEIGHTED(zero, (a + head * a_step, a_step, x[0] + head * x[1], x[1], slot, rest, bindings, i0 + head))


# ------------------------------------------------------------------------------------------------ all sequences


@compiled
def straight(zero, job, worker):
    """The steps, behind a first block, of one group whose operands are contiguous."""
    a, x, n = operand_of(zero, worker.bindings, J.LOG_A), operand_of(zero, worker.bindings, J.TERMS), job.rows
    height = QUADS * (QUAD // parts_of(zero, ()))
    return max(0, n - HEAD) // height * height if a.kind == CONTIGUOUS and x.kind == CONTIGUOUS else 0


@compiled
def run_straight(zero, job, worker, forward, backward):
    """Those steps; returns how many they are."""
    a, x = operand_of(zero, worker.bindings, J.LOG_A), operand_of(zero, worker.bindings, J.TERMS)
    n, slot, done = job.rows, worker.slots, straight(zero, job, worker)
    for begin in range(HEAD, HEAD + done, PIECE):
        if stopping_at(begin // PIECE, 4):
            break
        end = min(begin + PIECE, HEAD + done)
        if job.flags & J.REVERSED:
            backward(zero, (a, x, slot, n - end, n - begin))
        else:
            forward(zero, (a, x, slot, begin, end))
    return done


@compiled
def linear_straight(zero, job, worker):
    return run_straight(zero, job, worker, TOTAL_FORWARD, TOTAL_BACKWARD)


@compiled
def transposed_straight(zero, job, worker):
    return run_straight(zero, job, worker, TRANSPOSED_FORWARD, TRANSPOSED_BACKWARD)


@compiled
def none_straight(zero, job, worker):
    return 0


@inlined
def run_rows(zero, job, worker, count, do_block, do_straight):
    """All rows of the groups that are bound, block by block; those of one group straight from memory if they can be.

    Returns how many they are.
    """
    lanes, n, backward = lanes_of(zero, ()), job.rows, job.flags & J.REVERSED
    groups = (count + lanes - 1) // lanes
    height = BLOCK if groups == 1 else BLOCK_INTERLEAVED
    begin, first = 0, HEAD if groups == 1 and straight(zero, job, worker) > 0 else height
    while begin < n:
        if stopping_at(begin // height, 64):
            break
        end = min(begin + (first if begin == 0 else height), n)
        i0, i1 = (n - end, n - begin) if backward else (begin, end)
        for group in range(groups):
            bindings, slot = worker.bindings + group * size_of_bindings(zero), slot_of(zero, worker.slots, group)
            x = view(zero, job, operand_of(zero, bindings, J.TERMS), i0, i1, worker.buffers, False)
            do_block(zero, job, worker, bindings, slot, x, i0, i1, begin == 0)
        if begin == 0 and groups == 1:
            end += do_straight(zero, job, worker)
        begin = end
    return n


def some_rows(forward, backward):
    """(zero, job, bindings, slot, i0, i1): some rows of a group whose operands are contiguous."""

    @compiled
    def in_their_order(zero, job, bindings, slot, i0, i1):
        a, x = operand_of(zero, bindings, J.LOG_A), operand_of(zero, bindings, J.TERMS)
        if job.flags & J.REVERSED:
            backward(zero, (a, x, slot, i0, i1))
        else:
            forward(zero, (a, x, slot, i0, i1))

    return in_their_order


last_linear = some_rows(LAST_FORWARD, LAST_BACKWARD)
last_transposed = some_rows(LAST_TRANSPOSED_FORWARD, LAST_TRANSPOSED_BACKWARD)


@inlined
def run_last_rows(zero, job, worker, count, do_block, do_straight):
    """The last rows of the groups that are bound, so many that those before them count in none; returns how many."""
    lanes, n, backward = lanes_of(zero, ()), job.rows, job.flags & J.REVERSED
    groups, taken, found = (count + lanes - 1) // lanes, 0, False
    height = BLOCK_LAST if groups == 1 else BLOCK_INTERLEAVED
    contiguous = groups == 1 and straight(zero, job, worker) > 0
    while not found and taken < n and not stopping_at(taken, 1):
        known, taken, found = taken, min(n, max(W.FIRST_TRIED, 2 * taken)), True
        if contiguous and known > 0:
            i0, i1 = (known, taken) if backward else (n - taken, n - known)
            ASK_FOR_ROWS(zero, (operand_of(zero, worker.bindings, J.LOG_A), i0, i1))
            ASK_FOR_ROWS(zero, (operand_of(zero, worker.bindings, J.TERMS), i0, i1))
        for group in range(groups):
            BEGIN_LAST(zero, (slot_of(zero, worker.slots, group),))
        begin = n - taken
        while begin < n:
            end = min(begin + height, n)
            at_once = (n - begin) // height * height
            if contiguous and begin > 0 and at_once > 0:  # of the first row the coefficient only counts in the product
                end = begin + at_once
                i0, i1 = (n - end, n - begin) if backward else (begin, end)
                do_straight(zero, job, worker.bindings, worker.slots, i0, i1)
            else:
                i0, i1 = (n - end, n - begin) if backward else (begin, end)
                for group in range(groups):
                    bindings, slot = (
                        worker.bindings + group * size_of_bindings(zero),
                        slot_of(zero, worker.slots, group),
                    )
                    x = view(zero, job, operand_of(zero, bindings, J.TERMS), i0, i1, worker.buffers, False)
                    do_block(zero, job, worker, bindings, slot, x, i0, i1, begin == n - taken)
                    NOTE_VALUE(zero, (slot,))
            begin = end
        for group in range(groups):
            found = found and DECAYED(zero, (slot_of(zero, worker.slots, group),)) == 1
    return taken


@inlined
def work(job, zero, begin, run_all, do_block, do_straight, put):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    lanes, width, side = lanes_of(zero, ()), job.lanes, bytes_of_real(zero, ())
    run = job.interleaved if job.interleaved else job.matrices
    stretches, share = (run + width - 1) // width, width if job.interleaved else lanes
    for item in items(job):
        place, origin = item % stretches * width, item // stretches * run
        for at in range(place, min(place + width, run), share):
            count, first = min(share, place + width - at, run - at), origin + at
            for group in range((count + lanes - 1) // lanes):
                bindings, used = worker.bindings + group * size_of_bindings(zero), min(lanes, count - group * lanes)
                begin(zero, (slot_of(zero, worker.slots, group),))
                point_at(zero, job, first + group * lanes, used, bindings, at > place)
            rows = run_all(zero, job, worker, count, do_block, do_straight)
            for group in range((count + lanes - 1) // lanes):
                target, used = (
                    job.pointers[J.RESULT] + (first + group * lanes) * side,
                    min(lanes, count - group * lanes),
                )
                put(zero, (slot_of(zero, worker.slots, group), target, job.matrices * side, used, rows))
    free_workspace(worker)


@compiled
def work_linear(job, zero):
    work(job, zero, BEGIN, run_rows, linear, linear_straight, PUT_LINEAR)


@compiled
def work_transposed(job, zero):
    work(job, zero, BEGIN, run_rows, transposed, transposed_straight, PUT_LINEAR)


@compiled
def work_last_linear(job, zero):
    work(job, zero, BEGIN_LAST, run_last_rows, linear, last_linear, PUT_LAST)


@compiled
def work_last_transposed(job, zero):
    work(job, zero, BEGIN_LAST, run_last_rows, transposed, last_transposed, PUT_LAST)


@compiled
def work_logarithms(job, zero):
    work(job, zero, BEGIN_LOGARITHMS, run_rows, logarithms, none_straight, PUT_LOGARITHMS)


@compiled
def work_weighted(job, zero):
    work(job, zero, BEGIN_LOGARITHMS, run_rows, weighted, none_straight, PUT_WEIGHTED)


TASKS = {
    kind: c_function(task, f"tridiag_total_{kind}", first=JOB)
    for kind, task in (
        (W.LINEAR, work_linear),
        (W.TRANSPOSED, work_transposed),
        (W.LAST_LINEAR, work_last_linear),
        (W.LAST_TRANSPOSED, work_last_transposed),
        (W.LOGARITHMS, work_logarithms),
        (W.WEIGHTED, work_weighted),
    )
}


def build(dtype: str, kind: str):
    """The C function void run(job, helpers) of a kernel for a dtype."""
    return runner(np.zeros((), dtype)[()], TASKS[kind])
