"""The driver of selective scans: claims groups of sequences, and takes a group through a piece of its steps at a time.

The states of a group are all that is kept, and what its sequences share stays in the nearest cache for the piece.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE, binder
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.selective.loops import ADVANCE, ADVANCE_DISCRETISED, BEGIN, FINISH
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import OPTIONS

JOB = RecordAt(Recurrences)
PIECE = 64  # steps


class Room(Workspace):
    """The memory of a worker."""

    lanes = Words(S.OPERANDS * TABLE // 8)  # the addresses of all operands in every sequence of a group
    row = Word()  # from the states of a sequence to those of the next, whole vectors
    states = Word()


ARRAYS, allocate, free_workspace = workspace(Room, "states")
bind = binder(S.OPERANDS)


@njit(**OPTIONS)
def scan_group(zero, job, room, count):
    """All steps of so many sequences, whose addresses are bound."""
    states, lanes, n, sizes = job.length, lanes_of(zero, ()), job.steps, job.pointers[S.STEP] != 0
    for lane in range(count):
        for first in range(0, states, lanes):
            BEGIN(zero, (job, room, lane, first))
    for begin in range(0, n, PIECE):
        if stopping_at(begin // PIECE, 16):
            return
        steps, alone = min(PIECE, n - begin), 1 if begin == 0 and job.flags & S.STARTED == 0 else 0
        for lane in range(count):
            for first in range(0, states, lanes):
                words = job, room, lane, first, begin, steps, alone
                if sizes:
                    ADVANCE_DISCRETISED(zero, words)
                else:
                    ADVANCE(zero, words)
    for lane in range(count):
        for first in range(0, states, lanes):
            FINISH(zero, (job, room, lane, first))


@njit(**OPTIONS)
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    lanes = lanes_of(zero, ())
    row = (job.length + lanes - 1) // lanes * lanes
    room = allocate(ARRAYS(states=lanes * row * bytes_of_real(zero, ())))
    if address_of(room) == 0:
        return
    room.row = row
    groups = (job.sequences + lanes - 1) // lanes
    for item in items(job):
        for group in range(item * job.run, min((item + 1) * job.run, groups)):
            bind(zero, job, room.addresses.lanes, group * lanes)
            scan_group(zero, job, room, min(lanes, job.sequences - group * lanes))
    free_workspace(room)


task = c_function(work, "tridiag_selective", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
