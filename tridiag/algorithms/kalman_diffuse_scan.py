"""Kalman filters and smoothers for JAX of which some states begin with an infinite variance.

The first steps, as many as are expected to tell all states, are those of `tridiag.algorithms.kalman_diffuse`; what is
left of the series is a model as any other, unless in some series a state is still unknown, or hardly known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_augmented, kalman_diffuse, kalman_filter
from tridiag.algorithms.kalman_diffuse import Diffuse, Step
from tridiag.algorithms.kalman_rows import Run, ahead, estimated, remaining
from tridiag.algorithms.kalman_scan import anywhere
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import FILTER, LIKELIHOOD, SMOOTHER, Model, StateSpace

Check = Callable[[Model, StateSpace], Model]


def from_diffuse(verb: str, y: Any, model: Model, form: StateSpace, rest: Run, check: Check) -> Any:
    """The results of a verb; ``rest`` knows other models, ``check`` makes invalid covariances NaN."""
    y, model = vary_alike((y, model))
    *found, likelihood, unseen = filtered(verb, y, model, form, rest, check)
    if verb == SMOOTHER:
        found = [*kalman_augmented.smoother(ops, y, model, form, rest, unseen, likelihood, repeated)]
    return (*found, likelihood) if found else likelihood


def repeated(step: Any, state: Any, n: int) -> Any:
    """What ``step(state, t)`` gives of every step beside the state."""
    return lax.scan(step, state, jnp.arange(n, dtype=jnp.int32))[1]


def filtered(verb: str, y: Any, model: Model, form: StateSpace, rest: Run, check: Check) -> tuple[Any, ...]:
    """What a filter returns, of other verbs the log-likelihood alone; then what no observation has seen."""
    turned, values = kalman_filter.front(ops, model, y)
    kept = values == values if form.missing is not False else None
    state = kalman_diffuse.blank(ops, form, values, kept)
    first = kalman_diffuse.start(ops, turned, form, state)
    if not form.checked:
        known = turned._replace(P0=kalman_diffuse.known_in(ops, turned.P0))
        first = first._replace(mean=first.mean + 0 * check(known, form).P0[0])  # or NaN

    def scan(carry: Any, begin: int, end: int) -> Any:
        def step(carry: Any, t: Any) -> Any:
            state, deviance = carry
            predicted = kalman_filter.chosen(ops, t > 0, ahead(ops, turned, state, t), first)
            found, more = kalman_diffuse.forward(ops, turned, values, kept, t, predicted)
            return (found.updated, deviance + more), more if form.each_step else found if verb == FILTER else None

        return lax.scan(step, carry, jnp.arange(begin, end, dtype=jnp.int32))

    begun, _ = vary_alike(((state, jnp.zeros(form.batch, values.dtype)), values))
    if form.each_step:
        (last, _), deviances = scan(begun, 0, form.n)
        return kalman_filter.back(ops, -deviances / 2, form.batch), last.source
    count = min(form.n, len(form.diffuse) if form.missing is False else 2 * form.states)
    ended, steps = scan(begun, 0, count)
    before = results(form, ended, steps)
    if count == form.n:
        return before
    behind = ahead(ops, turned, ended[0], count)

    def one_by_one() -> tuple[Any, ...]:
        return joined(before, results(form, *scan(ended, count, form.n)), form)

    def as_any_other() -> tuple[Any, ...]:
        part = FILTER if verb == FILTER else LIKELIHOOD
        later = rest(part, *remaining(ops, y, model, form, count, estimated(ops, behind)))
        *states, more = later if verb == FILTER else (later,)
        return joined(before, (*states, before[-2] + more, before[-1]), form)

    settled = kalman_diffuse.is_known(ops, ended[0]) & kalman_diffuse.is_settled(ops, behind)
    return lax.cond(anywhere(settled), as_any_other, one_by_one)


def joined(before: tuple[Any, ...], after: tuple[Any, ...], form: StateSpace) -> tuple[Any, ...]:
    """The results of a series from those of its parts, of which the later one knows the log-likelihood of both."""
    pairs = zip(before[:-2], after[:-2], strict=True)
    return *(jnp.concatenate(pair, len(form.batch)) for pair in pairs), *after[-2:]


def results(form: StateSpace, ended: tuple[Diffuse, Any], steps: Step | None) -> tuple[Any, ...]:
    """States of some steps, if they are wanted, the log-likelihood, and what no observation has seen."""
    state, deviance = ended
    found: list[Any] = []
    for part in () if steps is None else (steps.updated, steps.predicted):
        cov = jax.vmap(lambda x: kalman_diffuse.whole(ops, x))(part)
        found += stacked(form, (part.mean, cov))
    return *found, -deviance / 2, state.source


def stacked(form: StateSpace, states: tuple[Any, Any]) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    return tuple(kalman_filter.back(ops, x, form.batch) for x in states)
