"""Factors of many matrices of few rows that lie end to end: read as memory has them, and sorted in registers."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.end_to_end import rows_from
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import set_byte
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Factoring, no_quotient, pack
from tridiag.kernels.thomas.stored import AT_ONCE, copy_shares


class ShortFactors(NamedTuple):
    """Matrices of n rows."""

    n: int

    def write(self, code: Code, *words: Value) -> None:
        """``words``: a, b, c, where the factors go, how many matrices, whole groups, and a word that they clear.

        That is where some matrix has no certificate.
        """
        if code.parts != 1:
            return  # of complex numbers it is never called
        *bands, target, count, told = words
        n, every = self.n, 2**code.lanes - 1

        def group(k: Value, state: Any) -> Any:
            place, fine = state
            a, b, c = (rows_from(code, at + k * (n * code.size_of_real), n) for at in bands)
            a[0], c[-1] = code.zero(), code.zero()
            carried = Factoring(code.zero(), code.all_lanes(), code.all_lanes(), no_quotient(code))
            for i in range(n):
                carried, kept = carried.down(code, code.all_lanes(), a[i], b[i], c[i])
                for row, x in zip((2 * i, 2 * i + 1, 3 * n - 1 - i), kept, strict=True):
                    code.store(place + row * code.row, x)
            return place + 3 * n * code.row, fine & pack(code, carried.sure, carried.alive, carried.least)

        _, fine = code.fori(0, count, group, (target, code.integer(every)), step=code.lanes)
        code.store_as(told, code.pick(fine == every, code.integer(1), code.integer(0)))


LOOPS = Library("short_factors")
FEWEST, MOST = J.FEWEST_ROWS, J.MOST_ROWS
FACTORS = by_number([LOOPS.add(f"of_{n}", ShortFactors(n).write) for n in range(FEWEST, MOST + 1)], FEWEST)


@compiled
def are_short(zero, job):
    """Whether matrices have few rows, and lie end to end."""
    n, size = job.rows, bytes_of_real(zero, ())
    if n < FEWEST or n > MOST or job.matrix_axes != 1 or parts_of(zero, ()) != 1:
        return False
    if job.flags & J.FACTORING == 0 or job.flags & (J.MASKED | J.TRANSPOSE) or job.promise != J.AUTO:
        return False
    for operand in (A_, B_, C_):
        if job.strides[operand] != size or field(job, J.AXES + 1 + operand) != n * size:
            return False
    return True


@compiled
def factor_short(zero, job, worker, first, last):
    """Whole groups of matrices first <= k < last up to those without certificate: how many; 0, no such ones."""
    if not are_short(zero, job):
        return 0
    n, lanes, size = job.rows, lanes_of(zero, ()), bytes_of_real(zero, ())
    count, tiles = (last - first) // lanes * lanes, (job.matrices + lanes - 1) // lanes
    together = max(1, AT_ONCE // (n * lanes)) * lanes
    for k in range(first, first + count, together):
        some, at = min(together, first + count - k), k * n * size
        copy_shares(zero, job, k // lanes, (k + some) // lanes, tiles)
        a, b, c = job.pointers[A_] + at, job.pointers[B_] + at, job.pointers[C_] + at
        target = job.factors + k // lanes * (3 * n * bytes_of_row(zero, ()))
        FACTORS(zero, n, (a, b, c, target, some, worker.addresses.views))
        if worker.views[0] == 0 or stopping():
            return k - first
        for system in range(k, k + some):
            set_byte(job.certificates + system, 0 * system + J.CERTIFIED)
    return count
