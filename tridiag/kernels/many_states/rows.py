"""Matrices whose rows are whole vectors, padded with zeros, and of any size: products, sums, copies.

Written once for all sizes. A product takes some rows and vectors of its result at a time, as many as registers hold;
coefficients are single numbers in memory, so that a matrix on the left needs no padding and may be read transposed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.algorithms.kalman_rotations import ROUNDING
from tridiag.kernels.many_states.profiles import Profile
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.transpose import transpose_blocks
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

library = Library("rows_of_states", short=True)


class Rows(NamedTuple):
    """Rows of vectors: the address of the first, and bytes from one to the next."""

    address: int
    step: int


class Numbers(NamedTuple):
    """A matrix of single numbers: the bytes from row to row, and from one number of a row to the next."""

    address: int
    step: int
    side: int


def block() -> tuple[int, int]:
    """How many rows, and vectors of each, of a product are summed in registers."""
    return (4, 4) if bytes_of_register() == LINE else (2, 2)


def once(code: Code, condition: Value, body: Callable[[], None]) -> None:
    """``body`` where a condition holds."""

    def run(_: Value, state: Any) -> Any:
        body()
        return state

    code.fori(0, code.pick(condition, code.integer(1), code.integer(0)), run)


def each(code: Code, first: Any, last: Any, body: Callable[[Value], None]) -> None:
    """A loop that carries nothing."""

    def run(i: Value, state: Any) -> Any:
        body(i)
        return state

    code.fori(first, last, run)


# ------------------------------------------------------------------------------------------------------- products


def product(sign: int, squares: bool, code: Code, *given: Value) -> None:
    """target = start + sign left @ right; with ``squares`` the entries of the right side are squared.

    ``low``: 1 where of each row only what is not below the diagonal is wanted, from a whole vector on; else 0. Behind
    it the profile of the left side, if one is given.
    """
    target, target_step, left, left_step, left_side, right, right_step = given[:7]
    start, start_step, rows, inner, vectors, low = given[7:13]
    tall, wide = block()
    combine = operator.add if sign > 0 else operator.sub

    def terms(i: Value, height: int) -> tuple[Any, Value]:
        return Profile(*given[13:]).terms(code, i, height, inner) if given[13:] else (0, inner)

    def piece(i: Value, height: int, first: Value, width: int) -> None:
        """Some rows of the result from row i on, and some of their vectors."""
        places = [(r, first * LINE + v * LINE) for r in range(height) for v in range(width)]

        def term(k: Value, sums: Any) -> Any:
            row = [code.load(right + k * right_step + place) for _, place in places[:width]]
            numbers = [code.spread(left + (i + r) * left_step + k * left_side) for r in range(height)]
            terms = (x * y * y if squares else x * y for x in numbers for y in row)
            return tuple(combine(x, y) for x, y in zip(sums, terms, strict=True))

        begun = tuple(code.load(start + (i + r) * start_step + place) for r, place in places)
        for (r, place), value in zip(places, code.fori(*terms(i, height), term, begun), strict=True):
            code.store(target + (i + r) * target_step + place, value)

    def some_rows(i: Value, height: int) -> None:
        first = i / code.lanes * low
        whole = (vectors - first) / wide
        each(code, 0, whole, lambda v: piece(i, height, first + v * wide, wide))
        first = first + whole * wide
        for width in range(1, wide):
            once(code, vectors - first == width, functools.partial(piece, i, height, first, width))

    whole = rows / tall
    each(code, 0, whole, lambda i: some_rows(i * tall, tall))
    each(code, whole * tall, rows, lambda i: some_rows(i, 1))


def named(sign: int, squares: bool, name: str) -> Any:
    write = library.add(name, functools.partial(product, sign, squares))

    @compiled
    def run(zero, target, left, right, start, rows, inner, vectors, low):
        of_target = target.address, target.step, left.address, left.step, left.side
        write(zero, (*of_target, right.address, right.step, start.address, start.step, rows, inner, vectors, low))

    return run


write_within = library.add("add_product_within", functools.partial(product, 1, False))


@compiled
def add_product_within(zero, target, left, right, start, profile, rows, inner, vectors):
    """As `add_product`, but for products with zeros at the ends of rows of the left side."""
    of_target = target.address, target.step, left.address, left.step, left.side
    of_right = right.address, right.step, start.address, start.step
    write_within(zero, (*of_target, *of_right, rows, inner, vectors, 0, profile.address, profile.step))


add_product, subtract_product = named(1, False, "add_product"), named(-1, False, "subtract_product")
add_product_of_squares = named(1, True, "add_product_of_squares")


def total(code: Code, x: Value) -> Value:
    """The sum over the lanes."""
    while code.lanes > 1:
        half = code.lanes // 2
        code, x = code.of_lanes(half), code.part(x, 0, half) + code.part(x, half, half)
    return code.extract(x, 0)


def outer(code: Code, target: Value, x: Value, y: Value, *sizes: Value) -> None:
    """target += x y^T, of columns whose entries are rows of ``step`` bytes; the entries of the target likewise."""
    rows, columns, vectors, step = sizes

    def row(i: Value, place: Value) -> None:
        factor, own = code.load(x + i * step + place), target + i * columns * step + place

        def entry(j: Value) -> None:
            at = own + j * step
            code.store(at, code.load(at) + factor * code.load(y + j * step + place))

        each(code, 0, columns, entry)

    each(code, 0, vectors, lambda v: each(code, 0, rows, lambda i: row(i, v * LINE)))


add_outer_to = library.add("outer", outer)


def rest_of(code: Code, x: Value, y: Value) -> Value:
    """x - y, or 0 where that is rounding alone."""
    found = x - y
    nothing = code.size(found) <= (code.size(x) + code.size(y)) * (ROUNDING * code.eps)
    return code.where(nothing, code.zero(), found)


def take_off(
    code: Code, target: Value, step: Value, numbers: Value, source: Value, rows: Value, vectors: Value
) -> None:
    """A multiple of one row off each of some rows, or 0 where what is left is rounding alone; multiples in memory."""

    def rest(row: Value, place: Value, factor: Value, own: Value) -> None:
        code.store(row + place, rest_of(code, code.load(row + place), factor * own))

    def column(place: Value) -> None:
        own = code.load(source + place)
        each(code, 0, rows, lambda i: rest(target + i * step, place, code.spread(numbers + i * code.size_of_real), own))

    each(code, 0, vectors, lambda v: column(v * LINE))


take_off_each = library.add("take_off", take_off)


class Rotation(NamedTuple):
    """The numbers of one, of a column of a root with a part: where they lie."""

    entry: int  # of the part
    keep: int  # the share of the old variance in the new one
    take: int  # what the part adds to the column


ROTATION = Rotation(*range(len(Rotation._fields)))


def rotate(
    code: Code, column: Value, parts: Value, step: Value, rotations: Value, count: Value, *vectors: Value
) -> None:
    """A column with one part after another: keep column + take part, and of the part what is left: part - entry column.

    Of rows from vector ``first`` up to ``last``; before ``cut`` it is 0 where what is left is rounding alone.
    """
    first, cut, last = vectors
    size = code.size_of_real

    def piece(cutting: bool, at: Value, width: int) -> None:
        """Some vectors, from a place in a row on."""
        places = [at + v * LINE for v in range(width)]

        def turn(i: Value, state: Any) -> Any:
            own, numbers = parts + i * step, rotations + i * (len(ROTATION) * size)
            entry, keep, take = (code.spread(numbers + place * size) for place in ROTATION)
            turned = []
            for place, old in zip(places, state, strict=True):
                x, y = code.load(own + place), entry * old
                code.store(own + place, rest_of(code, x, y) if cutting else x - y)
                turned.append(keep * old + take * x)
            return tuple(turned)

        begun = tuple(code.load(column + place) for place in places)
        for place, value in zip(places, code.fori(0, count, turn, begun), strict=True):
            code.store(column + place, value)

    def pieces(cutting: bool, begin: Value, end: Value) -> None:
        _, wide = block()
        whole = (end - begin) / wide
        each(code, 0, whole, lambda v: piece(cutting, (begin + v * wide) * LINE, wide))
        begin = begin + whole * wide
        for width in range(1, wide):
            once(code, end - begin == width, functools.partial(piece, cutting, begin * LINE, width))

    pieces(True, first, cut)
    pieces(False, cut, last)


rotate_each = library.add("rotate", rotate)


def dot(squares: bool, code: Code, x: Value, y: Value, vectors: Value, target: Value) -> None:
    """The number sum x y of two rows; with ``squares`` sum x x y."""

    def term(v: Value, state: Any) -> Any:
        first, second = code.load(x + v * LINE), code.load(y + v * LINE)
        return (state[0] + (first * second * first if squares else first * second),)

    code.store_as(target, total(code, code.fori(0, vectors, term, (code.zero(),))[0]))


dot_to = library.add("dot", functools.partial(dot, False))
dot_of_squares_to = library.add("dot_of_squares", functools.partial(dot, True))


# ------------------------------------------------------------------------------------------------------- single rows


def add_scaled_row(code: Code, target: Value, source: Value, number: Value, vectors: Value) -> None:
    """target += number * source, the number from memory."""
    factor = code.spread(number)
    each(
        code,
        0,
        vectors,
        lambda v: code.store(target + v * LINE, code.load(target + v * LINE) + factor * code.load(source + v * LINE)),
    )


def scale_row(code: Code, target: Value, source: Value, number: Value, vectors: Value) -> None:
    factor = code.spread(number)
    each(code, 0, vectors, lambda v: code.store(target + v * LINE, factor * code.load(source + v * LINE)))


def turn_rows(code: Code, column: Value, row: Value, numbers: Value, vectors: Value) -> None:
    """column - y row and row + x column, with x and y side by side in memory."""
    x, y = code.spread(numbers), code.spread(numbers + code.size_of_real)

    def both(v: Value) -> None:
        old, other = code.load(column + v * LINE), code.load(row + v * LINE)
        code.store(column + v * LINE, old - y * other)
        code.store(row + v * LINE, other + x * old)

    each(code, 0, vectors, both)


mix = library.add("mix", turn_rows)
add_scaled, scale = library.add("add_scaled", add_scaled_row), library.add("scale", scale_row)


def fill_with_zeros(code: Code, target: Value, lines: Value) -> None:
    each(code, 0, lines, lambda v: code.store(target + v * LINE, code.zero()))


clear = library.add("clear", fill_with_zeros)


# ------------------------------------------------------------------------------------------------------- copies


def copy(
    outwards: bool, code: Code, target: Value, target_step: Value, source: Value, step: Value, rows: Value, count: Value
) -> None:
    """So many numbers of each row; ``outwards``: to the caller's memory, of which no more is written."""
    whole = count / code.lanes
    left = count - whole * code.lanes
    rest, mask = whole * LINE, code.mask(code.power(left) - 1)

    def row(i: Value) -> None:
        to, place = target + i * target_step, source + i * step
        each(code, 0, whole, lambda v: code.store(to + v * LINE, code.load(place + v * LINE)))
        if outwards:
            once(code, left > 0, lambda: code.store_some(to + rest, code.load(place + rest), mask))
        else:
            once(code, left > 0, lambda: code.store(to + rest, code.load_some(place + rest, mask)))

    each(code, 0, rows, row)


