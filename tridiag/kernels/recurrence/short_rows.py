"""The inner loop of sequences of few steps that lie end to end (`tridiag.kernels.access.end_to_end`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import njit

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.interleaved_loops import own, shared
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code

SHORTEST = 32  # sequences, at least two vectors
MOST = 4  # steps: with more of them plain loops are faster


class ShortRows(NamedTuple):
    """``n`` steps, of first order and without a value before the first."""

    take: Callable[..., Value]
    n: int

    @property
    def name(self) -> str:
        return f"short_{self.take.__name__}_{self.n}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: how many sequences, at least as many as there are lanes; the addresses of y, x and a.

        The last vector begins where it has to, and computes some of those before it once more.
        """
        count, y, x, a = words
        length = self.n * code.size_of_real

        def group(first: Value, state: Any) -> Any:
            at = first * length
            rows = rows_from(code, x + at, self.n)
            factors = rows_from(code, a + at, self.n) if self.take is own else [code.spread(a)] * self.n
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
    loops = [ShortRows(take, n) for take in (own, shared) for n in (2, 3, 4)]
    own2, own3, own4, shared2, shared3, shared4 = (library.add(loop.name, loop.write) for loop in loops)

    @njit(**OPTIONS)
    def run(zero, job, first, last):
        n, size = job.steps, bytes_of_real(zero, ())
        if n < 2 or n > MOST or job.axes != 1 or job.flags & (C.STARTED | C.TRANSPOSED) != 0 or last - first < SHORTEST:
            return False
        for operand in (C.X, C.Y):
            if stride(job, operand) != size or field(job, steps + operand) != n * size:
                return False
        constant = stride(job, C.A) == 0 and field(job, steps + C.A) == 0
        if not constant and (stride(job, C.A) != size or field(job, steps + C.A) != n * size):
            return False
        words = last - first, base(job, C.Y, first), base(job, C.X, first), base(job, C.A, first)
        if constant:
            if n == 2:
                shared2(zero, words)
            elif n == 3:
                shared3(zero, words)
            else:
                shared4(zero, words)
        elif n == 2:
            own2(zero, words)
        elif n == 3:
            own3(zero, words)
        else:
            own4(zero, words)
        return True

    return run
