"""The inner loops of recurrences, in the language of `tridiag.kernels.simd.vector`: one sequence, or one chunk, a lane.

Values are computed as a loop over their steps would, so that nothing overflows or cancels but the sequence itself. A
transposed recurrence carries products, c = a w, so that it reads no coefficient of another row.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.operands import LINES_AHEAD, QUAD, addresses
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words.record import Guarded, Lines, Record, Word, Words
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import by_register
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, LINE, Code

HEIGHT = 8  # steps of all lanes that are transposed at a time
MOST_LANES = 16


@functools.cache
def room_of(order: int) -> type[Record]:
    """The memory of a worker, for an order; behind it lies what is kept of a large result."""
    operands = 2 + order  # those that have steps

    class Room(Guarded):
        step = Words(operands)  # how far the next entry of an operand is
        ahead = Words(operands)  # how far what is asked for ahead of use is
        end_to_end = Word()  # not zero: the next group of lanes is, and it is asked for as it lies in memory
        lanes = Words(operands * MOST_LANES)  # the address of the first step of every lane
        cut = Word()  # in bits: the lanes that have nothing before their first step
        state = Lines(order)  # the values before the next step, or the products carried to it
        product = Lines(2)  # of a lane's coefficients, and how often it was scaled up
        rows = Lines((HEIGHT + 1) * order)  # the state before some steps, and values, or states, after each of them
        constants = Lines(operands * MOST_LANES)  # constant operands of every lane, a cache line full of each
        targets = Words(
            MOST_LANES
        )  # where the result of every lane lies, while what is at hand of it is kept elsewhere

    return Room


def load_steps(code: Code, lanes: list[Value], move: Value, height: int = HEIGHT) -> list[Value]:
    """Some rows of lanes, whole QUADs, from the numbers that lie ``move`` bytes behind where each lane does."""
    kind, rows = ir.VectorType(code.real, QUAD), []
    for k in range(0, height, QUAD):
        rows += in_lanes(code, [code.load_as(kind, lane + move + k * code.size_of_real) for lane in lanes])
    return rows


def store_steps(code: Code, lanes: list[Value], move: Value, rows: list[Value]) -> None:
    """The inverse."""
    for k in range(0, len(rows), QUAD):
        for lane, piece in zip(lanes, out_of_lanes(code, rows[k : k + QUAD]), strict=True):
            code.store_as(lane + move + k * code.size_of_real, piece)


class Loop(NamedTuple):
    """One of the loops over the steps of lanes that lie contiguous in memory.

    ``lane``: the first one of a row of lanes that it is for; where registers are narrow, some lanes follow others.
    """

    order: int
    transposed: bool
    backward: bool
    lane: int = 0

    @property
    def name(self) -> str:
        return f"{'t' if self.transposed else 'n'}{'b' if self.backward else 'f'}"

    def write(self, code: Code, at: At, count: Value) -> None:
        """``count`` steps, at least HEIGHT, by a worker whose memory begins at ``at``."""
        rest, asking = count & (HEIGHT - 1), code.pick(at.ahead[C.X] != 0, code.integer(1), code.integer(0))
        whole, again = code, (HEIGHT - rest) & (HEIGHT - 1)  # the rest comes first, and once more with what follows it

        def chunk(code: Code, lane: int, k: Value, values: Any) -> Any:
            loop, first = self._replace(lane=lane), k == 0
            i = code.pick(first, code.integer(0), k * HEIGHT - again)
            advance = code.pick(first & (rest != 0), rest, code.integer(HEIGHT))
            x = loop.load(code, at, C.X, i)
            coefficients = [loop.load(code, at, C.A + k, i) for k in range(self.order)]
            if not self.transposed:
                loop.cut(code, at, i, coefficients)
            rows, values = loop.steps(code, at, x, coefficients, values, advance)
            loop.store(code, at, i, rows)
            if lane + code.lanes == whole.lanes:
                new_lines = (i & (LINE // code.size_of_real - 1)) < HEIGHT
                asked = code.pick(new_lines & (at.end_to_end == 0), asking, code.integer(0))
                code.fori(0, asked, lambda _, state: self.ask(whole, at, i, range(2 + self.order)) or state)
                code.fori(0, at.end_to_end, lambda _, state: self.ask_for_lines(whole, at, i) or state)
            return tuple(values)

        kept = [at.addresses.state + LINE * k for k in range(self.order)]
        values = by_register(code, 0, (count + HEIGHT - 1) / HEIGHT, chunk, tuple(map(code.load, kept)))
        for place, value in zip(kept, values, strict=True):
            code.store(place, value)

    def place(self, code: Code, at: At, operand: int, i: Value, height: int = HEIGHT) -> tuple[list[Value], Value]:
        """The lanes of an operand, and how far from their first step the pieces of ``height`` steps from i on lie."""
        move = i * at.step[operand] - (height - 1) * code.size_of_real * self.backward
        return addresses(code, at.addresses.lanes + (operand * TABLE + 8 * self.lane)), move

    def load(self, code: Code, at: At, operand: int, i: Value) -> list[Value]:
        """HEIGHT rows of lanes."""
        rows = load_steps(code, *self.place(code, at, operand, i))
        return rows[::-1] if self.backward else rows

    def store(self, code: Code, at: At, i: Value, rows: list[Value]) -> None:
        store_steps(code, *self.place(code, at, C.Y, i), rows[::-1] if self.backward else rows)

    def ask(self, code: Code, at: At, i: Value, operands: Iterable[int]) -> None:
        """Ask for memory that is used later: some lines on in the same lanes, or the next group of them."""
        for operand in operands:
            lanes, move = self.place(code, at, operand, i)
            move = move + at.ahead[operand]
            for lane in lanes:
                code.prefetch(lane + move, write=operand == C.Y)

    def ask_for_lines(self, code: Code, at: At, i: Value) -> None:
        """Ask for as many lines of the next group as the steps from i on have in this one: processors fetch ahead of
        few streams only, and each lane would be one."""
        for operand in range(2 + self.order):
            first = code.word(at.addresses.lanes + operand * TABLE) + at.ahead[operand] + i * LINE

            def lines(_: Value, state: Any, first: Value = first, write: bool = operand == C.Y) -> Any:
                for k in range(HEIGHT):
                    code.prefetch(first + k * LINE, write=write)
                return state

            code.fori(0, code.pick(at.ahead[operand] != 0, code.integer(1), code.integer(0)), lines)

    def cut(self, code: Code, at: At, i: Value, coefficients: list[list[Value]]) -> None:
        """Coefficients of what is not there, in steps from i on, are 0, whatever they are."""
        lanes, none = code.shift(at.cut, -self.lane) if self.lane else at.cut, code.integer(0)
        masks = [code.mask(code.pick(i < early, lanes, none)) for early in range(1, self.order + 1)]
        for k, rows in enumerate(coefficients, 1):
            for j in range(min(k, HEIGHT)):
                rows[j] = code.where(masks[k - j - 1], code.zero(), rows[j])

    def steps(
        self, code: Code, at: At, x: list[Value], a: list[list[Value]], state: Sequence[Value], advance: Value
    ) -> tuple[list[Value], Sequence[Value]]:
        """The values of HEIGHT steps, and the state after ``advance`` of them: where they are not all, from memory."""
        order, values, rows = self.order, [], at.addresses.rows + self.lane * code.size_of_real
        waiting: list[tuple[Value, Value]] = []  # states that are in registers, and where they belong
        state = list(state)

        def keep(row: int, found: Value) -> None:
            waiting.append((rows + row * LINE, found))
            if bytes_of_register() < LINE:
                put()

        def put() -> None:
            for place, found in waiting:
                code.store(place, found)
            waiting.clear()

        if not self.transposed:
            for k in range(order):
                keep(order - 1 - k, state[k])
        for j in range(HEIGHT):
            if self.transposed:
                value = x[j] + state[0]
                state = [a[k][j] * value + state[k + 1] if k + 1 < order else a[k][j] * value for k in range(order)]
                for k in range(order):
                    keep(j * order + k, state[k])
            else:
                value = x[j]
                for k in reversed(range(order)):
                    value = a[k][j] * state[k] + value
                state = [value, *state[:-1]]
                keep(order + j, value)
            values.append(value)

        def early(*_: Any) -> Any:
            put()
            behind = [(advance - 1) * order + k if self.transposed else advance + (order - 1 - k) for k in range(order)]
            return tuple(code.load(rows + row * LINE) for row in behind)

        return values, code.fori(0, code.pick(advance == HEIGHT, code.integer(0), code.integer(1)), early, tuple(state))

    def line(self, code: Code, at: At, i: Value, state: Value) -> tuple[list[Value], Value, list[Value]]:
        """A cache line of steps of order 1: the values, the state behind them, and the coefficients."""
        values, coefficients = [], []
        for start in range(0, LINE // code.size_of_real, HEIGHT):
            rows, factors = (self.load(code, at, operand, i + start) for operand in (C.X, C.A))
            for x, a in zip(rows, factors, strict=True):
                value = x + state if self.transposed else a * state + x
                state = a * value if self.transposed else value
                values.append(value)
            coefficients += factors
        return values, state, coefficients


@emitted
def clear(code: Code, at: At, count: Value) -> None:
    """Rows of lanes that are 0."""

    def row(k: Value, state: Any) -> Any:
        code.store(at + k * LINE, code.zero())
        return state

    code.fori(0, count, row)


def move_lanes(code: Code, table: Value, step: Value) -> None:
    """All addresses of an operand moved by ``step`` bytes."""
    kind = ir.VectorType(I64, code.lanes)
    code.store_as(table, code.load_as(kind, table) + code.repeat(step, code.lanes))


FAR_AHEAD = LINES_AHEAD * LINE
