"""The driver of products: claims units of rows, finds where what an entry needs lies, and runs the loops over entries.

Where all operands lie as the result does, or are constant, everything is one sequence of entries: what is in the row
before lies ``edge`` entries before, and rows at the ends of a matrix are told by their places. Operands that lie in any
other way are walked row by row, or column by column, and brought side by side where they are not.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit

from tridiag.kernels.access.operands import bytes_of_real, parts_of
from tridiag.kernels.jobs.words import products as P
from tridiag.kernels.jobs.words.products import Products
from tridiag.kernels.products.loops import (
    AFTER,
    BEFORE,
    DIAGONAL,
    HIGH,
    KEEP,
    KEEP_AFTER,
    KEEP_BEFORE,
    LOW,
    OWN,
    PIECE,
    SOURCES,
    Sources,
    masked,
    past_caches,
    plain,
)
from tridiag.kernels.products.streams import FEWEST_VECTORS, stream
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.runtime.workspace import workspace
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import c_function, flush, load, store, variable
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE, OPTIONS

JOB = RecordAt(Products)
ARRAYS, allocate, free_workspace = workspace(Sources, "packed")
library = Library("matrix_products")
BYTE = np.int8(0)
multiply, multiply_past_caches, multiply_masked = (
    library.add(loop.__name__, loop) for loop in (plain, past_caches, masked)
)
stream_uniform, stream_uniform_past_caches, stream_mixed, stream_mixed_past_caches = (
    library.add(f"stream_{uniform}_{past_caches}", functools.partial(stream, uniform, past_caches))
    for uniform in (True, False)
    for past_caches in (False, True)
)


@njit(**OPTIONS)
def bytes_of(zero):
    """Of a number."""
    return bytes_of_real(zero, ()) * parts_of(zero, ())


@njit(**OPTIONS)
def bind(job, worker, unit):
    """Find the first row of every operand of a unit."""
    for operand in range(P.OPERANDS):
        at, index = job.pointers[operand], unit
        for k in range(job.axes - 1, -1, -1):
            axis = P.AXES + P.AXIS_WORDS * k
            length = field(job, axis)
            at += index % length * field(job, axis + 1 + operand)
            index //= length
        worker.base[operand] = at


@njit(**OPTIONS)
def point(job, worker, source, operand, row):
    """Let a source be an operand from some row on."""
    worker.at[source] = worker.base[operand] + row * job.strides[operand]
    worker.step[source] = job.steps[operand]


@njit(**OPTIONS)
def point_at_row(job, worker, first, before, after):
    """Let all sources be those of the entries from row ``first`` on, whose neighbours are in two other rows."""
    turned = job.flags & P.TRANSPOSE != 0
    point(job, worker, DIAGONAL, P.B, first)
    point(job, worker, OWN, P.X, first)
    point(job, worker, LOW, P.C if turned else P.A, before if turned else first)
    point(job, worker, BEFORE, P.X, before)
    point(job, worker, HIGH, P.A if turned else P.C, after if turned else first)
    point(job, worker, AFTER, P.X, after)
    if job.flags & P.MASKED:
        point(job, worker, KEEP, P.WHERE, first)
        point(job, worker, KEEP_BEFORE, P.WHERE, before)
        point(job, worker, KEEP_AFTER, P.WHERE, after)


@njit(**OPTIONS)
def multiply_rows(zero, job, worker, first, count, top, bottom):
    """Entries of one row, or ``count`` rows of one entry, from row ``first`` on, at an end of the matrix or not."""
    edge, cycle, around = job.edge, job.cycle, job.flags & P.PERIODIC != 0
    gone_before, gone_after = top and not around, bottom and not around
    before = first + (0 if gone_before else cycle - edge if top else -edge)
    after = first + (0 if gone_after else edge - cycle if bottom else edge)
    point_at_row(job, worker, first, before, after)
    y, period, place = worker.base[P.Y] + first * job.strides[P.Y], job.period, 0
    if period:
        place, low, high = first % period, edge, period - edge
    else:
        period, low, high = 1, 1 if gone_before else 0, 0 if gone_after else 1
    pieces(zero, job, worker, y, job.width if job.width else count, place, period, low, high)


@njit(**OPTIONS)
def multiply_together(zero, job, worker, first, last):
    """Entries first <= i < last of matrices end to end."""
    edge, period = job.edge, job.period
    point_at_row(job, worker, first, first - edge, first + edge)
    for k in range(KEEP):
        pack(zero, worker, k, 0, 0, bytes_of(zero))
    top, bottom = min(max(0, edge - first), last - first), min(max(0, last - job.length + edge), last - first)
    place, y = first % period, worker.base[P.Y] + first * job.strides[P.Y]
    if period >= 2 * edge + FEWEST_VECTORS * (LINE // bytes_of_real(zero, ())):
        beginning = -place if place < edge else period - place
        run_stream(zero, job, worker, y, last - first, (top, bottom, beginning, period, edge))
        return
    words = worker, y, last - first, top, bottom, place, period, edge, period - edge
    if job.flags & P.LARGE:
        multiply_past_caches(zero, words)
    else:
        multiply(zero, words)


@njit(**OPTIONS)
def run_stream(zero, job, worker, y, count, ends):
    """The loop over the entries of a stream, the words of which say where matrices begin and end."""
    words, uniform = (worker, y, count, *ends), True
    for k in range(KEEP):
        uniform = uniform and worker.move[k] != 0
    if job.flags & P.LARGE:
        if uniform:
            stream_uniform_past_caches(zero, words)
        else:
            stream_mixed_past_caches(zero, words)
    elif uniform:
        stream_uniform(zero, words)
    else:
        stream_mixed(zero, words)


@njit(**OPTIONS)
def pieces(zero, job, worker, y, count, place, period, low, high):
    """Entries whose sources are known: at once where these lie side by side, else a PIECE at a time."""
    size, kinds = bytes_of(zero), SOURCES if job.flags & P.MASKED else KEEP
    length = count
    for k in range(kinds):
        if worker.step[k] != 0 and worker.step[k] != (size if k < KEEP else 1):
            length = min(PIECE, count)
    for first in range(0, count, length):
        if length < count and stopping():
            break
        some = min(length, count - first)
        for k in range(kinds):
            pack(zero, worker, k, first, some, size if k < KEEP else 1)
        words = worker, y + first * size, some, 0, 0, (place + first) % period, period, low, high
        if job.flags & P.MASKED:
            multiply_masked(zero, words)
        elif low == 0 and high == period:  # all have both neighbours
            run_stream(zero, job, worker, y + first * size, some, (0, 0, some, 1, 0))
        elif job.flags & P.LARGE:
            multiply_past_caches(zero, words)
        else:
            multiply(zero, words)


@njit(**OPTIONS)
def pack(zero, worker, k, first, count, size):
    """Tell the loops where to find some entries of a source: in place, or copied side by side."""
    at, step = worker.at[k], worker.step[k]
    at += first * step
    worker.source[k], worker.move[k] = at, step
    if step == size:
        return
    room = worker.packed + k * worker.room
    worker.source[k], worker.move[k] = room, size
    if step == 0:
        count, worker.move[k] = LINE // bytes_of_real(zero, ()), 0
    for i in range(variable(count)):
        if k < KEEP:
            store(room + i * size, load(at + i * step, zero))
        else:
            store(room + i, load(at + i * step, BYTE))


@njit(**OPTIONS)
def room_of_source(zero, job):
    """The bytes of the entries of a source that are brought side by side, or of copies of a constant one."""
    size, room = bytes_of(zero), 0
    for operand in range(P.X, P.OPERANDS):
        step, alone = job.steps[operand], 1 if operand == P.WHERE else size
        if step == 0 and (operand != P.WHERE or job.flags & P.MASKED):
            room = max(room, LINE // bytes_of_real(zero, ()) * size)
        elif step != 0 and step != alone:
            room = PIECE * size
    return room


@njit(**OPTIONS)
def multiply_unit(zero, job, worker, first, last):
    """Rows first <= i < last of a unit: the first of each matrix, those between, and the last one."""
    edge, cycle = job.edge, job.cycle
    few = edge < LINE // bytes_of_real(zero, ())  # entries of a row: not worth a loop of their own
    if few and job.period > edge and job.flags & P.MASKED == 0:
        multiply_together(zero, job, worker, first, last)
        return
    begin = first // cycle * cycle
    while begin < last:
        for part in range(2 if cycle == edge else 3):
            low, high = begin, begin + edge
            if part == 1:
                low, high = begin + edge, begin + cycle - edge
            elif part == 2:
                low, high = begin + cycle - edge, begin + cycle
            low, high = max(first, low), min(last, high)
            top, bottom = part == 0, part == 2 or cycle == edge
            if job.width == 0:
                if low < high:
                    multiply_rows(zero, job, worker, low, high - low, top, bottom)
            else:
                for row in range(low, high):
                    multiply_rows(zero, job, worker, row, 1, top, bottom)
        begin += cycle
        if stopping():
            break


@njit(**OPTIONS)
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    room = room_of_source(zero, job)
    worker = allocate(ARRAYS(packed=SOURCES * room))
    if address_of(worker) == 0:
        return
    worker.room = room
    blocks, block, run, length = job.blocks, job.block, job.run, job.length
    for item in items(job):
        for place in range(item * run, min((item + 1) * run, job.units * blocks)):
            first = place % blocks * block
            bind(job, worker, place // blocks)
            multiply_unit(zero, job, worker, first, min(length, first + block))
    if job.flags & P.LARGE:
        flush()
    free_workspace(worker)


task = c_function(work, "tridiag_products", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
