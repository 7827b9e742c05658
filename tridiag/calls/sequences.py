"""Recurrences from the caller's arguments to the normal form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tridiag.calls.checks import check_axis, check_flag
from tridiag.calls.plan import NO_MASK, UNASKED, Call, Plan, plan_without_mask, planned
from tridiag.libraries.arrays import (
    Entry,
    is_real,
    module_of,
    taking,
)
from tridiag.problems.forms import (
    Recurrence,
    Shape,
    align_matrices,
    align_recurrence,
    broadcast,
)


def prepare(
    verb: str, a: Any, x: Any, init: Any = None, *, axis: int = -1, reverse: bool = False, backend: Any = UNASKED
) -> tuple[dict[str, Any], Call]:
    """The arguments by their names, and the call that they make."""
    coefficients, states = coefficients_and_states(a, init)
    call = prepare_recurrence(verb, coefficients, x, states, axis=axis, reverse=reverse, backend=backend)
    return {**coefficients, "x": x, **states}, call


def coefficients_and_states(a: Any, init: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coefficients and the values before the first step by their names, as many of each."""
    for name, value in (("a", a), ("init", init)):
        check_sequence(name, value, order=True)
    coefficients = named("a", a)
    if not coefficients:
        raise ValueError("a is an empty tuple; wanted at least one coefficient")
    states = {} if init is None else named("init", init)
    if states and (len(states) != len(coefficients) or isinstance(a, tuple) != isinstance(init, tuple)):
        wanted = f"a tuple of {len(a)} arrays, as a is" if isinstance(a, tuple) else "one array, as a is"
        found = f"a tuple of {len(init)}" if isinstance(init, tuple) else f"a {type(init).__name__}"
        raise ValueError(f"init is {found}; wanted {wanted}")
    return coefficients, states


def prepare_logarithms(
    verb: str,
    x: Any,
    log_a: Any = None,
    init: Any = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    backend: Any = UNASKED,
) -> tuple[dict[str, Any], Call]:
    """The same for recurrences of logarithms, which are real numbers."""
    for name, value in (("log_a", log_a), ("init", init)):
        check_sequence(name, value, order=False)
    coefficients = {"log_a": log_a} if verb == "log_linear_recurrence" else {}
    states = {} if init is None else {"init": init}
    call = prepare_recurrence(verb, coefficients, x, states, axis=axis, reverse=reverse, backend=backend)
    check_logarithms(verb, call.plan)
    return {**coefficients, "x": x, **states}, call


def check_logarithms(verb: str, plan: Plan, cut: bool = False) -> None:
    """``cut``: sequences lie in several places."""
    if is_real(plan.problem.dtype) or (verb == "logcumsumexp" and not cut):
        return
    if verb == "logcumsumexp":
        raise TypeError(
            f"logcumsumexp takes {plan.result_dtype} where whole sequences are in one place; gather or rechunk its axis"
        )
    raise TypeError(
        f"{verb} takes logarithms of positive numbers, which are real, not {plan.result_dtype}; a complex logcumsumexp "
        "that goes on from chunk to chunk has the last value of one chunk before the first of the next"
    )


def prepare_matrices(
    verb: str, A: Any, x: Any, init: Any = None, *, reverse: bool = False, backend: Any = UNASKED
) -> tuple[dict[str, Any], Call]:
    """As `prepare`, of matrices."""
    for name, value in (("A", A), ("init", init)):
        check_sequence(name, value, order=False)
    states = {} if init is None else {"init": init}
    call = prepare_recurrence(verb, {"A": A}, x, states, axis=-2, reverse=reverse, backend=backend)
    return {"A": A, "x": x, **states}, call


PREPARERS: dict[str, Callable[..., tuple[dict[str, Any], Call]]] = {
    "linear_recurrence": prepare,
    "matrix_recurrence": prepare_matrices,
    "log_linear_recurrence": prepare_logarithms,
    "logcumsumexp": prepare_logarithms,
}


