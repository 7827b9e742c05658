"""Cyclic systems: plain elimination with the last unknown kept apart, and pivoting where that is not accurate.

Plain: rows 0 .. n-2 are eliminated as those of any tridiagonal matrix, x[n-1] is on their right side. The elimination
carries what its factor adds up to in the last row, which so becomes one equation in x[n-1]. Rows 0 .. n-2 are then
substituted with x[n-1] known, from the factors at hand: plain Thomas, which the row certificate covers. The last row is
judged by its residual. Systems that fail either test are solved with pivoting, as `tridiag.algorithms.elimination`
tells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.bind import bind_lanes, operand_of
from tridiag.kernels.access.load_store import QUAD, ask, bytes_of_row, lanes_of, load_rows, parts_of
from tridiag.kernels.access.rows import (
    CUT,
    UPPER,
    Lines,
    Mask,
    Rows,
    ask_for_bands,
    erase,
    planes,
)
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, OPERANDS, X_, Systems
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import claim, part_of_item, report
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, set_word, variable, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import ONCE, OPTIONS, Code
from tridiag.kernels.thomas.bands import band_of, moved_operands, right_side, set_view, straight, view_in_place
from tridiag.kernels.thomas.bind import bind_few_matrices, bind_matrices, bind_next, mask_view, side_offsets
from tridiag.kernels.thomas.loops import certified, invertible, least_quotient, lossless, no_quotient
from tridiag.kernels.thomas.multiple_rhs import tell_determinants
from tridiag.kernels.thomas.one_vector import EARLY
from tridiag.kernels.thomas.refine import merge_uncertified, store_solution, substitute_uncertified, tell_singular
from tridiag.kernels.thomas.refined_loops import Status
from tridiag.kernels.thomas.workspace import (
    BLOCK,
    CYCLIC_DEPTH,
    CYCLIC_STATE,
    allocate_workspace,
    free_workspace,
)

# plain elimination keeps a / pivot, d / pivot and later x, c / pivot of each row; behind all rows, as rows of lanes,
# the last row a, b, c, d, the state, x[n-1]
STATE, DIAGONAL, CLOSED = 4, 8, CYCLIC_STATE - 1
ATTEMPTS = 3  # to find x[n-1], the later ones by correction

JOB = RecordAt(Systems)


# ------------------------------------------------------------------------------------------------ plain


class Apart(NamedTuple):
    """The state of plain elimination: what is left of two rows, and the certified lanes.

    Row i - 1: x[i-1] = before + factor x[n-1] - above x[i]; the last row: below x[i] + diagonal x[n-1] = right.
    """

    above: Any
    before: Any
    factor: Any
    below: Any
    diagonal: Any
    right: Any
    sure: Value
    least: Value

    def step(self, code: Code, a: Any, b: Any, c: Any, d: Any) -> tuple[Apart, tuple[Any, Any, Any]]:
        growth = a * self.above
        pivot = b - growth
        sure = self.sure & certified(code, growth, pivot, b)
        inverse = code.one() / pivot
        kept = slope, given, above = a * inverse, d * inverse, c * inverse
        sure = sure & invertible(code, pivot)
        least = least_quotient(code, least_quotient(code, self.least, slope, a), above, c)
        before, factor = given - slope * self.before, -(slope * self.factor)
        diagonal, right = self.diagonal + self.below * factor, self.right - self.below * before
        return Apart(above, before, factor, -(self.below * above), diagonal, right, sure, least), kept


def load_state(code: Code, end: Value, good: Value) -> Apart:
    above, before, factor, below, diagonal, right = (code.load(end + k * code.row) for k in range(STATE, CLOSED))
    return Apart(above, before, factor, below, diagonal, right, code.mask(good), no_quotient(code))


def store_state(code: Code, end: Value, state: Apart) -> Value:
    for k, x in enumerate(state[:-2]):
        code.store(end + (STATE + k) * code.row, x)
    return code.bits(state.sure & lossless(code, state.least))


def kept_rows(code: Code, target: Value) -> list[Rows]:
    return [Rows(code, target + k * code.row, CYCLIC_DEPTH * code.row) for k in range(CYCLIC_DEPTH)]


def begin_apart(code: Code, end: Value) -> None:
    """Row -1 is x[n-1] itself."""
    b, c, d = (code.load(end + k * code.row) for k in (1, 2, 3))
    store_state(code, end, Apart(code.zero(), code.zero(), code.one(), c, b, d, code.all_lanes(), no_quotient(code)))


def eliminate_apart(code: Code, *words: Value) -> Value:
    """``count`` rows."""
    views, (mask, mask_step, target, end, count, good, bindings, row_zero) = words[:8], words[8:]
    bands, keep = [Rows(code, views[k], views[k + 1]) for k in range(0, 8, 2)], Mask(code, mask, mask_step)
    places = kept_rows(code, target)

    def row(i: Value, state: Any) -> Any:
        ask_for_bands(code, bindings, row_zero + i, 4)
        a, b, c, d = (band[i] for band in bands)
        state, kept = Apart(*state).step(code, a, b, c, code.where(keep[i], d, code.zero()))
        for place, x in zip(places, kept, strict=True):
            place.store(i, x)
        return state

    return store_state(code, end, Apart(*code.fori(0, count, row, load_state(code, end, good))))


def eliminate_apart_lines(code: Code, *words: Value) -> Value:
    """The same where rows are contiguous; ``moves`` as in `tridiag.kernels.thomas.loops.eliminate_lines`."""
    bindings, moves, (target, end, first, last, good) = words[:4], words[4:8], words[8:]
    bands, height, places = [Lines(code, x) for x in bindings], QUAD // code.parts, kept_rows(code, target)

    def chunk(i: Value, state: Any) -> Any:
        lines = [band.load(i + move) for band, move in zip(bands, moves, strict=True)]
        state = Apart(*state)
        for k, row in enumerate(zip(*lines, strict=True)):
            state, kept = state.step(code, *row)
            for place, x in zip(places, kept, strict=True):
                place.store(i - first + k, x)
        return state

    state = code.fori(first, last, chunk, load_state(code, end, good), step=height)
    return store_state(code, end, Apart(*state))


def close(code: Code, end: Value, good: Value, attempt: Value) -> Value:
    """x[n-1], at first, from what is left of the last row; certified are lanes where that pivot is no mere rounding."""
    a, b, c = (code.load(end + k * code.row) for k in range(3))
    state, last = load_state(code, end, good), end + CLOSED * code.row
    diagonal = state.diagonal + state.below + a * (state.factor - state.above)
    found = (state.right - a * state.before) / diagonal
    code.store(last, code.where(code.everywhere(attempt == 0), found, code.load(last)))
    code.store(end + DIAGONAL * code.row, diagonal)
    bound = (code.size(a) + code.size(b) + code.size(c)) * (el.CLOSING * code.eps)
    return code.bits(state.sure & (code.size(diagonal) > code.maximum(bound, code.tiny)))


def substitute_apart(code: Code, *words: Value) -> Value:
    """The solution in the second plane; accurate are lanes where the residual of the last row is rounding.

    In the others x[n-1] is corrected, for another time.
    """
    source, end, mask, mask_step, count, asked, good = words
    (slope, x, above), keep = kept_rows(code, source), Mask(code, mask, mask_step)
    a, b, c, d = (code.load(end + k * code.row) for k in range(4))
    last = code.load(end + CLOSED * code.row)

    def down(i: Value, state: Any) -> Any:
        before = code.where(keep[i], x[i] - slope[i] * state[0], code.zero())
        x.store(i, before)
        return (before,)

    def up(i: Value, state: Any) -> Any:
        ask(code, asked, i)
        after = code.where(keep[i], x[i] - above[i] * state[0], code.zero())
        x.store(i, after)
        return (after,)

    code.fori(0, count, down, (last,))
    (first,) = code.fori(count - 1, -1, up, (last,), step=-1)
    x.store(count, last)
    terms = a * x[count - 1], b * last, c * first
    rest = d - (terms[0] + terms[1] + terms[2])
    scale = code.size(terms[0]) + code.size(terms[1]) + code.size(terms[2]) + code.size(d)
    bound = code.maximum(scale, 4 * code.tiny / code.eps) * (
        el.REFINE_ABOVE * code.eps
    )  # as `tridiag.algorithms.matrix_rows.residual`
    accurate = code.size(rest) <= bound
    corrected = last + rest / code.load(end + DIAGONAL * code.row)
    code.store(end + CLOSED * code.row, code.where(accurate, last, corrected))
    return code.bits(code.mask(good) & accurate)


# ------------------------------------------------------------------------------------------------ pivoted


def eliminate_cyclic(code: Code, *words: Value) -> None:
    """Columns 1 .. n-2 among three rows, then the 2 x 2 corner in x[n-1], x[0].

    Row k of the planes: the pivot row of column k (columns k, k+1, k+2, n-1, 0), its two multipliers, its two exchanges
    as bits. Row n-1: the pivot row of the corner, its multiplier in plane 5; row 0: the last pivot.
    """
    base, length, swaps, status, bindings = words
    code.fused = False
    a, b, c = planes(code, base, 3, length)
    upper, met = planes(code, base + length * (UPPER * code.row), 7, length), Status(code)
    zero, first, last = code.integer(0), code.integer(1), length - 1
    nothing = code.zero()

    def column(k: Value, state: Any) -> Any:
        rows, found = state
        ask_for_bands(code, bindings, k, 4)
        new = a[k + 1], b[k + 1], c[k + 1], nothing, nothing
        rows, pivot = el.cyclic_eliminate(code, rows, new)
        for plane, x in zip(upper, (*pivot.row, *pivot.multipliers), strict=True):
            plane.store(k, x)
        code.store_pair(swaps + k * code.lanes, *pivot.swaps)
        return rows, met.met(found, pivot.row[0], k + 1)

    rows = (c[zero], nothing, nothing, a[zero], b[zero]), (b[first], c[first], nothing, nothing, a[first])
    rows, found = code.fori(1, last, column, (rows, met.start()))
    corner = el.corner_eliminate(code, el.cyclic_corner(rows))
    for k, x in ((0, corner.q0), (1, corner.q1), (5, corner.multiplier)):
        upper[k].store(last, x)
    upper[0].store(zero, corner.rest)
    never = ~code.all_lanes()
    code.store_pair(swaps + last * code.lanes, corner.swap, never)
    code.store_pair(swaps, never, never)
    code.store_as(status, met.met(met.met(found, corner.q0, length), corner.rest, first))


def substitute_cyclic(code: Code, *words: Value) -> None:
    base, length, swaps, mask, mask_step, y, asked = words
    code.fused = False
    upper = planes(code, base + length * (UPPER * code.row), 7, length)
    values = Rows(code, y, code.row)
    zero, first, last = code.integer(0), code.integer(1), length - 1

    def pivot(k: Value) -> el.CyclicPivot:
        exchanges = code.load_pair(swaps + k * code.lanes)
        return el.CyclicPivot(exchanges, (upper[5][k], upper[6][k]), tuple(upper[j][k] for j in range(5)))

    def down(k: Value, state: Any) -> Any:
        carried, q = el.cyclic_forward(code, state, pivot(k), values[k + 1])
        values.store(k, q)
        return carried

    carried = code.fori(1, last, down, (values[zero], values[first]))
    swap, _ = code.load_pair(swaps + last * code.lanes)
    corner = el.CornerPivot(swap, upper[5][last], upper[0][last], upper[1][last], upper[0][zero])
    ends = el.solve_corner(code, corner, carried)
    values.store(last, ends[0])
    values.store(zero, ends[1])

    def up(k: Value, state: Any) -> Any:
        ask(code, asked, k)
        x = el.cyclic_backward(code, state[0], state[1], ends, pivot(k), values[k])
        values.store(k, x)
        return x, state[0]

    code.fori(last - 1, 0, up, ends, step=-1)
    erase(code, y, mask, mask_step, length)


CYCLIC = Library("cyclic")
BEGIN_APART, CLOSE = CYCLIC.add("begin_apart", begin_apart), CYCLIC.add("close", close)
ELIMINATE_APART = CYCLIC.add("eliminate_apart", eliminate_apart)
ELIMINATE_APART_LINES = CYCLIC.add("eliminate_apart_lines", eliminate_apart_lines)
SUBSTITUTE_APART = CYCLIC.add("substitute_apart", substitute_apart)
ELIMINATE_CYCLIC = CYCLIC.add("eliminate_cyclic", eliminate_cyclic)
SUBSTITUTE_CYCLIC = CYCLIC.add("substitute_cyclic", substitute_cyclic)


# ------------------------------------------------------------------------------------------------ groups


@njit(**OPTIONS)
def load_around(zero, job, worker, band, i0, i1, target):
    """Rows i0 <= i < i1 of a band, with the corners."""
    n, row = job.rows, bytes_of_row(zero, ())
    k, move = band_of(job, band)
    operand, first, last = operand_of(zero, worker.bindings, k), i0 + move, i1 + move
    if first < 0:
        load_rows(zero, operand, n - 1, n, target)
        load_rows(zero, operand, 0, last, target + row)
    elif last > n:
        load_rows(zero, operand, first, n, target)
        load_rows(zero, operand, 0, 1, target + (n - first) * row)
    else:
        load_rows(zero, operand, first, last, target)


@njit(**OPTIONS)
def load_matrices(zero, job, worker, i0, i1, target):
    """Rows of a group's matrices as planes, cut."""
    plane, (mask, step) = (i1 - i0) * bytes_of_row(zero, ()), mask_view(zero, worker, i0)
    for band in range(3):
        load_around(zero, job, worker, band, i0, i1, target + band * plane)
    if step:
        CUT(zero, (target, target + plane, target + 2 * plane, mask, i1 - i0))


