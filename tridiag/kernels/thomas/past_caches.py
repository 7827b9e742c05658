"""Large solutions whose rows lie contiguous: past the caches, by way of scratch memory."""

from __future__ import annotations

from numba import njit

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.operands import CONTIGUOUS, QUAD, bytes_of_number, bytes_of_real, lanes_of, parts_of
from tridiag.kernels.access.pieces import put_lanes
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.simd.vector import OPTIONS
from tridiag.kernels.thomas.sweeps import PUT_PAST_CACHES
from tridiag.kernels.thomas.workspace import PIECE

put_pieces = put_lanes(PUT_PAST_CACHES)


@njit(**OPTIONS)
def in_pieces(zero, job, worker):
    """Whether rows of a group's solution are better written past the caches: of a large one, not in place of d."""
    x, places = operand_of(zero, worker.bindings, X_), 0
    if job.flags & J.LARGE == 0 or job.pointers[D_] == job.pointers[X_] or x.kind != CONTIGUOUS:
        return False
    for lane in range(lanes_of(zero, ())):
        places |= x.lanes[lane]
    return places % bytes_of_real(zero, ()) == 0


@njit(**OPTIONS)
def first_of_piece(zero, start, end):
    """The first row of the piece that ends before row ``end``; rows from ``start`` on are taken some at a time."""
    first = max(0, end - PIECE)
    return first + (start - first) % (QUAD // parts_of(zero, ())) if first > start else first


@njit(**OPTIONS)
def begin_piece(zero, worker, first, last):
    """Point the lanes of x at scratch memory for rows first <= i < last."""
    x, size = operand_of(zero, worker.bindings, X_), bytes_of_number(zero, ())
    x.ahead = 0
    for lane in range(lanes_of(zero, ())):
        worker.targets[lane] = x.lanes[lane]
        x.lanes[lane] = worker.piece + (lane * (last - first) - first) * size


@njit(**OPTIONS)
def end_piece(zero, worker, first, last):
    """These rows from scratch memory to where they belong, at which the lanes are pointed again."""
    x, size = operand_of(zero, worker.bindings, X_), bytes_of_number(zero, ())
    put_pieces(zero, worker.piece, worker.addresses.targets, first * size, (last - first) * size)
    for lane in range(lanes_of(zero, ())):
        x.lanes[lane] = worker.targets[lane]
