"""One long system, from the factors of windows of its rows: see `tridiag.kernels.jobs.windows`.

The windows of a group are eliminated as systems of their own. Of each of them the rows in the middle are stored, which
no other one has, of the first one those before and of the last one those behind too.
"""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import STORE_ONE, store_rows
from tridiag.kernels.access.operands import QUAD, bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import load, store, variable, word
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
        BACKWARD_CONTIGUOUS(zero, (above_at(factors, row, n, top), y + top * row, x, carry, top, behind))
    if first == 0:
        backward_factored(zero, job, worker, factors, None, y, variable(0), top)
        store_rows(zero, x, variable(0), top, y, row, variable(1))
    if first + lanes == job.matrices:
        spread_nan(zero, job, worker)


@compiled
def spread_nan(zero, job, worker):
    """What is not finite in a right side is so in all rows of its window, and in all of the system."""
    x, size, step = job.pointers[X_], bytes_of_real(zero, ()), field(job, J.AXES + 1 + X_)
    finite, at = True, x + job.overlap * size
    for _ in range(job.matrices):
        value = load(at, zero.real)
        finite = finite and value - value == 0
        at += step
    if not finite:
        nan, end = load(worker.nans, zero.real), x + (job.matrices - 1) * step + job.rows * size
        for place in range(x, end, size):
            store(place, nan)
