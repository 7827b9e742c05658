"""Kalman filters and smoothers for JAX of which some states begin with an infinite variance.

The first steps, as many as are expected to tell all states, are those of `tridiag.algorithms.kalman_diffuse`; what is
left of the series is a model as any other, unless in some series a state is still unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_diffuse, kalman_filter
from tridiag.algorithms.kalman_diffuse import Diffuse, Step
from tridiag.algorithms.kalman_rows import Run, remaining
from tridiag.algorithms.kalman_scan import anywhere
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import LIKELIHOOD, SMOOTHER, Model, StateSpace

Check = Callable[[Model, StateSpace], Model]


def from_diffuse(verb: str, y: Any, model: Model, form: StateSpace, rest: Run, check: Check) -> Any:
    """The results of a verb; ``rest`` filters what is left, ``check`` makes invalid covariances NaN."""
    turned, values = vary_alike(kalman_filter.front(ops, model, y))
    kept = values == values if form.missing is not False else None
    state = kalman_diffuse.blank(ops, form, values, kept)
    first = kalman_diffuse.start(ops, turned, form, state)
    if not form.checked:
        nothing = 0 * check(turned._replace(P0=first.cov), form).P0  # or NaN
        first = first._replace(mean=first.mean + nothing[0], cov=first.cov + nothing)

    def scan(carry: Any, begin: int, end: int) -> Any:
        def step(carry: Any, t: Any) -> Any:
            state, deviance = carry
            found, more = kalman_diffuse.forward(ops, turned, values, kept, t, first, state)
            return (found.updated, deviance + more), more if form.each_step else found

        return lax.scan(step, carry, jnp.arange(begin, end, dtype=jnp.int32))

    begun, _ = vary_alike(((state, jnp.zeros(form.batch, values.dtype)), values))
    if form.each_step:
        deviances = scan(begun, 0, form.n)[1]
        return kalman_filter.back(ops, -deviances / 2, form.batch)
    if verb == SMOOTHER:
        (_, deviance), steps = scan(begun, 0, form.n)
        return *stacked(form, backward(form, turned, values, kept, steps)), -deviance / 2
    count = min(form.n, len(form.diffuse) if form.missing is False else 2 * form.states)
    ended, steps = scan(begun, 0, count)
    if count == form.n:
        return results(verb, form, ended, steps)

    def one_by_one() -> Any:
        last, later = scan(ended, count, form.n)
        return results(verb, form, last, jax.tree.map(lambda *x: jnp.concatenate(x), steps, later))

    def as_any_other() -> Any:
        later = rest(verb, *remaining(ops, y, model, turned, form, count, ended[0]))
        return joined(results(verb, form, ended, steps), later, len(form.batch))

    return lax.cond(anywhere(kalman_diffuse.is_known(ops, ended[0])), as_any_other, one_by_one)


def joined(before: Any, after: Any, axis: int) -> Any:
    """The results of a series from those of its parts."""
    if not isinstance(before, tuple):
        return before + after
    states = (jnp.concatenate(pair, axis) for pair in zip(before[:-1], after[:-1], strict=True))
    return *states, before[-1] + after[-1]


def results(verb: str, form: StateSpace, ended: tuple[Diffuse, Any], steps: Step) -> Any:
    """What a filter, or a log-likelihood, returns of some steps."""
    likelihood = -ended[1] / 2
    if verb == LIKELIHOOD:
        return likelihood
    covs = [jax.vmap(lambda x: kalman_diffuse.whole(ops, x))(state) for state in (steps.updated, steps.predicted)]
    updated, predicted = (
        stacked(form, (state.mean, cov)) for state, cov in zip((steps.updated, steps.predicted), covs, strict=True)
    )
    return *updated, *predicted, likelihood


def stacked(form: StateSpace, states: tuple[Any, Any]) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    return tuple(kalman_filter.back(ops, x, form.batch) for x in states)


def backward(form: StateSpace, model: Model, y: Any, kept: Any, steps: Step) -> Any:
    """Means and covariances of all steps, once all is known."""

    def up(ahead: Any, row: Any) -> Any:
        t, predicted = row
        found, before = kalman_diffuse.backward(ops, model, y, kept, t, predicted, ahead)
        return before, found

    last = jax.tree.map(lambda x: x[-1], steps.predicted)
    rows = jnp.arange(form.n, dtype=jnp.int32), steps.predicted
    return lax.scan(up, kalman_diffuse.nothing_ahead(ops, last), rows, reverse=True)[1]
