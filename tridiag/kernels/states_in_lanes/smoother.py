"""All steps of a group, forwards and back: `tridiag.algorithms.kalman_smoother` for any number of states.

On the way forwards the states that are predicted go to where those that are smoothed go on the way back. Of what later
observations tell, r and N, ``later`` is r and ``told`` is -N, so that products are added to both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.filter import ASKING, UPDATED
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.copies import clear, gather, pick_out, transpose
from tridiag.kernels.states_in_lanes.kernel import JOB, group_work
from tridiag.kernels.states_in_lanes.matrices import (
    Matrix,
    add_product,
    add_symmetric,
    any_matrix,
    apply,
    library,
    subtract_symmetric,
)
from tridiag.kernels.states_in_lanes.steps import (
    LOADS,
    load,
    load_motion,
    load_start,
    lost,
    observe,
    predict,
    stride,
    table,
    update_covariance,
    write_state,
)
from tridiag.kernels.states_in_lanes.workspace import LOSS, SUMS

MEAN, COV = UPDATED


@compiled
def smoothed(zero, job, worker):
    """All steps of a group."""
    load_start(zero, job, worker)
    for t in range(job.steps):
        if stopping_at(t, ASKING):
            break
        write_state(zero, job, worker, t, MEAN, COV)
        observe(zero, job, worker, t, 0)
        if t + 1 < job.steps:
            load_motion(zero, job, worker, t)
            predict(zero, job, worker, False)
    begin_back(zero, job, worker)
    k, row = job.states, job.states * LINE
    for t in range(job.steps - 1, -1, -1):
        if stopping_at(t, ASKING):
            break
        read_state(zero, job, worker, t)
        pick_out(zero, (worker.before, worker.cov, row + LINE, k))
        observe(zero, job, worker, t, LOADS)
        update_covariance(zero, job, worker)
        lost(zero, (worker, worker.before, k))
        if t + 1 < job.steps:
            pick_out(zero, (worker.before, worker.cov, row + LINE, k))
            load(zero, job, worker, K.F, t, worker.F, k * k)
            carry_back(zero, job, worker, t)
            add_later(zero, job, worker)
            lost(zero, (worker, worker.before, k))
        write_state(zero, job, worker, t, MEAN, COV)
        collect(zero, job, worker)
    pick_out(zero, (worker.sums, worker.sums_forwards, LINE, LOSS))


@compiled
def begin_back(zero, job, worker):
    """Behind the last step nothing is known; what is lost in observations was seen on the way forwards."""
    pick_out(zero, (worker.sums_forwards, worker.sums, LINE, SUMS))
    clear(zero, (worker.later, job.states))
    clear(zero, (worker.told, job.states * job.states))
    clear(zero, (worker.spread, job.states))
    clear(zero, (worker.reach, job.observed))


@compiled
def read_state(zero, job, worker, t):
    """The states predicted for a step, from where they were written."""
    k = job.states
    gather(zero, (table(zero, worker, MEAN), t * stride(job, MEAN), worker.mean, k))
    gather(zero, (table(zero, worker, COV), t * stride(job, COV), worker.cov, k * k))


@compiled
def carry_back(zero, job, worker, t):
    """What later observations tell, as of the step before: F^T r to ``carried``, and F^T N F; F^T N to ``product``."""
    whole = any_matrix(worker)
    k, row = job.states, job.states * LINE
    if t == job.steps - 2 or stride(job, K.F) != 0:
        transpose(zero, (worker.turned, worker.F, k))
    turned, told = Matrix(worker.turned, row, LINE), Matrix(worker.told, row, LINE)
    product, nothing = Matrix(worker.product, row, LINE), Matrix(worker.zeros, 0, LINE)
    apply(zero, worker.carried, Matrix(worker.turned, row, LINE), worker.later, worker.zeros, whole, k, k)
    add_product(zero, product, turned, told, nothing, whole, k, k, k)
    add_symmetric(zero, told, product, turned, nothing, whole, k, k, k)


@compiled
def add_later(zero, job, worker):
    """The states once later observations are known too: x + P r, and P - P N P."""
    whole = any_matrix(worker)
    k, row = job.states, job.states * LINE
    worker.later, worker.carried = worker.carried, worker.later
    cov, product = Matrix(worker.cov, row, LINE), Matrix(worker.product, row, LINE)
    apply(zero, worker.mean, Matrix(worker.cov, row, LINE), worker.later, worker.mean, whole, k, k)
    add_product(zero, product, cov, Matrix(worker.told, row, LINE), Matrix(worker.zeros, 0, LINE), whole, k, k, k)
    add_symmetric(zero, Matrix(worker.smoothed, row, LINE), product, cov, cov, whole, k, k, k)
    worker.cov, worker.smoothed = worker.smoothed, worker.cov


# ------------------------------------------------------------------------------------------------------- observations


def weigh_loads(code: Code, job: At, worker: At) -> None:
    """W; of errors what later observations do not tell yet, e - G r, where ``scaled`` is G r; and r with these."""
    k, p = job.states, job.observed

    def row(q: Value) -> None:
        weight, at = code.load(worker.weights + q * LINE), worker.errors + q * LINE
        news = code.load(at) - code.load(worker.scaled + q * LINE)

        def entry(j: Value) -> None:
            place, later = (q * k + j) * LINE, worker.later + j * LINE
            load = weight * code.load(worker.sight + place)
            code.store(worker.pulled + place, load)
            code.store(worker.pulled + 2 * p * k * LINE + place, load)
            code.store(later, code.load(later) + load * news)

        each(code, 0, k, entry)

    each(code, 0, p, row)


def take_half(code: Code, job: At, worker: At) -> None:
    """T - (T G^T - D) W / 2 for T, where S is T G^T."""
    k, p = job.states, job.observed
    loads = worker.pulled

    def row(q: Value) -> None:
        own = loads + (p + q) * k * LINE

        def other(i: Value) -> None:
            variance = code.where(code.everywhere(i == q), code.load(worker.variances + q * LINE), code.zero())
            factor = 0.5 * (code.load(worker.S + (q * p + i) * LINE) - variance)

            def entry(j: Value) -> None:
                at = own + j * LINE
                code.store(at, code.load(at) - factor * code.load(loads + (i * k + j) * LINE))

            each(code, 0, k, entry)

        each(code, 0, p, other)

    each(code, 0, p, row)


weigh, halve = library.add("weigh_loads", weigh_loads), library.add("take_half", take_half)


@compiled
def collect(zero, job, worker):
    """What the observations of a step add to what later ones tell, as of the state predicted for it.

    With G = L^-1 H P, W = D^-1 L^-1 H, M = -N, T = G M: r + W^T (e - G r), and M - W^T T - T^T W + W^T (T G^T - D) W.
    """
    whole = any_matrix(worker)
    k, p, row = job.states, job.observed, job.states * LINE
    apply(zero, worker.scaled, Matrix(worker.news, row, LINE), worker.later, worker.zeros, whole, k, p)
    weigh(zero, (job, worker))
    news, told = Matrix(worker.news, row, LINE), Matrix(worker.told, row, LINE)
    pulled, nothing = worker.pulled + p * row, Matrix(worker.zeros, 0, LINE)
    add_product(zero, Matrix(pulled, row, LINE), news, told, nothing, whole, k, p, k)
    add_symmetric(zero, Matrix(worker.S, p * LINE, LINE), Matrix(pulled, row, LINE), news, nothing, whole, k, p, p)
    halve(zero, (job, worker))
    loads, turned = Matrix(worker.pulled, LINE, row), Matrix(pulled, LINE, row)
    subtract_symmetric(zero, told, loads, turned, told, whole, 2 * p, k, k)


def build(dtype: str, alone: str) -> Any:
    """The C function void run(job, helpers) of the states given all observations."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, c_function(group_work(smoothed, alone, 1, 0), "tridiag_smoother_groups", first=JOB))
