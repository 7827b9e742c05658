"""Operands of a group: where every lane lies in the caller's memory, and how its rows follow each other.

A group of systems, one in each lane, is bound to memory once; then rows are read and written as one of five kinds.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import At, at
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

# rows contiguous; lanes side by side; one system for all; lanes side by side that are too few for a vector, the others
# repeat the first; anything else
CONTIGUOUS, INTERLEAVED, SAME, NARROW, SCATTERED = range(5)
QUAD = 4  # numbers of a row that are transposed at a time: more would not fit in registers
ROWS_AHEAD = 8  # prefetch distance where lanes lie side by side
NEXT_GROUP = 128 * 1024  # where rows are contiguous: the next group, if it is no further than this,
LINES_AHEAD = 8  # ... or further on in the same rows
ROWS_OF_LANE = 64  # ... where so many rows of a lane are asked for before those of the next, a power of two
NEXT_LINES = 256 * 1024  # systems end to end: the next group, line by line as they lie in memory, if it is no further
LANES_ASKED = 2  # scattered, with several rows in a line: so many lanes are asked for at each row, all in turn


class Operand(Record):
    """Where the systems of a vector lie in an operand, and how it is moved; behind it, the address of each lane."""

    kind = Word()  # one of the five
    used = Word()  # lanes, of NARROW ones
    stride = Word()  # from row to row, in bytes
    rotation, ahead, step, lines = Word(), Word(), Word(), Word()  # what memory is asked for ahead of use: `ask`
    lanes = Words(0)


operand_at = at(Operand)
lanes_of = emitted(lambda code: code.integer(code.lanes))
parts_of = emitted(lambda code: code.integer(code.parts))
bytes_of_row = emitted(lambda code: code.integer(code.row))
bytes_of_real = emitted(lambda code: code.integer(code.size_of_real))
parts_of = emitted(lambda code: code.integer(code.parts))  # of a number, which are real
bytes_of_number = emitted(lambda code: code.integer(code.size_of_real * code.parts))
# as a power of two; a line has as many numbers as a vector has lanes
lines_of_lane = emitted(lambda code: code.integer((ROWS_OF_LANE // code.lanes).bit_length() - 1))
size_of_operand = emitted(lambda code: code.integer(Operand.size() + 8 * code.lanes))


def operand_in(code: Code, bindings: Value, k: int) -> At:
    """The k-th operand of those that are bound."""
    return At(code, (bindings + k * (Operand.size() + 8 * code.lanes)).llvm, Operand)


def addresses(code: Code, table: Value) -> list[Value]:
    return [code.word(table + 8 * lane) for lane in range(code.lanes)]


@compiled
def bind(zero, operand, itemsize, stride, even, downwards, used):
    """How an operand is moved whose addresses are set, evenly spaced or not, and what to ask for ahead of use.

    ``downwards``: its rows are used last row first. ``used``: lanes; the others repeat the first.
    """
    lanes, table = lanes_of(zero, ()), operand.addresses.lanes
    start, side = word(table), word(table + 8) - word(table)
    further = LINES_AHEAD * LINE if (stride > 0) != downwards else -LINES_AHEAD * LINE
    if not even:
        even = True
        for lane in range(2, lanes):
            even = even and word(table + 8 * lane) - start == lane * side
    kind, rotation, ahead, step, lines = SCATTERED, 0, 0, 0, 0
    if even and side == 0:
        kind = SAME
    elif even and side == itemsize:
        kind, ahead, step = INTERLEAVED, -ROWS_AHEAD * stride if downwards else ROWS_AHEAD * stride, stride
    elif stride == itemsize:
        kind, rotation, step = CONTIGUOUS, lanes - 1, itemsize // parts_of(zero, ())
        ahead = lanes * side
        if 0 < ahead < NEXT_LINES and not downwards:
            rotation, step = 0, LINE
        elif abs(ahead) >= NEXT_GROUP:
            ahead = further
            if parts_of(zero, ()) == 1:
                lines = lines_of_lane(zero, ())
    elif even and abs(stride) * LANES_ASKED <= LINE:
        ahead = lanes * side
        if abs(ahead) >= NEXT_GROUP:
            ahead = further
    elif 1 < used < lanes and parts_of(zero, ()) == 1 and side == itemsize:
        kind = NARROW
        for lane in range(2, used):
            if word(table + 8 * lane) - start != lane * side:
                kind = SCATTERED
    operand.used = used
    operand.kind = kind
    operand.stride = stride
    operand.rotation = rotation
    operand.ahead = ahead
    operand.step = step
    operand.lines = lines


def ask(code: Code, operand: Any, i: Value) -> None:
    """Ask for memory of an operand that will be used after row i: some rows on, or the same row of the next group.

    Contiguous rows: a line at each row, so that requests are spread evenly over the sweep. Systems that lie end to end
    are asked for as they lie in memory; else 2**lines lines of a lane are, and then those of the next.
    """
    rotation, ahead, step, lines = operand.rotation, operand.ahead, operand.step, operand.lines
    inner, whole = code.power(lines) - 1, code.power(lines) * (rotation + 1) - 1
    for part in range(code.parts):
        k = i * code.parts + part
        lane = Value(code, code.builder.lshr(k.llvm, lines.llvm)) & rotation
        base = code.word(operand.addresses.lanes + lane * 8)
        code.prefetch(base + ahead + (k & ~whole) * step + (k & inner) * LINE)
