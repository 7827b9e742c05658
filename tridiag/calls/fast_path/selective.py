"""Selective scans of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.fast_path.facts import (
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
    steps_in,
    surely_disjoint,
)
from tridiag.calls.plan import Plan
from tridiag.calls.selective import cached_selective_plan
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same, Several
from tridiag.problems.forms import Shape
from tridiag.problems.selective import Operands

NAMES, POINTERS = Operands._fields, ("x", "a", "B", "C", "step", "init")  # as arguments, and as the kernel takes them
OUT = len(NAMES)  # the place of an argument


class BoundScan(NamedTuple):
    """A selective scan that waits for its arrays."""

    call: Callable[..., bool]  # of the result, the `Operands`, and the last states
    casts: Casts
    shapes: tuple[Shape, Shape]  # of the result and of the last states
    dtype: np.dtype[Any]
    kept: Keepable | None


def scan(*arguments: Any) -> Any:
    """The result, and with ``final`` the last states, or None where this is not the way to them.

    Of the `Operands`, out, axis, reverse, final and the backend.
    """
    operands, (out, axis, reverse, final, backend) = arguments[:OUT], arguments[OUT:]
    if type(axis) is not int or type(final) is not bool or not (out is None or type(out) is np.ndarray):
        return None
    names = tuple([name for name, x in zip(NAMES, operands, strict=True) if x is not None])
    given = [x for x in operands if x is not None]
    place = None if out is None else facts_of(out)
    try:
        bound = bound_scan(names, facts_of_all(given), place, axis, reverse, final, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None or not (out is None or (out.flags.writeable and surely_disjoint(out, tuple(given)))):
        return None
    if bound.casts and cast(given, bound.casts) is None:
        return None
    y = np.empty(bound.shapes[0], bound.dtype) if out is None else out
    last = np.empty(bound.shapes[1], bound.dtype) if final else None
    bound.call(y, *map(dict(zip(names, given, strict=True)).get, POINTERS), last)
    if bound.kept:
        SCANS.keep(bound.kept)
    return (y, last) if final else y


SCANS = CallTable(scan)


@functools.lru_cache(1024, typed=True)
def bound_scan(
    names: tuple[str, ...],
    facts: tuple[Any, ...],
    out: Facts | None,
    axis: int,
    reverse: bool,
    final: bool,
    backend: str,
) -> BoundScan | None:
    """The scan of arguments of these names and facts; ``final``: and the last states."""
    if not may_be_bound(facts) or not {"a", "x", "B", "C"} <= set(names):
        return None
    plan = cached_selective_plan("numpy", names, tuple(map(entry_of, facts)), promotion(facts), axis, reverse, backend)
    module, form, casts, dtype = plan.backend.module(), plan.form, casts_of(plan, facts), plan.out_dtype
    if casts is None or not hasattr(module, "bound_selective"):
        return None
    result = dtype, form.shape, contiguous(form.shape, dtype.itemsize)
    if out is not None and not fits(out, result):
        return None
    given = {name: lifted(plan, fact, k) for k, (name, fact) in enumerate(zip(names, facts, strict=True))}
    call = module.bound_selective(form, (out or result)[1:], Operands(*map(given.get, NAMES)), dtype, final)
    if call is None:
        return None
    shapes = form.shape, (*form.batch, form.states)
    kept = None if out and final else kept_scan(call, dict(zip(names, facts, strict=True)), casts, out, shapes, dtype,
                                                (axis, reverse, final, backend))  # fmt: skip
    return BoundScan(call, casts, shapes, dtype, kept)


def lifted(plan: Plan, fact: Any, k: int) -> tuple[Shape, Shape]:
    """The shape and the strides of an argument in the normal form."""
    _, own, strides = extents_of(fact, plan, k)
    shape = next((wanted for other, _, wanted in plan.steps if other == k), own)
    return shape, steps_in(own, strides, shape)


def kept_scan(
    call: Any,
    facts: dict[str, Any],
    casts: Casts,
    out: Facts | None,
    shapes: tuple[Shape, Shape],
    dtype: np.dtype[Any],
    options: tuple[Any, ...],
) -> Keepable | None:
    """A bound scan for the table of the verb; ``options``: the axis, whether it is reversed, final, the backend."""
    final, takes = options[2], OUT if out else RESULT
    given = *(facts.get(name, Same(None)) for name in NAMES), out or Same(None), *map(Same, options)
    sources = [NAMES.index(name) if name in facts else NOTHING for name in POINTERS]
    wanted = Several(dtype, shapes) if final else (dtype, shapes[0])
    places = takes, *sources, RESULT - 1 if final else NOTHING
    return kept_call_of(call, given, casts, wanted, places, takes, False)
