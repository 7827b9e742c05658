"""Gaussian elimination of tridiagonal and cyclic tridiagonal matrices, one row at a time, in any array library.

Every function takes the rows of all systems at once (arrays over the batch) and works elementwise, so the same text
runs in a Python loop over NumPy or torch rows and inside `jax.lax.scan`. ``ops`` is the library
(`tridiag.libraries.arrays`).

Tridiagonal, O(8n), LAPACK's xGTTRF / xGTTRS: the carried row (p0, p1 | r) is the one that still holds column k. The new
row k + 1 is (a, b, c | d). The larger of p0 and a is the pivot q0; with l = o0 / q0 the other row loses column k:

    q = pivot row, o = other row;   carried = (o1 - l q1, o2 - l q2 | o - l q);   x[k] = (q - q1 x[k+1] - q2 x[k+2]) /
    q0

Without pivoting this is the Thomas algorithm. Its first carried row is (1, 0 | 0), the row of an unknown x[-1] = 0.

Cyclic: columns 1 .. n-2 are eliminated in order, among the three rows that hold each; two rows in x[n-1] and x[0]
remain. No singular leading block can stop it. Rows are (column k, k+1, k+2, x[n-1], x[0] | right side). The pivot is
the candidate that is largest beside its own row: chosen by size alone, the entries in x[n-1] and x[0] can grow by a
factor a row (a = -1/2, b = c = 1), which loses all digits in 200.

Sources: Higham, Accuracy and Stability of Numerical Algorithms, chapter 9; LAPACK xGTTRF; Skeel 1980 (refinement);
Wright 1993, A collection of problems for which Gaussian elimination with partial pivoting is unstable (the growth).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.numbers import not_overflowed

GROWTH = 3.0  # certificate: |L||U| <= GROWTH |A| row by row; dominance implies 3 (Higham, theorem 9.12)
CANCELLATION = 16.0  # ... and no pivot below this many eps of its diagonal: such a system is looked at with pivoting
CLOSING = (
    4096.0  # ... nor the last one of a cyclic matrix, which gathers the rounding of all rows, this many eps of its row
)
DECAYED = 1e-4  # eps: a coupling between chunks, or windows, of rows that is smaller counts as none
REFINE_ABOVE = 4.0  # a pivoted system is refined while its componentwise residual exceeds this many eps
REFINE_STEPS = 40  # two or three do, four where the condition is near 1e-3/eps; the rest are for what follows
UNREACHED = 5.0  # ... of which a row counts as no more that only numbers below the smallest one would mend
LEAVE_BELOW = 1.0  # ... and only rows whose own residual exceeds this many eps drive the correction
LEAVE_LATE = 3.0  # ... or this many after ZEROS_AFTER corrections: rows that rounding moves to and fro disturb others
VANISHED = 64.0  # a component that its correction cancels to this many eps is an exact zero
ZEROS_AFTER = 4  # ... and after so many steps every component that is
LOST = 16.0  # no more than this many times its correction
RETURN_AFTER = 6  # ... but after so many steps one that is zero already takes any correction
ENOUGH = 12  # steps, after which only systems go on that lack half of the digits


class Pivot(NamedTuple):
    """One eliminated row: (q0, q1, q2) of U, the multiplier of the other row, and whether the two were exchanged."""

    swap: Any
    multiplier: Any
    q0: Any
    q1: Any
    q2: Any


def eliminate(ops: Any, carried: tuple[Any, Any], row: tuple[Any, Any, Any], pivoting: Any) -> tuple[Any, Pivot]:
    """One column. ``pivoting`` is False, True, or an array: the systems that may exchange rows.

    Where rows may be exchanged, a pivot that overflows is NaN.
    """
    (p0, p1), (a, b, c) = carried, row
    if pivoting is False:
        multiplier = ops.quotient(a, p0)
        return (b - multiplier * p1, c), Pivot(None, multiplier, p0, p1, None)
    swap = ops.size(a) > ops.size(p0)
    if pivoting is not True:
        swap = swap & pivoting
    q0, o0 = ops.where(swap, a, p0), ops.where(swap, p0, a)
    q1, o1 = ops.where(swap, b, p1), ops.where(swap, p1, b)
    q2 = ops.where(swap, c, ops.zero(c))
    multiplier = ops.quotient(o0, q0)
    carried = not_overflowed(ops, o1 - multiplier * q1, o1), ops.where(swap, -multiplier * c, c)
    return carried, Pivot(swap, multiplier, q0, q1, q2)


def forward(ops: Any, carried: Any, pivot: Pivot, d: Any) -> tuple[Any, Any]:
    """The same step for a right side: the new carried value and the pivot row's."""
    if pivot.swap is None:
        return d - pivot.multiplier * carried, carried
    q, o = ops.where(pivot.swap, d, carried), ops.where(pivot.swap, carried, d)
    return o - pivot.multiplier * q, q


