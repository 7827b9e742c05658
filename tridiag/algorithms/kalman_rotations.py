"""Roots of sums of covariances by rotations: columns are taken into L D L^T one after another.

A column of large weight may have entries that cancel. Gram-Schmidt leaves their rounding errors, and the weight that
makes them count; a rotation leaves what it is taken into, and a weight as small as what is left.

W. M. Gentleman, Least squares computations by Givens transformations without square roots, IMA Journal of Applied
Mathematics 12, 1973, 329-336; W. M. Gentleman and H. T. Kung, Matrix triangularization by systolic arrays, Real-Time
Signal Processing IV, SPIE 298, 1981, 19-26. Arrays are as in `tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tridiag.algorithms.numbers import finite

ROUNDING = 64  # eps: below that share of its terms a difference is 0


def inverse(ops: Any, x: Any) -> Any:
    """0 for 0, NaN for what is infinite."""
    nothing = x == 0
    return ops.where(nothing, 0.0, ops.reciprocal(ops.where(nothing, 1.0, finite(x))))


def difference(ops: Any, x: Any, y: Any, nothing: Callable[[Any], Any] | None = None, divides: Any = None) -> Any:
    """x - y, or 0 where that is rounding alone: of what is exact nothing is left, by which to divide.

    ``nothing``: makes that 0 of the difference; with its derivative, ``ops.vanished``. ``divides``: by which of them
    may be divided; None: by all. The others stay as they are.
    """
    found, rounding = x - y, ROUNDING * ops.limits(x)[0]
    alone = ops.at_most(ops.size(found), rounding * (ops.size(x) + ops.size(y)))
    return ops.where(alone if divides is None else alone & divides, (nothing or ops.zero)(found), found)


def what_is_left(ops: Any, parts: Any, taken: Any, count: int) -> Any:
    """As `difference` of the first ``count`` entries; all of the others, by which nothing is divided."""
    left = difference(ops, parts[:count], taken[:count])
    return left if len(parts) == count else ops.join(left, parts[count:] - taken[count:])


# ------------------------------------------------------------------------------------------------ one after another


def in_turn(ops: Any, parts: Any, noise: Any, behind: int) -> tuple[list[Any], Any]:
    """The root of sum_m w[m] c[m] c[m]^T and a noise; what is left of the parts, in place of them.

    Each part is a weight and a column, that of the noise likewise, as from the diagonal on; ``behind``: how many
    entries go with a column that the root is not of. What is left is of these alone.
    """
    return ops.through(functools.partial(rotated, ops, behind), parts, noise)


def rotated(ops: Any, behind: int, part: Any, column: Any) -> tuple[Any, Any]:
    """A part without its first entry, and the column that has that entry in it."""
    (weight, first), rest, own, below = part[:2], part[2:], column[0], column[1:]
    share = weight * first
    total = own + share * first
    # of parts that cancel, again and again, no more is left than underflows: its inverse may overflow
    total = ops.where(total < ops.limits(part)[1], 0.0, total)
    inverted = inverse(ops, total)
    stays, goes = own * inverted, share * inverted
    weight = ops.where(total == 0, weight, weight * stays)
    if not len(rest):
        return ops.stack([weight]), ops.stack([total])
    left = what_is_left(ops, rest, below * first, len(rest) - behind)
    column = ops.join(ops.stack([total]), below * stays + rest * goes)
    return ops.join(ops.stack([weight]), left), column


# ---------------------------------------------------------------------------------------------------- side by side


def side_by_side(ops: Any, parts: Any, weights: Any, columns: Any, noise: Any) -> tuple[Any, ...]:
    """The same of parts and columns stacked along the first axis: all columns at the same time, each with its part.

    Parts, all entries of each; the columns and weights of the noise. Returned: columns and weights of the root, what
    is left of the entries behind it, and the weights of that.
    """
    k, width = len(columns), parts.shape[1]
    like = ops.zero(weights[0] + noise[0] + parts[0, 0])  # all axes of the batch
    parts, weights, columns, noise = (x + like for x in (parts, weights, columns, noise))
    (_, tiny), none, one = ops.limits(parts), ops.zero(parts[: k - 1]), ops.one(noise)
    entering, entering_weights = ops.join(parts, none), ops.join(weights, none[:, 0])
    rows, entries = (ops.positions(x, parts.ndim, i, parts) for i, x in enumerate((k, width)))
    diagonal, divides = rows == entries, entries < k if width > k else None

    def step(state: Any, t: Any) -> tuple[Any, Any]:
        parts, weights, columns, own, alike = state
        parts = ops.join(ops.row(entering, t, 0)[None], parts[:-1])
        weights = ops.join(ops.row(entering_weights, t, 0)[None], weights[:-1])
        first = ops.where(diagonal, parts, ops.zero(parts)).sum(1)
        share = weights * first
        total = own + share * first
        nothing = total < tiny
        total = ops.where(nothing, ops.vanished(total), total)
        # columns of no weight count alike where there are no others: what they would become has a derivative
        squares = alike + first * first
        inverted = inverse(ops, ops.where(nothing, squares, total))
        stays, goes = ops.where(nothing, alike, own) * inverted, ops.where(nothing, first, share) * inverted
        left = difference(ops, parts, columns * first[:, None], ops.vanished, divides)
        # what loses nothing: what is left of a part is exact beside a column of more weight, and 0 may be
        lighter = goes * first > stays
        taken = ops.where(lighter[:, None], parts, left) * goes[:, None]
        moved = columns * ops.where(lighter, stays, one)[:, None] + taken
        columns = ops.where(diagonal, columns, moved)
        state = ops.keep((left, weights * stays, columns, total, squares))
        return state, (state[0][-1], state[1][-1])

    start = ops.zero(columns), ops.zero(noise), columns, noise, one
    (_, _, columns, own, _), (left, after) = ops.each(len(parts) + k - 1, step, start)
    return columns, own, left[k - 1 :, k:], after[k - 1 :]
