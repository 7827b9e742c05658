"""The inner loops of sequences that lie side by side in memory.

A complex number is a pair of lanes, its real and its imaginary part; widths and lanes count real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.access.moves import put_past_caches
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import LINE, Code


def interleaved(past_caches: bool, code: Code, *words: Value) -> None:
    """Rows first <= i < last of sequences side by side in memory, each with its own coefficients."""
    across(code, words, past_caches, own)


def spread(past_caches: bool, code: Code, *words: Value) -> None:
    """The same where all sequences share their coefficients."""
    across(code, words, past_caches, shared)


def own(code: Code, address: Value, at: Value, kind: Any) -> Any:
    """The coefficients of the sequences from ``at`` on, of which the first one's lies at an address."""
    found = code.load_as(kind, address + at)
    if code.parts == 1:
        return found
    real, imag = (code.shuffle(found, found, [k - k % 2 + part for k in range(kind.count)]) for part in range(2))
    return Complex(real, crosswise(code, imag))


def shared(code: Code, address: Value, at: Value, kind: Any) -> Any:
    real = code.repeat(code.load_as(code.real, address), kind.count)
    if code.parts == 1:
        return real
    imag = code.repeat(code.load_as(code.real, address + code.size_of_real), kind.count)
    return Complex(real, crosswise(code, imag))


def crosswise(code: Code, imag: Value) -> Value:
    """Imaginary parts with the signs that they have in a product: - where it adds to a real part."""
    kind, count = imag.llvm.type.element, imag.llvm.type.count
    return imag * Value(code, ir.Constant(imag.llvm.type, [ir.Constant(kind, 2.0 * (k % 2) - 1) for k in range(count)]))


def multiply_add(code: Code, factor: Any, x: Value, y: Value) -> Value:
    """factor x + y."""
    if code.parts == 1:
        return factor * x + y
    swapped = code.shuffle(x, x, [k + 1 - 2 * (k % 2) for k in range(x.llvm.type.count)])
    return factor.real * x + (factor.imag * swapped + y)


def over_a_row(code: Code, width: Value, piece: Callable[[int, int], Callable[..., Any]]) -> None:
    """The loops over a row of ``width`` numbers: ``piece(lanes, together)`` computes some of them, some twice."""
    lanes, wide = code.lanes, TOGETHER * code.lanes
    whole, even = width / wide * wide, width / lanes * lanes
    rest = code.pick((even < width) & (width >= lanes), width - lanes, width)  # some of them once more
    few = code.pick(width < lanes, code.integer(0), width)
    code.fori(0, whole, piece(lanes, TOGETHER), step=wide)
    code.fori(whole, even, piece(lanes, 1), step=lanes)
    code.fori(rest, width, piece(lanes, 1), step=lanes)
    code.fori(few, width, piece(code.parts, 1), step=code.parts)


def across(code: Code, words: Any, past_caches: bool, take: Callable[..., Value]) -> None:
    """``words``: first, last, width; address and stride of y and x; of scratch rows; then of each coefficient.

    ``past_caches``: the values of a row, and of those that it needs, are kept in scratch rows.
    """
    (first, last, width, y, y_stride, x, x_stride, scratch, scratch_stride), rest = words[:9], words[9:]
    coefficients = list(zip(rest[::2], rest[1::2], strict=True))
    size = width * code.size_of_real

    def row(i: Value, kept: Any) -> Any:
        places = kept if past_caches else [y + (i - k) * y_stride for k in range(len(coefficients) + 1)]

        def piece(lanes: int, together: int) -> Any:
            kind = ir.VectorType(code.real, lanes)

            def body(c: Value, state: Any) -> Any:
                for part in range(together):
                    at = c * code.size_of_real + part * LINE
                    value = code.load_as(kind, x + i * x_stride + at)
                    if lanes > code.parts:
                        code.prefetch(x + (i + ROWS_AHEAD) * x_stride + at)
                    for k, (a, stride) in reversed(list(enumerate(coefficients, 1))):
                        if lanes > code.parts and take is own:
                            code.prefetch(a + (i + ROWS_AHEAD) * stride + at)
                        factor = take(code, a + i * stride, at, kind)
                        value = multiply_add(code, factor, code.load_as(kind, places[k] + at), value)
                    code.store_as(places[0] + at, value)
                return state

            return body

        over_a_row(code, width, piece)
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


