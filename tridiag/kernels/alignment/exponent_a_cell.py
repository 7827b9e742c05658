"""Rows of cells whose numbers have an exponent each: alignments of any scores, at any temperature and length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tridiag.kernels.access.operands import ask
from tridiag.kernels.alignment.state import (
    BY_GAP_,
    BY_OPEN_,
    BY_TEMPERATURE_,
    COLUMNS_,
    FACTOR_,
    FLAW,
    GAP_,
    INVERSE_M,
    NEGLIGIBLE,
    OPEN_,
    PEAK,
    ROWS_,
    Z_E,
    Z_M,
    get,
    load_integers,
    put,
    spread,
)
from tridiag.kernels.jobs.words.alignment import USUAL, Kind, Rules
from tridiag.kernels.simd.powers import Exponential, Power, constant, integer, largest, normal, nothing, scale, times
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

AHEAD = 16  # cells, of the memory that is asked for

Product = tuple[Power | None, Sequence[Power | None]]  # a factor times a sum; None is 1


def combine(code: Code, *products: Product) -> tuple[list[Value], Value]:
    """The products as mantissas of one exponent."""
    exponents = [[exponent(factor, x) for x in terms] for factor, terms in products]
    e = largest(code, *(x for row in exponents for x in row))
    mantissas = []
    for (factor, terms), row in zip(products, exponents, strict=True):
        scaled = [scale(code, code.one() if x is None else x.m, y - e) for x, y in zip(terms, row, strict=True)]
        total = sum(scaled[1:], scaled[0])
        mantissas.append(total if factor is None else factor.m * total)
    return mantissas, e


def exponent(x: Power | None, y: Power | None) -> Value:
    found = [z.e for z in (x, y) if z is not None]
    return sum(found[1:], found[0])


def total(code: Code, *products: Product) -> Power:
    """The sum of products, its mantissa made normal."""
    mantissas, e = combine(code, *products)
    return normal(code, sum(mantissas[1:], mantissas[0]), e)


class Row:
    """What the cells of a row have in common."""

    def __init__(self, code: Code, record: Value, scores: Value, i: Value) -> None:
        self.code, self.record, self.scores = code, record, scores
        self.exp = Exponential(code, self.read(FACTOR_))
        self.gap, self.open = (self.exp(self.read(k)) for k in (GAP_, OPEN_))
        self.largest = constant(code, 1.0 / code.tiny)
        self.inverse = get(code, record + INVERSE_M * LINE, 0)
        rows, columns = (load_integers(code, record + k * LINE) for k in (ROWS_, COLUMNS_))
        self.limit = code.where(spread(code, i) < rows, columns, integer(code, 0))

    def read(self, k: int) -> Value:
        return self.code.load(self.record + k * LINE)

    def write(self, k: int, x: Value) -> None:
        self.code.store(self.record + k * LINE, x)

    def score(self, j: Value, has: Value) -> tuple[Value, Value]:
        """The score of a cell, -inf where a lane has no such cell; the same as small as can be where it is -inf."""
        s = self.code.where(has, self.code.load(self.scores + j * LINE), constant(self.code, -math.inf))
        return s, largest(self.code, self.exp.lowest, s)

    def flaw(self, s: Value) -> Value:
        """Zero, or NaN where the score is."""
        return self.code.where(self.largest < s, self.largest, s) * 0.0

    def counted(self, x: Power, has: Value) -> Power:
        return Power(x.m, self.code.where(has, x.e, nothing(self.code).e))

    def share(self, x: Value, y: Power, e: Value) -> Value:
        """The part of Z that is x 2**e y."""
        part = x * self.inverse.m * scale(self.code, y.m, y.e + e + self.inverse.e)
        return self.code.where(part < NEGLIGIBLE[self.code.size_of_real], self.code.zero(), part)


class Linear:
    """What is done to a cell under linear gaps, from left to right and back.

    STATE, BACK: numbers of a cell that the next row needs. ``kept``: rows of lanes of a cell that the backward pass
    needs: M and its exponent, and for the gradients of the parameters X + Y, which has the same. Where gaps are no
    ends both have an exponent of their own; where a first match is none M is kept without it.
    """

    STATE, BACK = 1, 2

    def __init__(self, parameters: bool, rules: Rules = USUAL) -> None:
        self.gaps_end, self.first_ends = rules.ends == "any", rules.ends != "later_match"
        self.parameters, self.kept = parameters, (3 if self.gaps_end else 4) if parameters else 2
        self.places = (BY_GAP_, BY_TEMPERATURE_)

    def forward(self, row: Row, w: Power, before: Any, state: Value, kept: Value) -> tuple[Any, Power]:
        """What the next cell follows from, and what ends here."""
        if not self.gaps_end:
            return self.forward_to_match(row, w, before, state, kept)
        code, (diagonal, left), up = row.code, before, get(row.code, state, 0)
        (match, gaps), e = combine(code, (w, (diagonal, None)), (row.gap, (up, left)))
        here = normal(code, match + gaps, e)
        put(code, state, 0, here)
        put(code, kept, 0, Power(match, e))
        if self.parameters:
            code.store(kept + 2 * LINE, gaps)
        return (up, here), here

    def forward_to_match(self, row: Row, w: Power, before: Any, state: Value, kept: Value) -> tuple[Any, Power]:
        """The same where gaps are no ends: M may be as small as it is beside what does not count."""
        code, (diagonal, left), up = row.code, before, get(row.code, state, 0)
        match, gaps = total(code, (w, (diagonal, None))), total(code, (row.gap, (up, left)))
        here, ends = total(code, (None, (match, gaps))), match if self.first_ends else times(w, diagonal)
        put(code, state, 0, here)
        put(code, kept, 0, ends)
        if self.parameters:
            put(code, kept, 1, gaps)
        return (up, here), normal(code, *ends)

    def backward(self, row: Row, w: Power, end: Power, after: Any, state: Value, kept: Value) -> tuple[Any, Any]:
        (diagonal, right), below, next_diagonal = after, get(row.code, state, 0), get(row.code, state, 1)
        if self.gaps_end:
            here = total(row.code, (None, (diagonal, end)), (row.gap, (below, right)))
            after_match = here
        else:
            (rest, gaps), e = combine(row.code, (None, (diagonal,)), (row.gap, (below, right)))
            here = normal(row.code, rest + gaps, e)
            after_match = total(row.code, (None, (here, end)))
        put(row.code, state, 0, here)
        put(row.code, state, 1, times(w, after_match))
        match, e = get(row.code, kept, 0)
        shares = [row.share(match, after_match, e)]
        if not self.first_ends:
            shares[0] += row.share(w.m, here, w.e)
        if self.parameters:
            in_gaps = Power(row.code.load(kept + 2 * LINE), e) if self.gaps_end else get(row.code, kept, 1)
            shares.append(row.share(in_gaps.m, here, in_gaps.e))
        return (next_diagonal, here), shares


class Affine:
    """The same under affine gaps: M, and for the gradients of the parameters X and Y, each with its exponent.

    ``x_after_y``, ``y_after_x``: whether a gap may follow one of the other kind.
    """

    STATE, BACK = 2, 2  # A and the X of the next row; w BM and BX

    def __init__(self, parameters: bool, rules: Rules = USUAL) -> None:
        self.parameters, self.kept = parameters, 6 if parameters else 2
        self.places = (BY_GAP_, BY_OPEN_, BY_TEMPERATURE_)
        self.gaps_end, self.first_ends = rules.ends == "any", rules.ends != "later_match"
        self.x_after_y, self.y_after_x = rules.turns != "none", rules.turns == "both"

    def forward(self, row: Row, w: Power, before: Any, state: Value, kept: Value) -> tuple[Any, Power]:
        code, gap, opening = row.code, row.gap, row.open
        (diagonal, y), up, x = before, get(code, state, 0), get(code, state, 1)
        (match,), e = combine(code, (w, (diagonal, None)))
        m = Power(match, e)
        keeps = m if self.first_ends else times(w, diagonal)
        here = total(code, (None, (m, x, y)))
        put(code, state, 0, here)
        put(code, state, 1, total(code, (opening, (m, y) if self.x_after_y else (m,)), (gap, (x,))))
        for k, number in enumerate((keeps, x, y) if self.parameters else (keeps,)):
            put(code, kept, k, number)
        right = total(code, (opening, (m, x) if self.y_after_x else (m,)), (gap, (y,)))
        return (up, right), here if self.gaps_end else normal(code, *keeps)

    def backward(self, row: Row, w: Power, end: Power, after: Any, state: Value, kept: Value) -> tuple[Any, Any]:
        code, gap, opening = row.code, row.gap, row.open
        (diagonal, y), next_diagonal, x = after, get(code, state, 0), get(code, state, 1)
        (match,), e = combine(code, (None, (diagonal, end) if self.gaps_end else (diagonal,)))
        c = Power(match, e)
        (rest, opened), e = combine(code, (None, (c,)), (opening, (x, y)))
        here = after_match = normal(code, rest + opened, e)
        if not self.gaps_end:
            after_match = total(code, (None, (here, end)))
        put(code, state, 0, times(w, after_match))
        turns = ((opening, (y,)),) if self.y_after_x else ()
        put(code, state, 1, total(code, (None, (c,)), (gap, (x,)), *turns))
        m = get(code, kept, 0)
        shares = [row.share(m.m, after_match, m.e)]
        if not self.first_ends:
            shares[0] += row.share(w.m, here, w.e)
        if self.parameters:
            in_x, in_y = get(code, kept, 1), get(code, kept, 2)
            shares.append(row.share(in_x.m, times(gap, x), in_x.e) + row.share(in_y.m, times(gap, y), in_y.e))
            opens = normal(code, opened, e)
            opened_after = [(m, opens)] if self.first_ends else [(m, opens), (w, opens)]
            opened_after += [(in_x, times(opening, y))] if self.y_after_x else []
            opened_after += [(in_y, times(opening, x))] if self.x_after_y else []
            shares.append(sum((row.share(x.m, then, x.e) for x, then in opened_after), code.zero()))
        turns = ((opening, (x,)),) if self.x_after_y else ()
        return (next_diagonal, total(code, (None, (c,)), (gap, (y,)), *turns)), shares


def recursion(kind: Kind) -> Linear | Affine:
    return (Affine if kind.affine else Linear)(kind.parameters, kind.rules)


def forward(cells: Any, code: Code, *words: Value) -> None:
    """Row i, whose scores are at hand: its cells follow those of the row before in ``state``; Z grows."""
    record, scores, state, kept, i, columns, bound, start = words
    row, none = Row(code, record, scores, i), nothing(code)

    def cell(j: Value, carried: Any) -> Any:
        (before, z, w), (position, flaw, peak) = powers(carried[0]), carried[1]
        has = position < row.limit
        given, s = row.score(j + 1, position + 1 < row.limit)
        at = state + j * (2 * cells.STATE * LINE), kept + j * (cells.kept * LINE)
        for line in range(cells.kept):
            code.prefetch(at[1] + (AHEAD * cells.kept + line) * LINE, write=True)
        ask(code, bound, start + j)
        before, here = cells.forward(row, w, before, *at)
        (m,), e = combine(code, (None, (z, row.counted(here, has))))
        return (before, (m, e), row.exp(s)), (position + 1, flaw + row.flaw(s), largest(code, peak, given))

    given, s = row.score(code.integer(0), integer(code, 0) < row.limit)
    first = (none, none), (row.read(Z_M), load_integers(code, record + Z_E * LINE)), row.exp(s)
    marks = integer(code, 0), row.read(FLAW) + row.flaw(s), largest(code, row.read(PEAK), given)
    (_, z, _), (_, flaw, peak) = code.fori(0, columns, cell, (first, marks))
    put(code, record + Z_M * LINE, 0, normal(code, *z))
    row.write(FLAW, flaw)
    row.write(PEAK, peak)


def backward(cells: Any, code: Code, *words: Value) -> None:
    """... and back: the gradient takes the place of the scores; the sums behind the other gradients grow."""
    record, scores, state, kept, i, columns, bound, start, target = words
    row, none, zero = Row(code, record, scores, i), nothing(code), code.zero()

    def cell(k: Value, carried: Any) -> Any:
        j, (after, w), (position, s) = columns - 1 - k, powers(carried[0]), carried[1]
        has = position < row.limit
        end = row.counted(Power(code.one(), integer(code, 0)), has)
        _, next_s = row.score(j - 1, position - 1 < row.limit)
        at = state + j * (2 * cells.BACK * LINE), kept + j * (cells.kept * LINE)
        for line in range(cells.kept):
            code.prefetch(at[1] - (AHEAD * cells.kept + line) * LINE)
        ask(code, bound, start + j)
        ask(code, target, start + j)
        after, (match, *others) = cells.backward(row, w, end, after, *at)
        code.store(scores + j * LINE, code.where(has, match, zero))
        terms = (*others, match * s) if cells.parameters else ()
        sums = grow(carried[2], terms)
        return (after, row.exp(next_s)), (position - 1, next_s), sums

    def grow(sums: Any, terms: Any) -> Any:
        if waiting:
            add(terms)
            return ()
        return tuple(x + y for x, y in zip(sums, terms, strict=True))

    def add(terms: Any) -> None:
        for k, x in zip(places, terms, strict=True):
            row.write(k, row.read(k) + x)

    last = columns - 1
    position = spread(code, last)
    _, s = row.score(last, position < row.limit)
    places = cells.places if cells.parameters else ()
    waiting = bytes_of_register() < LINE  # sums are in memory: registers are too few for them
    first = ((none, none), row.exp(s)), (position, s), () if waiting else (zero,) * len(places)
    found = code.fori(0, columns, cell, first)[2]
    if not waiting:
        add(found)


def powers(pairs: Any) -> tuple[Any, ...]:
    """What `fori` carries, as it was given."""
    return tuple(Power(*pair) if isinstance(pair[0], Value) else powers(pair) for pair in pairs)
