"""The steps of a Kalman filter in loops over states and observations: a JAX program as long for many as for few.

What is found is that of `tridiag.algorithms.kalman_filter`, with all observations of a step in one array. Square roots
of covariances are the columns of `tridiag.algorithms.kalman_columns`. Arrays are as in
`tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_columns, kalman_filter, kalman_smoother
from tridiag.algorithms.kalman_columns import Columns, apply, diagonal, eliminated
from tridiag.algorithms.kalman_filter import (
    LOG_TWO_PI,
    Carried,
    Estimate,
    Step,
    at,
    chosen,
    larger,
    outer,
    there,
    transpose,
)
from tridiag.algorithms.kalman_square_roots import positive
from tridiag.problems.state_space import Model, StateSpace


class Observed(NamedTuple):
    """The observations of one step, independent of each other: along the first axis."""

    weights: Any  # 1 / the variance
    errors: Any  # what was observed, less what was predicted
    rows: Any  # their covariances with the states
    loads: Any  # their rows of H
    variances: Any
    factors: Any  # that made them independent: the columns of L, of which what is below the diagonal is read
    turn: Any  # with `Roots`, a `tridiag.algorithms.kalman_columns.Turn`

    def listed(self) -> kalman_filter.Observed:
        """One entry each in every list."""
        weights, errors, rows, loads, variances = ([] if x is None else list(x) for x in self[:5])
        factors = [x[j + 1 :] for j, x in enumerate(self.factors)]
        return kalman_filter.Observed(weights, errors, rows, loads, variances, factors, [])


class Entries(kalman_filter.Entries):
    """Covariances as they stand."""

    @staticmethod
    def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[Any, ...]:
        """D and L of S = L D L^T, the rows of L^-1 H P, and the covariance once the observations are known; no turn."""
        variances, factors, rows = separate(ops, H, R, cov)
        return variances, factors, rows, cov - ops.product(transpose(rows / variances[:, None]), rows), None


class Roots:
    """Covariances as `tridiag.algorithms.kalman_columns.Columns`."""

    @staticmethod
    def start(ops: Any, cov: Any) -> Any:
        return kalman_columns.of_covariance(ops, cov)

    @staticmethod
    def whole(ops: Any, cov: Any) -> Any:
        return kalman_columns.covariance(ops, cov)

    @staticmethod
    def predict(ops: Any, F: Any, Q: Any, cov: Any) -> Any:
        return kalman_columns.predict(ops, F, Q, cov)

    @staticmethod
    def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[Any, ...]:
        return kalman_columns.observe(ops, H, R, cov)


Form = type[Entries] | type[Roots]


def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[Any, Any, Any]:
    """D and L of S = L D L^T, and the rows of L^-1 H P."""
    rows = ops.product(H, cov)
    S = ops.symmetric(ops.product(rows, transpose(H)) + R)
    place = ops.positions(len(S), S.ndim - 1, 0, S)

    def column(state: Any, j: Any) -> tuple[Any, Any]:
        S, rows = state
        row = ops.row(S, j, 0)
        pivot = positive(ops, ops.row(row, j, 0))
        factor = ops.where(place > j, row / pivot, ops.zero(row))
        return (S - outer(factor, row), rows - outer(factor, ops.row(rows, j, 0))), (pivot, factor)

    (_, rows), (variances, factors) = ops.each(len(S), column, (S, rows + ops.zero(S[:, :1])))
    return variances, factors, rows


def predict(ops: Any, F: Any, Q: Any, state: Estimate, form: Form = Entries) -> Estimate:
    return ops.keep(Estimate(apply(ops, F, state.mean), form.predict(ops, F, Q, state.cov)))


def observe(
    ops: Any, H: Any, R: Any, y: Any, kept: Any, state: Estimate, form: Form = Entries
) -> tuple[Observed, Estimate]:
    """What a predicted state makes of the observations, and they of it; ``kept``: not missing, None: all."""
    H, R, y = there(ops, H, R, y, kept)
    variances, factors, rows, cov, turn = form.separate(ops, H, R, state.cov)
    weights = ops.one(variances) / variances
    errors = eliminated(ops, factors, (y - apply(ops, H, state.mean))[:, None])[:, 0]
    mean = state.mean + (rows * (weights * errors)[:, None]).sum(0)
    seen = Observed(weights, errors, rows, eliminated(ops, factors, H), variances, factors, turn)
    return ops.keep(seen), ops.keep(Estimate(mean, cov))


def deviance(ops: Any, seen: Observed, kept: Any) -> Any:
    """-2 times the logarithm of the density of the observations; one that is missing counts nothing."""
    terms = seen.errors * seen.errors * seen.weights + (ops.log(seen.variances) + LOG_TWO_PI)
    return (terms if kept is None else ops.where(kept, terms, ops.zero(terms))).sum(0)


def information(ops: Any, seen: Observed, like: Estimate) -> tuple[Any, Estimate]:
    """What of later observations is still news, as a matrix, and what those of a step tell by themselves."""
    weighted = transpose(seen.loads * seen.weights[:, None])
    pull = ops.identity(like.cov) - ops.product(weighted, seen.rows)
    mean = ops.zero(like.mean) + apply(ops, weighted, seen.errors)
    return pull, Estimate(mean, ops.zero(like.cov) + ops.product(weighted, seen.loads))


# ------------------------------------------------------------------------------------------------- digits that are lost


def independent(ops: Any, x: Any, variances: Any) -> Any:
    """As `tridiag.algorithms.kalman_filter.independent`."""
    return (x * variances[None] * x).sum(1)


class Doubt(NamedTuple):
    """As `tridiag.algorithms.kalman_filter.Doubt`, of all states and observations."""

    spread: Any
    reach: Any
    loss: Any

    @staticmethod
    def add(ops: Any, doubt: Doubt, H: Any, kept: Any, variances: Any) -> Doubt:
        """Once a step has observed: H of what is there."""
        reach = larger(ops, independent(ops, H, doubt.spread), doubt.reach)
        gaps = ops.limits(H)[0] ** (1 / 3) * reach - variances
        more = gaps > doubt.loss if kept is None else (gaps > doubt.loss) & kept
        return Doubt(doubt.spread, reach, ops.maximum(ops.where(more, gaps, doubt.loss), 0))

    @staticmethod
    def carried(ops: Any, F: Any, Q: Any, spread: Any, before: Any, now: Any) -> Any:
        """The spread a step later, of states that were predicted with variances ``before``, and then ``now``."""
        moved, found = (Doubt.moved(ops, F, Q, x) for x in (before, larger(ops, spread, before)))
        shares = ops.where(moved > found * ops.limits(F)[0], now / moved, 1.0)
        return larger(ops, found * shares, moved)

    @staticmethod
    def moved(ops: Any, F: Any, Q: Any, before: Any) -> Any:
        """The variances with which states are predicted, if those before are independent."""
        return independent(ops, F, before) + diagonal(Q)


def lost(ops: Any, *covs: Any) -> Any:
    """Above 0 where a variance is so far below that of the covariance before it that its own digits are lost."""
    variances, share = [diagonal(cov) for cov in covs], ops.limits(covs[0])[0] ** (1 / 3)
    loss = 0
    for before, after in itertools.pairwise(variances):
        gaps = before * share - after
        loss = larger(ops, ops.maximum(ops.where(gaps > 0, gaps, 0.0), 0), loss)
    return loss


# ---------------------------------------------------------------------------------------------------------------- steps


def begin(ops: Any, form: StateSpace, y: Any, kept: Any, covs: Form) -> Carried:
    """Before the first step."""
    mean, cov = kalman_filter.blank(ops, form, y, kept)
    if covs is Roots:
        return Carried(Estimate(mean, Columns(cov, cov[0])), None, None)
    nothing = ops.full((form.observed, *cov.shape[2:]), 0, y)
    return Carried(Estimate(mean, cov), cov[0], Doubt(cov[0], nothing, cov[0, 0]))


def forward(
    ops: Any, model: Model, y: Any, kept: Any, t: Any, carried: Carried, form: Form = Entries
) -> tuple[Carried, Step, Any]:
    """Step t from the state of the step before, and how little the observations were expected."""
    F, H, Q, R = at(ops, model, t)
    first, moved = Estimate(model.m0, form.start(ops, model.P0)), predict(ops, F, Q, carried.state, form)
    predicted = chosen(ops, t > 0, moved, first)
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, updated = observe(ops, H, R, ops.row(y, t, 0), kept, predicted, form)
    variances, doubt = carried.variances, carried.doubt
    if doubt is not None:
        now = diagonal(predicted.cov)
        spread = ops.where(t > 0, Doubt.carried(ops, F, Q, doubt.spread, variances, now), diagonal(model.P0))
        sight = H if kept is None else ops.where(kept[:, None], H, ops.zero(H))
        doubt = ops.keep(Doubt.add(ops, doubt._replace(spread=spread), sight, kept, seen.variances))
        variances = now
    return Carried(updated, variances, doubt), Step(predicted, updated, seen), deviance(ops, seen, kept)


def backward(
    ops: Any, model: Model, y: Any, kept: Any, t: Any, filtered: tuple[Estimate, Estimate], ahead: Estimate
) -> tuple[Estimate, Estimate]:
    """As `tridiag.algorithms.kalman_smoother.backward`."""
    F, H, _, R = at(ops, model, t)
    predicted, updated = filtered
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, _ = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    pull, news = information(ops, seen, ahead)
    cov = ops.symmetric(ops.product(ops.product(pull, ahead.cov), transpose(pull)) + news.cov)
    return smoothed_state(ops, updated, ahead), carry_back(
        ops, F, Estimate(apply(ops, pull, ahead.mean) + news.mean, cov)
    )


def smoothed_state(ops: Any, state: Estimate, ahead: Estimate) -> Estimate:
    return kalman_smoother.smoothed_state(ops, state, ahead, functools.partial(apply, ops))


def carry_back(ops: Any, F: Any, ahead: Estimate) -> Estimate:
    return kalman_smoother.carry_back(ops, F, ahead, functools.partial(apply, ops))


def smooth(ops: Any, F: Any, Q: Any, updated: Estimate, seen: Observed, later: Estimate) -> tuple[Any, Estimate]:
    """As `tridiag.algorithms.kalman_smoother.smooth`, in coordinates of x = sum_j c_j z[j], of updated columns.

    Before it, the gain with which they follow from those of the predicted state of the next step.
    """
    back, turn = kalman_columns.go_back(ops, F, Q, updated.cov), seen.turn
    moves = (turn.moves * (seen.weights * seen.errors)[:, None]).sum(0)
    mean = apply(ops, back.gain, apply(ops, turn.matrix, later.mean) + moves)
    return back.gain, ops.keep(Estimate(mean, kalman_columns.smooth(ops, back, turn, later.cov)))


def unmoved(ops: Any, updated: Estimate) -> Estimate:
    """The same of the last step."""
    parts = updated.cov.parts
    return Estimate(ops.zero(updated.mean), updated.cov._replace(parts=ops.identity(parts) + ops.zero(parts)))


def moved(ops: Any, updated: Estimate, later: Estimate) -> Estimate:
    """The smoothed state of a step, its covariance as it stands."""
    onto = transpose(updated.cov.parts)
    cov = kalman_columns.covariance(ops, kalman_columns.moved(ops, onto, later.cov))
    return ops.keep(Estimate(updated.mean + apply(ops, onto, later.mean), cov))
