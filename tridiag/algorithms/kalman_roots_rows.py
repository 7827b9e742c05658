"""How filtered and smoothed states change, in loops over the steps, for libraries whose arrays are computed at once.

States are those of square roots of covariances (`tridiag.algorithms.kalman_changes`). Arrays are as in
`tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms import kalman_changes, kalman_columns, kalman_filter, kalman_loops
from tridiag.algorithms.kalman_changes import Filtered, Smoothed, Spread
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.kalman_loops import Roots
from tridiag.problems.state_space import SMOOTHER, Model, StateSpace


class Found(NamedTuple):
    """The states of all steps; no smoothed ones where only a filter is wanted."""

    filtered: list[Filtered]
    smoothed: list[Smoothed]


def states(ops: Any, verb: str, y: Any, model: Model, kept: Any, form: StateSpace) -> Found:
    """What a filter or a smoother finds."""
    carried, steps = kalman_loops.begin(ops, form, y, kept, Roots), []
    for t in range(form.n):
        carried, step, _ = kalman_loops.forward(ops, model, y, kept, t, carried, Roots)
        steps.append(step)
    filtered = []
    for t, step in enumerate(steps):
        F, _, Q, _ = kalman_filter.at(ops, model, t)
        back = kalman_columns.gain_back(ops, F, Q, steps[t - 1].updated.cov) if t else ops.zero(F)
        predicted, updated = (Estimate(x.mean, Roots.whole(ops, x.cov)) for x in (step.predicted, step.updated))
        filtered.append(Filtered(predicted, updated, step.seen, back))
    return Found(filtered, smoothed(ops, model, steps) if verb == SMOOTHER else [])


def smoothed(ops: Any, model: Model, steps: list[kalman_loops.Step]) -> list[Smoothed]:
    """The smoothed states of all steps."""
    later, gain = kalman_loops.unmoved(ops, steps[-1].updated), None
    found: list[Smoothed] = []
    for t in reversed(range(len(steps))):
        updated = steps[t].updated
        if t < len(steps) - 1:
            F, Q = (ops.row(x, t, 0) for x in (model.F, model.Q))
            gain, later = kalman_loops.smooth(ops, F, Q, updated, steps[t + 1].seen, later)
        mean = kalman_loops.moved(ops, updated, later).mean
        cov = kalman_columns.covariance(ops, later.cov)
        found.insert(0, Smoothed(mean, updated.cov.parts, cov, steps[t].seen.turn, gain))
    return found


def changes(ops: Any, form: StateSpace, model: Model, kept: Any, found: Found, y: Any, change: Model) -> Any:
    """Those of what a filter or a smoother returns, from those of y and of the model: states and log-likelihoods."""
    spreads: list[Spread] = []
    filtered, predicted, logarithm = [], [], ops.full(form.batch, 0, y)
    for t, step in enumerate(found.filtered):
        now = kalman_changes.own(ops, change, y, kept, t)
        if t:
            moved = now._replace(F=kalman_filter.at(ops, model, t)[0])
            state = kalman_changes.predicted(ops, moved, step, found.filtered[t - 1].updated, now, spreads[-1])
        else:
            state = Spread(change.m0, ops.symmetric(change.P0), ops.zero(change.P0))
        predicted.append(state.of(ops, step.predicted.cov))
        state, more = kalman_changes.updated(ops, step, now, state)
        filtered.append(state.of(ops, step.updated.cov))
        spreads.append(state)
        logarithm = logarithm + more
    if not found.smoothed:
        return filtered, predicted, logarithm
    return backward(ops, model, kept, found, spreads, y, change), logarithm


def backward(
    ops: Any, model: Model, kept: Any, found: Found, spreads: list[Spread], y: Any, change: Model
) -> list[Estimate]:
    """Those of smoothed states, from those of the updated ones."""
    states: list[Estimate] = []
    last = found.smoothed[-1]
    later = kalman_changes.nothing_later(ops.zero(last.mean), ops.zero(last.cov))
    for t in reversed(range(len(spreads))):
        if t < len(spreads) - 1:
            now = kalman_changes.own(ops, change, y, kept, t + 1)
            behind = kalman_changes.before_observations(ops, found.filtered[t + 1], found.smoothed[t + 1], now, later)
            F = ops.row(model.F, t, 0)
            later = kalman_changes.carried_back(ops, F, found.smoothed[t], now, behind)
        mean = found.filtered[t].updated.mean
        states.insert(0, kalman_changes.smoothed(ops, mean, found.smoothed[t], spreads[t], later))
    return states
