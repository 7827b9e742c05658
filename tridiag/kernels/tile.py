"""Elimination of a tile: arrays (n, lanes), one system in each lane; every loop over lanes is independent.

Plain (Thomas), 5 flops and one division a row; pivoted (LAPACK xGTTRF), by selects, two divisions; cyclic, three rows
a column. The equations are those of `tridiag.elimination`. In the substitutions ``step`` is 0 where lane 0 of the
matrix serves all lanes of the right side, else 1.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

OPTIONS = {"error_model": "numpy", "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


GROWTH_, ROUNDING_, TINY_, BAR_, LEAVE_, VANISHED_, FLOOR_, ONE_ = range(
    8
)  # in ``limits``, which has the real type of the entries


def quotient(x, y):
    """x / y; Numba's own complex division raises where y is 0, and an exception in a kernel ends the kernel."""


@overload(quotient, jit_options=OPTIONS)
def _quotient(x, y):
    if not isinstance(y, types.Complex):
        return lambda x, y: x / y
    make = np.complex64 if y.bitwidth == 64 else np.complex128

    def smith(x, y):
        if abs(y.real) >= abs(y.imag):
            ratio = y.imag / y.real
            scale = y.real + y.imag * ratio
            return make(complex((x.real + x.imag * ratio) / scale, (x.imag - x.real * ratio) / scale))
        ratio = y.real / y.imag
        scale = y.imag + y.real * ratio
        return make(complex((x.real * ratio + x.imag) / scale, (x.imag * ratio - x.real) / scale))

    return smith


@njit(**OPTIONS)
def size(x):
    return abs(x.real) + abs(x.imag)


@njit(**OPTIONS)
def eliminate(A, B, C, mask, masked, lanes, limits, good, status, zero):
    """B becomes 1 / pivot, C becomes c / pivot; ``good`` the certificate, ``status`` 1 + the row of a zero pivot."""
    n = B.shape[0]
    one = zero + limits[ONE_]
    for w in range(lanes):
        good[w], status[w] = True, 0
    for i in range(n):
        for w in range(lanes):
            b = B[i, w]
            growth = A[i, w] * C[i - 1, w] if i > 0 else zero
            pivot = b - growth
            if masked and mask[i, w] == 0:
                pivot, growth = b, zero
            diagonal, new = size(b), size(pivot)
            bounded = size(growth) + new <= limits[GROWTH_] * diagonal
            good[w] = good[w] and bounded and new > limits[ROUNDING_] * diagonal and new > limits[TINY_]
            if pivot == 0 and status[w] == 0:
                status[w] = i + 1
            inverse = quotient(one, pivot)
            B[i, w] = inverse
            C[i, w] = C[i, w] * inverse


@njit(**OPTIONS)
def substitute(A, B, C, Y, mask, masked, lanes, step, zero):
    """Y becomes the solution, from eliminated A, B, C."""
    n = Y.shape[0]
    for i in range(n):
        for w in range(lanes):
            m = w * step
            y = Y[i, w] * B[i, m] if i == 0 else (Y[i, w] - A[i, m] * Y[i - 1, w]) * B[i, m]
            Y[i, w] = zero if masked and mask[i, m] == 0 else y
    for i in range(n - 2, -1, -1):
        for w in range(lanes):
            m = w * step
            if not (masked and mask[i, m] == 0):
                Y[i, w] -= C[i, m] * Y[i + 1, w]


@njit(**OPTIONS)
def substitute_transposed(A, B, C, Y, mask, masked, lanes, step, zero):
    """The same for the transposed matrix: U^T, then L^T."""
    n = Y.shape[0]
    for i in range(1, n):
        for w in range(lanes):
            m = w * step
            if not (masked and mask[i, m] == 0):
                Y[i, w] -= C[i - 1, m] * Y[i - 1, w]
    for i in range(n - 1, -1, -1):
        for w in range(lanes):
            m = w * step
            y = Y[i, w] * B[i, m] if i == n - 1 else (Y[i, w] - A[i + 1, m] * Y[i + 1, w]) * B[i, m]
            Y[i, w] = zero if masked and mask[i, m] == 0 else y


