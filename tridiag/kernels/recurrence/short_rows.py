"""The inner loop of sequences of few steps that lie end to end (`tridiag.kernels.access.end_to_end`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code

SHORTEST = 32  # sequences, at least two vectors
FEWEST, MOST = 2, 4  # steps: with more of them plain loops are faster


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


def plain_rows(code: Code, *words: Value) -> None:
    """The same for any number of steps, a number at a time, of some sequences abreast.

    ``words``: how many sequences, and steps of each; the addresses of y, x and a.
    """
    count, n, y, x, a = words
    length = n * code.size_of_real

    def group(together: int) -> Any:
        def rows(first: Value, state: Any) -> Any:
            places = [[address + (first + k) * length for address in (y, x, a)] for k in range(together)]

            def step(i: Value, values: Any) -> Any:
                at, found = i * code.size_of_real, []
                for (to, term, factor), value in zip(places, values, strict=True):
                    value = code.load_as(code.real, factor + at) * value + code.load_as(code.real, term + at)
                    code.store_as(to + at, value)
                    found.append(value)
                return tuple(found)

            start = tuple(code.load_as(code.real, term) for _, term, _ in places)
            for (to, _, _), value in zip(places, start, strict=True):
                code.store_as(to, value)
            code.fori(1, n, step, start)
            return state

        return rows

    even = count / C.ABREAST * C.ABREAST
    code.fori(0, even, group(C.ABREAST), step=C.ABREAST)
    code.fori(even, count, group(1))


def short_rows(made: Order, library: Library) -> Any:
    """The loops over sequences of first order, of few steps, that lie end to end; returns whether they were taken."""
    base, stride, steps = made.base, made.stride, C.TABLE + 2 * C.operands(1) + 1  # as above
    of_steps = [library.add(f"short_{n}", ShortRows(n).write) for n in range(FEWEST, MOST + 1)]
    short, others = by_number(of_steps, FEWEST), library.add("plain_rows", plain_rows)

    @njit(**OPTIONS)
    def run(zero, job, first, last):
        n, size = job.steps, bytes_of_real(zero, ())
        if n < FEWEST or n > C.LONGEST or job.axes != 1 or job.flags & (C.STARTED | C.TRANSPOSED) != 0:
            return False
        for operand in (C.X, C.Y, C.A):
            if stride(job, operand) != size or field(job, steps + operand) != n * size:
                return False
        count, y, x, a = last - first, base(job, C.Y, first), base(job, C.X, first), base(job, C.A, first)
        if n > MOST or count < SHORTEST:
            others(zero, (count, n, y, x, a))
        else:
            short(zero, n, (count, y, x, a))
        return True

    return run
