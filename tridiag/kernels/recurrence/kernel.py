"""Linear recurrences: one sequence in each lane, or one chunk of a long sequence, and threads over groups of lanes.

A long sequence is cut into blocks of lanes, which threads claim in turn. What a chunk makes of 0, and the product of
its coefficients, is found in one pass over a block, by joining neighbours; the state before it comes from the block
before; a second pass, while the block is in cache, computes the values. Where a product or a sum cannot be trusted, the
block is computed step by step.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from tridiag.kernels.access.load_store import NEXT_GROUP, bytes_of_real, lanes_of, put_past_caches
from tridiag.kernels.access.sequences import TABLE, places
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.recurrence.loops import (
    FAR_AHEAD,
    HEIGHT,
    MOST_LANES,
    Loop,
    Sum,
    Values,
    clear,
    interleaved,
    move_lanes,
    room_of,
    scale,
    spread,
)
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import claim, field
from tridiag.kernels.runtime.workspace import allocate_workspace, free_workspace, piece
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE as ROWS_APART
from tridiag.kernels.simd.interrupts import stopping, stopping_at
from tridiag.kernels.simd.memory import c_function, fetch_add, flush, load, malloc, set_word, store, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE, OPTIONS

TRUSTED = 2.0**10  # products of coefficients up to this lose little to cancellation
PIECE = 2048 + LINE  # bytes of a lane that are kept before they go to memory; lanes do not share a set of the caches
READY, CARRIED, PLACE = 0, 8, 16  # of a block: whether the state behind it is there, and that state; bytes

JOB = RecordAt(Recurrences)


_yield = types.ExternalFunction("sched_yield", types.int32())


class Order(NamedTuple):
    """What is compiled for an order."""

    base: Any  # the address of the first step of an operand of a sequence
    stride: Any
    step_by_step: Any
    bind: Any
    start: Any


def build(dtype: str, order: int):
    """The C function void run(job, helpers) for a dtype and an order."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, *parts(order, zero.dtype.kind == "f"))


@functools.cache
def parts(order: int, real: bool) -> Any:
    """The task and the preparation of a kernel, for all dtypes of real, or of complex, numbers."""
    made = functions(order)
    if not real:
        return (c_function(one_by_one(made), f"tridiag_work{order}", first=JOB),)
    library = Library(f"loops{order}")
    loops = [Loop(order, turned, backward) for turned in (False, True) for backward in (False, True)]
    move, run = library.add("move", move_lanes), dispatch(library, loops)
    rows = in_rows(made, order, move, in_pieces(order, library, move, run))
    tasks = [one_by_one(made), rows, side_by_side(made, order, library)]
    if order == 1:
        add_up, find_values = (dispatch(library, [kind(loop) for loop in loops]) for kind in (Sum, Values))
        tasks.append(in_blocks(made, add_up, in_lines(move, run, find_values)))
    prepare = c_function(reserve, f"tridiag_reserve{order}", first=JOB) if order == 1 else None
    return c_function(by_kind(tasks), f"tridiag_work{order}", first=JOB), prepare


def by_kind(tasks: list[Any]) -> Any:
    """The work of a job of any kind."""
    scalar, rows, interleaved = tasks[:3]
    long = tasks[-1]

    @njit(**OPTIONS)
    def work(job, zero):
        kind = job.kind
        if kind == C.SCALAR:
            scalar(job, zero)
        elif kind == C.ROWS:
            rows(job, zero)
        elif kind == C.LONG:
            long(job, zero)
        else:
            interleaved(job, zero)

    return work


@njit(**OPTIONS)
def reserve(job, zero):
    """Memory for the states between the blocks of long sequences; without it there is no task."""
    if job.kind != C.LONG:
        return
    size = PLACE * job.items
    memory = malloc(types.uint64(size))
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


def dispatch(library: Library, loops: list[Any]) -> Any:
    """The loops over steps, of which the flags of a job choose one."""
    forward, backward, turned_forward, turned_backward = (library.add(loop.name, loop.write) for loop in loops)

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
    def bind(zero, job, room, index, side, start):
        """Point the lanes at sequences from ``index`` on, ``side`` apart, at steps from ``start`` on.

        A ``side`` below 0: at chunks of as many steps of one sequence. A constant operand is copied as often as it is
        read at a time.
        """
        lanes, size = lanes_of(zero, ()), bytes_of_real(zero, ())
        for operand in range(read):
            step, table = stride(job, operand), room.addresses.lanes + operand * TABLE
            constant = room.addresses.constants + operand * LINE * MOST_LANES
            for lane in range(lanes):
                if side > 0:
                    at = base(job, operand, index + side * lane) + start * step
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
            if step == 0:
                ahead = 0
            elif abs(ahead) >= NEXT_GROUP or side < 0:
                ahead = FAR_AHEAD if step > 0 else -FAR_AHEAD
            room.ahead[operand] = ahead
            room.step[operand] = step

    @njit(**OPTIONS)
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
                value = load(base(job, C.A + order + k, index + lane), zero)
                store(room.addresses.state + k * LINE + lane * size, value)

    return Order(base, stride, step_by_step, bind, begin)


