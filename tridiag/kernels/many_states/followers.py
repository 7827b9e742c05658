"""Means of series that share the covariances of one: a row of states each, beside the steps of that series.

Behind those of the caller's series lie those of unknown columns: series of which 0 is observed.
"""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.roots import turn_back
from tridiag.kernels.many_states.rows import Numbers, Rows, add_product, add_scaled, clear, dot_to, pack
from tridiag.kernels.many_states.smoother import Following
from tridiag.kernels.many_states.steps import factor_of, number, place_of, put_number
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import LINE


@compiled
def means_at(job, worker, t):
    """Where the means of a step lie."""
    return worker.followers + t * (job.alike + job.unknown) * worker.row


@compiled
def regressors_at(zero, job, worker, i):
    """Where the errors of an observation lie: those of unknown columns first."""
    return worker.regressors + i * (job.alike + job.unknown) * bytes_of_real(zero, ())


@compiled
def observe_all(zero, job, worker, t, count):
    """The means predicted for a step, the errors of its observations, independent of each other, and what they tell."""
    row, size, p, vectors = worker.row, bytes_of_real(zero, ()), job.observed, worker.row // LINE
    alike, unknown = job.alike, job.unknown
    followers, means, y = alike + unknown, means_at(job, worker, t), place_of(job, worker, K.Y, t)
    if t == 0:
        worker.cursor = 0
        clear(zero, (worker.later_of_followers, followers * vectors))
        pack(zero, (means, row, place_of(job, worker, K.M0, 0), job.states * size, followers, job.states))
    else:
        predict_all(zero, job, worker, t - 1, means)
    first = worker.cursor
    for i in range(count):
        errors, which = regressors_at(zero, job, worker, first + i), word(worker.kept + 8 * i)
        put_number(zero, worker.regressor_weights, first + i, number(zero, worker.weights, i))
        for s in range(followers):
            at = errors + (s + unknown if s < alike else s - alike) * size
            dot_to(zero, (worker.H + i * row, means + s * row, vectors, at))
            value = number(zero, y + s * p * size, which) if s < alike else 0.0
            put_number(zero, at, 0, value - number(zero, at, 0))
    for i in range(count):
        own = regressors_at(zero, job, worker, first + i)
        for j in range(i + 1, count):
            factor, other = factor_of(zero, worker, i, j), regressors_at(zero, job, worker, first + j)
            for s in range(followers):
                put_number(zero, other, s, number(zero, other, s) - factor * number(zero, own, s))
        for s in range(followers):
            at = own + (s + unknown if s < alike else s - alike) * size
            add_scaled(zero, (means + s * row, worker.gains + i * row, at, vectors))
    worker.cursor = worker.seen = first + count


@compiled
def predict_all(zero, job, worker, t, target):
    """The means that are predicted for the step after t."""
    k, row, means = job.states, worker.row, means_at(job, worker, t)
    left, turned, zeros = Numbers(means, row, bytes_of_real(zero, ())), Rows(worker.F_turned, row), worker.zeros
    followers = job.alike + job.unknown
    add_product(zero, Rows(target, row), left, turned, Rows(zeros, 0), followers, k, row // LINE, 0)


@compiled
def add_later_to_all(zero, job, worker, t, count):
    """The means once later observations are known too: x + P r, and r as of this step."""
    k, row, size, vectors = job.states, worker.row, bytes_of_real(zero, ()), worker.row // LINE
    followers, means = job.alike + job.unknown, Rows(means_at(job, worker, t), row)
    later, moved = worker.later_of_followers, Rows(worker.moved_followers, row)
    rows, zeros = Rows(worker.F_rows, row), Rows(worker.zeros, 0)
    add_product(zero, moved, Numbers(later, row, size), rows, zeros, followers, k, vectors, 0)
    worker.later_of_followers, worker.moved_followers = worker.moved_followers, worker.later_of_followers
    later, cov = Numbers(worker.later_of_followers, row, size), Rows(worker.smoothed, row)
    add_product(zero, means, later, cov, means, followers, k, vectors, 0)


@compiled
def collect_of_all(zero, job, worker, t, count):
    """What the observations of a step add to what later ones tell of each: r + W^T (e - G r)."""
    row, step, size, vectors = worker.row, worker.news_row, bytes_of_real(zero, ()), worker.row // LINE
    alike, unknown = job.alike, job.unknown
    worker.cursor -= count
    for s in range(alike + unknown):
        later, column = worker.later_of_followers + s * row, s + unknown if s < alike else s - alike
        for i in range(count):
            at = worker.scaled + i * size
            dot_to(zero, (worker.news + i * step, later, vectors, at))
            error = number(zero, regressors_at(zero, job, worker, worker.cursor + i), column)
            put_number(zero, at, 0, error - number(zero, at, 0))
        for i in range(count):
            add_scaled(zero, (later, worker.gains + i * row, worker.scaled + i * size, vectors))


@compiled
def add_later_by_roots(zero, job, worker, t, count):
    """The means once later observations are known too: by what these tell, in coordinates of the state."""
    k, row, size, vectors = job.states, worker.row, bytes_of_real(zero, ()), worker.row // LINE
    followers, means = job.alike + job.unknown, Rows(means_at(job, worker, t), row)
    later, gain = Numbers(worker.later_of_followers, row, size), Rows(worker.joint + row, 2 * row)
    moved, zeros = Rows(worker.moved_followers, row), Rows(worker.zeros, 0)
    add_product(zero, moved, later, gain, zeros, followers, k, vectors, 0)
    worker.later_of_followers, worker.moved_followers = worker.moved_followers, worker.later_of_followers
    later = Numbers(worker.later_of_followers, row, size)
    add_product(zero, means, later, Rows(worker.columns, row), means, followers, k, vectors, 0)


@compiled
def turn_back_followers(zero, job, worker, t, count):
    """What later observations tell of each, and those of the step, in coordinates before these."""
    row, size, vectors = worker.row, bytes_of_real(zero, ()), worker.row // LINE
    alike, unknown = job.alike, job.unknown
    worker.cursor -= count
    for s in range(alike + unknown):
        later, column = worker.later_of_followers + s * row, s + unknown if s < alike else s - alike
        for q in range(count - 1, -1, -1):
            turn_back(zero, job, worker, q, later)
            error = number(zero, regressors_at(zero, job, worker, worker.cursor + q), column)
            put_number(zero, worker.scaled, q, number(zero, worker.weights, q) * error)
            add_scaled(zero, (later, worker.turn_shares + q * row, worker.scaled + q * size, vectors))


FOLLOWING = Following(observe_all, add_later_to_all, collect_of_all, add_later_by_roots, turn_back_followers)
