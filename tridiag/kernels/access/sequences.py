"""Where the operands of a recurrence lie, any number of them: `tridiag.kernels.jobs.words.recurrences`."""

from __future__ import annotations

from typing import Any

from numba import njit

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.memory import set_word
from tridiag.kernels.simd.vector import OPTIONS

TABLE = 128  # bytes of the addresses of an operand in a worker's memory, one for each lane


def places(operands: int) -> Any:
    """How far the next step of an operand is, and where the first one of a sequence lies."""
    offsets, axes = C.TABLE + operands, C.TABLE + 2 * operands

    @njit(**OPTIONS)
    def stride(job, operand):
        return field(job, C.TABLE + operand)

    @njit(**OPTIONS)
    def base(job, operand, index):
        count, total = job.axes, job.pointers[operand] + field(job, offsets + operand)
        for k in range(count - 1, 0, -1):
            axis = axes + (1 + operands) * k
            length = field(job, axis)
            total += (index % length) * field(job, axis + 1 + operand)
            index //= length
        return total + index * field(job, axes + 1 + operand) if count > 0 else total

    return stride, base


def binder(operands: int) -> Any:
    """What points the lanes of a worker at systems."""
    (_, base), step = places(operands), C.TABLE + 2 * operands + 1

    @njit(**OPTIONS)
    def bind(zero, job, tables, first):
        """At those from ``first`` on; the lanes that are left over repeat the last one."""
        last = job.sequences - 1
        for operand in range(operands):
            table, start = tables + TABLE * operand, base(job, operand, first)
            for lane in range(lanes_of(zero, ())):
                if job.axes > 1:
                    start = base(job, operand, min(first + lane, last))
                set_word(table + 8 * lane, start)
                if first + lane < last and job.axes == 1:
                    start += field(job, step + operand)

    return bind
