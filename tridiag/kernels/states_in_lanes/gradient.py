"""The derivatives of the log-likelihoods of a group: `tridiag.algorithms.kalman_adjoint` for any number of states.

For models that do not change with time. ``later`` is r and ``told`` is -N, so that products are added to both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.filter import ASKING
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.copies import clear, gather, pick_out, scatter, transpose
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
from tridiag.kernels.states_in_lanes.smoother import begin_back
from tridiag.kernels.states_in_lanes.steps import (
    HIDDEN,
    load,
    load_motion,
    load_start,
    observe,
    predict,
    stride,
    table,
    update_covariance,
)
from tridiag.kernels.states_in_lanes.workspace import LOSS, size_of_state


@compiled
def differentiated(zero, job, worker):
    """All derivatives of a group."""
    load_start(zero, job, worker)
    for t in range(job.steps):
        if stopping_at(t, ASKING):
            break
        keep(zero, (worker, worker.states + t * size_of_state(job), job.states))
        observe(zero, job, worker, t, 0)
        if t + 1 < job.steps:
            load_motion(zero, job, worker, t)
            predict(zero, job, worker, False)
    begin_back(zero, job, worker)
    k, p = job.states, job.observed
    clear(zero, (worker.found, 3 * k * k + p * k + p * p + k))
    ahead = job.pointers[K.AHEAD] != 0
    if ahead:
        load(zero, job, worker, K.F, 0, worker.F, k * k)
        gather(zero, (table(zero, worker, K.AHEAD), 0, worker.ahead_of_all, k + k * (k + 1) // 2))
        take_ahead(zero, (worker, k))
    transpose(zero, (worker.turned, worker.F, k))
    for t in range(job.steps - 1, -1, -1):
        if stopping_at(t, ASKING):
            break
        recall(zero, (worker, worker.states + t * size_of_state(job), k))
        observe(zero, job, worker, t, HIDDEN)
        update_covariance(zero, job, worker)
        if ahead or t + 1 < job.steps:
            go_to_step(zero, job, worker)
        pull(zero, job, worker, t)
    end_sums(zero, (worker, k, p))
    scatter(zero, (table(zero, worker, K.OF_MODEL), 0, worker.found, 3 * k * k + p * k + p * p + k))
    pick_out(zero, (worker.sums, worker.sums_forwards, LINE, LOSS))


# ------------------------------------------------------------------------------------------------------- states


def triangle(code: Code, size: Value, entry: Any) -> None:
    """``entry(i, j, e)`` of what is not below the diagonal: the e-th of all, row by row."""

    def row(i: Value) -> None:
        first = i * size - i * (i - 1) / 2 - i
        each(code, i, size, lambda j: entry(i, j, first + j))

    each(code, 0, size, row)


def keep_state(code: Code, worker: At, place: Value, size: Value) -> None:
    """The states to memory of the worker."""
    each(code, 0, size, lambda i: code.store(place + i * LINE, code.load(worker.mean + i * LINE)))
    cov, packed = worker.cov, place + size * LINE
    triangle(code, size, lambda i, j, e: code.store(packed + e * LINE, code.load(cov + (i * size + j) * LINE)))


def recall_state(sign: int, code: Code, mean: Value, cov: Value, place: Value, size: Value) -> None:
    """A vector and a symmetric matrix, times ``sign``, from there."""
    each(code, 0, size, lambda i: code.store(mean + i * LINE, code.load(place + i * LINE)))
    packed = place + size * LINE

    def entry(i: Value, j: Value, e: Value) -> None:
        value = code.load(packed + e * LINE)
        for at in (i * size + j, j * size + i):
            code.store(cov + at * LINE, value if sign > 0 else -value)

    triangle(code, size, entry)


keep = library.add("keep", keep_state)
recall = library.add("recall", lambda code, worker, *rest: recall_state(1, code, worker.mean, worker.cov, *rest))
take_ahead = library.add(
    "take_ahead",
    lambda code, worker, size: recall_state(-1, code, worker.later, worker.told, worker.ahead_of_all, size),
)


# ------------------------------------------------------------------------------------------------------- motions


def add_noise(code: Code, worker: At, size: Value) -> None:
    """r r^T - N of the step behind to the derivative in its Q, twice that."""
    of_Q, told = worker.of_Q, worker.told

    def row(i: Value) -> None:
        own = code.load(worker.later + i * LINE)

        def entry(j: Value) -> None:
            at = (i * size + j) * LINE
            more = own * code.load(worker.later + j * LINE) + code.load(told + at)
            code.store(of_Q + at, code.load(of_Q + at) + more)

        each(code, 0, size, entry)

    each(code, 0, size, row)


def add_rows(code: Code, target: Value, x: Value, y: Value, rows: Value, columns: Value) -> None:
    """target += x y^T"""

    def row(i: Value) -> None:
        factor, own = code.load(x + i * LINE), target + i * columns * LINE
        each(
            code,
            0,
            columns,
            lambda j: code.store(own + j * LINE, code.load(own + j * LINE) + factor * code.load(y + j * LINE)),
        )

    each(code, 0, rows, row)


add_to_noise, add_outer = library.add("add_noise", add_noise), library.add("add_rows", add_rows)


@compiled
def go_to_step(zero, job, worker):
    """The derivatives in Q and F of a step, then r and N as of its updated state; the mean is smoothed."""
    whole = any_matrix(worker)
    k, row = job.states, job.states * LINE
    add_to_noise(zero, (worker, k))
    apply(zero, worker.carried, Matrix(worker.turned, row, LINE), worker.later, worker.zeros, whole, k, k)
    apply(zero, worker.mean, Matrix(worker.cov, row, LINE), worker.carried, worker.mean, whole, k, k)
    add_outer(zero, (worker.found, worker.later, worker.mean, k, k))
    worker.later, worker.carried = worker.carried, worker.later
    turned, told, nothing = (
        Matrix(worker.turned, row, LINE),
        Matrix(worker.told, row, LINE),
        Matrix(worker.zeros, 0, LINE),
    )
    product, of_F = Matrix(worker.product, row, LINE), Matrix(worker.found, row, LINE)
    add_product(zero, product, told, turned, nothing, whole, k, k, k)
    add_product(zero, of_F, product, Matrix(worker.cov, row, LINE), of_F, whole, k, k, k)
    transpose(zero, (worker.smoothed, worker.product, k))
    add_symmetric(zero, told, turned, Matrix(worker.smoothed, row, LINE), nothing, whole, k, k, k)


# ------------------------------------------------------------------------------------------------------- observations


def solve_back(code: Code, job: At, worker: At) -> None:
    """u and the gains, L^-T of what they were, where ``variances`` are the gains times r; S^-1 to ``precision``."""
    k, p, none = job.states, job.observed, code.integer(0)

    def factor(q: Value, i: Value) -> Value:
        """Of L: row i, column q."""
        return code.load(worker.S + (q * p + i) * LINE) * code.load(worker.weights + q * LINE)

    def take_off(matrix: Value, own: Value, other: Value, by: Value, count: Value) -> None:
        target, source = matrix + own * count * LINE, matrix + other * count * LINE
        each(
            code,
            0,
            count,
            lambda j: code.store(target + j * LINE, code.load(target + j * LINE) - by * code.load(source + j * LINE)),
        )

    def begin(q: Value) -> None:
        at = q * LINE
        code.store(worker.u + at, code.load(worker.scaled + at) - code.load(worker.variances + at))
        unit = lambda j: code.where(code.everywhere(j == q), code.one(), code.zero())  # noqa: E731
        each(code, 0, p, lambda j: code.store(worker.inverse + (q * p + j) * LINE, unit(j)))

    def forwards(q: Value) -> None:
        each(code, q + 1, p, lambda i: take_off(worker.inverse, i, q, factor(q, i), p))

    def backwards(q: Value, state: Any) -> Any:
        def other(i: Value) -> None:
            take_off(worker.gains, q, i, factor(q, i), k)
            take_off(worker.u, q, i, factor(q, i), none + 1)

        each(code, q + 1, p, other)
        return state

    def entry(q: Value, i: Value) -> None:
        def term(m: Value, sums: Any) -> Any:
            x, y = (code.load(worker.inverse + (m * p + c) * LINE) for c in (q, i))
            return (sums[0] + x * y * code.load(worker.weights + m * LINE),)  # symmetric, to the last bit

        code.store(worker.precision + (q * p + i) * LINE, code.fori(0, p, term, (code.zero(),))[0])

    each(code, 0, p, begin)
    each(code, 0, p, forwards)
    code.fori(p - 1, -1, backwards, step=-1)
    each(code, 0, p, lambda q: each(code, 0, p, lambda i: entry(q, i)))


def add_observed(code: Code, job: At, worker: At) -> None:
    """The derivatives in H, of which ``news`` is what covariances contribute, and R; r, and T for the pulled loads.

    ``S`` is gains N gains^T, but for its sign; T comes as gains N, likewise.
    """
    k, p, loads = job.states, job.observed, worker.pulled
    half = p * k * LINE

    def row(q: Value) -> None:
        u, there = code.load(worker.u + q * LINE), code.load(worker.there + q * LINE) > 0.0

        def column(j: Value) -> None:
            place, later = (q * k + j) * LINE, worker.later + j * LINE
            load, of_H = code.load(worker.sight + place), worker.of_H + place
            for copy in (loads, loads + 2 * half):
                code.store(copy + place, load)
            code.store(later, code.load(later) + u * load)
            more = u * code.load(worker.mean + j * LINE) - code.load(worker.news + place)
            code.store(of_H, code.load(of_H) + more)

        def other(i: Value) -> None:
            at = (q * p + i) * LINE
            spread = code.load(worker.precision + at) - code.load(worker.S + at)
            both = there & (code.load(worker.there + i * LINE) > 0.0)
            more = u * code.load(worker.u + i * LINE) - spread
            code.store(worker.of_R + at, code.load(worker.of_R + at) + code.where(both, more, code.zero()))

            def column(j: Value) -> None:
                target = loads + half + (q * k + j) * LINE
                load = code.load(worker.sight + (i * k + j) * LINE)
                code.store(target, code.load(target) + 0.5 * spread * load)

            each(code, 0, k, column)

        each(code, 0, k, column)
        each(code, 0, p, other)

    each(code, 0, p, row)


def end(code: Code, worker: At, states: Value, observed: Value) -> None:
    """The derivatives in m0 and P0, and half of what is twice a derivative."""

    def row(i: Value) -> None:
        own = code.load(worker.later + i * LINE)
        code.store(worker.of_m0 + i * LINE, own)

        def entry(j: Value) -> None:
            at = (i * states + j) * LINE
            both = own * code.load(worker.later + j * LINE) + code.load(worker.told + at)
            code.store(worker.of_P0 + at, 0.5 * both)

        each(code, 0, states, entry)

    each(code, 0, states, row)
    for matrix, size in ((worker.of_Q, states), (worker.of_R, observed)):
        each(code, 0, size * size, lambda e, at=matrix: code.store(at + e * LINE, 0.5 * code.load(at + e * LINE)))  # type: ignore[misc]


def negative(code: Code, target: Value, source: Value, count: Value) -> None:
    each(code, 0, count, lambda j: code.store(target + j * LINE, -code.load(source + j * LINE)))


solved_back, observed = library.add("solve_back", solve_back), library.add("add_observed", add_observed)
end_sums, negate = library.add("end", end), library.add("negative", negative)


@compiled
def pull(zero, job, worker, t):
    """The derivatives in H, R and y of a step, and r and N as of the state predicted for it."""
    whole = any_matrix(worker)
    k, p, row = job.states, job.observed, job.states * LINE
    apply(zero, worker.variances, Matrix(worker.gains, row, LINE), worker.later, worker.zeros, whole, k, p)
    solved_back(zero, (job, worker))
    pulled, nothing = Matrix(worker.pulled + p * row, row, LINE), Matrix(worker.zeros, 0, LINE)
    gains, told, cov = (Matrix(worker.gains, row, LINE), Matrix(worker.told, row, LINE), Matrix(worker.cov, row, LINE))
    add_product(zero, pulled, gains, told, nothing, whole, k, p, k)
    add_symmetric(zero, Matrix(worker.S, p * LINE, LINE), pulled, gains, nothing, whole, k, p, p)
    add_product(zero, Matrix(worker.news, row, LINE), pulled, cov, gains, whole, k, p, k)
    observed(zero, (job, worker))
    loads, turned = Matrix(worker.pulled, LINE, row), Matrix(worker.pulled + p * row, LINE, row)
    subtract_symmetric(zero, told, loads, turned, told, whole, 2 * p, k, k)
    if job.pointers[K.OF_Y] != 0:
        negate(zero, (worker.scaled, worker.u, p))
        scatter(zero, (table(zero, worker, K.OF_Y), t * stride(job, K.OF_Y), worker.scaled, p))


def build(dtype: str, alone: str) -> Any:
    """The C function void run(job, helpers) of the derivatives of log-likelihoods, for models constant in time."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, c_function(group_work(differentiated, alone, 1, 1), "tridiag_gradient_groups", first=JOB))
