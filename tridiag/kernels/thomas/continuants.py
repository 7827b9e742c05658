"""Determinants without a division: of the leading blocks D[i] = b[i] D[i-1] - a[i] c[i-1] D[i-2], with exponents apart.

Each is the determinant of a matrix whose entries differ from the given ones in their last bits, without any exchange. A
row takes a product and a difference, where a pivot waits for a quotient. Left to elimination are matrices that may be
singular, where half of the digits of some D[i] cancel, and those that come near the ends of the range: here no product
that underflows changes a digit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from tridiag.kernels.access.end_to_end import rows_from
from tridiag.kernels.access.layouts import views_of
from tridiag.kernels.access.operands import bytes_of_real, lanes_of, parts_of
from tridiag.kernels.access.rows import SWEEPS
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, X_, Systems
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import by_number
from tridiag.kernels.simd.memory import c_function, word
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.registers import by_register, lanes_of_register
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, Code
from tridiag.kernels.thomas.bands import band_of
from tridiag.kernels.thomas.both_ends import band_words
from tridiag.kernels.thomas.pivot_products import (
    EXPONENTS,
    PRODUCT,
    of_one_lane,
    power_of,
    sign_and_logarithm,
)
from tridiag.kernels.thomas.rows_from_ends import Band, Group

# by the bytes of a real: rows between two scalings; powers of two, up or down, in which all D[i] then are, and up to
# which products of couplings are. The smallest normal number times the square of the largest is below eps of the least.
ROWS, RANGE = {4: 4, 8: 8}, {4: 32, 8: 320}
DOUBTFUL = 2.0  # in place of a sign
BEFORE, ABOVE = 0, 1  # rows of lanes in memory: D of the row before the last, c of the last; D of the last is PRODUCT
JOB = RecordAt(Systems)


class Minor(NamedTuple):
    """D of the last row and of the one before, times 2**-exponent; c of the last row; the lanes that are certain."""

    last: Value
    before: Value
    above: Value
    exponent: Value
    fine: Value

    @staticmethod
    def start(code: Code) -> Minor:
        zero = Value(code, code.constant(ir.VectorType(I64, code.lanes), 0))
        return Minor(code.one(), code.zero(), code.zero(), zero, code.all_lanes())

    def next(self, code: Code, a: Value, b: Value, c: Value) -> Minor:
        most, coupling = 2.0 ** RANGE[code.size_of_real], code.product(a, self.above)
        less = code.product(coupling, self.before)
        found = b * self.last - less
        size, lost = code.magnitude(found), code.magnitude(less) * math.sqrt(code.eps)
        fine = self.fine & (size > lost) & (size > 1 / most) & (size < most)
        return Minor(found, self.last, c, self.exponent, fine & (code.magnitude(coupling) < most))

    def scaled(self, code: Code) -> Minor:
        """With the last D between 1 and 2."""
        power, factor = power_of(code, self.last)
        last, before = self.last * factor, self.before * factor
        fine = self.fine & (code.magnitude(before) < 2.0 ** RANGE[code.size_of_real])
        return Minor(last, before, self.above, self.exponent + in_words(code, power), fine)


def in_words(code: Code, power: Value) -> Value:
    """Exponents as int64."""
    kind = ir.VectorType(I64, code.lanes)
    return power if code.size_of_real == 8 else Value(code, code.builder.sext(power.llvm, kind))


def rows_on(code: Code, state: Minor, first: Value, last: Value, entries: Any) -> Minor:
    """On over rows first <= i < last, whose ``entries(i)`` are a, b, c."""
    height = ROWS[code.size_of_real]
    even = first + (last - first) / height * height

    def some(i: Value, state: Minor) -> Minor:
        for k in range(height):
            state = state.next(code, *entries(i + k))
        return state.scaled(code)

    def one(i: Value, state: Minor) -> Minor:
        return state.next(code, *entries(i)).scaled(code)

    return code.fori(even, last, one, code.fori(first, even, some, state, step=height))


# ------------------------------------------------------------------------------------------------ a group


def places_of(code: Code, memory: Value) -> tuple[Value, Value]:
    """Where the exponents lie, and the lanes that are certain."""
    exponents = memory + EXPONENTS * code.row
    return exponents, exponents + 8 * code.lanes


def begin(code: Code, memory: Value) -> None:
    leave(code, memory, Minor.start(code))


def leave(code: Code, memory: Value, state: Minor) -> None:
    for row, x in ((BEFORE, state.before), (ABOVE, state.above), (PRODUCT, state.last)):
        code.store(memory + row * code.row, x)
    exponents, fine = places_of(code, memory)
    code.store_as(exponents, state.exponent)
    code.store_as(fine, code.bits(state.fine))


def go_on(code: Code, *words: Value) -> Value | None:
    """Rows of a view of three bands; the lanes that are certain."""
    *layout, memory, count = words
    if code.parts != 1:
        return None  # of complex numbers it is never called
    views, (exponents, fine) = views_of(code, layout, 3), places_of(code, memory)
    before, above, last = (code.load(memory + row * code.row) for row in (BEFORE, ABOVE, PRODUCT))
    wide = code.load_as(ir.VectorType(I64, code.lanes), exponents)
    state = Minor(last, before, above, wide, code.mask(code.word(fine)))

    def entries(i: Value) -> list[Any]:
        views.ask(i)
        return [band[i] for band in views.bands]

    state = rows_on(code, state, code.integer(0), count, entries)
    leave(code, memory, state)
    return code.bits(state.fine)


def close(code: Code, memory: Value) -> None:
    """Signs in place of D, and logarithms in place of what was before."""
    if code.parts != 1:
        return
    wide = code.load_as(ir.VectorType(I64, code.lanes), places_of(code, memory)[0])
    sign, total = sign_and_logarithm(code, code.load(memory + PRODUCT * code.row), wide)
    code.store(memory, total)
    code.store(memory + PRODUCT * code.row, sign)


BEGIN_MINORS, GO_ON = SWEEPS.add("begin_minors", begin), SWEEPS.add("go_on_with_minors", go_on)
CLOSE_MINORS = SWEEPS.add("close_minors", close)


# ------------------------------------------------------------------------------------------------ one by one


def one_by_one(code: Code, *words: Value) -> Value | None:
    """Signs and logarithms of some neighbours where they are certain; 1 where all are.

    ``words``: three bands, how many rows and systems, where the signs and the logarithms are to be.
    """
    *bands, n, systems, signs, logarithms = words
    if code.parts != 1:
        return None
    three = [Band(*bands[k : k + 4]) for k in range(0, len(bands), 4)]

    def system(g: Value, state: Any) -> Any:
        group = Group(code, three, g, code.all_lanes())
        found = minor_of(code, group, n)
        fine = code.bits(found.fine)

        def tell(_: Value, state: Any) -> Any:
            sign, total = sign_and_logarithm(code, found.last, found.exponent)
            for base, x in ((signs, sign), (logarithms, total)):
                code.store_as(base + g * code.size_of_real, x)
            return state

        code.fori(0, fine, tell)
        return (state[0] & fine,)

    (whole,) = code.fori(0, systems, system, (code.integer(1),))
    return whole


def minor_of(code: Code, group: Group, n: Value) -> Minor:
    """That of all rows; the first has no a, and no c of the last is asked for."""
    a, b, c = group.bands

    def entries(i: Value) -> tuple[Any, ...]:
        return group.entry(a, i), group.entry(b, i), group.entry(c, i)

    zero, last = code.integer(0), n - 1
    inner = code.pick(n == 1, code.integer(0), code.integer(1))
    state = Minor.start(code)

    def first(i: Value, state: Minor) -> Minor:
        return state.next(code, code.zero(), group.entry(b, i), group.entry(c, i)).scaled(code)

    def end(i: Value, state: Minor) -> Minor:
        coupling = code.where(code.everywhere(n == 1), code.zero(), group.coupling(a, i, n == 1))
        return state.next(code, coupling, group.entry(b, i), code.zero()).scaled(code)

    state = code.fori(zero, inner, first, state)
    return code.fori(last, n, end, rows_on(code, state, inner, last, entries))


ONE_BY_ONE = SWEEPS.add("minors_one_by_one", of_one_lane(one_by_one))


class EndToEnd(NamedTuple):
    """Matrices of n rows, which lie end to end, sorted in registers."""

    n: int

    def write(self, code: Code, *words: Value) -> None:
        """``words``: where a, b, c, signs and logarithms begin, how many matrices, whole vectors, and where to tell
        whether all are certain; of one that is not the sign is DOUBTFUL.
        """
        if code.parts != 1:
            return
        a, b, c, signs, logarithms, count, whole = words
        height = ROWS[code.size_of_real]

        def group(code: Code, lane: int, begin: Value, state: Any) -> Any:
            first = begin + lane
            at, to = first * (self.n * code.size_of_real), first * code.size_of_real
            rows = list(zip(*(rows_from(code, x + at, self.n) for x in (a, b, c)), strict=True))
            found = Minor.start(code)
            for i, row in enumerate(rows):
                found = found.next(code, *((code.zero(), *row[1:]) if i == 0 else row))
                if i % height == height - 1 or i >= self.n // height * height:
                    found = found.scaled(code)
            sign, total = sign_and_logarithm(code, found.last, found.exponent)
            code.store_as(signs + to, code.where(found.fine, sign, code.splat(DOUBTFUL)))
            code.store_as(logarithms + to, total)
            return (code.where(found.fine, state[0], code.zero()),)

        two = 2 * lanes_of_register(code)  # so that one does not wait for itself
        (fine,) = by_register(code, 0, count, group, (code.one(),), step=code.lanes, least=two)
        every = code.bits(fine != 0) == 2**code.lanes - 1
        code.store_as(whole, code.pick(every, code.integer(1), code.integer(0)))


NUMBERS = range(J.FEWEST_ROWS, J.MOST_ROWS + 1)
SHORT = by_number([SWEEPS.add(f"minors_of_{n}", EndToEnd(n).write) for n in NUMBERS], J.FEWEST_ROWS)


@compiled
def tell_short(zero, job, worker, first, last):
    """Of matrices first <= k < last whole vectors, if they lie end to end: how many, and whether all are certain."""
    n, side, lanes = job.rows, bytes_of_real(zero, ()), lanes_of(zero, ())
    if n < J.FEWEST_ROWS or n > J.MOST_ROWS or parts_of(zero, ()) != 1 or job.matrix_axes != 1 or job.lanes != lanes:
        return 0, True
    if job.flags & (J.MASKED | J.TRANSPOSE):
        return 0, True
    for operand in (A_, B_, C_):
        if job.strides[operand] != side or field(job, J.AXES + 1 + operand) != n * side:
            return 0, True
    at, to, count = first * n * side, first * side, (last - first) // lanes * lanes
    bands = job.pointers[A_] + at, job.pointers[B_] + at, job.pointers[C_] + at
    words = (*bands, job.pointers[X_] + to, job.logarithm + to, count, worker.good)
    SHORT(zero, n, words)
    return count, word(worker.good) != 0


@compiled
def tell_certain(job, zero):
    """Whether this was the job of this schedule, and all determinants are told; else those that are certain."""
    neighbours, side = job.abreast, bytes_of_real(zero, ())
    if neighbours == 0 or parts_of(zero, ()) != 1:
        return types.int64(0)
    (a, a_move), (c, c_move), whole = band_of(job, 0), band_of(job, 2), True
    for first in range(0, job.matrices, neighbours):
        bands = (
            *band_words(zero, job, a, a_move, first, 1),
            *band_words(zero, job, B_, 0, first, 1),
            *band_words(zero, job, c, c_move, first, 1),
        )
        places = job.pointers[X_] + first * side, job.logarithm + first * side
        whole = ONE_BY_ONE(zero, (*bands, job.rows, neighbours, *places)) != 0 and whole
    if whole:
        job.next = job.items
    return types.int64(whole)


CERTAIN = c_function(tell_certain, "tridiag_certain_determinants", result=types.int64, first=JOB)
