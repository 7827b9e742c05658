"""The driver of the sweeps: claims items of a job, aims groups of systems at memory, eliminates, substitutes, stores.

A group is a vector of systems, one in each lane; a tile is one group, or several that lie side by side in memory, the
whole ones where the cache lines of the solution begin. c' and y' of all its rows stay in cache. Lanes without
certificate are eliminated again with pivoting, and refined.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, njit, types

from tridiag.elimination import REFINE_STEPS
from tridiag.kernels import job as J
from tridiag.kernels.crew import conductor
from tridiag.kernels.memory import (
    c_function,
    call,
    fetch_add,
    flush,
    free,
    load,
    malloc,
    set_byte,
    set_half_word,
    set_word,
    store,
    variable,
    word,
)
from tridiag.kernels.moves import (
    ADVANCE,
    BESIDE,
    CONTIGUOUS,
    KIND,
    LOAD_MASK,
    MOVES,
    NEXT_GROUP,
    QUAD,
    STRIDE,
    TABLE,
    aim,
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    load_rows,
    parts_of,
    store_lane,
    store_rows,
)
from tridiag.kernels.sweeps import (
    BACKWARD,
    BACKWARD_BESIDE,
    BACKWARD_EXCHANGED,
    BACKWARD_EXCHANGED_BESIDE,
    BACKWARD_EXCHANGED_LINES,
    BACKWARD_LINES,
    BACKWARD_LINES_FACTORED,
    BACKWARD_LINES_SHARED,
    BACKWARD_SHARED,
    BACKWARD_TRANSPOSED,
    BACKWARD_TRANSPOSED_SHARED,
    BACKWARD_WIDE,
    BEST,
    CLOSE_EXCHANGE,
    CUT,
    ELIMINATE,
    ELIMINATE_BESIDE,
    ELIMINATE_LINES,
    ELIMINATE_PIVOTED,
    ERASE,
    EXCHANGE,
    EXCHANGE_BESIDE,
    EXCHANGE_LINES,
    FACTOR,
    FORWARD,
    FORWARD_LINES,
    FORWARD_LINES_SHARED,
    FORWARD_SHARED,
    FORWARD_TRANSPOSED,
    FORWARD_TRANSPOSED_SHARED,
    FORWARD_WIDE,
    IMPROVE,
    ITERATE,
    JUDGE,
    MERGE,
    NAN,
    PLANES,
    REST,
    RIGHT,
    STREAM_BESIDE,
    STREAM_EXCHANGED_BESIDE,
    STREAM_WIDE,
    SUBSTITUTE_PIVOTED,
    SWEEPS,
    UPPER,
    WIDE,
    ZERO,
    ZERO_PIVOTS,
)
from tridiag.kernels.vector import LINE, ONCE, OPTIONS, definition, entry, turn, unit

A_, B_, C_, WHERE_, D_, X_ = range(6)  # the operands, in the order of a job
OPERANDS = 6
BLOCK = 64  # rows eliminated at a time
ONE_SET = 4096  # addresses that far apart share a set of the innermost cache: its size over its ways
# what `tridiag.kernels.cyclic` keeps, in rows of lanes: for each row, and beside all rows
CYCLIC_DEPTH, CYCLIC_STATE = 3, 11
WIDE_ROWS_AHEAD = 32  # prefetch distance of `substitute_wide`
EARLY = 32  # rows after which a tile is looked at for lanes that may go on

# the words of a worker, byte offsets: the addresses of its scratch memory
(
    AIMS, MASK, BUFFER, CARRY, GOOD, Y, TILE, STATUS, ERRORS, SWAPS, ONES, ZEROS, NANS, OFFSETS, NO_OFFSETS, FACTORS,
) = range(0, 128, 8)  # fmt: skip
# ... and what it knows of the tile at hand: the rows that are not taken out, whether all of those are kept, its bands
LOW, HIGH, WHOLE, MEMORY, VIEWS, WORDS = 128, 136, 144, 152, 160, 256


@njit(**OPTIONS)
def field(job, k):
    return word(job + 8 * k)


@njit(**OPTIONS)
def offset(job, axes, count, index, operand):
    """The byte offset of one system of an operand: its index over the batch axes, last axis fastest."""
    total = 0
    for k in range(count - 1, 0, -1):
        axis = axes + J.AXIS_WORDS * k
        length = field(job, axis)
        total += (index % length) * field(job, axis + 1 + operand)
        index //= length
    return total + index * field(job, axes + 1 + operand) if count > 0 else total


@njit(**OPTIONS)
def aim_lanes(zero, job, axes, count, first, used, base, aims, low, high):
    """Point operands low <= k < high of a group at systems first, first + 1, ... along some axes.

    ``base`` is the address of six more offsets. Lanes that are not used repeat the first.
    """
    lanes, itemsize = lanes_of(zero, ()), bytes_of_real(zero, ()) * parts_of(zero, ())
    size, inner = TABLE + 8 * lanes, axes + J.AXIS_WORDS * (count - 1)
    for operand in range(low, high):
        pointer, target, stride = field(job, J.POINTERS + operand), aims + operand * size, J.STRIDES + operand
        step = field(job, inner + 1 + operand) if count > 0 else 0
        lane, run = 0, used
        while lane < used and pointer != 0:
            index, run = first + lane, used - lane
            if count > 1:
                length = field(job, inner)
                run = min(run, length - index % length)
            at = pointer + word(base + 8 * operand) + offset(job, axes, count, index, operand)
            for k in range(lane, lane + run):
                set_word(target + TABLE + 8 * k, at)
                at += step
            lane += run
        for k in range(used, lanes):
            set_word(target + TABLE + 8 * k, word(target + TABLE))
        aim(zero, target, itemsize, field(job, stride), run == lanes, operand == X_)


@njit(**OPTIONS)
def operand_of(zero, aims, k):
    return aims + k * (TABLE + 8 * lanes_of(zero, ()))


@njit(**OPTIONS)
def band_of(job, band):
    """The operand of a band of the matrix and the rows to move by: transposed, a'[i] is c[i-1]."""
    if band == RIGHT:
        return D_, 0
    return (2 - band, band - 1) if field(job, J.FLAGS) & J.TRANSPOSE else (band, 0)


@njit(**OPTIONS)
def load_band(zero, job, aims, band, i0, i1, low, high, target):
    """Rows i0 <= i < i1 of a band; the pads, at ``low`` and before ``high``, are zero."""
    operand, move = band_of(job, band)
    first = i0 + 1 if band == 0 and i0 == low else i0
    last = i1 - 1 if band == 2 and i1 == high else i1
    row = bytes_of_row(zero, ())
    load_rows(zero, operand_of(zero, aims, operand), first + move, last + move, target + (first - i0) * row)
    if first > i0:
        ZERO(zero, (target, row, 1))
    if last < i1:
        ZERO(zero, (target + (i1 - 1 - i0) * row, row, 1))


@njit(**OPTIONS)
def view(zero, job, worker, aims, band, i0, i1, copied):
    """Where rows i0 <= i < i1 of a band lie as rows of lanes: in the caller's memory, or loaded to the buffer."""
    low, high, row = word(worker + LOW), word(worker + HIGH), bytes_of_row(zero, ())
    padded = (band == 0 and i0 == low) or (band == 2 and i1 == high)
    if copied or padded or not view_in_place(zero, job, worker, band, i0):
        buffer = word(worker + BUFFER) + band * BLOCK * row
        load_band(zero, job, aims, band, i0, i1, low, high, buffer)
        set_view(worker, band, buffer, row)


