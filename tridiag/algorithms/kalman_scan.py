"""The gradient of a log-likelihood for JAX, as one pass backwards.

With a and P the mean and the covariance predicted for a step, r and (r r^T - N) / 2 are the derivatives in them of all
that is observed from that step on: the quantities of the smoother. Those in the parameters follow by a few products,
with no inverse of R or Q. Where series share their covariances, N is computed once, and only r for each.

Arrays are as in `tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_adjoint, kalman_filter, kalman_smoother, kalman_square_roots
from tridiag.algorithms.kalman_adjoint import Shrinking
from tridiag.algorithms.kalman_filter import Entries, Estimate, Form, Observed, Roots
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace


class Record(NamedTuple):
    """What the way back needs of a step."""

    updated: Estimate  # with `Roots` the gain with which the state follows from the next one is in place of ``cov``
    seen: Observed


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_likelihood(form: StateSpace, y: Any, model: Model, kept: Any) -> Any:
    """Of every series; ``kept``: what is not missing, None: all."""
    return forward(form, y, model, kept)[0]


def run(form: StateSpace, y: Any, model: Model, kept: Any, keep: Any, covs: Form = Entries) -> tuple[Any, Any, Any]:
    """The log-likelihoods, what ``keep(step)`` makes of every step, and whether digits may be lost."""

    def step(carry: Any, t: Any) -> Any:
        carried, deviance = carry
        carried, found, more = kalman_filter.forward(ops, model, y, kept, t, carried, covs)
        return (carried, deviance + more), keep(found)

    begun = kalman_filter.begin(ops, form, y, kept, covs), jnp.zeros(form.batch, y.dtype)
    start, _ = vary_alike((begun, y))
    (carried, deviance), steps = lax.scan(step, start, jnp.arange(form.n, dtype=jnp.int32))
    return -deviance / 2, steps, kalman_filter.doubtful(ops, carried, deviance)


def smoothed(form: StateSpace, y: Any, model: Model, kept: Any, steps: Any, ahead: Estimate) -> tuple[Estimate, Any]:
    """The states of all steps given all observations, from those filtered, and whether digits may be lost.

    ``ahead``: what is known behind the last step, as of the state predicted there.
    """

    def up(ahead: Any, row: Any) -> Any:
        t, (predicted, updated) = row
        found, before = kalman_smoother.backward(ops, model, y, kept, t, (predicted, updated), ahead)
        return before, (found, kalman_filter.lost(ops, predicted.cov, updated.cov, found.cov))

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
        def keep(step: kalman_filter.Step) -> Record:
            return Record(step.updated, step.seen._replace(loads=[]))

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
        return kalman_square_roots.go_back(ops, read(form, model.F, t), read(form, model.Q, t), root).gain

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
        parts, ahead, behind = derivatives(F, H, R, known, record, ahead, behind, weight, batches)
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
    return gathered(of_y, y.shape[2:]), Model(**found, **of_first(ahead, weight, batches))


log_likelihood.defvjp(forward, backward)


def of_first(ahead: Estimate, weight: Any, batches: Model) -> dict[str, Any]:
    """The derivatives in m0 and P0."""
    return {
        "m0": gathered(ahead.mean * weight, batches.m0),
        "P0": of_covariance(ahead, weight, batches.P0),
    }


def derivatives(
    F: Any, H: Any, R: Any, kept: Any, record: Record, ahead: Estimate, behind: Any, weight: Any, batches: Model
) -> tuple[dict[str, Any], Estimate, Any]:
    """Those in F, Q, H, R and y of one step, and r and N as of the state predicted for it; ``behind``: with `Roots`."""
    H, R, _ = kalman_filter.there(ops, H, R, jnp.zeros_like(H[:, 0]), kept)
    (updated, cov_or_gain), seen = record
    scaled, gains = ([x * w for w, x in zip(seen.weights, xs, strict=True)] for xs in (seen.errors, seen.rows))
    mean = kalman_adjoint.pull_mean(ops, F, H, scaled, gains, seen.factors, record.updated, ahead.mean)
    if behind is None:
        cov = kalman_adjoint.pull_covariance(ops, F, H, R, seen, cov_or_gain, ahead.cov)
    else:
        cov, behind = kalman_adjoint.pull_by_roots(ops, F, H, R, seen, updated, cov_or_gain, ahead.cov, behind)
        mean = mean._replace(smoothed=behind.mean)
    parts = {
        "Q": of_covariance(ahead, weight, batches.Q),
        "F": crossed(weight * ahead.mean, mean.smoothed, batches.F) - weighted(cov.of_F, weight, batches.F),
        "R": of_covariance(Estimate(mean.u, cov.of_R), weight, batches.R),
        "H": crossed(weight * mean.u, mean.smoothed, batches.H) - weighted(cov.of_H, weight, batches.H),
        "y": -weight * mean.u,
    }
    if kept is not None:
        parts["R"] = masked_out(mean.u, cov.of_R, kept, weight, batches.R)
    return parts, Estimate(mean.r, cov.N), behind


def masked_out(u: Any, spread: Any, kept: Any, weight: Any, batch: Any) -> Any:
    """The derivative in R where both values were observed."""
    both = kept[:, None] & kept[None]
    return gathered(jnp.where(both, (kalman_filter.outer(u, u) - spread) * weight / 2, 0), batch)


def of_covariance(ahead: Estimate, weight: Any, batch: Any) -> Any:
    """(r r^T - N) / 2."""
    return (crossed(weight * ahead.mean, ahead.mean, batch) - weighted(ahead.cov, weight, batch)) / 2


def crossed(x: Any, y: Any, batch: Any) -> Any:
    """x y^T, summed over the batch axes that a parameter does not have."""
    if any(length != 1 for length in batch):
        return gathered(kalman_filter.outer(x, y), batch)
    x, y = (side.reshape(len(side), -1) for side in (x, y))
    return jnp.einsum("ib,jb->ij", x, y, precision="highest").reshape(len(x), len(y), *batch)


def weighted(x: Any, weight: Any, batch: Any) -> Any:
    """A matrix for each series, or one for all, times the weights, summed likewise."""
    own = x.shape[2:]
    weight = gathered(weight, tuple(max(pair) for pair in zip(own, batch, strict=True)))
    return gathered(x * weight, batch)


def gathered(x: Any, batch: Any) -> Any:
    """The sum over the batch axes that a parameter does not have."""
    first = x.ndim - len(batch)
    axes = tuple(first + k for k, length in enumerate(batch) if length == 1 and x.shape[first + k] != 1)
    return jnp.sum(x, axes, keepdims=True) if axes else x
