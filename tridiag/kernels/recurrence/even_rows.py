"""The inner loop of sequences of first order that lie contiguous in memory, each as far from the next in every operand.

One is in each lane, and some steps of all lanes are transposed at a time; where the lanes lie follows from the first.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.recurrence.loops import HEIGHT, load_steps, store_steps
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

AHEAD = 4096  # bytes


def even_rows(code: Code, *words: Value) -> None:
    """``words``: sequences, at least the lanes; steps, at least HEIGHT; how far apart; the addresses of y, x and a.

    Behind these 1 where memory is to be asked for ahead of use, else 0. There is no value before the first step. The
    steps that fill no HEIGHT come first, half of one or a whole one, and those behind them twice; the last sequences
    that fill no lanes come with some of those before.
    """
    count, n, apart, *operands, far = words
    early = code.pick((n & (HEIGHT - 1)) != 0, n & (HEIGHT - 1), code.integer(HEIGHT))

    def group(height: int) -> Any:
        """``height``: of the steps that come first."""

        def body(first: Value, state: Any) -> Any:
            y, x, a = ([at + (first + k) * apart for k in range(code.lanes)] for at in operands)

            def chunk(i: Value, state: Any) -> Any:
                (value,), move = state, i * code.size_of_real
                code.fori(0, far, lambda _, none: ask(code, [rows[0] + i * code.row for rows in (y, x, a)], none))
                values = []
                for factor, row in zip(load_steps(code, a, move), load_steps(code, x, move), strict=True):
                    value = factor * value + row
                    values.append(value)
                store_steps(code, y, move, values)
                return (value,)

            start = code.integer(0)
            rows, factors = load_steps(code, x, start, height), load_steps(code, a, start, height)
            values = rows[:1]
            for factor, row in zip(factors[1:], rows[1:], strict=True):
                values.append(factor * values[-1] + row)
            store_steps(code, y, start, values)
            code.fori(early, n, chunk, (chosen(code, values, early - 1),), step=HEIGHT)
            return state

        return body

    even, none = count / code.lanes * code.lanes, code.integer(0)
    left = code.pick(even < count, count - code.lanes, count)
    for height in (HEIGHT // 2, HEIGHT):
        low = early <= HEIGHT // 2 if height < HEIGHT else early > HEIGHT // 2
        code.fori(0, code.pick(low, even, none), group(height), step=code.lanes)
        code.fori(left, code.pick(low, count, none), group(height), step=code.lanes)


def ask(code: Code, places: list[Value], none: Any) -> Any:
    """Ask for as much memory of the result, x and coefficients as a chunk has, AHEAD of its share of a group."""
    for operand, place in enumerate(places):
        for line in range(HEIGHT):
            code.prefetch(place + (AHEAD + line * LINE), write=operand == 0, near=True)
    return none


def chosen(code: Code, rows: list[Value], k: Value) -> Value:
    """Row k of a power of two of them."""
    step = 1
    while len(rows) > 1:
        odd = code.everywhere((k & step) != 0)
        rows = [code.where(odd, y, x) for x, y in zip(rows[::2], rows[1::2], strict=True)]
        step *= 2
    return rows[0]
