"""The inner loop of sequences of few steps that lie end to end: memory is read as it lies, and sorted in registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.recurrence.interleaved_loops import own
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

SHORTEST = 32  # sequences, at least two vectors


class ShortRows(NamedTuple):
    """``n`` steps, of first order and without a value before the first."""

    take: Callable[..., Value]
    n: int

    @property
    def name(self) -> str:
        return f"short_{self.take.__name__}_{self.n}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: how many sequences, at least as many as there are lanes; the addresses of y, x and a.

        The last vector begins where it has to, and computes some of those before it once more.
        """
        count, y, x, a = words
        length = self.n * code.size_of_real

        def group(first: Value, state: Any) -> Any:
            at = first * length
            rows = self.rows(code, x + at)
            factors = self.rows(code, a + at) if self.take is own else [code.spread(a)] * self.n
            found = rows[:1]
            for row, factor in zip(rows[1:], factors[1:], strict=True):
                found.append(factor * found[-1] + row)
            for k, vector in enumerate(self.in_memory(code, found)):
                code.store_as(y + at + k * LINE, vector)
            return state

        even = count / code.lanes * code.lanes
        code.fori(0, even, group, step=code.lanes)
        code.fori(code.pick(even < count, count - code.lanes, count), count, group, step=code.lanes)

    def rows(self, code: Code, address: Value) -> list[Value]:
        """One vector a step, from as many vectors of memory."""
        vectors = [code.load_as(ir.VectorType(code.real, code.lanes), address + k * LINE) for k in range(self.n)]
        return [sorted_out(code, vectors, [lane * self.n + i for lane in range(code.lanes)]) for i in range(self.n)]

    def in_memory(self, code: Code, rows: list[Value]) -> list[Value]:
        """The inverse."""
        places = [k % self.n * code.lanes + k // self.n for k in range(self.n * code.lanes)]
        return [sorted_out(code, rows, places[k * code.lanes : (k + 1) * code.lanes]) for k in range(self.n)]


def sorted_out(code: Code, vectors: list[Value], places: list[int]) -> Value:
    """One vector of the elements of several, counted through."""
    found, lanes = vectors[0], code.lanes
    for k in range(1, len(vectors)):
        order = [j if place < k * lanes else lanes + place - k * lanes for j, place in enumerate(places)]
        if k == 1:
            order = [place if place < 2 * lanes else 0 for place in places]
        else:
            order = [
                j if place < k * lanes or place >= (k + 1) * lanes else o
                for j, (place, o) in enumerate(zip(places, order, strict=True))
            ]
        found = code.shuffle(found, vectors[k], order)
    return found
