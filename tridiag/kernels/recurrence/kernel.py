"""Linear recurrences: one sequence in each lane, or one chunk of a long sequence, and threads over groups of lanes.

A long sequence is cut into blocks of lanes, which threads claim in turn. What a chunk makes of 0, and the product of
its coefficients, is found in one pass over a block, by joining neighbours; the state before it comes from the block
before; a second pass, while the block is in cache, computes the values. Where a product or a sum cannot be trusted, the
block is computed step by step.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.recurrence.contiguous import in_pieces, in_rows
from tridiag.kernels.recurrence.interleaved import side_by_side
from tridiag.kernels.recurrence.long import in_blocks, in_lines, reserve
from tridiag.kernels.recurrence.long_loops import Sum, Values
from tridiag.kernels.recurrence.loops import Loop, move_lanes
from tridiag.kernels.recurrence.order import dispatch, functions
from tridiag.kernels.recurrence.scalar import one_after_another
from tridiag.kernels.recurrence.streams import in_streams
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt

JOB = RecordAt(Recurrences)


def build(dtype: str, order: int):
    """The C function void run(job, helpers) for a dtype and an order."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, *parts(order, zero.dtype.kind == "f"))


@functools.cache
def parts(order: int, real: bool) -> Any:
    """The task and the preparation of a kernel, for all dtypes of real, or of complex, numbers."""
    made, library = functions(order), Library(f"{'loops' if real else 'complex'}{order}")
    scalar, interleaved = one_after_another(made, order, library, real), side_by_side(made, order, library)
    if not real:
        return (c_function(by_kind([scalar, scalar, interleaved]), f"tridiag_complex_work{order}", first=JOB),)
    loops = [Loop(order, turned, backward) for turned in (False, True) for backward in (False, True)]
    move, run = library.add("move", move_lanes), dispatch(library, loops)
    rows = in_rows(made, order, move, in_pieces(order, library, move, run))
    tasks = [scalar, rows, interleaved]
    if order == 1:
        add_up, find_values = (dispatch(library, [kind(loop) for loop in loops]) for kind in (Sum, Values))
        tasks.append(in_blocks(made, add_up, in_lines(library, move, run, find_values)))
        tasks.append(in_streams(made, library))
    prepare = c_function(reserve, f"tridiag_reserve{order}", first=JOB) if order == 1 else None
    return c_function(by_kind(tasks), f"tridiag_work{order}", first=JOB), prepare


def by_kind(tasks: list[Any]) -> Any:
    """The work of a job of any kind."""
    scalar, rows, interleaved = tasks[:3]
    long, stream = tasks[-2:]

    @compiled
    def work(job, zero):
        kind = job.kind
        if kind == C.SCALAR:
            scalar(job, zero)
        elif kind == C.ROWS:
            rows(job, zero)
        elif kind == C.LONG:
            long(job, zero)
        elif kind == C.STREAM:
            stream(job, zero)
        else:
            interleaved(job, zero)

    return work
