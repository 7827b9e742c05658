"""The compiled log-likelihood for JAX with its gradient, which is compiled as well for models constant in time.

Other gradients, and all derivatives of gradients, are those of `tridiag.algorithms.kalman_scan`. Kernels for GPUs,
which find states as well, have the same rules.
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
from jax.custom_derivatives import SymbolicZero
from jax.sharding import NamedSharding, PartitionSpec

from tridiag.algorithms import kalman_diffuse_scan, kalman_filter, kalman_scan
from tridiag.backends import jax_scan
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import left_to_compiler, vary_alike
from tridiag.problems.forms import Cut
from tridiag.problems.state_space import LIKELIHOOD, Model, StateSpace, own_shapes
from tridiag.xla import split_kalman
from tridiag.xla.exchange import anywhere
from tridiag.xla.programs import program


class Calls(NamedTuple):
    """What computes log-likelihoods and their gradients, from y, a model, its form and what is missing."""

    value: Callable[..., Any]
    gradient: Callable[..., Any] | None  # with ``in_y``: whether that in y is wanted; None: as `jax_scan`
    by_values: bool = True  # whether it has to know if anything is missing


COMPILED = Calls(split_kalman.log_likelihood, split_kalman.gradient)


@program(2, 3)
def log_likelihood(y: Any, model: Model, form: StateSpace, calls: Calls = COMPILED) -> Any:
    if form.diffuse:
        rest = functools.partial(compiled, calls)
        return kalman_diffuse_scan.from_diffuse(LIKELIHOOD, y, model, form, rest, jax_scan.poisoned)
    function = functools.partial(likelihood_on_devices, form, calls)
    return left_to_compiler(function, (y, model), out=lambda: spread(LIKELIHOOD, y, model, form)[0])(y, model)


def likelihood_on_devices(form: StateSpace, calls: Calls, y: Any, model: Model) -> Any:
    return likelihood(form, calls, *vary_alike((y, checked(y, model, form))))


def compiled(calls: Calls, _: str, y: Any, model: Model, form: StateSpace) -> Any:
    return log_likelihood(y, model, form, calls)


@program(0, 1, 4)
def states_by_kernels(kernels: Any, verb: str, y: Any, model: Model, form: StateSpace) -> tuple[Any, ...]:
    """What ``kernels.filtered(verb, ...)`` finds of the states; their derivatives are those of `jax_scan`."""
    if form.diffuse:
        rest = functools.partial(by_kernels, kernels)
        found: tuple[Any, ...] = kalman_diffuse_scan.from_diffuse(verb, y, model, form, rest, jax_scan.poisoned)
        return found
    return states(form, verb, kernels.filtered, *vary_alike((y, checked(y, model, form))))


def by_kernels(kernels: Any, verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """The results of a verb by a module of kernels whose programs need not know what is missing."""
    if verb != LIKELIHOOD:
        return states_by_kernels(kernels, verb, y, model, form)
    return log_likelihood(y, model, form, calls_of(kernels))


@functools.cache
def calls_of(kernels: Any) -> Calls:
    def value(y: Any, model: Model, form: StateSpace, missing: bool | None) -> Any:
        return kernels.filtered(LIKELIHOOD, y, model, form)

    def gradient(y: Any, model: Model, form: StateSpace, missing: bool | None, in_y: bool) -> tuple[Any, Any]:
        *of_y, of_model = kernels.derivatives(y, model, form, in_y)
        return of_model, of_y[0] if in_y else None

    return Calls(value, gradient, by_values=False)


@functools.partial(jax.jit, static_argnums=(0, 1, 4))
def by_operations(function: Callable[..., Any], verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """What operations of JAX find, those of ``function(verb, y, model, form)``, wherever the arrays lie."""
    each = functools.partial(in_a_tuple, function, verb, form=form)
    found = left_to_compiler(each, (y, model), out=lambda: spread(verb, y, model, form))(y, model)
    return found[0] if verb == LIKELIHOOD else tuple(found)


def in_a_tuple(function: Callable[..., Any], verb: str, y: Any, model: Model, form: StateSpace) -> tuple[Any, ...]:
    found = function(verb, y, model, form)
    return found if isinstance(found, tuple) else (found,)


def states_of(verb: str, y: Any, model: Model, form: StateSpace) -> tuple[Any, ...]:
    """What a filter or a smoother returns, by `jax_scan`."""
    if (jax.device_count("cpu") == 1 and not form.cut) or form.diffuse:
        found: tuple[Any, ...] = jax_scan.kalman(verb, y, model, form)
        return found
    return states(form, verb, None, *vary_alike((y, checked(y, model, form))))


def spread(verb: str, y: Any, model: Model, form: StateSpace) -> tuple[NamedSharding, ...]:
    """How results lie on devices: along the batch as the arrays that have it, along time as observations."""
    kinds, ranks = [jax.typeof(x) for x in (y, *jax.tree.leaves(model))], len(form.batch)
    mesh = next(kind.sharding.mesh for kind in kinds if kind.sharding.mesh.explicit_axes)
    free = dict(mesh.shape)

    def along(axis: int, n: int, kinds: Sequence[Any]) -> Any:
        for kind in kinds:
            names = kind.sharding.spec[axis] if kind.ndim > axis and kind.shape[axis] == n else None
            cut = Cut.along(names, mesh.shape)
            if names is not None and all(name in free for name in cut.names):
                for name in cut.names:
                    del free[name]  # an axis of a mesh spreads one axis of an array
                return names
        return None

    batch = [along(axis, n, kinds) for axis, n in enumerate(form.batch)]
    timed = PartitionSpec(*batch, along(ranks, form.n, kinds[:1]))
    specs = (timed if has_time else PartitionSpec(*batch) for has_time in split_kalman.RESULTS[verb])
    return tuple(NamedSharding(mesh, spec) for spec in specs)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def states(form: StateSpace, verb: str, kernels: Callable[..., Any] | None, y: Any, model: Model) -> tuple[Any, ...]:
    """What a filter or a smoother returns, by kernels; without them of arrays that may be sharded along time."""

    def by_kernels(y: Any, model: Model, form: StateSpace, missing: bool | None) -> Any:
        return kernels and kernels(verb, y, model, form)

    function = by_kernels if kernels else functools.partial(split_kalman.states, verb, whole_states(verb))
    return filtering(function, form, False)(y, *model)


@states.defjvp
def change_of_states(
    form: StateSpace, verb: str, kernels: Callable[..., Any] | None, primals: Any, tangents: Any
) -> Any:
    """Of whole series, which are gathered."""
    function = functools.partial(whole_states(verb), missing=form.missing)
    return states(form, verb, kernels, *primals), jax.jvp(of_whole(verb, function, form), primals, tangents)[1]


def of_whole(verb: str, function: Callable[..., Any], form: StateSpace) -> Callable[..., Any]:
    """``function(y, model, form)`` of y and a model; of whole series where a device has some of their steps."""
    if not form.cut:
        return functools.partial(function, form=form)
    return functools.partial(split_kalman.gathered_from_devices, function, split_kalman.RESULTS[verb], form=form)


@program(0, 1, 4)
def gathered(function: Callable[..., Any], verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """What a backend that knows whole series only computes of the steps that a device has."""
    whole = functools.partial(in_a_tuple, function, verb)
    found = of_whole(verb, whole, form)(*vary_alike((y, checked(y, model, form))))
    return found[0] if verb == LIKELIHOOD else found


@functools.cache
def whole_states(verb: str) -> Callable[..., Any]:
    def function(y: Any, model: Model, form: StateSpace, missing: bool | None) -> Any:
        return jax_scan.by_what_is_missing(
            functools.partial(jax_scan.filtered, verb), y, model, form._replace(missing=missing, checked=True)
        )

    return function


def checked(y: Any, model: Model, form: StateSpace) -> Model:
    """The model, NaN where its covariances are none."""
    if form.checked:
        return model
    front, _ = kalman_filter.front(ops, model, y)
    P0 = jnp.moveaxis(jax_scan.poisoned(front, form).P0, (0, 1), (-2, -1))
    if form.cut:  # any device may have found some
        P0 = jnp.where(lax.pmax(jnp.isnan(P0).astype(jnp.int32), form.cut.names) > 0, jnp.nan, P0)
    return model._replace(P0=P0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def likelihood(form: StateSpace, calls: Calls, y: Any, model: Model) -> Any:
    return value(form, calls, y, model)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def value(form: StateSpace, calls: Calls, y: Any, model: Model) -> Any:
    return call(calls, calls.value, form, y, model)


@value.defjvp
def change(form: StateSpace, calls: Calls, primals: Any, tangents: Any) -> Any:
    """Where a gradient is differentiated, so is the value beside it, which nobody asks for as a rule."""

    def of(y: Any, model: Model, form: StateSpace) -> tuple[Any]:
        model, y = kalman_filter.front(ops, model, y)
        kept = None if form.missing is False else ~jnp.isnan(y)
        return (kalman_scan.run(form, y, model, kept, lambda step: None)[0],)

    return value(form, calls, *primals), jax.jvp(of_whole(LIKELIHOOD, of, form), primals, tangents)[1][0]


def forward(form: StateSpace, calls: Calls, y: Any, model: Model) -> Any:
    values = y.value, Model(*(x.value for x in model))
    return value(form, calls, *values), (*values, () if y.perturbed else None)


def backward(form: StateSpace, calls: Calls, residuals: Any, weight: Any) -> Any:
    y, model, in_y = residuals
    weight = jnp.zeros(form.batch, y.dtype) if isinstance(weight, SymbolicZero) else weight
    return gradient(form, calls, in_y is not None, y, model, weight)


likelihood.defvjp(forward, backward, symbolic_zeros=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def gradient(form: StateSpace, calls: Calls, in_y: bool, y: Any, model: Model, weight: Any) -> tuple[Any, Model]:
    """Of the sum of all log-likelihoods, each times its weight; in y zeros where nobody asks for it."""
    if calls.gradient is None or any(x.shape[len(form.batch)] != 1 for x in model[:4]):
        return plain(form, in_y, y, model, weight)
    found, of_y = call(calls, functools.partial(calls.gradient, in_y=in_y), form, y, model)
    ends = np.cumsum([math.prod(shape) for shape in own_shapes(form)])
    parts = jnp.split(found * weight[..., None], ends[:-1], axis=-1)
    of_model = Model(*(summed(own, x, form).reshape(x.shape) for own, x in zip(parts, model, strict=True)))
    of_y = jnp.zeros_like(y) if of_y is None else summed(of_y * weight[..., None, None], y, form)
    return of_y, of_model


@gradient.defjvp
def second(form: StateSpace, calls: Calls, in_y: bool, primals: Any, tangents: Any) -> Any:
    return gradient(form, calls, in_y, *primals), jax.jvp(functools.partial(plain, form, in_y), primals, tangents)[1]


def plain(form: StateSpace, in_y: bool, y: Any, model: Model, weight: Any) -> tuple[Any, Model]:
    def of(y: Any, model: Model, form: StateSpace) -> tuple[Any]:
        return (jax_scan.kalman(LIKELIHOOD, y, model, form._replace(checked=True)),)

    of_y, of_model = jax.vjp(of_whole(LIKELIHOOD, of, form), y, model)[1]((weight,))
    return of_y if in_y else jnp.zeros_like(y), of_model


def summed(x: Any, like: Any, form: StateSpace) -> Any:
    """The sum over the batch axes that an argument does not have."""
    axes = tuple(k for k, length in enumerate(form.batch) if length != 1 and like.shape[k] == 1)
    return jnp.sum(x, axes, keepdims=True) if axes else x


# -------------------------------------------------------------------------------------------------- without gradients


def call(calls: Calls, function: Callable[..., Any], form: StateSpace, y: Any, model: Model) -> Any:
    """A custom call for what is missing, or for the faster case; `vmap` adds a leading axis to all arguments."""
    return filtering(function, form, calls.by_values)(y, *model)


def filtering(function: Callable[..., Any], form: StateSpace, by_values: bool = True) -> Any:
    """The call; ``by_values``: where it is not known whether anything is missing, the program looks before it."""

    def run(y: Any, *model: Any) -> Any:
        if not by_values:
            return function(y, Model(*model), form, form.missing)

        def known(missing: bool) -> Any:
            return lambda: function(y, Model(*model), form, missing)

        if form.missing is None and form.cov_batch != form.batch:
            found = jnp.isnan(y)
            found = anywhere(found, form.cut) if form.cut else jnp.any(found)
            return lax.cond(found, known(True), known(False))
        return known(form.missing is not False)()

    def wider(length: int, is_batched: Any, *arrays: Any) -> Any:
        of_model = Model(*is_batched[1:])
        covariances = length if any(of_model._replace(m0=False)) else 1
        longer = form._replace(batch=(length, *form.batch), cov_batch=(covariances, *form.cov_batch))
        return filtering(function, longer, by_values)(*lifted(is_batched, arrays))

    return batched(run, wider)


@functools.partial(jax.jit, static_argnums=0)
def step(function: Callable[..., tuple[Any, ...]], arrays: dict[str, Any]) -> tuple[Any, ...]:
    """What a function of operations and of the arrays of one step makes of them."""
    return function(ops, arrays)
