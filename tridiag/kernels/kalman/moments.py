"""The states of filter and smoother as loops in the language of `tridiag.kernels.simd.vector`: one series in each lane.

Means and covariances of a step lie side by side in memory: they are turned in registers and stored some at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import kalman_filter, kalman_smoother
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.kernels.access.moves import out_of_lanes
from tridiag.kernels.access.operands import QUAD
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import LOSS, Loops, Room
from tridiag.kernels.kalman.matrices import Entries, Form, Lanes, Roots, vector
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code


class MomentsRoom(Room):
    """The memory of a worker; behind it, what a smoother keeps of each step."""

    def __init__(self, states: int, observed: int) -> None:
        super().__init__(states, observed)
        self.kept = states + states * (states + 1) // 2  # lines of a step: the state predicted for it


class Moments(Loops):
    """The loops for models of one size."""

    room: MomentsRoom

    def filtered(self, covs: Form, missing: bool, code: Code, job: At, room: At) -> None:
        """The states predicted for all steps of a series in each lane, and updated by what is observed."""

        def visit(loops: Moments, code: Code, t: Value, predicted: Estimate, updated: Estimate) -> Any:
            ops = Lanes(code, loops.scratch)
            for state, places in ((updated, (K.MEAN, K.COV)), (predicted, (K.PREDICTED_MEAN, K.PREDICTED_COV))):
                loops.write(code, job, room, t, Estimate(state.mean, covs.whole(ops, state.cov)), places)
            return kalman_filter.lost(ops, predicted.cov, updated.cov) if covs is Entries else None

        self.run(covs, missing, code, job, room, visit)

    def place(self, code: Code, room: At, t: Value) -> Value:
        """Where the state that is predicted for a step is kept."""
        return room + self.room.size + t * (self.room.kept * LINE)

    def kept(self, covs: Form, code: Code, room: At, t: Value) -> Estimate:
        row, k = self.row(code, self.place(code, room, t), self.room.kept), self.room.states
        return Estimate(vector(row[:k]), covs.unpacked(row[k:], k))

    def smoothed(self, covs: Form, missing: bool, code: Code, job: At, room: At) -> None:
        """The states of all steps given all observations."""

        def visit(loops: Moments, code: Code, t: Value, predicted: Estimate, updated: Estimate) -> None:
            loops.put_row(code, self.place(code, room, t), [*predicted.mean, *covs.packed(predicted.cov)])

        self.run(covs, missing, code, job, room, visit)
        if covs is Entries:
            self.back(missing, code, job, room)
        else:
            self.back_by_roots(missing, code, job, room)

    def observed(self, covs: Form, missing: bool, code: Code, job: At, room: At, t: Value) -> tuple[Any, ...]:
        """What was predicted for a step, its observations, and the state that they leave."""
        predicted, y = self.kept(covs, code, room, t), self.observations(code, job, room, t)
        kept: Any = vector([x == x for x in y]) if missing else None
        H, R = (self.matrix(code, job, room, operand, t) for operand in (K.H, K.R))
        return predicted, *kalman_filter.observe(Lanes(code, self.scratch), H, R, y, kept, predicted, covs)

    def back(self, missing: bool, code: Code, job: At, room: At) -> None:
        """As `tridiag.algorithms.kalman_smoother.backward`."""
        k, n = self.room.states, job.steps

        def step(loops: Moments, code: Code, t: Value, carry: Any) -> Any:
            ops, (mean, cov, loss) = Lanes(code, loops.scratch), carry
            predicted, seen, updated = loops.observed(Entries, missing, code, job, room, t)
            F = loops.matrix(code, job, room, K.F, t)
            F = ops.where(code.everywhere(t + 1 < n), F, np.full((k, k), code.zero()))  # the last is not read
            ahead = kalman_smoother.carry_back(ops, F, Estimate(vector(mean), Entries.unpacked(cov, k)))
            smoothed = kalman_smoother.smoothed_state(ops, updated, ahead)
            loss = kalman_filter.larger(ops, kalman_filter.lost(ops, predicted.cov, updated.cov, smoothed.cov), loss)
            loops.write(code, job, room, t, smoothed, (K.MEAN, K.COV))
            mean, cov = kalman_smoother.collect(ops, seen, ahead)
            return tuple(mean), Entries.packed(cov), loss

        place = room + self.room.result + LOSS * LINE
        nothing = (code.zero(),) * k, (code.zero(),) * (k * (k + 1) // 2), code.load(place)
        code.store(place, self.steps(code, room, n - 1, -1, step, nothing, -1)[-1])

    def back_by_roots(self, missing: bool, code: Code, job: At, room: At) -> None:
        """As `tridiag.algorithms.kalman_smoother.smooth`."""
        k, n = self.room.states, job.steps

        def step(loops: Moments, code: Code, t: Value, carry: Any) -> Any:
            ops, (mean, cov) = Lanes(code, loops.scratch), carry
            _, seen, updated = loops.observed(Roots, missing, code, job, room, t)
            seen = seen._replace(turns=ops.keep(seen.turns))
            F, Q = (loops.matrix(code, job, room, operand, t) for operand in (K.F, K.Q))
            # of the last, whose F and Q are not read, nothing is known from later ones
            F, Q = (ops.where(code.everywhere(t + 1 < n), x, ops.zero(x)) for x in (F, Q))
            later = Estimate(vector(mean), Roots.unpacked(cov, k))
            later = kalman_smoother.smooth(ops, F, Q, updated, later)
            loops.write(code, job, room, t, kalman_smoother.moved(ops, updated, later), (K.MEAN, K.COV))
            before = kalman_smoother.before_observations(ops, seen, later)
            return tuple(before.mean), Roots.packed(before.cov)

        nothing = (code.zero(),) * k, (code.zero(),) * (k * (k + 1) // 2)
        self.steps(code, room, n - 1, -1, step, nothing, -1)

    def write(self, code: Code, job: At, room: At, t: Value, state: Estimate, places: tuple[int, int]) -> None:
        """A state of each lane to the caller's memory."""
        for values, operand in zip(
            (state.mean, Lanes(code, self.scratch).symmetric(state.cov).ravel()), places, strict=True
        ):
            base = self.bound(code, job, room, operand, t)
            whole = len(values) // QUAD * QUAD
            for first in range(0, whole, QUAD):
                pieces = out_of_lanes(code, list(values[first : first + QUAD]))
                for address, piece in zip(base, pieces, strict=True):
                    code.store_as(address + first * code.size_of_real, piece)
            for e in range(whole, len(values)):
                for lane, address in enumerate(base):
                    code.store_as(address + e * code.size_of_real, code.extract(values[e], lane))
