"""The states of a Kalman filter for JAX, and how they change with its arguments.

The change of an updated covariance is L dP L^T + K dR K^T - C dH^T K^T - K dH C, with the gain K and L = I - K H: that
of K counts nothing, as it is the best one. All that does not depend on the step before is computed for all steps at
once; a scan adds it up. So a program of a derivative has one text for covariances as they stand and for square roots.

Arrays are as in `tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_columns, kalman_loops, kalman_scan
from tridiag.algorithms.kalman_columns import apply
from tridiag.algorithms.kalman_filter import Estimate, there, transpose
from tridiag.algorithms.kalman_loops import Form, Observed
from tridiag.algorithms.kalman_scan import ALL, BUT_LAST, over_time
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace


class Filtered(NamedTuple):
    """The states of all steps."""

    updated: Estimate
    predicted: Estimate
    log_likelihood: Any


class Gains(NamedTuple):
    """What the observations of a step make of a change."""

    gain: Any  # K
    pull: Any  # what is left of a change of the state: I - K H
    precision: Any  # of the observations, S^-1
    u: Any  # S^-1 times their errors
    score: Any  # H^T u
    information: Any  # H^T S^-1 H


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def filtered(form: StateSpace, y: Any, model: Model, kept: Any) -> Filtered:
    """What a filter finds; ``kept``: what is not missing, None: all."""
    return recorded(form, y, model, kept, False)[0]


def recorded(form: StateSpace, y: Any, model: Model, kept: Any, observations: bool) -> tuple[Filtered, Any]:
    """The same, and what was observed in all steps, if that is wanted."""

    def make(covs: Form) -> tuple[Any, Any]:
        def keep(step: kalman_loops.Step) -> Any:
            updated, predicted = (kalman_scan.whole(covs, state) for state in (step.updated, step.predicted))
            seen = step.seen if observations else None
            return updated, predicted, seen, kalman_loops.lost(ops, predicted.cov, updated.cov)

        logarithm, (updated, predicted, seen, loss), doubtful = kalman_scan.run(form, y, model, kept, keep, covs)
        return (Filtered(updated, predicted, logarithm), seen), doubtful | jnp.any(loss > 0)

    found: tuple[Filtered, Any] = kalman_scan.careful(make)
    return found


@filtered.defjvp
def change_of_filtered(form: StateSpace, primals: Any, tangents: Any) -> tuple[Filtered, Filtered]:
    y, model, kept = primals
    found, seen = recorded(form, y, model, kept, True)
    return found, changed(form, model, kept, found, seen, *tangents[:2])


def changed(
    form: StateSpace, model: Model, kept: Any, found: Filtered, seen: Observed, dy: Any, change: Model
) -> Filtered:
    """How the states of all steps change."""
    updated, predicted, _ = found
    gains = over_time(gains_of, [ALL] * 5, model.H, model.R, kept, seen, predicted.cov)
    told, added = over_time(observed, [ALL] * 6, change.H, change.R, dy, kept, gains, updated)
    before = jax.tree.map(lambda x: x[:-1], updated)
    moved = over_time(predicted_change, [BUT_LAST] * 3 + [ALL], model.F, change.F, change.Q, before)
    blank = jax.tree.map(lambda x: jnp.zeros_like(x[0]), predicted)
    first = Estimate(blank.mean + change.m0, blank.cov + change.P0)
    sources = jax.tree.map(lambda x, z: jnp.concatenate((x[None], z)), first, moved)

    def step(state: Estimate, row: Any) -> Any:
        t, source, told, pull, score = row
        F = ops.row(model.F, jnp.maximum(t - 1, 0), 0)
        mean, cov = apply(ops, F, state.mean) + source.mean, both_sides(F, state.cov) + source.cov
        ahead = ops.keep(Estimate(mean, cov))
        mean = apply(ops, pull, ahead.mean + apply(ops, ahead.cov, score)) + told.mean
        state = ops.keep(Estimate(mean, both_sides(pull, ahead.cov) + told.cov))
        return state, (state, ahead)

    start, _ = vary_alike((blank, dy))
    rows = jnp.arange(form.n, dtype=jnp.int32), sources, told, gains.pull, gains.score
    _, (after, ahead) = lax.scan(step, start, rows)
    carried = over_time(of_states, [ALL] * 2, gains, ahead)
    return Filtered(after, ahead, -jnp.sum(added + carried, 0) / 2)


def both_sides(x: Any, cov: Any) -> Any:
    return ops.symmetric(ops.product(ops.product(x, cov), transpose(x)))


def twice(x: Any) -> Any:
    """A matrix and its transpose."""
    return x + transpose(x)


def gains_of(H: Any, R: Any, kept: Any, seen: Observed, cov: Any) -> Gains:
    H, R, _ = there(ops, H, R, H[:, 0], kept)
    lower = kalman_columns.eliminated(ops, seen.factors, ops.identity(R) + ops.zero(seen.factors))
    turned, weights, scaled = transpose(lower), seen.weights[:, None], seen.weights * seen.errors
    rows, loads = transpose(seen.rows * weights), transpose(seen.loads)
    return Gains(
        ops.product(rows, lower),
        ops.identity(cov) - ops.product(rows, seen.loads),
        ops.product(turned, weights * lower),
        apply(ops, turned, scaled),
        apply(ops, loads, scaled),
        ops.product(loads, weights * seen.loads),
    )


def predicted_change(F: Any, dF: Any, dQ: Any, before: Estimate) -> Estimate:
    """What the change of F and Q makes of the state predicted for a step."""
    cov = twice(ops.product(ops.product(dF, before.cov), transpose(F)))
    return Estimate(apply(ops, dF, before.mean), cov + ops.symmetric(dQ))


def observed(dH: Any, dR: Any, dy: Any, kept: Any, gains: Gains, updated: Estimate) -> tuple[Estimate, Any]:
    """What the change of H, R and y makes of an updated state, and of -2 times the log-likelihood."""
    if kept is not None:
        dH, dy = ops.where(kept[:, None], dH, ops.zero(dH)), ops.where(kept, dy, ops.zero(dy))
        dR = ops.where(kept[:, None] & kept[None], dR, ops.zero(dR))
    dR, gain, u = ops.symmetric(dR), gains.gain, gains.u
    error, noise = dy - apply(ops, dH, updated.mean), apply(ops, dR, u)
    mean = apply(ops, gain, error - noise) + apply(ops, updated.cov, apply(ops, transpose(dH), u))
    cov = both_sides(gain, dR) - twice(ops.product(ops.product(gain, dH), updated.cov))
    deviance = 2 * (dH * transpose(gain)).sum((0, 1)) + (gains.precision * dR).sum((0, 1))
    return Estimate(mean, cov), deviance + (u * (2 * error - noise)).sum(0)


def of_states(gains: Gains, ahead: Estimate) -> Any:
    """What the change of a predicted state makes of -2 times the log-likelihood."""
    moved = 2 * ahead.mean + apply(ops, ahead.cov, gains.score)
    return (gains.information * ahead.cov).sum((0, 1)) - (gains.score * moved).sum(0)
