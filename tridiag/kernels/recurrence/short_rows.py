"""The inner loop of sequences of few steps that lie end to end (`tridiag.kernels.access.end_to_end`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class ShortRows(NamedTuple):
    """``n`` steps, of first order and without a value before the first."""

    n: int

    def write(self, code: Code, *words: Value) -> None:
        """``words``: how many sequences, at least as many as there are lanes; the addresses of y, x and a.

        The last vector begins where it has to, and computes some of those before it once more.
        """
        count, y, x, a = words
        length = self.n * code.size_of_real

        def group(first: Value, state: Any) -> Any:
            at = first * length
            rows, factors = (rows_from(code, operand + at, self.n) for operand in (x, a))
            found = rows[:1]
            for row, factor in zip(rows[1:], factors[1:], strict=True):
                found.append(factor * found[-1] + row)
            rows_to(code, y + at, found)
            return state

        even = count / code.lanes * code.lanes
        code.fori(0, even, group, step=code.lanes)
        code.fori(code.pick(even < count, count - code.lanes, count), count, group, step=code.lanes)


def short_rows(made: Order, library: Library) -> Any:
    """The loop over sequences of first order, of a few steps, that lie end to end; returns whether it was taken."""
    base, stride, steps = made.base, made.stride, C.TABLE + 2 * C.operands(1) + 1  # as above
    of_steps = [library.add(f"short_{n}", ShortRows(n).write) for n in range(C.FEWEST, C.MOST + 1)]
    short = by_number(of_steps, C.FEWEST)

    @compiled
    def run(zero, job, first, last):
        n, size = job.steps, bytes_of_real(zero, ())
        if n < C.FEWEST or n > C.MOST or job.axes != 1 or last - first < C.MANY:
            return False
        if job.flags & (C.STARTED | C.TRANSPOSED) != 0:
            return False
        for operand in (C.X, C.Y, C.A):
            if stride(job, operand) != size or field(job, steps + operand) != n * size:
                return False
        short(zero, n, (last - first, base(job, C.Y, first), base(job, C.X, first), base(job, C.A, first)))
        return True

    return run
