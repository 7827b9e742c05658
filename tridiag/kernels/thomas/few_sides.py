"""A right side each of few matrices, from their factors: one number after another, some systems at the same time.

The rows of a system wait for each other; those of others fill the time. Nothing is bound, claimed or copied, so that a
small call costs little beside its arithmetic; what is kept of a row lies where its solution will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numba import types

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_, Systems
from tridiag.kernels.runtime.work_items import report
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function, load
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.factored import factors_alone
from tridiag.kernels.thomas.factored_loops import factors
from tridiag.kernels.thomas.few_factors import middle_of
from tridiag.kernels.thomas.pivot_products import of_one_lane
from tridiag.kernels.thomas.rows_from_ends import Half
from tridiag.kernels.thomas.stamps import is_certified_alone

JOB = RecordAt(Systems)


class Side:
    """A system: the factors of its matrix, where its right side and its solution begin, how far their next rows are."""

    def __init__(self, code: Code, steps: Sequence[Value], pairs: Value, above: Value, d: Value, x: Value) -> None:
        self.code, (self.d_step, self.x_step), self.d, self.x = code, steps, d, x
        self.slopes, self.inverses, self.above = factors(True, code, pairs, above)

    def given(self, i: Value) -> Value:
        return self.code.load_as(self.code.vector, self.d + i * self.d_step)

    def kept(self, i: Value) -> Value:
        return self.code.load_as(self.code.vector, self.x + i * self.x_step)

    def keep(self, i: Value, value: Value) -> Value:
        self.code.store_as(self.x + i * self.x_step, value)
        return value

    def down(self, i: Value, before: Value) -> Value:
        value = self.code.product(self.given(i), self.inverses[i]) - self.slopes[i] * before
        return self.keep(i, value)

    def up(self, i: Value, behind: Value) -> Value:
        return self.keep(i, self.kept(i) - self.above[i] * behind)

    def turned_down(self, i: Value, before: Value) -> Value:
        return self.keep(i, self.given(i) - self.above[i - 1] * before)

    def turned_up(self, i: Value, behind: Value) -> Value:
        value = self.kept(i) - self.slopes[i + 1] * behind
        self.keep(i, value * self.inverses[i])
        return value


class Together(NamedTuple):
    """So many systems at the same time, or those of the transposed matrices."""

    systems: int
    turned: bool

    @property
    def name(self) -> str:
        return f"{'turned' if self.turned else 'together'}_{self.systems}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: how many rows, how far the next of d and of x is, and for each system what `Side` takes."""
        if code.parts != 1:
            return  # of complex numbers it is never called
        n, rest = words[0], words[3:]
        sides = [Side(code, words[1:3], *rest[k : k + 4]) for k in range(0, len(rest), 4)]
        zero = code.integer(0)

        def rows(step: Any) -> Callable[..., Any]:
            return lambda i, state: tuple(step(side, i, x) for side, x in zip(sides, state, strict=True))

        if not self.turned:
            last = code.fori(zero, n, rows(Side.down), (code.zero(),) * self.systems)
            code.fori(n - 2, -1, rows(Side.up), last, step=-1)
            return
        last = code.fori(1, n, rows(Side.turned_down), tuple(side.keep(zero, side.given(zero)) for side in sides))
        for side, x in zip(sides, last, strict=True):
            side.keep(n - 1, x * side.inverses[n - 1])
        code.fori(n - 2, -1, rows(Side.turned_up), last, step=-1)


