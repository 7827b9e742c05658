"""The inner loops of a product: entries side by side, many at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.access.moves import put_interleaved
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.runtime.workspace import Workspace
from tridiag.kernels.simd.periods import lanes_of, moved, positions, step_of
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import I8, LINE, Code

# what is read for an entry: of its row the coefficient and the entry of x, of its row and that before, and after; masks
DIAGONAL, OWN, LOW, BEFORE, HIGH, AFTER, KEEP, KEEP_BEFORE, KEEP_AFTER = range(9)
SOURCES = 9


class Sources(Workspace):
    """Where what is read for entries lies, and how far it is from one to the next, in bytes."""

    at, step = Words(SOURCES), Words(SOURCES)
    base = Words(6)  # the first row of every operand of a unit
    # as the loops take it: entries side by side, or one for all
    source, move = Words(SOURCES), Words(SOURCES)
    packed = Word()  # the entries of sources that lie otherwise, a PIECE each


class Edges(NamedTuple):
    """Entries at places 0 <= k < low of a period have no entry before them, and those from high on none after them."""

    period: Value
    low: Value
    high: Value


def plain(code: Code, *words: Value) -> None:
    """Entries 0 <= i < count of the result."""
    multiply(code, words, False, False)


def past_caches(code: Code, *words: Value) -> None:
    """The same, where the result is not read soon."""
    multiply(code, words, False, True)


def masked(code: Code, *words: Value) -> None:
    """The same with rows taken out."""
    multiply(code, words, True, False)


def multiply(code: Code, words: Any, masks: bool, large: bool) -> None:
    """``words``: the sources; the result; count; the place of the first entry in its period; and the `Edges`."""
    sources, y, count, place, *edges = words
    code.fused = False  # every product and every sum rounds, as NumPy's do
    size, limits = code.size_of_real * code.parts, Edges(*edges)
    reads = [(sources.source[k], sources.move[k]) for k in range(SOURCES if masks else KEEP)]
    lead = code.integer(0)
    if large:
        lead = (0 - y & (LINE - 1)) / size
        lead = code.pick(lead < count, lead, count)
    whole = lead + (count - lead) / code.lanes * code.lanes

    def loop(first: Value, last: Value, place: Value, lanes: int, stream: bool) -> Value:
        """Entries first <= i < last; returns the place of the one behind them."""
        bounds = Edges(*(lanes_of(code, x, lanes) for x in limits))
        start, stride = positions(code, place, bounds.period), step_of(code, bounds.period)

        def entries(i: Value, position: Value) -> Value:
            value = entry(code, reads, i, lanes, outside(code, position, bounds, lanes), masks)
            put(code, y + i * size, value, lanes, stream)
            return moved(code, position, stride, bounds.period)

        return widened(code, code.fori(first, last, entries, start, step=lanes), lanes)

    place = loop(code.integer(0), lead, place, 1, False) if large else place
    place = loop(lead, whole, place, code.lanes, large)
    last = count - code.lanes  # the last vector computes some entries once more
    before, end = place + limits.period * code.lanes - (whole - last), code.pick(lead <= last, count, whole)
    loop(last, last + end - whole, before, code.lanes, False)
    loop(end, count, place, 1, False)


def long_rows(code: Code, *words: Value) -> None:
    """The same as `plain`, of sources side by side, and a period of at least as many entries as there are lanes."""
    between_edges(code, words, False)


def long_rows_past_caches(code: Code, *words: Value) -> None:
    """The same, where the result is not read soon."""
    between_edges(code, words, True)


def between_edges(code: Code, words: Any, large: bool) -> None:
    """``words`` as those of `multiply`; vectors in which no entry is at an edge are told from the others beforehand."""
    sources, y, count, place, *edges = words
    code.fused = False  # every product and every sum rounds, as NumPy's do
    size, lanes = code.size_of_real * code.parts, code.lanes
    row = LongRow(code, [(sources.source[k], size) for k in range(KEEP)], y, Edges(*edges), large)
    lead = code.integer(0)
    if large:
        lead = (0 - y & (LINE - 1)) / size
        lead = code.pick(lead < count, lead, count)
    whole, last = lead + (count - lead) / lanes * lanes, count - lanes
    place = code.fori(0, lead, lambda i, place: row.some(i, place, 1), place)
    stretches = (whole - lead) / row.limits.period + 2
    _, place = code.fori(0, stretches, lambda _, state: row.stretch(whole, *state), (lead, place))
    before = place - (whole - last)  # the last vector computes some entries once more
    before = code.pick(before < 0, before + row.limits.period, before)
    end = code.pick(lead <= last, count, whole)
    code.fori(whole, end, lambda _, place: row.some(last, place, lanes), before, step=lanes)
    code.fori(code.pick(lead <= last, count, whole), count, lambda i, place: row.some(i, place, 1), place)


class LongRow(NamedTuple):
    """Entries of rows that are longer than a vector."""

    code: Code
    reads: list[Any]
    y: Value
    limits: Edges
    large: bool

    def some(self, i: Value, place: Value, lanes: int, stream: bool = False) -> Value:
        """So many entries, at the edges or not; returns the place of the one behind them."""
        code, period = self.code, self.limits.period
        position, bounds = ramp(code, place, lanes), Edges(*(code.repeat(x, lanes) for x in self.limits))
        position = code.where(position < bounds.period, position, position - bounds.period)
        self.put(i, entry(code, self.reads, i, lanes, outside(code, position, bounds, lanes), False), lanes, stream)
        behind = place + lanes
        return code.pick(behind < period, behind, behind - period)

    def inner(self, i: Value, state: Any) -> Any:
        """A vector of entries none of which is at an edge."""
        self.put(i, entry(self.code, self.reads, i, self.code.lanes, None, False), self.code.lanes, self.large)
        return state

    def between(self, first: Value, last: Value) -> None:
        """Vectors of entries none of which is at an edge; x is read once where rows are neighbours in memory."""
        code, (own, size) = self.code, self.reads[OWN]
        if code.parts == 2:
            code.fori(first, last, self.inner, step=code.lanes)
            return
        adjacent = (self.reads[BEFORE][0] + size == own) & (own + size == self.reads[AFTER][0])
        middle = code.pick(adjacent & (first < last), last, first)
        state = code.undefined(code.vector)
        for k in range(2):  # the entries before those that are read next
            at = code.pick(middle > first, own + (first - 1 + k) * size, own)
            state = code.insert(state, code.load_as(code.real, at), code.lanes - 2 + k)
        code.fori(first, middle, self.neighbours, (state,), step=code.lanes)
        code.fori(middle, last, self.inner, step=code.lanes)

    def neighbours(self, i: Value, state: Any) -> Any:
        """A vector of entries, of which ``state`` is what was read of x for those before."""
        code, lanes = self.code, self.code.lanes
        diagonal, low, high, after = (
            take(code, at + i * move, lanes) for at, move in (self.reads[k] for k in (DIAGONAL, LOW, HIGH, AFTER))
        )
        before, own = (code.shuffle(state[0], after, range(lanes - 2 + k, 2 * lanes - 2 + k)) for k in range(2))
        self.put(i, diagonal * own + low * before + high * after, lanes, self.large)
        return (after,)

    def put(self, i: Value, x: Any, lanes: int, stream: bool) -> None:
        put(self.code, self.y + i * (self.code.size_of_real * self.code.parts), x, lanes, stream)

    def stretch(self, whole: Value, i: Value, place: Value) -> tuple[Value, Value]:
        """Vectors of entries between the edges, and those behind them until there are such entries again."""
        code, lanes, (period, low, high) = self.code, self.code.lanes, self.limits
        zero = code.integer(0)

        def within(entries: Value, i: Value) -> Value:
            return code.pick(entries < whole - i, entries, whole - i)

        inside = code.pick(place < low, zero, high - place)
        inside = within(code.pick(inside > 0, inside, zero) / lanes * lanes, i)
        self.between(i, i + inside)
        i, place = i + inside, place + inside
        ahead = code.pick(place < low, low, period + low) - place
        ahead = within((ahead + lanes - 1) / lanes * lanes, i)
        place = code.fori(i, i + ahead, lambda i, at: self.some(i, at, lanes, self.large), place, step=lanes)
        return i + ahead, place


def ramp(code: Code, first: Value, lanes: int) -> Value:
    """So many integers from the first on."""
    kind = ir.VectorType(ir.IntType(64), lanes)
    return code.repeat(first, lanes) + Value(code, ir.Constant(kind, list(range(lanes))))


def entry(code: Code, reads: Any, i: Value, lanes: int, missing: Any, masks: bool) -> Any:
    """So many entries: what is in the row, and what comes from those before it and after it.

    ``missing``: for which entries there are none before, and none after; None: for no entry.
    """
    diagonal, own, low, before, high, after = (
        take(code, at + i * move, lanes) for at, move in (reads[k] for k in range(KEEP))
    )
    nothing = number(code, 0.0 if masks else -0.0, lanes)  # to add -0.0 changes no number, not even the sign of a zero
    terms = [low * before, high * after]
    if missing is not None:
        terms = [code.where(gone, nothing, term) for gone, term in zip(missing, terms, strict=True)]
    value = diagonal * own
    if not masks:
        return value + terms[0] + terms[1]
    kept, kept_before, kept_after = (mask_at(code, at + i * move, lanes) for at, move in reads[KEEP:])
    terms = [code.where(keep, term, nothing) for keep, term in zip((kept_before, kept_after), terms, strict=True)]
    return code.where(kept, terms[0] + value + terms[1], nothing)


# ---------------------------------------------------------------------------------------------- places of entries


def widened(code: Code, position: Value, lanes: int) -> Value:
    """The place of the first entry."""
    first = code.extract(position, 0)
    return Value(code, code.builder.zext(first.llvm, ir.IntType(64))) if code.size_of_real < 8 else first


def outside(code: Code, position: Value, edges: Edges, lanes: int) -> tuple[Value, Value]:
    """Which entries have none before them, and none after them."""
    return position < edges.low, position >= edges.high


# ------------------------------------------------------------------------------------------- numbers, many or one


def take(code: Code, address: Value, lanes: int) -> Any:
    """So many numbers that lie side by side."""
    kind = ir.VectorType(code.real, lanes)
    parts = [code.load_as(kind, address + k * lanes * code.size_of_real) for k in range(code.parts)]
    if code.parts == 1:
        return parts[0]
    return Complex(*(code.shuffle(parts[0], parts[1], range(k, 2 * lanes, 2)) for k in range(2)))


def put(code: Code, address: Value, x: Any, lanes: int, stream: bool) -> None:
    if lanes > 1:
        put_interleaved(code, address, x, stream)
        return
    for k, part in enumerate((x.real, x.imag) if isinstance(x, Complex) else (x,)):
        code.store_as(address + k * code.size_of_real, part)


def number(code: Code, value: float, lanes: int) -> Any:
    part = Value(code, code.constant(ir.VectorType(code.real, lanes), value))
    return Complex(part, part) if code.parts == 2 else part


def mask_at(code: Code, address: Value, lanes: int) -> Value:
    return code.load_as(ir.VectorType(I8, lanes), address) != 0
