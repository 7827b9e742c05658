"""One long system, from the factors of windows of its rows: see `tridiag.kernels.jobs.windows`.

The windows of a group are eliminated as systems of their own. Of each of them the rows in the middle are stored, which
no other one has, of the first one those before and of the last one those behind too. Where the right side is so uneven
that rows at the cuts between windows do not hold, the job says so, as of a matrix that may be singular.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import STORE_ONE, store_rows
from tridiag.kernels.access.operands import QUAD, bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_
from tridiag.kernels.simd.compiled import OPTIONS, compiled
from tridiag.kernels.simd.memory import load, variable, word
from tridiag.kernels.thomas.factored import above_at, backward_factored, forward_blocks, pairs_at
from tridiag.kernels.thomas.factored_loops import BACKWARD_CONTIGUOUS, FORWARD_CONTIGUOUS


@compiled
def solve_windows(zero, job, worker, factors, first):
    """The solution of a group of windows from ``first`` on, all of them certified, of real numbers."""
    if parts_of(zero, ()) != 1:
        return
    n, row, top, lanes = job.rows, bytes_of_row(zero, ()), job.overlap, lanes_of(zero, ())
    bindings, carry, y, bottom = worker.bindings, worker.carry, worker.kept + row, top + job.height
    d, x, whole = operand_of(zero, bindings, D_), operand_of(zero, bindings, X_), n // QUAD * QUAD
    behind = top + job.height // QUAD * QUAD
    ZERO(zero, (y - row, row, 1))
    ZERO(zero, (carry, row, 1))
    if whole > 0:
        FORWARD_CONTIGUOUS(zero, (pairs_at(factors, row, 0), d, y, variable(0), whole))
    if whole < n:
        forward_blocks(zero, job, worker, factors, None, y, whole, n)
    backward_factored(zero, job, worker, factors, None, y, behind, n)
    store_rows(zero, x, behind, bottom, y + behind * row, row, lanes)
    if first + lanes == job.matrices:
        of_last = word(x.addresses.lanes + 8 * (lanes - 1))
        source = y + bottom * row + (lanes - 1) * bytes_of_real(zero, ())
        STORE_ONE(zero, (of_last, x.stride, bottom, n, source, row))
    if behind > top:
        BACKWARD_CONTIGUOUS(zero, (above_at(factors, row, n, top), y + top * row, x, carry, top, behind, variable(0)))
    if first == 0:
        backward_factored(zero, job, worker, factors, None, y, variable(0), top)
        store_rows(zero, x, variable(0), top, y, row, variable(1))
    if first + lanes == job.matrices and not cuts_hold(zero, job):
        job.broken = 1


def limit(zero):
    """The largest componentwise residual of a row, in its own entries, that is rounding."""


@overload(limit, jit_options=OPTIONS)
def _limit(zero):
    found = np.dtype(str(zero)).type(4 * np.finfo(np.dtype(str(zero))).eps).real
    return lambda zero: found


@compiled
def holds(zero, job, i):
    """Whether row i, which is neither the first nor the last, holds but for rounding: with numbers, all finite."""
    size, real = bytes_of_real(zero, ()), zero.real
    at = i * size
    x = job.pointers[X_] + at
    below = load(job.pointers[A_] + at, real) * load(x - size, real)
    own = load(job.pointers[B_] + at, real) * load(x, real)
    above = load(job.pointers[C_] + at, real) * load(x + size, real)
    right = load(job.pointers[D_] + at, real)
    return abs(below + own + above - right) <= limit(zero) * (abs(below) + abs(own) + abs(above) + abs(right))


@compiled
def cuts_hold(zero, job):
    """Whether all rows at cuts do, between the last one that a window stores and the first one of the next window.

    The others have all their unknowns from one window, of which they are rows. So what a window does not see is small
    beside the entries of the system that lie there, however far these are apart.
    """
    cut = job.overlap
    for _ in range(job.matrices - 1):
        cut += job.height
        if not (holds(zero, job, cut - 1) and holds(zero, job, cut)):
            return False
    return True
