"""Recurrences with the same coefficients in all steps of all sequences, contiguous in memory: a vector of steps a time.

What lanes make of 0 is found by joining neighbours, halves of two steps, then of four, up to all lanes: a half that is
behind another gets what the last steps of that one hand on to it. The vector before is joined in the same way. Short
sequences that lie end to end are read as one: factors across the beginning of a sequence are 0. Where factors grow
beyond LARGEST or are subnormal, or a value is not finite, plain loops compute all once more, step by step. That a value
is not finite is seen at the end: what is not, times any factor, makes all that follow not finite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tridiag.kernels.access.moves import first_lanes, same_in_all
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.recurrence.plain import Plain
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

LARGEST = 1024.0
SMALLEST = {4: 2.0**-126, 8: 2.0**-1022}  # what is not subnormal, by the bytes of a number
# Factors are found so many times as large: none is 0 where it is smaller than SMALLEST but not 0, nor are sums of
# products of two up to LARGEST infinite
RAISED = {4: 2.0**104, 8: 2.0**1000}

Key = tuple[int, int]  # the length of a half, and one of its last steps


class Factors(NamedTuple):
    """What a step of a half hands on: to each lane behind it, and of all lanes, to a lane of the next vector."""

    each: Callable[[Key], Value]
    one: Callable[[Key, int], Value]  # in all lanes


def widths(code: Code) -> list[int]:
    """The lengths of halves that are joined, and that of all lanes, behind which the next vector is."""
    return [2**k for k in range(code.lanes.bit_length())]


class Steps(NamedTuple):
    """Vectors of steps of recurrences of an order; ``backward``: a step lies behind the next one in memory."""

    order: int
    backward: bool

    # ------------------------------------------------------------------------------------------- factors

    def handed_on(self, code: Code, n: Value, a: list[Value]) -> tuple[list[list[Value]], Value]:
        """By a value that is 1, 2, ... steps before the first lane, to each lane; and whether all can be trusted.

        ``n``: steps of a sequence, behind which no factor is used.
        """
        raised, lowered = RAISED[code.size_of_real], 1 / RAISED[code.size_of_real]
        answer = [code.like(a[0], raised)]  # to a single number: the value so many steps behind it
        for k in range(1, code.lanes):
            answer.append(total([a[j] * answer[k - 1 - j] for j in range(min(k, self.order))]))
        handed = [
            [
                total([a[i] * answer[lane - i + j] for i in range(j, min(self.order, lane + j + 1))])
                for lane in range(code.lanes)
            ]
            for j in range(self.order)
        ]
        unused, trusted = ~first_lanes(code, n), code.all_lanes()
        for numbers in handed:
            size = code.magnitude(vector(code, numbers))
            exact = (size == 0) | (size >= SMALLEST[code.size_of_real] * raised)
            trusted = trusted & (unused | (exact & (size <= LARGEST * raised)))
        return [[x * lowered for x in numbers] for numbers in handed], code.bits(trusted) == (1 << code.lanes) - 1

    def steps_of(self, width: int) -> range:
        """Those of a half that hand something on, last one first."""
        return range(min(width, self.order))

    def factor(self, code: Code, handed: list[list[Value]], width: int, j: int) -> Value:
        """What a step of a half hands on to the lanes behind it; of all lanes, to those of the next vector."""
        if width == code.lanes:
            return vector(code, handed[j])
        nothing = code.like(handed[0][0], 0.0)
        return vector(code, [handed[j][lane % width] if lane & width else nothing for lane in range(code.lanes)])

    # ------------------------------------------------------------------------------------------- a vector

    def join(self, code: Code, value: Value, before: Any, factors: Factors, early: bool) -> tuple[Value, Any]:
        """The values of a vector, and its last ones in all lanes, which are what is ``before`` the next.

        ``early``: the last ones wait for nothing but those before, which takes more instructions.
        """
        lanes = code.lanes
        for width in widths(code)[:-1]:
            joined = value
            for j in self.steps_of(width):
                places = [lane - lane % width - 1 - j if lane & width else lane for lane in range(lanes)]
                joined = factors.each((width, j)) * code.shuffle(value, value, places) + joined
            value = joined
        last = self.last_of(code, value)
        for j in range(self.order - 1, -1, -1):
            value = factors.each((lanes, j)) * before[j] + value
            if early:
                last = [factors.one((lanes, j), lanes - 1 - k) * before[j] + x for k, x in enumerate(last)]
        return value, tuple(last if early else self.last_of(code, value))

    def last_of(self, code: Code, value: Value) -> list[Value]:
        return [same_in_all(code, value, code.lanes - 1 - j) for j in range(self.order)]

    def run(self, code: Code, n: Value, y: Value, x: Value, state: Any, factors: Any, go_on: Any) -> Any:
        """Some steps, any number of them; the state is what is before, and what ``go_on`` changes.

        ``y`` and ``x``: the addresses of the first step.
        """
        zero = code.integer(0)

        def steps(mask: Value | None) -> Any:
            def step(i: Value, state: Any) -> Any:
                before, more = state
                value, before = self.join(code, self.take(code, x, i, mask), before, factors(more), True)
                self.put(code, y, i, value, mask)
                return before, go_on(more)

            return step

        whole = n / code.lanes * code.lanes
        state = code.fori(zero, whole, steps(None), state, step=code.lanes)
        some = first_lanes(code, n - whole)
        left = code.pick(n > whole, zero + 1, zero)
        return code.fori(zero, left, lambda _, state: steps(some)(whole, state), state)

    # ------------------------------------------------------------------------------------------- memory

    def moved(self, code: Code, first: Value, i: Value) -> Value:
        """The address of the number i steps behind the first."""
        return first - i * code.size_of_real if self.backward else first + i * code.size_of_real

    def address(self, code: Code, first: Value, i: Value) -> Value:
        """Of the number that is first in memory of a vector of steps from i on."""
        return self.moved(code, first, i + (code.lanes - 1) * self.backward)

    def turned(self, code: Code, x: Value) -> Value:
        return code.shuffle(x, x, range(code.lanes - 1, -1, -1)) if self.backward else x

    def take(self, code: Code, first: Value, i: Value, mask: Value | None) -> Value:
        at = self.address(code, first, i)
        if mask is None:
            return self.turned(code, code.load_as(code.vector, at))
        return self.turned(code, code.load_some(at, self.turned(code, mask)))

    def put(self, code: Code, first: Value, i: Value, x: Value, mask: Value | None) -> None:
        at, x = self.address(code, first, i), self.turned(code, x)
        if mask is None:
            code.store_as(at, x)
        else:
            code.store_some(at, x, self.turned(code, mask))


class Vectors(NamedTuple):
    """All steps of regularly spaced sequences, one sequence after another."""

    order: int
    started: bool  # from values before the first step
    backward: bool

    @property
    def name(self) -> str:
        return f"vectors{self.order}{'_started' * self.started}{'_backward' * self.backward}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: as of `scalar.Plain`, without the first."""
        (count, n), operands = words[:2], [words[k : k + 3] for k in range(2, len(words), 3)]
        more, vectors = operands[C.A :], Steps(self.order, self.backward)
        handed, trusted = vectors.handed_on(
            code, n, [code.load_as(code.real, address) for address, _, _ in more[: self.order]]
        )
        known = {(w, j): vectors.factor(code, handed, w, j) for w in widths(code) for j in vectors.steps_of(w)}
        factors = Factors(lambda key: known[key], lambda key, lane: same_in_all(code, known[key], lane))

        def sequence(k: Value, odd: Any) -> Any:
            y, x, *_ = own = [(address + k * apart, stride) for address, stride, apart in operands]
            before = (code.real_zero(),) * self.order
            if self.started:
                before = tuple(code.spread(address) for address, _ in own[C.A + self.order :])
            end, _ = vectors.run(code, n, y[0], x[0], (before, ()), lambda _: factors, lambda more: more)
            return not_finite(odd, end)

        zero = code.integer(0)
        odd = code.fori(zero, code.pick(trusted, count, zero), sequence, code.real_zero())
        again(code, Plain(self.order, self.started, False), trusted, odd, words)