def backward(ops: Any, x1: Any, x2: Any, pivot: Pivot, q: Any) -> Any:
    """x[k] from x[k+1] and, where rows were exchanged, x[k+2]."""
    if pivot.q2 is None:
        return (q - pivot.q1 * x1) / pivot.q0
    return ops.quotient(q - pivot.q1 * x1 - ops.where(pivot.swap, pivot.q2 * x2, ops.zero(x2)), pivot.q0)


def forward_transposed(ops: Any, z1: Any, z2: Any, q1: Any, q2: Any, q0: Any, d: Any) -> Any:
    """U^T z = d: z[k] from z[k-1], z[k-2], the q1 of row k - 1 and the q2 of row k - 2."""
    if q2 is None:
        return (d - q1 * z1) / q0
    return ops.quotient(d - q1 * z1 - q2 * z2, q0)


def backward_transposed(ops: Any, carried: Any, pivot: Pivot, z: Any) -> tuple[Any, Any]:
    """L^T x = z: the carried value for row k, and x[k+1]."""
    if pivot.swap is None:
        return z - pivot.multiplier * carried, carried
    other = z - pivot.multiplier * carried
    return ops.where(pivot.swap, carried, other), ops.where(pivot.swap, other, carried)


class Reciprocal(NamedTuple):
    """One row of plain elimination that is divided by its pivot: (0, 1, above), with growth = l c of the row above."""

    growth: Any
    pivot: Any
    inverse: Any
    above: Any


def eliminate_reciprocal(ops: Any, above: Any, row: tuple[Any, Any, Any]) -> Reciprocal:
    """The same column with one division; ``above`` is c / pivot of the row above."""
    a, b, c = row
    growth = a * above
    pivot = b - growth
    inverse = ops.one(pivot) / pivot
    return Reciprocal(growth, pivot, inverse, c * inverse)


def certify(ops: Any, pivot: Pivot, row: tuple[Any, Any], new: Any, eps: float, tiny: float) -> Any:
    """Whether plain elimination of row (a, b) was harmless: |l c| + |pivot| <= GROWTH |b|, the pivot no mere rounding.

    An overflow is not: the bound must not overflow with it. Nor is an underflow: l = a / pivot has all its digits.
    """
    (a, b), size = row, ops.size(new)
    whole = (size > tiny) & lossless(ops, pivot.multiplier, a, tiny)
    return harmless(ops, pivot.multiplier * pivot.q1, new, b, eps) & whole


def harmless(ops: Any, growth: Any, pivot: Any, diagonal: Any, eps: float, scale: float = 1.0) -> Any:
    """The certificate of a row but for underflow. ``scale`` times a pivot must not overflow either."""
    size, bound = ops.size(pivot), ops.size(diagonal)
    grown = ops.size(growth) + size
    grown = grown if scale == 1 else grown * scale
    return (grown * (1 / scale / GROWTH) <= bound) & (size > CANCELLATION * eps * bound)


def lossless(ops: Any, quotient: Any, x: Any, tiny: float) -> Any:
    """Where a quotient of x has all its digits: none was lost to underflow."""
    return (ops.size(quotient) >= tiny) | (x == 0)


