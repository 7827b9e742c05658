"""Determinants of matrices whose entries lie anywhere in the range, from leading minors with exponents apart.

D[i] = b[i] D[i-1] - a[i] c[i-1] D[i-2] (Golub and Van Loan, Matrix Computations, section 8.4): of a matrix whose
entries differ from the given ones in their last bits, whatever their sizes, and 0 where zeros make it so. That of a
periodic matrix is D[n] less the same without the first and the last row times their coupling, less (-1)^n times the
product of all a and that of all c (Muir, A treatise on the theory of determinants, 1882). It costs more than
elimination, and is for matrices of which that loses digits to underflow, or overflows.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from tridiag.algorithms.elimination import polar
from tridiag.algorithms.scaled import Scaled, difference, larger_part, multiplied, split

Array = Any
Row = tuple[Array, Array, Array]


class Minors(NamedTuple):
    """D of the last row and of the one before, and c of the last row."""

    last: Scaled
    before: Scaled
    above: Array


def start(ops: Any, like: Array) -> Minors:
    """Before the first row, the a of which counts for nothing."""
    return Minors(split(ops, ops.one(like)), split(ops, ops.zero(like)), ops.zero(like))


def onward(ops: Any, state: Minors, row: Row) -> Minors:
    """One row more."""
    a, b, c = row
    coupling = multiplied(ops, split(ops, a), split(ops, state.above))
    terms = multiplied(ops, split(ops, b), state.last), multiplied(ops, coupling, state.before)
    return Minors(difference(ops, *terms), state.last, c)


def closed(ops: Any, n: int, ends: tuple[Array, Array], every: Scaled, inner: Scaled, along: list[Scaled]) -> Scaled:
    """That of a periodic matrix: ``ends`` are its corners, ``along`` the products of all a and of all c."""
    corner = multiplied(ops, *(split(ops, x) for x in ends))
    found = difference(ops, every, multiplied(ops, corner, inner))
    for x in along:
        found = difference(ops, found, x._replace(mantissa=-x.mantissa) if n % 2 else x)
    return found


def sign_and_logarithm(ops: Any, x: Scaled) -> tuple[Array, Array]:
    sign, logarithm = polar(ops, x.mantissa)
    return sign, logarithm + ops.converted(x.exponent * math.log(2), logarithm)


def extremes(ops: Any, bands: tuple[Array, ...], axis: int) -> tuple[Array, Array]:
    """The smallest size of an entry of a matrix that is not 0, and the largest one."""

    def largest(of_entry: Any) -> Array:
        return functools.reduce(ops.larger, (ops.maximum(of_entry(larger_part(ops, x)), axis) for x in bands))

    return -largest(lambda x: ops.where(x == 0, x - math.inf, -x)), largest(lambda x: x)


def beyond(ops: Any, least: Array, most: Array) -> Array:
    """Matrices of which elimination may lose digits to underflow, or to pivots that cannot be compared.

    Their entries, from ``least`` to ``most``, span more than all binary digits of a number, or are nearer than these to
    an end of the range.
    """
    eps, tiny = ops.limits(least)
    return (most * eps > least) | (least * eps < tiny) | (most * tiny > eps)


def sunk(ops: Any, lowest: Array, most: Array) -> Array:
    """... and matrices a pivot row of which elimination has made so small: ``lowest`` is its largest entry."""
    eps, tiny = ops.limits(most)
    return (lowest * eps < tiny) | (lowest * eps < most * tiny)


def lowest(ops: Any, rows: list[tuple[Array, ...]]) -> Array:
    """The largest entry of the smallest one of pivot rows that are not 0."""
    found = None
    for row in rows:
        size = functools.reduce(ops.larger, (larger_part(ops, x) for x in row))
        size = ops.where(size > 0, size, ops.one(size) * math.inf)
        found = size if found is None else ops.where(size < found, size, found)
    return found
