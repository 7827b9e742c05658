"""The inner loops of cyclic systems: plain elimination with the last unknown on the right side, and pivoting.

Behind what is kept of all rows lie, as rows of lanes, the last row a, b, c, d, what the elimination carries, and
x[n-1]: the ``end``.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.layouts import ask_for_bands
from tridiag.kernels.access.operands import ask
from tridiag.kernels.access.rows import UPPER, Mask, Rows, erase, planes
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.refined_loops import Status
from tridiag.kernels.thomas.steps import Bordered, no_quotient
from tridiag.kernels.thomas.sweeps import Elimination, down
from tridiag.kernels.thomas.workspace import BORDERED, BORDERED_END

STATE, CLOSED = 4, BORDERED_END - 1  # where, in rows of lanes from the end on, what is carried lies, and x[n-1]
DIAGONAL = STATE + Bordered._fields.index("diagonal")


# ------------------------------------------------------------------------------------------------ plain


def carried(code: Code, end: Value, good: Value) -> Elimination:
    nothing = code.integer(0)
    return Elimination(code, Bordered, nothing, nothing, end + STATE * code.row, good)


def begin_bordered(code: Code, end: Value, good: Value) -> None:
    """Row -1 is x[n-1] itself; all lanes are good."""
    b, c, d = (code.load(end + k * code.row) for k in (1, 2, 3))
    state = Bordered(code.zero(), code.zero(), code.one(), c, b, d, code.all_lanes(), no_quotient(code))
    carried(code, end, good).leave(state)


def close(code: Code, end: Value, good: Value, attempt: Value) -> Value:
    """x[n-1], at first, from what is left of the last row; certified are lanes where that pivot is no mere rounding."""
    a, b, c = (code.load(end + k * code.row) for k in range(3))
    state, last = carried(code, end, good).start(), end + CLOSED * code.row
    diagonal = state.diagonal + state.below + a * (state.factor - state.above)
    found = (state.right - a * state.before) / diagonal
    code.store(last, code.where(code.everywhere(attempt == 0), found, code.load(last)))
    code.store(end + DIAGONAL * code.row, diagonal)
    bound = (code.size(a) + code.size(b) + code.size(c)) * (el.CLOSING * code.eps)
    return code.bits(state.sure & (code.size(diagonal) > code.maximum(bound, code.tiny)))


def substitute_bordered(code: Code, *words: Value) -> Value:
    """The solution in the second plane; accurate are lanes where the residual of the last row is rounding.

    In the others x[n-1] is corrected, for another time.
    """
    source, end, mask, mask_step, count, asked, good = words
    keep = Mask(code, mask, mask_step)
    slope, x, above = (Rows(code, source + k * code.row, BORDERED * code.row) for k in range(BORDERED))
    a, b, c, d = (code.load(end + k * code.row) for k in range(4))
    last = code.load(end + CLOSED * code.row)

    def down(i: Value, state: Any) -> Any:
        before = code.where(keep[i], x[i] - slope[i] * state[0], code.zero())
        x.store(i, before)
        return (before,)

    def up(i: Value, state: Any) -> Any:
        ask(code, asked, i)
        after = code.where(keep[i], x[i] - above[i] * state[0], code.zero())
        x.store(i, after)
        return (after,)

    code.fori(0, count, down, (last,))
    (first,) = code.fori(count - 1, -1, up, (last,), step=-1)
    x.store(count, last)
    terms = a * x[count - 1], b * last, c * first
    rest = d - (terms[0] + terms[1] + terms[2])
    scale = code.size(terms[0]) + code.size(terms[1]) + code.size(terms[2]) + code.size(d)
    bound = code.maximum(scale, 4 * code.tiny / code.eps) * (
        el.REFINE_ABOVE * code.eps
    )  # as `tridiag.algorithms.matrix_rows.residual`
    accurate = code.size(rest) <= bound
    corrected = last + rest / code.load(end + DIAGONAL * code.row)
    code.store(end + CLOSED * code.row, code.where(accurate, last, corrected))
    return code.bits(code.mask(good) & accurate)


# ------------------------------------------------------------------------------------------------ pivoted


def eliminate_cyclic(code: Code, *words: Value) -> None:
    """Columns 1 .. n-2 among three rows, then the 2 x 2 corner in x[n-1], x[0].

    Row k of the planes: the pivot row of column k (columns k, k+1, k+2, n-1, 0), its two multipliers, its two exchanges
    as bits. Row n-1: the pivot row of the corner, its multiplier in plane 5; row 0: the last pivot.
    """
    base, length, swaps, status, bindings = words
    code.fused = False
    a, b, c = planes(code, base, 3, length)
    upper, met = planes(code, base + length * (UPPER * code.row), 7, length), Status(code)
    zero, first, last = code.integer(0), code.integer(1), length - 1
    nothing = code.zero()

    def column(k: Value, state: Any) -> Any:
        rows, found = state
        ask_for_bands(code, bindings, k, 4)
        new = a[k + 1], b[k + 1], c[k + 1], nothing, nothing
        rows, pivot = el.cyclic_eliminate(code, rows, new)
        for plane, x in zip(upper, (*pivot.row, *pivot.multipliers), strict=True):
            plane.store(k, x)
        code.store_pair(swaps + k * code.lanes, *pivot.swaps)
        return rows, met.met(found, pivot.row[0], k + 1)

    rows = (c[zero], nothing, nothing, a[zero], b[zero]), (b[first], c[first], nothing, nothing, a[first])
    rows, found = code.fori(1, last, column, (rows, met.start()))
    corner = el.corner_eliminate(code, el.cyclic_corner(code, rows))
    for k, x in ((0, corner.q0), (1, corner.q1), (5, corner.multiplier)):
        upper[k].store(last, x)
    upper[0].store(zero, corner.rest)
    never = ~code.all_lanes()
    code.store_pair(swaps + last * code.lanes, corner.swap, never)
    code.store_pair(swaps, never, never)
    code.store_as(status, met.met(met.met(found, corner.q0, length), corner.rest, first))


def substitute_cyclic(code: Code, *words: Value) -> None:
    base, length, swaps, mask, mask_step, y, asked = words
    code.fused = False
    upper = planes(code, base + length * (UPPER * code.row), 7, length)
    values = Rows(code, y, code.row)
    zero, first, last = code.integer(0), code.integer(1), length - 1

    def pivot(k: Value) -> el.CyclicPivot:
        exchanges = code.load_pair(swaps + k * code.lanes)
        return el.CyclicPivot(exchanges, (upper[5][k], upper[6][k]), tuple(upper[j][k] for j in range(5)))

    def down(k: Value, state: Any) -> Any:
        carried, q = el.cyclic_forward(code, state, pivot(k), values[k + 1])
        values.store(k, q)
        return carried

    carried = code.fori(1, last, down, (values[zero], values[first]))
    swap, _ = code.load_pair(swaps + last * code.lanes)
    corner = el.CornerPivot(swap, upper[5][last], upper[0][last], upper[1][last], upper[0][zero])
    ends = el.solve_corner(code, corner, carried)
    values.store(last, ends[0])
    values.store(zero, ends[1])

    def up(k: Value, state: Any) -> Any:
        ask(code, asked, k)
        x = el.cyclic_backward(code, state[0], state[1], ends, pivot(k), values[k])
        values.store(k, x)
        return x, state[0]

    code.fori(last - 1, 0, up, ends, step=-1)
    erase(code, y, mask, mask_step, length)


CYCLIC = Library("cyclic")
BEGIN_BORDERED, CLOSE = CYCLIC.add("begin_bordered", begin_bordered), CYCLIC.add("close", close)
ELIMINATE_BORDERED = down(Bordered, "views", CYCLIC)
ELIMINATE_BORDERED_CONTIGUOUS = down(Bordered, "contiguous", CYCLIC)
SUBSTITUTE_BORDERED = CYCLIC.add("substitute_bordered", substitute_bordered)
ELIMINATE_CYCLIC = CYCLIC.add("eliminate_cyclic", eliminate_cyclic)
SUBSTITUTE_CYCLIC = CYCLIC.add("substitute_cyclic", substitute_cyclic)
