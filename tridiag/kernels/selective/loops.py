"""The inner loops of selective scans: the states of a sequence in the lanes of a vector, a vector of them at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.simd.explog import Lanes, as_integers, as_reals, moved
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.fused import fused
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

LOOPS = Library("selective", short=True)


class Operand(NamedTuple):
    """Where some states of a sequence lie in an operand, from some step on."""

    code: Code
    base: Value
    stride: Value  # from step to step, in bytes
    same: Value  # all lanes, where it is the same for all states, else none
    inside: Value  # the lanes that are loaded each by itself

    def read(self, t: Any) -> Value:
        at = self.base + t * self.stride
        return self.code.where(self.same, self.code.spread(at), self.code.load_some(at, self.inside))


class Place(NamedTuple):
    """Some states of a sequence, from some step on."""

    code: Code
    job: At
    room: At
    lane: Value  # the sequence of those that a worker has
    first: Value  # state of it

    @property
    def used(self) -> Value:
        """The lanes that hold states."""
        return first_lanes(self.code, self.job.length - self.first)

    @property
    def state(self) -> Value:
        """Where a worker keeps them."""
        return self.room.states + (self.lane * self.room.row + self.first) * self.code.size_of_real

    def row(self, operand: int, begin: Any = 0) -> tuple[Value, Value]:
        """Where step ``begin`` of the sequence lies in an operand, and how far the next one is."""
        code = self.code
        stride = code.word(self.job + 8 * (C.TABLE + operand))
        return code.word(self.room.addresses.lanes + TABLE * operand + self.lane * 8) + stride * begin, stride

    def operand(self, operand: int, begin: Any = 0) -> Operand:
        code = self.code
        base, stride = self.row(operand, begin)
        single = (self.job.flags & (S.SAME << operand)) != 0
        same = code.everywhere(single)
        offset = code.pick(single, code.integer(0), self.first * code.size_of_real)
        return Operand(code, base + offset, stride, same, self.used & ~same)


def begin(code: Code, *words: Any) -> None:
    """The states before the first step."""
    place = Place(code, *words)
    started = code.pick((place.job.flags & S.STARTED) != 0, code.integer(1), code.integer(0))
    init = place.operand(S.INIT)
    code.store(place.state, code.fori(0, started, lambda t, _: init.read(t), code.zero()))


def finish(code: Code, *words: Any) -> None:
    """The states of the last step go to the caller."""
    place = Place(code, *words)
    target, _ = place.row(S.LAST)
    code.store_some(target + place.first * code.size_of_real, code.load(place.state), place.used)


def advance(code: Code, *words: Any) -> None:
    """Steps begin <= t < begin + count; before the first ``alone`` of them, one or none, there are no states."""
    steps(code, words, False)


def advance_discretised(code: Code, *words: Any) -> None:
    """The same where steps have sizes."""
    steps(code, words, True)


def steps(code: Code, words: Any, sizes: bool) -> None:
    *where, first_step, count, alone = words
    place = Place(code, *where)
    lanes = Lanes(code)
    a, b, c = (place.operand(k, first_step) for k in (S.A, S.B, S.READ))
    (y, y_step), (x, x_step), (size, size_step) = (place.row(k, first_step) for k in (S.Y, S.X, S.STEP))
    adds, used = place.first > 0, place.used

    def step(t: Value, h: Value, first: bool) -> Value:
        terms, delta = code.spread(x + t * x_step), code.spread(size + t * size_step) if sizes else None
        if delta is not None:
            terms = terms * delta
        if first:
            h = terms * b.read(t)
        else:
            decay = a.read(t) if delta is None else exponential(lanes, delta * a.read(t))
            h = fused(code, decay, h, terms * b.read(t))
        target = y + t * y_step
        before = code.load_as(code.real, target)
        zero = Value(code, code.constant(code.real, 0.0))
        found = total(code, code.where(used, c.read(t) * h, code.zero())) + code.pick(adds, before, zero)
        code.store_as(target, found)
        return h

    h = code.fori(0, alone, lambda t, h: step(t, h, True), code.load(place.state))
    code.store(place.state, code.fori(alone, count, lambda t, h: step(t, h, False), h))


def exponential(lanes: Lanes, x: Value) -> Value:
    """exp(x); 0 where that is below the smallest normal number."""
    numbers, (m, k) = lanes.numbers, lanes.exponential(x)
    shifted = k + (numbers.bias - 1 + 2.0**numbers.digits)  # of half of it: k = bias + 1 may be in range
    low, high = (lanes.full(x, 2.0**numbers.digits + end) for end in (0, 2 * numbers.bias + 1))
    shifted = lanes.where(shifted > low, shifted, low)
    shifted = lanes.where(shifted < high, shifted, high)
    return (m + m) * as_reals(lanes.code, moved(lanes.code, as_integers(lanes.code, shifted), numbers.digits))


def total(code: Code, x: Value) -> Value:
    """The sum of all lanes."""
    count = code.lanes
    while count > 1:
        count //= 2
        x = code.part(x, 0, count) + code.part(x, count, count)
    return code.extract(x, 0)


BEGIN, FINISH, ADVANCE, ADVANCE_DISCRETISED = (
    LOOPS.add(function.__name__, function) for function in (begin, finish, advance, advance_discretised)
)
