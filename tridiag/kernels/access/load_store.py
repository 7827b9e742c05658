"""Between the caller's memory and rows of lanes: five ways to read an operand, whatever its strides.

A group of systems, one in each lane, is bound to an operand by a record (`operands`): the kind of move, the stride
along the system axis, and for each lane the address of its row 0. Rows that lie contiguous in memory are transposed in
registers, a cache line of each lane at a time.
"""

from __future__ import annotations

from numba import njit

from tridiag.kernels.access.moves import (
    LOAD_CONTIGUOUS,
    LOAD_INTERLEAVED,
    LOAD_LINES,
    LOAD_NARROW,
    LOAD_SAME,
    LOAD_SCATTERED,
    STORE_CONTIGUOUS,
    STORE_INTERLEAVED,
    STORE_LINES,
    STORE_NARROW,
    STORE_ONE,
    STORE_SCATTERED,
)
from tridiag.kernels.access.operands import (
    CONTIGUOUS,
    INTERLEAVED,
    NARROW,
    QUAD,
    SAME,
    bytes_of_real,
    lanes_of,
    parts_of,
)
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import LINE, OPTIONS

PAGE = 4096


@njit(**OPTIONS)
def load_rows(zero, operand, first, last, target):
    """Rows first <= i < last of an operand as rows of lanes."""
    kind, stride, table = operand.kind, operand.stride, operand.addresses.lanes
    if first >= last:
        return
    if kind == CONTIGUOUS and (last - first) * parts_of(zero, ()) >= QUAD:
        parts = parts_of(zero, ())
        start, stop = first * parts, last * parts
        even = stop - (stop - start) % QUAD
        LOAD_CONTIGUOUS(zero, (table, start, even, target))
        if even < stop:  # the last few again, with some before them
            LOAD_CONTIGUOUS(zero, (table, stop - QUAD, stop, target + (stop - QUAD - start) * LINE))
    elif kind == INTERLEAVED:
        LOAD_INTERLEAVED(zero, (table, stride, first, last, target))
    elif kind == SAME:
        LOAD_SAME(zero, (table, stride, first, last, target))
    elif kind == NARROW:
        LOAD_NARROW(zero, (operand, first, last, target))
    else:
        LOAD_SCATTERED(zero, (table, stride, first, last, target))


@njit(**OPTIONS)
def store_rows(zero, operand, first, last, source, step, used):
    """Rows of the first ``used`` lanes, ``step`` bytes apart, back to an operand."""
    kind, stride, table = operand.kind, operand.stride, operand.addresses.lanes
    lanes, parts = lanes_of(zero, ()), parts_of(zero, ())
    start, stop = first * parts, last * parts
    if first >= last:
        return
    if used == lanes and kind == CONTIGUOUS and stop - start >= QUAD:
        even = stop - (stop - start) % QUAD
        STORE_CONTIGUOUS(zero, (table, start, even, source, step))
        if even < stop:
            STORE_CONTIGUOUS(zero, (table, stop - QUAD, stop, source + (stop - QUAD - start) // parts * step, step))
    elif used == lanes and kind == INTERLEAVED:
        STORE_INTERLEAVED(zero, (table, stride, first, last, source, step))
    elif used == lanes:
        STORE_SCATTERED(zero, (table, stride, first, last, source, step))
    elif kind == NARROW and operand.used == used:
        STORE_NARROW(zero, (operand, first, last, source, step))
    else:
        side = bytes_of_real(zero, ())
        for lane in range(used):
            STORE_ONE(zero, (word(table + 8 * lane), stride, first, last, source + lane * side, step))


@njit(**OPTIONS)
def clash(table):
    """Whether neighbouring lanes lie whole pages apart: they share a set of the first cache, and soon lose a line."""
    return (word(table + 8) - word(table)) % PAGE == 0


@njit(**OPTIONS)
def load_row(zero, operand, first, last, target):
    """`load_rows` of contiguous real numbers."""
    lanes, table = lanes_of(zero, ()), operand.addresses.lanes
    if last - first < lanes or not clash(table):
        load_rows(zero, operand, first, last, target)
        return
    even = last - (last - first) % lanes
    LOAD_LINES(zero, (table, first, even, target))
    if even < last:  # the last few again, with some before them
        LOAD_LINES(zero, (table, last - lanes, last, target + (last - lanes - first) * LINE))


@njit(**OPTIONS)
def store_row(zero, operand, first, last, source):
    """The inverse, of all lanes."""
    lanes, table = lanes_of(zero, ()), operand.addresses.lanes
    if last - first < lanes or not clash(table):
        store_rows(zero, operand, first, last, source, LINE, lanes)
        return
    even = last - (last - first) % lanes
    STORE_LINES(zero, (table, first, even, source))
    if even < last:
        STORE_LINES(zero, (table, last - lanes, last, source + (last - lanes - first) * LINE))


@njit(**OPTIONS)
def store_lane(zero, operand, lane, rows, source):
    """The same row of lanes ``source`` to all rows of one lane."""
    STORE_ONE(zero, (operand.lanes[lane], operand.stride, 0, rows, source, 0))
