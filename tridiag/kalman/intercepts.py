"""Models with intercepts, as models without.

x[t+1] = F[t] x[t] + c[t] + noise,  y[t] = H[t] x[t] + d[t] + noise

The known part of the states, known[0] = 0, known[t+1] = F[t] known[t] + c[t], is a recurrence of numbers. What is left,
x - known, has no intercept, the same covariances, and is observed as y - d - H known. Where the known part grows far
beyond what is observed, as with an unstable F, the difference would lose digits: then a state that is always 1 is
added, by which F multiplies c; so it is where devices have some of the steps each. Where values cannot be read, series
that would lose half of the digits are NaN.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tridiag.calls import split
from tridiag.calls.state_space import NO_INTERCEPTS, Call, readable, to_numpy
from tridiag.libraries.arrays import module_of
from tridiag.problems.forms import LARGEST
from tridiag.problems.state_space import Model
from tridiag.recurrences import matrix_recurrence

Array = Any
CANCELLED = 2.0**10  # how many times larger than the observations what is subtracted from them may be


class Known(NamedTuple):
    """What is known of the states of a call beforehand, and is added to its results again."""

    mean: Array | None = None  # (..., n, k)
    constant: bool = False  # whether the last state is the one that is always 1

    def back(self, means: Array, covs: Array) -> tuple[Array, Array]:
        """Means and covariances of the states of the caller's model."""
        if self.constant:
            return means[..., :-1], covs[..., :-1, :-1]
        return (means if self.mean is None else means + self.mean), covs


def without_intercepts(call: Call) -> tuple[Call, Known]:
    """The call whose model has none, and what is known of its states."""
    state, obs = call.intercepts
    call = call._replace(intercepts=NO_INTERCEPTS)
    if obs is not None:
        call = observed_less(call, obs)
    if state is None or call.form.n == 0 or 0 in call.form.batch:
        return call, Known()
    if call.form.states > LARGEST or call.form.cut:
        return with_constant(call, state), Known(constant=True)
    known = matrix_recurrence(*recurrence_of(call, state))
    seen = times(call.model.H, known)
    if not all(map(readable(call), (call.y, seen))):
        return observed_less(without_digits(call, seen), seen), Known(known)
    if cancels(call, seen):
        return with_constant(call, state), Known(constant=True)
    return observed_less(call, seen), Known(known)


def times(matrix: Array, vectors: Array) -> Array:
    return (matrix @ vectors[..., None])[..., 0]


def observed_less(call: Call, known: Array) -> Call:
    """Observations less a known part; where that is not finite its series are NaN, and not missing."""
    ops, y = module_of(call.library).Operations, call.y
    known = ops.where(y == y, known, 0.0)
    nothing = (known - known).sum(-1).sum(-1)[..., None]  # 0, or NaN
    if call.form.cut:  # of the steps of any device
        nothing = split.over_devices(nothing, call.form.cut)
    return call._replace(y=y - known, model=call.model._replace(m0=call.model.m0 + nothing))


def recurrence_of(call: Call, state: Array) -> tuple[Array, Array]:
    """F and the intercept of the step before each; no step is before the first."""
    ops, F, n = module_of(call.library).Operations, call.model.F, call.form.n
    axis = state.ndim - 2
    none = ops.zero(ops.slice(state, slice(0, 1), axis))
    if state.shape[axis] == 1:
        state = ops.stretch(state, n, axis)
    before = ops.concatenate((none, ops.slice(state, slice(0, n - 1), axis)), axis)
    axis = F.ndim - 3
    if F.shape[axis] == n > 1:
        F = ops.concatenate((ops.slice(F, slice(0, 1), axis), ops.slice(F, slice(0, n - 1), axis)), axis)
    return F, before


def cancels(call: Call, seen: Array) -> bool:
    """Whether the difference would lose digits."""
    y, seen = (abs(to_numpy(x)) for x in (call.y, seen))
    return bool(seen.max() > CANCELLED * np.nanmax(y, initial=0))


def without_digits(call: Call, seen: Array) -> Call:
    """The call, NaN for series of which the difference would lose half of the digits: no wrong number is returned."""
    ops, y = module_of(call.library).Operations, call.y
    there = y == y

    def largest(x: Array) -> Array:
        return ops.maximum(ops.maximum(abs(ops.where(there, x, 0.0)), -1), -1)

    noise = ops.maximum(ops.maximum(ops.maximum(call.model.R, -1), -1), -1) ** 0.5
    lost = largest(seen) * ops.limits(y)[0] ** 0.5 > largest(y) + noise
    m0 = ops.where(lost[..., None], ops.nan(y), call.model.m0)
    return call._replace(model=call.model._replace(m0=m0))


def with_constant(call: Call, state: Array) -> Call:
    """The model with a last state that is 1, by which F multiplies the intercept."""
    ops, model, k = module_of(call.library).Operations, call.model, call.form.states
    axis = state.ndim - 2
    steps = max(model.F.shape[axis], state.shape[axis])
    batch = np.broadcast_shapes(model.F.shape[:axis], state.shape[:axis])
    F, state = (ops.broadcast(x, (*batch, steps, *x.shape[axis + 1 :])) for x in (model.F, state))
    F = ops.concatenate((F, state[..., None]), axis + 2)
    one = ops.full((*model.m0.shape[:-1], 1), 1, model.m0)
    last = ops.concatenate((ops.full((1, k), 0, F), ops.full((1, 1), 1, F)), 1)
    last = ops.broadcast(last, (*F.shape[:-2], 1, k + 1))
    wide = Model(
        ops.concatenate((F, last), axis + 1),
        wider(ops, model.H, 0, 1),
        wider(ops, model.Q, 1, 1),
        model.R,
        ops.concatenate((model.m0, one), axis),
        wider(ops, model.P0, 1, 1),
    )
    form = call.form._replace(states=k + 1, cov_batch=np.broadcast_shapes(call.form.cov_batch, batch))
    return call._replace(form=form, problem=call.problem._replace(states=max(call.problem.states, k + 1)), model=wide)


def wider(ops: Any, x: Array, rows: int, columns: int) -> Array:
    """Matrices with zeros added below and at the right."""
    for axis, more in ((x.ndim - 2, rows), (x.ndim - 1, columns)):
        if more:
            x = ops.concatenate((x, ops.full((*x.shape[:axis], more, *x.shape[axis + 1 :]), 0, x)), axis)
    return x
