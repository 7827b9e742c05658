"""Kalman filters of series whose steps lie on several CPU devices: each learns the state before its own steps.

Inside `jax.shard_map`, or what XLA makes of observations that are sharded along time. A first pass over its steps, from
a state that all agree on, tells every device what they make of the state before them
(`tridiag.algorithms.kalman_stretches`), in 2 k^2 + 4 k numbers a series: one ``all_gather``. A scan over the devices,
by the operator of `tridiag.algorithms.kalman_parallel`, gives each its state, and the second pass is the filter from
there.

Then a flag goes round: only where the state behind some steps is not the one that the next device has taken for it, or
where digits may be lost (`tridiag.algorithms.kalman_filter.Doubt`), all series are gathered, and computed whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.algorithms import kalman_filter, kalman_loops, kalman_parallel, kalman_scan, kalman_stretches
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.kernels.jobs.kalman import is_written_out
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Cut, Shape
from tridiag.problems.state_space import FILTER, LIKELIHOOD, MATRICES, SMOOTHER, Model, StateSpace, entries, own_shapes
from tridiag.xla import kalman
from tridiag.xla.exchange import all_rows, anywhere, index, own_rows
from tridiag.xla.kalman import Stretch, symmetric, triangle
from tridiag.xla.partitioning import cut_over, divided, may_be_sharded, tag
from tridiag.xla.programs import for_threads

RESULTS = {FILTER: (*(True,) * 4, False), SMOOTHER: (True, True, False), LIKELIHOOD: (False,)}  # which have time
TIMED = (True, *(name in MATRICES for name in Model._fields))  # which of y and the model have an axis of time


def exchange(verb: str, devices: int, states: int, observed: int) -> str:
    """What is exchanged, in words."""
    count, exchanges = 2 * states * (states + 2) + observed, "two"
    if verb == SMOOTHER:
        count, exchanges = count + states * (3 * states + 3) // 2, "three"
    return f"{exchanges} all_gather, {count * (devices - 1)} words received for each series"


# ------------------------------------------------------------------------------------------------ the verbs


class Verb(NamedTuple):
    """What is computed of series."""

    whole: Callable[..., tuple[Any, ...]]  # (y, model, form, missing): of whole ones
    parts: Callable[..., tuple[Any, Any]]  # (part, cut, ahead): of the steps of a device; whether digits may be lost
    timed: tuple[bool, ...]  # which results have an axis of time; of all others the sum over the devices is wanted
    stretch: Callable[..., tuple[Any, Stretch, Any]]  # (y, model, form, missing, keep): `in_loops` or `in_steps`
    looks_ahead: bool = False  # whether it needs what later devices observe


def contributed(verb: Verb, form: StateSpace, missing: bool | None, cut: Cut, *operands: Any) -> tuple[Any, ...]:
    """The results in the steps of a device, or what it contributes to them."""
    if operands[0].shape[-2] == 1 or form.n <= cut.parts:
        return whole(verb, form, missing, cut, operands)
    part, unsure = filtered(verb, form, missing, cut, operands)
    found, lost = verb.parts(part, cut, state_ahead(part, cut) if verb.looks_ahead else None)
    doubt = anywhere(unsure | lost, cut)
    again = functools.partial(whole, verb, form, missing, cut)
    return tuple(lax.cond(doubt, lambda _, given: again(given), lambda found, _: found, found, operands))


def value_of(part: Part, cut: Cut, ahead: None) -> tuple[Any, Any]:
    return (part.value,), False


def derivatives_of(part: Part, cut: Cut, ahead: Estimate, in_y: bool) -> tuple[Any, Any]:
    """Those of m0 and P0 are of the first device alone."""
    form = part.form
    found, *of_y = some_derivatives(part.y, part.model, form, part.missing, ahead, in_y=in_y)
    of_first = sum(math.prod(shape) for shape in own_shapes(form)[len(MATRICES) :])
    counted = (jnp.arange(entries(form)) < entries(form) - of_first) | (index(cut) == 0)
    return (jnp.where(counted, found, 0), *of_y), False


def filter_of(part: Part, cut: Cut, ahead: None) -> tuple[Any, Any]:
    """Every state of the filter, and what the steps contribute to log-likelihoods."""
    predicted, updated = part.steps
    return (*in_batches(part.form, updated, predicted), part.value), False


def smoother_of(part: Part, cut: Cut, ahead: Estimate) -> tuple[Any, Any]:
    """The same of the smoother."""
    model, y, kept = in_front(part.y, part.model, part.missing)
    behind = kalman_loops.carry_back(ops, model.F[-1], ahead)
    found, lost = kalman_scan.smoothed(part.form, y, model, kept, part.steps, behind)
    return (*in_batches(part.form, found), part.value), lost


def in_batches(form: StateSpace, *states: Estimate) -> list[Any]:
    """Means and covariances of all steps, batch axes first."""
    return [kalman_filter.back(ops, x, form.batch) for state in states for x in state]


def likelihoods(y: Any, model: Model, form: StateSpace, missing: bool) -> tuple[Any]:
    return (kalman.log_likelihood(y, model, form, missing),)


def some_derivatives(y: Any, model: Model, form: StateSpace, missing: bool, ahead: Any = None, *, in_y: bool) -> Any:
    """Those that are wanted."""
    return tuple(x for x in kalman.gradient(y, model, form, missing, in_y, ahead) if x is not None)


def in_loops(y: Any, model: Model, form: StateSpace, missing: bool, keep: bool) -> tuple[Any, Stretch, None]:
    """The log-likelihoods, what the steps make of the state before them, and their states, which are not kept."""
    if not is_written_out(form.states, form.observed):
        return in_steps(y, model, form, missing, False)
    return *kalman.stretch(y, model, form, missing), None


def in_steps(y: Any, model: Model, form: StateSpace, missing: bool, keep: bool) -> tuple[Any, Stretch, Any]:
    """The same by `lax.scan`; ``keep``: the states of all steps are wanted."""
    model, y, kept = in_front(y, model, missing)
    blank = kalman_filter.blank(ops, form, y, kept)
    infinite = jnp.full((form.observed, *blank.cov.shape[2:]), jnp.inf, y.dtype)

    def step(carry: Any, t: Any) -> Any:
        carried, deviance, follow, least, loss = carry
        carried, found, more = kalman_loops.forward(ops, model, y, kept, t, carried)
        follow = kalman_stretches.follow(ops, found.seen.listed(), ops.row(model.F, t, 0), follow)
        variances = found.seen.variances
        least = jnp.minimum(least, variances if kept is None else jnp.where(ops.row(kept, t, 0), variances, jnp.inf))
        loss = jnp.maximum(loss, kalman_loops.lost(ops, found.predicted.cov, found.updated.cov))
        return (carried, deviance + more, follow, least, loss), found[:2] if keep else None

    begun = kalman_loops.begin(ops, form, y, kept, kalman_loops.Entries), jnp.zeros(form.batch, y.dtype)
    start, _ = vary_alike(((*begun, kalman_stretches.start(ops, blank), infinite, jnp.zeros_like(infinite[0])), y))
    (carried, deviance, follow, least, loss), steps = lax.scan(step, start, jnp.arange(form.n, dtype=jnp.int32))
    behind = kalman_loops.predict(ops, model.F[-1], model.Q[-1], carried.state)
    doubt, batch = carried.doubt, form.batch

    def whole(x: Any) -> Any:
        return jnp.broadcast_to(x, (*x.shape[: x.ndim - len(batch)], *batch))

    found = Stretch(behind, follow, doubt.reach, least, jnp.maximum(loss, doubt.loss))
    return -deviance / 2, jax.tree.map(whole, found), steps


def in_front(y: Any, model: Model, missing: bool) -> tuple[Model, Any, Any]:
    """Arrays as in `tridiag.algorithms.kalman_filter`, and what is not missing."""
    model, y = vary_alike(kalman_filter.front(ops, model, y))
    return model, y, ~jnp.isnan(y) if missing else None


LIKELIHOODS = Verb(likelihoods, value_of, RESULTS[LIKELIHOOD], in_loops)
GRADIENT, GRADIENT_IN_Y = (
    Verb(
        functools.partial(some_derivatives, in_y=in_y),
        functools.partial(derivatives_of, in_y=in_y),
        (False, True)[: 1 + in_y],
        in_loops,
        looks_ahead=True,
    )
    for in_y in (False, True)
)


# ------------------------------------------------------------------------------------------------ what a device has


class Part(NamedTuple):
    """The steps of a device as series by themselves, from the state before them."""

    form: StateSpace
    missing: bool
    y: Any
    model: Model
    value: Any  # what they contribute to log-likelihoods
    found: Stretch
    steps: Any  # of all steps the states predicted and updated, where they are kept


def filtered(verb: Verb, form: StateSpace, missing: bool | None, cut: Cut, operands: Sequence[Any]) -> tuple[Part, Any]:
    """What a device has, and whether it may be wrong."""
    own, y, model = without_pads(form, cut, operands[0], Model(*operands[1:]))
    missing = missing is not False or own.n * cut.parts > form.n
    start, states = state_before(verb, own, cut, y, model, missing)
    model = begun(model, start)
    own = of_shapes(form, y, model)
    value, found, steps = verb.stretch(y, model, own, missing, True)
    part = Part(own, missing, y, model, value, found, steps)
    return part, doubtful(form, cut, part, states)


def without_pads(form: StateSpace, cut: Cut, y: Any, model: Model) -> tuple[StateSpace, Any, Model]:
    """The steps of a device; those behind the last one observe nothing, and nothing leads there."""
    axis, rows = len(form.batch), y.shape[-2]
    step = index(cut) * rows + jnp.arange(rows)

    def first(x: Any, count: int, otherwise: Any) -> Any:
        """The first steps of all, so many."""
        if x.shape[axis] == 1 != rows:
            return x
        return jnp.where((step < count).reshape(-1, *(1,) * (x.ndim - axis - 1)), x, jnp.asarray(otherwise, x.dtype))

    if rows * cut.parts > form.n:
        y = first(y, form.n, jnp.nan)
        model = model._replace(H=first(model.H, form.n, 0), R=first(model.R, form.n, 0))
    model = model._replace(F=first(model.F, form.n - 1, 0), Q=first(model.Q, form.n - 1, 0))
    return of_shapes(form, y, model), y, model


def state_before(
    verb: Verb, own: StateSpace, cut: Cut, y: Any, model: Model, missing: bool
) -> tuple[Estimate, Estimate]:
    """The state that is predicted for the first step of a device; and those of all devices, along the first axis."""
    front, _ = kalman_filter.front(ops, model, y)
    k, batch = own.states, own.batch
    begin = Estimate(jnp.broadcast_to(front.m0, (k, *batch)), jnp.broadcast_to(front.P0, (k, k, *batch)))
    reference = jnp.broadcast_to(kalman_parallel.typical(front), (k, k, *batch))
    taken = jax.tree.map(
        lambda x, z: jnp.where(index(cut) == 0, x, z), begin, Estimate(jnp.zeros_like(begin.mean), reference)
    )
    model = begun(model, taken)
    _, found, _ = verb.stretch(y, model, of_shapes(own, y, model), missing, False)
    (mean, cov), (A, eta, J) = found.behind, found.follow
    every = gathered(cut, mean, triangle(cov), A, eta, triangle(J), ops.stack(kalman_filter.diagonal(reference)))

    def step(state: Estimate, row: Any) -> Any:
        place, (mean, cov, A, eta, J, diagonal) = row
        cov, J, nothing = symmetric(cov, k), symmetric(J, k), jnp.zeros_like(A)
        apart = state.cov - ops.identity(A) * diagonal
        before = kalman_parallel.Stretch(nothing, state.mean, apart, nothing[0], nothing)
        joined = kalman_parallel.join(before, kalman_parallel.Stretch(A, mean, cov, eta, J))
        # the first device began with the state itself
        return Estimate(jnp.where(place == 0, mean, joined.b), jnp.where(place == 0, cov, joined.D)), state

    _, states = lax.scan(step, begin, (jnp.arange(cut.parts), every))
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index(cut), keepdims=False), states), states


def gathered(cut: Cut, *arrays: Any) -> list[Any]:
    """Arrays of all devices, along a new first axis, by one exchange; they end in the same axes as the first one."""
    batch = arrays[0].shape[1:]
    parts = [x.reshape(-1, *batch) for x in arrays]
    every = lax.all_gather(jnp.concatenate(parts), cut.names)
    ends = np.cumsum([len(x) for x in parts])[:-1]
    found = zip(jnp.split(every, ends, 1), arrays, strict=True)
    return [x.reshape(cut.parts, *like.shape) for x, like in found]


def begun(model: Model, start: Estimate) -> Model:
    """The model that begins with a state."""
    return model._replace(m0=jnp.moveaxis(start.mean, 0, -1), P0=jnp.moveaxis(start.cov, (0, 1), (-2, -1)))


def state_ahead(part: Part, cut: Cut) -> Estimate:
    """What the steps of later devices tell of the state that is predicted behind those of a device."""
    A, eta, J = part.found.follow
    every = gathered(cut, eta, A, triangle(J))

    def step(ahead: Estimate, told: Any) -> tuple[Estimate, Estimate]:
        eta, A, J = told
        back = kalman_filter.transpose(A)
        cov = symmetric(J, len(eta)) + ops.symmetric(ops.product(ops.product(back, ahead.cov), A))
        return Estimate(eta + kalman_filter.apply(back, ahead.mean), cov), ahead

    nothing = Estimate(jnp.zeros_like(eta), jnp.zeros_like(J))
    _, states = lax.scan(step, nothing, every, reverse=True)
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, index(cut), keepdims=False), states)


# ------------------------------------------------------------------------------------------------ the promise


def doubtful(form: StateSpace, cut: Cut, part: Part, states: Estimate) -> Any:
    """Whether a device has not ended where the next one began, or digits may be lost."""
    found, following = part.found, jnp.minimum(index(cut) + 1, cut.parts - 1)
    taken = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, following, 1), states)
    end = jax.tree.map(lambda x: x[None], found.behind)
    same = kalman_parallel.agree(taken, end, end) | ((index(cut) + 1) * part.form.n >= form.n)
    reaches = lax.all_gather(found.reach, cut.names)
    before = (jnp.arange(cut.parts) < index(cut)).reshape(-1, *(1,) * found.reach.ndim)
    reach = jnp.max(jnp.where(before, reaches, 0), 0)
    low = found.least < jnp.finfo(part.value.dtype).eps ** (1 / 3) * reach
    return ~same | jnp.any(low) | jnp.any(found.loss > 0) | jnp.any(jnp.isnan(part.value))


def whole(verb: Verb, form: StateSpace, missing: bool | None, cut: Cut, operands: Sequence[Any]) -> tuple[Any, ...]:
    """What a device has or contributes, from all steps, which are gathered."""
    return of_all_steps(functools.partial(verb.whole, missing=missing), verb.timed, form, cut, operands)


def of_all_steps(
    function: Callable[..., tuple[Any, ...]], timed: Sequence[bool], form: StateSpace, cut: Cut, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """What ``function(y, model, form)`` gives in the steps of a device; what has no time the first one contributes."""
    axis, rows = len(form.batch), operands[0].shape[-2]

    def own(x: Any, timed: bool) -> Any:
        return own_rows(cut, x, rows, axis) if timed else jnp.where(index(cut) == 0, x, 0)

    along = [timed and x.shape[axis] == rows for x, timed in zip(operands, TIMED, strict=True)]
    y, *more = (all_rows(cut, x, form.n, axis) if spread else x for x, spread in zip(operands, along, strict=True))
    model = Model(*more)
    return tuple(map(own, function(y, model, of_shapes(form, y, model)), timed))


def of_shapes(form: StateSpace, y: Any, model: Model) -> StateSpace:
    """The form of some series or steps."""
    ranks = len(form.batch)
    batch = np.broadcast_shapes(y.shape[:-2], *(x.shape[:ranks] for x in model))
    shared = np.broadcast_shapes(*(x.shape[:ranks] for x in model._replace(m0=model.P0)))
    return form._replace(n=y.shape[-2], batch=tuple(batch), cov_batch=tuple(shared))


# ------------------------------------------------------------------------------------------------ several devices


def log_likelihood(y: Any, model: Model, form: StateSpace, missing: bool) -> Any:
    """The log-likelihoods; every device computes those of its series, or what its steps contribute."""
    return shard_over_devices(LIKELIHOODS, y, model, form, missing, (form.batch,))[0]


def gradient(y: Any, model: Model, form: StateSpace, missing: bool, in_y: bool) -> tuple[Any, Any]:
    """As `tridiag.xla.kalman.gradient`, of models constant in time."""
    verb, shapes = GRADIENT_IN_Y if in_y else GRADIENT, ((*form.batch, entries(form)), (*form.batch, *y.shape[-2:]))
    if form.cut:  # JAX adds up what devices contribute
        found = contributed(verb, whole_form(form), missing, form.cut, y, *model)
    else:
        found = shard_over_devices(verb, y, model, form, missing, shapes[: 1 + in_y])
    return found[0], found[1] if in_y else None


def states(
    verb: str, function: Callable[..., Any], y: Any, model: Model, form: StateSpace, missing: bool | None
) -> tuple[Any, ...]:
    """What a filter or a smoother returns, which the function computes of whole series."""
    means, covs = ((*form.batch, form.n, *(form.states,) * k) for k in (1, 2))
    shapes = (means, covs) * (2 if verb == FILTER else 1)
    return tuple(shard_over_devices(of_states(verb, function), y, model, form, missing, (*shapes, form.batch)))


@functools.cache
def of_states(verb: str, function: Callable[..., Any]) -> Verb:
    parts = filter_of if verb == FILTER else smoother_of
    return Verb(function, parts, RESULTS[verb], in_steps, looks_ahead=verb == SMOOTHER)


def whole_form(form: StateSpace) -> StateSpace:
    """The form of the series some steps of which a device has."""
    assert form.cut is not None
    return form._replace(n=form.n * form.cut.parts, cut=None)


def gathered_from_devices(
    function: Callable[..., tuple[Any, ...]], timed: Sequence[bool], y: Any, model: Model, form: StateSpace
) -> tuple[Any, ...]:
    """``function(y, model, form)`` of whole series, in the steps of a device; JAX derives it."""
    assert form.cut is not None
    return added(of_all_steps(function, timed, whole_form(form), form.cut, (y, *model)), timed, form.cut)


def added(found: Sequence[Any], timed: Sequence[bool], cut: Cut) -> tuple[Any, ...]:
    """What devices have, and the sums of what they contribute."""
    return tuple(x if rows else lax.psum(x, cut.names) for x, rows in zip(found, timed, strict=True))


def shard_over_devices(verb: Verb, y: Any, model: Model, form: StateSpace, missing: bool | None, results: Any) -> Any:
    """The results of a verb, which have these shapes."""
    operands = y, *model
    if form.cut:
        return added(contributed(verb, whole_form(form), missing, form.cut, *operands), verb.timed, form.cut)
    if form.n == 1 or not may_be_sharded():
        return verb.whole(y, model, form, missing)
    shapes = *(x.shape for x in operands), *results
    return of_series(verb, form, missing, shapes)(*operands, tag(results, verb.timed, form, missing))


@for_threads
def of_series(verb: Verb, form: StateSpace, missing: bool | None, shapes: Sequence[Shape]) -> Any:
    """The verb as a function of arrays that may be sharded along the batch and along time: `divided`."""
    ranks, count, timed = len(form.batch), len(TIMED), (*TIMED, *verb.timed)

    def spread(k: int, batch: Sequence[Any], time: Any, others: Sequence[Any]) -> list[Any]:
        """For each axis of an array what belongs to it: of an axis of the batch, of time, or its own."""
        found = list(others[: len(shapes[k])])
        for axis, length in enumerate(form.batch):
            found[axis] = batch[axis] if shapes[k][axis] == length else found[axis]
        if timed[k] and shapes[k][ranks] == form.n:
            found[ranks] = time
        return found

    def plan(mesh: Any, arguments: Any, results: Any) -> Any:
        axes = [*arguments[0].sharding.spec, *[None] * (ranks + 1)][ranks]
        batch = [*results[0].sharding.spec, *[None] * ranks][:ranks]
        taken = {*Cut.along(axes, mesh.shape).names}
        batch = [None if taken & {*Cut.along(each, mesh.shape).names} else each for each in batch]
        specs = [spread(k, batch, axes, [None] * 9) for k in range(len(shapes))]
        return functools.partial(part, cut_over(mesh, axes)), specs[:count], specs[count:]

    def part(cut: Cut | None, *operands: Any) -> Any:
        if cut is None:
            return function(*operands)
        return added(contributed(verb, form, missing, cut, *operands), verb.timed, cut)

    def function(y: Any, *more: Any) -> Any:
        model = Model(*more)
        return verb.whole(y, model, of_shapes(form, y, model), missing)

    names, mapped, kept = [f"batch{k}" for k in range(ranks)], [], []
    for k, shape in enumerate(shapes):
        own = [f"array{k}_{axis}" for axis in range(len(shape))]
        mapped.append(spread(k, names, "time", own))
        kept += [name for name in own if name in mapped[-1]]
    return divided(function, plan, mapped[:count], mapped[count:], tuple(kept))
