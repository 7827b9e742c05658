"""Covariances as P = L D L^T, L unit lower triangular: steps of a Kalman filter that lose no digits, for every library.

A covariance as it stands knows what is certain no better than to an eps of what is not. L and D know both: Bierman's
update takes an observation in, Thornton's weighted Gram-Schmidt carries a state on, and no variance is a difference of
two. They take about three times the work of `tridiag.filtering`, which goes on where digits would be lost.

G. J. Bierman, Factorization Methods for Discrete Sequential Estimation, Academic Press, 1977. Arrays are as in
`tridiag.filtering`: matrices first, then batch axes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Root(NamedTuple):
    """A covariance L D L^T."""

    columns: list[Any]  # of L, below the diagonal
    weights: list[Any]  # D


class Back(NamedTuple):
    """A state from the next one: x = gain @ next + noise, whose covariance is spread @ diag(weights) @ spread^T."""

    gain: Any
    spread: list[Any]  # columns
    weights: list[Any]


def added(terms: Iterable[Any]) -> Any:
    return functools.reduce(operator.add, terms)


def inverse(ops: Any, x: Any) -> Any:
    """0 for 0."""
    nothing = x == 0
    return ops.where(nothing, 0.0, ops.one(x) / ops.where(nothing, 1.0, x))


def root_of(ops: Any, cov: Any) -> Root:
    """Of a positive semidefinite matrix; a variance that is 0 but for rounding is 0."""
    columns, weights = [], []
    rounding = 4 * len(cov) * ops.limits(cov)[0]
    for least in [rounding * cov[i, i] for i in range(len(cov))]:
        nothing = cov[0, 0] <= least
        weights.append(ops.where(nothing, 0.0, cov[0, 0]))
        columns.append(cov[1:, 0] * inverse(ops, weights[-1]))
        cov = cov[1:, 1:] - columns[-1][:, None] * cov[None, 0, 1:]
    return Root(columns, weights)


def covariance(ops: Any, root: Root) -> Any:
    """L D L^T."""
    columns = [whole(ops, root, j) for j in range(len(root.weights))]
    return ops.symmetric(added((x * w)[:, None] * x[None] for x, w in zip(columns, root.weights, strict=True)))


def whole(ops: Any, root: Root, j: int) -> Any:
    """A column of L."""
    one = ops.one(root.weights[j])
    return ops.stack([*[one - one] * j, one, *root.columns[j]])


# ----------------------------------------------------------------------------------------------------- observations


def observe(ops: Any, H: Any, R: Any, root: Root) -> tuple[list[Any], list[Any], list[Any], Root]:
    """D and L of the innovation covariance S = L D L^T, the rows of L^-1 H P, and the covariance once all is known."""
    noise, loads, variances, columns, rows = root_of(ops, R), [], [], [], []
    for j in range(len(H)):  # R = L D L^T: then one observation after another
        loads.append(H[0])
        H = H[1:] - noise.columns[j][:, None] * H[None, 0]
    for j, load in enumerate(loads):
        root, variance, row = take_in(ops, load, noise.weights[j], root)
        variances.append(ops.where(variance > 0, variance, ops.nan(variance)))
        rows.append(row)
        told = [added(later[i] * row[i] for i in range(len(row))) / variances[-1] for later in loads[j + 1 :]]
        column = list(noise.columns[j])
        for i in range(len(column)):
            column[i] = column[i] + told[i]
            for m in range(i):
                column[i] = column[i] + noise.columns[j + 1 + m][i - m - 1] * told[m]
        columns.append(ops.stack(column) if column else noise.columns[j] * variance)
    return variances, columns, rows, root


def take_in(ops: Any, load: Any, noise: Any, root: Root) -> tuple[Root, Any, Any]:
    """A root once ``load @ x`` with a noise is known, the variance of that, and its covariances with x: P load^T."""
    columns, weights = [*root.columns], [*root.weights]
    row: list[Any] = []
    variance, known = noise, inverse(ops, noise)
    for j in reversed(range(len(weights))):
        sight = added([load[j], *(x * load[j + 1 + i] for i, x in enumerate(columns[j]))])
        common = weights[j] * sight
        more = variance + common * sight
        inverted = inverse(ops, more)
        weights[j] = ops.where(more == 0, weights[j], weights[j] * (variance * inverted))
        if row:
            covariances, column = ops.stack(row), columns[j]
            columns[j] = column - covariances * known * sight
            row = list(covariances + column * common)
        row.insert(0, common)
        variance, known = more, inverted
    return ops.keep((Root(columns, weights), variance, ops.stack(row)))


# ------------------------------------------------------------------------------------------------------------ steps


def predict(ops: Any, F: Any, Q: Any, root: Root) -> Root:
    """That of F P F^T + Q."""
    return orthogonal(ops, moved(F, root), root.weights, root_of(ops, Q), None)[0]


def moved(F: Any, root: Root) -> list[Any]:
    """The columns of F L."""
    return [
        added([F[:, j], *(F[:, j + 1 + i] * x for i, x in enumerate(column))]) for j, column in enumerate(root.columns)
    ]


def go_back(ops: Any, F: Any, Q: Any, root: Root) -> Back:
    """A state of covariance L D L^T from the next one."""
    below = [whole(ops, root, j) for j in range(len(root.weights))]
    ahead, weights, rows, spread = orthogonal(ops, moved(F, root), root.weights, root_of(ops, Q), below)
    gain: list[Any] = []  # of the whole of the next state, from what is new in each of its entries: times L^-1
    for column, row in zip(reversed(ahead.columns), reversed(rows), strict=True):
        gain.insert(0, added([row, *(found * -x for x, found in zip(column, gain, strict=True))]))
    return Back(ops.stack(gain).swapaxes(0, 1), spread, weights)


def smooth(ops: Any, back: Back, root: Root) -> Root:
    """That of a state, from the root of the next one once all is known."""
    parts, weights = moved(back.gain, root), [*root.weights, *back.weights]
    return orthogonal(ops, [*parts, *back.spread], weights, None, None)[0]


def orthogonal(
    ops: Any, parts: list[Any], weights: Sequence[Any], noise: Root | None, below: list[Any] | None
) -> tuple[Root, list[Any], list[Any], list[Any]]:
    """The root of sum_m w[m] parts[m] parts[m]^T and a noise; of entries ``below`` those, also what they keep.

    All weights, the columns that tell the entries below from what is new in each entry above, and what is left of them.
    """
    columns, found, rows, weights, left = [], [], [], list(weights), list(below or [])
    for j in range(len(parts[0])):
        firsts, rests = [x[0] for x in parts], [x[1:] for x in parts]
        if noise is not None:
            firsts.append(ops.one(noise.weights[j]))
            rests.append(noise.columns[j])
            weights.append(noise.weights[j])
        scaled = [x * w for x, w in zip(firsts, weights, strict=True)]
        variance = added(x * y for x, y in zip(firsts, scaled, strict=True))
        inverted = inverse(ops, variance)
        scaled = [x * inverted for x in scaled]
        column = added(x * y for x, y in zip(rests, scaled, strict=True))
        parts = [x - column * y for x, y in zip(rests, firsts, strict=True)]
        if below is not None:
            rows.append(added(x * y for x, y in zip(left, scaled, strict=False)))
            new = [-rows[-1] * x for x in firsts[len(left) :]]
            left = [x - rows[-1] * y for x, y in zip(left, firsts, strict=False)] + new
        column, variance, parts, rows, left = ops.keep((column, variance, parts, rows, left))
        columns.append(column)
        found.append(variance)
    return Root(columns, found), weights, rows, left
