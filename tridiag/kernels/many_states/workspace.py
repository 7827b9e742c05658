"""The workspace of a worker: the model of a series, what is known of its states, and what a step needs."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.many_states.profiles import ROW
from tridiag.kernels.many_states.rows import ROTATION, clear
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import pointer, word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.vector import LINE


class States(Workspace):
    """What a worker has. Rows of ``row`` bytes hold a number for each state."""

    bindings = Words(K.OPERANDS)  # where the operands of its series lie
    row, noises = Word(), Word()  # the bytes of a row of so many numbers as there are states, and observed values
    news_row = Word()  # those of a row of ``news``: two rows of states, and between them one of observed values
    F_from, F_rows_from, Q_from, H_from = (Word() for _ in range(4))  # the matrices that were copied last
    mean, ahead = Word(), Word()  # of the states, and what is predicted for the next step
    cov = Word()
    product, F_turned, Q, H = Word(), Word(), Word(), Word()
    profile = Word()  # of F
    news = Word()  # of each observation that is there: the row of L^-1 H P, of S and of L^-1 H
    gains = Word()  # those of L^-1 H P times their weights
    kept, variances, weights = Word(), Word(), Word()  # of those observations: which ones, D and 1 / D
    errors, scaled = Word(), Word()  # and the errors times the weights
    zeros, Q_diagonal = Word(), Word()
    variances_before, variances_now = Word(), Word()  # of the states, as predicted for a step and for the next one
    spread, moved, older, reach = Word(), Word(), Word(), Word()  # `tridiag.algorithms.kalman_filter.Doubt`
    earlier, slow = Word(), Word()  # covariance and spread some steps ago; whether they hardly moved since
    columns, root_weights = Word(), Word()  # of a square root L D L^T: the columns of L as rows, and D
    noise_columns, noise_weights = Word(), Word()  # those of Q
    R, R_columns, R_weights = Word(), Word(), Word()  # R of what is observed, and its root
    loads = Word()  # H of observations whose noises are independent
    turn_shares, turn_sights = Word(), Word()  # `tridiag.algorithms.kalman_square_roots.Turn`, a row each
    parts, part_weights = Word(), Word()  # vectors whose squares add up to a covariance
    firsts, shares = Word(), Word()  # an entry of each of them, and what it adds to a column of the root
    rotations = Word()  # the numbers of a `Rotation` for each of them
    F_rows = Word()
    later_mean, later_cov = Word(), Word()  # what later observations tell: r and N, or coordinates of the next state
    smoothed = Word()  # the covariance given later observations too
    pulled, doubled = Word(), Word()  # a row of states for each observation: T, and (G N G^T + D) W of `collect`
    joint, joint_weights = Word(), Word()  # the columns of the root of two states, the next one first; weights
    later_weights = Word()
    inverse = Word()  # L^-1, S = L D L^T
    of_F, of_H, of_Q, of_R = Word(), Word(), Word(), Word()  # derivatives, summed over steps; twice those in Q and R
    shrunk, NP, later_state = Word(), Word(), Word()  # `tridiag.algorithms.kalman_adjoint.Shrinking`
    factors = Word()  # numbers that rows are multiplied with: MINUS_ONE, MINUS_HALF
    states = Word()  # those that were predicted for all steps
    followers, later_of_followers, moved_followers = Word(), Word(), Word()  # a row for each series that shares
    # covariances, and each unknown column behind them: means of all steps, what later observations tell, scratch
    regressors, regressor_weights = Word(), Word()  # a row of numbers for each observation, unknown columns first
    fit, fit_variances, scaled_parts = Word(), Word(), Word()  # a row for each unknown column; scratch
    seen, cursor = Word(), Word()  # how many observations there are, and where the way back is among them


ARRAYS, allocate, give_back = workspace(
    States, "mean", "ahead", "cov", "product", "F_turned", "Q", "H", "profile", "news", "gains", "kept", "variances",
    "weights", "errors", "scaled", "zeros", "variances_before", "variances_now", "Q_diagonal", "spread", "moved",
    "older", "reach", "earlier", "columns", "root_weights", "noise_columns", "noise_weights", "R", "R_columns",
    "R_weights", "loads", "turn_shares", "turn_sights", "parts", "part_weights", "firsts", "shares", "rotations",
    "F_rows", "later_mean", "later_cov", "smoothed", "pulled", "doubled", "joint", "joint_weights", "later_weights",
    "inverse", "of_F", "of_H", "of_Q", "of_R", "shrunk", "NP", "later_state", "factors", "states", "followers",
    "later_of_followers", "moved_followers", "regressors", "regressor_weights", "fit", "fit_variances", "scaled_parts",
)  # fmt: skip
MINUS_ONE, MINUS_HALF = 0, 1
CLEARED = ARRAYS._fields.index("states")  # of these and what follows every row is written before it is read
PLACES = tuple(States.fields[name].offset for name in ARRAYS._fields)


@compiled
def whole_blocks(zero, count):
    """So many rows, and those that fill the last square block."""
    lanes = lanes_of(zero, ())
    return (count + lanes - 1) // lanes * lanes


@compiled
def size_of_state(zero, job):
    """The bytes of a state that is kept: a mean, and a covariance or its root."""
    return (job.states + 2) * aligned(job.states * bytes_of_real(zero, ()))


@compiled
def allocate_states(zero, job, back, slope):
    """The memory of a worker, with zeros in all places that pad rows.

    ``back``: 1 for what goes through the steps in both directions, else 0; ``slope``: 1 for derivatives, else 0.
    """
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    row, noises = aligned(k * size), aligned(p * size)
    square, lines = whole_blocks(zero, k) * row, whole_blocks(zero, p) * noises  # of matrices that are mirrored
    news, both, parts = 2 * row + noises, (1 + back) * row, (1 + back) * k
    unknown = job.unknown
    followers = job.alike + unknown
    seen, numbers = (job.steps * p + unknown) * min(unknown, 1), followers * size
    sizes = ARRAYS(
        mean=row, ahead=row, cov=square, product=k * row, F_turned=k * row, Q=square, H=p * row,
        profile=aligned(k * ROW),
        news=p * news, gains=p * row, kept=aligned(8 * p),
        variances=noises, weights=noises, errors=noises, scaled=noises,
        zeros=max(2 * row, noises), variances_before=row, variances_now=row, Q_diagonal=row, spread=row,
        moved=row, older=row, reach=noises, earlier=(k + 1) * row, columns=k * row,
        root_weights=row, noise_columns=k * row, noise_weights=row,
        R=lines, R_columns=p * noises, R_weights=noises, loads=p * row,
        turn_shares=p * row, turn_sights=p * row, parts=parts * both,
        part_weights=aligned(parts * size), firsts=aligned(parts * size), shares=max(aligned(parts * size), noises),
        rotations=aligned(k * len(ROTATION) * size), F_rows=back * k * row, later_mean=row,
        later_cov=back * square, smoothed=back * square, pulled=back * p * row, doubled=back * p * row,
        joint=back * k * both, joint_weights=row, later_weights=row,
        inverse=slope * p * noises, of_F=slope * k * row, of_H=slope * p * row, of_Q=slope * k * row,
        of_R=slope * p * noises, shrunk=slope * k * row, NP=slope * k * row, later_state=row, factors=LINE,
        states=slope * job.steps * size_of_state(zero, job), followers=job.steps * followers * row,
        later_of_followers=followers * row, moved_followers=followers * row, regressors=aligned(seen * numbers),
        regressor_weights=aligned(seen * size), fit=aligned(unknown * numbers), fit_variances=aligned(unknown * size),
        scaled_parts=aligned(seen * size),
    )  # fmt: skip
    worker = allocate(sizes)
    if address_of(worker) != 0:
        worker.row, worker.noises, worker.news_row = row, noises, news
        worker.F_from, worker.F_rows_from, worker.Q_from, worker.H_from = 0, 0, 0, 0
        for k in range(CLEARED):
            clear(zero, (word(address_of(worker) + PLACES[k]), sizes[k] // LINE))
        pointer(worker.factors, zero)[MINUS_ONE] = -1.0
        pointer(worker.factors, zero)[MINUS_HALF] = -0.5
    return worker