@njit(**OPTIONS)
def eliminate_block(zero, job, worker, i0, i1, end):
    """One block of rows: its bands, then the sweep."""
    n, row, copied, good = job.rows, bytes_of_row(zero, ()), worker.whole == 0, worker.good
    buffer, (mask, mask_step) = worker.buffer, mask_view(zero, worker, i0)
    for band in range(4):
        _, move = band_of(job, band)
        around = i0 + move < 0 or i1 + move > n
        if copied or around or not view_in_place(zero, job, worker, band, i0):
            load_around(zero, job, worker, band, i0, i1, buffer + band * BLOCK * row)
            set_view(worker, band, buffer + band * BLOCK * row, row)
    if copied:
        CUT(zero, (buffer, buffer + BLOCK * row, buffer + 2 * BLOCK * row, mask, i1 - i0))
    views, target = worker.views, worker.y + i0 * CYCLIC_DEPTH * row
    words = mask, mask_step, target, end, i1 - i0, word(good), worker.bindings, i0
    bands = views[0], views[1], views[2], views[3], views[4], views[5]
    set_word(good, ELIMINATE_APART(zero, (*bands, views[6], views[7], *words)))


@njit(**ONCE)
def solve_apart(zero, job, worker, used):
    """The solution by plain elimination, and the lanes where it is accurate."""
    n, row, every, good, y = job.rows, bytes_of_row(zero, ()), (1 << used) - 1, 0, worker.y
    end, (mask, step) = y + n * CYCLIC_DEPTH * row, mask_view(zero, worker, n - 1)
    load_matrices(zero, job, worker, n - 1, n, end)
    right_side(zero, job, worker, n - 1, n, end + 3 * row, mask, step)
    mask, step = mask_view(zero, worker, 0)
    x = operand_of(zero, worker.bindings, X_)
    for attempt in range(ATTEMPTS):
        eliminate_group(zero, job, worker, every, end)
        sure = CLOSE(zero, (end, word(worker.good), attempt)) & every
        if sure == 0:
            break
        good = SUBSTITUTE_APART(zero, (y, end, mask, step, n - 1, x, sure))
        if good == sure:
            break
    return good


