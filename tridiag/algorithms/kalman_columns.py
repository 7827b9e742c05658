"""Covariances as sums of w c c^T over columns c with weights w, in loops over the columns, for every library.

What is found is that of `tridiag.algorithms.kalman_square_roots`, with all columns in one array: a program for JAX is
as long for many states as for few. Arrays are as in `tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_filter import transpose
from tridiag.algorithms.kalman_rotations import difference, inverse, side_by_side
from tridiag.algorithms.kalman_square_roots import positive
from tridiag.algorithms.numbers import finite


class Columns(NamedTuple):
    """A covariance, as the sum of w c c^T."""

    parts: Any  # (columns, states)
    weights: Any


def together(ops: Any, *several: Columns) -> Columns:
    """All columns of two covariances, in their order."""
    return Columns(*(ops.join(*pair) for pair in zip(*several, strict=True)))


def diagonal(x: Any) -> Any:
    """As a vector."""
    return x.reshape(-1, *x.shape[2:])[:: len(x) + 1]


def apply(ops: Any, x: Any, vector: Any) -> Any:
    """A matrix times a vector."""
    return (x * vector[None]).sum(1)


def covariance(ops: Any, columns: Columns) -> Any:
    """The sum of w c c^T."""
    return ops.symmetric(ops.product(transpose(columns.parts * columns.weights[:, None]), columns.parts))


def moved(ops: Any, F: Any, columns: Columns) -> Columns:
    """Of F P F^T."""
    return Columns(ops.product(columns.parts, transpose(F)), columns.weights)


def of_covariance(ops: Any, cov: Any) -> Columns:
    """Those of L D L^T, L lower triangular; a variance that is 0 but for rounding is 0, an infinite one NaN."""
    k, cov = len(cov), finite(cov)
    least, place = 4 * k * ops.limits(cov)[0] * diagonal(cov), ops.positions(k, cov.ndim - 1, 0, cov)

    def column(cov: Any, j: Any) -> tuple[Any, Columns]:
        row = ops.row(cov, j, 0)
        weight = ops.row(row, j, 0)
        # with a derivative, of a rank that the covariance lacks: where it lacks one that is all there is
        weight = ops.where(weight <= ops.row(least, j, 0), ops.vanished(weight), weight)
        part = below(ops, row * inverse(ops, weight), place, j)
        return cov - part[:, None] * row[None], Columns(part, weight)

    return Columns(*ops.each(k, column, cov)[1])


def predict(ops: Any, F: Any, Q: Any, columns: Columns) -> Columns:
    """Those of F P F^T + Q."""
    return Columns(*side_by_side(ops, *moved(ops, F, columns), *of_covariance(ops, Q))[:2])


def below(ops: Any, x: Any, place: Any, j: Any) -> Any:
    """A vector with 1 at j and 0 before it."""
    return ops.where(place > j, x, ops.where(place == j, ops.one(x), ops.zero(x)))


def orthogonal(ops: Any, columns: Columns, size: int) -> Columns:
    """As many as ``size`` of the same covariance of the first states, by weighted Gram-Schmidt: L lower triangular.

    With each what goes with it of the others. No product of columns is formed beforehand, and no variance is a
    difference of two.
    """
    parts, weights = columns
    parts, (_, tiny) = parts + ops.zero(weights)[:, None], ops.limits(parts)
    place = ops.positions(parts.shape[1], parts.ndim - 1, 0, parts)
    divides = None if parts.shape[1] == size else place < size

    def column(parts: Any, j: Any) -> tuple[Any, Columns]:
        first = ops.row(parts, j, 1)
        scaled = first * weights
        variance = (first * scaled).sum(0)
        # of parts that cancel, again and again, no more is left than underflows: its inverse may overflow
        variance = ops.where(variance < tiny, ops.vanished(variance), variance)
        # columns of no weight count alike where there are no others: what they would become has a derivative
        nothing = variance == 0
        scaled, sizes = ops.where(nothing, first, scaled), ops.where(nothing, (first * first).sum(0), variance)
        part = (parts * (scaled * inverse(ops, sizes))[:, None]).sum(0)
        left = ops.where(place > j, part, ops.zero(part))
        left = difference(ops, parts, left * first[:, None], ops.vanished, divides)
        return left, Columns(below(ops, part, place, j), variance)

    return Columns(*ops.each(size, column, parts)[1])


def eliminated(ops: Any, lower: Any, x: Any) -> Any:
    """L^-1 x, from the columns of a unit lower triangular matrix along the first axis."""
    place = ops.positions(len(lower), lower.ndim - 1, 0, lower)

    def column(x: Any, j: Any) -> tuple[Any, None]:
        part = ops.row(lower, j, 0)
        part = ops.where(place > j, part, ops.zero(part))
        return x - part[:, None] * ops.row(x, j, 0)[None], None

    return ops.each(len(lower), column, x + ops.zero(lower[:, :1]))[0]


# ----------------------------------------------------------------------------------------------------- observations


class Turn(NamedTuple):
    """Coordinates z of a state, x = sum_j c_j z[j], before the observations of a step from those after them.

    They are matrix @ z + (errors / variances) @ moves.
    """

    matrix: Any
    moves: Any


def taken_in(ops: Any, load: Any, noise: Any, columns: Columns) -> tuple[Columns, Any, Any, tuple[Any, Any]]:
    """The columns once ``load @ x`` with a noise is known, the variance of that, and its covariances with x.

    Behind them, what `turn` is told.
    """
    parts, weights = columns
    sights = (parts * load[None]).sum(1)
    common = weights * sights
    after, rows = noise + (common * sights).cumsum(0), (parts * common[:, None]).cumsum(0)
    before = ops.join((noise + ops.zero(after[0]))[None], after[:-1])
    known = ops.join(ops.zero(rows[:1]), rows[:-1])
    told = sights * inverse(ops, before)
    parts = parts - known * told[:, None]
    weights = ops.where(after == 0, weights, weights * (before * inverse(ops, after)))
    return Columns(parts, weights), after[-1], rows[-1], (common, told)


def turn(ops: Any, shares: Any, sights: Any) -> Any:
    """The matrix that makes coordinates before an observation of those after it."""
    matrix, places = (
        shares[:, None] * sights[None],
        [ops.positions(len(shares), shares.ndim + 1, i, shares) for i in (0, 1)],
    )
    return ops.identity(matrix) - ops.where(places[0] < places[1], matrix, ops.zero(matrix))


def observe(ops: Any, H: Any, R: Any, columns: Columns) -> tuple[Any, Any, Any, Columns, Turn]:
    """D and L of the innovation covariance S = L D L^T, the rows of L^-1 H P, and the columns once all is known."""
    noise = of_covariance(ops, R)
    loads = eliminated(ops, noise.parts, H)
    place = ops.positions(len(R), R.ndim - 1, 0, R)

    def one(state: Any, j: Any) -> tuple[Any, Any]:
        columns, matrix = state
        columns, variance, row, (shares, sights) = taken_in(
            ops, ops.row(loads, j, 0), ops.row(noise.weights, j, 0), columns
        )
        variance, move = positive(ops, variance), apply(ops, matrix, shares)
        factor = below(ops, apply(ops, loads, row) / variance, place, j)
        return ops.keep((columns, ops.product(matrix, turn(ops, shares, sights)))), (variance, row, factor, move)

    weights = columns.weights + ops.zero(loads[0, 0] + noise.weights[0])
    columns = Columns(columns.parts + ops.zero(weights)[:, None], weights)
    matrix = ops.identity(columns.parts) + ops.zero(columns.parts)
    (columns, matrix), (variances, rows, factors, moves) = ops.each(len(R), one, (columns, matrix))
    return variances, ops.product(factors, noise.parts), rows, columns, Turn(matrix, moves)


# ------------------------------------------------------------------------------------------------------- the way back


class Back(NamedTuple):
    """Coordinates of a state from those of the next one, as in `tridiag.algorithms.kalman_square_roots.Back`."""

    gain: Any
    noise: Columns


def go_back(ops: Any, F: Any, Q: Any, columns: Columns) -> Back:
    """As `Back`: columns of both, the next one first, are made triangular halfway."""
    both, left = halfway(ops, F, Q, columns, ops.identity(columns.parts))
    return Back(transpose(both[:, len(F) :]), left)


def halfway(ops: Any, F: Any, Q: Any, columns: Columns, own: Any) -> tuple[Any, Columns]:
    """Of the next state and of what has columns of its ``own``, as many as states; those left of the latter."""
    forward, noise = moved(ops, F, columns), of_covariance(ops, Q)
    given = beside(ops, forward.parts, own), forward.weights, beside(ops, noise.parts, ops.zero(F)), noise.weights
    parts, weights, left, after = side_by_side(ops, *given)
    return ops.where(weights[:, None] > 0, parts, ops.zero(parts)), Columns(left, after)


def gain_back(ops: Any, F: Any, Q: Any, columns: Columns) -> Any:
    """With which a state follows from the next one."""
    k, (parts, _) = len(F), halfway(ops, F, Q, columns, columns.parts)
    place = ops.positions(k, F.ndim - 1, 0, F)

    def row(gain: Any, i: Any) -> tuple[Any, None]:
        j = k - 1 - i
        part = ops.row(parts, j, 0)
        later = ops.where(place > j, part[:k], ops.zero(part[:k]))
        found = part[k:] - (later[:, None] * gain).sum(0)
        return ops.where(place[:, None] == j, found[None], gain), None

    return transpose(ops.each(k, row, ops.zero(parts[:, k:]))[0])


def smooth(ops: Any, back: Back, turn: Turn, columns: Columns) -> Columns:
    """Those of coordinates, from the columns of those of the next state once all is known."""
    gain = ops.product(back.gain, turn.matrix)
    return orthogonal(ops, together(ops, moved(ops, gain, columns), back.noise), len(gain))


def beside(ops: Any, x: Any, z: Any) -> Any:
    """Along the second axis; those behind it broadcast."""
    return transpose(ops.join(transpose(x), transpose(z)))
