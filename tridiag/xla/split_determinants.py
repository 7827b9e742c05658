r"""Determinants of matrices whose rows lie on several devices: each tells what its rows make of those before them.

With D_i the determinant of the first rows up to row i,

.. math:: \begin{pmatrix} D_i \\ c_i D_{i-1} \end{pmatrix}
          = \begin{pmatrix} b_i & -a_i \\ c_i & 0 \end{pmatrix} \begin{pmatrix} D_{i-1} \\ c_{i-1} D_{i-2} \end{pmatrix}

(T. Muir, A treatise on the theory of determinants, 1882, on continuants): no division, and so no zero pivot; rounding
is that of entries in their last bits. The product of these matrices over the rows of a device is four numbers and an
exponent of 2. The determinant of a periodic matrix is the trace of the product over all rows, less (-1)^n times the
product of all a and that of all c: parts of these are told as well. Each device joins all systems, or its share.

Where half of the digits cancel, in some row or between devices, the matrix may be singular, and what rounding did to
the four numbers shows. A flag goes round, and only such systems are gathered, and eliminated whole, with exchanges.

The gradient of log |det A| is that of what is joined with respect to what a device has told, pulled back through its
own product by JAX: the same exchange once more, and nothing goes back.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import elimination, row_scan
from tridiag.algorithms.parts import Bands
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Cut, Form, Shape
from tridiag.xla.doubtful import computed_whole
from tridiag.xla.exchange import anywhere, from_all, index, of_planes, planes, words_of_all
from tridiag.xla.split import moved, without_rows
from tridiag.xla.totals import exponent_of, normal, power, whole_numbers

MATRIX, CORNERS = 4, 2  # numbers that are told of any matrix, and more of a periodic one: each group has its exponents


class Part(NamedTuple):
    """What a device has of matrices."""

    form: Form  # of the whole ones
    cut: Cut
    bands: Bands
    where: Any

    @property
    def rows(self) -> int:
        return -(-self.form.n // self.cut.parts)

    @property
    def padded(self) -> bool:
        """Whether the last devices have rows that are none, so that all have as many."""
        return self.rows * self.cut.parts > self.form.n

    @property
    def shape(self) -> Shape:
        """That of its rows of all bands."""
        given = self.bands if self.where is None else (*self.bands, self.where)
        lengths = [max(some) for some in zip(*(x.shape for x in given), strict=True)]
        lengths[self.form.axis] = self.rows
        return tuple(lengths)

    @property
    def operands(self) -> tuple[Any, ...]:
        return self.bands if self.where is None else (*self.bands, self.where)

    def column(self, x: Any) -> Any:
        """Numbers of systems with an axis of length 1 in the place of that of rows."""
        axis = self.form.axis
        return x.reshape((*self.shape[:axis], 1, *self.shape[axis + 1 :]))


class Sweep(NamedTuple):
    """The product of the matrices of some rows, by its columns: (2, *batch)."""

    x: Any  # what becomes of D
    y: Any  # ... and of c D of the row before
    size_x: Any  # what x and y were made of: rounding is a part of that
    size_y: Any
    exponent: Any  # of 2, of all
    corners: Any  # the products of a and of c, and their exponents; None where the matrix is not periodic
    fine: Any  # whether no half of the digits was lost


# ------------------------------------------------------------------------------------------------ the verbs


def slogdet(form: Form, cut: Cut, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, Any]:
    """Signs and logarithms, on every device, from the rows of all; the form is that of the whole systems."""
    part = part_of(form, cut, a, b, c, where)
    told, exponents, fine = total(part, part.bands)
    kind, signs = told[0].dtype, len(planes(told[0]))

    def join(found: Any, _: Any) -> Any:
        values, exponents = unpacked(found, kind, form.periodic)
        sign, logarithm, fine = joined(form, values, exponents)
        everywhere = packed((sign, logarithm, fine.astype(logarithm.dtype)))
        return jnp.broadcast_to(everywhere, (cut.parts, *everywhere.shape))

    numbers = packed((*told, *exponents))
    *sign, logarithm, good = from_all(join, cut, numbers, numbers[:0], signs + 2)
    both = jnp.stack([part.column(x) for x in (of_planes(sign), logarithm.astype(kind))], -1)
    doubtful = ~part.column(fine.reshape(-1) & (good > 0))

    def run(shape: Shape, operands: Any, _: Any) -> Any:
        return jnp.stack(row_scan.slogdet(*whole_matrices(form, shape, operands)), -1)[:, None]

    def again(both: Any) -> Any:
        return computed_whole(run, cut, form.n, form.axis, both, doubtful, part.operands, of_rows=False)

    both = lax.cond(anywhere(doubtful, cut), again, lambda both: both, both)
    both = jnp.squeeze(both, form.axis)
    return both[..., 0], both[..., 1].real


def inverse_entries(form: Form, cut: Cut, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, Any, Any]:
    """The gradients of log |det A| in the rows of a device; see `tridiag.algorithms.row_scan.inverse_entries`."""
    part = part_of(form, cut, a, b, c, where)
    bands = tuple(jnp.broadcast_to(x, part.shape) for x in part.bands)

    def own(*bands: Any) -> Any:
        told, exponents, fine = total(part, bands)
        return told, (exponents, fine)

    told, pull, (exponents, fine) = jax.vjp(own, *bands, has_aux=True)
    kind = told[0].dtype

    def join(found: Any, _: Any) -> Any:
        values, exponents = unpacked(found, kind, form.periodic)

        def logarithm(*values: Any) -> Any:
            _, logarithm, fine = joined(form, values, exponents)
            return logarithm, fine

        logarithm_, back, fine = jax.vjp(logarithm, *values, has_aux=True)
        gradients = [plane for x in back(jnp.ones_like(logarithm_)) for plane in planes(x)]
        good = jnp.broadcast_to(fine.astype(logarithm_.dtype), gradients[0].shape)
        return jnp.stack([*gradients, good], 1)

    numbers = packed((*told, *exponents))
    size = len(planes(told[0]))
    *gradients, good = from_all(join, cut, numbers, numbers[:0], len(told) * size + 1)
    given = (of_planes(gradients[k : k + size]) for k in range(0, len(gradients), size))
    entries = pull(tuple(x.reshape(like.shape) for x, like in zip(given, told, strict=True)))
    doubtful = ~part.column(fine.reshape(-1) & (good > 0))

    def run(shape: Shape, operands: Any, _: Any) -> Any:
        return jnp.stack(row_scan.inverse_entries(*whole_matrices(form, shape, operands)), -1)

    def again(entries: Any) -> Any:
        return computed_whole(run, cut, form.n, form.axis, entries, doubtful, part.operands)

    entries = lax.cond(anywhere(doubtful, cut), again, lambda x: x, jnp.stack(entries, -1))
    return entries[..., 0], entries[..., 1], entries[..., 2]


def whole_matrices(form: Form, shape: Shape, operands: Any) -> tuple[Any, Form]:
    """Some matrices that are gathered, (some, n), and their form."""
    (a, b, c, *where), shape = operands, shape[:2]
    return (a, b, c, where[0] if where else None), form._replace(shape=shape, matrix_shape=shape, axis=1)


def exchange(devices: int, systems: int, periodic: bool, dtype: Any) -> str:
    """What is exchanged, in words."""
    size = 2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1
    numbers = (MATRIX + CORNERS * periodic) * size + 1 + CORNERS * periodic
    how, words = words_of_all(devices, systems, numbers, size + 2)
    return f"{how}, {words:.3g} words received for each system"


# ------------------------------------------------------------------------------------------------ a device


def part_of(form: Form, cut: Cut, a: Any, b: Any, c: Any, where: Any) -> Part:
    kind = jnp.result_type(a, b, c)
    return Part(form, cut, (a.astype(kind), b.astype(kind), c.astype(kind)), where)


def total(part: Part, bands: Bands) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """The numbers that are told of the rows of a device, their exponents as real numbers, and which are certain."""
    form, axis, rows = part.form, part.form.axis, part.rows
    if part.where is not None:
        keep = jnp.broadcast_to(part.where, part.shape)
        bands = without_rows(bands, keep, *kept_beside(part, keep))
    batch, first = part.shape[:axis] + part.shape[axis + 1 :], index(part.cut) * rows
    moving = [x.shape[axis] == rows for x in bands]
    lying = tuple(jnp.moveaxis(x, axis, 0) for x, moves in zip(bands, moving, strict=True) if moves)

    def step(state: Sweep, given: Any) -> tuple[Sweep, None]:
        k, moved = given
        found = iter(moved)
        a, b, c = (next(found) if moves else ops.row(x, 0, axis) for x, moves in zip(bands, moving, strict=True))
        row = first + k
        if not form.periodic:
            a, c = jnp.where(row > 0, a, 0), jnp.where(row < form.n - 1, c, 0)
        after = onward(state, a, b, c)
        if part.padded:
            after = jax.tree.map(functools.partial(jnp.where, row < form.n), after, state)
        return after, None

    start = vary_alike((started(batch, bands[0].dtype, form.periodic), (*bands, first)))[0]
    end, _ = lax.scan(step, start, (jnp.arange(rows, dtype=jnp.int32), lying))
    enough = math.sqrt(jnp.finfo(end.x.dtype).eps)
    fine = jnp.all((size(end.x) >= enough * end.size_x) & (size(end.y) >= enough * end.size_y), 0) & end.fine
    told, exponents = (end.x[0], end.x[1], end.y[0], end.y[1]), (end.exponent,)
    if form.periodic:
        told, exponents = (*told, *end.corners[0]), (*exponents, *end.corners[1])
    return told, tuple(x.astype(end.size_x.dtype) for x in exponents), fine


def kept_beside(part: Part, keep: Any) -> tuple[Any, Any]:
    """Whether the rows above and below are kept."""
    (cut, n, axis), rows = (part.cut, part.form.n, part.form.axis), part.rows
    above, below = (moved(cut, keep, axis, by, part.form.periodic) for by in (1, -1))
    if part.padded and part.form.periodic:  # between the last row and the first one are some that are none
        row = index(cut) * rows + ops.positions(rows, keep.ndim, axis, keep)
        at_ends = (row == n - 1) & keep, (row == 0) & keep
        last, first = lax.psum([x.any(axis, keepdims=True).astype(jnp.int32) for x in at_ends], cut.names)
        above, below = jnp.where(row == 0, last > 0, above), jnp.where(row == n - 1, first > 0, below)
    return above, below


def started(batch: Shape, kind: Any, periodic: bool) -> Sweep:
    """Of no rows: the identity."""
    real = jnp.finfo(kind).dtype
    identity = jnp.broadcast_to(jnp.eye(2, dtype=kind).reshape(2, 2, *(1,) * len(batch)), (2, 2, *batch))
    nothing = jnp.zeros(batch, whole_numbers(real))
    corners = (jnp.ones((2, *batch), kind), jnp.zeros((2, *batch), whole_numbers(real))) if periodic else None
    x, y = identity
    return Sweep(x, y, x.real, y.real, nothing, corners, jnp.ones(batch, bool))


def onward(state: Sweep, a: Any, b: Any, c: Any) -> Sweep:
    """One row more."""
    terms = b * state.x, a * state.y
    x, y = terms[0] - terms[1], c * state.x
    limits = jnp.finfo(x.dtype)
    least = float(limits.tiny) / float(limits.eps) ** 2  # numbers below may have lost digits
    most, reached = (size(terms[0]) + size(terms[1])), size(b) * state.size_x + size(a) * state.size_y
    fine = state.fine & jnp.all((most >= math.sqrt(limits.eps) * reached) & (most < jnp.inf) & (size(y) < jnp.inf), 0)
    size_x, size_y = jnp.where(most > 0, most + least, 0), size(c) * state.size_x
    size_y = jnp.where(size_y > 0, size_y + least, 0)
    found = exponent_of(jnp.maximum(size(x), size(y)).max(0))
    factor = power(-found, x)
    corners = state.corners
    if corners is not None:
        both = jnp.stack([jnp.broadcast_to(v, x.shape[1:]) for v in (a, c)])
        corners = normal(corners[0] * both, corners[1])
    x, y, size_x, size_y = (v * factor for v in (x, y, size_x, size_y))
    return Sweep(x, y, size_x, size_y, state.exponent + found, corners, fine)


def size(x: Any) -> Any:
    """Of numbers, as a constant of derivatives."""
    return ops.size(lax.stop_gradient(x))


# ------------------------------------------------------------------------------------------------ all devices


def joined(form: Form, told: Any, exponents: Any) -> tuple[Any, Any, Any]:
    """Signs, logarithms and which are certain, from what every device has told: each (devices, systems)."""
    kind, limits = told[0].dtype, jnp.finfo(told[0].dtype)
    enough, columns = math.sqrt(limits.eps), 2 if form.periodic else 1
    x, y = (jnp.broadcast_to(v, (columns, told[0].shape[1])) for v in jnp.eye(2, dtype=kind)[:, :columns, None])

    def step(state: Any, device: Any) -> Any:
        x, y, exponent, fine = state
        (m00, m01, m10, m11), more = device
        pairs = (m00 * x, m01 * y), (m10 * x, m11 * y)
        x, y = pairs[0][0] + pairs[0][1], pairs[1][0] + pairs[1][1]
        for found, (one, other) in ((x, pairs[0]), (y, pairs[1])):
            fine = fine & jnp.all(size(found) >= enough * (size(one) + size(other)), 0)
        found = exponent_of(jnp.maximum(size(x), size(y)).max(0))
        factor = power(-found, x)
        return (x * factor, y * factor, exponent + more + found.astype(more.dtype), fine), None

    start = x, y, jnp.zeros_like(exponents[0][0]), jnp.ones_like(exponents[0][0], dtype=bool)
    start, _ = vary_alike((start, told))
    devices = tuple(told[:MATRIX]), exponents[0]
    # unrolled, XLA would compute steps anew in each later one
    (x, y, exponent, fine), _ = lax.scan(step, start, devices)
    value = x[0]
    if form.periodic:
        value, exponent, most = closed(form.n, x[0] + y[1], exponent, told[MATRIX:], exponents[1:])
        fine = fine & (size(value) >= enough * jnp.maximum(most, size(x[0]) + size(y[1])))
    sign, logarithm = elimination.polar(ops, value)
    fine = fine & (size(value) > 0) & (size(value) < jnp.inf)
    return sign, logarithm + exponent * math.log(2), fine


def closed(n: int, trace: Any, exponent: Any, corners: Any, exponents: Any) -> tuple[Any, Any, Any]:
    """Determinants of periodic matrices, their exponents, and what they were made of."""
    terms = [(trace, exponent)]
    for factors, powers in zip(corners, exponents, strict=True):
        product, more = jnp.ones_like(factors[0]), jnp.zeros_like(powers[0])
        product, more = vary_alike((product, more, factors))[:2]

        def times(state: Any, device: Any) -> Any:
            return normal(state[0] * device[0], state[1] + device[1]), None

        (product, more), _ = lax.scan(times, (product, more), (factors, powers))
        terms.append((product if n % 2 else -product, more))
    least = -4 * jnp.finfo(trace.dtype).maxexp * n * len(corners[0])
    top = functools.reduce(jnp.maximum, (jnp.where(size(v) > 0, e, float(least)) for v, e in terms))
    bottom = 1 - jnp.finfo(trace.dtype).maxexp
    same = [v * power(jnp.clip(e - top, bottom, 0).astype(jnp.int32), v) for v, e in terms]
    return sum(same), top, functools.reduce(jnp.add, map(size, same))


# ------------------------------------------------------------------------------------------------ numbers


def packed(values: Any) -> Any:
    """(numbers, systems)."""
    return jnp.stack([plane.reshape(-1) for x in values for plane in planes(x)])


def unpacked(found: Any, kind: Any, periodic: bool) -> tuple[Any, Any]:
    """What all devices have told, (devices, numbers, systems), as numbers and their exponents."""
    step = 2 if jnp.issubdtype(kind, jnp.complexfloating) else 1
    count = MATRIX + CORNERS * periodic
    told = [found[:, k] for k in range(found.shape[1])]
    values = tuple(of_planes(told[k * step : (k + 1) * step]) for k in range(count))
    return values, tuple(told[count * step :])
