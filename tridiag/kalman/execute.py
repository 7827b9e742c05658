"""From the arguments of a verb to what a backend finds, and back."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

from numpy import ndarray

from tridiag.algorithms import kalman_filter
from tridiag.backends import Backend
from tridiag.calls import fast_path, split
from tridiag.calls.checks import check_count, check_flag
from tridiag.calls.state_space import Call, Intercepts, check_values, prepare
from tridiag.calls.torch_compile import compiling, graph
from tridiag.kalman.intercepts import Known, without_intercepts
from tridiag.libraries.arrays import connected_in, library_of, module_of, place_of
from tridiag.problems.state_space import FILTER, LIKELIHOOD, PARAMETERS
from tridiag.selection.choose import choose

Array = Any
BY_OPERATIONS = "jax_scan", "jax_associative"  # backends that are written in operations of JAX


class Options(NamedTuple):
    """The arguments of the verbs that are no parameters of a model."""

    state_intercept: Any
    obs_intercept: Any
    diffuse: Any
    method: str
    backend: str
    axis_name: str | tuple[str, ...] | None


class Filtered(NamedTuple):
    """What `filter` returns; a pytree under JAX. ``...`` are the batch axes."""

    mean: Array  # (..., n, k): of x[t], once y[t] is seen
    cov: Array  # (..., n, k, k)
    predicted_mean: Array  # the same before y[t] is seen
    predicted_cov: Array
    log_likelihood: Array  # (...)


class Smoothed(NamedTuple):
    """What `smoother` returns; a pytree under JAX."""

    mean: Array  # (..., n, k): of x[t], once all of y is seen
    cov: Array  # (..., n, k, k)
    log_likelihood: Array  # (...)


def run(verb: str, y: Any, parameters: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
    """Prepare the arguments, choose a backend, run it, give the result the caller's dtype; options: `Options`."""
    state_intercept, obs_intercept, diffuse, method, backend, axis_name = options
    plain = state_intercept is None and obs_intercept is None and diffuse is None and axis_name is None
    if plain and type(y) is ndarray:
        found = fast_path.kalman(verb, [y, *parameters], method, backend)
        if found is not None:
            return result_of(verb, found)
    if compiling(y):
        return graph().outside(run, verb, y, parameters, options)
    with place_of((y, *parameters)):
        return found_by(verb, y, parameters, Options(*options))


def found_by(verb: str, y: Any, parameters: tuple[Any, ...], options: Options) -> Any:
    """The result of a verb, in the caller's dtype."""
    entry, call, known = ready(verb, y, parameters, options)
    module = module_of(call.library)
    if call.form.n == 0 or 0 in call.form.batch:
        found = [connected(call, x, (y, *parameters), options) for x in nothing(verb, call)]
        return found[0] if verb == LIKELIHOOD else result_of(verb, found)
    result = computing(verb, call, entry)(verb, call.y, call.model, call.form)
    *states, likelihood = (result,) if verb == LIKELIHOOD else result
    if options.axis_name is not None:
        likelihood = split.on_all(call.form, options.axis_name, likelihood)
    pairs = (known.back(*states[k : k + 2]) for k in range(0, len(states), 2))
    found = [module.cast(x, call.dtype) for x in (*itertools.chain(*pairs), likelihood)]
    if call.form.n == 1:  # F and Q are not read
        found = [connected(call, x, (y, *parameters), options) for x in found]
    return found[0] if verb == LIKELIHOOD else result_of(verb, found)


def ready(verb: str, y: Any, parameters: tuple[Any, ...], options: Options) -> tuple[Backend, Call, Known]:
    """The backend, the call once its values were looked at, and what is known of its states."""
    given = y, *parameters
    intercepts = Intercepts(options.state_intercept, options.obs_intercept)
    call = prepare(verb, y, parameters, options.method, intercepts, options.diffuse)
    if options.axis_name is not None:
        call = split.series(call, given, options.axis_name)
    call, known = without_intercepts(call)
    entry = choose(call.problem, options.backend).backend
    return entry, call._replace(form=check_values(call, dict(zip(("y", *PARAMETERS), given, strict=True)))), known


def by_steps(y: Any, parameters: tuple[Any, ...], options: Options, each_step: bool, burn: int) -> Any:
    """The log-likelihood of every step, or their sum; the first ones are not counted."""
    if compiling(y):
        return graph().outside(by_steps, y, parameters, options, each_step, burn)
    check_flag("each_step", each_step)
    burn = check_count("burn", burn, 0, "how many of the first steps are left out")
    if burn and options.axis_name is not None:
        raise ValueError(
            "burn counts the first steps of whole series, and with axis_name each device has some of them; leave out "
            "what each_step=True returns of those"
        )
    with place_of((y, *parameters)):
        found = of_each_step(y, parameters, options, burn)
        return of_later(found, burn) if each_step else last_steps(found, burn).sum(-1)


