"""Recurrences of small vectors, y[t] = A[t] y[t-1] + x[t], one sequence after another: a matrix lies in vectors.

As many columns of a matrix as fit lie side by side in a vector, which is multiplied by the entries of y that belong to
them; then the columns are added up. Some sequences are computed abreast, as each waits for its own last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code

LARGEST_OF_NUMBERS = 4  # rows of the matrices with which one number at a time gives the next step sooner than vectors
OPERANDS, ABREAST = C.operands(1), C.ABREAST
INIT = C.A + 1


class Columns(NamedTuple):
    """The arithmetic of a step with m rows, in vectors."""

    m: int

    # ------------------------------------------------------------------------------------------- how a matrix lies

    def height(self) -> int:
        """The lanes of a column, and of y."""
        return 1 << (self.m - 1).bit_length()

    def matrix(self, code: Code, address: Value, turned: bool) -> list[Any]:
        """The matrix, or where ``turned`` its transpose, in vectors of as many columns as fit; any left over, alone."""
        m, together = self.m, min(self.m, code.lanes // self.height())
        pieces, (along, down) = self.pieces(code, address, m * m * code.parts), ((m, 1) if turned else (1, m))
        whole = m - m % together
        groups = [range(k, k + together) for k in range(0, whole, together)] + [
            range(k, k + 1) for k in range(whole, m)
        ]
        found = []
        for group in groups:
            places = [c * along + r * down if r < m else None for c in group for r in range(self.height())]
            parts = [self.collected(code, pieces, places, p) for p in range(code.parts)]
            found.append((group, parts[0] if code.parts == 1 else Complex(*parts)))
        return found

    def pieces(self, code: Code, address: Value, count: int) -> list[tuple[int, Value]]:
        """So many real numbers as vectors, with the place of the first number of each; the last ones overlap.

        A number that is left over is a vector of its own: it is put into a lane on its way from memory.
        """
        size = min(code.lanes, 1 << (count.bit_length() - 1))
        sizes = [(first, size) for first in range(0, count - size + 1, size)]
        if count % size:
            sizes.append((count - 1, 1) if count % size == 1 else (count - size, size))
        return [(k, code.load_as(ir.VectorType(code.real, n), address + k * code.size_of_real)) for k, n in sizes]

    def collected(self, code: Code, pieces: list[tuple[int, Value]], places: Sequence[int | None], part: int) -> Value:
        """A vector of numbers from pieces of memory; lanes whose place is not told hold anything."""
        made = code.undefined(ir.VectorType(code.real, len(places)))
        left = {lane: place * code.parts + part for lane, place in enumerate(places) if place is not None}
        for first, piece in pieces:
            count = piece.llvm.type.count
            here = {lane: at - first for lane, at in left.items() if first <= at < first + count}
            if here:
                made = self.blend(code, made, piece, here)
                left = {lane: at for lane, at in left.items() if lane not in here}
        return made

    def blend(self, code: Code, made: Value, piece: Value, here: dict[int, int]) -> Value:
        """Some lanes of a vector replaced by lanes of another one, of any length."""
        count, other = made.llvm.type.count, piece.llvm.type.count
        if other == 1:
            (lane,) = here
            return code.insert(made, code.extract(piece, 0), lane)
        made, piece = (self.widened(code, x, max(count, other)) for x in (made, piece))
        return code.shuffle(made, piece, [max(count, other) + here[k] if k in here else k for k in range(count)])

    def widened(self, code: Code, x: Value, lanes: int) -> Value:
        """A vector and zeros behind it, so that no register of another step is waited for."""
        count = x.llvm.type.count
        return code.shuffle(x, code.like(x, 0.0), [min(k, count) for k in range(lanes)])

    # ------------------------------------------------------------------------------------------- vectors

    def nothing(self, code: Code) -> Any:
        zero = Value(code, code.constant(ir.VectorType(code.real, self.height()), 0.0))
        return zero if code.parts == 1 else Complex(zero, zero)

    def take(self, code: Code, address: Value) -> Any:
        """A vector of m numbers."""
        loaded = code.load_as(ir.VectorType(code.real, self.m * code.parts), address)
        parts = [code.shuffle(loaded, loaded, range(p, self.m * code.parts, code.parts)) for p in range(code.parts)]
        parts = [self.widened(code, x, self.height()) for x in parts]
        return parts[0] if code.parts == 1 else Complex(*parts)

    def first(self, code: Code, started: Value, at: list[Value]) -> Any:
        """The vector before the first step, or of it."""
        return self.take(code, code.pick(started != 0, at[INIT], at[C.X]))

    def put(self, code: Code, address: Value, x: Any) -> None:
        parts, count = (x.real, x.imag) if isinstance(x, Complex) else (x, x), self.height()
        order = [k // code.parts + k % code.parts * count for k in range(code.parts * self.m)]
        code.store_as(address, code.shuffle(*parts, order))

    def each(self, x: Any, change: Any) -> Any:
        """The same done to both parts of complex numbers."""
        return Complex(change(x.real), change(x.imag)) if isinstance(x, Complex) else change(x)

    def times(self, code: Code, columns: list[Any], y: Any, x: Any) -> Any:
        """The matrix times y, and x added."""
        wide: list[Any] = []
        sums = [x]
        for group, column in columns:
            order = [k for k in group for _ in range(self.height())]
            entries = self.each(y, lambda part, order=order: code.shuffle(part, part, order))
            if len(group) == 1:
                sums = [*sums[1:], column * entries + sums[0]] if len(sums) > 1 else [column * entries, *sums]
            else:
                wide = [column * entries + wide[0] if wide else column * entries]
        for total in wide:
            starts = range(0, len(columns[0][0]) * self.height(), self.height())
            sums += [self.each(total, lambda part, k=k: code.part(part, k, self.height())) for k in starts]
        while len(sums) > 1:
            sums = [*sums[2:], sums[0] + sums[1]]
        return sums[0]


class Numbers(NamedTuple):
    """The same, one number at a time."""

    m: int
    steps: Sequence[Value] = ()  # the bytes from number to number, where they do not lie side by side

    def nothing(self, code: Code) -> Any:
        zero = Value(code, code.constant(code.real, 0.0))
        return (zero if code.parts == 1 else Complex(zero, zero),) * self.m

    def step(self, code: Code, which: int, together: int = 1) -> Any:
        """The bytes from number to number; ``together``: how many of them are one step where they lie side by side."""
        return self.steps[which] if self.steps else together * code.parts * code.size_of_real

    def load(self, code: Code, address: Value) -> Any:
        parts = [code.load_as(code.real, address + p * code.size_of_real) for p in range(code.parts)]
        return parts[0] if code.parts == 1 else Complex(*parts)

    def some(self, code: Code, address: Value, step: Any) -> list[Any]:
        return [self.load(code, address + k * step) for k in range(self.m)]

    def take(self, code: Code, address: Value) -> Any:
        return tuple(self.some(code, address, self.step(code, C.OF_X)))

    def first(self, code: Code, started: Value, at: list[Value]) -> Any:
        step = self.step(code, C.OF_X)
        if self.steps:
            step = code.pick(started != 0, self.step(code, C.OF_INIT), step)
        return tuple(self.some(code, code.pick(started != 0, at[INIT], at[C.X]), step))

    def put(self, code: Code, address: Value, y: Any) -> None:
        for k, number in enumerate(y):
            for p, part in enumerate([number] if code.parts == 1 else [number.real, number.imag]):
                code.store_as(address + k * self.step(code, C.OF_Y) + p * code.size_of_real, part)

    def matrix(self, code: Code, address: Value, turned: bool) -> Any:
        """The rows of the matrix, or where ``turned`` of its transpose."""
        down, along = self.step(code, C.OF_COLUMN, self.m), self.step(code, C.OF_ROW)
        down, along = (along, down) if turned else (down, along)
        return [self.some(code, address + r * down, along) for r in range(self.m)]

    def times(self, code: Code, matrix: Any, y: Any, x: Any) -> Any:
        """The matrix times y, and x added: each row in two sums, of which neither waits for the other."""
        found = []
        for row, total in zip(matrix, x, strict=True):
            sums = [total, row[1] * y[1]]
            for k in (0, *range(2, self.m)):
                sums[k % 2] = row[k] * y[k] + sums[k % 2]
            found.append(sums[0] + sums[1])
        return tuple(found)


class Sequences(NamedTuple):
    """The loops over sequences and steps, for matrices of m rows."""

    m: int
    strided: bool = False  # numbers of vectors and matrices lie anywhere

    def forward(self, code: Code, job: At, count: Value, axis: Value, *bases: Value) -> None:
        """Sequences along an axis, whose lengths in bytes lie at ``axis``.

        ``bases``: the addresses of y, x, A and the values before in the first step of the first sequence.
        """
        started = code.pick((job.flags & C.STARTED) != 0, code.integer(1), code.integer(0))

        def some(arithmetic: Any, places: list[list[Value]]) -> None:
            start = tuple(arithmetic.first(code, started, at) for at in places)

            def first(_: Value, state: Any) -> Any:
                for at, y in zip(places, start, strict=True):
                    arithmetic.put(code, at[C.Y], y)
                return state

            def step(i: Value, before: Any) -> Any:
                here = [self.at(code, job, at, i) for at in places]
                found = []
                for at, y in zip(here, before, strict=True):
                    matrix = arithmetic.matrix(code, at[C.A], turned=False)
                    found.append(arithmetic.times(code, matrix, y, arithmetic.take(code, at[C.X])))
                for at, y in zip(here, found, strict=True):
                    arithmetic.put(code, at[C.Y], y)
                return tuple(found)

            code.depth += 1
            code.fori(started, 1, first)
            code.depth -= 1
            code.fori(code.integer(1) - started, job.steps, step, start)

        self.all(code, job, count, axis, bases, some)

    def transposed(self, code: Code, job: At, count: Value, axis: Value, *bases: Value) -> None:
        """The same of the transposed recurrence, which carries A^T y on."""

        def some(arithmetic: Any, places: list[list[Value]]) -> None:
            def step(i: Value, carried: Any) -> Any:
                here, nothing = [self.at(code, job, at, i) for at in places], arithmetic.nothing(code)
                matrices = [arithmetic.matrix(code, at[C.A], turned=True) for at in here]
                found = [added(arithmetic.take(code, at[C.X]), y) for at, y in zip(here, carried, strict=True)]
                for at, y in zip(here, found, strict=True):
                    arithmetic.put(code, at[C.Y], y)
                return tuple(arithmetic.times(code, a, y, nothing) for a, y in zip(matrices, found, strict=True))

            code.fori(0, job.steps, step, (arithmetic.nothing(code),) * len(places))

        self.all(code, job, count, axis, bases, some)

    def at(self, code: Code, job: At, first: list[Value], i: Value) -> list[Value]:
        """The addresses of y, x and A at a step."""
        return [first[k] + i * code.word(job + 8 * (C.TABLE + k)) for k in (C.Y, C.X, C.A)]

    def all(self, code: Code, job: At, count: Value, axis: Value, bases: Sequence[Value], some: Any) -> None:
        """``some`` of the sequences at a time, whose loops over steps may end early.

        Of three that are left over the last one is computed twice: that takes no longer.
        """
        strides, last = [code.word(axis + 8 * k) for k in range(OPERANDS)], count + -1

        def taken(arithmetic: Any, abreast: int) -> Any:
            def body(first: Value, state: Any) -> Any:
                code.depth -= 1
                numbers = [code.pick(first + k < last, first + k, last) for k in range(abreast)]
                some(arithmetic, [[base + k * t for base, t in zip(bases, strides, strict=True)] for k in numbers])
                code.depth += 1
                return state

            return body

        code.depth += 1
        if self.strided:
            anywhere = Numbers(self.m, [job.numbers[k] for k in C.NUMBERS])
            first = code.integer(0)
            for abreast in (ABREAST, 2, 1) if self.m <= LARGEST_OF_NUMBERS else (2, 1):
                end = count / abreast * abreast
                code.fori(first, end, taken(anywhere, abreast), step=abreast)
                first = end
        else:
            columns, numbers = Columns(self.m), Numbers(self.m)
            together = (count + 1) / ABREAST * ABREAST
            pairs = code.pick(together + 2 == count, count, together)
            code.fori(0, together, taken(columns, ABREAST), step=ABREAST)
            code.fori(together, pairs, taken(columns, 2), step=2)
            code.fori(pairs, count, taken(numbers if self.m <= LARGEST_OF_NUMBERS else columns, 1))
        code.depth -= 1


def added(x: Any, y: Any) -> Any:
    """The sum of two vectors, or number by number."""
    return tuple(map(added, x, y)) if isinstance(x, tuple) else x + y
