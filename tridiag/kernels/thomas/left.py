"""Hard systems that are left to another kernel, as `tridiag.kernels.jobs.systems.leaves_hard` says; their marks."""

from __future__ import annotations

from numba import njit, types

from tridiag.kernels.jobs.words.systems import D_, X_, Systems
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.simd.memory import c_function, call, free, load, set_byte, word
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.vector import OPTIONS


@njit(**OPTIONS)
def no_marks(job):
    """Memory for marks, and no system marked; False where there is none."""
    job.marks = fresh(job.matrices)
    for k in range(job.matrices if job.marks != 0 else 0):
        set_byte(job.marks + k, 0)
    return job.marks != 0


@njit(**OPTIONS)
def expect_marks(job, zero):
    """Memory for marks, if hard systems are left: those whose right sides stay as they are beside their neighbours'."""
    if job.hard != 0 and job.pointers[D_] != job.pointers[X_]:
        no_marks(job)


@njit(**OPTIONS)
def mark(job, first, lanes):
    """Mark some lanes of a group of systems first, first + 1, ..."""
    lane = 0
    while lanes >> lane:
        if lanes >> lane & 1:
            set_byte(job.marks + first + lane, 1)
        lane += 1


@njit(**OPTIONS)
def some_marked(job):
    system = 0
    while job.marks != 0 and system < job.matrices and load(job.marks + system, types.uint8(0)) == 0:
        system += 1
    return job.marks != 0 and system < job.matrices


@njit(**OPTIONS)
def leave(job, helpers, left, zero):
    """The marked systems to the other kernel; where none has marks all that are not solved, if they are ``left``.

    It may have to be compiled by its first call.
    """
    if left or (job.next >= job.items and some_marked(job)):
        function, more = word(job.hard), helpers + job.hard_helpers
        job.doubts = job.marks if job.marks != 0 else job.doubts
        job.next = 0
        call(function, (job, more))
        if word(job.hard) != function:
            call(word(job.hard), (job, more))
    free(job.marks)


EXPECT_MARKS = c_function(expect_marks, "tridiag_expect_marks", first=RecordAt(Systems))
LEAVE = c_function(leave, "tridiag_leave_hard", 3, first=RecordAt(Systems))
