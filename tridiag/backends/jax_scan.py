"""`lax.scan` over rows, O(8n) flops and n sequential steps: each row is read where it lies, pivoting is by selects.

Runs on every platform of JAX. The solution is stacked by the scan and moved to its axis once. Stability:
`tridiag.algorithms.elimination`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import (
    block_elimination,
    complex_sums,
    kalman_diffuse_scan,
    kalman_filter,
    kalman_loops,
    kalman_roots_scan,
    kalman_scan,
    logsumexp,
    recurrence,
)
from tridiag.algorithms import selective_scan as selective
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.algorithms.row_scan import Factors, factor, refine, solve_auto, substitute
from tridiag.algorithms.row_scan import slogdet as slogdet
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.covariances import tolerance
from tridiag.problems.forms import Blocks, Form, Recurrence
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.problems.state_space import FILTER, LIKELIHOOD, Model, StateSpace
from tridiag.xla.exponentials import Exponentials


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Factors | None = None) -> tuple[Any, Any]:
    if matrix[3] is not None:
        d = jnp.where(matrix[3], d, 0)
    if factors is None and form.pivoting == "auto" and not form.periodic:
        return solve_auto(matrix, d, form), None
    if form.periodic and form.transpose:
        factors = None  # a cyclic matrix is eliminated again for its transpose
    turned = factors is not None and form.transpose
    factors = factor(matrix, form) if factors is None else factors
    x = substitute(factors, matrix[3], d, form, turned)
    if form.pivoting is False:
        return x, None
    # True is refined too: XLA fuses multiply and add, and unrefined rounding can come out worse than LAPACK's
    certified = jnp.expand_dims(factors.certified, form.axis)
    return jnp.where(certified, x, refine(factors, matrix, d, form, x, turned)), None


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """Row by row; 2 flops a coefficient and value."""

    def step(before: Rows, i: Any) -> tuple[Rows, Any]:
        y = recurrence.step(ops, coefficients, x, before, form, i, bool(init))
        return (y, *before[:-1]), y

    steps = recurrence.row_of(form, jnp.arange(form.n, dtype=jnp.int32))
    y = lax.scan(step, recurrence.start(ops, coefficients, x, init, form), steps, reverse=form.backward)[1]
    return jnp.moveaxis(y, 0, form.axis)


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """Row by row, as `tridiag.algorithms.logsumexp`."""

    def step(state: logsumexp.State, i: Any) -> tuple[logsumexp.State, Any]:
        return logsumexp.row_step(ops, coefficients, x, state, form, i, bool(init))

    steps = recurrence.row_of(form, jnp.arange(form.n, dtype=jnp.int32))
    state, _ = vary_alike((logsumexp.start(ops, x, init, form), x))
    y = lax.scan(step, state, steps, reverse=form.backward)[1]
    return jnp.moveaxis(y, 0, form.axis)


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """Row by row; all exponentials of doubles before, which XLA would divide among threads anew in every step."""
    if jnp.iscomplexobj(x):
        return complex_sums.logcumsumexp(ops, linear_recurrence, x, form)
    if x.dtype != jnp.float64:
        return log_linear_recurrence(coefficients, x, init, form)
    rows = Exponentials(ops, x)
    state, x = vary_alike((logsumexp.start(ops, x, init, form), jnp.moveaxis(x, form.axis, 0)))
    mantissas = rows.exponential(x)[0]

    def step(state: logsumexp.State, i: Any) -> tuple[logsumexp.State, Any]:
        row = recurrence.row_of(form, i)
        m, term = (ops.broadcast(ops.row(part, row, 0), form.batch) for part in (mantissas, x))
        state = logsumexp.add(rows, state, m, rows.exponent(term), term)
        return state, logsumexp.result(rows, state, False)

    steps = recurrence.row_of(form, jnp.arange(form.n, dtype=jnp.int32))
    y = lax.scan(step, state, steps, reverse=form.backward)[1]
    return jnp.moveaxis(y, 0, form.axis)


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """Row by row, in chunks whose states a gradient computes again."""
    operands = vary_alike(operands)
    constant = Operands(
        *(None if x is None or x.shape[form.axis] != 1 else jnp.squeeze(x, form.axis) for x in operands)
    )
    moving = {
        name: jnp.moveaxis(x, form.axis, 0)
        for name, x in operands._asdict().items()
        if x is not None and x.shape[form.axis] != 1
    }
    before = jnp.zeros((*form.batch, form.states), operands.x.dtype) if constant.init is None else constant.init
    before, _ = vary_alike((jnp.broadcast_to(before, (*form.batch, form.states)), operands))
    order = jnp.arange(form.n, dtype=jnp.int32)
    rows = {**moving, "first": (order == (form.n - 1 if form.reverse else 0)) & (operands.init is None)}
    fixed = constant._replace(init=None)

    def step(before: Any, row: Any) -> tuple[Any, Any]:
        row = dict(row)
        first, here = row.pop("first"), fixed._replace(**row)
        here = here._replace(a=jnp.where(first, 0, here.a))  # so that no derivative reads it either
        coefficients, terms = selective.coefficients_and_terms(ops, here)
        h = jnp.broadcast_to(coefficients * before + terms, before.shape)
        return h, jnp.broadcast_to((here.C * h).sum(-1), form.batch)

    def chunk(before: Any, rows: Any) -> tuple[Any, Any]:
        return lax.scan(step, before, rows, reverse=form.reverse)

    y, last = in_chunks(jax.checkpoint(chunk), before, rows, form)
    return jnp.moveaxis(y, 0, form.axis), last


def in_chunks(chunk: Any, before: Any, rows: Any, form: SelectiveScan) -> tuple[Any, Any]:
    """All chunks, and what is left over as one more at the end."""
    length = form.chunk
    whole = form.n // length * length
    start, end = (form.n - whole, form.n) if form.reverse else (0, whole)
    cut = jax.tree.map(lambda x: x[start:end].reshape(-1, length, *x.shape[1:]), rows)
    last, y = lax.scan(chunk, before, cut, reverse=form.reverse)
    y = y.reshape(-1, *y.shape[2:])
    if whole < form.n:
        rest = slice(0, start) if form.reverse else slice(end, form.n)
        last, tail = chunk(last, jax.tree.map(lambda x: x[rest], rows))
        y = jnp.concatenate((tail, y) if form.reverse else (y, tail))
    return y, last


def solve_block(matrix: block_elimination.Matrix, d: Any, form: Blocks) -> Any:
    """Block row by block row, as `tridiag.algorithms.block_elimination`."""

    def down(carry: Any, i: Any) -> Any:
        carried, singular = carry
        carried, pivots, zero = block_elimination.eliminate(
            ops, carried, block_elimination.read(ops, matrix, d, form, i), form
        )
        return (carried, singular | zero), pivots

    def up(carry: Any, pivots: Any) -> Any:
        after, second = carry
        x = block_elimination.backward(ops, after, second, pivots, form)
        return (x, after), x

    carried = block_elimination.start(ops, matrix, d, form)
    start = carried, jnp.isnan(carried[..., 0, 0]) & False
    (_, singular), kept = lax.scan(down, start, jnp.arange(1, form.n + 1, dtype=jnp.int32))
    zero = jnp.zeros_like(carried[..., 2 * form.size :])
    x = lax.scan(up, (zero, zero), kept, reverse=True)[1]
    return block_elimination.without_singular(ops, jnp.moveaxis(x, 0, form.axis), singular)


@functools.partial(jax.jit, static_argnums=(0, 3))
def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """Step by step. Covariances that series share are computed once. Gradients: `tridiag.algorithms.kalman_scan`."""
    if form.diffuse:
        return kalman_diffuse_scan.from_diffuse(verb, y, model, form, kalman, poisoned)
    return by_what_is_missing(functools.partial(filtered, verb), y, model, form)


def by_what_is_missing(filtered: Callable[..., Any], y: Any, model: Model, form: StateSpace) -> Any:
    """``filtered(y, kept, model, form)``, arrays as in `kalman_filter`; ``kept``: None where none is missing."""
    y, model = kalman_diffuse_scan.with_all_steps(y, model, form)
    model, y = vary_alike(kalman_filter.front(ops, model, y))
    if not form.checked:
        model = poisoned(model, form)
    kept = ~jnp.isnan(y)

    def with_missing() -> Any:
        return filtered(y, kept, model, form)

    def with_all() -> Any:
        return filtered(y, None, model, form)

    if form.missing is None and form.cov_batch != form.batch:
        return lax.cond(kalman_scan.anywhere(~jnp.all(kept)), with_missing, with_all)
    return with_all() if form.missing is False else with_missing()


def filtered(verb: str, y: Any, kept: Any, model: Model, form: StateSpace) -> Any:
    """The results of a verb; ``kept``: what is not missing, None: all."""
    if verb == LIKELIHOOD:
        return kalman_scan.log_likelihood(form, y, model, kept)
    make = filtered_by if verb == FILTER else smoothed_by
    return kalman_scan.careful(functools.partial(make, form, y, model, kept))


def stacked(form: StateSpace, *states: Estimate) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    return tuple(kalman_filter.back(ops, x, form.batch) for state in states for x in state)


def filtered_by(form: StateSpace, y: Any, model: Model, kept: Any, covs: kalman_loops.Form) -> tuple[Any, Any]:
    """What a filter returns, and whether digits may be lost."""
    if covs is kalman_loops.Roots:
        *both, logarithm = kalman_roots_scan.filtered(form, y, model, kept)
        return (*stacked(form, *both), logarithm), False

    def keep(step: kalman_loops.Step) -> Any:
        return step.updated, step.predicted, kalman_loops.lost(ops, step.predicted.cov, step.updated.cov)

    logarithm, (*states, loss), doubtful = kalman_scan.run(form, y, model, kept, keep)
    return (*stacked(form, *states), logarithm), doubtful | jnp.any(loss > 0)


def smoothed_by(form: StateSpace, y: Any, model: Model, kept: Any, covs: kalman_loops.Form) -> tuple[Any, Any]:
    """What a smoother returns, and whether digits may be lost."""
    if covs is kalman_loops.Roots:
        found, logarithm = kalman_roots_scan.smoothed(form, y, model, kept)
        return (*stacked(form, found), logarithm), False

    logarithm, steps, doubtful = kalman_scan.run(form, y, model, kept, lambda step: step[:2])
    smoothed, lost = kalman_scan.smoothed(form, y, model, kept, steps, kalman_filter.blank(ops, form, y, kept))
    return (*stacked(form, smoothed), logarithm), doubtful | lost


def poisoned(model: Model, form: StateSpace) -> Model:
    """NaN in the models whose covariances are none."""
    invalid: Any = False
    for name in ("Q", "R", "P0"):
        x = getattr(model, name)
        x = x[None] if name == "P0" else x[: form.n - 1] if name == "Q" and len(x) == form.n else x
        apart, largest = jnp.abs(x - x.swapaxes(1, 2)), jnp.max(jnp.abs(x), (1, 2), keepdims=True, initial=0)
        uneven = jnp.any(apart > tolerance(x.dtype) * largest, (0, 1, 2))
        invalid = invalid | uneven | jnp.any(jnp.diagonal(x, axis1=1, axis2=2) < 0, (0, -1))
    return model._replace(P0=jnp.where(invalid, jnp.nan, model.P0))
