"""Totals of sequences on CPU devices of JAX: the kernels of `tridiag.kernels.totals` as custom calls, and joined."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.algorithms.neighbours import HIDDEN, LARGER
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.parts import cut_shape, cut_strides
from tridiag.kernels.jobs.systems import granted, threads
from tridiag.kernels.jobs.totals import chunks_of, make_job
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.kernels.jobs.words.logsumexp import LOG_A, RESULT, TERMS
from tridiag.kernels.totals.words import (
    LAST_LINEAR,
    LAST_TRANSPOSED,
    LINEAR,
    LOGARITHMS,
    TRANSPOSED,
    WEIGHTED,
    numbers,
)
from tridiag.problems.forms import Recurrence, Shape
from tridiag.problems.parts import Chunks
from tridiag.xla.custom_call import custom_call

TRUSTED = 10  # exponent of products up to which little is lost to cancellation
ROOM = 24  # exponent of products that are in range though they are raised
LAST = {LINEAR: LAST_LINEAR, TRANSPOSED: LAST_TRANSPOSED}


class Linear(NamedTuple):
    """What steps make of a state: value + product 2**exponent state."""

    value: Any
    product: Any
    exponent: Any

    def after(self, state: Any) -> Any:
        """Of a state of 0 it is the value, whatever the coefficients; nothing overflows but the result."""
        moved = times_power(self.product, self.exponent, state)
        return self.value + jnp.where(state == 0, 0, moved)

    def then(self, later: Linear) -> Linear:
        product, exponent = normal(self.product * later.product, self.exponent + later.exponent)
        return Linear(later.after(self.value), product, exponent)

    def moderate(self) -> Any:
        """Where what is lost to cancellation is what values lose by themselves."""
        return (self.product == 0) | (self.exponent <= TRUSTED)

    def decayed(self) -> Any:
        """Whether the state before hardly counts, unless it is much larger than the values."""
        most = math.log2(HIDDEN / LARGER * jnp.finfo(self.value.dtype).eps)
        return (self.product == 0) | (self.exponent < most)

    def hides(self, state: Any) -> Any:
        """Whether rounding hides a state in the value."""
        moved = times_power(self.product, self.exponent, state)
        return jnp.abs(moved) <= HIDDEN * jnp.finfo(self.value.dtype).eps * jnp.abs(self.value)


class Last(NamedTuple):
    """The numbers of what the last steps of sequences make of the state before them, and how many steps these are.

    Whoever asks has them in its own branch of a program, so that nothing is written for a branch that is not taken.
    """

    kind: str
    numbers: Any  # (planes, sequences)
    batch: Shape  # of the sequences, with an axis of one row
    most: int
    x: Any

    @property
    def total(self) -> Any:
        planes = planes_of(self.numbers, self.batch)
        return of_planes(self.kind, self.x, planes[:-1] if self.kind in LAST else planes)

    @property
    def steps(self) -> Any:
        if self.kind not in LAST:
            return jnp.int32(self.most)
        return self.numbers[-1].reshape(self.batch).astype(jnp.int32)


class Logarithms(NamedTuple):
    """What steps make of a state: logaddexp(value, state)."""

    value: Any

    def after(self, state: Any) -> Any:
        return jnp.logaddexp(self.value, state)

    def then(self, later: Logarithms) -> Logarithms:
        return Logarithms(later.after(self.value))


class Weighted(NamedTuple):
    """What steps make of a state: logaddexp(value, state + total); the total in two numbers."""

    value: Any
    total: Any
    rest: Any

    def after(self, state: Any) -> Any:
        moved = self.total + state
        moved = moved + jnp.where(jnp.isfinite(moved) & jnp.isfinite(self.rest), self.rest, 0)
        return jnp.logaddexp(self.value, moved)

    def then(self, later: Weighted) -> Weighted:
        total = self.total + later.total
        part = total - self.total
        error = (self.total - (total - part)) + (later.total - part)
        return Weighted(later.after(self.value), total, self.rest + later.rest + error)

    def moderate(self) -> Any:
        return jnp.zeros_like(self.value, dtype=bool)

    def decayed(self) -> Any:
        return self.total < math.log(HIDDEN / LARGER * jnp.finfo(self.value.dtype).eps)

    def hides(self, state: Any) -> Any:
        return self.total + state <= self.value + math.log(HIDDEN * jnp.finfo(self.value.dtype).eps)


class Affine(NamedTuple):
    """What steps make of a state of several numbers: value + matrix state / `raised`.

    The matrix is that many times as large, so that nothing of it underflows that counts beside a large state.
    """

    value: Any  # (..., p)
    matrix: Any  # (..., p, p)

    def after(self, state: Any) -> Any:
        state, lowered = state[..., None, :], 1 / raised(self.matrix)
        large = jnp.abs(state) > 1
        terms = jnp.where(large, self.matrix, self.matrix * lowered) * jnp.where(large, state * lowered, state)
        return self.value + jnp.where(state == 0, 0, terms).sum(-1)

    def moderate(self) -> Any:
        return jnp.abs(self.matrix).max((-1, -2))[..., None] <= 2.0**TRUSTED * raised(self.matrix)


def raised(like: Any) -> float:
    """How many times as large a matrix of `Affine` is; some growth is in range."""
    return 2.0 ** (int(jnp.finfo(like.dtype).maxexp) - ROOM)


# ------------------------------------------------------------------------------------------------ products


def normal(x: Any, exponent: Any) -> tuple[Any, Any]:
    """x 2**exponent with x about 1 in size, but where it is 0, subnormal, infinite or NaN."""
    found = exponent_of(x)
    return x * power(-found, x), exponent + found.astype(exponent.dtype)


def times_power(x: Any, exponent: Any, y: Any) -> Any:
    """x 2**exponent y, for a normal x and a whole real exponent; in range wherever the result is."""
    most = jnp.finfo(x.dtype).maxexp - 1
    found = exponent_of(y)
    whole = jnp.clip(exponent, -4 * most, 4 * most).astype(found.dtype) + found
    half = jnp.clip(whole, 1 - most, most)
    rest = jnp.clip(whole - half, 1 - most, most)  # of a number between 1 and 4 more is 0 or inf
    return x * (y * power(-found, y)) * power(half, y) * power(rest, y)


def exponent_of(x: Any) -> Any:
    """That of 2, of the size of numbers; 0 where they are none in the normal range."""
    size = jnp.maximum(jnp.abs(x.real), jnp.abs(x.imag)) if jnp.iscomplexobj(x) else jnp.abs(x)
    kind, limits = whole_numbers(size.dtype), jnp.finfo(size.dtype)
    found = lax.shift_right_logical(lax.bitcast_convert_type(size, kind), kind(limits.nmant))
    return jnp.where((found == 0) | (found == 2 * limits.maxexp - 1), 0, found - (limits.maxexp - 1))


def power(k: Any, like: Any) -> Any:
    """2**k as a real number of the precision of another, within the normal range."""
    limits = jnp.finfo(like.dtype)
    kind = whole_numbers(limits.dtype)
    found = lax.shift_left((k + (limits.maxexp - 1)).astype(kind), kind(limits.nmant))
    return lax.bitcast_convert_type(found, limits.dtype)


def whole_numbers(real: Any) -> Any:
    return {4: jnp.int32, 8: jnp.int64}[np.dtype(real).itemsize]


# ------------------------------------------------------------------------------------------------ a part


def total_of(kind: str, form: Recurrence, a: Any, x: Any) -> Any:
    """The total of some rows of sequences; a: None where there are no coefficients. Length 1 along the axis."""
    n, axis, dtype = form.n, form.axis, np.dtype(x.dtype)
    chunks = chunks_of(n, math.prod(form.batch), dtype, threads() if granted(form) > 1 else 1)
    found = joined(called(kind, form, chunks, a, x), axis, form.backward)
    rest = n - chunks.number * chunks.rows
    if rest == 0:
        return found
    short = form._replace(shape=(*form.shape[:axis], rest, *form.shape[axis + 1 :]))
    a, x = (v if v is None or v.shape[axis] == 1 else lax.slice_in_dim(v, n - rest, n, axis=axis) for v in (a, x))
    return ordered(found, called(kind, short, Chunks(1, rest), a, x), form.backward)


def last_of(kind: str, form: Recurrence, a: Any, x: Any, most: int) -> Last:
    """The total of the last steps: of linear recurrences of no more than it takes for products to decay."""
    first = 0 if form.backward else form.n - most
    return Last(kind, *numbers_of(LAST.get(kind, kind), form, Chunks(1, most), a, x, first), most, x)


def ordered(first: Any, second: Any, backward: bool) -> Any:
    """Two totals of neighbours in memory, as one."""
    return second.then(first) if backward else first.then(second)


def joined(parts: Any, axis: int, backward: bool) -> Any:
    """The totals along an axis as one, by halves."""
    while (count := parts[0].shape[axis]) > 1:
        even = count // 2 * 2

        def every(first: int, last: int, step: int, parts: Any = parts) -> Any:
            return type(parts)(*(lax.slice_in_dim(x, first, last, step, axis) for x in parts))

        pairs = ordered(every(0, even, 2), every(1, even, 2), backward)
        if even < count:
            left = every(even, count, 1)
            pairs = type(parts)(*(lax.concatenate(both, axis) for both in zip(pairs, left, strict=True)))
        parts = pairs
    return parts


def called(kind: str, form: Recurrence, chunks: Chunks, a: Any, x: Any) -> Any:
    """The totals of chunks: an axis of them in the place of that of rows."""
    return of_planes(kind, x, planes_of(*numbers_of(kind, form, chunks, a, x)))


def numbers_of(kind: str, form: Recurrence, chunks: Chunks, a: Any, x: Any, first: int = 0) -> tuple[Any, Shape]:
    """The real numbers of the totals of chunks, which begin with that row: a plane of each, and its shape."""
    axis, dtype = form.axis, np.dtype(x.dtype)
    small = form._replace(shape=cut_shape(form.shape, axis, chunks), axis=axis + 1)
    given = [v if v is None else tuple(v.shape) for v in (a, x)]
    shapes = tuple(v and cut_shape(v, axis, chunks) for v in given)
    strides = tuple(v and cut_strides(contiguous(v, dtype.itemsize), axis, chunks) for v in given)
    job = make_job(kind, small, shapes, strides, dtype, granted(form), first)
    count = numbers(kind, 2 if dtype.kind == "c" else 1)
    real = dtype.type(0).real.dtype
    result = jax.typeof(x).update(shape=(count, math.prod(small.batch)), dtype=real)
    (found,) = custom_call(job, {POINTERS + LOG_A: a, POINTERS + TERMS: x}, {POINTERS + RESULT: result})
    return found, small.batch


def planes_of(numbers: Any, batch: Shape) -> list[Any]:
    return [v.reshape(batch) for v in numbers]


def of_planes(kind: str, x: Any, planes: list[Any]) -> Any:
    """The totals of recurrences of such values."""
    if kind == LOGARITHMS:
        return Logarithms(*planes)
    if kind == WEIGHTED:
        return Weighted(*planes)
    if jnp.iscomplexobj(x):
        return Linear(lax.complex(*planes[:2]), lax.complex(*planes[2:4]), planes[4])
    return Linear(*planes)
