"""Many short right sides of one matrix that lie end to end, from its factors."""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code
from tridiag.kernels.thomas.factored import above_at, pairs_at
from tridiag.kernels.thomas.factored_loops import factors


class ShortSides(NamedTuple):
    """Right sides of n rows."""

    n: int

    def write(self, code: Code, *words: Value) -> None:
        """``words``: the pairs and c' of the factors, the addresses of d and x, how many right sides, whole vectors."""
        if code.parts != 1:
            return  # of complex numbers it is never called
        pairs, above_at, d, x, count = words
        slopes, inverses, above = (
            [rows[code.integer(i)] for i in range(self.n)] for rows in factors(True, code, pairs, above_at)
        )

        def group(first: Value, state: tuple[()]) -> tuple[()]:
            at = first * (self.n * code.size_of_real)
            rows = zip(rows_from(code, d + at, self.n), inverses, strict=True)
            found = [code.product(value, inverse) for value, inverse in rows]
            for i in range(1, self.n):
                found[i] = found[i] - slopes[i] * found[i - 1]
            for i in range(self.n - 2, -1, -1):
                found[i] = found[i] - above[i] * found[i + 1]
            rows_to(code, x + at, found)
            return state

        code.fori(0, count, group, step=code.lanes)


LOOPS = Library("short_sides")
MOST = 7  # rows: with more of them it takes as long as a group of lanes at a time
OF_2, OF_3, OF_4, OF_5, OF_6, OF_7 = (LOOPS.add(f"of_{n}", ShortSides(n).write) for n in range(2, MOST + 1))


@njit(**OPTIONS)
def solve_short_sides(zero, job, worker, factors_at, k, end):
    """Whole vectors of right sides from k on, of a matrix that is bound and certified: how many; 0, no such ones."""
    n, part, right = job.rows, bytes_of_real(zero, ()), J.AXES + J.AXIS_WORDS * job.matrix_axes
    if n < 2 or n > MOST or parts_of(zero, ()) != 1 or job.right_axes != 1 or job.flags & J.MASKED:
        return 0
    for operand in (D_, X_):
        if job.strides[operand] != part or field(job, right + 1 + operand) != n * part:
            return 0
    at, lanes = k * n * part, lanes_of(zero, ())
    d = job.pointers[D_] + word(worker.offsets + 8 * D_) + at
    x = job.pointers[X_] + word(worker.offsets + 8 * X_) + at
    count = (end - k) // lanes * lanes
    words = pairs_at(factors_at, part, 0), above_at(factors_at, part, n, 0), d, x, count
    if n == 2:
        OF_2(zero, words)
    elif n == 3:
        OF_3(zero, words)
    elif n == 4:
        OF_4(zero, words)
    elif n == 5:
        OF_5(zero, words)
    elif n == 6:
        OF_6(zero, words)
    else:
        OF_7(zero, words)
    return count