def of_each_step(y: Any, parameters: tuple[Any, ...], options: Options, burn: int) -> Any:
    """The log-likelihood of every step, (..., n), of ``burn`` or more."""
    entry, call, _ = ready(FILTER, y, parameters, options)
    module, form = module_of(call.library), call.form
    if burn > form.n:
        raise ValueError(f"burn is {burn}, and y has {form.n} steps; wanted how many of the first steps are left out")
    if form.n == 0 or 0 in form.batch:
        found = module.Operations.full((*form.batch, form.n), 0, call.y)
    elif form.diffuse:
        likelihoods = computing(LIKELIHOOD, call, entry)
        found = likelihoods(LIKELIHOOD, call.y, call.model, form._replace(each_step=True))
    else:
        found = from_predicted(call, entry)
    found = module.cast(found, call.dtype)
    not_read = form.n < 2 or 0 in form.batch  # F and Q of a single step, everything where there are no series
    return connected(call, found, (y, *parameters), options) if not_read else found


def from_predicted(call: Call, entry: Backend) -> Any:
    """The log-likelihood of every step, from the states that a filter predicts."""
    ops, form = module_of(call.library).Operations, call.form
    predicted = computing(FILTER, call, entry)(FILTER, call.y, call.model, form)[2:4]
    model, values = kalman_filter.front(ops, call.model, call.y)
    count = len(form.batch)
    states = (ops.transpose(x, (*range(count, x.ndim), *range(count))) for x in predicted)
    kept = values == values if form.missing is not False else None
    found = kalman_filter.likelihoods(ops, model, values, kept, kalman_filter.Estimate(*states))
    return ops.broadcast(found, (*form.batch, form.n))


def of_later(likelihoods: Array, burn: int) -> Array:
    """Those of every step, 0 in the first."""
    ops = module_of(library_of(likelihoods) or "numpy").Operations
    nothing = ops.full((*likelihoods.shape[:-1], burn), 0, likelihoods)
    return ops.concatenate((nothing, last_steps(likelihoods, burn)), likelihoods.ndim - 1)


def last_steps(x: Array, first: int) -> Array:
    """The steps along the last axis, from the first one that counts."""
    ops = module_of(library_of(x) or "numpy").Operations
    return ops.slice(x, slice(first, x.shape[-1]), x.ndim - 1)


def computing(verb: str, call: Call, entry: Backend) -> Any:
    """What computes a verb: a backend, or what knows its derivatives, or lets each device of JAX have some steps."""
    function = entry.module().kalman
    if call.form.cut and entry.name not in split.PARTS[verb]:
        from tridiag.derivatives import jax_kalman

        return functools.partial(jax_kalman.gathered, function)
    if call.library == "torch":
        from tridiag.derivatives import torch_kalman

        return functools.partial(torch_kalman.kalman, entry)
    if call.library != "jax" or entry.name not in BY_OPERATIONS:
        return function
    from tridiag.derivatives import jax_kalman

    if entry.name == "jax_scan" and verb != LIKELIHOOD:
        function = jax_kalman.states_of
    return functools.partial(jax_kalman.by_operations, function)


def result_of(verb: str, found: Any) -> Any:
    """What a backend has found, as the caller wants it."""
    if verb == LIKELIHOOD:
        return found
    return Filtered(*found) if verb == FILTER else Smoothed(*found)


def connected(call: Call, x: Array, given: tuple[Any, ...], options: Options) -> Array:
    """`connected_in` the given arguments, and those among the options."""
    return connected_in(call.library, x, (*given, options.state_intercept, options.obs_intercept))


def nothing(verb: str, call: Call) -> list[Array]:
    """The result where there are no series, or series without steps."""
    ops, cast, form = module_of(call.library).Operations, module_of(call.library).cast, call.form

    def zeros(*shape: int) -> Array:
        return cast(ops.full((*form.batch, *shape), 0, call.y), call.dtype)

    means, covs = zeros(form.n, form.states), zeros(form.n, form.states, form.states)
    if verb == LIKELIHOOD:
        return [zeros()]
    return [means, covs, means, covs, zeros()] if verb == FILTER else [means, covs, zeros()]
