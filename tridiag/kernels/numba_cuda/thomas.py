"""One system in plain scalar code: what a thread of `tridiag.backends.numba_cuda_thomas` runs.

Each function is compiled for the CPU when the CPU calls it, which is how it is tested, and for the GPU when a kernel
does. Arrays are 1-D views of any stride: ``below`` and ``above`` are a and c, or c and a with ``shift`` = 1 for the
transpose; ``keep`` is False in the rows that are taken out. Nothing is multiplied with a coupling that is cut, and no
constant is a float64 where the arrays are float32. The elimination is that of `tridiag.algorithms.elimination`.
"""

from __future__ import annotations

from numba import njit

from tridiag.algorithms.elimination import (
    CANCELLATION,
    ENOUGH,
    GROWTH,
    LEAVE_BELOW,
    LEAVE_LATE,
    LOST,
    REFINE_ABOVE,
    REFINE_STEPS,
    RETURN_AFTER,
    UNREACHED,
    VANISHED,
    ZEROS_AFTER,
)  # fmt: skip

PLAIN_ROWS, PIVOTED_ROWS, REFINED_ROWS = 1, 3, 6  # numbers kept for each row of a system
compiled = njit(error_model="numpy")


@compiled
def row(below, diagonal, above, keep, shift, i):
    """Row i of the matrix: those of its three entries that exist, else zeros; of the identity where it is taken out."""
    last, zero = diagonal.shape[0] - 1, diagonal.dtype.type(0)
    if not keep[i]:
        return zero, diagonal.dtype.type(1), zero
    before = below[i - shift] if i > 0 and keep[i - 1] else zero
    after = above[i + shift] if i < last and keep[i + 1] else zero
    return before, diagonal[i], after


@compiled
def plain(below, diagonal, above, keep, shift, d, x, upper, eps, tiny):
    """Thomas. Whether the certificate holds, and 0 or 1 + the row of the first zero pivot, where x is NaN."""
    n, real = diagonal.shape[0], diagonal.dtype.type
    certified, status, ratio, y = True, 0, real(0), real(0)
    for i in range(n):
        if keep[i]:
            a, b, c = row(below, diagonal, above, keep, shift, i)
            pivot = b - a * ratio
            grown, size = abs(a * ratio) + abs(pivot), abs(pivot)
            harmless = grown * real(1 / GROWTH) <= abs(b) and size > real(CANCELLATION) * eps * abs(b) and size > tiny
            certified = certified and harmless
            if status == 0 and pivot == 0:
                status = i + 1
            ratio, y = c / pivot, (d[i] - a * y) / pivot
            certified = certified and (abs(ratio) >= tiny or c == 0)  # else digits are lost to underflow
        else:
            ratio, y = real(0), real(0)
        upper[i], x[i] = ratio, y
    for i in range(n - 2, -1, -1):
        y = x[i] - upper[i] * y if keep[i] and keep[i + 1] else x[i]
        x[i] = y
    if status != 0:
        spoil(x)
    return certified, status


@compiled
def spoil(x):
    """A singular system is NaN throughout."""
    for i in range(x.shape[0]):
        x[i] = x.dtype.type(float("nan"))


@compiled
def pivoted(below, diagonal, above, keep, shift, d, x, kept):
    """Elimination with partial pivoting, as LAPACK's xGTSV. 0, or 1 + the row of the first zero pivot, where x is NaN.

    ``kept`` takes the rows (q0, q1, q2) of U.
    """
    n, real, status = diagonal.shape[0], diagonal.dtype.type, 0
    _, p0, p1 = row(below, diagonal, above, keep, shift, 0)
    r = d[0] if keep[0] else real(0)
    for i in range(1, n):
        a, b, c = row(below, diagonal, above, keep, shift, i)
        right = d[i] if keep[i] else real(0)
        if abs(a) > abs(p0):
            multiplier = p0 / a
            kept[0, i - 1], kept[1, i - 1], kept[2, i - 1], x[i - 1] = a, b, c, right
            p0, p1, r = p1 - multiplier * b, -multiplier * c, r - multiplier * right
        else:
            multiplier = a / p0
            kept[0, i - 1], kept[1, i - 1], kept[2, i - 1], x[i - 1] = p0, p1, real(0), r
            p0, p1, r = b - multiplier * p1, c, right - multiplier * r
        if status == 0 and kept[0, i - 1] == 0:
            status = i
        if not keep[i]:
            p0, p1, r = real(1), real(0), real(0)
    kept[0, n - 1], kept[1, n - 1], kept[2, n - 1], x[n - 1] = p0, p1, real(0), r
    if status == 0 and p0 == 0:
        status = n
    if status != 0:
        spoil(x)
    else:
        substitute(keep, x, kept)
    return status


@compiled
def substitute(keep, x, kept):
    """x from the right side of U in its place."""
    x1, x2 = x.dtype.type(0), x.dtype.type(0)
    for i in range(x.shape[0] - 1, -1, -1):
        y = x[i] - kept[1, i] * x1
        if kept[2, i] != 0:
            y -= kept[2, i] * x2
        x1, x2 = y / kept[0, i] if keep[i] else x.dtype.type(0), x1
        x[i] = x1


@compiled
def residual(below, diagonal, above, keep, shift, d, x, eps, tiny, r, step):
    """The componentwise backward error, or NaN. ``r``: d - A x where that is more than rounding (`rows.residual`)."""
    n, real = diagonal.shape[0], diagonal.dtype.type
    worst, floor, most = real(0), real(4) * tiny / eps, real(UNREACHED) * eps
    leave = real(LEAVE_LATE) if step >= ZEROS_AFTER else real(LEAVE_BELOW)
    for i in range(n):
        a, b, c = row(below, diagonal, above, keep, shift, i)
        right = d[i] if keep[i] else real(0)
        before, after = x[i - 1] if i > 0 else real(0), x[i + 1] if i < n - 1 else real(0)
        rest = right - (a * before + b * x[i] + c * after)
        scale = max(abs(a * before) + abs(b * x[i]) + abs(c * after) + abs(right), floor)
        error = abs(rest) / scale
        if error > most:
            error = max(most, abs(rest) / max(scale, abs(a) * floor + abs(b) * floor + abs(c) * floor))
        if error != error:
            return error
        worst = max(worst, error)
        r[i] = rest if error > leave * eps else real(0)
    return worst


@compiled
def refine(below, diagonal, above, keep, shift, d, x, kept, eps, tiny):
    """x improved while its backward error exceeds REFINE_ABOVE eps; ``kept`` has REFINED_ROWS rows."""
    real, r, y, correction = diagonal.dtype.type, kept[3], kept[4], kept[5]
    least = residual(below, diagonal, above, keep, shift, d, x, eps, tiny, r, 0)
    for i in range(x.shape[0]):
        y[i] = x[i]
    for step in range(1, REFINE_STEPS + 1):
        if not least > real(REFINE_ABOVE) * eps or (step == ENOUGH + 1 and least * least <= eps):
            break
        pivoted(below, diagonal, above, keep, shift, r, correction, kept)
        for i in range(x.shape[0]):
            better = y[i] + correction[i]
            bound = real(VANISHED) * eps * abs(y[i])
            if step > ZEROS_AFTER and (step <= RETURN_AFTER or y[i] != 0):
                bound = max(bound, real(LOST) * abs(correction[i]), tiny / eps)
            y[i] = real(0) if abs(better) <= bound else better
        error = residual(below, diagonal, above, keep, shift, d, y, eps, tiny, r, step)
        if error < least:
            least = error
            for i in range(x.shape[0]):
                x[i] = y[i]