@njit(**OPTIONS)
def view_in_place(zero, job, worker, band, i0):
    """A view of the caller's memory, if that has rows of lanes."""
    operand, move = band_of(job, band)
    at = operand_of(zero, word(worker + AIMS), operand)
    there = word(at + KIND) == BESIDE and parts_of(zero, ()) == 1
    if there:
        set_view(worker, band, word(at + TABLE) + (i0 + move) * word(at + STRIDE), word(at + STRIDE))
    return there


@njit(**OPTIONS)
def set_view(worker, band, address, step):
    set_word(worker + VIEWS + 16 * band, address)
    set_word(worker + VIEWS + 16 * band + 8, step)


@njit(**OPTIONS)
def straight(zero, job, worker):
    """The rows of a group that the straight sweep may take, first <= i < last.

    It knows contiguous rows alone and no masks; another sweep does the rest, and the ends of a transposed matrix, whose
    bands come from other rows. Nor should it read systems that all lie in one set of the innermost cache, which are
    better copied a band at a time.
    """
    low, high, aims = word(worker + LOW), word(worker + HIGH), word(worker + AIMS)
    if word(worker + WHOLE) == 0:
        return low, low
    for k in (A_, B_, C_, D_, X_):
        operand = operand_of(zero, aims, k)
        apart = word(operand + TABLE + 8) - word(operand + TABLE)
        if word(operand + KIND) != CONTIGUOUS or apart % ONE_SET == 0:
            return low, low
    height = QUAD // parts_of(zero, ())
    moved = 1 if field(job, J.FLAGS) & J.TRANSPOSE else 0
    first = low + moved
    return first, first + max(0, high - moved - first) // height * height


@njit(**OPTIONS)
def mask_view(zero, worker, i):
    """The address and the step of the mask at row i."""
    if word(worker + WHOLE):
        return word(worker + ONES), 0
    lanes = lanes_of(zero, ())
    return word(worker + MASK) + (1 + i) * lanes, lanes


@njit(**OPTIONS)
def read_mask(zero, job, worker):
    """The mask of a group: the rows that any system keeps, and whether all keep all of those."""
    n, flags = field(job, J.ROWS), field(job, J.FLAGS)
    low, high, whole = 0, n, True
    if flags & J.MASKED:
        target = word(worker + MASK) + lanes_of(zero, ())
        LOAD_MASK(zero, (operand_of(zero, word(worker + AIMS), WHERE_), n, target, worker + VIEWS))
        low, high = word(worker + VIEWS), word(worker + VIEWS + 8)
        whole = word(worker + VIEWS + 16) == high - low
        if flags & J.PERIODIC:
            low, high, whole = 0, n, whole and low == 0 and high == n
    set_word(worker + LOW, min(low, high))
    set_word(worker + HIGH, high)
    set_word(worker + WHOLE, whole)


@njit(**OPTIONS)
def views_of_block(zero, job, worker, i0, i1, bands):
    """The addresses and the steps of the bands of a block of rows; the fourth is the right side."""
    row, copied = bytes_of_row(zero, ()), word(worker + WHOLE) == 0
    for band in range(bands):
        view(zero, job, worker, word(worker + AIMS), band, i0, i1, copied)
    if copied:
        buffer, (mask, _) = word(worker + BUFFER), mask_view(zero, worker, i0)
        CUT(zero, (buffer, buffer + BLOCK * row, buffer + 2 * BLOCK * row, mask, i1 - i0))
    at = worker + VIEWS
    return (
        word(at), word(at + 8), word(at + 16), word(at + 24),
        word(at + 32), word(at + 40), word(at + 48), word(at + 56),
    )  # fmt: skip


@njit(**OPTIONS)
def eliminate_block(zero, job, worker, i0, i1, target):
    """One block of rows: its bands, then the sweep."""
    views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
    step, aims, good = 2 * bytes_of_row(zero, ()), word(worker + AIMS), word(worker + GOOD)
    set_word(good, ELIMINATE(zero, (*views, mask, mask_step, target, step, i1 - i0, word(good), aims, i0)))


@njit(**OPTIONS)
def factor_block(zero, job, worker, i0, i1, factors):
    """The same without a right side, to factors."""
    views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 3), mask_view(zero, worker, i0)
    n, row, aims, good = field(job, J.ROWS), bytes_of_row(zero, ()), word(worker + AIMS), word(worker + GOOD)
    targets = pairs_at(factors, row, i0), above_at(factors, row, n, i0), word(worker + CARRY)
    found = FACTOR(zero, (*views[:6], mask, mask_step, *targets, i1 - i0, word(good), aims, i0))
    set_word(good, found)


@njit(**OPTIONS)
def hard_lanes(zero, job, good, used):
    """Of the used lanes those to be pivoted, and those where plain elimination met a zero pivot."""
    lanes = lanes_of(zero, ())
    every = (1 << used) - 1
    if field(job, J.PROMISE) == J.PLAIN:
        return 0, every & ~(good >> lanes)
    return every & ~good, 0


@njit(**OPTIONS)
def load_tile(zero, job, worker):
    """All rows of a group's matrices as planes, cut."""
    low, high, tile = word(worker + LOW), word(worker + HIGH), word(worker + TILE)
    plane = (high - low) * bytes_of_row(zero, ())
    for band in range(3):
        load_band(zero, job, word(worker + AIMS), band, low, high, low, high, tile + band * plane)
    mask, step = mask_view(zero, worker, low)
    if step:
        CUT(zero, (tile, tile + plane, tile + 2 * plane, mask, high - low))


@njit(**OPTIONS)
def eliminate_hard(zero, job, worker, first, lanes):
    """A group with partial pivoting; its status is told for the given lanes. Returns the singular ones."""
    low, rows = word(worker + LOW), word(worker + HIGH) - word(worker + LOW)
    if rows == 0:
        return 0
    load_tile(zero, job, worker)
    tile, swaps, status = word(worker + TILE), word(worker + SWAPS), word(worker + STATUS)
    mask, step = mask_view(zero, worker, low)
    ELIMINATE_PIVOTED(zero, (tile, rows, swaps, mask, step, status, word(worker + AIMS), low))
    return tell_singular(zero, job, worker, first, lanes)


@njit(**OPTIONS)
def tell_singular(zero, job, worker, first, lanes):
    """Of the given lanes those that met a zero pivot, and their status to the caller."""
    low, status, target = word(worker + LOW), word(worker + STATUS), field(job, J.STATUS)
    singular = ZERO_PIVOTS(zero, (status,)) & lanes
    if target != 0:
        for lane in range(lanes_of(zero, ())):
            if singular >> lane & 1:
                row = load(status + 4 * lane, types.int32(0))
                set_half_word(target + 4 * (first + lane), types.int32(row + low))
    return singular


