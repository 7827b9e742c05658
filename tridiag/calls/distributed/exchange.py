"""What devices tell each other along one dimension of a mesh; every device calls the same, in the same order."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.distributed import _functional_collectives as collectives

from tridiag.calls.distributed.placements import Cut

ALL_GATHER: Any = getattr(collectives, "all_gather_single", None) or collectives.all_gather_tensor  # until PyTorch 2.12


def gather(x: Any, cut: Cut) -> Any:
    """What all devices have, of one shape, along a new first axis."""
    if x.is_complex():
        return torch.view_as_complex(gather(torch.view_as_real(x.resolve_conj()), cut))
    return settled(ALL_GATHER(x.contiguous()[None], 0, cut.place))


def total(x: Any, cut: Cut) -> Any:
    """The sum over all devices."""
    if x.is_complex():
        return torch.view_as_complex(total(torch.view_as_real(x.resolve_conj()), cut))
    return settled(collectives.all_reduce(x.contiguous(), "sum", cut.place))


def anywhere(x: Any, cut: Cut) -> Any:
    """Whether it is so on any device, of a boolean tensor."""
    return any_along(x, *cut.place)


def any_along(x: Any, mesh: Any, dim: int) -> Any:
    """The same along a dimension of any mesh."""
    return settled(collectives.all_reduce(x.to(torch.uint8).contiguous(), "max", (mesh, dim))) > 0


def settled(x: Any) -> Any:
    return x.wait() if hasattr(x, "wait") else x


class Neighbours(torch.autograd.Function):
    """The last row of the device before, and the first of the one behind: one gather of two words a system.

    Zero where there is none, as at the ends unless ``periodic``, and for devices without rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Any, axis: int, cut: Cut, periodic: bool) -> Any:
        ctx.axis, ctx.cut, ctx.periodic, ctx.shape = axis, cut, periodic, x.shape
        pair = torch.stack([end_row(x, axis, True), end_row(x, axis, False)])
        (last, _), (_, first) = around(gather(pair, cut), cut, periodic)
        return last, first

    @staticmethod
    def backward(ctx: Any, of_last: Any, of_first: Any) -> Any:
        """What is read of a row elsewhere is added to its gradient there."""
        axis, cut = ctx.axis, ctx.cut
        (_, to_first), (to_last, _) = Around.apply(torch.stack([of_last, of_first]), cut, ctx.periodic)
        g = of_last.new_zeros(ctx.shape)
        if ctx.shape[axis] == 0:
            return g, None, None, None
        rows = torch.arange(ctx.shape[axis], device=g.device).reshape((-1,) + (1,) * (len(ctx.shape) - 1 - axis))
        zero = torch.zeros_like(to_first)
        g = torch.where(rows == 0, to_first, zero) + torch.where(rows == ctx.shape[axis] - 1, to_last, zero)
        return g, None, None, None


class Around(torch.autograd.Function):
    """Two values of the devices before and behind; its own transpose, but for the order."""

    @staticmethod
    def forward(ctx: Any, pair: Any, cut: Cut, periodic: bool) -> Any:
        ctx.cut, ctx.periodic = cut, periodic
        return torch.stack(around(gather(pair, cut), cut, periodic))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        """What was read from before goes to the one before."""
        found = gather(g, ctx.cut)
        before, behind = around(found, ctx.cut, ctx.periodic)
        return before[1] + behind[0], None, None


def around(found: Any, cut: Cut, periodic: bool) -> tuple[Any, Any]:
    """What the devices before and behind have told."""
    nothing, own, count = torch.zeros_like(found[0]), cut.own, cut.parts
    if own >= count:
        return nothing, nothing
    before = found[(own - 1) % count] if own > 0 or periodic else nothing
    behind = found[(own + 1) % count] if own < count - 1 or periodic else nothing
    return before, behind


def end_row(x: Any, axis: int, last: bool) -> Any:
    """The first or the last row; zero where there are no rows, and part of the graph there as elsewhere."""
    rows = x.shape[axis]
    if rows == 0:
        return x.sum(axis, keepdim=True).to(x.dtype)
    return x.narrow(axis, rows - 1 if last else 0, 1)
