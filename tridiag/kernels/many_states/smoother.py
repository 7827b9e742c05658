"""All steps of a series, forwards and back: `tridiag.algorithms.kalman_smoother` for any number of states.

On the way forwards the states that are predicted go to where those that are smoothed go on the way back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.filter import ASKING, UPDATED, alone, filtered, filtered_by_roots
from tridiag.kernels.many_states.roots import (
    begin_back,
    go_back,
    load_noise,
    move,
    observe_by_roots,
    read_root,
    smooth_root,
    turn_back_all,
    whole,
)
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
from tridiag.kernels.many_states.steps import (
    copy_diagonal,
    eliminate,
    innovations,
    load_observed,
    lost,
    number,
    place_of,
    put_number,
    read_state,
    update,
    write_state,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.vector import LINE

MEAN, COV = UPDATED


class Following(NamedTuple):
    """What is done beside the steps of a series for those that share its covariances: (zero, job, worker, t, count)."""

    observed: Any  # once the observations of a step are known, on the way forwards
    later: Any  # once later ones are known too, which there are; then ``collected`` what they tell
    collected: Any
    later_by_roots: Any
    collected_by_roots: Any


ALONE = Following(alone, alone, alone, alone, alone)


def smoothed(eps: float, following: Following = ALONE) -> Any:
    """All steps with covariances as they stand."""
    forwards, share = filtered(eps, UPDATED, None, following.observed), eps ** (1 / 3)
    tell_later, tell_collected = following.later, following.collected

    @compiled
    def run(zero, job, worker):
        """-2 times the log-likelihood, and above 0 where digits may be lost."""
        deviance, _, loss = forwards(zero, job, worker, 0, 0)
        row = worker.row
        clear(zero, (worker.later_mean, row // LINE))
        clear(zero, (worker.later_cov, job.states * (row // LINE)))
        for t in range(job.steps - 1, -1, -1):
            if stopping_at(t, ASKING):
                break
            read_state(zero, job, worker, t, MEAN, COV)
            copy_diagonal(zero, worker.cov, row, job.states, worker.variances_before)
            count = load_observed(zero, job, worker, t)
            if count > 0:
                innovations(zero, job, worker, t, count, True)
                eliminate(zero, job, worker, count, True)
                update(zero, job, worker, count)
            loss = max(loss, lost(zero, job, worker, worker.variances_before, share))
            if t + 1 < job.steps:
                copy_diagonal(zero, worker.cov, row, job.states, worker.variances_before)
                carry_back(zero, job, worker, t)
                add_later(zero, job, worker)
                tell_later(zero, job, worker, t, count)
                loss = max(loss, lost(zero, job, worker, worker.variances_before, share))
            write_state(zero, job, worker, t, MEAN, COV)
            if count > 0:
                collect(zero, job, worker, count)
                tell_collected(zero, job, worker, t, count)
        return deviance, loss

    return run


@compiled
def carry_back(zero, job, worker, t):
    """What later observations tell, as of the step before: F^T r and F^T N F."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    F, vectors, zeros = place_of(job, worker, K.F, t), row // LINE, Rows(worker.zeros, 0)
    if worker.F_rows_from != F:
        pack(zero, (worker.F_rows, row, F, k * size, k, k))
        worker.F_rows_from = F
    rows, ahead = Rows(worker.F_rows, row), Rows(worker.ahead, 0)
    later, product = Rows(worker.later_cov, row), Rows(worker.product, row)
    add_product(zero, ahead, Numbers(worker.later_mean, 0, size), rows, zeros, 1, k, vectors, 0)
    worker.later_mean, worker.ahead = worker.ahead, worker.later_mean
    add_product(zero, product, Numbers(worker.later_cov, row, size), rows, zeros, k, k, vectors, 0)
    add_product(zero, later, Numbers(F, size, k * size), product, zeros, k, k, vectors, 1)
    mirror(zero, (worker.later_cov, row, k))


