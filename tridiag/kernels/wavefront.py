"""Smooth local alignment of pairs of sequences, one pair in each lane: the score and, if wanted, its gradient.

With w = exp(s / T) and gap factors g (a further gap) and o (the first of a run), the weights of all alignments that end
in cell (i, j) add up to

    M = w (1 + A[i-1, j-1]),  X = o (M + Y)[i-1, j] + g X[i-1, j],  Y = o (M + X)[i, j-1] + g Y[i, j-1],  A = M + X + Y

where M ends in a match and X and Y in gaps (linear gaps: o = g, and X + Y = g (A[i-1, j] + A[i, j-1])). Z is the sum of
all A, the score T log Z. Backwards, the weights of all continuations, the empty one among them, are

    C = 1 + w BM [i+1, j+1],   BM = C + o BX[i+1, j] + o BY[i, j+1],   BX = C + g BX + o BY,   BY = C + o BX + g BY

and the expected alignment is M BM / Z. Every number has an exponent of its own (`tridiag.kernels.powers`): neither low
temperatures nor long sequences leave the range. A row of cells follows another in place; what the backward pass needs
of the cells of a block of rows is kept, and all blocks but the last are computed once more, from the row before them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from tridiag.kernels import pairs as P
from tridiag.kernels.crew import runner
from tridiag.kernels.memory import (
    I64,
    ask_for_huge_pages,
    c_function,
    free,
    half_word,
    load,
    malloc,
    set_half_word,
    set_word,
    store,
    swap,
    word,
)
from tridiag.kernels.moves import MOVES, TABLE, aim, ask, bytes_of_real, lanes_of, load_rows, store_rows
from tridiag.kernels.powers import (
    HIGHEST,
    LOWEST,
    Exponential,
    Power,
    constant,
    integer,
    integers,
    largest,
    normal,
    nothing,
    scale,
    times,
)
from tridiag.kernels.vector import I32, LINE, OPTIONS, Code, Library, Value, definition
from tridiag.kernels.worker import aligned, claim, field

# What a worker knows of the group at hand, a row of lanes each: the lengths; the parameters, log2(e) / T; Z so far, and
# the log of its mantissa; what tells of scores that are NaN or too large; the inverse of Z; the gradients of the
# parameters, in place of that of T the scores times theirs; the score.
(
    ROWS_, COLUMNS_, GAP_, OPEN_, TEMPERATURE_, FACTOR_, Z_M, Z_E, Z_LOG, FLAW, PEAK, INVERSE_M, INVERSE_E, BY_GAP_,
    BY_OPEN_, BY_TEMPERATURE_, SCORE_, TOLD,
) = range(18)  # fmt: skip
PARAMETERS, SUMS = 3, 3
AHEAD = 16  # cells, of the memory that is asked for
SHELVES, PUT_BY = 8, 4 * 1024 * 1024  # pieces of scratch memory kept between calls, and the bytes of the largest
NEGLIGIBLE = {4: 2.0**-90, 8: 2.0**-800}  # by the bytes of a real: a probability below it is 0

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


def get(code: Code, address: Value, k: int) -> Power:
    """The k-th number at an address."""
    return Power(code.load(address + 2 * k * LINE), load_integers(code, address + (2 * k + 1) * LINE))


def put(code: Code, address: Value, k: int, x: Power) -> None:
    code.store(address + 2 * k * LINE, x.m)
    code.store(address + (2 * k + 1) * LINE, x.e)


def load_integers(code: Code, address: Value) -> Value:
    return code.load_as(integers(code), address)


def spread(code: Code, i: Value) -> Value:
    """An integer in all lanes."""
    return code.repeat(Value(code, code.builder.trunc(i.llvm, integers(code).element)), code.lanes)


class Row:
    """What the cells of a row have in common."""

    def __init__(self, code: Code, told: Value, scores: Value, i: Value) -> None:
        self.code, self.told, self.scores = code, told, scores
        self.exp = Exponential(code, self.read(FACTOR_))
        self.gap, self.open = (self.exp(self.read(k)) for k in (GAP_, OPEN_))
        self.inverse = get(code, told + INVERSE_M * LINE, 0)
        rows, columns = (load_integers(code, told + k * LINE) for k in (ROWS_, COLUMNS_))
        self.limit = code.where(spread(code, i) < rows, columns, integer(code, 0))

    def read(self, k: int) -> Value:
        return self.code.load(self.told + k * LINE)

    def write(self, k: int, x: Value) -> None:
        self.code.store(self.told + k * LINE, x)

    def score(self, j: Value, has: Value) -> Value:
        """The score of a cell, as small as can be where a lane has no such cell."""
        s = self.code.load(self.scores + j * LINE)
        return self.code.where(has, largest(self.code, self.exp.lowest, s), self.exp.lowest)

    def counted(self, x: Power, has: Value) -> Power:
        return Power(x.m, self.code.where(has, x.e, nothing(self.code).e))

    def share(self, x: Value, y: Power, e: Value) -> Value:
        """The part of Z that is x 2**e y."""
        part = x * self.inverse.m * scale(self.code, y.m, y.e + e + self.inverse.e)
        return self.code.where(part < NEGLIGIBLE[self.code.size_of_real], self.code.zero(), part)


class Linear:
    """What is done to a cell under linear gaps, from left to right and back.

    STATE, BACK: numbers of a cell that the next row needs. ``kept``: rows of lanes of a cell that the backward pass
    needs: M and its exponent, and for the gradients of the parameters X + Y, which has the same.
    """

    STATE, BACK = 1, 2

    def __init__(self, parameters: bool) -> None:
        self.parameters, self.kept = parameters, 3 if parameters else 2
        self.places = (BY_GAP_, BY_TEMPERATURE_)

    def forward(self, row: Row, w: Power, before: Any, state: Value, kept: Value) -> tuple[Any, Power]:
        (diagonal, left), up = before, get(row.code, state, 0)
        (match, gaps), e = combine(row.code, (w, (diagonal, None)), (row.gap, (up, left)))
        here = normal(row.code, match + gaps, e)
        put(row.code, state, 0, here)
        put(row.code, kept, 0, Power(match, e))
        if self.parameters:
            row.code.store(kept + 2 * LINE, gaps)
        return (up, here), here

    def backward(self, row: Row, w: Power, end: Power, after: Any, state: Value, kept: Value) -> tuple[Any, Any]:
        (diagonal, right), below, next_diagonal = after, get(row.code, state, 0), get(row.code, state, 1)
        here = total(row.code, (None, (diagonal, end)), (row.gap, (below, right)))
        put(row.code, state, 0, here)
        put(row.code, state, 1, times(w, here))
        match, e = get(row.code, kept, 0)
        shares = [row.share(match, here, e)]
        if self.parameters:
            shares.append(row.share(row.code.load(kept + 2 * LINE), here, e))
        return (next_diagonal, here), shares


class Affine:
    """The same under affine gaps: M, and for the gradients of the parameters X and Y, each with its exponent."""

    STATE, BACK = 2, 2  # A and the X of the next row; w BM and BX

    def __init__(self, parameters: bool) -> None:
        self.parameters, self.kept = parameters, 6 if parameters else 2
        self.places = (BY_GAP_, BY_OPEN_, BY_TEMPERATURE_)

    def forward(self, row: Row, w: Power, before: Any, state: Value, kept: Value) -> tuple[Any, Power]:
        code, gap, opening = row.code, row.gap, row.open
        (diagonal, y), up, x = before, get(code, state, 0), get(code, state, 1)
        (match,), e = combine(code, (w, (diagonal, None)))
        m = Power(match, e)
        here = total(code, (None, (m, x, y)))
        put(code, state, 0, here)
        put(code, state, 1, total(code, (opening, (m, y)), (gap, (x,))))
        for k, number in enumerate((m, x, y) if self.parameters else (m,)):
            put(code, kept, k, number)
        return (up, total(code, (opening, (m, x)), (gap, (y,)))), here

    def backward(self, row: Row, w: Power, end: Power, after: Any, state: Value, kept: Value) -> tuple[Any, Any]:
        code, gap, opening = row.code, row.gap, row.open
        (diagonal, y), next_diagonal, x = after, get(code, state, 0), get(code, state, 1)
        (match,), e = combine(code, (None, (diagonal, end)))
        c = Power(match, e)
        (rest, opened), e = combine(code, (None, (c,)), (opening, (x, y)))
        after_match = normal(code, rest + opened, e)
        put(code, state, 0, times(w, after_match))
        put(code, state, 1, total(code, (None, (c,)), (gap, (x,)), (opening, (y,))))
        m = get(code, kept, 0)
        shares = [row.share(m.m, after_match, m.e)]
        if self.parameters:
            in_x, in_y = get(code, kept, 1), get(code, kept, 2)
            shares.append(row.share(in_x.m, times(gap, x), in_x.e) + row.share(in_y.m, times(gap, y), in_y.e))
            opens = [(m, Power(opened, e)), (in_x, times(opening, y)), (in_y, times(opening, x))]
            shares.append(sum((row.share(x.m, then, x.e) for x, then in opens), code.zero()))
        return (next_diagonal, total(code, (None, (c,)), (gap, (y,)), (opening, (x,)))), shares


KINDS: dict[str, Any] = {
    "linear": Linear(False),
    "linear_parameters": Linear(True),
    "affine": Affine(False),
    "affine_parameters": Affine(True),
}


def forward(cells: Any, code: Code, *words: Value) -> None:
    """Row i, whose scores are at hand: its cells follow those of the row before in ``state``; Z grows."""
    told, scores, state, kept, i, columns, aimed, start = words
    row, none = Row(code, told, scores, i), nothing(code)

    def cell(j: Value, carried: Any) -> Any:
        (before, z, w), (position, flaw, peak) = powers(carried[0]), carried[1]
        has = position < row.limit
        s = row.score(j + 1, position + 1 < row.limit)
        at = state + j * (2 * cells.STATE * LINE), kept + j * (cells.kept * LINE)
        for line in range(cells.kept):
            code.prefetch(at[1] + (AHEAD * cells.kept + line) * LINE, write=True)
        ask(code, aimed, start + j)
        before, here = cells.forward(row, w, before, *at)
        (m,), e = combine(code, (None, (z, row.counted(here, has))))
        return (before, (m, e), row.exp(s)), (position + 1, flaw + s * 0.0, largest(code, peak, s))

    s = row.score(code.integer(0), integer(code, 0) < row.limit)
    first = (none, none), (row.read(Z_M), load_integers(code, told + Z_E * LINE)), row.exp(s)
    marks = integer(code, 0), row.read(FLAW) + s * 0.0, largest(code, row.read(PEAK), s)
    (_, z, _), (_, flaw, peak) = code.fori(0, columns, cell, (first, marks))
    put(code, told + Z_M * LINE, 0, normal(code, *z))
    row.write(FLAW, flaw)
    row.write(PEAK, peak)


def backward(cells: Any, code: Code, *words: Value) -> None:
    """... and back: the gradient takes the place of the scores; the sums behind the other gradients grow."""
    told, scores, state, kept, i, columns, aimed, start, target = words
    row, none, zero = Row(code, told, scores, i), nothing(code), code.zero()

    def cell(k: Value, carried: Any) -> Any:
        j, (after, w), (position, s) = columns - 1 - k, powers(carried[0]), carried[1]
        has = position < row.limit
        end = row.counted(Power(code.one(), integer(code, 0)), has)
        next_s = row.score(j - 1, position - 1 < row.limit)
        at = state + j * (2 * cells.BACK * LINE), kept + j * (cells.kept * LINE)
        for line in range(cells.kept):
            code.prefetch(at[1] - (AHEAD * cells.kept + line) * LINE)
        ask(code, aimed, start + j)
        ask(code, target, start + j)
        after, (match, *others) = cells.backward(row, w, end, after, *at)
        code.store(scores + j * LINE, code.where(has, match, zero))
        terms = (*others, match * s) if cells.parameters else ()
        sums = tuple(x + y for x, y in zip(carried[2], terms, strict=True))
        return (after, row.exp(next_s)), (position - 1, next_s), sums

    last = columns - 1
    position = spread(code, last)
    s = row.score(last, position < row.limit)
    places = cells.places if cells.parameters else ()
    first = ((none, none), row.exp(s)), (position, s), (zero,) * len(places)
    for k, x in zip(places, code.fori(0, columns, cell, first)[2], strict=True):
        row.write(k, row.read(k) + x)


def powers(pairs: Any) -> tuple[Any, ...]:
    """What `fori` carries, as it was given."""
    return tuple(Power(*pair) if isinstance(pair[0], Value) else powers(pair) for pair in pairs)


def begin(code: Code, told: Value) -> None:
    """What follows from the lengths and parameters of a group: see TOLD."""
    count = ir.VectorType(I32, code.lanes)
    for k in (ROWS_, COLUMNS_):
        length = code.load_as(count, told + k * LINE).llvm
        whole = length if code.size_of_real == 4 else code.builder.sext(length, integers(code))
        code.store(told + k * LINE, Value(code, whole))
    t, zero = code.load(told + TEMPERATURE_ * LINE), code.zero()
    code.store(told + FACTOR_ * LINE, code.where(t > 0, math.log2(math.e) / t, constant(code, math.nan)))
    put(code, told + Z_M * LINE, 0, nothing(code))
    code.store(told + PEAK * LINE, constant(code, -math.inf))
    for k in (FLAW, *range(BY_GAP_, BY_GAP_ + SUMS)):
        code.store(told + k * LINE, zero)


def settle(code: Code, told: Value, steps: Value) -> None:
    """The score from Z, whose mantissa has its logarithm in Z_LOG. Where Z is zero the score is -inf, its gradient 0.

    Where an argument is NaN, or exponents could leave their range on a path of so many steps, both are NaN.
    """
    read = [code.load(told + k * LINE) for k in (Z_M, Z_LOG, TEMPERATURE_, FLAW, PEAK, FACTOR_, GAP_, OPEN_)]
    m, log, t, flaw, peak, factor, gap, opening = read
    e, size = load_integers(code, told + Z_E * LINE), code.size_of_real
    highest = HIGHEST[size] / steps
    highest = code.pick(highest < LOWEST[size], highest, code.integer(LOWEST[size]))
    most = as_reals(code, spread(code, highest))
    good = (flaw == 0) & (factor == factor)
    for x in (peak, gap, opening):
        good = good & (x * factor <= most)
    empty = e <= 64 - LOWEST[size]  # so many cells as that are not
    score = t * (log + as_reals(code, e) * math.log(2))
    score = code.where(empty, constant(code, -math.inf), score)
    inverse = code.where(empty, code.zero(), 1.0 / m)
    nan = constant(code, math.nan)
    code.store(told + SCORE_ * LINE, code.where(good, score, nan))
    put(code, told + INVERSE_M * LINE, 0, Power(code.where(good, inverse, nan), integer(code, 0) - e))


def as_reals(code: Code, x: Value) -> Value:
    return Value(code, code.builder.sitofp(x.llvm, code.vector))


def conclude(code: Code, told: Value) -> None:
    """The gradient by the temperature, from those by all else: the score is homogeneous in all parameters together."""
    t, score, gap, opening = (code.load(told + k * LINE) for k in (TEMPERATURE_, SCORE_, GAP_, OPEN_))
    by_gap, by_open, by_score = (code.load(told + (BY_GAP_ + k) * LINE) for k in range(SUMS))
    rest = score - by_score
    for parameter, gradient in ((gap, by_gap), (opening, by_open)):
        rest = rest - code.where(gradient == 0, code.zero(), gradient * parameter)
    finite = code.load(told + INVERSE_M * LINE) != 0
    code.store(told + BY_TEMPERATURE_ * LINE, code.where(finite, rest / t, code.zero()))


def clear(code: Code, address: Value, count: Value) -> None:
    """Numbers that are nothing."""

    def number(k: Value, state: Any) -> Any:
        put(code, address + k * (2 * LINE), 0, nothing(code))
        return state

    code.fori(0, count, number)


def blank(code: Code, address: Value, count: Value) -> None:
    """Rows of zeros."""

    def row(k: Value, state: Any) -> Any:
        code.store(address + k * LINE, code.zero())
        return state

    code.fori(0, count, row)


def copy(code: Code, source: Value, target: Value, count: Value) -> None:
    def row(k: Value, state: Any) -> Any:
        code.store(target + k * LINE, code.load(source + k * LINE))
        return state

    code.fori(0, count, row)


WAVES = Library("waves")
FORWARD = {name: WAVES.add(f"forward_{name}", functools.partial(forward, cells)) for name, cells in KINDS.items()}
BACKWARD = {name: WAVES.add(f"backward_{name}", functools.partial(backward, cells)) for name, cells in KINDS.items()}
BEGIN, SETTLE, CONCLUDE = WAVES.add("begin", begin), WAVES.add("settle", settle), WAVES.add("conclude", conclude)
CLEAR, BLANK, COPY = WAVES.add("clear", clear), WAVES.add("blank", blank), WAVES.add("copy", copy)


@njit(**OPTIONS)
def spread_group(zero, job, told, first):
    """The lengths and the parameters of the pairs of a group to its lanes; those beyond the last repeat it."""
    lanes, side = lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(lanes):
        pair = min(first + lane, field(job, P.PAIRS) - 1)
        for axis in range(2):
            length = field(job, P.ROWS + axis)
            if field(job, P.LENGTHS) != 0:
                length = max(0, min(length, half_word(field(job, P.LENGTHS) + 4 * (2 * pair + axis))))
            set_half_word(told + (ROWS_ + axis) * LINE + 4 * lane, types.int32(length))
        for k in range(PARAMETERS):
            store(told + (GAP_ + k) * LINE + lane * side, load(field(job, P.GAP + k) + pair * side, zero))


@njit(**OPTIONS)
def longest(zero, told, axis):
    """The largest length of a group, before `begin` turns lengths into reals."""
    found = 0
    for lane in range(lanes_of(zero, ())):
        found = max(found, half_word(told + (ROWS_ + axis) * LINE + 4 * lane))
    return found


@njit(**OPTIONS)
def aim_group(zero, job, operand, array, first, downwards):
    """Where the matrices of a group lie."""
    side, lanes = bytes_of_real(zero, ()), lanes_of(zero, ())
    size = field(job, P.ROWS) * field(job, P.COLUMNS) * side
    for lane in range(lanes):
        pair = min(first + lane, field(job, P.PAIRS) - 1)
        set_word(operand + TABLE + 8 * lane, field(job, array) + pair * size)
    aim(zero, operand, side, side, False, downwards)


@njit(**OPTIONS)
def tell(zero, job, told, first):
    """Scores, and the gradients of the parameters, of a group to their arrays."""
    lanes, side = lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(min(lanes, field(job, P.PAIRS) - first)):
        at = (first + lane) * side
        store(field(job, P.SCORE) + at, load(told + SCORE_ * LINE + lane * side, zero))
        for k in range(PARAMETERS):
            if field(job, P.BY_GAP + k) != 0:
                store(field(job, P.BY_GAP + k) + at, load(told + (BY_GAP_ + k) * LINE + lane * side, zero))


@njit(**OPTIONS)
def logarithms(zero, told):
    """Of the mantissas of Z."""
    side = bytes_of_real(zero, ())
    for lane in range(lanes_of(zero, ())):
        at = told + lane * side
        store(at + Z_LOG * LINE, np.log(load(at + Z_M * LINE, zero)))


@intrinsic
def shelf(typing):
    """The address of SHELVES words, which the modules of a kernel share; zero at first."""

    def generate(context, builder, signature, args):
        kind = ir.ArrayType(I64, SHELVES)
        table = builder.module.globals.get("tridiag_shelf")
        if table is None:
            table = ir.GlobalVariable(builder.module, kind, "tridiag_shelf")
            table.linkage, table.initializer = "common", ir.Constant(kind, None)
        return builder.ptrtoint(table, I64)

    return types.int64(), generate


@njit(**OPTIONS)
def borrow(size):
    """Memory of at least that many bytes, the first word of which tells how many; 0 where there is none.

    Fresh pages cost as much as a small batch, so that memory which is not large is put by for another call.
    """
    for k in range(SHELVES):
        found = word(shelf() + 8 * k)
        if found != 0 and swap(shelf() + 8 * k, found, 0):
            if word(found) >= size:
                return found
            free(found)
    memory = malloc(types.uint64(size))
    if memory != 0:
        ask_for_huge_pages(memory, size)
        set_word(memory, size)
    return memory


@njit(**OPTIONS)
def give_back(memory):
    if word(memory) <= PUT_BY:
        for k in range(SHELVES):
            if swap(shelf() + 8 * k, 0, memory):
                return
    free(memory)


def task(kind: str) -> Any:
    """What every thread of a job does, under one kind of gaps."""
    go, back, cells = FORWARD[kind], BACKWARD[kind], KINDS[kind]
    in_state, in_back, in_kept = 2 * cells.STATE * LINE, 2 * cells.BACK * LINE, cells.kept * LINE

    @njit(**OPTIONS)
    def rows_forward(zero, job, room, first, last, width):
        """The rows of a block; what they keep goes to the block, or without a gradient always to one place."""
        told, scores, line, state, kept = rooms(zero, job, room)[:5]
        step = field(job, P.COLUMNS) * in_kept if field(job, P.GRADIENT) != 0 else 0
        for i in range(first, last):
            start = i * field(job, P.COLUMNS)
            load_rows(zero, scores, start, start + width, line)
            go(zero, (told, line, state, kept + (i - first) * step, i, width, scores, start))

    @njit(**OPTIONS)
    def rooms(zero, job, room):
        """The scratch memory of a worker: what is told, aims, a line, the state, what is kept, the way back, states."""
        columns, block, operand = field(job, P.COLUMNS), field(job, P.BLOCK), aligned(TABLE + 8 * lanes_of(zero, ()))
        scores = room + TOLD * LINE
        line = scores + 2 * operand
        state = line + columns * LINE
        kept = state + columns * in_state
        state_back = kept + block * columns * in_kept
        states = state_back + columns * in_back
        end = states + (field(job, P.ROWS) + block - 1) // block * columns * in_state
        return room, scores, line, state, kept, state_back, states, scores + operand, end

    @njit(**OPTIONS)
    def gradient(zero, job, room, top, width):
        """The backward pass over all blocks, the last of which is kept already."""
        told, scores, line, state, kept, state_back, states, target, _ = rooms(zero, job, room)
        columns, block = field(job, P.COLUMNS), field(job, P.BLOCK)
        CLEAR(zero, (state_back, width * in_back // (2 * LINE)))
        BLANK(zero, (line, columns))
        for i in range(top, field(job, P.ROWS)):
            store_rows(zero, target, i * columns, (i + 1) * columns, line, LINE, lanes_of(zero, ()))
        last = top
        while last > 0:
            first = (last - 1) // block * block
            if last < top:
                COPY(zero, (states + first // block * columns * in_state, state, width * in_state // LINE))
                rows_forward(zero, job, room, first, last, width)
            for i in range(last - 1, first - 1, -1):
                start = i * columns
                load_rows(zero, scores, start, start + width, line)
                back(
                    zero,
                    (told, line, state_back, kept + (i - first) * columns * in_kept, i, width, scores, start, target),
                )
                store_rows(zero, target, start, start + columns, line, LINE, lanes_of(zero, ()))
            last = first

    @njit(**OPTIONS)
    def align(zero, job, room, first):
        """A group of pairs."""
        told, scores, _, state, _, _, states, target, _ = rooms(zero, job, room)
        columns, block = field(job, P.COLUMNS), field(job, P.BLOCK)
        spread_group(zero, job, told, first)
        top, width = longest(zero, told, 0), longest(zero, told, 1)
        BEGIN(zero, (told,))
        aim_group(zero, job, scores, P.SCORES, first, False)
        CLEAR(zero, (state, width * in_state // (2 * LINE)))
        for start in range(0, top, block):
            if field(job, P.GRADIENT) != 0:
                COPY(zero, (state, states + start // block * columns * in_state, width * in_state // LINE))
            rows_forward(zero, job, room, start, min(top, start + block), width)
        logarithms(zero, told)
        SETTLE(zero, (told, field(job, P.ROWS) + field(job, P.COLUMNS) + 2))
        if field(job, P.GRADIENT) != 0:
            aim_group(zero, job, scores, P.SCORES, first, True)
            aim_group(zero, job, target, P.GRADIENT, first, True)
            gradient(zero, job, room, top, width)
            CONCLUDE(zero, (told,))
        tell(zero, job, told, first)

    @njit(**OPTIONS)
    def work(job, zero):
        """Claim groups until none is left; called by every thread of a job."""
        memory = borrow(rooms(zero, job, 0)[8] + 3 * LINE)
        if memory == 0:
            return
        while True:
            group = claim(job)
            if group < 0:
                break
            align(zero, job, aligned(memory + LINE), group * lanes_of(zero, ()))
        give_back(memory)

    return c_function(work, f"tridiag_align_{kind}")


@njit(**OPTIONS)
def prepare(job, zero):
    """Ask for huge pages where the gradient is fresh memory."""
    if field(job, P.GRADIENT) != 0 and field(job, P.FRESH) != 0:
        size = field(job, P.PAIRS) * field(job, P.ROWS) * field(job, P.COLUMNS) * bytes_of_real(zero, ())
        ask_for_huge_pages(field(job, P.GRADIENT), size)


TASKS = {kind: task(kind) for kind in KINDS}
define = definition(MOVES, WAVES)


def build(dtype: str, kind: str):
    """The C function void run(job, helpers) of a kind of gaps for a dtype."""
    return runner(np.zeros((), dtype)[()], define, TASKS[kind], c_function(prepare, "tridiag_prepare_alignment"))