@njit(**OPTIONS)
def substitute_hard(zero, job, worker, lanes):
    """The right side at hand of an eliminated group, refined under "auto"; returns the address of the solution."""
    low, rows = word(worker + LOW), word(worker + HIGH) - word(worker + LOW)
    tile, plane = word(worker + TILE), rows * bytes_of_row(zero, ())
    mask, step = mask_view(zero, worker, low)
    end = word(worker + SWAPS), mask, step
    iterate, rest, x = tile + ITERATE * plane, tile + REST * plane, operand_of(zero, word(worker + AIMS), X_)
    right_side(zero, job, worker, low, low + rows, iterate, mask, step)
    SUBSTITUTE_PIVOTED(zero, (tile, rows, *end, iterate, x, low))
    if field(job, J.PROMISE) != J.AUTO:
        return iterate
    again = start_refining(zero, job, worker, lanes)
    for _ in range(REFINE_STEPS):
        if again == 0:
            break
        SUBSTITUTE_PIVOTED(zero, (tile, rows, *end, rest, x, low))
        again = refine(zero, worker, lanes)
    return tile + BEST * plane


@njit(**OPTIONS)
def start_refining(zero, job, worker, lanes):
    """The residual of the first solution, and which of the given lanes are to be improved."""
    low, high, tile = word(worker + LOW), word(worker + HIGH), word(worker + TILE)
    mask, step = mask_view(zero, worker, low)
    right_side(zero, job, worker, low, high, tile + RIGHT * (high - low) * bytes_of_row(zero, ()), mask, step)
    return JUDGE(zero, (tile, high - low, 1, word(worker + ERRORS))) & lanes


@njit(**OPTIONS)
def refine(zero, worker, lanes):
    """The correction added; which lanes are to be improved again."""
    tile, rows = word(worker + TILE), word(worker + HIGH) - word(worker + LOW)
    IMPROVE(zero, (tile, rows))
    return JUDGE(zero, (tile, rows, 0, word(worker + ERRORS))) & lanes


@njit(**OPTIONS)
def right_side(zero, job, worker, i0, i1, target, mask, mask_step):
    """Rows of the right side as rows of lanes, zero where taken out."""
    load_rows(zero, operand_of(zero, word(worker + AIMS), D_), i0, i1, target)
    if mask_step:
        ERASE(zero, (target, mask, mask_step, i1 - i0))


@njit(**OPTIONS)
def store_solution(zero, job, worker, source, step, used, dead):
    """The rows of a solution to memory: zero where all systems take the row out, NaN in the dead lanes."""
    n, low, high = field(job, J.ROWS), word(worker + LOW), word(worker + HIGH)
    target = operand_of(zero, word(worker + AIMS), X_)
    nothing = word(worker + ZEROS)
    if dead != 0:
        set_word(job + 8 * J.BROKEN, 1)
    store_rows(zero, target, 0, low, nothing, 0, used)
    store_rows(zero, target, low, high, source, step, used)
    store_rows(zero, target, high, n, nothing, 0, used)
    for lane in range(used):
        if dead >> lane & 1:
            store_lane(zero, target, lane, n, word(worker + NANS))


@njit(**OPTIONS)
def aim_group(zero, job, worker, first, used):
    aims, axes = word(worker + AIMS), field(job, J.MATRIX_AXES)
    aim_lanes(zero, job, J.AXES, axes, first, used, word(worker + NO_OFFSETS), aims, 0, variable(OPERANDS))


@njit(**OPTIONS)
def advance(zero, job, worker, low):
    """Point operands k >= ``low`` of a group at the systems behind those before, along the only batch axis."""
    for operand in range(low, OPERANDS):
        step = lanes_of(zero, ()) * field(job, J.AXES + 1 + operand)
        ADVANCE(zero, (operand_of(zero, word(worker + AIMS), operand), step))


@njit(**OPTIONS)
def aim_next(zero, job, worker, first, used, follows):
    """Point a group at systems; ``follows``: behind those of the tile before."""
    if follows and used == lanes_of(zero, ()) and field(job, J.MATRIX_AXES) == 1:
        advance(zero, job, worker, 0)
    else:
        aim_group(zero, job, worker, first, used)
    read_mask(zero, job, worker)


@njit(**OPTIONS)
def solve_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, one in each lane; ``follows``: behind the group before."""
    row = bytes_of_row(zero, ())
    aim_next(zero, job, worker, first, used, follows)
    if not (sweep_down(zero, job, worker, used) and sweep_up(zero, job, worker, used)):
        finish_group(zero, job, worker, first, used, word(worker + GOOD), word(worker + Y) + 3 * row, 2 * row)


@njit(**OPTIONS)
def finish_group(zero, job, worker, first, used, good, source, step):
    """The solution of a group to memory, from ``source``, where it is right in lanes with a certificate."""
    row, every = bytes_of_row(zero, ()), (1 << used) - 1
    rows = word(worker + HIGH) - word(worker + LOW)
    hard, dead = hard_lanes(zero, job, word(good), used)
    tell_dead(job, first, dead)
    if hard != 0:
        dead |= eliminate_hard(zero, job, worker, first, hard)
        solution = substitute_hard(zero, job, worker, hard) if rows > 0 else source
        if hard == every:
            source, step = solution, row
        else:
            MERGE(zero, (source, step, solution, row, hard, rows))
    store_solution(zero, job, worker, source, step, used, dead)


@njit(**OPTIONS)
def tell_dead(job, first, dead):
    """A status for the systems whose plain elimination met a zero pivot; which row is for partial pivoting to say."""
    target, lane = field(job, J.STATUS), 0
    while target != 0 and dead >> lane:
        if dead >> lane & 1:
            set_half_word(target + 4 * (first + lane), types.int32(1))
        lane += 1


@njit(**OPTIONS)
def sweep_down(zero, job, worker, used):
    """c' and y' of all rows of a group, and its certificates; gives up and returns False when no lane has one left."""
    row, low, high = bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    y, good = word(worker + Y), word(worker + GOOD)
    ZERO(zero, (y, row, 2))
    set_word(good, (1 << 2 * lanes_of(zero, ())) - 1)
    first, last = straight(zero, job, worker)
    eliminate_blocks(zero, job, worker, low, first)
    for i in range(first, last, EARLY):
        eliminate_straight(zero, job, worker, i, min(i + EARLY, last))
        if hopeless(zero, job, good, used):
            return False
    eliminate_blocks(zero, job, worker, last, high)
    return not hopeless(zero, job, good, used)


@njit(**OPTIONS)
def hopeless(zero, job, good, used):
    """Whether every system of a group is to be pivoted."""
    hard, _ = hard_lanes(zero, job, word(good), used)
    return hard == (1 << used) - 1


@njit(**OPTIONS)
def eliminate_blocks(zero, job, worker, first, last):
    for i0 in range(first, last, BLOCK):
        target = word(worker + Y) + (i0 - word(worker + LOW) + 1) * 2 * bytes_of_row(zero, ())
        eliminate_block(zero, job, worker, i0, min(i0 + BLOCK, last), target)


@njit(**OPTIONS)
def eliminate_straight(zero, job, worker, first, last):
    row, low, good = bytes_of_row(zero, ()), word(worker + LOW), word(worker + GOOD)
    target = word(worker + Y) + (first - low + 1) * 2 * row
    words = target, first, last, low, word(worker + HIGH), word(good)
    set_word(good, ELIMINATE_LINES(zero, (*moved_operands(zero, job, worker), *words)))


@njit(**OPTIONS)
def moved_operands(zero, job, worker):
    """The operands that the straight sweeps read, and by how many rows each is moved."""
    aims = word(worker + AIMS)
    (a_at, a_move), (c_at, c_move) = band_of(job, 0), band_of(job, 2)
    a, b, c = operand_of(zero, aims, a_at), operand_of(zero, aims, B_), operand_of(zero, aims, c_at)
    return a, b, c, operand_of(zero, aims, D_), a_move, 0, c_move, 0


@njit(**OPTIONS)
def sweep_up(zero, job, worker, used):
    """x of all rows of a group, in place of y'; or to memory at once if no lane needs more, which is the result."""
    lanes, row, low, high = lanes_of(zero, ()), bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    carry, x = word(worker + CARRY), operand_of(zero, word(worker + AIMS), X_)
    ZERO(zero, (carry, row, 1))
    first, last = straight(zero, job, worker)
    hard, dead = hard_lanes(zero, job, word(word(worker + GOOD)), lanes)
    if used != lanes or hard | dead != 0 or last <= first:
        backward_block(zero, job, worker, low, high, False)
        return False
    store_rows(zero, x, 0, low, word(worker + ZEROS), 0, lanes)
    store_rows(zero, x, high, field(job, J.ROWS), word(worker + ZEROS), 0, lanes)
    backward_block(zero, job, worker, last, high, True)
    BACKWARD_LINES(zero, (word(worker + Y) + (first - low + 1) * 2 * row, x, carry, first, last))
    backward_block(zero, job, worker, low, first, True)
    return True


