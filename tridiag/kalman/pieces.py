"""Series that share a model, smoothed so many at a time that they do not fill the memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.calls.state_space import Call
from tridiag.libraries.arrays import module_of

Array = Any
MOST = 64 * 2**20  # bytes
COVARIANCES = 4  # of every step that a smoother has meanwhile: two of a filter, one smoothed, and what comes of them


def without_missing(call: Call, y: Array) -> tuple[Call, Array]:
    """The call and series with the same gaps as its own, in which what is missing is 0, and tells nothing.

    It sees no state, and has a noise of its own: covariances are those of a model of which all is observed.
    """
    ops, (H, R) = module_of(call.library).Operations, (call.model.H, call.model.R)
    kept = call.y == call.y
    variances = ops.where(R > 0, R, 1.0)
    alone = ops.where(ops.placed(np.eye(call.form.observed, dtype=bool), R), variances, 0.0)
    H = ops.where(kept[..., None], H, 0.0)
    R = ops.where(kept[..., None] & kept[..., None, :], R, alone)
    return call._replace(model=call.model._replace(H=H, R=R)), ops.where(kept, y, 0.0)


def draws_of_a_piece(call: Call, traced: bool) -> int:
    """How many draws of all series a smoother takes at once: 1 at least."""
    form, unknown = call.form, len(call.form.diffuse)
    numbers = COVARIANCES * math.prod(form.batch) * form.n * form.states * (form.states + form.observed)
    most = MOST // max(1, numbers * call.y.dtype.itemsize)
    # a series more for each unknown state, or for each in each draw, where it is not seen that nothing is missing
    return max(1, most // (1 + unknown) if traced or form.missing is None else most - unknown)


def by_pieces(function: Callable[[Array], Array], x: Array, length: int, ops: Any, traced: bool) -> Array:
    """What a function of series along the first axis makes of no more than ``length`` of them at a time.

    All pieces have the same length, so that JAX compiles one; the last one begins with what the one before it has.
    """
    count = len(x)
    if count <= length:
        return function(x)
    pieces = -(-count // length)
    length = -(-count // pieces)
    starts = [min(i * length, count - length) for i in range(pieces)]
    if traced:
        from jax import lax
        from jax import numpy as jnp

        found = lax.map(lambda start: function(lax.dynamic_slice_in_dim(x, start, length)), jnp.array(starts))
        parts = [found[:-1].reshape(-1, *found.shape[2:]), found[-1]]
    else:
        parts = [function(x[start : start + length]) for start in starts]
    last = parts.pop()
    again = (pieces - 1) * length - starts[-1]
    return ops.concatenate((*parts, last[again:]), 0)
