"""Which entries of the rows of a matrix may be other than 0: sums of a product leave out the others."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import pointer, set_word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

ROW = 16  # bytes of a profile for each row of the matrix


class Profile(NamedTuple):
    """Where in each row of a matrix the first entry is that is not 0, and behind the last: two words, and so on.

    ``step``: the bytes from one row's to the next one's.
    """

    address: Any
    step: Any

    def terms(self, code: Code, first: Value, count: int, inner: Value) -> tuple[Value, Value]:
        """The first term of sums for some of those rows, and behind the last, of not more than ``inner``."""
        places = [self.address + (first + r) * self.step for r in range(count)]
        begin, end = code.word(places[0]), code.word(places[0] + 8)
        for place in places[1:]:
            low, high = code.word(place), code.word(place + 8)
            begin, end = code.pick(low < begin, low, begin), code.pick(high > end, high, end)
        return begin, code.pick(end < inner, end, inner)


@compiled
def put_profile(zero, place, matrix, step, size):
    """That of a square matrix, whose rows lie so many bytes apart; returns how many entries it has."""
    count = 0
    for i in range(size):
        row, begin, end = pointer(matrix + i * step, zero), size, 0
        for j in range(size):
            if row[j] != 0:
                begin, end = min(begin, j), j + 1
        set_word(place + i * ROW, begin)
        set_word(place + i * ROW + 8, end)
        count += max(0, end - begin)
    return count


@compiled
def put_whole_profile(place, size):
    """That of a matrix of which nothing is known."""
    for i in range(size):
        set_word(place + i * ROW, 0)
        set_word(place + i * ROW + 8, size)
