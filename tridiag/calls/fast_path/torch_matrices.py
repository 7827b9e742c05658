"""Products with plain tensors as matrices, and their determinants, whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tridiag.calls.execute import compiled_products
from tridiag.calls.fast_path.tensors import (
    Casts,
    Reaches,
    addresses_of,
    casts_of,
    convert,
    disturbed,
    entry_of,
    extents_of,
    facts_of_all,
    may_be_bound,
    needs_gradient,
    reaches_of,
)
from tridiag.calls.fast_path.torch_systems import lifted
from tridiag.calls.plan import UNASKED, Plan, cached_plan
from tridiag.kernels.jobs.batches import contiguous
from tridiag.problems.forms import Shape


class BoundProduct(NamedTuple):
    """A product that waits for its tensors."""

    call: Callable[..., bool]  # of y, x, a, b, c, where
    casts: Casts
    reaches: Reaches  # of a, b, c, x and where
    shape: Shape


class BoundDeterminants(NamedTuple):
    """Determinants that wait for their matrices."""

    call: Callable[..., tuple[Any, Any]]  # of a, b, c, where
    casts: Casts
    reaches: Reaches  # of a, b, c and where


def matmul(a: Any, b: Any, c: Any, x: Any, where: Any, axis: Any, *options: Any) -> Any:
    """The product, or None where this is not the way to it."""
    given = [a, b, c, x, where]
    bound, addresses = recalled(bound_product, given, axis, options)
    if addresses is None:
        return None
    if bound.casts:
        convert(given, addresses, bound.casts)
    y = given[3].new_empty(bound.shape)
    *matrix, right, mask = addresses
    bound.call(y.data_ptr(), right, *matrix, mask)
    return y


def slogdet(a: Any, b: Any, c: Any, where: Any, axis: Any, *options: Any) -> tuple[Any, Any] | None:
    """Signs and logarithms, or None where this is not the way to them."""
    given = [a, b, c, where]
    bound, addresses = recalled(bound_determinants, given, axis, options)
    if addresses is None:
        return None
    if bound.casts:
        convert(given, addresses, bound.casts)
    sign, logarithm = bound.call(*addresses)
    return torch.from_numpy(sign), torch.from_numpy(logarithm)


def recalled(bound: Callable[..., Any], given: list[Any], axis: Any, options: Any) -> tuple[Any, Any]:
    """What is known of such tensors, and their addresses; None where they are not to be had in this way."""
    try:
        if type(axis) is not int or disturbed() or needs_gradient(given):
            return None, None
        found = bound(facts_of_all(given), torch.get_default_dtype(), axis, *options)
        return found, None if found is None else addresses_of(given, found.reaches)
    except (TypeError, RuntimeError):  # refused, or an option that has no hash, or memory that cannot be lent as it is
        return None, None


@functools.lru_cache(1024, typed=True)
def bound_product(
    facts: tuple[Any, ...], default: torch.dtype, axis: int, periodic: bool, transpose: bool
) -> BoundProduct | None:
    """The product of a, b, c, x with these facts, and those of a mask, if there are compiled loops for it."""
    module = compiled_products()
    if module is None or not in_host_memory(facts):
        return None
    plan = plan_of_matrices("matmul", facts, default, axis, "auto", periodic, transpose, UNASKED)
    found = extents_in(plan, facts)
    if found is None:
        return None
    casts, (*matrix, x, mask) = found
    form, dtype = plan.form, x[0]
    y = dtype, form.shape, contiguous(form.shape, dtype.itemsize)
    call = module.bound_product(form, *lifted((y, x, *matrix, mask), form), dtype)
    return None if call is None else BoundProduct(call, casts, reaches_of(*facts), form.shape)


@functools.lru_cache(1024, typed=True)
def bound_determinants(
    facts: tuple[Any, ...], default: torch.dtype, axis: int, periodic: bool, backend: str
) -> BoundDeterminants | None:
    """The determinants of a, b, c with these facts, if their backend calls its kernel with arrays as they are."""
    if not in_host_memory(facts):
        return None
    plan = plan_of_matrices("slogdet", facts, default, axis, True, periodic, False, backend)
    module, found = plan.backend.module(), extents_in(plan, facts)
    if found is None or not hasattr(module, "bound_slogdet"):
        return None
    casts, extents = found
    call = module.bound_slogdet(plan.form, *lifted((*extents, None, None), plan.form), extents[1][0])
    return BoundDeterminants(call, casts, reaches_of(*facts))


def in_host_memory(facts: tuple[Any, ...]) -> bool:
    """Whether all tensors are dense and in host memory; the last are the facts of a mask, or None."""
    *arguments, mask = facts
    tensors = (fact for fact in facts if fact is not None and not isinstance(fact, type))
    return may_be_bound(arguments, (mask,)) and all(fact[2].type == "cpu" for fact in tensors)


def plan_of_matrices(
    verb: str, facts: tuple[Any, ...], default: torch.dtype, axis: int, pivoting: bool | str, *options: Any
) -> Plan:
    """The plan that these arguments have on the way of all calls."""
    periodic, transpose, backend = options
    entries = tuple(map(entry_of, facts))
    plan: Plan = cached_plan(verb, "torch", entries, default, axis, pivoting, periodic, transpose, False, backend)
    return plan


def extents_in(plan: Plan, facts: tuple[Any, ...]) -> tuple[Casts, list[Any]] | None:
    """The dtypes that arguments get, and what a kernel gets of them and of a mask; None: not of a single dtype."""
    *arguments, mask = facts
    casts = casts_of(plan, arguments)
    if casts is None:
        return None
    wanted = dict(casts)
    extents: list[Any] = [extents_of(fact, wanted.get(k)) for k, fact in enumerate(arguments)]
    if len({one[0] for one in extents}) > 1:
        return None  # real matrices of complex vectors
    return casts, [*extents, None if mask is None else extents_of(mask)]
