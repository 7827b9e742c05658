"""Products with matrices whose rows lie on several devices: one gather of two words a system, four with a mask."""

from __future__ import annotations

from typing import Any

import torch

from tridiag.calls.distributed import exchange
from tridiag.calls.distributed.placements import Cut
from tridiag.calls.plan import Call


def with_neighbours(call: Call, y: Any, cut: Cut, periodic: bool) -> Any:
    """The product, from that of the rows of this device alone: what they are coupled to beside them is added."""
    form, (a, _, c, mask) = call.form, call.matrix
    ends = (*form.shape[: form.axis], 1, *form.shape[form.axis + 1 :])
    x, start, end = call.d, exchange.end_row(a, form.axis, False), exchange.end_row(c, form.axis, True)
    if mask is not None:
        x = torch.where(mask, x, 0)
        start, end = cut_couplings(mask, start, end, ends, form.axis, cut, periodic)
    last, first = (exchange.end_row(x, form.axis, k).expand(ends) for k in (True, False))
    pair = torch.stack([end * last, start * first] if form.transpose else [last, first])
    before, behind = exchange.Around.apply(pair, cut, periodic)
    terms = (before[0], behind[1]) if form.transpose else (start * before[0], end * behind[1])
    if form.n == 0:  # none of these is there; all devices have one graph
        return y + (terms[0] + terms[1])
    kept = 1 if mask is None else mask
    rows = torch.arange(form.n).reshape((-1,) + (1,) * (len(ends) - 1 - form.axis))
    for row, term in zip((0, form.n - 1), terms, strict=True):
        y = torch.where((rows == row) & (kept == 1), y + term, y)
    return y.to(call.plan.out_dtype)


def cut_couplings(mask: Any, start: Any, end: Any, ends: Any, axis: int, cut: Cut, periodic: bool) -> tuple[Any, Any]:
    """The couplings of the first row and of the last, 0 where one of the two rows is taken out."""
    own = [exchange.end_row(mask, axis, k).expand(ends) for k in (True, False)]
    found = exchange.gather(torch.stack(own).to(torch.uint8), cut)
    (before, _), (_, behind) = exchange.around(found, cut, periodic)
    return torch.where(own[1] & (before > 0), start, 0), torch.where(own[0] & (behind > 0), end, 0)
