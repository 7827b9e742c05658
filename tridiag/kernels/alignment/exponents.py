"""Numbers that share an exponent over a run of neighbours."""

from __future__ import annotations

import math
from typing import Any

from tridiag.kernels.alignment.state import (
    COLUMNS_,
    FACTOR_,
    FLAW,
    GAP_,
    INVERSE_E,
    INVERSE_M,
    OPEN_,
    PEAK,
    ROWS_,
    load_integers,
    spread,
)
from tridiag.kernels.simd.fused import fused, inverse, multiple_less, remainder
from tridiag.kernels.simd.powers import (
    DEGREE,
    MANTISSA,
    bits,
    coefficients,
    constant,
    integer,
    largest,
    real,
    shift_left,
)
from tridiag.kernels.simd.processor import multiplies_and_adds
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

RUN = 4  # cells
# by the bytes of a real, in powers of two
TOP = {4: 30, 8: 200}  # of the largest that a run follows from
LEAST = {4: -124, 8: -1000}  # of a weight: what is smaller counts as nothing


class Weight:
    """2**(x factor) as a plain number, for LEAST <= x factor < -LEAST."""

    def __init__(self, code: Code, factor: Value) -> None:
        self.code, self.factor = code, factor
        self.lowest = LEAST[code.size_of_real] / factor
        self.inverse = None if multiplies_and_adds(code.size_of_real) else inverse(code, factor)
        self.coefficients = [constant(code, c) for c in coefficients(DEGREE[code.size_of_real])]
        self.magic = constant(code, 1.5 * 2.0 ** MANTISSA[code.size_of_real])  # the last bits of a sum: the whole part

    def __call__(self, x: Value) -> Value:
        code = self.code
        shifted = fused(code, x, self.factor, self.magic)
        rest = self.rest(x, shifted)
        *lower, value = self.coefficients
        for c in reversed(lower):
            value = value * rest + c
        return real(code, bits(code, value) + shift_left(code, bits(code, shifted), MANTISSA[code.size_of_real]))

    def rest(self, x: Value, shifted: Value) -> Value:
        """What x factor is more than a whole number."""
        if self.inverse is None:
            return remainder(self.code, x, self.factor, self.magic - shifted)
        return multiple_less(x, shifted - self.magic, self.inverse) * self.factor


def power_of_two(code: Code, e: Value, at_most_1: bool = False) -> Value:
    """2**e, 0 where that is not a normal number, and no infinity."""
    most = 2 ** (8 * code.size_of_real - 2 - MANTISSA[code.size_of_real]) - 1
    e = largest(code, e + most, integer(code, 0))
    if not at_most_1:
        e = code.where(e < 2 * most, e, integer(code, 2 * most))
    return real(code, shift_left(code, e, MANTISSA[code.size_of_real]))


def top(code: Code, x: Value, e: Value) -> Value:
    """The exponent of x 2**e for x >= 0."""
    width = MANTISSA[code.size_of_real]
    bias = 2 ** (8 * code.size_of_real - 2 - width) - 1
    return Value(code, code.builder.lshr(bits(code, x).llvm, integer(code, width).llvm)) + (e - bias)


def pieces(code: Code, record: Value, scores: Value, i: Value) -> list[Row]:
    """A row in pieces, of as many lanes as a register has."""
    return [Row(lanes, record, scores, i, first) for lanes, first in narrow(code)]


def unordered(code: Code, x: Value, y: Value) -> Value:
    """Whether one of two numbers, or both, are NaN."""
    return Value(code, code.builder.fcmp_unordered("uno", x.llvm, y.llvm))


class Row:
    """What the runs of a row have in common."""

    def __init__(self, code: Code, record: Value, scores: Value, i: Value, first: int) -> None:
        self.code, self.offset = code, first * code.size_of_real  # ``first``: lane of a line
        self.record, self.scores = record + self.offset, scores + self.offset
        self.weight = Weight(code, self.read(FACTOR_))
        self.gap, self.open = (self.weight(self.read(k)) for k in (GAP_, OPEN_))
        self.inverse = self.read(INVERSE_M), load_integers(code, self.record + INVERSE_E * LINE)
        rows, columns = (load_integers(code, self.record + k * LINE) for k in (ROWS_, COLUMNS_))
        limit = code.where(spread(code, i) < rows, columns, integer(code, 0))
        self.limits = [limit - k for k in range(RUN)]

    def read(self, k: int) -> Value:
        return self.code.load(self.record + k * LINE)

    def write(self, k: int, x: Value) -> None:
        self.code.store(self.record + k * LINE, x)

    def has(self, position: Value) -> list[Value]:
        """Which lanes have the cells of a run that begins at a position."""
        return [position < limit for limit in self.limits]

    def marks(self) -> Any:
        """What `weigh` carries from run to run: where the run begins, what tells of NaN, and the largest score."""
        return integer(self.code, 0), self.read(FLAW), self.read(PEAK)

    def mark(self, marks: Any) -> None:
        _, flaw, peak = marks
        self.write(FLAW, flaw)
        self.write(PEAK, peak)

    def weigh(self, j: Value, marks: Any) -> tuple[list[Value], Any]:
        """The weights of a run from cell j on, 0 where a lane has no such cell."""
        code, (position, flaw, peak) = self.code, marks
        scores, weights = [], []
        for k, has in enumerate(self.has(position)):
            s = code.where(has, code.load(self.scores + (j + k) * LINE), constant(code, -math.inf))
            peak = largest(code, peak, s)
            scores.append(s)
            weights.append(code.where(s > self.weight.lowest, self.weight(s), code.zero()))
        for x, y in zip(scores[::2], scores[1::2], strict=True):
            flaw = code.where(unordered(code, x, y), constant(code, math.nan), flaw)
        return weights, (position + RUN, flaw, peak)

    def score(self, j: Value, has: Value) -> Value:
        """The score of a cell, or the lowest whose weight counts where it is below that, or a lane has no such cell."""
        code, lowest = self.code, self.weight.lowest
        return largest(code, lowest, code.where(has, code.load(self.scores + j * LINE), lowest))


class Run:
    """Where the numbers of a run lie: its exponents are those at which the numbers that it follows from are 2**TOP."""

    def __init__(self, row: Row, state: Value, lead: Value, e_lead: Value, e_diagonal: Value) -> None:
        code = row.code
        self.code, self.gap, self.open = code, row.gap, row.open
        self.before, height = (load_integers(code, state + k * LINE) for k in range(2))
        height = largest(code, height, top(code, lead, e_lead), integer(code, 0))
        self.e = height - TOP[code.size_of_real]
        self.one = power_of_two(code, integer(code, 0) - self.e)
        self.above = power_of_two(code, self.before - self.e)
        self.diagonal = [power_of_two(code, e_diagonal - self.e), *[self.above] * (RUN - 1)]
        self.aside = power_of_two(code, e_lead - self.e)
        self.gap_above = row.gap * self.above


class Request:
    """Asks for the row that comes next of an operand whose rows are contiguous: at each cell a line of another lane."""

    def __init__(self, code: Code, operand: Any, start: Value) -> None:
        self.code, self.table = code, operand.addresses.lanes
        self.first = operand.ahead + start * code.size_of_real

    def __call__(self, j: Value) -> None:
        """At the run from cell j on."""
        lanes = self.code.lanes
        table, line = self.table + (j & (lanes - RUN)) * 8, self.first + (j & -lanes) * self.code.size_of_real
        for k in range(RUN):
            self.code.prefetch(self.code.word(table + 8 * k) + line)
