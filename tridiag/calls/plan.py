"""From the caller's arguments to systems in the normal form: checked, promoted, of one rank, without a copy.

Whatever the static facts of a call decide (libraries, dtypes, shapes, options; never values) is decided once, and kept
as its `Plan`: `make_plan` is a pure function in a bounded cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import Problem
from tridiag.calls.checks import check_axis, check_check, check_flag, check_mask, check_promise, refuse_check
from tridiag.libraries.arrays import (
    SUPPORTED,
    Entry,
    dtype_name,
    is_real,
    module_of,
    refuse_dtype,
    taking,
    working_dtype,
)
from tridiag.problems.forms import (
    Form,
    Shape,
    Sides,
    align,
    broadcast,
)
from tridiag.selection.choose import choose, in_trace
from tridiag.selection.costs import known_size

NO_MASK: Any = type(None)
RIGHT = {"matmul": "x"}  # what a verb calls its fourth argument, where that is not d
UNASKED = object()  # the verb has no backends, or the caller chooses
SHARING = 8  # right sides of a matrix that are many
REAL_OF = {"complex64": "float32", "complex128": "float64"}


class Plan(NamedTuple):
    """All that is decided about a call before its values are looked at."""

    library: str
    problem: Problem
    form: Any  # a `Form`, a `Recurrence` or a `Blocks`
    backend: Any  # the `Backend` chosen, or None; in a trace perhaps `PerPlatform`
    result_dtype: str
    out_dtype: Any  # the same as the library says it, in this machine's byte order
    casts: bool  # whether solutions have another dtype than the result
    traced: bool
    empty: bool  # no systems, or systems without rows
    readable: bool  # whether values can be read without synchronising a device
    steps: tuple[tuple[int, str, Shape], ...]  # which argument gets another dtype or shape, and which
    mask_shape: Shape
    sides: Any = None  # of block tridiagonal systems: `Sides`


class Call(NamedTuple):
    """One call of a verb, ready to run."""

    plan: Plan
    matrix: Any  # a `Matrix`; of a recurrence its coefficients
    d: Any  # of a recurrence x
    init: tuple[Any, ...] = ()  # of a recurrence the values before its first step

    @property
    def library(self) -> str:
        return self.plan.library

    @property
    def form(self) -> Any:
        return self.plan.form

    @property
    def problem(self) -> Problem:
        return self.plan.problem

    @property
    def result_dtype(self) -> str:
        return self.plan.result_dtype

    @property
    def traced(self) -> bool:
        return self.plan.traced

    def module(self) -> ModuleType:
        return module_of(self.plan.library)

    def place(self) -> AbstractContextManager[Any]:
        """Where its work is done: on the device of its arrays, whichever is current."""
        place: AbstractContextManager[Any] = self.module().place((*self.matrix, self.d))
        return place


def prepare(
    verb: str,
    arguments: Mapping[str, Any],
    *,
    axis: int = -1,
    pivoting: bool | str = "auto",
    periodic: bool = False,
    where: Any = None,
    transpose: bool = False,
    overwrite_d: bool = False,
    backend: Any = UNASKED,
) -> Call:
    """Check everything that can be checked before any work is done. ``arguments`` are a, b, c and perhaps d, or x."""
    given, mask_kind = list(arguments.values()), where.__class__
    library, take = taking(tuple(arguments), *map(type, given), mask_kind)
    given, where, entries, settings = take(given, where)
    axis = axis if type(axis) is int else check_axis(axis)
    facts = verb, library, entries, settings, axis, pivoting, periodic, transpose, overwrite_d, backend
    plan = planned(cached_plan, facts, given)
    if where is not None:
        where = where.reshape(plan.mask_shape)
    a, b, c, d = given if len(given) == 4 else (*given, None)
    return Call(plan, (a, b, c, where), d)


def planned(cached: Any, facts: tuple[Any, ...], given: list[Any]) -> Plan:
    """The plan of some facts, by a function that keeps what it has found; the arguments take its dtypes and shapes."""
    try:
        plan = cached(*facts)
    except TypeError:  # refused, or an option that has no hash and is refused next
        plan = None
    if plan is None:
        plan = cached.__wrapped__(*facts)
    if plan.steps:
        module = module_of(plan.library)
        with module.place(given):
            for k, dtype, shape in plan.steps:
                given[k] = module.cast(given[k], dtype).reshape(shape)
    return plan


def make_plan(
    verb: str,
    library: str,
    entries: tuple[Entry, ...],
    settings: Any,
    axis: int,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    overwrite_d: bool,
    backend: Any,
) -> Plan:
    """From facts to a plan, or the exception that says what is wrong with the call."""
    pivoting = check_promise(pivoting)
    for name, flag in (("periodic", periodic), ("transpose", transpose), ("overwrite_d", overwrite_d)):
        check_flag(name, flag)
    module = module_of(library)
    right = RIGHT.get(verb, "d")
    given, mask = dict(zip((*"abc", right), entries[:-1], strict=False)), entries[-1]
    for name, entry in given.items():
        module.check_dtype(name, entry)
    shapes = {name: tuple(entry[1]) for name, entry in given.items()}
    if mask is not None:
        check_mask(mask)
        shapes["where"] = tuple(mask[1])
    lifted, axis = align(shapes, axis)
    device, traced = module.device(given.values(), settings), module.traced(x for x in entries if x is not None)
    dtype = promoted_dtype(module, given, settings)
    dtypes = entry_dtypes(given, working_dtype(dtype), "abc")
    shape = broadcast(lifted, shapes)
    matrix_shape = broadcast({name: s for name, s in lifted.items() if name != right}, shapes)
    # a matrix that is constant along the system axis still has n rows
    matrix_shape = (*matrix_shape[:axis], shape[axis], *matrix_shape[axis + 1 :])
    check_periodic(periodic, shape[axis], verb)
    # Elimination of a cyclic matrix fills: its pivots alone do not keep the errors of True as small as those of "auto".
    kept = "auto" if periodic and pivoting is True else pivoting
    form = Form(shape, matrix_shape, axis, bool(periodic), bool(transpose), kept, bool(overwrite_d))
    problem = Problem(verb, library, device, dtypes["b"], shape, axis, pivoting, form.periodic, shared=is_shared(form))
    steps = steps_to(module, given, dtypes, lifted)
    return plan_of(problem, form, backend, dtype, traced, steps, lifted.get("where", ()))


def check_periodic(periodic: bool, rows: int, verb: str = "") -> None:
    if periodic and 0 < rows < 3:
        constant = verb == "factor" and rows == 1
        todo = (
            "numpy.broadcast_to(b, (..., n)) says how many if all are alike"
            if constant
            else "write it out or solve it dense"
        )
        raise ValueError(f"periodic=True needs at least 3 rows, and the system has {rows}; {todo}")


def is_shared(form: Form) -> bool:
    """Whether a matrix has many right sides, so that reading it hardly counts."""
    shape, matrix_shape = (math.prod(map(known_size, sizes)) for sizes in (form.shape, form.matrix_shape))
    return 0 < SHARING * matrix_shape <= shape


def plan_of(
    problem: Problem,
    form: Any,
    backend: Any,
    dtype: str,
    traced: bool,
    steps: Any,
    mask_shape: Shape = (),
    sides: Sides | None = None,
) -> Plan:
    """The plan of a problem whose result has a dtype."""
    return Plan(
        library=problem.library,
        problem=problem,
        form=form,
        backend=None if backend is UNASKED else chosen(problem, backend, traced),
        result_dtype=dtype,
        out_dtype=module_of(problem.library).dtype(dtype),
        casts=dtype != working_dtype(dtype),
        traced=traced,
        empty=0 in form.shape,
        readable=problem.device == "cpu" and not traced,
        steps=steps,
        mask_shape=mask_shape,
        sides=sides,
    )


def chosen(problem: Problem, backend: Any, traced: bool) -> Any:
    """The backend of a call; a name that is none is refused by `choose`."""
    if traced and isinstance(backend, str):
        return in_trace(problem, backend, module_of(problem.library).platforms())
    return choose(problem, backend).backend


def promoted_dtype(module: ModuleType, given: Mapping[str, Entry], settings: Any) -> str:
    """The dtype of the result, as the library promotes."""
    dtype: str = module.result_dtype(given.values(), settings)
    if working_dtype(dtype) not in SUPPORTED:
        refuse_dtype("the result", dtype)
    return dtype


def real_dtype(module: ModuleType, given: Mapping[str, Entry], settings: Any) -> str:
    """The same for a verb of real numbers only."""
    dtype = promoted_dtype(module, given, settings)
    if not is_real(working_dtype(dtype)):
        raise TypeError(f"the arguments promote to {dtype}; wanted real numbers")
    return dtype


def steps_to(
    module: ModuleType, given: Mapping[str, Entry], dtypes: Mapping[str, str], lifted: Mapping[str, Shape]
) -> Any:
    """Which arguments get another dtype or shape, and which."""
    return tuple(
        (k, dtypes[name], lifted[name])
        for k, (name, entry) in enumerate(given.items())
        if tuple(entry[1]) != lifted[name] or not module.has_dtype(entry, dtypes[name])
    )


cached_plan = functools.lru_cache(1024, typed=True)(make_plan)


def plan_without_mask(
    verb: str,
    library: str,
    given: Mapping[str, Entry],
    settings: Any,
    matrix: Iterable[str],
    form: Any,
    lifted: Mapping[str, Shape],
    backend: Any,
    order: int = 1,
    sides: Sides | None = None,
    exact: bool = False,
) -> Plan:
    """From a form and the lifted shapes of the arguments; ``matrix``: which of them may be real beside complex ones.

    ``exact``: integers stay integers.
    """
    module, entries = module_of(library), given.values()
    device, traced = module.device(entries, settings), module.traced(entries)
    integer = module.integer_dtype(entries, settings) if exact else None
    dtype = integer or promoted_dtype(module, given, settings)
    dtypes, shape = entry_dtypes(given, working_dtype(dtype), matrix), sides.shape if sides else form.shape
    axis = len(shape) - 2 if sides else form.axis
    problem = Problem(verb, library, device, working_dtype(dtype), shape, axis, None, order=order)
    return plan_of(problem, form, backend, dtype, traced, steps_to(module, given, dtypes, lifted), sides=sides)


def wants_check(plan: Plan, check: bool | None) -> bool:
    """Whether singular systems raise."""
    if check is None:
        return plan.readable
    check_check(check)
    if check and plan.traced:
        refuse_check()
    return bool(check)


def entry_dtypes(given: Mapping[str, Entry], dtype: str, matrix: Iterable[str]) -> dict[str, str]:
    """All entries in one dtype, but a real matrix with a complex right side stays real."""
    dtypes, names = dict.fromkeys(given, dtype), tuple(matrix)
    if dtype in REAL_OF and not any(is_complex(given[name][0]) for name in names):
        dtypes.update(dict.fromkeys(names, REAL_OF[dtype]))
    return dtypes


def is_complex(dtype: Any) -> bool:
    """Of a dtype or a Python type."""
    return issubclass(dtype, complex) if isinstance(dtype, type) else dtype_name(dtype).startswith("complex")


def axis_alone(matrix: tuple[Any, ...], axis: int) -> int:
    """The axis of the matrix by itself: a 1-D matrix lies along that axis of the right sides, whichever it will be."""
    return -1 if is_one(matrix) else axis


def is_one(matrix: tuple[Any, ...]) -> bool:
    """Whether it is a single matrix, of 1-D arrays and scalars."""
    return all(np.ndim(x) <= 1 for x in matrix if x is not None)
