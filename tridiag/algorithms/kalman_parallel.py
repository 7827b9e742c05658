"""Kalman filters and smoothers of logarithmic depth for JAX, by `lax.associative_scan`, and the gradient.

After S. Sarkka and A. F. Garcia-Fernandez, Temporal parallelization of Bayesian smoothers, IEEE Transactions on
Automatic Control 66 (2021). There, a stretch of steps tells its last state given the state x before it, and how likely
x makes what was observed; two neighbouring stretches make one. But an exact observation of x is told by no finite
density: R = 0 with a singular Q. Here the state before a stretch is known as z = x + N(0, D0) instead, with a diagonal
D0 of the size that filtered covariances have. Then all is finite, and what the paper's operator takes as a covariance
is one less D0: the operator stays as it is.

The states from the scan are starts only: one ordinary step from each gives the results, and is compared with the next.
If any is not what it should be but for rounding, all are computed again one after another. The smoother of Bryson and
Frazier goes backwards by affine steps without any inverse, and so does the gradient.

Arrays are as in `tridiag.algorithms.kalman_filter`: time first, then matrices, batch axes last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import kalman_adjoint, kalman_columns, kalman_filter, kalman_loops, kalman_scan
from tridiag.algorithms.kalman_columns import apply
from tridiag.algorithms.kalman_filter import Estimate, transpose
from tridiag.algorithms.kalman_loops import Observed, Roots
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.state_space import Model, StateSpace

ROUNDING = 1e4  # eps of a state: what one of the scan may be off the step from that before it
ALL, BUT_LAST, BUT_FIRST = slice(None), slice(0, -1), slice(1, None)


class Stretch(NamedTuple):
    """Some steps: x after them is A z + b + N(0, D + D0), and z is as likely as exp(eta^T z - z^T J z / 2)."""

    A: Any
    b: Any
    D: Any
    eta: Any
    J: Any


class States(NamedTuple):
    """Of all steps."""

    predicted: Estimate
    updated: Estimate
    seen: Observed
    sure: Any  # whether no digits were lost; where some were, all these are of square roots


# ------------------------------------------------------------------------------------------------------------ forwards


def filtered(form: StateSpace, y: Any, model: Model, kept: Any, strict: bool = True) -> tuple[Any, States]:
    """The log-likelihoods, and the states of all steps; ``strict``: all digits of these are wanted too."""
    scanned = scan(form, y, model, kept)
    ahead = over_time(predict, [BUT_LAST] * 4, model.F, model.Q, *scanned)
    first = beginning(form, y, model, kept)
    predicted = Estimate(*(jnp.concatenate((x[None], z)) for x, z in zip(first, ahead, strict=True)))
    seen, updated, deviance = over_time(step, [ALL] * 6, model.H, model.R, y, kept, *predicted)
    likelihood = -jnp.sum(deviance, 0) / 2
    sure = (
        agree(scanned, updated, predicted) & ~doubtful(model, kept, predicted, seen) & ~jnp.any(jnp.isnan(likelihood))
    )

    def in_sequence() -> tuple[Any, Any]:
        def keep(step: kalman_loops.Step) -> Any:
            return *(kalman_scan.whole(Roots, state) for state in step[:2]), step.seen._replace(turn=None)

        return kalman_scan.run(form, y, model, kept, keep, Roots)[:2]

    likelihood, states = lax.cond(
        kalman_scan.anywhere(~sure), in_sequence, lambda: (likelihood, (predicted, updated, seen))
    )
    predicted, updated, seen = states
    return likelihood, States(predicted, updated, seen, sure)


def doubtful(model: Model, kept: Any, predicted: Estimate, seen: Observed) -> Any:
    """Whether digits may be lost, as `tridiag.algorithms.kalman_filter.Doubt` has it."""
    none = jnp.zeros_like(predicted.cov[0, 0, 0])

    def reach(H: Any, kept: Any, spread: Any) -> Any:
        H = H if kept is None else jnp.where(kept[:, None], H, 0)
        return kalman_loops.independent(ops, H, spread) + jnp.zeros_like(none)

    reaches = over_time(reach, [ALL] * 3, model.H, kept, spreads(model, predicted.cov))
    largest = lax.cummax(reaches, 0)
    low = seen.variances < jnp.finfo(none.dtype).eps ** (1 / 3) * largest
    return jnp.any(low if kept is None else low & kept)


def spreads(model: Model, covs: Any) -> Any:
    """`kalman_filter.Doubt.spread` of all steps, but a sum in place of the larger one: what it makes linear."""

    variances = jax.vmap(kalman_columns.diagonal)(covs)
    largest = lax.cummax(jnp.max(variances, 1), 0)

    def moved(F: Any, Q: Any, before: Any, now: Any, largest: Any) -> tuple[Any, Any]:
        """Which share of each state's spread goes to each other one, and what is new."""
        new = kalman_loops.Doubt.moved(ops, F, Q, before)
        shares = jnp.where(new > jnp.finfo(new.dtype).eps * largest, now / new, 1)
        return F * F * shares[:, None], new

    def joined(before: Any, after: Any) -> tuple[Any, Any]:
        return ops.product(after[0], before[0]), apply(ops, after[0], before[1]) + after[1]

    first = jnp.zeros_like(covs[:1]), variances[:1]
    parts = [*[BUT_LAST] * 3, BUT_FIRST, BUT_LAST]
    steps = over_time(moved, parts, model.F, model.Q, variances, variances, largest)
    every = jax.tree.map(lambda x, z: jnp.concatenate((x, z)), first, steps)
    return lax.associative_scan(jax.vmap(joined), every)[1]