def solve_ends(code: Code, *words: Value) -> None:
    """One system, from both ends to the middle and back.

    ``words``: how many rows, how far the next of d and of x is, what `Side` takes, and where the factors from the
    bottom are.
    """
    if code.parts != 1:
        return
    n, steps, (pairs, above, d, x, pairs_below, above_below) = words[0], words[1:3], words[3:]
    half, zero, end = Half.of(code, n), code.integer(0), n - 1
    upper = Side(code, steps, pairs, above, d, x)
    ends = d + end * steps[0], x + end * steps[1]
    lower = Side(code, [zero - step for step in steps], pairs_below, above_below, *ends)
    middle = middle_of(code, pairs_below, half)

    def towards(i: Value, state: Any) -> Any:
        return upper.down(i, state[0]), lower.down(i, state[1])

    def away(i: Value, state: Any) -> Any:
        return upper.up(i, state[0]), lower.up(i, state[1])

    top, bottom = code.fori(zero, half.bottom, towards, (code.zero(), code.zero()))
    top = code.fori(half.bottom, half.top, upper.down, top)
    slopes, inverse = [middle[code.integer(k)] for k in range(2)], middle[code.integer(2)]
    x_middle = code.product(upper.given(half.top), inverse) - slopes[0] * top - slopes[1] * bottom
    start = upper.keep(half.top, x_middle)
    top = code.fori(half.top - 1, half.bottom - 1, upper.up, start, step=-1)
    code.fori(half.bottom - 1, -1, away, (top, start), step=-1)


LOOPS, MOST = Library("few_sides"), 4
ENDS = LOOPS.add("solve_ends", of_one_lane(solve_ends))


def by_turn(count: int) -> Any:
    """The function for so many systems: (job, zero, words)."""
    straight, turned = (
        LOOPS.add(loop.name, of_one_lane(loop.write)) for loop in (Together(count, False), Together(count, True))
    )

    @compiled
    def solve(job, zero, words):
        if job.flags & J.TRANSPOSE:
            turned(zero, words)
        else:
            straight(zero, words)

    return solve


ONE, TWO, THREE, FOUR = (by_turn(count) for count in range(1, MOST + 1))


@compiled
def side_of(zero, job, k):
    """What a `Side` takes."""
    axes = job.matrix_axes
    pairs, above = factors_alone(zero, job, k)
    d = job.pointers[D_] + offset(job, J.AXES, axes, k, D_)
    x = job.pointers[X_] + offset(job, J.AXES, axes, k, X_)
    return pairs, above, d, x


@compiled
def are_from_both_ends(job):
    """Whether there are such factors of the one matrix, beside those from its first row on."""
    return job.stamps == 0 and load(job.certificates, types.uint8(0)) == J.FROM_BOTH_ENDS


@compiled
def solve_few_sides(job, zero):
    """Whether this was the job of this schedule, and all matrices are certified: then all systems are solved."""
    if job.abreast == 0 or parts_of(zero, ()) != 1:
        return types.int64(0)
    matrices, k = job.matrices, 0
    for matrix in range(matrices):
        if not is_certified_alone(job, matrix):
            return types.int64(0)
    head = job.rows, job.strides[D_], job.strides[X_]
    while matrices - k >= MOST:
        two, other = (*side_of(zero, job, k), *side_of(zero, job, k + 1)), k + 2
        FOUR(job, zero, (*head, *two, *side_of(zero, job, other), *side_of(zero, job, other + 1)))
        k += MOST
    if matrices - k == 3:
        THREE(job, zero, (*head, *side_of(zero, job, k), *side_of(zero, job, k + 1), *side_of(zero, job, k + 2)))
    elif matrices - k == 2:
        TWO(job, zero, (*head, *side_of(zero, job, k), *side_of(zero, job, k + 1)))
    elif matrices == 1 and are_from_both_ends(job) and job.flags & J.TRANSPOSE == 0:
        ENDS(zero, (*head, *side_of(zero, job, k), *factors_alone(zero, job, matrices)))
    elif matrices - k == 1:
        ONE(job, zero, (*head, *side_of(zero, job, k)))
    report(job, 0, matrices)
    job.next = job.items
    return types.int64(1)


FEW_SIDES = c_function(solve_few_sides, "tridiag_few_sides", result=types.int64, first=JOB)
