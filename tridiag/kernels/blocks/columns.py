"""Elimination of block rows column by column, one system in each lane: the arithmetic, in registers.

Of a block column, 2 m rows have entries: m that are carried from the block row above, and m of the next one. The
columns of the first block tell which rows are exchanged and what is subtracted of them, m steps in all; then every
other column goes through these steps by itself, and so does every right side. Rows are exchanged by selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tridiag.kernels.simd.values import Complex, Stored, Value
from tridiag.kernels.simd.vector import LINE, Code

Column = list[Any]  # the entries of all rows in a column


class Step(NamedTuple):
    """The elimination of a column: of the rows from its own on, which is the pivot row, and the multipliers."""

    chosen: Value  # as a real number
    multipliers: Sequence[Any]


def through(code: Code, columns: Sequence[Column], steps: Sequence[Step]) -> tuple[list[Column], list[Column]]:
    """What steps make of columns: the entries of the pivot rows, and what is left of the others."""
    pivot_rows: list[Column] = [[] for _ in columns]
    left = list(columns)
    for chosen, multipliers in steps:
        here = [chosen == float(k) for k in range(1, len(multipliers) + 1)]
        for k, (own, *others) in enumerate(left):
            pivot = own
            for exchanged, x in zip(here, others, strict=True):
                pivot = code.where(exchanged, x, pivot)
            pivot_rows[k].append(pivot)
            left[k] = [
                code.where(exchanged, own, x) - factor * pivot
                for exchanged, x, factor in zip(here, others, multipliers, strict=True)
            ]
    return pivot_rows, left


def largest(code: Code, column: Column) -> tuple[Value, Any, Value]:
    """Which entry is the largest, the first one of several, itself, and its size; in as few rounds as possible."""
    found = [(code.like(code.real_zero(), float(k)), x, code.size(x)) for k, x in enumerate(column)]
    while len(found) > 1:
        pairs = list(zip(found[::2], found[1::2], strict=False))
        left = found[2 * len(pairs) :]
        found = []
        for one, other in pairs:
            larger = other[2] > one[2]
            chosen, x, size = (code.where(larger, b, a) for a, b in zip(one, other, strict=True))
            found.append((chosen, x, size))
        found += left
    return found[0]


def eliminated(code: Code, column: Column, poison: Value) -> tuple[Step, Any, Value]:
    """The step that eliminates a column, its pivot, and ``poison``: NaN where it is zero, or overflowed."""
    chosen, pivot, size = largest(code, column)
    poison = code.where(size == 0.0, code.real_zero() + float("nan"), poison + (size - size))
    own, *others = column
    multipliers = [code.where(chosen == float(k), own, x) / pivot for k, x in enumerate(others, 1)]
    return Step(chosen, multipliers), pivot, poison


def waiting(code: Code, step: Step, address: Value, offset: int) -> Step:
    """The same in memory, so many bytes behind an address: a row of lanes for each row of the column."""

    def put(x: Any, at: int) -> Any:
        code.store(address + at, x)
        real = Stored(code, address, at)
        return Complex(real, Stored(code, address, at + LINE)) if isinstance(x, Complex) else real

    code.store_as(address + offset, step.chosen)
    chosen = Stored(code, address, offset)
    return Step(chosen, [put(x, offset + (k + 1) * code.row) for k, x in enumerate(step.multipliers)])