def over_time(function: Callable[..., Any], parts: Sequence[slice], *arrays: Any) -> Any:
    """``function`` of a part of the steps of each array or tree of them; of length 1 along time: the same in all."""
    same = [x is None or len(jax.tree.leaves(x)[0]) == 1 for x in arrays]
    given = [
        jax.tree.map(lambda z, s=s, part=part: z[0] if s else z[part], x)
        for x, s, part in zip(arrays, same, parts, strict=True)
    ]
    return jax.vmap(function, [None if s else 0 for s in same])(*given)


def beginning(form: StateSpace, y: Any, model: Model, kept: Any) -> Estimate:
    """The state predicted for the first step, with the batch axes of all others."""
    blank = kalman_filter.blank(ops, form, y, kept)
    return Estimate(blank.mean + model.m0, blank.cov + model.P0)


def predict(F: Any, Q: Any, mean: Any, cov: Any) -> Estimate:
    return kalman_loops.predict(ops, F, Q, Estimate(mean, cov))


def step(H: Any, R: Any, y: Any, kept: Any, mean: Any, cov: Any) -> tuple[Observed, Estimate, Any]:
    """The observations of a step, the state once they are known, and how little they were expected."""
    seen, updated = kalman_loops.observe(ops, H, R, y, kept, Estimate(mean, cov))
    return seen, updated, kalman_loops.deviance(ops, seen, kept)


def agree(found: Estimate, wanted: Estimate, predicted: Estimate) -> Any:
    """Whether states of the scan are those that ordinary steps make; what is NaN is NaN in both."""

    def near(x: Any, z: Any, size: Any) -> Any:
        allowed = ROUNDING * jnp.finfo(x.dtype).eps * size
        return jnp.all((abs(x - z) <= allowed) | (jnp.isnan(x) & jnp.isnan(z)))

    size = jnp.max(abs(predicted.cov), (1, 2), keepdims=True)
    height = jnp.max(abs(predicted.mean) + abs(wanted.mean), 1, keepdims=True) + jnp.sqrt(size[:, 0])
    return near(found.cov, wanted.cov, size) & near(found.mean, wanted.mean, height)


