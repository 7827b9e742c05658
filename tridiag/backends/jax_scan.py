"""`lax.scan` over rows, O(8n) flops and n sequential steps: each row is read where it lies, pivoting is by selects.

Runs on every platform of JAX. The solution is stacked by the scan and moved to its axis once. Stability:
`tridiag.algorithms.elimination`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import block_elimination, kalman_filter, kalman_scan, logsumexp, recurrence
from tridiag.algorithms import elimination as el
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.matrix_rows import Matrix, bands, read, read_right_side, residual
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Blocks, Form, Recurrence
from tridiag.problems.state_space import Model, StateSpace, tolerance
from tridiag.xla.exponentials import Exponentials


class Factors(NamedTuple):
    """Eliminated rows, stacked along a new first axis; a pytree."""

    pivots: Any
    last: Any
    corner: Any
    certified: jax.Array
    status: jax.Array


def eliminate(matrix: Matrix, form: Form, pivoting: Any) -> Factors:
    """As `tridiag.algorithms.row_loop.eliminate`."""
    if form.periodic:
        return eliminate_cyclic(matrix, form)
    eps, tiny = ops.limits(matrix[1])
    one = jnp.ones_like(read(ops, matrix, form, 0)[1])
    zeros = jnp.zeros_like(one, jnp.int32)

    def step(carry: Any, i: Any) -> Any:
        (p0, p1), certified, status = carry
        a, b, c, keep = read(ops, matrix, form, i)
        (p0, p1), pivot = el.eliminate(ops, (p0, p1), (a, b, c), pivoting)
        if keep is not None:
            p0, p1 = jnp.where(keep, p0, 1), jnp.where(keep, p1, 0)
        certified = certified & el.certify(ops, pivot, (a, b), p0, eps, tiny)
        status = jnp.where((status == 0) & (pivot.q0 == 0) & (i > 0), i, status)
        return ((p0, p1), certified, status), pivot

    start = (one, jnp.zeros_like(one)), zeros == 0, zeros
    ((p0, _), certified, status), pivots = lax.scan(step, start, jnp.arange(form.n, dtype=jnp.int32))
    status = jnp.where((status == 0) & (p0 == 0), form.n, status)
    return Factors(pivots, p0, None, certified, status)


def eliminate_cyclic(matrix: Matrix, form: Form) -> Factors:
    """As `tridiag.algorithms.row_loop.eliminate_cyclic`."""
    n = form.n
    (a0, b0, c0, _), (a1, b1, c1, _) = read(ops, matrix, form, 0), read(ops, matrix, form, 1)
    zero, status = jnp.zeros_like(b0), jnp.zeros_like(b0, jnp.int32)

    def step(carry: Any, i: Any) -> Any:
        rows, status = carry
        a, b, c, _ = read(ops, matrix, form, i)
        rows, pivot = el.cyclic_eliminate(ops, rows, (a, b, c, zero, zero))
        status = jnp.where((status == 0) & (pivot.row[0] == 0), i, status)
        return (rows, status), pivot

    start = ((c0, zero, zero, a0, b0), (b1, c1, zero, zero, a1)), status
    (rows, status), pivots = lax.scan(step, start, jnp.arange(2, n, dtype=jnp.int32))
    corner = el.corner_eliminate(ops, el.cyclic_corner(rows))
    for row, pivot in ((n, corner.q0), (1, corner.rest)):
        status = jnp.where((status == 0) & (pivot == 0), row, status)
    return Factors(pivots, None, corner, status < 0, status)


def substitute(factors: Factors, where: Any, d: Any, form: Form, turned: bool = False) -> Any:
    """As `tridiag.algorithms.row_loop.solve_factored`: NaN in the systems that met a zero pivot."""
    if form.periodic:
        x = substitute_cyclic(factors, d, form)
    else:
        x = (substitute_transposed if turned else substitute_open)(factors, where, d, form)
    x = jnp.moveaxis(x, 0, form.axis)
    if where is not None:
        x = jnp.where(where, x, 0)
    return jnp.where(jnp.expand_dims(factors.status != 0, form.axis), jnp.nan, x)


def keep_row(where: Any, form: Form, i: Any, x: Any) -> Any:
    return x if where is None else jnp.where(ops.row(where, i, form.axis), x, 0)


def substitute_open(factors: Factors, where: Any, d: Any, form: Form) -> Any:
    rows = jnp.arange(form.n, dtype=jnp.int32)

    def down(carried: Any, row: Any) -> Any:
        i, pivot = row
        carried, q = el.forward(ops, carried, pivot, read_right_side(ops, where, d, form, i))
        return keep_row(where, form, i, carried), q

    def up(carry: Any, row: Any) -> Any:
        i, pivot, q = row
        x1, x2 = keep_row(where, form, i, carry[0]), carry[1]
        return (el.backward(ops, x1, x2, pivot, q), x1), x1

    zero = jnp.zeros_like(read_right_side(ops, where, d, form, 0))
    carried, kept = lax.scan(down, zero, (rows, factors.pivots))
    start = carried / factors.last, jnp.zeros_like(carried)
    return lax.scan(up, start, (rows, factors.pivots, kept), reverse=True)[1]


def substitute_transposed(factors: Factors, where: Any, d: Any, form: Form) -> Any:
    """As `tridiag.algorithms.row_loop.substitute_transposed`."""
    rows = jnp.arange(form.n, dtype=jnp.int32)
    diagonal = jnp.concatenate((factors.pivots.q0[1:], factors.last[None]))
    zero, none = jnp.zeros_like(read_right_side(ops, where, d, form, 0)), jnp.zeros_like(factors.last)
    filled = factors.pivots.q2 is not None

    def down(carry: Any, row: Any) -> Any:
        i, q0, pivot = row
        z1, z2, q2 = carry
        # pivot is row i - 1 of U; its first, the row of x[-1], couples nothing
        z = el.forward_transposed(
            ops, z1, z2, jnp.where(i > 0, pivot.q1, 0), q2, q0, read_right_side(ops, where, d, form, i)
        )
        z = keep_row(where, form, i, z)
        return (z, z1, jnp.where(i > 0, pivot.q2, 0) if filled else none), z

    def up(carried: Any, row: Any) -> Any:
        i, pivot, z = row
        carried, x = el.backward_transposed(ops, carried, pivot, z)
        return keep_row(where, form, i, carried), x

    (last, _, _), kept = lax.scan(down, (zero, zero, none), (rows, diagonal, factors.pivots))
    shifted = jax.tree.map(lambda v: v[1:], factors.pivots)
    first, x = lax.scan(up, last, (rows[:-1], shifted, kept[:-1]), reverse=True)
    return jnp.concatenate((first[None], x))


def substitute_cyclic(factors: Factors, d: Any, form: Form) -> Any:
    rows = jnp.arange(2, form.n, dtype=jnp.int32)

    def down(carried: Any, row: Any) -> Any:
        i, pivot = row
        return el.cyclic_forward(ops, carried, pivot, ops.broadcast(ops.row(d, i, form.axis), form.batch))

    def up(carry: Any, row: Any) -> Any:
        pivot, q = row
        x1, x2 = carry
        x = el.cyclic_backward(ops, x1, x2, ends, pivot, q)
        return (x, x1), x

    start = tuple(ops.broadcast(ops.row(d, i, form.axis), form.batch) for i in (0, 1))
    carried, kept = lax.scan(down, start, (rows, factors.pivots))
    ends = el.solve_corner(ops, factors.corner, carried)
    inner = lax.scan(up, ends, (factors.pivots, kept), reverse=True)[1]
    return jnp.concatenate((ends[1][None], inner, ends[0][None]))


def factor(matrix: Matrix, form: Form) -> Factors:
    """As `tridiag.algorithms.row_loop.factor`; the second elimination is behind a `lax.cond`."""
    if form.periodic or form.pivoting is True:
        factors = eliminate(matrix, form, True)
        return factors._replace(certified=factors.status < 0)
    plain = eliminate(matrix, form, False)
    if form.pivoting is False:
        return plain
    swapped = jnp.zeros_like(plain.pivots.q1, bool)
    padded = plain._replace(pivots=plain.pivots._replace(swap=swapped, q2=jnp.zeros_like(plain.pivots.q1)))

    def again(plain: Factors) -> Factors:
        return eliminate(matrix, form, ~plain.certified)._replace(certified=plain.certified)

    return lax.cond(jnp.all(plain.certified), lambda plain: plain, again, padded)


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


def solve_auto(matrix: Matrix, d: Any, form: Form) -> Any:
    """Plain elimination, and only where a certificate is missing the rest."""
    plain = eliminate(matrix, form, False)
    x = substitute(plain, matrix[3], d, form)

    def harder(x: Any) -> Any:
        factors = eliminate(matrix, form, True)
        z = refine(factors, matrix, d, form, substitute(factors, matrix[3], d, form))
        return jnp.where(jnp.expand_dims(plain.certified, form.axis), x, z)

    return lax.cond(jnp.all(plain.certified), lambda x: x, harder, x)


def refine(factors: Factors, matrix: Matrix, d: Any, form: Form, x: Any, turned: bool = False) -> Any:
    """As `tridiag.algorithms.row_loop.refine`."""
    return refine_with(lambda r: substitute(factors, matrix[3], r, form, turned), matrix, d, form, x)


def refine_with(solve_again: Any, matrix: Matrix, d: Any, form: Form, x: Any, anew: bool = False) -> Any:
    """x improved while its componentwise residual exceeds REFINE_ABOVE eps; each system keeps its best iterate."""
    diagonals = bands(ops, matrix, form)

    def step(carry: Any) -> Any:
        count, x, r, best, least, unfit = carry
        x = el.correct(ops, x, solve_again(r), count + 1)
        r, error = residual(ops, diagonals, x, d, form, count + 1)
        better = unfit & (error < least)
        best, least = jnp.where(jnp.expand_dims(better, form.axis), x, best), jnp.where(better, error, least)
        return count + 1, x, r, best, least, unfit & el.unfit(ops, least, count + 1)

    def unfinished(carry: Any) -> Any:
        return (carry[0] < el.REFINE_STEPS) & jnp.any(carry[5])

    r, error = residual(ops, diagonals, x, d, form)
    start = (-1, jnp.zeros_like(x), d) if anew else (0, x, r)
    return lax.while_loop(unfinished, step, (*start, x, error, el.unfit(ops, error, 0)))[3]


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


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """From the pivots of elimination with exchanges; differentiable as it stands."""
    factors = eliminate(matrix, form, True)
    pivots = factors.pivots
    if form.periodic:
        values = jnp.concatenate((pivots.row[0], factors.corner.q0[None], factors.corner.rest[None]))
        swaps = [*pivots.swaps, factors.corner.swap[None]]
    else:
        values, swaps = jnp.concatenate((pivots.q0[1:], factors.last[None])), [pivots.swap]
    odd = sum(jnp.sum(s, axis=0) for s in swaps) + ((form.n - 1) if form.periodic else 0)
    sign = jnp.prod(jnp.sign(values), axis=0) * jnp.where(odd % 2 == 1, -1, 1).astype(values.dtype)
    singular = factors.status != 0  # after a zero pivot the rest is NaN
    logarithm = jnp.sum(jnp.log(jnp.abs(values)), axis=0)
    return jnp.where(singular, 0, sign), jnp.where(singular, -jnp.inf, logarithm)


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
    return by_what_is_missing(functools.partial(filtered, verb), y, model, form)


def by_what_is_missing(filtered: Callable[..., Any], y: Any, model: Model, form: StateSpace) -> Any:
    """``filtered(y, kept, model, form)``, arrays as in `kalman_filter`; ``kept``: None where none is missing."""
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
    if verb == "kalman.log_likelihood":
        return kalman_scan.log_likelihood(form, y, model, kept)
    make = filtered_by if verb == "kalman.filter" else smoothed_by
    return kalman_scan.careful(functools.partial(make, form, y, model, kept))


def stacked(form: StateSpace, *states: Estimate) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    return tuple(kalman_filter.back(ops, x, form.batch) for state in states for x in state)


def filtered_by(form: StateSpace, y: Any, model: Model, kept: Any, covs: kalman_filter.Form) -> tuple[Any, Any]:
    """What a filter returns, and whether digits may be lost."""

    def keep(step: kalman_filter.Step) -> Any:
        updated, predicted = (kalman_scan.whole(covs, state) for state in (step.updated, step.predicted))
        return updated, predicted, kalman_filter.lost(ops, predicted.cov, updated.cov)

    logarithm, (*states, loss), doubtful = kalman_scan.run(form, y, model, kept, keep, covs)
    return (*stacked(form, *states), logarithm), doubtful | jnp.any(loss > 0)


def smoothed_by(form: StateSpace, y: Any, model: Model, kept: Any, covs: kalman_filter.Form) -> tuple[Any, Any]:
    """What a smoother returns, and whether digits may be lost."""
    logarithm, steps, doubtful = kalman_scan.run(form, y, model, kept, lambda step: step[:2], covs)
    if covs is kalman_filter.Roots:
        return (*stacked(form, by_roots(form, model, *steps)), logarithm), False

    def up(ahead: Any, row: Any) -> Any:
        t, (predicted, updated) = row
        smoothed, ahead = kalman_filter.backward(ops, model, y, kept, t, (predicted, updated), ahead)
        return ahead, (smoothed, kalman_filter.lost(ops, predicted.cov, updated.cov, smoothed.cov))

    start, _ = vary_alike((kalman_filter.blank(ops, form, y, kept), y))
    _, (smoothed, loss) = lax.scan(up, start, (jnp.arange(form.n, dtype=jnp.int32), steps), reverse=True)
    return (*stacked(form, smoothed), logarithm), doubtful | jnp.any(loss > 0)


def by_roots(form: StateSpace, model: Model, predicted: Estimate, updated: Estimate) -> Estimate:
    """The smoothed states of all steps, of square roots."""
    last = jax.tree.map(lambda x: x[-1], updated)
    whole = functools.partial(kalman_scan.whole, kalman_filter.Roots)
    if form.n == 1:
        return jax.tree.map(lambda x: x[None], whole(last))

    def up(behind: Estimate, row: Any) -> Any:
        t, ahead, state = row
        found = kalman_filter.smooth(ops, ops.row(model.F, t, 0), ops.row(model.Q, t, 0), state, ahead, behind)
        return found, whole(found)

    steps = jnp.arange(form.n - 1, dtype=jnp.int32)
    before = jax.tree.map(lambda x: x[:-1], updated)
    _, found = lax.scan(up, last, (steps, predicted.mean[1:], before), reverse=True)
    return jax.tree.map(lambda x, z: jnp.concatenate((x, z[None])), found, whole(last))


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
