"""Rows of lanes in pieces of a register each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.values import flatten, rebuild
from tridiag.kernels.simd.vector import Code


def lanes_of_register(code: Code) -> int:
    return bytes_of_register() // code.size_of_real


def narrow(code: Code, least: int = 1) -> list[tuple[Code, int]]:
    """Codes of the lanes of a register, or the ``least``, and the first lane of each: what a row of lanes consists of.

    Where registers are narrow there are few of them, and one after the other needs no more.
    """
    lanes = min(code.lanes, max(least, lanes_of_register(code)))
    return [(code.of_lanes(lanes), first) for first in range(0, code.lanes, lanes)]


def by_register(
    code: Code, first: Any, last: Any, body: Callable[..., Any], state: Any, step: int = 1, least: int = 1
) -> Any:
    """`Code.fori` with ``state = body(code, lane, i, state)``: a piece of the rows of lanes after the other.

    Between two pieces no more than the states of all waits in a register, or on the stack.
    """
    pieces = narrow(code, least)
    if len(pieces) == 1:
        return code.fori(first, last, lambda i, state: body(code, 0, i, state), state, step)
    given = flatten(state)
    parts = [
        rebuild(state, iter([lanes.part(x, lane, lanes.lanes) for x in given])) if given else ()
        for lanes, lane in pieces
    ]

    def all_pieces(i: Any, states: Any) -> Any:
        return tuple(body(*piece, i, state) for piece, state in zip(pieces, states, strict=True))

    found = map(flatten, code.fori(first, last, all_pieces, tuple(parts), step))
    return rebuild(state, iter([joined(code, parts) for parts in zip(*found, strict=True)]))


def joined(code: Code, rows: Any) -> Any:
    """A power of two of vectors, end to end."""
    if len(rows) == 1:
        return rows[0]
    return joined(code, [code.join(x, y) for x, y in zip(rows[::2], rows[1::2], strict=True)])