@njit(**OPTIONS)
def eliminate_group(zero, job, worker, lanes, end):
    """All rows but the last, unless none of the given lanes has its certificate any more."""
    n, row, good, y = job.rows, bytes_of_row(zero, ()), worker.good, worker.y
    BEGIN_APART(zero, (end,))
    set_word(good, (1 << lanes_of(zero, ())) - 1)
    first, last = straight(zero, job, worker)
    height = QUAD // parts_of(zero, ())
    last = first + max(0, min(last, n - 1) - first) // height * height
    for i in range(0, first, BLOCK):
        if stopping_at(i // BLOCK, 64):
            return
        eliminate_block(zero, job, worker, i, min(i + BLOCK, first), end)
    for i in range(first, last, EARLY):
        words = y + i * CYCLIC_DEPTH * row, end, i, min(i + EARLY, last), word(good)
        set_word(good, ELIMINATE_APART_LINES(zero, (*moved_operands(zero, job, worker), *words)))
        if word(good) & lanes == 0 or stopping_at((i - first) // EARLY, 64):
            return
    for i in range(last, n - 1, BLOCK):
        eliminate_block(zero, job, worker, i, min(i + BLOCK, n - 1), end)
        if word(good) & lanes == 0 or stopping_at((i - last) // BLOCK, 64):
            return


@njit(**OPTIONS)
def eliminate_uncertified(zero, job, worker, first, lanes):
    """A group with partial pivoting; its status is reported for the given lanes. Returns the singular ones."""
    n, tile = job.rows, worker.tile
    load_matrices(zero, job, worker, 0, n, tile)
    ELIMINATE_CYCLIC(zero, (tile, n, worker.swaps, worker.status, worker.bindings))
    return tell_singular(zero, job, worker, first, lanes)


@njit(**OPTIONS)
def substitute_cyclic_tile(zero, job, worker, right):
    """The solution in place of a right side, from the eliminated planes of a group."""
    (mask, step), x = mask_view(zero, worker, 0), operand_of(zero, worker.bindings, X_)
    SUBSTITUTE_CYCLIC(zero, (worker.tile, job.rows, worker.swaps, mask, step, right, x))


@njit(**OPTIONS)
def solve_bound(zero, job, worker, first, used):
    """The systems that a group is bound to, one in each lane."""
    n, row, every = job.rows, bytes_of_row(zero, ()), (1 << used) - 1
    source, step, uncertified, zero_pivot = worker.y + row, CYCLIC_DEPTH * row, every, 0
    if job.promise != J.PIVOTED:
        uncertified &= ~solve_apart(zero, job, worker, used)
    if uncertified != 0:
        zero_pivot = eliminate_uncertified(zero, job, worker, first, uncertified)
        solution = substitute_uncertified(zero, job, worker, uncertified, substitute_cyclic_tile)
        source, step = merge_uncertified(zero, source, step, solution, uncertified, every, n)
    store_solution(zero, job, worker, source, step, used, zero_pivot)


@njit(**ONCE)
def solve_group(zero, job, worker, first, used, k0, k1, follows):
    """Matrices, one in each lane, with right sides k0 <= k < k1; ``follows``: behind the group before."""
    if job.right_sides == 1:
        bind_next(zero, job, worker, first, used, follows)
        solve_bound(zero, job, worker, first, used)
        report(job, first, used)
        return
    bindings, axes, offsets = worker.bindings, job.matrix_axes, worker.offsets
    bind_matrices(zero, job, worker, first, used)
    if job.flags & (J.FACTORING | J.DETERMINANT):
        singular = eliminate_uncertified(zero, job, worker, first, (1 << used) - 1)
        if job.flags & J.DETERMINANT:
            tell_determinants(zero, job, worker, first, used, singular)
    for k in range(k0, k1):
        side_offsets(job, k, offsets)
        bind_lanes(zero, job, J.AXES, axes, first, used, offsets, bindings, variable(D_), variable(OPERANDS))
        solve_bound(zero, job, worker, first, used)


@njit(**ONCE)
def solve_few_matrices(zero, job, worker, matrix, k0, k1):
    """Right sides k0 <= k < k1 of one matrix, one in each lane."""
    lanes, count, right = lanes_of(zero, ()), job.right_axes, bind_few_matrices(zero, job, worker, matrix)
    bindings, base = worker.bindings, worker.offsets
    for k in range(k0, k1, lanes):
        used = min(lanes, k1 - k)
        bind_lanes(zero, job, right, count, k, used, base, bindings, variable(D_), variable(OPERANDS))
        solve_bound(zero, job, worker, matrix, used)


# ------------------------------------------------------------------------------------------------ workers


@njit(**OPTIONS)
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    width, matrices, tiles = job.lanes, job.matrices, job.tiles
    while True:
        item = claim(job)
        if item < 0:
            break
        run, k0, k1 = part_of_item(job, item)
        if job.shared:
            solve_few_matrices(zero, job, worker, run, k0, k1)
            continue
        begin = run * tiles * width
        for first in range(begin, min(matrices, begin + tiles * width), width):
            solve_group(zero, job, worker, first, min(width, matrices - first), k0, k1, first > begin)
    free_workspace(worker)


task = c_function(work, "tridiag_work_cyclic", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
