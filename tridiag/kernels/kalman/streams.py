"""One step of filters, for `tridiag.kalman.predict` and `tridiag.kalman.update`: one series in each lane.

Covariances are taken apart as L D L^T in every step, as by the other libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.kernel import JOB, alone, parts_of
from tridiag.kernels.kalman.matrices import Lanes, Roots, vector
from tridiag.kernels.kalman.moments import Moments, MomentsRoom
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class Streams(Moments):
    """The loops for models of one size."""

    def predict(self, code: Code, job: At, room: At) -> None:
        """The states of the next step."""

        def step(loops: Streams, code: Code, t: Value, carry: Any) -> Any:
            ops = Lanes(code, loops.scratch)
            F, Q = (loops.matrix(code, job, room, operand) for operand in (K.F, K.Q))
            ahead = kalman_filter.predict(ops, F, Q, loops.given(ops, job, room), Roots)
            loops.put_state(ops, job, room, t, ahead)
            return carry

        self.once(code, job, room, (K.F, K.Q), step, ())

    def update(self, code: Code, job: At, room: At) -> None:
        """The states once their observations are known, and how little these were expected."""

        def step(loops: Streams, code: Code, t: Value, carry: Any) -> Any:
            ops, (quadratic, product, count) = Lanes(code, loops.scratch), carry
            H, R = (loops.matrix(code, job, room, operand) for operand in (K.H, K.R))
            y = loops.observations(code, job, room, t)
            kept = vector([x == x for x in y])
            seen, updated = kalman_filter.observe(ops, H, R, y, kept, loops.given(ops, job, room), Roots)
            for mask, weight, error, variance in zip(kept, seen.weights, seen.errors, seen.variances, strict=True):
                quadratic = quadratic + error * error * weight + variance * 0.0  # infinity is not lost
                product, count = loops.times(code, product, variance), count + code.to_real(mask)
            loops.put_state(ops, job, room, t, updated)
            return quadratic, product, count

        quadratic, product, count = self.once(code, job, room, (K.H, K.R), step, self.sums(code))
        self.put(code, room, quadratic, product, count, ())

    def once(self, code: Code, job: At, room: At, model: tuple[int, ...], step: Callable[..., Any], carry: Any) -> Any:
        """A single step, once the operands that it reads are there."""
        for operand in (*model, K.M0, K.P0):
            self.fetch(code, job, room, operand, code.integer(0), self.room.entries(operand))
        return self.steps(code, room, 0, 1, step, carry)

    def given(self, ops: Lanes, job: At, room: At) -> Estimate:
        """The states before the step."""
        mean, cov = (self.matrix(ops.code, job, room, operand) for operand in (K.M0, K.P0))
        return Estimate(mean, Roots.start(ops, ops.symmetric((cov + cov.T) * 0.5)))

    def put_state(self, ops: Lanes, job: At, room: At, t: Value, state: Estimate) -> None:
        self.write(ops.code, job, room, t, Estimate(state.mean, Roots.whole(ops, state.cov)), (K.MEAN, K.COV))


def build_predict(dtype: str, states: int):
    """The C function void run(job, helpers) that carries states to the next step."""
    zero, room, name = np.zeros((), dtype)[()], MomentsRoom(states, 1), f"predict{states}"
    (allocate, give_back), (bind, _) = piece(room.layout), parts_of(room)
    steps = Library(name).add("predict", Streams(room).predict)

    @compiled
    def work(job, zero):
        worker, lanes = allocate(types.int64(0)), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            bind(zero, job, worker, item * lanes)
            steps(zero, (job, worker))
        give_back(worker)

    return runner(zero, c_function(work, f"tridiag_{name}", first=JOB))


def build_update(dtype: str, states: int, observed: int):
    """The same for what takes observations in."""
    zero, room, name = np.zeros((), dtype)[()], MomentsRoom(states, observed), f"update{states}_{observed}"
    steps = Library(name).add("update", Streams(room).update)
    work = alone(room, parts_of(room), steps, K.MISSING)
    return runner(zero, c_function(work, f"tridiag_{name}", first=JOB))
