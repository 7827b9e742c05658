"""All steps of a series forwards: its log-likelihood, and the states, where they are wanted."""

from __future__ import annotations

from typing import Any

from tridiag.algorithms.kalman_filter import LOG_TWO_PI
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.records import put_record
from tridiag.kernels.many_states.rest import is_constant, leave_rest, observe_at_rest, resting
from tridiag.kernels.many_states.roots import (
    join_factors,
    keep_root,
    load_noise,
    load_start_root,
    observe_by_roots,
    predict_root,
    whole,
    write_root,
)
from tridiag.kernels.many_states.steps import (
    doubt_observed,
    doubt_predicted,
    eliminate,
    innovations,
    keep_state,
    load_motion,
    load_observed,
    load_start,
    lost,
    predict_covariance,
    predict_mean,
    update,
    write_state,
)
from tridiag.kernels.many_states.workspace import size_of_state
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at

ASKING = 64  # steps after which a series asks whether it is to end
UPDATED, PREDICTED = (K.MEAN, K.COV), (K.PREDICTED_MEAN, K.PREDICTED_COV)


@compiled
def alone(zero, job, worker, t, count):
    """In place of what follows a step: no other series shares its covariances."""


Places = tuple[int, int] | None  # operands to which means and covariances go, where these are there; None: nowhere


def filtered(eps: float, predicted: Places = PREDICTED, updated: Places = UPDATED, follow: Any = alone) -> Any:
    """All steps with covariances as they stand; ``follow``: what is done once the observations of a step are known."""
    share, shows_predicted, shows_updated = eps ** (1 / 3), predicted is not None, updated is not None
    (predicted_mean, predicted_cov), (updated_mean, updated_cov) = predicted or PREDICTED, updated or UPDATED
    rests, may_rest = resting(eps), follow is alone

    @compiled
    def run(zero, job, worker, records, states):
        """-2 times the log-likelihood, the logarithms in it, and above 0 where digits may be lost.

        ``records``, ``states``: where those of all steps are kept, or 0.
        """
        quadratics, logarithms, loss, record = 0.0, 0.0, 0.0, records
        wanted = shows_updated and job.pointers[updated_cov] != 0
        constant = may_rest and states == 0 and is_constant(job)
        complete, at_rest, added = 0, False, 0.0
        load_start(zero, job, worker)
        for t in range(job.steps):
            if stopping_at(t, ASKING):
                break
            if at_rest:
                at_rest = load_observed(zero, job, worker, t) == job.observed
                if at_rest:
                    quadratics += observe_at_rest(zero, job, worker, t)
                    logarithms += added
                    if records != 0:
                        record = put_record(zero, job, worker, record)
                    predict_mean(zero, job, worker)
                    continue
                leave_rest(zero, job, worker)
                complete = 0
            rest = constant and rests(zero, job, worker, t, complete)
            if shows_predicted:
                write_state(zero, job, worker, t, predicted_mean, predicted_cov)
            if states != 0:
                keep_state(zero, job, worker, states + t * size_of_state(zero, job))
            count = load_observed(zero, job, worker, t)
            if count > 0:
                innovations(zero, job, worker, t, count, False)
                quadratic, logarithm = eliminate(zero, job, worker, count, False)
                quadratics += quadratic
                added = logarithm + count * LOG_TWO_PI
                logarithms += added
                loss = max(loss, doubt_observed(zero, job, worker, count, share))
                update(zero, job, worker, count)
            if wanted:
                loss = max(loss, lost(zero, job, worker, worker.variances_before, share))
                write_state(zero, job, worker, t, updated_mean, updated_cov)
            if records != 0:
                record = put_record(zero, job, worker, record)
            follow(zero, job, worker, t, count)
            complete = complete + 1 if count == job.observed else 0
            at_rest = rest and complete > 0
            if at_rest:
                predict_mean(zero, job, worker)
            elif t + 1 < job.steps:
                F = load_motion(zero, job, worker, t)
                predict_mean(zero, job, worker)
                predict_covariance(zero, job, worker, F)
                doubt_predicted(zero, job, worker, eps)
        deviance = quadratics + logarithms
        return deviance, logarithms, loss if deviance == deviance else 1.0

    return run


def filtered_by_roots(
    eps: float, predicted: Places = PREDICTED, updated: Places = UPDATED, keep: bool = False, follow: Any = alone
) -> Any:
    """The same with square roots, where digits would be lost; ``keep``: of those predicted, roots go there."""
    shows_predicted, shows_updated, follows = predicted is not None, updated is not None, follow is not alone
    (predicted_mean, predicted_cov), (updated_mean, updated_cov) = predicted or PREDICTED, updated or UPDATED

    @compiled
    def run(zero, job, worker, records, states):
        """-2 times the log-likelihood, and the logarithms in it."""
        quadratics, logarithms, record = 0.0, 0.0, records
        load_start(zero, job, worker)
        load_start_root(zero, job, worker, eps)
        for t in range(job.steps):
            if stopping_at(t, ASKING):
                break
            if keep:
                write_root(zero, job, worker, t, predicted_mean, predicted_cov)
            elif shows_predicted and job.pointers[predicted_cov] != 0:
                whole(zero, job, worker)
                write_state(zero, job, worker, t, predicted_mean, predicted_cov)
            if states != 0:
                keep_root(zero, job, worker, states + t * size_of_state(zero, job))
            count = load_observed(zero, job, worker, t)
            if count > 0:
                quadratic, logarithm = observe_by_roots(zero, job, worker, t, count, eps)
                quadratics += quadratic
                logarithms += logarithm + count * LOG_TWO_PI
            if shows_updated and job.pointers[updated_cov] != 0:
                whole(zero, job, worker)
                write_state(zero, job, worker, t, updated_mean, updated_cov)
            if records != 0:
                join_factors(zero, worker, count)
                record = put_record(zero, job, worker, record)
            if follows:
                join_factors(zero, worker, count)
                follow(zero, job, worker, t, count)
            if t + 1 < job.steps:
                load_noise(zero, job, worker, t, eps)
                predict_mean(zero, job, worker)
                predict_root(zero, job, worker)
        return quadratics + logarithms, logarithms

    return run
