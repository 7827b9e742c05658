"""What joins matrices whose rows lie on several devices: exchanged once, for many right sides that come later.

Of a part, last_before, last_behind, first_before and first_last (`tridiag.algorithms.parts`) do not depend on right
sides: every device keeps those of all. A solve tells the two numbers that do, its last and its first unknown with
nothing around, and solves the small systems as `tridiag.xla.split` does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import neighbours, parts
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Cut, Form, Shape
from tridiag.xla import custom_call, split
from tridiag.xla.doubtful import computed_whole
from tridiag.xla.exchange import all_rows, index, of_device, row_at
from tridiag.xla.parts import CustomCalls
from tridiag.xla.split import KEPT


class Factors(NamedTuple):
    """What is kept of matrices of JAX arrays on CPU."""

    joints: Any  # (*batch, numbers): over how many devices rows are spread, what joins these; None where none can be
    status: Any
    # (*batch, words) and (*batch, 2): factors and stamps of `tridiag.xla.factored_systems`; None where none are kept
    tiles: Any = None
    stamps: Any = None

    @property
    def kept(self) -> Factors | None:
        """What later solves read, if there is something."""
        return None if self.joints is None and self.tiles is None else self._replace(status=None)

    def fitted(self, form: Form) -> Factors:
        """At the rank of right sides; a solve does not read the status."""

        def reshaped(x: Any) -> Any:
            fits = x is not None and x.size == math.prod(form.matrix_batch) * x.shape[-1]
            return x.reshape(*form.matrix_batch, x.shape[-1]) if fits else None

        return self._replace(
            joints=reshaped(self.joints), status=None, tiles=reshaped(self.tiles), stamps=reshaped(self.stamps)
        )

    @property
    def moved(self) -> Moved | None:
        """The same of matrices that lie otherwise than when they were eliminated, as `jax.vmap` has those of a tree."""
        return None if self.tiles is None else Moved(None, None, self.tiles, self.stamps)


class Moved(Factors):
    """Factors that were mapped, sliced or stacked as their matrices were: few matrices had others for themselves."""

    __slots__ = ()


def of_whole(status: Callable[[Matrix, Form], Any], matrix: Matrix, form: Form) -> Factors:
    """The status of matrices by a function that knows whole ones only; nothing joins their parts."""
    if form.cut is None:
        return Factors(None, status(matrix, form))
    whole = split.whole_form(form)
    parts = (x is not None and x.shape[form.axis] == form.n for x in matrix)
    given = (all_rows(form.cut, x, whole.n, form.axis) if cut else x for x, cut in zip(matrix, parts, strict=True))
    return Factors(None, of_device(form.cut, 0, status(tuple(given), whole)))


def numbers() -> int:
    """The numbers of a matrix where it is not known how many devices have rows of it."""
    return 1 + KEPT * jax.device_count("cpu")


def none(form: Form, *operands: Any) -> Any:
    """What joins matrices that are whole."""
    return jnp.zeros((*form.matrix_batch, numbers()), operands[1].dtype)


def joints(form: Form, cut: Cut, a: Any, b: Any, c: Any, where: Any = None) -> Any:
    """What joins matrices of which a device has rows; nothing where it would gather. The form is that of whole ones."""
    if split.never_in_parts(form, cut):
        operands = (a, b, c) if where is None else (a, b, c, where)
        return none(form.narrowed([x.shape for x in operands], where is not None), *operands)
    (*bands, _), own = split.local(form, cut, (a, b, c), b, where)
    relations = parts.reduce(CustomCalls, own, tuple(bands), bands[1]).relations
    there = (index(cut) > 0) | form.periodic, (index(cut) < cut.parts - 1) | form.periodic
    entries = row_at(bands[0], 0, own.axis), row_at(bands[2], -1, own.axis)
    before, behind = (
        jnp.broadcast_to(jnp.where(x, entry, 0), relations.last.shape) for x, entry in zip(there, entries, strict=True)
    )
    relations = parts.coupled(relations, before, behind, functools.partial(neighbours.times, ops))
    found = lax.all_gather(jnp.stack(parts.of_matrix(relations), -1), cut.names, axis=-2).reshape(*before.shape, -1)
    head, rest = jnp.full_like(found[..., :1], cut.parts), numbers() - 1 - found.shape[-1]
    every = jnp.concatenate([head, found, jnp.zeros_like(found, shape=(*before.shape, rest))], -1)
    return jnp.squeeze(every, own.axis)


def status(form: Form, cut: Cut, a: Any, b: Any, c: Any, joints: Any, where: Any = None) -> Any:
    """As `custom_call.call_status`: matrices of which parts do not show that they are regular are gathered."""
    operands = [a, b, c] if where is None else [a, b, c, where]
    zero = jnp.zeros_like(joints[..., 0].real, dtype=jnp.int32)
    spread, kept = split.kept_of(joints, cut, joints[..., 0])
    kept = kept.reshape(*kept.shape[:2], -1).swapaxes(0, 1)
    one = jnp.ones_like(kept[0])
    known, _ = parts.join(ops, custom_call.call, parts.with_right_sides(one, one, kept), form.periodic)
    regular = (known.last == known.last).all(0).reshape(zero.shape)

    def run(shape: Shape, operands: Any, _: Any) -> Any:
        some = form._replace(shape=shape, matrix_shape=shape, axis=1)
        return custom_call.call_status_gathered(some, *operands)[:, None]

    found = computed_whole(run, cut, form.n, form.axis, zero, ~(regular & spread), operands, of_rows=False)
    return jnp.squeeze(found, form.axis)
