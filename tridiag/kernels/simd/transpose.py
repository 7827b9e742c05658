"""Square blocks of lanes, transposed in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


def transpose_blocks(code: Code, rows: Sequence[Value]) -> list[Value]:
    """Square blocks side by side in k vectors of a multiple of k elements, each transposed: log2(k) shuffles."""
    rows, count, step = list(rows), len(rows), 1
    width = rows[0].llvm.type.count
    while step < count:
        turned = list(rows)
        for i in range(count):
            if not i & step:
                low, high = rows[i], rows[i + step]
                turned[i] = code.shuffle(low, high, [k if not k & step else width + k - step for k in range(width)])
                turned[i + step] = code.shuffle(
                    low, high, [k + step if not k & step else width + k for k in range(width)]
                )
        rows, step = turned, 2 * step
    return rows


def transpose_in_memory(code: Code, row: Callable[[int], Value], column: Callable[[int], Value]) -> None:
    """A square of lanes from where its rows lie to where its columns are to be.

    Where registers are narrow, one square of their lanes is transposed after the other.
    """
    pieces = [(part, first, first * code.size_of_real) for part, first in narrow(code)]
    for part, left, to_left in pieces:
        for _, top, to_top in pieces:
            rows = [part.load_as(part.vector, row(top + k) + to_left) for k in range(part.lanes)]
            for k, turned in enumerate(transpose_blocks(part, rows)):
                part.store_as(column(left + k) + to_top, turned)
