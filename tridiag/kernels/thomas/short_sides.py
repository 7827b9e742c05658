"""Short right sides from factors: many of one matrix that lie end to end, or one of each of many matrices.

Those of many matrices may lie anywhere, evenly spaced: they are gathered into rows of lanes, some at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.factored import above_at, pairs_at
from tridiag.kernels.thomas.factored_loops import factors
from tridiag.kernels.thomas.gathered import gather_rows, load_rows, scatter_rows, store_rows
from tridiag.kernels.thomas.stamps import kinds_of
from tridiag.kernels.thomas.workspace import PITCH


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
            found = substituted(code, rows_from(code, d + at, self.n), slopes, inverses, above)
            rows_to(code, x + at, found)
            return state

        code.fori(0, count, group, step=code.lanes)


class OwnSides(NamedTuple):
    """The same where each has a matrix of its own, whose factors are rows of lanes, a group behind the other."""

    n: int

    def place(self, code: Code, k: Value) -> Value:
        """How many bytes right side k lies behind the first."""
        return k * (self.n * code.size_of_real)

    def rows(self, code: Code, address: Value) -> list[Value]:
        return rows_from(code, address, self.n)

    def put(self, code: Code, address: Value, rows: list[Value]) -> None:
        rows_to(code, address, rows)

    def write(self, code: Code, *words: Value) -> None:
        """``words``: the factors of the first group, the addresses of d and x, how many right sides, whole groups."""
        if code.parts != 1:
            return  # of complex numbers it is never called
        first, d, x, count = words
        n = self.n

        def group(k: Value, place: Value) -> Value:
            at = self.place(code, k)
            entries = [code.load(place + i * code.row) for i in range(3 * n)]
            slopes, inverses, above = entries[0 : 2 * n : 2], entries[1 : 2 * n : 2], entries[: 2 * n - 1 : -1]
            self.put(code, x + at, substituted(code, self.rows(code, d + at), slopes, inverses, above))
            return place + 3 * n * code.row

        code.fori(0, count, group, first, step=code.lanes)


class GatheredSides(OwnSides):
    """The same in rows of lanes, as `gathered` has them."""

    __slots__ = ()

    def place(self, code: Code, k: Value) -> Value:
        return k * code.size_of_real

    def rows(self, code: Code, address: Value) -> list[Value]:
        return load_rows(code, address, self.n)

    def put(self, code: Code, address: Value, rows: list[Value]) -> None:
        store_rows(code, address, rows)


def substituted(code: Code, d: list[Value], slopes: Any, inverses: Any, above: Any) -> list[Value]:
    """The solution, row by row."""
    found = [code.product(value, inverse) for value, inverse in zip(d, inverses, strict=True)]
    for i in range(1, len(found)):
        found[i] = found[i] - slopes[i] * found[i - 1]
    for i in range(len(found) - 2, -1, -1):
        found[i] = found[i] - above[i] * found[i + 1]
    return found


LOOPS = Library("short_sides")
FEWEST, MOST = J.FEWEST_ROWS, J.MOST_ROWS  # with more of them it takes as long as a group of lanes at a time
OF_ONE_MATRIX = by_number([LOOPS.add(f"of_{n}", ShortSides(n).write) for n in range(FEWEST, MOST + 1)], FEWEST)
OF_MANY = by_number([LOOPS.add(f"own_{n}", OwnSides(n).write) for n in range(FEWEST, MOST + 1)], FEWEST)
GATHERED = by_number([LOOPS.add(f"gathered_{n}", GatheredSides(n).write) for n in range(FEWEST, MOST + 1)], FEWEST)


@compiled
def are_end_to_end(zero, job, axis):
    """Whether right sides and solutions are, along their only axis, the words of which begin at ``axis``."""
    n, size = job.rows, bytes_of_real(zero, ())
    for operand in (D_, X_):
        if job.strides[operand] != size or field(job, axis + 1 + operand) != n * size:
            return False
    return parts_of(zero, ()) == 1 and job.flags & J.MASKED == 0


@compiled
def solve_short_own(zero, job, worker, first, last):
    """Whole groups of systems first <= k < last from their factors, which are certified: how many; 0, no such ones."""
    n, lanes, flags = job.rows, lanes_of(zero, ()), job.flags
    if n < FEWEST or n > MOST or flags & (J.FACTORED | J.TRANSPOSE) != J.FACTORED:
        return 0
    if job.right_sides != 1 or job.matrix_axes != 1 or parts_of(zero, ()) != 1 or job.flags & J.MASKED:
        return 0
    count = (last - first) // lanes * lanes
    for k in range(first, first + count, lanes):
        if kinds_of(job, k, lanes) != 0:
            return 0
    if not are_end_to_end(zero, job, J.AXES):
        gather_sides(zero, job, worker, first, count)
        return count
    at, factors = first * n * bytes_of_real(zero, ()), job.factors + first // lanes * n * 3 * bytes_of_row(zero, ())
    words = factors, job.pointers[D_] + at, job.pointers[X_] + at, count
    OF_MANY(zero, n, words)
    return count


@compiled
def gather_sides(zero, job, worker, first, count):
    """So many systems, whole groups of them, from their factors, which are certified: some at a time."""
    n, lanes, size = job.rows, lanes_of(zero, ()), bytes_of_real(zero, ())
    group, d, x = n * 3 * bytes_of_row(zero, ()), worker.short_spare, worker.short_spare + MOST * PITCH
    for k in range(first, first + count, PITCH // size):
        some = min(PITCH // size, first + count - k)
        gather_rows(zero, job, D_, k, some, d)
        GATHERED(zero, n, (job.factors + k // lanes * group, d, x, some))
        scatter_rows(zero, job, X_, k, some, x)


@compiled
def solve_short_sides(zero, job, worker, factors_at, k, end):
    """Whole vectors of right sides from k on, of a matrix that is bound and certified: how many; 0, no such ones."""
    n, part, right = job.rows, bytes_of_real(zero, ()), J.AXES + J.AXIS_WORDS * job.matrix_axes
    if n < FEWEST or n > MOST or job.right_axes != 1 or not are_end_to_end(zero, job, right):
        return 0
    at, lanes = k * n * part, lanes_of(zero, ())
    d = job.pointers[D_] + word(worker.offsets + 8 * D_) + at
    x = job.pointers[X_] + word(worker.offsets + 8 * X_) + at
    count = (end - k) // lanes * lanes
    words = pairs_at(factors_at, part, 0), above_at(factors_at, part, n, 0), d, x, count
    OF_ONE_MATRIX(zero, n, words)
    return count