pack, unpack = (library.add(name, functools.partial(copy, name == "unpack")) for name in ("pack", "unpack"))


def turn(code: Code, target: Value, target_step: Value, source: Value, step: Value, rows: Value, count: Value) -> None:
    """The transpose of so many rows of as many numbers as ``count``."""
    size = code.size_of_real

    def number(i: Value, j: Value) -> None:
        code.store_as(target + j * target_step + i * size, code.load_as(code.real, source + i * step + j * size))

    each(code, 0, rows, lambda i: each(code, 0, count, lambda j: number(i, j)))


def reflect(code: Code, matrix: Value, step: Value, size: Value) -> None:
    """What is above the diagonal also below it, in square blocks; rows that fill the last block are there."""
    lanes = code.lanes
    blocks = (size + (lanes - 1)) / lanes

    def rows_of(i: Value, j: Value) -> list[Value]:
        """Where the rows of a block begin."""
        return [matrix + (i * lanes + r) * step + j * LINE for r in range(lanes)]

    def block_row(i: Value) -> None:
        own = rows_of(i, i)
        rows = [code.load(place) for place in own]
        for r, (place, turned) in enumerate(zip(own, transpose_blocks(code, rows), strict=True)):
            code.store(place, code.where(code.mask(code.integer((1 << r) - 1)), turned, rows[r]))

        def across(j: Value) -> None:
            turned = transpose_blocks(code, [code.load(place) for place in rows_of(i, j)])
            for place, row in zip(rows_of(j, i), turned, strict=True):
                code.store(place, row)

        each(code, i + 1, blocks, across)

    each(code, 0, blocks, block_row)


transpose, mirror = library.add("transpose", turn), library.add("mirror", reflect)
