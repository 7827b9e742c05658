"""The workspace of a worker: the models of a group of series, what is known of their states, and what a step needs."""

from __future__ import annotations

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.many_states.profiles import ROW
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE

# rows of ``sums``: `tridiag.algorithms.kalman_filter.Doubt` has the loss; the product of all variances is kept as a
# mantissa and an exponent
QUADRATIC, MANTISSA, EXPONENT, COUNT, LOSS = range(5)
SUMS = 5
LARGEST = 2**40  # of indices, where nothing bounds them


class Group(Workspace):
    """What a worker has. A matrix lies row after row, each entry a vector with a number of each series."""

    bindings = Word()  # where the operands lie: of each, the address for every series
    F, H, Q, R = (Word() for _ in range(4))
    mean, ahead = Word(), Word()  # of the states, and what is predicted for the next step
    cov, product = Word(), Word()
    profile, below, whole = Word(), Word(), Word()  # of F; what its rows from each on span; of any matrix
    held = Word()  # whether parameters that are constant are here before the first step
    there, sight, noise = Word(), Word(), Word()  # 1 or 0; H and R of what is there
    errors = Word()
    news, S, gains = Word(), Word(), Word()  # L^-1 H P, L^-1 S, and L^-1 H P times the weights
    moved_gains, weighed = Word(), Word()  # F times those, and that times D
    variances, weights, scaled = Word(), Word(), Word()  # D, 1 / D, and the errors times the weights
    before, now = Word(), Word()  # variances of the states, as predicted for a step and for the next one
    spread, moved, older, reach = (Word() for _ in range(4))  # `tridiag.algorithms.kalman_filter.Doubt`
    earlier, slow = Word(), Word()  # covariance and spread some steps ago; whether they hardly moved since
    zeros, scratch = Word(), Word()  # as many numbers as states or observed values; a number for each state
    sums, sums_forwards = Word(), Word()  # of the steps so far, and of all on the way forwards
    turned = Word()  # F transposed
    later, carried = Word(), Word()  # r: what later observations tell of the state predicted for a step, or updated
    told, smoothed = Word(), Word()  # -N; the covariance given later observations too
    pulled = Word()  # W, T and W again of `tridiag.kernels.states_in_lanes.smoother.collect`
    u, precision, inverse = Word(), Word(), Word()  # `tridiag.algorithms.kalman_adjoint`: S^-1; L^-1
    found = Word()  # the derivatives in all entries of the parameters in turn
    of_H, of_Q, of_R, of_m0, of_P0 = (Word() for _ in range(5))  # where those begin behind that in F
    ahead_of_all = Word()  # r and the upper triangle of N behind the last step
    states = Word()  # those that were predicted for all steps
    alone = Word()  # the job of a series that is computed again by itself


ARRAYS, allocate, give_back = workspace(
    Group, "bindings", "F", "H", "Q", "R", "mean", "ahead", "cov", "product", "profile", "below", "whole", "there",
    "sight", "noise", "errors", "news", "S", "gains", "moved_gains", "weighed", "variances", "weights", "scaled",
    "before", "now", "spread", "moved", "older", "reach", "earlier", "zeros", "scratch", "sums", "sums_forwards",
    "turned", "later", "carried", "told", "smoothed", "pulled", "u", "precision", "inverse", "found", "ahead_of_all",
    "states", "alone",
)  # fmt: skip
JOB_OF_ONE = K.Filter.size() + 8 * K.OPERANDS


@compiled
def size_of_state(job):
    """The bytes of a state that is kept: a mean, and the upper triangle of a covariance."""
    return (job.states + job.states * (job.states + 1) // 2) * LINE


@compiled
def allocate_group(zero, job, back, slope):
    """The memory of a worker.

    ``back``: 1 for what goes through the steps in both directions, else 0; ``slope``: 1 for derivatives, else 0.
    """
    k, p = job.states * LINE, job.observed * LINE
    square, loads, noises = job.states * k, job.observed * k, job.observed * p
    sizes = ARRAYS(
        bindings=aligned(8 * K.OPERANDS * lanes_of(zero, ())), F=square, H=loads, Q=square, R=noises, mean=k, ahead=k,
        cov=square, product=square, profile=aligned(ROW * job.states), below=aligned(ROW * job.states), whole=LINE,
        there=p, sight=loads, noise=noises, errors=p, news=loads, S=noises, gains=loads, moved_gains=loads,
        weighed=loads, variances=p, weights=p, scaled=p, before=k, now=k, spread=k, moved=k, older=k, reach=p,
        earlier=(1 - back) * (square + k), zeros=max(k, p), scratch=k, sums=SUMS * LINE, sums_forwards=SUMS * LINE,
        turned=back * square, later=k, carried=k, told=back * square, smoothed=back * square, pulled=back * 3 * loads,
        u=p, precision=slope * noises, inverse=slope * noises, found=slope * (3 * square + loads + noises + k),
        ahead_of_all=slope * size_of_state(job), states=slope * job.steps * size_of_state(job),
        alone=aligned(JOB_OF_ONE),
    )  # fmt: skip
    worker = allocate(sizes)
    if address_of(worker) != 0:
        set_word(worker.whole, 0)
        set_word(worker.whole + 8, LARGEST)
        worker.of_H = worker.found + square
        worker.of_Q = worker.of_H + loads
        worker.of_R = worker.of_Q + square
        worker.of_m0 = worker.of_R + noises
        worker.of_P0 = worker.of_m0 + k
    return worker
