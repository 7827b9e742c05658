"""Parts of systems joined with their neighbours alone, where couplings decay within parts.

Where the last unknown of a part does not depend on what is before the part, nor the first on what is behind it, the two
unknowns at either end of it follow from two relations of this part and two of its neighbour, of

    last = value + slope first',        first' = value' + slope' last.

That is so of diagonally dominant systems but for terms that shrink by a factor with every row; SPIKE's truncated scheme
(Polizzi and Sameh 2006) drops them. Here a part drops them where rounding hides them in the very numbers that they are
added to, whatever the right side is: then x is as good as that of the parts joined in full.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.parts import Relations, first_of
from tridiag.algorithms.regularity import Bounded, relative_error

HIDDEN = 0.25  # eps: what is less, relative to a number, is not added to it
LARGER = 16  # times what is at the ends of a part: what lies between them is taken to be less

Array = Any


class End(NamedTuple):
    """The unknown at an end of a part, as one number and what multiplies the unknown beside it."""

    value: Array
    slope: Array


class Beside(NamedTuple):
    """The unknowns at the ends of a part, and beside it."""

    before: Array
    first: Array
    last: Array
    behind: Array


def times(ops: Any, x: Array, entry: Array) -> Array:
    """Their product; 0 where the entry is 0, whatever it multiplies."""
    return ops.where(entry == 0, ops.zero(x), x * entry)


def ends(relations: Relations) -> tuple[End, End]:
    """The first and the last unknown of a part, without what lies beyond its other end."""
    first = End(
        relations.first + relations.first_last * relations.last,
        relations.first_before + relations.first_last * relations.last_before,
    )
    return first, End(relations.last, relations.last_behind)


def from_ends(ops: Any, top: Relations, bottom: Relations) -> tuple[Relations, Array]:
    """The relations of a part from those of its first and of its last rows, and whether these are enough.

    What couples them to the rows between is dropped: what it multiplies is not known, and taken to be no larger than
    what is known of the rows at the ends. Where it is, the rows at the ends of the part have residuals that tell so.
    """
    (value, slope), _ = ends(top)
    nothing, limit = ops.zero(value), HIDDEN / LARGER * ops.limits(value)[0]
    above = ops.size(top.first_last * top.last) < limit * ops.size(value)
    below = ops.size(bottom.last_before * bottom.first) < limit * ops.size(bottom.last * bottom.first_before)
    found = Relations(bottom.last, nothing, bottom.last_behind, value, slope, nothing)
    return found, ((top.first_last == 0) | above) & ((bottom.last_before == 0) | below)


def join(
    ops: Any, relations: Relations, first: End, before: End, behind: End, there: tuple[Array, Array]
) -> tuple[Beside, Array]:
    """What is at the ends of a part, and of which systems that is right but for rounding.

    ``relations``: of the unknowns beside the part; ``first``: its own first one, ``before`` the last one of the part
    before, ``behind`` the first one of the part behind; ``there``: whether there are such parts. A part at an end of
    the system drops nothing. Parts without certificate are NaN; of these nothing is said.
    """
    pairs = ops.stack([before.value, relations.last]), ops.stack([before.slope, relations.last_behind])
    others = ops.stack([first.value, behind.value]), ops.stack([first.slope, behind.slope])
    (left, last), (own, right) = between(ops, End(*pairs), End(*others))
    of_last = ops.keep(relations.last_before * left)
    of_first = ops.keep(relations.first_last * relations.last_behind * right)
    limit = HIDDEN * ops.limits(last)[0]
    enough = hidden(ops, of_last, last, limit) | ~there[1], hidden(ops, of_first, own, limit) | ~there[0]
    unknown = isnan(before.value) | isnan(relations.last) | isnan(behind.value)
    last = ops.where(there[1], last, relations.last + of_last)
    own = ops.where(there[0], own, first_of(ops, relations, ops.zero(last), last))
    return Beside(left, own, last, right), (enough[0] & enough[1]) | unknown


def between(ops: Any, last: End, first: End) -> tuple[Array, Array]:
    """The last unknown of a part and the first of the next; both parts compute the same to the last bit.

    NaN where what divides them may be rounding: such systems may be singular.
    """
    own, circle = ops.keep(last.slope * first.value), ops.keep(last.slope * first.slope)
    one = ops.one(circle)
    rest = Bounded(one - circle, relative_error(ops, circle) * (ops.size(one) + ops.size(circle)))
    found = ops.where(rest.certain(ops), (last.value + own) / rest.value, ops.nan(own))
    return found, first.value + ops.keep(first.slope * found)


def hidden(ops: Any, term: Array, x: Array, limit: float) -> Array:
    """Whether x and term + x are the same number, but for rounding."""
    return ops.size(term) <= limit * ops.size(x)


def isnan(x: Array) -> Array:
    return x != x