@njit(**OPTIONS)
def eliminate_pivoted(A, B, C, U, S, mask, masked, lanes, status, zero):
    """U[0..2] the rows of U, U[3] the multipliers of row i + 1, S whether rows i and i + 1 were exchanged."""
    n = B.shape[0]
    for w in range(lanes):
        status[w] = 0
        U[0, 0, w], U[1, 0, w] = B[0, w], C[0, w]
    for i in range(n):
        last = i == n - 1
        for w in range(lanes):
            p0, p1 = U[0, i, w], U[1, i, w]
            if last:
                U[2, i, w], U[3, i, w], S[i, w] = 0, 0, 0
            else:
                a, b, c = A[i + 1, w], B[i + 1, w], C[i + 1, w]
                swap = size(a) > size(p0)
                q0, o0 = (a, p0) if swap else (p0, a)
                q1, o1 = (b, p1) if swap else (p1, b)
                q2 = c if swap else zero
                o2 = zero if swap else c
                multiplier = quotient(o0, q0)
                U[0, i, w], U[1, i, w], U[2, i, w], U[3, i, w], S[i, w] = q0, q1, q2, multiplier, swap
                next0, next1 = o1 - multiplier * q1, o2 - multiplier * q2
                if masked and mask[i + 1, w] == 0:
                    next0, next1 = b, c
                U[0, i + 1, w], U[1, i + 1, w] = next0, next1
            if U[0, i, w] == 0 and status[w] == 0:
                status[w] = i + 1


@njit(**OPTIONS)
def substitute_pivoted(U, S, Y, mask, masked, lanes, step, zero):
    n = Y.shape[0]
    for i in range(n - 1):
        for w in range(lanes):
            m = w * step
            r, d = Y[i, w], Y[i + 1, w]
            if S[i, m] != 0:
                r, d = d, r
            Y[i, w] = r
            Y[i + 1, w] = d if masked and mask[i + 1, m] == 0 else d - U[3, i, m] * r
    for i in range(n - 1, -1, -1):
        for w in range(lanes):
            m = w * step
            y = Y[i, w]
            if i < n - 1:
                y -= U[1, i, m] * Y[i + 1, w]
            if i < n - 2:
                y -= U[2, i, m] * Y[i + 2, w]
            Y[i, w] = zero if masked and mask[i, m] == 0 else quotient(y, U[0, i, m])


@njit(**OPTIONS)
def eliminate_cyclic(A, B, C, U, S, lanes, status, zero):
    """Columns 1 .. n-2 among three rows, then the 2 x 2 corner in x[n-1], x[0].

    U[0..4, k] is the pivot row of column k (columns k, k+1, k+2, n-1, 0), U[5..6, k] its two multipliers, S[k] its two
    exchanges (bits). The corner: U[0, n-1], U[1, n-1] its pivot row, U[5, n-1] its multiplier, U[0, 0] its last pivot.
    """
    n = B.shape[0]
    for w in range(lanes):
        status[w] = 0
        f0, f1, f3, f4 = C[0, w], zero, A[0, w], B[0, w]
        s0, s1, s3, s4 = B[1, w], C[1, w], zero, A[1, w]
        for k in range(1, n - 1):
            e0, e1, e2, e3, e4 = A[k + 1, w], B[k + 1, w], C[k + 1, w], zero, zero
            f2 = zero
            flags = 0
            if size(s0) > size(f0):
                f0, f1, f3, f4, s0, s1, s3, s4 = s0, s1, s3, s4, f0, f1, f3, f4
                flags = 1
            if size(e0) > size(f0):
                f0, f1, f2, f3, f4, e0, e1, e2, e3, e4 = e0, e1, e2, e3, e4, f0, f1, f2, f3, f4
                flags += 2
            if f0 == 0 and status[w] == 0:
                status[w] = k + 1
            l1, l2 = quotient(s0, f0), quotient(e0, f0)
            U[0, k, w], U[1, k, w], U[2, k, w], U[3, k, w], U[4, k, w] = f0, f1, f2, f3, f4
            U[5, k, w], U[6, k, w], S[k, w] = l1, l2, flags
            s0, s1, s3, s4 = s1 - l1 * f1, -l1 * f2, s3 - l1 * f3, s4 - l1 * f4
            e0, e1, e3, e4 = e1 - l2 * f1, e2 - l2 * f2, e3 - l2 * f3, e4 - l2 * f4
            f0, f1, f3, f4, s0, s1, s3, s4 = s0, s1, s3, s4, e0, e1, e3, e4
        q0, q1, o0, o1 = f0 + f3, f1 + f4, s0 + s3, s1 + s4
        S[n - 1, w] = size(o0) > size(q0)
        if S[n - 1, w] != 0:
            q0, q1, o0, o1 = o0, o1, q0, q1
        multiplier = quotient(o0, q0)
        U[0, n - 1, w], U[1, n - 1, w], U[5, n - 1, w], U[0, 0, w] = q0, q1, multiplier, o1 - multiplier * q1
        S[0, w] = 0
        if q0 == 0 and status[w] == 0:
            status[w] = n
        if U[0, 0, w] == 0 and status[w] == 0:
            status[w] = 1


