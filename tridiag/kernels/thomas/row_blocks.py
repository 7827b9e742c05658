"""Long systems that lie side by side, in blocks of whole rows, each block by itself.

c' and y' of a long system fit in no cache, and few systems at a time would read memory in pieces. But where couplings
decay, c' and y' do not depend on rows far above, nor x on rows far below. So a block is eliminated from some rows above
it on, as if those were the first; and x behind it, or behind a chunk of it, is substituted from some rows further down,
as if those were the last. Every such guess is compared with what is found there later. Systems where all agree to the
last bit or two are solved as if they had been swept as a whole. All others are: the kernel for whole systems is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc, types

from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words.symbols import PREFIX
from tridiag.kernels.jobs.words.systems import D_, X_, Systems
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.runtime.threads import beginning, task_runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import c_function, call, flush, free, load, set_byte, set_word, word
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.thomas.bind import bind_group
from tridiag.kernels.thomas.block_records import (
    END,
    FOUND,
    GUESS,
    START,
    carried,
    copy,
    depth,
    groups_of,
    part_of,
    record_of,
    rows_of,
    systems_of,
)
from tridiag.kernels.thomas.block_sweeps import MASKED, PIVOTED, PIVOTED_MASKED, PLAIN
from tridiag.kernels.thomas.interleaved import solution_interleaved
from tridiag.kernels.thomas.refine import uncertified_lanes
from tridiag.kernels.thomas.sweeps import (
    AGREE,
    PUT_PAST_CACHES,
)
from tridiag.kernels.thomas.workspace import allocate_groups, exchanges, free_workspace

PIECE = 16  # rows of x that are collected before they go to memory

JOB, systems_at = RecordAt(Systems), at(Systems)


# ------------------------------------------------------------------------------------------------ one block


@compiled
def put_solution(zero, job, substitute, operands, i0, source, groups, count, carry, x, x_step, width, room):
    """x of ``count`` rows from ``i0`` on to memory, last row first; ``carry``: x behind them, and then of ``i0``."""
    row, side = bytes_of_row(zero, ()), bytes_of_real(zero, ())
    step, most = depth(job) * groups * row, width - row
    if (x | x_step) % side != 0:
        substitute(zero, operands, i0, (source, step, carry, groups, count, x, x_step, most))
        return
    last = count
    while last > 0:
        first = max(0, last - PIECE)
        words = source + first * step, step, carry, groups, last - first, room, width, most
        substitute(zero, operands, i0 + first, words)
        rows, size = last - first, width
        if x_step == width:
            rows, size = 1, (last - first) * width
        PUT_PAST_CACHES(zero, (room, width, x + first * x_step, x_step, size, rows))
        last = first


@compiled
def guess_behind(zero, job, substitute, operands, i0, source, groups, count, guess, most, room):
    """x of row ``i0``, the first of ``count`` rows, as if they were the last."""
    row = bytes_of_row(zero, ())
    ZERO(zero, (guess, row, carried(job) * groups))
    substitute(zero, operands, i0, (source, depth(job) * groups * row, guess, groups, count, room, 0, most))


@inlined
def solve_block(zero, job, worker, item, read, begin, eliminate, substitute):
    """One block: x of its rows to memory, and its record."""
    (first, systems), (low, high), n = systems_of(job, item), rows_of(job, item), job.rows
    (groups, most), record, row = groups_of(zero, systems), record_of(zero, job, item), bytes_of_row(zero, ())
    step, end = depth(job) * groups * row, carried(job) * groups * row
    guesses = worker.carry
    found, state, room = guesses + 2 * end, guesses + 3 * end, guesses + 3 * end + step
    chunks, overlap = (high - low + job.height - 1) // job.height, job.overlap
    buffers, size = worker.kept + step, (job.height + 1) * step
    bind_group(zero, job, worker, first, lanes_of(zero, ()))
    operands, (x, x_step) = read(zero, job, worker, item, most), solution_interleaved(zero, worker)
    begin_block(zero, job, worker, item, (operands, groups, state, room, buffers), begin, eliminate)
    last = low
    for k in range(chunks + 1):
        here, before, guess = buffers + k % 2 * size, buffers + (k + 1) % 2 * size, guesses + k % 2 * end
        i0, i1 = low + k * (high - low) // chunks, low + (k + 1) * (high - low) // chunks
        early = min(i0 + overlap, n)
        if k == chunks:
            copy(state, part_of(zero, job, item, END), step)
        if i0 < early:
            eliminate(zero, job, operands, groups, state, here, i0, early, record)
        if k > 0:
            guess_behind(zero, job, substitute, operands, i0, here, groups, early - i0, guess, most, room)
            copy(guess, found, end)
            words = before, groups, i0 - last, found, x + last * x_step, x_step, most + row, room
            put_solution(zero, job, substitute, operands, last, *words)
            if k == 1:
                copy(found, part_of(zero, job, item, FOUND), end)
            else:
                agree_behind(zero, job, guesses + (k - 1) % 2 * end, found, groups, record)
            if not some_good(zero, job, record, groups, systems):
                job.hopeless = 1
        if job.hopeless or stopping():
            return
        if k < chunks and early < i1:
            eliminate(zero, job, operands, groups, state, here + (early - i0) * step, early, i1, record)
        last = i0
    copy(guesses + chunks % 2 * end, part_of(zero, job, item, GUESS), end)


@compiled
def begin_block(zero, job, worker, item, places, begin, eliminate):
    """The state before the first row, guessed from some rows above it; no lane is bad yet."""
    (operands, groups, state, room, buffer), (low, _) = places, rows_of(job, item)
    for group in range(groups):
        set_word(record_of(zero, job, item) + 8 * group, (1 << 2 * lanes_of(zero, ())) - 1)
    above = max(0, low - job.overlap)
    begin(zero, job, operands, groups, state, room, above)
    if above < low:
        eliminate(zero, job, operands, groups, state, buffer, above, low, worker.good)
    copy(state, part_of(zero, job, item, START), depth(job) * groups * bytes_of_row(zero, ()))


@compiled
def agree_behind(zero, job, guess, found, groups, good):
    """Keep only those lanes where x is what was guessed."""
    AGREE(zero, (guess, found, carried(job) * bytes_of_row(zero, ()), 2 if exchanges(job) else 1, groups, good))


@compiled
def bad_lanes(zero, job, good):
    return uncertified_lanes(zero, job, word(good), lanes_of(zero, ()))


@compiled
def some_good(zero, job, good, groups, systems):
    found, every = False, (1 << min(systems, lanes_of(zero, ()))) - 1
    for group in range(groups):
        found = found or bad_lanes(zero, job, good + 8 * group) & every != every
    return found


# ------------------------------------------------------------------------------------------------ all blocks


@compiled
def work_blocks(job, zero, read, begin, eliminate, substitute):
    """Claim blocks until none is left; called by every thread of a job."""
    groups = job.span_groups
    worker = allocate_groups(zero, job, 8 * groups, 2 * (job.height + 1) * depth(job) * groups, False)
    if address_of(worker) == 0:
        return
    for item in items(job):
        if job.hopeless:
            break
        solve_block(zero, job, worker, item, read, begin, eliminate, substitute)
    flush()
    free_workspace(worker)


def work_of(sweeps: Any) -> Any:
    """The work of a job by such functions for rows of a block."""
    read, begin, eliminate, substitute = sweeps

    @compiled
    def work(job, zero):
        work_blocks(job, zero, read, begin, eliminate, substitute)

    return work


@compiled
def compare(zero, job, item):
    """Keep only those lanes of a block that begins as the block before it ends."""
    (_, systems), record = systems_of(job, item), record_of(zero, job, item)
    groups, _ = groups_of(zero, systems)
    start, end = part_of(zero, job, item, START), part_of(zero, job, item - 1, END)
    AGREE(zero, (start, end, depth(job) * bytes_of_row(zero, ()), 3 if exchanges(job) else 2, groups, record))
    guess, found = part_of(zero, job, item - 1, GUESS), part_of(zero, job, item, FOUND)
    agree_behind(zero, job, guess, found, groups, record)


@compiled
def doubt(zero, job, item):
    """Mark the systems of a block that are to be solved again; how many there are."""
    (first, systems), record, count = systems_of(job, item), record_of(zero, job, item), 0
    lanes, (groups, _) = lanes_of(zero, ()), groups_of(zero, systems)
    for group in range(groups):
        bad, at = bad_lanes(zero, job, record + 8 * group), first + max(0, min(group * lanes, systems - lanes))
        for lane in range(min(lanes, systems)):
            mark = job.doubts + at + lane
            if bad >> lane & 1 and load(mark, types.uint8(0)) == 0:
                set_byte(mark, 1)
                count += 1
    return count


@compiled
def judge(zero, job, blocks):
    """Mark the systems that are to be solved again; how many there are."""
    matrices, none = job.matrices, job.hopeless or job.next == 0
    for k in range(matrices):
        set_byte(job.doubts + k, none)
    if none:
        return matrices
    count = 0
    for item in range(blocks):
        if item % job.blocks > 0:
            compare(zero, job, item)
        count += doubt(zero, job, item)
    return count


@compiled
def solve_blocks(job, zero, task):
    """All blocks by all threads; how many systems are to be solved again, as ``job.doubts`` says."""
    matrices, items = job.matrices, job.items
    if job.pointers[D_] == job.pointers[X_] or job.after != 0:
        return matrices
    blocks = matrices // job.interleaved * job.spans * job.blocks
    size = record_of(zero, job, blocks)
    memory = fresh(size + matrices)
    if memory == 0:
        return matrices
    job.records = memory
    job.doubts = memory + size
    job.items = blocks
    job.task = task
    call(task_runner(zero), (job,))
    count = judge(zero, job, blocks)
    job.again = count
    job.items = items
    job.next = 0 if count else items
    return count


@compiled
def solve_plain(job, zero):
    """Systems that fill no vector are, as whole ones, such as lie anyhow, unless `both_ends` takes them."""
    count = solve_blocks(job, zero, plain_task(zero))
    if job.interleaved < lanes_of(zero, ()):
        job.interleaved = 0
    return count


@compiled
def solve_pivoted(job, zero):
    return solve_blocks(job, zero, exchanging_task(zero))


@compiled
def solve_masked(job, zero):
    """Systems that fill no vector are, as whole ones, one group if they are all, else such as lie anyhow."""
    count = solve_blocks(job, zero, masked_task(zero))
    if job.stretches == 0:
        job.interleaved = 0
    return count


@compiled
def solve_pivoted_masked(job, zero):
    return solve_blocks(job, zero, exchanging_masked_task(zero))


plain_task, exchanging_task, masked_task, exchanging_masked_task = (
    c_function(work_of(sweeps), name, first=JOB)
    for sweeps, name in (
        (PLAIN, "tridiag_blocks"), (PIVOTED, "tridiag_pivoted_blocks"),
        (MASKED, "tridiag_masked_blocks"), (PIVOTED_MASKED, "tridiag_pivoted_masked_blocks"),
    )
)  # fmt: skip
BLOCKS = {
    "interleaved": c_function(solve_plain, "tridiag_all_blocks", result=types.int64, first=JOB),
    "pivoted": c_function(solve_pivoted, "tridiag_all_pivoted_blocks", result=types.int64, first=JOB),
    "masked": c_function(solve_masked, "tridiag_all_masked_blocks", result=types.int64, first=JOB),
    "pivoted_masked": c_function(
        solve_pivoted_masked, "tridiag_all_pivoted_masked_blocks", result=types.int64, first=JOB
    ),
}


def build(dtype: str, kernel: str, solve: str) -> Any:
    """The C function void run(job, helpers) for a dtype, before the ``kernel`` for whole systems, named ``solve``."""
    zero, blocks = np.zeros((), dtype)[()], BLOCKS[kernel]
    define = definition(blocks)
    whole = types.ExternalFunction(PREFIX + solve, types.void(types.int64, types.int64))

    def run(job, helpers):
        define(zero)
        call(beginning(zero), (job, helpers))
        if call(blocks(zero), (job,)) != 0:
            whole(job, helpers)
        free(systems_at(job).records)

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
