"""Sequences that lie contiguous in memory, one in each lane."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.moves import put_past_caches
from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.loops import (
    HEIGHT,
    room_of,
)
from tridiag.kernels.recurrence.order import Order, whole_entries
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import flush, set_word, word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE

PIECE = 2048 + LINE  # bytes of a lane that are kept before they go to memory; lanes do not share a set of the caches


@compiled
def scratch_size(zero):
    """The bytes of a piece of the result for every lane."""
    return lanes_of(zero, ()) * (PIECE + HEIGHT * bytes_of_real(zero, ()))


def in_pieces(order: int, library: Library, move: Any, run: Any) -> Any:
    """The loop over steps; of a large result a piece at a time, which goes from scratch memory past the caches."""
    read, scratch_at = 2 + order, -(-room_of(order).size() // LINE) * LINE
    put = library.add("put_past_caches", put_past_caches)

    @compiled
    def put_pieces(zero, scratch, targets, move, size):
        """One of every lane, ``move`` bytes from where the lane lies; those that meet in memory go there as one."""
        lanes, lane = lanes_of(zero, ()), 0
        while lane < lanes:
            first, target = lane, word(targets + 8 * lane)
            lane += 1
            while lane < lanes and word(targets + 8 * lane) == target + (lane - first) * size:
                lane += 1
            put(zero, (scratch + first * size, 0, target + move, 0, (lane - first) * size, 1))

    @compiled
    def run_pieces(zero, job, room, count):
        lanes, size, y = lanes_of(zero, ()), bytes_of_real(zero, ()), room.addresses.lanes
        step, scratch, targets, places = room.step[C.Y], address_of(room) + scratch_at, room.addresses.targets, 0
        large = job.flags & C.LARGE
        for lane in range(lanes if large else 0):
            places |= word(y + 8 * lane)
            set_word(targets + 8 * lane, word(y + 8 * lane))
        if not large or not whole_entries(zero, places, step):
            run(zero, job, room, count)
            return
        most = PIECE // size
        done, steps = 0, count - (count - 1) // most * most
        if steps < HEIGHT and steps < count:
            steps += most
        room.ahead[C.Y] = 0
        if steps < count:
            room.end_to_end = 0
        while done < count and not stopping():
            last = (steps - 1) * step
            for lane in range(lanes):
                set_word(y + 8 * lane, scratch + lane * steps * size - min(0, last))
            run(zero, job, room, steps)
            put_pieces(zero, scratch, targets, done * step + min(0, last), steps * size)
            for operand in range(1, read):
                move(zero, (y + operand * TABLE, steps * room.step[operand]))
            room.cut = 0
            done, steps = done + steps, most
        for lane in range(lanes):
            set_word(y + 8 * lane, word(targets + 8 * lane))
        for operand in range(1, read):
            move(zero, (y + operand * TABLE, -count * room.step[operand]))

    return run_pieces


def advance(made: Order, order: int, move: Any) -> Any:
    """Point the lanes at the sequences behind those that they are pointed at."""
    bind, read = made.bind, 2 + order
    strides_at = C.TABLE + 2 * C.operands(order) + 1

    @compiled
    def follow(zero, job, room, first):
        if job.axes == 1:
            for operand in range(read):
                step = field(job, strides_at + operand)
                if room.step[operand] == 0 and step != 0:  # its copies are of other sequences
                    break
                if room.step[operand] != 0:
                    move(zero, (room.addresses.lanes + operand * TABLE, step * lanes_of(zero, ())))
            else:
                return
        bind(zero, job, room, first, 1, 0)

    return follow


def in_rows(made: Order, order: int, move: Any, run: Any) -> Any:
    bind, begin = made.bind, made.start
    allocate, give_back = piece(room_of(order))
    follow = advance(made, order, move)

    @compiled
    def work(job, zero):
        """Sequences that lie contiguous in memory, one in each lane.

        Lanes that the last group leaves over repeat its last sequence, and none that another thread may be writing.
        """
        room, lanes = allocate(scratch_size(zero)), lanes_of(zero, ())
        if address_of(room) == 0:
            return
        groups, count, n = job.run, job.sequences, job.steps
        last = (count + lanes - 1) // lanes
        for item in items(job):
            for group in range(item * groups, min(last, (item + 1) * groups)):
                if stopping():
                    break  # before lanes are moved on from where they were left
                first = group * lanes
                if group > item * groups and first + lanes <= count:
                    follow(zero, job, room, first)
                else:
                    bind(zero, job, room, first, 1, 0)
                begin(zero, job, room, first)
                run(zero, job, room, n)
        flush()
        give_back(room)

    return work
