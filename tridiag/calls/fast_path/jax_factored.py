"""Factors of concrete JAX arrays of one CPU device, and solves with them: one jitted call each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.calls import execute
from tridiag.calls.fast_path.factored import Eliminated, Kind
from tridiag.calls.fast_path.facts import one_each
from tridiag.calls.fast_path.jax_bound import (
    Bound,
    Settings,
    attributes_of,
    facts_of,
    jitted,
    look,
    on_cpu,
    plan_of_systems,
    run,
    settings,
)
from tridiag.calls.plan import UNASKED, Call, axis_alone, wants_check
from tridiag.derivatives.jax_systems import differentiable, make_factors
from tridiag.selection.choose import choose


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


class KnownMatrices(NamedTuple):
    """The facts of matrices that were eliminated, with which options, and of their factors."""

    facts: tuple[Any, ...]
    where: Any
    options: tuple[Any, ...]  # axis, pivoting, periodic
    own_axis: int  # of the matrices alone
    free: bool  # whether the backend was not named
    name: str
    kind: Kind
    factors: tuple[Any, ...]
    holding: Callable[..., Any]  # what the arrays of factors are put into


same_matrices = one_each(KnownMatrices)


def known(status: Any, made: Eliminated, windows: None) -> tuple[Any, ...] | None:
    """What solves with factors depend on: what is known, the arrays, the factors; None where nothing is kept."""
    (a, b, c, where), kept, kind = made.matrix, made.factors, type(status)
    shapes = tuple([tuple(getattr(x, "shape", ())) for x in made.matrix])
    if made.kind.axis_name is not None or getattr(kept, "tiles", None) is None or shapes != made.kind.shapes:
        return None
    *facts, mask = facts_of(kind, made.matrix)
    options = made.options["axis"], made.options["pivoting"], made.options["periodic"]
    own, arrays = axis_alone(made.matrix, options[0]), facts_of(kind, (kept.tiles, kept.stamps))
    holding: Any = type(kept)
    found = same_matrices(tuple(facts), mask, options, own, made.free, made.name, made.kind, arrays, holding)
    return found, a, b, c, where, kept.tiles, kept.stamps


def solve_factored(given: tuple[Any, ...], d: Any, transpose: Any, out: Any, check: Any, overwrite_d: Any) -> Any:
    """The solution with factors that are ``given`` as by `known`, or None where this is not the way to it."""
    if out is not None:
        return None
    known, a, b, c, where, *kept = given
    try:
        bound = bound_factored(known, attributes_of(d), settings(), transpose, check, overwrite_d)
    except TypeError:
        return None
    x = run(bound, a, b, c, d, *kept, where)
    if x is not None and bound is not None and bound.check:
        look(bound, x, check, a, b, c, d, where)
    return x


@functools.lru_cache(1024, typed=True)
def bound_factored(
    known: KnownMatrices, d: Any, promotion: Settings, transpose: bool, check: Any, overwrite_d: Any
) -> Bound | None:
    """The solve of right sides with these facts."""
    kind, facts = known.kind, (*known.facts, d, known.where)
    asked = UNASKED if known.free else known.name
    plan = plan_of_systems("solve", facts, promotion, *known.options, transpose, overwrite_d, asked)
    if plan is None or not all(map(on_cpu, known.factors)):
        return None
    if (plan.problem.dtype, plan.form.n) != (kind.dtype, kind.rows):
        return None
    if kind.from_front and len(plan.form.shape) > max(map(len, kind.shapes)):
        return None  # which raises
    form, name = plan.form._replace(overwrite_d=False), known.name

    def finish(call: Call) -> Any:
        return differentiable(call.matrix, call.d, known.holding(None, None, *call.init), form, name)

    return jitted(plan, finish, 3, wants_check(plan, check))


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
