"""The steps of a Kalman filter of which some states begin with an infinite variance, for every library.

P = infinity A A^T + the sum of w c c^T over columns c with variances w. The columns of A are directions of which
nothing is known yet. An observation that sees one takes it away, whatever its noise; what it tells of it is one more
column, whose variance may be as large as the observation hardly saw it. Once none is left the state is as any other.
Observations are taken in one after another, independent of each other, by Bierman's update as in
`tridiag.algorithms.kalman_square_roots`, here of columns that need not be triangular, the least certain ones last: A is
the limit. No variance is a difference of two, and what is hardly told costs no digits of what is told well.

J. Durbin and S. J. Koopman, Time Series Analysis by State Space Methods, 2nd edition 2012, chapter 5; one observation
at a time: S. J. Koopman and J. Durbin, Journal of Time Series Analysis 21, 2000. Smoothers:
`tridiag.algorithms.kalman_augmented`. Arrays are as in `tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_columns, kalman_filter, kalman_square_roots
from tridiag.algorithms.kalman_columns import Columns, apply, diagonal, together
from tridiag.algorithms.kalman_filter import LOG_TWO_PI, at, outer, there, transpose
from tridiag.algorithms.kalman_rotations import inverse
from tridiag.problems.state_space import Model, StateSpace

NOISE = 64  # eps times the number of states: below that share of its terms a sum is 0


class Diffuse(NamedTuple):
    """A state of which something may be unknown."""

    mean: Any
    known: Columns
    told: Columns  # of each direction, once it is told
    A: Any  # (states, directions)
    source: Any  # what A came from, in the states that were unknown before the first step: (directions, directions)


class Sight(NamedTuple):
    """One observation, independent of the others of its step, or all of them along the first axis."""

    error: Any  # what was observed, less what was predicted
    variance: Any  # of the error, of what is known
    reach: Any  # the same of A A^T, or 0
    sees: Any  # whether that is not 0


class Reflection(NamedTuple):
    """What turns the directions so that one of them is the only one that is seen."""

    turned: Any
    scale: Any
    here: Any  # which one that is


def clean(ops: Any, x: Any, terms: Any, k: int) -> Any:
    """A sum, 0 where it is rounding alone, with its derivative; ``terms``: the sum of their sizes."""
    return ops.where(abs(x) > NOISE * k * ops.limits(x)[0] * terms, x, ops.vanished(x))


def start(ops: Any, model: Model, form: StateSpace, like: Diffuse) -> Diffuse:
    """Before the first step: states whose variance is infinite are unknown, and their covariances unread."""
    unknown, cov = unknown_in(ops, model.P0), known_in(ops, model.P0) + ops.zero(like.A[:, :1])
    A = ops.where(unknown[:, None], unit_columns(ops, form, like.A), ops.zero(like.A))
    source = ops.take(A, form.diffuse, 0)
    known = kalman_columns.of_covariance(ops, cov)
    return like._replace(mean=model.m0 + ops.zero(like.mean), known=known, A=A, source=source)


def unknown_in(ops: Any, P0: Any) -> Any:
    """Which states have an infinite variance."""
    return diagonal(P0) == math.inf


def known_in(ops: Any, P0: Any) -> Any:
    """The covariance of the others, with zeros for these."""
    unknown = unknown_in(ops, P0)
    return ops.where(unknown[:, None] | unknown[None], ops.zero(P0), P0)


def unit_columns(ops: Any, form: StateSpace, like: Any) -> Any:
    """Of the identity, those of states that may be unknown."""
    whole = ops.identity(ops.full((form.states, form.states, *like.shape[2:]), 0, like))
    return ops.take(whole, form.diffuse, 1)


def blank(ops: Any, form: StateSpace, y: Any, kept: Any) -> Diffuse:
    """Zeros, with the batch axes of means and of covariances."""
    mean, cov = kalman_filter.blank(ops, form, y, kept)
    A, source = (ops.full((rows, len(form.diffuse), *cov.shape[2:]), 0, y) for rows in (form.states, len(form.diffuse)))
    return Diffuse(mean, Columns(cov, cov[0]), Columns(transpose(A), source[0]), A, source)


def predict(ops: Any, F: Any, Q: Any, state: Diffuse, most: int = 1) -> Diffuse:
    """A step later; above ``most`` times as many columns as states they are made as many."""
    known = together(ops, kalman_columns.moved(ops, F, state.known), kalman_columns.of_covariance(ops, Q))
    if len(known.parts) > most * len(F):
        known = kalman_columns.orthogonal(ops, known, len(F))
    told = kalman_columns.moved(ops, F, state.told)
    return ops.keep(state._replace(mean=apply(ops, F, state.mean), known=known, told=told, A=carried(ops, F, state.A)))


def carried(ops: Any, F: Any, A: Any) -> Any:
    """Directions of which nothing is known a step later."""
    return clean(ops, ops.product(F, A), ops.product(abs(F), abs(A)), len(F))


def observe(ops: Any, H: Any, R: Any, y: Any, kept: Any, state: Diffuse) -> tuple[Sight, Diffuse]:
    """What is seen of a state, of all observations of a step, and the state once they are known."""
    H, R, y = there(ops, H, R, y, kept)
    weights, columns = independent(ops, R)
    loads = kalman_columns.eliminated(ops, columns, H)
    values = kalman_columns.eliminated(ops, columns, y[:, None])[:, 0]

    def one(state: Diffuse, j: Any) -> tuple[Diffuse, Sight]:
        load, value, noise = (ops.row(x, j, 0) for x in (loads, values, weights))
        sight, state = take_in(ops, load, value, noise, state)
        return state, sight

    state, seen = ops.each(len(H), one, state)
    return Sight(*seen), state


def independent(ops: Any, R: Any) -> tuple[Any, Any]:
    """D and the columns of L below its diagonal, R = L D L^T; a variance that is rounding alone has a column of zeros.

    As `tridiag.algorithms.kalman_columns.of_covariance`, but that what is so small counts as it is.
    """
    least, place = NOISE * len(R) * ops.limits(R)[0] * diagonal(R), ops.positions(len(R), R.ndim - 1, 0, R)

    def column(R: Any, j: Any) -> tuple[Any, tuple[Any, Any]]:
        row = ops.row(R, j, 0)
        weight = ops.row(row, j, 0)
        sure = weight > ops.row(least, j, 0)
        part = ops.where(sure & (place > j), row / ops.where(sure, weight, ops.one(weight)), ops.zero(row))
        return R - outer(part, row), (ops.where(weight < 0, ops.vanished(weight), weight), part)

    weights, columns = ops.each(len(R), column, R)[1]
    return weights, columns


def take_in(ops: Any, load: Any, value: Any, noise: Any, state: Diffuse) -> tuple[Sight, Diffuse]:
    """A state once ``load @ x`` with a noise is known."""
    A, across = state.A, transpose(state.A)
    u = clean(ops, apply(ops, across, load), apply(ops, abs(across), abs(load)), len(load))
    reach, one = (u * u).sum(0), ops.one(noise)
    sees = reach > 0
    known, told, variance, row = taken_in(ops, load, noise, state)
    usable = kalman_square_roots.positive(ops, ops.where(sees, one, variance))
    square = ops.where(sees, reach, one)
    length = square**0.5
    direction = apply(ops, A, u) / length
    gain = ops.where(sees, direction / length, row / usable)
    error = value - (load * state.mean).sum(0)
    turn = reflection(ops, u, square)
    new = turn.here & sees
    told = Columns(
        ops.where(new[:, None], direction - row * (length * inverse(ops, variance)), told.parts),
        ops.where(new, variance / square, told.weights),
    )
    A, source = (ops.where(sees, without(ops, x, turn), x) for x in (A, state.source))
    sight = Sight(error, ops.where(sees, variance, usable), reach, sees)
    return ops.keep(sight), ops.keep(Diffuse(state.mean + gain * error, known, told, A, source))


def taken_in(ops: Any, load: Any, noise: Any, state: Diffuse) -> tuple[Columns, Columns, Any, Any]:
    """The columns once ``load @ x`` is known, the variance of that, and its covariances with x."""
    both = together(ops, state.known, state.told)
    (parts, weights), variance, row, _ = kalman_columns.taken_in(ops, load, noise, both)
    count = len(state.known.parts)
    first, last = (Columns(parts[part], weights[part]) for part in (slice(count), slice(count, None)))
    return first, last, variance, row


def reflection(ops: Any, u: Any, square: Any) -> Reflection:
    """That turns u, the square of whose length is given, to a unit vector: no rounding is left of what is seen."""
    sizes = abs(u)
    largest = sizes == ops.maximum(sizes, 0)[None]
    here = largest & (ops.converted(largest, u).cumsum(0) == 1)  # the first of the largest
    length = square**0.5
    turned = ops.where(here, u + ops.where(u < 0, -length, length), u)
    scale = (turned * turned).sum(0)
    return Reflection(turned, 2 / ops.where(scale > 0, scale, ops.one(scale)), here)


def without(ops: Any, A: Any, turn: Reflection) -> Any:
    """The directions that are left once the one that was seen is known: a column less, the others turned."""
    scaled = apply(ops, A, turn.turned) * turn.scale
    left = clean(ops, A - outer(scaled, turn.turned), abs(A) + outer(abs(scaled), abs(turn.turned)), len(A))
    return ops.where(turn.here[None], ops.zero(left), left)


def deviance(ops: Any, seen: Sight, kept: Any) -> Any:
    """-2 times the logarithm of the density of the observations, less log(infinity) for each that sees the unknown."""
    known = ops.where(seen.sees, ops.one(seen.variance), seen.variance)
    terms = ops.log(ops.where(seen.sees, seen.reach, known)) + LOG_TWO_PI
    terms = terms + ops.where(seen.sees, ops.zero(seen.error), seen.error * seen.error / known)
    return (terms if kept is None else ops.where(kept, terms, ops.zero(terms))).sum(0)


class Step(NamedTuple):
    """What a filter finds in a step."""

    predicted: Diffuse
    updated: Diffuse


def forward(ops: Any, model: Model, y: Any, kept: Any, t: Any, predicted: Diffuse) -> tuple[Step, Any]:
    """Step t from the state predicted for it, and how little the observations were expected."""
    _, H, _, R = at(ops, model, t)
    kept = None if kept is None else ops.row(kept, t, 0)
    seen, updated = observe(ops, H, R, ops.row(y, t, 0), kept, predicted)
    return Step(predicted, updated), deviance(ops, seen, kept)


def finite(ops: Any, state: Diffuse) -> Any:
    """The covariance of what is known."""
    return kalman_columns.covariance(ops, together(ops, state.known, state.told))


def whole(ops: Any, state: Diffuse) -> Any:
    """The covariance: infinite where a direction that nothing is known of enters."""
    return infinite(ops, state.A, finite(ops, state))


def infinite(ops: Any, A: Any, cov: Any) -> Any:
    """A covariance to which infinity A A^T is added."""
    across = transpose(A)
    unknown = clean(ops, ops.product(A, across), ops.product(abs(A), abs(across)), len(A))
    return ops.where(unknown > 0, math.inf, ops.where(unknown < 0, -math.inf, cov))


def is_known(ops: Any, state: Diffuse) -> Any:
    """Whether no direction is left of which nothing is known, in any series."""
    return ops.all(state.A == 0)


def is_settled(ops: Any, state: Diffuse) -> Any:
    """Whether the covariance of what is known would lose no digits as it stands: what is uncertain is of one size."""
    own = kalman_columns.orthogonal(ops, together(ops, state.known, state.told), len(state.A)).weights
    variances = diagonal(finite(ops, state))
    eps = ops.limits(own)[0]
    certain = own <= NOISE * len(own) * eps * variances
    return ops.all(certain | (own >= eps ** (1 / 3) * variances))
