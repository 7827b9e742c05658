"""Sequences of first order that fill no vectors, too short or too few or too far apart: plain loops."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.interleaved_loops import own, shared
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.recurrence.short_rows import SHORTEST, ShortRows
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code

STEPS = C.TABLE + 2 * C.operands(1) + 1  # how far the next sequence of each operand is, where there is one batch axis
ABREAST = 4  # sequences at a time: none waits for its own products


class Plain(NamedTuple):
    """All steps of regularly spaced sequences, one number at a time."""

    started: bool  # from a value before the first step; else its coefficient is not read
    transposed: bool  # a product is carried on, so that no coefficient of another step is read

    @property
    def name(self) -> str:
        return f"plain{'_started' * self.started}{'_transposed' * self.transposed}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: sequences, steps; of x, a, y and the value before: address, stride, distance to the next one."""
        (count, n), places = words[:2], [words[k : k + 3] for k in range(2, 14, 3)]

        def group(together: int) -> Any:
            def body(first: Value, state: Any) -> Any:
                x, a, y, init = (
                    [(address + (first + k) * apart, stride) for k in range(together)]
                    for address, stride, apart in places
                )

                def take(place: Any, i: Value) -> Value:
                    return code.load_as(code.real, place[0] + i * place[1])

                def step(i: Value, carried: Any) -> Any:
                    found = []
                    for k, before in enumerate(carried):
                        if self.transposed:
                            value = take(x[k], i) + before
                            found.append(take(a[k], i) * value)
                        else:
                            value = take(a[k], i) * before + take(x[k], i)
                            found.append(value)
                        code.store_as(y[k][0] + i * y[k][1], value)
                    return tuple(found)

                zero = code.integer(0)
                if self.started:
                    begun, start = zero, [take(place, zero) for place in init]
                elif self.transposed:
                    begun, start = zero, [code.like(take(x[0], zero), 0.0)] * together
                else:
                    begun, start = zero + 1, [take(place, zero) for place in x]
                    for place, value in zip(y, start, strict=True):
                        code.store_as(place[0], value)
                code.fori(begun, n, step, tuple(start))
                return state

            return body

        even = count / ABREAST * ABREAST
        code.fori(0, even, group(ABREAST), step=ABREAST)
        code.fori(even, count, group(1))


def one_after_another(made: Order, library: Library) -> Any:
    base, stride, step_by_step = made.base, made.stride, made.step_by_step
    short, init = short_rows(made, library), C.A + 1
    loops = [Plain(False, False), Plain(True, False), Plain(False, True), Plain(True, True)]
    plain, started, transposed, both = (library.add(loop.name, loop.write) for loop in loops)

    @njit(**OPTIONS)
    def apart(job, operand):
        """How far the next sequence is; where there is one axis of them, or else nothing is known of it."""
        return field(job, STEPS + operand) if job.axes == 1 else 0

    @njit(**OPTIONS)
    def run(zero, job, first, count):
        """Sequences from the first on, regularly spaced, or a single one."""
        words = (
            count, job.steps,
            base(job, C.X, first), stride(job, C.X), apart(job, C.X),
            base(job, C.A, first), stride(job, C.A), apart(job, C.A),
            base(job, C.Y, first), stride(job, C.Y), apart(job, C.Y),
            base(job, init, first), stride(job, init), apart(job, init),
        )  # fmt: skip
        if job.flags & C.TRANSPOSED:
            if job.flags & C.STARTED:
                both(zero, words)
            else:
                transposed(zero, words)
        elif job.flags & C.STARTED:
            started(zero, words)
        else:
            plain(zero, words)

    @njit(**OPTIONS)
    def work(job, zero):
        """Sequences in any place."""
        many, count = job.run, job.sequences
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            if short(zero, job, first, last):
                continue
            if job.steps <= PIECE and job.axes == 1:
                run(zero, job, first, last - first)
                continue
            for index in range(first, last):
                if job.steps <= PIECE:
                    run(zero, job, index, 1)
                else:
                    step_by_step(zero, job, index, 0, job.steps, zero)

    return work


def short_rows(made: Order, library: Library) -> Any:
    """The loop over sequences of a few steps that lie end to end; returns whether it has computed them."""
    base, stride = made.base, made.stride
    loops = [ShortRows(take, n) for take in (own, shared) for n in (2, 3, 4)]
    own2, own3, own4, shared2, shared3, shared4 = (library.add(loop.name, loop.write) for loop in loops)

    @njit(**OPTIONS)
    def run(zero, job, first, last):
        n, size = job.steps, bytes_of_real(zero, ())
        if n < 2 or n > 4 or job.axes != 1 or job.flags & (C.STARTED | C.TRANSPOSED) != 0 or last - first < SHORTEST:
            return False
        for operand in (C.X, C.Y):
            if stride(job, operand) != size or field(job, STEPS + operand) != n * size:
                return False
        constant = stride(job, C.A) == 0 and field(job, STEPS + C.A) == 0
        if not constant and (stride(job, C.A) != size or field(job, STEPS + C.A) != n * size):
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
