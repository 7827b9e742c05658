"""The driver of recurrences of logarithms: claims items, binds groups to memory, runs blocks of rows.

A group is a vector of sequences, one in each lane; an item is some groups, side by side in memory where they can be.
Few long sequences are cut into chunks, which are lanes as sequences are: first the total of every chunk, then from one
chunk to the next the state before it, then all rows.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, njit, types

from tridiag.kernels.access.bind import bind_lanes, operand_of
from tridiag.kernels.access.load_store import (
    INTERLEAVED,
    bind,
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    load_rows,
    size_of_operand,
    store_rows,
)
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.jobs.words.logsumexp import Logsumexp
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.logsumexp.loops import (
    BEGIN,
    BEGIN_GIVEN,
    LARGEST,
    MERGE,
    PRODUCT,
    SCAN_ORDINARY,
    SCAN_PLAIN,
    SCAN_WEIGHTED,
    SLOT,
    TOTAL_ORDINARY,
    TOTAL_PLAIN,
    TOTAL_WEIGHTED,
)
from tridiag.kernels.runtime.threads import beginning, task_runner
from tridiag.kernels.runtime.work_items import claim
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd import records
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, call, free, load, malloc, set_word, store, word
from tridiag.kernels.simd.vector import OPTIONS

OPERANDS = 4
HEAD = 4  # rows that are not taken for ordinary
BLOCK, BLOCK_INTERLEAVED = 64, 8  # rows at a time of a group, and of groups that lie side by side


class LogWorkspace(Workspace):
    """What a worker has: bindings and states of its groups, rows of three operands, offsets of an operand."""

    bindings, slots, buffers, base = Word(), Word(), Word(), Word()


ARRAYS, allocate, free_workspace = workspace(LogWorkspace, "bindings", "slots", "buffers", "base")

JOB, log_job_at = records.RecordAt(Logsumexp), records.at(Logsumexp)


@njit(**OPTIONS)
def size_of_bindings(zero):
    return aligned(OPERANDS * size_of_operand(zero, ()))


@njit(**OPTIONS)
def slot_of(zero, slots, group):
    return slots + group * (SLOT * bytes_of_row(zero, ()))


@njit(**OPTIONS)
def allocate_workspace(zero, job):
    """The scratch memory of one worker, in one piece; a slot more than it has groups."""
    row, groups = bytes_of_row(zero, ()), (job.lanes + lanes_of(zero, ()) - 1) // lanes_of(zero, ())
    return allocate(
        ARRAYS(
            bindings=groups * size_of_bindings(zero),
            slots=(groups + 1) * SLOT * row,
            buffers=3 * BLOCK * row,
            base=aligned(8 * OPERANDS),
        )
    )


@njit(**OPTIONS)
def coefficients(zero, job, bindings, i0, i1, buffer, system, starts):
    """Rows of log_a as `view`; where sequences start in row i0 without a state, what is never read is 0."""
    source, row = operand_of(zero, bindings, J.LOG_A), bytes_of_row(zero, ())
    if not starts or job.flags & J.GIVEN:
        return view(zero, job, source, i0, i1, buffer, False)
    load_rows(zero, source, i0, i1, buffer)
    at, step = turned(job, buffer, row, i1 - i0)
    for lane in range(lanes_of(zero, ())):
        if (system + lane) % job.chunks == 0:
            store(at + lane * bytes_of_real(zero, ()), zero)
    return at, step


@njit(**OPTIONS)
def turned(job, at, step, rows):
    """Where the first of some rows is in the order of the recurrence, and how far the next."""
    return (at + (rows - 1) * step, -step) if job.flags & J.REVERSED else (at, step)


@njit(**OPTIONS)
def view(zero, job, operand, i0, i1, buffer, ready):
    """Rows i0 <= i < i1 of an operand as `turned`, in a buffer unless their lanes lie side by side.

    They are read, unless ``ready``.
    """
    if operand.kind == INTERLEAVED:
        step = operand.stride
        return turned(job, operand.lanes[0] + i0 * step, step, i1 - i0)
    if not ready:
        load_rows(zero, operand, i0, i1, buffer)
    return turned(job, buffer, bytes_of_row(zero, ()), i1 - i0)


@njit(**OPTIONS)
def run_block(zero, job, worker, group, system, used, i0, i1, starts, total):
    """Rows i0 <= i < i1 of a group, the first lane of which is ``system``; ``total``: without y."""
    row, rows, weighted = bytes_of_row(zero, ()), i1 - i0, job.flags & J.WEIGHTED
    bindings, slot = (
        worker.bindings + group * size_of_bindings(zero),
        slot_of(zero, worker.slots, group),
    )
    buffer = worker.buffers
    x = view(zero, job, operand_of(zero, bindings, J.TERMS), i0, i1, buffer, False)
    a = x
    if weighted:
        a = coefficients(zero, job, bindings, i0, i1, buffer + BLOCK * row, system, starts)
    if total:
        if weighted:
            TOTAL_WEIGHTED(zero, (*a, *x, slot, rows, bindings, i0))
        else:
            total_of(zero, x, slot, rows, bindings, i0, starts)
        return
    target, buffer = operand_of(zero, bindings, J.RESULT), buffer + 2 * BLOCK * row
    direct = used == lanes_of(zero, ()) and target.kind == INTERLEAVED
    y = view(zero, job, target, i0, i1, buffer, True) if direct else turned(job, buffer, row, rows)
    if weighted:
        SCAN_WEIGHTED(zero, (*a, *x, *y, slot, rows, bindings, i0))
    else:
        scan_of(zero, x, y, slot, rows, bindings, i0, starts, worker.buffers + BLOCK * row)
    if not direct:
        store_rows(zero, target, i0, i1, buffer, row, used)


@njit(**OPTIONS)
def total_of(zero, x, slot, rows, bindings, i0, starts):
    """The first rows, from which the others know what is ordinary; then those."""
    head = min(rows, HEAD) if starts else 0
    if head > 0:
        TOTAL_PLAIN(zero, (*x, slot, head, bindings, i0))
    words = x[0] + head * x[1], x[1], slot, rows - head, bindings, i0 + head
    if rows > head and not TOTAL_ORDINARY(zero, words):
        TOTAL_PLAIN(zero, words)


@njit(**OPTIONS)
def scan_of(zero, x, y, slot, rows, bindings, i0, starts, scales):
    """The same with y; ``scales``: the address of a buffer."""
    head = min(rows, HEAD) if starts else 0
    if head > 0:
        SCAN_PLAIN(zero, (*x, *y, slot, head, bindings, i0))
    words = x[0] + head * x[1], x[1], y[0] + head * y[1], y[1], slot, rows - head, bindings, i0 + head
    if rows > head and not SCAN_ORDINARY(zero, (*words, scales)):
        SCAN_PLAIN(zero, words)


@njit(**OPTIONS)
def run_rows(zero, job, worker, system, count, rows, starts, total):
    """All rows of the sequences system, system + 1, ..., some groups, block by block."""
    lanes, backward = lanes_of(zero, ()), job.flags & J.REVERSED
    groups = (count + lanes - 1) // lanes
    height = BLOCK if groups == 1 else BLOCK_INTERLEAVED
    for begin in range(0, rows, height):
        if stopping_at(begin // height, 64):
            return
        end = min(begin + height, rows)
        i0, i1 = (rows - end, rows - begin) if backward else (begin, end)
        for group in range(groups):
            at, used = system + group * lanes, min(lanes, count - group * lanes)
            run_block(zero, job, worker, group, at, used, i0, i1, starts and begin == 0, total)


@njit(**OPTIONS)
def begin_group(zero, job, worker, group):
    """The state before the first row."""
    slot = slot_of(zero, worker.slots, group)
    BEGIN(zero, (slot,))
    if job.flags & J.GIVEN:
        init = operand_of(zero, worker.bindings + group * size_of_bindings(zero), J.INIT)
        load_rows(zero, init, 0, 1, worker.buffers)
        BEGIN_GIVEN(zero, (slot, worker.buffers))


@njit(**OPTIONS)
def copy_slot(zero, source, target):
    for k in range(0, SLOT * bytes_of_row(zero, ()), 8):
        set_word(target + k, word(source + k))


@njit(**OPTIONS)
def bind_operands(zero, job, axes, first, used, base, bindings):
    """Point a group at sequences along some axes; ``base``: the address of the offsets of their first rows."""
    bind_lanes(zero, job, J.AXES, axes, first, used, base, bindings, 0, OPERANDS)
    if job.flags & J.REVERSED:
        for k in range(OPERANDS):
            bind(zero, operand_of(zero, bindings, k), bytes_of_real(zero, ()), job.strides[k], False, True)


@njit(**OPTIONS)
def run_groups(zero, job, worker, first, count, total):
    """Sequences first, first + 1, ..., or their chunks, in groups that go on row by row together."""
    lanes, axes, chunked = lanes_of(zero, ()), job.matrix_axes, job.chunks > 1
    for group in range((count + lanes - 1) // lanes):
        at, used = first + group * lanes, min(lanes, count - group * lanes)
        bindings, slot = (
            worker.bindings + group * size_of_bindings(zero),
            slot_of(zero, worker.slots, group),
        )
        bind_operands(zero, job, axes, at, used, job.addresses.start, bindings)
        if not chunked:
            begin_group(zero, job, worker, group)
        elif total:
            BEGIN(zero, (slot,))
        else:
            copy_slot(zero, slot_of(zero, job.slots, at // lanes), slot)
    run_rows(zero, job, worker, first, count, job.rows, True, total)
    if total:
        copy_slot(zero, worker.slots, slot_of(zero, job.slots, first // lanes))


@njit(**OPTIONS)
def work(job, zero, total):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if records.address_of(worker) == 0:
        return
    lanes, width, interleaved = lanes_of(zero, ()), job.lanes, job.interleaved
    run = interleaved if interleaved else job.matrices
    stretches, share = (run + width - 1) // width, width if interleaved else lanes
    while True:
        item = claim(job)
        if item < 0:
            break
        place, origin = item % stretches * width, item // stretches * run
        for at in range(place, min(place + width, run), share):
            run_groups(zero, job, worker, origin + at, min(share, place + width - at, run - at), total)
    free_workspace(worker)


@njit(**OPTIONS)
def work_scan(job, zero):
    work(job, zero, False)


@njit(**OPTIONS)
def work_total(job, zero):
    work(job, zero, True)


@njit(**OPTIONS)
def copy_state(zero, source, target):
    """A state in a lane of a slot to a lane of another."""
    for k in range(PRODUCT):
        at = k * bytes_of_row(zero, ())
        store(target + at, load(source + at, zero))


@njit(**OPTIONS)
def lane_of_chunk(zero, job, chunk):
    lanes = lanes_of(zero, ())
    return slot_of(zero, job.slots, chunk // lanes) + chunk % lanes * bytes_of_real(zero, ())


@njit(**OPTIONS)
def run_chunk(zero, job, worker, chunk, state):
    """The state behind a chunk from that before it, by its rows; both in ``state``, a lane of the worker's slot."""
    slot, groups = worker.slots, (job.lanes + lanes_of(zero, ()) - 1) // lanes_of(zero, ())
    spare = slot_of(zero, slot, groups)
    copy_slot(zero, slot, spare)
    copy_state(zero, state, lane_of_chunk(zero, job, chunk))
    copy_state(zero, state, slot)
    bind_operands(zero, job, job.matrix_axes, chunk, 1, job.addresses.start, worker.bindings)
    run_rows(zero, job, worker, chunk, 1, job.rows, True, True)
    copy_state(zero, slot, spare + (state - slot))
    copy_slot(zero, spare, slot)


