"""The driver of products: claims units of rows, finds where what an entry needs lies, and runs the loops over entries.

Where all operands lie as the result does, or are constant, everything is one sequence of entries: what is in the row
before lies ``edge`` entries before, and rows at the ends of a matrix are told by their places. Operands that lie in any
other way are walked row by row, or column by column, and brought side by side where they are not; or entry by entry.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_number, bytes_of_real, lanes_of
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
    SOURCES,
    Sources,
    long_rows,
    long_rows_past_caches,
    masked,
    past_caches,
    plain,
)
from tridiag.kernels.products.one_by_one import bind, multiply_one_by_one
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import c_function, flush, load, store, variable
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

JOB = RecordAt(Products)
ARRAYS, allocate, free_workspace = workspace(Sources, "packed")
library = Library("matrix_products")
BYTE = np.int8(0)
multiply, multiply_past_caches, multiply_masked, multiply_long, multiply_long_past_caches = (
    library.add(loop.__name__, loop) for loop in (plain, past_caches, masked, long_rows, long_rows_past_caches)
)
LONG = 4  # vectors of a row from which on those between its edges are told beforehand
INSIDE = 2**62  # the period of entries none of which is at an edge


@compiled
def point(job, worker, source, operand, row):
    """Let a source be an operand from some row on."""
    worker.at[source] = worker.base[operand] + row * job.strides[operand]
    worker.step[source] = job.steps[operand]


@compiled
def multiply_rows(zero, job, worker, first, count, top, bottom):
    """Entries of one row, or ``count`` rows of one entry, from row ``first`` on, at an end of the matrix or not."""
    edge, cycle, turned = job.edge, job.cycle, job.flags & P.TRANSPOSE != 0
    around, entries = job.flags & P.PERIODIC != 0, job.width if job.width else count
    gone_before, gone_after = top and not around, bottom and not around
    before = first + (0 if gone_before else cycle - edge if top else -edge)
    after = first + (0 if gone_after else edge - cycle if bottom else edge)
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
    y, period, place = worker.base[P.Y] + first * job.strides[P.Y], job.period, 0
    if period:
        place, low, high = first % period, edge, period - edge
    else:
        period, low, high = 1, 1 if gone_before else 0, 0 if gone_after else 1
    pieces(zero, job, worker, y, entries, place, period, low, high)


@compiled
def pieces(zero, job, worker, y, count, place, period, low, high):
    """Entries whose sources are known: at once where these lie side by side, else a PIECE at a time."""
    size, kinds = bytes_of_number(zero, ()), SOURCES if job.flags & P.MASKED else KEEP
    length, dense = count, job.flags & P.MASKED == 0
    for k in range(kinds):
        if worker.step[k] != 0 and worker.step[k] != (size if k < KEEP else 1):
            length = min(P.PIECE, count)
        dense = dense and worker.step[k] == size
    if dense and low == 0 and high == period:  # no entry is at an edge
        period, high = INSIDE, INSIDE
    dense = dense and period >= LONG * lanes_of(zero, ())
    for first in range(0, count, length):
        if length < count and stopping():
            break
        some = min(length, count - first)
        for k in range(kinds):
            pack(zero, job, worker, k, first, some, size if k < KEEP else 1)
        words = worker, y + first * size, some, (place + first) % period, period, low, high
        if job.flags & P.MASKED:
            multiply_masked(zero, words)
        else:
            multiply_unmasked(zero, job, dense, words)


@compiled
def multiply_unmasked(zero, job, long, words):
    """By the loop for rows that are long, or any; past the caches where the result is large.

    What does not lie at a multiple of its size has no entry that begins a cache line.
    """
    large = job.flags & P.LARGE != 0 and words[1] % bytes_of_number(zero, ()) == 0
    if long and large:
        multiply_long_past_caches(zero, words)
    elif long:
        multiply_long(zero, words)
    elif large:
        multiply_past_caches(zero, words)
    else:
        multiply(zero, words)


@compiled
def pack(zero, job, worker, k, first, count, size):
    """Tell the loops where to find some entries of a source: in place, or copied side by side."""
    at, step = worker.at[k], worker.step[k]
    at += first * step
    room = worker.packed + k * job.room
    worker.source[k], worker.move[k] = at, step
    if step == size:
        return
    worker.source[k], worker.move[k] = room, size
    if step == 0:
        count, worker.move[k] = LINE // bytes_of_real(zero, ()), 0
    for i in range(variable(count)):
        if k < KEEP:
            store(room + i * size, load(at + i * step, zero))
        else:
            store(room + i, load(at + i * step, BYTE))


@compiled
def multiply_in_one_go(zero, job, worker, first, last):
    """Entries first <= i < last of matrices that lie end to end, as x does and all coefficients."""
    size, period, turned = bytes_of_number(zero, ()), job.period, job.flags & P.TRANSPOSE != 0
    x, y, b = job.pointers[P.X], job.pointers[P.Y], job.pointers[P.B]
    a, c = job.pointers[P.A], job.pointers[P.C]
    low, high = (c - size, a + size) if turned else (a, c)  # what multiplies the entry before, and the one after
    if first == 0:  # the loops would read what is before the first entry
        store(y, load(b, zero) * load(x, zero) + load(high, zero) * load(x + size, zero))
        first = 1
    end = last
    if last == job.length:
        end, at = last - 1, (last - 1) * size
        store(y + at, load(b + at, zero) * load(x + at, zero) + load(low + at, zero) * load(x + at - size, zero))
    for source, address in ((DIAGONAL, b), (OWN, x), (LOW, low), (BEFORE, x - size), (HIGH, high), (AFTER, x + size)):
        worker.source[source], worker.move[source] = address + first * size, size
    place = first if first < period else first % period
    words = worker, y + first * size, end - first, place, period, 1, period - 1
    multiply_unmasked(zero, job, period >= LONG * lanes_of(zero, ()), words)


@compiled
def multiply_unit(zero, job, worker, first, last):
    """Rows first <= i < last of a unit: the first of each matrix, those between, and the last one."""
    edge, cycle = job.edge, job.cycle
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


@compiled
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate(ARRAYS(packed=SOURCES * job.room))
    if address_of(worker) == 0:
        return
    blocks, block, run, length = job.blocks, job.block, job.run, job.length
    for item in items(job):
        if job.flags & P.END_TO_END:
            multiply_in_one_go(zero, job, worker, item * block, min(length, (item + 1) * block))
            continue
        if job.flags & P.ONE_BY_ONE:
            multiply_one_by_one(zero, job, worker, item * run, min((item + 1) * run, job.units * blocks))
            continue
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
