"""The derivative rule of block tridiagonal systems for JAX."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import block_elimination as blocks
from tridiag.backends import BACKENDS, Backend
from tridiag.calls.plan import Call
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import left_to_compiler, vary_alike
from tridiag.problems.forms import Blocks
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import Program, for_threads


def solve_block(call: Call, backend: Backend) -> Any:
    function = differentiable_blocks if call.traced else compiled_blocks
    return function(call.form, backend.name, call.matrix, call.d)


def differentiable_blocks(form: Blocks, name: Name, matrix: blocks.Matrix, d: Any) -> Any:
    """x with its derivatives in A, B, C and d."""
    dtype = jnp.result_type(*matrix, d)
    matrix, d = vary_alike((matrix, jnp.broadcast_to(d, form.shape).astype(dtype)))
    columns = tuple(blocks[..., :1] for blocks in matrix)
    return left_to_compiler(functools.partial(block_inverse, form, name), (columns, d))(matrix, d)


compiled_blocks = Program(differentiable_blocks, (0, 1))


def block_inverse(form: Blocks, name: Name, matrix: blocks.Matrix, d: Any) -> Any:
    both = (
        lambda _, r, form=form: run_blocks(form, name)(*matrix, r)
        for form in (form, form._replace(transpose=not form.transpose))
    )
    return lax.custom_linear_solve(lambda x: block_product(matrix, x, form), d, *both)


@functools.partial(jax.jit, static_argnums=2)
def block_product(matrix: blocks.Matrix, x: Any, form: Blocks) -> Any:
    """Jitted as `product` is."""
    return blocks.multiply(ops, matrix, x, form)


def blocks_once(form: Blocks, name: str, matrix: blocks.Matrix, d: Any) -> Any:
    return BACKENDS[name].module().solve_block(matrix, d, form)


@for_threads
def run_blocks(form: Blocks, name: Name) -> Any:
    """The backend's solve, without derivatives; what `vmap` adds to right sides alone is right sides of a matrix."""

    def call(*arrays: Any) -> Any:
        *matrix, d = arrays
        return on_platform(name, blocks_once, (form,), tuple(matrix), d)

    def wider(length: int, is_batched: Any, *arrays: Any) -> Any:
        *batch, n, m, sides = form.shape
        if not any(is_batched[:3]):
            *matrix, d = arrays
            d = jnp.moveaxis(d, 0, -2)
            all_sides = form._replace(shape=(*batch, n, m, length * sides))
            found = run_blocks(all_sides, name)(*matrix, d.reshape(*d.shape[:-2], length * sides))
            return jnp.moveaxis(found.reshape(*batch, n, m, length, sides), -2, 0)
        return run_blocks(form._replace(shape=(length, *form.shape)), name)(*lifted(is_batched, arrays))

    return batched(call, wider)
