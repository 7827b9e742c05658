"""Kalman filters and smoothers in loops over the steps, for libraries whose arrays are computed at once.

Arrays are as in `tridiag.algorithms.kalman_filter`, but those of the functions for whole series, `run` and
`from_diffuse`: these are as a caller has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms import (
    kalman_adjoint,
    kalman_augmented,
    kalman_diffuse,
    kalman_filter,
    kalman_smoother,
    kalman_square_roots,
)
from tridiag.algorithms.kalman_adjoint import Record, Shrinking
from tridiag.algorithms.kalman_filter import Carried, Entries, Estimate, Form, Roots, Step
from tridiag.problems.state_space import FILTER, LIKELIHOOD, MATRICES, SMOOTHER, Model, StateSpace

Run = Callable[[str, Any, Model, StateSpace], Any]
MOST = 8  # how many times as many columns as states a covariance may have meanwhile
PATIENCE = 4  # how many steps more, times the number of states, are taken one by one where some states are hardly known


def run(ops: Any, verb: str, y: Any, model: Model, form: StateSpace, again: Callable[..., Any] | None = None) -> Any:
    """The results of a verb; where covariances as they stand would lose digits, all series again with square roots.

    ``again``: what does so in place of `by_roots`.
    """
    model, y = kalman_filter.front(ops, model, y)
    kept = y == y if form.missing is not False else None
    result, doubtful = by_entries(ops, verb, model, y, kept, form)
    return (again or by_roots)(ops, verb, model, y, kept, form) if doubtful else result


def by_entries(ops: Any, verb: str, model: Model, y: Any, kept: Any, form: StateSpace) -> tuple[Any, bool]:
    """The result from covariances as they stand, and whether digits may be lost."""
    steps, deviance, doubtful = forward(ops, model, y, kept, form, Entries)
    if doubtful or verb == LIKELIHOOD:
        return -deviance / 2, doubtful
    smoothed = backward(ops, model, y, kept, form, steps) if verb == SMOOTHER else [None] * form.n
    for (predicted, updated, _), state in zip(steps, smoothed, strict=True):
        covs = predicted.cov, updated.cov, *([state.cov] if state else [])
        doubtful |= bool(ops.any(kalman_filter.lost(ops, *covs) > 0))
    if verb == FILTER:
        return collected(ops, steps, deviance, form, Entries), doubtful
    return (*stacked(ops, smoothed, form), -deviance / 2), doubtful


def by_roots(ops: Any, verb: str, model: Model, y: Any, kept: Any, form: StateSpace) -> Any:
    """The result from square roots of covariances."""
    steps, deviance, _ = forward(ops, model, y, kept, form, Roots)
    if verb == LIKELIHOOD:
        return -deviance / 2
    if verb == FILTER:
        return collected(ops, steps, deviance, form, Roots)
    later, smoothed = kalman_smoother.unmoved(ops, steps[-1].updated), []
    for t in reversed(range(form.n)):
        if t < form.n - 1:
            F, Q = (ops.row(x, t, 0) for x in (model.F, model.Q))
            later = kalman_smoother.smooth(ops, F, Q, steps[t].updated, later)
        smoothed.append(kalman_smoother.moved(ops, steps[t].updated, later))
        later = kalman_smoother.before_observations(ops, steps[t].seen, later)
    return *stacked(ops, smoothed[::-1], form), -deviance / 2


def collected(ops: Any, steps: list[Step], deviance: Any, form: StateSpace, covs: Form) -> tuple[Any, ...]:
    """What a filter returns."""
    updated, predicted = (
        [whole(ops, covs, getattr(step, name)) for step in steps] for name in ("updated", "predicted")
    )
    return *stacked(ops, updated, form), *stacked(ops, predicted, form), -deviance / 2


def forward(ops: Any, model: Model, y: Any, kept: Any, form: StateSpace, covs: Form) -> tuple[list[Step], Any, bool]:
    """The states of every step, -2 times the log-likelihood, and whether digits may be lost."""
    carried: Carried = kalman_filter.begin(ops, form, y, kept, covs)
    steps, deviance = [], ops.full(form.batch, 0, y)
    for t in range(form.n):
        carried, step, more = kalman_filter.forward(ops, model, y, kept, t, carried, covs)
        steps.append(step)
        deviance = deviance + more
    return steps, deviance, bool(kalman_filter.doubtful(ops, carried, deviance))


def backward(ops: Any, model: Model, y: Any, kept: Any, form: StateSpace, steps: list[Step]) -> list[Any]:
    """The smoothed state of every step."""
    ahead, smoothed = kalman_filter.blank(ops, form, y, kept), []
    for t in reversed(range(form.n)):
        state, ahead = kalman_smoother.backward(ops, model, y, kept, t, steps[t][:2], ahead)
        smoothed.append(state)
    return smoothed[::-1]


def whole(ops: Any, covs: Form, state: Estimate) -> Estimate:
    return Estimate(state.mean, covs.whole(ops, state.cov))


def stacked(ops: Any, states: Any, form: StateSpace) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    return tuple(kalman_filter.back(ops, ops.stack(parts), form.batch) for parts in zip(*states, strict=True))


# ------------------------------------------------------------------------------------------------------------ gradient


def gradient(ops: Any, y: Any, model: Model, form: StateSpace, weight: Any) -> tuple[Any, Model]:
    """Of the sum of all log-likelihoods, each times its weight, in y and in the model."""
    turned, values = kalman_filter.front(ops, model, y)
    kept = values == values if form.missing is not False else None
    covs: Form = Entries
    steps, _, doubtful = forward(ops, turned, values, kept, form, covs)
    if doubtful:
        covs = Roots
        steps, _, _ = forward(ops, turned, values, kept, form, covs)
    count = len(form.batch)
    batches = Model(*(tuple(x.shape[x.ndim - count :]) for x in turned))
    ahead = kalman_filter.blank(ops, form, values, kept)
    behind = Shrinking(*ahead) if covs is Roots else None
    found: dict[str, list[Any]] = {name: [] for name in (*MATRICES, "y")}
    for t in reversed(range(form.n)):
        F, Q = ((ops.zero if t == form.n - 1 else unchanged)(ops.row(x, t, 0)) for x in (turned.F, turned.Q))
        record = Record(steps[t].updated, steps[t].seen)
        if covs is Roots:
            gain = kalman_square_roots.gain_back(ops, F, Q, record.updated.cov)
            record = record._replace(updated=Estimate(record.updated.mean, gain))
        known = None if kept is None else ops.row(kept, t, 0)
        H, R = (ops.row(x, t, 0) for x in (turned.H, turned.R))
        parts, ahead, behind = kalman_adjoint.derivatives(ops, F, H, R, known, record, ahead, behind, weight, batches)
        for name, x in parts.items():
            found[name].insert(0, x)
    of_y = kalman_adjoint.gathered(ops.stack(found.pop("y")), tuple(values.shape[2:]))
    of_model = kalman_adjoint.of_first(ops, ahead, weight, batches)
    for name, x in found.items():
        changes = len(getattr(turned, name)) == form.n
        of_model[name] = ops.stack(x) if changes else kalman_filter.added(x)[None]
    outside = {name: kalman_filter.back(ops, x, x.shape[x.ndim - count :]) for name, x in of_model.items()}
    return kalman_filter.back(ops, of_y, of_y.shape[of_y.ndim - count :]), Model(**outside)


def unchanged(x: Any) -> Any:
    return x


# ------------------------------------------------------------------------------------- states of which nothing is known


class Begun(NamedTuple):
    """The first steps of series of which some states are unknown, until none is, and none is hardly known."""

    likelihoods: Any  # of each step, time last
    states: list[Any]  # what a filter returns of them, if that is wanted
    following: tuple[Any, Any] | None  # mean and covariance predicted for the step behind them; None: there is none
    source: Any  # what no observation has seen


def from_diffuse(
    ops: Any,
    verb: str,
    y: Any,
    model: Model,
    form: StateSpace,
    rest: Run,
    begin: Callable[..., Begun] | None = None,
    smooth: kalman_augmented.Smooth | None = None,
) -> Any:
    """The results of a verb for a model some of whose variances in P0 are infinite.

    Step by step, by ``begin(verb, y, model, form)`` if that is given; then what is left of the series by ``rest``.
    ``smooth``: as in `kalman_augmented.smoother`.
    """
    begun = first_steps(ops, verb, y, model, form) if begin is None else begin(verb, y, model, form)
    if form.each_step:
        return begun.likelihoods
    likelihood, found, count = begun.likelihoods.sum(-1), begun.states, begun.likelihoods.shape[-1]
    if begun.following is not None:
        part = FILTER if verb == FILTER else LIKELIHOOD
        later = rest(part, *remaining(ops, y, model, form, count, begun.following))
        *states, more = later if verb == FILTER else (later,)
        axis = len(form.batch)
        found = [ops.concatenate(pair, axis) for pair in zip(found, states, strict=True)]
        likelihood = likelihood + more
    if verb == SMOOTHER:
        repeat = functools.partial(repeated, ops)
        found = [*kalman_augmented.smoother(ops, y, model, form, rest, begun.source, likelihood, repeat, smooth)]
    return likelihood if verb == LIKELIHOOD else (*found, likelihood)


def first_steps(ops: Any, verb: str, y: Any, model: Model, form: StateSpace) -> Begun:
    """Those of all series at once."""
    turned, values = kalman_filter.front(ops, model, y)
    kept = values == values if form.missing is not False else None
    steps, deviances = diffuse_forward(ops, turned, values, kept, form)
    likelihoods, count, last = kalman_filter.back(ops, -ops.stack(deviances) / 2, form.batch), len(steps), steps[-1]
    following = None if count == form.n else estimated(ops, ahead(ops, turned, last.updated, count))
    return Begun(
        likelihoods, diffuse_states(ops, steps, form) if verb == FILTER else [], following, last.updated.source
    )


def estimated(ops: Any, state: kalman_diffuse.Diffuse) -> tuple[Any, Any]:
    """The mean and the covariance of a state that is known, batch axes first."""
    cov = kalman_diffuse.finite(ops, state)
    mean, cov = (kalman_filter.back(ops, x, x.shape[own:]) for x, own in ((state.mean, 1), (cov, 2)))
    return mean, cov


def repeated(ops: Any, step: Any, state: Any, n: int) -> Any:
    """What ``step(state, t)`` gives of every step beside the state; None where the first state is 0."""
    if not bool(ops.any(state != 0)):
        return None
    found = []
    for t in range(n):
        state, x = step(state, t)
        found.append(x)
    return ops.stack(found)


def diffuse_forward(
    ops: Any, model: Model, y: Any, kept: Any, form: StateSpace
) -> tuple[list[kalman_diffuse.Step], list[Any]]:
    """The states of steps until nothing is unknown, or of all, and -2 times their log-likelihoods."""
    deviances, steps, patience = [], [], PATIENCE * form.states
    predicted = kalman_diffuse.start(ops, model, form, kalman_diffuse.blank(ops, form, y, kept))
    for t in range(form.n):
        step, more = kalman_diffuse.forward(ops, model, y, kept, t, predicted)
        steps.append(step)
        deviances.append(more + ops.full(form.batch, 0, y))
        if t == form.n - 1:
            break
        predicted = ahead(ops, model, step.updated, t + 1, MOST)
        if not form.each_step and bool(kalman_diffuse.is_known(ops, step.updated)):
            patience -= 1
            if not patience or bool(kalman_diffuse.is_settled(ops, predicted)):
                break
    return steps, deviances


def ahead(ops: Any, model: Model, state: kalman_diffuse.Diffuse, t: Any, most: int = 1) -> kalman_diffuse.Diffuse:
    """The state predicted for step t from that of the step before."""
    F, _, Q, _ = kalman_filter.at(ops, model, t)
    return kalman_diffuse.predict(ops, F, Q, state, most)


def diffuse_states(ops: Any, steps: list[kalman_diffuse.Step], form: StateSpace) -> list[Any]:
    found: list[Any] = []
    for name in ("updated", "predicted"):
        states = [getattr(step, name) for step in steps]
        found += stacked(ops, [(x.mean, kalman_diffuse.whole(ops, x)) for x in states], form)
    return found


def remaining(
    ops: Any, y: Any, model: Model, form: StateSpace, count: int, first: tuple[Any, Any]
) -> tuple[Any, Model, StateSpace]:
    """The series from a step on, its model, which begins with the state predicted for it, and their form."""
    (m0, P0), axis, part = first, y.ndim - 2, slice(count, form.n)
    later = {
        name: ops.slice(x, part, axis) if name in MATRICES and x.shape[axis] == form.n > 1 else x
        for name, x in model._asdict().items()
    } | {"m0": m0, "P0": P0}
    left = form._replace(n=form.n - count, diffuse=(), checked=True, cov_batch=tuple(P0.shape[:-2]))
    return ops.slice(y, part, axis), Model(**later), left
