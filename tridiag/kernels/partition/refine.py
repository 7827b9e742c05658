"""Corrections of a solution with pivoting: rows whose componentwise residual is too large, and what is done about them.

Such rows are few, and what is wrong there decays away from them in most systems: windows of some rows around them are
solved again for their residuals. Where that does not do, the whole system is.
"""

from __future__ import annotations

from tridiag.algorithms.elimination import REFINE_ABOVE, RETURN_AFTER
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of
from tridiag.kernels.partition import chunk_pivoted, chunk_refine
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.gtsv import copy
from tridiag.kernels.partition.reduced_system import lone_residual, lone_row
from tridiag.kernels.partition.state import (
    block_record,
    bytes_of,
    get,
    limits,
    line_height,
    list_row,
    put,
    put_lane,
    solution,
)
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import set_word, word
from tridiag.kernels.simd.scalars import entry
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

MANY_WINDOWS = 64
REACH = 4  # parts of a window, at either end the outermost of which is too near to the end for a bad row

# The room of a block that is corrected: a table of addresses; rows of lanes (x_before, x_after; the two rows that
# remain; corrections of x_before, x_first, x_last, x_after; the residuals of the two rows); the records of its rows.
ENDS = 12


table_size = emitted(lambda code: code.integer(6 * 8 * code.lanes))


@emitted
def corrected_size(code: Code, rows: Value) -> Value:
    """Bytes of the room for so many rows in each lane, without what follows the records."""
    return (rows * chunk_pivoted.FIELDS + (ENDS + chunk_pivoted.FIELDS)) * code.row + 6 * 8 * code.lanes


@compiled
def list_bad_lines(zero, plan, block, lines):
    """The first rows of the lines that have a bad row, in order."""
    height, rows, lanes, about = (
        line_height(zero, ()),
        plan.height,
        lanes_of(zero, ()),
        block_record(zero, (plan, block)),
    )
    count = 0
    for first in range(0, lanes, 8):  # a byte a lane
        some = 0
        for i in range(0, rows, height):
            some |= word(lines + 8 * i + first)
        for lane in range(8):
            for i in range(0, rows if some >> 8 * lane & 1 else 0, height):
                if word(lines + 8 * i + first) >> 8 * lane & 1:
                    count = list_row(about, count + 0, 1 + (block * lanes + first + lane) * rows + i)
    about.bad = count


@compiled
def bind_scattered(zero, plan, table, lane, row):
    """Let a lane begin at a row of the system."""
    lanes, at = lanes_of(zero, ()), (row - 1) * bytes_of(zero, ())
    for k, operand in enumerate((P.A, P.B, P.C, P.D, P.X)):
        address = plan.lines[operand] + plan.step[operand] * at
        set_word(table + 8 * (k * lanes + lane), address)
    set_word(table + 8 * (5 * lanes + lane), word(table + 8 * (4 * lanes + lane)))


@inlined
def repair_windows(zero, plan, room, group):
    """Correct a group of windows, whose outermost rows stay, where all rows come out good; the others are marked."""
    lanes, row, count, rows = lanes_of(zero, ()), bytes_of_row(zero, ()), plan.count, plan.window
    side, real, ends = bytes_of(zero, ()), bytes_of_real(zero, ()), room + table_size(zero, ())
    records, found = ends + ENDS * row, room + corrected_size(zero, (rows,))
    for lane in range(lanes):
        first = word(plan.windows + 8 * min(group * lanes + lane, count - 1))
        bind_scattered(zero, plan, room, lane, first)
        set_word(room + 8 * (5 * lanes + lane), found + lane * rows * side)
        put_lane(zero, ends + lane * real, solution(zero, plan, first - 1))
        put_lane(zero, ends + row + lane * real, solution(zero, plan, first + rows))
        for k in range(6, 10):
            put_lane(zero, ends + k * row + lane * real, zero)
    chunk_refine.BEGIN_CORRECTION(zero, (plan, room, rows, records, ends))
    bad = chunk_refine.RESIDUAL(zero, (plan, room, rows, records, ends))
    for step in range(1, RETURN_AFTER + 1):
        if bad == 0 and step > 1:
            break
        chunk_refine.CORRECT(zero, (plan, room, rows, records, ends, step, 1))
        bad = chunk_refine.RESIDUAL(zero, (plan, room, rows, records, ends))
    for lane in range(min(lanes, count - group * lanes)):
        at = plan.windows + 8 * (group * lanes + lane)
        if bad >> lane & 1:
            set_word(at, -word(at))
        else:
            target = word(room + 8 * (4 * lanes + lane))
            copy(zero, rows - 2, found + (lane * rows + 1) * side, side, target + side, side)


