"""Solves of plain NumPy arrays whose facts are known: nothing is left to decide, and the kernel is called at once.

The facts (dtypes, shapes, strides, options) decide everything but where the arrays lie. What is out of the ordinary
(other arguments, values to be converted, outputs that might overlap an argument) goes the way of all other calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.outputs import self_overlaps
from tridiag.calls.plan import cached_plan, wants_check
from tridiag.calls.singular import raise_if_singular
from tridiag.kernels.jobs.systems import contiguous
from tridiag.problems.forms import Form, Shape, lift

Array = np.ndarray[Any, Any]
Facts = tuple[np.dtype[Any], Shape, Shape]
facts_of: Callable[[Array], Facts] = attrgetter("dtype", "shape", "strides")


class BoundCall(NamedTuple):
    """A solve that waits for its arrays."""

    call: Callable[..., bool]  # of a, b, c, where, d, x; tells whether some system may be singular
    form: Form
    shapes: tuple[Shape, ...]  # of a, b, c in the form
    dtype: np.dtype[Any]  # of x
    in_place: bool
    check: bool


def solve(a: Array, b: Array, c: Array, d: Array, out: Any, axis: Any, *options: Any) -> Array | None:
    """The solution, or None where this is not the way to it."""
    if type(axis) is not int or not (out is None or type(out) is np.ndarray):
        return None
    place = None if out is None else facts_of(out)
    try:
        bound = bound_call(facts_of(a), facts_of(b), facts_of(c), facts_of(d), place, axis, *options)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    others: tuple[Array, ...]
    x, others = (d, (a, b, c)) if bound.in_place else (out, (a, b, c, d))
    if x is None:
        x = np.empty(bound.form.shape, bound.dtype)
    elif not (x.flags.writeable and surely_disjoint(x, others)):
        return None
    if bound.call(a, b, c, None, d, x) and bound.check:
        a, b, c = (y.reshape(shape) for y, shape in zip((a, b, c), bound.shapes, strict=True))
        raise_if_singular(x, None, (a, b, c, None), bound.form)
    return x


def surely_disjoint(x: Array, others: tuple[Array, ...]) -> bool:
    """Whether x surely shares no memory with others: owners do not, others tell by their ends."""
    owns = x.flags.owndata
    return all([(owns and y.flags.owndata and y is not x) or not np.may_share_memory(x, y) for y in others])


@functools.lru_cache(1024, typed=True)
def bound_call(
    a: Facts,
    b: Facts,
    c: Facts,
    d: Facts,
    out: Facts | None,
    axis: int,
    backend: str,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    check: bool | None,
    overwrite_d: bool,
) -> BoundCall | None:
    """The solve of arrays with these facts, if their backend calls its kernel with arrays as they are."""
    given = a, b, c, d
    entries = (*(facts[:2] for facts in given), None)
    plan = cached_plan("solve", "numpy", entries, None, axis, pivoting, periodic, transpose, overwrite_d, backend)
    module, form = plan.backend.module(), plan.form
    converted = plan.casts or any(np.dtype(dtype) != given[k][0] for k, dtype, _ in plan.steps)
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if converted or plan.empty or not hasattr(module, "bound_solve") or (out is not None and not fits(out, result)):
        return None
    in_place = out is None and bool(overwrite_d) and fits(d, result)
    result = d if in_place else out or result
    shapes = tuple(lift(shape, len(form.shape), form.axis) for _, shape, _ in given)
    strides = tuple(lift(steps, len(form.shape), form.axis) for _, _, steps in given)
    call = module.bound_solve(
        form,
        (*shapes[:3], None, shapes[3], result[1]),
        (*strides[:3], None, strides[3], result[2]),
        (b[0], d[0]),
    )
    return BoundCall(call, form, shapes[:3], plan.out_dtype, in_place, wants_check(plan, check))


def fits(facts: Facts, result: Facts) -> bool:
    """Whether an array can hold the solution, each entry in a place of its own."""
    return facts[:2] == result[:2] and not self_overlaps(*facts[1:], facts[0].itemsize)
