"""Smoothers of models of which some states begin with an infinite variance: one set of series after another.

Those of a set share their covariances. The regression of `tridiag.algorithms.kalman_augmented`, which says what is
computed: the unknown columns are smoothed beside the series, with the same covariances.
"""

from __future__ import annotations

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.columns import are_all_0, orthogonal
from tridiag.kernels.many_states.followers import FOLLOWING, means_at, regressors_at
from tridiag.kernels.many_states.kernel import series_by_series
from tridiag.kernels.many_states.roots import inverse
from tridiag.kernels.many_states.rows import Numbers, Rows, add_product, add_scaled, mirror, pack, scale, unpack
from tridiag.kernels.many_states.smoother import smoothed, smoothed_by_roots
from tridiag.kernels.many_states.steps import number, place_of, put_number
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.vector import LINE


@compiled
def leave_out(zero, unseen, q, numbers, step, side, count, room):
    """Takes off vectors of q numbers, ``side`` bytes apart, what they have of unseen directions."""
    for i in range(count):
        for m in range(q):
            total = 0.0
            for j in range(q):
                total += number(zero, numbers + i * step + j * side, 0) * number(zero, unseen, j * q + m)
            put_number(zero, room, m, total)
        for j in range(q):
            at, total = numbers + i * step + j * side, 0.0
            for m in range(q):
                total += number(zero, room, m) * number(zero, unseen, j * q + m)
            put_number(zero, at, 0, number(zero, at, 0) - total)


@compiled
def regress(zero, job, worker, unseen, all_seen):
    """What the errors of the series tell of the unknown columns: to ``fit``, and their variances."""
    q, size = job.unknown, bytes_of_real(zero, ())
    count, length, weights = worker.seen, job.alike + job.unknown, worker.regressor_weights
    for i in range(count):
        for j in range(q):
            own = regressors_at(zero, job, worker, i)
            put_number(zero, own, j, -number(zero, own, j))
    if not all_seen:
        step = length * size
        leave_out(zero, unseen, q, worker.regressors, step, size, count, worker.scaled_parts)
    total = 0.0
    for i in range(count):
        for j in range(q):
            x = number(zero, regressors_at(zero, job, worker, i), j)
            total += number(zero, weights, i) * x * x
    total = total if total > 0 else 1.0
    for m in range(q):
        last = regressors_at(zero, job, worker, count + m)
        put_number(zero, weights, count + m, total)
        for j in range(length):
            put_number(zero, last, j, number(zero, unseen, j * q + m) if j < q else 0.0)
    parts, scaled = worker.regressors, worker.scaled_parts
    orthogonal(zero, parts, weights, count + q, q, length, scaled, worker.fit, worker.fit_variances)
    for j in range(q):
        put_number(zero, worker.fit_variances, j, inverse(number(zero, worker.fit_variances, j)))


@compiled
def put_smoothed(zero, job, worker, t, unseen, all_seen):
    """The means of all series, and the covariance, with what was told of the unknown columns."""
    k, q, alike, row, size = job.states, job.unknown, job.alike, worker.row, bytes_of_real(zero, ())
    vectors, length, means = row // LINE, (alike + q) * size, means_at(job, worker, t)
    columns = means + alike * row
    if not all_seen:
        leave_out(zero, unseen, q, columns, size, row, k, worker.scaled_parts)
    for j in range(q):
        for i in range(j + 1, q):
            put_number(zero, worker.scaled_parts, 0, -number(zero, worker.fit + j * length, i))
            add_scaled(zero, (columns + i * row, columns + j * row, worker.scaled_parts, vectors))
    own, values = Rows(means, row), Numbers(worker.fit + q * size, size, length)
    add_product(zero, own, values, Rows(columns, row), own, alike, q, vectors, 0)
    cov, place = Rows(worker.cov, row), place_of(job, worker, K.COV, t)
    unpack(zero, (place_of(job, worker, K.MEAN, t), k * size, means, row, alike, k))
    pack(zero, (worker.cov, row, place, k * size, k, k))
    for j in range(q):
        at = worker.moved_followers + j * row
        scale(zero, (at, columns + j * row, worker.fit_variances + j * size, vectors))
    scaled = Numbers(worker.moved_followers, size, row)
    add_product(zero, cov, scaled, Rows(columns, row), cov, k, q, vectors, 1)
    mirror(zero, (worker.cov, row, k))
    unpack(zero, (place, k * size, worker.cov, row, k, k))


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    eps = float(np.finfo(dtype).eps)
    steps, by_roots = smoothed(eps, FOLLOWING), smoothed_by_roots(eps, FOLLOWING)

    @compiled
    def do(zero, job, worker, series):
        _, loss = steps(zero, job, worker)
        if loss > 0:
            by_roots(zero, job, worker)
        unseen = worker.bindings[K.UNSEEN]
        all_seen = are_all_0(zero, unseen, job.unknown * job.unknown)
        regress(zero, job, worker, unseen, all_seen)
        for t in range(job.steps):
            put_smoothed(zero, job, worker, t, unseen, all_seen)

    return series_by_series("tridiag_smoother_unknown", dtype, do, 1, 0)
