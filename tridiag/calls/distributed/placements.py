"""From DTensors to what one device has of them, and back; and how the axes of a call are cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from tridiag.problems.forms import Shape

Array = Any


class Placed(NamedTuple):
    """An argument, and which axis of the broadcast shape each of its own is."""

    x: Any
    axes: tuple[int, ...]


class Layout(NamedTuple):
    """How the broadcast shape of the arguments is spread over a mesh: which axis each dimension of the mesh cuts."""

    mesh: Any
    shape: Shape
    axis: int  # that of systems or steps
    cuts: tuple[int | None, ...]

    def share(self, axis: int) -> tuple[int, int]:
        """How many entries this device has along an axis, and which is the first."""
        length, first = self.shape[axis], 0
        for dim in [m for m, cut in enumerate(self.cuts) if cut == axis]:
            own = shares(length, self.mesh.size(dim))
            place = self.mesh.get_local_rank(dim)
            length, first = own[place], first + sum(own[:place])
        return length, first

    def cut(self) -> Cut | None:
        """Of the system axis; None: every device has whole systems."""
        dims = [m for m, cut in enumerate(self.cuts) if cut == self.axis]
        if len(dims) > 1:
            raise TypeError(
                f"axis {self.axis}, that of the systems, is sharded over {len(dims)} dimensions of the mesh; wanted "
                f"one at most: redistribute, with Shard({self.axis}) on one of them"
            )
        if not dims or self.mesh.size(dims[0]) == 1:
            return None
        dim = dims[0]
        rows = shares(self.shape[self.axis], self.mesh.size(dim))
        return Cut(self.mesh, dim, rows, self.mesh.get_local_rank(dim))

    def own_batch(self) -> Shape:
        """The lengths of the batch axes on this device."""
        return tuple(self.share(k)[0] for k in range(len(self.shape)) if k != self.axis)

    def cuts_batch(self) -> bool:
        """Whether other devices may have other systems."""
        return any(cut not in (None, self.axis) for cut in self.cuts)

    def batch_index(self, local: Any) -> Any:
        """Batch indices of systems, from those on this device."""
        firsts = [self.share(k)[1] for k in range(len(self.shape)) if k != self.axis]
        return local + np.array(firsts, local.dtype)


class Cut(NamedTuple):
    """How the rows of systems are spread over the devices along one dimension of a mesh."""

    mesh: Any
    dim: int
    rows: tuple[int, ...]  # of each device; those with none come last
    own: int  # which of them this device is

    @property
    def parts(self) -> int:
        """How many devices have rows."""
        return sum(rows > 0 for rows in self.rows)

    @property
    def place(self) -> tuple[Any, int]:
        """Among whom a collective goes round."""
        return self.mesh, self.dim


def shares(length: int, count: int) -> tuple[int, ...]:
    """The lengths that DTensors have on so many devices."""
    most = -(-length // count)
    return tuple(max(0, min(most, length - k * most)) for k in range(count))


def axes_of(shape: Shape, rank: int, axis: int) -> tuple[int, ...]:
    """Which axes of the broadcast shape those of an argument are: one that is 1-D lies along the system axis."""
    return (axis,) if len(shape) == 1 else tuple(range(rank - len(shape), rank))


def axes_of_state(shape: Shape, rank: int, axis: int) -> tuple[int, ...]:
    """The same of a value for each sequence."""
    batch = [k for k in range(rank) if k != axis]
    return tuple(batch[len(batch) - len(shape) :])


# ---------------------------------------------------------------------------------------------------- what is taken


def shapes_of(given: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes of arguments, which are DTensors on one mesh and numbers."""
    first = next(name for name, x in given.items() if isinstance(x, DTensor))
    mesh = given[first].device_mesh
    for name, x in given.items():
        if isinstance(x, int | float | complex | np.generic):
            continue
        if not isinstance(x, DTensor):
            raise TypeError(
                f"{name} is a {type(x).__name__} and {first} a DTensor; wanted DTensors and numbers: pass "
                f"torch.distributed.tensor.distribute_tensor({name}, {first}.device_mesh, placements)"
            )
        if x.device_mesh != mesh:
            raise TypeError(
                f"{name} lies on {x.device_mesh} and {first} on {mesh}; redistribute one to the mesh of the other"
            )
    return {name: tuple(x.shape) if isinstance(x, DTensor) else () for name, x in given.items()}


def layout_of(given: Mapping[str, Placed], shape: Shape, axis: int) -> Layout:
    """How the arguments cut the broadcast shape; they must agree."""
    tensors = {name: placed for name, placed in given.items() if isinstance(placed.x, DTensor)}
    mesh = next(iter(tensors.values())).x.device_mesh
    if mesh.get_coordinate() is None:
        raise TypeError(f"this process is not on {mesh}, where the arguments lie; call this on its devices only")
    cuts: list[int | None] = [None] * mesh.ndim
    by: dict[int, str] = {}
    for name, (x, axes) in tensors.items():
        for dim, placement in enumerate(x.placements):
            if (own := cut_by(name, x, dim, placement)) is None:
                continue
            if x.shape[own] != shape[axes[own]]:
                raise TypeError(
                    f"{name} has length 1 along axis {axes[own]} and is sharded there; pass {name}.redistribute("
                    f"placements=[...]) with Replicate() on dimension {dim} of the mesh"
                )
            if cuts[dim] not in (None, axes[own]):
                raise TypeError(
                    f"dimension {dim} of the mesh cuts axis {cuts[dim]} of {by[dim]} and axis {axes[own]} of {name}; "
                    f"redistribute one of them, so that both are cut alike"
                )
            cuts[dim], by[dim] = axes[own], name
    return Layout(mesh, shape, axis, tuple(cuts))


