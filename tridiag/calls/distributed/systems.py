"""Systems whose rows lie on several devices: reduced, joined and finished (`tridiag.parts`), with derivatives.

One gather of six numbers a system, eight of a transposed matrix, whose couplings the neighbours have. Then a flag goes
round: only where some system has no certificate in some part, or a row between parts a residual that is more than
rounding, are such systems gathered, and solved whole by all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tridiag.algorithms import parts as relations
from tridiag.calls import execute, parts
from tridiag.calls.distributed import exchange
from tridiag.calls.distributed.placements import Cut
from tridiag.calls.plan import prepare
from tridiag.calls.singular import message
from tridiag.errors import SingularSystemError

AT_ONCE = 2**21  # unknowns of systems that are gathered at a time, or one system
Bands = tuple[Any, Any, Any]


class Course(NamedTuple):
    """What is asked of systems, beside their entries."""

    cut: Cut
    axis: int
    shape: tuple[int, ...]  # on this device
    periodic: bool
    transpose: bool
    pivoting: bool | str
    check: bool

    @property
    def batch(self) -> tuple[int, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def systems(self) -> int:
        return math.prod(self.batch)

    @property
    def rows(self) -> int:
        return self.shape[self.axis]

    @property
    def ends(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])


class Found(NamedTuple):
    """The unknowns of this device, and those before and behind them: 0 where there are none."""

    x: Any
    before: Any
    behind: Any


class Solve(torch.autograd.Function):
    """x in the rows of this device; the rule is that of `tridiag.derivatives.torch_systems`."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, d: Any, where: Any, course: Course) -> Any:
        found = solve((a, b, c), d, where, course)
        ctx.course, ctx.d_shape, ctx.ends = course, d.shape, found[1:]
        ctx.save_for_backward(a, b, c, where, found.x)
        return found.x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, b, c, where, x = ctx.saved_tensors
        course, again = ctx.course, torch.is_grad_enabled()
        turned = course._replace(transpose=not course.transpose, check=False)
        if again:
            w = Solve.apply(a, b, c, g.conj(), where, turned).conj()
            shifted = w if course.transpose else x
            before, behind = exchange.Neighbours.apply(shifted, course.axis, course.cut, course.periodic)
        else:
            found = solve((a, b, c), g.conj(), where, turned)
            w = found.x.conj()
            before, behind = (y.conj() for y in found[1:]) if course.transpose else ctx.ends
        y, other = (w, x.conj()) if course.transpose else (x.conj(), w)
        if not course.transpose:
            before, behind = before.conj(), behind.conj()
        above = torch.cat([before, y], course.axis).narrow(course.axis, 0, course.rows)
        below = torch.cat([y, behind], course.axis).narrow(course.axis, 1, course.rows)
        times = torch.mul if again else product  # whose derivatives are wrong where it is 0
        grads = [
            reduced_to(like, -times(other, beside)) if needed else None
            for like, beside, needed in zip((a, b, c), (above, y, below), ctx.needs_input_grad, strict=False)
        ]
        return *grads, w.sum_to_size(ctx.d_shape) if ctx.needs_input_grad[3] else None, None, None


def product(x: Any, y: Any) -> Any:
    """x y; 0 beside a row that is not there or taken out, also of systems that are NaN."""
    return torch.where((x == 0) | (y == 0), 0, x * y)


def reduced_to(like: Any, g: Any) -> Any:
    """Summed over what is shared; the real part for a real entry."""
    g = g.real if g.is_complex() and not like.is_complex() else g
    return g.sum_to_size(like.shape)


def solve(bands: Bands, d: Any, where: Any, course: Course) -> Found:
    """x, from what this device has: tensors in memory, of one rank."""
    a, b, c, d = (x.detach().resolve_conj() for x in (*bands, d))
    x, before, behind = (d.new_empty(shape) for shape in (course.shape, course.ends, course.ends))
    if course.systems == 0:
        return Found(x, before, behind)
    if course.pivoting is True:
        doubtful = torch.ones(course.batch, dtype=torch.bool)
    else:
        found = by_parts((a, b, c), d, where, course)
        some = torch.tensor(found is not None and not math.isfinite(found.x.abs().sum()))
        doubtful = torch.zeros(course.batch, dtype=torch.bool)
        x, before, behind = found or (x, before.zero_(), behind.zero_())
        if not exchange.anywhere(some, course.cut):
            return Found(x, before, behind)
        if found is not None:
            doubtful = ~torch.isfinite(x).all(course.axis)
        doubtful = exchange.anywhere(doubtful, course.cut)
    return solve_whole(Found(x, before, behind), doubtful, (a, b, c), d, where, course)


def by_parts(bands: Bands, d: Any, where: Any, course: Course) -> Found | None:
    """x, NaN in systems that are to be solved whole; None on devices without rows, which take part in the exchange."""
    cut, axis, count = course.cut, course.axis, course.cut.parts
    own: Bands = bands
    couplings: list[Any] = []
    if course.rows and course.transpose:
        own, couplings = turned(bands, course)
    names = ("a", "b", "c", "d")
    if course.rows:
        told = [*parts.reduce(dict(zip(names, (*own, d), strict=True)), axis, where).reshape(6, -1), *couplings]
    else:
        told = [d.new_zeros(course.systems)] * (8 if course.transpose else 6)
    gathered = exchange.gather(torch.stack(told), cut)[:count]
    if course.rows == 0:
        return None
    if course.transpose:
        gathered, (start, end) = coupled(gathered, course)
        a, b, c = own
        own = replaced(a, start, axis, 0), b, replaced(c, end, axis, course.rows - 1)
    values = parts.join(gathered, course.periodic)[cut.own].reshape(4, *course.batch)
    x = parts.finish(dict(zip(names, (*own, d), strict=True)), values, axis, where)
    before, _, _, behind = values.unsqueeze(axis + 1)
    return Found(x, before, behind)


