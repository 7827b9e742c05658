"""Rows of few real numbers that lie end to end: memory is read as it lies, and sorted in registers.

Each vector of memory takes part in each row of lanes, so that the work grows with the square of the numbers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


def rows_from(code: Code, address: Value, n: int) -> list[Value]:
    """A vector of lanes for each of n numbers, of as many rows as there are lanes."""
    size = code.lanes * code.size_of_real
    vectors = [code.load_as(ir.VectorType(code.real, code.lanes), address + k * size) for k in range(n)]
    return [sorted_out(code, vectors, [lane * n + i for lane in range(code.lanes)]) for i in range(n)]


def rows_to(code: Code, address: Value, rows: list[Value]) -> None:
    """The inverse."""
    n, lanes = len(rows), code.lanes
    places = [k % n * lanes + k // n for k in range(n * lanes)]
    for k in range(n):
        code.store_as(
            address + k * (lanes * code.size_of_real), sorted_out(code, rows, places[k * lanes : (k + 1) * lanes])
        )


def sorted_out(code: Code, vectors: list[Value], places: list[int]) -> Value:
    """One vector of the elements at such places of several vectors end to end."""
    found, lanes = vectors[0], code.lanes
    there = [place if place < lanes else 0 for place in places]  # where the elements are that were found
    for k, vector in enumerate(vectors[1:], 1):
        here = [k * lanes <= place < (k + 1) * lanes for place in places]
        order = [lanes + place % lanes if new else old for new, place, old in zip(here, places, there, strict=True)]
        found, there = code.shuffle(found, vector, order), list(range(lanes))
    return found


def copy(code: Code, source: Value, target: Value, count: Value) -> None:
    """So many numbers."""

    def number(k: Value, state: Any) -> Any:
        at = k * code.size_of_real
        code.store_as(target + at, code.load_as(code.real, source + at))
        return state

    code.fori(0, count, number)
