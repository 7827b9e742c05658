"""Covariances as P = L D L^T, L unit lower triangular: steps of a Kalman filter that lose no digits, for every library.

A covariance as it stands knows what is certain no better than to an eps of what is not. L and D know both: Bierman's
update takes an observation in, rotations carry a state on, and no variance is a difference of two. They take about
three times the work of `tridiag.algorithms.kalman_filter`, which goes on where digits would be lost.

G. J. Bierman, Factorization Methods for Discrete Sequential Estimation, Academic Press, 1977. Arrays are as in
`tridiag.algorithms.kalman_filter`: matrices first, then batch axes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_rotations
from tridiag.algorithms.kalman_rotations import difference, inverse
from tridiag.algorithms.numbers import finite


class Root(NamedTuple):
    """A covariance L D L^T."""

    columns: list[Any]  # of L, below the diagonal
    weights: list[Any]  # D


class Turn(NamedTuple):
    """Coordinates z of a state, x = L z, before an observation from those after it.

    They are z[i] - shares[i] * (the sum of sights[j] z[j] over j < i).
    """

    shares: Any
    sights: Any


class Back(NamedTuple):
    """Coordinates of a state, x = L z, from those of the next one: z = gain @ next + noise.

    The covariance of the noise is spread @ diag(weights) @ spread^T. An entry of z that is known well has small entries
    in all of them, and each is as accurate as it is small. Of x that would not hold: the next state may be little known
    but for a sum of its entries, and that sum be what the state is known by.
    """

    gain: Any  # its columns, stacked along a first axis
    spread: Any  # likewise
    weights: Any


def added(terms: Iterable[Any]) -> Any:
    return functools.reduce(operator.add, terms)


def positive(ops: Any, variance: Any) -> Any:
    """The variance of an observation, or NaN where it is not positive, or infinite."""
    return ops.where((variance > 0) & (variance < math.inf), variance, ops.nan(variance))


def root_of(ops: Any, cov: Any) -> Root:
    """Of a positive semidefinite matrix; a variance that is 0 but for rounding is 0, an infinite one NaN."""
    columns, weights = [], []
    rounding, cov = 4 * len(cov) * ops.limits(cov)[0], finite(cov)
    for least in [rounding * cov[i, i] for i in range(len(cov))]:
        nothing = cov[0, 0] <= least
        weights.append(ops.where(nothing, 0.0, cov[0, 0]))
        columns.append(cov[1:, 0] * inverse(ops, weights[-1]))
        cov = ops.keep(cov[1:, 1:] - columns[-1][:, None] * cov[None, 0, 1:])
    return Root(columns, weights)


def covariance(ops: Any, root: Root) -> Any:
    """L D L^T."""
    columns = [whole(ops, root, j) for j in range(len(root.weights))]
    return ops.symmetric(added((x * w)[:, None] * x[None] for x, w in zip(columns, root.weights, strict=True)))


def whole(ops: Any, root: Root, j: int) -> Any:
    """A column of L."""
    one = ops.one(root.weights[j])
    return ops.join(ops.stack([*[one - one] * j, one]), root.columns[j])


# ----------------------------------------------------------------------------------------------------- observations


def observe(ops: Any, H: Any, R: Any, root: Root) -> tuple[list[Any], list[Any], list[Any], Root, list[Turn]]:
    """D and L of the innovation covariance S = L D L^T, the rows of L^-1 H P, and the covariance once all is known.

    Behind them, how its coordinates turned with each observation.
    """
    noise, loads, variances, columns, rows, turns = root_of(ops, R), [], [], [], [], []
    for j in range(len(H)):  # R = L D L^T: then one observation after another
        loads.append(H[0])
        H = H[1:] - noise.columns[j][:, None] * H[None, 0]
    for j, load in enumerate(loads):
        root, variance, row, turn = take_in(ops, load, noise.weights[j], root)
        turns.append(turn)
        variances.append(positive(ops, variance))
        rows.append(row)
        shares = [(later * row).sum(0) / variances[-1] for later in loads[j + 1 :]]
        column = list(noise.columns[j])
        for i in range(len(column)):
            column[i] = column[i] + shares[i]
            for m in range(i):
                column[i] = column[i] + noise.columns[j + 1 + m][i - m - 1] * shares[m]
        columns.append(ops.stack(column) if column else noise.columns[j] * variance)
    return variances, columns, rows, root, turns


def take_in(ops: Any, load: Any, noise: Any, root: Root) -> tuple[Root, Any, Any, Turn]:
    """A root once ``load @ x`` with a noise is known, the variance of that, and its covariances with x: P load^T."""
    columns, weights, row = [*root.columns], [*root.weights], None
    shares: list[Any] = []
    sights: list[Any] = []
    variance, known = noise, inverse(ops, noise)
    for j in reversed(range(len(weights))):
        column, sight = columns[j], load[j]
        if row is not None:
            sight = sight + (column * load[j + 1 :]).sum(0)
        common = weights[j] * sight
        more = variance + common * sight
        inverted = inverse(ops, more)
        weights[j] = ops.where(more == 0, weights[j], weights[j] * (variance * inverted))
        first = ops.stack([common])
        shares.insert(0, common)
        sights.insert(0, known * sight)
        if row is None:
            row = first
        else:
            columns[j] = column - row * sights[0]
            row = ops.join(first, row + column * common)
        columns[j], weights[j], row = ops.keep((columns[j], weights[j], row))
        variance, known = more, inverted
    return *ops.keep((Root(columns, weights), variance, row)), Turn(shares, sights)


def turned_back(ops: Any, turn: Turn, vector: Any) -> Any:
    """Coordinates before an observation, from those after it."""
    entries, told = [vector[0]], None
    for share, sight, before, own in zip(turn.shares[1:], turn.sights, vector, vector[1:], strict=False):
        told = sight * before if told is None else told + sight * before
        entries.append(own - share * told)
    return ops.stack(entries)


def root_turned_back(ops: Any, turn: Turn, root: Root) -> Root:
    """The root of the covariance of coordinates before an observation, from that after it."""
    columns = []
    for j, column in enumerate(root.columns):
        entries, told = [], turn.sights[j]
        for share, sight, own in zip(turn.shares[j + 1 :], turn.sights[j + 1 :], column, strict=True):
            entries.append(own - share * told)
            told = told + sight * own
        columns.append(ops.stack(entries) if entries else column)
    return ops.keep(root._replace(columns=columns))


# ------------------------------------------------------------------------------------------------------------ steps


def predict(ops: Any, F: Any, Q: Any, root: Root) -> Root:
    """That of F P F^T + Q."""
    return rotated(ops, ops.stack(moved(F, root)), root.weights, root_of(ops, Q))[0]


def moved(F: Any, root: Root) -> list[Any]:
    """The columns of F L."""
    return [
        F[:, j] + (F[:, j + 1 :] * column[None]).sum(1) if len(column) else F[:, j]
        for j, column in enumerate(root.columns)
    ]


def go_back(ops: Any, F: Any, Q: Any, root: Root) -> Back:
    """As `Back`: the covariance of both, the next one first, is made triangular halfway."""
    own = [whole(ops, Root([ops.zero(x) for x in root.columns], root.weights), j) for j in range(len(F))]
    both, weights, spread = halfway(ops, F, Q, root, own)
    return Back(ops.stack([x[len(x) - len(F) :] for x in both.columns]), spread, weights)


def halfway(ops: Any, F: Any, Q: Any, root: Root, own: list[Any]) -> tuple[Root, Any, Any]:
    """The covariance of the next state and of what has columns of its ``own`` is made triangular halfway."""
    noise = root_of(ops, Q)
    parts = ops.stack([ops.join(*pair) for pair in zip(moved(F, root), own, strict=True)])
    noise = noise._replace(columns=[ops.join(x, ops.zero(F[:, 0])) for x in noise.columns])
    return rotated(ops, parts, root.weights, noise)


def rotated(ops: Any, parts: Any, weights: list[Any], noise: Root) -> tuple[Root, Any, Any]:
    """The root of sum_m w[m] parts[m] parts[m]^T and a noise, in as many columns as this has.

    Behind it what is left of the other entries of the parts, and the weights of that.
    """
    k = len(noise.weights)
    if ops.one_by_one:
        parts = [ops.join(ops.stack([w]), part) for w, part in zip(weights, parts, strict=True)]
        columns = [ops.join(ops.stack([w]), x) for w, x in zip(noise.weights, noise.columns, strict=True)]
        columns, left = kalman_rotations.in_turn(ops, ops.stack(parts), columns, len(parts[0]) - 1 - k)
        return Root([x[1:] for x in columns], [x[0] for x in columns]), left[:, 0], left[:, 1:]
    columns = ops.stack([whole(ops, noise, j) for j in range(k)])
    columns, own, left, after = kalman_rotations.side_by_side(
        ops, parts, ops.stack(weights), columns, ops.stack(noise.weights)
    )
    columns = ops.where(own[:, None] > 0, columns, ops.zero(columns))
    return Root([columns[j, j + 1 :] for j in range(k)], list(own)), after, left


def gain_back(ops: Any, F: Any, Q: Any, root: Root) -> Any:
    """With which a state of covariance L D L^T follows from the next one."""
    both, _, _ = halfway(ops, F, Q, root, [whole(ops, root, j) for j in range(len(F))])
    gain: Any = None  # of the whole of the next state, from what is new in each of its entries: times L^-1
    for column in reversed(both.columns):
        above = len(column) - len(F)
        row = column[above:]
        row = row if gain is None else row - (column[:above, None] * gain).sum(0)
        gain = row[None] if gain is None else ops.join(row[None], gain)
    return gain.swapaxes(0, 1)


def smooth(ops: Any, back: Back, root: Root) -> Root:
    """That of coordinates, from the root of those of the next state once all is known."""
    parts = ops.join(ops.keep(ops.stack(moved(back.gain.swapaxes(0, 1), root))), back.spread)
    return orthogonal(ops, parts, ops.join(ops.stack(root.weights), back.weights))


def product(ops: Any, root: Root, coordinates: Root) -> Root:
    """That of x = L z from the root of the covariance of z."""
    columns = []
    for j, (column, own) in enumerate(zip(root.columns, coordinates.columns, strict=True)):
        for m, number in enumerate(own):
            more = ops.stack([number])
            if m + 1 < len(own):
                more = ops.join(more, root.columns[j + 1 + m] * number)
            column = column + more if m == 0 else ops.join(column[:m], column[m:] + more)
        columns.append(column)
    return ops.keep(coordinates._replace(columns=columns))


def apply(ops: Any, root: Root, vector: Any) -> Any:
    """L times a vector."""
    return added(whole(ops, root, j) * vector[j] for j in range(len(root.weights)))


def without(ops: Any, firsts: Any, scaled: Any, rests: Any) -> tuple[Any, Any]:
    """Rows of the column that all parts have in common, and of the parts without it."""
    column = (rests * scaled).sum(0)
    return column, difference(ops, rests, column * firsts)


def orthogonal(ops: Any, parts: Any, weights: Any) -> Root:
    """The root of sum_m w[m] parts[m] parts[m]^T, by weighted Gram-Schmidt.

    Parts are stacked along the first axis: a program that is written out entry by entry compiles for long.
    """
    columns, found, (_, tiny) = [], [], ops.limits(parts)
    for _ in range(parts.shape[1]):
        firsts, rests = parts[:, 0], parts[:, 1:]
        scaled = firsts * weights
        variance = (firsts * scaled).sum(0)
        # of parts that cancel, again and again, no more is left than underflows: its inverse may overflow
        variance = ops.where(variance < tiny, 0.0, variance)
        column, left = ops.row_by_row(without, firsts, scaled * inverse(ops, variance), rests)
        column, variance, parts = ops.keep((column, variance, left))
        columns.append(column)
        found.append(variance)
    return Root(columns, found)
