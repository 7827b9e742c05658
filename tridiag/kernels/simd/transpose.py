"""Square blocks of lanes, transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence

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
