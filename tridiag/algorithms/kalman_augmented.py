"""Smoothed states of models of which some states begin with an infinite variance, by what smooths any other model.

x[0] = (a start that is known) + A[0] delta, where nothing is known of delta: regression coefficients. What is linear in
delta is found by series of the same model, of which 0 is observed, and that begin at a column of A[0]: one smoother of
1 + q series, or of m + q where m series share their covariances and nothing is missing. The errors with which a filter
predicts them are the regressors; those of the observations, independent of each other and with variances that are
known, are regressed on these by weighted Gram-Schmidt, which forms no product of regressors beforehand. Every
observation counts by what it tells in the end, and all that is added up to a covariance is
positive: what the first observations hardly see costs no digits.

The known start has a variance of its own, so that exact observations see something uncertain; any is right.

P. de Jong, Smoothing and interpolation with the state-space model, Journal of the American Statistical Association 84,
1989; B. Rosenberg, Annals of Economic and Social Measurement 2, 1973. Arrays are as a caller has them, but those of
functions that say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_columns, kalman_diffuse, kalman_filter
from tridiag.algorithms.kalman_columns import apply, beside, diagonal
from tridiag.algorithms.kalman_filter import Estimate, larger, transpose, turned
from tridiag.algorithms.kalman_rotations import inverse
from tridiag.algorithms.numbers import finite
from tridiag.problems.state_space import FILTER, SMOOTHER, Model, StateSpace

Verb = Callable[[str, Any, Model, StateSpace], Any]
Smooth = Callable[[Any, Model, StateSpace, Any, Any], tuple[Any, Any]]  # (y, model, form, starts, unseen)
Repeat = Callable[[Callable[[Any, Any], Any], Any, int], Any]  # (step, state, n): what step(state, t) gives beside it


class Fit(NamedTuple):
    """What a regression tells of delta: L^T delta, whose entries are independent of each other."""

    lower: Any  # the columns of L along the first axis
    values: Any  # of every series, along the second one
    variances: Any


def smoother(
    ops: Any,
    y: Any,
    model: Model,
    form: StateSpace,
    by: Verb,
    unseen: Any,
    likelihood: Any,
    repeat: Repeat,
    smooth: Smooth | None = None,
) -> tuple[Any, Any]:
    """Means and covariances of all steps, by ``smooth`` if that is given; ``by`` knows other models.

    ``unseen``: columns, directions of delta of which nothing is observed, the others 0; with batch axes last. What
    has no log-likelihood is NaN.
    """
    alike, batch = shares_regressors(form), form.batch
    if alike:
        form, unseen = form._replace(batch=batch[1:], cov_batch=form.cov_batch[1:]), unseen[:, :, 0]
        y, m = ops.broadcast(y, (batch[0], *y.shape[1:])), batch[0]
    else:
        y, m, model = y[None], 1, Model(*(x[None] for x in model))
    first, _ = kalman_filter.front(ops, Model(*(x[0] for x in model)), y[0])
    starts, known = begun(ops, model, first, form, m)
    if smooth is None:
        mean, cov = regressed(ops, y, model, first, form, by, unseen, starts, known)
    else:
        one = Model(*(x[0] for x in model))._replace(P0=known)
        mean, cov = smooth(y, one, form, starts, kalman_filter.back(ops, unseen, unseen.shape[2:]))
    infinite = unknown(ops, first, form, unseen, repeat)
    if infinite is not None:
        cov = cov + kalman_filter.back(ops, infinite, form.batch)
    valid = (likelihood - likelihood)[..., None, None]  # 0, or NaN
    return (mean if alike else mean[0]) + valid, cov + valid[..., None]


def regressed(
    ops: Any, y: Any, model: Model, first: Model, form: StateSpace, by: Verb, unseen: Any, starts: Any, known: Any
) -> tuple[Any, Any]:
    """Means and covariances, but for what is infinite."""
    m = len(y)
    series, many, wide = augmented(ops, y, model, form, starts, known)
    predicted = by(FILTER, series, many, wide)[2:4]
    fit = regression(ops, series, many, wide, Estimate(*predicted), unseen)
    means, covs = by(SMOOTHER, series, many, wide)[:2]
    rows, n, k = kalman_columns.eliminated(ops, fit.lower, linear(ops, means[m:], form, unseen)), form.n, form.states
    mean = ops.product(transpose(rows), fit.values)
    mean = means[:m] + kalman_filter.back(ops, mean.reshape(n, k, *mean.shape[1:]), (m, *form.batch))
    across = ops.transpose(rows.reshape(-1, n, k, *rows.shape[2:]), (0, 2, 1, *range(3, rows.ndim + 1)))
    cov = ops.symmetric(ops.product(transpose(across * fit.variances[:, None, None]), across))
    return mean, covs[0] + kalman_filter.back(ops, ops.transpose(cov, (2, 0, 1, *range(3, cov.ndim))), form.batch)


def shares_regressors(form: StateSpace) -> bool:
    """Whether series along the first of the batch axes have the same covariances, and nothing is missing."""
    return form.missing is False and len(form.batch) > 0 and form.cov_batch[0] == 1


def begun(ops: Any, model: Model, first: Model, form: StateSpace, m: int) -> tuple[Any, Any]:
    """The means before the first step of m series, and columns of A[0] behind them; their covariance."""
    P0 = first.P0
    which, one = kalman_diffuse.unknown_in(ops, P0), ops.identity(P0)
    known = kalman_diffuse.known_in(ops, P0) + one * ops.where(which, units(ops, first, form), ops.zero(P0[0]))
    starts = ops.take(ops.where(which[:, None], one, ops.zero(P0)), form.diffuse, 1)
    starts = ops.transpose(starts, (1, *range(2, starts.ndim), 0))  # (series, batch, states)
    m0 = ops.join(ops.broadcast(model.m0, (m, *model.m0.shape[1:])), starts)
    return m0, kalman_filter.back(ops, known, known.shape[2:])


def augmented(
    ops: Any, y: Any, model: Model, form: StateSpace, starts: Any, known: Any
) -> tuple[Any, Model, StateSpace]:
    """The series along a first axis, and those of the columns of A[0] after them."""
    count, m = len(form.diffuse), len(y)
    nothing = ops.broadcast(ops.where(y[:1] == y[:1], ops.zero(y[:1]), y[:1]), (count, *y.shape[1:]))
    many = model._replace(m0=starts, P0=known[None])
    wide = form._replace(batch=(m + count, *form.batch), cov_batch=(1, *form.cov_batch), diffuse=(), checked=True)
    wide = wide._replace(missing=form.missing is not False)  # one program, where that is not known
    return ops.concatenate((y, nothing), 0), many, wide


def units(ops: Any, model: Model, form: StateSpace) -> Any:
    """A variance for each state, of about the size that the noise of the observation that sees it best has in it.

    From means over time of squares, in which nothing cancels; 1 where no such noise is seen.
    """
    before = max(form.n - 1, 1)
    F, Q, H, R = model.F[:before], model.Q[:before], model.H, model.R
    F, H, Q, R = (F * F).mean(0), (H * H).mean(0), Q.mean(0), R.mean(0)
    change = diagonal(Q)
    none = ops.zero(H[0] + diagonal(R)[:1] + change + F[0])

    def step(_: Any, state: Any) -> Any:
        noise, sees, found = state
        noise = noise + apply(ops, sees, change)
        told = (sees * inverse(ops, noise)[:, None]).sum(0)
        return noise, ops.product(sees, F), larger(ops, finite(told), found)

    *_, found = ops.repeat(form.states, step, (diagonal(R) + none[:1], H + none[None], none))
    return ops.where(found > 0, inverse(ops, found), ops.one(found))


def regression(ops: Any, series: Any, many: Model, wide: StateSpace, predicted: Estimate, unseen: Any) -> Fit:
    """Of the errors of the observations on those of the columns of A[0]; what is not observed of delta is left out."""
    model, values = kalman_filter.front(ops, many, series)
    kept = values == values if wide.missing is not False else None
    shared = predicted if kept is not None else predicted._replace(cov=predicted.cov[:1])
    states = Estimate(*(turned(ops, x, len(wide.batch)) for x in shared))
    seen = kalman_filter.all_observed(ops, model, values, kept, states)
    errors, weights = (
        ops.concatenate([turned(ops, ops.broadcast(x, (*wide.batch, wide.n)), len(wide.batch)) for x in xs], 0)
        for xs in (seen.errors, seen.weights)
    )  # (observations, series, batch)
    count = len(unseen)
    m = errors.shape[1] - count
    own, weights = -errors[:, m:], weights[:, 0]
    own = own - ops.product(ops.product(own, unseen), transpose(unseen))
    size = (weights[:, None] * own * own).sum(0).sum(0)
    size = ops.where(size > 0, size, ops.one(size))
    none = ops.full((count, m, *unseen.shape[2:]), 0, unseen)
    parts = ops.join(beside(ops, own, errors[:, :m]), beside(ops, transpose(unseen), none))
    weights = ops.join(weights, ops.stack([size] * count))
    parts, weights = kalman_columns.orthogonal(ops, kalman_columns.Columns(parts, weights), count)
    return Fit(parts[:, :count], parts[:, count:], inverse(ops, weights))


def linear(ops: Any, means: Any, form: StateSpace, unseen: Any) -> Any:
    """What states are by delta, but for what is not observed of it: (series, steps times states, batch)."""
    rank = len(form.batch)
    x = ops.transpose(means, (0, rank + 1, rank + 2, *range(1, rank + 1)))
    x = x.reshape(len(x), form.n * form.states, *form.batch)
    return x - ops.product(unseen, ops.product(transpose(unseen), x))


def unknown(ops: Any, model: Model, form: StateSpace, unseen: Any, repeat: Repeat) -> Any:
    """Infinity, or 0, in the covariances of all steps: of what nothing is observed."""
    one = ops.identity(ops.full((form.states, form.states, *unseen.shape[2:]), 0, unseen))
    A = ops.product(ops.take(one, form.diffuse, 1), unseen)
    cov = ops.product(A, ops.zero(transpose(A)))

    def step(A: Any, t: Any) -> tuple[Any, Any]:
        return kalman_diffuse.carried(ops, ops.row(model.F, t, 0), A), kalman_diffuse.infinite(ops, A, cov)

    return repeat(step, A, form.n)
