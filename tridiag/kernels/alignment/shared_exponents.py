"""Rows of cells whose numbers share an exponent over a run of neighbours: what alignments of ordinary scores take.

The recursions are those of `tridiag.kernels.alignment.kernel`, on plain numbers, each of which stands for itself times
2**e. The exponents e of a run, one for each lane, are chosen such that the largest of what the run follows from, its
neighbours to the left and above and the empty alignment, lies near 2**TOP. What is much smaller than that becomes zero:
no loss where the cells of a run cannot differ by more than the range of numbers, in what goes through them as well.
`shared_exponents_suffice` tells whether that holds: a cell reaches the paths of its neighbour by gaps, which cost
little more than the best matches that it misses. A third of the arithmetic of numbers with an exponent each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tridiag.kernels.alignment.exponents import RUN, Request, Row, Run, power_of_two, top
from tridiag.kernels.alignment.state import (
    BY_GAP_,
    BY_OPEN_,
    BY_TEMPERATURE_,
    FACTOR_,
    FLAW,
    GAP_,
    NEGLIGIBLE,
    OPEN_,
    PEAK,
    Z_E,
    Z_M,
    kinds,
    load_integers,
    put,
    spread,
)
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

    def forward(self, run: Run, k: int, w: Value, masks: Any, before: Any, up: Sequence[Value]) -> Any:
        code, (diagonal, left), (above,), (has, good) = run.code, before, up, masks
        match = code.where(good, w * (diagonal * run.diagonal[k] + run.one), code.zero())
        gaps = above * run.gap_above + left * run.gap
        here = code.where(has, match + gaps, code.zero())
        return (above, here), here, [here], [match, gaps][: self.kept]

    def backward(
        self, run: Run, k: int, w: Value, masks: Any, after: Any, down: Sequence[Value], kept: Sequence[Value]
    ) -> Any:
        code, (diagonal, right), (below, next_diagonal), (has, good) = run.code, after, down, masks
        end = code.where(has, run.one, code.zero())
        here = (below * run.gap_above + (diagonal * run.diagonal[k] + end)) + right * run.gap
        then = code.where(good, w * here, code.zero())
        return (next_diagonal, here), here, [here, then], [[(x, here)] for x in kept]


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

    def forward(self, run: Run, k: int, w: Value, masks: Any, before: Any, up: Sequence[Value]) -> Any:
        code, (diagonal, y, _), (above, x), (has, good) = run.code, before, up, masks
        match = code.where(good, w * (diagonal * run.diagonal[k] + run.one), code.zero())
        x = x * run.above
        here = code.where(has, match + (x + y), code.zero())
        down = code.where(has, (match + y) * run.open + x * run.gap, code.zero())
        right = code.where(has, (match + x) * run.open + y * run.gap, code.zero())
        return (above, right, here), here, [here, down], [match, x, y][: self.kept]

    def backward(
        self, run: Run, k: int, w: Value, masks: Any, after: Any, down: Sequence[Value], kept: Sequence[Value]
    ) -> Any:
        code, (diagonal, y, _), (x, next_diagonal), (has, good) = run.code, after, down, masks
        x = x * run.above
        rest = diagonal * run.diagonal[k] + code.where(has, run.one, code.zero())
        opened = (x + y) * run.open
        match = rest + opened
        in_x = rest + (x * run.gap + y * run.open)
        in_y = rest + (y * run.gap + x * run.open)
        then = code.where(good, w * match, code.zero())
        shares = [[(kept[0], match)]]
        if self.parameters:
            shares.append([(kept[1], x * run.gap), (kept[2], y * run.gap)])
            shares.append([(kept[0], opened), (kept[1], y * run.open), (kept[2], x * run.open)])
        return (next_diagonal, in_y, match), match + in_x, [in_x, then], shares


KINDS = kinds(Linear, Affine)


def forward(cells: Any, code: Code, *words: Value) -> None:
    """Row i, whose scores are at hand: its cells follow those of the row before in ``state``; Z grows."""
    record, scores, state, kept, i, columns, bound, start = words
    row, zero, in_state, in_kept = (
        Row(code, record, scores, i),
        code.zero(),
        2 + RUN * cells.STATE,
        1 + RUN * cells.kept,
    )
    ask = Request(code, bound, start)

    def cells_of_run(j: Value, carried: Any) -> Any:
        before, (e_lead, e_diagonal), (z, e_z), (position, flaw, peak) = carried
        at, keep = state + j / RUN * (in_state * LINE), kept + j / RUN * (in_kept * LINE)
        for line in range(in_kept):
            code.prefetch(keep + (RUNS_AHEAD * in_kept + line) * LINE, write=True)
        ask(j)
        run = Run(row, at, cells.lead(before), e_lead, e_diagonal)
        before, amount = cells.moved(run, before), zero
        has = row.has(position)
        for k, s in enumerate(row.scores_of(j, has)):
            peak = largest(code, peak, s)
            s = largest(code, row.weight.lowest, s)
            flaw = flaw + s * 0.0
            up = [code.load(at + (2 + cells.STATE * k + n) * LINE) for n in range(cells.STATE)]
            masks = has[k], s > row.weight.lowest
            before, here, new, keeps = cells.forward(run, k, row.weight(s), masks, before, up)
            for n, x in enumerate(new):
                code.store(at + (2 + cells.STATE * k + n) * LINE, x)
            for n, x in enumerate(keeps):
                code.store(keep + (1 + cells.kept * k + n) * LINE, x)
            amount = amount + here
        code.store(at, run.e)
        code.store(at + LINE, top(code, amount, run.e))
        code.store(keep, run.e)
        e = largest(code, e_z, run.e)
        z = z * power_of_two(code, e_z - e) + amount * power_of_two(code, run.e - e)
        return before, (run.e, run.before), (z, e), (position + RUN, flaw, peak)

    none, z = (integer(code, 0),) * 2, (row.read(Z_M), load_integers(code, record + Z_E * LINE))
    marks = integer(code, 0), row.read(FLAW), row.read(PEAK)
    _, _, (z, e), (_, flaw, peak) = code.fori(0, columns, cells_of_run, (cells.first(code), none, z, marks), step=RUN)
    total, missing = normal(code, z, e), nothing(code)
    some = z != 0.0
    put(code, record + Z_M * LINE, 0, Power(*(code.where(some, *pair) for pair in zip(total, missing, strict=True))))
    row.write(FLAW, flaw)
    row.write(PEAK, peak)


def backward(cells: Any, code: Code, *words: Value) -> None:
    """... and back: the gradient takes the place of the scores; the sums behind the other gradients grow."""
    record, scores, state, kept, i, columns, bound, start, target = words
    row, zero, in_state, in_kept = Row(code, record, scores, i), code.zero(), 2 + RUN * cells.BACK, 1 + RUN * cells.kept
    inverse, e_inverse = row.inverse
    asks = [Request(code, operand, start) for operand in (bound, target)]

    def cells_of_run(done: Value, carried: Any) -> Any:
        j, (after, (e_lead, e_diagonal), position, sums) = columns - RUN - done, carried
        at, keep = state + j / RUN * (in_state * LINE), kept + j / RUN * (in_kept * LINE)
        for line in range(in_kept):
            code.prefetch(keep - (RUNS_AHEAD * in_kept + line) * LINE)
        for ask in asks:
            ask(j)
        run = Run(row, at, cells.lead(after), e_lead, e_diagonal)
        after, amount = cells.moved(run, after), zero
        part = inverse * power_of_two(code, run.e + (load_integers(code, keep) + e_inverse))
        has = row.has(position)
        for k, s in reversed([*enumerate(row.scores_of(j, has))]):
            s = largest(code, row.weight.lowest, s)
            down = [code.load(at + (2 + cells.BACK * k + n) * LINE) for n in range(cells.BACK)]
            keeps = [code.load(keep + (1 + cells.kept * k + n) * LINE) for n in range(cells.kept)]
            masks, turn = (has[k], s > row.weight.lowest), RUN - 1 - k
            after, here, new, shares = cells.backward(run, turn, row.weight(s), masks, after, down, keeps)
            for n, x in enumerate(new):
                code.store(at + (2 + cells.BACK * k + n) * LINE, x)
            match, *others = (share(code, part, pairs) for pairs in shares)
            match = code.where(has[k], match, zero)
            code.store(scores + (j + k) * LINE, match)
            terms = (*others, match * s) if cells.parameters else ()
            sums = tuple(x + y for x, y in zip(sums, terms, strict=True))
            amount = amount + here
        code.store(at, run.e)
        code.store(at + LINE, top(code, amount, run.e))
        return after, (run.e, run.before), position - RUN, sums

    places, none = cells.places if cells.parameters else (), (integer(code, 0),) * 2
    first = cells.first(code), none, spread(code, columns - RUN), (zero,) * len(places)
    for k, x in zip(places, code.fori(0, columns, cells_of_run, first, step=RUN)[3], strict=True):
        row.write(k, row.read(k) + x)


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
