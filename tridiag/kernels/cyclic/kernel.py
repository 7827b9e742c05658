"""Cyclic systems: plain elimination with the last unknown kept apart, and pivoting where that is not accurate.

Plain: rows 0 .. n-2 are eliminated as those of any tridiagonal matrix, x[n-1] is on their right side. The elimination
carries what its factor adds up to in the last row, which so becomes one equation in x[n-1]. Rows 0 .. n-2 are then
substituted with x[n-1] known, from the factors at hand: plain Thomas, which the row certificate covers. The last row is
judged by its residual. Systems that fail either test are solved with pivoting, as `tridiag.algorithms.elimination`
tells.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.bind import bind_lanes, operand_of
from tridiag.kernels.access.load_store import load_rows
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.access.rows import CUT
from tridiag.kernels.cyclic.loops import (
    BEGIN_BORDERED,
    CLOSE,
    ELIMINATE_BORDERED,
    ELIMINATE_BORDERED_CONTIGUOUS,
    ELIMINATE_CYCLIC,
    STATE,
    SUBSTITUTE_BORDERED,
    SUBSTITUTE_CYCLIC,
)
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, OPERANDS, X_, Systems
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items, part_of_item, report
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, variable, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.thomas.bands import (
    band_of,
    height_of,
    moved_operands,
    right_side,
    set_view,
    straight,
    view_in_place,
)
from tridiag.kernels.thomas.bind import bind_few_matrices, bind_matrices, bind_next, mask_view, side_offsets
from tridiag.kernels.thomas.determinants import tell_determinants
from tridiag.kernels.thomas.one_vector import EARLY
from tridiag.kernels.thomas.refine import (
    merge_uncertified,
    store_solution,
    substitute_uncertified,
    tell_singular,
    with_scales,
)
from tridiag.kernels.thomas.workspace import BLOCK, BORDERED, allocate_workspace, free_workspace

ATTEMPTS = 3  # to find x[n-1], the later ones by correction

JOB = RecordAt(Systems)


# ------------------------------------------------------------------------------------------------ groups


@compiled
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


@compiled
def load_matrices(zero, job, worker, i0, i1, target):
    """Rows of a group's matrices as planes, cut."""
    plane, (mask, step) = (i1 - i0) * bytes_of_row(zero, ()), mask_view(zero, worker, i0)
    for band in range(3):
        load_around(zero, job, worker, band, i0, i1, target + band * plane)
    if step:
        CUT(zero, (target, target + plane, target + 2 * plane, mask, i1 - i0))


@compiled
def eliminate_block(zero, job, worker, i0, i1, end):
    """One block of rows: its bands, then the sweep."""
    n, row, copied = job.rows, bytes_of_row(zero, ()), worker.whole == 0
    buffer, (mask, mask_step) = worker.buffer, mask_view(zero, worker, i0)
    for band in range(4):
        _, move = band_of(job, band)
        around = i0 + move < 0 or i1 + move > n
        if copied or around or not view_in_place(zero, job, worker, band, i0):
            load_around(zero, job, worker, band, i0, i1, buffer + band * BLOCK * row)
            set_view(worker, band, buffer + band * BLOCK * row, row)
    if copied:
        CUT(zero, (buffer, buffer + BLOCK * row, buffer + 2 * BLOCK * row, mask, i1 - i0))
    step, views = BORDERED * row, worker.views
    bands = views[0], views[1], views[2], views[3], views[4], views[5], views[6], views[7]
    places = worker.kept + i0 * step, step, end + STATE * row, worker.good
    ELIMINATE_BORDERED(zero, (*bands, mask, mask_step, worker.bindings, i0, *places, variable(0), i1 - i0))


@inlined
def solve_bordered(zero, job, worker, used):
    """The solution by plain elimination, and the lanes where it is accurate."""
    n, row, every, good, y = job.rows, bytes_of_row(zero, ()), (1 << used) - 1, 0, worker.kept
    end, (mask, step) = y + n * BORDERED * row, mask_view(zero, worker, n - 1)
    load_matrices(zero, job, worker, n - 1, n, end)
    right_side(zero, job, worker, n - 1, n, end + 3 * row, mask, step)
    mask, step = mask_view(zero, worker, 0)
    x = operand_of(zero, worker.bindings, X_)
    for attempt in range(ATTEMPTS):
        eliminate_group(zero, job, worker, every, end)
        sure = CLOSE(zero, (end, worker.good, attempt)) & every
        if sure == 0:
            break
        good = SUBSTITUTE_BORDERED(zero, (y, end, mask, step, n - 1, x, sure))
        if good == sure:
            break
    return good


