"""The driver of recurrences of logarithms: claims items, binds groups to memory, runs blocks of rows.

A group is a vector of sequences, one in each lane; an item is some groups, side by side in memory where they can be.
Few long sequences are cut into chunks, which are lanes as sequences are: first the total of every chunk, then from one
chunk to the next the state before it, then all rows.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, types

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.jobs.words.logsumexp import Logsumexp
from tridiag.kernels.logsumexp.groups import run_groups
from tridiag.kernels.logsumexp.long import join_chunks, prepare_chunks
from tridiag.kernels.logsumexp.short import run_short
from tridiag.kernels.logsumexp.workspace import allocate_workspace, free_workspace
from tridiag.kernels.runtime.threads import beginning, task_runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd import records
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.memory import c_function, call, free

JOB, log_job_at = records.RecordAt(Logsumexp), records.at(Logsumexp)


@compiled
def work(job, zero, total):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if records.address_of(worker) == 0:
        return
    lanes, width, interleaved, short = lanes_of(zero, ()), job.lanes, job.interleaved, job.flags & J.SHORT
    run = interleaved if interleaved else job.matrices
    stretches, share = (run + width - 1) // width, width if interleaved or short else lanes
    for item in items(job):
        place, origin = item % stretches * width, item // stretches * run
        for at in range(place, min(place + width, run), share):
            size, follows = min(share, place + width - at, run - at), interleaved == 0 and at > place
            if short:
                run_short(zero, job, worker, origin + at, size)
            else:
                run_groups(zero, job, worker, origin + at, size, total, follows)
    free_workspace(worker)


@compiled
def work_scan(job, zero):
    work(job, zero, False)


@compiled
def work_total(job, zero):
    work(job, zero, True)


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
