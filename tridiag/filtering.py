"""The steps of a Kalman filter and of its smoother, the same for every array library.

Matrices lie first and batch axes last: the entry P[i, j] is one array over the batch. A covariance that series share
has batch axes of length 1, and so is computed once; the means have the full batch.

The observations of a step are made independent of each other by elimination, S = L D L^T; the rows of L^-1 H P and of
L^-1 v then count one after another. No matrix is inverted, so R = 0 and a singular Q are nothing special.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from tridiag.models import Model

LOG_TWO_PI = 1.8378770664093453


class Observed(NamedTuple):
    """The observations of one step, independent of each other: one entry each in every list."""

    weights: list[Any]  # 1 / the variance
    errors: list[Any]  # what was observed, less what was predicted
    rows: list[Any]  # their covariances with the states
    loads: list[Any]  # their rows of H


class Estimate(NamedTuple):
    mean: Any
    cov: Any


def transpose(x: Any) -> Any:
    return x.swapaxes(0, 1)


def apply(x: Any, vector: Any) -> Any:
    """A matrix times a vector."""
    return added(x[:, j] * vector[j] for j in range(x.shape[1]))


def added(terms: Iterable[Any]) -> Any:
    return functools.reduce(operator.add, terms)


def outer(x: Any, y: Any) -> Any:
    return x[:, None] * y[None]


def predict(ops: Any, F: Any, Q: Any, state: Estimate) -> Estimate:
    cov = ops.product(ops.product(F, state.cov), transpose(F)) + Q
    return ops.keep(Estimate(apply(F, state.mean), ops.symmetric(cov)))


def observe(ops: Any, H: Any, R: Any, y: Any, kept: Any, state: Estimate) -> tuple[Observed, Any]:
    """What a predicted state makes of the observations, and the variances; ``kept``: not missing, None: all."""
    H, R, y = there(ops, H, R, y, kept)
    variances, factors, rows = separate(ops, H, R, state.cov)
    errors, loads = reduced(factors, y - apply(H, state.mean)), reduced(factors, H)
    weights, errors = ops.keep(([ops.one(d) / d for d in variances], errors))
    return Observed(weights, errors, rows, loads), variances


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
    """D and the columns of L below its diagonal, S = L D L^T; NaN where S is not positive definite."""
    variances, factors = [], []
    for _ in range(S.shape[0]):
        pivot = ops.where(S[0, 0] > 0, S[0, 0], ops.nan(S))
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


def update(ops: Any, state: Estimate, seen: Observed) -> Estimate:
    """The state once the observations are known."""
    mean, cov = state
    for weight, error, row in zip(seen.weights, seen.errors, seen.rows, strict=True):
        gain = row * weight
        mean, cov = mean + gain * error, cov - outer(gain, row)
    return ops.keep(Estimate(mean, cov))


def surprise(ops: Any, seen: Observed, variances: list[Any], kept: Any) -> Any:
    """-2 times the logarithm of the density of the observations; one that is missing counts nothing."""
    total: Any = 0
    for j, (weight, error, variance) in enumerate(zip(seen.weights, seen.errors, variances, strict=True)):
        term = error * error * weight + (ops.log(variance) + LOG_TWO_PI)
        total = total + (term if kept is None else ops.where(kept[j], term, ops.zero(variance)))
    return total


def look_back(ops: Any, state: Estimate, ahead: Estimate) -> Estimate:
    """The state once later observations are known too: ``ahead`` is what they add, as of this step."""
    mean = state.mean + apply(state.cov, ahead.mean)
    both = ops.product(state.cov, ahead.cov)
    return Estimate(mean, ops.symmetric(state.cov - ops.product(both, state.cov)))


def collect(ops: Any, seen: Observed, ahead: Estimate) -> Estimate:
    """What the observations of a step add to what later ones do, as of the state predicted for it."""
    pull, told = facts(ops, seen, ahead)
    cov = ops.product(ops.product(pull, ahead.cov), transpose(pull)) + told.cov
    return Estimate(apply(pull, ahead.mean) + told.mean, ops.symmetric(cov))


def facts(ops: Any, seen: Observed, like: Estimate) -> tuple[Any, Estimate]:
    """What of later observations is still news, as a matrix, and what those of a step tell by themselves."""
    pull, mean, cov = ops.identity(like.cov), ops.zero(like.mean), ops.zero(like.cov)
    for weight, error, row, load in zip(seen.weights, seen.errors, seen.rows, seen.loads, strict=True):
        weighted = load * weight
        mean = mean + weighted * error
        pull, cov = pull - outer(weighted, row), cov + outer(weighted, load)
    return pull, Estimate(mean, cov)


def total(x: Any) -> Any:
    return added(x[i] for i in range(x.shape[0]))


def carry_back(ops: Any, F: Any, ahead: Estimate) -> Estimate:
    """What later observations add, as of the step before."""
    turned = transpose(F)
    return Estimate(apply(turned, ahead.mean), ops.product(ops.product(turned, ahead.cov), F))


def returned(ops: Any, factors: list[Any], x: Any) -> Any:
    """L^-T x, of the rows of x."""
    rows: list[Any] = []
    for factor, row in zip(reversed(factors), reversed(list(x)), strict=True):
        for below, found in zip(factor, rows, strict=True):
            row = row - found * below
        rows.insert(0, row)
    return ops.stack(rows)


class CovarianceAdjoint(NamedTuple):
    """What covariances contribute to the derivatives of a log-likelihood in the parameters of a step.

    With r and N as in `tridiag.autodiff.kalman`, those of the step behind it in Q, and all others of the step itself,
    the derivatives are (r r^T - N) / 2 in Q, r x^T - of_F in F, u x^T - of_H in H, (u u^T - of_R) / 2 in R and -u in y,
    where x is the smoothed mean.
    """

    of_F: Any
    of_H: Any
    of_R: Any
    N: Any  # as of the state predicted for the step


class MeanAdjoint(NamedTuple):
    """The same of means."""

    u: Any
    smoothed: Any
    r: Any


def pull_covariance(
    ops: Any, F: Any, H: Any, R: Any, weights: list[Any], factors: list[Any], rows: list[Any], cov: Any, N: Any
) -> CovarianceAdjoint:
    """From N of the step behind it and ``cov``, of the updated state."""
    ahead = ops.product(N, F)
    carried = ops.keep(ops.symmetric(ops.product(transpose(F), ahead)))
    gain = returned(ops, factors, [row * w for w, row in zip(weights, rows, strict=True)])  # S^-1 H P
    lower = ops.stack(reduced(factors, ops.identity(R)))
    precision = ops.product(transpose(lower), ops.stack(weights)[:, None] * lower)  # S^-1
    pull = ops.product(gain, carried)
    spread = precision + ops.product(pull, transpose(gain))
    across = ops.product(transpose(H), pull)
    before = carried - across - transpose(across) + ops.product(ops.product(transpose(H), spread), H)
    return CovarianceAdjoint(ops.product(ahead, cov), gain - ops.product(pull, cov), spread, ops.symmetric(before))


def pull_mean(
    ops: Any, F: Any, H: Any, scaled: list[Any], gains: list[Any], factors: list[Any], state: Estimate, r: Any
) -> MeanAdjoint:
    """From r of the step behind it and the updated state; ``scaled`` errors and ``gains`` are times the weights."""
    carried = ops.keep(apply(transpose(F), r))
    pulled = [error - total(gain * carried) for error, gain in zip(scaled, gains, strict=True)]
    u = ops.keep(returned(ops, factors, pulled))
    return MeanAdjoint(u, ops.keep(state.mean + apply(state.cov, carried)), carried + apply(transpose(H), u))


def front(ops: Any, model: Model, y: Any) -> tuple[Model, Any]:
    """The arrays with time first, then matrices, and batch axes last."""
    batch = y.ndim - 2

    def turned(x: Any) -> Any:
        return ops.transpose(x, (*range(batch, x.ndim), *range(batch)))

    F, H, Q, R, m0, P0 = map(turned, model)
    if y.shape[batch] == 1:  # F[n-1] and Q[n-1] are not read
        F, Q = ops.zero(F), ops.zero(Q)
    return Model(F, H, Q, R, m0, ops.symmetric(P0)), turned(y)


def back(ops: Any, x: Any, batch: Any) -> Any:
    """The reverse, and covariances that series share once for each."""
    own = x.ndim - len(batch)
    x = ops.broadcast(x, (*x.shape[:own], *batch))
    return ops.transpose(x, (*range(own, x.ndim), *range(own)))


def at(ops: Any, model: Model, t: Any) -> tuple[Any, ...]:
    """F and Q of the step before t, H and R of step t."""
    before = ops.where(t > 0, t - 1, 0)
    return tuple(ops.row(x, i, 0) for x, i in zip(model[:4], (before, t, before, t), strict=True))


def forward(ops: Any, model: Model, y: Any, kept: Any, t: Any, state: Estimate) -> tuple[Estimate, Estimate, Any]:
    """Step t from the state of the step before: predicted, updated, and how little the observations were expected."""
    F, H, Q, R = at(ops, model, t)
    first, moved = Estimate(model.m0, model.P0), predict(ops, F, Q, state)
    predicted = Estimate(*(ops.where(t > 0, x, x0) for x, x0 in zip(moved, first, strict=True)))
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, variances = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    return predicted, update(ops, predicted, seen), surprise(ops, seen, variances, kept)


def backward(
    ops: Any, model: Model, y: Any, kept: Any, t: Any, filtered: tuple[Estimate, Estimate], ahead: Estimate
) -> tuple[Estimate, Estimate]:
    """Step t smoothed, and what is then known ahead of the step before."""
    F, H, _, R = at(ops, model, t)
    predicted, updated = filtered
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, _ = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    return look_back(ops, updated, ahead), carry_back(ops, F, collect(ops, seen, ahead))
