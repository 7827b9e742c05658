"""The inner loops of elimination with partial pivoting (LAPACK xGTTRF), by selects, and of refinement."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.layouts import ask_for_bands
from tridiag.kernels.access.operands import ask
from tridiag.kernels.access.rows import BEST, ITERATE, SWEEPS, UPPER, Mask, Rows, merge, planes
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I32, LINE, Code


class Status(NamedTuple):
    """For each lane 0, or 1 + the row of the first zero pivot."""

    code: Code

    def start(self) -> Value:
        code = self.code
        return Value(code, code.constant(ir.VectorType(I32, code.lanes), 0))

    def met(self, status: Value, pivot: Any, row: Value) -> Value:
        code = self.code
        number = code.repeat(Value(code, code.builder.trunc(row.llvm, I32)), code.lanes)
        return code.where((status == 0) & (pivot == 0), number, status)


def eliminate_pivoted(code: Code, *words: Value) -> None:
    """Columns 0 .. n-1, with partial pivoting or not; the pivot rows and multipliers to their planes."""
    base, length, swaps, mask, mask_step, status, bindings, row_zero, swapping = words
    code.fused, allowed = False, code.everywhere(swapping != 0)
    a, b, c = planes(code, base, 3, length)
    q0, q1, q2, multiplier = planes(code, base + length * (UPPER * code.row), 4, length)
    keep, met, last = Mask(code, mask, mask_step), Status(code), length - 1

    def row(i: Value, state: Any) -> Any:
        carried, found = state
        ask_for_bands(code, bindings, row_zero + i, 4)
        (p0, p1), pivot = el.eliminate(code, carried, (a[i], b[i], c[i]), allowed)
        for plane, x in ((q0, pivot.q0), (q1, pivot.q1), (q2, pivot.q2), (multiplier, pivot.multiplier)):
            plane.store(i - 1, x)
        code.store_bytes(swaps + (i - 1) * code.lanes, pivot.swap)
        kept = keep[i]
        p0, p1 = code.where(kept, p0, code.one()), code.where(kept, p1, code.zero())
        return (p0, p1), met.met(found, pivot.q0, i)

    zero = code.integer(0)
    (p0, _), found = code.fori(1, length, row, ((b[zero], c[zero]), met.start()))
    for plane, x in ((q0, p0), (q1, code.zero()), (q2, code.zero())):
        plane.store(last, x)
    code.store_bytes(swaps + last * code.lanes, ~code.all_lanes())
    code.store_as(status, met.met(found, p0, length))


def substitute_pivoted(code: Code, *words: Value) -> None:
    """The solution in place of a right side."""
    base, length, swaps, mask, mask_step, right, asked, row_zero = words
    code.fused = False
    q0, q1, q2, multiplier = planes(code, base + length * (UPPER * code.row), 4, length)
    y, keep, swapped = Rows(code, right, code.row), Mask(code, mask, mask_step), Mask(code, swaps, code.lanes)

    def down(i: Value, state: Any) -> Any:
        pivot = el.Pivot(swapped[i - 1], multiplier[i - 1], None, None, None)
        carried, q = el.forward(code, state[0], pivot, y[i])
        y.store(i - 1, q)
        return (code.where(keep[i], carried, code.zero()),)

    def up(i: Value, state: Any) -> Any:
        x1, x2 = state
        ask(code, asked, row_zero + i)
        pivot = el.Pivot(swapped[i], None, q0[i], q1[i], q2[i])
        x = code.where(keep[i], el.backward(code, x1, x2, pivot, y[i]), code.zero())
        y.store(i, x)
        return x, x1

    zero, last = code.integer(0), length - 1
    (carried,) = code.fori(1, length, down, (y[zero],))
    y.store(last, carried)
    code.fori(last, -1, up, (code.zero(), code.zero()), step=-1)


def residual(code: Code, base: Value, length: Value, error: Value, number: Value) -> None:
    """r = d - A y where it is more than rounding, and the componentwise backward error, as `matrix_rows.residual`.

    ``number``: of the corrections so far. The ends couple as in a cyclic matrix; in any other the corners are zero.
    """
    a, b, c, d = planes(code, base, 4, length)
    y, rest = planes(code, base + length * (ITERATE * code.row), 2, length)
    levels = el.UNREACHED, el.LEAVE_BELOW * code.parts, el.LEAVE_LATE * code.parts
    most, early, late = (Value(code, code.constant(code.vector, x * code.eps)) for x in levels)
    leave = code.where(code.everywhere(number >= el.ZEROS_AFTER), late, early)
    floor, last, zero = 4 * code.tiny / code.eps, length - 1, code.integer(0)

    def coupling(entry: Any, x: Any) -> tuple[Any, Any]:
        """A product that is zero where the entry is, and its size."""
        gone = entry == 0
        sizes = code.size(entry) * code.size(x)
        return code.where(gone, code.zero(), entry * x), code.where(gone, code.real_zero(), sizes)

    def row(i: Value, state: Any) -> Any:
        before, here, worst = state
        after = y[code.pick(i == last, zero, i + 1)]
        below, above, diagonal = coupling(a[i], before), coupling(c[i], after), b[i] * here
        r = d[i] - (below[0] + diagonal + above[0])
        scale = below[1] + above[1] + code.size(b[i]) * code.size(here) + code.size(d[i])
        least = code.size(a[i]) * floor + code.size(b[i]) * floor + code.size(c[i]) * floor
        scale = scale * (1.0 / code.parts)  # a product of complex numbers can be half that of their sizes
        scale = code.maximum(scale, floor)
        ratio, reached = code.size(r) / scale, code.size(r) / code.maximum(scale, least)
        ratio = code.where(ratio > most, code.maximum(reached, most), ratio)
        rest.store(i, code.where(ratio <= leave, code.zero(), r))
        return here, after, code.where((ratio > worst) | (ratio != ratio), ratio, worst)

    *_, worst = code.fori(0, length, row, (y[last], y[zero], code.real_zero()))
    code.store_as(error, worst)


def judge(code: Code, base: Value, length: Value, number: Value, error: Value) -> Value:
    """Keep the iterate after that many corrections where it is the best; the lanes of `elimination.unfit`."""
    bar = el.REFINE_ABOVE * code.eps
    residual(code, base, length, error + LINE, number)
    least, trial = (code.load_as(code.vector, error + k) for k in (0, LINE))
    better = ((least > bar) & (trial < least)) | code.repeat(Value(code, (number == 0).llvm), code.lanes)
    least = code.where(better, trial, least)
    code.store_as(error, least)
    y, best = base + length * (ITERATE * code.row), base + length * (BEST * code.row)
    step = code.integer(code.row)
    merge(code, best, step, y, step, code.bits(better), length)
    return code.pick(number == el.ENOUGH, code.bits(least * least > code.eps), code.bits(least > bar))


def improve(code: Code, base: Value, length: Value, step: Value) -> None:
    """y + r; where the two cancel, an exact zero."""
    y, r = planes(code, base + length * (ITERATE * code.row), 2, length)
    number = code.repeat(step, code.lanes)

    def row(i: Value, state: Any) -> Any:
        y.store(i, el.correct(code, y[i], r[i], number))
        return state

    code.fori(0, length, row)


def zero_pivots(code: Code, status: Value) -> Value:
    """The lanes whose status is not zero."""
    return code.bits(code.load_as(ir.VectorType(I32, code.lanes), status) != 0)


ELIMINATE_PIVOTED = SWEEPS.add("eliminate_pivoted", eliminate_pivoted)
SUBSTITUTE_PIVOTED = SWEEPS.add("substitute_pivoted", substitute_pivoted)
JUDGE, IMPROVE, ZERO_PIVOTS = (
    SWEEPS.add("judge", judge),
    SWEEPS.add("improve", improve),
    SWEEPS.add("zero_pivots", zero_pivots),
)
