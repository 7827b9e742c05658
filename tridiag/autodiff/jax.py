"""The derivative rule for JAX: `lax.custom_linear_solve` around any backend, batched once by `custom_vmap`.

The backend gets the diagonals as they are, and so the forward program is the backend alone; the product with the
matrix, from which JAX derives everything, gets them with every missing coupling cut by a select: its gradient is
exactly zero.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.backends import BACKENDS, Backend
from tridiag.factorization import Factorization
from tridiag.libraries.jax import Operations as ops
from tridiag.prepare import Call
from tridiag.rows import Matrix, bands, multiply
from tridiag.shapes import Form
from tridiag.singular import raise_if_singular


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    if call.traced:
        return differentiable(call.matrix, call.d, factors, call.form, backend.name)
    x = compiled(call.matrix, call.d, factors, call.form._replace(overwrite_d=False), backend.name)
    if check:
        raise_if_singular("jax", x, None, call.matrix, call.form)
    return x


def differentiable(matrix: Matrix, d: Any, factors: Any, form: Form, name: str) -> Any:
    """x with its derivatives in a, b, c and d."""
    diagonals = bands(ops, matrix, form)
    d = jnp.broadcast_to(d, form.shape)
    if matrix[3] is not None:
        d = jnp.where(matrix[3], d, 0)
    fixed = lax.stop_gradient((matrix, fit(factors, form)))

    def run(form: Form, r: Any) -> Any:
        return batched(form, name, *map(jax.tree.structure, fixed))(*jax.tree.leaves(fixed), r)

    return lax.custom_linear_solve(
        lambda x: multiply(ops, diagonals, x, form),
        d,
        lambda _, r: run(form, r),
        lambda _, r: run(form._replace(transpose=not form.transpose, overwrite_d=False), r),
    )


def fit(factors: Any, form: Form) -> Any:
    """Factors at the rank of this right side."""
    if factors is None:
        return None
    pivots = jax.tree.map(lambda x: x.reshape(x.shape[0], *form.matrix_batch), factors.pivots)
    rest = jax.tree.map(lambda x: x.reshape(form.matrix_batch), factors._replace(pivots=None))
    return rest._replace(pivots=pivots)


compiled = jax.jit(differentiable, static_argnums=(3, 4))


@functools.lru_cache(4096)
def batched(form: Form, name: str, matrix_tree: Any, factors_tree: Any) -> Any:
    """The backend as a function of flat arrays; `vmap` adds a leading axis, of length 1 where an array is shared."""
    size = matrix_tree.num_leaves

    def call(*leaves: Any) -> Any:
        matrix = jax.tree.unflatten(matrix_tree, leaves[:size])
        factors = jax.tree.unflatten(factors_tree, leaves[size:-1])
        return BACKENDS[name].module().solve(matrix, leaves[-1], form, None, factors)[0]

    function = jax.custom_batching.custom_vmap(call)

    @function.def_vmap
    def rule(length: int, is_batched: Any, *leaves: Any) -> Any:
        parts = jax.tree.unflatten(factors_tree, range(size, len(leaves) - 1))
        after_rows = set(jax.tree.leaves(parts.pivots)) if parts is not None else set()  # stacked rows stay in front
        leaves = tuple(
            lift(x, bool(b), k in after_rows) for k, (x, b) in enumerate(zip(leaves, is_batched, strict=True))
        )
        shared = not any(is_batched[:-1])
        wider = form._replace(
            shape=(length, *form.shape),
            matrix_shape=(1 if shared else length, *form.matrix_shape),
            axis=form.axis + 1,
        )
        return batched(wider, name, matrix_tree, factors_tree)(*leaves), True

    return function


def lift(x: Any, is_batched: bool, after_rows: bool) -> Any:
    """The new axis in front, or behind the axis of stacked rows."""
    if is_batched:
        return jnp.moveaxis(x, 0, 1) if after_rows else x
    return jnp.expand_dims(x, 1 if after_rows else 0)


def slogdet(call: Call, backend: Backend) -> Any:
    function = backend.module().slogdet
    return (
        function(call.matrix, call.form) if call.traced else jax.jit(function, static_argnums=1)(call.matrix, call.form)
    )


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    """Factors and status; under "auto" and True the status comes with the elimination."""
    fixed = lax.stop_gradient(call.matrix)
    function = make_factors if call.traced else jax.jit(make_factors, static_argnums=(1, 2))
    return function(fixed, call.form, backend.name)


def make_factors(matrix: Matrix, form: Form, name: str) -> tuple[Any, Any]:
    module = BACKENDS[name].module()
    factors = module.factor(matrix, form)
    if form.pivoting is False:
        return factors, module.factor(matrix, form._replace(pivoting=True)).status
    return factors, factors.status


def flatten(x: Factorization) -> Any:
    return (x._matrix, x._factors, x._status), (tuple(x._options.items()), x._name, x._kind)


def unflatten(static: Any, children: Any) -> Factorization:
    matrix, factors, status = children
    return Factorization(matrix, dict(static[0]), static[1], static[2], factors, status)


jax.tree_util.register_pytree_node(Factorization, flatten, unflatten)
