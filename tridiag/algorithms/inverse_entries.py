"""Entries of A^-T where A has its bands, the gradients of log |det A|, from both ends.

They follow from the rows above a row and those below it as in `tridiag.kernels.thomas.inverse_entries`; of matrices
that are not periodic. Numbers with exponents apart are for matrices whose entries are so far apart that digits are
lost to underflow else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms import row_scales
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.row_loop import whole_bands
from tridiag.algorithms.scaled import Scaled, difference, larger_part, multiplied, split, times_power
from tridiag.problems.forms import Form

Row = tuple[Any, Any, Any]


def row_by_row(ops: Any, matrix: Matrix, form: Form) -> tuple[list[Any], Any]:
    """Those of a, b and c, of the shape of the matrices; 0 where no coupling is.

    Of each matrix is told whether they may lack digits, which were lost to underflow, as those of a singular one do.
    """
    bands = whole_bands(ops, matrix, form)
    if form.n == 0:
        return list(bands), ops.full(form.matrix_batch, 0, bands[1].real) != 0
    scaled, size = of_size_one(ops, *bands)
    rows = [[ops.row(x, i, form.axis) for x in scaled] for i in range(form.n)]
    one, zero = ops.one(rows[0][1]), ops.zero(rows[0][1])
    above = [(one, zero)]
    for a, b, c in rows[:-1]:
        p, q = above[-1]
        above.append(tuple(of_size_one(ops, p * b - q * a, p * c)[0]))
    products, determinants = [ops.empty(form.matrix_shape, zero) for _ in range(3)], ops.empty(form.matrix_shape, zero)
    r, s = zero, one
    for i in range(form.n - 1, -1, -1):
        (a, b, c), (p, q) = rows[i], above[i]
        left, right = s * a, s * b - r * c
        ops.store(determinants, i, form.axis, p * right - q * left)
        for target, product in zip(products, (-q * s, p * s, -p * r), strict=True):
            ops.store(target, i, form.axis, product)
        (r, s), _ = of_size_one(ops, left, right)
    inverse = ops.quotient(ops.quotient(ops.one(determinants), determinants), size + ops.zero(determinants))
    found = [kept(ops, matrix, x * inverse) for x in products]
    most = functools.reduce(ops.larger, (ops.maximum(larger_part(ops, x), form.axis) for x in found))
    return found, row_scales.are_wide(ops, bands, form.axis) | ~(most < math.inf)


def of_size_one(ops: Any, *numbers: Any) -> tuple[list[Any], Any]:
    """Numbers over the size of the largest, and that size; zeros as they are."""
    size = functools.reduce(ops.larger, [larger_part(ops, x) for x in numbers])
    size = ops.where(size > 0, size, ops.one(size))
    return [x / size for x in numbers], size


def kept(ops: Any, matrix: Matrix, entries: Any) -> Any:
    """0 in rows that are taken out."""
    return entries if matrix[3] is None else ops.where(matrix[3], entries, ops.zero(entries))


# --------------------------------------------------------------------------------------------- with exponents apart


class Pair(NamedTuple):
    """What the rows on one side of a row leave of two unknowns, up to a factor: those of p and q, or of r and s."""

    first: Scaled
    second: Scaled


def with_exponents(ops: Any, scan: Callable[..., Any], rows: Any, like: Any) -> Any:
    """The same of matrices whose entries lie anywhere in the range, row by row; not finite of a singular one.

    ``rows``: those of the whole bands, ``like`` one entry of them. ``scan(step, state, sequences, reverse)``: what
    ``step`` of the state and of an element of each sequence gives beside the next state, as a sequence like ``rows``.
    """
    one, zero = (split(ops, make(like)) for make in (ops.one, ops.zero))

    def downwards(above: Pair, row: Any) -> tuple[Pair, Pair]:
        a, b, c = (split(ops, x) for x in row[0])
        diagonal = difference(ops, multiplied(ops, above.first, b), multiplied(ops, above.second, a))
        return leveled(ops, diagonal, multiplied(ops, above.first, c)), above

    def upwards(below: Pair, row: Any) -> tuple[Pair, Row]:
        (a, b, c), (p, q), (r, s) = (split(ops, x) for x in row[0]), row[1], below
        left = multiplied(ops, s, a)
        right = difference(ops, multiplied(ops, s, b), multiplied(ops, r, c))
        determinant = difference(ops, multiplied(ops, p, right), multiplied(ops, q, left))
        before, here, after = (ratio(ops, multiplied(ops, x, y), determinant) for x, y in ((q, s), (p, s), (p, r)))
        return leveled(ops, left, right), (-before, here, -after)

    above = scan(downwards, Pair(one, zero), (rows,), False)
    return scan(upwards, Pair(zero, one), (rows, above), True)


def in_a_loop(step: Callable[..., Any], state: Any, sequences: tuple[list[Any], ...], reverse: bool) -> list[Any]:
    """A scan in Python."""
    found = []
    for row in reversed(list(zip(*sequences, strict=True))) if reverse else zip(*sequences, strict=True):
        state, element = step(state, row)
        found.append(element)
    return found[::-1] if reverse else found


def leveled(ops: Any, first: Scaled, second: Scaled) -> Pair:
    """A pair times a power of two, so that exponents stay small; where neither number is 0 that of the first is."""
    common = ops.where(first.mantissa == 0, second.exponent, first.exponent)
    return Pair(*(x._replace(exponent=x.exponent - common) for x in (first, second)))


def ratio(ops: Any, x: Scaled, y: Scaled) -> Any:
    """x / y as a number."""
    return times_power(ops, ops.quotient(x.mantissa, y.mantissa), x.exponent - y.exponent)
