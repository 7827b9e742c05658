"""The driver of the gradients of selective scans: a group of sequences at a time, which share what they add to.

States are found once from the first step on, those before each piece of steps are kept, and those of a piece are found
again when its cotangents are.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE, binder
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.jobs.words.selective import PIECE
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.selective.adjoint_loops import (
    ADVANCE,
    ADVANCE_DISCRETISED,
    BACK,
    BACK_DISCRETISED,
    BEGIN,
    BEGIN_BACK,
    FINISH_BACK,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, set_word, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

JOB = RecordAt(Recurrences)
ROWS_OF_GROUPS = C.TABLE + 2 * S.ADJOINT_OPERANDS


class Room(Workspace):
    """The memory of a worker."""

    lanes = Words(S.ADJOINT_OPERANDS * TABLE // 8)  # the addresses of all operands in every sequence of a group
    row = Word()  # from the states of a sequence to those of the next, whole vectors
    states = Word()
    kept = Word()  # the states before each piece of steps
    carry = Word()  # the cotangents of states
    rows = Word()  # the states before each step of a piece, and their coefficients


ARRAYS, allocate, free_workspace = workspace(Room, "states", "kept", "carry", "rows")
bind = binder(S.ADJOINT_OPERANDS)


@compiled
def bind_group(zero, job, room, first, group):
    """Point at the sequences of a group, and at the sums that they share."""
    bind(zero, job, room.addresses.lanes, first, lanes_of(zero, ()))
    behind = ROWS_OF_GROUPS + (1 + S.ADJOINT_OPERANDS) * job.axes
    for k in range(len(S.SUMMED)):
        offset = field(job, behind + k) * group
        table = room.addresses.lanes + TABLE * (S.OF_A + k)
        for lane in range(lanes_of(zero, ())):
            set_word(table + 8 * lane, word(table + 8 * lane) + offset)


@compiled
def forward(zero, job, room, count):
    """The states before each piece of steps."""
    states, lanes, size = job.length, lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(count):
        for first in range(0, states, lanes):
            BEGIN(zero, (job, room, lane, first))
    for begin in range(0, job.steps, PIECE):
        if stopping_at(begin // PIECE, 16):
            return
        steps, alone = min(PIECE, job.steps - begin), 1 if begin == 0 and job.flags & S.STARTED == 0 else 0
        for lane in range(count):
            for first in range(0, states, lanes):
                kept = room.kept + ((begin // PIECE * lanes + lane) * room.row + first) * size
                words = job, room, lane, first, begin, steps, alone, kept
                if job.pointers[S.STEP] != 0:
                    ADVANCE_DISCRETISED(zero, words)
                else:
                    ADVANCE(zero, words)


@compiled
def backward(zero, job, room, count):
    """The gradients, a piece of steps at a time from the last one back."""
    states, lanes, size = job.length, lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(count):
        for first in range(0, states, lanes):
            BEGIN_BACK(zero, (job, room, lane, first, room.carry + (lane * room.row + first) * size))
    for piece in range((job.steps + PIECE - 1) // PIECE - 1, -1, -1):
        if stopping_at(piece, 16):
            return
        begin = piece * PIECE
        steps, alone = min(PIECE, job.steps - begin), 1 if begin == 0 and job.flags & S.STARTED == 0 else 0
        for lane in range(count):
            for first in range(0, states, lanes):
                kept = room.kept + ((piece * lanes + lane) * room.row + first) * size
                carry = room.carry + (lane * room.row + first) * size
                words = job, room, lane, first, begin, steps, alone, kept, room.rows, carry
                if job.pointers[S.STEP] != 0:
                    BACK_DISCRETISED(zero, words)
                else:
                    BACK(zero, words)
    for lane in range(count):
        for first in range(0, states, lanes):
            FINISH_BACK(zero, (job, room, lane, first, room.carry + (lane * room.row + first) * size))


@compiled
def work(job, zero):
    """Claim groups until none is left; called by every thread of a job. None crosses rows of ``stretch`` sequences."""
    lanes = lanes_of(zero, ())
    row = (job.length + lanes - 1) // lanes * lanes
    group_size = lanes * row * bytes_of_real(zero, ())
    pieces = (job.steps + PIECE - 1) // PIECE
    room = allocate(ARRAYS(states=group_size, kept=pieces * group_size, carry=group_size, rows=2 * PIECE * LINE))
    if address_of(room) == 0:
        return
    room.row = row
    length = job.stretch
    groups = (length + lanes - 1) // lanes
    for item in items(job):
        place = item % groups * lanes
        bind_group(zero, job, room, item // groups * length + place, item % groups)
        count = min(lanes, length - place)
        forward(zero, job, room, count)
        backward(zero, job, room, count)
    free_workspace(room)


task = c_function(work, "tridiag_selective_adjoint", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
