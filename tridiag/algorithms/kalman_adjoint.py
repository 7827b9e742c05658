"""The steps backwards of the gradient of a log-likelihood, the same for every array library."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_filter import Estimate, Observed, apply, outer, reduced, there, total, transpose
from tridiag.problems.state_space import Model


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


class Record(NamedTuple):
    """What the way back needs of a step."""

    updated: Estimate  # with `Roots` the gain with which the state follows from the next one is in place of ``cov``
    seen: Any  # `Observed`, or all of its lists as arrays


def of_first(ops: Any, ahead: Estimate, weight: Any, batches: Model) -> dict[str, Any]:
    """The derivatives in m0 and P0."""
    return {
        "m0": gathered(ahead.mean * weight, batches.m0),
        "P0": of_covariance(ops, ahead, weight, batches.P0),
    }


def derivatives(
    ops: Any,
    F: Any,
    H: Any,
    R: Any,
    kept: Any,
    record: Record,
    ahead: Estimate,
    behind: Any,
    weight: Any,
    batches: Model,
) -> tuple[dict[str, Any], Estimate, Any]:
    """Those in F, Q, H, R and y of one step, and r and N as of the state predicted for it; ``behind``: with `Roots`."""
    H, R, _ = there(ops, H, R, ops.zero(H[:, 0]), kept)
    (updated, cov_or_gain), seen = record
    scaled, gains = ([x * w for w, x in zip(seen.weights, xs, strict=True)] for xs in (seen.errors, seen.rows))
    mean = pull_mean(ops, F, H, scaled, gains, seen.factors, record.updated, ahead.mean)
    if behind is None:
        cov = pull_covariance(ops, F, H, R, seen, cov_or_gain, ahead.cov)
    else:
        cov, behind = pull_by_roots(ops, F, H, R, seen, updated, cov_or_gain, ahead.cov, behind)
        mean = mean._replace(smoothed=behind.mean)
    parts = {
        "Q": of_covariance(ops, ahead, weight, batches.Q),
        "F": crossed(ops, weight * ahead.mean, mean.smoothed, batches.F) - weighted(cov.of_F, weight, batches.F),
        "R": of_covariance(ops, Estimate(mean.u, cov.of_R), weight, batches.R),
        "H": crossed(ops, weight * mean.u, mean.smoothed, batches.H) - weighted(cov.of_H, weight, batches.H),
        "y": -weight * mean.u,
    }
    if kept is not None:
        parts["R"] = masked_out(ops, mean.u, cov.of_R, kept, weight, batches.R)
    return parts, Estimate(mean.r, cov.N), behind


def masked_out(ops: Any, u: Any, spread: Any, kept: Any, weight: Any, batch: Any) -> Any:
    """The derivative in R where both values were observed."""
    both = kept[:, None] & kept[None]
    return gathered(ops.where(both, (outer(u, u) - spread) * weight / 2, ops.zero(spread)), batch)


def of_covariance(ops: Any, ahead: Estimate, weight: Any, batch: Any) -> Any:
    """(r r^T - N) / 2."""
    return (crossed(ops, weight * ahead.mean, ahead.mean, batch) - weighted(ahead.cov, weight, batch)) / 2


def crossed(ops: Any, x: Any, y: Any, batch: Any) -> Any:
    """x y^T, summed over the batch axes that a parameter does not have."""
    if any(length != 1 for length in batch):
        return gathered(outer(x, y), batch)
    x, y = (side.reshape(len(side), -1) for side in (x, y))
    return ops.contracted(x, y).reshape(len(x), len(y), *batch)


def weighted(x: Any, weight: Any, batch: Any) -> Any:
    """A matrix for each series, or one for all, times the weights, summed likewise."""
    own = x.shape[2:]
    weight = gathered(weight, tuple(max(pair) for pair in zip(own, batch, strict=True)))
    return gathered(x * weight, batch)


def gathered(x: Any, batch: Any) -> Any:
    """The sum over the batch axes that a parameter does not have."""
    first = x.ndim - len(batch)
    axes = tuple(first + k for k, length in enumerate(batch) if length == 1 and x.shape[first + k] != 1)
    return x.sum(axes, keepdims=True) if axes else x
