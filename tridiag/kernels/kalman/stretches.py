"""What the steps of filters make of the states before them, as loops: one series in each lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import kalman_filter, kalman_stretches
from tridiag.algorithms.kalman_filter import Estimate, Observed
from tridiag.algorithms.kalman_stretches import Follow
from tridiag.kernels.access.operands import addresses
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import Loops
from tridiag.kernels.kalman.matrices import Entries, Form, Lanes, vector
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.vector import Code


class Stretches(Loops):
    """The loops for models of one size."""

    def stretch(self, missing: bool, code: Code, job: At, room: At) -> None:
        """All steps of a series in each lane, and to memory the numbers of `tridiag.xla.kalman.Stretch`."""
        self.filter(Entries, missing, code, job, room)

    def begun(self, code: Code) -> Any:
        k, infinity = self.room.states, code.splat(float("inf"))
        zeros = np.full((k, k), code.zero(), object)
        found = kalman_stretches.start(Lanes(code), Estimate(zeros[0], zeros))
        return self.packed(found), (infinity,) * self.room.observed

    def followed(self, code: Code, room: At, seen: Observed, F: Any, kept: Any, before: Any) -> Any:
        ops, k = Lanes(code), self.room.states
        (A, eta, J), least = before
        state = Follow(vector(A).reshape(k, k), vector(eta), Entries.unpacked(J, k))
        found, smaller = kalman_stretches.follow(ops, seen, F, state), []
        for j, (variance, other) in enumerate(zip(seen.variances, least, strict=True)):
            lower = kalman_filter.larger(ops, -variance, -other)
            smaller.append(-lower if kept is None else code.where(kept[j], -lower, other))
        return self.packed(found), tuple(smaller)

    @staticmethod
    def packed(found: Follow) -> Any:
        return tuple(found.A.ravel()), tuple(found.eta), Entries.packed(found.J)

    def ended(self, covs: Form, code: Code, room: At, mean: Any, cov: Any, doubt: Any, found: Any) -> None:
        (A, eta, J), least = found
        base = addresses(code, room + self.room.bind(K.STRETCH))
        for e, value in enumerate([*mean, *cov, *A, *eta, *J, *doubt[1], *least, doubt[2]]):
            self.scatter(code, [x + e * code.size_of_real for x in base], value)