@njit(**OPTIONS)
def backward_block(zero, job, worker, first, last, store):
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    if first < last:
        at = word(worker + Y) + (first - word(worker + LOW) + 1) * 2 * row
        backward_rows(zero, worker, at, 2 * row, word(worker + CARRY), first, last)
        if store:
            store_rows(zero, x, first, last, at + row, 2 * row, lanes_of(zero, ()))


@njit(**OPTIONS)
def backward_rows(zero, worker, at, step, carry, first, last):
    """x in place of y', which lies behind c', in rows that are ``step`` bytes apart."""
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    mask, mask_step = mask_view(zero, worker, first)
    BACKWARD(zero, (at, step, at + row, step, mask, mask_step, at + row, step, carry, last - first, x, first))


# ------------------------------------------------------------------------------------------------ partial pivoting


@njit(**OPTIONS)
def exchange_group(zero, job, worker, first, used, follows):
    """Systems with a matrix and one right side each, with partial pivoting."""
    lanes, row, n, good = lanes_of(zero, ()), bytes_of_row(zero, ()), field(job, J.ROWS), word(worker + GOOD)
    aim_next(zero, job, worker, first, used, follows)
    keep_all_rows(zero, job, worker)
    start, last = straight(zero, job, worker)
    exchange_blocks(zero, job, worker, 0, start)
    if last > start:
        exchange_straight(zero, job, worker, start, last)
    exchange_blocks(zero, job, worker, last, n)
    end = word(worker + Y) + n * 4 * row, 4 * row, word(worker + CARRY), good
    sure = CLOSE_EXCHANGE(zero, end)
    if used == lanes and last > start and sure == (1 << lanes) - 1:
        back_exchanged(zero, job, worker, last, n, True)
        source, x = word(worker + Y) + (start + 1) * 4 * row, operand_of(zero, word(worker + AIMS), X_)
        BACKWARD_EXCHANGED_LINES(zero, (source, 4 * row, x, word(worker + CARRY), start, last))
        back_exchanged(zero, job, worker, 0, start, True)
    else:
        back_exchanged(zero, job, worker, 0, n, False)
        finish_group(zero, job, worker, first, used, good, word(worker + Y) + 7 * row, 4 * row)


@njit(**OPTIONS)
def keep_all_rows(zero, job, worker):
    """Sweep over all rows of a group, also those at the ends that are taken out, all lanes without a bad pivot yet."""
    n = field(job, J.ROWS)
    set_word(worker + WHOLE, word(worker + WHOLE) and word(worker + LOW) == 0 and word(worker + HIGH) == n)
    set_word(worker + LOW, 0)
    set_word(worker + HIGH, n)
    set_word(word(worker + GOOD), (1 << lanes_of(zero, ())) - 1)


@njit(**OPTIONS)
def exchange_blocks(zero, job, worker, first, last):
    step, aims = 4 * bytes_of_row(zero, ()), word(worker + AIMS)
    for i0 in range(first, last, BLOCK):
        i1 = min(i0 + BLOCK, last)
        views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 4), mask_view(zero, worker, i0)
        words = (
            word(worker + Y) + (i0 + 1) * step,
            step,
            i1 - i0,
            word(worker + CARRY),
            word(worker + GOOD),
            aims,
            i0,
            0,
        )
        EXCHANGE(zero, (*views, mask, mask_step, *words))


@njit(**OPTIONS)
def exchange_straight(zero, job, worker, first, last):
    row = bytes_of_row(zero, ())
    target = word(worker + Y) + (first + 1) * 4 * row
    words = target, 4 * row, first, last, 0, field(job, J.ROWS), word(worker + CARRY), word(worker + GOOD)
    EXCHANGE_LINES(zero, (*moved_operands(zero, job, worker), *words))


@njit(**OPTIONS)
def back_exchanged(zero, job, worker, first, last, store):
    """Rows first <= i < last of the solution, in their place and perhaps to memory."""
    row, x = bytes_of_row(zero, ()), operand_of(zero, word(worker + AIMS), X_)
    source, (mask, mask_step) = word(worker + Y) + (first + 1) * 4 * row, mask_view(zero, worker, first)
    if first < last:
        words = source, 4 * row, mask, mask_step, last - first, word(worker + CARRY), x, first
        BACKWARD_EXCHANGED(zero, words)
        if store:
            store_rows(zero, x, first, last, source + 3 * row, 4 * row, lanes_of(zero, ()))


# ------------------------------------------------------------------------------------------------ systems side by side


@njit(**ONCE)
def solve_beside(zero, job, worker, first, groups):
    """Groups that lie side by side, row by row through all of them."""
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), field(job, J.ROWS), word(worker + Y)
    step, good, carry = 2 * row * groups, word(worker + GOOD), word(worker + CARRY)
    start_beside(zero, job, worker, first, groups)
    ZERO(zero, (carry, row, groups))
    if sweep_down_beside(zero, job, worker, groups) and all_certified(zero, job, worker, groups):
        words = (y + step, step, groups, *solution_beside(zero, worker), carry, n)
        if past_caches(zero, job):
            STREAM_BESIDE(zero, words)
        else:
            BACKWARD_BESIDE(zero, words)
        return
    for group in range(groups):
        at, here, found = first + group * lanes, y + step + 2 * group * row, good + 8 * group
        aim_group(zero, job, worker, at, lanes)
        if not hopeless(zero, job, found, lanes):
            backward_rows(zero, worker, here, step, carry + group * row, 0, n)
        finish_group(zero, job, worker, at, lanes, found, here + row, step)


@njit(**OPTIONS)
def start_beside(zero, job, worker, first, groups):
    """Aim at the first of some groups, every lane of which has still its certificate."""
    aim_group(zero, job, worker, first, lanes_of(zero, ()))
    read_mask(zero, job, worker)
    for group in range(groups):
        set_word(word(worker + GOOD) + 8 * group, (1 << 2 * lanes_of(zero, ())) - 1)


@njit(**OPTIONS)
def solution_beside(zero, worker):
    """Where the first row of a solution is, and how far the next."""
    x = operand_of(zero, word(worker + AIMS), X_)
    return word(x + TABLE), word(x + STRIDE)


