"""The steps backwards of the gradient of a log-likelihood, the same for every array library."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_filter import Estimate, Observed, apply, reduced, total, transpose


def returned(ops: Any, factors: list[Any], x: Any) -> Any:
    """L^-T x, of the rows of x."""
    rows: list[Any] = []
    for factor, row in zip(reversed(factors), reversed(list(x)), strict=True):
        for below, found in zip(factor, rows, strict=True):
            row = row - found * below
        rows.insert(0, row)
    return ops.stack(rows)


class CovarianceAdjoint(NamedTuple):
    """What covariances contribute to the derivatives of a log-likelihood in the parameters of a step.

    With r and N as in `tridiag.algorithms.kalman_scan`, those of the step behind it in Q, and all others of the step
    itself, the derivatives are (r r^T - N) / 2 in Q, r x^T - of_F in F, u x^T - of_H in H, (u u^T - of_R) / 2 in R and
    -u in y, where x is the smoothed mean.
    """

    of_F: Any
    of_H: Any
    of_R: Any
    N: Any  # as of the state predicted for the step


class MeanAdjoint(NamedTuple):
    """The same of means."""

    u: Any
    smoothed: Any
    r: Any


def pull_covariance(ops: Any, F: Any, H: Any, R: Any, seen: Observed, cov: Any, N: Any) -> CovarianceAdjoint:
    """From N of the step behind it and ``cov``, of the updated state."""
    ahead = ops.product(N, F)
    carried = ops.keep(ops.symmetric(ops.product(transpose(F), ahead)))
    gain, spread, before = pull_information(ops, H, R, seen, carried)
    of_H = gain - ops.product(ops.product(gain, carried), cov)
    return CovarianceAdjoint(ops.product(ahead, cov), of_H, spread, before)


def pull_information(ops: Any, H: Any, R: Any, seen: Observed, carried: Any) -> tuple[Any, Any, Any]:
    """S^-1 H P, the covariance of `MeanAdjoint.u`, and N as of the predicted state from that of the updated one."""
    gain = returned(ops, seen.factors, [row * w for w, row in zip(seen.weights, seen.rows, strict=True)])
    lower = ops.stack(reduced(seen.factors, ops.identity(R)))
    precision = ops.product(transpose(lower), ops.stack(seen.weights)[:, None] * lower)  # S^-1
    pull = ops.product(gain, carried)
    spread = precision + ops.product(pull, transpose(gain))
    across = ops.product(transpose(H), pull)
    before = carried - across - transpose(across) + ops.product(ops.product(transpose(H), spread), H)
    return gain, spread, ops.symmetric(before)


class Shrinking(NamedTuple):
    """What a pass backwards with `Roots` carries besides r and N, of the step behind it.

    P r and N P are not what the products would be: r and N are small where P is large, and know it only to an eps of
    where they are large. So means come from `smooth`, and N P has a recursion of its own.
    """

    mean: Any  # smoothed
    NP: Any  # N P, of the state predicted for the step


def pull_by_roots(
    ops: Any, F: Any, H: Any, R: Any, seen: Observed, mean: Any, back: Any, N: Any, behind: Shrinking
) -> tuple[CovarianceAdjoint, Shrinking]:
    """As `pull_covariance`, with the updated ``mean`` and the gain with which a state follows from the next one."""
    of_F = ops.keep(ops.product(behind.NP, transpose(back)))  # N F P
    carried = ops.keep(ops.symmetric(ops.product(ops.product(transpose(F), N), F)))
    gain, spread, before = pull_information(ops, H, R, seen, carried)
    shrunk = ops.product(transpose(F), of_F)
    of_H = gain - ops.product(gain, shrunk)
    smoothed = mean + apply(back, behind.mean - apply(F, mean))
    NP = ops.keep(shrunk + ops.product(transpose(H), of_H))
    return CovarianceAdjoint(of_F, of_H, spread, before), Shrinking(smoothed, NP)


def pull_mean(
    ops: Any, F: Any, H: Any, scaled: list[Any], gains: list[Any], factors: list[Any], state: Estimate, r: Any
) -> MeanAdjoint:
    """From r of the step behind it and the updated state; ``scaled`` errors and ``gains`` are times the weights."""
    carried = ops.keep(apply(transpose(F), r))
    pulled = [error - total(gain * carried) for error, gain in zip(scaled, gains, strict=True)]
    u = ops.keep(returned(ops, factors, pulled))
    return MeanAdjoint(u, ops.keep(state.mean + apply(state.cov, carried)), carried + apply(transpose(H), u))
