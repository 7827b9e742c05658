"""Where the operands of a recurrence lie, any number of them: `tridiag.kernels.jobs.words.recurrences`."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import set_word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

TABLE = 128  # bytes of the addresses of an operand in a worker's memory, one for each lane


def places(operands: int) -> Any:
    """How far the next step of an operand is, and where the first one of a sequence lies."""
    offsets, axes = C.TABLE + operands, C.TABLE + 2 * operands

    @compiled
    def stride(job, operand):
        return field(job, C.TABLE + operand)

    @compiled
    def base(job, operand, index):
        count, total = job.axes, job.pointers[operand] + field(job, offsets + operand)
        for k in range(count - 1, 0, -1):
            axis = axes + (1 + operands) * k
            length = field(job, axis)
            total += (index % length) * field(job, axis + 1 + operand)
            index //= length
        return total + index * field(job, axes + 1 + operand) if count > 0 else total

    return stride, base


def one_run(code: Code, table: Value, start: Value, step: Value, used: Value) -> None:
    """The addresses of so many lanes, ``step`` bytes apart; the lanes that are left over repeat the last one."""
    lanes, most = code.integers(range(code.lanes)), code.repeat(used - 1, code.lanes)
    places = code.where(lanes < most, lanes, most)
    code.store_as(table, code.repeat(start, code.lanes) + places * code.repeat(step, code.lanes))


def binder(operands: int, given: bool = False) -> Any:
    """What points the lanes of a worker at systems; ``given``: not at operands without an address."""
    (_, base), axes, in_one_run = places(operands), C.TABLE + 2 * operands, emitted(one_run)

    @compiled
    def bind(zero, job, tables, first, most):
        """At those from ``first`` on, at most so many; the lanes that are left over repeat the last one."""
        lanes, inner = lanes_of(zero, ()), axes + (1 + operands) * (job.axes - 1)
        used = min(most, job.sequences - first)
        together = job.axes < 2 or first % field(job, inner) + used <= field(job, inner)
        for operand in range(operands):
            table, step = tables + TABLE * operand, field(job, inner + 1 + operand) if job.axes > 0 else 0
            lane, last = 0, 0
            if given and job.pointers[operand] == 0:
                continue
            if together:
                in_one_run(zero, (table, base(job, operand, first), step, used))
                continue
            while lane < used:  # sequences that are apart along the last axis alone
                index, start, length = first + lane, base(job, operand, first + lane), field(job, inner)
                run = min(used - lane, length - index % length)
                for k in range(run):
                    set_word(table + 8 * (lane + k), start + k * step)
                lane += run
                last = start + (run - 1) * step
            for k in range(used, lanes):
                set_word(table + 8 * k, last)

    return bind
