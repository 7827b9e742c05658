"""Groups of sequences, one in each lane: bound to memory, and run in blocks of rows."""

from __future__ import annotations

from tridiag.kernels.access.bind import bind_lanes, operand_of
from tridiag.kernels.access.load_store import load_rows, store_rows
from tridiag.kernels.access.moves import ADVANCE
from tridiag.kernels.access.operands import (
    INTERLEAVED,
    bind,
    bytes_of_number,
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    parts_of,
)
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.logsumexp.loops import (
    BEGIN,
    BEGIN_GIVEN,
    BEGIN_TERM,
    SCAN_ORDINARY,
    SCAN_PLAIN,
    SCAN_WEIGHTED,
    SLOT,
    TOTAL_ORDINARY,
    TOTAL_PLAIN,
    TOTAL_WEIGHTED,
)
from tridiag.kernels.logsumexp.workspace import BLOCK, BLOCK_INTERLEAVED, OPERANDS, size_of_bindings, slot_of
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import set_word, store, word

HEAD = 4  # rows that are not taken for ordinary


@compiled
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


@compiled
def turned(job, at, step, rows):
    """Where the first of some rows is in the order of the recurrence, and how far the next."""
    return (at + (rows - 1) * step, -step) if job.flags & J.REVERSED else (at, step)


@compiled
def view(zero, job, operand, i0, i1, buffer, ready):
    """Rows i0 <= i < i1 of an operand as `turned`, in a buffer unless their lanes lie side by side.

    They are read, unless ``ready``.
    """
    if operand.kind == INTERLEAVED and parts_of(zero, ()) == 1:
        step = operand.stride
        return turned(job, operand.lanes[0] + i0 * step, step, i1 - i0)
    if not ready:
        load_rows(zero, operand, i0, i1, buffer)
    return turned(job, buffer, bytes_of_row(zero, ()), i1 - i0)


@compiled
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
            total_of(zero, x, slot, rows, bindings, i0, starts, worker.buffers + BLOCK * row)
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


@compiled
def total_of(zero, x, slot, rows, bindings, i0, starts, terms):
    """The first rows, from which the others know what is ordinary; then those. ``terms``: the address of a buffer."""
    head = min(rows, HEAD) if starts else 0
    if head > 0:
        TOTAL_PLAIN(zero, (*x, slot, head, bindings, i0))
    words = x[0] + head * x[1], x[1], slot, rows - head, bindings, i0 + head
    if rows > head and not TOTAL_ORDINARY(zero, (*words, terms)):
        TOTAL_PLAIN(zero, words)


@compiled
def scan_of(zero, x, y, slot, rows, bindings, i0, starts, terms):
    """The same with y."""
    head = min(rows, HEAD) if starts else 0
    if head > 0:
        SCAN_PLAIN(zero, (*x, *y, slot, head, bindings, i0))
    words = x[0] + head * x[1], x[1], y[0] + head * y[1], y[1], slot, rows - head, bindings, i0 + head
    if rows > head and not SCAN_ORDINARY(zero, (*words, terms)):
        SCAN_PLAIN(zero, words)


@compiled
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


@compiled
def begin_group(zero, job, worker, group):
    """The state before the first row."""
    slot = slot_of(zero, worker.slots, group)
    BEGIN(zero, (slot,))
    if job.flags & J.GIVEN:
        init = operand_of(zero, worker.bindings + group * size_of_bindings(zero), J.INIT)
        load_rows(zero, init, 0, 1, worker.buffers)
        if job.flags & J.WEIGHTED:
            BEGIN_GIVEN(zero, (slot, worker.buffers))
        else:
            BEGIN_TERM(zero, (slot, worker.buffers))


@compiled
def copy_slot(zero, source, target):
    for k in range(0, SLOT * bytes_of_row(zero, ()), 8):
        set_word(target + k, word(source + k))


@compiled
def bind_operands(zero, job, axes, first, used, base, bindings):
    """Point a group at sequences along some axes; ``base``: the address of the offsets of their first rows."""
    bind_lanes(zero, job, J.AXES, axes, first, used, base, bindings, 0, OPERANDS)
    if job.flags & J.REVERSED:
        for k in range(OPERANDS):
            bind(zero, operand_of(zero, bindings, k), bytes_of_number(zero, ()), job.strides[k], False, True, used)


@compiled
def point_at(zero, job, first, used, bindings, follows):
    """Point a group at sequences first, first + 1, ...; ``follows``: it is pointed at those before, in all lanes."""
    lanes, axes = lanes_of(zero, ()), job.matrix_axes
    if follows and used == lanes and axes == 1:
        for operand in range(OPERANDS):
            ADVANCE(zero, (operand_of(zero, bindings, operand), lanes * field(job, J.AXES + 1 + operand)))
    else:
        bind_operands(zero, job, axes, first, used, job.addresses.start, bindings)


@compiled
def run_groups(zero, job, worker, first, count, total, follows):
    """Sequences first, first + 1, ..., or their chunks, in groups that go on row by row together.

    ``follows``: one group, behind that of the call before.
    """
    lanes, chunked = lanes_of(zero, ()), job.chunks > 1
    for group in range((count + lanes - 1) // lanes):
        at, used = first + group * lanes, min(lanes, count - group * lanes)
        bindings, slot = (
            worker.bindings + group * size_of_bindings(zero),
            slot_of(zero, worker.slots, group),
        )
        point_at(zero, job, at, used, bindings, follows)
        if not chunked:
            begin_group(zero, job, worker, group)
        elif total:
            BEGIN(zero, (slot,))
        else:
            copy_slot(zero, slot_of(zero, job.slots, at // lanes), slot)
    run_rows(zero, job, worker, first, count, job.rows, True, total)
    if total:
        copy_slot(zero, worker.slots, slot_of(zero, job.slots, first // lanes))
