"""The driver of selective scans: claims groups of sequences, and takes a group through a piece of its steps at a time.

The states of a group are all that is kept, and what its sequences share stays in the nearest cache for the piece.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE, binder
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.jobs.words.selective import PIECE
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.selective.loops import ADD_UP, ANY, BEGIN, FINISH, ONE, TWO_SEQUENCES, TWO_VECTORS
from tridiag.kernels.selective.side_by_side import scan_side_by_side
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import by_number
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

JOB = RecordAt(Recurrences)
SINGLE = sum(S.SAME << k for k in (S.A, S.B, S.READ))


class Room(Workspace):
    """The memory of a worker."""

    lanes = Words(S.OPERANDS * TABLE // 8)  # the addresses of all operands in every sequence of a group
    row = Word()  # from the states of a sequence to those of the next, whole vectors
    states = Word()
    coefficients = Word()  # of all states, of sequences that lie side by side
    rows = Word()  # of a piece of steps of two sequences: what is read from the states of each step
    sums = Word()  # of rows
    inputs = Word()  # of a piece of steps of all lanes, of sequences that lie apart
    sizes = Word()  # the sizes of these steps


ARRAYS, allocate, free_workspace = workspace(Room, "states", "coefficients", "rows", "sums", "inputs", "sizes")
bind, advance_any = binder(S.OPERANDS, given=True), by_number(ANY, 0)


@compiled
def scan_group(zero, job, room, count):
    """All steps of so many sequences, whose addresses are bound."""
    states, lanes, n, behind = job.length, lanes_of(zero, ()), job.steps, room.rows + PIECE * LINE
    any_kind = (2 if job.pointers[S.STEP] != 0 else 0) + (1 if job.flags & SINGLE else 0)
    vectors = (states + lanes - 1) // lanes if any_kind == 0 else 0
    for lane in range(count if job.flags & S.STARTED else 0):
        for first in range(0, states, lanes):
            BEGIN(zero, (job, room, lane, first))
    for begin in range(0, n, PIECE):
        if stopping_at(begin // PIECE, 16):
            return
        steps, alone, lane = min(PIECE, n - begin), 1 if begin == 0 and job.flags & S.STARTED == 0 else 0, 0
        while lane < count:
            words = job, room, lane, begin, steps, alone
            two = vectors == 1 and lane + 1 < count
            if two:
                TWO_SEQUENCES(zero, words)
                ADD_UP(zero, (job, room, lane + 1, begin, steps, behind))
            elif vectors == 1:
                ONE(zero, words)
            elif vectors == 2:
                TWO_VECTORS(zero, words)
            else:
                advance_any(zero, any_kind, words)
            ADD_UP(zero, (job, room, lane, begin, steps, room.rows))
            lane += 2 if two else 1
    if job.pointers[S.LAST] != 0:
        for lane in range(count):
            for first in range(0, states, lanes):
                FINISH(zero, (job, room, lane, first))


@compiled
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    lanes = lanes_of(zero, ())
    row, together = (job.length + lanes - 1) // lanes * lanes, job.kind != S.STATES
    size = lanes * row * bytes_of_real(zero, ())
    coefficients, piece = size if together else 0, PIECE * LINE
    inputs = piece if job.kind == S.APART else 0
    sizes = inputs if job.pointers[S.STEP] != 0 else 0
    room = allocate(
        ARRAYS(states=size, coefficients=coefficients, rows=2 * piece, sums=LINE, inputs=inputs, sizes=sizes)
    )
    if address_of(room) == 0:
        return
    room.row = row
    groups = (job.stretch + job.group - 1) // job.group  # none crosses rows of ``stretch`` sequences
    last = job.sequences // job.stretch * groups
    for item in items(job):
        for group in range(item * job.run, min((item + 1) * job.run, last)):
            place = group % groups * job.group
            count = min(job.group, job.stretch - place)
            bind(zero, job, room.addresses.lanes, group // groups * job.stretch + place, count)
            if together:
                scan_side_by_side(zero, job, room, count)
            else:
                scan_group(zero, job, room, count)
    free_workspace(room)


task = c_function(work, "tridiag_selective", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
