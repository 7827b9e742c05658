"""Rows of lanes in pieces of a register each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.values import flatten, rebuild
from tridiag.kernels.simd.vector import Code


def narrow(code: Code, least: int = 1) -> list[tuple[Code, int]]:
    """Codes of the lanes of a register, or the ``least``, and the first lane of each: what a row of lanes consists of.

    Where registers are narrow there are few of them, and one after the other needs no more.
    """
    lanes = min(code.lanes, max(least, bytes_of_register() // code.size_of_real))
    return [(code.of_lanes(lanes), first) for first in range(0, code.lanes, lanes)]


def by_register(code: Code, body: Callable[[Code, int, Any], Any], state: Any, least: int = 1) -> Any:
    """What ``body(code, first, state)`` returns for rows of lanes: one piece of them after the other, then joined.

    Between two pieces no more than what was given and what was found waits in a register, or on the stack.
    """
    pieces = narrow(code, least)
    if len(pieces) == 1:
        return body(code, 0, state)
    given, found = flatten(state), []
    for lanes, first in pieces:
        found.append(body(lanes, first, rebuild(state, iter([lanes.part(x, first, lanes.lanes) for x in given]))))
    return rebuild(found[0], iter([joined(code, parts) for parts in zip(*map(flatten, found), strict=True)]))


def joined(code: Code, rows: Any) -> Any:
    """A power of two of vectors, end to end."""
    if len(rows) == 1:
        return rows[0]
    return joined(code, [code.join(x, y) for x, y in zip(rows[::2], rows[1::2], strict=True)])
