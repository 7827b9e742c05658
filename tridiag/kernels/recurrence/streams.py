"""Sequences of first order that lie end to end in memory, as one stream: a vector of steps at a time.

What the lanes of a vector make of 0, and the products of their coefficients, are found by joining halves of two steps,
then of four, up to all lanes: a half that is behind another goes on from its last step. The value before the vector is
joined in the same way. The coefficient of the first step of a sequence is 0, so that it takes nothing from the one
before: short sequences cost as little as long ones. A vector in which a product of coefficients exceeds LARGEST or is
subnormal beside values that are not MODEST, or a value is not finite, is computed once more, step by step.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

from tridiag.kernels.access.moves import first_lanes, same_in_all
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.apart import bringing_steps, first_of, step_of
from tridiag.kernels.recurrence.constant import LARGEST, SMALLEST, Steps
from tridiag.kernels.recurrence.order import Order, dispatch
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import allocate_workspace, free_workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import PIECE, stopping
from tridiag.kernels.simd.periods import lanes_of, moved, positions
from tridiag.kernels.simd.periods import step_of as step_in_period
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

MOST_STEPS = 2**62  # more than there are
ROUNDED_UP = 1.001
# by the bytes of a number: such values, times products up to LARGEST, times half a subnormal number, are subnormal
MODEST = {4: 2.0**14, 8: 2.0**43}
LARGEST_FINITE = {4: 3.4028234663852886e38, 8: 1.7976931348623157e308}  # by the bytes of a number


class Joined(NamedTuple):
    """What the lanes of a vector make of 0, and what tells whether that can be trusted."""

    value: Value
    product: Value  # of all coefficients up to a lane's
    largest: Value  # product of any half
    lossy: Value  # where a product of any half is subnormal, or 0 though no coefficient is


class Vector(NamedTuple):
    """A vector of steps: what each makes of the state before it, a * state + x, and which begin a sequence."""

    code: Code
    a: Value
    x: Value
    first: Value
    behind: list[Value]  # for each width of halves, which lanes lie in the second one

    def joined(self) -> Joined:
        """What the lanes make of 0, by halves."""
        code, lanes = self.code, range(self.code.lanes)
        value, product, largest, lossy = self.x, self.a, code.magnitude(self.a), []
        for width, behind in zip(widths(code), self.behind, strict=True):
            places = [lane - lane % width - 1 if lane & width else lane for lane in lanes]
            earlier = code.shuffle(product, product, places)
            value = code.where(behind, product * code.shuffle(value, value, places) + value, value)
            longer = code.where(behind, product * earlier, product)
            both = behind & (product != 0) & (earlier != 0)
            lossy.append(both & (code.magnitude(longer) < SMALLEST[code.size_of_real]))
            product, largest = longer, code.maximum(largest, code.magnitude(longer))
        return Joined(value, product, largest, functools.reduce(operator.or_, lossy))

    def after(self, before: Value, watched: Value) -> tuple[Value, Value, Value]:
        """The values that follow some value, in all lanes; and the last of them, in all lanes.

        ``watched``: 0, or 1 where the value before is not modest; and whether the last one is not.
        """
        code, joined = self.code, self.joined()
        found = joined.product * before + joined.value
        last = self.last(found)
        watched = unless(code, self.grows_little() & modest(code, found), watched)
        return code.fori(0, watched, lambda *_: self.looked_at(before, found), (found, last, code.integer(0)))

    def grows_little(self) -> Value:
        """Where no product of such coefficients is large."""
        code = self.code
        return code.magnitude(self.a) <= LARGEST ** (1 / code.lanes)

    def last(self, x: Value) -> Value:
        return same_in_all(self.code, x, self.code.lanes - 1)

    def looked_at(self, before: Value, found: Value) -> Any:
        """The values that were found, or those that steps one after another find."""
        code = self.code
        least = ROUNDED_UP * SMALLEST[code.size_of_real] ** (1 / code.lanes)  # no product of such coefficients is small
        never_small = (code.magnitude(self.a) >= least) | (self.a == 0)
        usual = self.grows_little() & never_small & finite(code, found)
        (found,) = code.fori(0, unless(code, usual), lambda *_: (self.looked_at_closely(before, found),), (found,))
        last = self.last(found)
        return found, last, unless(code, modest(code, last))

    def looked_at_closely(self, before: Value, found: Value) -> Value:
        code, joined = self.code, self.joined()
        right = finite(code, found) & (joined.largest <= LARGEST) & ~joined.lossy
        (found,) = code.fori(0, unless(code, right), lambda *_: (self.one_by_one(before),), (found,))
        return found

    def one_by_one(self, before: Value) -> Value:
        code, found = self.code, self.x
        value = code.extract(before, 0)
        for lane in range(code.lanes):
            a, x, first = (code.extract(row, lane) for row in (self.a, self.x, self.first))
            value = code.pick(first, x, a * value + x)
            found = code.insert(found, value, lane)
        return found


def widths(code: Code) -> list[int]:
    """Of halves that are joined, one after another."""
    return [2**k for k in range(code.lanes.bit_length() - 1)]


def seconds(code: Code, nothing: Value) -> list[Value]:
    """The lanes of second halves of each width. ``nothing``: 0, which no compiler knows.

    Where vectors fill a register, masks that are not known cost nothing; others become shuffles, of which a processor
    has one or two at a time. Narrow registers have no masks of their own.
    """
    lanes, nothing = range(code.lanes), nothing if bytes_of_register() == LINE else code.integer(0)
    return [code.mask(nothing + sum(1 << lane for lane in lanes if lane & width)) for width in widths(code)]


def modest(code: Code, x: Value) -> Value:
    return code.magnitude(x) <= MODEST[code.size_of_real]


def finite(code: Code, x: Value) -> Value:
    return code.magnitude(x) <= LARGEST_FINITE[code.size_of_real]


def unless(code: Code, mask: Value, usual: Any = 0) -> Value:
    """``usual`` where a mask holds in all lanes, else 1."""
    usual = code.integer(0) + usual
    return code.pick(code.bits(mask) == (1 << code.lanes) - 1, usual, code.integer(1))


class Stream(NamedTuple):
    """All steps of sequences without values before the first step."""

    transposed: bool  # a coefficient multiplies the value of its own step, for the next one
    backward: bool

    @property
    def name(self) -> str:
        return f"stream{'_transposed' * self.transposed}{'_backward' * self.backward}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: steps, and those of a sequence; the addresses of y, x and a in the first one.

        Behind these how many steps of the first sequence are done, and where the value before its next step lies, of
        whichever sequence; or 0, where there is none.
        """
        count, n, y, x, a, done, latest = words
        memory, turn, behind = Steps(1, self.backward), lanes_of(code, n, code.lanes), seconds(code, n / MOST_STEPS)
        step, none = step_in_period(code, turn), code.real_zero()

        def vector(i: Value, state: Any, used: Value | None = None) -> Any:
            before, watched, position, last = state
            first = position == 0
            found, factors = memory.take(code, x, i, used), memory.take(code, a, i, used)
            own = code.shuffle(last, factors, range(code.lanes - 1, 2 * code.lanes - 1)) if self.transposed else factors
            own = code.where(first, code.real_zero(), own)
            values, before, watched = Vector(code, own, found, first, behind).after(before, watched)
            memory.put(code, y, i, values, used)
            return before, watched, moved(code, position, step, turn), factors

        whole = count / code.lanes * code.lanes
        size = -code.size_of_real if self.backward else code.size_of_real
        begun = code.pick(latest != 0, code.integer(1), code.integer(0))
        before, last = code.fori(0, begun, lambda *_: (code.spread(latest), code.spread(a - size)), (none, none))
        start = before, unless(code, modest(code, before)), positions(code, done, turn), last
        state = code.fori(0, whole, vector, start, step=code.lanes)
        some, left = first_lanes(code, count - whole), code.pick(count > whole, whole + 1, whole)
        code.fori(whole, left, lambda i, state: vector(i, state, some), state)


