"""Calls with plain NumPy arrays whose facts are known: nothing is left to decide, and the kernel is called at once.

The facts (dtypes, shapes, strides, options) decide everything but where the arrays lie. Numbers of Python, and
contiguous arrays of another dtype, are cast to the one that promotion gives. What is out of the ordinary (other
arguments, halves, outputs that might overlap an argument) goes the way of all other calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.outputs import self_overlaps
from tridiag.calls.plan import Plan, cached_plan, wants_check
from tridiag.calls.sequences import cached_recurrence_plan, indexed
from tridiag.calls.singular import raise_if_singular
from tridiag.kernels.jobs.systems import contiguous
from tridiag.libraries import numpy as library
from tridiag.libraries.arrays import Entry, is_real
from tridiag.problems.forms import Form, Shape, lift

Array = np.ndarray[Any, Any]
Facts = tuple[np.dtype[Any], Shape, Shape]
Casts = tuple[tuple[int, Callable[[Any], Array]], ...]  # what becomes of which arguments
NUMBERS = {int, float} if np.__version__ >= "2" else set()  # which promote by their types; before NumPy 2 by values
facts_of: Callable[[Array], Facts] = attrgetter("dtype", "shape", "strides")


class BoundCall(NamedTuple):
    """A solve that waits for its arrays."""

    call: Callable[..., bool]  # of a, b, c, where, d, x; tells whether some system may be singular
    casts: Casts
    form: Form
    shapes: tuple[Any, ...]  # of a, b, c, where in the form
    dtype: np.dtype[Any]  # of x
    in_place: bool
    check: bool


def solve(a: Any, b: Any, c: Any, d: Array, where: Array | None, out: Any, axis: Any, *options: Any) -> Array | None:
    """The solution, or None where this is not the way to it."""
    if type(axis) is not int or not (out is None or type(out) is np.ndarray):
        return None
    mask, place = None if where is None else facts_of(where), None if out is None else facts_of(out)
    facts: tuple[Any, ...]
    if type(a) is type(b) is type(c) is np.ndarray:
        facts = facts_of(a), facts_of(b), facts_of(c), facts_of(d)
    else:
        facts = tuple([facts_of(y) if type(y) is np.ndarray else type(y) for y in (a, b, c, d)])
    try:
        bound = bound_call(facts, mask, place, axis, *options)
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
        a, b, c, where = (y if y is None else y.reshape(s) for y, s in zip((a, b, c, where), bound.shapes, strict=True))
        raise_if_singular(x, None, (a, b, c, where), bound.form)
    return x


def cast(given: list[Any], casts: Casts) -> list[Any] | None:
    """The arguments, some of them in another dtype; None where an integer of Python has more than 64 bits."""
    try:
        for k, function in casts:
            given[k] = function(given[k])
    except OverflowError:
        return None
    return given


def surely_disjoint(x: Array, others: tuple[Any, ...]) -> bool:
    """Whether x surely shares no memory with the arrays of others: owners do not, others tell by their ends."""
    owns, arrays = x.flags.owndata, [y for y in others if type(y) is np.ndarray]
    return all([(owns and y.flags.owndata and y is not x) or not np.may_share_memory(x, y) for y in arrays])


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
    return BoundCall(call, casts, form, shapes[:4], plan.out_dtype, in_place, wants_check(plan, check))


def may_be_bound(facts: tuple[Any, ...]) -> bool:
    """Whether all arguments are arrays, or numbers that promote by their types."""
    return all(not isinstance(fact, type) or fact in NUMBERS for fact in facts)


def entry_of(fact: Any) -> Entry:
    """What a plan is made from."""
    return (np.asarray(fact()).dtype, ()) if isinstance(fact, type) else fact[:2]


def promotion(facts: tuple[Any, ...]) -> Any:
    """The dtype to which arguments promote, where there are numbers among them."""
    if not any(isinstance(fact, type) for fact in facts):
        return None
    return np.result_type(*(fact() if isinstance(fact, type) else fact[0] for fact in facts))


def casts_of(plan: Plan, facts: tuple[Any, ...]) -> Casts | None:
    """Which arguments get another dtype; None where more is to be done than that."""
    wanted = {k: dtype for k, dtype, _ in plan.steps if entry_of(facts[k])[0] != np.dtype(dtype)}
    lies_otherwise = any(not isinstance(facts[k], type) and not is_contiguous(facts[k]) for k in wanted)
    if plan.casts or plan.empty or lies_otherwise:
        return None
    numbers = {k: entry_of(fact)[0].name for k, fact in enumerate(facts) if isinstance(fact, type)}
    return tuple((k, casting(facts[k], dtype)) for k, dtype in (numbers | wanted).items())


def casting(fact: Any, dtype: str) -> Callable[[Any], Array]:
    """The cast of an argument; what is in the range of double precision needs no care for it."""
    if fact is int:
        return lambda x: library.cast(np.int64(x), dtype)  # which raises where there are more bits
    double = dtype in ("float64", "complex128")
    return functools.partial(np.asarray, dtype=np.dtype(dtype)) if double else lambda x: library.cast(x, dtype)


def is_contiguous(facts: Facts) -> bool:
    """Whether an array in another dtype lies as it does."""
    dtype, shape, strides = facts
    return strides == contiguous(shape, dtype.itemsize)


def extents_of(fact: Any, plan: Plan | None = None, k: int = 0) -> Facts:
    """The facts of an argument as the kernel takes it: number ``k`` of a plan, if there is one."""
    dtype, shape = entry_of(fact)
    wanted = np.dtype(next((name for other, name, _ in plan.steps if other == k), dtype) if plan else dtype)
    if isinstance(fact, type):
        return wanted, (), ()
    return (dtype, shape, fact[2]) if wanted == dtype else (wanted, shape, contiguous(shape, wanted.itemsize))


def fits(facts: Facts, result: Facts) -> bool:
    """Whether an array can hold the solution, each entry in a place of its own."""
    return facts[:2] == result[:2] and not self_overlaps(*facts[1:], facts[0].itemsize)


# -------------------------------------------------------------------------------------------------------- recurrences


class BoundRecurrence(NamedTuple):
    """A recurrence that waits for its arrays."""

    call: Callable[..., bool]  # of the operands
    operands: tuple[int, ...]  # which of the result, the arguments, and None
    casts: Casts
    shape: Shape
    dtype: np.dtype[Any]


def recurrence(
    verb: str, a: Any, x: Array, init: Any, out: Any, axis: Any, reverse: bool, backend: str
) -> Array | None:
    """The result of a recurrence with coefficients ``a``, or None where this is not the way to it."""
    if type(axis) is not int or not (out is None or type(out) is np.ndarray):
        return None
    rows = a if type(a) is tuple else () if a is None else (a,)
    before = init if type(init) is tuple else () if init is None else (init,)
    given = [*rows, x, *before]
    facts = tuple([facts_of(y) if type(y) is np.ndarray else type(y) for y in given])
    place = None if out is None else facts_of(out)
    indices = len(rows) if type(a) is tuple else None
    try:
        bound = bound_recurrence(verb, facts, indices, type(init) is tuple, place, axis, reverse, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    if out is None:
        y = np.empty(bound.shape, bound.dtype)
    elif out.flags.writeable and surely_disjoint(out, tuple(given)):
        y = out
    else:
        return None
    if bound.casts and cast(given, bound.casts) is None:
        return None
    operands = y, *given, None
    bound.call(*[operands[k] for k in bound.operands])
    return y


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
    tuples, linear = indices is not None, verb == "linear_recurrence"
    order = int(verb != "logcumsumexp") if indices is None else indices
    count = len(facts) - order - 1
    if not may_be_bound(facts) or (tuples and not (linear and order)):
        return None
    if count not in (0, order) or (count > 0 and states != tuples):
        return None
    plan = plan_of_recurrence(verb, facts, order, tuples, axis, reverse, backend)
    module, form, casts = plan.backend.module(), plan.form, casts_of(plan, facts)
    if casts is None or not (linear or is_real(plan.result_dtype)) or not hasattr(module, "bound_recurrence"):
        return None
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if out is not None and not fits(out, result):
        return None
    operands, lifted = [out or result], {k: shape for k, _, shape in plan.steps}
    for k, fact in enumerate(facts):
        dtype, shape, strides = extents_of(fact, plan, k)
        operands.append((dtype, lifted.get(k, shape), steps_in(shape, strides, lifted.get(k, shape))))
    if any(dtype != plan.out_dtype for dtype, _, _ in operands):
        return None  # real coefficients of complex sequences
    _, shapes, strides = zip(*operands, strict=True)
    call, order_of_operands = module.bound_recurrence(verb, form, order, shapes, strides, plan.out_dtype)
    return BoundRecurrence(call, order_of_operands, casts, form.shape, plan.out_dtype)


def plan_of_recurrence(
    verb: str, facts: tuple[Any, ...], order: int, tuples: bool, axis: int, reverse: bool, backend: str
) -> Plan:
    """The plan that these arguments have on the way of all calls."""
    rows = indexed("a", order) if tuples else ("log_a" if verb == "log_linear_recurrence" else "a",) * order
    states = indexed("init", order) if tuples else ("init",)
    names, entries = (*rows, "x", *states)[: len(facts)], tuple(map(entry_of, facts))
    facts_of_plan = verb, "numpy", names, order, entries, promotion(facts), axis, reverse, backend
    plan: Plan = cached_recurrence_plan(*facts_of_plan)
    return plan


def steps_in(shape: Shape, strides: Shape, lifted: Shape) -> Shape:
    """The strides of an array with ones put into its shape, or taken out."""
    if shape == lifted:
        return strides
    found = iter([step for length, step in zip(shape, strides, strict=True) if length != 1])
    return tuple([next(found) if length != 1 else 0 for length in lifted])
