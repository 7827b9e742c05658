"""Series in the caller's memory: where their operands lie, and their results."""

from __future__ import annotations

from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import pointer, set_word, word
from tridiag.kernels.simd.records import address_of


@compiled
def bind_series(job, table, size, first, count):
    """The addresses of all operands of ``count`` series from ``first`` on; the last series in place of those behind it.

    Those of an operand lie side by side, and ``size`` bytes from those of the operand before it.
    """
    axes = address_of(job) + 8 * (K.TABLE + K.OPERANDS)
    for k in range(count):
        place = table + 8 * k
        for operand in range(K.OPERANDS):
            set_word(place + operand * size, job.pointers[operand])
        left = min(first + k, job.series - 1)
        for axis in range(job.axes - 1, -1, -1):
            row = axes + 8 * (K.OPERANDS + 1) * axis
            index, left = left % word(row), left // word(row)
            for operand in range(K.OPERANDS):
                at = place + operand * size
                set_word(at, word(at) + index * word(row + 8 * (1 + operand)))


@compiled
def put(zero, job, index, value):
    """The log-likelihood of a series, of those that there are."""
    if index < job.series:
        pointer(job.result, zero)[index] = value
