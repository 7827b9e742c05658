"""Rows of systems of which rows are taken out, from both ends of two systems at a time: an end of one in each lane.

What one lane does is what `tridiag.kernels.thomas.rows_from_ends` does with an end of a system.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.access.masked_layouts import without
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I8, Code
from tridiag.kernels.thomas.rows_from_ends import ALL, EARLY, SOME, Half, join, nothing_above, sure_of
from tridiag.kernels.thomas.steps import Thomas
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN

PAIR = 2  # systems, in whose lanes are first their upper ends and then their lower ones


class Operand(NamedTuple):
    """An operand of a pair: the first row of both systems, from row to row, by how many rows a band is moved."""

    places: tuple[Value, Value]
    stride: Value
    move: Value

    def numbers(self, code: Code, kind: Any, rows: Any) -> Value:
        """Of each system that of each of some rows: of both of the first row, of both of the second."""
        places = [base + i * self.stride for i in rows for base in self.places]
        x = code.undefined(ir.VectorType(kind, len(places)))
        for lane, place in enumerate(places):
            x = code.insert(x, code.load_as(kind, place), lane)
        return x


class Systems(NamedTuple):
    """Two systems: their bands, right sides and masks."""

    bands: tuple[Operand, Operand, Operand, Operand]
    mask: Operand
    n: Value

    def entries(self, code: Code, rows: Any, tops: Any, bottoms: Any) -> tuple[Any, ...]:
        """a, b, c, d of some rows; which of them are the first or the last ones of all, where no coupling is read."""
        (a, b, c, d), zero = self.bands, code.integer(0)
        above = [i + code.pick(top, zero, a.move) for i, top in zip(rows, tops, strict=True)]
        below = [i + code.pick(bottom, zero, c.move) for i, bottom in zip(rows, bottoms, strict=True)]
        found = ((a, above), (b, rows), (c, below), (d, rows))
        return tuple(band.numbers(code, code.real, which) for band, which in found)

    def kept(self, code: Code, rows: Any) -> Value:
        """The lanes that keep some rows, of which none lies outside."""
        inside = [code.pick(i < 0, code.integer(0), code.pick(i < self.n, i, self.n - 1)) for i in rows]
        return self.mask.numbers(code, I8, inside) != 0


def swapped(code: Code, x: Value, y: Value) -> tuple[Value, Value]:
    """In the lanes of the lower ends y for x, and x for y."""
    count = 2 * PAIR
    order = [k if k < PAIR else count + k for k in range(count)]
    return code.shuffle(x, y, order), code.shuffle(y, x, order)


def eliminate_pair(code: Code, systems: Systems, kept: Value) -> Value:
    """c' and y' of all rows but the middle ones, and x of those; the certified systems.

    Of an even number of rows one more is eliminated from the top, while the lower ends wait.
    """
    n = systems.n
    half, upper, row = Half.of(code, n), code.mask(code.integer(2**PAIR - 1)), ROWS_PLAIN * code.row

    def step(k: Value, state: tuple[Thomas, Value, Value], going: Value | None = None) -> Any:
        thomas, before, keep = state
        i, j = k, n - 1 - k
        a, b, c, d = systems.entries(code, (i, j), (k == 0, k < 0), (k < 0, k == 0))
        above, below = swapped(code, a, c)
        above = code.where(code.everywhere(k == 0), code.zero(), above)
        behind = systems.kept(code, (i + 1, j - 1))
        new, rows = thomas.down(code, keep, *without(code, (above, b, below, d), before, keep, behind))
        if going is not None:
            new = Thomas(*(code.where(going, x, y) for x, y in zip(new, thomas, strict=True)))
        for m, x in enumerate(rows):
            code.store(kept + (k * row + (row + m * code.row)), x)
        return new, keep, behind

    keep = systems.kept(code, (code.integer(0), n - 1))
    start = nothing_above(code), keep, keep
    soon = code.pick(half.bottom < EARLY, half.bottom, code.integer(EARLY))
    state = code.fori(0, soon, step, start)
    fine = code.bits(sure_of(code, state[0]))
    some = code.shift(fine, -PAIR) & fine
    end = code.pick(some == 0, soon, half.bottom)
    state = code.fori(soon, end, step, state)
    state = code.fori(half.bottom, half.top, lambda k, state: step(k, state, upper), state)
    return close(code, systems, state[0], kept, half.top)


def close(code: Code, systems: Systems, state: Thomas, kept: Value, middle: Value) -> Value:
    """x of the middle rows, to the first place of what is kept; the certified systems."""
    own, n = code.of_lanes(PAIR), systems.n

    def end(first: int) -> Thomas:
        return Thomas(*(Value(own, code.part(x, first, PAIR).llvm) for x in state))

    rows = (middle,)
    first, last = middle == 0, middle == n - 1
    entries = [Value(own, x.llvm) for x in systems.entries(own, rows, (first,), (last,))]
    before, keep, behind = (systems.kept(own, (middle + move,)) for move in (-1, 0, 1))
    a, b, c, d = without(own, entries, before, keep, behind)
    a, c = (own.where(own.everywhere(edge), own.zero(), x) for edge, x in ((first, a), (last, c)))
    x, sure = join(own, end(0), end(PAIR), (a, b, c, d))
    x = own.where(keep, x, own.zero())
    code.store(kept, Value(code, own.join(x, x).llvm))
    return own.bits(sure)


def substitute_pair(code: Code, systems: Systems, target: Operand, kept: Value, good: Value) -> None:
    """x of all rows of the systems that are good, from the middle to both ends."""
    n, row, upper = systems.n, ROWS_PLAIN * code.row, code.mask(code.integer(2**PAIR - 1))
    half, start = Half.of(code, n), code.load(kept)

    def put(x: Value, lane: int, system: int, i: Value) -> None:
        def once(_: Value, state: tuple[()]) -> tuple[()]:
            code.store_as(target.places[system] + i * target.stride, code.extract(x, lane))
            return state

        code.fori(0, code.shift(good, -system) & 1 if system else good & 1, once, ())

    def up(k: Value, x1: Value) -> Value:
        at = kept + (k * row + row)
        return Thomas.up([code.load(at), code.load(at + code.row)], x1)

    def pair(k: Value, x1: Value) -> Value:
        i, j = k, n - 1 - k
        x = code.where(systems.kept(code, (i, j)), up(k, x1), code.zero())
        for system in range(PAIR):
            put(x, system, system, i)
            put(x, PAIR + system, system, j)
        return x

    def top(k: Value, x1: Value) -> Value:
        x = code.where(upper, code.where(systems.kept(code, (k, k)), up(k, x1), code.zero()), x1)
        for system in range(PAIR):
            put(x, system, system, k)
        return x

    for system in range(PAIR):
        put(start, system, system, half.top)
    x = code.fori(half.top - 1, half.bottom - 1, top, start, step=-1)
    code.fori(half.bottom - 1, -1, pair, x, step=-1)


def bytes_kept(code: Code, n: Value) -> Value:
    """Of a pair."""
    return (code.shift(n, -1) + 2) * (ROWS_PLAIN * code.row)


def four(code: Code) -> Code:
    """What writes for the four ends of a pair."""
    made = code.of_lanes(2 * PAIR)
    made.row = 2 * PAIR * code.size_of_real
    return made


def over_pairs(code: Code, words: Any, each: Any, start: Any) -> Any:
    """``each`` pair of some neighbours. Words: as of `eliminate`."""
    *given, n, systems, kept, good = words
    fields = [given[k : k + 4] for k in range(0, len(given), 4)]  # where it begins, from row to row, to system, moved

    def pair(p: Value, state: Any) -> Any:
        first = p * PAIR
        second = code.pick(first + 1 < systems, first + 1, first)  # of an odd number the last one is alone
        operands = [Operand((at + first * step, at + second * step), stride, move) for at, stride, step, move in fields]
        return each(p, operands, n, kept + p * bytes_kept(code, n), good + p * 8, state)

    return code.fori(0, (systems + (PAIR - 1)) / PAIR, pair, start)


def eliminate(full: Code, *words: Value) -> Value | None:
    """All pairs of some neighbours; whether ALL, SOME or none of the systems have their certificate.

    ``words``: four bands and the mask, how many rows and systems, and where `Ends` are kept.
    """
    if full.parts != 1:
        return None  # of complex numbers it is never called
    code = four(full)

    def each(p: Value, operands: Any, n: Value, kept: Value, good: Value, state: Any) -> Any:
        fine = eliminate_pair(code, Systems(tuple(operands[:4]), operands[4], n), kept)
        code.store_as(good, fine)
        return state[0] & fine, state[1] | fine

    every, none = code.integer(2**PAIR - 1), code.integer(0)
    whole, some = over_pairs(code, [Value(code, x.llvm) for x in words], each, (every, none))
    return code.pick(whole == every, code.integer(ALL), code.pick(some == 0, none, code.integer(SOME)))


def substitute(full: Code, *words: Value) -> None:
    """The systems that are good. ``words``: the solution, as a band, and the mask; the others as of `eliminate`."""
    if full.parts != 1:
        return
    code = four(full)

    def each(p: Value, operands: Any, n: Value, kept: Value, good: Value, state: Any) -> Any:
        x, mask = operands
        substitute_pair(code, Systems((x, x, x, x), mask, n), x, kept, code.word(good))
        return state

    over_pairs(code, [Value(code, x.llvm) for x in words], each, ())


LOOPS = Library("rows_in_pairs")
ELIMINATE_PAIRS, SUBSTITUTE_PAIRS = LOOPS.add("eliminate", eliminate), LOOPS.add("substitute", substitute)