def scan(form: StateSpace, y: Any, model: Model, kept: Any) -> Estimate:
    """The updated states of all steps."""
    start = beginning(form, y, model, kept)
    reference = typical(model) + jnp.zeros_like(start.cov)
    first = None if kept is None else kept[0]
    _, (mean, cov), _ = step(model.H[0], model.R[0], y[0], first, *start)
    source = Stretch(jnp.zeros_like(cov), mean, cov - reference, jnp.zeros_like(mean), jnp.zeros_like(cov))

    def stretch(F: Any, Q: Any, H: Any, R: Any, y: Any, kept: Any) -> Stretch:
        made = one_step(F, Q, H, R, y, kept, reference)
        return Stretch(*(x + jnp.zeros_like(z) for x, z in zip(made, source, strict=True)))

    parts = [BUT_LAST] * 2 + [BUT_FIRST] * 4
    steps = over_time(stretch, parts, model.F, model.Q, model.H, model.R, y, kept)
    every = jax.tree.map(lambda x, z: jnp.concatenate((x[None], z)), source, steps)
    found = lax.associative_scan(jax.vmap(join), every)
    return Estimate(found.b, found.D + reference)


def typical(model: Model) -> Any:
    """D0: what a step adds and what an observation leaves. Results do not depend on it, but for rounding."""
    _, H, Q, R, _, P0 = map(lax.stop_gradient, model)
    states, values = jnp.arange(Q.shape[1]), jnp.arange(R.shape[1])
    added, noise, first = Q[:, states, states], R[:, values, values], P0[states, states]
    added = jnp.max(jnp.where(jnp.isfinite(added), added, 0), 0)
    left = noise[:, :, None] / H / H
    left = jnp.min(jnp.where(jnp.isfinite(left), left, jnp.inf), (0, 1))
    left = jnp.where(jnp.isfinite(left), left, jnp.min(left, 0))  # of states that are not observed themselves
    spread = added + jnp.minimum(first, left)
    for otherwise in (first, jnp.max(spread, 0), 1):
        spread = jnp.where(spread > 0, spread, otherwise)
    return ops.identity(P0) * spread


def one_step(F: Any, Q: Any, H: Any, R: Any, y: Any, kept: Any, reference: Any) -> Stretch:
    H, R, y = kalman_filter.there(ops, H, R, y, kept)
    cov = ops.symmetric(ops.product(ops.product(F, reference), transpose(F)) + Q)
    variances, factors, rows = kalman_loops.separate(ops, H, R, cov)
    loads = kalman_columns.eliminated(ops, factors, ops.product(H, F))
    values = kalman_columns.eliminated(ops, factors, y[:, None])[:, 0]
    gains, scaled = (transpose(x / variances[:, None]) for x in (rows, loads))
    return Stretch(
        F - ops.product(gains, loads),
        apply(ops, gains, values),
        cov - reference - ops.product(gains, rows),
        apply(ops, scaled, values),
        ops.product(scaled, loads),
    )


def join(earlier: Stretch, later: Stretch) -> Stretch:
    """Two stretches as one."""
    inverse = inverted(ops.identity(later.J) + ops.product(earlier.D, later.J))
    back, onto = transpose(earlier.A), ops.product(later.J, inverse)
    onward = ops.product(later.A, inverse)
    news = apply(ops, transpose(inverse), later.eta) - apply(ops, onto, earlier.b)
    spread = ops.product(ops.product(onward, earlier.D), transpose(later.A))
    return Stretch(
        ops.product(onward, earlier.A),
        later.b + apply(ops, onward, earlier.b + apply(ops, earlier.D, later.eta)),
        later.D + ops.symmetric(spread),
        earlier.eta + apply(ops, back, news),
        earlier.J + ops.symmetric(ops.product(ops.product(back, onto), earlier.A)),
    )


def inverted(x: Any) -> Any:
    return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(x, (0, 1), (-2, -1))), (-2, -1), (0, 1))


# ----------------------------------------------------------------------------------------------------------- backwards


