"""One long sequence in blocks: a chunk in each lane, threads over blocks, the state handed on from block to block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.apart import bringing, first_of, step_of
from tridiag.kernels.recurrence.long_loops import scale
from tridiag.kernels.recurrence.loops import room_of
from tridiag.kernels.recurrence.order import Order, whole_entries
from tridiag.kernels.runtime.system import fresh, sched_yield
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import OPTIONS, compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import fetch_add, flush, load, set_word, store
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE

PIECE = 1024  # bytes of a lane that are computed at a time where the result lies apart, a multiple of the lanes
TRUSTED = 2.0**10  # products of coefficients up to this lose little to cancellation
READY, CARRIED, PLACE = 0, 8, 16  # of a block: whether the state behind it is there, and that state; bytes


@compiled
def reserve(job, zero):
    """Memory for the states between the blocks of long sequences; without it there is no task."""
    if job.kind != C.LONG:
        return
    size = PLACE * job.items
    memory = fresh(size)
    job.owned = memory
    if memory == 0:
        job.task = 0
        return
    for at in range(0, size, PLACE):
        set_word(memory + at + READY, 0)


def scaled_down(zero):
    """What undoes that a product was scaled up."""


@overload(scaled_down, jit_options=OPTIONS)
def _scaled_down(zero):
    real = np.dtype(str(zero)).type
    factor = real(1 / scale(real().itemsize)[1])
    return lambda zero: factor


@compiled
def scratch_size(zero, job):
    """The bytes of a piece of the result for every lane, where it lies apart."""
    return lanes_of(zero, ()) * PIECE if job.flags & C.APART else 0


def in_lines(library: Library, move: Any, run: Any, find_values: Any) -> Any:
    """The values of chunks; of a large result whole cache lines go past the caches.

    Where chunks begin does not depend on where cache lines do, so that neither does any bit of the result. One that
    lies apart is copied a piece at a time.
    """
    operands, scratch_at, bring = 3, -(-room_of(1).size() // LINE) * LINE, bringing(library)

    @compiled
    def move_on(zero, room, steps):
        for operand in range(operands):
            move(zero, (room.addresses.lanes + operand * TABLE, steps * room.step[operand]))

    @compiled
    def run_apart(zero, job, room, count):
        lanes, step, size = lanes_of(zero, ()), step_of(zero, job), bytes_of_real(zero, ())
        along, target, table = room.step[C.Y], room.lanes[0], room.addresses.lanes
        apart, most = room.lanes[1] - target, PIECE // size
        begin = first_of(zero, job, address_of(room) + scratch_at, most)
        room.step[C.Y] = step
        for lane in range(lanes):
            set_word(table + 8 * lane, begin + lane * PIECE)
        for done in range(0, count, most):
            if stopping():
                break
            some = min(most, count - done)
            find_values(zero, job, room, some, 0)
            bring(zero, lanes, some, (target + done * along, along, apart), (begin, step, PIECE))
            for operand in range(1, operands):
                move(zero, (table + operand * TABLE, some * room.step[operand]))

    @compiled
    def run_lines(zero, job, room, count):
        """A multiple of the lanes."""
        lanes, size, y, step = lanes_of(zero, ()), bytes_of_real(zero, ()), room.lanes[0], room.step[C.Y]
        if job.flags & C.APART:
            run_apart(zero, job, room, count)
            return
        if job.flags & C.LARGE == 0 or count < 3 * lanes or not whole_entries(zero, y, step):
            find_values(zero, job, room, count, 0)
            return
        first = (y + size if step < 0 else -y) % LINE // size  # steps before a line begins
        if first == 0:
            find_values(zero, job, room, count, 1)
            return
        room.cut = 0
        room.ahead[C.Y] = 0
        run(zero, job, room, lanes + first)
        move_on(zero, room, lanes + first)
        find_values(zero, job, room, count - 3 * lanes, 1)
        move_on(zero, room, count - 3 * lanes)
        run(zero, job, room, 2 * lanes - first)

    return run_lines


def in_blocks(made: Order, add_up: Any, run: Any) -> Any:
    step_by_step, bind = made.step_by_step, made.bind
    allocate, give_back = piece(room_of(1))

    @compiled
    def rescaled(zero, product, times, carry):
        """product * carry / factor**times, where only that is in range."""
        factor, total = scaled_down(zero), product * carry
        while times > 0 and total != 0:
            total = total * factor
            times -= 1
        return total

    @compiled
    def connect(zero, room, carry):
        """Put the state before every lane where it was told what the lane makes of 0.

        Returns the state behind them all, and whether it can be trusted."""
        sure, step = True, bytes_of_real(zero, ())
        for lane in range(lanes_of(zero, ())):
            state, product = room.addresses.state + lane * step, room.addresses.product + lane * step
            total, factor = load(state, zero), load(product, zero)
            behind = rescaled(zero, factor, load(product + LINE, zero), carry) + total
            sure = sure and abs(factor) <= TRUSTED and abs(behind) < np.inf and abs(total) < np.inf
            store(state, carry)
            carry = behind
        return carry, sure

    @compiled
    def await_state(zero, place):
        """The state behind a block, which some thread is at work on."""
        while fetch_add(place + READY, 0) == 0 and not stopping():
            sched_yield()
        return load(place + CARRIED, zero)

    @compiled
    def hand_on(place, state):
        store(place + CARRIED, state)
        fetch_add(place + READY, 1)

    @compiled
    def ask_for_block(zero, job, room):
        """From now on ask for the block that this thread will probably claim."""
        steps = (job.helpers + 1) * lanes_of(zero, ()) * job.chunk
        for operand in (C.X, C.A):
            room.ahead[operand] = steps * room.step[operand]

    @compiled
    def work_block(zero, job, room, index, block, place):
        lanes, n, chunk = lanes_of(zero, ()), job.steps, job.chunk
        start = 1 + block * lanes * chunk
        chunk = min(chunk, (n - start) // (lanes * lanes) * lanes)  # those of the last block are shorter
        end = start + lanes * chunk
        bind(zero, job, room, index, -chunk, start)
        add_up(zero, job, room, chunk)
        carry = step_by_step(zero, job, index, 0, 1, zero) if block == 0 else await_state(zero, place - PLACE)
        behind, sure = connect(zero, room, carry)
        if sure:
            hand_on(place, behind)
            ask_for_block(zero, job, room)
            run(zero, job, room, chunk)
        else:
            behind = step_by_step(zero, job, index, start, end, carry)
            hand_on(place, behind)
        if block == job.blocks - 1:
            step_by_step(zero, job, index, end, n, behind)

    @compiled
    def work(job, zero):
        """Blocks in the order in which they lie: the one before a block is done, or some thread is at work on it."""
        room, blocks = allocate(scratch_size(zero, job)), job.blocks
        if address_of(room) == 0:
            return
        while not stopping():
            item = fetch_add(job.addresses.next, 1)
            if item >= job.items:
                break
            work_block(zero, job, room, item // blocks, item % blocks, job.owned + PLACE * item)
        flush()
        give_back(room)

    return work
