"""How the states of a Kalman filter and of its smoother change with the model, to first order, for every library.

All is linear in the changes, and no root of a covariance is differentiated: it has no derivative where a change gives
a covariance a rank that it lacks, and the covariance itself has. With T = 1 - K H and J, by which a state follows from
the next one, the covariance of a filter changes by

    Z + Theta P + P Theta^T,  in a step  Z' = F Z F^T + dQ,  Theta' = (F Theta + dF) J,
                          by observations  Z' = T Z T^T + K dR K^T,  Theta' = T Theta - K dH,

so that no change is multiplied with a variance that is large and multiplied again with what makes it small.
What is observed later changes a smoothed state by a filter that goes back, in coordinates of the columns c of the
covariance, x = sum_j c_j z[j], each of which is as accurate as it is small.

Arrays are as in `tridiag.algorithms.kalman_filter`, roots of covariances the columns of
`tridiag.algorithms.kalman_columns`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_columns import apply, diagonal, eliminated
from tridiag.algorithms.kalman_filter import Estimate, at, transpose
from tridiag.algorithms.kalman_loops import Observed


class Own(NamedTuple):
    """The parameters of a step, or their changes."""

    F: Any  # with Q: from the step before
    H: Any
    Q: Any
    R: Any
    y: Any


def own(ops: Any, model: Any, y: Any, kept: Any, t: Any) -> Own:
    """Those of step t, or their changes; 0 where a value is missing."""
    F, H, Q, R = at(ops, model, t)
    y = ops.row(y, t, 0)
    if kept is not None:
        kept = ops.row(kept, t, 0)
        both = kept[:, None] & kept[None]
        H, R, y = (ops.where(mask, x, ops.zero(x)) for mask, x in ((kept[:, None], H), (both, R), (kept, y)))
    return Own(F, H, Q, R, y)


class Spread(NamedTuple):
    """The change of a state: of its mean, and of its covariance Z + Theta P + P Theta^T."""

    mean: Any
    Z: Any
    Theta: Any

    def of(self, ops: Any, cov: Any) -> Estimate:
        """The changes of mean and covariance of a state of that covariance."""
        crossed = ops.product(self.Theta, cov)
        return Estimate(self.mean, self.Z + crossed + transpose(crossed))


class Filtered(NamedTuple):
    """What a filter with square roots has found in a step."""

    predicted: Estimate  # its covariance as it stands
    updated: Estimate  # likewise
    seen: Observed
    back: Any  # J, by which the updated state before follows from the predicted one

    @property
    def gain(self) -> Any:
        """K, of observations that are independent."""
        return transpose(self.seen.rows * self.seen.weights[:, None])

    def kept(self, ops: Any) -> Any:
        """T."""
        return ops.identity(self.predicted.cov) - ops.product(self.gain, self.seen.loads)


def symmetric(x: Any) -> Any:
    """The sum with the transpose."""
    return x + transpose(x)


def independent(ops: Any, step: Filtered, change: Own) -> tuple[Any, Any, Any]:
    """The changes of H, R and y of the observations that are independent."""
    factors = step.seen.factors
    H, R = (eliminated(ops, factors, x) for x in (change.H, ops.symmetric(change.R)))
    return H, eliminated(ops, factors, transpose(R)), eliminated(ops, factors, change.y[:, None])[:, 0]


def predicted(ops: Any, own: Own, step: Filtered, before: Estimate, change: Own, state: Spread) -> Spread:
    """The change of a predicted state from that of the updated one ``before``."""
    mean = apply(ops, own.F, state.mean) + apply(ops, change.F, before.mean)
    Z = ops.product(ops.product(own.F, state.Z), transpose(own.F)) + ops.symmetric(change.Q)
    return Spread(mean, Z, ops.product(ops.product(own.F, state.Theta) + change.F, step.back))


def updated(ops: Any, step: Filtered, change: Own, state: Spread) -> tuple[Spread, Any]:
    """That of the updated state from that of the predicted one, and that of the log-likelihood of the observations."""
    (mean, Z, Theta), seen, gain, kept = state, step.seen, step.gain, step.kept(ops)
    H, R, y = independent(ops, step, change)
    loads, errors = seen.loads, seen.weights * seen.errors
    moved = step.updated.mean - step.predicted.mean
    pulled = apply(ops, transpose(loads), errors)
    sights, across = H + ops.product(loads, Theta), ops.product(ops.product(loads, Z), transpose(loads)) + R
    apart = y - apply(ops, H, step.predicted.mean) - apply(ops, loads, mean)
    # the trace of S^-1 dS, and what dS makes of the errors
    size = 2 * (sights * transpose(gain)).sum(1) + seen.weights * diagonal(across)
    square = errors * (2 * apply(ops, sights, moved) + apply(ops, across, errors) - 2 * apart)
    tilted = apply(ops, transpose(H), errors) + apply(ops, transpose(Theta), pulled)
    mean = (
        apply(ops, kept, mean + apply(ops, Z, pulled) + apply(ops, Theta, moved))
        + apply(ops, gain, y - apply(ops, H, step.updated.mean) - apply(ops, R, errors))
        + apply(ops, step.updated.cov, tilted)
    )
    Z = ops.product(ops.product(kept, Z), transpose(kept)) + ops.product(ops.product(gain, R), transpose(gain))
    found = Spread(mean, Z, ops.product(kept, Theta) - ops.product(gain, H))
    return found, (square - size).sum(0) / 2


# ------------------------------------------------------------------------------------------------------- the way back


class Smoothed(NamedTuple):
    """What a smoother with square roots has found in a step; in coordinates of the columns of the updated state."""

    mean: Any
    parts: Any  # the columns
    cov: Any  # of the coordinates, once all is known
    turn: Any  # of the observations of the step
    gain: Any  # coordinates of the updated state from those of the state predicted for the next step


class Later(NamedTuple):
    """What is known of later steps, as of the updated state of a step."""

    pull: Any  # by which the state moves with it: F^T r
    shares: Any  # coordinates of P F^T N F
    moves: Any  # the changes of the mean that they make, in coordinates
    spread: Any  # those of the covariance


class Behind(NamedTuple):
    """The same as of the predicted state of the next step, with its observations, in coordinates of that one."""

    pull: Any  # r
    shares: Any  # coordinates of P N
    moves: Any
    spread: Any


def nothing_later(mean: Any, cov: Any) -> Later:
    """Behind the last step."""
    return Later(mean, cov, mean, cov)


def before_observations(ops: Any, step: Filtered, found: Smoothed, change: Own, later: Later) -> Behind:
    """The same as of the predicted state of a step, and with its observations."""
    H, R, y = independent(ops, step, change)
    seen, gain, kept = step.seen, step.gain, step.kept(ops)
    matrix, taken = found.turn.matrix, transpose(found.turn.moves * seen.weights[:, None])
    shares, pull = ops.product(matrix, later.shares), later.pull
    news = seen.weights * seen.errors - apply(ops, transpose(gain), pull)
    response = taken - ops.product(shares, gain)
    known = ops.product(matrix, ops.product(found.cov, found.parts))  # coordinates of the smoothed covariance
    apart = y - apply(ops, H, found.mean) - apply(ops, R, news)
    moves = (
        apply(ops, matrix, later.moves)
        + apply(ops, known, apply(ops, transpose(H), news))
        + apply(ops, response, apart)
    )
    spread = ops.product(ops.product(matrix, later.spread), transpose(matrix))
    spread = spread + ops.product(ops.product(response, R), transpose(response))
    spread = spread - symmetric(ops.product(ops.product(response, H), transpose(known)))
    shares = ops.product(shares, kept) + ops.product(taken, seen.loads)
    return Behind(pull + apply(ops, transpose(seen.loads), news), shares, moves, spread)


def carried_back(ops: Any, F: Any, found: Smoothed, change: Own, behind: Behind) -> Later:
    """The same as of the updated state before; F and the changes are those of the step between them."""
    r, shares, moves, spread = behind
    shares, Q = ops.product(found.gain, shares), ops.symmetric(change.Q)
    known = ops.product(found.cov, found.parts)
    moves = apply(ops, found.gain, moves) + apply(ops, known, apply(ops, transpose(change.F), r))
    moves = moves - apply(ops, shares, apply(ops, change.F, found.mean) + apply(ops, Q, r))
    spread = ops.product(ops.product(found.gain, spread), transpose(found.gain))
    spread = spread + ops.product(ops.product(shares, Q), transpose(shares))
    spread = spread - symmetric(ops.product(ops.product(shares, change.F), transpose(known)))
    return Later(apply(ops, transpose(F), r), ops.product(shares, F), moves, spread)


def smoothed(ops: Any, mean: Any, found: Smoothed, state: Spread, later: Later) -> Estimate:
    """The changes of mean and covariance of a smoothed state, from the updated ``mean`` and that of this state."""
    onto = transpose(found.parts)
    pull = ops.identity(onto) - ops.product(onto, later.shares)
    cov = ops.product(ops.product(onto, found.cov), found.parts)
    past = state.mean + apply(ops, state.Z, later.pull) + apply(ops, state.Theta, found.mean - mean)
    mean = apply(ops, pull, past) + apply(ops, cov, apply(ops, transpose(state.Theta), later.pull))
    crossed = ops.product(ops.product(pull, state.Theta), cov)
    return Estimate(
        mean + apply(ops, onto, later.moves),
        ops.product(ops.product(pull, state.Z), transpose(pull))
        + symmetric(crossed)
        + ops.product(ops.product(onto, later.spread), found.parts),
    )
