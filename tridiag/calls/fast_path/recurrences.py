"""Recurrences of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms.recurrence import row_of
from tridiag.backends import LOGARITHMS
from tridiag.calls.fast_path.facts import (
    Array,
    Casts,
    Facts,
    Group,
    brought_side_by_side,
    cast,
    casting,
    casts_of,
    entry_of,
    extents_of,
    facts_of,
    facts_of_all,
    fits,
    is_contiguous,
    kept_call_of,
    may_be_bound,
    promotion,
    steps_in,
    surely_disjoint,
)
from tridiag.calls.plan import Plan
from tridiag.calls.sequences import cached_recurrence_plan, indexed
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same
from tridiag.libraries.arrays import Entry, is_real
from tridiag.problems.forms import Shape

COEFFICIENTS = {  # what they are called
    "linear_recurrence": "a",
    "matrix_recurrence": "A",
    "log_linear_recurrence": "log_a",
    "logcumsumexp": "",
}


class BoundRecurrence(NamedTuple):
    """A recurrence that waits for its arrays."""

    call: Callable[..., bool]  # of the operands
    operands: tuple[int, ...]  # which of the result, the arguments, and None
    casts: Casts
    shape: Shape
    dtype: np.dtype[Any]
    kept: Keepable | None
    elsewhere: bool  # the result is made contiguous, and copied to where it is to lie
    last: tuple[Any, ...]  # where the last values are, the latest first; fewer than the order where there are fewer


def recurrence(
    verb: str, a: Any, x: Array, init: Any, out: Any, axis: Any, reverse: bool, final: Any, backend: str
) -> Any:
    """The result of a recurrence with coefficients ``a``, or None where this is not the way to it.

    ``final``: the result and its last values.
    """
    if type(axis) is not int or not (out is None or type(out) is np.ndarray):
        return None
    rows = a if type(a) is tuple else () if a is None else (a,)
    before = init if type(init) is tuple else () if init is None else (init,)
    given = [*rows, x, *before]
    facts = facts_of_all(given)
    place = None if out is None else facts_of(out)
    indices = len(rows) if type(a) is tuple else None
    try:
        bound = bound_recurrence(verb, facts, indices, type(init) is tuple, place, axis, reverse, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None or (final is not False and (final is not True or len(bound.last) < len(rows))):
        return None
    if not (out is None or (out.flags.writeable and surely_disjoint(out, tuple(given)))):
        return None
    y: Any = np.empty(bound.shape, bound.dtype) if out is None or bound.elsewhere else out
    if bound.casts and cast(given, bound.casts) is None:
        return None
    operands = y, *given, None
    bound.call(*[operands[k] for k in bound.operands])
    if out is not None and bound.elsewhere:
        out[...] = y
        y = out
    if not final:
        if bound.kept:
            RECURRENCES[verb].keep(bound.kept)
        return y
    values = tuple([np.array(y[place]) for place in bound.last])
    return y, values if type(a) is tuple else values[0]


# by verb, of its coefficients or None, x, what is before or None, out, and the options
RECURRENCES = {
    verb: CallTable(functools.partial(recurrence, verb))
    for verb in ("linear_recurrence", "matrix_recurrence", *LOGARITHMS)
}
# the verbs import them by these names: CPython calls what an imported name has quicker than what a global one has
OF_NUMBERS, OF_MATRICES = RECURRENCES["linear_recurrence"], RECURRENCES["matrix_recurrence"]
OF_LOGARITHMS, OF_SUMS = RECURRENCES["log_linear_recurrence"], RECURRENCES["logcumsumexp"]


@functools.lru_cache(1024, typed=True)
def bound_recurrence(
    verb: str,
    facts: tuple[Any, ...],
    indices: int | None,
    states: bool,
    out: Facts | None,
    axis: int,
    reverse: bool,
    backend: str,
) -> BoundRecurrence | None:
    """The recurrence of arguments with these facts: coefficients, x, and what is before.

    ``indices``: how many coefficients a tuple holds, or None. ``states``: whether what is before is a tuple.
    """
    tuples, order = indices is not None, order_of(verb, len(facts), indices, states)
    if order is None or not may_be_bound(facts):
        return None
    entries, promoted = tuple(map(entry_of, facts)), promotion(facts)
    plan = plan_of_recurrence(verb, "numpy", entries, promoted, order, tuples, axis, reverse, backend)
    module, form, casts = plan.backend.module(), plan.form, casts_of(plan, facts)
    if casts is None or (verb in LOGARITHMS and not is_real(plan.result_dtype)):
        return None
    if not hasattr(module, "bound_recurrence"):
        return None
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if out is not None and not fits(out, result):
        return None
    operands, lifted, changed = [], {k: shape for k, _, shape in plan.steps}, {}
    for k, fact in enumerate(facts):
        dtype, shape, strides = extents_of(fact, plan, k)
        if dtype != plan.out_dtype:  # real coefficients of complex sequences
            if not isinstance(fact, type) and not is_contiguous(fact):
                return None
            dtype, strides = plan.out_dtype, contiguous(shape, plan.out_dtype.itemsize)
            changed[k] = casting(fact, dtype.name)
        operands.append((dtype, lifted.get(k, shape), steps_in(shape, strides, lifted.get(k, shape))))

    def bound_with(out: Facts | None) -> Any:
        _, shapes, strides = zip(out or result, *operands, strict=True)
        return module.bound_recurrence(verb, form, order, shapes, strides, plan.out_dtype)

    found, copied, elsewhere = bound_with(out), False, False
    if found is None and form.matrices:
        operands, copies = brought_side_by_side(operands, [2] * order + [1] * (len(operands) - order))
        changed |= dict.fromkeys(copies, np.ascontiguousarray)
        found, copied = bound_with(out), bool(copies)
    if found is None and out is not None:
        found, elsewhere = bound_with(None), True
    if found is None:
        return None
    casts = tuple((dict(casts) | changed).items())
    call, order_of_operands = found
    options = (*map(Same, (axis, reverse, False, backend)),)  # without the last values
    arguments = arguments_of(facts, order, tuples, states), (out or Same(None), *options)
    kept = None
    if not (elsewhere or copied):
        kept = kept_recurrence(call, arguments, casts, result, order_of_operands, out is not None)
    axes = (slice(None),) * form.axis
    last = tuple((*axes, row_of(form, form.n - 1 - k)) for k in range(min(form.n, order)))
    return BoundRecurrence(call, order_of_operands, casts, form.shape, plan.out_dtype, kept, elsewhere, last)


def order_of(verb: str, arguments: int, indices: int | None, states: bool) -> int | None:
    """The order of a recurrence of so many arguments; None where they do not go together."""
    order = int(verb != "logcumsumexp") if indices is None else indices
    before = arguments - order - 1
    if indices is not None and not (verb == "linear_recurrence" and order):
        return None
    return None if before not in (0, order) or (before > 0 and states != (indices is not None)) else order


def arguments_of(facts: tuple[Any, ...], order: int, tuples: bool, states: bool) -> tuple[Any, ...]:
    """The coefficients, x and what is before, as a verb takes them."""
    rows, before = facts[:order], facts[order + 1 :]
    coefficients = Group(rows) if tuples else rows[0] if rows else Same(None)
    return coefficients, facts[order], Group(before) if states else before[0] if before else Same(None)


def kept_recurrence(
    call: Any, arguments: tuple[Any, Any], casts: Casts, result: Any, operands: tuple[int, ...], given: bool
) -> Keepable | None:
    """A bound recurrence for the table of its verb; ``arguments``: before ``out``, and from there on."""
    before, behind = arguments
    place = sum(len(x) if type(x) is Group else 1 for x in before)  # of ``out``, items of tuples one by one
    shift = 1 if isinstance(before[0], Same) else 0  # None stands in the place of a coefficient
    takes = place if given else RESULT
    sources = tuple([NOTHING if k < 0 else takes if k == 0 else k - 1 + shift for k in operands])
    return kept_call_of(call, (*before, *behind), casts, result, sources, takes, False)


def plan_of_recurrence(
    verb: str,
    library: str,
    entries: tuple[Entry, ...],
    settings: Any,
    order: int,
    tuples: bool,
    axis: int,
    reverse: bool,
    backend: str,
) -> Plan:
    """The plan that these arguments have on the way of all calls."""
    rows = indexed("a", order) if tuples else (COEFFICIENTS[verb],) * order
    states = indexed("init", order) if tuples else ("init",)
    names = (*rows, "x", *states)[: len(entries)]
    plan: Plan = cached_recurrence_plan(verb, library, names, order, entries, settings, axis, reverse, backend)
    return plan
