"""The steps of a Kalman filter and of its smoother, the same for every array library.

Matrices lie first and batch axes last: the entry P[i, j] is one array over the batch. A covariance that series share
has batch axes of length 1, and so is computed once; the means have the full batch.

The observations of a step are made independent of each other by elimination, S = L D L^T; the rows of L^-1 H P and of
L^-1 v then count one after another. No matrix is inverted, so R = 0 and a singular Q are nothing special.

A filter carries covariances in one of two forms: `Entries`, as they stand, or `Roots`, of
`tridiag.algorithms.kalman_square_roots`. The first is faster and says where digits may be lost (`Doubt`); those series
are filtered again with the second.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_square_roots
from tridiag.problems.state_space import Model, StateSpace

LOG_TWO_PI = 1.8378770664093453


class Observed(NamedTuple):
    """The observations of one step, independent of each other: one entry each in every list."""

    weights: list[Any]  # 1 / the variance
    errors: list[Any]  # what was observed, less what was predicted
    rows: list[Any]  # their covariances with the states
    loads: list[Any]  # their rows of H
    variances: list[Any]
    factors: list[Any]  # that made them independent: the columns of L below its diagonal
    turns: list[Any]  # with `Roots`, of `tridiag.algorithms.kalman_square_roots.Turn`


class Estimate(NamedTuple):
    mean: Any
    cov: Any  # as it stands, or a `Root`


def transpose(x: Any) -> Any:
    return x.swapaxes(0, 1)


def apply(x: Any, vector: Any) -> Any:
    """A matrix times a vector."""
    return added(x[:, j] * vector[j] for j in range(x.shape[1]))


def independent(x: Any, variances: Any) -> Any:
    """The variances of x @ states that are independent; squares of x might leave the range."""
    return added(x[:, j] * variances[j] * x[:, j] for j in range(x.shape[1]))


def added(terms: Iterable[Any]) -> Any:
    return functools.reduce(operator.add, terms)


def outer(x: Any, y: Any) -> Any:
    return x[:, None] * y[None]


class Entries:
    """Covariances as they stand."""

    @staticmethod
    def start(ops: Any, cov: Any) -> Any:
        return cov

    @staticmethod
    def whole(ops: Any, cov: Any) -> Any:
        return cov

    @staticmethod
    def predict(ops: Any, F: Any, Q: Any, cov: Any) -> Any:
        return ops.symmetric(ops.product(ops.product(F, cov), transpose(F)) + Q)

    @staticmethod
    def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[Any, ...]:
        """1/D, D and L of S = L D L^T, the rows of L^-1 H P, the covariance once all is known; no turns."""
        variances, factors, rows = separate(ops, H, R, cov)
        weights = ops.keep([ops.one(d) / d for d in variances])
        for weight, row in zip(weights, rows, strict=True):
            cov = cov - outer(row * weight, row)
        return weights, variances, factors, rows, cov, []


class Roots:
    """Covariances as `tridiag.algorithms.kalman_square_roots.Root`."""

    @staticmethod
    def start(ops: Any, cov: Any) -> Any:
        return kalman_square_roots.root_of(ops, cov)

    @staticmethod
    def whole(ops: Any, cov: Any) -> Any:
        return kalman_square_roots.covariance(ops, cov)

    @staticmethod
    def predict(ops: Any, F: Any, Q: Any, cov: Any) -> Any:
        return kalman_square_roots.predict(ops, F, Q, cov)

    @staticmethod
    def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[Any, ...]:
        variances, factors, rows, cov, turns = kalman_square_roots.observe(ops, H, R, cov)
        return [ops.one(d) / d for d in variances], variances, factors, rows, cov, turns


Form = type[Entries] | type[Roots]


def predict(ops: Any, F: Any, Q: Any, state: Estimate, form: Form = Entries) -> Estimate:
    return ops.keep(Estimate(apply(F, state.mean), form.predict(ops, F, Q, state.cov)))


def observe(
    ops: Any, H: Any, R: Any, y: Any, kept: Any, state: Estimate, form: Form = Entries
) -> tuple[Observed, Estimate]:
    """What a predicted state makes of the observations, and they of it; ``kept``: not missing, None: all."""
    H, R, y = there(ops, H, R, y, kept)
    weights, variances, factors, rows, cov, turns = form.separate(ops, H, R, state.cov)
    errors, loads = reduced(factors, y - apply(H, state.mean)), reduced(factors, H)
    errors, mean = ops.keep(errors), state.mean
    for weight, error, row in zip(weights, errors, rows, strict=True):
        mean = mean + row * weight * error
    return Observed(weights, errors, rows, loads, variances, factors, turns), ops.keep(Estimate(mean, cov))


def there(ops: Any, H: Any, R: Any, y: Any, kept: Any) -> tuple[Any, Any, Any]:
    """H, R and y of what is not missing; what is missing tells nothing of the states, and is 0 with a variance of 1."""
    if kept is None:
        return H, R, y
    both = kept[:, None] & kept[None]
    H, y = ops.where(kept[:, None], H, ops.zero(H)), ops.where(kept, y, ops.zero(y))
    return H, ops.where(both, R, ops.identity(R)), y


def separate(ops: Any, H: Any, R: Any, cov: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """D and L of S = L D L^T, and the rows of L^-1 H P."""
    rows = ops.product(H, cov)
    variances, factors = ops.keep(eliminate(ops, ops.symmetric(ops.product(rows, transpose(H)) + R)))
    return variances, factors, reduced(factors, rows)


def eliminate(ops: Any, S: Any) -> tuple[list[Any], list[Any]]:
    """D and the columns of L below its diagonal, S = L D L^T; NaN where S is not positive definite, or infinite."""
    variances, factors = [], []
    for _ in range(S.shape[0]):
        pivot = kalman_square_roots.positive(ops, S[0, 0])
        factors.append(S[1:, 0] / pivot)
        variances.append(pivot)
        S = S[1:, 1:] - outer(factors[-1], S[0, 1:])
    return variances, factors


def reduced(factors: list[Any], x: Any) -> list[Any]:
    """The rows of L^-1 x."""
    rows = []
    for factor in factors:
        rows.append(x[0])
        x = x[1:] - (factor if factor.ndim == x.ndim else factor[:, None]) * x[0]
    return rows


class Doubt(NamedTuple):
    """Whether covariances that are carried as they stand have lost digits: where ``loss`` is above 0.

    A variance of observations is off by an eps of the largest one that the same observation would have had before;
    ``loss`` is how far one was below an eps**(1/3) of that. The states are those that were predicted a step earlier,
    carried on as if they were independent of each other: then nothing cancels. Those before go on with the states that
    they have become, however long these are not observed.
    """

    spread: Any  # the variances of which those of states carry the rounding errors
    reach: Any  # the largest variances of observations
    loss: Any

    @staticmethod
    def add(ops: Any, doubt: Doubt, H: Any, kept: Any, variances: list[Any]) -> Doubt:
        """Once a step has observed: H of what is there."""
        scales, loss, reach = independent(H, doubt.spread), doubt.loss, []
        share = ops.limits(H)[0] ** (1 / 3)
        for j, variance in enumerate(variances):
            reach.append(larger(ops, scales[j], doubt.reach[j]))
            gap = share * reach[-1] - variance
            gap = gap if kept is None else ops.where(kept[j], gap, loss)
            loss = larger(ops, gap, loss)
        return Doubt(doubt.spread, reach, loss)

    @staticmethod
    def carried(ops: Any, F: Any, Q: Any, spread: Any, before: Any, now: Any) -> list[Any]:
        """The spread a step later, of states that were predicted with variances ``before``, and then ``now``."""
        return Doubt.older(ops, F, Q, spread, before, now, Doubt.moved(F, Q, before))

    @staticmethod
    def moved(F: Any, Q: Any, before: Any) -> list[Any]:
        """The variances with which states are predicted, if those before are independent."""
        found = independent(F, before)
        return [found[i] + Q[i, i] for i in range(len(Q))]

    @staticmethod
    def older(ops: Any, F: Any, Q: Any, spread: Any, before: Any, now: Any, moved: Any) -> list[Any]:
        """The larger of what moved and what is older.

        That has the share in each state that its variance has: no more, so that it does not grow from step to step
        where the parts of a prediction cancel. Where the variance may be nothing but its errors, it has all.
        """
        found = Doubt.moved(F, Q, [larger(ops, x, y) for x, y in zip(spread, before, strict=True)])
        eps = ops.limits(F)[0]
        shares = [ops.where(new > x * eps, y / new, 1.0) for x, y, new in zip(found, now, moved, strict=True)]
        return [larger(ops, x * share, new) for x, share, new in zip(found, shares, moved, strict=True)]


def lost(ops: Any, *covs: Any) -> Any:
    """Above 0 where a variance is so far below that of the covariance before it that its own digits are lost."""
    share, loss = ops.limits(covs[0])[0] ** (1 / 3), None
    for i in range(len(covs[0])):
        for before, after in itertools.pairwise(covs):
            gap = before[i, i] * share - after[i, i]
            loss = gap if loss is None else larger(ops, gap, loss)
    return loss


def larger(ops: Any, x: Any, y: Any) -> Any:
    return ops.where(x > y, x, y)


def diagonal(cov: Any) -> list[Any]:
    return [cov[i, i] for i in range(len(cov))]


def deviance(ops: Any, seen: Observed, kept: Any) -> Any:
    """-2 times the logarithm of the density of the observations; one that is missing counts nothing."""
    total: Any = 0
    for j, (weight, error, variance) in enumerate(zip(seen.weights, seen.errors, seen.variances, strict=True)):
        term = error * error * weight + (ops.log(variance) + LOG_TWO_PI)
        total = total + (term if kept is None else ops.where(kept[j], term, ops.zero(variance)))
    return total


def likelihoods(ops: Any, model: Model, y: Any, kept: Any, predicted: Estimate) -> Any:
    """The log-likelihood of every step from the states predicted for it."""
    seen = all_observed(ops, model, y, kept, predicted)
    return -deviance(ops, seen, None if kept is None else behind(ops, kept)) / 2


def all_observed(ops: Any, model: Model, y: Any, kept: Any, predicted: Estimate) -> Observed:
    """The observations of all steps, from the states predicted for them: time is one more of the batch axes, the last.

    Arguments are as they come of `front`.
    """
    H, R, y, *states = (behind(ops, x) for x in (model.H, model.R, y, *predicted))
    return observe(ops, H, R, y, None if kept is None else behind(ops, kept), Estimate(*states))[0]


def behind(ops: Any, x: Any) -> Any:
    return ops.transpose(x, (*range(1, x.ndim), 0))


def total(x: Any) -> Any:
    return added(x[i] for i in range(x.shape[0]))


def front(ops: Any, model: Model, y: Any) -> tuple[Model, Any]:
    """The arrays with time first, then matrices, and batch axes last."""
    batch = y.ndim - 2
    F, H, Q, R, m0, P0 = (turned(ops, x, batch) for x in model)
    if y.shape[batch] == 1:  # F[n-1] and Q[n-1] are not read
        F, Q = ops.zero(F), ops.zero(Q)
    return Model(F, H, Q, R, m0, ops.symmetric(P0)), turned(ops, y, batch)


def turned(ops: Any, x: Any, batch: int) -> Any:
    """With so many first axes last."""
    return ops.transpose(x, (*range(batch, x.ndim), *range(batch)))


def back(ops: Any, x: Any, batch: Any) -> Any:
    """The reverse, and covariances that series share once for each."""
    own = x.ndim - len(batch)
    x = ops.broadcast(x, (*x.shape[:own], *batch))
    return turned(ops, x, own)


def at(ops: Any, model: Model, t: Any) -> tuple[Any, ...]:
    """F and Q of the step before t, H and R of step t."""
    before = ops.where(t > 0, t - 1, 0)
    return tuple(ops.row(x, i, 0) for x, i in zip(model[:4], (before, t, before, t), strict=True))


class Carried(NamedTuple):
    """What a filter takes from step to step."""

    state: Estimate  # updated
    variances: Any  # as predicted; None with `Roots`
    doubt: Any  # `Doubt`; likewise


def blank(ops: Any, form: StateSpace, y: Any, kept: Any) -> Estimate:
    """Nothing known: zeros, with the batch axes of means and of covariances."""
    k, batch = form.states, form.batch if kept is not None else form.cov_batch
    return Estimate(ops.full((k, *form.batch), 0, y), ops.full((k, k, *batch), 0, y))


def begin(ops: Any, form: StateSpace, y: Any, kept: Any, covs: Form) -> Carried:
    """Before the first step."""
    state = blank(ops, form, y, kept)
    batch = state.cov.shape[2:]
    if covs is Roots:
        columns = [ops.full((form.states - 1 - j, *batch), 0, y) for j in range(form.states)]
        weights = [ops.full(batch, 0, y) for _ in columns]
        return Carried(Estimate(state.mean, kalman_square_roots.Root(columns, weights)), None, None)
    none = ops.full(batch, 0, y)
    nothing = [none] * form.states
    return Carried(state, nothing, Doubt(nothing, [none] * form.observed, none))


def doubtful(ops: Any, carried: Carried, deviance: Any) -> Any:
    """Whether digits may be lost, or a series is NaN."""
    lost = ops.any(deviance != deviance)
    return lost if carried.doubt is None else lost | ops.any(carried.doubt.loss > 0)


class Step(NamedTuple):
    """What a filter finds in a step."""

    predicted: Estimate
    updated: Estimate
    seen: Any  # `Observed`


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
        spread = chosen(ops, t > 0, Doubt.carried(ops, F, Q, doubt.spread, variances, now), diagonal(model.P0))
        sight = H if kept is None else ops.where(kept[:, None], H, ops.zero(H))
        doubt = ops.keep(Doubt.add(ops, doubt._replace(spread=spread), sight, kept, seen.variances))
        variances = now
    return Carried(updated, variances, doubt), Step(predicted, updated, seen), deviance(ops, seen, kept)


def chosen(ops: Any, condition: Any, x: Any, y: Any) -> Any:
    """The one or the other, of arrays or of tuples and lists of them."""
    if not isinstance(x, (tuple, list)):
        return ops.where(condition, x, y)
    made = [chosen(ops, condition, *pair) for pair in zip(x, y, strict=True)]
    return type(x)(*made) if hasattr(x, "_fields") else type(x)(made)