@njit(**OPTIONS)
def substitute_cyclic(U, S, Y, mask, masked, lanes, step, zero):
    n = Y.shape[0]
    for w in range(lanes):
        m = w * step
        f, s = Y[0, w], Y[1, w]
        for k in range(1, n - 1):
            e = Y[k + 1, w]
            if S[k, m] & 1:
                f, s = s, f
            if S[k, m] & 2:
                f, e = e, f
            Y[k, w] = f
            f, s = s - U[5, k, m] * f, e - U[6, k, m] * f
        if S[n - 1, m] != 0:
            f, s = s, f
        first = quotient(s - U[5, n - 1, m] * f, U[0, 0, m])
        last = quotient(f - U[1, n - 1, m] * first, U[0, n - 1, m])
        Y[0, w], Y[n - 1, w] = first, last
        x1, x2 = last, first
        for k in range(n - 2, 0, -1):
            y = Y[k, w] - U[1, k, m] * x1 - U[2, k, m] * x2 - U[3, k, m] * last - U[4, k, m] * first
            x1, x2 = quotient(y, U[0, k, m]), x1
            Y[k, w] = x1
        if masked:
            for i in range(n):
                if mask[i, m] == 0:
                    Y[i, w] = zero


@njit(**OPTIONS)
def residual(A, B, C, X, D, R, lanes, step, limits, error, zero):
    """R = D - A X, and the componentwise backward error of each lane, as `tridiag.rows.residual`."""
    n = X.shape[0]
    for w in range(lanes):
        error[w] = 0
    for i in range(n):
        before, after = (i - 1) if i > 0 else n - 1, (i + 1) if i < n - 1 else 0
        for w in range(lanes):
            m = w * step
            below, diagonal, above = A[i, m] * X[before, w], B[i, m] * X[i, w], C[i, m] * X[after, w]
            if A[i, m] == 0:
                below = zero
            if C[i, m] == 0:
                above = zero
            r = D[i, w] - (below + diagonal + above)
            scale = size(A[i, m]) * size(X[before, w]) if A[i, m] != 0 else zero.real
            scale += size(B[i, m]) * size(X[i, w]) + size(D[i, w])
            if C[i, m] != 0:
                scale += size(C[i, m]) * size(X[after, w])
            ratio = size(r) / max(scale, limits[FLOOR_])
            R[i, w] = zero if ratio <= limits[LEAVE_] else r
            if ratio > error[w] or ratio != ratio:
                error[w] = ratio


@njit(**OPTIONS)
def solve_refined(
    A, B, C, U, S, X, D, Y, R, mask, masked, lanes, step, periodic, refinements, limits, error, trial, zero
):
    """X from D, improved while its backward error exceeds REFINE_ABOVE eps; each lane keeps its best iterate."""
    n = X.shape[0]
    bar = limits[BAR_]
    for i in range(n):
        for w in range(lanes):
            Y[i, w], R[i, w] = zero, D[i, w]
    for attempt in range(refinements + 1):
        if periodic:
            substitute_cyclic(U, S, R, mask, masked, lanes, step, zero)
        else:
            substitute_pivoted(U, S, R, mask, masked, lanes, step, zero)
        for i in range(n):
            for w in range(lanes):
                y = Y[i, w] + R[i, w]
                Y[i, w] = zero if size(y) <= limits[VANISHED_] * size(Y[i, w]) else y
        if refinements > 0:
            residual(A, B, C, Y, D, R, lanes, step, limits, trial, zero)
        again = False
        for w in range(lanes):
            if attempt == 0 or (error[w] > bar and trial[w] < error[w]):
                error[w] = trial[w]
                for i in range(n):
                    X[i, w] = Y[i, w]
            again = again or error[w] > bar
        if not again:
            return
