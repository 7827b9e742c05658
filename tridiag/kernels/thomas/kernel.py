"""The driver of the sweeps: claims items of a job, binds groups of systems to memory, eliminates, substitutes, stores.

A group is a vector of systems, one in each lane; a tile is one group, or several that lie side by side in memory, the
whole ones where the cache lines of the solution begin. c' and y' of all its rows stay in cache. Lanes without
certificate are eliminated again with pivoting, and refined, or left to another kernel.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, types

from tridiag.kernels.access.operands import bytes_of_real, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_, Systems
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.runtime.threads import beginning, job_at, runner, task_runner
from tridiag.kernels.runtime.work_items import items, part_of_item, report, reports
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.memory import c_function, call, flush, free, load, malloc, set_byte, set_word, variable, word
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.thomas.both_ends import BOTH_ENDS, LEFT, SOLVED, SUBSTITUTE_ENDS
from tridiag.kernels.thomas.deferred import CATCH_UP, some_wait
from tridiag.kernels.thomas.few_factors import factor_one_by_one
from tridiag.kernels.thomas.few_sides import FEW_SIDES
from tridiag.kernels.thomas.gathered import solve_gathered
from tridiag.kernels.thomas.interleaved import EXCHANGED_INTERLEAVED, SOLVE_INTERLEAVED, extent
from tridiag.kernels.thomas.masked import EXCHANGED_MASKED, SOLVE_MASKED, SOLVE_MASKED_GROUP
from tridiag.kernels.thomas.masked_ends import MASKED_ENDS, SUBSTITUTE_MASKED_ENDS
from tridiag.kernels.thomas.masked_rows import SOLVE_MASKED_ROWS
from tridiag.kernels.thomas.multiple_rhs import factor_few_matrices, solve_few_matrices, solve_multiple_rhs
from tridiag.kernels.thomas.one_vector import SOLVE_GROUP
from tridiag.kernels.thomas.pivoted_vector import EXCHANGE_GROUP
from tridiag.kernels.thomas.short_factors import factor_short
from tridiag.kernels.thomas.short_sides import solve_short_own
from tridiag.kernels.thomas.short_systems import solve_short, through_masked, through_whole
from tridiag.kernels.thomas.stamps import are_alone, begin_stamps, stamp_alone, stamp_groups
from tridiag.kernels.thomas.stored import AT_ONCE, begin_storage, copy_shares
from tridiag.kernels.thomas.workspace import allocate_workspace, free_workspace

JOB, systems_at = RecordAt(Systems), at(Systems)


@inlined
def solve_tile(zero, job, worker, tile, follows, solve_one, solve_many_interleaved):
    """One group, or the groups of a stretch of systems that lie side by side; the first and the last may be partial.

    Returns which systems: low <= k < high.
    """
    lanes, (low, whole, rest, high) = lanes_of(zero, ()), extent(zero, job, tile)
    if solved_before(job, low, high):
        return low, high
    if low < whole:
        solve_one(zero, (job, worker, low, whole - low, 0))
    if job.rows == 0:
        for at in range(whole, rest, lanes):
            solve_one(zero, (job, worker, at, lanes, 0))
    elif whole < rest:
        solve_many_interleaved(zero, (job, worker, whole, (rest - whole) // lanes))
    if rest < high:
        solve_one(zero, (job, worker, rest, high - rest, follows))
    return low, high


@compiled
def solved_before(job, low, high):
    """Whether systems are solved that `tridiag.kernels.thomas.row_blocks` may have solved."""
    doubts, system = job.doubts, low
    while doubts != 0 and system < high and load(doubts + system, types.uint8(0)) == 0:
        system += 1
    return doubts != 0 and system == high


@compiled
def solve_nothing(zero, place):
    """In place of what solves systems that lie side by side, where there are none."""


@inlined
def none_short(zero, job, worker, first, last, solve_one):
    """In place of `solve_short`, where no systems lie end to end."""
    return 0


@inlined
def solve_few_rows(zero, job, worker, first, last, solve_one):
    """Some systems from ``first`` on of few rows that lie end to end or evenly spaced: how many; 0, they do not."""
    if job.flags & J.GATHERED:
        return solve_gathered(zero, job, worker, first, last, solve_one)
    return solve_short(zero, job, worker, first, last, solve_one, through_whole)


@inlined
def solve_few_masked_rows(zero, job, worker, first, last, solve_one):
    """The same of systems of which rows are taken out."""
    return solve_short(zero, job, worker, first, last, solve_one, through_masked)


@inlined
def work_tiles(job, zero, solve_one, solve_many_interleaved, solve_some):
    """Claim items until none is left, with these functions for groups; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    width, matrices, tiles = job.lanes, job.matrices, job.tiles
    count, interleaved = (matrices + width - 1) // width, job.interleaved
    if interleaved:
        count = matrices // interleaved * job.stretches
    for run in items(job):
        begin, end = run * tiles, min(count, (run + 1) * tiles)
        pending, tile = -1, begin
        while tile < end:
            low, some = tile * width, solve_some(zero, job, worker, tile * width, min(matrices, end * width), solve_one)
            high = low + some
            if some == 0:
                low, high = solve_tile(
                    zero, job, worker, tile, types.int64(tile > begin), solve_one, solve_many_interleaved
                )
            tile += max(1, some // width)
            pending = low if pending < 0 else pending
            CATCH_UP(zero, (job, worker, 1 if tile == end and reports(job) else lanes_of(zero, ())))
            if not some_wait(worker):
                report(job, pending, high - pending)
                pending = -1
    CATCH_UP(zero, (job, worker, 1))
    flush()
    free_workspace(worker)


@compiled
def work_rows(job, zero):
    """Systems with a matrix and one right side each, none of them side by side."""
    work_tiles(job, zero, SOLVE_GROUP, solve_nothing, solve_few_rows)


@compiled
def work_interleaved(job, zero):
    """Systems with a matrix and one right side each."""
    work_tiles(job, zero, SOLVE_GROUP, SOLVE_INTERLEAVED, none_short)


@compiled
def work_pivoted(job, zero):
    """The same with partial pivoting throughout."""
    work_tiles(job, zero, EXCHANGE_GROUP, EXCHANGED_INTERLEAVED, none_short)


@compiled
def work_masked(job, zero):
    """Systems side by side of which rows are taken out."""
    work_tiles(job, zero, SOLVE_MASKED_GROUP, SOLVE_MASKED, none_short)


@compiled
def work_masked_rows(job, zero):
    """Systems of which rows are taken out, none of them side by side."""
    work_tiles(job, zero, SOLVE_MASKED_ROWS, solve_nothing, solve_few_masked_rows)


@compiled
def work_pivoted_masked(job, zero):
    """The same with partial pivoting throughout."""
    work_tiles(job, zero, EXCHANGE_GROUP, EXCHANGED_MASKED, none_short)


@compiled
def work_multiple_rhs(job, zero):
    """The same where matrices have many right sides, or are only factored."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    width, matrices, tiles = job.lanes, job.matrices, job.tiles
    count, together = (matrices + width - 1) // width, max(1, AT_ONCE // max(1, job.rows * width))
    for item in items(job):
        run, k0, k1 = part_of_item(job, item)
        begin = run * tiles
        end = min(matrices, (run + 1) * tiles * width)
        solved = solve_short_own(zero, job, worker, begin * width, end)
        report(job, begin * width, solved)
        begin += solved // width
        short = factor_short(zero, job, worker, begin * width, end)
        if job.stamps != 0:
            stamp_groups(zero, job, worker, begin * width, short)
        begin += short // width
        for tile in range(begin, (run + 1) * tiles):
            first = tile * width
            if first >= matrices:
                break
            if tile % together == 0 or tile == begin:
                behind = min(count, (run + 1) * tiles, (tile // together + 1) * together)
                copy_shares(zero, job, tile, behind, count)
            used = min(width, matrices - first)
            if not solve_multiple_rhs(zero, job, worker, tile, first, used, k0, k1, tile > begin):
                break
            report(job, first, used)
    flush()
    free_workspace(worker)


@compiled
def work_few_matrices(job, zero):
    """The same where few matrices have many right sides, one in each lane, or are only factored for such."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    for item in items(job):
        matrix, k0, k1 = part_of_item(job, item)
        solve_few_matrices(zero, job, worker, matrix, k0, k1)
        report(job, matrix, k1 - k0)
    flush()
    free_workspace(worker)


# A kernel for each, so that a first solve waits for one only.
TASKS = {
    "rows": c_function(work_rows, "tridiag_rows", first=JOB),
    "interleaved": c_function(work_interleaved, "tridiag_interleaved", first=JOB),
    "pivoted": c_function(work_pivoted, "tridiag_pivoted", first=JOB),
    "masked": c_function(work_masked, "tridiag_masked", first=JOB),
    "masked_rows": c_function(work_masked_rows, "tridiag_masked_rows", first=JOB),
    "pivoted_masked": c_function(work_pivoted_masked, "tridiag_pivoted_masked", first=JOB),
    "multiple_rhs": c_function(work_multiple_rhs, "tridiag_multiple_rhs", first=JOB),
    "few_matrices": c_function(work_few_matrices, "tridiag_few_matrices", first=JOB),
}


@compiled
def prepare_few_matrices(job, zero):
    """Factor the few matrices that many right sides share, before any right side; without memory there is no task.

    Those that are said to be factored are so, unless their stamps are others.
    """
    n, matrices = job.rows, job.matrices
    if job.shared == 0 or (job.flags & J.FACTORED and are_alone(job)):
        return
    if job.flags & J.FACTORED:
        job.flags -= J.FACTORED
        job.stamps = 0
    flags = job.flags
    if flags & J.FACTORING:
        begin_storage(job)
        begin_stamps(job)
        copy_shares(zero, job, 0 * n, variable(1), variable(1))
        if factor_one_by_one(zero, job):
            stamp_alone(job)
            job.task, job.next = 0, job.items
            return
    else:
        side = bytes_of_real(zero, ()) * parts_of(zero, ())
        memory = fresh(matrices * (3 * n * side + 1))
        job.owned = memory
        job.factors = memory
        job.certificates = memory + matrices * 3 * n * side
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0 or job.factors == 0:
        job.task = 0
    else:
        factor_few_matrices(zero, job, worker)
        stamp_alone(job)
    if address_of(worker) != 0:
        free_workspace(worker)


preparation = c_function(prepare_few_matrices, "tridiag_prepare", first=JOB)


@compiled
def prepare_storage(job, zero):
    begin_storage(job)
    begin_stamps(job)


storing = c_function(prepare_storage, "tridiag_prepare_storage", first=JOB)


def build(dtype: str, kernel: str):
    """The C function void run(job, helpers) of a kernel for a dtype."""
    zero = np.zeros((), dtype)[()]
    if kernel in ("rows", "interleaved"):
        return runner_or_both_ends(zero, TASKS[kernel], BOTH_ENDS, SUBSTITUTE_ENDS)
    if kernel == "masked_rows":
        return runner_or_both_ends(zero, TASKS[kernel], MASKED_ENDS, SUBSTITUTE_MASKED_ENDS)
    if kernel == "few_matrices":
        return runner_or_few_sides(zero, TASKS[kernel])
    return runner(zero, TASKS[kernel], storing if kernel == "multiple_rhs" else None)


def runner_or_both_ends(zero, task, eliminate, substitute):
    """`runner`, before which jobs of `tridiag.kernels.thomas.both_ends`, or `masked_ends`, are tried there.

    Behind it hard systems that are marked, or that were found there, are left to the kernel for them; where the word
    with its address is another one then, that was compiled meanwhile. In place, certified systems take the memory of
    hard ones' right sides, which so are not marked.
    """
    define = definition(eliminate, substitute, task)

    def run(job, helpers):
        define(zero)
        found, about = call(eliminate(zero), (job,)), systems_at(job)
        if found == SOLVED:
            return
        left = found == LEFT
        if not left:
            if about.hard != 0 and about.pointers[D_] != about.pointers[X_]:
                about.marks = malloc(types.uint64(about.matrices))
            for k in range(about.matrices if about.marks != 0 else 0):
                set_byte(about.marks + k, 0)
            call(beginning(zero), (job, helpers))
            about.task = task(zero)
            call(task_runner(zero), (job,))
            left = about.marked != 0 and about.next >= about.items
        if left:
            function, more = word(about.hard), helpers + about.hard_helpers
            about.next = 0
            call(function, (job, more))
            if word(about.hard) != function:
                call(word(about.hard), (job, more))
            for k in range(about.good_words if about.next < about.items else 0):
                set_word(about.good + 8 * k, 0)  # the kernel was not to be had: nothing is stored
        if about.ends != 0:
            call(substitute(zero), (job,))
        free(about.marks)

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)


def runner_or_few_sides(zero, task):
    """The same with jobs of `tridiag.kernels.thomas.few_sides`, and the preparation of the others."""
    define = definition(FEW_SIDES, task, preparation)

    def run(job, helpers):
        define(zero)
        if call(FEW_SIDES(zero), (job,)) == 0:
            call(beginning(zero), (job, helpers))
            job_at(job).task = task(zero)
            call(preparation(zero), (job,))
            call(task_runner(zero), (job,))

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
