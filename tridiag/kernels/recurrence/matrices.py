"""Recurrences of small vectors, y[t] = A[t] y[t-1] + x[t]: one sequence in each lane, threads over groups of lanes.

Where rows are short, or sequences few, they are computed one after another (`matrix_columns`). Otherwise matrices are
brought into lanes as they are read, four entries of each at a time, and used at once. A transposed recurrence carries
products, c = A^T y, so that it reads no matrix of another step.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import types

from tridiag.kernels.access.operands import addresses, lanes_of
from tridiag.kernels.access.sequences import TABLE, binder, places
from tridiag.kernels.access.small_matrices import gather, scatter
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Guarded, Lines, Record, Words
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.recurrence.loops import FAR_AHEAD
from tridiag.kernels.recurrence.matrix_columns import Sequences
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At, RecordAt, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

OPERANDS = C.operands(1)
INIT = C.A + 1
WRITTEN_OUT = C.WRITTEN_OUT

JOB = RecordAt(Recurrences)


@functools.cache
def room_of(m: int) -> type[Record]:
    """The memory of a worker, for matrices of m rows."""

    class Room(Guarded):
        lanes = Words(OPERANDS * TABLE // 8)  # the addresses of all operands in every lane
        state = Lines(2 * m)  # the vector at hand

    return Room


class Loops(NamedTuple):
    """The loops over steps, for matrices of m rows."""

    m: int

    def state(self, code: Code, room: At, k: Any) -> Value:
        """The address of an entry of the vector at hand."""
        return room.addresses.state + k * code.row

    def place(self, code: Code, job: At, room: At, operand: int, i: Any) -> list[Value]:
        """The address of step i of an operand in each lane."""
        step = i * code.word(job + 8 * (C.TABLE + operand))
        return [address + step for address in addresses(code, room.addresses.lanes + TABLE * operand)]

    def take(self, code: Code, job: At, room: At, operand: int, i: Any) -> list[Any]:
        return gather(code, self.place(code, job, room, operand, i), self.m)

    def ask(self, code: Code, job: At, room: At, i: Value) -> None:
        """Ask for what some later step reads and writes."""
        for operand, count in ((C.A, self.m**2), (C.X, self.m), (C.Y, self.m)):
            size = count * code.parts * code.size_of_real
            ahead = max(2, FAR_AHEAD // size)
            for address in self.place(code, job, room, operand, i + ahead):
                for line in range(0, size, LINE):
                    code.prefetch(address + line, write=operand == C.Y)

    def forward(self, code: Code, job: At, room: At) -> None:
        started = code.pick((job.flags & C.STARTED) != 0, code.integer(1), code.integer(0))
        zero = code.integer(0)

        def from_init(_: Value, state: Any) -> Any:
            return tuple(self.take(code, job, room, INIT, zero))

        def from_first(_: Value, state: Any) -> Any:
            values = self.take(code, job, room, C.X, zero)
            scatter(code, self.place(code, job, room, C.Y, zero), values)
            return tuple(values)

        start = (code.zero(),) * self.m
        start = code.fori(0, started, from_init, start)
        start = code.fori(started, 1, from_first, start)

        def step(i: Value, before: Any) -> Any:
            self.ask(code, job, room, i)
            values = self.times(code, self.place(code, job, room, C.A, i), room, before)
            values = [x + v for x, v in zip(self.take(code, job, room, C.X, i), values, strict=True)]
            scatter(code, self.place(code, job, room, C.Y, i), values)
            return tuple(values)

        code.fori(started * -1 + 1, job.steps, step, start)

    def times(self, code: Code, base: list[Value], room: At, vector: Any) -> list[Any]:
        """The matrix at an address times a vector."""
        m = self.m
        if m <= WRITTEN_OUT:
            entries = gather(code, base, m * m)
            return [dot(entries[r * m : (r + 1) * m], vector) for r in range(m)]

        def row(r: Value, state: Any) -> Any:
            entries = gather(code, [address + r * (m * code.parts * code.size_of_real) for address in base], m)
            code.store(self.state(code, room, r), dot(entries, vector))
            return state

        code.fori(0, m, row)
        return [code.load(self.state(code, room, k)) for k in range(m)]

    def transposed(self, code: Code, job: At, room: At) -> None:
        def step(i: Value, carried: Any) -> Any:
            self.ask(code, job, room, i)
            values = [x + v for x, v in zip(self.take(code, job, room, C.X, i), carried, strict=True)]
            scatter(code, self.place(code, job, room, C.Y, i), values)
            return tuple(self.times_transposed(code, self.place(code, job, room, C.A, i), room, values))

        code.fori(0, job.steps, step, (code.zero(),) * self.m)

    def times_transposed(self, code: Code, base: list[Value], room: At, vector: Any) -> Any:
        m = self.m
        if m <= WRITTEN_OUT:
            entries = gather(code, base, m * m)
            return [dot(entries[k::m], vector) for k in range(m)]
        for k, value in enumerate(vector):
            code.store(self.state(code, room, k), value)

        def row(r: Value, total: Any) -> Any:
            entries = gather(code, [address + r * (m * code.parts * code.size_of_real) for address in base], m)
            value = code.load(self.state(code, room, r))
            return tuple(entry * value + v for entry, v in zip(entries, total, strict=True))

        return code.fori(0, m, row, (code.zero(),) * m)


def dot(entries: Any, vector: Any) -> Any:
    total = entries[0] * vector[0]
    for entry, value in zip(entries[1:], vector[1:], strict=True):
        total = entry * value + total
    return total


def one_by_one(m: int, library: Library) -> Any:
    """The work of a job whose sequences are computed one after another, those along its innermost axis at a time."""
    loops, anywhere, (_, base) = Sequences(m), Sequences(m, strided=True), places(OPERANDS)
    forward, transposed = library.add("one_forward", loops.forward), library.add("one_transposed", loops.transposed)
    strided = library.add("strided_forward", anywhere.forward)
    strided_transposed = library.add("strided_transposed", anywhere.transposed)
    axes = C.TABLE + 2 * OPERANDS

    @compiled
    def work(job, zero):
        inner, axis = 1, C.TABLE  # no axis: any steps, of which none is taken
        if job.axes > 0:
            axis = axes + (1 + OPERANDS) * (job.axes - 1)
            inner, axis = field(job, axis), axis + 1
        for item in items(job):
            index, last = item * job.run, min(job.sequences, (item + 1) * job.run)
            while index < last:
                count = min(last - index, inner - index % inner)
                first = base(job, C.Y, index), base(job, C.X, index), base(job, C.A, index), base(job, INIT, index)
                words = job, count, address_of(job) + 8 * axis, *first
                if job.kind == C.STRIDED:
                    if job.flags & C.TRANSPOSED:
                        strided_transposed(zero, words)
                    else:
                        strided(zero, words)
                elif job.flags & C.TRANSPOSED:
                    transposed(zero, words)
                else:
                    forward(zero, words)
                index += count

    return work


def in_lanes(m: int, library: Library, plain: Any) -> Any:
    """The work of a job with one sequence in each lane; that of the others is ``plain``."""
    loops, (allocate, give_back), bind = Loops(m), piece(room_of(m)), binder(OPERANDS)
    forward, transposed = library.add("forward", loops.forward), library.add("transposed", loops.transposed)

    @compiled
    def work(job, zero):
        if plain is not None and job.kind != C.ROWS:
            plain(job, zero)
            return
        room, lanes = allocate(types.int64(0)), lanes_of(zero, ())
        if address_of(room) == 0:
            return
        groups = job.run
        last = (job.sequences + lanes - 1) // lanes
        for item in items(job):
            for group in range(item * groups, min(last, (item + 1) * groups)):
                bind(zero, job, room.addresses.lanes, group * lanes, lanes)
                if job.flags & C.TRANSPOSED:
                    transposed(zero, (job, room))
                else:
                    forward(zero, (job, room))
        give_back(room)

    return work


def build(dtype: str, m: int):
    """The C function void run(job, helpers) for a dtype and matrices of m rows."""
    zero, library = np.zeros((), dtype)[()], Library(f"matrix_loops{m}")
    plain = one_by_one(m, library) if m <= C.WRITTEN_OUT else None
    work = plain if C.narrow(m, zero.itemsize) else in_lanes(m, library, plain)
    return runner(zero, c_function(work, f"tridiag_matrix_work{m}", first=JOB))
