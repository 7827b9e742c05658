"""Block tridiagonal systems of small blocks: one in each lane, eliminated by columns (`column_loops`).

Pivot rows are kept for the way back. Of long systems there would be too many: of each stretch of block rows only the
panel with which it begins is kept, and it is eliminated once more on the way back. Where registers are narrow, the
lanes of one go through a stretch before the next ones.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.access.sequences import TABLE, binder
from tridiag.kernels.blocks.column_loops import NOTHING, ColumnLoops, room_of
from tridiag.kernels.blocks.loops import OPERANDS, copy_rows
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, emitted
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import c_function, set_word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.registers import narrow

KEPT = 16 * 1024 * 1024  # bytes of pivot rows that a worker keeps

JOB = RecordAt(Recurrences)


def build(dtype: str, m: int):
    """The C function void run(job, helpers) for a dtype and blocks of m rows."""
    zero, loops, library, bind = np.zeros((), dtype)[()], ColumnLoops(m), Library(f"block_columns{m}"), binder(OPERANDS)
    begin, finish = library.add("begin", loops.begin), library.add("finish", loops.finish)
    forward = library.add("forward", loops.forward)
    backward, copy = library.add("backward", loops.backward), library.add("copy", copy_rows)
    clear = library.add("clear", loops.clear)
    bytes_of_panel = emitted(lambda code, sides: loops.rows_of_panel(sides) * code.row)
    bytes_kept = emitted(lambda code, sides: loops.rows_kept(sides) * code.row)
    lanes_together = emitted(lambda code: code.integer(narrow(code)[0][0].lanes))
    record = room_of(m)
    zeros = 8 * record.fields["zeros"].count  # bytes
    arrays, allocate, give_back = workspace(record, "panel", "kept", "ahead", "starts", pooled=True)

    @compiled
    def down(zero, job, room, first, last, used):
        for lane in range(0, used, lanes_together(zero, ())):
            forward(zero, (job, room, lane, first, min(last, job.steps - 1)))
            if last == job.steps:
                finish(zero, (job, room, lane, last - 1 - first))

    @compiled
    def solve(zero, job, room, length, used):
        """The systems at which the lanes are pointed, in stretches of so many block rows; so many lanes are used.

        What is left over is the first stretch, so that as many block rows as can be are eliminated once.
        """
        n, size, high = job.steps, bytes_of_panel(zero, (job.sides,)), bytes_kept(zero, (job.sides,))
        stretches, together = (n + length - 1) // length, lanes_together(zero, ())
        for lane in range(0, used, together):
            begin(zero, (job, room, lane))
        for k in range(stretches):
            if k > 0 and stopping():
                return
            last = n - (stretches - 1 - k) * length
            if k < stretches - 1:
                copy(zero, (room.panel, room.starts + k * size, size))
            down(zero, job, room, max(0, last - length), last, used)
        for k in range(stretches - 1, -1, -1):
            last = n - (stretches - 1 - k) * length
            first = max(0, last - length)
            behind = room.kept + (last - first) * high
            if k == stretches - 1:
                clear(zero, (behind, 2 * high))
            else:
                if stopping():
                    return
                copy(zero, (room.kept, room.ahead, 2 * high))
                copy(zero, (room.starts + k * size, room.panel, size))
                down(zero, job, room, first, last, used)
                copy(zero, (room.ahead, behind, 2 * high))
            for lane in range(0, used, together):
                backward(zero, (job, room, lane, first, last))

    @compiled
    def work(job, zero):
        lanes, n = lanes_of(zero, ()), job.steps
        size, high = bytes_of_panel(zero, (job.sides,)), bytes_kept(zero, (job.sides,))
        length = min(n, max(2, KEPT // high))
        starts = (n + length - 1) // length * size
        room = allocate(arrays(panel=size, kept=(length + 2) * high, ahead=2 * high, starts=starts))
        if address_of(room) == 0:
            return
        nothing = room.addresses.zeros
        clear(zero, (nothing, zeros))
        for lane in range(lanes):
            set_word(room.addresses.lanes + TABLE * NOTHING + 8 * lane, nothing)
        groups, last = job.run, (job.sequences + lanes - 1) // lanes
        for item in items(job):
            for group in range(item * groups, min(last, (item + 1) * groups)):
                bind(zero, job, room.addresses.lanes, group * lanes, lanes)
                solve(zero, job, room, length, min(lanes, job.sequences - group * lanes))
        give_back(room)

    return runner(zero, c_function(work, f"tridiag_block_columns_work{m}", first=JOB))