def one_by_one(made: Order) -> Any:
    step_by_step = made.step_by_step

    @njit(**OPTIONS)
    def work(job, zero):
        """Sequences in any place."""
        run, count, n = job.run, job.sequences, job.steps
        while True:
            item = claim(job)
            if item < 0:
                return
            for index in range(item * run, min(count, (item + 1) * run)):
                step_by_step(zero, job, index, 0, n, zero)

    return work


@njit(**OPTIONS)
def scratch_size(zero):
    """The bytes of a piece of the result for every lane."""
    return lanes_of(zero, ()) * (PIECE + HEIGHT * bytes_of_real(zero, ()))


@njit(**OPTIONS)
def whole_entries(zero, address, step):
    """Whether numbers that far apart all lie at multiples of their size."""
    return (address | step) % bytes_of_real(zero, ()) == 0


def in_pieces(order: int, library: Library, move: Any, run: Any) -> Any:
    """The loop over steps; of a large result a piece at a time, which goes from scratch memory past the caches."""
    read, scratch_at = 2 + order, -(-room_of(order).size() // LINE) * LINE
    put = library.add("put_past_caches", put_past_caches)

    @njit(**OPTIONS)
    def put_pieces(zero, scratch, targets, move, size):
        """One of every lane, ``move`` bytes from where the lane lies; those that meet in memory go there as one."""
        lanes, lane = lanes_of(zero, ()), 0
        while lane < lanes:
            first, target = lane, word(targets + 8 * lane)
            lane += 1
            while lane < lanes and word(targets + 8 * lane) == target + (lane - first) * size:
                lane += 1
            put(zero, (scratch + first * size, 0, target + move, 0, (lane - first) * size, 1))

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
    def work(job, zero):
        """Sequences that lie contiguous in memory, one in each lane; the last group repeats some of the one before."""
        room, lanes = allocate(scratch_size(zero)), lanes_of(zero, ())
        if address_of(room) == 0:
            return
        groups, count, n = job.run, job.sequences, job.steps
        last = (count + lanes - 1) // lanes
        while True:
            item = claim(job)
            if item < 0:
                break
            for group in range(item * groups, min(last, (item + 1) * groups)):
                if stopping():
                    break  # before lanes are moved on from where they were left
                first = min(group * lanes, count - lanes)
                if group > item * groups and first == group * lanes:
                    follow(zero, job, room, first)
                else:
                    bind(zero, job, room, first, 1, 0)
                begin(zero, job, room, first)
                run(zero, job, room, n)
        flush()
        give_back(room)

    return work


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
        while True:
            item = claim(job)
            if item < 0:
                break
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


def in_lines(move: Any, run: Any, find_values: Any) -> Any:
    """The values of chunks; of a large result whole cache lines go past the caches.

    Where chunks begin does not depend on where cache lines do, so that neither does any bit of the result.
    """
    operands = 3

    @njit(**OPTIONS)
    def move_on(zero, room, steps):
        for operand in range(operands):
            move(zero, (room.addresses.lanes + operand * TABLE, steps * room.step[operand]))

    @njit(**OPTIONS)
    def run_lines(zero, job, room, count):
        """A multiple of the lanes."""
        lanes, size, y, step = lanes_of(zero, ()), bytes_of_real(zero, ()), room.lanes[0], room.step[C.Y]
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

    @njit(**OPTIONS)
    def rescaled(zero, product, times, carry):
        """product * carry / factor**times, where only that is in range."""
        factor, total = scaled_down(zero), product * carry
        while times > 0 and total != 0:
            total = total * factor
            times -= 1
        return total

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
    def await_state(zero, place):
        """The state behind a block, which some thread is at work on."""
        while fetch_add(place + READY, 0) == 0 and not stopping():
            _yield()
        return load(place + CARRIED, zero)

    @njit(**OPTIONS)
    def hand_on(place, state):
        store(place + CARRIED, state)
        fetch_add(place + READY, 1)

    @njit(**OPTIONS)
    def ask_for_block(zero, job, room):
        """From now on ask for the block that this thread will probably claim."""
        steps = (job.helpers + 1) * lanes_of(zero, ()) * job.chunk
        for operand in (C.X, C.A):
            room.ahead[operand] = steps * room.step[operand]

    @njit(**OPTIONS)
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

    @njit(**OPTIONS)
    def work(job, zero):
        """Blocks in the order in which they lie: the one before a block is done, or some thread is at work on it."""
        room, blocks = allocate(types.int64(0)), job.blocks
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
