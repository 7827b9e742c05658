"""Recurrences whose rows lie on several CPU devices: each learns the state before its own rows, and goes on from there.

Inside `jax.shard_map`, or what XLA makes of arrays that are sharded along the axis. A first pass over its rows tells
every device what they make of the state before them (`tridiag.xla.totals`), in a few numbers a sequence: one
``all_gather`` of three of a linear recurrence of order 1, of one of `logcumsumexp`, of three of
`log_linear_recurrence`. A scan over the devices gives each its state (where sequences are many each device scans its
share, and tells the others theirs), and the second pass is the recurrence from there. Of order 1 and real or complex
numbers, and of logarithms, the first pass is a kernel that writes no array. Of higher orders and of matrices it is the
recurrence itself, from 0 and from every unit of its state: p (p + 1) numbers a sequence, and p + 1 times the work.

Then a flag goes round: only where the state behind some rows is not the one that the next device has taken for it (an
infinite coefficient, an overflow on the way, a sequence that hardly any rounding error survives) are such sequences
gathered, and computed whole.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.algorithms.recurrence import Rows
from tridiag.kernels.totals.words import LINEAR, LOGARITHMS, TRANSPOSED, WEIGHTED
from tridiag.libraries.jax import Operations, vary_alike
from tridiag.problems.forms import Cut, Recurrence, Shape
from tridiag.xla import custom_call, totals
from tridiag.xla.doubtful import computed_whole
from tridiag.xla.exchange import (
    anywhere,
    from_all,
    from_all_rows,
    index,
    of_device,
    of_planes,
    planes,
    row_at,
    sent,
    words_of_all,
)
from tridiag.xla.split_last_rows import LEAST, from_last_rows
from tridiag.xla.totals import Affine, raised

ROUNDING = 1024  # eps: how far a state may be from what the next device has taken for it, and 8 eps sqrt(rows) more


class Part(NamedTuple):
    """What a device has of a recurrence."""

    form: Recurrence  # of the whole
    own: Recurrence  # of its rows
    cut: Cut
    run: Callable[..., Any]  # (form, x, coefficients, init): the recurrence of rows on one device
    coefficients: Rows
    x: Any
    init: Rows

    @property
    def place(self) -> Any:
        """Which device it is, in the order of the recurrence."""
        k = index(self.cut)
        return self.cut.parts - 1 - k if self.form.backward else k

    def values(self, *start: Any) -> Any:
        return self.run(self.own, self.x, self.coefficients, start)

    def from_states(self, *start: Any) -> Any:
        """The values; on the first device what would multiply values before it is read only where there are such."""
        if self.init or self.own.transpose or self.own.n == 0:
            return self.values(*start)
        return lax.cond(self.place == 0, lambda *_: self.values(), lambda *start: self.values(*start), *start)

    @property
    def pads(self) -> int:
        """How many rows of the last devices are none."""
        return self.cut.parts * self.own.n - self.form.n

    @property
    def followed(self) -> Any:
        """Whether a device begins with what this one ends with."""
        count = self.cut.parts if self.form.backward else -(-self.form.n // self.own.n)
        return self.place < count - 1

    @property
    def state_shape(self) -> tuple[int, ...]:
        axis = self.own.axis
        return (*self.own.shape[:axis], 1, *self.own.shape[axis + 1 :])


# ------------------------------------------------------------------------------------------------ the verbs


def exchange(verb: str, devices: int, sequences: int, rows: int, order: int, shape: tuple[int, ...], dtype: str) -> str:
    """What is exchanged, in words."""
    parts = 2 if np.dtype(dtype).kind == "c" else 1
    matrices = verb == "matrix_recurrence"
    size, several = (shape[-1], True) if matrices else (order, order > 1)
    told = {"logcumsumexp": 1, "log_linear_recurrence": 3}.get(
        verb, size * (size + 1) * parts if several else 2 * parts + 1
    )
    how, words = words_of_all(devices, sequences // size if matrices else sequences, told, size * parts)
    if several or verb == "logcumsumexp" or rows < LEAST:
        return f"{how}, {words:.3g} words received for each sequence"
    return (
        f"neighbours alone, {parts} words received for each sequence, where products of coefficients decay; "
        f"else {how} besides, {words:.3g} words"
    )


def linear_recurrence(order: int, form: Recurrence, cut: Cut, x: Any, *more: Any) -> Any:
    """y in the rows of a device, from what it has; the form is that of the whole sequences."""

    def run(form: Recurrence, x: Any, coefficients: Rows, init: Rows) -> Any:
        return custom_call.calling_recurrence(order)(form, x, *coefficients, *init)

    part = part_of(form, cut, run, x, more[:order], more[order:])
    return by_total(without_pads(part)) if order == 1 else by_units(part, order)


def matrix_recurrence(form: Recurrence, cut: Cut, x: Any, a: Any, *init: Any) -> Any:
    """That of vectors."""

    def run(form: Recurrence, x: Any, coefficients: Rows, init: Rows) -> Any:
        return custom_call.call_matrices(form, x, *coefficients, *init)

    return by_units(part_of(form, cut, run, x, (a,), init), 1)


def log_linear_recurrence(weighted: bool, form: Recurrence, cut: Cut, *operands: Any) -> Any:
    """That of logarithms, with or without coefficients."""

    def run(form: Recurrence, x: Any, coefficients: Rows, init: Rows) -> Any:
        if form.n == 1 and not init:
            return jnp.broadcast_to(x, form.shape)
        return custom_call.calling_logarithms(bool(coefficients), bool(init))(form, *coefficients, *init, x)

    count = 1 if weighted else 0
    part = part_of(form, cut, run, operands[-1], operands[:count], operands[count:-1])
    part = without_pads(part, -math.inf, 0.0)
    start = part.init[0] if part.init else jnp.asarray(-math.inf, part.x.dtype)
    if weighted:
        return from_any_rows(part, WEIGHTED, start, lambda y, k: row_at(y, k, form.axis))
    return part.values(state_before(part, totals.total_of(LOGARITHMS, part.own, None, part.x), start))


def by_total(part: Part) -> Any:
    """Order 1: what the rows make of a state is told by a kernel."""
    own, (a,), axis = part.own, part.coefficients, part.own.axis

    def state_at(y: Any, k: int) -> Any:
        state = row_at(y, k, axis)
        return state * row_at(a, k, axis) if own.transpose else state

    start = part.init[0] if part.init else jnp.zeros((), part.x.dtype)
    return from_any_rows(part, TRANSPOSED if own.transpose else LINEAR, start, state_at)


def from_any_rows(part: Part, kind: str, start: Any, state_at: Callable[[Any, int], Any]) -> Any:
    """The values, from the last rows of neighbours or from what all devices tell."""
    (a,) = part.coefficients

    def anew(told: Any) -> Any:
        told = totals.total_of(kind, part.own, a, part.x) if told is None else told
        before = state_before(part, told, start)
        y = part.from_states(before)
        return kept_or_gathered(part, y, told.after(before), state_at(y, 0 if part.own.backward else -1), told)

    return from_last_rows(part, kind, a, start, state_at, anew)


def by_units(part: Part, order: int) -> Any:
    """Any order, and matrices: what the rows make of 0 and of every unit of the state are recurrences as well."""
    if part.own.n < order or (part.pads and part.form.backward and order > 1 and part.init):
        nothing, _ = vary_alike((jnp.zeros(part.own.shape, part.x.dtype), part.x))
        return gathered(part, nothing, jnp.ones(part.state_shape, bool))
    part = without_pads(turned(part))
    own, kind = part.own, part.x.dtype
    size = own.shape[-1] if own.matrices else order

    def state_of(y: Any, axis: int) -> Any:
        """The state behind all rows of values, along the last axis."""
        last = [k if own.backward else -1 - k for k in range(order)]
        rows = [row_at(y, k, axis) for k in last]
        return rows[0] if own.matrices else jnp.stack(rows, -1)

    def init_of(state: Any) -> Rows:
        return (state,) if own.matrices else tuple(state[..., k] for k in range(order))

    value = state_of(part.from_states(*init_of(jnp.zeros(value_shape(part, size), kind))), own.axis)
    unit = jnp.eye(size, dtype=kind).reshape(size, *(1,) * len(value.shape[:-1]), size)
    longer = own._replace(shape=(size, *own.shape), axis=own.axis + 1)
    kept = (longer.axis, len(own.shape)) if own.matrices else (longer.axis,)
    nothing = jnp.zeros([n if k in kept else 1 for k, n in enumerate(longer.shape)], kind)
    units = part.run(longer, nothing, tuple(a[None] for a in part.coefficients), init_of(unit * raised(unit)))
    told = Affine(value, jnp.moveaxis(state_of(units, longer.axis), 0, -1))
    start = jnp.zeros((), kind) if not part.init else part.init[0] if own.matrices else jnp.stack(part.init, -1)
    before = state_before(part, told, start)
    y = part.from_states(*init_of(before))
    return kept_or_gathered(part, y, told.after(before), state_of(y, own.axis), told)


def value_shape(part: Part, size: int) -> tuple[int, ...]:
    return part.state_shape if part.own.matrices else (*part.state_shape, size)


# ------------------------------------------------------------------------------------------------ what a device has


def part_of(form: Recurrence, cut: Cut, run: Any, x: Any, coefficients: Rows, init: Rows) -> Part:
    """The rows of a device. Where devices do not divide them, the last ones have less, and pads of any value behind."""
    rank, given = len(form.shape), [*coefficients, x]
    lengths = [max(lengths) for lengths in zip(*(v.shape[:rank] for v in (*given, *init)), strict=False)]
    if form.matrices:
        lengths.append(form.shape[-1])
    own = form._replace(shape=tuple(lengths[:rank]))
    return Part(form, own, cut, run, tuple(coefficients), x, tuple(init))


def without_pads(part: Part, nothing: float = 0.0, unchanged: float = 1.0) -> Part:
    """Pads that come first leave the state as it is, and what multiplies values before the first row is not read."""
    if not (part.pads and part.form.backward):
        return part
    axis, n, form = part.own.axis, part.form.n, part.form

    def real(v: Any, count: int, otherwise: Any) -> Any:
        """The first rows of all, so many."""
        shape = [1] * v.ndim
        shape[axis] = part.own.n
        places = (index(part.cut) * part.own.n + jnp.arange(part.own.n)).reshape(shape)
        return jnp.where(places < count, v, jnp.asarray(otherwise, v.dtype))

    if form.transpose:
        coefficients = [real(a, n, 0) for a in part.coefficients]
    elif part.init:
        same = jnp.eye(form.shape[-1]) if form.matrices else unchanged
        coefficients = [real(a, n, same) for a in part.coefficients]
    else:
        coefficients = [real(a, n - k, 0) for k, a in enumerate(part.coefficients, 1)]
    return part._replace(coefficients=tuple(coefficients), x=real(part.x, n, nothing))


def turned(part: Part) -> Part:
    """A transposed recurrence as one that is not: coefficients lie in the row to which they lead."""
    own, axis = part.own, part.own.axis
    if not own.transpose:
        return part
    coefficients = []
    for k, a in enumerate(part.coefficients, 1):
        if own.matrices:
            a = jnp.swapaxes(a, -1, -2)
        if a.shape[axis] > 1 or own.n == 1:
            a = behind(part.cut, a, k, axis, own.backward)
        coefficients.append(a)
    form, own = (f._replace(transpose=False, reverse=f.backward) for f in (part.form, own))
    return part._replace(form=form, own=own, coefficients=tuple(coefficients))


def behind(cut: Cut, a: Any, k: int, axis: int, backward: bool) -> Any:
    """In every row what lies k rows before it in the order of the recurrence, here or on another device; first 0."""
    n = a.shape[axis]
    devices, rows = divmod(k, n)

    def rows_of(low: int, high: int, by: int) -> Any:
        """Some of the rows that a device has which lies so many before."""
        low, high = (n - high, n - low) if backward else (low, high)
        pairs = [(p + by, p) if backward else (p, p + by) for p in range(cut.parts - by)]
        given = lax.slice_in_dim(a, low, high, axis=axis)
        return given if by == 0 else sent(cut, given, pairs)

    found = [rows_of(0, n - rows, devices)]
    if rows:
        found.insert(0, rows_of(n - rows, n, devices + 1))
    return lax.concatenate(found[::-1] if backward else found, axis)


# ------------------------------------------------------------------------------------------------ from device to device


def state_before(part: Part, told: Any, start: Any) -> Any:
    """The state before the first row of a device, from what all are told and that before the first row of all."""
    value, kind = told.value, type(told)
    rank = len(part.own.shape) - part.own.matrices  # axes of sequences; those behind are of the numbers of a state
    numbers = [numbers_of(x, rank) for x in told]
    ends = list(itertools.accumulate(map(len, numbers)))[:-1]

    def step(state: Any, told: Any) -> Any:
        return told.after(state), state

    def join(found: Any, start: Any) -> Any:
        """States before all devices, in the order of these."""
        every = jax.vmap(lambda x: kind(*map(functools.partial(restored, rank=rank), jnp.split(x, ends), told)))(found)
        (first, _), unroll = vary_alike((restored(start, value, rank), found)), min(16, part.cut.parts)
        _, states = lax.scan(step, first, every, reverse=part.form.backward, unroll=unroll)
        return jax.vmap(lambda x: numbers_of(x, 1))(states)

    start = numbers_of(jnp.broadcast_to(start, value.shape), rank)
    before = from_all(join, part.cut, jnp.concatenate(numbers), start, len(start))
    return restored(before, value, rank).reshape(value.shape)


def numbers_of(x: Any, rank: int) -> Any:
    """The real numbers of each sequence, the axes of which come first: (numbers, sequences)."""
    return jnp.concatenate([plane.reshape(math.prod(x.shape[:rank]), -1).T for plane in planes(x)])


def restored(numbers: Any, like: Any, rank: int) -> Any:
    """The inverse, of some sequences, which have one axis then."""
    tail, count = like.shape[rank:], numbers.shape[1]
    found = [x.T.reshape(count, *tail) for x in numbers.reshape(-1, math.prod(tail), count)]
    return of_planes(found)


# ------------------------------------------------------------------------------------------------ inside shard_map


def whole_form(form: Recurrence) -> Recurrence:
    """The form of the sequences some rows of which a device has."""
    return form._replace(shape=(*form.shape[: form.axis], form.steps, *form.shape[form.axis + 1 :]), cut=None)


def gathered_from_devices(run: Callable[..., Any], form: Recurrence, coefficients: Rows, x: Any, init: Rows) -> Any:
    """The values of a backend that knows whole sequences only: ``run(coefficients, x, init, form)``."""
    whole, count = whole_form(form), len(coefficients)
    assert form.cut is not None

    def of_whole(*rows: Any) -> Any:
        return run(rows[:count], rows[count], init, whole)

    return from_all_rows(form.cut, of_whole, form.steps, form.axis, (*coefficients, x))


@functools.cache
def operations(cut: Cut) -> type[Operations]:
    """Those of arrays some rows of which a device has, as `tridiag.algorithms.recurrence` needs them."""

    class Across(Operations):
        @staticmethod
        def positions(n: int, rank: int, axis: int, like: Any) -> Any:
            return Operations.positions(n, rank, axis, like) + index(cut) * n

        @classmethod
        def moved(cls, x: Any, first: Any, axis: int, backward: bool) -> Any:
            n, count = x.shape[axis], first.shape[axis]
            found, at = behind(cut, x, count, axis, backward), cls.positions(n, x.ndim, axis, x)
            for k in range(count):
                place = n * cut.parts - count + k if backward else k
                found = jnp.where(at == place, lax.slice_in_dim(first, k, k + 1, axis=axis), found)
            return found

    return Across


def end(form: Recurrence, y: Any, k: int) -> Any:
    """The value k steps before the last one of all, on every device."""
    cut, axis = form.cut, form.axis
    assert cut is not None
    place, row = divmod(form.steps - 1 - k, form.n)
    if form.backward:
        place, row = cut.parts - 1 - place, form.n - 1 - row
    return of_device(cut, place, lax.index_in_dim(y, row, axis, keepdims=False))


# ------------------------------------------------------------------------------------------------ the promise


def kept_or_gathered(part: Part, y: Any, taken: Any, end: Any, told: Any) -> Any:
    """y; computed anew where the next device has ``taken`` another state than that at the ``end`` of these rows."""
    limits, rows = jnp.finfo(y.dtype), part.own.n
    size, error, least = jnp.abs(end), jnp.abs(end - taken), limits.tiny / limits.eps
    if isinstance(told, Affine):
        size, error = (jnp.broadcast_to(x.max(-1, keepdims=True), x.shape) for x in (size, error))
    same = (end == taken) | ((end != end) & (taken != taken))
    small = error <= limits.eps * (ROUNDING + 8 * math.sqrt(rows)) * size
    moderate = told.moderate() & (size < jnp.inf) & (error < jnp.inf) & (size > least)
    doubtful = part.followed & ~(same | small | moderate)
    again = anywhere(doubtful, part.cut)
    if isinstance(told, Affine):
        doubtful = doubtful.any(-1, keepdims=part.own.matrices)
    return lax.cond(again, lambda y: gathered(part, y, doubtful), lambda y: y, y)


def gathered(part: Part, y: Any, doubtful: Any) -> Any:
    """y, with the sequences that are doubtful on any device computed whole."""
    rank = len(part.own.shape) - part.own.matrices
    wrong = doubtful.any(tuple(range(rank, doubtful.ndim))) if doubtful.ndim > rank else doubtful

    def run(shape: Shape, operands: Any, states: Any) -> Any:
        x, *coefficients = operands
        return part.run(part.form._replace(shape=shape, axis=1), x, tuple(coefficients), tuple(states))

    operands = part.x, *part.coefficients
    return computed_whole(run, part.cut, part.form.n, part.own.axis, y, wrong, operands, part.init)
