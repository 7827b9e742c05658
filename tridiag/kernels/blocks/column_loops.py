"""The loops over block rows of elimination by columns, in the language of `tridiag.kernels.simd`.

In the panel at hand a column has 2 m rows of lanes, first what is carried, then what is of the next block row: the
columns of three blocks, and behind them the right sides. Of each block row m pivot rows are kept for the way back, by
columns too: those of its own block, a triangle, those of the two blocks behind it, then the right sides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.kernels.access.operands import QUAD, addresses
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.access.small_matrices import gather, scatter
from tridiag.kernels.blocks.columns import Column, Step, eliminated, through, waiting
from tridiag.kernels.blocks.loops import ABOVE, BELOW, OPERANDS, OWN, RIGHT, X
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Lines, Record, Word, Words
from tridiag.kernels.runtime.workspace import Workspace
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

IN_REGISTERS = 3  # rows of the largest blocks whose steps and new rows stay there, and whose columns are no loop
IN_PAIRS = 6  # the same of those of which two columns fit in registers; half as many of complex numbers
AT_ONCE = 6  # rows of the largest blocks that are gathered at once
AHEAD = 512  # bytes of a block, at least: how far ahead of use memory is asked for
NOTHING = OPERANDS  # the table of addresses behind those of the operands: of zeros
LARGEST_NUMBER = 16  # bytes


@functools.cache
def room_of(m: int) -> type[Record]:
    """The memory of a worker, for blocks of m rows."""

    class Room(Workspace):
        lanes = Words((OPERANDS + 1) * TABLE // 8)  # the addresses of all operands in every lane, and of zeros
        poison = Lines(1)  # 0, or NaN in the lanes that met a zero pivot, or one that overflowed
        steps = Lines(2 * sum(2 * m - j for j in range(m)))  # which row is chosen, and the multipliers
        zeros = Lines(-(-m * m * LARGEST_NUMBER // LINE))
        panel = Word()  # at hand
        kept = Word()  # pivot rows, and two block rows behind them
        ahead = Word()  # the two block rows behind a stretch
        starts = Word()  # the panels with which stretches begin

    return Room


class Blocks(NamedTuple):
    """Three blocks of a block row in all lanes."""

    tables: list[Value]  # of the addresses at the first block row
    offsets: list[Value]  # from there, in bytes
    ahead: list[Value]  # how far those are that are asked for now


class ColumnLoops(NamedTuple):
    """The loops for blocks of m rows."""

    m: int

    # ------------------------------------------------------------------------------------------- where things lie

    @property
    def in_registers(self) -> bool:
        return self.m <= IN_REGISTERS

    def rows_of_panel(self, sides: Any) -> Any:
        """In rows of lanes."""
        return (sides + 3 * self.m) * (2 * self.m)

    def rows_kept(self, sides: Any) -> Any:
        """Of a block row, in rows of lanes."""
        return sides * self.m + self.triangle(self.m) + 2 * self.m * self.m

    def triangle(self, c: int) -> int:
        """The entries of a triangle before column c."""
        return c * (c + 1) // 2

    def column(self, code: Code, panel: Value, c: Any) -> Value:
        """The address of a column of the panel."""
        return panel + c * (2 * self.m * code.row)

    def load_rows(self, code: Code, at: Value, count: int) -> Column:
        return [code.load(at + k * code.row) for k in range(count)]

    def store_rows(self, code: Code, at: Value, rows: Column) -> None:
        for k, x in enumerate(rows):
            code.store(at + k * code.row, x)

    # ------------------------------------------------------------------------------------------- from memory

    def blocks_of_row(self, code: Code, job: At, room: At, i: Value, lane: Value) -> Blocks:
        """Zeros behind the last block column; of the transposed matrix where the job is of that."""
        n, zero, turned = job.steps, code.integer(0), (job.flags & C.TRANSPOSED) != 0
        tables, offsets, ahead = [], [], []
        for operand, other, away in ((BELOW, ABOVE, -1), (OWN, OWN, 0), (ABOVE, BELOW, 1)):
            table = code.pick(turned, code.integer(other), code.integer(operand))
            step = i + code.pick(turned, code.integer(away), zero)
            stride = code.word(job + 8 * C.TABLE + table * 8)
            offset = step * stride
            ahead.append(stride * self.rows_ahead(code))
            if away == 1:
                exists = i + 1 < n
                table, offset = code.pick(exists, table, code.integer(NOTHING)), code.pick(exists, offset, zero)
            tables.append(room.addresses.lanes + table * TABLE + lane * 8)
            offsets.append(offset)
        return Blocks(tables, offsets, ahead)

    def places(self, code: Code, blocks: Blocks, k: int) -> list[Value]:
        return [address + blocks.offsets[k] for address in addresses(code, blocks.tables[k])]

    def rows_ahead(self, code: Code) -> int:
        """How many block rows ahead of use memory is asked for."""
        return max(2, AHEAD // (self.m * self.m * code.parts * code.size_of_real))

    def ask(self, code: Code, places: list[Value], ahead: Value, count: int) -> None:
        """For so many numbers in each lane."""
        for place in places:
            for line in range(0, count * code.parts * code.size_of_real, LINE):
                code.prefetch(place + ahead + line)

    def columns_of_block(self, code: Code, job: At, blocks: Blocks, k: int) -> list[Column]:
        """In registers."""
        m, turned = self.m, code.everywhere((job.flags & C.TRANSPOSED) != 0)
        entries = gather(code, self.places(code, blocks, k), m * m)
        rows = [[code.where(turned, entries[c * m + r], entries[r * m + c]) for c in range(m)] for r in range(m)]
        return [list(column) for column in zip(*rows, strict=True)]

    def put_block(self, code: Code, job: At, blocks: Blocks, k: int, target: Value) -> None:
        """To columns of the panel from ``target`` on."""
        m, size = self.m, code.parts * code.size_of_real
        if self.in_registers:
            for c, column in enumerate(self.columns_of_block(code, job, blocks, k)):
                self.store_rows(code, self.column(code, target, c), column)
            return
        turned = (job.flags & C.TRANSPOSED) != 0
        one, high, base = code.integer(code.row), code.integer(2 * m * code.row), self.places(code, blocks, k)
        down, along = code.pick(turned, high, one), code.pick(turned, one, high)

        together = next((r for r in range(1, m) if m % r == 0 and r * m % QUAD == 0), m if m <= AT_ONCE else 1)

        def rows(first: Value, state: Any) -> Any:
            places = [address + first * (m * size) for address in base]
            self.ask(code, places, blocks.ahead[k], together * m)
            entries = gather(code, places, together * m)
            for r in range(together):
                for c, x in enumerate(entries[r * m : (r + 1) * m]):
                    code.store(target + (first + r) * down + along * c, x)
            return state

        code.fori(0, m, rows, step=together)

    def each_side(self, code: Code, job: At, room: At, operand: int, i: Value, lane: Value, at: Any, move: Any) -> None:
        """Apply ``move(addresses, places, count)`` to the right sides of block row i, some at a time.

        ``at``: from right side and row to a place.
        """
        m, sides, size, zero = self.m, job.sides, code.parts * code.size_of_real, code.integer(0)
        offset = i * code.word(job + 8 * (C.TABLE + operand))
        base = [address + offset for address in addresses(code, room.addresses.lanes + TABLE * operand + lane * 8)]
        alone = sides == 1
        even = sides / QUAD * QUAD

        def whole(k: Value, state: Any) -> Any:
            move(base, [at(zero, code.integer(r)) for r in range(m)])
            return state

        def row(r: Value, state: Any) -> Any:
            def some(together: int) -> Any:
                def body(s: Value, state: Any) -> Any:
                    move([x + (r * sides + s) * size for x in base], [at(s + k, r) for k in range(together)])
                    return state

                return body

            code.fori(0, even, some(QUAD), step=QUAD)
            code.fori(even, sides, some(1))
            return state

        code.fori(0, code.pick(alone, code.integer(1), zero), whole)
        code.fori(0, code.pick(alone, zero, code.integer(m)), row)

    def put_sides(self, code: Code, job: At, room: At, i: Value, lane: Value, target: Value) -> None:
        """To columns of the panel from ``target`` on."""

        def move(base: list[Value], places: list[Value]) -> None:
            for place, x in zip(places, gather(code, base, len(places)), strict=True):
                code.store(place, x)

        def at(s: Value, r: Value) -> Value:
            return self.column(code, target, s) + r * code.row

        self.each_side(code, job, room, RIGHT, i, lane, at, move)

    # ------------------------------------------------------------------------------------------- down

    def begin(self, code: Code, job: At, room: At, lane: Value) -> None:
        """The first block row is what is carried, of ``lane`` and those in a register with it."""
        code, m, start = narrow(code)[0][0], self.m, code.integer(0)
        panel = room.panel + lane * code.size_of_real
        blocks = self.blocks_of_row(code, job, room, start, lane)
        for k in (1, 2):
            self.put_block(code, job, blocks, k, self.column(code, panel, (k - 1) * m))
        for c in range(2 * m, 3 * m):
            self.store_rows(code, self.column(code, panel, c), [code.zero()] * m)
        self.put_sides(code, job, room, start, lane, self.column(code, panel, 3 * m))
        code.store_as(room.addresses.poison + lane * code.size_of_real, code.real_zero())

    def forward(self, code: Code, job: At, room: At, lane: Value, first: Value, last: Value) -> None:
        """Eliminate the block columns first <= i < last, whose pivot rows are kept from the beginning on.

        The last one of all is not among them.
        """
        code, shift = narrow(code)[0][0], lane * code.size_of_real
        high = self.rows_kept(job.sides) * code.row
        panel, kept, poison_at = room.panel + shift, room.kept + shift, room.addresses.poison + shift

        def down(i: Value, poison: Value) -> Value:
            return self.block_column(code, job, room, (i, lane), (panel, kept + (i - first) * high), poison)

        code.store_as(poison_at, code.fori(first, last, down, code.load_as(code.vector, poison_at)))

    def finish(self, code: Code, job: At, room: At, lane: Value, k: Value) -> None:
        """Eliminate the last block column, whose pivot rows are kept as the k-th; nothing comes behind it."""
        m, code, shift = self.m, narrow(code)[0][0], lane * code.size_of_real
        panel, poison_at, row = room.panel + shift, room.addresses.poison + shift, code.row
        kept = room.kept + shift + k * self.rows_kept(job.sides) * row
        columns = [self.load_rows(code, self.column(code, panel, c), m) for c in range(m)]
        steps, poison = self.steps(code, room, lane, columns.__getitem__, kept, code.load_as(code.vector, poison_at))
        code.store_as(poison_at, poison)
        behind = kept + self.triangle(m) * row

        def nothing(c: Value, state: Any) -> Any:
            self.store_rows(code, behind + c * (m * row), [code.zero()] * m)
            return state

        def side(s: Value, state: Any) -> Any:
            (pivots,), _ = through(code, [self.load_rows(code, self.column(code, panel, s + 3 * m), m)], steps)
            self.store_rows(code, behind + (s + 2 * m) * (m * row), pivots)
            return state

        code.fori(0, 2 * m, nothing)
        code.fori(0, job.sides, side)

    def block_column(
        self, code: Code, job: At, room: At, at: tuple[Value, Value], memory: tuple[Value, Value], poison: Value
    ) -> Value:
        """Eliminate block column i of a panel that has what is carried; its poison."""
        m, row, (i, lane), (panel, kept) = self.m, code.row, at, memory
        blocks = self.blocks_of_row(code, job, room, i + 1, lane)
        below, sides = self.column(code, panel, 0) + m * row, self.column(code, panel, 3 * m)
        behind = kept + self.triangle(m) * row
        new: list[Column] = []
        self.put_sides(code, job, room, i + 1, lane, sides + m * row)
        for k in range(3):
            if self.in_registers:
                new += self.columns_of_block(code, job, blocks, k)
            else:
                self.put_block(code, job, blocks, k, self.column(code, below, k * m))

        def column(c: Any) -> Column:
            at = self.column(code, panel, c)
            if not new:
                return self.load_rows(code, at, 2 * m)
            return (self.load_rows(code, at, m) if c < 2 * m else [code.zero()] * m) + new[c]

        def take(columns: list[Column], c: Any, target: Value) -> None:
            pivot_rows, left = through(code, columns, steps)
            for k, (pivots, rest) in enumerate(zip(pivot_rows, left, strict=True)):
                self.store_rows(code, behind + (c + k) * (m * row), pivots)
                self.store_rows(code, self.column(code, target, k), rest)

        def side(s: Value, state: Any) -> Any:
            place = self.column(code, sides, s)
            take([self.load_rows(code, place, 2 * m)], s + 2 * m, place)
            return state

        steps, poison = self.steps(code, room, lane, column, kept, poison)
        if new:
            for c in range(2 * m):
                take([column(m + c)], c, self.column(code, panel, c))
        else:
            together = 2 if m * code.parts <= IN_PAIRS else 1

            def some(c: Value, state: Any) -> Any:
                take([column(c + (m + k)) for k in range(together)], c, self.column(code, panel, c))
                return state

            code.fori(0, 2 * m, some, step=together)
        code.fori(0, job.sides, side)
        return poison

    def steps(
        self, code: Code, room: At, lane: Value, column: Callable[[int], Column], kept: Value, poison: Value
    ) -> tuple[list[Step], Value]:
        """The steps of a block column, and its poison; a triangle of pivot rows is kept."""
        memory, offset = room.addresses.steps + lane * code.size_of_real, 0
        steps: list[Step] = []
        for c in range(self.m):
            (pivots,), (left,) = through(code, [column(c)], steps)
            step, pivot, poison = eliminated(code, left, poison)
            self.store_rows(code, kept + self.triangle(c) * code.row, [*pivots, pivot])
            steps.append(step if self.in_registers else waiting(code, step, memory, offset))
            offset += len(left) * code.row
        return steps, poison

    # ------------------------------------------------------------------------------------------- up

    def backward(self, code: Code, job: At, room: At, lane: Value, first: Value, last: Value) -> None:
        """The solution of these block rows, last one first; that of the two behind them is there.

        It takes the place of right sides, and is NaN in the lanes that met a zero pivot, or one that overflowed.
        """
        m, code, shift = self.m, narrow(code)[0][0], lane * code.size_of_real
        high, row = self.rows_kept(job.sides) * code.row, code.row
        poison = code.load_as(code.vector, room.addresses.poison + shift)
        singular, nan = poison != poison, code.splat(float("nan"))

        def up(back: Value, state: Any) -> Any:
            i = last + -1 + back * -1
            kept = room.kept + shift + (i - first) * high
            right = kept + (self.rows_kept(0) * row)

            def side(s: Value, state: Any) -> Any:
                self.substitute(code, kept, right + s * (m * row), high)
                return state

            def move(base: list[Value], places: list[Value]) -> None:
                scatter(code, base, [code.where(singular, nan, code.load(place)) for place in places])

            def at(s: Value, r: Value) -> Value:
                return right + s * (m * row) + r * row

            code.fori(0, job.sides, side)
            self.each_side(code, job, room, X, i, lane, at, move)
            return state

        code.fori(0, last - first, up)

    def substitute(self, code: Code, kept: Value, right: Value, high: Value) -> None:
        """A right side of a block row becomes its solution."""
        m, row = self.m, code.row
        behind = kept + self.triangle(m) * row

        def column(totals: Column, c: Any, x: Any) -> Column:
            entries = self.load_rows(code, behind + c * (m * row), m)
            return [total - entry * x for total, entry in zip(totals, entries, strict=True)]

        totals = self.load_rows(code, right, m)
        for block in (2, 1):
            solved = right + high * block
            if self.in_registers:
                for c in reversed(range(m)):
                    totals = column(totals, (block - 1) * m + c, code.load(solved + c * row))
                continue

            def body(k: Value, totals: Any, block: int = block, solved: Value = solved) -> Any:
                c = k * -1 + (m - 1)
                return tuple(column(list(totals), c + (block - 1) * m, code.load(solved + c * row)))

            totals = list(code.fori(0, m, body, tuple(totals)))
        for c in reversed(range(m)):
            *entries, pivot = self.load_rows(code, kept + self.triangle(c) * row, c + 1)
            x = totals[c] / pivot
            code.store(right + c * row, x)
            totals = [total - entry * x for total, entry in zip(totals[:c], entries, strict=True)]

    def clear(self, code: Code, target: Value, size: Value) -> None:
        """So many bytes, in rows of lanes."""

        def line(at: Value, state: Any) -> Any:
            code.store_as(target + at, code.real_zero())
            return state

        code.fori(0, size, line, step=LINE)