def check_sequence(name: str, values: Any, order: bool) -> None:
    """Refuse a sequence of arrays that could be meant for another thing than it is; one of numbers is an array.

    ``order``: the verb has higher orders, and a tuple is one: a list could be meant for it. Else a tuple could.
    """
    if order and type(values) is tuple:
        for k, value in enumerate(values):
            if type(value) in (list, tuple) and has_arrays(value):
                raise TypeError(
                    f"{name}[{k}] is a {type(value).__name__} of arrays; pass the tuple (a1, ..., ap) of p arrays for "
                    "order p, each as numpy.stack makes it for a batch"
                )
    if type(values) is not (list if order else tuple) or not has_arrays(values):
        return
    if order:
        found = "the tuple (a1, ..., ap) for order p" if name == "a" else "a tuple, as a is, for order p"
        raise TypeError(f"{name} is a list of arrays; pass {found}, or one array, as numpy.stack makes it, for a batch")
    raise TypeError(
        f"{name} is a tuple of arrays, and this recurrence is of first order; pass one array, as numpy.stack makes it"
    )


def has_arrays(values: Any) -> bool:
    return any(getattr(value, "ndim", 0) for value in values)


def named(name: str, values: Any) -> dict[str, Any]:
    """An argument, or the arguments of a tuple, by their names."""
    return dict(zip(indexed(name, len(values)), values, strict=True)) if isinstance(values, tuple) else {name: values}


def indexed(name: str, count: int) -> tuple[str, ...]:
    """The names of the arguments of a tuple."""
    return tuple([f"{name}[{k}]" for k in range(count)])


def prepare_recurrence(
    verb: str,
    coefficients: Mapping[str, Any],
    x: Any,
    init: Mapping[str, Any],
    *,
    axis: int,
    reverse: bool,
    backend: Any = UNASKED,
) -> Call:
    """The same for a recurrence: its coefficients by their names, x, and the values before its first step."""
    arguments = {**coefficients, "x": x, **init}
    names, given = tuple(arguments), list(arguments.values())
    library, take = taking(names, *map(type, given), NO_MASK)
    given, _, entries, settings = take(given, None)
    axis = axis if type(axis) is int else check_axis(axis)
    order = len(coefficients)
    facts = verb, library, names, order, entries[:-1], settings, axis, reverse, backend
    plan = planned(cached_recurrence_plan, facts, given)
    return Call(plan, tuple(given[:order]), given[order], tuple(given[order + 1 :]))


def make_recurrence_plan(
    verb: str,
    library: str,
    names: tuple[str, ...],
    order: int,
    entries: tuple[Entry, ...],
    settings: Any,
    axis: int,
    reverse: bool,
    backend: Any,
) -> Plan:
    """As `make_plan`; the first ``order`` entries are coefficients, then comes x."""
    check_flag("reverse", reverse)
    module, given = module_of(library), dict(zip(names, entries, strict=True))
    for name, entry in given.items():
        module.check_dtype(name, entry)
    shapes = {name: tuple(entry[1]) for name, entry in given.items()}
    form, lifted = recurrence_form(verb, shapes, order, axis, bool(reverse))
    facts = verb, library, given, settings
    exact = verb in ("linear_recurrence", "matrix_recurrence")
    return plan_without_mask(*facts, names[:order], form, lifted, backend, order=max(1, order), exact=exact)


def recurrence_form(
    verb: str, shapes: dict[str, Shape], order: int, axis: int, reverse: bool
) -> tuple[Recurrence, dict[str, Shape]]:
    """The form of a recurrence, and the lifted shapes of its arguments: coefficients, x, and what is before."""
    if verb == "matrix_recurrence":
        lifted, shape = align_matrices(shapes)
        return Recurrence(shape, len(shape) - 2, reverse, matrices=True), lifted
    names = tuple(shapes)
    rows, states = ({name: shapes[name] for name in part} for part in (names[: order + 1], names[order + 1 :]))
    lifted, lifted_states, axis = align_recurrence(rows, states, axis)
    return Recurrence(broadcast(lifted, rows), axis, reverse), {**lifted, **lifted_states}


cached_recurrence_plan = functools.lru_cache(1024, typed=True)(make_recurrence_plan)