def keeps_digits(ops: Any, above: tuple[Any, Any], a: Any, pivot: Pivot, carried: tuple[Any, Any], tiny: float) -> Any:
    """Whether one column with exchanges loses no digits to underflow that the product of all pivots needs.

    ``above`` and ``carried``: the carried rows before and after. Rounding loses none: beside being pivots, numbers are
    used once, so that the product is the determinant of a matrix whose entries differ in the last bits, whatever grows.
    """
    other, taken = ops.where(pivot.swap, above[0], a), pivot.multiplier * pivot.q1
    whole = lossless(ops, pivot.multiplier, other, tiny) & lossless(ops, carried[1], pivot.q2, tiny)
    return (whole & (lossless(ops, taken, pivot.q1, tiny) | (ops.size(carried[0]) >= tiny))) | (other == 0)


def correct(ops: Any, x: Any, correction: Any, step: Any = 1) -> Any:
    """x + correction; an exact zero where the two cancel, which no finite number of corrections would reach.

    Of zeros that depend on each other some come back as the rounding of others: so in late steps all are zeros of which
    the correction leaves no digit, or which are so small that rows take them for nothing. Before, they may be tiny
    numbers that are not found yet. A number that is hundreds of decades below its neighbours has its first digit once
    all of their rounding is gone from its rows: so, still later, what is zero takes its correction.
    """
    y, (eps, tiny) = x + correction, ops.limits(x)
    found = ops.size(y)
    lost = (found <= LOST * ops.size(correction)) | (found <= tiny / eps)
    lost = lost & ((ops.size(x) > 0) | (step <= RETURN_AFTER))
    return ops.where((found <= VANISHED * eps * ops.size(x)) | (lost & (step > ZEROS_AFTER)), ops.zero(y), y)


def unfit(ops: Any, least: Any, step: Any) -> Any:
    """Where a system of that backward error may gain from another correction than these: among those it did before."""
    eps, _ = ops.limits(least)
    return (least > REFINE_ABOVE * eps) & ((least * least > eps) | (step != ENOUGH))


class CyclicPivot(NamedTuple):
    """One eliminated column of a cyclic matrix: the pivot row, two exchanges, two multipliers."""

    swaps: tuple[Any, Any]
    multipliers: tuple[Any, Any]
    row: tuple[Any, ...]


