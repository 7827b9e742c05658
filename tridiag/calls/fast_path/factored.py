"""Factors of plain matrices whose facts are known, and solves with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import BACKENDS
from tridiag.calls.execute import quicker_anew
from tridiag.calls.fast_path.facts import (
    Array,
    Casts,
    Facts,
    cast,
    casts_of,
    extents_of,
    facts_of,
    facts_of_all,
    fits,
    is_contiguous,
    may_be_bound,
    surely_disjoint,
)
from tridiag.calls.fast_path.matrices import lifted, plan_of_matrices, recalled
from tridiag.calls.plan import UNASKED, axis_alone
from tridiag.kernels.jobs.systems import contiguous
from tridiag.problems.forms import Shape
from tridiag.selection.choose import choose


class BoundFactors(NamedTuple):
    """An elimination that waits for its matrices."""

    call: Callable[..., Any]  # of a, b, c, where
    casts: Casts
    plain: bool  # without exchanges: where it breaks down, it is to be looked at again
    axis: int  # of later right sides
    name: str  # of the backend
    kind: tuple[Any, ...]  # library, dtype, rows, shapes, and whether the axis was counted from the front


class Known(NamedTuple):
    """The facts of matrices that were eliminated, and with which options."""

    facts: tuple[Any, ...]
    where: Facts | None
    options: tuple[Any, ...]  # axis, pivoting, periodic
    own_axis: int  # of the matrices alone
    free: bool  # whether the backend was not named
    name: str
    kind: tuple[Any, ...]


class BoundFactored(NamedTuple):
    """A solve with factors that waits for its arrays."""

    call: Callable[..., bool]  # of a, b, c, where, d, x and the factors; whether some system may be singular
    casts: Casts
    shape: Shape
    dtype: np.dtype[Any]


def factors(a: Any, b: Any, c: Any, where: Array | None, axis: Any, *options: Any) -> tuple[Any, ...] | None:
    """Copies of the matrices, what is known of them, their factors and status; None where this is not the way."""
    bound = recalled(bound_factors, [a, b, c], where, axis, options)
    if bound is None:
        return None
    own = [np.array(x) if type(x) is np.ndarray else x for x in (a, b, c)]
    mask = None if where is None else np.array(where)
    given = cast([*own], bound.casts) if bound.casts else own
    if given is None:
        return None
    found = bound.call(*given, mask)
    status = np.array(found.status)
    if bound.plain and status.any():
        return None
    return (*own, mask), bound.axis, bound.name, bound.kind, found, status


@functools.lru_cache(1024, typed=True)
def bound_factors(
    facts: tuple[Any, ...], where: Facts | None, axis: int, backend: str, pivoting: bool | str, periodic: bool
) -> BoundFactors | None:
    """The elimination of a, b, c with these facts, if their backend calls its kernel with arrays as they are."""
    arrays = [fact for fact in (*facts, where) if isinstance(fact, tuple)]
    if not may_be_bound(facts) or not all(map(is_contiguous, arrays)):
        return None  # copies lie otherwise
    shapes = tuple(fact[1] if isinstance(fact, tuple) else () for fact in (*facts, where))
    one = max(map(len, shapes)) <= 1
    plan = plan_of_matrices("factor", facts, where, -1 if one else axis, pivoting, periodic, False, UNASKED)
    entry, form, casts = choose(plan.problem, backend).backend, plan.form, casts_of(plan, facts)
    if casts is None or not hasattr(entry.module(), "bound_factor"):
        return None
    matrix = [extents_of(fact, plan, k) for k, fact in enumerate(facts)]
    call = entry.module().bound_factor(form, *lifted(form, (*matrix, where, None, None)), matrix[1][0])
    placed = axis if one else form.axis - len(form.shape)
    kind = "numpy", plan.problem.dtype, form.n, shapes, not one and axis >= 0
    return BoundFactors(call, casts, form.pivoting is False, placed, entry.name, kind)


def known(
    matrix: tuple[Any, ...], options: dict[str, Any], free: bool, name: str, kind: tuple[Any, ...]
) -> Known | None:
    """What solves with the factors of some NumPy arrays depend on."""
    *bands, where = matrix
    if kind[0] != "numpy" or not (where is None or type(where) is np.ndarray):
        return None
    mask = None if where is None else facts_of(where)
    placed = options["axis"], options["pivoting"], options["periodic"]
    return Known(facts_of_all(bands), mask, placed, axis_alone(matrix, placed[0]), free, name, kind)


def solve_factored(
    known: Known, matrix: tuple[Any, ...], found: Any, d: Array, transpose: Any, out: Any
) -> Array | None:
    """The solution with factors that were ``found``, or None where this is not the way to it."""
    if not (out is None or type(out) is np.ndarray):
        return None
    try:
        bound = bound_factored(known, facts_of(d), None if out is None else facts_of(out), transpose)
    except (TypeError, ValueError):  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    a, b, c, where = matrix
    if out is None:
        x = np.empty(bound.shape, bound.dtype)
    elif out.flags.writeable and surely_disjoint(out, (a, b, c, where, d)):
        x = out
    else:
        return None
    if bound.casts:
        given = cast([a, b, c, d], bound.casts)
        if given is None:
            return None
        a, b, c, d = given
    return None if bound.call(a, b, c, where, d, x, found) else x


@functools.lru_cache(1024, typed=True)
def bound_factored(known: Known, d: Facts, out: Facts | None, transpose: bool) -> BoundFactored | None:
    """The solve of right sides with these facts, if their backend calls its kernel with arrays as they are."""
    (axis, pivoting, periodic), facts = known.options, (*known.facts, d)
    module, (_, dtype, rows, shapes, from_front) = BACKENDS[known.name].module(), known.kind
    if not may_be_bound(facts) or not hasattr(module, "bound_factored_solve"):
        return None
    plan = plan_of_matrices("solve", facts, known.where, axis, pivoting, periodic, transpose, UNASKED)
    casts, form = casts_of(plan, facts), plan.form
    if casts is None or (from_front and len(form.shape) > max(map(len, shapes))):
        return None
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if out is not None and not fits(out, result):
        return None
    *matrix, right = (extents_of(fact, plan, k) for k, fact in enumerate(facts))
    if (matrix[1][0].name, form.n) != (dtype, rows):
        return None  # of another kind than the factors
    operands = (*matrix, known.where, right, out or result)
    places = form, *lifted(form, operands), (matrix[1][0], right[0])
    if known.free and (other := quicker_anew(plan, known.name)):
        call = without_factors(other.module().bound_solve(*places))
    else:
        call = module.bound_factored_solve(*places)
    return BoundFactored(call, casts, form.shape, plan.out_dtype)


def without_factors(call: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *operands: call(*operands[:-1])