@njit(**OPTIONS)
def is_told(zero, job, chunk, state):
    """Whether the total of a chunk and the sum of its log_a tell what it makes of a state.

    They do not where that sum is inf or NaN, and where it is -inf, which may be an overflow, of a state that is inf.
    """
    row = bytes_of_row(zero, ())
    log_a, y = load(lane_of_chunk(zero, job, chunk) + PRODUCT * row, zero), load(state + LARGEST * row, zero)
    return log_a < np.inf and (log_a > -np.inf or y != np.inf)


@njit(**OPTIONS)
def join_sequence(zero, job, worker, first, state):
    """The states before the chunks of a sequence, and that behind the last in the place of that before the first."""
    weighted, given = job.flags & J.WEIGHTED, job.flags & J.GIVEN
    for chunk in range(first, first + job.chunks):
        if not weighted or is_told(zero, job, chunk, state):
            MERGE(zero, (job.slots, chunk, weighted, given + (chunk - first), state))
        else:
            run_chunk(zero, job, worker, chunk, state)


@njit(**OPTIONS)
def join_chunks(job, zero):
    """The states before all chunks from their totals, and the rows behind the last chunk.

    Where memory for that, or for some totals, is missing, the task is taken away: nothing is claimed.
    """
    complete = job.next >= job.items
    job.next = 0
    if not complete:
        job.task = 0
        return
    worker = allocate_workspace(zero, job)
    if records.address_of(worker) == 0:
        job.task = 0
        return
    lanes, chunks = lanes_of(zero, ()), job.chunks
    count, axes = job.matrices // chunks, job.matrix_axes - 1
    base, slot = worker.base, worker.slots
    for operand in range(OPERANDS):
        behind = 0 if job.flags & J.REVERSED else chunks * job.rows * job.strides[operand]
        set_word(base + 8 * operand, behind)
    for first in range(0, count, lanes):
        used = min(lanes, count - first)
        bind_operands(zero, job, axes, first, used, base, worker.bindings)
        begin_group(zero, job, worker, 0)
        for k in range(used):
            join_sequence(zero, job, worker, (first + k) * chunks, slot + k * bytes_of_real(zero, ()))
        bind_operands(zero, job, axes, first, used, base, worker.bindings)
        run_rows(zero, job, worker, 0, used, job.tail, False, False)
    free_workspace(worker)


@njit(**OPTIONS)
def prepare_chunks(job, zero):
    """Without memory nothing is claimed."""
    groups = (job.matrices + lanes_of(zero, ()) - 1) // lanes_of(zero, ())
    job.slots = malloc(types.uint64(groups * SLOT * bytes_of_row(zero, ())))


scan = c_function(work_scan, "tridiag_log_scan", first=JOB)
total = c_function(work_total, "tridiag_log_total", first=JOB)
join = c_function(join_chunks, "tridiag_log_join", first=JOB)
prepare = c_function(prepare_chunks, "tridiag_log_prepare", first=JOB)
define = definition(scan, total, join, prepare)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    zero = np.zeros((), dtype)[()]

    def run(job, helpers):
        define(zero)
        call(beginning(zero), (job, helpers))
        known = log_job_at(job)
        chunked = known.chunks > 1
        if chunked:
            call(prepare(zero), (job,))
            known.task = total(zero) if known.slots != 0 else 0
            call(task_runner(zero), (job,))
        known.task = scan(zero)
        if chunked:
            call(join(zero), (job,))
        call(task_runner(zero), (job,))
        if chunked:
            free(known.slots)

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
