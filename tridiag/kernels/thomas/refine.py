"""Lanes to be eliminated again: with partial pivoting, and refined; or plainly, where reciprocals would not do."""

from __future__ import annotations

from typing import Any

from numba import types

from tridiag.algorithms.elimination import REFINE_STEPS
from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import store_lane, store_rows
from tridiag.kernels.access.operands import bytes_of_row, lanes_of
from tridiag.kernels.access.rows import BEST, CUT, ITERATE, MERGE, REST, RIGHT
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import X_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import load, set_half_word, variable, word
from tridiag.kernels.thomas.bands import load_band, right_side
from tridiag.kernels.thomas.bind import mask_view
from tridiag.kernels.thomas.refined_loops import ELIMINATE_PIVOTED, IMPROVE, JUDGE, SUBSTITUTE_PIVOTED, ZERO_PIVOTS
from tridiag.kernels.thomas.scales import FIND_SCALES, NOT_SOLVED, RESTORE, SCALE_RIGHT, WIDE
from tridiag.kernels.thomas.workspace import (
    STEPS,
    system_of,
)


@compiled
def uncertified_lanes(zero, job, good, used):
    """Of the used lanes those to be eliminated again: uncertified; or if that is all the same, not `invertible`."""
    plain = job.promise == J.PLAIN
    return ((1 << used) - 1) & ~(good >> lanes_of(zero, ()) if plain else good)


@compiled
def load_tile(zero, job, worker):
    """All rows of a group's matrices as planes, cut."""
    low, high, tile = worker.low, worker.high, worker.tile
    plane = (high - low) * bytes_of_row(zero, ())
    for band in range(3):
        load_band(zero, job, worker, band, low, high, tile + band * plane)
    mask, step = mask_view(zero, worker, low)
    if step:
        CUT(zero, (tile, tile + plane, tile + 2 * plane, mask, high - low))


@compiled
def eliminate_uncertified(zero, job, worker, first, lanes):
    """A group by divisions, with partial pivoting unless that is not wanted.

    Its status is reported for the given lanes. Returns those that met a zero pivot.
    """
    if worker.high == worker.low:
        return 0
    load_tile(zero, job, worker)
    eliminate_tile(zero, job, worker)
    return tell_singular(zero, job, worker, first, lanes, regular_tile)


@compiled
def eliminate_tile(zero, job, worker):
    """The matrices in the planes of a group."""
    low, rows, tile = worker.low, worker.high - worker.low, worker.tile
    (mask, step), swapping = mask_view(zero, worker, low), job.promise != J.PLAIN
    words = tile, rows, worker.swaps, mask, step, worker.status, worker.bindings, low, types.int64(swapping)
    ELIMINATE_PIVOTED(zero, words)


@compiled
def tell_singular(zero, job, worker, first, lanes, regular):
    """Of the given lanes those that met a zero pivot, and their status to the caller.

    Under "auto" without those that are ``regular`` with scales, which solve them.
    """
    low, status, target = worker.low, worker.status, job.status
    singular = ZERO_PIVOTS(zero, (status,)) & lanes
    if singular != 0 and job.promise == J.AUTO and job.flags & J.DETERMINANT == 0:
        singular &= ~regular(zero, job, worker, singular)
    if target != 0:
        for lane in range(lanes_of(zero, ())):
            if singular >> lane & 1:
                row = load(status + 4 * lane, types.int32(0))
                set_half_word(target + 4 * system_of(worker, first, lane), types.int32(row + low))
    return singular


@compiled
def substitute_tile(zero, job, worker, right):
    """The solution in place of a right side, from the eliminated planes of a group."""
    low, rows = worker.low, worker.high - worker.low
    (mask, step), x = mask_view(zero, worker, low), operand_of(zero, worker.bindings, X_)
    SUBSTITUTE_PIVOTED(zero, (worker.tile, rows, worker.swaps, mask, step, right, x, low))


@compiled
def substitute_uncertified(zero, job, worker, lanes, substitute, try_scales):
    """The right side at hand of an eliminated group, refined under "auto"; returns the address of the solution.

    ``substitute`` is that of the elimination, ``try_scales`` solves again with `scales` what this does not: plain
    tiles and cyclic ones differ in nothing else.
    """
    low, high, tile = worker.low, worker.high, worker.tile
    row, (mask, step), every = bytes_of_row(zero, ()), mask_view(zero, worker, low), (1 << lanes_of(zero, ())) - 1
    plane = (high - low) * row
    right, iterate, rest = tile + RIGHT * plane, tile + ITERATE * plane, tile + REST * plane
    right_side(zero, job, worker, low, high, right, mask, step)
    MERGE(zero, (iterate, row, right, row, every, high - low))
    substitute(zero, job, worker, iterate)
    if job.promise != J.AUTO:
        return iterate
    again = start_refining(zero, worker, lanes)
    for number in range(1, REFINE_STEPS + 1):
        if again == 0:
            break
        substitute(zero, job, worker, rest)
        again = refine(zero, worker, again, number)
    poor = NOT_SOLVED(zero, (worker.errors,)) & lanes
    if poor != 0 and not stopping():
        try_scales(zero, job, worker, poor)
    return tile + BEST * plane


