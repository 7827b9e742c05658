"""Covariances at rest, as `tridiag.kernels.states_in_lanes.rest` has it: one series."""

from __future__ import annotations

import math
from typing import Any

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import NEARLY, PERIOD, SLACK
from tridiag.kernels.many_states.rows import Numbers, Rows, add_product, dot_to, pack
from tridiag.kernels.many_states.steps import factor_of, number, place_of, put_number, stride
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.vector import LINE


@compiled
def is_constant(job):
    """Whether a model is the same in all steps, and no states are wanted of them."""
    found = job.pointers[K.COV] == 0 and job.pointers[K.PREDICTED_COV] == 0
    for operand in (K.F, K.H, K.Q, K.R):
        found = found and stride(job, operand) == 0
    return found


def resting(eps: float) -> Any:
    """Whether covariances are at rest, for a dtype."""
    slack = SLACK * eps

    @compiled
    def is_near(zero, job, worker):
        """Whether nothing has moved since it was kept; what is at rest of the spread, or counts for nothing."""
        k, row, earlier = job.states, worker.row, worker.earlier
        for i in range(k):
            put_number(zero, worker.older, i, math.sqrt(number(zero, worker.cov + i * row, i)))
            spread, before = number(zero, worker.spread, i), number(zero, earlier + k * row, i)
            counts = spread > number(zero, worker.variances_before, i) * NEARLY
            if counts and not abs(spread - before) <= slack * spread:
                return False
        for i in range(k):
            own = slack * number(zero, worker.older, i)
            for j in range(i, k):
                moved = number(zero, worker.cov + i * row, j) - number(zero, earlier + i * row, j)
                if not abs(moved) <= own * number(zero, worker.older, j):
                    return False
        return True

    @compiled
    def rests(zero, job, worker, t, complete):
        """Whether covariances are at rest as predicted for step t, behind so many steps with all observations."""
        phase, k, row = t % PERIOD, job.states, worker.row
        count = row // bytes_of_real(zero, ())
        if phase == 1:
            return worker.slow != 0 and complete > PERIOD and is_near(zero, job, worker)
        if phase == 0:
            worker.slow = 1 if complete >= PERIOD and is_near(zero, job, worker) else 0
            pack(zero, (worker.earlier, row, worker.cov, row, k, count))
            pack(zero, (worker.earlier + k * row, row, worker.spread, row, 1, count))
        return False

    return rests


@compiled
def leave_rest(zero, job, worker):
    """The covariance of the states predicted for a step, in place of that which observations have left."""
    row = worker.row
    pack(zero, (worker.cov, row, worker.earlier, row, job.states, row // bytes_of_real(zero, ())))


@compiled
def observe_at_rest(zero, job, worker, t):
    """The mean once all observations of a step are known, with what the step before has left; the quadratic form."""
    p, row, size, vectors, quadratic = job.observed, worker.row, bytes_of_real(zero, ()), worker.row // LINE, 0.0
    y, mean = place_of(job, worker, K.Y, t), Rows(worker.mean, row)
    for i in range(p):
        dot_to(zero, (worker.H + i * row, worker.mean, vectors, worker.errors + i * size))
        error = number(zero, y, i) - number(zero, worker.errors, i)
        for q in range(i):
            error -= factor_of(zero, worker, q, i) * number(zero, worker.errors, q)
        put_number(zero, worker.errors, i, error)
        scaled = number(zero, worker.weights, i) * error
        put_number(zero, worker.scaled, i, scaled)
        quadratic += scaled * error
    add_product(zero, mean, Numbers(worker.scaled, 0, size), Rows(worker.news, worker.news_row), mean, 1, p, vectors, 0)
    return quadratic
