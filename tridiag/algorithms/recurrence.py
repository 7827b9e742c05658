"""One step of a linear recurrence, the same for every array library, and the recurrence as a Python loop over rows.

A coefficient that would multiply what was not given is cut by a select, never by a multiplication: 0 * NaN is NaN.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from tridiag.problems.forms import Recurrence

Rows = tuple[Any, ...]  # (a1, ..., ap), or the p values before a step, the latest first
FEW = 64  # sequences of integers of which the steps of a loop in Python take longer than passes over all of them
# where rows are joined in parallel (`tridiag/cuda/src/stretches.cu` has the same)
TRUSTED = 1024.0  # products of coefficients up to this lose little to cancellation
SMALL = {4: 2.0**-48, 8: 2.0**-400}  # products below it are scaled up by its inverse, by the bytes of a real number


def row_of(form: Recurrence, i: Any) -> Any:
    """The row of step i."""
    return form.n - 1 - i if form.backward else i


def coefficient(ops: Any, a: Any, k: int, form: Recurrence, i: Any, given: bool) -> Any:
    """What multiplies the value k steps before step i; 0 where there is none and init is not ``given``."""
    row = ops.row(a, row_of(form, i - k if form.transpose else i) % form.n, form.axis)
    return row if given else ops.where(i >= k, row, ops.zero(row))


def step(ops: Any, coefficients: Rows, x: Any, before: Rows, form: Recurrence, i: Any, given: bool) -> Any:
    """The value of step i from those before it."""
    y = ops.broadcast(ops.row(x, row_of(form, i), form.axis), form.batch)
    for k, (a, value) in enumerate(zip(coefficients, before, strict=True), 1):
        y = y + product(coefficient(ops, a, k, form, i, given), value, form)
    return y


def product(a: Any, value: Any, form: Recurrence) -> Any:
    """A coefficient times a value. Of matrices, column by column: a general product's speed jumps with its size."""
    if not form.matrices:
        return a * value
    columns = range(value.shape[-1])
    terms = ((a[..., k, :] if form.transpose else a[..., k]) * value[..., k : k + 1] for k in columns)
    return functools.reduce(operator.add, terms)


def start(ops: Any, coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Rows:
    """The values before the first step."""
    row = ops.broadcast(ops.row(x, 0, form.axis), form.batch)
    if not init:
        return (ops.zero(row),) * len(coefficients)
    return tuple(ops.broadcast(ops.row(value, 0, form.axis), form.batch) for value in init)


def run(ops: Any, coefficients: Rows, x: Any, init: Rows, form: Recurrence, store: Callable[[int, Any], None]) -> None:
    """The recurrence row by row; ``store(t, row)`` takes them. About two passes over a row for each coefficient."""
    before = start(ops, coefficients, x, init, form)
    for i in range(form.n):
        y = step(ops, coefficients, x, before, form, i, bool(init))
        store(row_of(form, i), y)
        before = (y, *before[:-1])


def is_doubled(coefficients: Rows, form: Recurrence) -> bool:
    """Whether a recurrence of integers is computed by `doubled`: few long sequences, of order one."""
    few = math.prod(form.batch) <= FEW < form.n
    return few and len(coefficients) == 1 and not form.matrices and not form.transpose


def doubled(ops: Any, a: Any, x: Any, init: Rows, form: Recurrence) -> Any:
    """A recurrence of order one in log2(n) steps of whole arrays (Hillis and Steele 1986).

    Of integers alone: their arithmetic modulo a power of two is that of a ring, so that the order does not matter.
    """
    y = ops.broadcast(x, form.shape)
    if init:
        y = y + a * behind(ops, ops.zero(y), 1, init, form)
    width, shared = 1, a.shape[form.axis] == 1
    while width < form.n:
        y = y + a * behind(ops, y, width, (), form)
        a = a * (a if shared else behind(ops, a, width, (), form))
        width *= 2
    return y


def term(ops: Any, a: Any, y: Any, k: int, init: Rows, form: Recurrence) -> Any:
    """What coefficients of the values k steps before add to every value; 0 where there is no value before."""
    if form.transpose:
        return behind(ops, products(cut(ops, a, k, form), y, form), k, (), form)
    values = behind(ops, y, k, init, form)
    return products(a if init else cut(ops, a, k, form), values, form)


def products(a: Any, values: Any, form: Recurrence) -> Any:
    """All coefficients times all values, so that derivatives of it are simple."""
    if not form.matrices:
        return a * values
    return (a * values[..., None]).sum(-2) if form.transpose else (a * values[..., None, :]).sum(-1)


def cut(ops: Any, a: Any, k: int, form: Recurrence) -> Any:
    """Coefficients of the values k steps before, 0 in the first k steps."""
    steps = ops.positions(form.n, len(a.shape), form.axis, a)
    return ops.where(steps < form.steps - k if form.reverse else steps >= k, a, ops.zero(a))


def behind(ops: Any, v: Any, k: int, init: Rows, form: Recurrence) -> Any:
    """At every step the value k steps before it: one of ``init`` before the first step, or 0."""
    axis, count = form.axis, min(k, form.steps)
    row = ops.zero(ops.slice(v, slice(0, 1), axis))
    first = ops.stretch(row, count, axis)
    if init:
        rows = [ops.broadcast(init[k - 1 - i], row.shape) for i in range(count)]
        first = first + ops.concatenate(rows[::-1] if form.backward else rows, axis)
    return ops.moved(v, first, axis, form.backward)
