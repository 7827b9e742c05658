"""The inner loops of parts: what their elimination begins with, and what goes from it to memory and back.

Of a part of rows 0 .. n-1 are told, a number of each for every part,

    x[n-1] = last + last_before e + last_behind f,      x[0] = first + first_before e + first_last x[n-1],

with e = a[0] x[-1] and f = c[n-1] x[n]: a[0] and c[n-1] themselves are not read.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms.parts import ACCURATE
from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.parts.words import KNOWN, VALUES
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Ends, Thomas
from tridiag.kernels.thomas.sweeps import CARRIED, down

TOP = CARRIED[Ends]  # rows of lanes of what is carried; behind them that of the first row, before the last row
ROWS = TOP + 3
# what is known of a part, rows of lanes behind those that are kept of all rows: x[-1] times its coupling, x[0] to x[2],
# x[n-2], x[n-1], x[n] times its coupling, and whether the rows there have residuals of rounding
BEFORE, FIRST, LAST, BEHIND, GOOD, KNOWN_ROWS = 0, 1, 5, 6, 7, 8
PARTS = Library("parts")


def begin_ends(code: Code, carry: Value, good: Value) -> None:
    """Row -1 is x[-1] itself."""
    start = 0.0, 0.0, 1.0, 0.0, 0.0, 1.0
    for k, number in enumerate(start):
        code.store(carry + k * code.row, code.splat(number))
    code.store_as(good, code.integer((1 << 2 * code.lanes) - 1))


def keep_top(code: Code, carry: Value) -> None:
    """What is known of the first row, before the last one is eliminated."""
    rows, zero = Rows(code, carry, code.row), code.integer(0)
    for k in range(3):
        rows.store(zero + (TOP + k), rows[zero + (3 + k)])


def set_one(code: Code, target: Value) -> None:
    """The coupling to a row outside of the part, in what is told of e and f."""
    code.store(target, code.one())


def store_relations(code: Code, *words: Value) -> None:
    """What is told of a group's parts; NaN where plain elimination has no certificate."""
    carry, good, target, plane, used = words
    rows, zero, lanes = Rows(code, carry, code.row), code.integer(0), first_lanes(code, used)
    sure, nan = code.mask(code.word(good)), code.splat(float("nan"))
    above, before, factor, first, first_factor, own = (rows[zero + k] for k in (0, 1, 2, TOP, TOP + 1, TOP + 2))
    for k, x in enumerate((before, factor, -above, first, first_factor, own)):
        for part, number in enumerate(numbers(code.where(sure, x, nan))):
            code.store_some(target + plane * (k * code.parts + part), number, lanes)


def load_known(count: int, code: Code, *words: Value) -> None:
    """Of a group's parts e and x[n-1], and where so many are told f and x[0]."""
    source, plane, used, known = words
    lanes = first_lanes(code, used)
    for k, place in enumerate((BEFORE, LAST, BEHIND, FIRST)[:count]):
        planes = [source + plane * (k * code.parts + part) for part in range(code.parts)]
        code.store(known + place * code.row, whole(code, [code.load_some(at, lanes) for at in planes]))


def set_known(code: Code, kept: Value, source: Value) -> None:
    """What is kept of a row whose unknown is known."""
    code.store(kept, code.zero())
    code.store(kept + code.row, code.load(source))


def judge(code: Code, *words: Value) -> None:
    """Of some rows, whether their residuals are rounding: `tridiag.algorithms.parts.accurate`; 1 or 0 times ``good``.

    ``x`` begins with the row before them.
    """
    *places, x, good, count = words
    below, diagonal, above, right = (Rows(code, places[k], places[k + 1]) for k in range(0, 8, 2))
    rows = Rows(code, x, code.row)

    def row(i: Value, state: Any) -> Any:
        terms = below[i] * rows[i], diagonal[i] * rows[i + 1], above[i] * rows[i + 2], -right[i]
        scale = code.size(terms[0]) + code.size(terms[1]) + code.size(terms[2]) + code.size(terms[3])
        if code.parts == 2:
            scale = scale * 0.5
        bound = code.maximum(scale, 4 * code.tiny / code.eps) * (ACCURATE * code.eps)
        found = code.size(terms[0] + terms[1] + terms[2] + terms[3]) < bound
        return (code.where(found, state[0], code.real_zero()),)

    (found,) = code.fori(0, count, row, (code.load_as(code.vector, good),))
    code.store_as(good, found)


def copy_row(code: Code, source: Value, target: Value) -> None:
    code.store(target, code.load(source))


def tell_judged(code: Code, good: Value, certified: Value, target: Value, used: Value) -> None:
    """Of the parts of a group 1 or 0, a real number of each: 0 too where plain elimination has no certificate."""
    found = code.where(code.mask(code.word(certified)), code.load_as(code.vector, good), code.real_zero())
    code.store_some(target, found, first_lanes(code, used))


def numbers(x: Any) -> tuple[Value, ...]:
    return (x.real, x.imag) if isinstance(x, Complex) else (x,)


def whole(code: Code, parts: list[Value]) -> Any:
    return parts[0] if code.parts == 1 else Complex(*parts)


BEGIN_ENDS, KEEP_TOP, SET_ONE = (
    PARTS.add("begin_ends", begin_ends),
    PARTS.add("keep_top", keep_top),
    PARTS.add("set_one", set_one),
)
COPY_ROW = PARTS.add("copy_row", copy_row)
SET_KNOWN, JUDGE = PARTS.add("set_known", set_known), PARTS.add("judge", judge)
TELL_JUDGED = PARTS.add("tell_judged", tell_judged)
STORE_RELATIONS = PARTS.add("store_relations", store_relations)
LOAD_VALUES, LOAD_KNOWN = (
    PARTS.add(f"load_{count}_values", functools.partial(load_known, count)) for count in (VALUES, KNOWN)
)
ENDS, ENDS_COUPLED = down(Ends, "views", PARTS), down(Ends, "coupled", PARTS)
ELIMINATE_COUPLED = down(Thomas, "coupled", PARTS)
