"""The steps of `tridiag.algorithms.kalman_filter` for one series, of any number of states: covariances as they stand.

What is not observed is left out of a step: observations, rows of H, rows and columns of R.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import NEARLY
from tridiag.kernels.many_states.profiles import ROW, Profile, put_profile, put_whole_profile
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_product,
    add_product_of_squares,
    add_product_within,
    add_scaled,
    dot_of_squares_to,
    dot_to,
    mirror,
    pack,
    scale,
    subtract_product,
    transpose,
    unpack,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import pointer, set_word, word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE

# ------------------------------------------------------------------------------------------------------- the model


@compiled
def place_of(job, worker, operand, t):
    """The address of step t of an operand."""
    return worker.bindings[operand] + t * word(address_of(job) + 8 * (K.TABLE + operand))


@compiled
def stride(job, operand):
    """The bytes from step to step of an operand, 0 where it does not change."""
    return word(address_of(job) + 8 * (K.TABLE + operand))


@compiled
def number(zero, row, i):
    """An entry of a row."""
    return types.float64(pointer(row, zero)[i])


@compiled
def put_number(zero, row, i, value):
    pointer(row, zero)[i] = value


@compiled
def copy_diagonal(zero, matrix, step, size, target):
    for i in range(size):
        put_number(zero, target, i, number(zero, matrix + i * step, i))


@compiled
def load_symmetric(zero, job, worker, place, target):
    """A covariance of states, of which what is not below the diagonal is read."""
    k = job.states
    pack(zero, (target, worker.row, place, k * bytes_of_real(zero, ()), k, k))
    mirror(zero, (target, worker.row, k))


@compiled
def load_start(zero, job, worker):
    """The state before anything is observed."""
    pack(zero, (worker.mean, worker.row, place_of(job, worker, K.M0, 0), 0, 1, job.states))
    load_symmetric(zero, job, worker, place_of(job, worker, K.P0, 0), worker.cov)
    copy_diagonal(zero, worker.cov, worker.row, job.states, worker.variances_before)
    copy_diagonal(zero, worker.cov, worker.row, job.states, worker.spread)
    for j in range(job.observed):
        put_number(zero, worker.reach, j, 0.0)


@compiled
def forget_model(worker):
    """What was copied of a model is copied anew."""
    worker.F_from, worker.F_rows_from, worker.Q_from, worker.H_from = 0, 0, 0, 0


@compiled
def load_motion(zero, job, worker, t):
    """F, transposed, and Q of a step, where they are others than before; the address of F."""
    k, size = job.states, bytes_of_real(zero, ())
    F, Q = place_of(job, worker, K.F, t), place_of(job, worker, K.Q, t)
    if worker.F_from != F:
        transpose(zero, (worker.F_turned, worker.row, F, k * size, k, k))
        if stride(job, K.F) == 0:
            put_profile(zero, worker.profile, F, k * size, k)
        elif worker.F_from == 0:
            put_whole_profile(worker.profile, k)
        worker.F_from = F
    if worker.Q_from != Q:
        load_symmetric(zero, job, worker, Q, worker.Q)
        copy_diagonal(zero, worker.Q, worker.row, k, worker.Q_diagonal)
        worker.Q_from = Q
    return F


@compiled
def load_observed(zero, job, worker, t):
    """Which observations of a step are there, and their rows of H; returns how many."""
    y, count = place_of(job, worker, K.Y, t), 0
    for j in range(job.observed):
        value = number(zero, y, j)
        if value == value:
            set_word(worker.kept + 8 * count, j)
            count += 1
    H, length = place_of(job, worker, K.H, t), job.states * bytes_of_real(zero, ())
    if count < job.observed:
        worker.H_from = 0
        for i in range(count):
            source = H + word(worker.kept + 8 * i) * length
            pack(zero, (worker.H + i * worker.row, worker.row, source, length, 1, job.states))
    elif worker.H_from != H:
        worker.H_from = H
        pack(zero, (worker.H, worker.row, H, length, count, job.states))
    return count


@compiled
def write_state(zero, job, worker, t, mean, cov):
    """The state to those operands, where they are wanted; what is below the diagonal is set here."""
    if job.pointers[cov] != 0:
        k, length = job.states, job.states * bytes_of_real(zero, ())
        mirror(zero, (worker.cov, worker.row, k))
        unpack(zero, (place_of(job, worker, mean, t), length, worker.mean, worker.row, 1, k))
        unpack(zero, (place_of(job, worker, cov, t), length, worker.cov, worker.row, k, k))


@compiled
def lost(zero, job, worker, before, share):
    """How far a variance of the states is below its share of that before it."""
    loss = 0.0
    for i in range(job.states):
        loss = max(loss, share * number(zero, before, i) - number(zero, worker.cov + i * worker.row, i))
    return loss


@compiled
def keep_state(zero, job, worker, place):
    """The state to memory of the worker."""
    row, count = worker.row, worker.row // bytes_of_real(zero, ())
    pack(zero, (place, row, worker.mean, row, 1, count))
    pack(zero, (place + row, row, worker.cov, row, job.states, count))


@compiled
def kept_state(zero, job, worker, place):
    """The state from there."""
    row, count = worker.row, worker.row // bytes_of_real(zero, ())
    pack(zero, (worker.mean, row, place, row, 1, count))
    pack(zero, (worker.cov, row, place + row, row, job.states, count))


@compiled
def read_state(zero, job, worker, t, mean, cov):
    """The state from those operands."""
    k, length = job.states, job.states * bytes_of_real(zero, ())
    pack(zero, (worker.mean, worker.row, place_of(job, worker, mean, t), length, 1, k))
    pack(zero, (worker.cov, worker.row, place_of(job, worker, cov, t), length, k, k))


# ------------------------------------------------------------------------------------------------------- observations


@compiled
def innovations(zero, job, worker, t, count, loads):
    """S to the rows of news, H P before it, and behind it H, where ``loads`` are wanted; errors of what is there."""
    row, step, vectors = worker.row, worker.news_row, worker.row // LINE
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    y, R = place_of(job, worker, K.Y, t), place_of(job, worker, K.R, t)
    news, zeros = Rows(worker.news, step), Rows(worker.zeros, 0)
    H = Numbers(worker.H, row, size)
    add_product(zero, news, H, Rows(worker.cov, row), zeros, count, k, vectors, 0)
    for i in range(count):
        own, which = worker.news + i * step + row, word(worker.kept + 8 * i)
        for j in range(i, count):
            dot_to(zero, (worker.news + i * step, worker.H + j * row, vectors, own + j * size))
            noise = number(zero, R + which * p * size, word(worker.kept + 8 * j))
            put_number(zero, own, j, number(zero, own, j) + noise)
        dot_to(zero, (worker.H + i * row, worker.mean, vectors, worker.errors + i * size))
        put_number(zero, worker.errors, i, number(zero, y, which) - number(zero, worker.errors, i))
        if loads:
            pack(zero, (own + worker.noises, row, worker.H + i * row, row, 1, row // size))


@compiled
def eliminate(zero, job, worker, count, loads):
    """S = L D L^T, and from the left L^-1 of all that stands beside S, and of the errors.

    Not positive, or infinite, a variance is NaN. The quadratic form of the errors, and the logarithm of all variances.
    """
    row, step = worker.row, worker.news_row
    length = (step if loads else row + worker.noises) // LINE
    quadratic, logarithm = 0.0, 0.0
    for q in range(count):
        own = worker.news + q * step
        variance, error = number(zero, own + row, q), number(zero, worker.errors, q)
        if not 0 < variance < math.inf:
            variance = np.nan
        weight = 1 / variance
        put_number(zero, worker.variances, q, variance)
        put_number(zero, worker.weights, q, weight)
        put_number(zero, worker.scaled, q, weight * error)
        quadratic += weight * error * error
        logarithm += math.log(variance)
        for i in range(q + 1, count):
            factor = -number(zero, own + row, i) * weight
            put_number(zero, worker.gains, 0, factor)
            add_scaled(zero, (worker.news + i * step, own, worker.gains, length))
            put_number(zero, worker.errors, i, number(zero, worker.errors, i) + factor * error)
    return quadratic, logarithm


@compiled
def factor_of(zero, worker, q, i):
    """An entry below the diagonal of L, S = L D L^T: of column q."""
    covariance = number(zero, worker.news + q * worker.news_row + worker.row, i)
    return covariance * number(zero, worker.weights, q)


@compiled
def weigh(zero, worker, count):
    """The gains: the rows of L^-1 H P times the weights."""
    row, size = worker.row, bytes_of_real(zero, ())
    for q in range(count):
        scale(zero, (worker.gains + q * row, worker.news + q * worker.news_row, worker.weights + q * size, row // LINE))


@compiled
def update(zero, job, worker, count):
    """The state once the observations are known."""
    row, step, size, vectors = worker.row, worker.news_row, bytes_of_real(zero, ()), worker.row // LINE
    news, mean, cov = Rows(worker.news, step), Rows(worker.mean, row), Rows(worker.cov, row)
    add_product(zero, mean, Numbers(worker.scaled, 0, size), news, mean, 1, count, vectors, 0)
    weigh(zero, worker, count)
    subtract_product(zero, cov, Numbers(worker.gains, size, row), news, cov, job.states, count, vectors, 0)


@compiled
def doubt_observed(zero, job, worker, count, share):
    """How far a variance of observations is below its share of the largest one: `Doubt.add`."""
    size, vectors, loss = bytes_of_real(zero, ()), worker.row // LINE, 0.0
    for i in range(count):
        which = word(worker.kept + 8 * i)
        dot_of_squares_to(zero, (worker.H + i * worker.row, worker.spread, vectors, worker.errors + i * size))
        reach = max(number(zero, worker.errors, i), number(zero, worker.reach, which))
        put_number(zero, worker.reach, which, reach)
        loss = max(loss, share * reach - number(zero, worker.variances, i))
    return loss


# ------------------------------------------------------------------------------------------------------- predictions


@compiled
def predict_mean(zero, job, worker):
    row, size = worker.row, bytes_of_real(zero, ())
    turned, ahead, zeros = Rows(worker.F_turned, row), Rows(worker.ahead, row), Rows(worker.zeros, 0)
    add_product(zero, ahead, Numbers(worker.mean, 0, size), turned, zeros, 1, job.states, row // LINE, 0)
    worker.mean, worker.ahead = worker.ahead, worker.mean


@compiled
def predict_covariance(zero, job, worker, F):
    """F P F^T + Q."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    cov, product, vectors = Rows(worker.cov, row), Rows(worker.product, row), row // LINE
    moved, turned = Numbers(worker.product, row, size), Rows(worker.F_turned, row)
    left, profile = Numbers(F, k * size, size), Profile(worker.profile, ROW)
    add_product_within(zero, product, left, cov, Rows(worker.zeros, 0), profile, k, k, vectors)
    add_product(zero, cov, moved, turned, Rows(worker.Q, row), k, k, vectors, 1)
    mirror(zero, (worker.cov, row, k))


