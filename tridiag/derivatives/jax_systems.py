"""The derivative rule for JAX: `lax.custom_linear_solve` around any backend, batched once by `custom_vmap`.

The tangent y of x solves A y = d' - A' x. That is linear in d', a', b' and c' together: one linear system,

    A y + A' x = d',   a' = a',   b' = b',   c' = c',

whose transpose is the whole rule at once, w = A^-T g and -w_i x_{i-1}, -w_i x_i, -w_i x_{i+1}. So a backend may compute
the four in one pass. `custom_linear_solve` by itself takes them apart, hence the `jax.custom_jvp` around it. All other
orders and modes JAX derives from the products with the matrix. A recurrence is such a system, y_t - a_t y_{t-1} = x_t,
and what comes before its first step is on the right side.

The backend gets the arrays as they are, and so the forward program is the backend alone; the products get the diagonals
with every missing coupling cut by a select: its gradient is exactly zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.algorithms import condition, perturbation
from tridiag.algorithms.matrix_rows import Matrix, bands, multiply
from tridiag.backends import BACKENDS, Backend
from tridiag.calls.plan import Call
from tridiag.calls.singular import raise_if_singular
from tridiag.calls.split import PARTS
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.derivatives.jax_trees import register
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import is_traced, left_to_compiler, vary_alike, whole_along
from tridiag.problems.forms import Form
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import Program, for_threads


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    if call.traced:
        return differentiable(call.matrix, call.d, factors, call.form, backend.name)
    x = compiled(call.matrix, call.d, factors, call.form._replace(overwrite_d=False), backend.name)
    if check and not is_traced(x):  # in a trace the result of arrays has no values either
        raise_if_singular(x, None, call.matrix, call.form)
    return x


def differentiable(matrix: Matrix, d: Any, factors: Any, form: Form, name: Name) -> Any:
    """x with its derivatives in a, b, c and d."""
    matrix, factors, d = vary_alike((matrix, fit(factors, form), jnp.broadcast_to(d, form.shape)))
    function = left_to_compiler(functools.partial(solution, form, name), (matrix, d))
    return function(matrix, factors, d)


compiled = Program(differentiable, (3, 4))


def fit(factors: Any, form: Form) -> Any:
    """Factors at the rank of this right side."""
    if factors is None:
        return None
    return factors.fitted(form)


def solve_perturbed(call: Call, backend: Backend, eps: float) -> Any:
    form = call.form._replace(overwrite_d=False)
    function = perturbed_solution if call.traced else compiled_perturbed
    return function(call.matrix, call.d, form, backend.name, eps)


def perturbed_solution(matrix: Matrix, d: Any, form: Form, name: Name, eps: float) -> Any:
    """x with its derivatives, where singular matrices are perturbed."""
    matrix, d = vary_alike((matrix, jnp.broadcast_to(d, form.shape)))
    function = left_to_compiler(lambda *arrays: perturbed(form, name, eps, *arrays)[0], (matrix, d))
    return function(matrix, d)


compiled_perturbed = Program(perturbed_solution, (2, 3, 4))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def perturbed(form: Form, name: Name, eps: float, matrix: Matrix, d: Any) -> tuple[Any, Any]:
    """x, and what is added to the diagonals: all systems are solved again while one asks for it."""
    right = perturbation.right_side(ops, d, matrix[3])

    def solve(shift: Any) -> tuple[Any, Any]:
        x = run("solve", form, name, perturbation.shifted(matrix, shift), None, d)
        return x, jnp.broadcast_to(perturbation.unsolved(ops, right, x, form), wanted)

    def search(shift: Any, x: Any, matrices: Any) -> Any:
        first = perturbation.first_shift(ops, matrix, form, eps)

        def again(state: Any) -> Any:
            k, shift, _, matrices = state
            shift = perturbation.grown(ops, shift, first, matrices)
            return k + 1, shift, *solve(shift)

        return lax.while_loop(going_on, again, (0, shift, x, matrices))[1:3]

    def going_on(state: Any) -> Any:
        k, *_, matrices = state
        return (k < perturbation.TRIES) & jnp.any(matrices > 0)

    wanted = tuple(1 if k == form.axis else n for k, n in enumerate(form.matrix_shape))
    nothing = jnp.zeros(wanted, matrix[1].real.dtype)
    x = run("solve", form, name, matrix, None, d)
    matrices = jnp.broadcast_to(perturbation.unsolved(ops, right, x, form), wanted)
    shift, x = lax.cond(jnp.any(matrices > 0), search, lambda *state: state[:2], nothing, x, matrices)
    return x, shift


@perturbed.defjvp
def perturbed_tangent(form: Form, name: Name, eps: float, primals: Any, tangents: Any) -> Any:
    """(A + delta I) y = d' - A' x; delta does not change."""
    (matrix, _), ((*changes, _), d_dot) = primals, tangents
    x, shift = perturbed(form, name, eps, *primals)
    right = d_dot - product((*changes, matrix[3]), x, form)
    y = inverse(form, name, perturbation.shifted(matrix, shift), None, right)
    return (x, shift), (y, jnp.zeros_like(shift))


def inverse(form: Form, name: Name, matrix: Matrix, factors: Any, d: Any) -> Any:
    """A^-1 d, which is 0 in rows that are taken out."""
    return lax.custom_linear_solve(
        lambda x: product(matrix, x, form),
        d,
        lambda _, r: run("solve", form, name, matrix, factors, r),
        lambda _, r: run("solve", transposed(form), name, matrix, factors, r),
    )


@functools.partial(jax.jit, static_argnums=2)
def product(matrix: Matrix, x: Any, form: Form) -> Any:
    """A x, which is 0 in rows that are taken out; linear in the diagonals too.

    Jitted, because JAX derives much from it and keeps what it derived.
    """
    if form.cut:
        from tridiag.xla import split

        y = split.product(form, *matrix[:3], x, matrix[3])
    else:
        y = multiply(ops, bands(ops, matrix, form), x, form)
    return y if matrix[3] is None else jnp.where(matrix[3], y, 0)


def transposed(form: Form) -> Form:
    return form._replace(transpose=not form.transpose, overwrite_d=False)


solution = jax.custom_jvp(inverse, nondiff_argnums=(0, 1))


@functools.partial(solution.defjvp, symbolic_zeros=True)
def tangent(form: Form, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    matrix, factors, d = primals
    (*changes, _), _, d_dot = tangents
    if any(isinstance(t, SymbolicZero) or (t.shape, t.dtype) != (d.shape, d.dtype) for t in changes):
        return tangent_apart(form, name, primals, tangents)
    x = solution(form, name, *primals)
    d_dot = jnp.zeros_like(d) if isinstance(d_dot, SymbolicZero) else d_dot
    return x, joint(form._replace(overwrite_d=False), name, matrix, factors, x, [d_dot, *changes])


def tangent_apart(form: Form, name: Name, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Where an entry is shared or does not change: as JAX derives it."""
    leaves, tree = jax.tree.flatten(primals)
    dots = jax.tree.leaves(tangents)
    live = [k for k, t in enumerate(dots) if not isinstance(t, SymbolicZero)]

    def function(*some: Any) -> Any:
        full = dict(enumerate(leaves)) | dict(zip(live, some, strict=True))
        return inverse(form, name, *jax.tree.unflatten(tree, full.values()))

    return jax.jvp(function, [leaves[k] for k in live], [dots[k] for k in live])


