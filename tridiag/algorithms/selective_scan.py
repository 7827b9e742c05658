"""Selective scans, the same for every array library: a chunk of steps at a time, whose states alone are stored.

h[t] = a[t] h[t-1] + x[t] B[t], or exp(step[t] a[t]) h[t-1] + step[t] x[t] B[t]; y[t] is the sum of C[t] h[t] over the
states (Gu and Dao 2023, "Mamba").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan

LinearRecurrence = Callable[[tuple[Any, ...], Any, tuple[Any, ...], Recurrence], Any]


def chunks(form: SelectiveScan) -> Iterator[slice]:
    """The steps of all chunks, in the order in which they are taken."""
    length = form.chunk
    for first in range(0, form.n, length):
        last = min(first + length, form.n)
        yield slice(form.n - last, form.n - first) if form.reverse else slice(first, last)


def narrowed(ops: Any, operands: Operands, part: slice, before: Any, axis: int) -> Operands:
    """The arrays of some steps, and the states before them."""
    rows = (x if x is None or x.shape[axis] == 1 else ops.slice(x, part, axis) for x in operands[:-1])
    return Operands(*rows)._replace(init=before)


def coefficients_and_terms(ops: Any, operands: Operands) -> tuple[Any, Any]:
    """What multiplies the states before each step, and what is added to that."""
    a, x, B, _, step, _ = operands
    return (a, x * B) if step is None else (ops.exp(step * a), step * x * B)


def states_of(ops: Any, recurrence: LinearRecurrence, operands: Operands, form: SelectiveScan) -> Any:
    """The states of all steps."""
    coefficients, terms = coefficients_and_terms(ops, operands)
    init = () if operands.init is None else (operands.init,)
    return recurrence((coefficients,), terms, init, form.recurrence)


def readout(ops: Any, operands: Operands, states: Any, form: SelectiveScan) -> tuple[Any, Any]:
    """The result, and the last states as those before a next step."""
    last = slice(0, 1) if form.reverse else slice(form.n - 1, form.n)
    return (operands.C * states).sum(-1), ops.slice(states, last, form.axis)


def run(
    ops: Any, recurrence: LinearRecurrence, operands: Operands, form: SelectiveScan, out: Any = None
) -> tuple[Any, Any]:
    """The result, ``out`` if that is given, and the last states."""
    y = ops.empty(form.shape, operands.x) if out is None else out
    before = operands.init
    for part in chunks(form):
        some, steps = narrowed(ops, operands, part, before, form.axis), form.steps(part.stop - part.start)
        rows, before = readout(ops, some, states_of(ops, recurrence, some, steps), steps)
        ops.slice(y, part, form.axis)[...] = rows
    return y, ops.copy(ops.row(before, 0, form.axis))
