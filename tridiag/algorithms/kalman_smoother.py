"""The steps backwards of a Kalman smoother, the same for every array library.

Arrays are as in `tridiag.algorithms.kalman_filter`."""

from __future__ import annotations

from typing import Any

from tridiag.algorithms import kalman_square_roots
from tridiag.algorithms.kalman_filter import Estimate, Observed, apply, at, observe, outer, transpose
from tridiag.problems.state_space import Model


def smoothed_state(ops: Any, state: Estimate, ahead: Estimate, apply: Any = apply) -> Estimate:
    """The state once later observations are known too: ``ahead`` is what they add, as of this step.

    ``apply``: how a matrix is multiplied with a vector.
    """
    mean = state.mean + apply(state.cov, ahead.mean)
    both = ops.product(state.cov, ahead.cov)
    return Estimate(mean, ops.symmetric(state.cov - ops.product(both, state.cov)))


def collect(ops: Any, seen: Observed, ahead: Estimate) -> Estimate:
    """What the observations of a step add to what later ones do, as of the state predicted for it."""
    pull, news = information(ops, seen, ahead)
    cov = ops.product(ops.product(pull, ahead.cov), transpose(pull)) + news.cov
    return Estimate(apply(pull, ahead.mean) + news.mean, ops.symmetric(cov))


def information(ops: Any, seen: Observed, like: Estimate) -> tuple[Any, Estimate]:
    """What of later observations is still news, as a matrix, and what those of a step tell by themselves."""
    pull, mean, cov = ops.identity(like.cov), ops.zero(like.mean), ops.zero(like.cov)
    for weight, error, row, load in zip(seen.weights, seen.errors, seen.rows, seen.loads, strict=True):
        weighted = load * weight
        mean = mean + weighted * error
        pull, cov = pull - outer(weighted, row), cov + outer(weighted, load)
    return pull, Estimate(mean, cov)


def carry_back(ops: Any, F: Any, ahead: Estimate, apply: Any = apply) -> Estimate:
    """What later observations add, as of the step before."""
    turned = transpose(F)
    return Estimate(apply(turned, ahead.mean), ops.product(ops.product(turned, ahead.cov), F))


def backward(
    ops: Any, model: Model, y: Any, kept: Any, t: Any, filtered: tuple[Estimate, Estimate], ahead: Estimate
) -> tuple[Estimate, Estimate]:
    """Step t smoothed, and what is then known ahead of the step before."""
    F, H, _, R = at(ops, model, t)
    predicted, updated = filtered
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, _ = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    return smoothed_state(ops, updated, ahead), carry_back(ops, F, collect(ops, seen, ahead))


def smooth(ops: Any, F: Any, Q: Any, updated: Estimate, ahead: Any, smoothed: Estimate) -> Estimate:
    """A step smoothed, from the mean that was predicted for the next one, and that smoothed: all with `Roots`.

    After Rauch, Tung and Striebel, but that roots are joined; no covariance of states is inverted.
    """
    back = kalman_square_roots.go_back(ops, F, Q, updated.cov)
    mean = updated.mean + apply(back.gain, smoothed.mean - ahead)
    return ops.keep(Estimate(mean, kalman_square_roots.smooth(ops, back, smoothed.cov)))
