"""Recurrences whose rows lie on several CPU devices, where each begins with what the last rows before it end with.

Where the product of some coefficients is less than rounding, the state behind a device does not depend on the one
before it: few rows are read twice, and each device tells its neighbour one number a sequence. Then every device
computes its values, which show whether rounding hides what was dropped. A flag goes round: where it does not in some
sequence all are computed another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.xla import totals
from tridiag.xla.doubtful import tried_first

ROWS = 128, 256  # in which products may become less than rounding
FEWEST = 8  # times as many rows has a device that reads the last ones alone; with fewer it reads all
LEAST = 64  # rows of a device whose products may


def from_last_rows(part: Any, kind: str, a: Any, start: Any, state_at: Any, anew: Callable[[Any], Any]) -> Any:
    """y of a `tridiag.xla.split_recurrences.Part` from the last rows before it, where that is right; else ``anew``.

    ``state_at(y, k)``: the state behind row k; ``anew(told)``: y from what all devices tell, of all their rows.
    """
    own, cut, axis, n = part.own, part.cut, part.own.axis, part.own.n
    if n < LEAST:
        return anew(None)
    width = max(ROWS[0], min(ROWS[1], n // FEWEST))
    width = n if n < FEWEST * width else width
    rows = (0, width) if own.backward else (n - width, n)
    some = own._replace(shape=(*own.shape[:axis], width, *own.shape[axis + 1 :]))
    given = [x if x.shape[axis] == 1 else lax.slice_in_dim(x, *rows, axis=axis) for x in (a, part.x)]
    told = totals.total_of(kind, some, *given)
    pairs = [(k + 1, k) if own.backward else (k, k + 1) for k in range(cut.parts - 1)]
    start = jnp.broadcast_to(start, told.value.shape)
    before = jnp.where(part.place == 0, start, lax.ppermute(told.value, cut.names, pairs))

    def run() -> tuple[Any, Any]:
        y = part.from_states(before)
        earlier = before if width == n else state_at(y, width if own.backward else n - width - 1)
        hidden = told.hides(earlier) & (jnp.abs(told.value) < jnp.inf)
        return y, (hidden | ~part.followed).all()

    promising = (told.decayed() | ~part.followed).all()
    return tried_first(run, lambda: anew(told if width == n else None), cut, promising, own.shape, part.x)
