"""Systems and sequences that devices with parts of them are in doubt about: gathered by all, and computed whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.problems.forms import Cut, Shape

AT_ONCE = 2**19  # unknowns of systems that are gathered at a time, or one system


def computed_whole(
    run: Callable[..., Any],
    cut: Cut,
    n: int,
    axis: int,
    y: Any,
    doubtful: Any,
    operands: Sequence[Any],
    states: Sequence[Any] = (),
) -> Any:
    """y in the rows of a device, anew where ``doubtful`` is true on any.

    ``doubtful`` has length 1 along the axis of rows; axes that y has behind its axes are those of vectors, as are those
    of operands. ``run(shape, operands, states)`` gives y of some systems, whose shape is (some, n) and the axes of
    vectors; operands have rows, and ``states`` one. y may have one row on each device, and ``run`` gives those then.
    No array is transposed: XLA would lay out y so in every call.
    """
    rank, rows = doubtful.ndim, max(x.shape[axis] for x in (y, *operands))
    own_rows = y.shape[axis]
    outer, inner, tail = math.prod(y.shape[:axis]), math.prod(y.shape[axis + 1 : rank]), y.shape[rank:]
    systems = outer * inner
    some = max(1, min(systems, AT_ONCE // (n * math.prod(tail))))

    def flat(x: Any, rows: int) -> Any:
        """(outer, rows, inner, and what a matrix or a vector has)."""
        shape: Shape = (*y.shape[:axis], rows, *y.shape[axis + 1 : rank], *x.shape[rank:])
        return jnp.broadcast_to(x, shape).reshape(outer, rows, inner, *x.shape[rank:])

    anywhere = lax.psum(doubtful.astype(jnp.int32), cut.names).reshape(systems) > 0
    listed = jnp.nonzero(anywhere, size=-(-systems // some) * some, fill_value=systems)[0]
    given, before = [flat(x, rows) for x in operands], [flat(x, 1) for x in states]

    def step(k: Any, y: Any) -> Any:
        those = lax.dynamic_slice_in_dim(listed, k * some, some)
        place = those // inner, slice(None), those % inner
        here = (x.at[place].get(mode="clip") for x in given)
        whole = [lax.all_gather(x, cut.names, axis=1, tiled=True)[:, :n] for x in here]
        found = run((some, n, *tail), whole, [x.at[place].get(mode="clip") for x in before])
        found = jnp.pad(found, [(0, 0), (0, cut.parts * own_rows - found.shape[1]), *[(0, 0)] * len(tail)])
        own = lax.dynamic_slice_in_dim(found, lax.axis_index(cut.names) * own_rows, own_rows, 1)
        return y.at[place].set(own, mode="drop")

    count = jnp.sum(anywhere, dtype=jnp.int32)
    return lax.fori_loop(0, (count + some - 1) // some, step, flat(y, own_rows)).reshape(y.shape)
