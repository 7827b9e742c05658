"""Covariances at rest: where a model is constant in time they come to a limit, and from there only means go on.

They are at rest where no covariance has moved by more than SLACK times eps of the deviations of its two states in
PERIOD steps, nor in the next one, so by about a rounding in each of them. To hold them then is to iterate with errors
as large as those that each step makes by itself. An observation that is missing ends that, until they rest again.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.kalman.loops import NEARLY, PERIOD, SLACK
from tridiag.kernels.many_states.profiles import ROW, Profile
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.copies import pick_out
from tridiag.kernels.states_in_lanes.matrices import Matrix, any_matrix, apply, library
from tridiag.kernels.states_in_lanes.steps import add_to_sums


def near(code: Code, worker: At, size: Value) -> Value:
    """1 where no lane has moved from what is ``earlier``: row by row, from the diagonal on, until one has."""
    everywhere, slack, at = code.bits(code.all_lanes()), SLACK * code.eps, worker.scratch

    def scale(i: Value, bits: Any) -> Any:
        """The allowance of a state; and its spread, which counts for nothing or is at rest too."""
        code.store(at + i * LINE, code.call("sqrt", code.load(worker.cov + i * (size + 1) * LINE)))
        spread, variance = code.load(worker.spread + i * LINE), code.load(worker.before + i * LINE)
        moved = spread - code.load(worker.earlier + (size * size + i) * LINE)
        held = (spread <= variance * NEARLY) | (code.call("fabs", moved) <= slack * spread)
        return (bits[0] & code.bits(held),)

    def row(i: Value, bits: Any) -> Any:
        own = slack * code.load(at + i * LINE)

        def entry(j: Value, bits: Any) -> Any:
            place = (i * size + j) * LINE
            moved = code.load(worker.cov + place) - code.load(worker.earlier + place)
            return (bits[0] & code.bits(code.call("fabs", moved) <= own * code.load(at + j * LINE)),)

        return code.fori(i, code.pick(bits[0] == everywhere, size, i), entry, bits)

    bits = code.fori(0, size, row, code.fori(0, size, scale, (everywhere,)))[0]
    return code.pick(bits == everywhere, code.integer(1), code.integer(0))


def tell(code: Code, job: At, worker: At) -> None:
    """What observations, in ``errors``, add to sums and means, with gains and variances that are held.

    ``scaled`` is what is expected of them.
    """
    k, p = job.states, job.observed

    def one(q: Value) -> None:
        expected, own = code.load(worker.scaled + q * LINE), worker.S + q * p * LINE
        error = code.load(worker.errors + q * LINE) - expected
        variance, weight = code.load(worker.variances + q * LINE), code.load(worker.weights + q * LINE)
        add_to_sums(code, worker, variance, weight * error * error, code.one())

        def below(i: Value) -> None:
            at = worker.errors + i * LINE
            code.store(at, code.load(at) - code.load(own + i * LINE) * weight * error)

        def learn(j: Value) -> None:
            at, gain = worker.mean + j * LINE, code.load(worker.gains + (q * k + j) * LINE)
            code.store(at, code.load(at) + gain * error)

        each(code, q + 1, p, below)
        each(code, 0, k, learn)

    each(code, 0, p, one)


is_near, told = library.add("near", near), library.add("tell", tell)


@compiled
def rests(zero, job, worker, t, complete):
    """Whether covariances are at rest as predicted for step t, behind so many steps with all observations."""
    phase, k = t % PERIOD, job.states
    if phase == 1:
        return worker.slow != 0 and complete > PERIOD and is_near(zero, (worker, k)) != 0
    if phase == 0:
        worker.slow = 1 if complete >= PERIOD and is_near(zero, (worker, k)) != 0 else 0
        pick_out(zero, (worker.earlier, worker.cov, LINE, k * k))
        pick_out(zero, (worker.earlier + k * k * LINE, worker.spread, LINE, k))
    return False


@compiled
def observe_at_rest(zero, job, worker):
    """`tridiag.kernels.states_in_lanes.steps.observe` with the gains of the step before; observations are loaded."""
    k, p, row = job.states, job.observed, job.states * LINE
    apply(zero, worker.scaled, Matrix(worker.H, row, LINE), worker.mean, worker.zeros, any_matrix(worker), k, p)
    told(zero, (job, worker))


@compiled
def predict_at_rest(zero, job, worker):
    """The means of the next step."""
    k, profile = job.states, Profile(worker.profile, ROW)
    apply(zero, worker.ahead, Matrix(worker.F, k * LINE, LINE), worker.mean, worker.zeros, profile, k, k)
    worker.mean, worker.ahead = worker.ahead, worker.mean
