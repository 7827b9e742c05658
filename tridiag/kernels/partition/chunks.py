"""A layout: the rows of a block of chunks of one long system, a chunk in each lane.

A chunk is as many rows as all others; its last row is its separator. Rows are contiguous in memory: a piece of a cache
line of each lane is read and transposed in registers. Reduction tells how the ends of a chunk depend on its
neighbours; then, with the separators known, each chunk is solved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

from llvmlite import ir

from tridiag.kernels.access.layouts import lines_of_rows, rows_of_lines
from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.partition import state as P
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import by_register, in_turn, narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

# What a reduction tells: no certificate, or a row that remains is so little that the matrix may be singular; the first
# row, the last row feels the other end.
UNSURE, TOP_FEELS, BOTTOM_FEELS = 1, 2, 4
PIECE = 4  # real numbers of each lane that are read at a time
LANES = 4  # of a chunk each that are worked on at a time, at least
ROWS_AHEAD = 16
OPERANDS = (P.A, P.B, P.C, P.D)
CHUNKS = Library("chunks")


class Bands:
    """a, b, c and d of a block, and where its solution goes."""

    def __init__(self, code: Code, plan: Any, block: Value) -> None:
        self.code, self.height = code, code.lanes // code.parts
        self.size = code.parts * code.size_of_real
        lane = plan.height * self.size
        self.lane = lane  # bytes from one to the next
        self.rows_of_block, start = lane * code.lanes, block * (lane * code.lanes)
        lanes = [lane * k for k in range(code.lanes)]
        self.steps = [plan.step[k] for k in OPERANDS]
        bases = [plan.lines[k] + step * start for k, step in zip(OPERANDS, self.steps, strict=True)]
        target = plan.lines[P.X] + start
        self.bases, self.targets = [[base + k for k in lanes] for base in bases], [target + k for k in lanes]

    def of_lanes(self, code: Code, first: int) -> Bands:
        """The same of some lanes: those that ``code`` has, from one on."""
        made = copy.copy(self)
        made.code, made.bases = code, [base[first : first + code.lanes] for base in self.bases]
        return made

    def in_pieces(self) -> Bands:
        """The same where registers are narrow: no more rows at a time than are read, of a few lanes after others."""
        made = copy.copy(self)
        if len(narrow(self.code, LANES)) > 1:
            made.height = PIECE // self.code.parts
        return made

    def over(self, first: Value, last: Value, line: Callable[..., Any], state: Any) -> Any:
        """The rows of lines: ``state = line(bands, lane, i, state)`` for the lanes of ``bands``, ``lane`` the first."""

        def some(code: Code, lane: int, i: Value, state: Any) -> Any:
            return line(self.of_lanes(code, lane), lane, i, state)

        return by_register(self.code, first, last, some, state, self.height, LANES)

    def in_turn(self, first: Value, last: Value, line: Callable[..., Any], state: Any, waiting: list[Value]) -> Any:
        """The same, of a long ``line``, where registers are narrow: states wait in memory, each value at an address."""
        if len(narrow(self.code, LANES)) == 1 or self.code.parts > 1:
            return self.over(first, last, line, state)

        def some(code: Code, lane: Value, i: Value, state: Any) -> Any:
            made = self.of_lanes(code, 0)
            made.bases = [[base + lane * self.lane for base in bases] for bases in made.bases]
            return line(made, lane, i, state)

        return in_turn(self.code, first, last, some, state, [(x, 0) for x in waiting], self.height, LANES)

    def pieces(self, bases: list[Value], at: Value, count: int) -> list[Any]:
        """Rows of an operand, ``count`` of each lane."""
        code = self.code
        kind = ir.VectorType(code.real, count * code.parts)
        return rows_of_lines(code, in_lanes(code, [code.load_as(kind, base + at) for base in bases]))

    def rows(self, i: Value, ask: bool = False) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        """Rows i, i + 1 ... of a cache line; ``ask`` for the same rows of the next block."""
        code, count = self.code, PIECE // self.code.parts
        share = code.lanes * count // self.height if ask else 0
        for first in range(0, self.height, count):
            asked = slice(first // count * share, (first // count + 1) * share)
            bands = []
            for bases, step in zip(self.bases, self.steps, strict=True):
                bands.append(self.pieces(bases, (i + first) * (step * self.size), count))
                for base in bases[asked]:
                    code.prefetch(base + i * (step * self.size) + self.rows_of_block)
            for k in range(count):
                yield first + k, *(band[k] for band in bands)

    def store(self, i: Value, row: Callable[[int], Any]) -> None:
        """The rows of a cache line of x, last one first."""
        code, at = self.code, i * self.size
        for base in self.targets:
            code.prefetch(base + (at - ROWS_AHEAD * self.size), write=True)
        rows = [row(k) for k in reversed(range(self.height))][::-1]
        for base, line in zip(self.targets, out_of_lanes(code, lines_of_rows(code, rows)), strict=True):
            code.store_as(base + at, line)


class MaskedBands(Bands):
    """... of which rows are taken out, where `state.Plan.left` tells."""

    def __init__(self, code: Code, plan: Any, block: Value) -> None:
        super().__init__(code, plan, block)
        first = plan.left + block * (plan.height * code.lanes)
        self.left = [first + plan.height * lane for lane in range(code.lanes)]

    def of_lanes(self, code: Code, first: int) -> MaskedBands:
        made = cast(MaskedBands, super().of_lanes(code, first))
        made.left = self.left[first : first + code.lanes]
        return made

    def rows(self, i: Value, ask: bool = False) -> Iterator[tuple[int, Any, Any, Any, Any]]:
        code, count = self.code, PIECE // self.code.parts
        zero, one, told = code.zero(), code.one(), code.integer(0)
        for k, a, b, c, d in super().rows(i, ask):
            if k % count == 0:
                told = self.piece(i + k, count)
            own, before, behind = (
                (told & (bit << 8 * (k % count))) != 0 for bit in (P.OWN_ROW, P.ROW_BEFORE, P.ROW_BEHIND)
            )
            given = (before, a, zero), (own, b, one), (behind, c, zero), (own, d, zero)
            yield k, *(code.where(mask, x, gone) for mask, x, gone in given)

    def piece(self, i: Value, count: int) -> Value:
        """What is left of ``count`` rows, of each lane as one integer."""
        code, kind = self.code, ir.IntType(8 * count)
        told = code.undefined(ir.VectorType(kind, code.lanes))
        for lane, base in enumerate(self.left):
            told = code.insert(told, code.load_as(kind, base + i), lane)
        return told


class Scattered(Bands):
    """... of rows anywhere: a table holds the address of every lane's first row, of a, b, c, d, x and the new x."""

    def __init__(self, code: Code, plan: At, table: Value) -> None:
        self.code, self.height = code, code.lanes // code.parts
        self.size = code.parts * code.size_of_real
        self.steps = [plan.step[k] for k in OPERANDS]
        *self.bases, self.x, self.targets = (
            [code.word(table + 8 * (k * code.lanes + lane)) for lane in range(code.lanes)] for k in range(6)
        )

    def of_lanes(self, code: Code, first: int) -> Scattered:
        made = cast(Scattered, super().of_lanes(code, first))
        made.x = self.x[first : first + code.lanes]
        return made


def planes(code: Code, plan: At, block: Value, plane: int, count: int = 1) -> Rows:
    """Planes of the plan at a block."""
    stride = plan.blocks * code.row
    return Rows(code, plan.planes + stride * plane + block * code.row, stride)


def read(code: Code, rows: Rows, count: int, first: int = 0) -> list[Any]:
    return [rows[code.integer(first + k)] for k in range(count)]


def write(code: Code, rows: Rows, values: Any, first: int = 0) -> None:
    for k, x in enumerate(values):
        rows.store(code.integer(first + k), x)


def choose(code: Code, mask: Value, x: Any, y: Any) -> tuple[Any, ...]:
    return tuple(code.where(mask, u, v) for u, v in zip(x, y, strict=True))


def any_lane(code: Code, mask: Value) -> Value:
    return code.pick(code.bits(mask) != 0, code.integer(1), code.integer(0))
