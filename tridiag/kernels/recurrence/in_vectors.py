"""The kernel of recurrences with constant coefficients: which loops of `constant` it takes."""

from __future__ import annotations

import numpy as np
from numba import njit

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.recurrence.constant import EndToEnd, Vectors
from tridiag.kernels.recurrence.order import functions
from tridiag.kernels.recurrence.scalar import Plain, addresses_from, words_from
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.functions import Library, emitted
from tridiag.kernels.simd.interrupts import PIECE, stopping
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import OPTIONS

JOB = RecordAt(Recurrences)


class FactorsOfSteps(Workspace):
    """The memory of a worker."""

    table = Word()  # for each step of a sequence, the factors of a vector that begins there


ARRAYS, allocate, free_workspace = workspace(FactorsOfSteps, "table")


def build(dtype: str, order: int):
    """The C function void run(job, helpers) for a dtype and an order."""
    zero, library = np.zeros((), dtype)[()], Library(f"constant{order}")
    loops = [Vectors(order, started, backward) for started in (False, True) for backward in (False, True)]
    forward, backward, started, both = (library.add(loop.name, loop.write) for loop in loops)
    ends, plain = [EndToEnd(order, backward) for backward in (False, True)], Plain(order, False, False)
    flat, flat_backward = (library.add(loop.name, loop.write) for loop in ends)
    keep, one_by_one = library.add("factors", ends[0].keep), library.add(plain.name, plain.write)
    made = functions(order)
    base, words_of, coefficients = made.base, words_from(made, order), addresses_from(made, order)
    size_of_factors = emitted(lambda code: code.integer(ends[0].size(code)))

    @njit(**OPTIONS)
    def run(zero, job, first, count, done, steps):
        """Some steps of sequences from the first on, behind those ``done``."""
        extent = count, steps
        words = extent + words_of(job, first, done)
        if done > 0 or job.flags & C.STARTED != 0:
            if job.flags & C.BACKWARD:
                both(zero, words)
            else:
                started(zero, words)
        elif job.flags & C.BACKWARD:
            backward(zero, words)
        else:
            forward(zero, words)

    @njit(**OPTIONS)
    def run_short(zero, job, table, first, count):
        """Sequences end to end, from the first on; whether some value is not finite."""
        extent = count * job.steps, job.steps
        if job.flags & C.BACKWARD:
            end = first + count - 1
            return flat_backward(zero, (*extent, base(job, C.Y, end), base(job, C.X, end), table))
        return flat(zero, (*extent, base(job, C.Y, first), base(job, C.X, first), table))

    @njit(**OPTIONS)
    def work_short(zero, job):
        many, count, n = job.run, job.sequences, job.steps
        room = allocate(ARRAYS(table=n * size_of_factors(zero, ())))
        if address_of(room) == 0:
            return
        trusted = keep(zero, (n, room.table, *coefficients(job)))
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            if job.flags & C.BACKWARD:  # vectors begin in the same steps, wherever items are cut
                first, last = max(0, count - last), count - first
            if trusted == 0 or run_short(zero, job, room.table, first, last - first) != 0:
                extent = last - first, n
                one_by_one(zero, extent + words_of(job, first, 0))
        free_workspace(room)

    @njit(**OPTIONS)
    def work(job, zero):
        if job.flags & C.END_TO_END:
            work_short(zero, job)
            return
        many, count, n = job.run, job.sequences, job.steps
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            together = last - first if job.axes < 2 and n <= PIECE else 1
            for index in range(first, last, together):
                for done in range(0, n, PIECE):
                    if done > 0 and stopping():
                        break
                    run(zero, job, index, together, done, min(PIECE, n - done))

    return runner(zero, c_function(work, f"tridiag_constant_work{order}", first=JOB))
