"""Run a prepared call in its library, and give the result the caller's dtype."""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

import numpy as np

from tridiag.algorithms import products
from tridiag.algorithms.matrix_rows import Matrix, bands, multiply
from tridiag.algorithms.perturbation import EPS
from tridiag.algorithms.recurrence import row_of
from tridiag.backends import BACKENDS, Backend
from tridiag.calls.plan import REAL_OF, Call, Plan
from tridiag.derivatives import runner_of
from tridiag.errors import SingularSystemError
from tridiag.libraries.arrays import connected_in, dtype_name
from tridiag.problems.forms import Form
from tridiag.selection.choose import choose, in_trace

Array = Any
EAGER = ("numpy", "torch")  # libraries whose arrays in host memory are solved at once


def solve(call: Call, backend: Backend, check: bool, out: Any = None, factors: Any = None) -> Array:
    """Run a prepared solve in its library, and give the result the caller's dtype."""
    with call.place():
        if call.plan.empty:
            return restore(call, empty(call), out)
        try:
            x = runner_of(call.plan.library).solve(call, backend, check, out, factors)
        except SingularSystemError as error:
            error.x = restore(call, error.x, out)
            raise
        return restore(call, x, out)


def solve_perturbed(call: Call, out: Any = None) -> Array:
    """The same, where singular matrices are perturbed and none is left."""
    with call.place():
        if call.plan.empty:
            return restore(call, empty(call), out)
        x = runner_of(call.plan.library).solve_perturbed(call, call.plan.backend, EPS[call.result_dtype])
        return restore(call, x, out)


def quicker_anew(plan: Plan, name: str, saved: bool = True) -> Backend | None:
    """What solves systems of arrays in host memory in less time than a backend of that name does with its factors.

    Where every matrix has one right side, factors save little but for few of them, and nothing unless they are
    ``saved``; few right sides from factors may leave threads idle. Some other backends have more lanes for long
    systems.
    """
    if plan.library not in EAGER or plan.problem.device != "cpu" or plan.traced or plan.empty:
        return None
    saves = saves_elimination(plan, name)
    several = plan.form.shape != plan.form.matrix_shape or asked("few_matrices", plan, name)
    if saved and saves and several and not asked("too_few_for_factors", plan, name):
        return None
    found = choose(plan.problem._replace(verb="solve"), "auto").backend
    return found if hasattr(found.module(), "bound_solve") and (found.name != name or not saves) else None


def asked(question: str, plan: Plan, name: str) -> bool:
    """What a function of a backend tells of the right sides of a plan; False where it has none of that name."""
    function = getattr(BACKENDS[name].module(), question, None)
    return function is not None and function(plan.form, np.dtype(plan.problem.dtype))


def are_saved(factors: Any) -> bool:
    """Whether factors hold most of the matrices eliminated, so that right sides need no elimination."""
    return getattr(factors, "saved", True)


def saves_elimination(plan: Plan, name: str) -> bool:
    """Whether a backend of that name has factors of such matrices, from which these right sides take less time."""
    saves = getattr(BACKENDS[name].module(), "saves_elimination", None)
    return saves is None or saves(plan.form)


def factors_later(plan: Plan, name: str) -> Backend | None:
    """What tells the zero pivots of matrices whose factors a solve with one right side each has no use for."""
    found = quicker_anew(plan, name)
    return found if found and hasattr(found.module(), "find_zero_pivots") else None


def quicker_alike(plan: Plan, name: str) -> Backend | None:
    """What solves systems of JAX arrays in less time than a backend of that name, and keeps the same of matrices."""
    if plan.library != "jax" or plan.empty:
        return None
    found = choose(plan.problem._replace(verb="solve"), "auto").backend
    both = BACKENDS[name], found
    alike = found.name != name and all(hasattr(each.module(), "factor_of_jax_arrays") for each in both)
    return found if alike else None


