"""What all schedules of a recurrence of some order are made of."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.operands import NEXT_GROUP, bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE, places
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.loops import (
    FAR_AHEAD,
    MOST_LANES,
    clear,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE as ROWS_APART
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import load, set_word, store, word
from tridiag.kernels.simd.vector import LINE


class Order(NamedTuple):
    """What is compiled for an order."""

    base: Any  # the address of the first step of an operand of a sequence
    stride: Any
    step_by_step: Any
    bind: Any
    start: Any


def dispatch(library: Library, loops: list[Any]) -> Any:
    """The loops over steps, of which the flags of a job choose one."""
    forward, backward, turned_forward, turned_backward = (library.add(loop.name, loop.write) for loop in loops)

    @compiled
    def run(zero, job, *words):
        flags = job.flags
        if flags & C.TRANSPOSED:
            if flags & C.BACKWARD:
                turned_backward(zero, words)
            else:
                turned_forward(zero, words)
        elif flags & C.BACKWARD:
            backward(zero, words)
        else:
            forward(zero, words)

    return run


def functions(order: int) -> Order:
    """What all kinds of work are made of."""
    operands, read = C.operands(order), 2 + order  # the operands, and those that have steps

    stride, base = places(operands)

    @compiled
    def step_by_step(zero, job, index, first, last, carry):
        """Steps first <= i < last of a sequence.

        ``carry``: of order 1, what the steps before hand on; returns what these do.
        """
        x, y, flags = base(job, C.X, index), base(job, C.Y, index), job.flags
        turned, started = flags & C.TRANSPOSED != 0, flags & C.STARTED != 0
        dx, dy = stride(job, C.X), stride(job, C.Y)
        if order == 1:
            a, da = base(job, C.A, index), stride(job, C.A)
            if first == 0 and started:
                carry = load(base(job, C.A + 1, index), zero)
            for i in range(first, last):
                if stopping_at(i, ROWS_APART):
                    break
                value = load(x + i * dx, zero)
                if turned:
                    value = value + carry
                    carry = load(a + i * da, zero) * value
                else:
                    if i > 0 or started:
                        value = value + load(a + i * da, zero) * carry
                    carry = value
                store(y + i * dy, value)
            return carry
        for i in range(first, last):
            if stopping_at(i, ROWS_APART):
                break
            value = load(x + i * dx, zero)
            for k in range(1, order + 1):
                if i >= k:
                    at = base(job, C.A + k - 1, index) + (i - k if turned else i) * stride(job, C.A + k - 1)
                    value = value + load(at, zero) * load(y + (i - k) * dy, zero)
                elif started:
                    at = base(job, C.A + k - 1, index) + i * stride(job, C.A + k - 1)
                    value = value + load(at, zero) * load(base(job, C.A + order + k - i - 1, index), zero)
            store(y + i * dy, value)
        return carry

    @compiled
    def bind(zero, job, room, index, side, start):
        """Point the lanes at sequences from ``index`` on, ``side`` apart, at steps from ``start`` on.

        A ``side`` below 0: at chunks of as many steps of one sequence. Lanes behind the last sequence compute it too. A
        constant operand is copied as often as it is read at a time.
        """
        lanes, size = lanes_of(zero, ()), bytes_of_real(zero, ())
        room.end_to_end = 1 if side > 0 else 0
        for operand in range(read):
            step, table = stride(job, operand), room.addresses.lanes + operand * TABLE
            constant = room.addresses.constants + operand * LINE * MOST_LANES
            for lane in range(lanes):
                if side > 0:
                    at = base(job, operand, min(index + side * lane, job.sequences - 1)) + start * step
                else:
                    at = base(job, operand, index) + (start - side * lane) * step
                if step == 0:
                    value, copy = load(at, zero), constant + lane * LINE
                    for k in range(0, LINE, size):
                        store(copy + k, value)
                    at = copy
                    if job.flags & C.BACKWARD:
                        at = copy + LINE - size
                set_word(table + 8 * lane, at)
            ahead = lanes * (word(table + 8) - word(table))
            if step == 0 or (side > 0 and job.flags & C.FAR == 0):
                ahead = 0
            elif abs(ahead) >= NEXT_GROUP or side < 0:
                ahead = FAR_AHEAD if step > 0 else -FAR_AHEAD
            if step != size or ahead != lanes * size * job.steps:
                room.end_to_end = 0
            room.ahead[operand] = ahead
            room.step[operand] = step

    @compiled
    def begin(zero, job, room, index):
        """The state before the first step of all lanes."""
        lanes, size = lanes_of(zero, ()), bytes_of_real(zero, ())
        if job.flags & C.STARTED == 0:
            room.cut = (1 << lanes) - 1
            clear(zero, (room.addresses.state, order))
            return
        room.cut = 0
        for k in range(order):
            for lane in range(lanes):
                value = load(base(job, C.A + order + k, min(index + lane, job.sequences - 1)), zero)
                store(room.addresses.state + k * LINE + lane * size, value)

    return Order(base, stride, step_by_step, bind, begin)


@compiled
def whole_entries(zero, address, step):
    """Whether numbers that far apart all lie at multiples of their size."""
    return (address | step) % bytes_of_real(zero, ()) == 0
