"""Systems of JAX arrays on CPU: each device solves those that it has, or its rows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.problems.forms import Form
from tridiag.xla import split, split_factors
from tridiag.xla.custom_call import (
    call,
    call_adjoint,
    call_long,
    call_status,
    have_rows,
    shard_by_rows,
    shard_over_devices,
)
from tridiag.xla.split_factors import Factors


def solve(matrix: Matrix, d: Any, form: Form, factors: Factors | None = None) -> Any:
    """The solution, by custom calls of `numba_thomas`."""
    if factors is None or factors.joints is None or form.transpose:
        return on_devices(call, split.solve, form, [*matrix[:3], d], matrix[3])
    return on_devices(call_factored, split.solve_factored, form, [*matrix[:3], d, factors.joints], matrix[3])


def call_factored(form: Form, a: Any, b: Any, c: Any, d: Any, joints: Any, where: Any = None) -> Any:
    """Where systems are whole there is nothing to join."""
    return call(form, a, b, c, d, where)


def status_of_whole(form: Form, a: Any, b: Any, c: Any, joints: Any, where: Any = None) -> Any:
    """Where systems are whole there is nothing to join."""
    return call_status(form, a, b, c, where)


def factor(matrix: Matrix, form: Form) -> Factors:
    """The status of matrices, and what joins those whose rows lie on several devices."""
    a, b, c, where = matrix
    operands = [a, b, c]
    if form.cut:
        whole = split.whole_form(form)
        joints = split_factors.joints(whole, form.cut, a, b, c, where)
        status = split_factors.status(whole, form.cut, a, b, c, joints, where)
        status = lax.pmax(status, form.cut.names)  # alike, as types tell then
        return Factors(joints.reshape(*form.matrix_batch, -1), status.reshape(form.matrix_batch))
    if not have_rows():
        return Factors(None, call_status(form, a, b, c, where).reshape(form.matrix_batch))
    joints = shard_by_rows(split_factors.none, split_factors.joints, form, operands, where, split_factors.numbers())
    status = shard_by_rows(status_of_whole, split_factors.status, form, [*operands, joints], where)
    return Factors(joints.reshape(*form.matrix_batch, -1), status.reshape(form.matrix_batch))


def solve_long(matrix: Matrix, d: Any, form: Form) -> Any:
    """The same for `numba_partition`."""
    return on_devices(call_long, split.solve, form, [*matrix[:3], d], matrix[3])


def adjoint(matrix: Matrix, g: Any, x: Any, form: Form) -> Any:
    """w and the gradients of a, b and c, in one custom call where systems are whole."""
    return on_devices(call_adjoint, split.adjoint, form, [*matrix[:3], g, x], matrix[3], 4)


def adjoint_long(matrix: Matrix, g: Any, x: Any, form: Form) -> Any:
    """The same for `numba_partition`."""
    return on_devices(call_adjoint_long, split.adjoint, form, [*matrix[:3], g, x], matrix[3], 4)


def on_devices(
    function: Callable[..., Any],
    parts: Callable[..., Any],
    form: Form,
    operands: list[Any],
    where: Any,
    results: int = 1,
) -> Any:
    """``function(form, *operands)``, or ``parts(form, cut, *operands)`` where a device has some rows of systems."""
    if form.cut:
        given = operands if where is None else [*operands, where]
        return parts(split.whole_form(form), form.cut, *given)
    return shard_over_devices(function, form, operands, where, results, parts)


def call_adjoint_long(form: Form, a: Any, b: Any, c: Any, g: Any, x: Any, where: Any = None) -> Any:
    w = call_long(form._replace(transpose=not form.transpose), a, b, c, g, where)
    below, above = (w, x) if form.transpose else (x, w)  # a[i] stands in row i, of the transpose in row i - 1
    entries = jnp.roll(below, 1, form.axis) * above, w * x, jnp.roll(below, -1, form.axis) * above
    row = lax.broadcasted_iota(jnp.int32, form.shape, form.axis)
    inside = row > 0, True, row < form.n - 1
    cut = (y if form.periodic else jnp.where(there, y, 0) for y, there in zip(entries, inside, strict=True))
    return w, *(-y for y in cut)
