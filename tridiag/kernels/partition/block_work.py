"""What a thread does with one block of chunks in each phase."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.partition import chunk_masks, chunk_pivoted, chunk_plain, chunk_refine, chunks
from tridiag.kernels.partition import refine as R
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.state import (
    STEPS,
    block_record,
    bytes_of,
    is_kept,
    place,
)
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.memory import (
    load,
    store,
)

BURN = 32  # rows after which to look whether the ends of a chunk still feel each other
COPIED = 4096  # rows that a thread copies at a time
TOGETHER = 256  # rows of neighbours that are copied while their lines are in the first cache


@compiled
def reduce_rows_plain(zero, plan, block, first, last, kept, stride):
    if plan.masked:
        return chunk_plain.REDUCE_MASKED(zero, (plan, block, first, last, kept, stride))
    return chunk_plain.REDUCE_PLAIN(zero, (plan, block, first, last, kept, stride))


@inlined
def reduce_block_plain(zero, plan, room, block):
    """The first pass over a block; what it found."""
    rows, row = plan.height, bytes_of_row(zero, ())
    kept, stride = place(zero, plan, P.LAST, block * lanes_of(zero, ())), plan.blocks * row
    if plan.masked:
        chunk_masks.tell_block(zero, plan, room, block)
        chunk_plain.KEEP_SEPARATORS_MASKED(zero, (plan, block))
    else:
        chunk_plain.KEEP_SEPARATORS(zero, (plan, block))
    chunk_plain.BEGIN_PLAIN(zero, (kept, stride))
    top, unsure, trying = 0, 0, plan.exact == 0
    while trying:
        found = reduce_rows_plain(zero, plan, block, top, top + BURN, kept, stride)
        top += BURN
        unsure |= found & chunks.UNSURE
        feels = found & chunks.TOP_FEELS != 0
        if not feels:
            chunk_plain.BEGIN_PLAIN(zero, (room, row))
            found = reduce_rows_plain(zero, plan, block, rows - top, rows, room, row)
            if found & chunks.BOTTOM_FEELS == 0:
                chunk_plain.ADOPT_PLAIN(zero, (kept, stride, room))
                return unsure | found & chunks.UNSURE
        trying = feels and 2 * (top + BURN) <= rows
    found = reduce_rows_plain(zero, plan, block, top, rows, kept, stride)
    return unsure | found & chunks.UNSURE | chunks.TOP_FEELS


@inlined
def reduce_block_pivoted(zero, plan, room, block):
    rows, row = plan.height, bytes_of_row(zero, ())
    kept, stride = place(zero, plan, P.LEFT, block * lanes_of(zero, ())), plan.blocks * row
    top, near, trying, found = 0, False, plan.exact == 0, 0
    while trying:
        found = chunk_pivoted.REDUCE_PIVOTED(zero, (plan, block, 0, top, top + BURN, kept, stride))
        top += BURN
        feels = found & chunks.TOP_FEELS != 0
        if not feels:
            found = chunk_pivoted.REDUCE_PIVOTED(zero, (plan, block, rows - top, rows - top, rows, room, row))
            near = found & chunks.BOTTOM_FEELS == 0
        trying = feels and 2 * (top + BURN) <= rows
    if near:
        chunk_pivoted.ADOPT_PIVOTED(zero, (kept, stride, room))
    else:
        found = chunk_pivoted.REDUCE_PIVOTED(zero, (plan, block, 0, top, rows, kept, stride))
    block_record(zero, (plan, block)).near = near
    return found & chunks.UNSURE | (0 if near else chunks.TOP_FEELS)


@inlined
def solve_block_plain(zero, plan, room, block):
    """The second pass over a block; whether it is finite, and has the certificate where one is wanted."""
    if plan.masked:
        unsure = chunk_plain.ELIMINATE_MASKED(zero, (plan, block, room))
    else:
        unsure = chunk_plain.ELIMINATE(zero, (plan, block, room))
    if chunk_plain.SUBSTITUTE(zero, (plan, block, room)):
        return False
    return not unsure or plan.promise == J.PLAIN


@inlined
def solve_block_pivoted(zero, plan, room, block):
    """... with pivoting; whether it is finite. Its bad rows are listed."""
    chunk_pivoted.ELIMINATE_PIVOTED(zero, (plan, block, room))
    if chunk_pivoted.SUBSTITUTE_PIVOTED(zero, (plan, block, room)):
        return False
    lines = room + (plan.height + 1) * chunk_pivoted.FEW_FIELDS * bytes_of_row(zero, ())
    chunk_refine.CHECK_ROWS(zero, (plan, block, room, place(zero, plan, P.ABOVE, block * lanes_of(zero, ())), lines))
    R.list_bad_lines(zero, plan, block, lines)
    return True


@inlined
def copy_rows(zero, plan, first, last):
    """Rows of a, b, c and d to their copies, which are contiguous; those of neighbours while they are in cache."""
    for low in range(first, last, TOGETHER):
        for operand in (P.A, P.B, P.C, P.D):
            for k in range(plan.several if plan.copy[operand] != 0 else 0):
                if plan.marks >> k & 1:
                    copy_operand(zero, plan, operand, k, low, min(low + TOGETHER, last))


@inlined
def copy_operand(zero, plan, operand, k, first, last):
    """Rows of an operand of the neighbour k; zero for what would couple a row with none: it may lie outside."""
    side, target = bytes_of(zero, ()), plan.copy[operand] + k * plan.apart
    source, stride = plan.address[operand] + k * plan.across[operand], plan.stride[operand]
    if operand == P.A and first == 0:
        store(target, zero)
        first += 1
    if operand == P.C and last == plan.rows:
        last -= 1
        store(target + last * side, zero)
    for i in range(first, last):
        store(target + i * side, load(source + i * stride, zero))


@inlined
def store_rows(zero, plan, first, last):
    """Rows of the solution to where they belong; those that are taken out are zero."""
    source, stride, target, step = plan.copy[P.X], bytes_of(zero, ()), plan.address[P.X], plan.stride[P.X]
    if source == 0:
        source, stride = target, step
    for low in range(first, last, TOGETHER):
        for k in range(plan.several):
            at, to = source + k * plan.apart, target + k * plan.across[P.X]
            if plan.marks >> k & 1:
                for i in range(low, min(low + TOGETHER, last)):
                    store(to + i * step, load(at + i * stride, zero) if is_kept(plan, i) else zero)


@compiled
def work_on(zero, shared, room, block):
    """One block of a phase, or group of windows, or stretch of rows."""
    phase, good = shared.phase, True
    if phase == P.REDUCE_PLAIN:
        found = reduce_block_plain(zero, shared, room, block)
        good = found & chunks.UNSURE == 0 or shared.promise == J.PLAIN
        if found & chunks.TOP_FEELS == 0:
            shared.ends_read = 1
    elif phase == P.REDUCE_PIVOTED:
        if reduce_block_pivoted(zero, shared, room, block) & chunks.UNSURE:
            shared.doubt = 1
    elif phase == P.SOLVE_PLAIN:
        good = solve_block_plain(zero, shared, room, block)
    elif phase == P.SOLVE_PIVOTED:
        good = solve_block_pivoted(zero, shared, room, block)
    elif phase == P.REPAIR:
        R.repair_windows(zero, shared, room, block)
    elif phase == P.FIND_REST:
        R.find_rest(zero, shared, room, block)
    elif phase == P.CORRECT:
        R.correct_block(zero, shared, room, block)
    else:
        first = block * COPIED
        last = min(first + COPIED, shared.rows)
        if phase == P.GATHER:
            copy_rows(zero, shared, first, last)
        elif phase == P.CUT:
            chunk_masks.cut_rows(zero, shared, room, first, last)
        else:
            store_rows(zero, shared, first, last)
    if not good:
        shared.failed = 1


WORK_ON = STEPS.add_step(work_on)
