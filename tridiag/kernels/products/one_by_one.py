"""Products whose operands do not lie side by side, or not for long: an entry at a time, wherever it is."""

from __future__ import annotations

from typing import NamedTuple

from numba import types

from tridiag.kernels.jobs.words import products as P
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import load, store


class Places(NamedTuple):
    """A number for each operand: its address, or a stride of it. ``low``, ``high``: of a and c, or turned c and a."""

    y: int
    x: int
    b: int
    low: int
    high: int


@compiled
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


@compiled
def multiply_one_by_one(zero, job, worker, place, last):
    """Places of a list that has, for each block of rows, every unit; without a mask."""
    n, block, units, axis = job.length, job.block, job.units, P.AXES + P.AXIS_WORDS * (job.axes - 1)
    turned, around = job.flags & P.TRANSPOSE != 0, job.flags & P.PERIODIC != 0
    low, high = (P.C, P.A) if turned else (P.A, P.C)
    base, strides = worker.base, job.strides
    step = Places(strides[P.Y], strides[P.X], strides[P.B], strides[low], strides[high])
    whole = block >= n > 1 and not around
    neighbours, aside = 1, Places(0, 0, 0, 0, 0)
    if job.axes:
        neighbours, own = field(job, axis), axis + 1
        aside = Places(
            field(job, own + P.Y), field(job, own + P.X), field(job, own + P.B),
            field(job, own + low), field(job, own + high),
        )  # fmt: skip
    while place < last and not stopping():
        first, unit = place // units * block, place % units
        count = min(last - place, neighbours - unit % neighbours)
        bind(job, worker, unit)
        at = Places(base[P.Y], base[P.X], base[P.B], base[low], base[high])
        for _ in range(count):
            if whole:
                multiply_unit(zero, at, step, turned, n)
            else:
                multiply_rows_of_unit(zero, at, step, turned, around, first, min(n, first + block), n)
            at = Places(
                at.y + aside.y, at.x + aside.x, at.b + aside.b, at.low + aside.low, at.high + aside.high
            )  # fmt: skip
        place += count


@compiled
def multiply_unit(zero, at, step, turned, n):
    """All rows, of which there are at least two; the first one has none before it, and the last one none after."""
    first = behind(at, step, turned, 0)
    before, own = load(first.x, zero), load(first.x + step.x, zero)
    store(first.y, load(first.b, zero) * before + load(first.high, zero) * own)
    before, own = multiply_between(zero, behind(at, step, turned, 1), step, before, own, n - 2)
    last = behind(at, step, turned, n - 1)
    store(last.y, load(last.b, zero) * own + load(last.low, zero) * before)


@compiled
def behind(at, step, turned, rows):
    """The places so many rows on; ``turned``: what multiplies an entry before or after a row is in the row of it."""
    shift = types.int64(turned)
    return Places(
        at.y + rows * step.y,
        at.x + rows * step.x,
        at.b + rows * step.b,
        at.low + (rows - shift) * step.low,
        at.high + (rows + shift) * step.high,
    )


@compiled
def multiply_between(zero, at, step, before, own, count):
    """So many rows none of which is the first or the last one; the entries of x before and in the row behind them."""
    y, x, b, low, high = at.y, at.x + step.x, at.b, at.low, at.high
    for _ in range(count):
        after = load(x, zero)
        value = load(b, zero) * own + load(low, zero) * before
        store(y, value + load(high, zero) * after)
        before, own = own, after
        y, x, b, low, high = y + step.y, x + step.x, b + step.b, low + step.low, high + step.high
    return before, own


@compiled
def multiply_rows_of_unit(zero, at, step, turned, around, first, last, n):
    """Rows first <= i < last of n, of matrices that may be periodic."""
    begin, end = max(first, 1), min(last, n - 1)
    if first == 0:
        multiply_end(zero, at, step, turned, 0, n - 1 if around else -1, 1 if n > 1 else 0 if around else -1)
    if begin < end:
        before, own = load(at.x + (begin - 1) * step.x, zero), load(at.x + begin * step.x, zero)
        multiply_between(zero, behind(at, step, turned, begin), step, before, own, end - begin)
    if last == n and n > 1:
        multiply_end(zero, at, step, turned, n - 1, n - 2, 0 if around else -1)


@compiled
def multiply_end(zero, at, step, turned, i, before, after):
    """The first row of a matrix, or the last one; of the rows before and after it -1 is none."""
    value = load(at.b + i * step.b, zero) * load(at.x + i * step.x, zero)
    if before >= 0:
        factor = load(at.low + (before if turned else i) * step.low, zero)
        value += factor * load(at.x + before * step.x, zero)
    if after >= 0:
        factor = load(at.high + (after if turned else i) * step.high, zero)
        value += factor * load(at.x + after * step.x, zero)
    store(at.y + i * step.y, value)