def joint(form: Form, name: Name, matrix: Matrix, factors: Any, x: Any, right: list[Any]) -> Any:
    """y of the one linear system, from d', a', b' and c'."""
    return Joint(
        product=lambda y: product(matrix, y, form),
        change=lambda changes: product((*changes, matrix[3]), x, form),
        solve=lambda r: run("solve", form, name, matrix, factors, r),
        adjoint=lambda g: run("adjoint", form, name, matrix, factors, g, x),
    ).tangent(right)


class Joint(NamedTuple):
    """The one linear system for the tangent and the changes of the entries, stacked: slices undo that at no cost."""

    product: Callable[[Any], Any]  # A y
    change: Callable[[Any], Any]  # A' x, from the changes of the entries
    solve: Callable[[Any], Any]  # A^-1 r
    adjoint: Callable[[Any], Any]  # w = A^-T g and the cotangents of the entries

    def tangent(self, right: list[Any]) -> Any:
        solution = lax.custom_linear_solve(self.system, stack(right), self.forward, self.backward)
        return unstack(solution)[0]

    def system(self, unknown: Any) -> Any:
        y, *changes = unstack(unknown)
        return stack([self.product(y) + self.change(changes), *changes])

    def forward(self, _: Any, right: Any) -> Any:
        r, *changes = unstack(right)
        return stack([self.solve(r - self.change(changes)), *changes])

    def backward(self, _: Any, right: Any) -> Any:
        g, *rest = unstack(right)
        w, *cotangents = self.adjoint(g)
        return stack([w, *(u + v for u, v in zip(rest, cotangents, strict=True))])


