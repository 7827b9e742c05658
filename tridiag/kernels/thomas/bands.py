"""The bands of a group's matrices as rows of lanes: in the caller's memory, or loaded to a buffer."""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import clash, load_rows
from tridiag.kernels.access.operands import CONTIGUOUS, INTERLEAVED, QUAD, bytes_of_row, parts_of
from tridiag.kernels.access.rows import CUT, ERASE, RIGHT, ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.thomas.bind import mask_view
from tridiag.kernels.thomas.workspace import BLOCK


@compiled
def band_of(job, band):
    """The operand of a band of the matrix and the rows to move by: transposed, a'[i] is c[i-1]."""
    if band == RIGHT:
        return D_, 0
    return (2 - band, band - 1) if job.flags & J.TRANSPOSE else (band, 0)


@compiled
def load_band(zero, job, worker, band, i0, i1, target):
    """Rows i0 <= i < i1 of a band; the pads are zero."""
    low, high, bindings = worker.low, worker.high, worker.bindings
    operand, move = band_of(job, band)
    first = i0 + 1 if band == 0 and i0 == low else i0
    last = i1 - 1 if band == 2 and i1 == high else i1
    row = bytes_of_row(zero, ())
    load_rows(zero, operand_of(zero, bindings, operand), first + move, last + move, target + (first - i0) * row)
    if first > i0:
        ZERO(zero, (target, row, 1))
    if last < i1:
        ZERO(zero, (target + (i1 - 1 - i0) * row, row, 1))


@compiled
def view(zero, job, worker, band, i0, i1, copied):
    """Where rows i0 <= i < i1 of a band lie as rows of lanes: in the caller's memory, or loaded to the buffer."""
    low, high, row = worker.low, worker.high, bytes_of_row(zero, ())
    padded = (band == 0 and i0 == low) or (band == 2 and i1 == high)
    if copied or padded or not view_in_place(zero, job, worker, band, i0):
        buffer = worker.buffer + band * BLOCK * row
        load_band(zero, job, worker, band, i0, i1, buffer)
        set_view(worker, band, buffer, row)


@compiled
def view_in_place(zero, job, worker, band, i0):
    """A view of the caller's memory, if that has rows of lanes."""
    operand, move = band_of(job, band)
    at = operand_of(zero, worker.bindings, operand)
    there = at.kind == INTERLEAVED and parts_of(zero, ()) == 1
    if there:
        set_view(worker, band, at.lanes[0] + (i0 + move) * at.stride, at.stride)
    return there


@compiled
def set_view(worker, band, address, step):
    worker.views[2 * band] = address
    worker.views[2 * band + 1] = step


@compiled
def straight(zero, job, worker):
    """The rows of a group that the straight sweep may take, first <= i < last, and how many behind them it may take
    with some of them once more, as they are too few for it.

    It knows no masks, and no ends of a transposed matrix, whose bands come from other rows.
    """
    if worker.whole == 0:
        return worker.low, worker.low, 0 * worker.low
    return between_ends(zero, job, worker)


@compiled
def between_ends(zero, job, worker):
    """The same of one that knows masks."""
    if job.flags & J.TRANSPOSE == 0:
        return straight_between(zero, worker, worker.low, worker.high)
    first, last, _ = straight_between(zero, worker, worker.low + 1, worker.high - 1)
    return first, last, 0 * last


@compiled
def knows_ends(zero, job):
    """Whether the straight sweep is that which knows the ends of a transposed matrix.

    Of complex numbers none does: bands that are chosen have their products fused in another order, and so other bits
    than those that another sweep finds.
    """
    return job.flags & J.TRANSPOSE != 0 and parts_of(zero, ()) == 1


@compiled
def straight_masked(zero, job, worker):
    """The same of one that knows masks, and perhaps these ends."""
    if knows_ends(zero, job):
        return straight_between(zero, worker, worker.low, worker.high)
    return between_ends(zero, job, worker)


@compiled
def all_straight(zero, job, worker):
    """The same without masks."""
    if worker.whole == 0:
        return worker.low, worker.low, 0 * worker.low
    return straight_masked(zero, job, worker)


@compiled
def straight_between(zero, worker, low, high):
    """Those of rows low <= i < high.

    They are contiguous; another sweep does the rest. Nor should a straight sweep read systems that all lie in one set
    of the first cache, which are better copied a band at a time.
    """
    for k in (A_, B_, C_, D_, X_):
        operand = operand_of(zero, worker.bindings, k)
        if operand.kind != CONTIGUOUS or clash(zero, operand.addresses.lanes):
            return low, low, 0 * low
    last = low + max(0, high - low) // height_of(zero) * height_of(zero)
    return low, last, high - last if last > low else 0 * low


@compiled
def height_of(zero):
    """The rows that a straight sweep takes at a time."""
    return QUAD // parts_of(zero, ())


@compiled
def views_of_block(zero, job, worker, i0, i1, bands):
    """The addresses and the steps of the bands of a block of rows; the fourth is the right side."""
    row, copied = bytes_of_row(zero, ()), worker.whole == 0
    for band in range(bands):
        view(zero, job, worker, band, i0, i1, copied)
    if copied:
        buffer, (mask, _) = worker.buffer, mask_view(zero, worker, i0)
        CUT(zero, (buffer, buffer + BLOCK * row, buffer + 2 * BLOCK * row, mask, i1 - i0))
    views = worker.views
    return views[0], views[1], views[2], views[3], views[4], views[5], views[6], views[7]


@compiled
def right_side(zero, job, worker, i0, i1, target, mask, mask_step):
    """Rows of the right side as rows of lanes, zero where taken out."""
    load_rows(zero, operand_of(zero, worker.bindings, D_), i0, i1, target)
    if mask_step:
        ERASE(zero, (target, mask, mask_step, i1 - i0))


@compiled
def moved_operands(zero, job, worker):
    """The operands that the straight sweeps read, and by how many rows each is moved."""
    bindings = worker.bindings
    (a_at, a_move), (c_at, c_move) = band_of(job, 0), band_of(job, 2)
    a, b, c = operand_of(zero, bindings, a_at), operand_of(zero, bindings, B_), operand_of(zero, bindings, c_at)
    return a, b, c, operand_of(zero, bindings, D_), a_move, 0, c_move, 0
