"""Elimination and substitution by `lax.scan` over rows, as `tridiag.algorithms.row_loop`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import elimination as el
from tridiag.algorithms.inverse_entries import kept, with_exponents
from tridiag.algorithms.matrix_rows import Matrix, bands, read, read_right_side, residual
from tridiag.algorithms.row_loop import whole_bands
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Form

Array = Any


class Factors(NamedTuple):
    """Eliminated rows, stacked along a new first axis; a pytree."""

    pivots: Any
    last: Any
    corner: Any
    certified: jax.Array
    status: jax.Array

    def fitted(self, form: Form) -> Factors:
        """At the rank of right sides."""
        pivots = jax.tree.map(lambda x: x.reshape(x.shape[0], *form.matrix_batch), self.pivots)
        rest: Factors = jax.tree.map(lambda x: x.reshape(form.matrix_batch), self._replace(pivots=None))
        return rest._replace(pivots=pivots)


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
    corner = el.corner_eliminate(ops, el.cyclic_corner(ops, rows))
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
    signs, logarithms = el.polar(ops, values)
    sign = jnp.prod(signs, axis=0) * jnp.where(odd % 2 == 1, -1, 1).astype(values.dtype)
    singular = factors.status != 0  # after a zero pivot the rest is NaN
    return jnp.where(singular, 0, sign), jnp.where(singular, -jnp.inf, jnp.sum(logarithms, axis=0))


def inverse_entries(matrix: Matrix, form: Form) -> tuple[Any, Any, Any]:
    """The entries of A^-T where A has its diagonals, 0 where no coupling is: the gradients of log |det A|."""
    *diagonals, where = matrix
    a, b, c = (jnp.broadcast_to(x, form.matrix_shape) for x in diagonals)
    found: tuple[Any, Any, Any] = jax.grad(lambda *v: slogdet((*v, where), form)[1].sum(), (0, 1, 2))(a, b, c)
    return found


def entries_with_exponents(matrix: Matrix, form: Form) -> list[Any]:
    """The same by `tridiag.algorithms.inverse_entries`, of matrices whose entries lie anywhere in the range."""

    def scan(step: Any, state: Any, sequences: Any, reverse: bool) -> Any:
        return lax.scan(step, state, sequences, reverse=reverse)[1]

    rows = tuple(jnp.moveaxis(x, form.axis, 0) for x in whole_bands(ops, matrix, form))
    entries = [jnp.moveaxis(x, 0, form.axis) for x in with_exponents(ops, scan, rows, rows[1][0])]
    return [kept(ops, matrix, x) for x in entries]


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
