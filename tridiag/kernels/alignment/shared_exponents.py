"""Rows of cells whose numbers share an exponent over a run of neighbours: what alignments of ordinary scores take.

The recursions are those of `tridiag.kernels.alignment.kernel`, on plain numbers, each of which stands for itself times
2**e. The exponents e of a run, one for each lane, are chosen such that the largest of what the run follows from, its
neighbours to the left and above and the empty alignment, lies near 2**TOP. What is much smaller than that becomes zero:
no loss where the cells of a run cannot differ by more than the range of numbers, in what goes through them as well.
`shared_exponents_suffice` tells whether that holds: a cell reaches the paths of its neighbour by gaps, which cost
little more than the best matches that it misses. A third of the arithmetic of numbers with an exponent each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from tridiag.kernels.alignment.exponents import RUN, Request, Row, Run, pieces, power_of_two, top
from tridiag.kernels.alignment.state import (
    BY_GAP_,
    BY_OPEN_,
    BY_TEMPERATURE_,
    FACTOR_,
    GAP_,
    NEGLIGIBLE,
    OPEN_,
    PEAK,
    Z_E,
    Z_M,
    load_integers,
    put,
    spread,
)
from tridiag.kernels.jobs.words.alignment import Kind
from tridiag.kernels.simd.powers import (
    Power,
    integer,
    largest,
    normal,
    nothing,
)
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

RUNS_AHEAD = 4  # of the memory that is asked for
SPREAD = {4: 110, 8: 700}  # of the cells of a run at most, see `shared_exponents_suffice`
DEAREST = {4: 32, 8: 200}  # of a gap
FAINT = {4: -60, 8: -500}  # of the largest weight of a pair at least


class Linear:
    """What is done to a cell under linear gaps, from left to right and back.

    STATE, BACK: numbers of a cell that the next row needs; ``kept``: those that the backward pass needs, M first.
    """

    STATE, BACK = 1, 2

    def __init__(self, parameters: bool) -> None:
        self.parameters, self.kept = parameters, 2 if parameters else 1
        self.places = (BY_GAP_, BY_TEMPERATURE_)

    def first(self, code: Code) -> Any:
        """The neighbours of the first cell of a row."""
        return (code.zero(),) * 2

    def lead(self, before: Any) -> Value:
        """A measure of the neighbour at hand."""
        return before[1]

    def moved(self, run: Run, before: Any) -> Any:
        """The same at the exponents of a run; the diagonal neighbour waits until it is used."""
        return before[0], before[1] * run.aside

    def forward(self, run: Run, k: int, w: Value, has: Value, before: Any, up: Sequence[Value]) -> Any:
        code, (diagonal, left), (above,) = run.code, before, up
        match = w * (diagonal * run.diagonal[k] + run.one)
        here = code.where(has, (match + above * run.gap_above) + left * run.gap, code.zero())
        gaps = above * run.gap_above + left * run.gap
        return (above, here), here, [here], [match, gaps][: self.kept]

    def backward(
        self, run: Run, k: int, w: Value, has: Value, after: Any, down: Sequence[Value], kept: Sequence[Value]
    ) -> Any:
        code, (diagonal, right), (below, next_diagonal) = run.code, after, down
        end = code.where(has, run.one, code.zero())
        here = (below * run.gap_above + (diagonal * run.diagonal[k] + end)) + right * run.gap
        return (next_diagonal, here), here, [here, w * here], [[(x, here)] for x in kept]


class Affine:
    """The same under affine gaps: M, and for the gradients of the parameters X and Y."""

    STATE, BACK = 2, 2  # A and the X of the next row; BX and w BM

    def __init__(self, parameters: bool) -> None:
        self.parameters, self.kept = parameters, 3 if parameters else 1
        self.places = (BY_GAP_, BY_OPEN_, BY_TEMPERATURE_)

    def first(self, code: Code) -> Any:
        return (code.zero(),) * 3

    def lead(self, before: Any) -> Value:
        return before[2]

    def moved(self, run: Run, before: Any) -> Any:
        return before[0], before[1] * run.aside, before[2]

    def forward(self, run: Run, k: int, w: Value, has: Value, before: Any, up: Sequence[Value]) -> Any:
        code, (diagonal, y, _), (above, x) = run.code, before, up
        match = w * (diagonal * run.diagonal[k] + run.one)
        x = x * run.above
        here = code.where(has, match + (x + y), code.zero())
        down = code.where(has, (match + y) * run.open + x * run.gap, code.zero())
        right = code.where(has, y * run.gap + (match + x) * run.open, code.zero())
        return (above, right, here), here, [here, down], [match, x, y][: self.kept]

    def backward(
        self, run: Run, k: int, w: Value, has: Value, after: Any, down: Sequence[Value], kept: Sequence[Value]
    ) -> Any:
        code, (diagonal, y, _), (x, next_diagonal) = run.code, after, down
        x = x * run.above
        rest = diagonal * run.diagonal[k] + code.where(has, run.one, code.zero())
        opened = (x + y) * run.open
        match = rest + opened
        in_x = rest + (x * run.gap + y * run.open)
        in_y = rest + (y * run.gap + x * run.open)
        shares = [[(kept[0], match)]]
        if self.parameters:
            shares.append([(kept[1], x * run.gap), (kept[2], y * run.gap)])
            shares.append([(kept[0], opened), (kept[1], y * run.open), (kept[2], x * run.open)])
        return (next_diagonal, in_y, match), match + in_x, [in_x, w * match], shares


def recursion(kind: Kind) -> Linear | Affine:
    """Of all alignments; `exponent_a_cell` has the others."""
    return (Affine if kind.affine else Linear)(kind.parameters)


def lines_of_run(cells: Any) -> int:
    """The lines that the backward pass needs of a run: its exponents, numbers of its cells, and their weights."""
    return 1 + RUN * (cells.kept + 1)


def forward(cells: Any, code: Code, *words: Value) -> None:
    """Row i, whose scores are at hand: its cells follow those of the row before in ``state``; Z grows.

    Narrow registers are too few for all that is done to a run: there the weights of the whole row come first.
    """
    record, scores, state, kept, i, columns, bound, start = words
    rows, ask = pieces(code, record, scores, i), Request(code, bound, start)
    weights_first = len(rows) > 1

    def place(j: Value) -> Value:
        return kept + j / RUN * (lines_of_run(cells) * LINE)

    def ask_for_kept(j: Value) -> None:
        for line in range(lines_of_run(cells)):
            code.prefetch(place(j) + (RUNS_AHEAD * lines_of_run(cells) + line) * LINE, write=True)

    def weights_of_run(row: Row, j: Value, marks: Any) -> Any:
        if row is rows[0]:
            ask_for_kept(j)
        return weigh(cells, row, j, place(j), marks)[1]

    def cells_of_run(j: Value, carried: Any) -> Any:
        if not weights_first:
            ask_for_kept(j)
        ask(j)
        at = state + j / RUN * ((2 + RUN * cells.STATE) * LINE)
        return tuple(run_forward(cells, row, j, at, place(j), *one) for row, one in zip(rows, carried, strict=True))

    for row in rows if weights_first else ():
        row.mark(code.fori(0, columns, functools.partial(weights_of_run, row), row.marks(), step=RUN))
    first = tuple((start_of(cells, row), () if weights_first else row.marks()) for row in rows)
    for row, ((*_, z, _), marks) in zip(rows, code.fori(0, columns, cells_of_run, first, step=RUN), strict=True):
        total, missing = normal(row.code, *z), nothing(row.code)
        some = z[0] != 0.0
        chosen = (row.code.where(some, *pair) for pair in zip(total, missing, strict=True))
        put(row.code, row.record + Z_M * LINE, 0, Power(*chosen))
        if marks:
            row.mark(marks)


def weigh(cells: Any, row: Row, j: Value, keep: Value, marks: Any) -> tuple[list[Value], Any]:
    """The weights of a run, which are kept."""
    weights, marks = row.weigh(j, marks)
    for k, w in enumerate(weights):
        row.code.store(keep + row.offset + (1 + RUN * cells.kept + k) * LINE, w)
    return weights, marks


def weights_of(cells: Any, row: Row, keep: Value) -> list[Value]:
    return [row.code.load(keep + row.offset + (1 + RUN * cells.kept + k) * LINE) for k in range(RUN)]


def start_of(cells: Any, row: Row) -> Any:
    """What goes from run to run, but the marks."""
    none, z = integer(row.code, 0), (row.read(Z_M), load_integers(row.code, row.record + Z_E * LINE))
    return cells.first(row.code), (none, none), z, none


def run_forward(cells: Any, row: Row, j: Value, state: Value, kept: Value, carried: Any, marks: Any) -> Any:
    """A run of a row; with ``marks`` its weights as well."""
    code, (before, (e_lead, e_diagonal), (z, e_z), position) = row.code, carried
    weights, marks = weigh(cells, row, j, kept, marks) if marks else (weights_of(cells, row, kept), ())
    at, keep = state + row.offset, kept + row.offset
    run = Run(row, at, cells.lead(before), e_lead, e_diagonal)
    before, amount = cells.moved(run, before), code.zero()
    for k, (w, has) in enumerate(zip(weights, row.has(position), strict=True)):
        up = [code.load(at + (2 + cells.STATE * k + n) * LINE) for n in range(cells.STATE)]
        before, here, new, keeps = cells.forward(run, k, w, has, before, up)
        for n, x in enumerate(new):
            code.store(at + (2 + cells.STATE * k + n) * LINE, x)
        for n, x in enumerate(keeps):
            code.store(keep + (1 + cells.kept * k + n) * LINE, x)
        amount = amount + here
    code.store(at, run.e)
    code.store(at + LINE, top(code, amount, run.e))
    code.store(keep, run.e)
    e = largest(code, e_z, run.e)
    z = z * power_of_two(code, e_z - e, True) + amount * power_of_two(code, run.e - e, True)
    return (before, (run.e, run.before), (z, e), position + RUN), marks


def backward(cells: Any, code: Code, *words: Value) -> None:
    """... and back: the gradient comes in place of the scores; the sums behind the other gradients grow.

    Only these need the scores.
    """
    record, scores, state, kept, i, columns, bound, start, target = words
    operands = (bound, target) if cells.parameters else (target,)
    rows, asks = pieces(code, record, scores, i), [Request(code, operand, start) for operand in operands]
    in_kept, places = lines_of_run(cells), cells.places if cells.parameters else ()

    def cells_of_run(done: Value, carried: Any) -> Any:
        j = columns - RUN - done
        at, keep = state + j / RUN * ((2 + RUN * cells.BACK) * LINE), kept + j / RUN * (in_kept * LINE)
        for line in range(in_kept):
            code.prefetch(keep - (RUNS_AHEAD * in_kept + line) * LINE)
        for ask in asks:
            ask(j)
        return tuple(run_backward(cells, row, j, at, keep, one) for row, one in zip(rows, carried, strict=True))

    first = tuple(end_of(cells, row, columns - RUN, len(places)) for row in rows)
    for row, (*_, sums) in zip(rows, code.fori(0, columns, cells_of_run, first, step=RUN), strict=True):
        for k, x in zip(places, sums, strict=True):
            row.write(k, row.read(k) + x)


def end_of(cells: Any, row: Row, j: Value, sums: int) -> Any:
    """What goes from run to run, before the last one, which begins at cell j."""
    return cells.first(row.code), (integer(row.code, 0),) * 2, spread(row.code, j), (row.code.zero(),) * sums


def run_backward(cells: Any, row: Row, j: Value, state: Value, kept: Value, carried: Any) -> Any:
    """A run of a row."""
    code, (after, (e_lead, e_diagonal), position, sums) = row.code, carried
    (inverse, e_inverse), at, keep = row.inverse, state + row.offset, kept + row.offset
    run = Run(row, at, cells.lead(after), e_lead, e_diagonal)
    after, amount = cells.moved(run, after), code.zero()
    part = inverse * power_of_two(code, run.e + (load_integers(code, keep) + e_inverse))
    weights, has = weights_of(cells, row, kept), row.has(position)
    for k in reversed(range(RUN)):
        down = [code.load(at + (2 + cells.BACK * k + n) * LINE) for n in range(cells.BACK)]
        keeps = [code.load(keep + (1 + cells.kept * k + n) * LINE) for n in range(cells.kept)]
        after, here, new, shares = cells.backward(run, RUN - 1 - k, weights[k], has[k], after, down, keeps)
        for n, x in enumerate(new):
            code.store(at + (2 + cells.BACK * k + n) * LINE, x)
        match, *others = (share(code, part, pairs) for pairs in shares)
        match = code.where(has[k], match, code.zero())
        terms = (*others, match * row.score(j + k, has[k])) if cells.parameters else ()
        code.store(row.scores + (j + k) * LINE, match)
        sums = tuple(x + y for x, y in zip(sums, terms, strict=True))
        amount = amount + here
    code.store(at, run.e)
    code.store(at + LINE, top(code, amount, run.e))
    return after, (run.e, run.before), position - RUN, sums


def share(code: Code, part: Value, pairs: Sequence[tuple[Value, Value]]) -> Value:
    """The sum of the products of pairs, as a part of Z."""
    first, *others = ((x * part) * y for x, y in pairs)
    found = sum(others, first)
    return code.where(found < NEGLIGIBLE[code.size_of_real], code.zero(), found)


def shared_exponents_suffice(code: Code, record: Value) -> Value:
    """Whether the cells of runs were near enough to each other in all lanes, those of NaN aside; else 0.

    In powers of two: what a gap of a run costs in place of as many of the best matches, and to come back; a gap alone;
    scores so low that all weights could be too small.
    """
    size = code.size_of_real
    factor, gap, opening, peak = (code.load(record + k * LINE) for k in (FACTOR_, GAP_, OPEN_, PEAK))
    zero, best = code.zero(), peak * factor
    further, dearest = -gap * factor, -code.where(opening < gap, opening, gap) * factor
    wild = (gap > 0) | (opening > 0) | (dearest > DEAREST[size])
    wild = wild | ((largest(code, best, zero) + further) * RUN + dearest * 2 > SPREAD[size])
    wild = wild | ((best < FAINT[size]) & (peak > -math.inf))
    return code.pick(code.bits(wild) == 0, code.integer(1), code.integer(0))
