"""What a user of Numba writes in an afternoon: the loops that `random_shapes.py` measures `tridiag` against.

Each is compiled twice, for one thread and with ``parallel=True``, both with ``fastmath``; the better one counts. Arrays
have two axes (blocks and matrices one or two more at the end), the result is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange

WIDE = 256  # columns that a thread takes from the first row to the last

LOOPS: dict[str, tuple[Callable[..., None], Callable[..., None]]] = {}  # serial and parallel


def loop(function: Any) -> Any:
    """Enter a loop, compiled in both ways."""
    serial = numba.njit(fastmath=True)(function)
    LOOPS[function.__name__] = serial, numba.njit(fastmath=True, parallel=True)(function)
    return function


@functools.cache
def nothing(count: int) -> Callable[..., None]:
    """A loop of so many arguments that computes nothing: what calling one takes, and looking at its arguments."""
    names = ", ".join(f"x{k}" for k in range(count))
    return numba.njit(eval(f"lambda {names}: None"))


@functools.cache
def streams(count: int, larger: int = 0) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Loops that add up so many arrays, entry by entry, on one thread and on several: what moving them takes.

    The entries of ``larger`` more arrays, which have more of them, are added up to one number. All are flat.
    """
    names, others = [f"x{k}" for k in range(count)], [f"y{k}" for k in range(larger)]
    terms = " + ".join(f"{name}[i]" for name in names)
    loops = ["for i in prange(out.size):", f"    out[i] = {terms}"] if names else []
    loops += ["total = 0.0"]
    for name in others:
        loops += [f"for i in prange({name}.size):", f"    total += {name}[i]"]
    text = "\n    ".join((f"def stream({', '.join((*names, *others, 'out'))}):", *loops, "return total"))
    made: dict[str, Any] = {"prange": prange}
    exec(text, made)
    serial, parallel = (numba.njit(made["stream"], fastmath=True, parallel=parallel) for parallel in (False, True))
    return serial, parallel


# ---------------------------------------------------------------------------------------------------- systems


@loop
def solve_rows(a, b, c, d, out):
    n = d.shape[1]
    for k in prange(d.shape[0]):
        upper = np.empty(n, d.dtype)
        upper[0], out[k, 0] = c[k, 0] / b[k, 0], d[k, 0] / b[k, 0]
        for i in range(1, n):
            pivot = 1 / (b[k, i] - a[k, i] * upper[i - 1])
            upper[i] = c[k, i] * pivot
            out[k, i] = (d[k, i] - a[k, i] * out[k, i - 1]) * pivot
        for i in range(n - 2, -1, -1):
            out[k, i] -= upper[i] * out[k, i + 1]


