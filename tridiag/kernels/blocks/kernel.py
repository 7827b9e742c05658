"""Block tridiagonal systems: one in each lane, eliminated as by `tridiag.algorithms.block_elimination`.

Those of small blocks are eliminated by columns (`by_columns`).

Pivot rows are kept for the way back. Of long systems there would be too many: of each stretch of block rows only the
rows with which it begins are kept, and it is eliminated once more on the way back.
"""

from __future__ import annotations

import numpy as np
from numba import types

from tridiag.kernels.access.operands import QUAD, bytes_of_row, lanes_of
from tridiag.kernels.access.sequences import TABLE, binder, places
from tridiag.kernels.blocks import by_columns
from tridiag.kernels.blocks.loops import ABOVE, BELOW, OPERANDS, OWN, RIGHT, Loops, X, copy_rows, room_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, free
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

KEPT = 16 * 1024 * 1024  # bytes of pivot rows that a worker keeps

JOB = RecordAt(Recurrences)


def build(dtype: str, m: int):
    """The C function void run(job, helpers) for a dtype and blocks of m rows."""
    if m <= C.WRITTEN_OUT:
        return by_columns.build(dtype, m)
    zero, loops, library = np.zeros((), dtype)[()], Loops(m), Library(f"block_loops{m}")
    load_block, load_sides = library.add("load_block", loops.load_block), library.add("load_sides", loops.load_sides)
    store_sides, clear = library.add("store_sides", loops.store_sides), library.add("clear", loops.clear)
    eliminate, carry = library.add("eliminate", loops.eliminate), library.add("carry", loops.carry)
    copy = library.add("copy", copy_rows)
    substitute, bind, (stride, _) = library.add("substitute", loops.substitute), binder(OPERANDS), places(OPERANDS)
    allocate, give_back = piece(room_of(m, OPERANDS))

    @compiled
    def block(zero, job, room, operand, i, target, wide):
        """Block i of an operand to its place."""
        turned = 1 if job.flags & C.TRANSPOSED else 0
        load_block(zero, (turned, room.addresses.lanes + TABLE * operand, i * stride(job, operand), target, wide))

    @compiled
    def load(zero, job, room, i, target, wide, column):
        """Block row i, its own block from a column on."""
        n, sides, row = job.steps, job.sides, bytes_of_row(zero, ())
        turned, at = job.flags & C.TRANSPOSED != 0, target + column * row
        if i > 0:
            block(zero, job, room, ABOVE if turned else BELOW, i - 1 if turned else i, at - m * row, wide)
        block(zero, job, room, OWN, i, at, wide)
        if i < n - 1:
            block(zero, job, room, BELOW if turned else ABOVE, i + 1 if turned else i, at + m * row, wide)
        else:
            clear(zero, (at + m * row, m, m, wide))
        right = target + 3 * m * row
        load_sides(zero, (room.addresses.lanes + TABLE * RIGHT, i * stride(job, RIGHT), right, wide, sides))

    @compiled
    def forward(zero, job, room, memory, first, last, wide):
        """Eliminate the block columns first <= i < last; their carried rows lie at ``memory``, and go on behind."""
        n, high, count = job.steps, m * wide, wide // bytes_of_row(zero, ())
        for i in range(first, last):
            panel = memory + (i - first) * high
            if stopping_at(i, 64):
                return
            if i < n - 1:
                load(zero, job, room, i + 1, panel + high, wide, m)
                eliminate(zero, (room, panel, 2 * m, wide, count))
                carry(zero, (panel + high, wide))
            else:
                eliminate(zero, (room, panel, m, wide, count))

    @compiled
    def backward(zero, job, room, memory, first, last, wide):
        """The solution of these block rows, last one first; that of the two behind them is there."""
        sides, right = job.sides, 3 * m * bytes_of_row(zero, ())
        for i in range(last - 1, first - 1, -1):
            if stopping_at(i, 64):
                return
            panel = memory + (i - first) * m * wide
            substitute(zero, (panel, wide, sides))
            place = room, room.addresses.lanes + TABLE * X, i * stride(job, X), panel + right, wide, sides
            store_sides(zero, place)

    @compiled
    def solve(zero, job, room, memory, length, wide):
        """The systems at which the lanes are pointed, in stretches of so many block rows."""
        n, sides, row, high = job.steps, job.sides, bytes_of_row(zero, ()), m * wide
        used, stretches = 3 * m + sides, (n + length - 1) // length
        ahead = memory + (length + 2) * high  # the two block rows behind a stretch; then what every stretch begins with
        starts = ahead + 2 * high
        for k in range(LINE // 8):
            room.poison[k] = 0
        clear(zero, (memory + used * row, (length + 2) * m, wide // row - used, wide))
        clear(zero, (ahead + 3 * m * row, 2 * m, sides, wide))
        clear(zero, (memory + 2 * m * row, m, m, wide))
        load(zero, job, room, 0, memory, wide, 0)
        for k in range(stretches):
            copy(zero, (memory, starts + k * high, high))
            last = min(n, (k + 1) * length)
            forward(zero, job, room, memory, k * length, last, wide)
            if k < stretches - 1:
                copy(zero, (memory + length * high, memory, high))
        for k in range(stretches - 1, -1, -1):
            first, last = k * length, min(n, (k + 1) * length)
            if k < stretches - 1:
                copy(zero, (starts + k * high, memory, high))
                forward(zero, job, room, memory, first, last, wide)
            copy(zero, (ahead, memory + (last - first) * high, 2 * high))
            backward(zero, job, room, memory, first, last, wide)
            copy(zero, (memory, ahead, 2 * high))

    @compiled
    def work(job, zero):
        lanes, n = lanes_of(zero, ()), job.steps
        wide = (3 * m + job.sides + QUAD - 1) // QUAD * QUAD * bytes_of_row(zero, ())
        length = min(n, max(2, KEPT // (m * wide)))
        panels = length + 4 + (n + length - 1) // length
        room, memory = allocate(types.int64(0)), fresh(panels * m * wide + LINE)
        begin = (memory + LINE - 1) // LINE * LINE
        groups, last = job.run, (job.sequences + lanes - 1) // lanes
        if address_of(room) != 0 and memory != 0:
            for item in items(job):
                for group in range(item * groups, min(last, (item + 1) * groups)):
                    bind(zero, job, room.addresses.lanes, group * lanes, lanes)
                    solve(zero, job, room, begin, length, wide)
        free(memory)
        if address_of(room) != 0:
            give_back(room)

    return runner(zero, c_function(work, f"tridiag_block_work{m}", first=JOB))
