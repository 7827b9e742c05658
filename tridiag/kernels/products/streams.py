"""The inner loop of products whose operands lie as the result does, with long matrices: one stream of vectors.

An entry at an end of a matrix has no neighbour there. Only vectors that hold such an entry look for it; those between
take what lies before their entries, and after them, as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.products.loops import KEEP, Entries, line_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

FEWEST_VECTORS = 4  # of entries of a matrix, beside those at its ends; in shorter ones most vectors hold an end


class Stream(NamedTuple):
    """Entries of matrices end to end, ``edge`` entries of which make up a row."""

    entries: Entries
    edge: Value

    def neighbours(self, i: Value, beginning: Value, lanes: int) -> tuple[Value, Value]:
        """Which entries are in the first row of the matrix that begins there, and in the last one of that before."""
        code = self.entries.code
        place = code.repeat(i - beginning, lanes) + code.integers(range(lanes))
        after, edge = place >= 0, code.repeat(self.edge, lanes)
        return after & (place < edge), (place < 0) & (place + edge >= 0)

    def inside(self, first: Any, last: Any, past_caches: bool = False) -> None:
        """Vectors of entries that have both neighbours."""
        lanes = self.entries.code.lanes
        self.entries.loop(first, last, lambda i: self.entries.compute(i, None, lanes, past_caches), lanes)

    def around(self, first: Any, last: Any, beginning: Value, lanes: int, past_caches: bool = False) -> None:
        """Entries near the beginning of a matrix."""

        def some(i: Value) -> None:
            self.entries.compute(i, self.neighbours(i, beginning, lanes), lanes, past_caches)

        self.entries.loop(first, last, some, lanes)


def stream(uniform: bool, past_caches: bool, code: Code, *words: Value) -> None:
    """``words``: the sources; the result; count; how many of the first entries have none before them, and of the last
    ones none after them; the entry that begins a matrix, and how many there are from there to the next; edge.

    ``uniform``: no source is one number for all entries.
    """
    sources, y, count, top, bottom, beginning, period, edge = words
    code.fused = False  # every product and every sum rounds, as NumPy's do
    moves = [code.integer(code.size_of_real * code.parts) if uniform else sources.move[k] for k in range(KEEP)]
    some = Stream(Entries(code, [(sources.source[k], move) for k, move in enumerate(moves)], y, False), edge)
    last = count - bottom
    filled = last - top >= code.lanes  # else one by one
    lead = line_of(code, y, top)
    lead = code.pick(filled & (lead < last), lead, last)
    whole = lead + ((last - lead) & -code.lanes)

    def at_most(i: Value, low: Value) -> Value:
        i = code.pick(i < low, low, i)
        return code.pick(i < whole, i, whole)

    def matrix(k: Value, done: Value) -> Value:
        """Up to the first vector of a matrix that holds no entry of its first row."""
        begun = beginning + k * period
        low = at_most(lead + ((begun - edge - lead) & -code.lanes), done)
        high = at_most(lead + ((begun + edge - lead + (code.lanes - 1)) & -code.lanes), low)
        some.inside(done, low, past_caches)
        some.around(low, high, begun, code.lanes, past_caches)
        return high

    some.around(top, code.pick(filled & (top < lead), top + 1, top), beginning, code.lanes)
    matrices = (last + edge - beginning + (period - 1)) / period
    done = code.fori(0, matrices, matrix, lead)
    some.inside(done, whole, past_caches)
    final = beginning + code.pick(matrices > 0, matrices - 1, matrices) * period
    some.around(code.pick(filled & (whole < last), last - code.lanes, last), last, final, code.lanes)
    some.around(code.pick(filled, last, top), last, final, 1)
    some.entries.at_ends(top, last, count)
