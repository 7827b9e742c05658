"""The steps of a Kalman filter and smoother of which some states begin with an infinite variance, for every library.

P = infinity A A^T + P*: the columns of A are directions of which nothing is known yet. An observation that sees one
takes it away, whatever its noise; once none is left the state is as any other. Observations are taken in one after
another, independent of each other as in `tridiag.algorithms.kalman_square_roots`, and P* in Joseph's form, which
subtracts nothing from a variance. The way back has r = r0 + r1 / infinity, and N = N0 + N1 / infinity + ...

J. Durbin and S. J. Koopman, Time Series Analysis by State Space Methods, 2nd edition 2012, chapter 5; one observation
at a time: S. J. Koopman and J. Durbin, Journal of Time Series Analysis 21, 2000. Arrays are as in
`tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_square_roots
from tridiag.algorithms.kalman_filter import (
    LOG_TWO_PI,
    apply,
    at,
    chosen,
    diagonal,
    larger,
    outer,
    reduced,
    there,
    transpose,
)
from tridiag.problems.state_space import Model, StateSpace

NOISE = 64  # eps times the number of states: below that share of its terms a sum is 0
UNSURE = 1e4  # how many times larger the rounding of what is smoothed may be


class Diffuse(NamedTuple):
    """A state of which something may be unknown."""

    mean: Any
    cov: Any  # P*
    A: Any  # (states, directions)


class Sight(NamedTuple):
    """One observation, independent of the others of its step."""

    load: Any  # its row of H
    gain: Any
    error: Any  # what was observed, less what was predicted
    row: Any  # its covariances with the states, of P*
    variance: Any  # of the error, of P*
    reach: Any  # the same of A A^T, or 0
    sees: Any  # whether that is not 0


class Ahead(NamedTuple):
    """What later observations tell."""

    r0: Any
    r1: Any
    N0: Any
    N1: Any
    N2: Any


def clean(ops: Any, x: Any, terms: Any, k: int) -> Any:
    """A sum, 0 where it is rounding alone; ``terms``: the sum of their sizes."""
    return ops.where(abs(x) > NOISE * k * ops.limits(x)[0] * terms, x, ops.zero(x))


def start(ops: Any, model: Model, form: StateSpace, like: Diffuse) -> Diffuse:
    """Before the first step: states whose variance is infinite are unknown, and their covariances unread."""
    P0 = model.P0
    unknown = ops.stack([P0[i, i] == math.inf for i in range(form.states)])
    cov = ops.where(unknown[:, None] | unknown[None], ops.zero(P0), P0)
    one = ops.one(P0[0, 0])
    columns = [
        ops.stack([ops.where(unknown[j], one, one - one) if i == j else one - one for i in range(form.states)])
        for j in form.diffuse or ()
    ]
    A = ops.stack(columns).swapaxes(0, 1)
    return Diffuse(model.m0 + ops.zero(like.mean), cov + ops.zero(like.cov), A + ops.zero(like.A))


def blank(ops: Any, form: StateSpace, y: Any, kept: Any) -> Diffuse:
    """Zeros, with the batch axes of means and of covariances."""
    k, batch = form.states, form.batch if kept is not None else form.cov_batch
    A = ops.full((k, len(form.diffuse or ()), *batch), 0, y)
    return Diffuse(ops.full((k, *form.batch), 0, y), ops.full((k, k, *batch), 0, y), A)


def predict(ops: Any, F: Any, Q: Any, state: Diffuse) -> Diffuse:
    mean, cov, A = state
    ahead = ops.symmetric(ops.product(ops.product(F, cov), transpose(F)) + Q)
    A = clean(ops, ops.product(F, A), ops.product(abs(F), abs(A)), len(F))
    return ops.keep(Diffuse(apply(F, mean), ahead, A))


def observe(ops: Any, H: Any, R: Any, y: Any, kept: Any, state: Diffuse) -> tuple[list[Sight], Diffuse]:
    H, R, y = there(ops, H, R, y, kept)
    weights, columns = independent(ops, R)
    loads, values, seen = reduced(columns, H), reduced(columns, y), []
    for load, value, weight in zip(loads, values, weights, strict=True):
        sight, state = take_in(ops, load, value, weight, state)
        seen.append(sight)
    return seen, state


def independent(ops: Any, R: Any) -> tuple[list[Any], list[Any]]:
    """D and the columns of L below its diagonal, R = L D L^T; a variance that is rounding alone has a column of zeros.

    As `tridiag.algorithms.kalman_square_roots.root_of`, with a derivative where a variance is 0.
    """
    weights, columns = [], []
    for least in [NOISE * len(R) * ops.limits(R)[0] * variance for variance in diagonal(R)]:
        weight = R[0, 0]
        sure = weight > least
        columns.append(ops.where(sure, R[1:, 0] / ops.where(sure, weight, ops.one(weight)), ops.zero(R[1:, 0])))
        weights.append(ops.where(weight < 0, ops.zero(weight), weight))
        R = R[1:, 1:] - columns[-1][:, None] * R[None, 0, 1:]
    return weights, columns


def take_in(ops: Any, load: Any, value: Any, noise: Any, state: Diffuse) -> tuple[Sight, Diffuse]:
    """A state once ``load @ x`` with a noise is known."""
    mean, cov, A = state
    k, across = len(load), transpose(A)
    u = clean(ops, apply(across, load), apply(abs(across), abs(load)), k)
    reach, row, one = (u * u).sum(0), apply(cov, load), ops.one(noise)
    sees, variance = reach > 0, (load * row).sum(0) + noise
    usable = kalman_square_roots.positive(ops, ops.where(sees, one, variance))
    gain = ops.where(sees, apply(A, u) / ops.where(sees, reach, one), row / usable)
    error = value - (load * mean).sum(0)
    left = ops.identity(cov) - outer(gain, load)
    cov = ops.symmetric(ops.product(ops.product(left, cov), transpose(left)) + outer(gain * noise, gain))
    A = ops.where(sees, without(ops, A, u, ops.where(sees, reach, one)), A)
    sight = Sight(load, gain, error, row, ops.where(sees, variance, usable), reach, sees)
    return ops.keep(sight), ops.keep(Diffuse(mean + gain * error, cov, A))


def without(ops: Any, A: Any, u: Any, square: Any) -> Any:
    """The directions that are left once the one that u tells of is known: a column less, the others turned.

    By a reflection that makes u a multiple of a unit vector, so that no rounding is left of the column.
    """
    sizes = [abs(x) for x in u]
    largest = sizes[0]
    for x in sizes[1:]:
        largest = larger(ops, x, largest)
    first, earlier = [], largest < 0
    for x in sizes:  # the first of the largest
        first.append((x == largest) & ~earlier)
        earlier = earlier | (x == largest)
    here = ops.stack(first)
    length = square**0.5
    turned = ops.where(here, u + ops.where(u < 0, -length, length), u)
    scale = (turned * turned).sum(0)
    scaled = apply(A, turned) * (2 / ops.where(scale > 0, scale, ops.one(scale)))
    left = clean(ops, A - outer(scaled, turned), abs(A) + outer(abs(scaled), abs(turned)), len(A))
    return ops.where(here[None], ops.zero(left), left)


def deviance(ops: Any, seen: list[Sight], kept: Any) -> Any:
    """-2 times the logarithm of the density of the observations, less log(infinity) for each that sees the unknown."""
    total: Any = 0
    for j, one in enumerate(seen):
        known = ops.where(one.sees, ops.one(one.variance), one.variance)
        term = ops.log(ops.where(one.sees, one.reach, known)) + LOG_TWO_PI
        term = term + ops.where(one.sees, ops.zero(one.error), one.error * one.error / known)
        total = total + (term if kept is None else ops.where(kept[j], term, ops.zero(term)))
    return total


class Step(NamedTuple):
    """What a filter finds in a step."""

    predicted: Diffuse
    updated: Diffuse


def forward(ops: Any, model: Model, y: Any, kept: Any, t: Any, first: Diffuse, state: Diffuse) -> tuple[Step, Any]:
    """Step t from the updated state of the step before, and how little the observations were expected."""
    F, H, Q, R = at(ops, model, t)
    predicted = chosen(ops, t > 0, predict(ops, F, Q, state), first)
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, updated = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    return Step(predicted, updated), deviance(ops, seen, kept)


def whole(ops: Any, state: Diffuse) -> Any:
    """The covariance: infinite where a direction that nothing is known of enters."""
    A, across = state.A, transpose(state.A)
    unknown = clean(ops, ops.product(A, across), ops.product(abs(A), abs(across)), len(A))
    return infinite(ops, unknown, state.cov)


def infinite(ops: Any, unknown: Any, cov: Any) -> Any:
    """A covariance to which infinity times what is unknown is added."""
    return ops.where(unknown > 0, math.inf, ops.where(unknown < 0, -math.inf, cov))


# ----------------------------------------------------------------------------------------------------------- backwards


def nothing_ahead(ops: Any, state: Diffuse) -> Ahead:
    mean, cov = ops.zero(state.mean), ops.zero(state.cov)
    return Ahead(mean, mean, cov, cov, cov)


def backward(
    ops: Any, model: Model, y: Any, kept: Any, t: Any, predicted: Diffuse, ahead: Ahead
) -> tuple[tuple[Any, Any], Ahead]:
    """Mean and covariance of step t once all is known, and what is known ahead of the step before."""
    F, H, _, R = at(ops, model, t)
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, _ = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    for sight in reversed(seen):
        ahead = ops.keep(collect(ops, sight, ahead))
    return smoothed(ops, predicted, ahead), carry_back(ops, F, ahead)


def collect(ops: Any, sight: Sight, ahead: Ahead) -> Ahead:
    """What one observation adds to what later ones tell."""
    load, gain, error, row, variance, reach, sees = sight
    r0, r1, N0, N1, N2 = ahead
    zero, one = ops.zero(variance), ops.one(variance)
    wide = ops.where(sees, reach, one)
    known, diffuse = ops.where(sees, zero, one / variance), ops.where(sees, one / wide, zero)
    second = ops.where(sees, variance / (wide * wide), zero)
    change = -outer(ops.where(sees, (row - gain * variance) / wide, ops.zero(row)), load)  # of `left`, to first order
    left = ops.identity(N0) - outer(gain, load)
    back, turned = transpose(left), transpose(change)
    both = outer(load, load)

    def between(x: Any, N: Any, z: Any) -> Any:
        return ops.product(ops.product(x, N), z)

    mixed, twice = between(turned, N0, left), between(turned, N1, left)
    return Ahead(
        load * (known * error) + apply(back, r0),
        load * (diffuse * error) + apply(back, r1) + apply(turned, r0),
        both * known + between(back, N0, left),
        both * diffuse + between(back, N1, left) + mixed + transpose(mixed),
        between(back, N2, left) - both * second + twice + transpose(twice) + between(turned, N0, change),
    )


def carry_back(ops: Any, F: Any, ahead: Ahead) -> Ahead:
    """What later observations tell, as of the step before."""
    turned = transpose(F)
    vectors = (apply(turned, r) for r in ahead[:2])
    return Ahead(*vectors, *(ops.product(ops.product(turned, N), F) for N in ahead[2:]))


def smoothed(ops: Any, state: Diffuse, ahead: Ahead) -> tuple[Any, Any]:
    """Mean and covariance once later observations are known too."""
    mean, cov, A = state
    wide = ops.product(A, transpose(A))
    across = ops.product(wide, ahead.N1)
    mixed = ops.product(across, cov)
    known = ops.product(ops.product(cov, ahead.N0), cov) + ops.product(ops.product(wide, ahead.N2), wide)
    mean = mean + apply(cov, ahead.r0) + apply(wide, ahead.r1)
    terms = diagonal(abs(wide) + ops.product(ops.product(abs(wide), abs(ahead.N1)), abs(wide)))
    size = ops.stack(terms) ** 0.5
    unknown = clean(ops, wide - ops.product(across, wide), outer(size, size) * UNSURE, len(cov))
    cov = ops.symmetric(cov - known - mixed - transpose(mixed))
    return mean, infinite(ops, unknown, cov)


def is_known(ops: Any, state: Diffuse) -> Any:
    """Whether no direction is left of which nothing is known, in any series."""
    return ops.all(state.A == 0)
