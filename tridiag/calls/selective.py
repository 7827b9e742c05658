"""Selective scans from the caller's arguments to the normal form, to a backend and back."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.backends import Problem
from tridiag.calls import outputs
from tridiag.calls.checks import check_axis, check_flag
from tridiag.calls.execute import connected, restore
from tridiag.calls.plan import NO_MASK, UNASKED, Call, Plan, plan_of, planned, promoted_dtype, steps_to
from tridiag.calls.sequences import check_sequence
from tridiag.derivatives import selective_of
from tridiag.libraries.arrays import HALVES, Entry, module_of, taking, working_dtype
from tridiag.problems.selective import VERB, Operands, SelectiveScan, align_selective

Array = Any
READ = "x", "B", "C"  # what is of the dtype of the result, where that is half precision


def prepare(arguments: dict[str, Any], *, axis: int = -1, reverse: bool = False, backend: Any = UNASKED) -> Call:
    """Check everything that can be checked before any work is done; ``arguments``: those that are not None."""
    for name, value in arguments.items():
        check_sequence(name, value, order=False)
    names, given = tuple(arguments), list(arguments.values())
    library, take = taking(names, *map(type, given), NO_MASK)
    given, _, entries, settings = take(given, None)
    axis = axis if type(axis) is int else check_axis(axis)
    plan = planned(cached_selective_plan, (library, names, entries[:-1], settings, axis, reverse, backend), given)
    found = Operands(**dict(zip(names, given, strict=True)))
    return Call(plan, (found.a, found.B, found.C, found.step), found.x, (found.init,))


def make_selective_plan(
    library: str,
    names: tuple[str, ...],
    entries: tuple[Entry, ...],
    settings: Any,
    axis: int,
    reverse: bool,
    backend: Any,
) -> Plan:
    """From facts to a plan, or the exception that says what is wrong with the call."""
    check_flag("reverse", reverse)
    module, given = module_of(library), dict(zip(names, entries, strict=True))
    for name, entry in given.items():
        module.check_dtype(name, entry)
    shape, states, axis, lifted = align_selective({name: tuple(entry[1]) for name, entry in given.items()}, axis)
    device, traced = module.device(entries, settings), module.traced(entries)
    whole = promoted_dtype(module, given, settings)
    dtype, working = result_dtype(module, given, settings, whole), working_dtype(whole)
    form = SelectiveScan(shape, states, axis, bool(reverse))
    problem = Problem(VERB, library, device, working, (*shape, states), axis, None)
    steps = steps_to(module, given, dict.fromkeys(names, working), lifted)
    plan = plan_of(problem, form, backend, dtype, traced, steps)
    return plan._replace(casts=dtype != working, empty=0 in problem.shape)


def result_dtype(module: Any, given: dict[str, Entry], settings: Any, whole: str) -> str:
    """Half precision where x, B and C are, but for numbers; else that of all arguments."""
    read = {name: given[name] for name in READ if tuple(given[name][1])}
    if not read or whole.startswith("complex"):
        return whole
    # NumPy's setting is what all arguments promote to, numbers among them
    dtype = promoted_dtype(module, read, None if module is module_of("numpy") else settings)
    return dtype if dtype in HALVES else whole


cached_selective_plan = functools.lru_cache(1024, typed=True)(make_selective_plan)


def operands_of(call: Call) -> Operands:
    a, B, C, step = call.matrix
    return Operands(a, call.d, B, C, step, *call.init)


def run(call: Call, arguments: dict[str, Any], out: Any, return_final: bool) -> Any:
    """The result, and the last states in the dtype that is computed in."""
    out = outputs.target(call, arguments, out, False)
    operands, form, module = operands_of(call), call.form, call.module()
    with module.place([x for x in operands if x is not None]):
        if call.plan.empty:
            y, last = (connected(call, x) for x in nothing(module.Operations, operands, form))
        else:
            direct = None if call.plan.casts else out
            y, last = selective_of(call.library).run(operands, form, call.plan.backend, call.traced, direct)
        y = restore(call, y, out)
    return (y, last) if return_final else y


def nothing(ops: Any, operands: Operands, form: SelectiveScan) -> tuple[Array, Array]:
    """Of no sequences, or sequences without steps or states: zeros, and the states before them."""
    shape = (*form.batch, form.states)
    last = ops.full(shape, 0, operands.x)
    if operands.init is not None:
        last = ops.copy(ops.broadcast(ops.row(operands.init, 0, form.axis), shape))
    return ops.full(form.shape, 0, operands.x), last