def factor(call: Call, backend: Backend, free: bool) -> tuple[Any, Array]:
    """The factors of a prepared call, or None where they are for those to make who want them, and the status.

    ``free``: whether the backend was not named.
    """
    if free and (other := factors_later(call.plan, backend.name)):
        return None, other.module().find_zero_pivots(call.matrix, call.form)
    quicker = quicker_alike(call.plan, backend.name) if free else None
    return runner_of(call.library).factor(call, quicker or backend)


def restore(call: Call, x: Array, out: Any) -> Array:
    """The solution in the caller's dtype, and in ``out`` where there is one."""
    if out is not None and x is not out:
        with np.errstate(over="ignore", under="ignore"):  # of half precision: no kernel warns either
            out[...] = x
        return out
    return call.module().cast(x, call.result_dtype) if call.plan.casts else x


def matrix_dtype(call: Call) -> str:
    """The dtype in which the matrix of a call is solved."""
    return dtype_name(call.matrix[1].dtype)


def empty(call: Call) -> Array:
    """The solution of no systems, or of systems without rows."""
    operations = call.module().Operations
    d = call.module().cast(call.d, call.result_dtype)
    return connected(call, operations.broadcast(d, call.form.shape))


def connected(call: Call, y: Array) -> Array:
    """`connected_in` all arguments of a call."""
    return connected_in(call.library, y, (*call.matrix, call.d, *call.init))


def product(call: Call, out: Any = None) -> Array:
    """Run a prepared matmul, to ``out`` if that is given."""
    with call.place(), np.errstate(all="ignore"):
        return restore(call, empty(call) if call.plan.empty else multiplied(call), out)


def multiplied(call: Call) -> Array:
    """The product of matrices that have rows."""
    mask, x = call.matrix[3], call.d
    if call.library == "torch":
        call.module().check_memory((*call.matrix, x))
    compiled = products_of(call)
    if compiled and (y := compiled.product(call.matrix, x, call.form)) is not None:
        return call.module().cast(y, call.result_dtype)
    if call.library == "numpy" and mask is None:
        a, b, c, _ = call.matrix
        return call.module().cast(products.multiply(a, b, c, x, call.form), call.result_dtype)
    function = functools.partial(product_of_rows, call.module().Operations, call.form)
    if call.library == "jax":
        function = call.module().left_to_compiler(function, (call.matrix, x))
    return call.module().cast(function(call.matrix, x), call.result_dtype)


def product_of_rows(ops: Any, form: Form, matrix: Matrix, x: Array) -> Array:
    """The product of matrices some of whose rows may be taken out."""
    mask, x = matrix[3], ops.broadcast(x, form.shape)
    if mask is not None:
        x = ops.where(mask, x, ops.zero(x))
    y = multiply(ops, bands(ops, matrix, form), x, form)
    return y if mask is None else ops.where(mask, y, ops.zero(y))


def product_by_kernel(call: Call) -> bool:
    """Whether compiled loops multiply the matrices of a prepared matmul."""
    compiled = None if call.plan.empty else products_of(call)
    return compiled is not None and bool(compiled.has_product(call.matrix, call.d, call.form))


def products_of(call: Call) -> ModuleType | None:
    """What multiplies the arrays of a call in compiled loops: those of NumPy, and plain tensors without gradients."""
    if call.library == "torch" and call.plan.readable:
        from tridiag.calls.fast_path.tensors import are_plain

        return compiled_products() if are_plain([x for x in (*call.matrix, call.d) if x is not None]) else None
    return compiled_products() if call.library == "numpy" else None


def compiled_products() -> ModuleType | None:
    """What multiplies NumPy arrays in compiled loops, if it runs here."""
    backend = BACKENDS["numba_thomas"]
    return None if backend.unusable() else backend.module()


def determinants(call: Call) -> tuple[Array, Array]:
    """Run a prepared slogdet."""
    with call.place():
        if call.plan.empty:  # no matrices, or matrices without rows
            ops, batch, like = call.module().Operations, call.form.matrix_batch, call.matrix[1]
            sign, logarithm = (connected(call, x) for x in (ops.full(batch, 1, like), ops.full(batch, 0, like).real))
        else:
            sign, logarithm = runner_of(call.library).slogdet(call, call.plan.backend)
        cast = call.module().cast
        return cast(sign, call.result_dtype), cast(logarithm, REAL_OF.get(call.result_dtype, call.result_dtype))


