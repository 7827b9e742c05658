"""Kalman filters and smoothers for JAX of which some states begin with an infinite variance.

The first steps, as many as are expected to tell all states, are those of `tridiag.algorithms.kalman_diffuse`; what is
left of the series is a model as any other, unless in some series a state is still unknown, or hardly known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_augmented, kalman_diffuse, kalman_filter
from tridiag.algorithms.kalman_diffuse import Diffuse, Step
from tridiag.algorithms.kalman_rows import Run, ahead, estimated, remaining
from tridiag.algorithms.kalman_scan import anywhere
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike, whole_along
from tridiag.problems.state_space import FILTER, LIKELIHOOD, SMOOTHER, Model, StateSpace

Check = Callable[[Model, StateSpace], Model]


def from_diffuse(verb: str, y: Any, model: Model, form: StateSpace, rest: Run, check: Check) -> Any:
    """The results of a verb; ``rest`` knows other models, ``check`` makes invalid covariances NaN."""
    y, model = vary_alike(with_all_steps(y, model, form))
    *found, likelihood, unseen = filtered(verb, y, model, form, rest, check)
    if verb == SMOOTHER:
        found = [*kalman_augmented.smoother(ops, y, model, form, rest, unseen, likelihood, repeated)]
    return (*found, likelihood) if found else likelihood


def with_all_steps(y: Any, model: Model, form: StateSpace) -> tuple[Any, Model]:
    """Arrays whose types say that devices have some of their steps, gathered: loops take one step after the other."""
    found: tuple[Any, Model] = jax.tree.map(lambda x: whole_along(x, len(form.batch)), (y, model))
    return found


def repeated(step: Any, state: Any, n: int) -> Any:
    """What ``step(state, t)`` gives of every step beside the state."""
    return lax.scan(step, state, jnp.arange(n, dtype=jnp.int32))[1]


class Progress(NamedTuple):
    """What is carried over the steps."""

    predicted: Diffuse
    deviance: Any
    ended: Any  # whether what is left of all series is a model as any other


def filtered(verb: str, y: Any, model: Model, form: StateSpace, rest: Run, check: Check) -> tuple[Any, ...]:
    """What a filter returns, of other verbs the log-likelihood alone; then what no observation has seen."""
    turned, values = kalman_filter.front(ops, model, y)
    kept = values == values if form.missing is not False else None
    first = kalman_diffuse.start(ops, turned, form, kalman_diffuse.blank(ops, form, values, kept))
    if not form.checked:
        known = turned._replace(P0=kalman_diffuse.known_in(ops, turned.P0))
        first = first._replace(mean=first.mean + 0 * check(known, form).P0[0])  # or NaN
    count = min(form.n, len(form.diffuse) if form.missing is False else 2 * form.states)

    def step(progress: Progress, t: Any) -> tuple[Progress, Any]:
        found, more = kalman_diffuse.forward(ops, turned, values, kept, t, progress.predicted)
        behind = lax.cond(t < form.n - 1, lambda state: ahead(ops, turned, state, t + 1), same, found.updated)
        progress = progress._replace(predicted=behind, deviance=progress.deviance + more)
        return progress, more if form.each_step else states_of(found) if verb == FILTER else None

    begun, _ = vary_alike((Progress(first, jnp.zeros(form.batch, values.dtype), jnp.asarray(False)), values))
    begun = begun._replace(ended=jnp.asarray(False))
    last, steps = by_stretches(step, begun, count, form)
    likelihood = -last.deviance / 2
    if form.each_step:
        return kalman_filter.back(ops, -steps / 2, form.batch), last.predicted.source
    states = [] if steps is None else [kalman_filter.back(ops, x, form.batch) for x in steps]
    if count == form.n:
        return *states, likelihood, last.predicted.source

    def as_any_other() -> tuple[Any, ...]:
        part = FILTER if verb == FILTER else LIKELIHOOD
        later = rest(part, *remaining(ops, y, model, form, count, estimated(ops, last.predicted)))
        *after, more = later if verb == FILTER else (later,)
        axis = len(form.batch)
        before = (lax.slice_in_dim(x, 0, count, axis=axis) for x in states)
        return *(jnp.concatenate(pair, axis) for pair in zip(before, after, strict=True)), likelihood + more

    found = lax.cond(last.ended, as_any_other, lambda: (*states, likelihood))
    return *found, last.predicted.source


def by_stretches(step: Callable[..., Any], begun: Progress, count: int, form: StateSpace) -> tuple[Progress, Any]:
    """All steps, ``count`` at a time, or only so many where they tell all; what they found, stacked.

    The program has one text of a step, and one of its derivative, which computes a stretch again.
    """

    def stretch(progress: Progress, start: Any) -> tuple[Progress, Any]:
        def within(progress: Progress, t: Any) -> tuple[Progress, Any]:
            return lax.cond(t < form.n, step, nothing, progress, t)

        return lax.scan(within, progress, start + jnp.arange(count, dtype=jnp.int32))

    def nothing(progress: Progress, t: Any) -> tuple[Progress, Any]:
        return progress, zeros_of(step, progress, t)

    def none(progress: Progress, start: Any) -> tuple[Progress, Any]:
        return progress, zeros_of(stretch, progress, start)

    def some(progress: Progress, start: Any) -> tuple[Progress, Any]:
        progress, found = lax.cond(progress.ended, none, jax.checkpoint(stretch), progress, start)
        if count < form.n and not form.each_step:
            progress = progress._replace(ended=lax.cond(start == 0, is_told, lambda now: now.ended, progress))
        return progress, found

    last, found = lax.scan(some, begun, jnp.arange(0, form.n, count, dtype=jnp.int32))
    return last, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: form.n], found)


def is_told(progress: Progress) -> Any:
    """Whether nothing is unknown in any series, and no covariance would lose digits as it stands."""
    state = progress.predicted
    return anywhere(kalman_diffuse.is_known(ops, state) & kalman_diffuse.is_settled(ops, state))


def zeros_of(function: Callable[..., Any], *given: Any) -> Any:
    """In place of what a function would find beside its state."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *given)[1])


def same(x: Any) -> Any:
    return x


def states_of(step: Step) -> tuple[Any, ...]:
    """Means and covariances, updated and predicted."""
    pairs = ((part.mean, kalman_diffuse.whole(ops, part)) for part in (step.updated, step.predicted))
    return tuple(itertools.chain(*pairs))
