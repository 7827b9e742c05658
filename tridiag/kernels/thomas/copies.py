"""Copies of the diagonals of matrices, and whether each of their rows shows that its matrix is regular.

A diagonal that is larger than the couplings beside it together, by more than rounding, is so in every row: no
elimination meets a zero pivot then, with exchanges or without, and none is needed to tell. The rows are looked at as
memory has them, many at a time, all entries; where one shows nothing, those around it once more without the couplings
that nobody reads, before the first row of a matrix and behind its last one.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import types

from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words.copies import DOUBTFUL, STORAGE, A, B, C, Copies
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import aligned
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import c_function, flush, set_half_word
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

MARGIN = 0.99  # of a diagonal, which the couplings beside it may be
RANGE = 2.0**10  # times the smallest normal number, at least, and of the largest one a part, at most
LOOPS = Library("copies")
JOB = RecordAt(Copies)


def shows(code: Code, a: Value, b: Value, c: Value) -> Value:
    """Where the diagonal is larger than its couplings, and a number of which there is a reciprocal."""
    size, couplings = code.magnitude(b), code.magnitude(a) + code.magnitude(c)
    return (couplings <= size * MARGIN) & (size >= code.tiny * RANGE) & (size <= 1 / (code.tiny * RANGE))


def copy_rows(past_caches: bool, code: Code, *words: Value) -> Value:
    """So many entries of a, b and c, to where copies begin with cache lines; whether all rows show it."""
    *sources, a_to, b_to, c_to, count = words
    targets, size = (a_to, b_to, c_to), code.size_of_real
    whole = count / code.lanes * code.lanes

    def vector(i: Value, good: Value) -> Value:
        some = [code.load_as(code.vector, at + i * size) for at in sources]
        for at, x in zip(targets, some, strict=True):
            code.store_as(at + i * size, x, past_caches)
        return good & shows(code, *some)

    good = code.fori(0, whole, vector, code.all_lanes(), step=code.lanes)
    used = first_lanes(code, count - whole)
    some = [code.load_some(at + whole * size, used) for at in sources]
    for at, x in zip(targets, some, strict=True):
        code.store_some(at + whole * size, x, used)
    return code.bits(good & (shows(code, *some) | ~used)) == 2**code.lanes - 1


def look_at_rows(code: Code, *words: Value) -> Value:
    """Whether so many rows show it; ``above``, ``behind``: whether they have couplings there."""
    a, b, c, count, above, behind = words
    size, coupled = code.size_of_real, [code.everywhere(x != 0) for x in (above, behind)]

    def vector(i: Value, good: Value) -> Value:
        used = first_lanes(code, count - i)
        some = [code.load_some(at + i * size, used) for at in (a, b, c)]
        some[0], some[2] = (
            code.where(there, x, code.zero()) for there, x in zip(coupled, (some[0], some[2]), strict=True)
        )
        return good & (shows(code, *some) | ~used)

    return code.bits(code.fori(0, count, vector, code.all_lanes(), step=code.lanes)) == 2**code.lanes - 1


def copy_lines(past_caches: bool, code: Code, source: Value, target: Value, size: Value) -> None:
    """So many bytes; the copy begins with a cache line."""

    def line(at: Value, state: tuple[()]) -> tuple[()]:
        code.store_as(target + at, code.load_as(code.vector, source + at), past_caches)
        return state

    whole = size & ~(LINE - 1)
    code.fori(0, whole, line, step=LINE)
    used = first_lanes(code, (size - whole) / code.size_of_real)
    code.store_some(target + whole, code.load_some(source + whole, used), used)


def of_integer(body):
    """A function whose truth is an integer."""
    return lambda code, *words: code.pick(body(code, *words), code.integer(1), code.integer(0))


COPY_LINES = LOOPS.add("copy_lines", functools.partial(copy_lines, False))
COPY_LINES_PAST_CACHES = LOOPS.add("copy_lines_past_caches", functools.partial(copy_lines, True))
COPY = LOOPS.add("copy", of_integer(lambda code, *words: copy_rows(False, code, *words)))
COPY_PAST_CACHES = LOOPS.add("copy_past_caches", of_integer(lambda code, *words: copy_rows(True, code, *words)))
LOOK = LOOPS.add("look", of_integer(look_at_rows))


@compiled
def looked_at(zero, job, first, last):
    """Whether rows that hold the entries first <= k < last show it, without couplings that nobody reads."""
    size, edge, cycle, at = bytes_of_real(zero, ()), job.edge, job.cycle, first
    a, b, c = job.pointers[A], job.pointers[B], job.pointers[C]
    while at < last:
        place = at % cycle
        top, bottom = place < edge, place >= cycle - edge
        end = cycle
        if top:
            end = edge
        elif not bottom:
            end = cycle - edge
        some = min(last - at, end - place)
        shift = at * size
        if LOOK(zero, (a + shift, b + shift, c + shift, some, 1 - top, 1 - bottom)) == 0 or stopping():
            return False
        at += some
    return True


@compiled
def tell_doubt(job):
    """That some row shows nothing."""
    job.broken = 1
    if job.pointers[DOUBTFUL] != 0:
        set_half_word(job.pointers[DOUBTFUL], types.int32(1))


@inlined
def work(job, zero):
    """Claim blocks of entries until none is left; called by every thread of a job."""
    size, block, storage = bytes_of_real(zero, ()), job.block, aligned(job.pointers[STORAGE])
    a, b, c = job.pointers[A], job.pointers[B], job.pointers[C]
    a_to, b_to, c_to = storage + job.places[A], storage + job.places[B], storage + job.places[C]
    copied = job.pointers[STORAGE] != 0
    for item in items(job):
        first = item * block
        count, at = min(block, job.entries - first), first * size
        words = a + at, b + at, c + at, a_to + at, b_to + at, c_to + at, count
        if not copied:
            fine = LOOK(zero, (*words[:3], count, 1, 1))
        elif job.large:
            fine = COPY_PAST_CACHES(zero, words)
        else:
            fine = COPY(zero, words)
        if fine == 0 and not looked_at(zero, job, first, first + count):
            tell_doubt(job)
    if job.large:
        flush()


task = c_function(work, "tridiag_copies", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
