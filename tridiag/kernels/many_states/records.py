"""What the steps of all series of a model have in common, and the rest of each series: several vectors of them.

A record of a step has the gains of its observations, a row of states each; the factors that make errors independent,
as they are added; and the weights.
"""

from __future__ import annotations

from numba import njit

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.kalman.series import bind_series, put
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_product,
    add_scaled,
    add_squares,
    clear,
    pack,
    subtract_product,
)
from tridiag.kernels.many_states.steps import factor_of, number, put_number
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE, OPTIONS

VECTORS = K.TOGETHER


@njit(**OPTIONS)
def size_of_record(zero, job):
    """In bytes."""
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    return p * aligned(k * size) + (p + 1) * aligned(p * size)


@njit(**OPTIONS)
def put_record(zero, job, worker, record):
    """A step, from gains and factors; returns where the next one goes."""
    p, row, noises = job.observed, worker.row, worker.noises
    factors, weights = record + p * row, record + p * (row + noises)
    pack(zero, (record, row, worker.gains, row, p, row // bytes_of_real(zero, ())))
    for q in range(p):
        put_number(zero, weights, q, number(zero, worker.weights, q))
        for i in range(q + 1, p):
            put_number(zero, factors + q * noises, i, -factor_of(zero, worker, q, i))
    return record + size_of_record(zero, job)


# ------------------------------------------------------------------------------------------------------- the rest


class Means(Workspace):
    """What a worker has for the means of some vectors of series: rows with a number of each."""

    bindings = Word()  # where the operands of the series lie
    means, ahead = Word(), Word()  # a row for each state
    errors = Word()  # a row for each observation of a step
    quadratic, zeros = Word(), Word()


ARRAYS, allocate, give_back = workspace(Means, "bindings", "means", "ahead", "errors", "quadratic", "zeros")


@njit(**OPTIONS)
def allocate_means(zero, job):
    row, k, p = VECTORS * LINE, job.states, job.observed
    bindings = aligned(8 * K.OPERANDS * VECTORS * lanes_of(zero, ()))
    sizes = ARRAYS(bindings=bindings, means=k * row, ahead=k * row, errors=p * row, quadratic=row, zeros=row)
    return allocate(sizes)


@njit(**OPTIONS)
def gather(zero, job, worker, operand, t, series, rows, target):
    """The first numbers of step t of an operand: a row of all series each."""
    step = t * word(address_of(job) + 8 * (K.TABLE + operand))
    for lane in range(series):
        place = word(worker.bindings + 8 * (operand * series + lane)) + step
        for j in range(rows):
            put_number(zero, target + j * (VECTORS * LINE), lane, number(zero, place, j))


@njit(**OPTIONS)
def means_of_series(zero, job, worker, first, vectors, records, logarithms):
    """The log-likelihoods of some vectors of series, from the records of all steps."""
    k, p, size, row = job.states, job.observed, bytes_of_real(zero, ()), VECTORS * LINE
    states, noises, series = aligned(k * size), aligned(p * size), vectors * lanes_of(zero, ())
    zeros, errors = Rows(worker.zeros, 0), Rows(worker.errors, row)
    clear(zero, (worker.zeros, VECTORS))
    clear(zero, (worker.quadratic, VECTORS))
    bind_series(job, worker.bindings, 8 * series, first, series)
    gather(zero, job, worker, K.M0, 0, series, k, worker.means)
    for t in range(job.steps):
        record = records + t * size_of_record(zero, job)
        factors, weights = record + p * states, record + p * (states + noises)
        F, H = step_of_first(job, worker, K.F, t, series), step_of_first(job, worker, K.H, t, series)
        gather(zero, job, worker, K.Y, t, series, p, worker.errors)
        means, ahead = Rows(worker.means, row), Rows(worker.ahead, row)
        subtract_product(zero, errors, Numbers(H, k * size, size), means, errors, p, k, vectors, 0)
        for q in range(p):
            own = worker.errors + q * row
            for i in range(q + 1, p):
                add_scaled(zero, (worker.errors + i * row, own, factors + q * noises + i * size, vectors))
            add_squares(zero, (worker.quadratic, own, weights + q * size, vectors))
        add_product(zero, means, Numbers(record, size, states), errors, means, k, p, vectors, 0)
        if t + 1 < job.steps:
            add_product(zero, ahead, Numbers(F, k * size, size), means, zeros, k, k, vectors, 0)
            worker.means, worker.ahead = worker.ahead, worker.means
    for lane in range(series):
        put(zero, job, first + lane, -0.5 * (number(zero, worker.quadratic, lane) + logarithms))


@njit(**OPTIONS)
def step_of_first(job, worker, operand, t, series):
    """The address of step t of an operand that all series share."""
    return word(worker.bindings + 8 * operand * series) + t * word(address_of(job) + 8 * (K.TABLE + operand))
