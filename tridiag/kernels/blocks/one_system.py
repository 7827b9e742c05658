"""Few block tridiagonal systems, one after another: a row of the matrix lies in vectors, no system in a lane.

As in `tridiag.kernels.blocks.loops`, m rows are left by the elimination of a block column, and m new ones come below
them. A row has the columns of three blocks, and behind them its right side. Pivot rows are kept for the way back.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from tridiag.kernels.access.moves import same_in_all
from tridiag.kernels.access.sequences import places
from tridiag.kernels.blocks.loops import ABOVE, BELOW, OPERANDS, OWN, RIGHT, X
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.recurrences import Recurrences
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, emitted
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At, RecordAt, address_of
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code

JOB = RecordAt(Recurrences)
Row = list[Any]  # of the matrix, so many lanes at a time


class PivotRows(Workspace):
    """The memory of a worker."""

    rows = Word()  # m of each block column


ARRAYS, allocate, free_workspace = workspace(PivotRows, "rows", pooled=True)


class Rows(NamedTuple):
    """Elimination with blocks of m rows, and one right side."""

    m: int

    def vectors(self, code: Code) -> int:
        """Those of a row."""
        return -(-(3 * self.m + 1) // code.lanes)

    def size(self, code: Code) -> int:
        """The bytes of a row."""
        return self.vectors(code) * code.row

    # ------------------------------------------------------------------------------------------- from memory

    def block_row(self, code: Code, job: At, bases: Any, i: Value, r: int, turned: bool) -> Row:
        """Row r of block row i, of zeros where it is behind the last one; what is below the first one's means nothing.

        ``turned``: of the transposed matrix.
        """
        n, zero = job.steps, code.integer(0)
        here = code.pick(i < n, i, zero)
        neighbours = [code.pick(here > 0, here + -1, zero), code.pick(here + 1 < n, here + 1, zero)]
        blocks = (ABOVE, OWN, BELOW) if turned else (BELOW, OWN, ABOVE)
        steps = (neighbours[0], here, neighbours[1]) if turned else (here, here, here)
        exist = i < n, i < n, i + 1 < n
        pieces = []
        for operand, k, there in zip(blocks, steps, exist, strict=True):
            start = self.step(code, job, bases, operand, k)
            pieces.append(self.if_there(code, there, self.some_of(code, start, r, turned)))
        right = self.step(code, job, bases, RIGHT, here) + r * code.parts * code.size_of_real
        pieces.append(self.if_there(code, i < n, self.side_by_side(code, right, 1)))
        return self.end_to_end(code, pieces)

    def step(self, code: Code, job: At, bases: Any, operand: int, i: Value) -> Value:
        return bases[operand] + i * code.word(job + 8 * (C.TABLE + operand))

    def some_of(self, code: Code, start: Value, r: int, turned: bool) -> list[Value]:
        """Row r, or column r, of a block: its real parts as one vector, and its imaginary ones as another."""
        m, size = self.m, code.parts * code.size_of_real
        if not turned:
            return self.side_by_side(code, start + r * m * size, m)
        found = [code.undefined(ir.VectorType(code.real, m))] * code.parts
        for k in range(m):
            for p in range(code.parts):
                number = code.load_as(code.real, start + ((k * m + r) * size + p * code.size_of_real))
                found[p] = code.insert(found[p], number, k)
        return found

    def side_by_side(self, code: Code, start: Value, count: int) -> list[Value]:
        """So many numbers of which one follows the other in memory."""
        loaded = code.load_as(ir.VectorType(code.real, count * code.parts), start)
        return [code.shuffle(loaded, loaded, range(p, count * code.parts, code.parts)) for p in range(code.parts)]

    def if_there(self, code: Code, there: Value, piece: list[Value]) -> list[Value]:
        where = code.repeat(there, piece[0].llvm.type.count)
        return [code.where(where, x, code.like(x, 0.0)) for x in piece]

    def end_to_end(self, code: Code, pieces: list[list[Value]]) -> Row:
        """Vectors of all numbers of the pieces, zeros behind them."""
        lanes, begins = code.lanes, [0]
        for piece in pieces:
            begins.append(begins[-1] + piece[0].llvm.type.count)

        def vector(first: int, p: int) -> Value:
            made = code.real_zero()
            for piece, begin in zip(pieces, begins, strict=False):
                count = piece[p].llvm.type.count
                there = [0 <= first + lane - begin < count for lane in range(lanes)]
                if any(there):
                    wide = code.shuffle(piece[p], piece[p], [
                        first + lane - begin if here else 0 for lane, here in enumerate(there)
                    ])  # fmt: skip
                    made = code.shuffle(made, wide, [lane + lanes * here for lane, here in enumerate(there)])
            return made

        firsts = range(0, begins[-1], lanes)
        rows = [[vector(first, p) for p in range(code.parts)] for first in firsts]
        return [x[0] if code.parts == 1 else Complex(*x) for x in rows]

    # ------------------------------------------------------------------------------------------- elimination

    def eliminate(self, code: Code, rows: list[Row], poison: Value, kept: Value) -> tuple[list[Row], Value]:
        """The m rows that the first m columns leave; the pivot rows go to memory."""
        for j in range(self.m):
            top, rest = rows[0], []
            found = code.size(self.column(code, top, j))
            for row in rows[1:]:
                size = code.size(self.column(code, row, j))
                larger = size > found
                found = code.where(larger, size, found)
                rest.append([code.where(larger, x, y) for x, y in zip(top, row, strict=True)])
                top = [code.where(larger, y, x) for x, y in zip(top, row, strict=True)]
            poison = code.where(found == 0.0, code.real_zero() + float("nan"), poison + (found - found))
            for k, x in enumerate(top):
                code.store(kept + (j * self.size(code) + k * code.row), x)
            pivot = self.entry(code, top, j)
            rows = []
            for row in rest:
                factor = self.everywhere(code, self.entry(code, row, j) / pivot)
                rows.append([x - factor * y for x, y in zip(row, top, strict=True)])
        return rows, poison

    def each(self, x: Any, change: Any) -> Any:
        """The same done to both parts of complex numbers."""
        return Complex(change(x.real), change(x.imag)) if isinstance(x, Complex) else change(x)

    def entry(self, code: Code, row: Row, j: int) -> Any:
        return self.each(row[j // code.lanes], lambda x: code.extract(x, j % code.lanes))

    def column(self, code: Code, row: Row, j: int) -> Any:
        """An entry of a row in all lanes."""
        return self.each(row[j // code.lanes], lambda x: same_in_all(code, x, j % code.lanes))

    def everywhere(self, code: Code, number: Any) -> Any:
        return self.each(number, lambda x: code.repeat(x, code.lanes))

    def carried(self, code: Code, row: Row) -> Row:
        """A row without its first block, as one of the block row below."""
        m, parts = self.m, [[x] if code.parts == 1 else [x.real, x.imag] for x in row]

        def cut(first: int, count: int) -> list[Value]:
            return [self.cut(code, [x[p] for x in parts], first, count) for p in range(code.parts)]

        zeros = [code.like(x, 0.0) for x in cut(0, m)]
        return self.end_to_end(code, [cut(m, 2 * m), zeros, cut(3 * m, 1)])

    def cut(self, code: Code, vectors: list[Value], first: int, count: int) -> Value:
        """Some lanes of vectors end to end."""
        together = vectors[0]
        for x in vectors[1:]:
            both = together.llvm.type.count, code.lanes
            wide = code.shuffle(x, x, [*range(code.lanes), *[0] * (both[0] - code.lanes)])
            together = code.shuffle(together, wide, range(sum(both)))
        return code.part(together, first, count)

    # ------------------------------------------------------------------------------------------- a system

    def solve(self, code: Code, job: At, memory: Value, *bases: Value, turned: bool = False) -> None:
        """``bases``: the addresses of x, d, A, B and C at the first block row."""
        m, n, high = self.m, job.steps, self.m * self.size(code)

        def load(i: Value) -> list[Row]:
            return [self.block_row(code, job, bases, i, r, turned) for r in range(m)]

        def down(i: Value, state: Any) -> Any:
            rows, poison = state
            left, poison = self.eliminate(code, [*map(list, rows), *load(i)], poison, memory + (i + -1) * high)
            return tuple(tuple(self.carried(code, row)) for row in left), poison

        first = tuple(tuple(self.carried(code, row)) for row in load(code.integer(0)))
        _, poison = code.fori(1, n + 1, down, (first, code.real_zero()))
        poison = code.extract(poison, 0)
        zero = code.like(poison, 0.0)
        nothing = zero if code.parts == 1 else Complex(zero, zero)

        def up(back: Value, behind: Any) -> Any:
            """x of the block row, from that of the two behind it."""
            i = n + -1 + back * -1
            rows, place = memory + i * high, self.step(code, job, bases, X, i)
            totals = [self.kept(code, rows, j, 3 * m) for j in range(m)]
            for c in range(3 * m - 1, m - 1, -1):
                totals = [t - self.kept(code, rows, j, c) * behind[c - m] for j, t in enumerate(totals)]
            found: list[Any] = [None] * m
            for j in range(m - 1, -1, -1):
                for c in range(m - 1, j, -1):
                    totals[j] = totals[j] - self.kept(code, rows, j, c) * found[c]
                found[j] = totals[j] / self.kept(code, rows, j, j)
                safe = self.each(found[j], lambda x: code.where(poison == poison, x, code.like(x, float("nan"))))
                for p, x in enumerate((safe.real, safe.imag) if code.parts == 2 else (safe,)):
                    code.store_as(place + (j * code.parts + p) * code.size_of_real, x)
            return (*found, *behind[:m])

        code.fori(0, n, up, (nothing,) * (2 * m))

    def kept(self, code: Code, rows: Value, j: int, column: int) -> Any:
        """A number of a pivot row."""
        vector, lane = divmod(column, code.lanes)
        at = rows + (j * self.size(code) + vector * code.row + lane * code.size_of_real)
        real = code.load_as(code.real, at)
        return real if code.parts == 1 else Complex(real, code.load_as(code.real, at + code.row // 2))


def build(dtype: str, m: int):
    """The C function void run(job, helpers) for a dtype and blocks of m rows."""
    zero, loops, library, (_, base) = np.zeros((), dtype)[()], Rows(m), Library(f"block_rows{m}"), places(OPERANDS)
    size_of_row = emitted(lambda code: code.integer(loops.size(code)))
    solve = library.add("solve", loops.solve)
    turned = library.add("solve_turned", functools.partial(loops.solve, turned=True))

    @compiled
    def work(job, zero):
        room = allocate(ARRAYS(rows=job.steps * m * size_of_row(zero, ())))
        if address_of(room) == 0:
            return
        for index in items(job):
            x, right, below = base(job, X, index), base(job, RIGHT, index), base(job, BELOW, index)
            words = job, room.rows, x, right, below, base(job, OWN, index), base(job, ABOVE, index)
            if job.flags & C.TRANSPOSED:
                turned(zero, words)
            else:
                solve(zero, words)
        free_workspace(room)

    return runner(zero, c_function(work, f"tridiag_block_rows_work{m}", first=JOB))