def stack(parts: list[Any]) -> Any:
    """As `jnp.stack`, whose result `vmap` would turn."""
    return lax.concatenate([lax.expand_dims(x, [0]) for x in parts], 0)


def unstack(x: Any) -> list[Any]:
    return [lax.index_in_dim(x, k, keepdims=False) for k in range(x.shape[0])]


def solve_once(form: Form, name: str, matrix: Matrix, factors: Any, d: Any) -> Any:
    if form.cut and name not in PARTS["solve"]:
        from tridiag.xla import split

        return split.gathered_from_devices(BACKENDS[name].module().solve, form, matrix, d)
    return BACKENDS[name].module().solve(matrix, d, form, None, factors)[0]


def adjoint(form: Form, name: str, matrix: Matrix, factors: Any, g: Any, x: Any) -> Any:
    """w = A^-T g and the cotangents of a, b and c, all of the shape of x."""
    if (function := joint_adjoint(name)) and form.matrix_shape == form.shape:
        from_factors = None if factors is None else getattr(BACKENDS[name].module(), "adjoint_from_factors", None)
        found = None if from_factors is None else from_factors(matrix, g, x, form, factors)
        return function(matrix, g, x, form) if found is None else found
    w = solve_once(transposed(form), name, matrix, factors, g)
    *entries, where = (v if v is None else jnp.broadcast_to(v, form.shape) for v in matrix)
    pull = jax.vjp(lambda *v: product((*v, where), x, form), *entries)[1]
    return w, *pull(-w)


def joint_adjoint(name: str) -> Any:
    """What a backend computes all of an adjoint by, if it has such a way."""
    module = BACKENDS[name].module()
    return getattr(module, "adjoint_of_jax_arrays", None) or getattr(module, "adjoint", None)


def factor_once(form: Form, name: str, matrix: Matrix, factors: None) -> Any:
    module = BACKENDS[name].module()
    if hasattr(module, "factor_of_jax_arrays"):
        return module.factor_of_jax_arrays(matrix, form)
    from tridiag.xla import split_factors

    return split_factors.of_whole(module.status_of_jax_arrays, matrix, form)


def factors_once(form: Form, name: str, matrix: Matrix, factors: None) -> Any:
    return BACKENDS[name].module().kept_factors(matrix, form)


VERBS: dict[str, Callable[..., Any]] = {
    "solve": solve_once,
    "adjoint": adjoint,
    "factor": factor_once,
    "factors": factors_once,
}


