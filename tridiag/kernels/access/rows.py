"""Rows of lanes, one system in each lane, in scratch memory and in that of the caller, contiguous or side by side."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.load_store import (
    QUAD,
    addresses,
    ask,
    in_lanes,
    operand_in,
    out_of_lanes,
    put_interleaved,
    take_interleaved,
)
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import LINE, Code


@dataclass(frozen=True)
class Rows:
    """Rows of lanes in memory."""

    code: Code
    base: Value
    stride: Any
    spread: bool = False  # one number a row, for all lanes

    def __getitem__(self, i: Any) -> Any:
        at = self.base + i * self.stride
        return self.code.spread(at) if self.spread else self.code.load(at)

    def store(self, i: Any, x: Any) -> None:
        self.code.store(self.base + i * self.stride, x)


@dataclass(frozen=True)
class Mask:
    """Rows of bytes."""

    code: Code
    base: Value
    stride: Any

    def __getitem__(self, i: Any) -> Value:
        return self.code.load_bytes(self.base + i * self.stride)


def planes(code: Code, base: Value, count: int, length: Value) -> list[Rows]:
    """Arrays of ``length`` rows, one behind the other."""
    return [Rows(code, base + length * (k * code.row), code.row) for k in range(count)]


def ask_for_bands(code: Code, bindings: Value, i: Value, count: int) -> None:
    """Ask for a, b, c and perhaps the right side, which follows the mask, ahead of row i."""
    for band in range(count):
        ask(code, operand_in(code, bindings, band if band < RIGHT else RIGHT + 1), i)


ROWS_AHEAD = 1  # prefetch distance where tiles are wide


class Lines:
    """An operand whose rows are contiguous: a few numbers of each lane at a time are rows of lanes.

    Each cache line is asked for twice, as the processor drops requests when it has many.
    """

    def __init__(self, code: Code, operand: Any) -> None:
        self.code, self.table, self.ahead = code, operand.addresses.lanes, operand.ahead

    def places(self, i: Value) -> list[Value]:
        """The addresses are read again each time: registers are too few for them."""
        at = i * (self.code.parts * self.code.size_of_real)
        return [base + at for base in addresses(self.code, self.table)]

    def load(self, i: Value) -> list[Any]:
        code, kind, places = self.code, ir.VectorType(self.code.real, QUAD), self.places(i)
        rows = rows_of_lines(code, in_lanes(code, [code.load_as(kind, place) for place in places]))
        self.ask(places)
        return rows

    def store(self, i: Value, rows: list[Any]) -> None:
        code, places = self.code, self.places(i)
        for place, line in zip(places, out_of_lanes(code, lines_of_rows(code, rows)), strict=True):
            code.store_as(place, line)
        self.ask(places)

    def ask(self, places: list[Value]) -> None:
        for place in places:
            self.code.prefetch(place + self.ahead)


def rows_of_lines(code: Code, lines: list[Value]) -> list[Any]:
    """Real rows of lanes as rows of entries."""
    return lines if code.parts == 1 else [Complex(*lines[k : k + 2]) for k in range(0, len(lines), 2)]


def lines_of_rows(code: Code, rows: list[Any]) -> list[Value]:
    return rows if code.parts == 1 else [x for row in rows for x in (row.real, row.imag)]


def lines_of(code: Code, words: Sequence[Value]) -> Any:
    """A function (i, low, high): the bands' entries of a few rows from i on, where rows are contiguous.

    It is told the operands, and by how many rows each is moved, since a and c come from other rows where the matrix is
    transposed. The pads, of row ``low`` and before ``high``, are zero.
    """
    bands, height = [Lines(code, x) for x in words[:4]], QUAD // code.parts

    def read(i: Value, low: Value, high: Value) -> Any:
        a, b, c, d = (band.load(i + move) for band, move in zip(bands, words[4:8], strict=True))
        a[0] = code.where(code.everywhere(i == low), code.zero(), a[0])
        c[-1] = code.where(code.everywhere(i + height == high), code.zero(), c[-1])
        return zip(a, b, c, d, strict=True)

    return read


def to_lines(code: Code, output: Value, first: Value, last: Value, solution: Any, state: Any) -> Any:
    """Rows of a solution, last row first, to contiguous memory: x, state = solution(i, state)."""
    lines, height = Lines(code, output), QUAD // code.parts

    def chunk(i: Value, state: Any) -> Any:
        rows = []
        for k in reversed(range(height)):
            x, state = solution(i + k, state)
            rows.append(x)
        lines.store(i, rows[::-1])
        return state

    return code.fori(last - height, first - 1, chunk, state, step=-height)


def place_of(code: Code, g: Value, most: Value) -> Value:
    """How many bytes group g lies behind the first: the last one may lie over a part of the one before it."""
    place = g * code.row
    return code.pick(place < most, place, most)


def interleaved_of(code: Code, words: Sequence[Any], asks: bool = True) -> Any:
    """A function (i, end): a function (g) that reads the bands of group g at row i, where lanes lie side by side.

    It is told the operands, by how many rows each is moved, and the place of the last group. The pads, of row 0 and
    before ``end``, are not read. ``asks``: the rows do not follow each other in memory.
    """
    bindings, moves, most, zero = words[:4], words[4:8], words[8], code.integer(0)
    strides, tables = [x.stride for x in bindings], [x.lanes[0] for x in bindings]

    def read(i: Value, end: Value) -> Any:
        top, bottom = i == 0, i == end - 1
        rows = [i + code.pick(pad, zero, move) for pad, move in zip((top, top, bottom, top), moves, strict=True)]
        bases = [table + k * stride for table, k, stride in zip(tables, rows, strides, strict=True)]

        def group(g: Value) -> Any:
            place = place_of(code, g, most)
            for base, stride in zip(bases, strides, strict=True):
                for line in range(0, code.row if asks else 0, LINE):
                    code.prefetch(base + stride * ROWS_AHEAD + place + line)
            a, b, c, d = (take_interleaved(code, base + place) for base in bases)
            a, c = (code.where(code.everywhere(pad), code.zero(), x) for pad, x in ((top, a), (bottom, c)))
            return a, b, c, d

        return group

    return read


def to_interleaved(
    past_caches: bool, code: Code, target: Sequence[Value], count: Value, groups: Value, solve: Any
) -> None:
    """Rows of solutions, last row first, to memory where lanes lie side by side: solve(i, g).

    ``target``: where the first row is, how far the next, and the place of the last group.
    """
    x, x_step, most = target

    def row(i: Value, state: Any) -> Any:
        def group(g: Value, state: Any) -> Any:
            address = x + i * x_step + place_of(code, g, most)
            if not past_caches:
                for line in range(0, code.row, LINE):
                    code.prefetch(address - x_step * ROWS_AHEAD + line, write=True)
            put_interleaved(code, address, solve(i, g), past_caches)
            return state

        return code.fori(0, groups, group, state)

    code.fori(count - 1, -1, row, step=-1)


def cut(code: Code, a: Value, b: Value, c: Value, mask: Value, count: Value) -> None:
    """Take rows out of the bands: couplings to them are cut, their diagonal is 1."""
    bands, keep = [Rows(code, x, code.row) for x in (a, b, c)], Mask(code, mask, code.lanes)

    def row(i: Value, state: Any) -> Any:
        kept = keep[i]
        coupled = kept & keep[i - 1], kept, kept & keep[i + 1]
        for band, here, gone in zip(bands, coupled, (code.zero(), code.one(), code.zero()), strict=True):
            band.store(i, code.where(here, band[i], gone))
        return state

    code.fori(0, count, row)


def erase(code: Code, x: Value, mask: Value, mask_step: Value, count: Value) -> None:
    """Zero in the rows that are taken out."""
    rows, keep = Rows(code, x, code.row), Mask(code, mask, mask_step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(keep[i], rows[i], code.zero()))
        return state

    code.fori(0, count, row)


def merge(code: Code, *words: Value) -> None:
    """x = y in some lanes."""
    x, x_step, y, y_step, lanes, count = words
    rows, others, chosen = Rows(code, x, x_step), Rows(code, y, y_step), code.mask(lanes)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(chosen, others[i], rows[i]))
        return state

    code.fori(0, count, row)


def fill(number: float, code: Code, x: Value, step: Value, count: Value) -> None:
    rows = Rows(code, x, step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.splat(number))
        return state

    code.fori(0, count, row)


# planes of a pivoted tile: a, b, c, d; q0, q1, q2, multiplier (and three more of a cyclic tile); y, r, x
BANDS, RIGHT, UPPER, ITERATE, REST, BEST, PLANES = 0, 3, 4, 11, 12, 13, 14
SWEEPS = Library("sweeps")
CUT, MERGE, ERASE = SWEEPS.add("cut", cut), SWEEPS.add("merge", merge), SWEEPS.add("erase", erase)
ZERO, NAN = (
    SWEEPS.add("zero", functools.partial(fill, 0.0)),
    SWEEPS.add("nan", functools.partial(fill, float("nan"))),
)