@njit(**OPTIONS)
def past_caches(zero, job):
    """Whether a solution goes straight to memory: large, in whole lines, not in place of d, and read by nobody yet."""
    fresh = field(job, J.D) != field(job, J.X) and field(job, J.AFTER) == 0
    return fresh and field(job, J.FLAGS) & J.LARGE and begins_lines(zero, job)


@njit(**OPTIONS)
def sweep_down_beside(zero, job, worker, groups):
    """c' and y' of all rows of all groups, and their certificates; False when no lane of any has one left."""
    row, n, good, y = bytes_of_row(zero, ()), field(job, J.ROWS), word(worker + GOOD), word(worker + Y)
    step, operands = 2 * row * groups, moved_operands(zero, job, worker)
    ZERO(zero, (y, row, 2 * groups))
    for i in range(0, n, EARLY):
        last = min(i + EARLY, n)
        ELIMINATE_BESIDE(zero, (*operands, y + (i + 1) * step, step, groups, i, last, n, good))
        given_up = True
        for group in range(groups):
            given_up = given_up and hopeless(zero, job, good + 8 * group, lanes_of(zero, ()))
        if given_up:
            return False
    return True


@njit(**ONCE)
def exchange_beside(zero, job, worker, first, groups):
    """The same with partial pivoting."""
    lanes, row, n, y = lanes_of(zero, ()), bytes_of_row(zero, ()), field(job, J.ROWS), word(worker + Y)
    step, good, carry = 4 * row * groups, word(worker + GOOD), word(worker + CARRY)
    start_beside(zero, job, worker, first, groups)
    EXCHANGE_BESIDE(zero, (*moved_operands(zero, job, worker), y + step, step, groups, n, carry, good))
    every, sure = (1 << lanes) - 1, (1 << lanes) - 1
    for group in range(groups):
        end = y + n * step + 4 * group * row, step, carry + 4 * group * row, good + 8 * group
        sure &= CLOSE_EXCHANGE(zero, end)
    if sure != every:
        for group in range(groups):
            exchange_group(zero, job, worker, first + group * lanes, lanes, False)
        return
    words = (y + step, step, groups, *solution_beside(zero, worker), carry, n)
    if past_caches(zero, job):
        STREAM_EXCHANGED_BESIDE(zero, words)
    else:
        BACKWARD_EXCHANGED_BESIDE(zero, words)


@njit(**OPTIONS)
def all_certified(zero, job, worker, groups):
    for group in range(groups):
        hard, dead = hard_lanes(zero, job, word(word(worker + GOOD) + 8 * group), lanes_of(zero, ()))
        if hard | dead != 0:
            return False
    return True


@njit(**OPTIONS)
def begins_lines(zero, job):
    """Whether groups can be placed where cache lines of the solution begin."""
    return field(job, J.FLAGS) & J.LINED != 0 and field(job, J.X) % (bytes_of_real(zero, ()) * parts_of(zero, ())) == 0


@njit(**OPTIONS)
def exchanges(job):
    """Whether all systems are solved with partial pivoting."""
    return field(job, J.PROMISE) == J.PIVOTED


