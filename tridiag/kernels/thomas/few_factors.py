"""The factors of few matrices, one number after another, some matrices at the same time.

The rows of a matrix wait for each other; those of others fill the time. Nothing is bound or moved, so that a small call
costs little beside its arithmetic. Of one matrix alone there are factors from both ends too, from which right sides are
solved in half the time: those from the top are the first ones of the whole elimination, those from the bottom up to the
row in the middle lie behind that, as if they were a second matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numba import types

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import parts_of
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import set_byte
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.factored import factors_alone
from tridiag.kernels.thomas.factored_loops import factors
from tridiag.kernels.thomas.pivot_products import of_one_lane
from tridiag.kernels.thomas.rows_from_ends import Half, middle_row, sure_of
from tridiag.kernels.thomas.steps import (
    Factoring,
    least_quotient,
    lossless,
    no_quotient,
    pack,
)


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


def middle_of(code: Code, pairs: Value, half: Half) -> Rows:
    """a / pivot, c / pivot and 1 / pivot of the middle row, behind the pairs of the rows from the bottom up to it."""
    return Rows(code, pairs + half.bottom * (2 * code.size_of_real), code.size_of_real)


def factor_ends(code: Code, *words: Value) -> Value | None:
    """A bit where one matrix of at least three rows is certified, and another one where it is so from both ends.

    ``words``: how many rows, how far the next of a, b and c is, what `Matrix` takes, and the places of the factors from
    the bottom.
    """
    if code.parts != 1:
        return None  # of complex numbers it is never called
    n, steps, places, others = words[0], words[1:4], words[4:9], words[9:]
    half, zero, end = Half.of(code, n), code.integer(0), n - 1
    ends = [at + end * step for at, step in zip(places[:3], steps, strict=True)]
    matrix = Matrix(code, steps, places)
    turned = Matrix(code, [zero - step for step in reversed(steps)], (*reversed(ends), *others))
    nothing = Factoring(code.zero(), code.all_lanes(), code.all_lanes(), no_quotient(code))

    def both(i: Value, states: Any) -> Any:
        return matrix.down(states[0], i), turned.down(states[1], i)

    def down(i: Value, state: Any) -> Any:
        return matrix.down(state, i)

    states = matrix.down(nothing, zero, first=True), turned.down(nothing, zero, first=True)
    top, bottom = code.fori(1, half.bottom, both, states)
    top = code.fori(half.bottom, half.top, down, top)
    joined = join(code, matrix, top, bottom, half.top, middle_of(code, others[0], half))
    last = matrix.down(code.fori(half.top, end, down, top), end, last=True)
    whole = code.bits(sure_of(code, last)) & 1
    return whole | code.shift(whole & code.bits(joined), 1)


def join(code: Code, matrix: Matrix, top: Factoring, bottom: Factoring, i: Value, middle: Rows) -> Value:
    """The factors of row i, between two that are eliminated, and where all are harmless."""
    a, b, c = (matrix.entry(band, i) for band in range(3))
    row, sure = middle_row(code, (a, b, c), top, bottom)
    kept = a * row.inverse, c * row.inverse, row.inverse
    for k, x in enumerate(kept):
        middle.store(code.integer(k), x)
    least = least_quotient(code, least_quotient(code, no_quotient(code), kept[0], a), kept[1], c)
    return sure & lossless(code, least)


LOOPS, MOST = Library("few_factors"), 4
ENDS, FEWEST = LOOPS.add("factor_ends", of_one_lane(factor_ends)), 3
ONE, TWO, THREE, FOUR = (LOOPS.add(f"together_{k}", of_one_lane(Together(k).write)) for k in range(1, MOST + 1))


@compiled
def places_of(zero, job, k):
    """What a `Matrix` takes."""
    axes = job.matrix_axes
    pairs, above = factors_alone(zero, job, k)
    a = job.pointers[A_] + offset(job, J.AXES, axes, k, A_)
    b = job.pointers[B_] + offset(job, J.AXES, axes, k, B_)
    c = job.pointers[C_] + offset(job, J.AXES, axes, k, C_)
    return a, b, c, pairs, above


@compiled
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
    fine, wanted, kind = 0, (1 << (matrices - k)) - 1, J.CERTIFIED
    if matrices - k == 3:
        fine = THREE(
            zero, (*head, *places_of(zero, job, k), *places_of(zero, job, k + 1), *places_of(zero, job, k + 2))
        )
    elif matrices - k == 2:
        fine = TWO(zero, (*head, *places_of(zero, job, k), *places_of(zero, job, k + 1)))
    elif matrices == 1 and n >= FEWEST and job.stamps == 0:  # arrays with stamps have room for one matrix
        fine = ENDS(zero, (*head, *places_of(zero, job, k), *factors_alone(zero, job, matrices)))
        kind = J.FROM_BOTH_ENDS if fine == 3 else J.CERTIFIED
        fine &= 1
    elif matrices - k == 1:
        fine = ONE(zero, (*head, *places_of(zero, job, k)))
    if fine != wanted:
        return False
    for matrix in range(matrices):
        set_byte(job.certificates + matrix, types.int64(kind))
    return True
