"""Small batches of systems of few rows that lie end to end: from both ends, as `both_ends`, sorted in registers."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tridiag.kernels.access.end_to_end import rows_from, rows_to
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code
from tridiag.kernels.thomas.rows_from_ends import ALL, SOME, join, nothing_above
from tridiag.kernels.thomas.steps import Thomas

Row = tuple[Any, ...]


class Short(NamedTuple):
    """Systems of n rows."""

    n: int

    def down(self, code: Code, *words: Value) -> None:
        """``words``: where a, b, c and d begin, how many systems, whole vectors, where x of groups, their good lanes,
        and how many systems have a certificate are told.
        """
        if code.parts != 1:
            return  # of complex numbers it is never called
        *bands, count, kept, good, told = words

        def group(first: Value, state: Any) -> Any:
            at, k = first * (self.n * code.size_of_real), first / code.lanes
            rows = list(zip(*(rows_from(code, x + at, self.n) for x in bands), strict=True))
            found, sure = solved(code, rows)
            for i, x in enumerate(found):
                code.store(kept + (k * self.n + i) * code.row, x)
            fine = code.bits(sure)
            code.store_as(good + k * 8, fine)
            return state[0] & fine, state[1] | fine

        every, none = code.integer(2**code.lanes - 1), code.integer(0)
        whole, some = code.fori(0, count, group, (every, none), step=code.lanes)
        code.store_as(
            told, code.pick(whole == every, code.integer(ALL), code.pick(some == 0, none, code.integer(SOME)))
        )

    def up(self, code: Code, *words: Value) -> None:
        """The lanes that are good. ``words``: where x begins, how many systems, x of groups, their good lanes."""
        if code.parts != 1:
            return
        x, count, kept, good = words

        def group(first: Value, state: tuple[()]) -> tuple[()]:
            at, k = first * (self.n * code.size_of_real), first / code.lanes
            rows = [code.load(kept + (k * self.n + i) * code.row) for i in range(self.n)]
            lanes, nothing, one = code.word(good + k * 8), code.integer(0), code.integer(1)
            whole = lanes == 2**code.lanes - 1

            def put(_: Value, state: tuple[()]) -> tuple[()]:
                rows_to(code, x + at, rows)
                return state

            def blend(_: Value, state: tuple[()]) -> tuple[()]:
                there, mask = rows_from(code, x + at, self.n), code.mask(lanes)
                rows_to(code, x + at, [code.where(mask, new, old) for new, old in zip(rows, there, strict=True)])
                return state

            code.fori(0, code.pick(whole, one, nothing), put, state)
            return code.fori(0, code.pick(whole, nothing, one), blend, state)

        code.fori(0, count, group, step=code.lanes)


def solved(code: Code, rows: list[Row]) -> tuple[list[Any], Value]:
    """x of all rows, and the certified lanes."""
    n, every = len(rows), code.all_lanes()
    bottom = (n - 1) // 2
    top = n - 1 - bottom
    first = last = nothing_above(code)
    above, below = [], []
    for k in range(top):
        a, b, c, d = rows[k]
        first, kept = first.down(code, every, a if k else code.zero(), b, c, d)
        above.append(kept)
    for k in range(bottom):
        a, b, c, d = rows[n - 1 - k]
        last, kept = last.down(code, every, c if k else code.zero(), b, a, d)
        below.append(kept)
    a, b, c, d = rows[top]
    middle, sure = join(code, first, last, (a, b, c if bottom else code.zero(), d))
    head, tail = [middle], [middle]
    for kept in reversed(above):
        head.append(Thomas.up(kept, head[-1]))
    for kept in reversed(below):
        tail.append(Thomas.up(kept, tail[-1]))
    return head[::-1] + tail[1:], sure


LOOPS, NUMBERS = Library("short_systems"), range(J.FEWEST_ROWS, J.MOST_ROWS + 1)
DOWN = by_number([LOOPS.add(f"down_{n}", Short(n).down) for n in NUMBERS], J.FEWEST_ROWS)
UP = by_number([LOOPS.add(f"up_{n}", Short(n).up) for n in NUMBERS], J.FEWEST_ROWS)


@njit(**OPTIONS)
def in_vectors(zero, job):
    """How many systems of a job are to be sorted in registers: whole vectors."""
    lanes = lanes_of(zero, ())
    return job.matrices // lanes * lanes if job.flags & J.END_TO_END else 0


@njit(**OPTIONS)
def eliminate_short(zero, job, count, kept, good, told):
    """x of the first ``count`` systems to ``kept``; how many have a certificate is told."""
    bands = job.pointers[A_], job.pointers[B_], job.pointers[C_], job.pointers[D_]
    DOWN(zero, job.rows, (*bands, count, kept, good, told))


@njit(**OPTIONS)
def put_short(zero, job, count, kept, good):
    UP(zero, job.rows, (job.pointers[X_], count, kept, good))