def first_rows(take: Callable[..., Value], order: int, code: Code, *words: Value) -> None:
    """Rows 0 <= i < count, at most ``order``, of sequences side by side in memory; no value before them is 0.

    ``words``: count, width; address and stride of y and x; whether there are values before; address and stride of each
    coefficient; the addresses of the values before, the latest first, which lie side by side too.
    """
    (count, width, y, y_stride, x, x_stride, started), rest = words[:7], words[7:]
    coefficients, before = list(zip(rest[: 2 * order : 2], rest[1 : 2 * order : 2], strict=True)), rest[2 * order :]
    for i in range(order):

        def terms(begun: bool, i: int = i) -> Any:
            def piece(lanes: int, together: int) -> Any:
                kind = ir.VectorType(code.real, lanes)

                def body(c: Value, state: Any) -> Any:
                    for part in range(together):
                        at = c * code.size_of_real + part * LINE
                        value = code.load_as(kind, x + x_stride * i + at)
                        for k in reversed(range(1, order + 1 if begun else i + 1)):
                            a, stride = coefficients[k - 1]
                            source = y + y_stride * (i - k) if k <= i else before[k - i - 1]
                            factor = take(code, a + stride * i, at, kind)
                            value = multiply_add(code, factor, code.load_as(kind, source + at), value)
                        code.store_as(y + y_stride * i + at, value)
                    return state

                return body

            def row(_: Value, state: Any) -> Any:
                over_a_row(code, width, piece)
                return state

            return row

        there = code.pick(count > i, code.integer(1), code.integer(0))
        code.fori(0, there * started, terms(True))
        code.fori(there * started, there, terms(False))


class Narrow(NamedTuple):
    """The loop over rows of few sequences side by side: the values that a row needs stay in registers.

    A row is covered by vectors of a number of lanes, of which the last ones begin where they have to, so that two may
    compute the same.
    """

    take: Callable[..., Value]
    order: int
    halved: int  # how often the lanes of a whole vector are halved
    vectors: int

    @property
    def name(self) -> str:
        return f"narrow_{self.take.__name__}_{self.halved}_{self.vectors}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: first, last, width; address and stride of y and x, then of each coefficient."""
        (first, last, width, y, y_stride, x, x_stride), rest = words[:7], words[7:]
        lanes = max(code.parts, code.lanes >> self.halved)
        kind, half = ir.VectorType(code.real, lanes), (self.vectors + 1) // 2
        size = code.size_of_real * lanes
        places = [code.integer(k * size) for k in range(half)]
        places += [(width - k * lanes) * code.size_of_real for k in range(self.vectors - half, 0, -1)]

        def row(i: Value, state: Any) -> Any:
            found = []
            for at, before in zip(places, state, strict=True):
                value = code.load_as(kind, x + i * x_stride + at)
                for k in reversed(range(self.order)):
                    factor = self.take(code, rest[2 * k] + i * rest[2 * k + 1], at, kind)
                    value = multiply_add(code, factor, before[k], value)
                code.store_as(y + i * y_stride + at, value)
                found.append((value, *before[:-1]))
            return tuple(found)

        rows = [y + (first - k) * y_stride for k in range(1, self.order + 1)]
        code.fori(first, last, row, tuple(tuple(code.load_as(kind, at + place) for at in rows) for place in places))


ROWS_AHEAD = 4
TOGETHER = 4  # vectors of a row
