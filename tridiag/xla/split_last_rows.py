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

from tridiag.kernels.totals.words import FIRST_TRIED
from tridiag.xla import totals
from tridiag.xla.doubtful import tried_first
from tridiag.xla.exchange import sent

ROWS = 128, 256  # in which products may become less than rounding
FEWEST = 8  # times as many rows has a device that reads the last ones alone; with fewer it may read all
LEAST = 64  # rows of a device whose products may


def counts(most: int) -> list[int]:
    """How many of the last rows may be told of, but for all of them."""
    return [FIRST_TRIED << k for k in range(most.bit_length()) if FIRST_TRIED << k < most]


def from_last_rows(part: Any, kind: str, a: Any, start: Any, state_at: Any, anew: Callable[[Any], Any]) -> Any:
    """y of a `tridiag.xla.split_recurrences.Part` from the last rows before it, where that is right; else ``anew``.

    ``state_at(y, k)``: the state behind row k of each sequence; ``anew(told)``: y from what all devices tell.
    """
    own, cut, n = part.own, part.cut, part.own.n
    if n < LEAST:
        return anew(None)
    width = max(ROWS[0], min(ROWS[1], n // FEWEST))
    width = n if n < FEWEST * width else width
    last = totals.last_of(kind, own, a, part.x, width)
    told = last.total
    pairs = [(k + 1, k) if own.backward else (k, k + 1) for k in range(cut.parts - 1)]
    start = jnp.broadcast_to(start, told.value.shape)
    before = jnp.where(part.place == 0, start, sent(cut, told.value, pairs))

    def run() -> tuple[Any, Any]:
        y = part.from_states(before)
        told, steps, earlier = last.total, last.steps, before
        for count in reversed(counts(width) + [width] * (width < n)):
            earlier = jnp.where(steps > count, earlier, state_at(y, count if own.backward else n - 1 - count))
        hidden = told.hides(earlier) & (jnp.abs(told.value) < jnp.inf)
        return y, (hidden | ~part.followed).all()

    def otherwise() -> Any:
        if width < n:
            return anew(None)
        every = ((last.steps == n) & (jnp.abs(last.total.value) < jnp.inf)).all()
        return anew(lax.cond(every, lambda: last.total, lambda: totals.total_of(kind, own, a, part.x)))

    promising = (told.decayed() | ~part.followed).all()
    return tried_first(run, otherwise, cut, promising, own.shape, part.x)