def in_streams(made: Order, library: Library) -> Any:
    """The work of a job whose sequences lie end to end."""
    base = made.base
    loops = [Stream(transposed, backward) for transposed in (False, True) for backward in (False, True)]
    run, bring_steps = dispatch(library, loops), bringing_steps(library, 1)

    @compiled
    def run_apart(zero, job, first, count, room):
        """``count`` steps from sequence ``first`` on, by way of scratch memory."""
        n, turn, step = job.steps, -1 if job.flags & C.BACKWARD else 1, step_of(zero, job)
        begin = first_of(zero, job, room, min(PIECE, job.run * n))
        for done in range(0, count, PIECE):
            if done > 0 and stopping():
                break
            some, part = min(PIECE, count - done), done % n
            x, a = base(job, C.X, first) + done * step, base(job, C.A, first) + done * step
            latest = begin + (PIECE - 1) * step if done > 0 else 0
            run(zero, job, some, n, begin, x, a, part, latest)
            bring_steps(zero, job, first + done // n * turn, turn, part, some, begin)

    @compiled
    def work(job, zero):
        many, count, n = job.run, job.sequences, job.steps
        room = 0
        if job.flags & C.APART:
            room = allocate_workspace(min(PIECE, many * n) * bytes_of_real(zero, ()))
            if room == 0:
                return
        for item in items(job):
            first, last = item * many, min(count, (item + 1) * many)
            begin = last - 1 if job.flags & C.BACKWARD else first
            if room != 0:
                run_apart(zero, job, begin, (last - first) * n, room)
            else:
                y, x, a = base(job, C.Y, begin), base(job, C.X, begin), base(job, C.A, begin)
                run(zero, job, (last - first) * n, n, y, x, a, 0, 0)
        if room != 0:
            free_workspace(room)

    return work
