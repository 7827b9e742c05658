"""Plain loops over the steps of regularly spaced sequences, several abreast, of any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import LINE, Code

ABREAST = 8, 4, 2, 1  # sequences at a time, as long as there are so many: none waits for its own products
IN_ORDER = 2  # at most so many, past the caches


class Plain(NamedTuple):
    """All steps of regularly spaced sequences, one number at a time."""

    order: int
    started: bool  # from values before the first step; else the coefficients of these are not read
    transposed: bool  # products are carried on, so that no coefficient of another step is read
    dense: bool = False  # the steps of the result, of x and of all coefficients lie side by side, in the same direction
    constant: bool = False  # instead, coefficients are the same in all steps of all sequences

    @property
    def name(self) -> str:
        told = f"{'_started' * self.started}{'_transposed' * self.transposed}{'_dense' * self.dense}"
        told += "_constant" * self.constant
        return f"plain{self.order}{told}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: sequences, steps; of y, x, the coefficients and the values before: address, stride, distance.

        Before all of these 1 where no more than IN_ORDER sequences are to be computed at a time, else 0. Where
        coefficients are constant nothing but x is read, and there are more at a time all the same; 1 there where
        memory of the next ones is to be asked for.
        """
        (in_order, count, n), operands = words[:3], [words[k : k + 3] for k in range(3, len(words), 3)]
        if self.dense:
            size = code.size_of_real * code.parts
            forward = operands[C.Y][1] / size  # or backward: 1 or -1, of which a processor's addressing makes bytes
            operands = [(address, forward, apart) for address, _, apart in operands]
        numbers = [number_at(code, at) for at, *_ in operands[C.A : C.A + self.order]] if self.constant else []

        def group(together: int, asking: bool = False) -> Any:
            def body(first: Value, state: Any) -> Any:
                places = [
                    [(address + (first + k) * apart, stride) for k in range(together)]
                    for address, stride, apart in operands
                ]
                y, x, more = places[C.Y], places[C.X], places[C.A :]
                ask = next_ones(code, places, operands) if asking else None
                self.sequences(code, n, y, x, more[: self.order], more[self.order :], numbers, ask)
                return state

            return body

        done = code.integer(0)
        if self.dense and self.constant:
            together = ABREAST[0]
            even = code.pick(in_order != 0, count / together * together, done)
            code.fori(done, even, group(together, asking=True), step=together)
            done = even
        for together in ABREAST if self.dense and not self.constant else (ABREAST[0], IN_ORDER, 1):
            even = count / together * together
            if together > IN_ORDER and not self.constant:
                even = code.pick(in_order != 0, done, even)
            code.fori(done, even, group(together), step=together)
            done = even

    def sequences(
        self, code: Code, n: Value, y: Any, x: Any, coefficients: Any, before: Any, numbers: list[Any], ask: Any
    ) -> None:
        """Some side by side; each operand as addresses and strides; ``numbers``: of constant coefficients.

        ``ask(i)``: what is asked for at step i, or None.
        """
        zero = code.integer(0)

        def at(place: Any, i: Value) -> Value:
            return place[0] + i * place[1] * (code.size_of_real * code.parts if self.dense else 1)

        def take(place: Any, i: Value) -> Any:
            return number_at(code, at(place, i))

        def steps(terms: int) -> Any:
            def step(i: Value, state: Any) -> Any:
                if ask is not None:
                    ask(i)
                found = []
                for k, carried in enumerate(state):
                    factors = numbers[:terms] or [take(a[k], i) for a in coefficients[:terms]]
                    value = take(x[k], i)
                    if self.transposed:
                        value = value + carried[0]
                        more = [*carried[1:], None]
                        new = [
                            a * value + m if m is not None else a * value for a, m in zip(factors, more, strict=True)
                        ]
                    else:
                        for a, earlier in zip(factors[::-1], carried[:terms][::-1], strict=True):
                            value = a * earlier + value
                        new = [value, *carried[:-1]]
                    store_number(code, at(y[k], i), value)
                    found.append(tuple(new))
                return tuple(found)

            return step

        nothing = Complex(*(2 * [real_zero(code)])) if code.parts == 2 else real_zero(code)
        state = tuple(tuple(take(b[k], zero) if self.started else nothing for b in before) for k in range(len(y)))
        begun = zero
        if not (self.started or self.transposed):
            for i in range(self.order):
                state = code.fori(i, code.pick(n > i, zero + i + 1, zero + i), steps(i), state)
            begun = zero + self.order
        code.fori(begun, n, steps(self.order), state)


def next_ones(code: Code, places: Any, operands: Any) -> Callable[[Value], None]:
    """Ask at step i for as much of the next sequences as it reads and writes of these, as they lie in memory."""
    row = ABREAST[0] * code.size_of_real * code.parts
    starts = [(places[k][0][0] + ABREAST[0] * operands[k][2], k == C.Y) for k in (C.Y, C.X)]

    def ask(i: Value) -> None:
        for start, write in starts:
            for line in range(0, row, LINE):
                code.prefetch(start + i * row + line, write=write)

    return ask


def number_at(code: Code, address: Value) -> Any:
    real = code.load_as(code.real, address)
    return real if code.parts == 1 else Complex(real, code.load_as(code.real, address + code.size_of_real))


def store_number(code: Code, address: Value, x: Any) -> None:
    code.store_as(address, x.real if code.parts == 2 else x)
    if code.parts == 2:
        code.store_as(address + code.size_of_real, x.imag)


def real_zero(code: Code) -> Value:
    return Value(code, ir.Constant(code.real, 0.0))
