"""Loops that do nothing but read and write words: as fast as the memory of the machine delivers them."""

from __future__ import annotations

import numba


@numba.njit(parallel=True)
def copy(x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = x[i]


@numba.njit(parallel=True)
def add(a, x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = a[i] + x[i]


@numba.njit(parallel=True)
def add_four(a, b, c, d, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = a[i] + b[i] + c[i] + d[i]


@numba.njit(parallel=True)
def add_rows(A, x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        total = x[i]
        for entry in A[i]:
            total += entry
        out[i] = total
