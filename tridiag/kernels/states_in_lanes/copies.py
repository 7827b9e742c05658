"""How matrices of vectors come from memory and back, and what else is done entry by entry."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.operands import QUAD, addresses
from tridiag.kernels.many_states.profiles import ROW
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.matrices import Matrix, library


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


def outline(code: Code, target: Value, matrix: Value, size: Value) -> Value:
    """The profile of a square matrix, an entry being 0 where it is in all lanes; returns how many entries it has."""
    everywhere = code.bits(code.all_lanes())

    def row(i: Value, state: Any) -> Any:
        def entry(j: Value, ends: Any) -> Any:
            there = code.bits(code.load(matrix + (i * size + j) * LINE) == 0.0) != everywhere
            return code.pick(there & (j < ends[0]), j, ends[0]), code.pick(there, j + 1, ends[1])

        begin, end = code.fori(0, size, entry, (size, code.integer(0)))
        code.store_as(target + i * ROW, begin)
        code.store_as(target + i * ROW + 8, end)
        return (state[0] + code.pick(begin < end, end - begin, code.integer(0)),)

    return code.fori(0, size, row, (code.integer(0),))[0]


def join_below(code: Code, target: Value, profile: Value, size: Value) -> None:
    """The profile that has in each row what another one has there and in all rows below."""

    def row(e: Value, ends: Any) -> Any:
        at = (size - e - 1) * ROW
        low, high = code.word(profile + at), code.word(profile + at + 8)
        begin, end = code.pick(low < ends[0], low, ends[0]), code.pick(high > ends[1], high, ends[1])
        code.store_as(target + at, begin)
        code.store_as(target + at + 8, end)
        return begin, end

    code.fori(0, size, row, (size, code.integer(0)))


profile_of, joined_below = library.add("profile", outline), library.add("joined_below", join_below)
mirror, transpose, pick_out = library.add("mirror", reflect), library.add("transpose", turn), library.add("copy", copy)
clear, put_ones = (library.add(name, functools.partial(fill, x)) for name, x in (("clear", 0.0), ("put_ones", 1.0)))