def reciprocal_condition(call: Call, status: Array) -> Array:
    """The reciprocal condition numbers of the matrices of a prepared factor, from solves by the best promise."""
    cast, real = call.module().cast, REAL_OF.get(call.result_dtype, call.result_dtype)
    form = call.form._replace(pivoting="auto", shape=call.form.matrix_shape)
    problem = call.problem._replace(verb="solve", pivoting="auto")
    with call.place():
        if call.plan.empty:
            ones = call.module().Operations.full(form.matrix_batch, 1, call.matrix[1]).real
            return cast(connected(call, ones), real)
        backend = in_trace(problem, "auto", call.module().platforms()) if call.traced else choose(problem).backend
        call = call._replace(plan=call.plan._replace(form=form))
        return cast(runner_of(call.library).reciprocal_condition(call, backend, status), real)


def blocks_solved(call: Call) -> Array:
    """Run a prepared solve_block."""
    with call.place():
        return blocks_solved_there(call)


def blocks_solved_there(call: Call) -> Array:
    """The same on the device of the arrays."""
    ops, (shape, shared), order = call.module().Operations, call.plan.sides, call.plan.sides.order
    if call.plan.empty:
        return connected(call, ops.broadcast(call.module().cast(call.d, call.result_dtype), shape))
    lengths = [full if k in shared else own for k, (own, full) in enumerate(zip(call.d.shape, shape, strict=True))]
    right = ops.transpose(ops.broadcast(call.d, tuple(lengths)), order)
    right = ops.reshape(right, (*right.shape[: len(shape) - len(shared)], call.form.sides))
    x = runner_of(call.library).solve_block(call._replace(d=right), call.plan.backend)
    x = ops.reshape(x, tuple(shape[k] for k in order))
    return restore(call, ops.transpose(x, call.plan.sides.inverse), None)


def recurrence(verb: str, call: Call, out: Any = None) -> Array:
    """Run a prepared recurrence in its library, and give the result the caller's dtype."""
    with call.place():
        if call.plan.empty:
            return restore(call, empty(call), out)
        return restore(call, runner_of(call.plan.library).recurrence(verb, call, call.plan.backend, out), out)


def last(verb: str, call: Call, y: Array, given: dict[str, Any]) -> Any:
    """What ``return_final`` returns: a tuple where the coefficients are one."""
    with call.place():
        values = final(call, y, -math.inf if verb == "log_linear_recurrence" else 0.0)
    return values if isinstance(given.get("a"), tuple) else values[0]


def final(call: Call, y: Array, nothing: float = 0.0) -> tuple[Array, ...]:
    """The last values of a recurrence, the latest first; those before its first step where it has fewer steps.

    ``nothing``: what is there without init.
    """
    ops, cast, form = call.module().Operations, call.module().cast, call.form
    before = [ops.broadcast(ops.row(value, 0, form.axis), form.batch) for value in call.init]
    if not before:
        row = cast(call.d, call.result_dtype)
        before = [ops.full(form.batch, nothing, row)] * len(call.matrix)
    last = [end(call, y, k) for k in range(min(form.steps, len(call.matrix)))]
    values = [*last, *(cast(value, call.result_dtype) for value in before)][: len(call.matrix)]
    if call.plan.empty:
        values = [connected(call, value) for value in values]
    return tuple(ops.copy(value) for value in values)


def end(call: Call, y: Array, k: int) -> Array:
    """The value of a recurrence k steps before the last."""
    form = call.form
    if form.cut:
        from tridiag.xla import split_recurrences

        return split_recurrences.end(form, y, k)
    row = call.module().row if call.library == "jax" else call.module().Operations.row
    return row(y, row_of(form, form.n - 1 - k), form.axis)
