"""A lane for each system in Triton, as in `tridiag.kernels.numba_cuda.thomas`: row by row, with pivoting or without.

An operand is where the systems of the lanes begin in it, and the step from row to row. The elimination is that of
`tridiag.algorithms.elimination`.
"""

import triton
import triton.language as tl

from tridiag.algorithms import elimination

SHRINK = tl.constexpr(1 / elimination.GROWTH)
CANCELLATION = tl.constexpr(elimination.CANCELLATION)
REFINE_ABOVE = tl.constexpr(elimination.REFINE_ABOVE)
REFINE_STEPS = tl.constexpr(elimination.REFINE_STEPS)
LEAVE_BELOW = tl.constexpr(elimination.LEAVE_BELOW)
LEAVE_LATE = tl.constexpr(elimination.LEAVE_LATE)
VANISHED = tl.constexpr(elimination.VANISHED)
LOST = tl.constexpr(elimination.LOST)
ZEROS_AFTER = tl.constexpr(elimination.ZEROS_AFTER)
UNREACHED = tl.constexpr(elimination.UNREACHED)
ENOUGH = tl.constexpr(elimination.ENOUGH)
RETURN_AFTER = tl.constexpr(elimination.RETURN_AFTER)


@triton.jit
def divide(x, y):
    """Rounded to nearest, which `/` is in float64 only."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


@triton.jit
def by_dtype(x, SINGLE: tl.constexpr, DOUBLE: tl.constexpr):
    """As many numbers as x has, all of which are one or the other."""
    if x.dtype == tl.float32:
        return tl.full(x.shape, SINGLE, x.dtype)
    else:
        return tl.full(x.shape, DOUBLE, x.dtype)


@triton.jit
def either(x, y):
    return x | y


@triton.jit
def read_row(matrix, i, n, shift, there, MASKED: tl.constexpr):
    """The entries of row i that exist, else zeros; those of the identity where it is taken out; and where it is not."""
    below, diagonal, above, where = matrix
    at = tl.full(there.shape, 0, tl.int64) + i  # for each lane: Triton's interpreter has no masks of scalars
    keep, before, after = there, there & (at > 0), there & (at + 1 < n)
    if MASKED:
        keep = keep & (tl.load(where[0] + i * where[1], there, other=0) != 0)
        before = before & keep & (tl.load(where[0] + (i - 1) * where[1], before, other=0) != 0)
        after = after & keep & (tl.load(where[0] + (i + 1) * where[1], after, other=0) != 0)
    a = tl.load(below[0] + (i - shift) * below[1], before, other=0.0)
    b = tl.load(diagonal[0] + i * diagonal[1], keep, other=1.0)
    c = tl.load(above[0] + (i + shift) * above[1], after, other=0.0)
    return a, b, c, keep


@triton.jit
def certifies(grown, pivot, diagonal, EPS: tl.constexpr, TINY: tl.constexpr):
    """Whether plain elimination of a row was harmless; ``grown`` was taken from its diagonal."""
    size, own = tl.abs(pivot), tl.abs(diagonal)
    return ((tl.abs(grown) + size) * SHRINK <= own) & (size > CANCELLATION * EPS * own) & (size > TINY)


@triton.jit
def lossless(quotient, x, TINY: tl.constexpr):
    """Where a quotient of x has all its digits: none was lost to underflow."""
    return (tl.abs(quotient) >= TINY) | (x == 0)


@triton.jit
def eliminate_rows(
    matrix, right, x, kept, n, shift, there, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr
):
    """Thomas. Which systems have their certificate, and 0 or 1 + the row of the first zero pivot, where x is NaN."""
    zero = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    certified, status, ratio, y = zero == 0, zero.to(tl.int64), zero, zero
    for i in range(n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        grown = a * ratio
        pivot = b - grown
        certified = certified & certifies(grown, pivot, b, EPS, TINY)
        status = tl.where((status == 0) & (pivot == 0), i + 1, status)
        ratio, y = divide(c, pivot), divide(d - a * y, pivot)
        certified = certified & lossless(ratio, c, TINY)
        tl.store(kept[0] + i * kept[1], ratio, there)
        tl.store(x[0] + i * x[1], y, there)
    tl.debug_barrier()
    y = zero
    for k in range(n):
        i = n - 1 - k
        y = tl.load(x[0] + i * x[1], there) - tl.load(kept[0] + i * kept[1], there) * y
        tl.store(x[0] + i * x[1], tl.where(status == 0, y, float("nan")), there)
    return certified, status


@triton.jit
def exchange(matrix, right, x, kept, n, shift, there, MASKED: tl.constexpr):
    """Elimination with partial pivoting, as LAPACK's xGTSV. 0, or 1 + the row of the first zero pivot, where x is NaN.

    ``kept`` takes the rows (q0, q1, q2) of U.
    """
    zero = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    status = zero.to(tl.int64)
    a, p0, p1, keep = read_row(matrix, 0, n, shift, there, MASKED)
    r = tl.load(right[0], keep, other=0.0)
    for i in range(1, n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        swap = tl.abs(a) > tl.abs(p0)
        q0, q1, q = tl.where(swap, a, p0), tl.where(swap, b, p1), tl.where(swap, d, r)
        o0, o1, o = tl.where(swap, p0, a), tl.where(swap, p1, b), tl.where(swap, r, d)
        store_pivot(kept, i - 1, q0, q1, tl.where(swap, c, zero), there)
        tl.store(x[0] + (i - 1) * x[1], q, there)
        status = tl.where((status == 0) & (q0 == 0), i, status)
        multiplier = divide(o0, q0)
        p0 = tl.where(keep, o1 - multiplier * q1, 1.0)
        p1 = tl.where(keep, tl.where(swap, -(multiplier * c), c), 0.0)
        r = tl.where(keep, o - multiplier * q, 0.0)
    store_pivot(kept, n - 1, p0, p1, zero, there)
    tl.store(x[0] + (n - 1) * x[1], r, there)
    status = tl.where((status == 0) & (p0 == 0), n, status)
    tl.debug_barrier()
    # of one value the compiler would make one variable, and drop that of row i + 2
    x1, x2 = zero, tl.full(there.shape, 0.0, zero.dtype)
    for k in range(n):
        i = n - 1 - k
        place = kept[0] + i * kept[1]
        q2 = tl.load(place + 2 * kept[2], there)
        y = tl.load(x[0] + i * x[1], there) - tl.load(place + kept[2], there) * x1
        y = divide(tl.where(q2 == 0, y, y - q2 * x2), tl.load(place, there, other=1.0))
        if MASKED:
            where = matrix[3]
            y = tl.where(tl.load(where[0] + i * where[1], there, other=0) != 0, y, 0.0)
        x2 = x1
        x1 = y
        tl.store(x[0] + i * x[1], tl.where(status == 0, y, float("nan")), there)
    tl.debug_barrier()
    return status


@triton.jit
def store_pivot(kept, i, q0, q1, q2, there):
    place = kept[0] + i * kept[1]
    tl.store(place, q0, there)
    tl.store(place + kept[2], q1, there)
    tl.store(place + 2 * kept[2], q2, there)


@triton.jit
def residual(
    matrix, right, x, rest, n, shift, there, leave, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr
):
    """The componentwise backward error, or NaN. ``rest``: d - A x where it is more than rounding (`rows.residual`)."""
    before = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    worst, own = before, tl.load(x[0], there)
    for i in range(n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        at = tl.full(there.shape, 0, tl.int64) + i
        after = tl.load(x[0] + (i + 1) * x[1], there & (at + 1 < n), other=0.0)
        difference = d - (a * before + b * own + c * after)
        size = tl.abs(a * before) + tl.abs(b * own) + tl.abs(c * after) + tl.abs(d)
        size = tl.maximum(size, 4 * TINY / EPS)
        least = (tl.abs(a) * (4 * TINY / EPS) + tl.abs(b) * (4 * TINY / EPS)) + tl.abs(c) * (4 * TINY / EPS)
        error = divide(tl.abs(difference), size)
        reached = tl.maximum(divide(tl.abs(difference), tl.maximum(size, least)), UNREACHED * EPS)
        error = tl.where(error > UNREACHED * EPS, reached, error)
        worst = tl.where((error > worst) | (error != error), error, worst)
        tl.store(rest[0] + i * rest[1], tl.where(error > leave, difference, 0.0), there)
        before = own
        own = after
    tl.debug_barrier()
    return worst


@triton.jit
def refine(matrix, right, x, kept, n, shift, there, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr):
    """x improved while its backward error exceeds REFINE_ABOVE eps; the best iterate stays."""
    begin, step, part = kept
    rest, y, correction = (begin + 3 * part, step), (begin + 4 * part, step), (begin + 5 * part, step)
    least = residual(matrix, right, x, rest, n, shift, there, LEAVE_BELOW * EPS, EPS, TINY, MASKED)
    copy(x, y, n, there)
    unfit = there
    for step in range(REFINE_STEPS):
        unfit = unfit & (least > REFINE_ABOVE * EPS) & ((least * least > EPS) | (step != ENOUGH))
        if tl.reduce(unfit.to(tl.int32), 0, either) != 0:
            exchange(matrix, rest, correction, kept, n, shift, there, MASKED)
            correct(y, correction, n, there, step, EPS, TINY)
            leave = tl.where(step + 1 >= ZEROS_AFTER, LEAVE_LATE, LEAVE_BELOW) * EPS
            error = residual(matrix, right, y, rest, n, shift, there, leave, EPS, TINY, MASKED)
            better = unfit & (error < least)
            copy(y, x, n, better)
            least = tl.where(better, error, least)


@triton.jit
def copy(source, target, n, there):
    for i in range(n):
        tl.store(target[0] + i * target[1], tl.load(source[0] + i * source[1], there), there)
    tl.debug_barrier()


@triton.jit
def correct(y, correction, n, there, step, EPS: tl.constexpr, TINY: tl.constexpr):
    """`tridiag.algorithms.elimination.correct`: y + correction; an exact zero where the two cancel."""
    for i in range(n):
        old = tl.load(y[0] + i * y[1], there)
        change = tl.load(correction[0] + i * correction[1], there)
        better = old + change
        vanished = tl.abs(better) <= VANISHED * EPS * tl.abs(old)
        lost = (tl.abs(better) <= LOST * tl.abs(change)) | (tl.abs(better) <= TINY / EPS)
        vanished = vanished | ((step >= ZEROS_AFTER) & lost & ((step < RETURN_AFTER) | (old != 0)))
        tl.store(y[0] + i * y[1], tl.where(vanished, 0.0, better), there)
    tl.debug_barrier()


@triton.jit
def append(listed, count, system, doubtful):
    """Put systems on a list."""
    place = tl.atomic_add(count + 0 * system, 1, doubtful)
    tl.store(listed + place, system, doubtful)
