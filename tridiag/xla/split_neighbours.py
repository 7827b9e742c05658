"""Systems whose rows lie on several CPU devices, where a device and its neighbours know what joins them.

The unknowns between two devices depend on few rows to either side where couplings decay. These alone are reduced first:
of rows by the hundred that is a small part of what is read. Then all rows are finished, which shows whether the rows
between devices fit, and the elimination of all others has its certificate. A flag goes round: where that is not so in
some system all are solved another way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from tridiag.algorithms import neighbours, parts
from tridiag.algorithms.parts import Bands, Known, Relations
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Cut, Form
from tridiag.problems.parts import Chunks, with_ends
from tridiag.xla.doubtful import tried_first
from tridiag.xla.exchange import index, passed, row_at
from tridiag.xla.parts import CustomCalls


class Joint(NamedTuple):
    """What a device needs to know of the others, all of length 1 along the system axis, or of its chunks."""

    known: Known
    ends: Any  # the last entry of an array on the device before, and the first on the one behind


def ends_enough(own: Form, dtype: Any) -> Chunks | None:
    """The chunks of a device whose ends are few of its rows, so that it pays to look at these first."""
    return with_ends(own.n, max(1, math.prod(own.batch)), dtype)


def solve_from_ends(
    form: Form, cut: Cut, own: Form, chunks: Chunks, bands: Bands, d: Any, ends: Any, anew: Callable[[], Any]
) -> tuple[Any, Any]:
    """x, from the rows at the ends of chunks alone where that is right, and else ``anew``; the rest as `Joint.ends`."""
    axis = own.axis
    told = CustomCalls.reduce(own, chunks, bands, d)
    top, bottom = (Relations(*(lax.index_in_dim(x, k, axis + 1, keepdims=False) for x in told)) for k in (0, 1))
    relations, decayed = neighbours.from_ends(ops, top, bottom)
    joint, right = join_neighbours(form, cut, own, relations, couplings_of(own, bands, chunks), ends)

    def finish() -> tuple[Any, Any]:
        x, accurate = CustomCalls.finish_judged(own, chunks._replace(ends=0), bands, d, joint.known)
        return x, accurate.all()

    return tried_first(finish, anew, cut, (decayed & right).all(), own.shape, d), joint.ends


def couplings_of(own: Form, bands: Bands, chunks: Chunks) -> list[Any]:
    """The entries a[0] and c[m-1] of all chunks."""
    axis, (a, _, c) = own.axis, bands
    shape = (*own.shape[:axis], chunks.number, *own.shape[axis + 1 :])
    places = (a, 0), (c, chunks.rows - 1)
    found = (x if x.shape[axis] == 1 else lax.slice_in_dim(x, k, None, chunks.rows, axis) for x, k in places)
    return [jnp.broadcast_to(x, shape) for x in found]


def join_neighbours(
    form: Form, cut: Cut, own: Form, relations: Relations, couplings: list[Any], ends: Any
) -> tuple[Joint, Any]:
    """What is at the ends of chunks, from what is told of those before and behind, and of which systems that is right.

    Devices tell their neighbours; between the chunks of a device nothing has to be exchanged.
    """
    axis, count = own.axis, relations.last.shape[own.axis]
    place = ops.positions(count, relations.last.ndim, axis, relations.last) + index(cut) * count
    there = (place > 0) | form.periodic, (place < cut.parts * count - 1) | form.periodic
    times = functools.partial(neighbours.times, ops)
    couplings = [jnp.where(x, entry, 0) for x, entry in zip(there, couplings, strict=True)]
    if not form.transpose:
        relations = parts.coupled(relations, couplings[0], couplings[1], times)
    first, last = neighbours.ends(relations)
    to_behind, to_before = [*last], [*first]
    if form.transpose:
        to_behind, to_before = [*last, couplings[1]], [*first, couplings[0]]
    if ends:
        to_behind, to_before = [*to_behind, ends[0]], [*to_before, ends[1]]
    told = around(cut, axis, to_behind, to_before, form.periodic)
    before, behind = (neighbours.End(*x[:2]) for x in told)
    if form.transpose:
        before, behind = (
            end._replace(slope=times(end.slope, x)) for end, x in zip((before, behind), couplings, strict=True)
        )
        couplings = [x[2] for x in told]
        relations = parts.coupled(relations, couplings[0], couplings[1], times)
        first = first._replace(slope=times(first.slope, couplings[0]))
    beside, right = neighbours.join(ops, relations, first, before, behind, there)
    e, f = times(beside.before, couplings[0]), times(beside.behind, couplings[1])
    return Joint(Known(e, beside.first, beside.last, f), [x[-1] for x in told] if ends else []), right


def around(
    cut: Cut, axis: int, to_behind: list[Any], to_before: list[Any], periodic: bool
) -> tuple[list[Any], list[Any]]:
    """What chunks are told by those before them and behind them, on this device and on the neighbours."""
    up, down = (jnp.stack([row_at(x, k, axis) for x in some]) for k, some in ((-1, to_behind), (0, to_before)))
    before, behind = passed(cut, up, down, periodic)

    def moved(x: Any, new: Any, by: int) -> Any:
        n = x.shape[axis]
        rest = lax.slice_in_dim(x, 0, n - 1, axis=axis) if by == 1 else lax.slice_in_dim(x, 1, n, axis=axis)
        return jnp.concatenate([new, rest] if by == 1 else [rest, new], axis)

    return (
        [moved(x, new, 1) for x, new in zip(to_behind, before, strict=True)],
        [moved(x, new, -1) for x, new in zip(to_before, behind, strict=True)],
    )