@loop
def solve_columns(a, b, c, d, out):
    n, count = d.shape
    upper = np.empty_like(d)
    for block in prange((count + WIDE - 1) // WIDE):
        first, last = block * WIDE, min(count, (block + 1) * WIDE)
        for j in range(first, last):
            upper[0, j], out[0, j] = c[0, j] / b[0, j], d[0, j] / b[0, j]
        for i in range(1, n):
            for j in range(first, last):
                pivot = 1 / (b[i, j] - a[i, j] * upper[i - 1, j])
                upper[i, j] = c[i, j] * pivot
                out[i, j] = (d[i, j] - a[i, j] * out[i - 1, j]) * pivot
        for i in range(n - 2, -1, -1):
            for j in range(first, last):
                out[i, j] -= upper[i, j] * out[i + 1, j]


@loop
def solve_masked_rows(a, b, c, d, keep, out):
    n = d.shape[1]
    for k in prange(d.shape[0]):
        upper = np.empty(n, d.dtype)
        above = before = d[k, 0] * 0
        for i in range(n):
            if keep[k, i]:
                pivot = 1 / (b[k, i] - a[k, i] * above)
                above, before = c[k, i] * pivot, (d[k, i] - a[k, i] * before) * pivot
            else:
                above = before = d[k, 0] * 0
            upper[i], out[k, i] = above, before
        for i in range(n - 2, -1, -1):
            out[k, i] -= upper[i] * out[k, i + 1]


@loop
def solve_masked_columns(a, b, c, d, keep, out):
    n, count = d.shape
    upper = np.empty_like(d)
    for block in prange((count + WIDE - 1) // WIDE):
        first, last = block * WIDE, min(count, (block + 1) * WIDE)
        for j in range(first, last):
            upper[0, j], out[0, j] = c[0, j] / b[0, j] * keep[0, j], d[0, j] / b[0, j] * keep[0, j]
        for i in range(1, n):
            for j in range(first, last):
                pivot = keep[i, j] / (b[i, j] - a[i, j] * upper[i - 1, j])
                upper[i, j] = c[i, j] * pivot
                out[i, j] = (d[i, j] - a[i, j] * out[i - 1, j]) * pivot
        for i in range(n - 2, -1, -1):
            for j in range(first, last):
                out[i, j] -= upper[i, j] * out[i + 1, j]


@loop
def solve_one_matrix(a, b, c, d, out):
    """The matrix is eliminated once; right sides along the first axis."""
    n = d.shape[1]
    upper, inverse = np.empty(n, d.dtype), np.empty(n, d.dtype)
    inverse[0] = 1 / b[0]
    upper[0] = c[0] * inverse[0]
    for i in range(1, n):
        inverse[i] = 1 / (b[i] - a[i] * upper[i - 1])
        upper[i] = c[i] * inverse[i]
    for k in prange(d.shape[0]):
        out[k, 0] = d[k, 0] * inverse[0]
        for i in range(1, n):
            out[k, i] = (d[k, i] - a[i] * out[k, i - 1]) * inverse[i]
        for i in range(n - 2, -1, -1):
            out[k, i] -= upper[i] * out[k, i + 1]


def factors(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Of `solve_factored`."""
    inverse, upper = 1 / b, np.empty_like(c)
    upper[:, 0] = c[:, 0] * inverse[:, 0]
    for i in range(1, b.shape[1]):
        inverse[:, i] = 1 / (b[:, i] - a[:, i] * upper[:, i - 1])
        upper[:, i] = c[:, i] * inverse[:, i]
    return inverse, upper


@loop
def solve_factored(a, inverse, upper, d, out):
    n = d.shape[1]
    for k in prange(d.shape[0]):
        out[k, 0] = d[k, 0] * inverse[k, 0]
        for i in range(1, n):
            out[k, i] = (d[k, i] - a[k, i] * out[k, i - 1]) * inverse[k, i]
        for i in range(n - 2, -1, -1):
            out[k, i] -= upper[k, i] * out[k, i + 1]


@loop
def slogdet(a, b, c, sign, logarithm):
    n = b.shape[1]
    for k in prange(b.shape[0]):
        pivot, s, total = b[k, 0], 1.0, 0.0
        for i in range(n):
            if i:
                pivot = b[k, i] - a[k, i] * c[k, i - 1] / pivot
            total += np.log(abs(pivot))
            if pivot < 0:
                s = -s
        sign[k], logarithm[k] = s, total


@loop
def matmul(a, b, c, x, out):
    n = x.shape[1]
    for k in prange(x.shape[0]):
        for i in range(n):
            total = b[k, i] * x[k, i]
            if i > 0:
                total += a[k, i] * x[k, i - 1]
            if i < n - 1:
                total += c[k, i] * x[k, i + 1]
            out[k, i] = total


@loop
def solve_blocks(A, B, C, d, out):
    """Gauss-Jordan in each row of blocks, without exchanges."""
    n, m = d.shape[1:]
    for k in prange(d.shape[0]):
        upper, row = np.empty((n, m, m), d.dtype), np.empty((m, 2 * m + 1), d.dtype)
        for i in range(n):
            for p in range(m):
                for q in range(m):
                    row[p, q], row[p, m + q] = B[k, i, p, q], C[k, i, p, q]
                row[p, 2 * m] = d[k, i, p]
                if i:
                    for s in range(m):
                        factor = A[k, i, p, s]
                        for q in range(m):
                            row[p, q] -= factor * upper[i - 1, s, q]
                        row[p, 2 * m] -= factor * out[k, i - 1, s]
            for p in range(m):
                inverse = 1 / row[p, p]
                for q in range(p, 2 * m + 1):
                    row[p, q] *= inverse
                for r in range(m):
                    if r != p:
                        factor = row[r, p]
                        for q in range(p, 2 * m + 1):
                            row[r, q] -= factor * row[p, q]
            for p in range(m):
                for q in range(m):
                    upper[i, p, q] = row[p, m + q]
                out[k, i, p] = row[p, 2 * m]
        for i in range(n - 2, -1, -1):
            for p in range(m):
                for q in range(m):
                    out[k, i, p] -= upper[i, p, q] * out[k, i + 1, q]


# ---------------------------------------------------------------------------------------------------- recurrences


@loop
def recurrence_rows(a, x, out):
    for k in prange(x.shape[0]):
        y = x[k, 0]
        out[k, 0] = y
        for t in range(1, x.shape[1]):
            y = a[k, t] * y + x[k, t]
            out[k, t] = y


@loop
def recurrence_columns(a, x, out):
    n, count = x.shape
    for block in prange((count + WIDE - 1) // WIDE):
        first, last = block * WIDE, min(count, (block + 1) * WIDE)
        for j in range(first, last):
            out[0, j] = x[0, j]
        for t in range(1, n):
            for j in range(first, last):
                out[t, j] = a[t, j] * out[t - 1, j] + x[t, j]


@loop
def sums(x, out):
    for k in prange(x.shape[0]):
        y = x.dtype.type(0)
        for t in range(x.shape[1]):
            y += x[k, t]
            out[k, t] = y


@loop
def filter_of_order_2(a1, a2, x, out):
    for k in prange(x.shape[0]):
        y = before = x.dtype.type(0)
        for t in range(x.shape[1]):
            y, before = a1 * y + a2 * before + x[k, t], y
            out[k, t] = y


@loop
def matrix_recurrence(A, x, out):
    n, m = x.shape[1:]
    for k in prange(x.shape[0]):
        for p in range(m):
            out[k, 0, p] = x[k, 0, p]
        for t in range(1, n):
            for p in range(m):
                total = x[k, t, p]
                for q in range(m):
                    total += A[k, t, p, q] * out[k, t - 1, q]
                out[k, t, p] = total


@loop
def selective_rows(a, x, B, C, out):
    n, states = B.shape
    for k in prange(x.shape[0]):
        h = np.zeros(states, x.dtype)
        for t in range(n):
            total = x.dtype.type(0)
            for j in range(states):
                h[j] = a[j] * h[j] + x[k, t] * B[t, j]
                total += C[t, j] * h[j]
            out[k, t] = total


@loop
def selective_layer(a, x, B, C, step, out):
    n, states = B.shape
    for k in prange(x.shape[1]):
        h = np.zeros(states, x.dtype)
        for t in range(n):
            delta = step[t, k]
            term, total = delta * x[t, k], x.dtype.type(0)
            for j in range(states):
                h[j] = np.exp(delta * a[k, j]) * h[j] + term * B[t, j]
                total += C[t, j] * h[j]
            out[t, k] = total


@loop
def logcumsumexp_rows(x, out):
    for k in prange(x.shape[0]):
        top, total = x[k, 0], x.dtype.type(1)
        out[k, 0] = top
        for t in range(1, x.shape[1]):
            if x[k, t] <= top:
                total += np.exp(x[k, t] - top)
            else:
                total = total * np.exp(top - x[k, t]) + x.dtype.type(1)
                top = x[k, t]
            out[k, t] = top + np.log(total)


@loop
def logcumsumexp_columns(x, out):
    n, count = x.shape
    for block in prange((count + WIDE - 1) // WIDE):
        first, last = block * WIDE, min(count, (block + 1) * WIDE)
        for j in range(first, last):
            out[0, j] = x[0, j]
        for t in range(1, n):
            for j in range(first, last):
                low, high = min(out[t - 1, j], x[t, j]), max(out[t - 1, j], x[t, j])
                out[t, j] = high + np.log1p(np.exp(low - high))


@loop
def log_recurrence_rows(log_a, x, out):
    for k in prange(x.shape[0]):
        y = x[k, 0]
        out[k, 0] = y
        for t in range(1, x.shape[1]):
            y += log_a[k, t]
            low, high = min(y, x[k, t]), max(y, x[k, t])
            y = high + np.log1p(np.exp(low - high))
            out[k, t] = y


# ---------------------------------------------------------------------------------------------------- the others


@loop
def smith_waterman(scores, gap, out):
    """Logarithms of sums over four terms a cell, and over all cells."""
    rows, columns = scores.shape[1:]
    for k in prange(scores.shape[0]):
        above, here = np.full(columns + 1, -np.inf), np.full(columns + 1, -np.inf)
        top, total = -np.inf, 0.0
        for i in range(rows):
            for j in range(columns):
                w = np.float64(scores[k, i, j])
                terms = above[j] + w, above[j + 1] + gap, here[j] + gap, w
                most = max(max(terms[0], terms[1]), max(terms[2], terms[3]))
                cell = 0.0
                for term in terms:
                    cell += np.exp(term - most)
                here[j + 1] = most + np.log(cell)
                if here[j + 1] <= top:
                    total += np.exp(here[j + 1] - top)
                else:
                    total = total * np.exp(top - here[j + 1]) + 1.0
                    top = here[j + 1]
            above, here = here, above
            here[0] = -np.inf
        out[k] = top + np.log(total)


@loop
def log_likelihood(y, F, H, Q, R, m0, P0, out):
    """One value observed in a step; the textbook's filter."""
    n, m = y.shape[1], len(m0)
    for k in prange(y.shape[0]):
        mean, cov, total = m0.copy(), P0.copy(), 0.0
        moved, half, seen = np.empty(m), np.empty((m, m)), np.empty(m)
        for t in range(n):
            if t:
                for p in range(m):
                    moved[p] = 0.0
                    for q in range(m):
                        moved[p] += F[p, q] * mean[q]
                        half[p, q] = 0.0
                        for s in range(m):
                            half[p, q] += F[p, s] * cov[s, q]
                for p in range(m):
                    mean[p] = moved[p]
                    for q in range(m):
                        cov[p, q] = Q[p, q]
                        for s in range(m):
                            cov[p, q] += half[p, s] * F[q, s]
            surprise, variance = y[k, t, 0], R[0, 0]
            for p in range(m):
                seen[p] = 0.0
                for q in range(m):
                    seen[p] += cov[p, q] * H[0, q]
                surprise -= H[0, p] * mean[p]
            for p in range(m):
                variance += H[0, p] * seen[p]
            for p in range(m):
                mean[p] += seen[p] / variance * surprise
                for q in range(m):
                    cov[p, q] -= seen[p] / variance * seen[q]
            total -= (np.log(2 * np.pi * variance) + surprise * surprise / variance) / 2
        out[k] = total
