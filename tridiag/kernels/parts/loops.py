"""The inner loops of parts: what their elimination begins with, and what goes from it to memory and back.

Of a part of rows 0 .. n-1 are told, a number of each for every part,

    x[n-1] = last + last_before e + last_behind f,      x[0] = first + first_before e + first_last x[n-1],

with e = a[0] x[-1] and f = c[n-1] x[n]: a[0] and c[n-1] themselves are not read.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.parts.words import VALUES
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Ends, Thomas
from tridiag.kernels.thomas.sweeps import CARRIED, down

TOP = CARRIED[Ends]  # rows of lanes of what is carried; behind them that of the first row, before the last row
ROWS = TOP + 3
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


def load_values(code: Code, *words: Value) -> None:
    """e and x[n-1] of a group's parts, as the row before the first one that is kept and as what is substituted."""
    source, plane, used, kept, carry, good = words
    lanes = first_lanes(code, used)
    e, last = (
        whole(code, [code.load_some(source + plane * (k * code.parts + part), lanes) for part in range(code.parts)])
        for k in range(VALUES)
    )
    code.store(kept, code.zero())
    code.store(kept + code.row, e)
    code.store(carry, last)
    code.store_as(good, code.integer((1 << 2 * code.lanes) - 1))


def numbers(x: Any) -> tuple[Value, ...]:
    return (x.real, x.imag) if isinstance(x, Complex) else (x,)


def whole(code: Code, parts: list[Value]) -> Any:
    return parts[0] if code.parts == 1 else Complex(*parts)


BEGIN_ENDS, KEEP_TOP, SET_ONE = (
    PARTS.add("begin_ends", begin_ends),
    PARTS.add("keep_top", keep_top),
    PARTS.add("set_one", set_one),
)
STORE_RELATIONS = PARTS.add("store_relations", store_relations)
LOAD_VALUES = PARTS.add("load_values", load_values)
ENDS, ENDS_COUPLED = down(Ends, "views", PARTS), down(Ends, "coupled", PARTS)
ELIMINATE_COUPLED = down(Thomas, "coupled", PARTS)
