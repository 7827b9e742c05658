"""`lax.linalg.tridiagonal_solve`: on CPU one LAPACK gtsv call per matrix, O(8n) flops, partial pivoting.

"auto" adds refinement while the componentwise residual is above 4 eps; a further solve is then a further call of gtsv.

On an NVIDIA GPU many systems with a right side each go to cuSPARSE's gtsv2StridedBatch, which does not pivot; with
several right sides each matrix is a call of gtsv2. So there it has no promise but pivoting=False, which is what a
program compiled for a GPU must ask for.

On a CPU jaxlib 0.10.2 can hang where two solves under "auto" may run at once and need many calls of gtsv: two loops of
XLA then wait for each other's threads. A gradient whose cotangent does not depend on the solution is that case;
pivoting=True has no loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.algorithms.row_scan import refine_with
from tridiag.errors import BackendError
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Form
from tridiag.xla.platforms import later


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    if matrix[3] is not None:
        d = jnp.where(matrix[3], d, 0)
    d = jnp.broadcast_to(d, form.shape)
    diagonals = [ops.stretch(band, form.n, form.axis) for band in bands(ops, matrix, form)]
    x = gtsv(diagonals, d, form)
    x = lax.platform_dependent(x, cpu=keep, default=spoil(form) if form.pivoting is False else refuse(form))
    if form.pivoting == "auto":
        size = sum(map(ops.size, diagonals))
        scale = 1 / jnp.where(size > 0, size, 1)
        scaled = [band * scale for band in diagonals]
        x = refine_with(lambda r: gtsv(scaled, r * scale, form), matrix, d, form, x, True)
    return (x if matrix[3] is None else jnp.where(matrix[3], x, 0)), None


def keep(x: Any) -> Any:
    return x


def spoil(form: Form) -> Callable[[Any], Any]:
    """A singular system is NaN throughout, of which cuSPARSE says nothing."""
    return lambda x: jnp.where(jnp.isfinite(x).all(form.axis, keepdims=True), x, jnp.nan)


def refuse(form: Form) -> Callable[[Any], Any]:
    """Nothing, unless it is compiled."""

    def refused(name: str, x: Any) -> Any:
        raise BackendError(
            f"{name} is compiled for another platform than the CPU, on which it cannot keep the promise "
            f"pivoting={form.pivoting!r}; ask for pivoting=False, or for backend='jax_scan'"
        )

    return lambda x: later(refused, (), "jax_lax", jax.make_jaxpr(keep, return_shape=True)(x))(x)


def gtsv(diagonals: list[Any], d: Any, form: Form) -> Any:
    """The call in its own layout: (matrices, n) and (matrices, n, right sides)."""
    rank = len(form.shape)
    batch = [k for k in range(rank) if k != form.axis]
    matrices = [k for k in batch if form.matrix_shape[k] != 1]
    sides = [k for k in batch if form.matrix_shape[k] == 1]
    order = [*matrices, form.axis, *sides]
    count, n = math.prod(form.shape[k] for k in matrices), form.n
    bands = [jnp.broadcast_to(v, form.matrix_shape).transpose(order).reshape(count, n) for v in diagonals]
    real_pairs = jnp.iscomplexobj(d) and not jnp.iscomplexobj(bands[1])
    right = d.transpose(order).reshape(count, n, math.prod(form.shape[k] for k in sides))
    if real_pairs:
        right = jnp.concatenate((right.real, right.imag), axis=2)
    x = lax.linalg.tridiagonal_solve(*bands, right) if n > 1 else right / bands[1][..., None]
    singular = (bands[1][..., None] == 0) & (n == 1)
    x = jnp.where(singular, jnp.nan, x)
    if real_pairs:
        real, imaginary = jnp.split(x, 2, axis=2)
        x = lax.complex(real, imaginary)
    inverse = sorted(range(rank), key=lambda k: order[k])
    return x.reshape([form.shape[k] for k in order]).transpose(inverse)
