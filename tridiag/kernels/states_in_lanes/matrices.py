"""Matrices of vectors with one series in each lane, of any size: products.

Written once for all sizes. A product takes a few rows and columns of its result at a time, which are summed in
registers; sizes are cut evenly, so that hardly anything is left over.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from tridiag.kernels.many_states.profiles import Profile
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

library = Library("states_in_lanes", short=True)


class Matrix(NamedTuple):
    """The address of a matrix of vectors, and the bytes from row to row and from column to column."""

    address: Any
    row: Any
    column: Any

    def at(self, i: Any, j: Any) -> Any:
        return self.address + i * self.row + j * self.column

    def near(self, i: Any, j: Any, places: list[tuple[int, int]]) -> list[Any]:
        """The addresses of entries at such places from (i, j) on: one product for all."""
        first = self.at(i, j)
        rows = {r: first + self.row * r for r, _ in places}
        return [rows[r] + self.column * c for r, c in places]


@compiled
def any_matrix(worker):
    """The profile of one of which nothing is known."""
    return Profile(worker.whole, 0)


class Factors(NamedTuple):
    """target = start + left @ right.T, or start - left @ right.T, and how many terms a sum has at most."""

    target: Matrix
    left: Matrix
    right: Matrix
    start: Matrix  # one row for all, where rows lie 0 bytes apart
    profile: Profile  # of one of the sides
    inner: Value
    taken: tuple[Value, ...] = ()  # two addresses of columns whose products are subtracted too, and how many


def tallest() -> int:
    """Of how many rows and columns a product is summed in registers."""
    return 4 if bytes_of_register() == LINE else 3


def pieces(code: Code, count: Value, tall: int) -> Iterator[tuple[int, Value, Value]]:
    """A size cut evenly: how long pieces are, how many have that length, and where the first of them begins."""
    cuts = (count + (tall - 1)) / tall
    cuts = code.pick(cuts > 0, cuts, code.integer(1))
    short = count / cuts
    longer = count - short * cuts
    none = code.integer(0)
    for length in range(tall, 0, -1):
        some = code.pick(short == length, cuts - longer, code.pick(short + 1 == length, longer, none))
        yield length, some, code.pick(short == length, longer * (length + 1), none)


def piece(
    code: Code, sign: int, of: Factors, i: Value, j: Value, places: list[tuple[int, int]], terms: tuple[Value, Value]
) -> Iterator[tuple[Code, int, tuple[Value, ...]]]:
    """The entries of a result at such places from (i, j) on, for the lanes of a register at a time."""
    combine = operator.add if sign > 0 else operator.sub
    rows, columns = sorted({r for r, _ in places}), sorted({c for _, c in places})
    sides = of.left.at(i, terms[0]), of.right.at(j, terms[0])
    for some, lane in narrow(code):
        offset = lane * code.size_of_real

        def term(k: Value, state: Any, some: Code = some, offset: int = offset) -> Any:
            left, right, sums = state
            x = {r: some.load(left + r * of.left.row + offset) for r in rows}
            y = {c: some.load(right + c * of.right.row + offset) for c in columns}
            sums = tuple(combine(own, x[r] * y[c]) for own, (r, c) in zip(sums, places, strict=True))
            return left + of.left.column, right + of.right.column, sums

        begun = tuple(some.load(at + offset) for at in of.start.near(i, j, places))
        if of.taken:
            begun = some.fori(0, of.taken[2], functools.partial(less, some, of, i, j, places, offset), begun)
        yield some, offset, some.fori(*terms, term, (*sides, begun))[2]


def less(
    some: Code, of: Factors, i: Value, j: Value, places: list[tuple[int, int]], offset: int, column: Value, sums: Any
) -> Any:
    """Sums without the product of two columns."""
    left, right, _ = of.taken
    step = column * of.inner * LINE + offset
    x = {r: some.load(left + i * LINE + step + r * LINE) for r, _ in places}
    y = {c: some.load(right + j * LINE + step + c * LINE) for _, c in places}
    return tuple(own - x[r] * y[c] for own, (r, c) in zip(sums, places, strict=True))


def factors(code: Code, contiguous: bool, given: tuple[Value, ...]) -> Factors:
    """``contiguous``: the entries of a row are neighbours, and the rows of both sides."""
    target, left, right, start = (Matrix(*given[k : k + 3]) for k in range(0, 12, 3))
    if contiguous:
        line = code.integer(LINE)
        target, start = target._replace(column=line), start._replace(column=line)
        left, right = (side._replace(row=given[14] * LINE, column=line) for side in (left, right))
    return Factors(target, left, right, start, Profile(*given[12:14]), given[14])


def product(sign: int, contiguous: bool, code: Code, *given: Value) -> None:
    """A result, or of each row the columns of a profile alone; the other profile is that of the left side."""
    of, rows, columns, alone = factors(code, contiguous, given), given[15], given[16], Profile(*given[17:19])
    partial = given[19] == code.integer(1)

    def some_of(i: Value, height: int, j: Value, width: int, terms: tuple[Value, Value]) -> None:
        places = [(r, c) for r in range(height) for c in range(width)]
        for some, offset, found in piece(code, sign, of, i, j, places, terms):
            for at, value in zip(of.target.near(i, j, places), found, strict=True):
                some.store(at + offset, value)

    def some_rows(i: Value, height: int) -> None:
        terms = of.profile.terms(code, i, height, of.inner)
        begin, end = alone.terms(code, i, height, columns)
        begin, end = code.pick(partial, begin, code.integer(0)), code.pick(partial, end, columns)
        for width, count, first in pieces(code, end - begin, tallest()):
            each(code, 0, count, lambda b, w=width, f=begin + first: some_of(i, height, f + b * w, w, terms))  # type: ignore[misc]

    for height, count, first in pieces(code, rows, tallest()):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


def symmetric_product(sign: int, contiguous: bool, code: Code, *given: Value) -> None:
    """A square result that is symmetric: what is not below its diagonal is computed, and written twice.

    The profile is that of the right side.
    """
    of, size = factors(code, contiguous, given)._replace(taken=given[17:]), given[15]
    cut = list(pieces(code, size, tallest()))

    def some_of(i: Value, height: int, j: Value, width: int, terms: tuple[Value, Value], diagonal: bool) -> None:
        places = [(r, c) for r in range(height) for c in range(width) if r <= c or not diagonal]
        turned = [(c, r) for r, c in places]
        for some, offset, found in piece(code, sign, of, i, j, places, terms):
            for at, value in zip(of.target.near(i, j, places), found, strict=True):
                some.store(at + offset, value)
            for at, (r, c), value in zip(of.target.near(j, i, turned), places, found, strict=True):
                if r != c or not diagonal:
                    some.store(at + offset, value)

    def some_columns(number: int, a: Value) -> None:
        width, _, start = cut[number]
        j = start + a * width
        terms = of.profile.terms(code, j, width, of.inner)
        for height, count, first in cut[:number]:
            each(code, 0, count, lambda b, h=height, f=first: some_of(f + b * h, h, j, width, terms, False))  # type: ignore[misc]
        each(code, 0, a, lambda b: some_of(start + b * width, width, j, width, terms, False))
        some_of(j, width, j, width, terms, True)

    for number, (_, count, _) in enumerate(cut):
        each(code, 0, count, functools.partial(some_columns, number))


@compiled
def flat(target, left, right, start, profile):
    """What functions of this language are given of these."""
    of_target = target.address, target.row, target.column, left.address, left.row, left.column
    of_right = right.address, right.row, right.column, start.address, start.row, start.column
    return (*of_target, *of_right, profile.address, profile.step)


write_product = library.add("add_product", functools.partial(product, 1, True))
write_symmetric = library.add("add_symmetric", functools.partial(symmetric_product, 1, True))
write_less = library.add("subtract_symmetric", functools.partial(symmetric_product, -1, False))


@compiled
def add_product(zero, target, left, right, start, profile, inner, rows, columns):
    """start + left @ right.T, of matrices whose rows are contiguous."""
    write_product(
        zero, (*flat(target, left, right, start, profile), inner, rows, columns, profile.address, profile.step, 0)
    )


@compiled
def add_some(zero, target, left, right, start, profile, some, size):
    """The same of square matrices, and of each row no columns but those of the profile ``some``."""
    write_product(zero, (*flat(target, left, right, start, profile), size, size, size, some.address, some.step, 1))


@compiled
def subtract_symmetric(zero, target, left, right, start, profile, inner, rows, columns):
    """start - left @ right.T, of any matrices."""
    write_less(zero, (*flat(target, left, right, start, profile), inner, rows, columns))


@compiled
def add_symmetric(zero, target, left, right, start, profile, inner, rows, columns):
    write_symmetric(zero, (*flat(target, left, right, start, profile), inner, rows, columns, 0, 0, 0))


@compiled
def add_symmetric_less(zero, target, left, right, start, profile, size, taken, count):
    """start + left @ right.T - sum x y^T over ``count`` pairs of columns that begin at the addresses ``taken``."""
    write_symmetric(zero, (*flat(target, left, right, start, profile), size, size, size, taken[0], taken[1], count))


# ------------------------------------------------------------------------------------------------------- vectors

LONGEST = 8  # rows of a matrix that are multiplied by a vector at a time


def apply_to(symmetric: bool, code: Code, *given: Value) -> None:
    """target = start + matrix @ x, of a matrix whose rows are contiguous, and columns with an entry in each line.

    ``symmetric``: the matrix is, and its columns are read in place of its rows, all of them.
    """
    target, matrix, row, x, start, profile, step, inner, rows = given
    of, line = Profile(profile, step), code.integer(LINE)
    entry, term_of = (line, row) if symmetric else (row, line)

    def some_rows(i: Value, height: int) -> None:
        begin, end = (code.integer(0), inner) if symmetric else of.terms(code, i, height, inner)
        first = matrix + i * entry + begin * term_of
        for some, lane in narrow(code):
            offset = lane * code.size_of_real

            def term(k: Value, state: Any, some: Code = some, offset: int = offset) -> Any:
                at, sums = state
                factor = some.load(x + k * LINE + offset)
                sums = tuple(y + some.load(at + entry * r + offset) * factor for r, y in enumerate(sums))
                return at + term_of, sums

            begun = tuple(some.load(start + (i + r) * LINE + offset) for r in range(height))
            for r, value in enumerate(some.fori(begin, end, term, (first, begun))[1]):
                some.store(target + (i + r) * LINE + offset, value)

    for height, count, first in pieces(code, rows, LONGEST):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


def apply_and_spread(code: Code, *given: Value) -> None:
    """matrix @ x, and start + (matrix * matrix) @ v: of means, and of the variances of independent numbers.

    No entry is squared by itself, which might leave the range.

    ``step``: the bytes from an entry of ``start`` to the next one.
    """
    moved, spread, matrix, row, x, v, start, step, profile, profile_step, inner, rows = given
    of = Profile(profile, profile_step)

    def some_rows(i: Value, height: int) -> None:
        own, terms = [matrix + (i + r) * row for r in range(height)], of.terms(code, i, height, inner)
        for some, lane in narrow(code):
            offset = lane * code.size_of_real

            def term(k: Value, sums: Any, some: Code = some, offset: int = offset) -> Any:
                entries = [some.load(at + k * LINE + offset) for at in own]
                factor, variance = (some.load(side + k * LINE + offset) for side in (x, v))
                means = tuple(y + z * factor for y, z in zip(sums[0], entries, strict=True))
                return means, tuple(y + z * variance * z for y, z in zip(sums[1], entries, strict=True))

            begun = tuple(some.load(start + (i + r) * step + offset) for r in range(height))
            found = some.fori(*terms, term, ((some.zero(),) * height, begun))
            for r, pair in enumerate(zip(*found, strict=True)):
                for target, value in zip((moved, spread), pair, strict=True):
                    some.store(target + (i + r) * LINE + offset, value)

    for height, count, first in pieces(code, rows, tallest()):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


write_applied = library.add("apply", functools.partial(apply_to, False))
write_symmetric_applied = library.add("apply_symmetric", functools.partial(apply_to, True))
spread_out = library.add("spread_out", apply_and_spread)


@compiled
def apply(zero, target, matrix, x, start, profile, inner, rows):
    """start + matrix @ x, sums of ``inner`` terms."""
    write_applied(zero, (target, matrix.address, matrix.row, x, start, profile.address, profile.step, inner, rows))


@compiled
def apply_symmetric(zero, target, matrix, x, start, size):
    """The same of a symmetric matrix."""
    write_symmetric_applied(zero, (target, matrix.address, matrix.row, x, start, 0, 0, size, size))
