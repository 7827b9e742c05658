"""Where the systems of a vector lie: the address of row 0 of every operand in every lane."""

from __future__ import annotations

from tridiag.kernels.access.operands import bind, bytes_of_real, lanes_of, operand_at, parts_of, size_of_operand
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import word


@compiled
def offset(job, axes, count, index, operand):
    """The byte offset of one system of an operand: its index over the batch axes, last axis fastest."""
    total = 0
    for k in range(count - 1, 0, -1):
        axis = axes + J.AXIS_WORDS * k
        length = field(job, axis)
        total += (index % length) * field(job, axis + 1 + operand)
        index //= length
    return total + index * field(job, axes + 1 + operand) if count > 0 else total


@compiled
def bind_lanes(zero, job, axes, count, first, used, base, bindings, low, high):
    """Point operands low <= k < high of a group at systems first, first + 1, ... along some axes.

    ``base`` is the address of six more offsets. Lanes that are not used repeat the first.
    """
    lanes, itemsize = lanes_of(zero, ()), bytes_of_real(zero, ()) * parts_of(zero, ())
    size, inner = size_of_operand(zero, ()), axes + J.AXIS_WORDS * (count - 1)
    for operand in range(low, high):
        pointer, target, stride = job.pointers[operand], operand_at(bindings + operand * size), job.strides[operand]
        step = field(job, inner + 1 + operand) if count > 0 else 0
        lane, run = 0, used
        while lane < used and pointer != 0:
            index, run = first + lane, used - lane
            if count > 1:
                length = field(job, inner)
                run = min(run, length - index % length)
            at = pointer + word(base + 8 * operand) + offset(job, axes, count, index, operand)
            for k in range(lane, lane + run):
                target.lanes[k] = at
                at += step
            lane += run
        for k in range(used, lanes):
            target.lanes[k] = target.lanes[0]
        bind(zero, target, itemsize, stride, run == lanes, operand == X_, used)


@compiled
def operand_of(zero, bindings, k):
    return operand_at(bindings + k * size_of_operand(zero, ()))
