"""Parallel cyclic reduction: ceil(log2 n) steps over whole arrays, O(12 n log n) flops, no pivoting.

At stride s every row i eliminates rows i - s and i + s, and then couples to i - 2s and i + 2s (Hockney and Jesshope,
1981). Stable for diagonally dominant matrices.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Form


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    where = matrix[3]
    a, b, c = (ops.stretch(v, form.n, form.axis) for v in bands(ops, matrix, form))
    d = jnp.broadcast_to(d, form.shape)
    if where is not None:
        d = jnp.where(where, d, 0)
    s = 1
    while s < form.n:
        below, above = -a / move(b, s, form.axis, 1), -c / move(b, -s, form.axis, 1)
        d = d + below * move(d, s, form.axis, 0) + above * move(d, -s, form.axis, 0)
        b = b + below * move(c, s, form.axis, 0) + above * move(a, -s, form.axis, 0)
        a, c = below * move(a, s, form.axis, 0), above * move(c, -s, form.axis, 0)
        s *= 2
    x = d / b
    if where is not None:
        x = jnp.where(where, x, 0)
    broken = jnp.any(b == 0, axis=form.axis, keepdims=True)
    return jnp.where(broken, jnp.nan, x), None


def move(x: Any, by: int, axis: int, fill: int) -> Any:
    """x[i - by] at i, and ``fill`` outside."""
    padding = [(0, 0, 0)] * x.ndim
    padding[axis] = (by, -by, 0)
    return lax.pad(x, jnp.asarray(fill, x.dtype), padding)
