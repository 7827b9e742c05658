"""Systems of JAX arrays on CPU: each device solves those that it has, or its rows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import row_scan
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.problems.forms import Form
from tridiag.xla import split, split_determinants, split_factors
from tridiag.xla.custom_call import (
    call,
    call_adjoint,
    call_determinants,
    call_entries,
    call_long,
    call_status,
    call_status_long,
    shard_over_devices,
)
from tridiag.xla.exchange import of_device
from tridiag.xla.partitioning import may_be_sharded
from tridiag.xla.split_factors import Factors


def solve(matrix: Matrix, d: Any, form: Form, factors: Factors | None = None) -> Any:
    """The solution, by custom calls of `numba_thomas`."""
    return solve_by(call, matrix, d, form, factors)


def solve_long(matrix: Matrix, d: Any, form: Form, factors: Factors | None = None) -> Any:
    """The same for `numba_partition`."""
    return solve_by(call_long, matrix, d, form, factors)


def solve_by(function: Callable[..., Any], matrix: Matrix, d: Any, form: Form, factors: Factors | None) -> Any:
    """The solution; the function computes that of whole systems."""
    if factors is None or factors.joints is None or form.transpose:
        return on_devices(function, split.solve, form, [*matrix[:3], d], matrix[3])
    operands = [*matrix[:3], d, jnp.expand_dims(factors.joints, form.axis)]
    return on_devices(without_joints(function, 4), split.solve_factored, form, operands, matrix[3])


def factor(matrix: Matrix, form: Form) -> Factors:
    """The status of matrices, and what joins those whose rows lie on several devices."""
    return factor_by(call_status, matrix, form)


def factor_long(matrix: Matrix, form: Form) -> Factors:
    """The same for `numba_partition`."""
    return factor_by(call_status_long, matrix, form)


def factor_by(function: Callable[..., Any], matrix: Matrix, form: Form) -> Factors:
    """What is kept; the function finds the status of whole matrices."""
    if not form.cut and not may_be_sharded():
        return Factors(None, function(form, *matrix))
    operands, where, numbers = [*matrix[:3]], matrix[3], split_factors.numbers()
    joints = on_devices(split_factors.none, split_factors.joints, form, operands, where, 1, False, numbers)
    operands.append(jnp.expand_dims(joints, form.axis))
    status = on_devices(without_joints(function, 3), split_factors.status, form, operands, where, 1, False)
    return Factors(joints, of_device(form.cut, 0, status) if form.cut else status)


@functools.cache
def without_joints(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function of arrays one of which it does not read: where systems are whole there is nothing to join."""

    def call(form: Form, *arrays: Any) -> Any:
        return function(form, *arrays[:place], *arrays[place + 1 :])

    call.__name__ = f"{function.__name__}_without_joints"
    return call


def adjoint(matrix: Matrix, g: Any, x: Any, form: Form) -> Any:
    """w and the gradients of a, b and c, in one custom call where systems are whole."""
    return on_devices(call_adjoint, split.adjoint, form, [*matrix[:3], g, x], matrix[3], 4)


def adjoint_long(matrix: Matrix, g: Any, x: Any, form: Form) -> Any:
    """The same for `numba_partition`."""
    return on_devices(call_adjoint_long, split.adjoint, form, [*matrix[:3], g, x], matrix[3], 4)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """Signs and logarithms of determinants, by a custom call of `numba_thomas`."""
    return slogdet_by(call_determinants, matrix, form)


def slogdet_scanned(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """The same by `lax.scan`."""
    return slogdet_by(determinants_scanned, matrix, form)


def slogdet_by(function: Callable[..., Any], matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """Signs and logarithms; the function finds those of whole matrices."""
    found = on_devices(function, split_determinants.slogdet, form, [*matrix[:3]], matrix[3], 2, False)
    sign, logarithm = (of_device(form.cut, 0, x) for x in found) if form.cut else found
    return sign, logarithm


def inverse_entries(matrix: Matrix, form: Form, compiled: bool) -> tuple[Any, Any, Any]:
    """The gradients of log |det A|, of the shape of the matrices.

    ``compiled``: those of whole matrices by a custom call of `numba_thomas`, else by the derivative of `lax.scan`.
    """
    function, parts = entries_compiled if compiled else entries_scanned, split_determinants.inverse_entries
    found: tuple[Any, Any, Any] = on_devices(function, parts, form, [*matrix[:3]], matrix[3], 3)
    return found


def determinants_scanned(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, Any]:
    return row_scan.slogdet((a, b, c, where), form)


def entries_scanned(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, Any, Any]:
    return row_scan.inverse_entries((a, b, c, where), form)


def entries_compiled(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, ...]:
    found, lossy = call_entries(form, a, b, c, where)

    def again() -> tuple[Any, ...]:
        these = jnp.expand_dims(lossy != 0, form.axis)
        better = row_scan.entries_with_exponents((a, b, c, where), form)
        return tuple(jnp.where(these, x, y) for x, y in zip(better, found, strict=True))

    return lax.cond(jnp.any(lossy != 0), again, lambda: tuple(found))


def on_devices(
    function: Callable[..., Any],
    parts: Callable[..., Any],
    form: Form,
    operands: list[Any],
    where: Any,
    results: int = 1,
    of_rows: bool = True,
    numbers: int = 0,
) -> Any:
    """``function(form, *operands)``, or ``parts(form, cut, *operands)`` where a device has some rows of systems."""
    if form.cut:
        given = operands if where is None else [*operands, where]
        return parts(split.whole_form(form), form.cut, *given)
    return shard_over_devices(function, form, operands, where, results, parts, of_rows, numbers)


def call_adjoint_long(form: Form, a: Any, b: Any, c: Any, g: Any, x: Any, where: Any = None) -> Any:
    w = call_long(form._replace(transpose=not form.transpose), a, b, c, g, where)
    below, above = (w, x) if form.transpose else (x, w)  # a[i] stands in row i, of the transpose in row i - 1
    entries = jnp.roll(below, 1, form.axis) * above, w * x, jnp.roll(below, -1, form.axis) * above
    row = lax.broadcasted_iota(jnp.int32, form.shape, form.axis)
    inside = row > 0, True, row < form.n - 1
    cut = (y if form.periodic else jnp.where(there, y, 0) for y, there in zip(entries, inside, strict=True))
    return w, *(-y for y in cut)
