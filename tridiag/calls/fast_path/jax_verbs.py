"""The verbs on concrete JAX arrays of one CPU device whose facts are known: one jitted call each.

What a plan does to the arguments, and to the result, is part of the program. Tracers, arrays of several devices, and
what JAX takes beside its arrays but numbers, go the way of all calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from tridiag.calls import execute
from tridiag.calls.blocks import cached_block_plan
from tridiag.calls.fast_path.factored import Eliminated, Kind
from tridiag.calls.plan import UNASKED, Call, Plan, cached_plan, wants_check
from tridiag.calls.sequences import cached_recurrence_plan, indexed
from tridiag.calls.singular import raise_if_singular
from tridiag.derivatives.jax_recurrences import differentiable_recurrence
from tridiag.derivatives.jax_systems import differentiable, make_factors
from tridiag.libraries.arrays import is_real
from tridiag.libraries.jax import default_platform, platform_of
from tridiag.selection.choose import choose
from tridiag.xla.split_factors import Factors

NUMBERS = (int, float, complex)
attributes_of: Callable[[Any], tuple[Any, ...]] = attrgetter("dtype", "shape", "weak_type", "sharding")
Settings = tuple[Any, Any]  # on which promotion depends


class Bound(NamedTuple):
    """A call that waits for its arrays."""

    run: Callable[..., Any]  # of the arguments
    prepared: Callable[..., Call]  # the same
    check: bool


def settings() -> Settings:
    return jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion


def facts_of(kind: type, given: Sequence[Any]) -> tuple[Any, ...]:
    """The facts of arrays of a type; the types of what is none, and None as it is."""
    return tuple([attributes_of(x) if type(x) is kind else x if x is None else type(x) for x in given])


def may_be_bound(facts: Sequence[Any]) -> bool:
    """Whether all arguments are arrays on one CPU device, or numbers."""
    return all(fact in NUMBERS if isinstance(fact, type) else on_cpu(fact) for fact in facts)


def on_cpu(fact: Any) -> bool:
    sharding = None if isinstance(fact, type) else fact[3]
    return isinstance(sharding, SingleDeviceSharding) and platform_of(*sharding.device_set) == "cpu"


def entry_of(fact: Any) -> Any:
    """What a plan is made from."""
    if fact is None or isinstance(fact, type):
        return fact and (fact, (), fact, None)
    dtype, shape, weak, _ = fact
    return dtype, shape, type(dtype.type(0).item()) if weak else dtype, "cpu"


def jitted(plan: Plan, finish: Callable[[Call], Any], order: int, check: bool = False) -> Bound | None:
    """The call of a plan as one program of its arguments: so many coefficients, the right side, and what else there is.

    What is last is the mask of systems.
    """
    if plan.casts or plan.empty:
        return None
    systems = plan.problem.verb not in RECURRENCES and plan.sides is None

    def prepared(*arguments: Any) -> Call:
        given = list(arguments)
        for k, dtype, shape in plan.steps:
            given[k] = jnp.asarray(given[k], dtype).reshape(shape)
        mask: tuple[Any, ...] = (given.pop(),) if systems else ()
        mask = tuple(x if x is None else x.reshape(plan.mask_shape) for x in mask)
        right = given[order] if len(given) > order else None
        return Call(plan, (*given[:order], *mask), right, tuple(given[order + 1 :]))

    return Bound(jax.jit(lambda *arguments: finish(prepared(*arguments))), prepared, check)


def run(bound: Bound | None, *given: Any) -> Any:
    """The result, or None where this is not the way to it."""
    if bound is None:
        return None
    try:
        return bound.run(*given)
    except OverflowError:  # an integer that JAX takes no argument of a program for
        return None


# -------------------------------------------------------------------------------------------------------- systems


def solve(a: Any, b: Any, c: Any, d: Any, where: Any, out: Any, axis: Any, *options: Any) -> Any:
    """The solution, or None where this is not the way to it."""
    if out is not None or type(axis) is not int:
        return None
    try:
        bound = bound_solve(facts_of(type(d), (a, b, c, d, where)), settings(), axis, *options)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    x = run(bound, a, b, c, d, where)
    if x is not None and bound is not None and bound.check and not np.isfinite(np.asarray(x)).all():
        call = bound.prepared(a, b, c, d, where)
        raise_if_singular(x, None, call.matrix, call.form)
    return x


def matmul(a: Any, b: Any, c: Any, x: Any, where: Any, axis: Any, periodic: Any, transpose: Any) -> Any:
    """The product, or None where this is not the way to it."""
    if type(axis) is not int:
        return None
    try:
        bound = bound_verb(
            "matmul", facts_of(type(x), (a, b, c, x, where)), settings(), axis, "auto", periodic, transpose, UNASKED
        )
    except TypeError:
        return None
    return run(bound, a, b, c, x, where)


def slogdet(a: Any, b: Any, c: Any, where: Any, axis: Any, periodic: Any, backend: Any) -> Any:
    """Sign and logarithm, or None where this is not the way to them."""
    if type(axis) is not int:
        return None
    try:
        facts = facts_of(type(b), (a, b, c, where))
        bound = bound_verb("slogdet", facts, settings(), axis, True, periodic, False, backend)
    except TypeError:
        return None
    return run(bound, a, b, c, where)


@functools.lru_cache(1024, typed=True)
def bound_solve(
    facts: tuple[Any, ...],
    promotion: Settings,
    axis: int,
    backend: str,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    check: bool | None,
    overwrite_d: bool,
) -> Bound | None:
    """The solve of a, b, c, d and a mask with these facts."""
    plan = plan_of_systems("solve", facts, promotion, axis, pivoting, periodic, transpose, overwrite_d, backend)
    if plan is None:
        return None
    form, name = plan.form._replace(overwrite_d=False), plan.backend.name
    return jitted(plan, lambda call: differentiable(call.matrix, call.d, None, form, name), 3, wants_check(plan, check))


@functools.lru_cache(1024, typed=True)
def bound_verb(
    verb: str,
    facts: tuple[Any, ...],
    promotion: Settings,
    axis: int,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    backend: Any,
) -> Bound | None:
    """A verb of arguments and a mask with these facts."""
    plan = plan_of_systems(verb, facts, promotion, axis, pivoting, periodic, transpose, False, backend)
    finish: Callable[[Call], Any] = execute.product if verb == "matmul" else execute.determinants
    return None if plan is None else jitted(plan, finish, 3)


def plan_of_systems(verb: str, facts: tuple[Any, ...], promotion: Settings, *options: Any) -> Plan | None:
    """The plan that these arguments have on the way of all calls; None where this is not the way."""
    *arguments, where = facts
    if not may_be_bound(arguments) or not (where is None or on_cpu(where)):
        return None
    mask = None if where is None else entry_of(where)
    plan: Plan = cached_plan(verb, "jax", (*map(entry_of, arguments), mask), (*promotion, default_platform()), *options)
    return plan


def factors(a: Any, b: Any, c: Any, where: Any, axis: Any, *options: Any) -> tuple[Any, ...] | None:
    """The matrices, what is known of them, their factors and status; None where this is not the way to them."""
    if type(axis) is not int:
        return None
    try:
        bound = bound_factors(facts_of(type(b), (a, b, c, where)), settings(), axis, *options)
    except TypeError:
        return None
    found = None if bound is None else run(bound.bound, a, b, c, where)
    return None if found is None or bound is None else ((a, b, c, where), bound.axis, bound.name, bound.kind, *found)


def solve_factored(made: Eliminated, d: Any, transpose: Any, out: Any, check: Any, overwrite_d: Any) -> Any:
    """The solution with matrices that were eliminated, or None where this is not the way to it."""
    kept = made.factors
    if out is not None or made.kind.axis_name is not None or getattr(kept, "tiles", None) is None:
        return None
    a, b, c, where = made.matrix
    kind, placed, asked = type(d), made.options, made.name if not made.free else UNASKED
    options = placed["axis"], placed["pivoting"], placed["periodic"], transpose, overwrite_d, asked, check
    facts = facts_of(kind, (a, b, c, d, where)), facts_of(kind, (kept.tiles, kept.stamps))
    try:
        bound = bound_factored(*facts, settings(), made.name, made.kind, *options)
    except TypeError:
        return None
    x = run(bound, a, b, c, d, kept.tiles, kept.stamps, where)
    if x is not None and bound is not None and bound.check and not np.isfinite(np.asarray(x)).all():
        call = bound.prepared(a, b, c, d, where)
        raise_if_singular(x, None, call.matrix, call.form)
    return x


@functools.lru_cache(1024, typed=True)
def bound_factored(
    facts: tuple[Any, ...],
    kept: tuple[Any, ...],
    promotion: Settings,
    name: str,
    kind: Kind,
    axis: int,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    overwrite_d: bool,
    asked: Any,
    check: bool | None,
) -> Bound | None:
    """The solve of d with a, b, c, a mask and ``kept`` factors with these facts; ``name``: of the backend of these."""
    plan = plan_of_systems("solve", facts, promotion, axis, pivoting, periodic, transpose, overwrite_d, asked)
    shapes = tuple(() if fact is None or isinstance(fact, type) else tuple(fact[1]) for fact in (*facts[:3], facts[4]))
    if plan is None or not all(map(on_cpu, kept)) or (plan.problem.dtype, plan.form.n) != (kind.dtype, kind.rows):
        return None
    if shapes != kind.shapes or (kind.from_front and len(plan.form.shape) > max(map(len, shapes))):
        return None
    form = plan.form._replace(overwrite_d=False)
    return jitted(
        plan,
        lambda call: differentiable(call.matrix, call.d, Factors(None, None, *call.init), form, name),
        3,
        wants_check(plan, check),
    )


class BoundFactors(NamedTuple):
    """An elimination that waits for its matrices."""

    bound: Bound | None
    axis: int  # of later right sides
    name: str  # of the backend
    kind: Kind


@functools.lru_cache(1024, typed=True)
def bound_factors(
    facts: tuple[Any, ...], promotion: Settings, axis: int, backend: str, pivoting: bool | str, periodic: bool
) -> BoundFactors | None:
    """The elimination of a, b, c and a mask with these facts."""
    shapes = tuple(() if fact is None or isinstance(fact, type) else tuple(fact[1]) for fact in facts)
    one = max(map(len, shapes)) <= 1
    plan = plan_of_systems("factor", facts, promotion, -1 if one else axis, pivoting, periodic, False, False, UNASKED)
    if plan is None:
        return None
    form, entry = plan.form, choose(plan.problem, backend).backend
    quicker = execute.quicker_alike(plan, entry.name) if backend == "auto" else None
    name = (quicker or entry).name
    bound = jitted(plan, lambda call: make_factors(call.matrix, form, name), 3)
    kind = Kind("jax", plan.problem.dtype, form.n, shapes, not one and axis >= 0)
    return BoundFactors(bound, axis if one else form.axis - len(form.shape), entry.name, kind)


def solve_block(A: Any, B: Any, C: Any, d: Any, backend: Any) -> Any:
    """The solution, or None where this is not the way to it."""
    try:
        bound = bound_blocks(facts_of(type(d), (A, B, C, d)), settings(), backend)
    except TypeError:
        return None
    return run(bound, A, B, C, d)


@functools.lru_cache(1024, typed=True)
def bound_blocks(facts: tuple[Any, ...], promotion: Settings, backend: str) -> Bound | None:
    """The solve of A, B, C, d with these facts."""
    if not may_be_bound(facts):
        return None
    plan = cached_block_plan("jax", tuple(map(entry_of, facts)), (*promotion, default_platform()), backend)
    return jitted(plan, execute.blocks_solved, 3)


# ---------------------------------------------------------------------------------------------------- recurrences

RECURRENCES = {"linear_recurrence": "a", "matrix_recurrence": "A", "log_linear_recurrence": "log_a", "logcumsumexp": ""}


def recurrence(verb: str, given: Mapping[str, Any], out: Any, reverse: Any, backend: Any, axis: Any = -2) -> Any:
    """The result of a recurrence, or None where this is not the way to it."""
    x, init, a = given["x"], given.get("init"), given.get(RECURRENCES[verb])
    if out is not None or type(axis) is not int or (a is None and verb != "logcumsumexp"):
        return None
    rows = a if type(a) is tuple else () if a is None else (a,)
    before = init if type(init) is tuple else () if init is None else (init,)
    indices = len(rows) if type(a) is tuple else None
    try:
        facts = facts_of(type(x), (*rows, x, *before))
        bound = bound_recurrence(verb, facts, settings(), indices, type(init) is tuple, axis, reverse, backend)
    except TypeError:
        return None
    return run(bound, *rows, x, *before)


@functools.lru_cache(1024, typed=True)
def bound_recurrence(
    verb: str,
    facts: tuple[Any, ...],
    promotion: Settings,
    indices: int | None,
    states: bool,
    axis: int,
    reverse: bool,
    backend: str,
) -> Bound | None:
    """The recurrence of coefficients, x and what is before with these facts, as `tridiag.recurrences` has them.

    ``indices``: how many coefficients a tuple holds, or None. ``states``: whether what is before is a tuple.
    """
    tuples, linear = indices is not None, verb in ("linear_recurrence", "matrix_recurrence")
    order = int(verb != "logcumsumexp") if indices is None else indices
    count = len(facts) - order - 1
    if not may_be_bound(facts) or (tuples and not (verb == "linear_recurrence" and order)):
        return None
    if count not in (0, order) or (count > 0 and states != tuples):
        return None
    rows = indexed("a", order) if tuples else (RECURRENCES[verb],) * order
    names = (*rows, "x", *(indexed("init", order) if tuples else ("init",)))[: len(facts)]
    entries, known = tuple(map(entry_of, facts)), (*promotion, default_platform())
    plan = cached_recurrence_plan(verb, "jax", names, order, entries, known, axis, reverse, backend)
    if not (linear or is_real(plan.problem.dtype)):
        return None
    form, name = plan.form, plan.backend.name
    return jitted(plan, lambda call: differentiable_recurrence(verb, form, name, call.matrix, call.d, call.init), order)


def forget() -> None:
    """Decide anew about calls that were met before."""
    for cache in (bound_solve, bound_verb, bound_factored, bound_factors, bound_blocks, bound_recurrence):
        cache.cache_clear()