@compiled
def solve_with_scales(zero, job, worker, poor, load, eliminate, substitute):
    """The right side at hand once more in the given lanes, where entries are wide apart.

    The factors of the tile are left as they were.
    """
    low, high, tile, every = worker.low, worker.high, worker.tile, (1 << lanes_of(zero, ())) - 1
    rows, row, errors = high - low, bytes_of_row(zero, ()), worker.errors
    right, iterate, rest = tile + RIGHT * rows * row, tile + ITERATE * rows * row, tile + REST * rows * row
    again = WIDE(zero, (tile, rows, errors, poor))
    if again == 0:
        return
    FIND_SCALES(zero, (tile, rows))
    eliminate(zero, job, worker)
    load(zero, job, worker)
    MERGE(zero, (iterate, row, right, row, every, rows))
    substitute_scaled(zero, job, worker, iterate, substitute)
    again = JUDGE(zero, (tile, rows, 1, errors)) & again
    for number in range(2, REFINE_STEPS + 1):
        if again == 0:
            break
        substitute_scaled(zero, job, worker, rest, substitute)
        again = refine(zero, worker, again, number)
    eliminate(zero, job, worker)


@compiled
def substitute_scaled(zero, job, worker, right, substitute):
    """The solution in place of a right side, from the eliminated planes of scaled matrices."""
    tile, rows, divided = worker.tile, worker.high - worker.low, worker.divided
    SCALE_RIGHT(zero, (tile, rows, right, divided))
    substitute(zero, job, worker, right)
    RESTORE(zero, (tile, rows, right, divided))


@compiled
def regular_with_scales(zero, job, worker, lanes, load, eliminate):
    """Of the given lanes, which met a zero pivot, those where entries are wide apart, and that meet none with scales.

    The factors of the tile are left as they were.
    """
    tile, rows = worker.tile, worker.high - worker.low
    regular = WIDE(zero, (tile, rows, worker.errors, lanes))
    if regular != 0:
        FIND_SCALES(zero, (tile, rows))
        eliminate(zero, job, worker)
        regular &= ~ZERO_PIVOTS(zero, (worker.status,))
        load(zero, job, worker)
        eliminate(zero, job, worker)
    return regular


def with_scales(kind: str, load: Any, eliminate: Any, substitute: Any) -> tuple[Any, Any]:
    """`regular_with_scales` and `solve_with_scales` for tiles of a kind, each compiled once in a kernel."""

    @compiled
    def find_regular(zero, job, worker, lanes):
        return regular_with_scales(zero, job, worker, lanes, load, eliminate)

    @compiled
    def solve_again(zero, job, worker, poor):
        solve_with_scales(zero, job, worker, poor, load, eliminate, substitute)

    found, solved = STEPS.add(f"regular_{kind}", find_regular), STEPS.add(f"{kind}_with_scales", solve_again)

    @compiled
    def regular(zero, job, worker, lanes):
        return found(zero, (job, worker, lanes))

    @compiled
    def try_scales(zero, job, worker, poor):
        solved(zero, (job, worker, poor))

    return regular, try_scales


regular_tile, try_scales = with_scales("tile", load_tile, eliminate_tile, substitute_tile)


@compiled
def start_refining(zero, worker, lanes):
    """The residual of the first solution, and which of the given lanes are to be improved."""
    tile, rows = worker.tile, worker.high - worker.low
    return JUDGE(zero, (tile, rows, 0, worker.errors)) & lanes


@compiled
def refine(zero, worker, lanes, step):
    """The correction added; which lanes are to be improved again."""
    tile, rows = worker.tile, worker.high - worker.low
    IMPROVE(zero, (tile, rows, step))
    return JUDGE(zero, (tile, rows, step, worker.errors)) & lanes


@compiled
def store_solution(zero, job, worker, source, step, used, zero_pivot):
    """The rows of a solution to memory: zero where all systems take the row out, NaN in the dead lanes."""
    n, low, high, none = job.rows, worker.low, worker.high, variable(0)
    target = operand_of(zero, worker.bindings, X_)
    nothing = worker.zeros
    if zero_pivot != 0:
        job.broken = 1
    store_rows(zero, target, none, low, nothing, none, used)
    store_rows(zero, target, low, high, source, step, used)
    store_rows(zero, target, high, n, nothing, none, used)
    for lane in range(used):
        if zero_pivot >> lane & 1:
            store_lane(zero, target, lane, n, worker.nans)


@compiled
def merge_uncertified(zero, source, step, solution, uncertified, every, rows):
    """Where the rows of a whole solution lie, and how far apart: the hard lanes joined to the others."""
    row = bytes_of_row(zero, ())
    if uncertified == every:
        return solution, row
    MERGE(zero, (source, step, solution, row, uncertified, rows))
    return source, step


@compiled
def finish_group(zero, job, worker, first, used, good, source, step):
    """The solution of a group to memory, from ``source``, where it is right in lanes with a certificate."""
    if stopping():
        return
    every, rows = (1 << used) - 1, worker.high - worker.low
    uncertified, zero_pivot = uncertified_lanes(zero, job, word(good), used), 0
    if uncertified != 0:
        zero_pivot = eliminate_uncertified(zero, job, worker, first, uncertified)
        if rows > 0:
            solution = substitute_uncertified(zero, job, worker, uncertified, substitute_tile, try_scales)
            source, step = merge_uncertified(zero, source, step, solution, uncertified, every, rows)
    store_solution(zero, job, worker, source, step, used, zero_pivot)


FINISH_GROUP = STEPS.add_step(finish_group)


@compiled
def hopeless(zero, job, good, used):
    """Whether every system of a group is to be eliminated again."""
    return uncertified_lanes(zero, job, word(good), used) == (1 << used) - 1
