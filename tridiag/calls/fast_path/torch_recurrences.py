"""Recurrences of plain tensors whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from tridiag.backends import LOGARITHMS
from tridiag.calls.fast_path.facts import fits, steps_in
from tridiag.calls.fast_path.recurrences import COEFFICIENTS, order_of, plan_of_recurrence
from tridiag.calls.fast_path.tensors import (
    Casts,
    Reaches,
    addresses_of,
    call_of,
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
from tridiag.kernels.jobs.batches import contiguous
from tridiag.libraries.arrays import is_real
from tridiag.problems.forms import Shape


class BoundRecurrence(NamedTuple):
    """A recurrence that waits for its tensors."""

    call: Callable[..., bool]  # of the operands
    operands: tuple[int, ...]  # which of the result, the arguments, and None
    casts: Casts
    reaches: Reaches  # of the arguments and out
    shape: Shape
    elsewhere: bool  # the result is made contiguous, and copied to where it is to lie


def recurrence(verb: str, given: Mapping[str, Any], out: Any, **options: Any) -> Any:
    """The result of a recurrence, or None where this is not the way to it."""
    x, init, a = given["x"], given.get("init"), given.get(COEFFICIENTS[verb])
    if a is None and verb != "logcumsumexp":
        return None
    try:
        return attempt(verb, a, x, init, out, **options)
    except (TypeError, RuntimeError):  # refused, or an option that has no hash, or memory that cannot be lent as it is
        return None


def attempt(verb: str, a: Any, x: Any, init: Any, out: Any, reverse: bool, backend: str, axis: Any = -2) -> Any:
    """The same, or an exception; ``a``: the coefficients, or None."""
    if type(axis) is not int or disturbed():
        return None
    rows = a if type(a) is tuple else () if a is None else (a,)
    before = init if type(init) is tuple else () if init is None else (init,)
    given = [*rows, x, *before, out]
    if needs_gradient(given):
        return None
    indices, states = len(rows) if type(a) is tuple else None, type(init) is tuple
    facts, default = facts_of_all(given), torch.get_default_dtype()
    bound = bound_recurrence(verb, facts, indices, states, default, axis, reverse, backend)
    addresses = None if bound is None else addresses_of(given, bound.reaches)
    if bound is None or addresses is None:
        return None
    if out is not None and not take_result(out, bound.reaches[-1][0], addresses[:-1], bound.reaches[:-1]):
        return None
    if bound.casts:
        convert(given, addresses, bound.casts)
    y = given[len(rows)].new_empty(bound.shape) if out is None or bound.elsewhere else out
    operands = y.data_ptr(), *addresses[:-1], None
    bound.call(*[operands[k] for k in bound.operands])
    return out.copy_(y) if bound.elsewhere else y


@functools.lru_cache(1024, typed=True)
def bound_recurrence(
    verb: str,
    facts: tuple[Any, ...],
    indices: int | None,
    states: bool,
    default: torch.dtype,
    axis: int,
    reverse: bool,
    backend: str,
) -> BoundRecurrence | None:
    """The recurrence of arguments with these facts: coefficients, x, what is before, and out.

    ``indices``: how many coefficients a tuple holds, or None. ``states``: whether what is before is a tuple.
    """
    *arguments, out = facts
    tuples, order = indices is not None, order_of(verb, len(arguments), indices, states)
    if order is None or not may_be_bound(arguments, (out,)):
        return None
    entries = tuple(map(entry_of, arguments))
    plan = plan_of_recurrence(verb, "torch", entries, default, order, tuples, axis, reverse, backend)
    module, form, casts = plan.backend.module(), plan.form, casts_of(plan, arguments)
    if (
        casts is None
        or (verb in LOGARITHMS and not is_real(plan.result_dtype))
        or not (hasattr(module, "bound_recurrence") or hasattr(module, "program_of_recurrence"))
    ):
        return None
    wanted, lifted = dict(casts), {k: shape for k, _, shape in plan.steps}
    extents = [extents_of(fact, wanted.get(k)) for k, fact in enumerate(arguments)]
    dtype = extents[order][0]
    result = dtype, form.shape, contiguous(form.shape, dtype.itemsize)
    if any(one[0] != dtype for one in extents) or not (out is None or fits(extents_of(out), result)):
        return None  # real coefficients of complex sequences, or no place for the result
    shapes, strides = [form.shape], [(result if out is None else extents_of(out))[2]]
    for k, (_, shape, own) in enumerate(extents):
        shapes.append(lifted.get(k, shape))
        strides.append(steps_in(shape, own, shapes[-1]))
    if hasattr(module, "bound_recurrence"):
        found: Any = module.bound_recurrence(verb, form, order, shapes, strides, dtype)
        elsewhere = found is None and out is not None
        if elsewhere:
            found = module.bound_recurrence(verb, form, order, shapes, (result[2], *strides[1:]), dtype)
        if found is None:
            return None
        call, operands = found
    else:
        elsewhere = False
        program, operands = module.program_of_recurrence(verb, form, order, shapes, strides, (dtype, dtype))
        call = call_of(program, arguments[order][2])
    return BoundRecurrence(call, operands, casts, reaches_of(*facts), form.shape, elsewhere)
