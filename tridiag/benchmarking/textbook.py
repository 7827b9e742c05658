"""Loops as textbooks have them, and as one writes them first."""

from __future__ import annotations

from typing import Any

import numpy as np


def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The solutions of systems along the last axis by `jax.lax.scan` over rows, without pivoting."""
    import jax.numpy as jnp

    return jnp.moveaxis(thomas_of_rows(*(jnp.moveaxis(x, -1, 0) for x in (a, b, c, d))), 0, -1)


def thomas_of_rows(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The same along the first axis: nothing is transposed."""
    import jax.numpy as jnp
    from jax import lax

    zero = jnp.zeros_like(d[0])
    _, eliminated = lax.scan(forward, (zero, zero), (a, b, c, d))
    return lax.scan(backward, zero, eliminated, reverse=True)[1]


def forward(carry: Any, row: Any) -> Any:
    a, b, c, d = row
    pivot = 1 / (b - a * carry[0])
    carry = c * pivot, (d - a * carry[1]) * pivot
    return carry, carry


def backward(x: Any, row: Any) -> Any:
    x = row[1] - row[0] * x
    return x, x


def align(scores: Any, gap: float) -> Any:
    """The scores of smooth local alignments of pairs, in NumPy: a loop over anti-diagonals, all pairs at once."""
    shape, (rows, columns) = scores.shape[:-2], scores.shape[-2:]
    scores, i = scores.reshape(-1, rows, columns), np.arange(rows)
    before = last = np.full((len(scores), rows), -np.inf)
    total = np.full(len(scores), -np.inf)
    for k in range(rows + columns - 1):
        here = k - i
        w = scores[:, i, np.clip(here, 0, columns - 1)]
        longer = np.logaddexp(np.logaddexp(shifted(before) + w, w), np.logaddexp(shifted(last), last) + gap)
        before, last = last, np.where((here >= 0) & (here < columns), longer, -np.inf)
        total = np.logaddexp(total, np.logaddexp.reduce(last, axis=1))
    return total.reshape(shape)


def shifted(x: Any) -> Any:
    """From one row to the next, into which nothing comes from before the first one."""
    return np.concatenate((np.full_like(x[:, :1], -np.inf), x[:, :-1]), axis=1)