@compiled
def doubt_predicted(zero, job, worker, eps):
    """The variances of which those of states carry the rounding errors, a step later: `Doubt.older`."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    turned, diagonal, vectors = Rows(worker.F_turned, row), Rows(worker.Q_diagonal, 0), row // LINE
    copy_diagonal(zero, worker.cov, row, k, worker.variances_now)
    before, spread = worker.variances_before, worker.spread
    moved = Rows(worker.moved, row)
    add_product_of_squares(zero, moved, Numbers(before, 0, size), turned, diagonal, 1, k, vectors, 0)
    counts = False  # what is older, and so small in most models that it is forgotten
    for i in range(k):
        counts = counts or number(zero, spread, i) > number(zero, before, i) * NEARLY
    if counts:
        for i in range(k):
            put_number(zero, spread, i, max(number(zero, spread, i), number(zero, before, i)))
        older = Rows(worker.older, row)
        add_product_of_squares(zero, older, Numbers(spread, 0, size), turned, diagonal, 1, k, vectors, 0)
        for i in range(k):
            found, new = number(zero, worker.older, i), number(zero, worker.moved, i)
            if new > found * eps:
                found *= number(zero, worker.variances_now, i) / new
            put_number(zero, worker.moved, i, max(found, new))
    worker.spread, worker.moved = worker.moved, worker.spread
    worker.variances_before, worker.variances_now = worker.variances_now, worker.variances_before
