"""Covariances at rest, as `tridiag.kernels.states_in_lanes.rest` has it: models of one size, written out.

Steps are taken in pieces of FIRST and SECOND by turns. What hardly moves in both, whose lengths have no divisor in
common, does not go round in circles either. Where observations may be missing, none is in either, nor in the piece that
begins at rest: else covariances move again.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_filter import Observed
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Lines, extended
from tridiag.kernels.kalman.loops import NEARLY, PERIOD, SLACK, Loops, Room
from tridiag.kernels.kalman.matrices import Entries, Roots, vector
from tridiag.kernels.kalman.recorded import Recorded
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

FIRST, SECOND = PERIOD, PERIOD - 1
MORE = {False: 64, True: 16}  # steps of a piece at rest, and of one in which some might be missing
# nothing is known of covariances one piece ago; they are kept; they hardly moved in one piece; and in the next one
UNKNOWN, MOVING, SLOW, AT_REST = range(4)


class RestRoom(Room):
    """The memory of a worker, with what is kept of the last step, and covariances and spreads of the last piece."""

    def __init__(self, states: int, observed: int) -> None:
        super().__init__(states, observed)
        kept, earlier = self.record + observed, states * (states + 1) // 2 + states
        fields = {"kept": Lines(kept), "earlier": Lines(earlier)}
        self.layout = extended(self.layout, f"RestRoom{states}_{observed}", **fields)
        self.kept, self.earlier = (self.layout.fields[name].offset for name in fields)


class Resting(Loops):
    """The loops for models of one size."""

    room: RestRoom

    def filter(self, covs: Any, missing: bool, code: Code, job: At, room: At) -> None:
        if covs is Roots:
            super().filter(covs, missing, code, job, room)
            return
        n, carry = job.steps, self.before_steps(Entries, code, job, room)
        changes = code.integer(0)
        for operand in (K.F, K.H, K.Q, K.R):
            changes = changes | code.word(job + 8 * (K.TABLE + operand))
        self.keep_earlier(code, room, carry)

        def full(loops: Loops, *state: Any) -> Any:
            return loops.step(Entries, missing, job, room, lambda *state: None, *state)

        def held(loops: Resting, code: Code, t: Value, carry: Any) -> Any:
            return loops.step_at_rest(code, job, room, t, carry)

        def piece(_: Value, state: Any) -> Any:
            t, length, found, carry = state
            stop = t + code.pick(found == AT_REST, code.integer(0), length)
            stop = code.pick(stop < n, stop, n)
            before, carry = carry[2][2], self.steps(code, room, t, stop, full, carry)
            alike = changes == 0
            if missing:
                alike = alike & self.has(code, carry[2][2] - before, stop - t)

            def look(_: Value, state: Any) -> Any:
                near = (state[0] != UNKNOWN) & self.near(code, room, carry)
                self.keep_earlier(code, room, carry)
                return (code.pick(near, state[0] + 1, code.integer(MOVING)),)

            known = (found == AT_REST) | alike
            looks = code.pick(alike & (found != AT_REST), code.integer(1), code.integer(0))
            found = code.fori(0, looks, look, (code.pick(known, found, code.integer(UNKNOWN)),))[0]
            further = code.pick(found == AT_REST, stop + MORE[missing], stop)
            end = code.pick(further < n, further, n)
            if missing:
                goes_on = self.is_complete(code, job, room, stop, end)
                found, end = code.pick(goes_on, found, code.integer(MOVING)), code.pick(goes_on, end, stop)
            mean, cov, (quadratic, product, count), *more = carry
            sums = mean, quadratic, product
            mean, quadratic, product = self.steps(code, room, stop, end, held, sums)
            if missing:
                count = count + code.to_real(code.repeat((end - stop) * self.room.observed, code.lanes))
            return end, FIRST + SECOND - length, found, (mean, cov, (quadratic, product, count), *more)

        pieces = 2 * (n / (FIRST + SECOND) + 1)
        begin = code.integer(0), code.integer(FIRST), code.integer(MOVING), carry
        self.after_steps(Entries, code, room, code.fori(0, pieces, piece, begin)[3])

    def followed(self, code: Code, room: At, seen: Observed, F: Any, kept: Any, before: Any) -> Any:
        numbers = Recorded.of(seen.weights, seen.rows, seen.factors).numbers
        self.put_row(code, room + self.room.kept, [*numbers, *seen.variances])
        return ()

    def has(self, code: Code, count: Value, steps: Value) -> Value:
        """Whether so many values are all of so many steps, in every lane."""
        every = code.to_real(code.repeat(steps * self.room.observed, code.lanes))
        return code.bits(count == every) == code.bits(code.all_lanes())

    def is_complete(self, code: Code, job: At, room: At, first: Value, last: Value) -> Value:
        """Whether no lane lacks a value of steps first <= t < last."""

        def add(t: Value, state: Any) -> Any:
            (total,) = state
            for y in self.observations(code, job, room, t):
                total = total + y * 0.0
            return (total,)

        (total,) = code.fori(first, last, add, (code.zero(),))
        return code.bits(total == total) == code.bits(code.all_lanes())

    def keep_earlier(self, code: Code, room: At, carry: Any) -> None:
        _, cov, _, (spread, *_), _ = carry
        at = room + self.room.earlier
        for e, value in enumerate([*cov, *spread]):
            code.store(at + e * LINE, value)

    def near(self, code: Code, room: At, carry: Any) -> Value:
        """Whether no lane has moved since; entries beside the diagonal are read once those on it have not."""
        _, packed, _, (spread, *_), _ = carry
        k, slack = self.room.states, SLACK * code.eps
        cov, everywhere = Entries.unpacked(packed, k), code.bits(code.all_lanes())
        at = room + self.room.earlier
        before = [code.load(at + e * LINE) for e in range(len(packed) + k)]
        earlier, bits = Entries.unpacked(before[: len(packed)], k), everywhere
        for i in range(k):
            hardly = code.call("fabs", cov[i, i] - earlier[i, i]) <= slack * cov[i, i]
            moved = code.call("fabs", spread[i] - before[len(packed) + i]) <= slack * spread[i]
            bits = bits & code.bits(hardly & (moved | (spread[i] <= cov[i, i] * NEARLY)))

        def others(_: Value, state: Any) -> Any:
            roots, bits = [code.call("sqrt", cov[i, i]) for i in range(k)], state[0]
            for i in range(k):
                for j in range(i + 1, k):
                    allowed = slack * roots[i] * roots[j]
                    bits = bits & code.bits(code.call("fabs", cov[i, j] - earlier[i, j]) <= allowed)
            return (bits,)

        none = code.integer(0)
        bits = code.fori(none, code.pick(bits == everywhere, none + 1, none), others, (bits,))[0]
        return bits == everywhere

    def step_at_rest(self, code: Code, job: At, room: At, t: Value, carry: Any) -> Any:
        """The mean, and the sums: of squares, the product of variances."""
        k, p, (mean, quadratic, product) = self.room.states, self.room.observed, carry
        numbers = iter(self.row(code, room + self.room.kept, self.room.record + p))
        found = Recorded.taken(numbers, k, p)
        F, H = (self.matrix(code, job, room, operand) for operand in (K.F, K.H))
        mean, errors = found.update(H, self.observations(code, job, room, t), vector(mean))
        for variance in numbers:
            product = self.times(code, product, variance)
        return tuple(kalman_filter.apply(F, mean)), found.add_squares(errors, quadratic), product
