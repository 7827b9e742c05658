"""The states of filter and smoother as loops in the language of `tridiag.kernels.vector`: one series in each lane.

Means and covariances of a step lie side by side in memory: they are turned in registers and stored some at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag import filtering
from tridiag.filtering import Estimate
from tridiag.kernels import filter_job as K
from tridiag.kernels.filter_loops import Lanes, Loops, Room, vector
from tridiag.kernels.moves import QUAD, out_of_lanes
from tridiag.kernels.vector import LINE, Code, Value


class MomentsRoom(Room):
    """The memory of a worker; behind it, what a smoother keeps of each step."""

    def __init__(self, states: int, observed: int) -> None:
        super().__init__(states, observed)
        self.kept = states + states * (states + 1) // 2  # lines of a step: the state predicted for it


class Moments(Loops):
    """The loops for models of one size."""

    room: MomentsRoom

    def filtered(self, missing: bool, code: Code, job: Value, room: Value) -> None:
        """The states predicted for all steps of a series in each lane, and updated by what is observed."""

        def visit(t: Value, predicted: Estimate, updated: Estimate) -> None:
            self.write(code, job, room, t, updated, (K.MEAN, K.COV))
            self.write(code, job, room, t, predicted, (K.PREDICTED_MEAN, K.PREDICTED_COV))

        self.run(missing, code, job, room, visit)

    def smoothed(self, missing: bool, code: Code, job: Value, room: Value) -> None:
        """The states of all steps given all observations: there, and back as `tridiag.filtering.backward`."""
        ops, k, kept_lines = Lanes(code), self.room.states, room + self.room.size
        n = code.word(job + 8 * K.STEPS)

        def visit(t: Value, predicted: Estimate, updated: Estimate) -> None:
            at = kept_lines + t * (self.room.kept * LINE)
            self.put_row(code, at, [*predicted.mean, *self.packed(predicted.cov)])

        def back(t: Value, carry: Any) -> Any:
            row = self.row(code, kept_lines + t * (self.room.kept * LINE), self.room.kept)
            predicted, y = Estimate(vector(row[:k]), self.unpacked(row[k:])), self.observations(code, job, room, t)
            kept: Any = vector([x == x for x in y]) if missing else None
            F, H, R = (self.matrix(code, job, room, operand, t) for operand in (K.F, K.H, K.R))
            F = ops.where(code.everywhere(t + 1 < n), F, np.full((k, k), code.zero()))  # the last is not read
            ahead = filtering.carry_back(ops, F, Estimate(vector(carry[0]), self.unpacked(carry[1])))
            seen, _ = filtering.observe(ops, H, R, y, kept, predicted)
            smoothed = filtering.look_back(ops, filtering.update(ops, predicted, seen), ahead)
            self.write(code, job, room, t, smoothed, (K.MEAN, K.COV))
            mean, cov = filtering.collect(ops, seen, ahead)
            return tuple(mean), self.packed(cov)

        self.run(missing, code, job, room, visit)
        nothing = (code.zero(),) * k, (code.zero(),) * (k * (k + 1) // 2)
        code.fori(n - 1, -1, back, nothing, step=-1)

    def write(self, code: Code, job: Value, room: Value, t: Value, state: Estimate, places: tuple[int, int]) -> None:
        """A state of each lane to the caller's memory."""
        for values, operand in zip((state.mean, Lanes.symmetric(state.cov).ravel()), places, strict=True):
            base = self.aimed(code, job, room, operand, t)
            whole = len(values) // QUAD * QUAD
            for first in range(0, whole, QUAD):
                pieces = out_of_lanes(code, list(values[first : first + QUAD]))
                for address, piece in zip(base, pieces, strict=True):
                    code.store_as(address + first * code.size_of_real, piece)
            for e in range(whole, len(values)):
                for lane, address in enumerate(base):
                    code.store_as(address + e * code.size_of_real, code.extract(values[e], lane))
