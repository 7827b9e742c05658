"""The gradient of a log-likelihood for JAX, as one pass backwards.

With a and P the mean and the covariance predicted for a step, r and (r r^T - N) / 2 are the derivatives in them of all
that is observed from that step on: the quantities of the smoother. Those in the parameters follow by a few products,
with no inverse of R or Q. Where series share their covariances, N is computed once, and only r for each.

Arrays are as in `tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_adjoint, kalman_columns, kalman_filter, kalman_loops
from tridiag.algorithms.kalman_adjoint import Record, Shrinking
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.kalman_loops import Entries, Form, Roots
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_likelihood(form: StateSpace, y: Any, model: Model, kept: Any) -> Any:
    """Of every series; ``kept``: what is not missing, None: all."""
    return forward(form, y, model, kept)[0]


def run(form: StateSpace, y: Any, model: Model, kept: Any, keep: Any, covs: Form = Entries) -> tuple[Any, Any, Any]:
    """The log-likelihoods, what ``keep(step)`` makes of every step, and whether digits may be lost."""

    def step(carry: Any, t: Any) -> Any:
        carried, deviance = carry
        carried, found, more = kalman_loops.forward(ops, model, y, kept, t, carried, covs)
        return (carried, deviance + more), keep(found)

    begun = kalman_loops.begin(ops, form, y, kept, covs), jnp.zeros(form.batch, y.dtype)
    start, _ = vary_alike((begun, y))
    (carried, deviance), steps = lax.scan(step, start, jnp.arange(form.n, dtype=jnp.int32))
    return -deviance / 2, steps, kalman_filter.doubtful(ops, carried, deviance)


def smoothed(form: StateSpace, y: Any, model: Model, kept: Any, steps: Any, ahead: Estimate) -> tuple[Estimate, Any]:
    """The states of all steps given all observations, from those filtered, and whether digits may be lost.

    ``ahead``: what is known behind the last step, as of the state predicted there.
    """

    def up(ahead: Any, row: Any) -> Any:
        t, (predicted, updated) = row
        found, before = kalman_loops.backward(ops, model, y, kept, t, (predicted, updated), ahead)
        return before, (found, kalman_loops.lost(ops, predicted.cov, updated.cov, found.cov))

    start, _ = vary_alike((ahead, y))
    _, (found, loss) = lax.scan(up, start, (jnp.arange(form.n, dtype=jnp.int32), steps), reverse=True)
    return found, jnp.any(loss > 0)


def careful(make: Callable[[Form], tuple[Any, Any]]) -> Any:
    """``make(covs)``: a result and whether it may have lost digits, which is then made of square roots."""
    found, doubtful = make(Entries)
    return lax.cond(anywhere(doubtful), lambda: make(Roots)[0], lambda: found)


@jax.custom_batching.custom_vmap
def anywhere(x: Any) -> Any:
    """One answer for all that `jax.vmap` adds: so a `lax.cond` still runs one side alone."""
    return x


@anywhere.def_vmap
def anywhere_of_all(size: int, is_batched: Any, x: Any) -> tuple[Any, bool]:
    return anywhere(jnp.any(x, 0)), False


def whole(covs: Form, state: Estimate) -> Estimate:
    return Estimate(state.mean, covs.whole(ops, state.cov))


def forward(form: StateSpace, y: Any, model: Model, kept: Any) -> Any:
    def make(covs: Form) -> tuple[Any, Any]:
        def keep(step: kalman_loops.Step) -> Record:
            return Record(step.updated, step.seen._replace(loads=None, turn=None))

        value, records, doubtful = run(form, y, model, kept, keep, covs)
        if covs is Roots:
            mean, roots = records.updated
            records = records._replace(updated=Estimate(mean, gains(form, model, roots)))
        return (value, records, jnp.asarray(covs is Roots)), doubtful

    value, records, by_roots = careful(make)
    return value, (y, model, kept, records, by_roots)


def gains(form: StateSpace, model: Model, roots: Any) -> Any:
    """With which the states of all steps follow from the next ones."""

    def gain(row: Any) -> Any:
        t, root = row
        return kalman_columns.gain_back(ops, read(form, model.F, t), read(form, model.Q, t), root)

    return lax.map(gain, (jnp.arange(form.n, dtype=jnp.int32), roots))


def read(form: StateSpace, x: Any, t: Any) -> Any:
    """F or Q of a step; those of the last are not read."""
    return jnp.where(t == form.n - 1, 0, ops.row(x, t, 0))


def backward(form: StateSpace, residuals: Any, weight: Any) -> Any:
    """Gradients of the sum of all log-likelihoods, each times its weight."""
    y, model, kept, records, by_roots = residuals
    return *lax.cond(
        anywhere(by_roots),
        lambda: differentiated(form, y, model, kept, records, weight, Roots),
        lambda: differentiated(form, y, model, kept, records, weight, Entries),
    ), None


def differentiated(
    form: StateSpace, y: Any, model: Model, kept: Any, records: Record, weight: Any, covs: Form
) -> tuple[Any, Model]:
    n = form.n
    batches = Model(*(x.shape[x.ndim - weight.ndim :] for x in model))
    sums = {name: len(getattr(model, name)) != n for name in ("F", "H", "Q", "R")}  # constant in time

    def step(carry: Any, row: Any) -> Any:
        ahead, behind, totals = carry
        t, record = row
        F, H, R = read(form, model.F, t), ops.row(model.H, t, 0), ops.row(model.R, t, 0)
        known = None if kept is None else ops.row(kept, t, 0)
        record = record._replace(seen=record.seen.listed())
        parts, ahead, behind = kalman_adjoint.derivatives(ops, F, H, R, known, record, ahead, behind, weight, batches)
        found = {name: parts[name] for name in sums}
        totals = {name: totals[name] + found[name] for name in totals}
        return (ahead, behind, totals), ({name: x for name, x in found.items() if name not in totals}, parts["y"])

    totals = {name: jnp.zeros(getattr(model, name).shape[1:], y.dtype) for name, sum_up in sums.items() if sum_up}
    blank = kalman_filter.blank(ops, form, y, kept)
    begun = blank, Shrinking(*blank) if covs is Roots else None, totals
    start, _ = vary_alike((begun, y))
    rows = jnp.arange(n, dtype=jnp.int32), records
    (ahead, _, totals), (changing, of_y) = lax.scan(step, start, rows, reverse=True)
    found = {name: totals[name][None] if sum_up else changing[name] for name, sum_up in sums.items()}
    return kalman_adjoint.gathered(of_y, y.shape[2:]), Model(
        **found, **kalman_adjoint.of_first(ops, ahead, weight, batches)
    )


log_likelihood.defvjp(forward, backward)
