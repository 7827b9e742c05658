"""Sequences that fill no vectors, too short or too few or too far apart: plain loops."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.order import Order
from tridiag.kernels.recurrence.short_rows import short_rows
from tridiag.kernels.runtime.work_items import field, items
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE, stopping
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code


class Plain(NamedTuple):
    """All steps of regularly spaced sequences, one number at a time."""

    order: int
    started: bool  # from values before the first step; else the coefficients of these are not read
    transposed: bool  # products are carried on, so that no coefficient of another step is read

    @property
    def name(self) -> str:
        return f"plain{self.order}{'_started' * self.started}{'_transposed' * self.transposed}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: sequences, steps; of y, x, the coefficients and the values before: address, stride, distance."""
        (count, n), operands = words[:2], [words[k : k + 3] for k in range(2, len(words), 3)]

        def group(together: int) -> Any:
            def body(first: Value, state: Any) -> Any:
                places = [
                    [(address + (first + k) * apart, stride) for k in range(together)]
                    for address, stride, apart in operands
                ]
                y, x, more = places[C.Y], places[C.X], places[C.A :]
                self.sequences(code, n, y, x, more[: self.order], more[self.order :])
                return state

            return body

        even = count / C.ABREAST * C.ABREAST
        code.fori(0, even, group(C.ABREAST), step=C.ABREAST)
        code.fori(even, count, group(1))

    def sequences(self, code: Code, n: Value, y: Any, x: Any, coefficients: Any, before: Any) -> None:
        """Some side by side; each operand as addresses and strides."""
        zero = code.integer(0)

        def take(place: Any, i: Value) -> Value:
            return code.load_as(code.real, place[0] + i * place[1])

        def steps(terms: int) -> Any:
            def step(i: Value, state: Any) -> Any:
                found = []
                for k, carried in enumerate(state):
                    factors = [take(a[k], i) for a in coefficients[:terms]]
                    value = take(x[k], i)
                    if self.transposed:
                        value = value + carried[0]
                        more = [*carried[1:], None]
                        new = [
                            a * value + m if m is not None else a * value for a, m in zip(factors, more, strict=True)
                        ]
                    else:
                        for a, earlier in zip(factors[::-1], carried[:terms][::-1], strict=True):
                            value = a * earlier + value
                        new = [value, *carried[:-1]]
                    code.store_as(y[k][0] + i * y[k][1], value)
                    found.append(tuple(new))
                return tuple(found)

            return step

        nothing = code.like(take(x[0], zero), 0.0)
        state = tuple(tuple(take(b[k], zero) if self.started else nothing for b in before) for k in range(len(y)))
        begun = zero
        if not (self.started or self.transposed):
            for i in range(self.order):
                state = code.fori(i, code.pick(n > i, zero + i + 1, zero + i), steps(i), state)
            begun = zero + self.order
        code.fori(begun, n, steps(self.order), state)


def one_after_another(made: Order, order: int, library: Library) -> Any:
    step_by_step, words_of = made.step_by_step, words_from(made, order)
    short = short_rows(made, library) if order == 1 else never_short
    loops = [Plain(order, started, transposed) for started in (False, True) for transposed in (False, True)]
    plain, transposed, started, both = (library.add(loop.name, loop.write) for loop in loops)

    @njit(**OPTIONS)
    def run(zero, job, first, count, done, steps):
        """Some steps of sequences from the first on, regularly spaced, or of a single one, behind those ``done``."""
        extent = count, steps
        words = extent + words_of(job, first, done)
        begun = done > 0 or job.flags & C.STARTED != 0
        if job.flags & C.TRANSPOSED:
            if begun:
                both(zero, words)
            else:
                transposed(zero, words)
        elif begun:
            started(zero, words)
        else:
            plain(zero, words)

    @njit(**OPTIONS)
    def run_all(zero, job, first, count):
        """All steps; of long sequences some at a time, so that the job may end early."""
        n = job.steps
        if n > PIECE and job.flags & C.TRANSPOSED:
            for index in range(first, first + count):
                step_by_step(zero, job, index, 0, n, zero)
            return
        for done in range(0, n, PIECE):
            if done > 0 and stopping():
                break
            run(zero, job, first, count, done, min(PIECE, n - done))

    @njit(**OPTIONS)
    def work(job, zero):
        """Sequences in any place."""
        many, count = job.run, job.sequences
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            if short(zero, job, first, last):
                continue
            if job.axes == 1:
                run_all(zero, job, first, last - first)
                continue
            for index in range(first, last):
                run_all(zero, job, index, 1)

    return work


@njit(**OPTIONS)
def never_short(zero, job, first, last):
    return False


def words_from(made: Order, order: int, operand: int = 0) -> Any:
    """For each operand from one on: its address in a sequence behind some steps, its stride, how far the next one is.

    Behind some steps the values before are those of the result.
    """
    base, stride, state, operands = made.base, made.stride, C.A + order, C.operands(order)
    steps = C.TABLE + 2 * operands + 1  # how far the next sequence of each operand is, where there is one batch axis

    @njit(**OPTIONS)
    def apart(job, k):
        return field(job, steps + k) if job.axes == 1 else 0

    @njit(**OPTIONS)
    def place(job, first, done):
        if operand < state:
            return base(job, operand, first) + done * stride(job, operand), stride(job, operand), apart(job, operand)
        if done > 0:
            return base(job, C.Y, first) + (done - 1 - operand + state) * stride(job, C.Y), 0, apart(job, C.Y)
        return base(job, operand, first), 0, apart(job, operand)

    if operand + 1 == operands:
        return place
    others = words_from(made, order, operand + 1)

    @njit(**OPTIONS)
    def words(job, first, done):
        return place(job, first, done) + others(job, first, done)

    return words
