"""The derivative rules of recurrences for JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.algorithms import logsumexp
from tridiag.algorithms import recurrence as recursion
from tridiag.algorithms.recurrence import Rows
from tridiag.backends import BACKENDS, Backend, Problem
from tridiag.calls.plan import Call
from tridiag.calls.split import PARTS
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.derivatives.jax_systems import Joint
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import left_to_compiler, vary_alike
from tridiag.problems.forms import Recurrence
from tridiag.selection.choose import alongside
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import Program, for_threads


def recurrence(verb: str, call: Call, backend: Backend, out: Any) -> Any:
    function = differentiable_recurrence if call.traced else compiled_recurrence
    return function(verb, call.form, backend.name, call.matrix, call.d, call.init)


def differentiable_recurrence(verb: str, form: Recurrence, name: Name, coefficients: Rows, x: Any, init: Rows) -> Any:
    """The result of a verb with its derivatives."""
    coefficients, x, init = vary_alike((coefficients, x, init))
    if jnp.issubdtype(x.dtype, jnp.integer):
        return run_recurrence(verb, form, name, coefficients, x, init)  # which has no derivatives
    vectors = tuple(a[..., 0] for a in coefficients) if form.matrices else coefficients
    function = left_to_compiler(functools.partial(RECURRENCES[verb], form, name), (vectors, x, init))
    return function(coefficients, x, init)


compiled_recurrence = Program(differentiable_recurrence, (0, 1, 2))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def sequence(form: Recurrence, name: Name, coefficients: Rows, x: Any, init: Rows) -> Any:
    return run_recurrence(verb_of(form), form, name, coefficients, x, init)


@functools.partial(sequence.defjvp, symbolic_zeros=True)
def sequence_tangent(form: Recurrence, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """A y' = x' + (what init' adds to the first rows) + a' y."""
    coefficients, _, init = primals
    changes, x_dot, init_dots = tangents
    y = sequence(form, name, *primals)
    right = jnp.zeros_like(y) if isinstance(x_dot, SymbolicZero) else jnp.broadcast_to(x_dot, y.shape)
    if any(not isinstance(t, SymbolicZero) for t in init_dots):
        right = right + first_terms(coefficients, tuple(map(instantiated, init_dots)), form, y)
    system = Joint(
        product=lambda v: v - terms(coefficients, v, (), form),
        change=lambda changes: -terms(tuple(changes), y, init, form),
        solve=lambda r: run_recurrence(verb_of(form), form, name, coefficients, r, ()),
        adjoint=lambda g: run_recurrence("adjoint", form, name, coefficients, g, y, init),
    )
    if all(not isinstance(t, SymbolicZero) and (t.shape, t.dtype) == (y.shape, y.dtype) for t in changes):
        return y, system.tangent([right, *changes])
    for k, change in enumerate(changes, 1):
        if not isinstance(change, SymbolicZero):
            right = right + recursion.term(operations(form), change, y, k, init, form)
    return y, linear(form, name, coefficients, right)


def linear(form: Recurrence, name: Name, coefficients: Rows, right: Any) -> Any:
    """The recurrence from 0, as a function of ``right`` that JAX can transpose."""
    both = (
        lambda _, r, form=form: run_recurrence(verb_of(form), form, name, coefficients, r, ())
        for form in (form, form._replace(transpose=not form.transpose))
    )
    return lax.custom_linear_solve(lambda v: v - terms(coefficients, v, (), form), right, *both)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def log_sequence(form: Recurrence, name: Name, coefficients: Rows, x: Any, init: Rows) -> Any:
    verb = "log_linear_recurrence" if coefficients else "logcumsumexp"
    return run_recurrence(verb, form, name, coefficients, x, init)


@functools.partial(log_sequence.defjvp, symbolic_zeros=True)
def log_sequence_tangent(form: Recurrence, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """One linear recurrence: `tridiag.algorithms.logsumexp.shares`."""
    coefficients, x, init = primals
    changes, x_dot, init_dots = tangents
    y = log_sequence(form, name, *primals)
    p, q, of_past = logsumexp.shares(operations(form), coefficients, x, y, init, form)
    right = q * instantiated(x_dot)
    if any(not isinstance(t, SymbolicZero) for t in changes):
        right = right + of_past * changes[0]
    if any(not isinstance(t, SymbolicZero) for t in init_dots):
        right = right + first_terms((of_past,), tuple(map(instantiated, init_dots)), form, y)
    return y, linear(form, linear_name(name, form, y), (p,), right)


def linear_name(name: Name, form: Recurrence, like: Any) -> Name:
    """The backends for the linear recurrence beside one of logarithms."""
    problem = Problem("linear_recurrence", "jax", "cpu", str(like.dtype), form.shape, form.axis, None)
    if isinstance(name, str):  # whether it has the verb; it runs where it is
        entry = BACKENDS[name]
        return alongside(entry, problem._replace(device=entry.devices[0])).name
    return tuple((k, alongside(BACKENDS[each], problem._replace(device=k)).name) for k, each in name)


def verb_of(form: Recurrence) -> str:
    return "matrix_recurrence" if form.matrices else "linear_recurrence"


RECURRENCES: dict[str, Callable[..., Any]] = {
    "linear_recurrence": sequence,
    "matrix_recurrence": sequence,
    "log_linear_recurrence": log_sequence,
    "logcumsumexp": log_sequence,
}


@functools.partial(jax.jit, static_argnums=3)
def terms(coefficients: Rows, y: Any, init: Rows, form: Recurrence) -> Any:
    """What the values before each one add to it. Jitted as `product` is."""
    return sum(recursion.term(operations(form), a, y, k, init, form) for k, a in enumerate(coefficients, 1))


def first_terms(coefficients: Rows, init: Rows, form: Recurrence, like: Any) -> Any:
    """The same of the values before the first step alone, which touch the first rows only."""
    if form.cut:
        steps = [operations(form).positions(form.n, a.ndim, form.axis, a) for a in coefficients]
        first = [at >= form.steps - k if form.backward else at < k for k, at in enumerate(steps, 1)]
        ends = tuple(jnp.where(here, a, 0) for here, a in zip(first, coefficients, strict=True))
        return terms(ends, jnp.zeros_like(like), init, form)
    order = min(len(coefficients), form.n)
    short = form._replace(shape=(*form.shape[: form.axis], order, *form.shape[form.axis + 1 :]))
    part = slice(form.n - order, form.n) if form.backward else slice(0, order)
    ends = tuple(a if a.shape[form.axis] == 1 else ops.slice(a, part, form.axis) for a in coefficients)
    rows = terms(ends, jnp.zeros_like(like, shape=short.shape), init, short)
    padding = [(0, 0, 0)] * len(form.shape)
    padding[form.axis] = (part.start, form.n - part.stop, 0)
    return lax.pad(rows, jnp.zeros((), rows.dtype), padding)


def instantiated(tangent: Any) -> Any:
    return jnp.zeros(tangent.shape, tangent.dtype) if isinstance(tangent, SymbolicZero) else tangent


def recurrence_adjoint(form: Recurrence, name: str, coefficients: Rows, g: Any, y: Any, init: Rows) -> Any:
    """w = A^-T g and the cotangents of the coefficients, all of the shape of y."""
    turned = form._replace(transpose=not form.transpose)
    w = recurrence_once(verb_of(form), turned, name, coefficients, g, ())
    return w, *(recursion.term(operations(form), w, y, k, init, form) for k in range(1, len(coefficients) + 1))


def recurrence_once(verb: str, form: Recurrence, name: str, coefficients: Rows, x: Any, init: Rows) -> Any:
    function = getattr(BACKENDS[name].module(), verb)
    if form.cut and name not in PARTS[verb]:
        from tridiag.xla import split_recurrences

        return split_recurrences.gathered_from_devices(function, form, coefficients, x, init)
    return function(coefficients, x, init, form)


def operations(form: Recurrence) -> Any:
    """Those of whole sequences, or of what a device has of them."""
    if form.cut is None:
        return ops
    from tridiag.xla import split_recurrences

    return split_recurrences.operations(form.cut)


def run_recurrence(verb: str, form: Recurrence, name: Name, *arrays: Any) -> Any:
    """A verb of the backend, or "adjoint", without derivatives."""
    leaves, tree = jax.tree.flatten(arrays)
    return running(verb, form, name, tree)(*leaves)


@for_threads
def running(verb: str, form: Recurrence, name: Name, tree: Any) -> Any:
    """The verb as a function of flat arrays."""
    once, static = (recurrence_adjoint, (form,)) if verb == "adjoint" else (recurrence_once, (verb, form))

    def call(*leaves: Any) -> Any:
        return on_platform(name, once, static, *jax.tree.unflatten(tree, leaves))

    def wider(length: int, is_batched: Any, *leaves: Any) -> Any:
        longer = form._replace(shape=(length, *form.shape), axis=form.axis + 1)
        return running(verb, longer, name, tree)(*lifted(is_batched, leaves))

    return batched(call, wider)
