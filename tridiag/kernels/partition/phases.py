"""The phases in which one long system is solved: each a pass of all threads over all blocks."""

from __future__ import annotations

import numpy as np

from tridiag.algorithms.elimination import RETURN_AFTER
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.partition import refine as R
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.block_work import COPIED, WORK_ON
from tridiag.kernels.partition.reduced_system import SOLVE_ENDS, SOLVE_SEPARATORS, separator_error
from tridiag.kernels.partition.state import (
    STEPS,
    bytes_of,
    limits,
)
from tridiag.kernels.runtime.threads import finish, start
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import (
    c_function,
    call,
    fetch_add,
)
from tridiag.kernels.simd.records import RecordAt, address_of

SEPARATOR_BAR = 6.0  # eps: the componentwise residual of a separator; all other rows have the certificate
WINDOWS = (128, 256, 512)  # rows around a bad row that are corrected alone, the next where so many did not do


@inlined
def room_size(zero, rows):
    """Bytes that any phase needs for one block with so many rows in a chunk."""
    row, lanes = bytes_of_row(zero, ()), lanes_of(zero, ())
    windows = R.corrected_size(zero, (WINDOWS[-1],)) + WINDOWS[-1] * lanes * bytes_of(zero, ())
    return max(R.corrected_size(zero, (rows,)) + rows * 8, windows) // row * row + 2 * row


@compiled
def blocks_of(zero, plan):
    """How many blocks the phase at hand has, and how many of them a thread claims at a time."""
    phase, lanes = plan.phase, lanes_of(zero, ())
    if phase == P.REPAIR:
        return (plan.count + lanes - 1) // lanes, 1
    if phase in (P.GATHER, P.CUT, P.SCATTER):
        return (plan.rows + COPIED - 1) // COPIED, 1
    return plan.blocks, plan.run


@compiled
def work(plan, zero):
    """Claim runs of blocks until none is left; called by every thread of a phase."""
    room = plan.rooms + fetch_add(plan.addresses.threads, 1) * plan.room_size
    blocks, run = blocks_of(zero, plan)
    first = 0
    while first < blocks and not plan.failed and not stopping():
        first = fetch_add(plan.addresses.next, run)
        for block in range(first, min(first + run, blocks)):
            if not (plan.failed or stopping()):
                WORK_ON(zero, (plan, room, block))


task = c_function(work, "tridiag_work_on_blocks", first=RecordAt(P.Plan))


@compiled
def run_phase(zero, plan, phase, helpers):
    """One pass over all blocks, by no more threads than find some; whether none of them failed, and none is left."""
    plan.phase = phase
    plan.next = plan.threads = plan.failed = 0
    blocks, run = blocks_of(zero, plan)
    handles = start(task(zero), address_of(plan), min(helpers, max(0, blocks - 1) // run), 0)
    call(task(zero), (address_of(plan),))
    finish(handles)
    return plan.failed == 0 and not stopping()


RUN_PHASE = STEPS.add_step(run_phase)


@compiled
def solve_plainly(zero, plan, helpers):
    """By plain elimination; whether that keeps the promise."""
    plain, bar, sure = plan.promise == J.PLAIN, SEPARATOR_BAR * limits(zero)[0], False
    plan.ends_read = 0
    for exact in range(2):
        plan.exact = exact
        if not RUN_PHASE(zero, (plan, P.REDUCE_PLAIN, helpers)):
            return False
        SOLVE_SEPARATORS(zero, (plan,))
        if not RUN_PHASE(zero, (plan, P.SOLVE_PLAIN, helpers)):
            return False
        error = separator_error(zero, plan)
        whole = exact or not plan.ends_read
        sure = error <= bar or (plain and whole and error < np.inf)
        if sure or whole:
            break
    return sure


@compiled
def repair(zero, plan, helpers):
    """Correct bad rows where that takes no more than some rows around them; whether all are good then."""
    before = 0
    for size in WINDOWS:
        if R.beyond_windows(zero, plan, before):
            return False
        before, dropped = size, 1
        while dropped > 0 and size + 2 <= plan.rows:
            if R.all_good(zero, plan):
                return True
            plan.window = size
            if not R.choose_windows(zero, plan):
                return False
            if not RUN_PHASE(zero, (plan, P.REPAIR, helpers)):
                return False
            dropped = R.drop_repaired(zero, plan)
            if R.too_many_bad(plan):
                return False
    return R.all_good(zero, plan)


REPAIR = STEPS.add_step(repair)


@compiled
def solve_with_pivoting(zero, plan, helpers):
    """By elimination with pivoting, refined; whether all rows come out good.

    Under pivoting=True too: chunks alone are not always as good as LAPACK.
    """
    plan.exact = 0
    plan.refining = 0
    plan.doubt = 0
    if not RUN_PHASE(zero, (plan, P.REDUCE_PIVOTED, helpers)):
        return False
    if not SOLVE_ENDS(zero, (plan,)) or not RUN_PHASE(zero, (plan, P.SOLVE_PIVOTED, helpers)):
        return False
    R.list_lone_rows(zero, plan)
    for step in range(1, RETURN_AFTER + 1):  # what needs more is left to `gtsv`
        plan.refining = step
        if REPAIR(zero, (plan, helpers)):
            return True
        if not RUN_PHASE(zero, (plan, P.FIND_REST, helpers)) or not SOLVE_ENDS(zero, (plan,)):
            return False
        if not RUN_PHASE(zero, (plan, P.CORRECT, helpers)):
            return False
        R.list_lone_rows(zero, plan)
    return R.all_good(zero, plan)


SOLVE_PLAINLY, SOLVE_WITH_PIVOTING = STEPS.add_step(solve_plainly), STEPS.add_step(solve_with_pivoting)