def cut_by(name: str, x: Any, dim: int, placement: Any) -> int | None:
    """The axis of a tensor that a dimension of the mesh cuts."""
    if type(placement) is Shard:
        return int(placement.dim) % x.ndim
    if type(placement) is Replicate:
        return None
    what = "terms of sums that are still to be taken" if isinstance(placement, Partial) else "neither shards nor copies"
    raise TypeError(
        f"{name} has placement {placement} on dimension {dim} of the mesh, {what}; pass {name}.redistribute("
        "placements=[...]) with Shard(axis) or Replicate()"
    )


def taken(name: str, placed: Placed, layout: Layout) -> Any:
    """What this device has of an argument, with derivatives."""
    x, axes = placed
    if not isinstance(x, DTensor):
        return x
    wanted = wanted_placements(placed, layout)
    if tuple(x.placements) != wanted:
        check_free(name, x, wanted)
        x = x.redistribute(placements=wanted)  # a copy is cut, and nothing sent
    check_lengths(name, Placed(x, axes), layout, wanted)
    shared = tuple(cut is not None and type(p) is Replicate for cut, p in zip(layout.cuts, wanted, strict=True))
    return Taken.apply(x, shared) if x.requires_grad and torch.is_grad_enabled() else local_part(x)


def wanted_placements(placed: Placed, layout: Layout) -> tuple[Any, ...]:
    """Cut where the layout is, but for what is constant along that axis."""
    x, axes = placed
    places = {axis: own for own, axis in enumerate(axes) if x.shape[own] == layout.shape[axis]}
    return tuple(Shard(places[cut]) if cut in places else Replicate() for cut in layout.cuts)


def check_free(name: str, x: Any, wanted: tuple[Any, ...]) -> None:
    """Refuse what would have to be sent elsewhere."""
    kept = [p for p in x.placements if type(p) is Shard]
    cut = [w for p, w in zip(x.placements, wanted, strict=True) if type(p) is Replicate and type(w) is Shard]
    if any(p.dim % x.ndim == w.dim for p, w in itertools.product(kept, cut)):
        raise TypeError(
            f"{name} has placements {tuple(x.placements)} where the others have {wanted}; pass {name}.redistribute("
            f"placements={list(wanted)})"
        )


def check_lengths(name: str, placed: Placed, layout: Layout, wanted: tuple[Any, ...]) -> None:
    """Refuse tensors whose parts have other lengths than `distribute_tensor` gives them."""
    cut = {p.dim for p in wanted if type(p) is Shard}
    expected = [layout.share(axis)[0] if k in cut else placed.x.shape[k] for k, axis in enumerate(placed.axes)]
    found = tuple(local_part(placed.x).shape)
    if found != tuple(expected):
        raise ValueError(
            f"{name}.to_local() has shape {found}; wanted {tuple(expected)}, as distribute_tensor of "
            f"torch.distributed.tensor cuts {tuple(placed.x.shape)}"
        )


def local_part(x: Any) -> Any:
    with torch.no_grad():
        x = x.to_local()
        return x.wait() if hasattr(x, "wait") else x


class Taken(torch.autograd.Function):
    """What a device has of a DTensor; gradients of copies are summed over the devices that read different rows."""

    @staticmethod
    def forward(ctx: Any, x: Any, shared: tuple[bool, ...]) -> Any:
        ctx.mesh, ctx.placements, ctx.shape, ctx.stride = x.device_mesh, x.placements, x.shape, x.stride()
        ctx.shared = shared
        own = local_part(x)
        return own.view_as(own)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        parts = [Partial() if shared else p for shared, p in zip(ctx.shared, ctx.placements, strict=True)]
        x = DTensor.from_local(g, ctx.mesh, parts, run_check=False, shape=ctx.shape, stride=ctx.stride)
        for dim in [m for m, shared in enumerate(ctx.shared) if shared]:  # one at a time: PyTorch warns of several
            parts[dim] = ctx.placements[dim]
            x = x.redistribute(placements=parts)
        return x, None


def given_back(x: Any, layout: Layout, batch: bool = False) -> Any:
    """The DTensor of which this device has x: of the broadcast shape, or of that without the system axis."""
    shape, placements = layout.shape, [Replicate() if cut is None else Shard(cut) for cut in layout.cuts]
    if batch:
        axis, shape = layout.axis, shape[: layout.axis] + shape[layout.axis + 1 :]
        placements = [Replicate() if k in (None, axis) else Shard(k - (k > axis)) for k in layout.cuts]
    return Given.apply(x, layout.mesh, tuple(placements), torch.Size(shape))


class Given(torch.autograd.Function):
    """The DTensor of what the devices have; the gradient of `DTensor.from_local` is not always differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Any, mesh: Any, placements: tuple[Any, ...], shape: Any) -> Any:
        ctx.placements = placements
        stride = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        return DTensor.from_local(x, mesh, placements, run_check=False, shape=shape, stride=stride)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        g = g if tuple(g.placements) == ctx.placements else g.redistribute(placements=ctx.placements)
        shared = (False,) * len(ctx.placements)
        return Taken.apply(g, shared) if torch.is_grad_enabled() else local_part(g), None, None, None
