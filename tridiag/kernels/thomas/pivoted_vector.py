"""One group with partial pivoting throughout."""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import load_rows, store_rows
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.access.rows import ITERATE, RIGHT
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping, stopping_at
from tridiag.kernels.simd.memory import set_word, variable
from tridiag.kernels.thomas.bands import height_of, moved_operands, straight, views_of_block
from tridiag.kernels.thomas.bind import bind_next, mask_view
from tridiag.kernels.thomas.refine import FINISH_GROUP, load_tile
from tridiag.kernels.thomas.residuals import VERIFY, VERIFY_LINES
from tridiag.kernels.thomas.sweeps import (
    BEGIN_PIVOTED,
    CLOSE_PIVOTED,
    PIVOT,
    PIVOT_CONTIGUOUS,
    ROWS_PIVOTED,
    UNPIVOT,
    UNPIVOT_CONTIGUOUS,
    X_PIVOTED,
)
from tridiag.kernels.thomas.workspace import BLOCK, STEPS


@compiled
def exchange_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, with partial pivoting."""
    lanes, row, good, none = lanes_of(zero, ()), bytes_of_row(zero, ()), worker.good, variable(0)
    bind_next(zero, job, worker, first, used, follows)
    start, last, sure = exchange_rows(zero, job, worker)
    if used == lanes and last > start and sure == (1 << lanes) - 1:
        back_to_memory(zero, job, worker, start, last)
    else:
        back_exchanged(zero, job, worker, none, job.rows, none)
        solution = worker.kept + (ROWS_PIVOTED + X_PIVOTED) * row
        FINISH_GROUP(zero, (job, worker, first, used, good, solution, ROWS_PIVOTED * row))


EXCHANGE_GROUP = STEPS.add_step(exchange_group)


@compiled
def exchange_verified(zero, job, worker, used):
    """The group at hand with partial pivoting, to memory; the lanes where the solution is as good as is promised."""
    n, x = job.rows, operand_of(zero, worker.bindings, X_)
    start, last, sure = exchange_rows(zero, job, worker)
    if stopping():
        return 0 * sure
    if used == lanes_of(zero, ()):
        back_to_memory(zero, job, worker, start, last)
    else:
        row, none = bytes_of_row(zero, ()), variable(0)
        back_exchanged(zero, job, worker, none, n, none)
        store_rows(zero, x, none, n, worker.kept + (ROWS_PIVOTED + X_PIVOTED) * row, ROWS_PIVOTED * row, used)
    if job.interleaved == 0:
        return sure & VERIFY_LINES(zero, (*moved_operands(zero, job, worker), x, n, used))
    load_tile(zero, job, worker)
    tile, plane, first = worker.tile, n * bytes_of_row(zero, ()), variable(0)
    load_rows(zero, operand_of(zero, worker.bindings, D_), first, n, tile + RIGHT * plane)
    load_rows(zero, x, first, n, tile + ITERATE * plane)
    return sure & VERIFY(zero, (tile, n))


EXCHANGE_VERIFIED = STEPS.add_step(exchange_verified)


@compiled
def exchange_rows(zero, job, worker):
    """The pivot rows of a group. Which of its rows are straight, and the lanes whose pivots were all fine."""
    row, n = bytes_of_row(zero, ()), job.rows
    keep_all_rows(zero, job, worker)
    start, last, rest = straight(zero, job, worker)
    BEGIN_PIVOTED(zero, (worker.carry, variable(1)))
    exchange_blocks(zero, job, worker, variable(0), start)
    if last > start:
        exchange_straight(zero, job, worker, start + rest, last + rest, rest)
        last += rest
    exchange_blocks(zero, job, worker, last, n)
    end = worker.kept + n * ROWS_PIVOTED * row, ROWS_PIVOTED * row, worker.carry, worker.good
    return start, last, CLOSE_PIVOTED(zero, end)


@compiled
def back_to_memory(zero, job, worker, start, last):
    """The solution of a whole group from its pivot rows."""
    none, every, n, step = variable(0), variable(1), job.rows, ROWS_PIVOTED * bytes_of_row(zero, ())
    source, x = worker.kept + (start + 1) * step, operand_of(zero, worker.bindings, X_)
    rest = (last - start) % height_of(zero)
    back_exchanged(zero, job, worker, last, n, every)
    UNPIVOT_CONTIGUOUS(zero, (source, step, worker.carry, x, start, last - rest, rest))
    back_exchanged(zero, job, worker, none, start, every)


@compiled
def keep_all_rows(zero, job, worker):
    """Sweep over all rows of a group, also those at the ends that are taken out, all lanes without a bad pivot yet."""
    n = job.rows
    worker.whole = worker.whole and worker.low == 0 and worker.high == n
    worker.low = 0
    worker.high = n
    set_word(worker.good, (1 << lanes_of(zero, ())) - 1)


@compiled
def exchange_blocks(zero, job, worker, first, last):
    kept, step = worker.kept, ROWS_PIVOTED * bytes_of_row(zero, ())
    carry, good = worker.carry, worker.good
    for i0 in range(first, last, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            return
        i1 = min(i0 + BLOCK, last)
        views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
        places = kept + i0 * step, step, carry, good
        PIVOT(zero, (*views, mask, mask_step, worker.bindings, i0, *places, variable(0), i1 - i0))


@compiled
def exchange_straight(zero, job, worker, first, last, rest):
    """Rows first <= i < last, whole tiles, and ``rest`` rows before them."""
    step = ROWS_PIVOTED * bytes_of_row(zero, ())
    places = worker.kept + first * step, step, worker.carry, worker.good
    PIVOT_CONTIGUOUS(zero, (*moved_operands(zero, job, worker), variable(0), job.rows, rest, *places, first, last))


@compiled
def back_exchanged(zero, job, worker, first, last, store):
    """Rows first <= i < last of the solution, in their place and perhaps to memory."""
    row, x = bytes_of_row(zero, ()), operand_of(zero, worker.bindings, X_)
    source, (mask, mask_step) = worker.kept + (first + 1) * ROWS_PIVOTED * row, mask_view(zero, worker, first)
    if first < last:
        UNPIVOT(zero, (source, ROWS_PIVOTED * row, worker.carry, mask, mask_step, last - first, x, first))
        if store:
            store_rows(zero, x, first, last, source + X_PIVOTED * row, ROWS_PIVOTED * row, lanes_of(zero, ()))
