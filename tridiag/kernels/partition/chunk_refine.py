"""The residuals of chunks of a long system, and corrections of its solution."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.partition.chunk_pivoted import (
    FEW_FIELDS,
    FIELDS,
    INVERSE,
    ITERATE,
    LOWER,
    LOWER2,
    RIGHT,
    UPPER,
    UPPER2,
    Records,
    pivot_column,
)
from tridiag.kernels.partition.chunks import CHUNKS, Bands, Scattered, choose, read, write
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


def rest(code: Code, a: Any, b: Any, c: Any, d: Any, before: Any, here: Any, after: Any) -> tuple[Any, Value, Value]:
    """The residual of a row, its size, and what it is to be compared with."""
    products = a * before, b * here, c * after
    r = d - (products[0] + products[1] + products[2])
    scale = code.size(d) + 4 * code.tiny / code.eps
    for x in products:
        scale = scale + code.size(x)
    return r, code.size(r), scale


def check_rows(fields: int, code: Code, plan: At, block: Value, base: Value, before: Value, target: Value) -> None:
    """For every line of rows of a block the lanes in which one has a componentwise residual above the bar, as bytes."""
    bands, iterate = Bands(code, plan, block), Records(code, base, fields).field(ITERATE)
    pieces = bands.in_pieces()

    def some_rows(i: Value, state: Any) -> Any:
        before, here, good = state
        for k, a, b, c, d in pieces.rows(i):
            after = iterate[i + k + 1]
            _, size, scale = rest(code, a, b, c, d, before, here, after)
            good = good & (size <= scale * (el.REFINE_ABOVE * code.eps))
            before, here = here, after
        return before, here, good

    def line(i: Value, state: Any) -> Any:
        state = *state, code.all_lanes()
        if pieces.height == bands.height:
            before, here, good = some_rows(i, state)
        else:
            before, here, good = code.fori(i, i + bands.height, some_rows, state, step=pieces.height)
        code.store_bytes(target + i * 8, ~good)
        return before, here

    start = code.load(before), iterate[code.integer(0)]
    code.fori(0, plan.height, line, start, step=bands.height)


def table_of(code: Code, plan: At, table: Value) -> Bands:
    return Scattered(code, plan, table).in_pieces()


def begin_correction(code: Code, plan: At, table: Value, rows: Value, base: Value, ends_at: Value) -> None:
    """Eliminate rows anywhere, for corrections, and read x. ``ends``: x_before, x_after; the two rows that remain."""
    bands, records, ends = table_of(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    fields, none = [records.field(k) for k in (UPPER, UPPER2, INVERSE, LOWER, LOWER2)], code.zero()
    iterate = records.field(ITERATE)

    def line(some: Scattered, lane: int, i: Value, state: Any) -> Any:
        code, (one, two) = some.code, state
        fresh, none = code.everywhere(i == 0), code.zero()
        for k, x in enumerate(some.pieces(some.x, i * some.size, some.height)):
            iterate.of_lanes(code, lane).store(i + k, x)
        for k, a, b, c, _ in some.rows(i):
            before = one
            one, two, row, (inverse, lower, lower2, swap, other) = pivot_column(code, one, two, (a, b, c))
            for field, x in zip(fields, (*row, inverse, lower, lower2), strict=True):
                field.of_lanes(code, lane).store(i + k, x)
            code.store_pair(records.swaps(i + k, lane), swap, other)
            if k < 2:
                new = (c, none) if k == 0 else (b, c)
                one, two = choose(code, fresh, new if k == 0 else before, one), choose(code, fresh, new, two)
        return one, two

    one, two = bands.over(code.integer(0), rows, line, ((none, none), (none, none)))
    write(code, ends, (*one, *two), 2)
    iterate.store(rows, ends[code.integer(1)])
    for field in fields[:2]:
        for i in (code.integer(1), rows):
            field.store(i, none)


def residual(code: Code, plan: At, table: Value, rows: Value, base: Value, ends_at: Value) -> Value:
    """The lanes in which a row has a componentwise residual above the bar; what is more than rounding is eliminated.

    ``ends``: x_before, x_after; the two rows that remain; from row 6 on the corrections known of x_before, x_first,
    x_last, x_after, and then, written here, the residuals of the two rows that remain.
    """
    bands, records, ends = table_of(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    fields = [records.field(k) for k in (RIGHT, INVERSE, LOWER, LOWER2, ITERATE)]
    top, bottom = read(code, ends, 2, 7)

    def line(some: Scattered, lane: int, i: Value, state: Any) -> Any:
        code, (before, here, one, two, good) = some.code, state
        right, inverse, lower, lower2, iterate = (field.of_lanes(code, lane) for field in fields)
        fresh = code.everywhere(i == 0)
        for k, a, b, c, d in some.rows(i):
            after = iterate[i + k + 1]
            r, size, scale = rest(code, a, b, c, d, before, here, after)
            good = good & (size <= scale * (el.REFINE_ABOVE * code.eps))
            r = code.where(size <= scale * (el.LEAVE_BELOW * code.eps), code.zero(), r)
            swap, other = code.load_pair(records.swaps(i + k, lane))
            (pivot,), (second,) = el.exchange(code, swap, (one,), (two,))
            (pivot,), (new,) = el.exchange(code, other, (pivot,), (r,))
            q = pivot * inverse[i + k]
            right.store(i + k, q)
            second, new = second - lower[i + k] * q, new - lower2[i + k] * q
            if k < 2:
                above, top = read(code, ends.of_lanes(code, lane), 2, 6)
                r = r - a * above - b * top if k == 0 else r - a * top
                second, new = code.where(fresh, r if k == 0 else one, second), code.where(fresh, r, new)
            one, two, before, here = second, new, here, after
        return before, here, one, two, good

    right, *_, iterate = fields
    start = ends[code.integer(0)], iterate[code.integer(0)], code.zero(), code.zero(), code.all_lanes()
    *_, one, two, good = bands.over(code.integer(0), rows, line, start)
    write(code, ends, (one, two), 10)
    right.store(code.integer(1), top)
    right.store(rows, bottom)
    return code.bits(~good)


def correct(code: Code, plan: At, *words: Value) -> None:
    """x + correction, last row first, to memory; then no correction of the ends is left.

    ``held``: nothing changes x_before, x_first, x_last and x_after, which rows elsewhere read. In memory only what is
    between them is right then.
    """
    table, rows, base, ends_at, step, held = words
    bands, records, ends = Scattered(code, plan, table), Records(code, base, FIELDS), Rows(code, ends_at, code.row)
    substitute, iterate, number = records.substitution(), records.field(ITERATE), code.repeat(step, code.lanes)
    first, last = code.integer(0), rows - 1
    outermost, stays = [(i, iterate[i]) for i in (first, last)], code.everywhere(held != 0)

    def line(i: Value, state: Any) -> Any:
        after, behind = state

        def row(k: int) -> Any:
            nonlocal after, behind
            after, behind = substitute(i + k, after, behind), after
            x = el.correct(code, iterate[i + k], after, number)
            iterate.store(i + k, x)
            return x

        bands.store(i, row)
        return after, behind

    above, below = ends[code.integer(6)], ends[code.integer(9)]
    code.fori(rows - bands.height, -1, line, (below, code.zero()), step=-bands.height)
    for i, x in outermost:
        iterate.store(i, code.where(stays, x, iterate[i]))
    before, after = ends[code.integer(0)], iterate[rows]
    before = code.where(stays, before, el.correct(code, before, above, number))
    after = code.where(stays, after, el.correct(code, after, below, number))
    write(code, ends, (before, after))
    iterate.store(rows, after)
    write(code, ends, [code.zero()] * 4, 6)


CHECK_ROWS = CHUNKS.add("check_rows", functools.partial(check_rows, FEW_FIELDS))
CHECK_CORRECTED = CHUNKS.add("check_corrected", functools.partial(check_rows, FIELDS))
BEGIN_CORRECTION = CHUNKS.add("begin_correction", begin_correction)
RESIDUAL, CORRECT = CHUNKS.add("residual", residual), CHUNKS.add("correct", correct)
