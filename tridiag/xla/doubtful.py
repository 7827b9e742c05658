"""Systems and sequences that devices with parts of them are in doubt about: gathered by all, and computed whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Cut, Shape
from tridiag.xla.exchange import all_rows, anywhere, own_rows

AT_ONCE = 2**19  # unknowns of systems that are gathered at a time, or one system


def tried_first(
    run: Callable[[], tuple[Any, Any]], anew: Callable[[], Any], cut: Cut, promising: Any, shape: Shape, like: Any
) -> Any:
    """y of ``run()``, which tells whether it is right as well; of ``anew()`` where on some device it is not.

    It is not run where that is not ``promising``. y is of that shape, of the dtype of an array of devices ``like`` it.
    """

    def leave() -> tuple[Any, Any]:
        nothing, found, _ = vary_alike((jnp.zeros(shape, like.dtype), jnp.zeros((), bool), like))
        return nothing, found

    y, right = lax.cond(promising, run, leave)
    return lax.cond(anywhere(~right, cut), lambda _: anew(), lambda y: y, y)


def computed_whole(
    run: Callable[..., Any],
    cut: Cut,
    n: int,
    axis: int,
    y: Any,
    doubtful: Any,
    operands: Sequence[Any],
    states: Sequence[Any] = (),
    of_rows: bool = True,
) -> Any:
    """y in the rows of a device, anew where ``doubtful`` is true on any.

    ``doubtful`` has length 1 along the axis of rows; axes that y has behind its axes are those of vectors, as are those
    of operands. ``run(shape, operands, states)`` gives y of some systems, whose shape is (some, n) and the axes of
    vectors; operands have rows, and ``states`` one. Where y is not ``of_rows`` it has one as well, the same on all
    devices. No array is transposed: XLA would lay out y so in every call.
    """
    rank, rows = doubtful.ndim, -(-n // cut.parts)
    outer, inner, tail = math.prod(y.shape[:axis]), math.prod(y.shape[axis + 1 : rank]), y.shape[rank:]
    systems = outer * inner
    some = max(1, min(systems, AT_ONCE // (n * math.prod(tail))))

    def flat(x: Any, rows: int) -> Any:
        """(outer, rows, inner, and what a matrix or a vector has)."""
        shape: Shape = (*y.shape[:axis], rows, *y.shape[axis + 1 : rank], *x.shape[rank:])
        return jnp.broadcast_to(x, shape).reshape(outer, rows, inner, *x.shape[rank:])

    wanted = lax.psum(doubtful.astype(jnp.int32), cut.names).reshape(systems) > 0
    listed = jnp.nonzero(wanted, size=-(-systems // some) * some, fill_value=systems)[0]
    given, before = [flat(x, rows) for x in operands], [flat(x, 1) for x in states]

    def step(k: Any, y: Any) -> Any:
        those = lax.dynamic_slice_in_dim(listed, k * some, some)
        place = those // inner, slice(None), those % inner
        here = (x.at[place].get(mode="clip") for x in given)
        whole = [all_rows(cut, x, n, 1) for x in here]
        found = run((some, n, *tail), whole, [x.at[place].get(mode="clip") for x in before])
        return y.at[place].set(own_rows(cut, found, rows, 1) if of_rows else found, mode="drop")

    count = jnp.sum(wanted, dtype=jnp.int32)
    return lax.fori_loop(0, (count + some - 1) // some, step, flat(y, y.shape[axis])).reshape(y.shape)
