"""The derivatives of the log-likelihood of a series: `tridiag.algorithms.kalman_adjoint` for any number of states.

For models that do not change with time. ``later_mean`` and ``later_cov`` are r and N.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.filter import ASKING, filtered, filtered_by_roots
from tridiag.kernels.many_states.records import put_record
from tridiag.kernels.many_states.roots import gain_back, join_factors, kept_root, load_noise, observe_by_roots
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_product,
    add_scaled,
    clear,
    dot_to,
    mirror,
    pack,
    scale,
    subtract_product,
)
from tridiag.kernels.many_states.shared_gradient import size_of_longer_record
from tridiag.kernels.many_states.smoother import carry_back
from tridiag.kernels.many_states.steps import (
    eliminate,
    factor_of,
    innovations,
    kept_state,
    load_observed,
    number,
    place_of,
    put_number,
    update,
)
from tridiag.kernels.many_states.workspace import MINUS_HALF, MINUS_ONE, size_of_state
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import LINE


@compiled
def add_outer(zero, worker, target, x, y, rows):
    """x y^T of two rows."""
    into = Rows(target, worker.row)
    add_product(zero, into, Numbers(x, bytes_of_real(zero, ()), 0), Rows(y, 0), into, rows, 1, worker.row // LINE, 0)


@compiled
def take_off(zero, worker, target, source, rows):
    factor = worker.factors + MINUS_ONE * bytes_of_real(zero, ())
    for i in range(rows):
        add_scaled(zero, (target + i * worker.row, source + i * worker.row, factor, worker.row // LINE))


@compiled
def begin_sums(zero, job, worker):
    """Before the last step, behind which nothing is known."""
    k, p, lines = job.states, job.observed, worker.row // LINE
    clear(zero, (worker.later_mean, lines))
    for matrix in (worker.later_cov, worker.of_F, worker.of_Q, worker.NP):
        clear(zero, (matrix, k * lines))
    clear(zero, (worker.of_H, p * lines))
    clear(zero, (worker.of_R, p * (worker.noises // LINE)))


@compiled
def load_ahead(zero, job, worker):
    """r and the upper triangle of N behind the last step, where they are given; returns whether they are."""
    if job.pointers[K.AHEAD] == 0:
        return False
    k, row, place = job.states, worker.row, worker.bindings[K.AHEAD]
    pack(zero, (worker.later_mean, row, place, 0, 1, k))
    e = k
    for i in range(k):
        for j in range(i, k):
            put_number(zero, worker.later_cov + i * row, j, number(zero, place, e))
            e += 1
    mirror(zero, (worker.later_cov, row, k))
    return True


@compiled
def go_to_step(zero, job, worker, t):
    """The derivative in Q of a step, then r and N as of its updated state.

    r is left in ``ahead``, N F in ``product``.
    """
    k = job.states
    add_outer(zero, worker, worker.of_Q, worker.later_mean, worker.later_mean, k)
    take_off(zero, worker, worker.of_Q, worker.later_cov, k)
    carry_back(zero, job, worker, t)


# ------------------------------------------------------------------------------------------------------- observations


@compiled
def solve_back(zero, worker, count):
    """L^-T of gains and of ``scaled``, which is u then; and L^-1."""
    row, noises, vectors = worker.row, worker.noises, worker.row // LINE
    lines, factor = noises // LINE, worker.shares
    for q in range(count):
        clear(zero, (worker.inverse + q * noises, lines))
        put_number(zero, worker.inverse + q * noises, q, 1.0)
    for q in range(count):
        for i in range(q + 1, count):
            put_number(zero, factor, 0, -factor_of(zero, worker, q, i))
            add_scaled(zero, (worker.inverse + i * noises, worker.inverse + q * noises, factor, lines))
    for q in range(count - 1, -1, -1):
        for i in range(q + 1, count):
            put_number(zero, factor, 0, -factor_of(zero, worker, q, i))
            add_scaled(zero, (worker.gains + q * row, worker.gains + i * row, factor, vectors))
            more = number(zero, factor, 0) * number(zero, worker.scaled, i)
            put_number(zero, worker.scaled, q, number(zero, worker.scaled, q) + more)


@compiled
def pull(zero, job, worker, count):
    """From the weighted gains: S^-1 H P to ``gains``, u to ``scaled``, S^-1 H P N to ``pulled``.

    The covariance of u to ``R``.
    """
    k, row, noises, size = job.states, worker.row, worker.noises, bytes_of_real(zero, ())
    vectors, lines, zeros = row // LINE, noises // LINE, Rows(worker.zeros, 0)
    for q in range(count):
        dot_to(zero, (worker.gains + q * row, worker.later_mean, vectors, worker.shares))
        news = number(zero, worker.weights, q) * number(zero, worker.errors, q) - number(zero, worker.shares, 0)
        put_number(zero, worker.scaled, q, news)
    solve_back(zero, worker, count)
    later, gains = Rows(worker.later_cov, row), Numbers(worker.gains, row, size)
    add_product(zero, Rows(worker.pulled, row), gains, later, zeros, count, k, vectors, 0)
    for q in range(count):
        own = worker.R + q * noises
        clear(zero, (own, lines))
        for i in range(count):
            dot_to(zero, (worker.pulled + q * row, worker.gains + i * row, vectors, own + i * size))
        scale(zero, (worker.R_columns + q * noises, worker.inverse + q * noises, worker.weights + q * size, lines))
    spread, inverse = Rows(worker.R, noises), Rows(worker.inverse, noises)
    add_product(zero, spread, Numbers(worker.R_columns, size, noises), inverse, spread, count, count, lines, 0)
    mirror(zero, (worker.R, noises, count))


@compiled
def add_observed(zero, job, worker, t, count, mean, of_covariance):
    """The derivatives in H, R and y of a step, and r and N as of the state predicted for it.

    From the smoothed ``mean``, and what covariances contribute to the derivative in H.
    """
    k, row, noises, size = job.states, worker.row, worker.noises, bytes_of_real(zero, ())
    vectors, zeros, u = row // LINE, Rows(worker.zeros, 0), worker.scaled
    for q in range(count):
        which = word(worker.kept + 8 * q)
        of_H = worker.of_H + which * row
        add_scaled(zero, (of_H, mean, u + q * size, vectors))
        take_off(zero, worker, of_H, of_covariance + q * row, 1)
        add_scaled(zero, (worker.later_mean, worker.H + q * row, u + q * size, vectors))
        for i in range(count):
            of_R, other = worker.of_R + which * noises, word(worker.kept + 8 * i)
            found = number(zero, u, q) * number(zero, u, i) - number(zero, worker.R + q * noises, i)
            put_number(zero, of_R, other, number(zero, of_R, other) + found)
    loads, later = Rows(worker.H, row), Rows(worker.later_cov, row)
    doubled, spread = Rows(worker.doubled, row), Numbers(worker.R, noises, size)
    add_product(zero, doubled, spread, loads, zeros, count, count, vectors, 0)
    half = worker.factors + MINUS_HALF * size
    for q in range(count):
        add_scaled(zero, (worker.pulled + q * row, worker.doubled + q * row, half, vectors))
    pulled = Rows(worker.pulled, row)
    subtract_product(zero, later, Numbers(worker.H, size, row), pulled, later, k, count, vectors, 1)
    subtract_product(zero, later, Numbers(worker.pulled, size, row), loads, later, k, count, vectors, 1)
    mirror(zero, (worker.later_cov, row, k))


@compiled
def put_of_y(zero, job, worker, t, count):
    """The derivative in y, where it is wanted."""
    if job.pointers[K.OF_Y] != 0:
        of_y = place_of(job, worker, K.OF_Y, t)
        for j in range(job.observed):
            put_number(zero, of_y, j, 0.0)
        for q in range(count):
            put_number(zero, of_y, word(worker.kept + 8 * q), -number(zero, worker.scaled, q))


@compiled
def write_rows(zero, target, source, step, rows, columns, factor):
    """So many numbers of each row, times a factor; returns where the next matrix goes."""
    for i in range(rows):
        for j in range(columns):
            put_number(zero, target, i * columns + j, factor * number(zero, source + i * step, j))
    return target + rows * columns * bytes_of_real(zero, ())


@compiled
def write_sums(zero, job, worker, target):
    """All derivatives, in the order of the parameters."""
    k, p, row = job.states, job.observed, worker.row
    product = worker.product
    clear(zero, (product, k * (row // LINE)))
    add_outer(zero, worker, product, worker.later_mean, worker.later_mean, k)
    take_off(zero, worker, product, worker.later_cov, k)
    target = write_rows(zero, target, worker.of_F, row, k, k, 1.0)
    target = write_rows(zero, target, worker.of_H, row, p, k, 1.0)
    target = write_rows(zero, target, worker.of_Q, row, k, k, 0.5)
    target = write_rows(zero, target, worker.of_R, worker.noises, p, p, 0.5)
    target = write_rows(zero, target, worker.later_mean, row, 1, k, 1.0)
    write_rows(zero, target, product, row, k, k, 0.5)


@compiled
def put_longer_record(zero, job, worker, record):
    """A step: gains, factors and weights, and the covariance of the updated state."""
    k, row = job.states, worker.row
    cov = put_record(zero, job, worker, record)
    pack(zero, (cov, row, worker.cov, row, k, row // bytes_of_real(zero, ())))


# ------------------------------------------------------------------------------------------------------- all steps


def differentiated(eps: float, common: bool = False) -> Any:
    """All derivatives of a series, with covariances as they stand.

    ``common``: what covariances alone contribute, and a record of each step for `shared_gradient`.
    """
    forwards = filtered(eps, None, None)

    @compiled
    def run(zero, job, worker, target, records):
        """Above 0 where digits may be lost."""
        _, _, loss = forwards(zero, job, worker, 0, worker.states)
        k, row, size = job.states, worker.row, bytes_of_real(zero, ())
        vectors = row // LINE
        begin_sums(zero, job, worker)
        ahead = load_ahead(zero, job, worker)
        for t in range(job.steps - 1, -1, -1):
            if stopping_at(t, ASKING):
                break
            kept_state(zero, job, worker, worker.states + t * size_of_state(zero, job))
            count = load_observed(zero, job, worker, t)
            if count > 0:
                innovations(zero, job, worker, t, count, False)
                eliminate(zero, job, worker, count, False)
                update(zero, job, worker, count)
                mirror(zero, (worker.cov, row, k))
            if common:
                clear(zero, (worker.mean, vectors))
                clear(zero, (worker.errors, worker.noises // LINE))
                put_longer_record(zero, job, worker, records + t * size_of_longer_record(zero, job))
            mean, cov = Rows(worker.mean, 0), Rows(worker.cov, row)
            if ahead or t + 1 < job.steps:
                go_to_step(zero, job, worker, t)
                add_product(zero, mean, Numbers(worker.later_mean, 0, size), cov, mean, 1, k, vectors, 0)
                add_outer(zero, worker, worker.of_F, worker.ahead, worker.mean, k)
                of_F, moved = Rows(worker.of_F, row), Numbers(worker.product, row, size)
                subtract_product(zero, of_F, moved, cov, of_F, k, k, vectors, 0)
            if count > 0:
                pull(zero, job, worker, count)
                pulled, gains = Numbers(worker.pulled, row, size), Rows(worker.gains, row)
                subtract_product(zero, Rows(worker.doubled, row), pulled, cov, gains, count, k, vectors, 0)
                add_observed(zero, job, worker, t, count, worker.mean, worker.doubled)
            if not common:
                put_of_y(zero, job, worker, t, count)
        write_sums(zero, job, worker, target)
        return loss

    return run


def differentiated_by_roots(eps: float) -> Any:
    """The same with square roots, where digits would be lost; behind the last step nothing is known."""
    forwards = filtered_by_roots(eps, None, None)

    @compiled
    def run(zero, job, worker, target):
        forwards(zero, job, worker, 0, worker.states)
        k, row, size = job.states, worker.row, bytes_of_real(zero, ())
        vectors, zeros = row // LINE, Rows(worker.zeros, 0)
        begin_sums(zero, job, worker)
        for t in range(job.steps - 1, -1, -1):
            if stopping_at(t, ASKING):
                break
            kept_root(zero, job, worker, worker.states + t * size_of_state(zero, job))
            count = load_observed(zero, job, worker, t)
            if count > 0:
                observe_by_roots(zero, job, worker, t, count, eps)
                join_factors(zero, worker, count)
            NP, shrunk = Rows(worker.NP, row), Rows(worker.shrunk, row)
            if t + 1 < job.steps:
                F = load_noise(zero, job, worker, t, eps)
                gain_back(zero, job, worker)
                gain, product = Rows(worker.joint + row, 2 * row), Rows(worker.product, row)
                go_to_step(zero, job, worker, t)
                add_product(zero, product, Numbers(worker.NP, row, size), gain, zeros, k, k, vectors, 0)
                add_product(zero, shrunk, Numbers(F, size, k * size), product, zeros, k, k, vectors, 0)
                smooth_mean(zero, job, worker, gain)
                add_outer(zero, worker, worker.of_F, worker.ahead, worker.mean, k)
                take_off(zero, worker, worker.of_F, worker.product, k)
            else:
                clear(zero, (worker.shrunk, k * vectors))
            pack(zero, (worker.later_state, row, worker.mean, row, 1, row // size))
            if count > 0:
                pull(zero, job, worker, count)
                of_H, gains = Rows(worker.loads, row), Numbers(worker.gains, row, size)
                subtract_product(zero, of_H, gains, shrunk, Rows(worker.gains, row), count, k, vectors, 0)
                add_observed(zero, job, worker, t, count, worker.mean, worker.loads)
                add_product(zero, NP, Numbers(worker.H, size, row), of_H, shrunk, k, count, vectors, 0)
            else:
                pack(zero, (worker.NP, row, worker.shrunk, row, k, row // size))
            put_of_y(zero, job, worker, t, count)
        write_sums(zero, job, worker, target)

    return run


@compiled
def smooth_mean(zero, job, worker, gain):
    """The mean of a step, from that of the next one in ``later_state``."""
    k, row, size, vectors = job.states, worker.row, bytes_of_real(zero, ()), worker.row // LINE
    mean, news, turned = Rows(worker.mean, 0), Rows(worker.moved, 0), Rows(worker.F_turned, row)
    later = Rows(worker.later_state, 0)
    subtract_product(zero, news, Numbers(worker.mean, 0, size), turned, later, 1, k, vectors, 0)
    add_product(zero, mean, Numbers(worker.moved, 0, size), gain, mean, 1, k, vectors, 0)
