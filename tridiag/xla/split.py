"""Systems whose rows lie on several CPU devices: each reduces its rows, all learn what joins them, each finishes.

Inside `jax.shard_map`, or what XLA makes of arrays that are sharded along the system axis. Neighbours exchange four
numbers a system (six of a transposed matrix, whose couplings they have), which is enough where couplings have decayed
within the devices (`tridiag.algorithms.neighbours`). A flag goes round: where they have not in some system, one
``all_gather`` follows of six numbers a device and system (`tridiag.algorithms.parts`; eight of a transposed matrix),
and every device solves the small systems of all. Where those are few words they come first, and no neighbour is asked.
Then another flag: only where some system has no certificate in some part, or a row between parts a residual that is
more than rounding, are such systems gathered, and solved whole.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.algorithms import parts
from tridiag.algorithms.parts import Bands, Known, Reduced, Relations
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Cut, Form, Shape
from tridiag.problems.parts import Chunks, with_ends
from tridiag.xla import custom_call
from tridiag.xla.doubtful import computed_whole
from tridiag.xla.exchange import (
    anywhere,
    from_all,
    from_all_rows,
    from_own_systems,
    index,
    passed,
    row_at,
    words_of_all,
    words_of_own,
    worth_two,
)
from tridiag.xla.parts import CustomCalls
from tridiag.xla.split_neighbours import Joint, couplings_of, ends_enough, join_neighbours, solve_from_ends

TOLD, RETURNED = 6, 3  # numbers of a system that devices tell all others, and get back where those join it
KEPT = 4  # numbers of a part that factors have of all devices
BESIDE = (
    4  # numbers of a system that a device gets from its neighbours; they have the couplings of a transposed one, two
)
# rows of a device, on so few devices, and words that it receives in all, which are exchanged as they are
SHORT_ROWS, FEW_DEVICES, SHORT_WORDS = 32, 16, 20_000
# words received of all devices: to ask the neighbours first, and whether that was enough, takes less
WORTH_ASKING = 2**13


def gathered_from_devices(solve: Any, form: Form, matrix: Any, d: Any) -> Any:
    """The solution of a backend that knows whole systems only."""
    assert form.cut is not None

    def function(form: Form, a: Any, b: Any, c: Any, d: Any, where: Any = None) -> Any:
        return solve((a, b, c, where), d, form, None, None)[0]

    a, b, c, where = matrix
    operands = (a, b, c, d) if where is None else (a, b, c, d, where)
    whole = whole_form(form)
    return gathered(function, whole, form.cut, operands, where is not None)


def whole_form(form: Form) -> Form:
    """The form of the systems some rows of which a device has."""
    assert form.cut is not None
    n = form.n * form.cut.parts
    shape, matrix_shape = (
        tuple(n if k == form.axis else length for k, length in enumerate(shape))
        for shape in (form.shape, form.matrix_shape)
    )
    return form._replace(shape=shape, matrix_shape=matrix_shape, cut=None)


def solve(form: Form, cut: Cut, a: Any, b: Any, c: Any, d: Any, where: Any = None) -> Any:
    """x in the rows of a device, from what it has; the form is that of the whole systems."""
    operands = (a, b, c, d) if where is None else (a, b, c, d, where)
    if whole_is_less(form, cut, operands):
        return of_whole_systems(custom_call.call_gathered, form, cut, operands, where is not None)
    return solve_with(form, cut, (a, b, c), d, where, ())[0]


def solve_factored(form: Form, cut: Cut, a: Any, b: Any, c: Any, d: Any, joints: Any, where: Any = None) -> Any:
    """As `solve`, with what `tridiag.xla.split_factors` has found of the matrix."""
    if never_in_parts(form, cut):
        return solve(form, cut, a, b, c, d, where)
    return solve_with(form, cut, (a, b, c), d, where, (), joints)[0]


def adjoint(form: Form, cut: Cut, a: Any, b: Any, c: Any, g: Any, x: Any, where: Any = None) -> Any:
    """w = A^-T g and the cotangents of a, b and c, in the rows of a device."""
    operands = (a, b, c, g, x) if where is None else (a, b, c, g, x, where)
    if whole_is_less(form, cut, operands):
        return of_whole_systems(custom_call.call_adjoint, form, cut, operands, where is not None)
    axis, n = form.axis, x.shape[form.axis]
    turned = form._replace(transpose=not form.transpose)
    w, ends = solve_with(
        turned, cut, (a, b, c), g, where, [] if form.transpose else [row_at(x, k, axis) for k in (-1, 0)]
    )
    ends = ends or rows_beside(cut, w, axis, form.periodic)
    y = w if form.transpose else x
    wider = lax.optimization_barrier(jnp.concatenate([ends[0], y, ends[1]], axis))  # else written in each product again
    before, behind = (lax.slice_in_dim(wider, k, k + n, axis=axis) for k in (0, 2))
    other, row = x if form.transpose else w, ops.positions(n, x.ndim, axis, x) + index(cut) * n
    inside = row < form.n - 1 if n * cut.parts > form.n else True
    return w, -(other * before), -(w * x), jnp.where(inside, -(other * behind), 0)


def whole_is_less(form: Form, cut: Cut, operands: Any) -> bool:
    """Where parts do not do, or rows are so few that to exchange them takes less time than to reduce and to judge."""
    systems = math.prod(batch_of(form, operands))
    return never_in_parts(form, cut) or short(cut.parts, systems, -(-form.n // cut.parts))


def short(devices: int, systems: int, rows: int) -> bool:
    """Whether so many rows of a device are few in all."""
    few = rows <= SHORT_ROWS and devices <= min(FEW_DEVICES, systems)
    return few and words_of_own(devices, rows) * systems <= SHORT_WORDS


def batch_of(form: Form, operands: Any) -> tuple[int, ...]:
    """The batch axes of the systems that a device has rows of."""
    lengths = [max(some) for some in zip(*(x.shape for x in operands), strict=True)]
    return tuple(lengths[: form.axis] + lengths[form.axis + 1 :])


def never_in_parts(form: Form, cut: Cut) -> bool:
    """Where a device has a row, whose entries are fewer than what it would tell, or a ring ends within its rows."""
    return form.pivoting is True or form.n <= cut.parts or (form.periodic and form.n % cut.parts != 0)


def solve_with(
    form: Form, cut: Cut, bands: Bands, d: Any, where: Any, ends: Any, joints: Any = None
) -> tuple[Any, Any]:
    """x; and of ``ends``, the last and the first entries of some array, those of the devices before and behind."""
    given, own = local(form, cut, bands, d, where)
    bands, d = given[:3], given[3]
    anew = functools.partial(solve_reduced, form, cut, own, bands, d, ends, joints)
    chunks = ends_enough(own, d.dtype)
    if chunks is None:
        return anew(True)
    return solve_from_ends(form, cut, own, chunks, bands, d, ends, lambda: anew(False)[0])


def solve_reduced(
    form: Form, cut: Cut, own: Form, bands: Bands, d: Any, ends: Any, joints: Any, ask: bool
) -> tuple[Any, Any]:
    """`solve_with` of all rows; ``ask``: the neighbours, if that may be enough."""
    reduced = parts.reduce(CustomCalls, own, bands, d)
    joint = join(form, cut, own, bands, reduced, ends, joints, ask)
    x, accurate = parts.finished(CustomCalls, own, bands, d, reduced, joint.known)
    doubtful = ~accurate
    again = functools.partial(solve_whole, form, cut, own)
    return lax.cond(anywhere(doubtful, cut), again, lambda x, *_: x, x, doubtful, bands, d), joint.ends


def rows_beside(cut: Cut, x: Any, axis: int, periodic: bool) -> tuple[Any, Any]:
    """The last row of the device before and the first of the one behind; zero where there is none."""
    return passed(cut, row_at(x, -1, axis), row_at(x, 0, axis), periodic)


# ------------------------------------------------------------------------------------------------ what a device has


def local(form: Form, cut: Cut, bands: Bands, d: Any, where: Any) -> tuple[tuple[Any, ...], Form]:
    """Bands and right sides without rows that are taken out, and their form."""
    if np.dtype(d.dtype).kind == "c":
        bands = tuple(x.astype(d.dtype) for x in bands)
    given = [*bands, d] if where is None else [*bands, d, where]
    shape = tuple(map(max, *(x.shape for x in given)))
    own = form._replace(shape=shape, matrix_shape=shape, overwrite_d=False)
    if where is not None:
        keep = jnp.broadcast_to(where, shape)
        above, below = (moved(cut, keep, own.axis, by, form.periodic) for by in (1, -1))
        bands, d = without_rows(bands, keep, above, below), jnp.where(keep, d, 0)
    if padded(form, cut, own):
        bands, d = without_padding(form, cut, own, bands, d)
    return (*bands, d), own


def padded(form: Form, cut: Cut, own: Form) -> bool:
    """Whether the last devices have rows that are none, so that all have as many."""
    return own.n * cut.parts > form.n


def without_padding(form: Form, cut: Cut, own: Form, bands: Bands, d: Any) -> tuple[Bands, Any]:
    """Rows behind the last one are those of the identity."""
    row = ops.positions(own.n, len(own.shape), own.axis, d) + index(cut) * own.n
    (a, b, c), there = bands, row < form.n
    a, c = jnp.where(there, a, 0), jnp.where(row < form.n - 1, c, 0)
    return (a, jnp.where(there, b, 1), c), jnp.where(there, d, 0)


def without_rows(bands: Bands, keep: Any, above: Any, below: Any) -> Bands:
    """Rows that ``keep`` does not have are those of the identity; couplings to them, and to such beside, are zero."""
    a, b, c = bands  # a[i] couples rows i - 1 and i, also of the transposed matrix
    return jnp.where(keep & above, a, 0), jnp.where(keep, b, 1), jnp.where(keep & below, c, 0)


# ------------------------------------------------------------------------------------------------ what joins them


def join(
    form: Form, cut: Cut, own: Form, bands: Bands, reduced: Reduced, ends: Any, joints: Any = None, ask: bool = True
) -> Joint:
    """The first and last unknowns beside all devices: from their neighbours, from all where that is not enough.

    ``joints``: what factors have, which counts where they are of as many devices.
    """
    relations, couplings = reduced.relations, couplings_of(own, bands, Chunks(1, own.n))
    every = functools.partial(join_all, form, cut, relations, couplings, ends)
    if joints is not None:
        spread, kept = kept_of(joints, cut, relations.last)
        anew = functools.partial(join, form, cut, own, bands, reduced, ends, None, ask)
        return lax.cond(spread, functools.partial(every, kept), anew)
    alone = always_right(cut.parts, form.periodic)
    dtype = relations.last.dtype
    if not alone and not (ask and may_pay(cut.parts, relations.last.size, own.n, form.periodic, dtype)):
        return every()
    joint, right = join_neighbours(form, cut, own, relations, couplings, ends)
    if alone:
        return joint
    return lax.cond(anywhere(~right, cut), every, lambda: joint)


def join_all(form: Form, cut: Cut, relations: Relations, couplings: Any, ends: Any, kept: Any = None) -> Joint:
    """`join` from one exchange, or from two smaller ones, of all devices; ``kept``: what they know of matrices."""
    before, behind = couplings
    told = [*relations, before, behind] if form.transpose else [*parts.coupled(relations, before, behind)]
    exchanged = [*told, *ends]
    if kept is not None:
        own_part = lax.dynamic_index_in_dim(kept, index(cut), keepdims=False)
        exchanged = [relations.last, relations.first]
        told = [*parts.with_right_sides(relations.last, relations.first, own_part)]
    flat = jnp.stack([x.reshape(-1) for x in exchanged])
    alike = flat[:0] if kept is None else kept.reshape(-1, flat.shape[1])
    own = functools.partial(joined, form, len(ends))
    e, f, last, *around = (x.reshape(before.shape) for x in from_all(own, cut, flat, alike, RETURNED + len(ends)))
    first = parts.first_of(ops, Relations(*told[:6]), e, last)
    if form.transpose:
        return Joint(Known(e, first, last, f), around)
    e, f = (jnp.where(x == 0, 0, entry * x) for entry, x in ((before, e), (behind, f)))
    return Joint(Known(e, first, last, f), around)


def joined(form: Form, ends: int, found: Any, kept: Any) -> Any:
    """What every device needs to know, from what every device has told: (devices, numbers, systems).

    ``kept``: what devices know of matrices, (numbers of all devices, systems).
    """
    if len(kept):
        of_matrix = kept.reshape(len(found), KEPT, -1).swapaxes(0, 1)
        found = jnp.stack(parts.with_right_sides(found[:, 0], found[:, 1], of_matrix), 1)
    relations, rest = Relations(*(found[:, k] for k in range(6))), [found[:, k] for k in range(6, found.shape[1])]
    around = (parts.preceding(ops, rest[1], 0), parts.following(ops, rest[0], 0)) if form.transpose else None
    known, coupled = parts.join(ops, custom_call.call, relations, form.periodic, around)
    beside: list[Any] = []
    if ends:
        pair = parts.preceding(ops, rest[-2], 0), parts.following(ops, rest[-1], 0)
        beside = [jnp.where(x == 0, 0, end) for x, end in zip(coupled, pair, strict=True)]
    return jnp.stack([known.e, known.f, known.last, *beside], 1)


def kept_of(joints: Any, cut: Cut, like: Any) -> tuple[Any, Any]:
    """Whether factors are of as many devices, and what they have of matrices: (devices, 4, *systems)."""
    kept = joints[..., 1 : 1 + KEPT * cut.parts].astype(like.dtype)
    kept = jnp.moveaxis(kept.reshape(*kept.shape[:-1], cut.parts, KEPT), (-2, -1), (0, 1))
    return joints.reshape(-1)[0].real == cut.parts, jnp.broadcast_to(kept, (cut.parts, KEPT, *like.shape))


def may_pay(devices: int, systems: int, rows: int, periodic: bool, dtype: Any) -> bool:
    """Whether to ask the neighbours first: they know enough, or so many rows may let couplings decay, and words count.

    A decimal digit a row is the decay of a matrix whose diagonal is ten times as large as what is beside it.
    """
    if devices == 2:
        return always_right(devices, periodic)
    large = worth_two(devices, systems, TOLD, RETURNED) or TOLD * (devices - 1) * systems >= WORTH_ASKING
    return large and rows >= jnp.finfo(dtype).precision


def always_right(devices: int, periodic: bool) -> bool:
    """Two parts at the ends of a system: what would be dropped is not there."""
    return devices == 2 and not periodic


def exchange(devices: int, systems: int, rows: int, periodic: bool, transpose: bool, dtype: Any) -> str:
    """What is exchanged of systems in parts, in words."""
    couplings = 2 * transpose
    beside, (how, words) = BESIDE + couplings, words_of_all(devices, systems, TOLD + couplings, RETURNED)
    ends_first = with_ends(rows, systems, np.dtype(dtype)) is not None
    if always_right(devices, periodic):
        again = "; as many again where couplings do not decay within devices" * ends_first
        return f"neighbours alone, {beside // 2} words received for each system{again}"
    if not ends_first and not may_pay(devices, systems, rows, periodic, dtype):
        return f"{how}, {words:.3g} words received for each system"
    return (
        f"neighbours alone, {beside} words received for each system, where couplings decay within devices; "
        f"else {how} besides, {words:.3g} words"
    )


def exchange_of_whole(devices: int, systems: int, n: int, periodic: bool, pivoting: Any) -> str | None:
    """The same where rows are exchanged as they are; None where systems stay in parts."""
    form, rows = Form((n,), (n,), 0, periodic=periodic, pivoting=pivoting), -(-n // devices)
    if not (never_in_parts(form, Cut((), devices)) or short(devices, systems, rows)):
        return None
    if systems < devices:
        return "all_gather, and every device solves them whole"
    return f"whole systems by two all_to_all, {words_of_own(devices, rows):.3g} words received for each system"


def exchange_of_factors(devices: int, systems: int) -> str:
    """What factoring exchanges, and a later solve of one right side a matrix, in words."""
    how, words = words_of_all(devices, systems, TOLD - KEPT, RETURNED)
    return (
        f"one all_gather, {KEPT * (devices - 1)} words received for each system; "
        f"each later solve {how}, {words:.3g} words"
    )


# ------------------------------------------------------------------------------------------------ the promise


def solve_whole(form: Form, cut: Cut, own: Form, x: Any, doubtful: Any, bands: Bands, d: Any) -> Any:
    """x, with the systems that are doubtful on any device solved whole."""

    def run(shape: Shape, operands: Any, _: Any) -> Any:
        return custom_call.call_gathered(
            form._replace(shape=shape, matrix_shape=shape, axis=1, overwrite_d=False), *operands
        )

    return computed_whole(run, cut, form.n, own.axis, x, doubtful, (*bands, d))


def of_whole_systems(function: Any, form: Form, cut: Cut, operands: Any, masked: bool) -> Any:
    """As `gathered`, where systems are enough for all devices: each computes its share of them."""
    batch = batch_of(form, operands)
    if math.prod(batch) < cut.parts:
        return gathered(function, form, cut, operands, masked)
    flat = form._replace(shape=(0, form.n), axis=1, overwrite_d=False)

    def of_share(*operands: Any) -> Any:
        return function(flat.narrowed([x.shape for x in operands], masked), *operands)

    return from_own_systems(cut, of_share, form.n, form.axis, operands, batch)


def gathered(function: Any, form: Form, cut: Cut, operands: Any, masked: bool) -> Any:
    """What ``function(form, *operands)`` gives in the rows of a device, from the rows of all."""

    def of_whole(*operands: Any) -> Any:
        return function(form.narrowed([x.shape for x in operands], masked), *operands)

    return from_all_rows(cut, of_whole, form.n, form.axis, operands)


def product(form: Form, a: Any, b: Any, c: Any, x: Any, where: Any) -> Any:
    """A x or A^T x in the rows of a device, inside `jax.shard_map`."""
    cut, axis, periodic = form.cut, form.axis, form.periodic
    assert cut is not None
    x = jnp.broadcast_to(x, form.shape)
    if where is not None:
        keep = jnp.broadcast_to(where, form.shape)
        x = jnp.where(keep, x, 0)
    lone = [end & (not periodic) for end in at_ends(cut, form, x)]
    if where is not None:
        lone = [
            lone[0] | ~moved(cut, keep, axis, 1, periodic) | ~keep,
            lone[1] | ~moved(cut, keep, axis, -1, periodic) | ~keep,
        ]
        b = jnp.where(keep, b, 1)
    a, c = jnp.where(lone[0], 0, a), jnp.where(lone[1], 0, c)
    if form.transpose:
        return moved(cut, c * x, axis, 1, periodic) + b * x + moved(cut, a * x, axis, -1, periodic)
    return a * moved(cut, x, axis, 1, periodic) + b * x + c * moved(cut, x, axis, -1, periodic)


def at_ends(cut: Cut, form: Form, x: Any) -> tuple[Any, Any]:
    """Where the first row of all is, and where the last."""
    row = ops.positions(form.n, x.ndim, form.axis, x) + index(cut) * form.n
    return row == 0, row == form.n * cut.parts - 1


def moved(cut: Cut, x: Any, axis: int, by: int, periodic: bool) -> Any:
    """x[i - by] at row i, for by = 1 or -1, across devices."""
    before, behind = rows_beside(cut, x, axis, periodic)
    n = x.shape[axis]
    if by == 1:
        return jnp.concatenate([before, lax.slice_in_dim(x, 0, n - 1, axis=axis)], axis)
    return jnp.concatenate([lax.slice_in_dim(x, 1, n, axis=axis), behind], axis)
