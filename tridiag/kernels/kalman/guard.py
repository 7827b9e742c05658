"""What is looked at in calls of small Kalman filters, and of steps, that were met before: covariances, what is missing.

Covariances are let through that `tridiag.problems.covariances.surely` finds symmetric and positive semidefinite, in the
same arithmetic, if they are finite; of any other `check_covariance` tells what is wrong with it, if anything is.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cfunc, types

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.kalman import Expected, Filter
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import c_function, call, load, store
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.problems.covariances import least, rounding, tolerance

COVARIANCES, KINDS = K.COVARIANCES, len(K.COVARIANCES)
expected_at = at(Expected)


def vectors_with_nan(code: Code, y: Value, vectors: Value) -> Value:
    """Whether any of so many whole vectors has one; not 0: one has."""
    code.depth = 1  # a loop of microseconds that does not end early

    def look(k: Value, found: Value) -> Value:
        x = code.load_as(code.vector, y + k * LINE)
        return found | code.bits(x != x)

    return code.fori(0, vectors, look, code.integer(0))


VECTORS_WITH_NAN = emitted(vectors_with_nan)


@compiled
def any_missing(zero, y, count):
    whole = count // lanes_of(zero, ())
    found = VECTORS_WITH_NAN(zero, (y, whole))
    for k in range(whole * lanes_of(zero, ()), count):
        value = load(y + k * bytes_of_real(zero, ()), zero)
        found += value != value
    return found != 0


@compiled
def number(matrix, i, j):
    """An entry of a matrix of float64 in scratch memory."""
    return load(matrix + 8 * (i * K.LARGEST + j), types.float64(0))


@compiled
def copy(zero, source, k, matrix):
    """A covariance to scratch memory; its largest variance, or a negative number where one is not at least 0."""
    largest = 0.0
    for i in range(k):
        for j in range(k):
            value = types.float64(load(source + (i * k + j) * bytes_of_real(zero, ()), zero))
            store(matrix + 8 * (i * K.LARGEST + j), value)
        variance = number(matrix, i, i)
        if not variance >= 0:
            return -1.0
        largest = max(largest, variance)
    return largest


@compiled
def is_symmetric(matrix, k, apart):
    for i in range(k):
        for j in range(i):
            if not abs(number(matrix, i, j) - number(matrix, j, i)) <= apart:
                return False
    return True


def subtract(code: Code, *words: Value) -> None:
    """A multiple of a row from another, of which vectors from ``begin`` to ``end``; the factor lies in memory."""
    row, other, factor, begin, end = words
    code.depth, code.fused = 1, False
    factors = code.spread(factor)

    def vector(k: Value, state: tuple[()]) -> tuple[()]:
        at = row + k * LINE
        code.store(at, code.load(at) - factors * code.load(other + k * LINE))
        return state

    code.fori(begin, end, vector)


SUBTRACT, DOUBLES = emitted(subtract), LINE // 8


@compiled
def has_positive_pivots(matrix, place, k, more):
    """Of the matrix with ``more`` on its diagonal; it is overwritten, with anything below the diagonal.

    ``place``: of a factor.
    """
    size, vectors = 8 * K.LARGEST, (k + DOUBLES - 1) // DOUBLES
    for j in range(k):
        pivot = number(matrix, j, j) + more
        if not pivot > 0:
            return False
        for i in range(j + 1, k):
            factor = number(matrix, j, i) / pivot
            if factor != 0:
                store(place, factor)
                rows = matrix + i * size, matrix + j * size
                SUBTRACT(types.float64(0), (*rows, place, i // DOUBLES, vectors))
    return True


def sound_for(dtype: np.dtype):
    """A function that tells whether a covariance is surely one, up to rounding in a dtype."""
    apart, relative, absolute = tolerance(dtype), rounding(dtype), least(dtype)

    @compiled
    def sound(zero, source, k, expected):
        matrix = address_of(expected.scratch)
        largest = copy(zero, source, k, matrix)
        if not (0 <= largest < math.inf and is_symmetric(matrix, k, largest * apart)):
            return False
        return has_positive_pivots(matrix, expected.addresses.factor, k, largest * relative + absolute)

    return sound


def all_sound_for(dtype: np.dtype):
    """A function that tells whether all covariances that are read are surely such, up to rounding in a dtype."""
    sound = sound_for(dtype)

    @compiled
    def all_sound(zero, job, expected):
        for which in range(KINDS):
            k, unread = expected.rows[which], expected.unread[which]
            place, size = job.pointers[COVARIANCES[which]], k * k * bytes_of_real(zero, ())
            for index in range(expected.matrices[which] if expected.checked[which] else 0):
                read = unread == 0 or (index + 1) % unread != 0
                if read and not sound(zero, place + index * size, k, expected):
                    return False
        return True

    return all_sound


def build(dtype: str):
    """The C function int64 guard(job, expected): 0 where the values are as expected, and covariances surely sound."""
    zero, all_sound = np.zeros((), dtype)[()], all_sound_for(np.dtype(dtype))

    @compiled
    def look(job, facts, zero):
        expected = expected_at(facts)
        if any_missing(zero, job.pointers[K.Y], expected.observations) != (expected.missing != 0):
            return 1
        return 0 if all_sound(zero, job, expected) else 1

    return guard_of("filter", look, zero)


def build_known(dtype: str):
    """The C function int64 guard(job, expected): 0 where covariances are surely sound, and no state is unknown."""
    zero, all_sound = np.zeros((), dtype)[()], all_sound_for(np.dtype(dtype))
    which = COVARIANCES.index(K.P0)

    @compiled
    def look(job, facts, zero):
        expected, size = expected_at(facts), bytes_of_real(zero, ())
        if not all_sound(zero, job, expected):
            return 1
        k, found = expected.rows[which], 0
        for index in range(0 if expected.checked[which] else expected.matrices[which]):
            for i in range(k):
                found += load(job.pointers[K.P0] + (index * k * k + i * (k + 1)) * size, zero) == math.inf
        return found

    return guard_of("known", look, zero)


def guard_of(name: str, look, zero):
    """The C function of a body."""
    looking = c_function(look, f"tridiag_{name}_guard", 2, types.int64, first=RecordAt(Filter))

    def enter(job, facts):
        return call(looking(zero), (job, facts))

    return cfunc(types.int64(types.int64, types.int64), error_model="numpy")(enter)
