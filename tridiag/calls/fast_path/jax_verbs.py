"""The verbs on concrete JAX arrays of one CPU device whose facts are known: one jitted call each.

What a plan does to the arguments, and to the result, is part of the program. Tracers, arrays of several devices, and
what JAX takes beside its arrays but numbers, go the way of all calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tridiag.calls import execute
from tridiag.calls.blocks import cached_block_plan
from tridiag.calls.fast_path.jax_bound import (
    RECURRENCES,
    Bound,
    Settings,
    entry_of,
    facts_of,
    jitted,
    look,
    may_be_bound,
    plan_of_systems,
    run,
    settings,
)
from tridiag.calls.fast_path.jax_factored import bound_factored, bound_factors, factors, known, solve_factored
from tridiag.calls.plan import UNASKED, Call, wants_check
from tridiag.calls.sequences import cached_recurrence_plan, indexed
from tridiag.derivatives.jax_recurrences import differentiable_recurrence
from tridiag.derivatives.jax_systems import differentiable
from tridiag.libraries.arrays import is_real
from tridiag.libraries.jax import default_platform

__all__ = [
    "factors", "forget", "known", "matmul", "recurrence", "slogdet", "solve", "solve_block", "solve_factored",
]  # fmt: skip


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
    if x is not None and bound is not None and bound.check:
        look(bound, x, options[-2], a, b, c, d, where)
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
