"""Sequences that fill no vectors, too short or too few or too far apart: plain loops."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.operands import bytes_of_number, lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.abreast import Abreast
from tridiag.kernels.recurrence.even_rows import even_rows
from tridiag.kernels.recurrence.loops import HEIGHT
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.recurrence.plain import Plain
from tridiag.kernels.recurrence.short_rows import short_rows
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE, stopping

EVENLY_SPACED = 6, 2, 1  # sequences at a time, as long as there are so many: as many as registers have room for
FROM_MEMORY = 2, 1  # likewise, past the caches, where processors ask ahead for what is read in order
MOST_ASKED = 256  # steps of constant coefficients; the processor sees where longer sequences go


def one_after_another(made: Order, order: int, library: Library, real: bool) -> Any:
    """``real``: whether numbers are; those of complex sequences lie in no vectors."""
    step_by_step, words_of = made.step_by_step, words_from(made, order)
    short = short_rows(made, library) if order == 1 and real else never_short
    scattered, dense, lies_densely = (
        plain_loops(order, library, False),
        plain_loops(order, library, True),
        dense_of(made, order),
    )

    constant = [
        library.add(loop.name, loop.write) for loop in (Plain(order, False, False, d, True) for d in (False, True))
    ]
    constant_scattered, constant_dense = constant
    coefficients_are_constant, moves_alike = constant_of(made, order), made.stride
    abreast, lies_evenly = evenly_spaced(made, order, library, real)

    @compiled
    def asks_ahead(zero, job, words):
        """1 where sequences of few steps lie end to end, beyond the second level of the cache, else 0."""
        n, (step, of_result), of_x = words[1], words[3:5], words[7]
        end_to_end = step > 0 and of_result == n * step and of_x == of_result
        return 1 if end_to_end and n == job.steps and n <= MOST_ASKED and job.flags & C.FAR else 0

    @compiled
    def run(zero, job, first, count, done, steps):
        """Some steps of sequences from the first on, regularly spaced, or of a single one, behind those ``done``."""
        extent = count, steps
        words = extent + words_of(job, first, done)
        begun, turned = done > 0 or job.flags & C.STARTED != 0, job.flags & C.TRANSPOSED != 0
        if not begun and not turned and coefficients_are_constant(zero, job):
            given = (asks_ahead(zero, job, words), *words)
            step = moves_alike(job, C.Y)
            if step == moves_alike(job, C.X) and abs(step) == bytes_of_number(zero, ()):
                constant_dense(zero, given)
            else:
                constant_scattered(zero, given)
        elif not begun and not turned and lies_evenly(zero, job) and lies_densely(zero, job):
            abreast(zero, words, job.flags)
        elif lies_densely(zero, job):
            dense(zero, begun, turned, (1 if job.flags & C.LARGE else 0, *words))
        else:
            scattered(zero, begun, turned, (1 if job.flags & C.LARGE else 0, *words))

    @compiled
    def run_all(zero, job, first, count):
        """All steps; of long sequences some at a time, so that the job may end early."""
        n = job.steps
        if n > PIECE and job.flags & C.TRANSPOSED:
            for index in range(first, first + count):
                step_by_step(zero, job, index, 0, n, zero)
            return
        for done in range(0, n, PIECE):
            if done > 0 and stopping():
                break
            run(zero, job, first, count, done, min(PIECE, n - done))

    @compiled
    def work(job, zero):
        """Sequences in any place."""
        many, count = job.run, job.sequences
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            if short(zero, job, first, last):
                continue
            if job.axes == 1:
                run_all(zero, job, first, last - first)
                continue
            for index in range(first, last):
                run_all(zero, job, index, 1)

    return work


def plain_loops(order: int, library: Library, dense: bool) -> Any:
    """The plain loops of an order, by whether there are values before the first step, and whether it is transposed."""
    loops = [Plain(order, started, turned, dense) for started in (False, True) for turned in (False, True)]
    plain, transposed, started, both = (library.add(loop.name, loop.write) for loop in loops)

    @compiled
    def run(zero, begun, turned, words):
        if begun and turned:
            both(zero, words)
        elif begun:
            started(zero, words)
        elif turned:
            transposed(zero, words)
        else:
            plain(zero, words)

    return run


def dense_of(made: Order, order: int) -> Any:
    """Whether the steps of the result, of x and of all coefficients lie side by side, in the same direction."""
    stride = made.stride

    @compiled
    def lies_densely(zero, job):
        for operand in range(C.A + order):
            if stride(job, operand) != stride(job, C.Y):
                return False
        return abs(stride(job, C.Y)) == bytes_of_number(zero, ())

    return lies_densely


def constant_of(made: Order, order: int) -> Any:
    """Whether all coefficients are the same in all steps of all sequences along the first axis."""
    stride, steps = made.stride, C.TABLE + 2 * C.operands(order) + 1

    @compiled
    def constant(zero, job):
        for operand in range(C.A, C.A + order):
            if stride(job, operand) != 0 or (job.axes == 1 and field(job, steps + operand) != 0):
                return False
        return True

    return constant


def evenly_spaced(made: Order, order: int, library: Library, real: bool) -> Any:
    """The loops over sequences of first order all operands of which are as far apart; and whether they are."""
    if order > 1 or not real:
        return nothing, never_even
    abreast, in_lanes = library.add("abreast", Abreast(EVENLY_SPACED).write), library.add("even_rows", even_rows)
    two_abreast = library.add("two_abreast", Abreast(FROM_MEMORY).write)
    steps = C.TABLE + 2 * C.operands(1) + 1  # as below

    @compiled
    def lies_evenly(zero, job):
        apart = field(job, steps + C.Y)
        return job.axes == 1 and field(job, steps + C.X) == apart and field(job, steps + C.A) == apart

    @compiled
    def run(zero, words, flags):
        count, n, (forward, apart), (y, x, a) = words[0], words[1], words[3:5], words[2:9:3]
        if count < lanes_of(zero, ()) or n < HEIGHT or forward != bytes_of_number(zero, ()):
            abreast(zero, words)
        elif flags & C.LARGE:
            two_abreast(zero, words)
        else:
            in_lanes(zero, (count, n, apart, y, x, a, 1 if flags & C.FAR else 0))

    return run, lies_evenly


@compiled
def nothing(zero, words, flags):
    pass


@compiled
def never_even(zero, job):
    return False


@compiled
def never_short(zero, job, first, last):
    return False


def words_from(made: Order, order: int, operand: int = 0) -> Any:
    """For each operand from one on: its address in a sequence behind some steps, its stride, how far the next one is.

    Behind some steps the values before are those of the result.
    """
    base, stride, state, operands = made.base, made.stride, C.A + order, C.operands(order)
    steps = C.TABLE + 2 * operands + 1  # how far the next sequence of each operand is, where there is one batch axis

    @compiled
    def apart(job, k):
        return field(job, steps + k) if job.axes == 1 else 0

    @compiled
    def place(job, first, done):
        if operand < state:
            return base(job, operand, first) + done * stride(job, operand), stride(job, operand), apart(job, operand)
        if done > 0:
            return base(job, C.Y, first) + (done - 1 - operand + state) * stride(job, C.Y), 0, apart(job, C.Y)
        return base(job, operand, first), 0, apart(job, operand)

    if operand + 1 == operands:
        return place
    others = words_from(made, order, operand + 1)

    @compiled
    def words(job, first, done):
        return place(job, first, done) + others(job, first, done)

    return words


def addresses_from(made: Order, order: int, k: int = 0) -> Any:
    """Those of the coefficients from number k on, in the first sequence."""
    base = made.base

    @compiled
    def last(job):
        return (base(job, C.A + k, 0),)

    if k + 1 == order:
        return last
    others = addresses_from(made, order, k + 1)

    @compiled
    def addresses(job):
        return last(job) + others(job)

    return addresses