@compiled
def add_later(zero, job, worker):
    """The state once later observations are known too: x + P r, and P - P N P."""
    k, row, size, vectors = job.states, worker.row, bytes_of_real(zero, ()), worker.row // LINE
    mirror(zero, (worker.cov, row, k))
    mean, cov, product = Rows(worker.mean, 0), Rows(worker.cov, row), Rows(worker.product, row)
    add_product(zero, mean, Numbers(worker.later_mean, 0, size), cov, mean, 1, k, vectors, 0)
    own, both = Numbers(worker.cov, row, size), Numbers(worker.product, row, size)
    add_product(zero, product, own, Rows(worker.later_cov, row), Rows(worker.zeros, 0), k, k, vectors, 0)
    subtract_product(zero, Rows(worker.smoothed, row), both, cov, cov, k, k, vectors, 1)
    worker.cov, worker.smoothed = worker.smoothed, worker.cov


@compiled
def collect(zero, job, worker, count):
    """What the observations of a step add to what later ones tell, as of the state predicted for it.

    With G = L^-1 H P, W = D^-1 L^-1 H, T = G N: r + W^T (e - G r), and N - W^T T - T^T W + W^T (G N G^T + D) W.
    """
    k, row, step, size = job.states, worker.row, worker.news_row, bytes_of_real(zero, ())
    vectors, noises, zeros = row // LINE, worker.noises, Rows(worker.zeros, 0)
    later, pulled, doubled = Rows(worker.later_cov, row), Rows(worker.pulled, row), Rows(worker.doubled, row)
    loads = Rows(worker.gains, row)
    for q in range(count):
        own = worker.news + q * step
        scale(zero, (worker.gains + q * row, own + row + noises, worker.weights + q * size, vectors))
        dot_to(zero, (own, worker.later_mean, vectors, worker.scaled + q * size))
    for q in range(count):
        news = number(zero, worker.errors, q) - number(zero, worker.scaled, q)
        put_number(zero, worker.scaled, q, news)
        add_scaled(zero, (worker.later_mean, worker.gains + q * row, worker.scaled + q * size, vectors))
    add_product(zero, pulled, Numbers(worker.news, step, size), later, zeros, count, k, vectors, 0)
    for q in range(count):
        for i in range(count):
            dot_to(zero, (worker.pulled + q * row, worker.news + i * step, vectors, worker.R + q * noises + i * size))
        own = worker.R + q * noises
        put_number(zero, own, q, number(zero, own, q) + number(zero, worker.variances, q))
    add_product(zero, doubled, Numbers(worker.R, noises, size), loads, zeros, count, count, vectors, 0)
    put_number(zero, worker.scaled, 0, -0.5)
    for q in range(count):
        add_scaled(zero, (worker.pulled + q * row, worker.doubled + q * row, worker.scaled, vectors))
    subtract_product(zero, later, Numbers(worker.gains, size, row), pulled, later, k, count, vectors, 1)
    subtract_product(zero, later, Numbers(worker.pulled, size, row), loads, later, k, count, vectors, 1)
    mirror(zero, (worker.later_cov, row, k))


# ------------------------------------------------------------------------------------------------------- square roots


def smoothed_by_roots(eps: float, following: Following = ALONE) -> Any:
    """The same with square roots; what later observations tell is carried in coordinates of the state."""
    forwards = filtered_by_roots(eps, UPDATED, None, keep=True, follow=following.observed)
    tell_later, tell_collected = following.later_by_roots, following.collected_by_roots

    @compiled
    def run(zero, job, worker):
        """-2 times the log-likelihood."""
        deviance, _ = forwards(zero, job, worker, 0, 0)
        for t in range(job.steps - 1, -1, -1):
            if stopping_at(t, ASKING):
                break
            read_root(zero, job, worker, t, MEAN, COV)
            count = load_observed(zero, job, worker, t)
            if count > 0:
                observe_by_roots(zero, job, worker, t, count, eps)
            if t + 1 < job.steps:
                load_noise(zero, job, worker, t, eps)
                go_back(zero, job, worker)
                smooth_root(zero, job, worker)
                tell_later(zero, job, worker, t, count)
            else:
                begin_back(zero, job, worker)
            move(zero, job, worker)
            whole(zero, job, worker)
            write_state(zero, job, worker, t, MEAN, COV)
            if count > 0:
                turn_back_all(zero, job, worker, count)
                tell_collected(zero, job, worker, t, count)
        return deviance

    return run