def exchange(ops: Any, swap: Any, x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    first = tuple(ops.where(swap, v, u) for u, v in zip(x, y, strict=True))
    return first, tuple(ops.where(swap, u, v) for u, v in zip(x, y, strict=True))


def better_pivot(ops: Any, row: tuple[Any, ...], other: tuple[Any, ...]) -> Any:
    """Whether the other row's first entry is larger beside its largest one, or is one at all."""

    def part(sizes: list[Any]) -> Any:
        largest = sizes[0]
        for size in sizes[1:]:
            largest = ops.where(size > largest, size, largest)
        return sizes[0] / largest

    sizes, others = ([ops.size(entry) for entry in entries] for entries in (row, other))
    return (part(others) > part(sizes)) | ((sizes[0] == 0) & (others[0] > 0))


def cyclic_eliminate(ops: Any, rows: tuple[Any, Any], new: tuple[Any, ...]) -> tuple[tuple[Any, Any], CyclicPivot]:
    """One column of a cyclic matrix: of three candidates the largest beside its row is the pivot."""
    first, second = rows
    swap1 = better_pivot(ops, first, second)
    first, second = exchange(ops, swap1, first, second)
    swap2 = better_pivot(ops, first, new)
    first, new = exchange(ops, swap2, first, new)
    carried, multipliers = [], []
    for row in (second, new):
        multiplier = ops.quotient(row[0], first[0])
        rest = [not_overflowed(ops, v - multiplier * q, v) for v, q in zip(row[1:], first[1:], strict=True)]
        carried.append((rest[0], rest[1], ops.zero(rest[0]), rest[2], rest[3]))
        multipliers.append(multiplier)
    return (carried[0], carried[1]), CyclicPivot((swap1, swap2), (multipliers[0], multipliers[1]), first)


def cyclic_forward(ops: Any, carried: tuple[Any, Any], pivot: CyclicPivot, d: Any) -> tuple[tuple[Any, Any], Any]:
    (first,), (second,) = exchange(ops, pivot.swaps[0], (carried[0],), (carried[1],))
    (first,), (d,) = exchange(ops, pivot.swaps[1], (first,), (d,))
    l1, l2 = pivot.multipliers
    return (second - l1 * first, d - l2 * first), first


def cyclic_corner(ops: Any, rows: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """The 2 x 2 matrix in (x[n-1], x[0]) that remains: columns k and k + 1 are now n - 1 and n = 0."""

    def total(x: Any, y: Any) -> Any:
        return not_overflowed(ops, x + y, (x - x) + (y - y))

    return [(total(row[0], row[3]), total(row[1], row[4])) for row in rows]


def cyclic_backward(ops: Any, x1: Any, x2: Any, ends: tuple[Any, Any], pivot: CyclicPivot, q: Any) -> Any:
    q0, q1, q2, q_last, q_zero = pivot.row
    return ops.quotient(q - q1 * x1 - q2 * x2 - q_last * ends[0] - q_zero * ends[1], q0)


class CornerPivot(NamedTuple):
    """The 2 x 2 corner eliminated: the exchange, the multiplier, the pivot row (q0, q1) and the last pivot."""

    swap: Any
    multiplier: Any
    q0: Any
    q1: Any
    rest: Any


def corner_eliminate(ops: Any, corner: list[tuple[Any, Any]]) -> CornerPivot:
    (a00, a01), (a10, a11) = corner
    swap = ops.size(a10) > ops.size(a00)
    (q0, q1), (o0, o1) = exchange(ops, swap, (a00, a01), (a10, a11))
    multiplier = ops.quotient(o0, q0)
    return CornerPivot(swap, multiplier, q0, q1, not_overflowed(ops, o1 - multiplier * q1, o1))


def solve_corner(ops: Any, corner: CornerPivot, carried: tuple[Any, Any]) -> tuple[Any, Any]:
    """x[n-1] and x[0]."""
    (q,), (o,) = exchange(ops, corner.swap, (carried[0],), (carried[1],))
    x_zero = ops.quotient(o - corner.multiplier * q, corner.rest)
    return ops.quotient(q - corner.q1 * x_zero, corner.q0), x_zero


def polar(ops: Any, x: Any) -> tuple[Any, Any]:
    """x / |x|, or 0 for 0, and log |x|: of complex x scaled before, where |x| would overflow or have few digits."""
    size, (eps, tiny) = ops.size(x), ops.limits(x)
    if size.dtype == x.dtype:
        return ops.sign(x), ops.log_abs(x)
    one = ops.one(size)
    factor = ops.where(size < tiny / eps, one / eps, ops.where(size > 1 / tiny, one / 4, one))
    return ops.sign(x * factor), ops.log_abs(x * factor) - ops.log_abs(factor)


def determinant(ops: Any, pivots: list[Any], swaps: list[Any], periodic_rows: int, singular: Any) -> tuple[Any, Any]:
    """Sign and log |det| from pivots and exchanges; a cyclic matrix of n rows has its column 0 moved to the end.

    After a zero pivot the rest is NaN: the singular matrices are told apart by ``singular``.
    """
    parts = [polar(ops, pivot) for pivot in pivots]
    log = sum(log for _, log in parts)
    sign = ops.one(pivots[0]) * (-1.0 if periodic_rows and periodic_rows % 2 == 0 else 1.0)
    for direction, _ in parts:
        sign = sign * direction
    for swap in swaps:
        sign = ops.where(swap, -sign, sign)
    return ops.where(singular, ops.zero(sign), sign), ops.where(singular, ops.log_abs(ops.zero(log)), log)