class EndToEnd(NamedTuple):
    """All steps of short sequences without values before, of which each begins in memory where another ends."""

    order: int
    backward: bool

    @property
    def name(self) -> str:
        return f"end_to_end{self.order}{'_backward' * self.backward}"

    def size(self, code: Code) -> int:
        """Bytes of the factors of a vector that begins in some step."""
        return C.size_of_factors(code.lanes, self.order)

    def keep(self, code: Code, *words: Value) -> Value:
        """Write the factors of vectors that begin in each step of a sequence; 0: some factor is large.

        ``words``: the steps of a sequence, where their factors go, and the addresses of the coefficients.
        """
        n, table, *coefficients = words
        zero, lanes, vectors = code.integer(0), code.lanes, Steps(self.order, self.backward)
        handed, trusted = vectors.handed_on(code, n, [code.load_as(code.real, address) for address in coefficients])
        size, places = self.size(code), self.places(code)

        def step(k: Value, position: Any) -> Any:
            """``position``: of the lanes in their sequences."""
            for (width, j), place in places.items():
                distances = code.integers([lane % width + 1 + j for lane in range(lanes)])
                reached = Value(code, code.builder.icmp_signed(">=", position.llvm, distances.llvm))
                factor = code.where(reached, vectors.factor(code, handed, width, j), code.real_zero())
                code.store_as(table + k * size + place, factor)
            position = position + 1
            return code.where(position < code.repeat(n, lanes), position, code.integers([0] * lanes))

        begin = code.undefined(code.integers([0] * lanes).llvm.type)
        for lane in range(lanes):
            begin = code.insert(begin, zero + lane - (zero + lane) / n * n, lane)
        code.fori(zero, n, step, begin)
        return code.pick(trusted, zero + 1, zero)

    def places(self, code: Code) -> dict[Key, int]:
        """Where among those of a vector a factor is."""
        keys = [(width, j) for width in widths(code) for j in Steps(self.order, self.backward).steps_of(width)]
        return {key: k * LINE for k, key in enumerate(keys)}

    def write(self, code: Code, *words: Value) -> Value:
        """All values; 1: some is not finite, and none may be right.

        ``words``: the steps of all sequences, those of one, the addresses of the first y and x, and what `keep` wrote.
        This is a function of its own, and a small one, so that all that its loop reads stays in registers. Two halves,
        of which each begins with a sequence, are computed abreast, so that none waits for its own values.
        """
        steps, n, y, x, table = words
        zero, lanes, vectors, size = code.integer(0), code.lanes, Steps(self.order, self.backward), self.size(code)
        places, whole, forward = self.places(code), n * size, (zero + lanes - (zero + lanes) / n * n) * size

        def factors(at: Any) -> Factors:
            def one(key: Key, lane: int) -> Value:
                return code.spread(at + (places[key] + lane * code.size_of_real))

            return Factors(
                functools.cache(lambda key: code.load_as(code.vector, at + places[key])), functools.cache(one)
            )

        def go_on(at: Value) -> Value:
            at = at + forward
            return code.pick(at < table + whole, at, at - whole)

        alike = n * lanes  # so many steps on, a vector begins in the same step of a sequence
        half = steps / (alike * 2) * alike
        halves = [tuple(vectors.moved(code, first, k) for first in (y, x)) for k in (zero, half, half * 2)]

        def both(i: Value, state: Any) -> Any:
            before, at = state
            shared, found = factors(at), []
            for (to, of), last in zip(halves[:2], before, strict=True):
                value, last = vectors.join(code, vectors.take(code, of, i, None), last, shared, False)
                vectors.put(code, to, i, value, None)
                found.append(last)
            return tuple(found), go_on(at)

        nothing = (code.real_zero(),) * self.order
        (first, second), at = code.fori(zero, half, both, ((nothing, nothing), table), step=lanes)
        (y, x), left = halves[2], steps - half * 2
        end, _ = vectors.run(code, left, y, x, (second, at), factors, go_on)
        return out_of_range(code, not_finite(code.real_zero(), (*first, *end)))


def not_finite(odd: Value, values: Sequence[Value]) -> Value:
    """NaN where it is, or a value is not finite; else 0."""
    for x in values:
        odd = x * 0.0 + odd
    return odd


def again(code: Code, plain: Plain, trusted: Value, odd: Value, words: Any) -> None:
    """Plain loops over all sequences, where vectors are not right."""
    count = code.pick(trusted, out_of_range(code, odd), code.integer(1)) * words[0]
    plain.write(code, code.integer(0), count, *words[1:])


def out_of_range(code: Code, odd: Value) -> Value:
    """1 where `not_finite` has found something, else 0."""
    return code.pick(code.bits(odd == 0.0) != (1 << code.lanes) - 1, code.integer(1), code.integer(0))


def vector(code: Code, numbers: list[Value]) -> Value:
    made = code.undefined(code.vector)
    for lane, x in enumerate(numbers):
        made = code.insert(made, x, lane)
    return made


def total(terms: list[Value]) -> Value:
    found = terms[0]
    for term in terms[1:]:
        found = found + term
    return found
