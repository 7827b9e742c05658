"""The steps of `tridiag.algorithms.kalman_square_roots` for one series, of any number of states.

A root L D L^T lies as the columns of L, each a row of vectors with its 1 and the zeros before it, and D.
"""

from __future__ import annotations

import math

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.rows import (
    ROTATION,
    Numbers,
    Rows,
    add_product,
    add_scaled,
    clear,
    dot_to,
    mirror,
    mix,
    pack,
    rotate_each,
    subtract_product,
    take_off_each,
    unpack,
)
from tridiag.kernels.many_states.steps import load_motion, number, place_of, put_number, weigh
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import LINE

NEGLIGIBLE_SINGLE, NEGLIGIBLE_DOUBLE = (float(np.finfo(kind).tiny) for kind in (np.float32, np.float64))


@compiled
def finite(x):
    return x if abs(x) < math.inf else np.nan


@compiled
def inverse(x):
    """0 for 0, NaN for what is infinite."""
    return 0.0 if x == 0 else 1 / finite(x)


@compiled
def negligible(zero):
    """A variance with fewer digits than others have: its inverse may overflow."""
    return NEGLIGIBLE_SINGLE if bytes_of_real(zero, ()) == 4 else NEGLIGIBLE_DOUBLE


@compiled
def unit(zero, column, j):
    """A column of L as it has to be down to its diagonal."""
    for i in range(j):
        put_number(zero, column, i, 0.0)
    put_number(zero, column, j, 1.0)


@compiled
def take_root(zero, matrix, step, size, columns, weights, eps):
    """The root of a positive semidefinite matrix, which is overwritten; of what is 0 but for rounding, 0."""
    width, vectors, rounding = bytes_of_real(zero, ()), step // LINE, 4 * size * eps
    for j in range(size):  # before anything is taken off
        put_number(zero, weights, j, rounding * finite(number(zero, matrix + j * step, j)))
    for j in range(size):
        row, column = matrix + j * step, columns + j * step
        pivot = finite(number(zero, row, j))
        weight = 0.0 if pivot <= number(zero, weights, j) else pivot
        put_number(zero, weights, j, weight)
        inverted = inverse(weight)
        for i in range(j + 1, size):
            put_number(zero, column, i, number(zero, row, i) * inverted)
        unit(zero, column, j)
        rest, below = Rows(row + step, step), Numbers(column + (j + 1) * width, width, 0)
        subtract_product(zero, rest, below, Rows(row, 0), rest, size - j - 1, 1, vectors, 0)


@compiled
def load_start_root(zero, job, worker, eps):
    """That of the covariance before anything is observed; it has been loaded."""
    take_root(zero, worker.cov, worker.row, job.states, worker.columns, worker.root_weights, eps)
    worker.Q_from = 0  # of it the root is taken too


