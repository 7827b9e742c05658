"""The verbs on arrays of CuPy whose facts are known: the program that was planned runs where the arrays are.

Numbers, arrays of another dtype than the result's, and those whose strides are no whole numbers of entries go the way
of all calls; so does what may overlap, and what is looked at for singular systems.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import cupy
import numpy as np

from tridiag.backends import LOGARITHMS
from tridiag.calls.fast_path.facts import fits, steps_in
from tridiag.calls.fast_path.recurrences import COEFFICIENTS, order_of, plan_of_recurrence
from tridiag.calls.plan import Plan, cached_plan, wants_check
from tridiag.cuda import on_cupy
from tridiag.cuda.record import Program
from tridiag.kernels.jobs.batches import contiguous
from tridiag.libraries.arrays import is_real
from tridiag.problems.forms import Shape

Facts = tuple[np.dtype[Any], Shape, Shape, int]  # ... and the device
Reach = tuple[int, int]  # bytes from the first entry of an array to the ends of its memory
RIGHT_SIDE = 4  # the place of d among the arguments of a solve
NOWHERE = -1


class BoundCall(NamedTuple):
    """A call that waits for its arrays."""

    program: Program
    operands: tuple[int, ...]  # of the program: which of the arguments, or `NOWHERE`
    out: int  # the argument that takes the result, which is made where it is None
    shape: Shape
    dtype: np.dtype[Any]
    device: int
    reaches: tuple[Reach, ...]  # of the arguments


def solve(a: Any, b: Any, c: Any, d: Any, where: Any, out: Any, axis: Any, *options: Any) -> Any:
    """The solution, or None where this is not the way to it."""
    return result(bound_solve, [a, b, c, where, d, out], axis, *options)


def recurrence(verb: str, given: Mapping[str, Any], out: Any, reverse: bool, backend: str, axis: Any = -2) -> Any:
    """The result of a recurrence, or None where this is not the way to it."""
    a, init = given.get(COEFFICIENTS[verb]), given.get("init")
    rows = a if type(a) is tuple else () if a is None else (a,)
    before = init if type(init) is tuple else () if init is None else (init,)
    indices, states = len(rows) if type(a) is tuple else None, type(init) is tuple
    return result(bound_recurrence, [*rows, given["x"], *before, out], axis, verb, indices, states, reverse, backend)


def result(bind: Callable[..., BoundCall | None], given: list[Any], axis: Any, *options: Any) -> Any:
    """That of a call with these arguments, the last of them ``out``; None where this is not the way to it."""
    if type(axis) is not int:
        return None
    facts, pointers = facts_of_all(given)
    try:
        bound = bind(facts, axis, *options)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None or (given[bound.out] is not None and not disjoint(pointers, bound.reaches, bound.out)):
        return None
    if cupy.cuda.device.get_device_id() == bound.device:
        return run(bound, given, pointers)
    with cupy.cuda.Device(bound.device):
        return run(bound, given, pointers)


def facts_of_all(given: Sequence[Any]) -> tuple[tuple[Any, ...], list[int]]:
    """Those of arrays, and where they are; of anything else its type; None as it is."""
    facts: list[Any] = []
    pointers = []
    for x in given:
        if type(x) is cupy.ndarray:
            memory = x.data
            facts.append((x.dtype, x.shape, x.strides, memory.device_id))
            pointers.append(memory.ptr)
        else:
            facts.append(x if x is None else type(x))
            pointers.append(0)
    return tuple(facts), pointers


def run(bound: BoundCall, given: Sequence[Any], pointers: list[int]) -> Any:
    """On the current device."""
    y = given[bound.out]
    if y is None:
        y = cupy.empty(bound.shape, bound.dtype)
        pointers[bound.out] = y.data.ptr
    pointers.append(0)  # which is `NOWHERE`
    on_cupy.run_at(bound.program, [pointers[k] for k in bound.operands])
    return y


def disjoint(pointers: Sequence[int], reaches: Sequence[Reach], out: int) -> bool:
    """Whether an argument surely shares no memory with another."""
    low, high = reaches[out]
    first, last = pointers[out] + low, pointers[out] + high
    for k, (pointer, (low, high)) in enumerate(zip(pointers, reaches, strict=True)):
        if pointer + low < last and first < pointer + high and k != out:
            return False
    return True


def reach_of(fact: Facts | None) -> Reach:
    if fact is None:
        return 0, 0
    dtype, shape, strides, _ = fact
    steps = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    return sum([min(0, step) for step in steps]), sum([max(0, step) for step in steps], dtype.itemsize)


def device_of(facts: Sequence[Any]) -> int | None:
    """The one device of all arguments, which are arrays or None; None where they are not."""
    if any(isinstance(fact, type) for fact in facts):
        return None
    devices = {fact[3] for fact in facts if fact is not None}
    return devices.pop() if len(devices) == 1 else None


def lifted(plan: Plan, facts: Sequence[Facts]) -> list[Any] | None:
    """The shapes and the strides of arguments in the rank of the form; None where more is to be done than that."""
    steps, found = {k: (dtype, shape) for k, dtype, shape in plan.steps}, []
    for k, (dtype, shape, strides, _) in enumerate(facts):
        wanted, full = steps.get(k, (dtype.name, shape))
        if wanted != dtype.name or any(step % dtype.itemsize for step in strides):
            return None
        found.append((full, steps_in(shape, strides, full)))
    return None if plan.casts or plan.empty else found


def place_of(plan: Plan, out: Facts | None) -> tuple[Shape, Shape] | None:
    """The shape and the strides of the result, which may be in an array with these facts; None where it may not."""
    itemsize = plan.out_dtype.itemsize
    strides = contiguous(plan.form.shape, itemsize)
    if out is None:
        return plan.form.shape, strides
    fitting = fits(out[:3], (plan.out_dtype, plan.form.shape, strides))
    return out[1:3] if fitting and not any(step % itemsize for step in out[2]) else None


def extents(operands: Sequence[Any]) -> tuple[Any, Any]:
    """Shapes and strides apart; None: not there."""
    return tuple([x and x[0] for x in operands]), tuple([x and x[1] for x in operands])


@functools.lru_cache(1024, typed=True)
def bound_solve(
    facts: tuple[Any, ...],
    axis: int,
    backend: str,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    check: bool | None,
    overwrite_d: bool,
) -> BoundCall | None:
    """The solve of a, b, c, where, d with these facts, and out, if their backend has a program for it."""
    a, b, c, where, d, out = facts
    device = device_of(facts)
    if device is None or None in (a, b, c):
        return None
    entries = *(fact[:2] for fact in (a, b, c, d)), where and where[:2]
    plan = cached_plan("solve", "cupy", entries, (device,), axis, pivoting, periodic, transpose, overwrite_d, backend)
    module, form, operands = plan.backend.module(), plan.form, lifted(plan, (a, b, c, d))
    if operands is None or wants_check(plan, check) or not hasattr(module, "program_of_solve"):
        return None
    over = out is None and bool(overwrite_d) and place_of(plan, d) is not None
    place = place_of(plan, d if over else out)
    if place is None:
        return None
    *matrix, right = operands
    mask = where and (plan.mask_shape, steps_in(where[1], where[2], plan.mask_shape))
    shapes, strides = extents((*matrix, mask, right, place))
    program = module.program_of_solve(form, shapes, strides, (b[0], d[0]), over)
    if program is None:
        return None
    takes = RIGHT_SIDE if over else RIGHT_SIDE + 1
    places = *range(RIGHT_SIDE + 1), takes
    return BoundCall(program, places, takes, form.shape, plan.out_dtype, device, tuple(map(reach_of, facts)))


@functools.lru_cache(1024, typed=True)
def bound_recurrence(
    facts: tuple[Any, ...], axis: int, verb: str, indices: int | None, states: bool, reverse: bool, backend: str
) -> BoundCall | None:
    """The recurrence of arguments with these facts: coefficients, x, what is before, and out.

    ``indices``: how many coefficients a tuple holds, or None. ``states``: whether what is before is a tuple.
    """
    *given, out = facts
    device, order = device_of(facts), order_of(verb, len(given), indices, states)
    if device is None or order is None or None in given:
        return None
    entries = tuple([fact[:2] for fact in given])
    plan = plan_of_recurrence(verb, "cupy", entries, (device,), order, indices is not None, axis, reverse, backend)
    module, form, operands, place = plan.backend.module(), plan.form, lifted(plan, given), place_of(plan, out)
    if operands is None or place is None or not hasattr(module, "program_of_recurrence"):
        return None
    if verb in LOGARITHMS and not is_real(plan.result_dtype):
        return None
    takes, (shapes, strides) = len(given), extents((place, *operands))
    dtypes = given[0][0], given[order][0]
    program, places = module.program_of_recurrence(verb, form, order, shapes, strides, dtypes)
    numbers = tuple([NOWHERE if k < 0 else takes if k == 0 else k - 1 for k in places])
    return BoundCall(program, numbers, takes, form.shape, plan.out_dtype, device, tuple(map(reach_of, facts)))


def forget() -> None:
    """Decide anew about calls that were met before."""
    bound_solve.cache_clear()
    bound_recurrence.cache_clear()
