"""What devices exchange that have rows of the same systems: with their neighbours, or all with all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.problems.forms import Cut

WORTH_TWO = 64  # systems for each device to join: two exchanges of fewer words then outweigh their messages


def index(cut: Cut) -> Any:
    """Which device this is, in the order of rows."""
    return lax.axis_index(cut.names)


def anywhere(x: Any, cut: Cut) -> Any:
    """Whether any device has a true entry: one number goes round."""
    return lax.pmax(jnp.any(x).astype(jnp.int32), cut.names) > 0


def of_device(cut: Cut, place: int, x: Any) -> Any:
    """What one device has; a type of JAX says then that it is the same on all."""
    return lax.psum(jnp.where(index(cut) == place, x, 0), cut.names)


def all_rows(cut: Cut, x: Any, n: int, axis: int) -> Any:
    """The n rows of all devices, gathered."""
    return lax.slice_in_dim(lax.all_gather(x, cut.names, axis=axis, tiled=True), 0, n, axis=axis)


def own_rows(cut: Cut, x: Any, rows: int, axis: int) -> Any:
    """Those of this device, of an array with the rows of all; the last devices may have less, and zeros behind."""
    pads = [(0, rows * cut.parts - length if k == axis else 0) for k, length in enumerate(x.shape)]
    return lax.dynamic_slice_in_dim(jnp.pad(x, pads), index(cut) * rows, rows, axis)


def from_all_rows(cut: Cut, function: Callable[..., Any], n: int, axis: int, operands: Sequence[Any]) -> Any:
    """What ``function(*operands)`` gives in the rows of this device, of operands with the n rows of all.

    An operand that has another length than a device has rows is the same in all rows.
    """
    rows = -(-n // cut.parts)
    found = function(*(all_rows(cut, x, n, axis) if x.shape[axis] == rows else x for x in operands))
    return jax.tree.map(lambda x: own_rows(cut, x, rows, axis), found)


def from_own_systems(
    cut: Cut, function: Callable[..., Any], n: int, axis: int, operands: Sequence[Any], batch: Sequence[int]
) -> Any:
    """As `from_all_rows` of ``function(*operands)`` whose operands are (systems, n) or (systems, rows that are alike).

    Every device computes whole systems, its share of those of such a ``batch``: one ``all_to_all`` brings the rows of
    these, another takes results back. Systems that share an operand have one of it.
    """
    rows, systems = -(-n // cut.parts), math.prod(batch)
    share = -(-systems // cut.parts)
    mine = index(cut) * share

    def flat(x: Any) -> Any:
        """(systems of all shares, rows)."""
        found = jnp.broadcast_to(jnp.moveaxis(x, axis, -1), (*batch, x.shape[axis])).reshape(systems, -1)
        return jnp.pad(found, ((0, share * cut.parts - systems), (0, 0)), "edge")

    moving = [k for k, x in enumerate(operands) if x.size > x.shape[axis] == rows]
    told = together([flat(operands[k]) for k in moving])
    found = lax.all_to_all(told, cut.names, 1, 2, tiled=True)[..., :n]
    whole = {k: apart(x, operands[k].dtype) for k, x in zip(moving, found, strict=True)}
    for k, x in enumerate(operands):
        if k not in whole and x.size == x.shape[axis]:
            whole[k] = (all_rows(cut, x, n, axis) if x.size == rows else x).reshape(1, -1)
        elif k not in whole:
            whole[k] = lax.dynamic_slice_in_dim(flat(x), mine, share)
    results, tree = jax.tree.flatten(function(*(whole[k] for k in range(len(operands)))))
    padded = jnp.pad(jnp.stack(results), ((0, 0), (0, 0), (0, rows * cut.parts - n)))
    back = lax.all_to_all(padded, cut.names, 2, 1, tiled=True)[:, :systems]
    return jax.tree.unflatten(tree, [jnp.moveaxis(x.reshape(*batch, rows), -1, axis) for x in back])


def together(some: Sequence[Any]) -> Any:
    """Arrays of one shape, masks too, as one."""
    kind = jnp.result_type(*(x.dtype for x in some))
    return jnp.stack([x.astype(kind) for x in some])


def apart(x: Any, kind: Any) -> Any:
    """One of them as it was."""
    return (x.real if jnp.iscomplexobj(x) and not jnp.issubdtype(kind, jnp.complexfloating) else x).astype(kind)


def words_of_own(devices: int, rows: int) -> float:
    """What each device receives of a system then, of four operands and a result."""
    return 5 * rows * (devices - 1) / devices


def row_at(x: Any, at: int, axis: int) -> Any:
    """A row of a device, of length 1 along the axis."""
    n = x.shape[axis]
    return lax.slice_in_dim(x, at % n, at % n + 1, axis=axis)


def planes(x: Any) -> tuple[Any, ...]:
    """The real numbers that are told of some."""
    return (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)


def of_planes(planes: Sequence[Any]) -> Any:
    """The inverse."""
    return lax.complex(*planes) if len(planes) == 2 else planes[0]


def passed(cut: Cut, to_behind: Any, to_before: Any, periodic: bool) -> tuple[Any, Any]:
    """What the device before passes on to the one behind it, and the one behind back; zero where there is none."""
    count = cut.parts
    if count == 2 and not periodic:  # in one message
        first = index(cut) == 0
        found = sent(cut, jnp.where(first, to_behind, to_before), [(0, 1), (1, 0)])
        nothing = jnp.zeros_like(found)
        return jnp.where(first, nothing, found), jnp.where(first, found, nothing)
    around = range(count) if periodic else range(count - 1)
    up, down = [(k, (k + 1) % count) for k in around], [((k + 1) % count, k) for k in around]
    return sent(cut, to_behind, up), sent(cut, to_before, down)


def sent(cut: Cut, x: Any, pairs: Sequence[tuple[int, int]]) -> Any:
    """What a device gets: of each pair the first one sends x to the second, in the order of rows; else zero.

    ``lax.ppermute`` numbers devices along the axes as the mesh has them, whichever their order in its argument, all
    other collectives as their argument has them. Both agree where axes are named as in the mesh.
    """
    names = tuple(name for name, _ in cut.lengths)
    numbers = np.arange(cut.parts).reshape([length for _, length in cut.lengths])
    number_of = numbers.transpose([names.index(name) for name in cut.names]).reshape(-1).tolist()
    return lax.ppermute(x, names, [(number_of[source], number_of[target]) for source, target in pairs])


def worth_two(devices: int, systems: int, told: int, returned: int) -> bool:
    """Whether each device joins its share of the systems: so many numbers of each are told, so many returned."""
    return systems >= WORTH_TWO * devices and told * devices > told + returned


def words_of_all(devices: int, systems: int, told: int, returned: int) -> tuple[str, float]:
    """How all devices exchange so many numbers, and those that each receives of a system."""
    if worth_two(devices, systems, told, returned):
        return "two all_to_all", (told + returned) * (devices - 1) / devices
    return "one all_gather", told * (devices - 1)


def from_all(join: Callable[[Any, Any], Any], cut: Cut, told: Any, known: Any, returned: int) -> Any:
    """What this device is to know, (``returned``, systems), from what all tell, (numbers, systems).

    ``join(told, known)`` finds it for all of them, (devices, returned, systems), from (devices, numbers, systems), and
    from (numbers, systems) of what all devices know alike. Every device joins all systems, or, of many, its share.
    """
    count, systems = told.shape
    if not worth_two(cut.parts, systems, count, returned):
        return lax.dynamic_index_in_dim(join(lax.all_gather(told, cut.names), known), index(cut), keepdims=False)
    share = -(-systems // cut.parts)
    told, known = (jnp.pad(x, ((0, 0), (0, share * cut.parts - systems))) for x in (told, known))
    found = lax.all_to_all(told.reshape(count, cut.parts, share).swapaxes(0, 1), cut.names, 0, 0)
    values = join(found, lax.dynamic_slice_in_dim(known, index(cut) * share, share, 1))
    values = lax.all_to_all(values, cut.names, 0, 0)
    return values.swapaxes(0, 1).reshape(returned, share * cut.parts)[:, :systems]
