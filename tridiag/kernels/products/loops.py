"""The inner loops of a product: entries side by side, many at a time."""

from __future__ import annotations

from collections.abc import Callable
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
    packed = (
        Word()
    )  # the entries of sources that lie otherwise, a PIECE each, and constants as often as lanes read them
    room = Word()  # the bytes of a source there


PIECE = 256  # entries


def plain(code: Code, *words: Value) -> None:
    """Entries 0 <= i < count of the result."""
    multiply(code, words, False, False)


def past_caches(code: Code, *words: Value) -> None:
    """The same, where the result is not read soon."""
    multiply(code, words, False, True)


def masked(code: Code, *words: Value) -> None:
    """The same with rows taken out."""
    multiply(code, words, True, False)


class Entries(NamedTuple):
    """Entries of a result, and how they are found."""

    code: Code
    reads: list[tuple[Value, Value]]  # the address of every source, and how far its next entry is
    result: Value  # its address
    masks: bool  # whether rows are taken out

    def compute(self, i: Value, missing: Any, lanes: int, past_caches: bool = False) -> None:
        """So many from the i-th on. ``missing``: as `entry` takes it."""
        value = entry(self.code, self.reads, i, lanes, missing, self.masks)
        put(self.code, self.result + i * (self.code.size_of_real * self.code.parts), value, lanes, past_caches)

    def loop(self, first: Any, last: Any, body: Callable[[Value], None], step: int = 1) -> None:
        self.code.fori(first, last, lambda i, state: body(i) or state, step=step)

    def at_ends(self, top: Value, last: Value, count: Value) -> None:
        """One by one: i < top, none before which are there, and last <= i < count, none after which are."""
        yes, no = self.code.integers([1]) > 0, self.code.integers([1]) < 0
        self.loop(0, top, lambda i: self.compute(i, (yes, no), 1))
        self.loop(last, count, lambda i: self.compute(i, (no, yes), 1))


class Counted(NamedTuple):
    """Entries whose places are counted modulo a period: they have none before them, or after them, at some."""

    entries: Entries
    place: Value  # of the first entry
    period: Value
    edges: Any  # places 0 <= k < low have none before them, those from high on none after them

    def loop(self, first: Value, last: Value, lanes: int, past_caches: bool = False) -> None:
        """Entries first <= i < last, the first of which is less than a period and a vector behind the first of all."""
        code = self.entries.code
        turn = lanes_of(code, self.period, lanes)
        step = step_of(code, turn)

        def some(i: Value, position: Value) -> Value:
            self.entries.compute(i, outside(code, position, self.edges, lanes), lanes, past_caches)
            return moved(code, position, step, turn)

        code.fori(first, last, some, positions(code, self.place + first, turn), step=lanes)

    def once(self, condition: Value, i: Value) -> None:
        """A vector from the i-th entry on, some of which are computed in another one too."""
        code = self.entries.code
        turn = lanes_of(code, self.period, code.lanes)

        def vector(i: Value) -> None:
            at = self.place + i
            position = positions(code, at - at / self.period * self.period, turn)
            self.entries.compute(i, outside(code, position, self.edges, code.lanes), code.lanes)

        self.entries.loop(code.pick(condition, i, i + 1), i + 1, vector)


def multiply(code: Code, words: Any, masks: bool, large: bool) -> None:
    """``words``: the sources; the result; count; how many of the first entries have none before them, and of the last
    ones none after them; the place of the first entry, the period, and two `Counted.edges`.
    """
    sources, y, count, top, bottom, place, period, *edges = words
    code.fused = False  # every product and every sum rounds, as NumPy's do
    reads = [(sources.source[k], sources.move[k]) for k in range(SOURCES if masks else KEEP)]
    some = Counted(Entries(code, reads, y, masks), place, period, edges)
    last = count - bottom
    filled = last - top >= code.lanes  # else one by one
    lead = top
    if large:
        lead = line_of(code, y, top)
        some.once(filled & (top < lead), top)
    whole = lead + ((last - lead) & -code.lanes)
    some.loop(code.pick(filled, lead, last), whole, code.lanes, large)
    some.once(filled & (whole < last), last - code.lanes)
    some.loop(code.pick(filled, last, top), last, 1)
    if not masks:
        some.entries.at_ends(top, last, count)


def line_of(code: Code, y: Value, first: Value) -> Value:
    """The first entry from there on with which a cache line of the result begins."""
    size = code.size_of_real * code.parts
    return first + (0 - (y + first * size) & (LINE - 1)) / size


def entry(code: Code, reads: Any, i: Value, lanes: int, missing: Any, masks: bool) -> Any:
    """So many entries: what is in the row, and what comes from those before it and after it where they are there.

    ``missing``: which have none before them, and none after them; None: all have both.
    """
    diagonal, own, low, before, high, after = (
        take(code, at + i * move, lanes) for at, move in (reads[k] for k in range(KEEP))
    )
    nothing = number(code, 0.0 if masks else -0.0, lanes)  # to add -0.0 changes no number, not even the sign of a zero
    value, terms = diagonal * own, [low * before, high * after]
    if missing is not None:
        terms = [code.where(gone, nothing, term) for gone, term in zip(missing, terms, strict=True)]
    if not masks:
        return value + terms[0] + terms[1]
    kept, kept_before, kept_after = (mask_at(code, at + i * move, lanes) for at, move in reads[KEEP:])
    terms = [code.where(keep, term, nothing) for keep, term in zip((kept_before, kept_after), terms, strict=True)]
    return code.where(kept, terms[0] + value + terms[1], nothing)


# ---------------------------------------------------------------------------------------------- places of entries


def outside(code: Code, position: Value, limits: Any, lanes: int) -> tuple[Value, Value]:
    """Which entries have none before them, places 0 <= k < low, and which none after them, places from high on."""
    low, high = (lanes_of(code, x, lanes) for x in limits)
    return position < low, position >= high


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