@compiled
def whole(zero, job, worker):
    """The covariance of a root, to where covariances as they stand are."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    for j in range(k):
        weight = number(zero, worker.root_weights, j)
        for i in range(k):
            put_number(zero, worker.product + j * row, i, number(zero, worker.columns + j * row, i) * weight)
    scaled, zeros = Numbers(worker.product, size, row), Rows(worker.zeros, 0)
    add_product(zero, Rows(worker.cov, row), scaled, Rows(worker.columns, row), zeros, k, k, row // LINE, 1)
    mirror(zero, (worker.cov, row, k))


@compiled
def write_root(zero, job, worker, t, mean, cov):
    """The mean and the root of a state to those operands: D on the diagonal of L, which is 1."""
    k, row, length = job.states, worker.row, job.states * bytes_of_real(zero, ())
    for j in range(k):
        put_number(zero, worker.columns + j * row, j, number(zero, worker.root_weights, j))
    unpack(zero, (place_of(job, worker, mean, t), length, worker.mean, row, 1, k))
    unpack(zero, (place_of(job, worker, cov, t), length, worker.columns, row, k, k))
    for j in range(k):
        put_number(zero, worker.columns + j * row, j, 1.0)


@compiled
def keep_root(zero, job, worker, place):
    """The mean and the root to memory of the worker."""
    k, row, count = job.states, worker.row, worker.row // bytes_of_real(zero, ())
    pack(zero, (place, row, worker.mean, row, 1, count))
    pack(zero, (place + row, row, worker.columns, row, k, count))
    pack(zero, (place + (k + 1) * row, row, worker.root_weights, row, 1, count))


@compiled
def kept_root(zero, job, worker, place):
    """The same from there."""
    k, row, count = job.states, worker.row, worker.row // bytes_of_real(zero, ())
    pack(zero, (worker.mean, row, place, row, 1, count))
    pack(zero, (worker.columns, row, place + row, row, k, count))
    pack(zero, (worker.root_weights, row, place + (k + 1) * row, row, 1, count))


@compiled
def read_root(zero, job, worker, t, mean, cov):
    """The same from there."""
    k, row, length = job.states, worker.row, job.states * bytes_of_real(zero, ())
    pack(zero, (worker.mean, row, place_of(job, worker, mean, t), length, 1, k))
    pack(zero, (worker.columns, row, place_of(job, worker, cov, t), length, k, k))
    for j in range(k):
        put_number(zero, worker.root_weights, j, number(zero, worker.columns + j * row, j))
        put_number(zero, worker.columns + j * row, j, 1.0)


# ------------------------------------------------------------------------------------------------------- observations


@compiled
def independent_loads(zero, job, worker, t, count, eps):
    """H and observations, to ``errors``, such that their noises are independent: L^-1 of both, R = L D L^T."""
    row, noises, size, p = worker.row, worker.noises, bytes_of_real(zero, ()), job.observed
    y, R = place_of(job, worker, K.Y, t), place_of(job, worker, K.R, t)
    for i in range(count):
        which = word(worker.kept + 8 * i)
        put_number(zero, worker.errors, i, number(zero, y, which))
        for j in range(count):
            first, last = min(i, j), max(i, j)
            place = R + word(worker.kept + 8 * first) * p * size
            put_number(zero, worker.R + i * noises, j, number(zero, place, word(worker.kept + 8 * last)))
    take_root(zero, worker.R, noises, count, worker.R_columns, worker.R_weights, eps)
    pack(zero, (worker.loads, row, worker.H, row, count, row // size))
    for j in range(count):
        column = worker.R_columns + j * noises
        for i in range(j + 1, count):
            factor = -number(zero, column, i)
            put_number(zero, worker.gains, 0, factor)
            add_scaled(zero, (worker.loads + i * row, worker.loads + j * row, worker.gains, row // LINE))
            put_number(zero, worker.errors, i, number(zero, worker.errors, i) + factor * number(zero, worker.errors, j))


@compiled
def take_in(zero, job, worker, q):
    """The root once an observation is known; its variance, and its covariances with the states to ``news``."""
    row, vectors = worker.row, worker.row // LINE
    load, own = worker.loads + q * row, worker.news + q * worker.news_row
    clear(zero, (own, vectors))
    variance = number(zero, worker.R_weights, q)
    known = inverse(variance)
    for j in range(job.states - 1, -1, -1):
        column, weight = worker.columns + j * row, number(zero, worker.root_weights, j)
        dot_to(zero, (column, load, vectors, worker.gains))
        sight = number(zero, worker.gains, 0)
        common = weight * sight
        more = variance + common * sight
        inverted = inverse(more)
        if more != 0:
            put_number(zero, worker.root_weights, j, weight * (variance * inverted))
        put_number(zero, worker.gains, 0, common)
        put_number(zero, worker.gains, 1, known * sight)
        put_number(zero, worker.turn_shares + q * row, j, common)
        put_number(zero, worker.turn_sights + q * row, j, known * sight)
        mix(zero, (column, own, worker.gains, vectors))
        variance, known = more, inverted
    return variance if 0 < variance < math.inf else np.nan


@compiled
def observe_by_roots(zero, job, worker, t, count, eps):
    """The state once the observations are known; the quadratic form of errors, and the logarithm of variances."""
    row, vectors = worker.row, worker.row // LINE
    independent_loads(zero, job, worker, t, count, eps)
    quadratic, logarithm = 0.0, 0.0
    for q in range(count):
        variance = take_in(zero, job, worker, q)
        dot_to(zero, (worker.loads + q * row, worker.mean, vectors, worker.gains))
        error, weight = number(zero, worker.errors, q) - number(zero, worker.gains, 0), 1 / variance
        put_number(zero, worker.weights, q, weight)
        put_number(zero, worker.gains, 0, weight * error)
        add_scaled(zero, (worker.mean, worker.news + q * worker.news_row, worker.gains, vectors))
        put_number(zero, worker.errors, q, error)
        put_number(zero, worker.scaled, q, weight * error)
        quadratic += weight * error * error
        logarithm += math.log(variance)
    return quadratic, logarithm


@compiled
def join_factors(zero, worker, count):
    """L of S, to where it is found without roots: that of R times that of one observation after another. Gains too."""
    row, noises, vectors = worker.row, worker.noises, worker.row // LINE
    for q in range(count):
        own, variance = worker.news + q * worker.news_row, 1 / number(zero, worker.weights, q)
        for i in range(q + 1, count):
            dot_to(zero, (worker.loads + i * row, own, vectors, worker.gains))
            share = number(zero, worker.gains, 0) * number(zero, worker.weights, q)
            put_number(zero, worker.shares, i, share)
            factor = number(zero, worker.R_columns + q * noises, i) + share
            for m in range(q + 1, i):
                factor += number(zero, worker.R_columns + m * noises, i) * number(zero, worker.shares, m)
            put_number(zero, own + row, i, factor * variance)
    weigh(zero, worker, count)


@compiled
def turn_back(zero, job, worker, q, place):
    """Coordinates before an observation from those after it, as `tridiag.algorithms.kalman_square_roots.Turn`."""
    shares, sights, told = worker.turn_shares + q * worker.row, worker.turn_sights + q * worker.row, 0.0
    for j in range(job.states):
        own = number(zero, place, j)
        put_number(zero, place, j, own - number(zero, shares, j) * told)
        told += number(zero, sights, j) * own


@compiled
def turn_back_all(zero, job, worker, count):
    """Those of the state once all is known, to before the observations of its step: ``later_mean``, ``later_cov``."""
    k, row, vectors = job.states, worker.row, worker.row // LINE
    for q in range(count - 1, -1, -1):
        for j in range(k):
            turn_back(zero, job, worker, q, worker.later_cov + j * row)
        turn_back(zero, job, worker, q, worker.later_mean)
        shares = worker.turn_shares + q * row
        add_scaled(zero, (worker.later_mean, shares, worker.scaled + q * bytes_of_real(zero, ()), vectors))


# ------------------------------------------------------------------------------------------------------- predictions


@compiled
def orthogonal(zero, worker, parts, count, size, columns, found):
    """The root of sum_m w[m] parts[m] parts[m]^T, of so many parts with their weights, by weighted Gram-Schmidt.

    What is rounding alone is 0: of what is exact nothing is left, by which to divide.
    """
    width, vectors, step, weights = bytes_of_real(zero, ()), worker.row // LINE, parts.step, worker.part_weights
    for j in range(size):
        variance = 0.0
        for m in range(count):
            entry = number(zero, parts.address + m * step, j)
            scaled = entry * number(zero, weights, m)
            variance += entry * scaled
            put_number(zero, worker.firsts, m, entry)
            put_number(zero, worker.shares, m, scaled)
        if abs(variance) < negligible(zero):  # of parts that cancel, again and again, no more is left than underflow
            variance = 0.0
        inverted = inverse(variance)
        for m in range(count):
            put_number(zero, worker.shares, m, number(zero, worker.shares, m) * inverted)
        column = Rows(columns.address + j * columns.step, 0)
        add_product(zero, column, Numbers(worker.shares, 0, width), parts, Rows(worker.zeros, 0), 1, count, vectors, 0)
        unit(zero, column.address, j)
        take_off_each(zero, (parts.address, step, worker.firsts, column.address, count, vectors))
        put_number(zero, found, j, variance)


@compiled
def rotated(zero, worker, parts, k, length, columns, weights):
    """A root, in its place, plus sum_m w[m] parts[m] parts[m]^T of k parts; what is left of these and their weights.

    Rows of ``length`` bytes. Rotations without square roots, of one column with one part after another: where weights
    are of many magnitudes, what is left of a part loses weight, and no digits. What is rounding alone is 0: of what is
    exact nothing is left, by which to divide; not behind the first row of a part.

    W. M. Gentleman, Least squares computations by Givens transformations without square roots, IMA Journal of Applied
    Mathematics 12, 1973.
    """
    width, lanes, step, vectors = bytes_of_real(zero, ()), lanes_of(zero, ()), parts.step, worker.row // LINE
    for j in range(k):
        variance = number(zero, weights, j)
        for m in range(k):
            entry, weight = number(zero, parts.address + m * step, j), number(zero, worker.part_weights, m)
            scaled = weight * entry
            more = variance + entry * scaled
            if abs(more) < negligible(zero):  # of parts that cancel, again and again, no more is left than underflow
                more = 0.0
            inverted = inverse(more)
            keep, rotation = variance * inverted, worker.rotations + m * (len(ROTATION) * width)
            put_number(zero, rotation, ROTATION.entry, entry)
            put_number(zero, rotation, ROTATION.keep, keep)
            put_number(zero, rotation, ROTATION.take, scaled * inverted)
            if more != 0:
                put_number(zero, worker.part_weights, m, weight * keep)
            variance = more
        put_number(zero, weights, j, variance)
        column = columns.address + j * columns.step
        first = j // lanes  # before it all is 0 in a column, and nothing is left of parts
        rotate_each(zero, (column, parts.address, step, worker.rotations, k, first, vectors, length // LINE))
        unit(zero, column, j)


@compiled
def load_noise(zero, job, worker, t, eps):
    """F and the root of Q of a step, where they are others than before."""
    before = worker.Q_from
    F = load_motion(zero, job, worker, t)
    if worker.Q_from != before:
        k, row = job.states, worker.row
        pack(zero, (worker.product, row, worker.Q, row, k, row // bytes_of_real(zero, ())))
        take_root(zero, worker.product, row, k, worker.noise_columns, worker.noise_weights, eps)
    return F


@compiled
def predict_root(zero, job, worker):
    """That of F P F^T + Q."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    parts, turned, zeros = Rows(worker.parts, row), Rows(worker.F_turned, row), Rows(worker.zeros, 0)
    add_product(zero, parts, Numbers(worker.columns, row, size), turned, zeros, k, k, row // LINE, 0)
    pack(zero, (worker.part_weights, row, worker.root_weights, row, 1, row // size))
    pack(zero, (worker.columns, row, worker.noise_columns, row, k, row // size))
    pack(zero, (worker.root_weights, row, worker.noise_weights, row, 1, row // size))
    rotated(zero, worker, parts, k, row, Rows(worker.columns, row), worker.root_weights)


@compiled
def go_back(zero, job, worker):
    """Coordinates of a state, x = L z, from those of the next one, as `tridiag.algorithms.kalman_square_roots.Back`.

    The gain, transposed, lies behind the columns of ``joint``; what the next state does not tell is what is left of the
    parts, behind their first rows.
    """
    both = 2 * worker.row
    for j in range(job.states):
        own = worker.parts + worker.row + j * both
        clear(zero, (own, worker.row // LINE))
        put_number(zero, own, j, 1.0)
    halfway(zero, job, worker)


@compiled
def halfway(zero, job, worker):
    """The covariance of the next state and of what parts have behind their first rows: triangular halfway."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    both, vectors = 2 * row, row // LINE
    parts, turned, zeros = Rows(worker.parts, both), Rows(worker.F_turned, row), Rows(worker.zeros, 0)
    add_product(zero, parts, Numbers(worker.columns, row, size), turned, zeros, k, k, vectors, 0)
    pack(zero, (worker.part_weights, row, worker.root_weights, row, 1, row // size))
    pack(zero, (worker.joint, both, worker.noise_columns, row, k, row // size))
    for j in range(k):
        clear(zero, (worker.joint + row + j * both, vectors))
    pack(zero, (worker.joint_weights, row, worker.noise_weights, row, 1, row // size))
    rotated(zero, worker, parts, k, both, Rows(worker.joint, both), worker.joint_weights)


@compiled
def gain_back(zero, job, worker):
    """The gain with which a state follows from the next one, transposed: behind the columns of ``joint``."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    both, vectors = 2 * row, row // LINE
    pack(zero, (worker.parts + row, both, worker.columns, row, k, row // size))
    halfway(zero, job, worker)
    gain = worker.joint + row
    for j in range(k - 2, -1, -1):
        below, own = Numbers(worker.joint + j * both + (j + 1) * size, 0, size), Rows(gain + j * both, 0)
        subtract_product(zero, own, below, Rows(gain + (j + 1) * both, both), own, 1, k - 1 - j, vectors, 0)


@compiled
def smooth_root(zero, job, worker):
    """Coordinates of a state from those of the next one, in their place: ``later_mean``, ``later_cov`` and its weights.

    Those of the next one are as before its observations.
    """
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    both, vectors = 2 * row, row // LINE
    gain, zeros = Rows(worker.joint + row, both), Rows(worker.zeros, 0)
    add_product(zero, Rows(worker.moved, 0), Numbers(worker.later_mean, 0, size), gain, zeros, 1, k, vectors, 0)
    pack(zero, (worker.later_mean, row, worker.moved, row, 1, row // size))
    moved, parts = Rows(worker.parts + row + k * both, both), Rows(worker.parts + row, both)
    add_product(zero, moved, Numbers(worker.later_cov, row, size), gain, zeros, k, k, vectors, 0)
    for j in range(k):
        put_number(zero, worker.part_weights, k + j, number(zero, worker.later_weights, j))
    columns = Rows(worker.later_cov, row)
    orthogonal(zero, worker, parts, 2 * k, k, columns, worker.later_weights)


@compiled
def begin_back(zero, job, worker):
    """Those of the last state."""
    k, row = job.states, worker.row
    clear(zero, (worker.later_mean, row // LINE))
    clear(zero, (worker.later_cov, k * (row // LINE)))
    for j in range(k):
        put_number(zero, worker.later_cov + j * row, j, 1.0)
    pack(zero, (worker.later_weights, row, worker.root_weights, row, 1, row // bytes_of_real(zero, ())))


@compiled
def move(zero, job, worker):
    """An updated state becomes the smoothed one, and its root the sum of the squares of its columns."""
    k, row, size, vectors = job.states, worker.row, bytes_of_real(zero, ()), worker.row // LINE
    mean, columns, found = Rows(worker.mean, 0), Rows(worker.columns, row), Rows(worker.parts, row)
    add_product(zero, mean, Numbers(worker.later_mean, 0, size), columns, mean, 1, k, vectors, 0)
    zeros = Rows(worker.zeros, 0)
    add_product(zero, found, Numbers(worker.later_cov, row, size), columns, zeros, k, k, vectors, 0)
    pack(zero, (worker.columns, row, worker.parts, row, k, row // size))
    pack(zero, (worker.root_weights, row, worker.later_weights, row, 1, row // size))