@njit(**OPTIONS)
def extent(zero, job, tile):
    """The systems low <= k < high of a tile; from ``whole`` on, before ``rest``, they are whole groups side by side."""
    lanes, width, beside = lanes_of(zero, ()), field(job, J.LANES), field(job, J.BESIDE)
    if beside == 0:
        first = tile * width
        return first, first, first, min(first + width, field(job, J.MATRICES))
    shift = 0
    if begins_lines(zero, job):
        shift = field(job, J.X) % LINE // (bytes_of_real(zero, ()) * parts_of(zero, ()))
    stretches = field(job, J.STRETCHES)
    origin, place = tile // stretches * beside, tile % stretches * width
    low, high = max(0, place - shift), min(beside, place + width - shift)
    whole = min(high, (low + shift + lanes - 1) // lanes * lanes - shift)
    rest = max(whole, whole + (high - whole) // lanes * lanes)
    return origin + low, origin + whole, origin + rest, origin + high


@njit(**ONCE)
def solve_tile(zero, job, worker, tile, follows):
    """One group, or the groups of a stretch of systems that lie side by side; the first and the last may be partial."""
    lanes, (low, whole, rest, high) = lanes_of(zero, ()), extent(zero, job, tile)
    if low < whole:
        solve_group(zero, job, worker, low, whole - low, False)
    if field(job, J.FLAGS) & J.MASKED or field(job, J.ROWS) == 0:
        for at in range(whole, rest, lanes):
            solve_group(zero, job, worker, at, lanes, False)
    elif whole < rest:
        solve_beside(zero, job, worker, whole, (rest - whole) // lanes)
    if rest < high:
        solve_group(zero, job, worker, rest, high - rest, follows)
    report(job, low, high - low)


@njit(**ONCE)
def exchange_tile(zero, job, worker, tile, follows):
    """The same with partial pivoting."""
    lanes, (low, whole, rest, high) = lanes_of(zero, ()), extent(zero, job, tile)
    if low < whole:
        exchange_group(zero, job, worker, low, whole - low, False)
    if field(job, J.FLAGS) & J.MASKED or field(job, J.ROWS) == 0:
        for at in range(whole, rest, lanes):
            exchange_group(zero, job, worker, at, lanes, False)
    elif whole < rest:
        exchange_beside(zero, job, worker, whole, (rest - whole) // lanes)
    if rest < high:
        exchange_group(zero, job, worker, rest, high - rest, follows)
    report(job, low, high - low)


@njit(**OPTIONS)
def report(job, first, count):
    """Tell whom it concerns that the systems first, first + 1, ... are solved."""
    if field(job, J.AFTER) != 0 and count > 0:
        call(field(job, J.AFTER), (job, first, count))


# ------------------------------------------------------------------------------------------------ many right sides


@njit(**OPTIONS)
def pairs_at(factors, part, i):
    """Where factors hold (a / pivot, 1 / pivot) of row i; ``part``: bytes of an entry."""
    return factors + 2 * i * part


@njit(**OPTIONS)
def above_at(factors, part, n, i):
    """Where they hold c' of row i: behind the pairs, last row first, as the sweeps read them."""
    return factors + (3 * n - 1 - i) * part


@njit(**OPTIONS)
def factor_group(zero, job, worker, first, used, factors):
    """The factors of all rows of a group; returns its hard and its dead lanes."""
    lanes, low, high = lanes_of(zero, ()), word(worker + LOW), word(worker + HIGH)
    if exchanges(job):
        return (1 << used) - 1, 0
    set_word(word(worker + GOOD), (1 << 2 * lanes) - 1)
    ZERO(zero, (word(worker + CARRY), bytes_of_row(zero, ()), 1))
    for i0 in range(low, high, BLOCK):
        factor_block(zero, job, worker, i0, min(i0 + BLOCK, high), factors)
    hard, dead = hard_lanes(zero, job, word(word(worker + GOOD)), used)
    tell_dead(job, first, dead)
    return hard, dead


@njit(**OPTIONS)
def solve_factored(zero, job, worker, factors, shared, used, hard, dead):
    """The right side that a group is aimed at, from factors: a row of lanes each, or ``shared``, one number each."""
    row, rows = bytes_of_row(zero, ()), word(worker + HIGH) - word(worker + LOW)
    y, flags, every = word(worker + Y) + row, field(job, J.FLAGS), (1 << used) - 1
    if hard != every and flags & J.FACTORED and flags & J.TRANSPOSE:
        substitute_turned(zero, job, worker, factors, shared, y)
    elif hard != every and substitute_easy(zero, job, worker, factors, shared, y, used, hard | dead):
        return
    if hard != 0 and rows > 0:
        solution = substitute_hard(zero, job, worker, hard)
        MERGE(zero, (y, row, solution, row, hard, rows))
    store_solution(zero, job, worker, y, row, used, dead)


@njit(**OPTIONS)
def part_of(zero, shared):
    """Bytes of an entry of factors."""
    return bytes_of_real(zero, ()) * parts_of(zero, ()) if shared else bytes_of_row(zero, ())


@njit(**OPTIONS)
def substitute_turned(zero, job, worker, factors, shared, y):
    """The solution for the transposed matrix, to ``y``."""
    n, row, low, high = field(job, J.ROWS), bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    part = part_of(zero, shared)
    pairs, above = pairs_at(factors, part, low), above_at(factors, part, n, low)
    mask, mask_step = mask_view(zero, worker, low)
    words = (pairs, above, mask, mask_step, y, row, high - low)
    right_side(zero, job, worker, low, high, y, mask, mask_step)
    if shared:
        FORWARD_TRANSPOSED_SHARED(zero, words)
        BACKWARD_TRANSPOSED_SHARED(zero, words)
    else:
        FORWARD_TRANSPOSED(zero, words)
        BACKWARD_TRANSPOSED(zero, words)


@njit(**OPTIONS)
def substitute_easy(zero, job, worker, factors, shared, y, used, bad):
    """The solution, to memory at once if no lane needs more, which is the result; else in place of y'."""
    n, row, low, high = field(job, J.ROWS), bytes_of_row(zero, ()), word(worker + LOW), word(worker + HIGH)
    aims, carry, lanes = word(worker + AIMS), word(worker + CARRY), lanes_of(zero, ())
    d, x, last = operand_of(zero, aims, D_), operand_of(zero, aims, X_), low
    if bad == 0 and used == lanes and word(worker + WHOLE) and word(d + KIND) == CONTIGUOUS == word(x + KIND):
        height = QUAD // parts_of(zero, ())
        last = low + (high - low) // height * height
    part = part_of(zero, shared)
    pairs, above = pairs_at(factors, part, low), above_at(factors, part, n, low)
    ZERO(zero, (y - row, row, 1))
    ZERO(zero, (carry, row, 1))
    if last > low:
        words = (pairs, d, y, low, last)
        if shared:
            FORWARD_LINES_SHARED(zero, words)
        else:
            FORWARD_LINES(zero, words)
    if last < high:
        forward_blocks(zero, job, worker, factors, shared, y, last, high)
        backward_factored(zero, job, worker, factors, shared, y, last, high)
    if last == low:
        return False
    words = (above, y, x, carry, low, last)
    if shared:
        BACKWARD_LINES_SHARED(zero, words)
    else:
        BACKWARD_LINES_FACTORED(zero, words)
    store_rows(zero, x, last, high, y + (last - low) * row, row, used)
    store_rows(zero, x, 0, low, word(worker + ZEROS), 0, used)
    store_rows(zero, x, high, n, word(worker + ZEROS), 0, used)
    return True


@njit(**OPTIONS)
def forward_blocks(zero, job, worker, factors, shared, y, first, last):
    """y' of rows first <= i < last from factors."""
    row, low, part = bytes_of_row(zero, ()), word(worker + LOW), part_of(zero, shared)
    aims, d = word(worker + AIMS), worker + VIEWS + 16 * RIGHT
    asked = operand_of(zero, aims, D_)
    for i0 in range(first, last, BLOCK):
        i1 = min(i0 + BLOCK, last)
        view(zero, job, worker, aims, RIGHT, i0, i1, False)
        mask, mask_step = mask_view(zero, worker, i0)
        pairs, to = pairs_at(factors, part, i0), y + (i0 - low) * row
        words = (pairs, word(d), word(d + 8), mask, mask_step, to, row, i1 - i0, asked, i0)
        if shared:
            FORWARD_SHARED(zero, words)
        else:
            FORWARD(zero, words)


@njit(**OPTIONS)
def backward_factored(zero, job, worker, factors, shared, y, first, last):
    """x of rows first <= i < last in place of y'."""
    n, row, part = field(job, J.ROWS), bytes_of_row(zero, ()), part_of(zero, shared)
    mask, mask_step = mask_view(zero, worker, first)
    x, at = operand_of(zero, word(worker + AIMS), X_), y + (first - word(worker + LOW)) * row
    above, carry = above_at(factors, part, n, first), word(worker + CARRY)
    words = (above, -part, at, row, mask, mask_step, at, row, carry, last - first, x, first)
    if shared:
        BACKWARD_SHARED(zero, words)
    else:
        BACKWARD(zero, words)


@njit(**OPTIONS)
def side_offsets(job, k, target):
    """The offsets of all operands at right side k."""
    count, axes = field(job, J.RIGHT_AXES), J.AXES + J.AXIS_WORDS * field(job, J.MATRIX_AXES)
    for operand in range(OPERANDS):
        set_word(target + 8 * operand, offset(job, axes, count, k, operand))


@njit(**OPTIONS)
def kinds_of(job, first, used):
    """The hard and the dead lanes of factored systems."""
    hard, dead = 0, 0
    for lane in range(used):
        kind = load(field(job, J.CERTIFIED) + first + lane, types.uint8(0))
        hard |= (kind == J.HARD) << lane
        dead |= (kind == J.DEAD) << lane
    return hard, dead


@njit(**OPTIONS)
def tell_kinds(job, first, used, hard, dead):
    for lane in range(used):
        kind = J.HARD if hard >> lane & 1 else J.DEAD if dead >> lane & 1 else J.EASY
        set_byte(field(job, J.CERTIFIED) + first + lane, kind)


@njit(**ONCE)
def solve_many(zero, job, worker, tile, first, used, k0, k1, follows):
    """A group of matrices, each with right sides k0 <= k < k1: to be factored, or factored before.

    ``follows``: behind the group before.
    """
    flags, aims, offsets = field(job, J.FLAGS), word(worker + AIMS), word(worker + OFFSETS)
    axes, factors, shared = field(job, J.MATRIX_AXES), word(worker + FACTORS), field(job, J.SHARED) != 0
    hard, dead = 0, 0
    if flags & (J.FACTORED | J.FACTORING):
        factors = field(job, J.FACTORS) + tile * field(job, J.ROWS) * 3 * bytes_of_row(zero, ())
    if flags & J.FACTORED:
        hard, dead = kinds_of(job, first, used)
    if hard != 0 or flags & J.FACTORED == 0 or flags & J.MASKED:
        aim_lanes(zero, job, J.AXES, axes, first, used, word(worker + NO_OFFSETS), aims, variable(0), variable(D_))
    read_mask(zero, job, worker)
    if flags & J.FACTORED == 0:
        hard, dead = factor_group(zero, job, worker, first, used, factors)
    if flags & J.FACTORING:
        tell_kinds(job, first, used, hard, dead)
    if hard != 0:
        dead |= eliminate_hard(zero, job, worker, first, hard)
    if follows and used == lanes_of(zero, ()) and axes == 1 and field(job, J.RIGHT_SIDES) == 1:
        advance(zero, job, worker, D_)
        solve_factored(zero, job, worker, factors, shared, used, hard, dead)
        return
    for k in range(k0, k1):
        side_offsets(job, k, offsets)
        aim_lanes(zero, job, J.AXES, axes, first, used, offsets, aims, variable(D_), variable(OPERANDS))
        solve_factored(zero, job, worker, factors, shared, used, hard, dead)


@njit(**ONCE)
def solve_shared(zero, job, worker, matrix, k0, k1):
    """Right sides k0 <= k < k1 of one factored matrix, one in each lane."""
    lanes, count, right = lanes_of(zero, ()), field(job, J.RIGHT_AXES), aim_shared(zero, job, worker, matrix)
    aims, base, shared, one = word(worker + AIMS), word(worker + OFFSETS), field(job, J.SHARED) != 0, variable(1)
    hard, dead = kinds_of(job, matrix, one)
    hard, dead = -hard & ((1 << lanes) - 1), -dead & ((1 << lanes) - 1)
    if hard != 0 and eliminate_hard(zero, job, worker, matrix, one):
        dead = (1 << lanes) - 1
    side = bytes_of_real(zero, ()) * parts_of(zero, ())
    factors = field(job, J.FACTORS) + matrix * field(job, J.ROWS) * 3 * side
    shift = field(job, J.X) % LINE // side if past_caches(zero, job) else 0
    k, end = max(0, k0 - shift), k1 if k1 == field(job, J.RIGHT_SIDES) else k1 - shift
    while k < end:
        used = min(lanes if k > 0 else lanes - shift, end - k)
        aim_lanes(zero, job, right, count, k, used, base, aims, variable(D_), variable(OPERANDS))
        if hard | dead == 0 and used == lanes and is_wide(zero, job, worker, k, end):
            substitute_wide(zero, job, worker, factors)
            k += WIDE * lanes
        else:
            every = (1 << used) - 1
            solve_factored(zero, job, worker, factors, shared, used, hard & every, dead & every)
            k += used


@njit(**OPTIONS)
def is_wide(zero, job, worker, k, end):
    """Whether some groups from right side k on lie side by side, and all rows are kept."""
    count, stretch, aims = field(job, J.RIGHT_AXES), WIDE * lanes_of(zero, ()), word(worker + AIMS)
    turned = field(job, J.FLAGS) & (J.FACTORED | J.TRANSPOSE) == J.FACTORED | J.TRANSPOSE
    if turned or field(job, J.FLAGS) & J.MASKED or k + stretch > end or count == 0:
        return False
    length = field(job, J.AXES + J.AXIS_WORDS * (field(job, J.MATRIX_AXES) + count - 1))
    d, x = operand_of(zero, aims, D_), operand_of(zero, aims, X_)
    return k % length + stretch <= length and word(d + KIND) == BESIDE and word(x + KIND) == BESIDE


@njit(**ONCE)
def substitute_wide(zero, job, worker, factors):
    """Some groups of right sides, of which the first is aimed at, row by row through all of them."""
    n, part, y, aims = field(job, J.ROWS), part_of(zero, 1), word(worker + Y), word(worker + AIMS)
    d, x, step = operand_of(zero, aims, D_), operand_of(zero, aims, X_), WIDE * bytes_of_row(zero, ())
    d_ahead, x_ahead = WIDE_ROWS_AHEAD * word(d + STRIDE), -WIDE_ROWS_AHEAD * word(x + STRIDE)
    if n * step < NEXT_GROUP:
        d_ahead, x_ahead = step, step
    FORWARD_WIDE(zero, (pairs_at(factors, part, 0), word(d + TABLE), word(d + STRIDE), d_ahead, y, n))
    words = above_at(factors, part, n, 0), y, word(x + TABLE), word(x + STRIDE), x_ahead, n
    if past_caches(zero, job) and word(x + TABLE) % LINE == 0:
        STREAM_WIDE(zero, words)
    else:
        BACKWARD_WIDE(zero, words)


@njit(**OPTIONS)
def aim_shared(zero, job, worker, matrix):
    """Point all lanes at one matrix; returns where the axes of its right sides are."""
    own, base, none = field(job, J.MATRIX_AXES), word(worker + OFFSETS), variable(0)
    right = J.AXES + J.AXIS_WORDS * own
    for operand in range(OPERANDS):
        set_word(base + 8 * operand, offset(job, J.AXES, own, matrix, operand))
    aim_lanes(zero, job, right, none, none, variable(1), base, word(worker + AIMS), variable(0), variable(D_))
    read_mask(zero, job, worker)
    return right


@njit(**ONCE)
def factor_shared(zero, job, worker):
    """The few matrices of a job, one in each lane, to factors of one number each."""
    matrices, n, row, first = field(job, J.MATRICES), field(job, J.ROWS), bytes_of_row(zero, ()), variable(0)
    aim_matrices(zero, job, worker, first, matrices)
    factors = word(worker + FACTORS)
    ZERO(zero, (factors, row, 3 * n))
    hard, dead = factor_group(zero, job, worker, first, matrices, factors)
    tell_kinds(job, first, matrices, hard, dead)
    if hard != 0 and field(job, J.FLAGS) & J.FACTORING:
        eliminate_hard(zero, job, worker, first, hard)
    if exchanges(job):
        return
    side = bytes_of_real(zero, ())
    for matrix in range(matrices):
        target = field(job, J.FACTORS) + matrix * n * 3 * side * parts_of(zero, ())
        for k in range(3 * n):
            for part in range(parts_of(zero, ())):
                value = load(factors + k * row + part * LINE + matrix * side, zero.real)
                store(target + (k * parts_of(zero, ()) + part) * side, value)


@njit(**ONCE)
def determinants(zero, job, worker, first, used):
    """Sign and log |det| of every lane, into x and the logarithms."""
    aim_matrices(zero, job, worker, first, used)
    tell_determinants(zero, job, worker, first, used, eliminate_hard(zero, job, worker, first, (1 << used) - 1))


@njit(**OPTIONS)
def aim_matrices(zero, job, worker, first, used):
    axes, aims = field(job, J.MATRIX_AXES), word(worker + AIMS)
    aim_lanes(zero, job, J.AXES, axes, first, used, word(worker + NO_OFFSETS), aims, variable(0), variable(D_))
    read_mask(zero, job, worker)


@njit(**OPTIONS)
def tell_determinants(zero, job, worker, first, used, singular):
    """From the pivots and the exchanges of an eliminated group."""
    row, side, rows = bytes_of_row(zero, ()), bytes_of_real(zero, ()), word(worker + HIGH) - word(worker + LOW)
    pivots, periodic = word(worker + TILE) + UPPER * rows * row, field(job, J.FLAGS) & J.PERIODIC != 0
    for lane in range(used):
        sign, total = unit(zero), zero.real
        for i in range(rows):
            pivot = entry(pivots + i * row + lane * side, zero)
            total += np.log(abs(pivot))
            sign = turn(sign, pivot)
            swaps = load(word(worker + SWAPS) + i * lanes_of(zero, ()) + lane, types.uint8(0))
            if (swaps & 1) != (swaps >> 1):
                sign = -sign
        if periodic and rows % 2 == 0:
            sign = -sign
        if singular >> lane & 1:
            sign, total = zero, np.log(zero.real)
        store(field(job, J.POINTERS + X_) + (first + lane) * side * parts_of(zero, ()), sign)
        store(field(job, J.LOGARITHM) + (first + lane) * side, total)


# ------------------------------------------------------------------------------------------------ workers


@njit(**OPTIONS)
def aligned(count):
    """A length in bytes rounded up to whole cache lines."""
    return (count + LINE - 1) // LINE * LINE


@njit(**OPTIONS)
def hire(zero, job):
    """The scratch memory of one worker, in one piece; `dismiss` gives it back."""
    n, lanes, row = field(job, J.ROWS), lanes_of(zero, ()), bytes_of_row(zero, ())
    groups = max(1, (field(job, J.LANES) + lanes - 1) // lanes)
    many = field(job, J.SHARED) or field(job, J.RIGHT_SIDES) != 1 or field(job, J.FLAGS) & J.FACTORED != 0
    periodic, masked = field(job, J.FLAGS) & J.PERIODIC != 0, field(job, J.FLAGS) & J.MASKED != 0
    hard, kept = field(job, J.PROMISE) != J.PLAIN or periodic, (n + 1) * (4 if exchanges(job) else 2) * groups
    if periodic:
        kept = n * CYCLIC_DEPTH + CYCLIC_STATE
    elif field(job, J.SHARED):
        kept = (n + 1) * WIDE
    sizes = (
        aligned(OPERANDS * (TABLE + 8 * lanes)),
        aligned((n + 2) * lanes) if masked else 0,
        4 * BLOCK * row,
        4 * groups * row,
        aligned(8 * groups),
        kept * row,
        PLANES * n * row if hard else 0,
        LINE,
        2 * LINE,
        aligned(n * lanes) if hard else 0,
        LINE,
        row,
        row,
        LINE,
        LINE,
        n * 3 * row if many else 0,
    )
    total = aligned(WORDS)
    for size in sizes:
        total += size
    memory = malloc(types.uint64(total + LINE))
    if memory == 0:
        return 0
    worker = aligned(memory)
    set_word(worker + MEMORY, memory)
    at = worker + aligned(WORDS)
    for k in range(len(sizes)):
        set_word(worker + 8 * k, at)
        at += sizes[k]
    for k in range(lanes):
        set_byte(word(worker + ONES) + k, 1)
    ZERO(zero, (word(worker + ZEROS), row, 1))
    NAN(zero, (word(worker + NANS), row, 1))
    for operand in range(OPERANDS):
        set_word(word(worker + NO_OFFSETS) + 8 * operand, 0)
    return worker


@njit(**OPTIONS)
def dismiss(worker):
    free(word(worker + MEMORY))


@njit(**OPTIONS)
def claim(job):
    """An item that no thread has taken, or -1.

    As many stretches of items as there are threads are walked in turn: threads that are side by side in fresh memory
    would both clear the huge page that they touch first.
    """
    stretches, items = field(job, J.HELPERS) + 1, field(job, J.ITEMS)
    length = (items + stretches - 1) // stretches
    while True:
        count = fetch_add(job, 1)
        item = count % stretches * length + count // stretches
        if count >= stretches * length:
            return -1
        if item < items:
            return item


@njit(**ONCE)
def work_tiles(job, zero, solve):
    """Claim items until none is left; called by every thread of a job."""
    worker = hire(zero, job)
    if worker == 0:
        return
    width, matrices, tiles = field(job, J.LANES), field(job, J.MATRICES), field(job, J.TILES)
    count, beside = (matrices + width - 1) // width, field(job, J.BESIDE)
    if beside:
        count = matrices // beside * field(job, J.STRETCHES)
    while True:
        run = claim(job)
        if run < 0:
            break
        for tile in range(run * tiles, min(count, (run + 1) * tiles)):
            solve(zero, job, worker, tile, tile > run * tiles)
    flush()
    dismiss(worker)


@njit(**OPTIONS)
def work_own(job, zero):
    """Systems with a matrix and one right side each."""
    work_tiles(job, zero, solve_tile)


@njit(**OPTIONS)
def work_exchanging(job, zero):
    """The same with partial pivoting throughout."""
    work_tiles(job, zero, exchange_tile)


@njit(**OPTIONS)
def part_of_item(job, item):
    """The run of an item, and its right sides k0 <= k < k1."""
    chunks, length = field(job, J.CHUNKS), field(job, J.CHUNK)
    k0 = item % chunks * length
    return item // chunks, k0, min(field(job, J.RIGHT_SIDES), k0 + length)


@njit(**OPTIONS)
def work_many(job, zero):
    """The same where matrices have many right sides, or are only factored."""
    worker, flags = hire(zero, job), field(job, J.FLAGS)
    if worker == 0:
        return
    width, matrices, tiles = field(job, J.LANES), field(job, J.MATRICES), field(job, J.TILES)
    while True:
        item = fetch_add(job, 1)
        if item >= field(job, J.ITEMS):
            break
        run, k0, k1 = part_of_item(job, item)
        if field(job, J.SHARED):
            solve_shared(zero, job, worker, run, k0, k1)
            continue
        for tile in range(run * tiles, (run + 1) * tiles):
            first = tile * width
            if first >= matrices:
                break
            used = min(width, matrices - first)
            if flags & J.DETERMINANT:
                determinants(zero, job, worker, first, used)
            else:
                solve_many(zero, job, worker, tile, first, used, k0, k1, tile > run * tiles)
    flush()
    dismiss(worker)


# A kernel for each, so that a first solve waits for one only.
TASKS = {
    "own": c_function(work_own, "tridiag_own"),
    "exchanging": c_function(work_exchanging, "tridiag_exchanging"),
    "many": c_function(work_many, "tridiag_many"),
}


@njit(**OPTIONS)
def prepare_shared(job, zero):
    """Factor the few matrices that many right sides share, before any right side; without memory there is no task."""
    flags, n, matrices = field(job, J.FLAGS), field(job, J.ROWS), field(job, J.MATRICES)
    if field(job, J.SHARED) == 0 or flags & J.FACTORED:
        return
    if flags & J.FACTORING == 0:
        side = bytes_of_real(zero, ()) * parts_of(zero, ())
        memory = malloc(types.uint64(matrices * (3 * n * side + 1)))
        set_word(job + 8 * J.OWNED, memory)
        set_word(job + 8 * J.FACTORS, memory)
        set_word(job + 8 * J.CERTIFIED, memory + matrices * 3 * n * side)
    worker = hire(zero, job)
    if worker == 0 or field(job, J.FACTORS) == 0:
        set_word(job + 8 * J.TASK, 0)
    else:
        factor_shared(zero, job, worker)
    if worker != 0:
        dismiss(worker)


preparation = c_function(prepare_shared, "tridiag_prepare")
define = definition(MOVES, SWEEPS)


def build(dtype: str, kernel: str):
    """The C function void run(job, helpers) of a kernel for a dtype.

    It only calls C functions, which cannot raise: the code needs nothing of Numba's runtime.
    """
    zero, task, many = np.zeros((), dtype)[()], TASKS[kernel], kernel == "many"

    def run(job, helpers):
        define(zero)
        set_word(job + 8 * J.HELPERS, helpers)
        set_word(job + 8 * J.TASK, task(zero))
        if many:
            call(preparation(zero), (job,))
        call(conductor(zero), (job,))

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
