"""The elimination as a Python loop over rows: the reference that `numpy_thomas` and `torch_thomas` share.

Cost: about 12 passes over one row of all systems per row; every row is read where it lies. Stability: as `elimination`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.algorithms import minors, row_scales, scaled
from tridiag.algorithms.matrix_rows import Matrix, bands, read, read_right_side, residual
from tridiag.algorithms.scaled import times_power
from tridiag.problems.forms import Form


class Factors(NamedTuple):
    """The eliminated rows; ``corner`` is the 2 x 2 rest of a cyclic matrix, ``last`` the last pivot of any other."""

    pivots: list[Any]
    last: Any
    corner: Any
    certified: Any  # whose plain elimination carries the certificate; with pivoting, of which no digits are lost
    status: Any  # 0, or 1 + the row (the column, where rows are exchanged) of the zero pivot


def eliminate(ops: Any, matrix: Matrix, form: Form, pivoting: Any) -> Factors:
    """Eliminate every system; ``pivoting`` is False, True, or an array that says which systems may exchange rows."""
    if form.periodic:
        return eliminate_cyclic(ops, matrix, form)
    eps, tiny = ops.limits(matrix[1])
    row = read(ops, matrix, form, 0)
    p0, p1 = ops.one(row[1]), ops.zero(row[1])
    certified, status, pivots = ops.size(p0) > 0, ops.zero_status(p0), []
    for i in range(form.n):
        a, b, c, keep = read(ops, matrix, form, i)
        above = p0, p1
        (p0, p1), pivot = el.eliminate(ops, above, (a, b, c), pivoting)
        if pivoting is True:
            certified = certified & el.keeps_digits(ops, above, a, pivot, (p0, p1), tiny)
        if keep is not None:
            p0, p1 = ops.where(keep, p0, ops.one(p0)), ops.where(keep, p1, ops.zero(p1))
        if pivoting is not True:
            certified = certified & el.certify(ops, pivot, (a, b), p0, eps, tiny)
        if i > 0:
            status = ops.where((status == 0) & (pivot.q0 == 0), i + ops.zero(status), status)
        pivots.append(pivot)
    status = ops.where((status == 0) & (p0 == 0), form.n + ops.zero(status), status)
    return Factors(pivots, p0, None, certified, status)


def eliminate_cyclic(ops: Any, matrix: Matrix, form: Form) -> Factors:
    """Columns 1 .. n-2, then the 2 x 2 corner: it always exchanges rows."""
    n = form.n
    (a0, b0, c0, _), (a1, b1, c1, _) = read(ops, matrix, form, 0), read(ops, matrix, form, 1)
    zero = ops.zero(b0)
    rows: Any = (c0, zero, zero, a0, b0), (b1, c1, zero, zero, a1)
    status, pivots = ops.zero_status(b0), []
    for i in range(2, n):
        a, b, c, _ = read(ops, matrix, form, i)
        rows, pivot = el.cyclic_eliminate(ops, rows, (a, b, c, zero, zero))
        status = ops.where((status == 0) & (pivot.row[0] == 0), i + ops.zero(status), status)
        pivots.append(pivot)
    corner = el.cyclic_corner(ops, rows)
    corner_pivot = el.corner_eliminate(ops, corner)
    for row, pivot in ((n, corner_pivot.q0), (1, corner_pivot.rest)):
        status = ops.where((status == 0) & (pivot == 0), row + ops.zero(status), status)
    return Factors(pivots, None, corner_pivot, ops.size(b0) < 0, status)


def substitute(ops: Any, factors: Factors, where: Any, d: Any, form: Form, store: Callable[[int, Any], None]) -> None:
    """Solve for one set of right sides; ``store(i, row)`` takes the solution, row n-1 first."""
    if form.periodic:
        substitute_cyclic(ops, factors, where, d, form, store)
        return
    carried = ops.zero(read_right_side(ops, where, d, form, 0))
    kept = []
    for i, pivot in enumerate(factors.pivots):
        row = read_right_side(ops, where, d, form, i)
        carried, q = el.forward(ops, carried, pivot, row)
        carried = keep_row(ops, where, form, i, carried)
        kept.append(q)
    x1, x2 = ops.quotient(carried, factors.last), ops.zero(carried)
    for i in range(form.n - 1, -1, -1):
        x1 = keep_row(ops, where, form, i, x1)
        store(i, x1)
        x1, x2 = el.backward(ops, x1, x2, factors.pivots[i], kept[i]), x1


def substitute_transposed(
    ops: Any, factors: Factors, where: Any, d: Any, form: Form, store: Callable[[int, Any], None]
) -> None:
    """With the factors of A, the solution of A^T x = d."""
    rows = factors.pivots[1:]
    zero = ops.zero(read_right_side(ops, where, d, form, 0))
    kept, z1, z2 = [], zero, zero
    for k in range(form.n):
        q0 = rows[k].q0 if k < form.n - 1 else factors.last
        q1, q2 = (rows[k - 1].q1 if k > 0 else ops.zero(q0)), (rows[k - 2].q2 if k > 1 else None)
        z = el.forward_transposed(ops, z1, z2, q1, q2, q0, read_right_side(ops, where, d, form, k))
        z1, z2 = keep_row(ops, where, form, k, z), z1
        kept.append(z1)
    carried = z1
    for k in range(form.n - 2, -1, -1):
        carried, x = el.backward_transposed(ops, carried, rows[k], kept[k])
        carried = keep_row(ops, where, form, k, carried)
        store(k + 1, keep_row(ops, where, form, k + 1, x))
    store(0, carried)


def substitute_cyclic(
    ops: Any, factors: Factors, where: Any, d: Any, form: Form, store: Callable[[int, Any], None]
) -> None:
    carried = read_right_side(ops, where, d, form, 0), read_right_side(ops, where, d, form, 1)
    kept = []
    for i, pivot in enumerate(factors.pivots):
        carried, q = el.cyclic_forward(ops, carried, pivot, read_right_side(ops, where, d, form, i + 2))
        kept.append(q)
    ends = el.solve_corner(ops, factors.corner, carried)
    x1, x2 = ends
    store(form.n - 1, keep_row(ops, where, form, form.n - 1, ends[0]))
    store(0, keep_row(ops, where, form, 0, ends[1]))
    for i in range(form.n - 2, 0, -1):
        x1, x2 = el.cyclic_backward(ops, x1, x2, ends, factors.pivots[i - 1], kept[i - 1]), x1
        store(i, keep_row(ops, where, form, i, x1))


def keep_row(ops: Any, where: Any, form: Form, i: int, x: Any) -> Any:
    """x, or 0 where row i is taken out."""
    return x if where is None else ops.where(ops.row(where, i, form.axis), x, ops.zero(x))


def solve(ops: Any, matrix: Matrix, d: Any, form: Form, factors: Factors | None = None) -> tuple[Any, Any]:
    """The solution and the status of every matrix, under the promise ``form.pivoting``."""
    if form.periodic and form.transpose:
        factors = None  # a cyclic matrix is eliminated again for its transpose
    turned = factors is not None and form.transpose
    factors = factor(ops, matrix, form) if factors is None else factors
    again = functools.partial(solve_factored, ops, factors, matrix[3], form=form, turned=turned)
    x = again(d)
    certified = ops.reshape(factors.certified, form.matrix_batch)
    if form.pivoting == "auto" and not ops.all(certified):
        improved, error = refine(ops, again, matrix, d, form, x)
        poor = ~((error <= el.REFINE_ABOVE * ops.limits(error)[0]) | certified)
        if ops.any(poor):
            improved = solve_with_scales(ops, matrix, d, form, improved, error, poor)
        x = ops.where(ops.unsqueeze(certified, form.axis), x, improved)
    return x, ops.reshape(factors.status, form.matrix_batch)


def factor(ops: Any, matrix: Matrix, form: Form) -> Factors:
    """Plain elimination, certified; then once more with exchanges in the systems that have no certificate."""
    if form.pivoting is True:
        return eliminate(ops, matrix, form, True)
    if form.periodic:
        return with_status(ops, matrix, form, eliminate(ops, matrix, form, True))
    plain = eliminate(ops, matrix, form, False)
    if form.pivoting is False or ops.all(plain.certified):
        return plain
    found = eliminate(ops, matrix, form, ~plain.certified)._replace(certified=plain.certified)
    return with_status(ops, matrix, form, found)


def with_status(ops: Any, matrix: Matrix, form: Form, found: Factors) -> Factors:
    """The same where no matrix is told to be singular that is regular with `row_scales`."""
    singular = ops.reshape(found.status, form.matrix_batch) != 0
    if not ops.any(singular):
        return found
    diagonals = whole_bands(ops, matrix, form)
    regular = singular & row_scales.are_wide(ops, diagonals, form.axis)
    if not ops.any(regular):
        return found
    status = scaled_factors(ops, diagonals, form)[1].status
    regular = regular & (ops.reshape(status, form.matrix_batch) == 0)
    regular = ops.reshape(regular, found.status.shape)
    return found._replace(status=ops.where(regular, ops.zero(found.status), found.status))


def whole_bands(ops: Any, matrix: Matrix, form: Form) -> tuple[Any, Any, Any]:
    """The bands of all matrices, whole."""
    sub, diagonal, sup = (ops.broadcast(x, form.matrix_shape) for x in bands(ops, matrix, form))
    return sub, diagonal, sup


def scaled_factors(ops: Any, diagonals: tuple[Any, Any, Any], form: Form) -> tuple[row_scales.Scales, Factors]:
    scales = row_scales.find(ops, diagonals, form)
    plain = form._replace(transpose=False)
    return scales, eliminate(ops, (*scales.bands, None), plain, True)


def solve_with_scales(ops: Any, matrix: Matrix, d: Any, form: Form, x: Any, error: Any, poor: Any) -> Any:
    """x, and of poor systems whose entries are wide apart what `row_scales` give where that is better."""
    diagonals = whole_bands(ops, matrix, form)
    tried = poor & row_scales.are_wide(ops, diagonals, form.axis)
    if not ops.any(tried):
        return x
    scales, factors = scaled_factors(ops, diagonals, form)
    plain, eps = form._replace(transpose=False), ops.limits(error)[0]
    nothing = ops.zero(error)

    def again(d: Any) -> Any:
        scaled, divided = row_scales.scaled_right(ops, scales, d, form.axis)
        found = solve_factored(ops, factors, None, scaled, plain, False)
        return times_power(ops, found, scales.columns + divided)

    bar = ops.where(tried, ops.where(error < 1 / eps, error, nothing + eps**0.5), nothing)
    where = matrix[3]
    right = d if where is None else ops.where(where, d, ops.zero(d))
    return refine(ops, again, matrix, d, form, again(ops.broadcast(right, form.shape)), (x, bar))[0]


def slogdet(ops: Any, matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """Sign and logarithm of the absolute value of every determinant, from the pivots of elimination with exchanges.

    Those of which that loses digits to the range of numbers are found from `minors`.
    """
    diagonals = whole_bands(ops, matrix, form)
    least, most = minors.extremes(ops, diagonals, form.axis)
    found, lost = from_pivots(ops, matrix, form, most)
    lost = (lost | minors.beyond(ops, least, most)) & (most < math.inf)
    if not ops.some(lost):
        return found

    def only(these: Any) -> Matrix:
        """The identity in place of all other matrices, whose derivatives are numbers then."""
        (a, b, c), these = diagonals, ops.unsqueeze(these, form.axis)
        nothing = ops.zero(b)
        return ops.where(these, a, nothing), ops.where(these, b, nothing + 1), ops.where(these, c, nothing), None

    plain = form._replace(transpose=False)
    again, (found, _) = from_minors(ops, only(lost), plain), from_pivots(ops, only(~lost), plain, most)
    return ops.where(lost, again[0], found[0]), ops.where(lost, again[1], found[1])


def from_pivots(ops: Any, matrix: Matrix, form: Form, most: Any) -> tuple[tuple[Any, Any], Any]:
    """Determinants, and of which matrices digits are lost to underflow or overflow; ``most``: of `minors.extremes`."""
    factors = eliminate(ops, matrix, form, True)
    regular, lost = factors.status == 0, ~factors.certified
    if form.periodic:
        pivots = [p.row[0] for p in factors.pivots] + [factors.corner.q0, factors.corner.rest]
        swaps = [s for p in factors.pivots for s in p.swaps] + [factors.corner.swap]
        lost = minors.sunk(ops, minors.lowest(ops, [p.row for p in factors.pivots]), most)
    else:
        pivots, swaps = [p.q0 for p in factors.pivots[1:]] + [factors.last], [p.swap for p in factors.pivots]
    found = el.determinant(ops, pivots, swaps, form.n if form.periodic else 0, ~regular)
    return found, lost | (regular & ~(abs(found[1]) < math.inf))


def from_minors(ops: Any, matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """The same of matrices whose entries are finite."""
    rows = [read(ops, matrix, form, i)[:3] for i in range(form.n)]
    onward, start = functools.partial(minors.onward, ops), minors.start(ops, rows[0][1])
    a, *first = rows[0]
    found = functools.reduce(onward, rows[1:], onward(start, (ops.zero(a), *first))).last
    if form.periodic:
        inner = functools.reduce(onward, rows[1:-1], start).last
        times = functools.partial(scaled.multiplied, ops)
        along = [functools.reduce(times, (scaled.split(ops, row[k]) for row in rows)) for k in (0, 2)]
        found = minors.closed(ops, form.n, (a, rows[-1][2]), found, inner, along)
    return minors.sign_and_logarithm(ops, found)


def solve_factored(ops: Any, factors: Factors, where: Any, d: Any, form: Form, turned: bool) -> Any:
    """x from factors, which are those of the transpose where ``turned``."""
    x = ops.empty(form.shape, d)
    method = substitute_transposed if turned else substitute
    method(ops, factors, where, d, form, lambda i, row: ops.store(x, i, form.axis, row))
    singular = ops.reshape(factors.status, form.matrix_batch) != 0
    return ops.where(ops.unsqueeze(singular, form.axis), ops.nan(x), x) if ops.any(singular) else x


def refine(
    ops: Any, again: Callable[[Any], Any], matrix: Matrix, d: Any, form: Form, x: Any, known: Any = None
) -> tuple[Any, Any]:
    """x improved while its componentwise residual exceeds REFINE_ABOVE eps; each system keeps its best iterate.

    And the errors of these. ``known``: solutions, and errors that x and what follows are to be better than.
    """
    diagonals = bands(ops, matrix, form)
    if matrix[3] is not None:
        d = ops.where(matrix[3], d, ops.zero(d))
    first = 0 if known is None else 1
    r, least = residual(ops, diagonals, x, d, form, first)
    best = x
    if known is not None:
        better = least < known[1]
        best = ops.where(ops.unsqueeze(better, form.axis), x, known[0])
        least = ops.where(better, least, known[1])
    unfit = el.unfit(ops, least, first)
    for step in range(first + 1, el.REFINE_STEPS + 1):
        if not ops.any(unfit):
            break
        x = el.correct(ops, x, again(r), step)
        r, error = residual(ops, diagonals, x, d, form, step)
        better = unfit & (error < least)  # not the neighbours of a system that needs another step
        best, least = ops.where(ops.unsqueeze(better, form.axis), x, best), ops.where(better, error, least)
        unfit = unfit & el.unfit(ops, least, step)
    return best, least
