"""Covariances as sums of w c c^T over columns c with weights w, in loops over the columns, for every library.

What is found is that of `tridiag.algorithms.kalman_square_roots`, with all columns in one array: a program for JAX is
as long for many states as for few. Arrays are as in `tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_square_roots import difference, inverse
from tridiag.algorithms.numbers import finite


class Columns(NamedTuple):
    """A covariance, as the sum of w c c^T."""

    parts: Any  # (columns, states)
    weights: Any


def together(ops: Any, *several: Columns) -> Columns:
    """All columns of two covariances, in their order."""
    return Columns(*(ops.join(*pair) for pair in zip(*several, strict=True)))


def diagonal(ops: Any, x: Any) -> Any:
    """As a vector; what is beside it may be infinite or NaN."""
    return ops.where(ops.identity(x) > 0, x, ops.zero(x)).sum(0)


def apply(ops: Any, x: Any, vector: Any) -> Any:
    """A matrix times a vector."""
    return ops.product(x, vector[:, None])[:, 0]


def of_covariance(ops: Any, cov: Any) -> Columns:
    """Those of L D L^T, L lower triangular; a variance that is 0 but for rounding is 0, an infinite one NaN."""
    k, cov = len(cov), finite(cov)
    least, place = 4 * k * ops.limits(cov)[0] * diagonal(ops, cov), ops.positions(k, cov.ndim - 1, 0, cov)

    def column(cov: Any, j: Any) -> tuple[Any, Columns]:
        row = ops.row(cov, j, 0)
        weight = ops.row(row, j, 0)
        weight = ops.where(weight <= ops.row(least, j, 0), ops.vanished(weight), weight)
        part = below(ops, row * inverse(ops, weight), place, j)
        return cov - part[:, None] * row[None], Columns(part, weight)

    return Columns(*ops.each(k, column, cov)[1])


def below(ops: Any, x: Any, place: Any, j: Any) -> Any:
    """A vector with 1 at j and 0 before it."""
    return ops.where(place > j, x, ops.where(place == j, ops.one(x), ops.zero(x)))


def orthogonal(ops: Any, columns: Columns, size: int) -> Columns:
    """As many as ``size`` of the same covariance of the first states, by weighted Gram-Schmidt: L lower triangular.

    With each what goes with it of the others. No product of columns is formed beforehand, and no variance is a
    difference of two.
    """
    parts, weights = columns
    parts, (eps, tiny) = parts + ops.zero(weights)[:, None], ops.limits(parts)
    place = ops.positions(parts.shape[1], parts.ndim - 1, 0, parts)

    def column(parts: Any, j: Any) -> tuple[Any, Columns]:
        first = ops.row(parts, j, 1)
        scaled = first * weights
        variance = (first * scaled).sum(0)
        # of parts that cancel, again and again, no more is left than underflows: its inverse may overflow
        variance = ops.where(variance < tiny / eps, ops.vanished(variance), variance)
        # columns of no weight count alike where there are no others: what they would become has a derivative
        nothing = variance == 0
        scaled, sizes = ops.where(nothing, first, scaled), ops.where(nothing, (first * first).sum(0), variance)
        part = (parts * (scaled * inverse(ops, sizes))[:, None]).sum(0)
        left = ops.where(place > j, part, ops.zero(part))
        return difference(ops, parts, left * first[:, None], ops.vanished), Columns(
            below(ops, part, place, j), variance
        )

    return Columns(*ops.each(size, column, parts)[1])


def eliminated(ops: Any, lower: Any, x: Any) -> Any:
    """L^-1 x, from the columns of a unit lower triangular matrix along the first axis."""
    place = ops.positions(len(lower), lower.ndim - 1, 0, lower)

    def column(x: Any, j: Any) -> tuple[Any, None]:
        part = ops.row(lower, j, 0)
        part = ops.where(place > j, part, ops.zero(part))
        return x - part[:, None] * ops.row(x, j, 0)[None], None

    return ops.each(len(lower), column, x)[0]
