"""The Thomas algorithm by `lax.fori_loop`, O(8n) flops, rows in place by dynamic slices; no pivoting.

Linear recurrences in the same way, 2 flops a coefficient and value.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import elimination as el
from tridiag.algorithms import recurrence
from tridiag.algorithms.matrix_rows import Matrix, read, read_right_side
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Form, Recurrence


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    axis, n, where = form.axis, form.n, matrix[3]
    write = functools.partial(write_row, axis)

    def keep(i: Any, x: Any, otherwise: Any) -> Any:
        return x if where is None else jnp.where(ops.row(where, i, axis), x, otherwise)

    def down(i: Any, carry: Any) -> Any:
        ratios, x, (p0, p1), r, singular = carry
        a, b, c, _ = read(ops, matrix, form, i)
        (p0, p1), pivot = el.eliminate(ops, (p0, p1), (a, b, c), False)
        r, _ = el.forward(ops, r, pivot, read_right_side(ops, where, d, form, i))
        p0, p1, r = keep(i, p0, 1), keep(i, p1, 0), keep(i, r, 0)
        return write(ratios, p1 / p0, i), write(x, r / p0, i), (p0, p1), r, singular | (p0 == 0)

    def up(k: Any, carry: Any) -> Any:
        x, after = carry
        i = n - 1 - k
        row = ops.row(x, i, axis) - ops.row(ratios, i, axis) * after
        row = keep(i, row, 0)
        return write(x, row, i), row

    one = jnp.ones_like(read(ops, matrix, form, 0)[1])
    zero = jnp.zeros_like(read_right_side(ops, where, d, form, 0))
    ratios, x = (jnp.zeros_like(v, shape=shape) for v, shape in ((one, form.matrix_shape), (zero, form.shape)))
    start = ratios, x, (one, jnp.zeros_like(one)), zero, one == 0
    ratios, x, _, _, singular = lax.fori_loop(0, n, down, start)
    x, _ = lax.fori_loop(0, n, up, (x, zero))
    return jnp.where(jnp.expand_dims(singular, axis), jnp.nan, x), None


def write_row(axis: int, x: Any, row: Any, i: Any) -> Any:
    return lax.dynamic_update_slice_in_dim(x, jnp.expand_dims(row, axis).astype(x.dtype), i, axis)


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    def step(i: Any, carry: Any) -> Any:
        y, before = carry
        row = recurrence.step(ops, coefficients, x, before, form, i, bool(init))
        return write_row(form.axis, y, row, recurrence.row_of(form, i)), (row, *before[:-1])

    start = recurrence.start(ops, coefficients, x, init, form)
    return lax.fori_loop(0, form.n, step, (jnp.zeros_like(start[0], shape=form.shape), start))[0]


matrix_recurrence = linear_recurrence  # the form tells what is a matrix
