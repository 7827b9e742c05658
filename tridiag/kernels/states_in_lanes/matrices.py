"""Matrices of vectors with one series in each lane, of any size: products, and how they come from memory and back.

Written once for all sizes. A product takes a few rows and columns of its result at a time, which are summed in
registers; sizes are cut evenly, so that hardly anything is left over.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit

from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.operands import QUAD, addresses
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, OPTIONS, Code

library = Library("states_in_lanes", short=True)


class Matrix(NamedTuple):
    """The address of a matrix of vectors, and the bytes from row to row and from column to column."""

    address: Any
    row: Any
    column: Any

    def at(self, i: Any, j: Any) -> Any:
        return self.address + i * self.row + j * self.column


class Factors(NamedTuple):
    """target = start + left @ right.T, or start - left @ right.T, and how many terms a sum has."""

    target: Matrix
    left: Matrix
    right: Matrix
    start: Matrix
    inner: Value


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
    code: Code, sign: int, of: Factors, i: Value, j: Value, places: list[tuple[int, int]]
) -> Iterator[tuple[Code, int, dict[tuple[int, int], Value]]]:
    """The entries of a result at such places from (i, j) on, for the lanes of a register at a time."""
    combine = operator.add if sign > 0 else operator.sub
    rows, columns = sorted({r for r, _ in places}), sorted({c for _, c in places})
    left = {r: of.left.at(i + r, 0) for r in rows}
    right = {c: of.right.at(j + c, 0) for c in columns}
    for some, lane in narrow(code):
        offset = lane * code.size_of_real

        def term(k: Value, sums: Any, some: Code = some, offset: int = offset) -> Any:
            x = {r: some.load(left[r] + k * of.left.column + offset) for r in rows}
            y = {c: some.load(right[c] + k * of.right.column + offset) for c in columns}
            return tuple(combine(own, x[r] * y[c]) for own, (r, c) in zip(sums, places, strict=True))

        begun = tuple(some.load(of.start.at(i + r, j + c) + offset) for r, c in places)
        yield some, offset, dict(zip(places, some.fori(0, of.inner, term, begun), strict=True))


def factors(code: Code, contiguous: bool, given: tuple[Value, ...]) -> Factors:
    """``contiguous``: the terms of a sum are neighbours."""
    target, left, right, start = (Matrix(*given[k : k + 3]) for k in range(0, 12, 3))
    if contiguous:
        left, right = (side._replace(column=code.integer(LINE)) for side in (left, right))
    return Factors(target, left, right, start, given[12])


def product(sign: int, contiguous: bool, code: Code, *given: Value) -> None:
    """All of a result."""
    of, rows, columns = factors(code, contiguous, given), given[13], given[14]

    def some_of(i: Value, height: int, j: Value, width: int) -> None:
        places = [(r, c) for r in range(height) for c in range(width)]
        for some, offset, found in piece(code, sign, of, i, j, places):
            for (r, c), value in found.items():
                some.store(of.target.at(i + r, j + c) + offset, value)

    def some_rows(i: Value, height: int) -> None:
        for width, count, first in pieces(code, columns, tallest()):
            each(code, 0, count, lambda b, w=width, f=first: some_of(i, height, f + b * w, w))  # type: ignore[misc]

    for height, count, first in pieces(code, rows, tallest()):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


def symmetric_product(sign: int, contiguous: bool, code: Code, *given: Value) -> None:
    """A square result that is symmetric: what is not below its diagonal is computed, and written twice."""
    of, size = factors(code, contiguous, given), given[13]
    cut = list(pieces(code, size, tallest()))

    def some_of(i: Value, height: int, j: Value, width: int, diagonal: bool) -> None:
        places = [(r, c) for r in range(height) for c in range(width) if r <= c or not diagonal]
        for some, offset, found in piece(code, sign, of, i, j, places):
            for (r, c), value in found.items():
                some.store(of.target.at(i + r, j + c) + offset, value)
            for (r, c), value in found.items():
                if r != c or not diagonal:
                    some.store(of.target.at(j + c, i + r) + offset, value)

    def some_rows(number: int, a: Value) -> None:
        height, count, start = cut[number]
        i = start + a * height
        some_of(i, height, i, height, True)
        each(code, a + 1, count, lambda b: some_of(i, height, start + b * height, height, False))
        for width, more, first in cut[number + 1 :]:
            each(code, 0, more, lambda b, w=width, f=first: some_of(i, height, f + b * w, w, False))  # type: ignore[misc]

    for number, (_, count, _) in enumerate(cut):
        each(code, 0, count, functools.partial(some_rows, number))


def named(name: str, body: Any, sign: int, contiguous: bool) -> Any:
    """A product as a function of its matrices, how many terms a sum has, and the rows and columns of the result."""
    write = library.add(name, functools.partial(body, sign, contiguous))

    @njit(**OPTIONS)
    def run(zero, target, left, right, start, inner, rows, columns):
        of_target = target.address, target.row, target.column, left.address, left.row, left.column
        of_right = right.address, right.row, right.column, start.address, start.row, start.column
        write(zero, (*of_target, *of_right, inner, rows, columns))

    return run


# of matrices whose rows are contiguous; and of any, for sums of few terms
add_product = named("add_product", product, 1, True)
add_symmetric = named("add_symmetric", symmetric_product, 1, True)
subtract_symmetric = named("subtract_symmetric", symmetric_product, -1, False)


# ------------------------------------------------------------------------------------------------------- vectors

LONGEST = 8  # rows of a matrix that are multiplied by a vector at a time


def apply_to(code: Code, *given: Value) -> None:
    """target = start + matrix @ x, of a matrix whose rows are contiguous, and columns with an entry in each line."""
    target, matrix, row, x, start, inner, rows = given

    def some_rows(i: Value, height: int) -> None:
        own = [matrix + (i + r) * row for r in range(height)]
        for some, lane in narrow(code):
            offset = lane * code.size_of_real

            def term(k: Value, sums: Any, some: Code = some, offset: int = offset) -> Any:
                factor = some.load(x + k * LINE + offset)
                return tuple(y + some.load(at + k * LINE + offset) * factor for y, at in zip(sums, own, strict=True))

            begun = tuple(some.load(start + (i + r) * LINE + offset) for r in range(height))
            for r, value in enumerate(some.fori(0, inner, term, begun)):
                some.store(target + (i + r) * LINE + offset, value)

    for height, count, first in pieces(code, rows, LONGEST):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


def apply_and_spread(code: Code, *given: Value) -> None:
    """matrix @ x, and start + (matrix * matrix) @ v: of means, and of the variances of independent numbers.

    ``step``: the bytes from an entry of ``start`` to the next one.
    """
    moved, spread, matrix, row, x, v, start, step, inner, rows = given

    def some_rows(i: Value, height: int) -> None:
        own = [matrix + (i + r) * row for r in range(height)]
        for some, lane in narrow(code):
            offset = lane * code.size_of_real

            def term(k: Value, sums: Any, some: Code = some, offset: int = offset) -> Any:
                entries = [some.load(at + k * LINE + offset) for at in own]
                factor, variance = (some.load(side + k * LINE + offset) for side in (x, v))
                means = tuple(y + z * factor for y, z in zip(sums[0], entries, strict=True))
                return means, tuple(y + z * z * variance for y, z in zip(sums[1], entries, strict=True))

            begun = tuple(some.load(start + (i + r) * step + offset) for r in range(height))
            found = some.fori(0, inner, term, ((some.zero(),) * height, begun))
            for r, pair in enumerate(zip(*found, strict=True)):
                for target, value in zip((moved, spread), pair, strict=True):
                    some.store(target + (i + r) * LINE + offset, value)

    for height, count, first in pieces(code, rows, tallest()):
        each(code, 0, count, lambda a, h=height, f=first: some_rows(f + a * h, h))  # type: ignore[misc]


apply, spread_out = library.add("apply", apply_to), library.add("spread_out", apply_and_spread)


# ------------------------------------------------------------------------------------------------------- copies


def from_memory(code: Code, table: Value, step: Value, target: Value, count: Value) -> None:
    """So many numbers side by side, ``step`` bytes behind the address of each lane."""
    base, kind = [address + step for address in addresses(code, table)], ir.VectorType(code.real, QUAD)
    whole = count / QUAD * QUAD

    def some(e: Value, state: Any) -> Any:
        loaded = [code.load_as(kind, address + e * code.size_of_real) for address in base]
        for k, row in enumerate(in_lanes(code, loaded)):
            code.store(target + e * LINE + k * LINE, row)
        return state

    def one(e: Value, state: Any) -> Any:
        row = code.undefined(code.vector)
        for lane, address in enumerate(base):
            row = code.insert(row, code.load_as(code.real, address + e * code.size_of_real), lane)
        code.store(target + e * LINE, row)
        return state

    code.fori(0, whole, some, step=QUAD)
    code.fori(whole, count, one)


def to_memory(code: Code, table: Value, step: Value, source: Value, count: Value) -> None:
    """The inverse."""
    base = [address + step for address in addresses(code, table)]
    whole = count / QUAD * QUAD

    def some(e: Value, state: Any) -> Any:
        rows = [code.load(source + e * LINE + k * LINE) for k in range(QUAD)]
        for address, part in zip(base, out_of_lanes(code, rows), strict=True):
            code.store_as(address + e * code.size_of_real, part)
        return state

    def one(e: Value, state: Any) -> Any:
        row = code.load(source + e * LINE)
        for lane, address in enumerate(base):
            code.store_as(address + e * code.size_of_real, code.extract(row, lane))
        return state

    code.fori(0, whole, some, step=QUAD)
    code.fori(whole, count, one)


gather, scatter = library.add("gather", from_memory), library.add("scatter", to_memory)


def reflect(code: Code, matrix: Value, size: Value) -> None:
    """What is above the diagonal also below it."""
    of = Matrix(matrix, size * LINE, code.integer(LINE))
    each(code, 0, size, lambda i: each(code, i + 1, size, lambda j: code.store(of.at(j, i), code.load(of.at(i, j)))))


def turn(code: Code, target: Value, source: Value, size: Value) -> None:
    """The transpose of a square matrix."""
    into, of = (Matrix(at, size * LINE, code.integer(LINE)) for at in (target, source))
    each(code, 0, size, lambda i: each(code, 0, size, lambda j: code.store(into.at(j, i), code.load(of.at(i, j)))))


def fill(value: float, code: Code, target: Value, count: Value) -> None:
    each(code, 0, count, lambda e: code.store(target + e * LINE, code.splat(value)))


def copy(code: Code, target: Value, source: Value, step: Value, count: Value) -> None:
    """So many vectors that lie ``step`` bytes apart."""
    each(code, 0, count, lambda e: code.store(target + e * LINE, code.load(source + e * step)))


mirror, transpose, pick_out = library.add("mirror", reflect), library.add("transpose", turn), library.add("copy", copy)
clear, put_ones = (library.add(name, functools.partial(fill, x)) for name, x in (("clear", 0.0), ("put_ones", 1.0)))
