"""The verbs on DTensors: what each device has is taken, computed with, and given back as a DTensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tridiag.backends import LOGARITHMS
from tridiag.calls import execute
from tridiag.calls.checks import check_flag
from tridiag.calls.distributed import exchange, products, recurrences, systems
from tridiag.calls.distributed.placements import (
    Layout,
    Placed,
    axes_of,
    axes_of_state,
    given_back,
    layout_of,
    shapes_of,
    taken,
)
from tridiag.calls.plan import check_periodic, prepare, wants_check
from tridiag.calls.sequences import PREPARERS, check_logarithms
from tridiag.calls.singular import message
from tridiag.errors import BackendError, SingularSystemError
from tridiag.problems.forms import align, align_recurrence, broadcast

BY_PARTS = ("auto", "numba", "numba_thomas")  # what asks for the kernels of `tridiag.parts`


def forget() -> None:
    """Nothing is kept of calls."""


def solve(
    a: Any, b: Any, c: Any, d: Any, where: Any, out: Any, axis: int, backend: str, pivoting: bool | str,
    periodic: bool, transpose: bool, check: bool | None, overwrite_d: bool,
) -> Any:  # fmt: skip
    """As `tridiag.solve`; d is a DTensor."""
    if out is not None:
        raise TypeError("out= takes no result of DTensors; write out.copy_(tridiag.solve(a, b, c, d))")
    local, layout = system_layout({"a": a, "b": b, "c": c, "d": d, "where": where}, axis)
    mask, cut = local.pop("where", None), layout.cut()
    check_rows(periodic, layout)
    options: dict[str, Any] = {"axis": layout.axis, "pivoting": pivoting, "transpose": transpose, "where": mask}
    call = prepare("solve", local, periodic=periodic if cut is None else False, backend=backend, **options)
    checked = wants_check(call.plan, check)

    def run() -> Any:
        if cut is None:
            return execute.solve(call, call.plan.backend, checked)
        check_place(call, backend)
        course = systems.Course(cut, layout.axis, call.form.shape, periodic, transpose, call.form.pivoting, checked)
        *matrix, keep = call.matrix
        try:
            return execute.restore(call, systems.Solve.apply(*matrix, call.d, keep, course), None)
        except SingularSystemError as error:
            error.x = execute.restore(call, error.x, None)
            raise

    x = (agreed if check is True else located)(run, layout, periodic)
    return given_back(x, layout)


def system_layout(given: dict[str, Any], axis: int) -> tuple[dict[str, Any], Layout]:
    """What this device has of the arguments of a system, and how it is spread."""
    given = {name: x for name, x in given.items() if x is not None}
    shapes = shapes_of(given)
    lifted, axis = align(shapes, axis)
    shape = broadcast(lifted, shapes)
    placed = {name: Placed(x, axes_of(shapes[name], len(shape), axis)) for name, x in given.items()}
    layout = layout_of(placed, shape, axis)
    return {name: taken(name, x, layout) for name, x in placed.items()}, layout


def check_rows(periodic: bool, layout: Layout) -> None:
    check_flag("periodic", periodic)
    check_periodic(periodic, layout.shape[layout.axis])


def check_place(call: Any, backend: str) -> None:
    """What solves systems whose rows lie on several devices."""
    if call.problem.device != "cpu":
        raise TypeError(
            f"the rows of systems are sharded over devices of the kind {call.problem.device}; wanted host memory: "
            "redistribute, with Shard(axis) of a batch axis, and back"
        )
    if backend not in BY_PARTS:
        raise BackendError(
            f"backend {backend!r} solves whole systems, and the system axis is sharded; pass backend='auto', or "
            "redistribute with Shard(axis) of a batch axis"
        )


def located(run: Callable[[], Any], layout: Layout, periodic: bool) -> Any:
    """Run; singular systems are told by their places in the whole batch."""
    try:
        return run()
    except SingularSystemError as error:
        error.indices, error.x = layout.batch_index(error.indices), given_back(error.x, layout)
        batch, part = layout.own_batch(), layout.cuts_batch()
        error.args = (message(error.indices, error.column, batch, periodic, part, more=""),)
        raise


def agreed(run: Callable[[], Any], layout: Layout, periodic: bool) -> Any:
    """The same, raising on all devices of the mesh alike."""
    x, failed = None, None
    try:
        x = located(run, layout, periodic)
    except SingularSystemError as error:
        failed = error
    flag = torch.tensor(failed is not None, device=layout.mesh.device_type)
    for dim in [m for m, cut in enumerate(layout.cuts) if cut is not None]:
        flag = exchange.any_along(flag, layout.mesh, dim)
    if failed is None and flag:
        raise SingularSystemError(
            "a system on another device is singular; to go on with NaN pass check=False",
            np.zeros((0, len(layout.shape) - 1), int),
            given_back(x, layout),
        )
    if failed is not None:
        raise failed
    return x


def matmul(a: Any, b: Any, c: Any, x: Any, where: Any, axis: int, periodic: bool, transpose: bool) -> Any:
    """As `tridiag.matmul`; x is a DTensor."""
    local, layout = system_layout({"a": a, "b": b, "c": c, "x": x, "where": where}, axis)
    mask, cut = local.pop("where", None), layout.cut()
    check_rows(periodic, layout)
    options: dict[str, Any] = {"axis": layout.axis, "transpose": transpose, "where": mask}
    call = prepare("matmul", local, periodic=periodic if cut is None else False, **options)
    y = execute.product(call)
    return given_back(y if cut is None else products.with_neighbours(call, y, cut, periodic), layout)


def slogdet(a: Any, b: Any, c: Any, where: Any, axis: int, periodic: bool, backend: str) -> Any:
    """As `tridiag.slogdet`; b is a DTensor."""
    local, layout = system_layout({"a": a, "b": b, "c": c, "where": where}, axis)
    if layout.cut() is not None:
        raise TypeError(
            "the system axis is sharded, and determinants take whole matrices; redistribute with Shard(axis) of a "
            "batch axis, or pass b.full_tensor() and the others alike"
        )
    mask = local.pop("where", None)
    options: dict[str, Any] = {"pivoting": True, "periodic": periodic, "backend": backend, "where": mask}
    found = execute.determinants(prepare("slogdet", local, axis=layout.axis, **options))
    return tuple(given_back(x, layout, batch=True) for x in found)


# ------------------------------------------------------------------------------------------------ recurrences


def recurrence(verb: str, given: dict[str, Any], out: Any, **options: Any) -> Any:
    """As the verbs of `tridiag.recurrences`; x is a DTensor. None: no verb that takes them."""
    found = run_recurrence(verb, given, out, False, **options)
    return found if found is None else found[0]


def recurrence_and_final(verb: str, given: dict[str, Any], out: Any, **options: Any) -> Any:
    """The same with the last value, or the last ones."""
    return run_recurrence(verb, given, out, True, **options)


def run_recurrence(
    verb: str, given: dict[str, Any], out: Any, final: bool, *, axis: int = -1, reverse: bool = False, backend: Any
) -> Any:
    if verb == "matrix_recurrence":
        return None
    if out is not None:
        raise TypeError(f"out= takes no result of DTensors; write out.copy_(tridiag.{verb}(...))")
    local, layout = recurrence_layout(given, axis)
    call = PREPARERS[verb](verb, **local, axis=layout.axis, reverse=reverse, backend=backend)[1]
    cut = layout.cut()
    if cut is None:
        y = execute.recurrence(verb, call)
        return given_back(y, layout), final and wrapped(execute.last(verb, call, y, local), layout)
    if len(call.matrix) > 1:
        raise TypeError(
            f"a recurrence of order {len(call.matrix)} takes whole sequences, and axis {layout.axis} is sharded; "
            "redistribute with Shard(axis) of a batch axis, and back"
        )
    if verb in LOGARITHMS:
        check_logarithms(verb, call.plan, cut=True)
    if not call.d.is_floating_point() and not call.d.is_complex():
        raise TypeError(
            f"a recurrence of integers takes whole sequences, and axis {layout.axis} is sharded; redistribute with "
            "Shard(axis) of a batch axis, and back, or pass floating-point numbers"
        )
    course = recurrences.Course(verb, cut, call.form, call.plan.backend)
    function = recurrences.Sequence if verb == "linear_recurrence" else recurrences.LogSequence
    y = function.apply(*(call.matrix or (None,)), call.d, *(call.init or (None,)), course)
    whole = given_back(execute.restore(call, y, None), layout)
    if not final:
        return whole, None
    last = wrapped(execute.restore(call, recurrences.Final.apply(y, course), None), layout)
    return whole, (last,) if isinstance(given.get("a"), tuple) else last


def wrapped(values: Any, layout: Layout) -> Any:
    """A value for each sequence, or a tuple of such."""
    if isinstance(values, tuple):
        return tuple(wrapped(x, layout) for x in values)
    return given_back(values, layout, batch=True)


def recurrence_layout(given: dict[str, Any], axis: int) -> tuple[dict[str, Any], Layout]:
    """What this device has of the arguments of a recurrence, and how it is spread."""
    flat = {}
    for name, value in given.items():
        for k, x in enumerate(value if isinstance(value, tuple) else (value,)):
            if x is not None:
                flat[f"{name}[{k}]" if isinstance(value, tuple) else name] = x
    shapes = shapes_of(flat)
    states = {name: shape for name, shape in shapes.items() if name.startswith("init")}
    rows = {name: shape for name, shape in shapes.items() if name not in states}
    lifted, _, axis = align_recurrence(rows, states, axis)
    shape = broadcast(lifted, rows)
    placed = {
        name: Placed(x, (axes_of_state if name in states else axes_of)(shapes[name], len(shape), axis))
        for name, x in flat.items()
    }
    layout = layout_of(placed, shape, axis)
    local = {name: taken(name, x, layout) for name, x in placed.items()}
    return {
        name: tuple(local[f"{name}[{k}]"] for k in range(len(value))) if isinstance(value, tuple) else local.get(name)
        for name, value in given.items()
    }, layout
