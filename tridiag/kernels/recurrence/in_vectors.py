"""The kernel of recurrences with constant coefficients: which loops of `constant` it takes."""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.recurrence.apart import bringing_steps, first_of, step_of
from tridiag.kernels.recurrence.constant import EndToEnd, Vectors
from tridiag.kernels.recurrence.order import functions
from tridiag.kernels.recurrence.plain import Plain
from tridiag.kernels.recurrence.scalar import addresses_from, words_from
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, emitted
from tridiag.kernels.simd.interrupts import PIECE, stopping
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of

JOB = RecordAt(Recurrences)


class FactorsOfSteps(Workspace):
    """The memory of a worker."""

    table = Word()  # for each step of a sequence, the factors of a vector that begins there
    result = Word()  # steps that are computed at a time, where the result lies apart


ARRAYS, allocate, free_workspace = workspace(FactorsOfSteps, "table", "result", pooled=True)


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
    bring_steps = bringing_steps(library, order)

    @compiled
    def run(zero, job, words, done):
        """Some steps of some sequences, behind those ``done``."""
        if done > 0 or job.flags & C.STARTED != 0:
            if job.flags & C.BACKWARD:
                both(zero, words)
            else:
                started(zero, words)
        elif job.flags & C.BACKWARD:
            backward(zero, words)
        else:
            forward(zero, words)

    @compiled
    def run_some(zero, job, first, count, done, steps):
        """Some steps of sequences from the first on, behind those ``done``."""
        extent = count, steps
        run(zero, job, extent + words_of(job, first, done), done)

    @compiled
    def run_apart(zero, job, result, first, count, done, steps):
        """The same, by way of scratch memory."""
        step, begin = step_of(zero, job), first_of(zero, job, result, count * steps)
        extent = count, steps, begin, step, steps * step
        run(zero, job, extent + words_of(job, first, done)[3:], done)
        bring_steps(zero, job, first, 1, done, count * steps, begin)

    @compiled
    def run_plain(zero, job, first, count):
        """All steps of sequences from the first on, one after another."""
        together = count if job.axes < 2 else 1
        for index in range(first, first + count, together):
            extent = 0, together, job.steps
            one_by_one(zero, extent + words_of(job, index, 0))

    @compiled
    def run_short(zero, job, room, first, count):
        """Sequences end to end, from the first on; 1: some value is not finite, and they are to be computed plainly."""
        steps, n, backward, apart = count * job.steps, job.steps, job.flags & C.BACKWARD, job.flags & C.APART
        begin = first + count - 1 if backward else first
        y = first_of(zero, job, room.result, steps) if apart else base(job, C.Y, begin)
        words = steps, n, y, base(job, C.X, begin), room.table
        odd = flat_backward(zero, words) if backward else flat(zero, words)
        if apart and odd == 0:
            bring_steps(zero, job, begin, -1 if backward else 1, 0, steps, y)
        return odd

    @compiled
    def work_short(zero, job, room, together):
        count, trusted = job.sequences, keep(zero, (job.steps, room.table, *coefficients(job)))
        for item in items(job):
            end = min(count, (item + 1) * job.run)
            for index in range(item * job.run, end, together):
                some = min(together, end - index)
                # vectors begin in the same steps, wherever items are cut
                first = count - index - some if job.flags & C.BACKWARD else index
                if trusted == 0 or run_short(zero, job, room, first, some) != 0:
                    run_plain(zero, job, first, some)

    @compiled
    def work_long(zero, job, room, together):
        n = job.steps
        for item in items(job):
            end = min(job.sequences, (item + 1) * job.run)
            for index in range(item * job.run, end, together):
                some = min(together, end - index)
                for done in range(0, n, PIECE):
                    if done > 0 and stopping():
                        break
                    if job.flags & C.APART:
                        run_apart(zero, job, room.result, index, some, done, min(PIECE, n - done))
                    else:
                        run_some(zero, job, index, some, done, min(PIECE, n - done))

    @compiled
    def work(job, zero):
        """Some sequences at a time, of no more steps than a PIECE, or a piece of one; vectors of those that lie end to
        end begin in the same steps, however many these are."""
        n, short, lanes = job.steps, job.flags & C.END_TO_END, lanes_of(zero, ())
        together = PIECE // n
        if short:
            together = max(1, together // lanes) * lanes
        elif job.axes > 1 or together == 0:
            together = 1
        table, size = n * size_of_factors(zero, ()) if short else 0, bytes_of_real(zero, ())
        result = together * min(PIECE, n) * size if job.flags & C.APART else 0
        room = allocate(ARRAYS(table=table, result=result))
        if address_of(room) == 0:
            return
        if short:
            work_short(zero, job, room, together)
        else:
            work_long(zero, job, room, together)
        free_workspace(room)

    return runner(zero, c_function(work, f"tridiag_constant_work{order}", first=JOB))
