"""Sequences side by side in memory, a stretch of them at a time, row by row."""

from __future__ import annotations

import functools
from typing import Any

from numba import njit

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.interleaved_loops import interleaved, spread
from tridiag.kernels.recurrence.order import Order, whole_entries
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import allocate_workspace, free_workspace
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import flush
from tridiag.kernels.simd.vector import LINE, OPTIONS


def side_by_side(made: Order, order: int, library: Library) -> Any:
    base, stride, step_by_step = made.base, made.stride, made.step_by_step
    own, shared, own_past_caches, shared_past_caches = (
        library.add(f"{loop.__name__}{'_past_caches' * past_caches}", functools.partial(loop, past_caches))
        for past_caches in (False, True)
        for loop in (interleaved, spread)
    )
    words_of = coefficient_words(made, order)

    @njit(**OPTIONS)
    def work(job, zero):
        """Sequences side by side in memory, a stretch of them at a time, row by row."""
        length, width = job.length, job.stretch
        stretches, n = job.stretches, job.steps
        turned, first = job.flags & C.TRANSPOSED, min(order, n)
        side = (width * bytes_of_real(zero, ()) + LINE - 1) // LINE * LINE
        room = allocate_workspace((order + 1) * side)
        if room == 0:
            return
        for item in items(job):
            low = item % stretches * width
            index, count = item // stretches * length + low, min(width, length - low)
            for k in range(index, index + count):
                step_by_step(zero, job, k, 0, first, zero)
            x, y = base(job, C.X, index), base(job, C.Y, index)
            operands = first, n, count, y, stride(job, C.Y), x, stride(job, C.X), room, side
            words = operands + words_of(job, index, turned)
            large = job.flags & C.LARGE and n > order and whole_entries(zero, y, stride(job, C.Y))
            if job.kind == C.INTERLEAVED:
                if large:
                    own_past_caches(zero, words)
                else:
                    own(zero, words)
            elif large:
                shared_past_caches(zero, words)
            else:
                shared(zero, words)
        flush()
        free_workspace(room)

    return work


def coefficient_words(made: Order, order: int) -> Any:
    """The address and the stride of every coefficient; transposed ones lie in the row that they multiply."""
    base, stride = made.base, made.stride

    @njit(**OPTIONS)
    def last(job, index, turned):
        k = order - 1
        step = stride(job, C.A + k)
        return base(job, C.A + k, index) - (order * step if turned else 0), step

    if order == 1:
        return last
    before = coefficient_words(made, order - 1)

    @njit(**OPTIONS)
    def words(job, index, turned):
        return before(job, index, turned) + last(job, index, turned)

    return words
