"""Selective scans of plain tensors whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tridiag.calls.fast_path.facts import fits, steps_in
from tridiag.calls.fast_path.selective import NAMES, POINTERS
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
    take_result,
)
from tridiag.calls.selective import cached_selective_plan
from tridiag.kernels.jobs.batches import contiguous
from tridiag.problems.forms import Shape
from tridiag.problems.selective import Operands


class BoundScan(NamedTuple):
    """A selective scan that waits for its tensors."""

    call: Callable[..., bool]  # of the addresses of the result, the operands, and the last states
    casts: Casts
    reaches: Reaches  # of the operands and out
    shapes: tuple[Shape, Shape]  # of the result and of the last states


def selective_scan(*arguments: Any) -> Any:
    """The result, and with ``final`` the last states, or None where this is not the way to them.

    Of the `Operands`, out, axis, reverse, final and the backend.
    """
    try:
        return attempt(arguments[: len(NAMES)], *arguments[len(NAMES) :])
    except (TypeError, RuntimeError):  # refused, or an option that has no hash, or memory that cannot be lent as it is
        return None


def attempt(operands: tuple[Any, ...], out: Any, axis: Any, reverse: bool, final: bool, backend: str) -> Any:
    """The same, or an exception."""
    names = tuple([name for name, x in zip(NAMES, operands, strict=True) if x is not None])
    given = [*(x for x in operands if x is not None), out]
    if type(axis) is not int or type(final) is not bool or disturbed() or needs_gradient(given):
        return None
    bound = bound_scan(names, facts_of_all(given), torch.get_default_dtype(), axis, reverse, final, backend)
    addresses = None if bound is None else addresses_of(given, bound.reaches)
    if bound is None or addresses is None:
        return None
    if out is not None and not take_result(out, bound.reaches[-1][0], addresses[:-1], bound.reaches[:-1]):
        return None
    if bound.casts:
        convert(given, addresses, bound.casts)
    x = given[names.index("x")]
    y = x.new_empty(bound.shapes[0]) if out is None else out
    last = x.new_empty(bound.shapes[1]) if final else None
    places = dict(zip(names, addresses, strict=False))
    bound.call(y.data_ptr(), *map(places.get, POINTERS), None if last is None else last.data_ptr())
    return y if last is None else (y, last)


@functools.lru_cache(1024, typed=True)
def bound_scan(
    names: tuple[str, ...],
    facts: tuple[Any, ...],
    default: torch.dtype,
    axis: int,
    reverse: bool,
    final: bool,
    backend: str,
) -> BoundScan | None:
    """The scan of arguments of these names and facts, behind which are those of out; ``final``: and the last states."""
    *arguments, out = facts
    if not {"a", "x", "B", "C"} <= set(names) or not may_be_bound(arguments, (out,)):
        return None
    plan = cached_selective_plan("torch", names, tuple(map(entry_of, arguments)), default, axis, reverse, backend)
    module, form, casts = plan.backend.module(), plan.form, casts_of(plan, arguments)
    if casts is None or not hasattr(module, "bound_selective"):
        return None
    wanted, lifted = dict(casts), {k: shape for k, _, shape in plan.steps}
    extents = [extents_of(fact, wanted.get(k)) for k, fact in enumerate(arguments)]
    dtype = extents[names.index("x")][0]
    result = dtype, form.shape, contiguous(form.shape, dtype.itemsize)
    if not (out is None or fits(extents_of(out), result)):
        return None
    given = {}
    for k, (_, own, strides) in enumerate(extents):
        shape = lifted.get(k, own)
        given[names[k]] = shape, steps_in(own, strides, shape)
    place = (result if out is None else extents_of(out))[1:]
    call = module.bound_selective(form, place, Operands(*map(given.get, NAMES)), dtype, final)
    if call is None:
        return None
    return BoundScan(call, casts, reaches_of(*facts), (form.shape, (*form.batch, form.states)))
