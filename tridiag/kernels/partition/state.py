"""The plan of one long system: a block of int64 words that all functions of `tridiag.kernels.partition.kernel` share.

Constants are read as ``plan.NAME``: Numba would compile a function again for every constant that is imported by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from tridiag.algorithms.elimination import UNREACHED
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.compiled import OPTIONS, compiled, inlined
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import load, store
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.scalars import entry, unit
from tridiag.kernels.simd.steps import Steps
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

A, B, C, WHERE, D, X = range(6)


class Plan(Workspace):
    """One long system, and where its memory is."""

    # of a phase: the counter from which threads claim blocks, and that of the threads; which phase; whether it failed
    next, threads, phase, failed = Word(), Word(), Word(), Word()
    run = Word()  # blocks that are claimed at a time
    rooms, room_size = Word(), Word()  # memory of each thread
    blocks, height = Word(), Word()  # the rows of a chunk
    rows, tail = Word(), Word()  # all of them, and those behind the last chunk less one
    promise = Word()
    # whether operands have rows that are taken out; where, for each row of a chunk, what is left of it is told
    masked, left = Word(), Word()
    # What is being done: read whole chunks, not their ends alone; 0, or for residuals the step of refinement. What was
    # found: a reduction read ends alone; the matrix may be singular.
    exact, refining, ends_read, doubt = Word(), Word(), Word(), Word()
    planes, reduced = Word(), Word()  # what is kept for each block, and for each unknown of the reduced system
    constants = Word()  # lines of operands that are one number
    windows, window, count = Word(), Word(), Word()  # a list of windows, their size and number
    # of a, b, c, where, d, x: where an operand lies; how the sweeps are to read it, with a step of 0 where it is one
    # number for all rows; a copy of it, or 0
    address, stride, lines, step, copy = Words(6), Words(6), Words(6), Words(6), Words(6)
    cut = Word()  # copies without the rows that are taken out, or 0
    # of neighbours that are copied together: how many; the bytes from one to the next, and of their copies; a bit for
    # each that is to be solved
    several, across, apart, marks = Word(), Words(6), Word(), Word()
    spare, spare_size = Word(), Word()  # memory for copies, of this system or the next ones


# The planes, each a row of lanes a block. Plain: x_last = LAST + LAST_BEFORE x_before - LAST_OWN x_own and
# x_first = FIRST + FIRST_BEFORE x_before + FIRST_OWN x_own, where x_own is the separator and x_last lies before it.
LAST, LAST_BEFORE, LAST_OWN, FIRST, FIRST_BEFORE, FIRST_OWN = range(6)
SEPARATOR = 6  # ... 9: its row of the matrix and of the right side
OWN, BEFORE, FOUND_FIRST, FOUND_LAST = 10, 11, 12, 13  # the separators, those of the chunks before, the solution
# Pivoted, where first and last are of the chunk itself: two rows (x_last, x_after | x_before, x_first | right side).
LEFT, REST = 0, 10  # ... and, of the same two rows when the chunk is solved, (x_last, x_after | residual)
ABOVE, TOP, BOTTOM, BELOW = range(16, 20)  # x_before, x_first, x_last, x_after, or corrections of them
INTERLEAVED = 20  # ... 21: x_before, x_after before they are corrected
EACH = 22  # planes

MOST_LISTED = 62

# What is left of a row under a mask, the bits of a byte: the row itself, its coupling to the row before and behind.
OWN_ROW, ROW_BEFORE, ROW_BEHIND = 1, 2, 4


class BlockRecord(Record):
    """What is kept of a block behind the planes."""

    near = Word()  # its ends do not feel each other
    bad, listed = Word(), Words(MOST_LISTED)  # how many of its lines have a bad row; the first rows of those lines


# The phases, each a pass over all blocks, or over the groups of windows.
REDUCE_PLAIN, SOLVE_PLAIN, REDUCE_PIVOTED, SOLVE_PIVOTED, REPAIR, FIND_REST, CORRECT, GATHER, CUT, SCATTER = range(10)

STEPS = Steps("partition_steps")
ARRAYS, allocate, free_plan = workspace(Plan, "planes", "reduced", "windows", "constants", "rooms", "left")
RECORD_SIZE = BlockRecord.size()  # bytes


DOUBTFUL_PLAIN = 0.25  # times the root of eps: the same of plain elimination, which loses little


def doubt_below(eps: float) -> float:
    """The part of the numbers that it is the difference of below which a pivot may stand for zero.

    In single precision the root of eps would raise doubt about some chunk of most long systems.
    """
    return float(eps ** (0.5 if eps < 1e-10 else 0.75))


def limits(zero):
    """eps, the smallest normal number, and the limits of doubt of plain and of pivoted elimination."""


@overload(limits, jit_options=OPTIONS)
def _limits(zero):
    info = np.finfo(np.dtype(str(zero)))
    numbers = float(info.eps), float(info.tiny), DOUBTFUL_PLAIN * float(info.eps) ** 0.5, doubt_below(float(info.eps))
    return lambda zero: numbers


def not_a_number(zero):
    """NaN."""


@overload(not_a_number, jit_options=OPTIONS)
def _not_a_number(zero):
    nan = np.dtype(str(zero)).type("nan")
    return lambda zero: nan


@compiled
def size(x):
    """LAPACK's measure of a pivot."""
    return abs(x.real) + abs(x.imag)


