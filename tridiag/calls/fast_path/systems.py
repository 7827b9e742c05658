"""Solves of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

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
    raise_if_singular_plain,
    surely_disjoint,
)
from tridiag.calls.plan import cached_plan, wants_check
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same
from tridiag.problems.forms import Form, lift

RIGHT_SIDE, WHERE, OUT = 3, 4, 5  # places of arguments


class BoundCall(NamedTuple):
    """A solve that waits for its arrays."""

    call: Callable[..., bool]  # of a, b, c, where, d, x; tells whether some system may be singular
    casts: Casts
    form: Form
    shapes: tuple[Any, ...]  # of a, b, c, where in the form
    dtype: np.dtype[Any]  # of x
    in_place: bool
    check: bool
    kept: Keepable | None


def solve(a: Any, b: Any, c: Any, d: Array, where: Any, out: Any, axis: Any, *options: Any) -> Array | None:
    """The solution, or None where this is not the way to it."""
    if type(axis) is not int or not all(x is None or type(x) is np.ndarray for x in (where, out)):
        return None
    mask, place = None if where is None else facts_of(where), None if out is None else facts_of(out)
    try:
        bound = bound_call(facts_of_all((a, b, c, d)), mask, place, axis, *options)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    x = d if bound.in_place else out
    if x is None:
        x = np.empty(bound.form.shape, bound.dtype)
    elif not (x.flags.writeable and surely_disjoint(x, (a, b, c, where, None if bound.in_place else d))):
        return None
    if bound.casts:
        given = cast([a, b, c, d], bound.casts)
        if given is None:
            return None
        a, b, c, d = given
    if bound.call(a, b, c, where, d, x) and bound.check:
        raise_if_singular_plain(x, (a, b, c, where), bound.shapes, bound.form)
    elif bound.kept:
        SOLVES.keep(bound.kept)
    return x


SOLVES = CallTable(solve)  # of a, b, c, d, where, out, and the options


@functools.lru_cache(1024, typed=True)
def bound_call(
    facts: tuple[Any, ...],
    where: Facts | None,
    out: Facts | None,
    axis: int,
    backend: str,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    check: bool | None,
    overwrite_d: bool,
) -> BoundCall | None:
    """The solve of a, b, c, d with these facts, if their backend calls its kernel with arrays as they are."""
    if not may_be_bound(facts):
        return None
    mask = None if where is None else where[:2]
    entries, promoted = (*map(entry_of, facts), mask), promotion(facts)
    plan = cached_plan("solve", "numpy", entries, promoted, axis, pivoting, periodic, transpose, overwrite_d, backend)
    module, form = plan.backend.module(), plan.form
    casts = casts_of(plan, facts)
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if casts is None or not hasattr(module, "bound_solve") or (out is not None and not fits(out, result)):
        return None
    in_place = out is None and bool(overwrite_d) and fits(extents_of(facts[3]), result)
    result = extents_of(facts[3]) if in_place else out or result
    *matrix, right = (extents_of(fact, plan, k) for k, fact in enumerate(facts))
    operands, rank = (*matrix, where, right, result), len(form.shape)
    shapes = tuple(x and lift(x[1], rank, form.axis) for x in operands)
    strides = tuple(x and lift(x[2], rank, form.axis) for x in operands)
    call = module.bound_solve(form, shapes, strides, (matrix[1][0], right[0]))
    checked = wants_check(plan, check)
    options = *(axis, backend, pivoting, periodic, transpose, check), overwrite_d
    given = *facts, where or Same(None), out or Same(None), *map(Same, options)
    takes = RIGHT_SIDE if in_place else OUT if out else RESULT
    sources = *range(RIGHT_SIDE), WHERE if where else NOTHING, RIGHT_SIDE, takes
    kept = None if in_place and checked else kept_call_of(call, given, casts, result, sources, takes, checked)
    return BoundCall(call, casts, form, shapes[:4], plan.out_dtype, in_place, checked, kept)
