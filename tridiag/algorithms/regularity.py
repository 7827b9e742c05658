"""Which of the systems that join parts are regular, and which may be singular but for rounding.

Their entries come from the elimination of parts, and their rows are differences of them: of a singular matrix the last
pivot of what joins its parts is rounding. It is eliminated once more, with a bound of what an error of each entry does
to the pivots (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3, on running error bounds). Of discrete
Laplacians of n rows in all the bound reaches a pivot where n^2 eps is about one: there rounding hides which are
singular, and no digit of a solution is certain.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SHARE = 1 / 8  # of the square root of eps: the error of an entry, relative to the terms that it is the sum of

Array = Any


class Bounded(NamedTuple):
    """Numbers, and bounds of their errors."""

    value: Array
    error: Array

    def plus(self, other: Bounded) -> Bounded:
        return Bounded(self.value + other.value, self.error + other.error)

    def minus(self, other: Bounded) -> Bounded:
        return Bounded(self.value - other.value, self.error + other.error)

    def negative(self) -> Bounded:
        return Bounded(-self.value, self.error)

    def times(self, ops: Any, other: Bounded) -> Bounded:
        error = ops.size(self.value) * other.error + ops.size(other.value) * self.error
        return Bounded(self.value * other.value, error)

    def over(self, ops: Any, other: Bounded) -> Bounded:
        found = self.value / other.value
        return Bounded(found, (self.error + ops.size(found) * other.error) / ops.size(other.value))

    def certain(self, ops: Any) -> Array:
        """Whether it is not zero, whatever its error is."""
        return ops.size(self.value) > self.error


class Carried(NamedTuple):
    """What the elimination of all rows but the last one carries."""

    pivot: Bounded
    column: Bounded  # the entry in the row of the pivot and the last column,
    row: Bounded  # ... and that in the last row and the column of the pivot
    last: Bounded  # the last diagonal entry
    good: Array  # systems whose pivots so far are certain


def relative_error(ops: Any, x: Array) -> float:
    """That of an entry."""
    return float(SHARE * ops.limits(x)[0] ** 0.5)


def regular(ops: Any, a: Array, b: Array, c: Array, size: Array) -> Array:
    """Which systems, whose rows lie along the first axis, are regular; a[0] and c[n-1] are 0, or corners.

    ``size``: that of the terms whose sums the entries of b are.
    """
    n, relative = b.shape[0], relative_error(ops, b)

    def entry(x: Array, k: Any, size: Array | None = None) -> Bounded:
        value = ops.row(x, k, 0)
        return Bounded(value, relative * (ops.size(value) if size is None else ops.row(size, k, 0)))

    def closed(state: Carried) -> tuple[Bounded, Bounded]:
        """The multiplier of the last row, and what is left of its diagonal."""
        multiplier = state.row.over(ops, state.pivot)
        return multiplier, state.last.minus(multiplier.times(ops, state.column))

    def step(k: Any, state: Carried) -> Carried:
        multiplier, (of_last, last) = entry(a, k + 1).over(ops, state.pivot), closed(state)
        return Carried(
            entry(b, k + 1, size).minus(multiplier.times(ops, entry(c, k))),
            multiplier.times(ops, state.column).negative(),
            of_last.times(ops, entry(c, k)).negative(),
            last,
            state.good & state.pivot.certain(ops),
        )

    last, corners = entry(b, n - 1, size), (entry(a, 0), entry(c, n - 1))
    if n == 1:
        return last.plus(corners[0]).plus(corners[1]).certain(ops)
    first = entry(b, 0, size)
    found = ops.repeat(n - 2, step, Carried(first, *corners, last, first.certain(ops)))
    found = found._replace(column=found.column.plus(entry(c, n - 2)), row=found.row.plus(entry(a, n - 1)))
    return found.good & found.pivot.certain(ops) & closed(found)[1].certain(ops)
