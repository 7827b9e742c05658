"""Layouts: how rows of operands are read and those of a solution written, whatever the algorithm.

A sweep is what is done with rows: ``state = sweep.start()``; downwards ``state = sweep.step(state, k, keep, *entries)``
for row k of those at hand, ``sweep.of_lanes(code, first)`` for some of its lanes, ``sweep.registers`` at a time where
they are narrow; upwards ``x = sweep.solution(k, state)`` from x of the rows behind, which are the state;
``sweep.leave(state)``. Lanes that ``keep`` does not have are taken out. A layout drives it over rows first <= i < last:

    Views         rows of lanes at any stride, in scratch memory or the caller's: one row at a time, with a mask
    Contiguous    a few numbers of each lane at a time, from memory through registers
    Interleaved   lanes that lie side by side: row by row through several groups, ``sweep.group(g)``, whose states are
                  in memory; each row is the first one of a sweep, ``from_row(k)``
    Narrow        such lanes that fill one vector or less

A new layout is a class with `down` here, what writes a solution to it, and a line for both in
`tridiag.kernels.thomas.sweeps`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.moves import first_lanes, in_lanes, out_of_lanes, put_interleaved, take_interleaved
from tridiag.kernels.access.operands import QUAD, addresses, ask, operand_in
from tridiag.kernels.access.rows import RIGHT, Mask, Rows
from tridiag.kernels.simd.registers import by_register, lanes_of_register
from tridiag.kernels.simd.values import Complex, Value, flatten, rebuild
from tridiag.kernels.simd.vector import LINE, Code

PAIR = 2  # rows that a group of a tile takes at a time: what it carries stays in registers between them
ROWS_AHEAD = PAIR  # prefetch distance where tiles are wide,
STREAM_AHEAD = 32 * LINE  # ... and in bytes, where rows follow each other in memory


# ------------------------------------------------------------------------------------------------ rows of lanes


class Views:
    """Rows of lanes in memory, of any stride. ``ask(i)`` asks for memory that will be used after row i."""

    def __init__(self, code: Code, bands: Sequence[Rows], keep: Mask, ask: Callable[[Value], None]) -> None:
        self.code, self.bands, self.keep, self.ask = code, bands, keep, ask

    def down(self, first: Any, last: Value, sweep: Any) -> None:
        def row(i: Value, state: Any) -> Any:
            self.ask(i)
            return sweep.step(state, i, self.keep[i], *(band[i] for band in self.bands))

        sweep.leave(self.code.fori(first, last, row, sweep.start()))

    def up(self, target: Rows, last: Value, sweep: Any) -> None:
        """Rows of a solution to ``target``, zero where they are taken out."""
        code = self.code

        def row(i: Value, state: Any) -> Any:
            x = code.where(self.keep[i], sweep.solution(i, state), code.zero())
            target.store(i, x)
            self.ask(i)
            return x, *state[:-1]

        sweep.leave(code.fori(last - 1, -1, row, sweep.start(), step=-1))


def views_of(code: Code, words: Sequence[Value], count: int) -> Views:
    """From words: where each of ``count`` bands lies and how far its rows are apart, the mask, the operands, their row.

    The operands are those of a group; what is read of row i is that of their row ``row`` + i.
    """
    *places, mask, mask_step, bindings, first = words
    bands = [Rows(code, places[k], places[k + 1]) for k in range(0, 2 * count, 2)]
    return Views(code, bands, Mask(code, mask, mask_step), lambda i: ask_for_bands(code, bindings, first + i, count))


def ask_for_bands(code: Code, bindings: Value, i: Value, count: int) -> None:
    """Ask for a, b, c and perhaps the right side, which follows the mask, ahead of row i."""
    for band in range(count):
        ask(code, operand_in(code, bindings, band if band < RIGHT else RIGHT + 1), i)


# ------------------------------------------------------------------------------------------------ contiguous


class Lines:
    """An operand whose rows are contiguous: a few numbers of each lane at a time are rows of lanes.

    Each cache line is asked for twice, as the processor drops requests when it has many.
    """

    def __init__(self, code: Code, operand: Any) -> None:
        self.code, self.table, self.ahead = code, operand.addresses.lanes, operand.ahead

    def of_lanes(self, code: Code, first: int) -> Lines:
        """The same of some lanes: those that ``code`` has, from one on."""
        made = copy.copy(self)
        made.code, made.table = code, self.table + 8 * first
        return made

    def places(self, i: Value) -> list[Value]:
        """The addresses are read again each time: registers are too few for them."""
        at = i * (self.code.parts * self.code.size_of_real)
        return [base + at for base in addresses(self.code, self.table)]

    def load(self, i: Value, asks: bool = True) -> list[Any]:
        code, kind, places = self.code, ir.VectorType(self.code.real, QUAD), self.places(i)
        rows = rows_of_lines(code, in_lanes(code, [code.load_as(kind, place) for place in places]))
        if asks:
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


class Contiguous:
    """Operands whose rows are contiguous.

    ``moves``: by how many rows each is moved, since a and c come from other rows where the matrix is transposed.
    ``pads``: the first row of all and the one behind the last, of which a and c are ``outer``, if they are bands.
    ``turned``: a and c come from the row before and the one behind, and of the pads nothing is read.
    """

    def __init__(
        self,
        code: Code,
        operands: Sequence[Any],
        moves: Sequence[Any],
        pads: Sequence[Value] = (),
        outer: float = 0.0,
        turned: bool = False,
    ) -> None:
        self.code, self.lines, self.moves, self.pads = code, [Lines(code, x) for x in operands], moves, pads
        self.height, self.outer, self.turned = QUAD // code.parts, outer, turned

    def of_lanes(self, code: Code, first: int) -> Contiguous:
        made = copy.copy(self)
        made.code, made.lines = code, [band.of_lanes(code, first) for band in self.lines]
        return made

    def read(self, i: Value, asks: bool = True) -> Any:
        """The entries of `height` rows from i on; unless it ``asks`` for others, the rows beside have done so."""
        code, moves = self.code, list(self.moves)
        if self.pads:
            (low, high), outer = self.pads, code.one() if self.outer else code.zero()
            top, bottom = i == low, i + self.height == high
        if self.turned:
            moves[0], moves[2] = (code.pick(pad, code.integer(0), moves[k]) for k, pad in ((0, top), (2, bottom)))
        bands = [band.load(i + move, asks) for band, move in zip(self.lines, moves, strict=True)]
        if self.turned:
            a, _, c, *_ = bands
            bands[0] = [code.where(code.everywhere(top), x, y) for x, y in zip([outer, *a[:-1]], a, strict=True)]
            bands[2] = [code.where(code.everywhere(bottom), x, y) for x, y in zip([*c[1:], outer], c, strict=True)]
        elif self.pads:
            a, _, c, *_ = bands
            a[0] = code.where(code.everywhere(top), outer, a[0])
            c[-1] = code.where(code.everywhere(bottom), outer, c[-1])
        return zip(*bands, strict=True)

    def rows(self, i: Value) -> Iterator[tuple[Value, Any]]:
        """The lanes that `height` rows from i on keep, and their entries."""
        every = self.code.all_lanes()
        for entries in self.read(i):
            yield every, entries

    def least(self, sweep: Any) -> int:
        """The lanes that a step is taken of at a time, or more."""
        return sweep.registers * lanes_of_register(self.code)

    def down(self, first: Value, last: Value, sweep: Any, rest: Value | None = None) -> None:
        """``rest``: so many rows before the first one, too few for a chunk, come with those behind them, which are
        taken once more."""

        def states(code: Code, lane: int, i: Value, state: Any) -> list[Any]:
            part, found = sweep.of_lanes(code, lane), []
            for k, (keep, entries) in enumerate(self.of_lanes(code, lane).rows(i)):
                state = part.step(state, i - first + k, keep, *entries)
                found.append(state)
            return found

        def chunk(code: Code, lane: int, i: Value, state: Any) -> Any:
            return states(code, lane, i, state)[-1]

        def begin(code: Code, lane: int, i: Value, state: Any) -> Any:
            return state_after(code, rest, states(code, lane, i, state))

        state, least = sweep.start(), self.least(sweep)
        if rest is not None:
            state = by_register(self.code, *once(first - rest, rest), begin, state, least=least)
        sweep.leave(by_register(self.code, first, last, chunk, state, self.height, least))


def once(i: Value, rest: Value) -> tuple[Value, Value]:
    """The ends of a loop over i alone if there is a rest, else over nothing."""
    code = i.code
    return i, i + code.pick(rest > 0, code.integer(1), code.integer(0))


def state_after(code: Code, rest: Any, states: list[Any]) -> Any:
    """The state after ``rest`` rows of a chunk, at least one and not all, from those after each of them."""
    state = states[0]
    for k, other in enumerate(states[1:-1], 2):
        reached = code.everywhere(rest >= k)
        chosen = [code.where(reached, x, y) for x, y in zip(flatten(other), flatten(state), strict=True)]
        state = rebuild(state, iter(chosen))
    return state


def to_contiguous(
    code: Code,
    output: Value,
    first: Value,
    last: Value,
    sweep: Any,
    kept: Callable[[Value, Any], Any] | None = None,
    rest: Value | None = None,
) -> None:
    """Rows of a solution, last row first, to an operand whose rows are contiguous.

    ``kept(i, x)``: what is left of x of row i where rows are taken out. ``rest``: so many rows behind the last one, too
    few for a chunk, come first, with those before them, which are found once more.
    """
    lines, height = Lines(code, output), QUAD // code.parts

    def states(i: Value, state: Any) -> list[Any]:
        rows: list[Any] = []
        found = []
        for k in reversed(range(height)):
            x = sweep.solution(i + k - first, state)
            x = kept(i + k, x) if kept else x
            state = x, *state[:-1]
            rows.append(x)
            found.append(state)
        lines.store(i, rows[::-1])
        return found

    state = sweep.start()
    if rest is not None:
        begin = once(last + rest - height, rest)
        state = code.fori(*begin, lambda i, state: state_after(code, rest, states(i, state)), state)
    sweep.leave(code.fori(last - height, first - 1, lambda i, state: states(i, state)[-1], state, step=-height))


# ------------------------------------------------------------------------------------------------ interleaved


def place_of(code: Code, g: Value, most: Value) -> Value:
    """How many bytes group g lies behind the first: the last one may lie over a part of the one before it."""
    place = g * code.row
    return code.pick(place < most, place, most)


class Interleaved:
    """Bands where lanes lie side by side, of several groups; ``most``: the place of the last group.

    ``moves``: as in `Contiguous`. ``end``: the row behind the last of all. The pads, of row 0 and before ``end``, are
    not read. ``asks``: the rows do not follow each other in memory, so that whole ones are asked for, and taken
    in pairs.
    """

    def __init__(
        self, code: Code, operands: Sequence[Any], moves: Sequence[Any], words: Sequence[Value], asks: bool = True
    ) -> None:
        self.code, self.moves, self.asks = code, moves, asks
        self.most, self.end, self.groups = words
        self.strides, self.tables = [x.stride for x in operands], [x.lanes[0] for x in operands]

    def bases(self, i: Value, top: Value, bottom: Value) -> list[Value]:
        """Where the first group has row i."""
        pads, zero = (top, top, bottom, top), self.code.integer(0)
        rows = [i + self.code.pick(pad, zero, move) for pad, move in zip(pads, self.moves, strict=True)]
        return [table + k * stride for table, k, stride in zip(self.tables, rows, self.strides, strict=True)]

    def read(self, i: Value) -> Callable[[Value], Any]:
        """A function (g): the entries of group g at row i."""
        code, (top, bottom) = self.code, (i == 0, i == self.end - 1)
        bases = self.bases(i, top, bottom)

        def group(g: Value) -> Any:
            place = place_of(code, g, self.most)
            for base, stride in zip(bases, self.strides, strict=True):
                ahead = stride * ROWS_AHEAD if self.asks else code.integer(STREAM_AHEAD)
                for line in range(0, code.row, LINE):
                    code.prefetch(base + ahead + place + line)
            a, b, c, d = (take_interleaved(code, base + place) for base in bases)
            a, c = (code.where(code.everywhere(pad), code.zero(), x) for pad, x in ((top, a), (bottom, c)))
            return a, b, c, d

        return group

    def row(self, i: Value) -> Callable[[Value], Any]:
        """A function (g): the lanes of group g that row i keeps, and its entries."""
        every, entries = self.code.all_lanes(), self.read(i)
        return lambda g: (every, *entries(g))

    def down(self, first: Value, last: Value, sweep: Any) -> None:
        code = self.code

        def rows(height: int, i: Value, state: Any) -> Any:
            found = [self.row(i + k) for k in range(height)]

            def group(g: Value, state: Any) -> Any:
                own = sweep.group(g).from_row(i - first)
                carried = own.start()
                for k, row in enumerate(found):
                    carried = own.step(carried, code.integer(k), *row(g))
                own.leave(carried)
                return state

            return code.fori(0, self.groups, group, state)

        # complex numbers, and rows that fill several registers, would leave none for the next row
        pairs = self.asks and code.parts == 1 and lanes_of_register(code) == code.lanes
        paired = first + ((last - first) & 1) if pairs else last
        code.fori(first, paired, functools.partial(rows, 1))
        if pairs:
            code.fori(paired, last, functools.partial(rows, PAIR), step=PAIR)


class Narrow(Interleaved):
    """One group of real numbers, whose state stays in registers; of a negative ``most`` a vector is not full.

    The other lanes have rows of the identity.
    """

    def kept(self, i: Value, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        """The lanes that row i keeps, and its entries."""
        return self.code.all_lanes(), *entries

    def down(self, first: Value, last: Value, sweep: Any) -> None:
        code, used = self.code, lanes_used(self.code, self.most)

        def row(i: Value, state: Any) -> Any:
            top, bottom = i == 0, i == self.end - 1
            bases = self.bases(i, top, bottom)
            for base in bases:
                code.prefetch(base + STREAM_AHEAD)
            a, b, c, d = (code.load_some(base, used) for base in bases)
            a, c = (code.where(code.everywhere(pad), code.zero(), x) for pad, x in ((top, a), (bottom, c)))
            return sweep.step(state, i - first, *self.kept(i, (a, code.where(used, b, code.one()), c, d)))

        sweep.leave(code.fori(first, last, row, sweep.start()))


def whole(i: Value, g: Value, x: Any) -> Any:
    """What is left of x of row i of group g where no row is taken out."""
    return x


def lanes_used(code: Code, most: Value) -> Value:
    """Those of the only group, the place of which would be ``most`` if it ended where the systems do."""
    return first_lanes(code, (most + code.row) / code.size_of_real)


def to_narrow(code: Code, target: Sequence[Value], count: Value, sweep: Any, kept: Callable[..., Any] = whole) -> None:
    """Rows of the solution of one group, last row first, to memory where lanes lie side by side: see `Narrow`.

    ``kept``: as in `solution_of_groups`.
    """
    x, x_step, most = target
    used = lanes_used(code, most)

    def row(i: Value, behind: Any) -> Any:
        found = kept(i, code.integer(0), sweep.solution(i, behind))
        code.store_some(x + i * x_step, found, used)
        return found, *behind[:-1]

    sweep.leave(code.fori(count - 1, -1, row, sweep.start(), step=-1))


def to_interleaved(
    past_caches: bool, code: Code, target: Sequence[Value], count: Value, groups: Value, solution: Any
) -> None:
    """Rows of solutions, last row first, to memory where lanes lie side by side.

    ``solution(i, g, height)``: so many rows of group g, row i first and then those before it.

    ``target``: where the first row is, how far the next, and the place of the last group.
    """
    x, x_step, most = target

    def rows(height: int, i: Value, state: Any) -> Any:
        def group(g: Value, state: Any) -> Any:
            place = place_of(code, g, most)
            for k, found in enumerate(solution(i, g, height)):
                address = x + (i - k) * x_step + place
                if not past_caches:
                    for line in range(0, code.row, LINE):
                        code.prefetch(address - x_step * ROWS_AHEAD + line, write=True)
                put_interleaved(code, address, found, past_caches)
            return state

        return code.fori(0, groups, group, state)

    paired = count - (count & 1) - 1
    code.fori(count - 1, paired, functools.partial(rows, 1), step=-1)
    code.fori(paired, -1, functools.partial(rows, PAIR), step=-PAIR)


def solution_of_groups(sweep: Any, kept: Callable[..., Any] = whole) -> Callable[[Value, Value, int], list[Any]]:
    """For `to_interleaved`: x of rows of group g by a sweep; ``kept(i, g, x)``: what is left of that of row i."""

    def solution(i: Value, g: Value, height: int) -> list[Any]:
        own, found = sweep.group(g), []
        behind = own.start()
        for k in range(height):
            found.append(kept(i - k, g, own.solution(i - k, behind)))
            behind = found[-1], *behind[:-1]
        own.leave(behind)
        return found

    return solution
