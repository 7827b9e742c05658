"""A model that series share in another basis of its states, in which F is upper Hessenberg: half of its entries are 0.

Log-likelihoods are the same in any basis. States are scaled first, so that their variances are about 1: a state that
is large in its units would else leave its rounding errors in all others. Then Householder's reflections take F to that
form (G. H. Golub and C. F. Van Loan, Matrix Computations, section 7.4).
"""

from __future__ import annotations

import math

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.columns import eps_of
from tridiag.kernels.many_states.profiles import put_profile
from tridiag.kernels.many_states.roots import negligible
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_product,
    clear,
    dot_to,
    mirror,
    pack,
    subtract_product,
    transpose,
    unpack,
)
from tridiag.kernels.many_states.steps import load_symmetric, number, place_of, put_number, stride
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.vector import LINE

STEPS = 48  # from which on a change of basis pays: it takes as long as 6 steps or so, and saves a sixth of each
DENSE = 3, 4  # a share of the entries of F, between the first and the last that is not 0 in each row


@compiled
def pays(job):
    """Whether nothing but log-likelihoods is wanted, of models that do not change and of enough steps."""
    for operand in (K.MEAN, K.COV, K.PREDICTED_MEAN, K.PREDICTED_COV):
        if job.pointers[operand] != 0:
            return False
    return job.steps >= STEPS and stride(job, K.F) == 0 and stride(job, K.Q) == 0 and stride(job, K.H) == 0


@compiled
def unit(zero, job, worker, i):
    """The standard deviation that a state begins with, or has a step later."""
    k, size = job.states, bytes_of_real(zero, ())
    F, Q, P0 = place_of(job, worker, K.F, 0), place_of(job, worker, K.Q, 0), place_of(job, worker, K.P0, 0)
    most = max(number(zero, P0, i * (k + 1)), number(zero, Q, i * (k + 1)))
    moved = 0.0
    for j in range(k):
        entry = number(zero, F + i * k * size, j)
        moved += entry * max(number(zero, P0, j * (k + 1)), number(zero, Q, j * (k + 1))) * entry
    return math.sqrt(max(most, moved))


@compiled
def scale(zero, job, worker, motion, basis, sight):
    """F, the basis and H with states in such units; False where one of those is 0, infinite or no number."""
    k, p, row, size = job.states, job.observed, worker.row, bytes_of_real(zero, ())
    units = worker.moved
    for i in range(k):
        own = unit(zero, job, worker, i)
        if not 0 < own < math.inf:
            return False
        put_number(zero, units, i, own)
    clear(zero, (basis, k * row // LINE))
    pack(zero, (motion, row, place_of(job, worker, K.F, 0), k * size, k, k))
    pack(zero, (sight, row, place_of(job, worker, K.H, 0), k * size, p, k))
    for i in range(k):
        inverse = 1 / number(zero, units, i)
        put_number(zero, basis + i * row, i, inverse)
        for j in range(k):
            entry = number(zero, motion + i * row, j)
            put_number(zero, motion + i * row, j, entry * number(zero, units, j) * inverse)
        for q in range(p):
            put_number(zero, sight + q * row, i, number(zero, sight + q * row, i) * number(zero, units, i))
    return True


@compiled
def reflector(zero, worker, motion, column, k):
    """v, to ``moved``: b (1 - v v^T / b) takes what is below the first entry under the diagonal to that; b, or 0."""
    v, row = worker.moved, worker.row
    for i in range(column + 1):
        put_number(zero, v, i, 0.0)
    below = 0.0
    for i in range(column + 1, k):
        x = number(zero, motion + i * row, column)
        put_number(zero, v, i, x)
        below += x * x if i > column + 1 else 0.0
    if not below > negligible(zero) / eps_of(zero):
        return 0.0
    own = number(zero, v, column + 1)
    length = math.sqrt(own * own + below)
    put_number(zero, v, column + 1, own - length if own < 0 else own + length)
    return length * (length + abs(own))


@compiled
def reflect(zero, worker, matrix, rows, k, from_left, inverse):
    """(1 - v v^T / b) matrix, or matrix (1 - v v^T / b); ``inverse``: 1 / b."""
    row, size, v, vectors = worker.row, bytes_of_real(zero, ()), worker.moved, worker.row // LINE
    scaled, x, along = worker.shares, Rows(matrix, row), Rows(v, row)
    if from_left:
        along = Rows(worker.older, row)
        add_product(zero, along, Numbers(v, 0, size), x, Rows(worker.zeros, 0), 1, k, vectors, 0)
    for i in range(rows):
        if not from_left:
            dot_to(zero, (matrix + i * row, v, vectors, scaled + i * size))
        put_number(zero, scaled, i, number(zero, v if from_left else scaled, i) * inverse)
    subtract_product(zero, x, Numbers(scaled, size, 0), along, x, rows, 1, vectors, 0)


@compiled
def put_moved(zero, job, worker, basis, turned, operand, target):
    """A covariance of states in the other basis, to the memory of what series have in common."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    vectors, zeros, product = row // LINE, Rows(worker.zeros, 0), worker.product
    load_symmetric(zero, job, worker, place_of(job, worker, operand, 0), worker.cov)
    add_product(zero, Rows(product, row), Numbers(basis, row, size), Rows(worker.cov, row), zeros, k, k, vectors, 0)
    add_product(zero, Rows(worker.cov, row), Numbers(product, row, size), Rows(turned, row), zeros, k, k, vectors, 1)
    mirror(zero, (worker.cov, row, k))
    unpack(zero, (target, k * size, worker.cov, row, k, k))
    worker.bindings[operand] = target


@compiled
def change_basis(zero, job, worker, common):
    """The model and the start of the series that a worker has bound in the other basis, if F is dense; whether it is.

    Of a worker that has begun with nothing.
    """
    k, p, row, size = job.states, job.observed, worker.row, bytes_of_real(zero, ())
    F, step = place_of(job, worker, K.F, 0), k * size
    if DENSE[1] * put_profile(zero, worker.profile, F, step, k) < DENSE[0] * k * k:
        return False
    motion, basis, sight, turned = worker.product, worker.columns, worker.loads, worker.noise_columns
    if not scale(zero, job, worker, motion, basis, sight):
        return False
    for column in range(k - 2):
        length = reflector(zero, worker, motion, column, k)
        if length != 0:
            reflect(zero, worker, motion, k, k, True, 1 / length)
            reflect(zero, worker, motion, k, k, False, 1 / length)
            reflect(zero, worker, basis, k, k, True, 1 / length)
            reflect(zero, worker, sight, p, k, False, 1 / length)
        for i in range(column + 2, k):
            put_number(zero, motion + i * row, column, 0.0)
    unpack(zero, (common.F, step, motion, row, k, k))
    unpack(zero, (common.H, step, sight, row, p, k))
    unpack(zero, (common.basis, step, basis, row, k, k))
    transpose(zero, (turned, row, basis, row, k, k))
    put_moved(zero, job, worker, basis, turned, K.Q, common.Q)
    put_moved(zero, job, worker, basis, turned, K.P0, common.P0)
    start = place_of(job, worker, K.M0, 0)
    for i in range(k):
        total = 0.0
        for j in range(k):
            total += number(zero, basis + i * row, j) * number(zero, start, j)
        put_number(zero, common.M0, i, total)
    worker.bindings[K.F], worker.bindings[K.H], worker.bindings[K.M0] = common.F, common.H, common.M0
    common.moved = 1
    return True
