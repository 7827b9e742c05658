"""Rows of lanes in pieces of a register each."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.values import Stored, Value, flatten, rebuild
from tridiag.kernels.simd.vector import Code


def lanes_of_register(code: Code) -> int:
    return bytes_of_register() // code.size_of_real


def narrow(code: Code, least: int = 1) -> list[tuple[Code, int]]:
    """Codes of the lanes of a register, or the ``least``, and the first lane of each: what a row of lanes consists of.

    Where registers are narrow there are few of them, and one after the other needs no more.
    """
    lanes = min(code.lanes, max(least, lanes_of_register(code)))
    return [(code.of_lanes(lanes), first) for first in range(0, code.lanes, lanes)]


def by_register(
    code: Code, first: Any, last: Any, body: Callable[..., Any], state: Any, step: int = 1, least: int = 1
) -> Any:
    """`Code.fori` with ``state = body(code, lane, i, state)``: a piece of the rows of lanes after the other.

    Between two pieces no more than the states of all waits in a register, or on the stack.
    """
    pieces = narrow(code, least)
    if len(pieces) == 1:
        return code.fori(first, last, lambda i, state: body(code, 0, i, state), state, step)
    given = flatten(state)
    parts = [
        rebuild(state, iter([lanes.part(x, lane, lanes.lanes) for x in given])) if given else ()
        for lanes, lane in pieces
    ]

    def all_pieces(i: Any, states: Any) -> Any:
        return tuple(body(*piece, i, state) for piece, state in zip(pieces, states, strict=True))

    found = map(flatten, code.fori(first, last, all_pieces, tuple(parts), step))
    return rebuild(state, iter([joined(code, parts) for parts in zip(*found, strict=True)]))


def in_turn(
    code: Code,
    first: Any,
    last: Any,
    body: Callable[..., Any],
    state: Any,
    waiting: Sequence[tuple[Value, int]],
    step: int = 1,
    least: int = 1,
) -> Any:
    """`by_register` for a long ``body``, which is written once: a loop over the pieces is in that over i.

    ``lane`` is a number of the machine then, and the states of all pieces are ``waiting``, each value so many bytes
    behind an address.
    """
    given, count = flatten(state), len(narrow(code, least))
    for (base, offset), x in zip(waiting, given, strict=True):
        code.store_as(base + offset, x)

    def piece(i: Value, number: Value, none: Any) -> Any:
        lanes, _ = narrow(code, least)[0]
        lane = number * lanes.lanes
        bases = {id(base): base + lane * code.size_of_real for base, _ in waiting}
        places = [(bases[id(base)], offset) for base, offset in waiting]
        kinds = [ir.VectorType(x.llvm.type.element, lanes.lanes) for x in given]
        values = [Stored(lanes, *place, kind) for place, kind in zip(places, kinds, strict=True)]
        found = flatten(body(lanes, lane, i, rebuild(state, iter(values))))
        stays = {id(x) for x in values}  # to be read before it is written over
        found = [Value(lanes, x.llvm) if id(x) in stays else x for x in found]
        for (base, offset), x in zip(places, found, strict=True):
            lanes.store_as(base + offset, x)
        return none

    def all_pieces(i: Value, none: Any) -> Any:
        return code.fori(0, count, functools.partial(piece, i), none)

    code.fori(first, last, all_pieces, (), step)
    left = [code.load_as(x.llvm.type, base + offset) for (base, offset), x in zip(waiting, given, strict=True)]
    return rebuild(state, iter(left))


class Scratch:
    """Memory for what a loop keeps in a row of lanes, one value behind the other.

    ``rolled``: whether products of matrices are loops too, which take longer and need fewer registers.
    """

    def __init__(self, code: Code, address: Value, most: int, rolled: bool) -> None:
        self.code, self.address, self.most, self.rolled = code, address, most, rolled
        self.used = 0
        self.bytes = code.lanes * code.size_of_real

    def keep(self, x: Any) -> Any:
        """The same values, stored: of arrays, and of tuples and lists of them."""
        if isinstance(x, Value):
            return x if isinstance(x, Stored) else self.put(x)
        if isinstance(x, np.ndarray):
            return self.apply(self.keep, x)
        parts = [self.keep(part) for part in x]
        return x._make(parts) if hasattr(x, "_make") else type(x)(parts)

    @staticmethod
    def apply(f: Callable[[Value], Value], x: Any) -> Any:
        made = np.empty(x.shape, object)
        for index in np.ndindex(*x.shape):
            made[index] = f(x[index])
        return made

    def put(self, x: Value) -> Stored:
        (place,) = self.room(1)
        self.code.store_as(place.base + place.offset, x)
        return place

    def room(self, count: int) -> list[Stored]:
        """The next places."""
        first, self.used = self.used, self.used + count
        assert self.used <= self.most
        return [Stored(self.code, self.address, k * self.bytes) for k in range(first, self.used)]

    def row_by_row(self, f: Callable[[Any], Any], x: Any) -> tuple[Any, ...]:
        """The arrays that ``f`` makes of x[:, i : i + 1], for all i: joined along their last axis."""
        code, count = self.code, x.shape[1]
        rows = [self.evenly(row) for row in x]
        made: list[Any] = []

        def one(i: Value, none: Any) -> Any:
            given = np.empty((len(rows), 1), object)
            given[:, 0] = [Stored(code, base + i * step, offset) for base, offset, step in rows]
            for part in f(given):
                places = np.array([self.room(count) for _ in part.ravel()], object)
                for first, value in zip(places[:, 0], part.ravel(), strict=True):
                    code.store_as(first.base + i * self.bytes + first.offset, value)
                made.append(places.reshape(*part.shape[:-1], count))
            return none

        code.fori(0, count, one, ())
        return tuple(made)

    def through(self, f: Callable[..., Any], rows: Any, states: Sequence[Any]) -> tuple[list[Any], Any]:
        """The states after ``row, state = f(row, state)`` for each row and state; what is left of rows.

        States have places of their own, in which one takes the place of another.
        """
        code, count = self.code, len(rows)
        given = [self.evenly(entries) for entries in rows.T]
        states = [self.apply(self.put, state) for state in states]
        left: list[Any] = []

        def one(i: Value, none: Any) -> Any:
            row = np.empty(len(given), object)
            row[:] = [Stored(code, base + i * step, offset) for base, offset, step in given]
            for places in states:
                row, state = f(row, places)
                row = self.keep(row)
                for place, value in zip(places, [Value(code, x.llvm) for x in state], strict=True):
                    code.store_as(place.base + place.offset, value)
            for value in row:
                places = self.room(count)
                code.store_as(places[0].base + i * self.bytes + places[0].offset, value)
                left.append(places)
            return none

        code.fori(0, count, one, ())
        return states, np.array(left, object).T

    def evenly(self, row: Any) -> tuple[Value, int, int]:
        """Where values lie that are evenly spaced: a base, the offset of the first, the bytes to the next."""
        if all(isinstance(x, Stored) and x.base is row[0].base for x in row):
            steps = {y.offset - x.offset for x, y in itertools.pairwise(row)}
            if len(steps) == 1:
                return row[0].base, row[0].offset, steps.pop()
        first, *_ = [self.put(x) for x in row]
        return first.base, first.offset, self.bytes


def joined(code: Code, rows: Any) -> Any:
    """A power of two of vectors, end to end."""
    if len(rows) == 1:
        return rows[0]
    return joined(code, [code.join(x, y) for x, y in zip(rows[::2], rows[1::2], strict=True)])
