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


def smooth(ops: Any, F: Any, Q: Any, updated: Estimate, later: Estimate) -> Estimate:
    """By how much later observations move the updated state of a step, all with `Roots`.

    In coordinates z, x = L z for the updated L D L^T: the move of their mean, and the root of their covariance once all
    is known. ``later``: the same of the next step, `before_observations`. After Rauch, Tung and Striebel, but that
    roots are joined, no covariance of states is inverted, and no difference of means is taken: the gain may be larger
    than 1, and makes errors larger from step to step that are not small where the state is known well.
    """
    back = kalman_square_roots.go_back(ops, F, Q, updated.cov)
    mean = ops.keep(apply(transpose(back.gain), later.mean))
    return ops.keep(Estimate(mean, kalman_square_roots.smooth(ops, back, later.cov)))


def before_observations(ops: Any, seen: Observed, later: Estimate) -> Estimate:
    """By how much the observations of a step and later ones move its predicted state, in coordinates of this."""
    mean, cov = later
    for turn, weight, error in zip(seen.turns[::-1], seen.weights[::-1], seen.errors[::-1], strict=True):
        moves = [share * (weight * error) for share in turn.shares]
        mean = ops.keep(kalman_square_roots.turned_back(ops, turn, mean) + ops.stack(moves))
        cov = kalman_square_roots.root_turned_back(ops, turn, cov)
    return ops.keep(Estimate(mean, cov))


def unmoved(ops: Any, updated: Estimate) -> Estimate:
    """As `smooth` of the last step."""
    columns = [ops.zero(x) for x in updated.cov.columns]
    return Estimate(ops.zero(updated.mean), updated.cov._replace(columns=columns))


def moved(ops: Any, updated: Estimate, later: Estimate) -> Estimate:
    """The smoothed state of a step, its covariance as it stands."""
    mean = updated.mean + kalman_square_roots.apply(ops, updated.cov, later.mean)
    cov = kalman_square_roots.product(ops, updated.cov, later.cov)
    return ops.keep(Estimate(mean, kalman_square_roots.covariance(ops, cov)))