# ------------------------------------------------------------------------------------------------ transposed matrices


def turned(bands: Bands, course: Course) -> tuple[Bands, list[Any]]:
    """The transposed matrix, 1 where the neighbours have its entries; and what they lack: its last c, its first a."""
    (a, b, c), axis, rows = bands, course.axis, course.rows
    a, c = a.expand(course.shape), c.expand(course.shape)
    one = a.new_ones(course.ends)
    above = torch.cat([one, c.narrow(axis, 0, rows - 1)], axis)
    below = torch.cat([a.narrow(axis, 1, rows - 1), one], axis)
    ends = [x.reshape(-1) for x in (c.narrow(axis, rows - 1, 1), a.narrow(axis, 0, 1))]
    return (above, b, below), ends


def coupled(gathered: Any, course: Course) -> tuple[Any, Any]:
    """The relations of all devices with their couplings, and the couplings of this one."""
    before, behind = gathered[:, 6].roll(1, 0), gathered[:, 7].roll(-1, 0)
    told = torch.stack(relations.coupled(relations.Relations(*gathered[:, :6].unbind(1)), before, behind, product), 1)
    return told, [x[course.cut.own].reshape(course.ends) for x in (before, behind)]


def replaced(x: Any, row: Any, axis: int, at: int) -> Any:
    """x, which is written to, with another row."""
    x.narrow(axis, at, 1).copy_(row.real if row.is_complex() and not x.is_complex() else row)
    return x


# ------------------------------------------------------------------------------------------------ systems as a whole


def solve_whole(found: Found, doubtful: Any, bands: Bands, d: Any, where: Any, course: Course) -> Found:
    """The same with the systems that are doubtful gathered by all devices, and solved."""
    cut, n = course.cut, sum(course.cut.rows)
    given = [lined_up(x, course) for x in (*bands, d) + (() if where is None else (where,))]
    listed = doubtful.reshape(-1).nonzero()[:, 0]
    x, ends = lined_up(found.x, course).clone(), [y.reshape(-1) for y in found[1:]]
    first, singular, column = sum(cut.rows[: cut.own]), [], None
    for those in listed.split(max(1, AT_ONCE // n)):
        a, b, c, right, *mask = (gathered_rows(y[those], course) for y in given)
        whole, bad, pivot = solved((a, b, c), right, mask[0] if mask else None, course)
        singular.append(those[bad])
        column = pivot if column is None else column
        x[those] = whole[:, first : first + course.rows]
        for y, at in zip(ends, (first - 1, first + course.rows), strict=True):
            there = course.rows > 0 and (course.periodic or 0 <= at < n)
            y[those] = whole[:, at % n] if there else 0
    back = x.reshape(*course.batch, course.rows).movedim(-1, course.axis).contiguous()
    if course.check:
        raise_if_any(torch.cat(singular), column, back, course)
    return Found(back, *(y.reshape(course.ends) for y in ends))


def lined_up(x: Any, course: Course) -> Any:
    """Systems along the first axis, rows along the second."""
    return x.expand(course.shape).movedim(course.axis, -1).reshape(course.systems, course.rows)


def gathered_rows(x: Any, course: Course) -> Any:
    """The rows of all devices: (systems, n)."""
    most = max(course.cut.rows)
    kind = x.to(torch.uint8) if x.dtype == torch.bool else x
    padded = torch.nn.functional.pad(kind, (0, most - course.rows))
    found = exchange.gather(padded, course.cut)
    whole = torch.cat([part[:, :rows] for part, rows in zip(found, course.cut.rows, strict=True)], 1)
    return whole.to(x.dtype)


def solved(bands: Bands, d: Any, where: Any, course: Course) -> tuple[Any, Any, int | None]:
    """x of whole systems, which of them are singular, and the column of the first one's zero pivot.

    All are the same on every device.
    """
    a, b, c = bands
    call = prepare(
        "solve", {"a": a, "b": b, "c": c, "d": d}, where=where, pivoting=course.pivoting, periodic=course.periodic,
        transpose=course.transpose, backend="auto",
    )  # fmt: skip
    singular = torch.zeros(len(d), dtype=torch.bool)
    try:
        return execute.solve(call, call.plan.backend, course.check), singular, None
    except SingularSystemError as error:
        singular[torch.from_numpy(error.indices[:, 0])] = True
        return error.x, singular, error.column


def raise_if_any(singular: Any, column: int | None, x: Any, course: Course) -> None:
    """Raise `SingularSystemError` for systems that are; the column of the first one's zero pivot."""
    if not len(singular):
        return
    places = torch.stack(torch.unravel_index(singular, course.batch), 1) if course.batch else singular[:, None][:, :0]
    indices = places.numpy()
    raise SingularSystemError(message(indices, column, course.batch, course.periodic, more=""), indices, x, column)
