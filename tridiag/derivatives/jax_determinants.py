r"""The derivative rule of determinants for JAX, where rows may lie on several devices, or a kernel finds them.

.. math:: d \log \det A = \mathrm{tr}(A^{-1} dA)

is a sum over the entries of dA, each times one of A^-T, and devices find those of their rows. An elimination by
`lax.scan` JAX derives as it stands, where arrays cannot be on several devices; so it does all second derivatives, from
all rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.backends import BACKENDS, Backend
from tridiag.calls.plan import Call
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.libraries.jax import left_to_compiler, vary_alike
from tridiag.problems.forms import Form
from tridiag.xla import split, systems
from tridiag.xla.partitioning import may_be_sharded
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import Program, for_threads

SCANNED = "jax_scan"  # its determinants are made of operations that JAX derives
COMPILED = "numba_thomas"  # it has a kernel for their derivatives


def slogdet(call: Call, backend: Backend) -> Any:
    return (differentiable if call.traced else compiled)(call.matrix, call.form, backend.name)


def differentiable(matrix: Matrix, form: Form, name: Name) -> Any:
    """Signs and logarithms with their derivatives."""
    matrix = vary_alike(matrix)
    is_complex = jnp.iscomplexobj(matrix[1])  # the derivative that JAX has of signs is 0
    if name == SCANNED and not (is_complex or form.cut or may_be_sharded()):
        return BACKENDS[name].module().slogdet(matrix, form)
    return left_to_compiler(functools.partial(determinant, form, name), (matrix,), form.axis)(matrix)


compiled = Program(differentiable, (1, 2))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def determinant(form: Form, name: Name, matrix: Matrix) -> tuple[Any, Any]:
    return run("slogdet", form, name, matrix)


@functools.partial(determinant.defjvp, symbolic_zeros=True)
def tangent(form: Form, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (matrix,), ((*changes, _),) = primals, tangents
    sign, logarithm = determinant(form, name, matrix)
    terms = [
        jnp.sum(entry * change, form.axis)
        for entry, change in zip(inverse_entries(form, name, matrix), changes, strict=True)
        if not isinstance(change, SymbolicZero)
    ]
    change = sum(terms, jnp.zeros_like(sign))
    if form.cut:
        change = lax.psum(change, form.cut.names)
    turned = sign * lax.complex(jnp.zeros_like(logarithm), change.imag) if jnp.iscomplexobj(sign) else 0 * change
    return (sign, logarithm), (turned, change.real)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def inverse_entries(form: Form, name: Name, matrix: Matrix) -> tuple[Any, Any, Any]:
    """The gradients of log |det A| with respect to a, b and c, of the shape of the matrices."""
    return run("inverse_entries", form, name, matrix)


@inverse_entries.defjvp
def entries_tangent(form: Form, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    *diagonals, where = primals[0]
    return jax.jvp(lambda *v: from_all_rows(form, (*v, where)), tuple(diagonals), tangents[0][:3])


def from_all_rows(form: Form, matrix: Matrix) -> tuple[Any, Any, Any]:
    """The same as a function that JAX derives."""
    a, b, c, where = matrix
    if form.cut is None:
        return systems.entries_scanned(form, a, b, c, where)
    operands = (a, b, c) if where is None else (a, b, c, where)
    whole = split.whole_form(form)
    found: tuple[Any, Any, Any] = split.gathered(systems.entries_scanned, whole, form.cut, operands, where is not None)
    return found


def determinants_once(form: Form, name: str, matrix: Matrix) -> tuple[Any, Any]:
    """Matrices of which a device has some rows are scanned, whatever the backend."""
    if name == SCANNED or form.cut:
        return systems.slogdet_scanned(matrix, form)
    sign, logarithm = BACKENDS[name].module().slogdet(matrix, form)
    return sign, logarithm


def entries_once(form: Form, name: str, matrix: Matrix) -> tuple[Any, Any, Any]:
    return systems.inverse_entries(matrix, form, compiled=name == COMPILED and not form.periodic)


VERBS: dict[str, Callable[..., Any]] = {"slogdet": determinants_once, "inverse_entries": entries_once}


def run(verb: str, form: Form, name: Name, matrix: Matrix) -> Any:
    """A verb without derivatives."""
    return running(verb, form, name, jax.tree.structure(matrix))(*jax.tree.leaves(matrix))


@for_threads
def running(verb: str, form: Form, name: Name, tree: Any) -> Any:
    """The verb as a function of flat arrays; `vmap` adds a leading axis.

    Jitted: XLA gives a result of concrete arrays to all devices else.
    """

    def call(*leaves: Any) -> Any:
        return on_platform(name, VERBS[verb], (form,), jax.tree.unflatten(tree, leaves))

    def wider(length: int, is_batched: Any, *leaves: Any) -> Any:
        shape = (length, *form.shape)
        longer = form._replace(shape=shape, matrix_shape=shape, axis=form.axis + 1)
        return running(verb, longer, name, tree)(*lifted(is_batched, leaves))

    return jax.jit(batched(call, wider))
