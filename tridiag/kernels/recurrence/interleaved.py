"""Sequences side by side in memory, a stretch of them at a time, row by row."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.kernels.access.operands import bytes_of_number, lanes_of, parts_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.interleaved_loops import Narrow, first_rows, interleaved, own, shared, spread
from tridiag.kernels.recurrence.order import Order, whole_entries
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.runtime.workspace import allocate_workspace, free_workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import flush
from tridiag.kernels.simd.vector import LINE

NARROW = 4  # vectors; what a row of as many needs stays in registers
PAST_CACHES = 1024  # bytes of a row; in shorter ones too few lines are whole, and the others would be fetched twice


def side_by_side(made: Order, order: int, library: Library) -> Any:
    base, stride, step_by_step = made.base, made.stride, made.step_by_step
    run_own, run_shared, run_own_past_caches, run_shared_past_caches = (
        library.add(f"{loop.__name__}{'_past_caches' * past_caches}", functools.partial(loop, past_caches))
        for past_caches in (False, True)
        for loop in (interleaved, spread)
    )
    begin_own, begin_shared = (
        library.add(f"first_rows_{take.__name__}", functools.partial(first_rows, take, order)) for take in (own, shared)
    )
    narrow_own, narrow_shared = narrow(library, own, order), narrow(library, shared, order)
    words_of, before, lie_side_by_side = coefficient_words(made, order), state_words(made, order), side_of(order)

    @compiled
    def begin(zero, job, index, count, coefficients):
        """The rows that need values before the first one."""
        started, first = 1 if job.flags & C.STARTED else 0, min(order, job.steps)
        if started and (job.flags & C.TRANSPOSED or not lie_side_by_side(zero, job)):
            for k in range(index, index + count):
                step_by_step(zero, job, k, 0, first, zero)
            return
        places = base(job, C.Y, index), stride(job, C.Y), base(job, C.X, index), stride(job, C.X)
        given = first, count * parts_of(zero, ()), *places, started
        words = given + coefficients + before(job, index)
        if job.kind == C.INTERLEAVED:
            begin_own(zero, words)
        else:
            begin_shared(zero, words)

    @compiled
    def go_on(zero, job, count, words, large):
        """The rows behind them, of so many real numbers; ``words``: those of `across`."""
        own_coefficients = job.kind == C.INTERLEAVED
        if count <= NARROW * lanes_of(zero, ()):
            if own_coefficients:
                narrow_own(zero, words)
            else:
                narrow_shared(zero, words)
        elif own_coefficients and large:
            run_own_past_caches(zero, words)
        elif own_coefficients:
            run_own(zero, words)
        elif large:
            run_shared_past_caches(zero, words)
        else:
            run_shared(zero, words)

    @compiled
    def work(job, zero):
        """Sequences side by side in memory, a stretch of them at a time, row by row."""
        length, width, stretches, n, size = job.length, job.stretch, job.stretches, job.steps, bytes_of_number(zero, ())
        parts, side = job.sequences // length * stretches, (width * size + LINE - 1) // LINE * LINE
        room = allocate_workspace((order + 1) * side)
        if room == 0:
            return
        for item in items(job):
            for part in range(item * job.run, min(parts, (item + 1) * job.run)):
                low = part % stretches * width
                index, count = part // stretches * length + low, min(width, length - low)
                coefficients = words_of(job, index, job.flags & C.TRANSPOSED)
                begin(zero, job, index, count, coefficients)
                if n > order:
                    x, y = base(job, C.X, index), base(job, C.Y, index)
                    reals = count * parts_of(zero, ())
                    operands = order, n, reals, y, stride(job, C.Y), x, stride(job, C.X), room, side
                    whole = count * size >= PAST_CACHES and whole_entries(zero, y, stride(job, C.Y))
                    go_on(zero, job, reals, operands + coefficients, job.flags & C.LARGE and whole)
        flush()
        free_workspace(room)

    return work


def narrow(library: Library, take: Any, order: int) -> Any:
    """The loop for rows of at most NARROW vectors, from the words of `across`."""
    loops = [Narrow(take, order, 0, NARROW), *(Narrow(take, order, k, 2) for k in range(4)), Narrow(take, order, 4, 1)]
    most, whole, half, quarter, eighth, one = (library.add(loop.name, loop.write) for loop in loops)

    @compiled
    def run(zero, words):
        count, given, lanes = words[2], words[:7] + words[9:], lanes_of(zero, ())  # without those of scratch rows
        if count > 2 * lanes:
            most(zero, given)
        elif count >= lanes:
            whole(zero, given)
        elif 2 * count >= lanes:
            half(zero, given)
        elif 4 * count >= lanes:
            quarter(zero, given)
        elif count > 1:
            eighth(zero, given)
        else:
            one(zero, given)

    return run


def state_words(made: Order, order: int, k: int = 0) -> Any:
    """The addresses of the values before the first step, but for the latest k."""
    base = made.base

    @compiled
    def latest(job, index):
        return (base(job, C.A + order + k, index),)

    if k + 1 == order:
        return latest
    earlier = state_words(made, order, k + 1)

    @compiled
    def words(job, index):
        return latest(job, index) + earlier(job, index)

    return words


def side_of(order: int) -> Any:
    """Whether the values before the first step of neighbours lie side by side."""
    operands = C.operands(order)
    steps = C.TABLE + 2 * operands + 1 + C.A + order  # of the first batch axis

    @compiled
    def lie_side_by_side(zero, job):
        for k in range(order):
            if field(job, steps + (job.axes - 1) * (1 + operands) + k) != bytes_of_number(zero, ()):
                return False
        return True

    return lie_side_by_side


def coefficient_words(made: Order, order: int) -> Any:
    """The address and the stride of every coefficient; transposed ones lie in the row that they multiply."""
    base, stride = made.base, made.stride

    @compiled
    def last(job, index, turned):
        k = order - 1
        step = stride(job, C.A + k)
        return base(job, C.A + k, index) - (order * step if turned else 0), step

    if order == 1:
        return last
    before = coefficient_words(made, order - 1)

    @compiled
    def words(job, index, turned):
        return before(job, index, turned) + last(job, index, turned)

    return words
