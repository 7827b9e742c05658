"""Long sequences in chunks, one in each lane, and how the chunks are joined."""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.logsumexp.groups import begin_group, bind_operands, copy_slot, run_rows
from tridiag.kernels.logsumexp.loops import (
    LARGEST,
    MERGE,
    PRODUCT,
    SLOT,
)
from tridiag.kernels.logsumexp.workspace import OPERANDS, allocate_workspace, free_workspace, slot_of
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.simd import records
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import load, set_word, store


@compiled
def copy_state(zero, source, target):
    """A state in a lane of a slot to a lane of another."""
    for k in range(PRODUCT):
        at = k * bytes_of_row(zero, ())
        store(target + at, load(source + at, zero))


@compiled
def lane_of_chunk(zero, job, chunk):
    lanes = lanes_of(zero, ())
    return slot_of(zero, job.slots, chunk // lanes) + chunk % lanes * bytes_of_real(zero, ())


@compiled
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


@compiled
def is_told(zero, job, chunk, state):
    """Whether the total of a chunk and the sum of its log_a tell what it makes of a state.

    They do not where that sum is inf or NaN, and where it is -inf, which may be an overflow, of a state that is inf.
    """
    row = bytes_of_row(zero, ())
    log_a, y = load(lane_of_chunk(zero, job, chunk) + PRODUCT * row, zero), load(state + LARGEST * row, zero)
    return log_a < np.inf and (log_a > -np.inf or y != np.inf)


@compiled
def join_sequence(zero, job, worker, first, state):
    """The states before the chunks of a sequence, and that behind the last in the place of that before the first."""
    weighted, given = job.flags & J.WEIGHTED, job.flags & J.GIVEN
    for chunk in range(first, first + job.chunks):
        if not weighted or is_told(zero, job, chunk, state):
            MERGE(zero, (job.slots, chunk, weighted, given + (chunk - first), state))
        else:
            run_chunk(zero, job, worker, chunk, state)


@compiled
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


@compiled
def prepare_chunks(job, zero):
    """Without memory nothing is claimed."""
    groups = (job.matrices + lanes_of(zero, ()) - 1) // lanes_of(zero, ())
    job.slots = fresh(groups * SLOT * bytes_of_row(zero, ()))