def run(verb: str, form: Form, name: Name, matrix: Matrix, factors: Any, *arrays: Any) -> Any:
    """A verb of the backend, without derivatives."""
    fixed = matrix, factors
    return running(verb, form, name, *map(jax.tree.structure, fixed))(*jax.tree.leaves(fixed), *arrays)


@for_threads
def running(verb: str, form: Form, name: Name, matrix_tree: Any, factors_tree: Any) -> Any:
    """The verb as a function of flat arrays; `vmap` adds a leading axis, of length 1 where an array is shared."""
    size, end = matrix_tree.num_leaves, matrix_tree.num_leaves + factors_tree.num_leaves

    def call(*leaves: Any) -> Any:
        matrix = jax.tree.unflatten(matrix_tree, leaves[:size])
        factors = jax.tree.unflatten(factors_tree, leaves[size:end])
        return on_platform(name, VERBS[verb], (form,), matrix, factors, *leaves[end:])

    def wider(length: int, is_batched: Any, *leaves: Any) -> Any:
        shared = not any(is_batched[:end])
        longer = form._replace(
            shape=(length, *form.shape),
            matrix_shape=(1 if shared else length, *form.matrix_shape),
            axis=form.axis + 1,
        )
        arrays = lifted(is_batched, leaves)
        parts = jax.tree.unflatten(factors_tree, range(size, end))
        for k in jax.tree.leaves(getattr(parts, "pivots", None)):  # stacked rows stay in front
            arrays[k] = jnp.moveaxis(arrays[k], 0, 1)
        return running(verb, longer, name, matrix_tree, factors_tree)(*arrays)

    return batched(call, wider)


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    """Factors and status; under "auto" and True the status comes with the elimination."""
    if call.traced:
        return make_factors(lax.stop_gradient(vary_alike(call.matrix)), call.form, backend.name)
    return compiled_factors(call.matrix, call.form, backend.name)


def status_alone(call: Call, name: str) -> Any:
    """The status in a program that may make no factors."""
    return run("factor", call.form, name, lax.stop_gradient(vary_alike(call.matrix)), None).status


def make_factors(matrix: Matrix, form: Form, name: str) -> tuple[Any, Any]:
    module = BACKENDS[name].module()
    if hasattr(module, "factor_of_jax_arrays") or hasattr(module, "status_of_jax_arrays"):
        keeping = getattr(module, "worth_keeping", None)
        verb = "factors" if keeping is not None and keeping(matrix, form) else "factor"
        function = left_to_compiler(lambda matrix: run(verb, form, name, matrix, None), matrix, form.axis)
        factors = function(matrix)
        return factors.kept, factors.status
    matrix = jax.tree.map(lambda x: whole_along(x, form.axis), matrix)
    factors = module.factor(matrix, form)
    if form.pivoting is False:
        return factors, module.factor(matrix, form._replace(pivoting=True)).status
    return factors, factors.status


compiled_factors = Program(make_factors, (1, 2))


def reciprocal_condition(call: Call, backend: Backend, status: Any) -> Any:
    function = condition_of if call.traced else compiled_condition
    return function(call.matrix, status, call.form, backend.name)


def condition_of(matrix: Matrix, status: Any, form: Form, name: Name) -> Any:
    function = functools.partial(condition_on_devices, form=form, name=name)
    return left_to_compiler(function, matrix, form.axis)(matrix, status)


def condition_on_devices(matrix: Matrix, status: Any, form: Form, name: Name) -> Any:
    matrix, status = vary_alike((matrix, status))
    matrix = condition.near_one(ops, matrix, form, lax.stop_gradient(matrix))
    constant = lax.stop_gradient(matrix)

    def solve(d: Any, transpose: bool) -> Any:
        return run("solve", form._replace(transpose=transpose), name, constant, None, d)

    def again(d: Any) -> Any:
        return differentiable(matrix, lax.stop_gradient(d), None, form, name)

    return condition.reciprocal(ops, solve, matrix, form, status, again)


compiled_condition = Program(condition_of, (2, 3))


register()