@compiled
def begin_block(zero, plan, room, block):
    """A block as it is to be corrected. x beside the chunks is as before any correction."""
    lanes, row, rows, real = lanes_of(zero, ()), bytes_of_row(zero, ()), plan.height, bytes_of_real(zero, ())
    ends, known = room + table_size(zero, ()), plan.phase == P.CORRECT
    for lane in range(lanes):
        chunk = block * lanes + lane
        bind_scattered(zero, plan, room, lane, 1 + chunk * rows)
        if not known:
            put(zero, plan, P.INTERLEAVED, chunk, solution(zero, plan, chunk * rows))
            put(zero, plan, P.INTERLEAVED + 1, chunk, solution(zero, plan, 1 + (chunk + 1) * rows))
        for k in range(2):
            put_lane(zero, ends + k * row + lane * real, get(zero, plan, P.INTERLEAVED + k, chunk))
        for k in range(4):
            correction = get(zero, plan, P.ABOVE + k, chunk) if known else zero
            put_lane(zero, ends + (6 + k) * row + lane * real, correction)
    chunk_refine.BEGIN_CORRECTION(zero, (plan, room, rows, ends + ENDS * row, ends))
    chunk_refine.RESIDUAL(zero, (plan, room, rows, ends + ENDS * row, ends))


@inlined
def find_rest(zero, plan, room, block):
    """What the residuals of a block leave to the two rows that remain of each chunk."""
    lanes, row = lanes_of(zero, ()), bytes_of_row(zero, ())
    begin_block(zero, plan, room, block)
    ends = room + table_size(zero, ())
    for lane in range(lanes):
        for k, source in enumerate((2, 3, 10, 4, 5, 11)):
            value = entry(ends + source * row + lane * bytes_of_real(zero, ()), zero)
            put(zero, plan, P.REST + k, block * lanes + lane, value)


@inlined
def correct_block(zero, plan, room, block):
    """Correct a block, corrections of its ends being known, and list its bad rows."""
    rows, ends = plan.height, room + table_size(zero, ())
    begin_block(zero, plan, room, block)
    records, lines = ends + ENDS * bytes_of_row(zero, ()), room + corrected_size(zero, (rows,))
    chunk_refine.CORRECT(zero, (plan, room, rows, records, ends, plan.refining, 0))
    chunk_refine.CHECK_CORRECTED(zero, (plan, block, records, ends, lines))
    list_bad_lines(zero, plan, block, lines)


@compiled
def list_lone_rows(zero, plan):
    """The bad rows in no chunk, as if they were one more block."""
    about, count = block_record(zero, (plan, plan.blocks)), 0
    for i in range(plan.tail + 1):
        if not lone_residual(zero, plan, i)[1] <= REFINE_ABOVE * limits(zero)[0]:
            count = list_row(about, count + 0, lone_row(zero, (plan, i)))
    about.bad = count


@compiled
def all_good(zero, plan):
    bad = 0
    for block in range(plan.blocks + 1):
        bad += block_record(zero, (plan, block)).bad
    return bad == 0


@inlined
def choose_windows(zero, plan):
    """Windows around the bad rows that are listed, a row or more apart; False where more are bad than are listed."""
    size, count = plan.window, 0
    last = -size
    for block in range(plan.blocks + 1):
        about = block_record(zero, (plan, block))
        if about.bad > P.MOST_LISTED:
            return False
        for k in range(about.bad):
            row = about.listed[k]
            first = max(1, min(row + (line_height(zero, ()) - size) // 2, plan.rows - 1 - size))
            if row >= last + size - size // REACH and first > last + size:
                set_word(plan.windows + 8 * count, first)
                last, count = first, count + 1
    plan.count = count
    return True


@inlined
def beyond_windows(zero, plan, size):
    """Whether a row that is listed is in no window, or nearer to an end of the system than to those of one so large."""
    height, end = line_height(zero, ()), plan.rows - 1
    for block in range(plan.blocks + 1):
        about = block_record(zero, (plan, block))
        for k in range(min(about.bad, P.MOST_LISTED)):
            row = about.listed[k]
            if row < max(1, (size - height) // 2) or row + max(height, (size + height) // 2) > end:
                return True
    return False


@inlined
def drop_repaired(zero, plan):
    """Take the rows of good windows from the lists; how many."""
    size, window, count, dropped = plan.window, plan.windows, plan.count, 0
    behind = window + 8 * count
    for block in range(plan.blocks + 1):
        about, left = block_record(zero, (plan, block)), 0
        for k in range(about.bad):
            row = about.listed[k]
            while window < behind and abs(word(window)) + size <= row:
                window += 8
            if window < behind and 0 < word(window) <= row and row + line_height(zero, ()) <= word(window) + size:
                dropped += 1
            else:
                left = list_row(about, left + 0, row)
        about.bad = left
    return dropped


@inlined
def too_many_bad(plan):
    """Whether most of many windows came out bad: what is wrong is not wrong in few rows."""
    count, bad = plan.count, 0
    for k in range(count):
        bad += word(plan.windows + 8 * k) < 0
    return count > MANY_WINDOWS and 2 * bad > count
