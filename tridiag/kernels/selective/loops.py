"""The inner loops of selective scans: the states of a sequence in the lanes of a vector, two such vectors at a time.

What is read from the states of a step is left as a row of lanes; the rows of as many steps as there are lanes are added
up together, to one vector of results.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.jobs.words.selective import PIECE
from tridiag.kernels.simd.explog import Lanes, as_integers, as_reals, mantissa, moved
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

    def load(self, t: Any, used: Value, first: Any = 0) -> Value:
        """Some lanes from a state on, where no two are the same."""
        return self.code.load_some(self.base + t * self.stride + first * self.code.size_of_real, used)

    def part(self, t: Any, first: Value, used: Value) -> Value:
        """The same where all may be."""
        single, at = self.code.spread(self.base + t * self.stride), self.load(t, used & ~self.same, first)
        return self.code.where(self.same, single, at)


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


def advance(vectors: int, sequences: int, code: Code, *words: Any) -> None:
    """Steps begin <= t < begin + count of some sequences from one on; the states of each fill so many vectors.

    Before the first ``alone`` steps, one or none, there are no states. No operand is the same for all states, and steps
    have no sizes.
    """
    job, room, lane, first_step, count, alone = words
    places = [
        [Place(code, job, room, lane + k, code.integer(j * code.lanes)) for j in range(vectors)]
        for k in range(sequences)
    ]
    each = [one_step(found, first_step, room.rows + k * (PIECE * code.row)) for k, found in enumerate(places)]

    def step(t: Value, states: Any, first: bool) -> Any:
        return tuple([one(t, own, first) for one, own in zip(each, states, strict=True)])

    states = tuple([tuple([code.load(place.state) for place in found]) for found in places])
    states = code.fori(0, alone, lambda t, states: step(t, states, True), states)
    states = code.fori(alone, count, lambda t, states: step(t, states, False), states)
    for place, h in zip(itertools.chain(*places), itertools.chain(*states), strict=True):
        code.store(place.state, h)


def one_step(places: list[Place], first_step: Value, rows: Value) -> Any:
    """A function: the states after a step from those before it; what is read from them goes to a row."""
    code = places[0].code
    operands = [[place.operand(k, first_step) for k in (S.A, S.B, S.READ)] for place in places]
    x, x_step = places[0].row(S.X, first_step)

    def step(t: Value, states: Any, first: bool) -> Any:
        terms, found, total = code.spread(x + t * x_step), [], None
        for place, h, (a, b, c) in zip(places, states, operands, strict=True):
            used = place.used
            new = terms * b.load(t, used)
            new = new if first else fused(code, a.load(t, used), h, new)
            read = code.where(used, c.load(t, used) * new, code.zero())
            total = read if total is None else total + read
            found.append(new)
        code.store(rows + t * code.row, total)
        return tuple(found)

    return step


def advance_any(sizes: bool, single: bool, code: Code, *words: Any) -> None:
    """The same of one sequence with any number of states, which wait in memory from step to step.

    ``sizes``: whether steps have sizes. ``single``: whether some operand may be the same for all states.
    """
    job, room, lane, first_step, count, alone = words
    place, lanes = Place(code, job, room, lane, code.integer(0)), Lanes(code)
    a, b, c = (place.operand(k, first_step) for k in (S.A, S.B, S.READ))
    (x, x_step), (size, size_step) = (place.row(k, first_step) for k in (S.X, S.STEP))

    def step(t: Value, none: Any, first: bool) -> Any:
        terms, delta = code.spread(x + t * x_step), code.spread(size + t * size_step) if sizes else None
        terms = terms if delta is None else terms * delta

        def vector(j: Value, total: Value) -> Value:
            used, at = first_lanes(code, job.length - j), place.state + j * code.size_of_real

            def read(operand: Operand) -> Value:
                return operand.part(t, j, used) if single else operand.load(t, used, j)

            h = terms * read(b)
            if not first:
                h = fused(code, read(a) if delta is None else exponential(lanes, delta * read(a)), code.load(at), h)
            code.store(at, h)
            return total + code.where(used, read(c) * h, code.zero())

        code.store(room.rows + t * code.row, code.fori(0, job.length, vector, code.zero(), step=code.lanes))
        return none

    code.fori(0, alone, lambda t, none: step(t, none, True))
    code.fori(alone, count, lambda t, none: step(t, none, False))


def add_up(code: Code, *words: Any) -> None:
    """The sums over lanes of the rows of some steps go to the result of a sequence."""
    job, room, lane, first_step, count, rows = words
    place, zero, width = Place(code, job, room, lane, code.integer(0)), code.integer(0), code.size_of_real
    y, stride = place.row(S.Y, first_step)
    side_by_side, most = stride == width, code.integer(code.lanes)

    def sums(t: Value) -> Value:
        return sums_of(code, [code.load(rows + (t + k) * code.row) for k in range(code.lanes)])

    def vector(t: Value, none: Any) -> Any:
        code.store_some(y + t * width, sums(t), first_lanes(code, count - t))
        return none

    def apart(t: Value, none: Any) -> Any:
        code.store(room.sums, sums(t))

        def one(k: Value, none: Any) -> Any:
            code.store_as(y + (t + k) * stride, code.load_as(code.real, room.sums + k * width))
            return none

        left = count - t
        return code.fori(0, code.pick(left < most, left, most), one, none)

    code.fori(0, code.pick(side_by_side, count, zero), vector, step=code.lanes)
    code.fori(0, code.pick(side_by_side, zero, count), apart, step=code.lanes)


def sums_of(code: Code, rows: list[Value]) -> Value:
    """The sum over the lanes of each row, as one vector of as many rows."""
    width = 1
    while len(rows) > 1:
        halves: tuple[list[int], list[int]] = [], []
        for k in range(0, code.lanes, 2 * width):
            for side, order in enumerate(halves):
                own = range(k + side * width, k + (side + 1) * width)
                order += [*own, *(lane + code.lanes for lane in own)]
        rows = [
            code.shuffle(*pair, halves[0]) + code.shuffle(*pair, halves[1])
            for pair in zip(rows[::2], rows[1::2], strict=True)
        ]
        width *= 2
    return rows[0]


def exponential(lanes: Lanes, x: Value) -> Value:
    """exp(x), subnormal numbers too: times large states they count. By two powers of two, which are in range."""
    code, numbers = lanes.code, lanes.numbers
    far = (numbers.bias + numbers.digits + 3) * math.log(2)  # beyond it the result is 0, or infinite
    r, k = lanes.reduced(lanes.clamp(x, far))
    both = as_integers(code, k + (2 * numbers.bias + 2.0**numbers.digits))  # in the last bits: k + 2 bias
    half = moved(code, both, -1)
    powers = (as_reals(code, moved(code, one, numbers.digits)) for one in (half, both - half))
    return math.prod(powers, start=mantissa(code, r))


def total(code: Code, x: Value) -> Value:
    """The sum of all lanes."""
    count = code.lanes
    while count > 1:
        count //= 2
        x = code.part(x, 0, count) + code.part(x, count, count)
    return code.extract(x, 0)


BEGIN, FINISH, ADD_UP = (LOOPS.add(function.__name__, function) for function in (begin, finish, add_up))
ONE, TWO_VECTORS, TWO_SEQUENCES = (
    LOOPS.add(f"advance_{vectors}_{sequences}", functools.partial(advance, vectors, sequences))
    for vectors, sequences in ((1, 1), (2, 1), (1, 2))
)
ANY = [  # by whether steps have sizes, and whether some operand is the same for all states
    LOOPS.add(f"advance_any_{sizes:d}_{single:d}", functools.partial(advance_any, sizes, single))
    for sizes in (False, True)
    for single in (False, True)
]
