"""Parts of systems, whose first and last rows are coupled to rows that lie elsewhere, by plain elimination.

A part is reduced: one sweep over a, b, c and d, of which nothing is kept but how its ends depend on the unknowns before
and behind (`tridiag.kernels.parts.loops`). What joins the parts of a system is a small tridiagonal system of their last
unknowns. With these known a part is finished: plain Thomas on all rows but the last. Words moved: 4, and then 5. Where
``certificates`` points at memory the rows at its ends are judged at the same time, as long as caches hold them.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import clash, store_rows
from tridiag.kernels.access.operands import CONTIGUOUS, QUAD, bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, D_, WHERE_, X_, Systems
from tridiag.kernels.parts.loops import (
    BEFORE,
    BEGIN_ENDS,
    COPY_ROW,
    ELIMINATE_COUPLED,
    ENDS,
    ENDS_COUPLED,
    FIRST,
    GOOD,
    JUDGE,
    KEEP_TOP,
    KNOWN_ROWS,
    LAST,
    LOAD_KNOWN,
    LOAD_VALUES,
    ROWS,
    SET_KNOWN,
    SET_ONE,
    STORE_RELATIONS,
    TELL_JUDGED,
)
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, flush, set_word, variable, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.thomas.bands import moved_operands, views_of_block
from tridiag.kernels.thomas.bind import bind_next, mask_view
from tridiag.kernels.thomas.one_vector import EARLY, backward_rows
from tridiag.kernels.thomas.sweeps import ELIMINATE, ROWS_PLAIN, SUBSTITUTE_CONTIGUOUS, X_PLAIN
from tridiag.kernels.thomas.workspace import BLOCK, allocate_groups, free_workspace

JOB = RecordAt(Systems)


# ------------------------------------------------------------------------------------------------ rows


@compiled
def views_of_part(zero, job, worker, i0, i1):
    """The bands of a block of rows, where a[0] and c[n-1] are one."""
    views, row = views_of_block(zero, job, worker, i0, i1, 4), bytes_of_row(zero, ())
    if i0 == 0:
        SET_ONE(zero, (worker.buffer,))
    if i1 == job.rows:
        SET_ONE(zero, (worker.buffer + (2 * BLOCK + i1 - 1 - i0) * row,))
    return views


@compiled
def straight_part(zero, job, worker, last_operand, stop):
    """The rows of a group, before row ``stop``, that the straight sweep may take: see `bands.straight`.

    The rows behind them are none, or so many that they are loaded by vectors.
    """
    for k in range(A_, last_operand + 1):
        operand = operand_of(zero, worker.bindings, k)
        if k != WHERE_ and (operand.kind != CONTIGUOUS or clash(zero, operand.addresses.lanes)):
            return 0, 0
    height, n = QUAD // parts_of(zero, ()), job.rows
    first = 1 if job.flags & J.TRANSPOSE else 0
    last = first + max(0, stop - first) // height * height
    if last < n < last + height:
        last -= height
    return first, max(first, last)


# ------------------------------------------------------------------------------------------------ reduce


@compiled
def reduce_rows(zero, worker, bands, i0, count):
    """So many rows, whose bands are at hand, from row i0 on."""
    (mask, step), carry = mask_view(zero, worker, i0), worker.kept
    ENDS(zero, (*bands, mask, step, worker.bindings, i0, carry, 0, carry, worker.good, variable(0), count))


@compiled
def reduce_blocks(zero, job, worker, first, last):
    """Rows that the straight sweep does not take; before the last row of all, what is known of the first is kept."""
    n = job.rows
    for i0 in range(first, last, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            return
        i1 = min(i0 + BLOCK, last)
        bands, own = views_of_part(zero, job, worker, i0, i1), i1 - i0 - (1 if i1 == n else 0)
        reduce_rows(zero, worker, bands, i0, own)
        if i1 == n:
            KEEP_TOP(zero, (worker.kept,))
            a, a_step, b, b_step, c, c_step, d, d_step = bands
            at_end = a + own * a_step, a_step, b + own * b_step, b_step, c + own * c_step, c_step
            reduce_rows(zero, worker, (*at_end, d + own * d_step, d_step), n - 1, 1)


@inlined
def reduce_group(zero, job, worker, first, used):
    """Parts, one in each lane; gives up when no lane has its certificate any more."""
    n, carry, good = job.rows, worker.kept, worker.good
    plane = job.matrices * bytes_of_real(zero, ())
    BEGIN_ENDS(zero, (carry, good))
    low, high = straight_part(zero, job, worker, D_, n - 1)
    reduce_blocks(zero, job, worker, 0 * n, low)
    for i in range(low, high, EARLY):
        places = carry, 0, carry, good, i, min(i + EARLY, high)
        ENDS_COUPLED(zero, (*moved_operands(zero, job, worker), 0, n, *places))
        if word(good) & ((1 << used) - 1) == 0 or stopping_at((i - low) // EARLY, 64):
            break
    reduce_blocks(zero, job, worker, high, n)
    STORE_RELATIONS(zero, (carry, good, job.relations + first * bytes_of_real(zero, ()), plane, used))


# ------------------------------------------------------------------------------------------------ finish


@compiled
def kept_row(zero, worker, i):
    """What is kept of row i: behind that of row -1."""
    return worker.kept + (i + 1) * ROWS_PLAIN * bytes_of_row(zero, ())


@compiled
def eliminate_blocks(zero, job, worker, first, last):
    """Rows that the straight sweep does not take."""
    step = ROWS_PLAIN * bytes_of_row(zero, ())
    for i0 in range(first, last, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            return
        i1, (mask, mask_step) = min(i0 + BLOCK, last), mask_view(zero, worker, i0)
        bands, places = views_of_part(zero, job, worker, i0, i1), (kept_row(zero, worker, i0), step)
        operands = worker.bindings, i0, *places, worker.carry, worker.good, variable(0), i1 - i0
        ELIMINATE(zero, (*bands, mask, mask_step, *operands))


@compiled
def substitute_blocks(zero, worker, first, last, used):
    """x of rows first <= i < last, from that of the row behind, to memory."""
    if first < last:
        at, step = kept_row(zero, worker, first), ROWS_PLAIN * bytes_of_row(zero, ())
        backward_rows(zero, worker, at, step, worker.carry, first, last)
        x = operand_of(zero, worker.bindings, X_)
        store_rows(zero, x, first, last, at + X_PLAIN * bytes_of_row(zero, ()), step, used)


@inlined
def finish_group(zero, job, worker, first, used):
    """Parts, one in each lane, whose last unknowns are known."""
    n, row, good, carry = job.rows, bytes_of_row(zero, ()), worker.good, worker.carry
    step, side, x = ROWS_PLAIN * row, bytes_of_real(zero, ()), operand_of(zero, worker.bindings, X_)
    known, told = kept_row(zero, worker, n), (job.relations + first * side, job.matrices * side, used)
    if job.certificates != 0:
        LOAD_KNOWN(zero, (*told, known))
    else:
        LOAD_VALUES(zero, (*told, known))
    SET_KNOWN(zero, (worker.kept, known + BEFORE * row))
    set_word(good, (1 << 2 * lanes_of(zero, ())) - 1)
    low, high = straight_part(zero, job, worker, X_, n - 1 if job.flags & J.TRANSPOSE else n)
    eliminate_blocks(zero, job, worker, 0 * n, low)
    for i in range(low, high, EARLY):
        if stopping_at((i - low) // EARLY, 64):
            return
        places = kept_row(zero, worker, i), step, carry, good, i, min(i + EARLY, high)
        ELIMINATE_COUPLED(zero, (*moved_operands(zero, job, worker), 0, n, *places))
    eliminate_blocks(zero, job, worker, high, n)
    SET_KNOWN(zero, (kept_row(zero, worker, n - 1), known + LAST * row))
    if job.certificates != 0:
        SET_KNOWN(zero, (kept_row(zero, worker, 0 * n), known + FIRST * row))
        low, high = between_judged(zero, n, low, high)
    ZERO(zero, (carry, row, 1))
    if used < lanes_of(zero, ()) or low >= high:
        substitute_blocks(zero, worker, 0 * n, n, used)
    else:
        substitute_blocks(zero, worker, high, n, used)
        SUBSTITUTE_CONTIGUOUS(zero, (kept_row(zero, worker, low), step, carry, x, low, high, 0 * n))
        substitute_blocks(zero, worker, 0 * n, low, used)
    if job.certificates != 0:
        judge_group(zero, job, worker, first, used)


@compiled
def between_judged(zero, n, low, high):
    """The rows that the straight sweep may substitute, if x is to be kept of rows 1, 2 and n-2."""
    height = QUAD // parts_of(zero, ())
    return low + (2 + height) // height * height, high - height if high > n - 2 else high


@compiled
def judge_group(zero, job, worker, first, used):
    """Whether the residuals of rows 0, 1 and n-1 are rounding, and the elimination of all has its certificate."""
    n, row, known = job.rows, bytes_of_row(zero, ()), kept_row(zero, worker, job.rows)
    for place, i in ((FIRST + 1, 1), (FIRST + 2, 2), (LAST - 1, n - 2)):
        COPY_ROW(zero, (kept_row(zero, worker, i) + X_PLAIN * row, known + place * row))
    good = known + GOOD * row
    SET_ONE(zero, (good,))
    JUDGE(zero, (*views_of_part(zero, job, worker, 0 * n, 0 * n + 2), known + BEFORE * row, good, 2))
    JUDGE(zero, (*views_of_part(zero, job, worker, n - 1, n), known + (LAST - 1) * row, good, 1))
    TELL_JUDGED(zero, (good, worker.good, job.certificates + first * bytes_of_real(zero, ()), used))


# ------------------------------------------------------------------------------------------------ all parts


@inlined
def work(job, zero, kept, do_group):
    """Claim items until none is left; called by every thread of a job. ``kept``: rows of lanes."""
    worker = allocate_groups(zero, job, 1, kept, False)
    if address_of(worker) == 0:
        return
    width, parts, tiles = job.lanes, job.matrices, job.tiles
    for run in items(job):
        begin = run * tiles * width
        for first in range(begin, min(parts, begin + tiles * width), width):
            used = min(width, parts - first)
            bind_next(zero, job, worker, first, used, first > begin)
            do_group(zero, job, worker, first, used)
    flush()
    free_workspace(worker)


@compiled
def reduce_all(job, zero):
    work(job, zero, ROWS, reduce_group)


@compiled
def finish_all(job, zero):
    work(job, zero, (job.rows + 1) * ROWS_PLAIN + KNOWN_ROWS, finish_group)


TASKS = {
    "reduce": c_function(reduce_all, "tridiag_reduce_parts", first=JOB),
    "finish": c_function(finish_all, "tridiag_finish_parts", first=JOB),
}


def build(dtype: str, kind: str):
    """The C function void run(job, helpers) of a kernel for a dtype."""
    return runner(np.zeros((), dtype)[()], TASKS[kind])
