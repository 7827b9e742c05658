"""The loops of one long sequence in blocks, a chunk in each lane: a cache line of steps of order 1 at a time.

A first pass finds what a block makes of the state before it, a second one its values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.loops import Loop
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import by_register
from tridiag.kernels.simd.transpose import transpose_blocks
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

MODERATE = 2.0**10  # products up to this are quick to use: rounding errors hardly grow


class Pair(NamedTuple):
    """What steps make of the state before them: a * state + x; one run of steps in every lane."""

    a: Value
    x: Value

    def then(self, later: Pair) -> Pair:
        return Pair(later.a * self.a, later.a * self.x + later.x)


class Sum(NamedTuple):
    """Finds what many steps of order 1 make of 0, and the product of their coefficients; writes no values.

    A cache line of every lane at a time: neighbours are joined until one pair is left of each lane. Where coefficients
    grow or nearly vanish, it goes step by step.
    """

    loop: Loop

    @property
    def name(self) -> str:
        return f"sum_{self.loop.name}"

    def write(self, code: Code, at: At, count: Value) -> None:
        """``count`` steps, a multiple of the lanes, by a worker whose memory begins at ``at``."""

        whole_row = code

        def line(code: Code, lane: int, i: Value, state: Any) -> Any:
            loop = self.loop._replace(lane=lane)
            early, late = halves(loop, code, at, i)
            value, product = state
            whole = early.then(late)
            quick = whole.a * value + whole.x, scaled_product(code, product, whole.a)
            all_moderate = code.bits(moderate(code, early.a) & moderate(code, late.a)) == 2**code.lanes - 1
            again = code.pick(all_moderate, code.integer(0), code.integer(1))
            if lane + code.lanes == whole_row.lanes:
                self.loop.ask(whole_row, at, i, (C.X, C.A))
            return code.fori(0, again, lambda *_: one_by_one(loop, code, at, i, state), quick)

        begin = code.zero(), (code.splat(1.0), code.zero())
        value, product = by_register(code, 0, count, line, begin, step=code.lanes)
        code.store(at.addresses.state, value)
        for k, row in enumerate(product):
            code.store(at.addresses.product + LINE * k, row)


def halves(loop: Loop, code: Code, at: At, i: Value) -> tuple[Pair, Pair]:
    """What the first and the last steps of a cache line make, half of them each, of all lanes."""
    steps = LINE // code.size_of_real
    (xs, move), (coefficients, along) = (loop.place(code, at, k, i, steps) for k in (C.X, C.A))

    def joined(first: int, count: int, offset: int) -> Pair:
        """Lanes side by side in one vector: of each as many pairs as there are vectors in one lane."""
        if count > 1:
            early, late = unpaired(first, count, offset)
            return early.then(late)
        places = coefficients[first] + (along + offset), xs[first] + (move + offset)
        a, x = (code.load_as(code.vector, place) for place in places)
        return Pair(a, a * x if loop.transposed else x)

    def unpaired(first: int, count: int, offset: int) -> tuple[Pair, Pair]:
        low, high = joined(first, count // 2, offset), joined(first + count // 2, count // 2, offset)
        early, late = (
            Pair(*(code.shuffle(x, y, order) for x, y in zip(low, high, strict=True)))
            for order in neighbours(code, count)
        )
        return (late, early) if loop.backward else (early, late)

    offsets = range(0, LINE, code.lanes * code.size_of_real)
    if len(offsets) == 1:
        return unpaired(0, code.lanes, 0)
    pairs = [joined(0, code.lanes, offset) for offset in (reversed(offsets) if loop.backward else offsets)]
    early, late = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    return functools.reduce(Pair.then, early), functools.reduce(Pair.then, late)


def one_by_one(loop: Loop, code: Code, at: At, i: Value, state: Any) -> Any:
    """What the steps of a cache line make of the state before them, one after another."""
    value, product = state
    _, value, coefficients = loop.line(code, at, i, value)
    for a in coefficients:
        product = scaled_product(code, product, a)
    return value, product


class Values(NamedTuple):
    """Finds the values of many steps of order 1 from the state before them, a cache line of every lane at a time."""

    loop: Loop

    @property
    def name(self) -> str:
        return f"values_{self.loop.name}"

    def write(self, code: Code, at: At, count: Value, past_caches: Value) -> None:
        """``count`` steps, a multiple of the lanes; ``past_caches``, 0 or 1: cache lines of a large result."""

        whole = code

        def line(code: Code, first: int, i: Value, state: Any) -> Any:
            loop = self.loop._replace(lane=first)
            values, state, _ = loop.line(code, at, i, *state)
            rows = values[::-1] if loop.backward else values
            squares = [transpose_blocks(code, rows[k : k + code.lanes]) for k in range(0, len(rows), code.lanes)]
            lanes, move = loop.place(code, at, C.Y, i, len(rows))

            def put(direct: bool) -> Callable[..., Any]:
                def lines_of_lanes(_: Value, state: Any) -> Any:
                    for lane, *pieces in zip(lanes, *squares, strict=True):
                        for k, piece in enumerate(pieces):
                            code.store_as(lane + move + k * code.lanes * code.size_of_real, piece, direct)
                    return state

                return lines_of_lanes

            code.fori(0, past_caches, put(True))
            code.fori(past_caches, 1, put(False))
            if first + code.lanes == whole.lanes:
                loop._replace(lane=0).ask(whole, at, i, (C.X, C.A))
            return (state,)

        (state,) = by_register(code, 0, count, line, (code.load(at.addresses.state),), step=code.lanes)
        code.store(at.addresses.state, state)


def neighbours(code: Code, count: int) -> tuple[list[int], list[int]]:
    """Which pairs of two vectors are early, and which the ones behind them, where ``count`` lanes come to one vector.

    Numbers move within 16 bytes as long as there are some of a lane, and then in wholes of 16 bytes; such shuffles are
    the fastest. In the end lanes are in order.
    """
    width, quad = code.lanes, 16 // code.size_of_real
    if count <= quad:
        early = [x + k for block in range(0, width, quad) for x in (block, width + block) for k in range(0, quad, 2)]
        return early, [k + 1 for k in early]
    early = [x + k for x in range(0, 2 * width, 2 * quad) for k in range(quad)]
    return early, [k + quad for k in early]


def moderate(code: Code, product: Value) -> Value:
    """Products with which others neither grow nor underflow."""
    size = code.magnitude(product)
    return (size >= scale(code.size_of_real)[0] ** 0.5) & (size <= MODERATE)


def scaled_product(code: Code, product: Any, factor: Value) -> Any:
    """The product times another factor, scaled up whenever it is small, so that it vanishes with a factor only."""
    small, large = scale(code.size_of_real)
    value, scaled = product
    value = value * factor
    low = code.magnitude(value) < small
    return code.where(low, value * large, value), code.where(low, scaled + 1.0, scaled)


def scale(size_of_real: int) -> tuple[float, float]:
    """Where products are small, and what they are multiplied by."""
    bits = 500 if size_of_real == 8 else 60
    return 2.0**-bits, 2.0**bits
