"""The inner loops of elimination by block rows, in the language of `tridiag.kernels.simd`: one system in each lane.

The entries of a block row are rows of lanes, its rows `wide` bytes apart: the columns of its own block, of the next
and of the one behind that, then the right sides. All block rows lie one behind the other, so that the m rows that
elimination leaves are the first ones of the next. Rows are exchanged by selects, on the way of the elimination itself.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from tridiag.kernels.access.operands import QUAD, addresses
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.access.small_matrices import gather, scatter
from tridiag.kernels.jobs.words.record import Guarded, Lines, Record, Words
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

X, RIGHT, BELOW, OWN, ABOVE = range(5)  # the operands of a job: the solution, the right sides, three blocks a row
OPERANDS = 5


@functools.cache
def room_of(m: int, operands: int) -> type[Record]:
    """The memory of a worker, for blocks of m rows and so many operands."""

    class Room(Guarded):
        lanes = Words(operands * TABLE // 8)  # the addresses of all operands in every lane
        poison = Lines(2)  # 0, or NaN in the lanes that met a zero pivot, or one that overflowed
        multipliers = Lines(4 * m)  # a row of lanes for each of 2 m rows

    return Room


def copy_rows(code: Code, source: Value, target: Value, size: Value) -> None:
    """So many bytes, in rows of lanes."""

    def row(at: Value, state: Any) -> Any:
        code.store_as(target + at, code.load_as(code.vector, source + at))
        return state

    code.fori(0, size, row, step=LINE)


class Loops(NamedTuple):
    """The loops for blocks of m rows."""

    m: int

    def load_block(self, code: Code, turned: Value, table: Value, offset: Value, target: Value, wide: Value) -> None:
        """A block, or where ``turned`` is 1 its transpose, to m rows from ``target`` on."""
        m, size = self.m, code.parts * code.size_of_real
        base = [address + offset for address in addresses(code, table)]
        down = code.pick(turned != 0, code.integer(code.row), wide)
        along = code.pick(turned != 0, wide, code.integer(code.row))

        def row(r: Value, state: Any) -> Any:
            for k, x in enumerate(gather(code, [address + r * (m * size) for address in base], m)):
                code.store(target + r * down + along * k, x)
            return state

        code.fori(0, m, row)

    def sides(self, code: Code, move: Any, table: Value, offset: Value, wide: Value, rest: tuple[Value, Value]) -> None:
        """Apply ``move(base, place, count)`` to the right sides of m rows, a few at a time."""
        at, count = rest
        size = code.parts * code.size_of_real
        base = [address + offset for address in addresses(code, table)]
        even = count / QUAD * QUAD

        def row(r: Value, state: Any) -> Any:
            def some(together: int) -> Any:
                def body(s: Value, state: Any) -> Any:
                    places = [address + (r * count + s) * size for address in base]
                    move(places, at + r * wide + s * code.row, together)
                    return state

                return body

            code.fori(0, even, some(QUAD), step=QUAD)
            code.fori(even, count, some(1))
            return state

        code.fori(0, self.m, row)

    def load_sides(self, code: Code, table: Value, offset: Value, target: Value, wide: Value, count: Value) -> None:
        def move(places: list[Value], at: Value, together: int) -> None:
            for k, x in enumerate(gather(code, places, together)):
                code.store(at + k * code.row, x)

        self.sides(code, move, table, offset, wide, (target, count))

    def store_sides(self, code: Code, *words: Value) -> None:
        """The solution of m rows, NaN in the lanes that met a zero pivot, or one that overflowed."""
        room: Any
        room, table, offset, source, wide, count = words
        poison = code.load_as(code.vector, room.addresses.poison)
        nan, zero_pivot = code.splat(float("nan")), poison != poison

        def move(places: list[Value], at: Value, together: int) -> None:
            values = [code.load(at + k * code.row) for k in range(together)]
            scatter(code, places, [code.where(zero_pivot, nan, x) for x in values])

        self.sides(code, move, table, offset, wide, (source, count))

    def clear(self, code: Code, target: Value, rows: Value, count: Value, wide: Value) -> None:
        """0 in the first ``count`` columns of some rows."""

        def row(r: Value, state: Any) -> Any:
            def column(c: Value, state: Any) -> Any:
                code.store(target + r * wide + c * code.row, code.zero())
                return state

            return code.fori(0, count, column, state)

        code.fori(0, rows, row)

    def eliminate(self, code: Code, room: At, panel: Value, rows: Value, wide: Value, count: Value) -> None:
        """The columns of a block among so many rows, of ``count`` columns, a multiple of QUAD."""
        poison_at, multipliers = room.addresses.poison, room.addresses.multipliers
        one = code.real_zero() + 1.0

        def column(j: Value, rank: Value) -> Value:
            top = panel + j * wide
            chosen, found = self.largest(code, panel + j * code.row, j, rank, rows, wide)
            poison = code.load_as(code.vector, poison_at)
            code.store_as(
                poison_at, code.where(found == 0.0, code.real_zero() + float("nan"), poison + (found - found))
            )
            own, pivot = self.exchanged(code, top, [j], rows, wide, (j, rank, chosen))

            def multiplier(r: Value, place: Value) -> Value:
                place = place + one
                entry = code.load(panel + r * wide + j * code.row)
                code.store(multipliers + r * code.row, code.where(place == chosen, own[0], entry) / pivot[0])
                return place

            code.fori(j + 1, rows, multiplier, rank)

            def columns(c: Value, state: Any) -> Any:
                some = [c + k for k in range(QUAD)]
                own, pivot = self.exchanged(code, top, some, rows, wide, (j, rank, chosen))

                def row(r: Value, place: Value) -> Value:
                    place = place + one
                    swap, factor = place == chosen, code.load(multipliers + r * code.row)
                    for k in range(QUAD):
                        at = panel + r * wide + some[k] * code.row
                        code.store(at, code.where(swap, own[k], code.load(at)) - factor * pivot[k])
                    return place

                code.fori(j + 1, rows, row, rank)
                for k in range(QUAD):
                    code.store(top + some[k] * code.row, pivot[k])
                return state

            code.fori(j / QUAD * QUAD, count, columns, step=QUAD)
            return rank + one

        code.fori(0, self.m, column, code.real_zero())

    def largest(self, code: Code, at: Value, j: Value, rank: Value, rows: Value, wide: Value) -> tuple[Value, Value]:
        """The row with the largest entry in a column, from row j on, and its size. Rows are told by real numbers."""

        def look(r: Value, state: Any) -> Any:
            place, chosen, found = state
            place, size = place + 1.0, code.size(code.load(at + r * wide))
            larger = size > found
            return place, code.where(larger, place, chosen), code.where(larger, size, found)

        start = rank, rank, code.size(code.load(at + j * wide))
        _, chosen, found = code.fori(j + 1, rows, look, start)
        return chosen, found

    def exchanged(
        self, code: Code, top: Value, columns: list[Value], rows: Value, wide: Value, choice: tuple[Value, Value, Value]
    ) -> tuple[list[Any], list[Any]]:
        """The entries of row j in some columns, and those of the row that is chosen."""
        j, rank, chosen = choice
        own = [code.load(top + c * code.row) for c in columns]

        def look(r: Value, state: Any) -> Any:
            place, found = state[0] + 1.0, state[1]
            here = place == chosen
            at = top + (r - j) * wide
            return place, tuple(
                code.where(here, code.load(at + c * code.row), x) for c, x in zip(columns, found, strict=True)
            )

        return own, list(code.fori(j + 1, rows, look, (rank, tuple(own)))[1])

    def carry(self, code: Code, panel: Value, wide: Value) -> None:
        """The columns of m rows moved by a block; behind them a block of zeros."""
        m = self.m

        def row(r: Value, state: Any) -> Any:
            at = panel + r * wide

            def column(c: Value, state: Any) -> Any:
                code.store(at + c * code.row, code.load(at + (c + m) * code.row))
                return state

            return code.fori(0, 2 * m, column, state)

        code.fori(0, m, row)
        self.clear(code, panel + 2 * m * code.row, code.integer(m), code.integer(m), wide)

    def substitute(self, code: Code, panel: Value, wide: Value, count: Value) -> None:
        """The right sides of a block row become its solution; those of the two behind it are solved."""
        m = self.m

        def side(s: Value, state: Any) -> Any:
            places = panel + (3 * m + s) * code.row

            def row(k: Value, state: Any) -> Any:
                j = k * -1 + (m - 1)
                entries = panel + j * wide

                def term(c: Value, total: Any) -> Any:
                    return total - code.load(entries + c * code.row) * code.load(places + c * wide)

                total = code.fori(j + 1, 3 * m, term, code.load(places + j * wide))
                code.store(places + j * wide, total / code.load(entries + j * code.row))
                return state

            return code.fori(0, m, row, state)

        code.fori(0, count, side)
