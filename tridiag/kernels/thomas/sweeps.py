"""Sweeps of an elimination over the rows of a group: a step of `tridiag.kernels.thomas.steps`, driven over a layout.

Words of every elimination: those of the layout, and then `Span`.

    layout         words
    Views          where each band of rows of lanes lies and how far its rows are apart, the mask and how far its rows
                   are apart, the operands of the group and the row of these that is read first; here ``first`` is 0
    Contiguous     the operands, by how many rows each is moved, the first row of all and the one behind the last, and,
                   of steps that do not start from what is kept, how many rows before ``first`` come with those behind
    Interleaved    the operands, by how many rows each is moved, the place of the last group, the row behind the last of
                   all, and how many groups: what they keep of a row lies side by side, and so does what they carry
    Narrow         those of Interleaved, of one group
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tridiag.kernels.access.layouts import (
    Contiguous,
    Interleaved,
    Narrow,
    Views,
    solution_of_groups,
    to_contiguous,
    to_interleaved,
    to_narrow,
    views_of,
)
from tridiag.kernels.access.moves import put_past_caches, take_interleaved
from tridiag.kernels.access.operands import ask
from tridiag.kernels.access.rows import SWEEPS, Mask, Rows
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Bordered, Ends, Pivoted, Thomas, no_quotient, pack

# rows of lanes that a step keeps of each row of a group, and those that it carries; with pivoting the latter are x of
# the rows behind when it goes up again
KEPT = {Thomas: 2, Pivoted: 4, Bordered: 3, Ends: 0}
CARRIED = {Thomas: 1, Pivoted: 4, Bordered: 6, Ends: 6}
CARRIED_PIVOTED = CARRIED[Pivoted]
BEHIND = {Thomas: 1, Pivoted: 2}  # x of so many rows behind give that of a row
# where registers are narrow, of so many of them a step is taken at a time: of two none waits for itself
REGISTERS = {Thomas: 2, Pivoted: 1, Bordered: 2, Ends: 2}
ROWS_PLAIN, ROWS_PIVOTED = KEPT[Thomas], KEPT[Pivoted]
X_PLAIN, X_PIVOTED = ROWS_PLAIN - 1, ROWS_PIVOTED - 1  # x is written over the last of the rows of lanes that are kept


class Span(NamedTuple):
    """The last words of an elimination: which rows it is of, and where what it keeps and carries lies."""

    kept: Value  # of the first row,
    stride: Value  # ... and how far that of the next one is
    carry: Value  # between two calls
    good: Value  # the lanes that are
    first: Value
    last: Value

    def elimination(self, code: Code, step: Any) -> Elimination:
        return Elimination(code, step, self.kept, self.stride, self.carry, self.good)


def parted(words: Sequence[Any]) -> tuple[Sequence[Any], Span]:
    """The words of a layout, and those behind them."""
    count = len(Span._fields)
    return words[:-count], Span(*words[-count:])


class Kept:
    """What a step keeps of each row, and what it carries from one call to the next."""

    def __init__(self, code: Code, step: Any, target: Value, stride: Value, carry: Value, good: Value) -> None:
        self.code, self.kind, self.target, self.stride = code, step, target, stride
        self.rows = [Rows(code, target + k * code.row, stride) for k in range(KEPT[step])]
        self.between, self.good = [Rows(code, carry + k * code.row, 0) for k in range(CARRIED[step])], good

    def __getitem__(self, i: Value) -> list[Any]:
        return [rows[i] for rows in self.rows]

    def carried(self) -> list[Any]:
        return [rows[self.code.integer(0)] for rows in self.between]

    def carry(self, *values: Any) -> None:
        for rows, x in zip(self.between, values, strict=False):
            rows.store(self.code.integer(0), x)

    def group(self, g: Value) -> Kept:
        """That of another group: what groups keep of a row lies side by side, as does what they carry."""
        kept, carried = (g * (len(rows) * self.code.row) for rows in (self.rows, self.between))
        places = self.target + kept, self.stride, self.between[0].base + carried, self.good + g * 8
        return type(self)(self.code, self.kind, *places)

    def of_lanes(self, code: Code, first: int) -> Kept:
        """That of some lanes: those that ``code`` has, from one on."""
        made = copy.copy(self)
        made.code, made.rows = code, [rows.of_lanes(code, first) for rows in self.rows]
        return made

    def from_row(self, k: Value) -> Kept:
        """That of the rows from k on: what is kept of the row before them is where a sweep over them starts."""
        places = self.target + k * self.stride, self.stride, self.between[0].base, self.good
        return type(self)(self.code, self.kind, *places)


class Elimination(Kept):
    """The sweep downwards."""

    @property
    def registers(self) -> int:
        return REGISTERS[self.kind]

    def start(self) -> Any:
        return self.kind.start(self.code, self)

    def leave(self, state: Any) -> None:
        state.leave(self.code, self)

    def step(self, state: Any, i: Value, keep: Value, *entries: Any) -> Any:
        state, kept = state.down(self.code, keep, *entries)
        for rows, x in zip(self.rows, kept, strict=True):
            rows.store(i, x)
        return state


class Substitution(Kept):
    """The sweep upwards; ``carry`` holds x of the rows behind, and then that of the first rows."""

    def start(self) -> Any:
        return tuple(self.carried()[: BEHIND[self.kind]])

    def leave(self, behind: Any) -> None:
        self.carry(*behind)

    def solution(self, i: Value, behind: Any) -> Any:
        return self.kind.up(self[i], *behind)


# ------------------------------------------------------------------------------------------------ down


def eliminate_views(step: Any, code: Code, *words: Any) -> None:
    layout, span = parted(words)
    views_of(code, layout, 4).down(span.first, span.last, span.elimination(code, step))


def eliminate_contiguous(outer: float, step: Any, code: Code, *words: Any, turned: bool = False) -> None:
    layout, span = parted(words)
    operands, moves, pads, rest = layout[:4], layout[4:8], layout[8:10], layout[10] if len(layout) > 10 else None
    if turned and code.parts != 1:
        return  # of complex numbers it is never called
    rows = Contiguous(code, operands, moves, pads, outer, turned)
    rows.down(span.first, span.last, span.elimination(code, step), rest)


def eliminate_interleaved(asks: bool, step: Any, code: Code, *words: Any) -> None:
    layout, span = parted(words)
    operands, moves, places = layout[:4], layout[4:8], layout[8:]
    Interleaved(code, operands, moves, places, asks).down(span.first, span.last, span.elimination(code, step))


def eliminate_narrow(step: Any, code: Code, *words: Any) -> None:
    layout, span = parted(words)
    if code.parts == 1:  # of complex numbers it is never called
        Narrow(code, layout[:4], layout[4:8], layout[8:]).down(span.first, span.last, span.elimination(code, step))


def begin_pivoted(code: Code, carry: Value, groups: Value) -> None:
    """What is carried to the first row."""

    def group(g: Value, state: Any) -> Any:
        nothing = code.integer(0)
        kept = Kept(code, Pivoted, nothing, nothing, carry, nothing).group(g)
        kept.carry(code.one(), code.zero(), code.zero(), code.zero())
        return state

    code.fori(0, groups, group)


def close_pivoted(code: Code, *words: Value) -> Value:
    """The pivot row of the last row, and the lanes whose pivots were all fine."""
    target, step, carry, good = words
    kept, zero, nothing = Elimination(code, Pivoted, target, step, carry, good), code.integer(0), code.zero()
    state = kept.start()
    inverse, sure = state.invert(code, state.p0)
    for rows, x in zip(kept.rows, (inverse, nothing, nothing, state.r), strict=True):
        rows.store(zero, x)
    kept.leave(Pivoted(nothing, nothing, nothing, state.rounding, sure))
    return code.word(good)


# ------------------------------------------------------------------------------------------------ up


def substitute_views(step: Any, code: Code, *words: Any) -> None:
    """The solution in place of the last of the rows that were kept."""
    source, stride, carry, mask, mask_step, count, asked, row_zero = words
    sweep = Substitution(code, step, source, stride, carry, carry)
    views = Views(code, (), Mask(code, mask, mask_step), lambda i: ask(code, asked, row_zero + i))
    views.up(sweep.rows[-1], count, sweep)


def substitute_contiguous(step: Any, code: Code, *words: Any) -> None:
    source, stride, carry, output, first, last, *rest = words
    sweep = Substitution(code, step, source, stride, carry, carry)
    to_contiguous(code, output, first, last, sweep, rest=rest[0] if rest else None)


def substitute_interleaved(past_caches: bool, step: Any, code: Code, *words: Any) -> None:
    source, stride, carry, groups, count, *target = words
    sweep = Substitution(code, step, source, stride, carry, carry)
    to_interleaved(past_caches, code, target, count, groups, solution_of_groups(sweep))


def substitute_narrow(step: Any, code: Code, *words: Any) -> None:
    source, stride, carry, _, count, *target = words
    if code.parts == 1:
        to_narrow(code, target, count, Substitution(code, step, source, stride, carry, carry))


def put_interleaved(past_caches: bool, code: Code, *words: Any) -> None:
    """Solutions that are, as they lie in memory, in place of q of the pivot rows of some groups."""
    source, stride, groups, count, *target = words

    def solution(i: Value, g: Value, height: int) -> list[Any]:
        last = source + i * stride + g * (ROWS_PIVOTED * code.row) + X_PIVOTED * code.row
        return [take_interleaved(code, last - stride * k) for k in range(height)]

    to_interleaved(past_caches, code, target, count, groups, solution)


def agree(code: Code, *words: Value) -> None:
    """Strike out the lanes of groups where any of ``count`` rows of x and y differ by more than their last bits."""
    x_at, y_at, step, count, groups, good = words

    def group(g: Value, state: Any) -> Any:
        def row(k: Value, same: Any) -> Any:
            at = g * step + k * code.row
            x, y = code.load(x_at + at), code.load(y_at + at)
            return (same[0] & (code.size(x - y) <= code.size(y) * code.eps),)

        (same,) = code.fori(0, count, row, (code.all_lanes(),))
        found = good + g * 8
        code.store_as(found, code.word(found) & pack(code, same, same, no_quotient(code)))
        return state

    code.fori(0, groups, group)


# ------------------------------------------------------------------------------------------------ the functions

LAYOUTS_DOWN: dict[str, Any] = {
    "views": eliminate_views,
    "contiguous": functools.partial(eliminate_contiguous, 0.0),
    "turned": functools.partial(eliminate_contiguous, 0.0, turned=True),  # of a transposed matrix, with its ends
    "coupled": functools.partial(eliminate_contiguous, 1.0),  # to rows before the first and behind the last
    "interleaved": functools.partial(eliminate_interleaved, True),
    "stream": functools.partial(eliminate_interleaved, False),
    "narrow": eliminate_narrow,
}
LAYOUTS_UP: dict[str, Any] = {
    "views": substitute_views,
    "contiguous": substitute_contiguous,
    "interleaved": functools.partial(substitute_interleaved, False),
    "stream": functools.partial(substitute_interleaved, True),
    "narrow": substitute_narrow,
}


def down(step: Any, layout: str, library: Library = SWEEPS) -> Any:
    """The function that eliminates rows of a layout."""
    body = functools.partial(LAYOUTS_DOWN[layout], step)
    return library.add(f"eliminate_{step.__name__.lower()}_{layout}", body)


def up(step: Any, layout: str, library: Library = SWEEPS) -> Any:
    """The function that substitutes rows of a layout; a stream is written past the caches."""
    body = functools.partial(LAYOUTS_UP[layout], step)
    return library.add(f"substitute_{step.__name__.lower()}_{layout}", body)


ELIMINATE, ELIMINATE_CONTIGUOUS = down(Thomas, "views"), down(Thomas, "contiguous")
ELIMINATE_TURNED = down(Thomas, "turned")
ELIMINATE_INTERLEAVED, ELIMINATE_STREAM = down(Thomas, "interleaved"), down(Thomas, "stream")
SUBSTITUTE, SUBSTITUTE_CONTIGUOUS = up(Thomas, "views"), up(Thomas, "contiguous")
SUBSTITUTE_INTERLEAVED, SUBSTITUTE_STREAM = up(Thomas, "interleaved"), up(Thomas, "stream")
ELIMINATE_NARROW, SUBSTITUTE_NARROW = down(Thomas, "narrow"), up(Thomas, "narrow")

PIVOT, PIVOT_CONTIGUOUS = down(Pivoted, "views"), down(Pivoted, "contiguous")
PIVOT_INTERLEAVED = down(Pivoted, "interleaved")
BEGIN_PIVOTED = SWEEPS.add("begin_pivoted", begin_pivoted)
CLOSE_PIVOTED = SWEEPS.add("close_pivoted", close_pivoted)
UNPIVOT, UNPIVOT_CONTIGUOUS = up(Pivoted, "views"), up(Pivoted, "contiguous")
UNPIVOT_INTERLEAVED, UNPIVOT_STREAM = up(Pivoted, "interleaved"), up(Pivoted, "stream")
PUT_INTERLEAVED = SWEEPS.add("put_interleaved", functools.partial(put_interleaved, False))
PUT_STREAM = SWEEPS.add("put_stream", functools.partial(put_interleaved, True))

AGREE = SWEEPS.add("agree", agree)
PUT_PAST_CACHES = SWEEPS.add("put_past_caches", put_past_caches)
