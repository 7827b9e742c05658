"""Sign and logarithm of determinants, from the pivots of elimination with exchanges."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from tridiag.kernels.access.operands import (
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    parts_of,
)
from tridiag.kernels.access.rows import UPPER
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import X_
from tridiag.kernels.simd.interrupts import PIECE, stopping_at
from tridiag.kernels.simd.memory import load, store
from tridiag.kernels.simd.scalars import entry, scale_of, turn, unit
from tridiag.kernels.simd.vector import ONCE, OPTIONS
from tridiag.kernels.thomas.bind import bind_matrices
from tridiag.kernels.thomas.refine import (
    eliminate_uncertified,
)


@njit(**ONCE)
def determinants(zero, job, worker, first, used):
    """Sign and log |det| of every lane, into x and the logarithms."""
    bind_matrices(zero, job, worker, first, used)
    tell_determinants(zero, job, worker, first, used, eliminate_uncertified(zero, job, worker, first, (1 << used) - 1))


@njit(**OPTIONS)
def tell_determinants(zero, job, worker, first, used, singular):
    """From the pivots and the exchanges of an eliminated group."""
    row, side, rows = bytes_of_row(zero, ()), bytes_of_real(zero, ()), worker.high - worker.low
    pivots, periodic = worker.tile + UPPER * rows * row, job.flags & J.PERIODIC != 0
    for lane in range(used):
        sign, total = unit(zero), zero.real
        for i in range(rows):
            if stopping_at(i, PIECE):
                break
            pivot = entry(pivots + i * row + lane * side, zero)
            scale = scale_of(pivot)
            pivot = pivot * scale
            total += np.log(abs(pivot)) - np.log(scale)
            sign = turn(sign, pivot)
            swaps = load(worker.swaps + i * lanes_of(zero, ()) + lane, types.uint8(0))
            if (swaps & 1) != (swaps >> 1):
                sign = -sign
        if periodic and rows % 2 == 0:
            sign = -sign
        if singular >> lane & 1:
            sign, total = zero, np.log(zero.real)
        store(job.pointers[X_] + (first + lane) * side * parts_of(zero, ()), sign)
        store(job.logarithm + (first + lane) * side, total)