def quotient(x, y):
    """x / y; of complex numbers by Smith's formula, as `Code.quotient`."""


@overload(quotient, jit_options=OPTIONS)
def _quotient(x, y):
    if not isinstance(y, types.Complex):
        return lambda x, y: x / y
    make, info = np.dtype(str(y)).type, np.finfo(str(y))
    usual, large_scale, bound = map(info.dtype.type, (0.25, 1 / info.eps, info.tiny / info.eps))

    def smith(x, y):
        scale = large_scale if abs(y.real) + abs(y.imag) < bound else usual
        above = large_scale if abs(x.real) + abs(x.imag) < bound else usual
        steep = abs(y.imag) > abs(y.real)
        large, small = (y.imag * scale, y.real * scale) if steep else (y.real * scale, y.imag * scale)
        first, second = (x.imag * above, x.real * above) if steep else (x.real * above, x.imag * above)
        ratio = small / large
        length = large + small * ratio
        cross = second - first * ratio
        scale = scale / above
        return make(complex((first + second * ratio) / length * scale, (-cross if steep else cross) / length * scale))

    return smith


bytes_of = emitted(lambda code: code.integer(code.parts * code.size_of_real))
line_height = emitted(lambda code: code.integer(code.lanes // code.parts))  # rows of a cache line


# ------------------------------------------------------------------------------------------------ rows of the system


@inlined
def entry_of(zero, plan, operand, i):
    return load(plan.address[operand] + i * plan.stride[operand], zero)


@compiled
def inner(zero, plan, operand, i):
    """The same; zero for what would couple a row with none: it may lie outside of the operand."""
    if (operand == A and i == 0) or (operand == C and i == plan.rows - 1):
        return zero
    return entry_of(zero, plan, operand, i)


@compiled
def is_kept(plan, i):
    if plan.masked == 0:
        return True
    return load(plan.address[WHERE] + i * plan.stride[WHERE], types.uint8(0)) != 0


@compiled
def cut(zero, plan, operand, i):
    """An entry of a, b, c or d; of rows that are taken out those of the identity, and no coupling to them."""
    if not is_kept(plan, i):
        return unit(zero) if operand == B else zero
    if operand == A and i > 0 and not is_kept(plan, i - 1):
        return zero
    if operand == C and i < plan.rows - 1 and not is_kept(plan, i + 1):
        return zero
    return inner(zero, plan, operand, i)


@compiled
def solution(zero, plan, row):
    return load(plan.address[X] + row * plan.stride[X], zero)


@compiled
def set_solution(zero, plan, row, value):
    store(plan.address[X] + row * plan.stride[X], value)


@compiled
def row_residual(zero, row, right, before, here, after):
    """r of one row (a, b, c), and |r| / (|A| |x| + |d|)."""
    a, b, c = row
    eps, tiny, _, _ = limits(zero)
    r, scale, least = right - b * here, size(right) + size(b) * size(here), 4 * tiny / eps
    if a != zero:
        r, scale = r - a * before, scale + size(a) * size(before)
    if c != zero:
        r, scale = r - c * after, scale + size(c) * size(after)
    scale = scale / parts_of(zero, ())  # a product of complex numbers can be half that of their sizes
    scale, most = max(scale, least), UNREACHED * eps
    error = size(r) / scale
    if error > most:
        error = max(most, size(r) / max(scale, size(a) * least + size(b) * least + size(c) * least))
    return r, error


# ------------------------------------------------------------------------------------------------ the plan's memory


chunk_count = emitted(lambda code, plan: plan.blocks * code.lanes)


@compiled
def place(zero, plan, plane, chunk):
    """The address of a chunk's entry in a plane."""
    lanes = lanes_of(zero, ())
    row = plane * plan.blocks + chunk // lanes
    return plan.planes + row * bytes_of_row(zero, ()) + chunk % lanes * bytes_of_real(zero, ())


@compiled
def get(zero, plan, plane, chunk):
    return entry(place(zero, plan, plane, chunk), zero)


@compiled
def put(zero, plan, plane, chunk, value):
    put_lane(zero, place(zero, plan, plane, chunk), value)


@compiled
def put_lane(zero, at, value):
    """One entry of a row of lanes."""
    store(at, value.real)
    if parts_of(zero, ()) == 2:
        store(at + LINE, value.imag)


def address_of_record(code: Code, plan: Any, block: Value) -> Value:
    return plan.planes + plan.blocks * (EACH * code.row) + block * BlockRecord.size()


block_record = emitted(address_of_record, RecordAt(BlockRecord))


@compiled
def list_row(about, count, row):
    if count < MOST_LISTED:
        about.listed[count] = row
    return count + 1
