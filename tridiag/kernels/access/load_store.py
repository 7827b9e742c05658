"""Between the caller's memory and rows of lanes: five ways to read an operand, whatever its strides.

A group of systems, one in each lane, is bound to an operand by a record (`operands`): the kind of move, the stride
along the system axis, and for each lane the address of its row 0. Rows that lie contiguous in memory are transposed in
registers, a cache line of each lane at a time.
"""

from __future__ import annotations

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
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.vector import LINE

CLASHING = 512  # numbers: lanes a multiple of that apart have one set of the first cache in common, or two,
WAYS = 12  # ... with so many lines each


@compiled
def clash(zero, table):
    """Whether neighbouring lanes share so few sets of the first cache that four bands of them soon lose lines there."""
    return (word(table + 8) - word(table)) % (CLASHING * bytes_of_real(zero, ())) == 0


@compiled
def line_by_line(zero, table, first, last):
    """Whether each cache line of contiguous rows is to be touched once, as lanes would lose it before the next time."""
    lanes = lanes_of(zero, ())
    return parts_of(zero, ()) == 1 and lanes > WAYS and last - first >= lanes and clash(zero, table)


@compiled
def load_in_quads(zero, table, start, stop, target):
    """Real numbers start <= i < stop, QUAD of them at least, of contiguous rows."""
    even = stop - (stop - start) % QUAD
    LOAD_CONTIGUOUS(zero, (table, start, even, target))
    if even < stop:  # the last few again, with some before them
        LOAD_CONTIGUOUS(zero, (table, stop - QUAD, stop, target + (stop - QUAD - start) * LINE))


@compiled
def store_in_quads(zero, table, start, stop, source, step):
    """The inverse; ``step`` bytes between the rows of lanes."""
    parts, even = parts_of(zero, ()), stop - (stop - start) % QUAD
    STORE_CONTIGUOUS(zero, (table, start, even, source, step))
    if even < stop:
        STORE_CONTIGUOUS(zero, (table, stop - QUAD, stop, source + (stop - QUAD - start) // parts * step, step))


@compiled
def load_rows(zero, operand, first, last, target):
    """Rows first <= i < last of an operand as rows of lanes."""
    kind, stride, table = operand.kind, operand.stride, operand.addresses.lanes
    if first >= last:
        return
    if kind == CONTIGUOUS and line_by_line(zero, table, first, last):
        load_line_by_line(zero, table, first, last, target)
    elif kind == CONTIGUOUS and (last - first) * parts_of(zero, ()) >= QUAD:
        parts = parts_of(zero, ())
        load_in_quads(zero, table, first * parts, last * parts, target)
    elif kind == INTERLEAVED:
        LOAD_INTERLEAVED(zero, (table, stride, first, last, target))
    elif kind == SAME:
        LOAD_SAME(zero, (table, stride, first, last, target))
    elif kind == NARROW:
        LOAD_NARROW(zero, (operand, first, last, target))
    else:
        LOAD_SCATTERED(zero, (table, stride, operand.ahead, first, last, target))


@compiled
def store_rows(zero, operand, first, last, source, step, used):
    """Rows of the first ``used`` lanes, ``step`` bytes apart, back to an operand."""
    kind, stride, table = operand.kind, operand.stride, operand.addresses.lanes
    lanes, parts = lanes_of(zero, ()), parts_of(zero, ())
    start, stop = first * parts, last * parts
    if first >= last:
        return
    if used == lanes and kind == CONTIGUOUS and line_by_line(zero, table, first, last):
        store_line_by_line(zero, table, first, last, source, step)
    elif used == lanes and kind == CONTIGUOUS and stop - start >= QUAD:
        store_in_quads(zero, table, start, stop, source, step)
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


@compiled
def load_line_by_line(zero, table, first, last, target):
    """At least so many rows as there are lanes."""
    lanes = lanes_of(zero, ())
    even = last - (last - first) % lanes
    LOAD_LINES(zero, (table, first, even, target))
    if even < last:  # the last few again, with some before them
        LOAD_LINES(zero, (table, last - lanes, last, target + (last - lanes - first) * LINE))


@compiled
def store_line_by_line(zero, table, first, last, source, step):
    """The inverse; ``step`` bytes between the rows of lanes."""
    lanes = lanes_of(zero, ())
    even = last - (last - first) % lanes
    STORE_LINES(zero, (table, first, even, source, step))
    if even < last:
        STORE_LINES(zero, (table, last - lanes, last, source + (last - lanes - first) * step, step))


@compiled
def load_row(zero, operand, first, last, target):
    """`load_rows` of contiguous real numbers, between which much else is read."""
    table = operand.addresses.lanes
    if last - first >= lanes_of(zero, ()) and clash(zero, table):
        load_line_by_line(zero, table, first, last, target)
    else:
        load_rows(zero, operand, first, last, target)


@compiled
def store_row(zero, operand, first, last, source):
    """The inverse, of all lanes."""
    table, lanes = operand.addresses.lanes, lanes_of(zero, ())
    if last - first >= lanes and clash(zero, table):
        store_line_by_line(zero, table, first, last, source, LINE)
    else:
        store_rows(zero, operand, first, last, source, LINE, lanes)


@compiled
def store_lane(zero, operand, lane, rows, source):
    """The same row of lanes ``source`` to all rows of one lane."""
    STORE_ONE(zero, (operand.lanes[lane], operand.stride, 0, rows, source, 0))
