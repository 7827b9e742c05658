"""Recurrences of first order and of small matrices by `lax.associative_scan`: logarithmic depth, O(n) work.

Two neighbouring stretches, y -> A y + B each, make one. A, the product of coefficients, may overflow or vanish where
the sequence does not: it is kept as a mantissa and an exponent. So may B, what a stretch makes of 0: if any value is
not finite, all are computed again one after another.

Matrices have no exponents, O(n m^3) work. Their sequence is checked after the fact, O(n m^2): where a value is not that
which the one before it makes, but for rounding, all are computed again one after another.

Kalman filters: `tridiag.algorithms.kalman_parallel`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import complex_sums, kalman_loops, kalman_parallel, logsumexp, recurrence
from tridiag.algorithms.matrix_rows import shift
from tridiag.algorithms.recurrence import Rows
from tridiag.backends import jax_scan
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.problems.state_space import FILTER, LIKELIHOOD, Model, StateSpace
from tridiag.xla.exponentials import Exponentials

FAR = 2**29  # the largest exponent: the sum of two is an int32
ROUNDING = 64  # eps of the terms of a vector: what the values of a sequence of matrices may be off in one step


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    n, axis = form.n, form.axis
    a = ops.stretch(coefficients[0], n, axis)
    if form.transpose:
        a = shift(ops, a, axis, -1 if form.backward else 1, True)
    right = jnp.broadcast_to(x, form.shape)
    first = ops.positions(n, len(form.shape), axis, right) == recurrence.row_of(form, 0)
    if init:
        right = jnp.where(first, right + a * init[0], right)
    a = jnp.where(first, 1, jnp.broadcast_to(a, form.shape))  # multiplies nothing
    *_, y = lax.associative_scan(join, (*scaled(a, 0), right), reverse=form.backward, axis=axis)
    return lax.cond(
        jnp.all(jnp.isfinite(y)), lambda: y, lambda: jax_scan.linear_recurrence(coefficients, x, init, form)
    )


def scaled(a: Any, exponent: Any) -> tuple[Any, Any]:
    """a * 2**exponent with a mantissa whose size is below 1, unless a is next to overflow."""
    size = ops.size(a)
    digits, bias = layout(size)
    bits = lax.bitcast_convert_type(size, f"int{8 * size.dtype.itemsize}")
    found = jnp.clip((bits >> digits) - (bias - 1), -bias, bias - 1).astype(jnp.int32)
    return a * power_of_two(-found, size), jnp.clip(exponent + found, -FAR, FAR)


def times_power(a: Any, exponent: Any) -> Any:
    """a * 2**exponent, in two halves: the power may be out of range where the product is not."""
    half = exponent >> 1
    return a * power_of_two(half, a.real) * power_of_two(exponent - half, a.real)


def power_of_two(exponent: Any, like: Any) -> Any:
    """2**exponent, or the nearest normal power of two."""
    digits, bias = layout(like)
    bits = (jnp.clip(exponent, 1 - bias, bias) + bias).astype(f"int{8 * like.dtype.itemsize}") << digits
    return lax.bitcast_convert_type(bits, like.dtype)


def layout(x: Any) -> tuple[int, int]:
    """The bits of a mantissa, and what is added to an exponent."""
    info = jnp.finfo(x.dtype)
    return int(info.nmant), int(info.maxexp) - 1


def join(earlier: Any, later: Any) -> Any:
    """Two stretches as one."""
    (mantissa, exponent, before), (factor, power, value) = earlier, later
    return *scaled(mantissa * factor, exponent + power), times_power(factor * before, power) + value


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """Stretches are merged as `tridiag.algorithms.logsumexp` keeps them."""
    if jnp.iscomplexobj(x):
        return complex_sums.logcumsumexp(ops, linear_recurrence, x, form)
    rows = Exponentials(ops, x)
    states = logsumexp.step(rows, logsumexp.nothing(rows, x), x)[:4]

    def complete(parts: Any) -> logsumexp.State:
        scale, high, low, largest = parts
        return logsumexp.State(scale, high, low, largest, shift=jnp.zeros_like(scale), shift_low=jnp.zeros_like(scale))

    def join(earlier: Any, later: Any) -> Any:
        return logsumexp.merge(rows, complete(earlier), complete(later))[:4]

    scale, high, low, largest = lax.associative_scan(join, states, reverse=form.backward, axis=form.axis)
    return logsumexp.value(rows, scale, high + low, largest)


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """Errors grow with the sum of all sizes of log_a in a sequence.

    Where some log_a is +inf all is computed step by step: put together with what follows, it would forget that what it
    multiplies may be zero.
    """
    n, axis = form.n, form.axis
    right = jnp.broadcast_to(x, form.shape)
    log_a = jnp.broadcast_to(ops.stretch(coefficients[0], n, axis), form.shape)
    first = ops.positions(n, len(form.shape), axis, right) == recurrence.row_of(form, 0)
    if init:
        right = jnp.where(first, jnp.logaddexp(log_a + init[0], right), right)
    log_a = jnp.where(first, 0, log_a)  # multiplies nothing

    def join(earlier: Any, later: Any) -> Any:
        return earlier[0] + later[0], jnp.logaddexp(later[0] + earlier[1], later[1])

    def in_parallel() -> Any:
        return lax.associative_scan(join, (log_a, right), reverse=form.backward, axis=axis)[1]

    def in_order() -> Any:
        return jax_scan.log_linear_recurrence(coefficients, x, init, form)

    return lax.cond(jnp.any(log_a == jnp.inf), in_order, in_parallel)


def matrix_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    axis, m = form.axis, form.shape[-1]
    a = ops.stretch(coefficients[0], form.n, axis)
    if form.transpose:
        a = jnp.swapaxes(shift(ops, a, axis, -1 if form.backward else 1, True), -1, -2)
    right = jnp.broadcast_to(x, form.shape)
    plain = form._replace(transpose=False)
    first = ops.positions(form.n, len(form.shape), axis, x) == recurrence.row_of(form, 0)
    if init:
        right = jnp.where(first, right + recurrence.products(a, init[0], plain), right)
    a = jnp.where(first[..., None], 0, jnp.broadcast_to(a, (*form.shape, m)))
    y = lax.associative_scan(join_matrices, (a, right), reverse=form.backward, axis=axis)[1]
    before = recurrence.behind(ops, y, 1, (), form)
    error = ops.size(y - recurrence.products(a, before, plain) - right)
    scale = recurrence.products(ops.size(a), ops.size(before), plain) + ops.size(right)
    eps, tiny = ops.limits(y)
    allowed = ROUNDING * eps * ops.maximum(scale, -1) + ROUNDING * tiny
    sure = jnp.all(error <= allowed[..., None])  # no maximum of errors: on CPU that may lose NaN
    return lax.cond(sure, lambda: y, lambda: jax_scan.linear_recurrence(coefficients, x, init, form))


def join_matrices(earlier: Any, later: Any) -> Any:
    """Two stretches as one."""
    (a, before), (factor, value) = earlier, later
    product = (factor[..., None] * a[..., None, :, :]).sum(-2)
    return product, (factor * before[..., None, :]).sum(-1) + value


@functools.partial(jax.jit, static_argnums=(0, 3))
def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 14 k**3 multiplications a step and series, and the inverses of two matrices."""
    steps = jax_scan.filtered if form.n == 1 else filtered
    return jax_scan.by_what_is_missing(functools.partial(steps, verb), y, model, form)


def filtered(verb: str, y: Any, kept: Any, model: Model, form: StateSpace) -> Any:
    """As `jax_scan.filtered`."""
    if verb == LIKELIHOOD:
        return kalman_parallel.log_likelihood(form, y, model, kept)
    likelihood, states = kalman_parallel.filtered(form, y, model, kept)
    if verb == FILTER:
        return *jax_scan.stacked(form, states.updated, states.predicted), likelihood
    found, sure = kalman_parallel.smoothed(form, model, states)
    return lax.cond(
        sure,
        lambda: (*jax_scan.stacked(form, found), likelihood),
        lambda: jax_scan.smoothed_by(form, y, model, kept, kalman_loops.Roots)[0],
    )
