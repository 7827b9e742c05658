"""Filters and smoothers for JAX by square roots of covariances.

Derivatives are those of `tridiag.algorithms.kalman_changes`: square roots themselves are differentiated only where
derivatives are. Arrays are as in `tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_changes, kalman_columns, kalman_filter, kalman_loops, kalman_scan
from tridiag.algorithms.kalman_changes import Filtered, Smoothed, Spread
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.kalman_loops import Roots
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace


class Steps(NamedTuple):
    """What a filter finds in all steps."""

    predicted: Estimate  # covariances as they stand
    updated: Estimate  # of columns
    seen: kalman_loops.Observed


class Back(NamedTuple):
    """What a smoother finds beside the smoothed states."""

    coordinates: Any  # columns of the covariance of those of each state
    gains: Any  # from those of the next state


def run(form: StateSpace, y: Any, model: Model, kept: Any) -> tuple[Any, Steps]:
    """The log-likelihoods, and what is found in all steps."""

    def keep(step: kalman_loops.Step) -> Steps:
        return Steps(kalman_scan.whole(Roots, step.predicted), step.updated, step.seen)

    logarithm, steps, _ = kalman_scan.run(form, y, model, kept, keep, Roots)
    return logarithm, steps


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def filtered(form: StateSpace, y: Any, model: Model, kept: Any) -> tuple[Estimate, Estimate, Any]:
    """The updated and the predicted states of all steps, and the log-likelihoods."""
    logarithm, steps = run(form, y, model, kept)
    return entries(steps.updated), steps.predicted, logarithm


@filtered.defjvp
def change_of_filtered(form: StateSpace, primals: Any, tangents: Any) -> tuple[Any, Any]:
    y, model, kept = primals
    logarithm, steps = run(form, y, model, kept)
    updated = entries(steps.updated)
    found = of_steps(form, model, updated, steps)
    changes = forward(form, model, kept, found, *tangents[:2])
    values = updated, steps.predicted, logarithm
    return values, alike((changes.updated, changes.predicted, changes.logarithm), values)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def smoothed(form: StateSpace, y: Any, model: Model, kept: Any) -> tuple[Estimate, Any]:
    """The smoothed states of all steps, and the log-likelihoods."""
    logarithm, steps = run(form, y, model, kept)
    return back(form, model, steps)[0], logarithm


@smoothed.defjvp
def change_of_smoothed(form: StateSpace, primals: Any, tangents: Any) -> tuple[Any, Any]:
    y, model, kept = primals
    logarithm, steps = run(form, y, model, kept)
    found, more = back(form, model, steps)
    filtered = of_steps(form, model, entries(steps.updated), steps)
    changes = forward(form, model, kept, filtered, *tangents[:2])
    states = backward(form, model, kept, filtered, steps, found, more, changes.states, *tangents[:2])
    return (found, logarithm), alike((states, changes.logarithm), (found, logarithm))


def alike(changes: Any, values: Any) -> Any:
    """Changes in the shapes and dtypes of the values that change."""
    return jax.tree.map(lambda x, like: jnp.broadcast_to(x, like.shape).astype(like.dtype), changes, values)


def entries(state: Estimate) -> Estimate:
    """The states of all steps, with covariances as they stand."""
    return Estimate(state.mean, lax.map(lambda columns: Roots.whole(ops, columns), state.cov))


def back(form: StateSpace, model: Model, steps: Steps) -> tuple[Estimate, Back]:
    """The smoothed states of all steps."""
    last = jax.tree.map(lambda x: x[-1], steps.updated)
    start = kalman_loops.unmoved(ops, last)
    end = jax.tree.map(lambda x: x[None], (kalman_loops.moved(ops, last, start), start.cov))
    if form.n == 1:
        return end[0], Back(end[1], None)

    def up(later: Estimate, row: Any) -> Any:
        t, state, seen = row
        gain, found = kalman_loops.smooth(ops, ops.row(model.F, t, 0), ops.row(model.Q, t, 0), state, seen, later)
        return found, ((kalman_loops.moved(ops, state, found), found.cov), gain)

    numbers = jnp.arange(form.n - 1, dtype=jnp.int32)
    before, behind = jax.tree.map(lambda x: x[:-1], steps.updated), jax.tree.map(lambda x: x[1:], steps.seen)
    _, (found, gains) = lax.scan(up, start, (numbers, before, behind), reverse=True)
    states, coordinates = jax.tree.map(lambda *pair: jnp.concatenate(pair), found, end)
    return states, Back(coordinates, gains)


# ------------------------------------------------------------------------------------------------------------- changes


class Changes(NamedTuple):
    """Those of all steps."""

    updated: Estimate
    predicted: Estimate
    states: Spread  # of the updated ones
    logarithm: Any


def of_steps(form: StateSpace, model: Model, updated: Estimate, steps: Steps) -> Filtered:
    """What a filter has found, with the gains with which states follow from the next ones."""
    gains = kalman_scan.gains(form, model, steps.updated.cov)
    gains = jnp.concatenate((jnp.zeros_like(gains[:1]), gains[:-1]))
    return Filtered(steps.predicted, updated, steps.seen, gains)


def forward(form: StateSpace, model: Model, kept: Any, found: Filtered, dy: Any, change: Model) -> Changes:
    """From those of y and of the model."""

    def down(state: Spread, row: Any) -> Any:
        t, step, before = row
        now = kalman_changes.own(ops, change, dy, kept, t)
        first = Spread(change.m0, ops.symmetric(change.P0), jnp.zeros_like(state.Theta))
        F = kalman_filter.at(ops, model, t)[0]
        moved = kalman_changes.predicted(ops, now._replace(F=F), step, before, now, state)
        predicted = jax.tree.map(lambda x, y: jnp.where(t > 0, x, y), moved, first)
        state, likelihood = kalman_changes.updated(ops, step, now, predicted)
        of_states = state.of(ops, step.updated.cov), predicted.of(ops, step.predicted.cov)
        return state, (*of_states, state, jnp.broadcast_to(likelihood, form.batch))

    before = jax.tree.map(lambda x: jnp.concatenate((jnp.zeros_like(x[:1]), x[:-1])), found.updated)
    nothing = kalman_filter.blank(ops, form, dy, kept)
    start, _ = vary_alike((Spread(nothing.mean, nothing.cov, nothing.cov), dy))
    _, (updated, predicted, spreads, likelihoods) = lax.scan(
        down, start, (jnp.arange(form.n, dtype=jnp.int32), found, before)
    )
    return Changes(updated, predicted, spreads, likelihoods.sum(0))


def backward(
    form: StateSpace,
    model: Model,
    kept: Any,
    filtered: Filtered,
    steps: Steps,
    found: Estimate,
    more: Back,
    states: Spread,
    dy: Any,
    change: Model,
) -> Estimate:
    """Of the smoothed states, from those of the updated ones."""
    parts, turn = steps.updated.cov.parts, steps.seen.turn
    cov = lax.map(lambda columns: kalman_columns.covariance(ops, columns), more.coordinates)
    gains = more.gains if form.n > 1 else jnp.zeros_like(cov[:0])
    gains = jnp.concatenate((gains, jnp.zeros_like(cov[:1])))
    every = Smoothed(found.mean, parts, cov, turn, gains)

    def up(later: kalman_changes.Later, row: Any) -> Any:
        t, (step, here), (mean, before, state) = row
        now = kalman_changes.own(ops, change, dy, kept, t + 1)
        behind = kalman_changes.before_observations(ops, step, here, now, later)
        later = kalman_changes.carried_back(ops, ops.row(model.F, t, 0), before, now, behind)
        return later, kalman_changes.smoothed(ops, mean, before, state, later)

    nothing = kalman_changes.nothing_later(*(jnp.zeros_like(x[-1]) for x in (found.mean, found.cov)))
    rows = filtered.updated.mean, every, states
    mean, last, state = jax.tree.map(lambda x: x[-1], rows)
    end: Estimate = jax.tree.map(lambda x: x[None], kalman_changes.smoothed(ops, mean, last, state, nothing))
    if form.n == 1:
        return end
    later, before = jax.tree.map(lambda x: x[1:], (filtered, every)), jax.tree.map(lambda x: x[:-1], rows)
    numbers = jnp.arange(form.n - 1, dtype=jnp.int32)
    start, _ = vary_alike((nothing, dy))
    _, changes = lax.scan(up, start, (numbers, later, before), reverse=True)
    joined: Estimate = jax.tree.map(lambda *pair: jnp.concatenate(pair), changes, end)
    return joined
