"""Products with plain matrices, and their determinants, whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.execute import compiled_products
from tridiag.calls.fast_path.facts import (
    Array,
    Casts,
    Facts,
    cast,
    casts_of,
    entry_of,
    extents_of,
    facts_of,
    facts_of_all,
    fits,
    kept_call_of,
    may_be_bound,
    promotion,
    surely_disjoint,
)
from tridiag.calls.plan import UNASKED, Plan, cached_plan
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same, Several
from tridiag.problems.forms import Form, Shape, lift

OUT = 5  # the place of an argument


class BoundProduct(NamedTuple):
    """A product that waits for its arrays."""

    call: Callable[..., bool]  # of y, x, a, b, c, where
    casts: Casts
    shape: Shape
    dtype: np.dtype[Any]
    kept: Keepable | None
    elsewhere: bool  # the product is made contiguous, and copied to where it is to lie


class BoundDeterminants(NamedTuple):
    """Determinants that wait for their matrices."""

    call: Callable[..., tuple[Array, Array]]  # of a, b, c, where
    casts: Casts
    kept: Keepable | None


def product(a: Any, b: Any, c: Any, x: Array, where: Any, out: Any, axis: Any, *options: Any) -> Array | None:
    """The product, or None where this is not the way to it."""
    if not (out is None or type(out) is np.ndarray):
        return None
    given = [a, b, c, x]
    bound = recalled(bound_product, given, where, axis, (None if out is None else facts_of(out), *options))
    if bound is None:
        return None
    if not (out is None or (out.flags.writeable and surely_disjoint(out, (*given, where)))):
        return None
    y: Array = np.empty(bound.shape, bound.dtype) if out is None or bound.elsewhere else out
    if bound.casts and cast(given, bound.casts) is None:
        return None
    a, b, c, x = given
    bound.call(y, x, a, b, c, where)
    if bound.kept:
        PRODUCTS.keep(bound.kept)
    if out is not None and bound.elsewhere:
        out[...] = y
        return out
    return y


def determinants(a: Any, b: Any, c: Any, where: Any, axis: Any, *options: Any) -> tuple[Array, Array] | None:
    """Signs and logarithms, or None where this is not the way to them."""
    given = [a, b, c]
    bound = recalled(bound_determinants, given, where, axis, options)
    if bound is None or (bound.casts and cast(given, bound.casts) is None):
        return None
    result: tuple[Array, Array] = bound.call(*given, where)
    if bound.kept:
        DETERMINANTS.keep(bound.kept)
    return result


PRODUCTS, DETERMINANTS = CallTable(product), CallTable(determinants)


def recalled(bound: Callable[..., Any], given: list[Any], where: Any, axis: Any, options: Any) -> Any:
    """What is known of such arguments; None where an option has no hash, or is refused next."""
    if type(axis) is not int or not (where is None or type(where) is np.ndarray):
        return None
    try:
        return bound(facts_of_all(given), None if where is None else facts_of(where), axis, *options)
    except TypeError:
        return None


@functools.lru_cache(1024, typed=True)
def bound_product(
    facts: tuple[Any, ...], where: Facts | None, axis: int, out: Facts | None, periodic: bool, transpose: bool
) -> BoundProduct | None:
    """The product of a, b, c and x with these facts, if there are compiled loops for it."""
    module = compiled_products()
    if module is None or not may_be_bound(facts):
        return None
    plan = plan_of_matrices("matmul", facts, where, axis, "auto", periodic, transpose, UNASKED)
    casts, form = casts_of(plan, facts), plan.form
    if casts is None:
        return None
    *matrix, x = (extents_of(fact, plan, k) for k, fact in enumerate(facts))
    if any(band[0] != plan.out_dtype for band in matrix):
        return None  # real matrices of complex vectors
    y = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if out is not None and not fits(out, y):
        return None
    call = module.bound_product(form, *lifted(form, (out or y, x, *matrix, where)), plan.out_dtype)
    elsewhere = call is None and out is not None
    if elsewhere:
        call = module.bound_product(form, *lifted(form, (y, x, *matrix, where)), plan.out_dtype)
    if call is None:
        return None
    given = *facts, where or Same(None), out or Same(None), *map(Same, (axis, periodic, transpose))
    takes = OUT if out else RESULT
    sources = takes, 3, 0, 1, 2, 4 if where else NOTHING
    kept = None if elsewhere else kept_call_of(call, given, casts, y, sources, takes, False)
    return BoundProduct(call, casts, form.shape, plan.out_dtype, kept, elsewhere)


@functools.lru_cache(1024, typed=True)
def bound_determinants(
    facts: tuple[Any, ...], where: Facts | None, axis: int, periodic: bool, backend: str
) -> BoundDeterminants | None:
    """The determinants of a, b, c with these facts, if their backend calls its kernel with arrays as they are."""
    if not may_be_bound(facts):
        return None
    plan = plan_of_matrices("slogdet", facts, where, axis, True, periodic, False, backend)
    module, casts, form = plan.backend.module(), casts_of(plan, facts), plan.form
    if casts is None or not hasattr(module, "bound_slogdet"):
        return None
    matrix = [extents_of(fact, plan, k) for k, fact in enumerate(facts)]
    dtype, batch = matrix[1][0], form.matrix_batch
    call, kept = module.bound_slogdet(form, *lifted(form, (*matrix, where, None, None)), dtype), None
    if getattr(call, "run", None) is not None:
        given = *facts, where or Same(None), *map(Same, (axis, periodic, backend))
        sources = 0, 1, 2, 3 if where else NOTHING, NOTHING, RESULT, NOTHING, NOTHING, NOTHING, RESULT - 1
        kept = kept_call_of(call, given, casts, Several(dtype, (batch, batch)), sources, RESULT, False)
    return BoundDeterminants(call, casts, kept)


def plan_of_matrices(
    verb: str,
    facts: tuple[Any, ...],
    where: Facts | None,
    axis: int,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    backend: Any,
    overwrite_d: bool = False,
) -> Plan:
    """The plan that these arguments have on the way of all calls."""
    entries = (*map(entry_of, facts), None if where is None else where[:2])
    plan: Plan = cached_plan(
        verb, "numpy", entries, promotion(facts), axis, pivoting, periodic, transpose, overwrite_d, backend
    )
    return plan


def lifted(form: Form, operands: tuple[Any, ...]) -> tuple[Any, Any]:
    """The shapes and the strides of operands that are brought to the rank of a form; None is no operand."""
    rank = len(form.shape)
    return tuple(x and lift(x[1], rank, form.axis) for x in operands), tuple(
        x and lift(x[2], rank, form.axis) for x in operands
    )