@compiled
def eliminate_group(zero, job, worker, lanes, end):
    """All rows but the last, unless none of the given lanes has its certificate any more."""
    n, row, good, y, nowhere = job.rows, bytes_of_row(zero, ()), worker.good, worker.kept, variable(-1)
    BEGIN_BORDERED(zero, (end, good))
    first, last, _ = straight(zero, job, worker)
    height, begin = height_of(zero), first
    rest = (n - 1 - first) % height
    if last > first and n - 1 - first >= height:
        begin, last = first + rest, n - 1
    else:
        last = first
    for i in range(0, first, BLOCK):
        if stopping_at(i // BLOCK, 64):
            return
        eliminate_block(zero, job, worker, i, min(i + BLOCK, first), end)
    for i in range(begin, last, EARLY):
        places = y + i * BORDERED * row, BORDERED * row, end + STATE * row, good
        words = *moved_operands(zero, job, worker), nowhere, nowhere, rest, *places, i, min(i + EARLY, last)
        ELIMINATE_BORDERED_CONTIGUOUS(zero, words)
        rest = 0
        if word(good) & lanes == 0 or stopping_at((i - begin) // EARLY, 64):
            return
    for i in range(last, n - 1, BLOCK):
        eliminate_block(zero, job, worker, i, min(i + BLOCK, n - 1), end)
        if word(good) & lanes == 0 or stopping_at((i - last) // BLOCK, 64):
            return


@compiled
def eliminate_uncertified(zero, job, worker, first, lanes):
    """A group with partial pivoting; its status is reported for the given lanes. Returns the singular ones."""
    load_tile(zero, job, worker)
    eliminate_tile(zero, job, worker)
    return tell_singular(zero, job, worker, first, lanes, regular_tile)


@compiled
def load_tile(zero, job, worker):
    load_matrices(zero, job, worker, 0, job.rows, worker.tile)


@compiled
def eliminate_tile(zero, job, worker):
    ELIMINATE_CYCLIC(zero, (worker.tile, job.rows, worker.swaps, worker.status, worker.bindings))


@compiled
def substitute_cyclic_tile(zero, job, worker, right):
    """The solution in place of a right side, from the eliminated planes of a group."""
    (mask, step), x = mask_view(zero, worker, 0), operand_of(zero, worker.bindings, X_)
    SUBSTITUTE_CYCLIC(zero, (worker.tile, job.rows, worker.swaps, mask, step, right, x))


regular_tile, try_scales = with_scales("cyclic_tile", load_tile, eliminate_tile, substitute_cyclic_tile)


@compiled
def solve_bound(zero, job, worker, first, used):
    """The systems that a group is bound to, one in each lane."""
    n, row, every = job.rows, bytes_of_row(zero, ()), (1 << used) - 1
    source, step, uncertified, zero_pivot = worker.kept + row, BORDERED * row, every, 0
    if job.promise != J.PIVOTED:
        uncertified &= ~solve_bordered(zero, job, worker, used)
    if uncertified != 0:
        zero_pivot = eliminate_uncertified(zero, job, worker, first, uncertified)
        solution = substitute_uncertified(zero, job, worker, uncertified, substitute_cyclic_tile, try_scales)
        source, step = merge_uncertified(zero, source, step, solution, uncertified, every, n)
    store_solution(zero, job, worker, source, step, used, zero_pivot)


@inlined
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
        eliminate_uncertified(zero, job, worker, first, (1 << used) - 1)
        if job.flags & J.DETERMINANT:
            tell_determinants(zero, job, worker, first, used)
    for k in range(k0, k1):
        side_offsets(job, k, offsets)
        bind_lanes(zero, job, J.AXES, axes, first, used, offsets, bindings, variable(D_), variable(OPERANDS))
        solve_bound(zero, job, worker, first, used)


@inlined
def solve_few_matrices(zero, job, worker, matrix, k0, k1):
    """Right sides k0 <= k < k1 of one matrix, one in each lane."""
    lanes, count, right = lanes_of(zero, ()), job.right_axes, bind_few_matrices(zero, job, worker, matrix)
    bindings, base = worker.bindings, worker.offsets
    for k in range(k0, k1, lanes):
        used = min(lanes, k1 - k)
        bind_lanes(zero, job, right, count, k, used, base, bindings, variable(D_), variable(OPERANDS))
        solve_bound(zero, job, worker, matrix, used)


# ------------------------------------------------------------------------------------------------ workers


@compiled
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_workspace(zero, job)
    if address_of(worker) == 0:
        return
    width, matrices, tiles = job.lanes, job.matrices, job.tiles
    for item in items(job):
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
