"""The factors of few matrices, one number after another, some matrices at the same time.

The rows of a matrix wait for each other; those of others fill the time. Nothing is bound or moved, so that a small call
costs little beside its arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numba import njit, types

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import set_byte
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code
from tridiag.kernels.thomas.factored import factors_alone
from tridiag.kernels.thomas.factored_loops import factors
from tridiag.kernels.thomas.pivot_products import of_one_lane
from tridiag.kernels.thomas.steps import Factoring, no_quotient, pack


class Matrix:
    """Where the bands of a matrix begin, and its factors; how far the next rows of a, b and c are."""

    def __init__(self, code: Code, steps: Sequence[Value], places: Sequence[Value]) -> None:
        self.code, self.steps, self.bands = code, steps, places[:3]
        self.targets = factors(True, code, *places[3:])

    def entry(self, band: int, i: Value) -> Value:
        return self.code.load_as(self.code.vector, self.bands[band] + i * self.steps[band])

    def down(self, state: Factoring, i: Value, first: bool = False, last: bool = False) -> Factoring:
        """Row i; the first and the last one have one coupling less."""
        code = self.code
        a, c = code.zero() if first else self.entry(0, i), code.zero() if last else self.entry(2, i)
        state, kept = state.down(code, code.all_lanes(), a, self.entry(1, i), c)
        for rows, x in zip(self.targets, kept, strict=True):
            rows.store(i, x)
        return state


class Together(NamedTuple):
    """So many matrices of at least two rows at the same time."""

    matrices: int

    def write(self, code: Code, *words: Value) -> Value | None:
        """A bit for each that is certified.

        ``words``: how many rows, how far the next of a, b and c is, and for each matrix what `Matrix` takes.
        """
        if code.parts != 1:
            return None  # of complex numbers it is never called
        n, rest, zero = words[0], words[4:], code.integer(0)
        those = [Matrix(code, words[1:4], rest[k : k + 5]) for k in range(0, len(rest), 5)]
        nothing = Factoring(code.zero(), code.all_lanes(), code.all_lanes(), no_quotient(code))
        states = tuple(matrix.down(nothing, zero, first=True) for matrix in those)

        def row(i: Value, states: Any) -> Any:
            return tuple(matrix.down(state, i) for matrix, state in zip(those, states, strict=True))

        states = code.fori(1, n - 1, row, states)
        found = zero
        for k, (matrix, state) in enumerate(zip(those, states, strict=True)):
            end = matrix.down(state, n - 1, last=True)
            certified = pack(code, end.sure, end.alive, end.least) & 1
            found = found | (code.shift(certified, k) if k else certified)
        return found


LOOPS, MOST = Library("few_factors"), 4
ONE, TWO, THREE, FOUR = (LOOPS.add(f"together_{k}", of_one_lane(Together(k).write)) for k in range(1, MOST + 1))


@njit(**OPTIONS)
def places_of(zero, job, k):
    """What a `Matrix` takes."""
    axes = job.matrix_axes
    pairs, above = factors_alone(zero, job, k)
    a = job.pointers[A_] + offset(job, J.AXES, axes, k, A_)
    b = job.pointers[B_] + offset(job, J.AXES, axes, k, B_)
    c = job.pointers[C_] + offset(job, J.AXES, axes, k, C_)
    return a, b, c, pairs, above


@njit(**OPTIONS)
def factor_one_by_one(zero, job):
    """Whether this was a job of this schedule, and all matrices are certified: then their factors are there."""
    n, matrices, k = job.rows, job.matrices, 0
    if parts_of(zero, ()) != 1 or n < 2 or job.promise != J.AUTO or job.flags & (J.MASKED | J.TRANSPOSE):
        return False
    head = n, job.strides[A_], job.strides[B_], job.strides[C_]
    while matrices - k >= MOST:
        two, other = (*places_of(zero, job, k), *places_of(zero, job, k + 1)), k + 2
        if FOUR(zero, (*head, *two, *places_of(zero, job, other), *places_of(zero, job, other + 1))) != 15:
            return False
        k += MOST
    fine, wanted = 0, (1 << (matrices - k)) - 1
    if matrices - k == 3:
        fine = THREE(
            zero, (*head, *places_of(zero, job, k), *places_of(zero, job, k + 1), *places_of(zero, job, k + 2))
        )
    elif matrices - k == 2:
        fine = TWO(zero, (*head, *places_of(zero, job, k), *places_of(zero, job, k + 1)))
    elif matrices - k == 1:
        fine = ONE(zero, (*head, *places_of(zero, job, k)))
    if fine != wanted:
        return False
    for matrix in range(matrices):
        set_byte(job.certificates + matrix, types.int64(J.CERTIFIED))
    return True