def behind(form: StateSpace, model: Model, seen: Observed, like: Estimate) -> Estimate:
    """What the observations from each step on tell, as of the state predicted for it; and nothing behind the last."""

    def information_of(F: Any, seen: Observed, mean: Any, cov: Any) -> Any:
        pull, news = kalman_loops.information(ops, seen, Estimate(mean, cov))
        return ops.product(pull, transpose(F)) + ops.zero(cov), news

    def chain(later: Any, earlier: Any) -> Any:
        (back, (mean, cov)), (move, news) = later, earlier
        moved = ops.symmetric(ops.product(ops.product(move, cov), transpose(move)))
        return ops.product(move, back), Estimate(apply(ops, move, mean) + news.mean, moved + news.cov)

    steps = over_time(information_of, [ALL] * 4, read(form, model.F), seen, *like)
    _, found = lax.associative_scan(jax.vmap(chain), steps, reverse=True)
    return jax.tree.map(lambda x: jnp.concatenate((x, jnp.zeros_like(x[:1]))), found)


def read(form: StateSpace, F: Any) -> Any:
    """F, of which the last is not read."""
    return F.at[form.n - 1].set(0) if len(F) == form.n else F


def smoothed(form: StateSpace, model: Model, states: States) -> tuple[Estimate, Any]:
    """The states of all steps, given all observations, and whether no digits were lost."""
    ahead = jax.tree.map(lambda x: x[1:], behind(form, model, states.seen, states.predicted))

    def look(F: Any, predicted: Any, updated: Estimate, ahead: Estimate) -> tuple[Estimate, Any]:
        found = kalman_loops.smoothed_state(ops, updated, kalman_loops.carry_back(ops, F, ahead))
        return found, kalman_loops.lost(ops, predicted, updated.cov, found.cov)

    arrays = read(form, model.F), states.predicted.cov, states.updated, ahead
    found, loss = over_time(look, [ALL] * 4, *arrays)
    return found, states.sure & ~jnp.any(loss > 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def log_likelihood(form: StateSpace, y: Any, model: Model, kept: Any) -> Any:
    """Of every series; ``kept``: what is not missing, None: all."""
    return filtered(form, y, model, kept, False)[0]


def forward(form: StateSpace, y: Any, model: Model, kept: Any) -> Any:
    value, states = filtered(form, y, model, kept, False)
    return value, (y, model, kept, states)


def backward(form: StateSpace, residuals: Any, weight: Any) -> Any:
    """Gradients of the sum of all log-likelihoods, each times its weight."""
    y, model, kept, states = residuals

    def in_sequence() -> Any:
        return kalman_scan.backward(form, kalman_scan.forward(form, y, model, kept)[1], weight)[:2]

    again = kalman_scan.anywhere(~states.sure)
    return *lax.cond(again, in_sequence, lambda: differentiated(form, y, model, kept, states, weight)), None


def differentiated(form: StateSpace, y: Any, model: Model, kept: Any, states: States, weight: Any) -> tuple[Any, Model]:
    batches = Model(*(x.shape[x.ndim - weight.ndim :] for x in model))
    every = behind(form, model, states.seen, states.predicted)
    first, ahead = jax.tree.map(lambda x: x[0], every), jax.tree.map(lambda x: x[1:], every)

    def derive(F: Any, H: Any, R: Any, kept: Any, record: kalman_adjoint.Record, ahead: Estimate) -> Any:
        record = record._replace(seen=record.seen.listed())
        return kalman_adjoint.derivatives(ops, F, H, R, kept, record, ahead, None, weight, batches)[0]

    record = kalman_adjoint.Record(states.updated, states.seen)
    arrays = read(form, model.F), model.H, model.R, kept, record, ahead
    parts = over_time(derive, [ALL] * len(arrays), *arrays)
    of_y = parts.pop("y")
    found = {n: x if len(getattr(model, n)) == form.n else jnp.sum(x, 0, keepdims=True) for n, x in parts.items()}
    found |= kalman_adjoint.of_first(ops, first, weight, batches)
    return kalman_adjoint.gathered(of_y, y.shape[2:]), Model(**found)


log_likelihood.defvjp(forward, backward)
