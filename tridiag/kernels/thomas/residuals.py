"""Solutions looked at while they are in cache: in which systems all residuals are as small as "auto" promises.

`tridiag.kernels.thomas.steps.Verifying` judges a row.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.moves import put_interleaved, take_interleaved
from tridiag.kernels.access.rows import ITERATE, SWEEPS, planes
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.thomas.steps import Pivoted, Verifying, small
from tridiag.kernels.thomas.sweeps import Substitution


def less_in_pairs(code: Code, rest: Value, x: Value, y: Value) -> Value:
    """rest - x y of numbers as they lie in memory, complex ones as pairs; rounded as by `less`."""
    if code.parts == 1:
        return rest - x * y
    count = code.lanes
    real, imaginary = (code.shuffle(x, x, [k // 2 * 2 + part for k in range(count)]) for part in range(2))
    turned = code.shuffle(imaginary, -imaginary, [k + (k + 1) % 2 * count for k in range(count)])
    return rest - real * y - turned * code.shuffle(y, y, [k ^ 1 for k in range(count)])


def size(code: Code, x: Value) -> Value:
    """The size of numbers as they lie in memory; of a complex one, at both of its parts."""
    x = code.magnitude(x)
    return x if code.parts == 1 else x + code.shuffle(x, x, [k ^ 1 for k in range(x.llvm.type.count)])


def verify_lines(code: Code, *words: Any) -> Value:
    """The lanes where all residuals are small. Each system is contiguous, and of more rows than a cache line holds.

    Rows are taken from memory as they lie there, a line of one lane at a time.
    """
    operands, moves, (x_at, count, used) = words[:4], words[4:8], words[8:]
    entry, height = code.parts * code.size_of_real, code.lanes // code.parts

    def lane(k: Value, state: Any) -> Any:
        tables = [operand.addresses.lanes + k * 8 for operand in (*operands, x_at)]
        a, b, c, d = (code.word(table) + move * entry for table, move in zip(tables[:4], moves, strict=True))
        x = code.word(tables[4])

        def rows(address: Value, i: Value) -> Value:
            return code.load_as(code.vector, address + i * entry)

        def shifted(rows: Value, by: int) -> Value:
            """One row further down or up, zero in the row that comes in."""
            places = [k - by * code.parts for k in range(code.lanes)]
            return code.shuffle(rows, code.real_zero(), [k if 0 <= k < code.lanes else code.lanes for k in places])

        def fine(i: Value, first: bool = False, last: bool = False) -> Value:
            here, diagonal, right = rows(x, i), rows(b, i), rows(d, i)
            below, before = (shifted(rows(a, i + 1), 1), shifted(here, 1)) if first else (rows(a, i), rows(x, i - 1))
            above, after = (shifted(rows(c, i - 1), -1), shifted(here, -1)) if last else (rows(c, i), rows(x, i + 1))
            rest, scale = right, size(code, right)
            for coefficient, value in ((diagonal, here), (above, after), (below, before)):
                rest = less_in_pairs(code, rest, coefficient, value)
                scale = scale + size(code, coefficient) * size(code, value)
            return small(code, size(code, rest), scale)

        end = count - height
        found = fine(code.integer(0), first=True) & fine(end, last=True)
        (found,) = code.fori(height, end, lambda i, state: (state[0] & fine(i),), (found,), step=height)
        whole = code.bits(found) == 2**code.lanes - 1
        return (state[0] | code.pick(whole, code.power(k), code.integer(0)),)

    (bits,) = code.fori(0, used, lane, (code.integer(0),))
    return bits


def substitute_verified_interleaved(code: Code, *words: Any) -> Value:
    """The solution of a group, of at least two rows, whose lanes lie side by side, in place of q of its pivot rows.

    As it lies in memory. Meanwhile the bands ``ahead`` bytes further on are asked for. Returns those of the lanes
    ``sure`` where all residuals are small.
    """
    operands, moves, (group, source, step, count, sure, ahead) = words[:4], words[4:8], words[8:]
    strides, zero, last = [operand.stride for operand in operands], code.zero(), count - 1
    tables = [operand.lanes[0] + group for operand in operands]
    bases = [table + move * stride for table, move, stride in zip(tables, moves, strides, strict=True)]
    pivots = Substitution(code, Pivoted, source, step, source, source)

    def row(i: Value, state: Any, top: bool = False, bottom: bool = False) -> Any:
        state, outside = Verifying(*state), (top, False, bottom, False)
        entries = [
            zero if gone else take_interleaved(code, base + i * stride)
            for base, stride, gone in zip(bases, strides, outside, strict=True)
        ]
        for base, stride in zip(bases, strides, strict=True):
            for line in range(0, code.row, LINE):
                code.prefetch(base + i * stride + ahead + line)
        here = pivots.solution(i, (state.x1, state.x2))
        put_interleaved(code, pivots.rows[-1].base + i * step, here)
        return state.next(code, here, *entries)

    state = row(last, Verifying.below(code, code.mask(sure)), bottom=True)
    state = code.fori(last - 1, 0, row, state, step=-1)
    return code.bits(row(code.integer(0), state, top=True).close(code, zero))


def verify(code: Code, base: Value, count: Value) -> Value:
    """The same of a solution in planes."""
    a, b, c, d = planes(code, base, 4, count)
    (x,), zero = planes(code, base + count * (ITERATE * code.row), 1, count), code.zero()

    def row(k: Value, state: Any) -> Any:
        i = count - 1 - k
        return Verifying(*state).next(code, x[i], a[i], b[i], c[i], d[i])

    state = code.fori(0, count, row, Verifying.below(code, code.all_lanes()))
    return code.bits(Verifying(*state).close(code, zero))


VERIFY, VERIFY_LINES = SWEEPS.add("verify", verify), SWEEPS.add("verify_lines", verify_lines)
SUBSTITUTE_VERIFIED_INTERLEAVED = SWEEPS.add("substitute_verified_interleaved", substitute_verified_interleaved)
