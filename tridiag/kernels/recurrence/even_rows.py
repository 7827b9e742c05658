"""The inner loop of sequences of first order that lie contiguous in memory, each as far from the next in every operand.

One is in each lane, and some steps of all lanes are transposed at a time; where the lanes lie follows from the first.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.operands import QUAD
from tridiag.kernels.recurrence.loops import HEIGHT
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


def even_rows(code: Code, *words: Value) -> None:
    """``words``: sequences, at least the lanes; steps, at least HEIGHT; how far apart; the addresses of y, x and a.

    There is no value before the first step. The steps that fill no HEIGHT come first, and those behind them twice; the
    last sequences that fill no lanes come with some of those before.
    """
    count, n, apart, *operands = words
    early = code.pick((n & (HEIGHT - 1)) != 0, n & (HEIGHT - 1), code.integer(HEIGHT))

    def group(first: Value, state: Any) -> Any:
        y, x, a = ([at + (first + k) * apart for k in range(code.lanes)] for at in operands)

        def chunk(i: Value, state: Any) -> Any:
            (value,) = state
            values = []
            for factor, row in zip(load(code, a, i), load(code, x, i), strict=True):
                value = factor * value + row
                values.append(value)
            store(code, y, i, values)
            return (value,)

        start = code.integer(0)
        rows, factors = load(code, x, start), load(code, a, start)
        values = rows[:1]
        for factor, row in zip(factors[1:], rows[1:], strict=True):
            values.append(factor * values[-1] + row)
        store(code, y, start, values)
        code.fori(early, n, chunk, (chosen(code, values, early - 1),), step=HEIGHT)
        return state

    even = count / code.lanes * code.lanes
    code.fori(0, even, group, step=code.lanes)
    code.fori(code.pick(even < count, count - code.lanes, count), count, group, step=code.lanes)


def chosen(code: Code, rows: list[Value], k: Value) -> Value:
    """Row k of a power of two of them."""
    step = 1
    while len(rows) > 1:
        odd = code.everywhere((k & step) != 0)
        rows = [code.where(odd, y, x) for x, y in zip(rows[::2], rows[1::2], strict=True)]
        step *= 2
    return rows[0]


def load(code: Code, lanes: list[Value], i: Value) -> list[Value]:
    """Rows of lanes: HEIGHT steps from i on."""
    kind, rows = ir.VectorType(code.real, QUAD), []
    for k in range(0, HEIGHT, QUAD):
        rows += in_lanes(code, [code.load_as(kind, lane + (i + k) * code.size_of_real) for lane in lanes])
    return rows


def store(code: Code, lanes: list[Value], i: Value, rows: list[Value]) -> None:
    for k in range(0, HEIGHT, QUAD):
        for lane, piece in zip(lanes, out_of_lanes(code, rows[k : k + QUAD]), strict=True):
            code.store_as(lane + (i + k) * code.size_of_real, piece)
