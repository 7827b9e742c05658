"""The inner loops of sequences that lie side by side in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.moves import put_past_caches
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code


def interleaved(past_caches: bool, code: Code, *words: Value) -> None:
    """Rows first <= i < last of sequences side by side in memory, each with its own coefficients."""
    across(code, words, past_caches, lambda address, kind: code.load_as(kind, address))


def spread(past_caches: bool, code: Code, *words: Value) -> None:
    """The same where all sequences share their coefficients."""

    def everywhere(address: Value, kind: Any) -> Value:
        return code.repeat(code.load_as(code.real, address), kind.count)

    across(code, words, past_caches, everywhere, 0)


def across(code: Code, words: Any, past_caches: bool, take: Callable[[Value, Any], Value], moves: int = 1) -> None:
    """``words``: first, last, width; address and stride of y and x; of scratch rows; then of each coefficient.

    ``past_caches``: the values of a row, and of those that it needs, are kept in scratch rows.
    """
    (first, last, width, y, y_stride, x, x_stride, scratch, scratch_stride), rest = words[:9], words[9:]
    coefficients = list(zip(rest[::2], rest[1::2], strict=True))
    size = width * code.size_of_real

    def piece(lanes: int, i: Value, places: Any, together: int = 1) -> Any:
        kind = ir.VectorType(code.real, lanes)

        def body(c: Value, state: Any) -> Any:
            for part in range(together):
                at = c * code.size_of_real + part * LINE
                value = code.load_as(kind, x + i * x_stride + at)
                if lanes > 1:
                    code.prefetch(x + (i + ROWS_AHEAD) * x_stride + at)
                for k, (a, stride) in reversed(list(enumerate(coefficients, 1))):
                    place = a + i * stride + at * moves
                    if lanes > 1 and moves:
                        code.prefetch(place + stride * ROWS_AHEAD)
                    value = take(place, kind) * code.load_as(kind, places[k] + at) + value
                code.store_as(places[0] + at, value)
            return state

        return body

    lanes, wide = code.lanes, TOGETHER * code.lanes
    whole, even = width / wide * wide, width / lanes * lanes
    rest = code.pick((even < width) & (width >= lanes), width - lanes, width)  # some of them once more
    few = code.pick(width < lanes, code.integer(0), width)

    def row(i: Value, kept: Any) -> Any:
        places = kept if past_caches else [y + (i - k) * y_stride for k in range(len(coefficients) + 1)]
        code.fori(0, whole, piece(lanes, i, places, TOGETHER), step=wide)
        code.fori(whole, even, piece(lanes, i, places), step=lanes)
        code.fori(rest, width, piece(lanes, i, places), step=lanes)
        code.fori(few, width, piece(1, i, places))
        if past_caches:
            put_past_caches(code, kept[0], scratch_stride, y + i * y_stride, y_stride, size, code.integer(1))
        return (*kept[-1:], *kept[:-1])  # the row before the earliest gives its place to the next

    def keep(k: int) -> Value:
        """The row k rows before the first."""
        place = scratch + scratch_stride * k

        def entry(c: Value, state: Any) -> Any:
            code.store_as(place + c, code.load_as(code.real, y + (first - k) * y_stride + c))
            return state

        if k > 0:
            code.fori(0, size, entry, step=code.size_of_real)
        return place

    code.fori(first, last, row, tuple(keep(k) for k in range(len(coefficients) + 1)) if past_caches else ())


ROWS_AHEAD = 4
TOGETHER = 4  # vectors of a row
