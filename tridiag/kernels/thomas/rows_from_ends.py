"""Rows of groups of systems, eliminated from both ends to the row in the middle, and substituted from there."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.layouts import STREAM_AHEAD
from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Factoring, Thomas, certified, invertible, lossless, no_quotient
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN

ALL, SOME = 2, 1  # of systems have a certificate
EARLY = 32  # rows from each end, after which a group is given up where no system has its certificate


# ------------------------------------------------------------------------------------------------ rows of a group


class Half(NamedTuple):
    """The numbers of rows that are eliminated from the bottom and from the top of ``n``, but for the one between."""

    bottom: Value
    top: Value

    @staticmethod
    def of(code: Code, n: Value) -> Half:
        bottom = code.shift(n - 1, -1)
        return Half(bottom, n - 1 - bottom)


def places(code: Code, kept: Value, half: Half) -> tuple[list[Rows], list[Rows]]:
    """What is kept of rows, counted from the top and from the bottom; before the first from the top is one place."""
    step = ROWS_PLAIN * code.row
    top = kept + step
    return tuple(  # type: ignore[return-value]
        [Rows(code, base + k * code.row, step) for k in range(ROWS_PLAIN)] for base in (top, top + half.top * step)
    )


class Band(NamedTuple):
    """A band or a right side of groups: the first row, from row to row, from group to group, by how many rows moved."""

    at: Value
    stride: Value
    step: Value
    move: Value

    def load(self, code: Code, g: Value, i: Value, used: Value, ahead: int) -> Value:
        """``ahead``: how many bytes further on memory is asked for."""
        place = self.at + g * self.step + (i + self.move) * self.stride
        if code.lanes == 1:
            return code.load(place)
        code.prefetch(place + ahead)
        return code.load_some(place, used)


def lanes_used(code: Code, systems: Value, g: Value) -> Value:
    return code.all_lanes() if code.lanes == 1 else first_lanes(code, systems - g * code.lanes)


class Group:
    """Rows of one group, which are read from the first or from the last on."""

    def __init__(self, code: Code, bands: list[Band], g: Value, used: Value, ahead: int = STREAM_AHEAD) -> None:
        self.code, self.bands, self.g, self.used, self.ahead = code, bands, g, used, ahead

    def backwards(self) -> Group:
        return Group(self.code, self.bands, self.g, self.used, -self.ahead)

    def row(self, i: Value, first: Value | None = None, last: Value | None = None) -> tuple[Any, ...]:
        """The entries of row i; ``first``, ``last``: whether it is that row, which has one coupling less."""
        a, b, c, d = self.bands
        coupling, behind = self.coupling(a, i, first), self.coupling(c, i, last)
        diagonal = self.code.where(self.used, self.entry(b, i), self.code.one())
        return coupling, diagonal, behind, self.entry(d, i)

    def entry(self, band: Band, i: Value) -> Value:
        return band.load(self.code, self.g, i, self.used, self.ahead)

    def coupling(self, band: Band, i: Value, gone: Value | None) -> Value:
        if gone is None:
            return self.entry(band, i)
        code = self.code
        x = self.entry(band._replace(move=code.pick(gone, code.integer(0), band.move)), i)
        return code.where(code.everywhere(gone), code.zero(), x)


def nothing_above(code: Code) -> Thomas:
    """The state before a first row."""
    return Thomas(code.zero(), code.zero(), code.all_lanes(), code.all_lanes(), no_quotient(code))


def sure_of(code: Code, state: Thomas | Factoring) -> Value:
    return state.sure & state.alive & lossless(code, state.least)


def eliminate_group(code: Code, group: Group, n: Value, kept: Value) -> Value:
    """c' and y' of all rows but the middle one, and x of that; the certified lanes."""
    half, every = Half.of(code, n), code.all_lanes()
    above, below = places(code, kept, half)

    def down(k: Value, state: Thomas) -> Thomas:
        state, rows = state.down(code, every, *group.row(k, first=k == 0))
        for target, x in zip(above, rows, strict=True):
            target.store(k, x)
        return state

    def pair(k: Value, states: Any) -> Any:
        a, b, c, d = group.backwards().row(n - 1 - k, last=k == 0)
        state, rows = states[1].down(code, every, c, b, a, d)
        for target, x in zip(below, rows, strict=True):
            target.store(k, x)
        return down(k, states[0]), state

    nothing = nothing_above(code)
    soon = code.pick(half.bottom < EARLY, half.bottom, code.integer(EARLY))
    states = code.fori(0, soon, pair, (nothing, nothing))
    fine = code.bits(sure_of(code, states[0]) & sure_of(code, states[1]) & group.used)
    end = code.pick(fine == 0, soon, half.bottom)
    top, bottom = code.fori(soon, end, pair, states)
    top = code.fori(half.bottom, half.top, down, top)
    x, sure = join(code, top, bottom, group.row(half.top, first=half.top == 0, last=half.bottom == 0))
    Rows(code, kept, 0).store(code.integer(0), x)
    return code.bits(sure | ~group.used)


def join(code: Code, top: Thomas, bottom: Thomas, row: tuple[Any, ...]) -> tuple[Value, Value]:
    """x of the row between two that are eliminated, and where that was harmless."""
    a, _, c, d = row
    middle, sure = middle_row(code, row[:3], top, bottom)
    return (d - a * top.before - c * bottom.before) * middle.inverse, sure


def middle_row(code: Code, row: tuple[Any, ...], top: Any, bottom: Any) -> tuple[el.Reciprocal, Value]:
    """The row of a matrix between two that are eliminated, without their unknowns, and where that was harmless."""
    a, b, c = row
    left, right = a * top.above, c * bottom.above
    pivot = b - left - right
    middle = el.Reciprocal(code.size(left) + code.size(right), pivot, code.one() / pivot, pivot)
    return middle, certified(code, middle, b) & invertible(code, pivot) & sure_of(code, top) & sure_of(code, bottom)


def substitute_group(code: Code, band: Band, g: Value, n: Value, kept: Value, used: Value) -> None:
    """x of all rows of some lanes, from the middle to both ends."""
    half, start = Half.of(code, n), code.load(kept)
    above, below = places(code, kept, half)

    def put(i: Value, x: Value) -> Value:
        place = band.at + g * band.step + i * band.stride
        if code.lanes == 1:
            code.store(place, x)
        else:
            code.store_some(place, x, used)
        return x

    def up(k: Value, x1: Value) -> Value:
        return put(k, Thomas.up([rows[k] for rows in above], x1))

    def pair(k: Value, behind: Any) -> Any:
        return up(k, behind[0]), put(n - 1 - k, Thomas.up([rows[k] for rows in below], behind[1]))

    put(half.top, start)
    top = code.fori(half.top - 1, half.bottom - 1, up, start, step=-1)
    code.fori(half.bottom - 1, -1, pair, (top, start), step=-1)


# ------------------------------------------------------------------------------------------------ groups


def bytes_kept(code: Code, n: Value) -> Value:
    return (n + 1) * (ROWS_PLAIN * code.row)


def eliminate(code: Code, *words: Value) -> Value | None:
    """All groups of some neighbours; whether ALL, SOME or none have their certificate.

    ``words``: four bands, how many rows and systems, and where `Ends` are kept.
    """
    *bands, n, systems, kept, good = words
    if code.parts != 1:
        return None  # of complex numbers it is never called
    four = [Band(*bands[k : k + 4]) for k in range(0, len(bands), 4)]

    def group(g: Value, state: Any) -> Any:
        used = lanes_used(code, systems, g)
        fine = eliminate_group(code, Group(code, four, g, used), n, kept + g * bytes_kept(code, n))
        code.store_as(good + g * 8, fine)
        return state[0] & fine, state[1] | (fine & code.bits(used))

    every, none = code.integer(2**code.lanes - 1), code.integer(0)
    whole, some = code.fori(0, groups_in(code, systems), group, (every, none))
    return code.pick(whole == every, code.integer(ALL), code.pick(some == 0, none, code.integer(SOME)))


def substitute(code: Code, *words: Value) -> None:
    """The lanes that are good. ``words``: the solution, as a band, how many rows and systems, where `Ends` are kept."""
    *band, n, systems, kept, good = words
    if code.parts != 1:
        return

    def group(g: Value, state: tuple[()]) -> tuple[()]:
        lanes = code.word(good + g * 8)
        used = lanes_used(code, systems, g) & code.mask(lanes)
        place = kept + g * bytes_kept(code, n)

        def once(_: Value, state: tuple[()]) -> tuple[()]:
            substitute_group(code, Band(*band), g, n, place, used)
            return state

        return code.fori(0, code.pick(lanes == 0, code.integer(0), code.integer(1)), once, state)

    code.fori(0, groups_in(code, systems), group)


def groups_in(code: Code, systems: Value) -> Value:
    return (systems + (code.lanes - 1)) / code.lanes


def in_numbers(body: Any) -> Any:
    """The same of groups of one system, of which one number is kept where else is a row of lanes."""

    def write(code: Code, *words: Value) -> Any:
        one = code.of_lanes(1)
        one.row = one.size_of_real
        return body(one, *(Value(one, x.llvm) for x in words))

    return write


LOOPS = Library("both_ends")
ELIMINATE, SUBSTITUTE = LOOPS.add("eliminate", eliminate), LOOPS.add("substitute", substitute)
ELIMINATE_ONE = LOOPS.add("eliminate_one", in_numbers(eliminate))
SUBSTITUTE_ONE = LOOPS.add("substitute_one", in_numbers(substitute))
