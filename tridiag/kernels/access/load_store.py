"""Between the caller's memory and rows of lanes: four ways to read an operand, whatever its strides.

A group of systems, one in each lane, is bound to an operand by a block of words: the kind of move, the stride along the
system axis, and for each lane the address of its row 0. Rows that lie contiguous in memory are transposed in
registers, a cache line of each lane at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit

from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.simd.functions import Library, emitted
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import At, at
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import I8, I64, LINE, OPTIONS, Code

CONTIGUOUS, INTERLEAVED, SAME, SCATTERED = range(
    4
)  # rows contiguous; lanes side by side; one system for all; anything else
QUAD = 4  # numbers of a row that are transposed at a time: more would not fit in registers
PAGE = 4096
ROWS_AHEAD = 8  # prefetch distance where lanes lie side by side
NEXT_GROUP = 128 * 1024  # where rows are contiguous: the next group, if it is no further than this,
LINES_AHEAD = 8  # ... or further on in the same rows


class Operand(Record):
    """Where the systems of a vector lie in an operand, and how it is moved; behind it, the address of each lane."""

    kind = Word()  # one of the four
    stride = Word()  # from row to row, in bytes
    rotation, ahead, step = Word(), Word(), Word()  # what memory is asked for ahead of use: `ask`
    lanes = Words(0)


operand_at = at(Operand)
lanes_of = emitted(lambda code: code.integer(code.lanes))
parts_of = emitted(lambda code: code.integer(code.parts))
bytes_of_row = emitted(lambda code: code.integer(code.row))
bytes_of_real = emitted(lambda code: code.integer(code.size_of_real))


size_of_operand = emitted(lambda code: code.integer(Operand.size() + 8 * code.lanes))


def operand_in(code: Code, bindings: Value, k: int) -> At:
    """The k-th operand of those that are bound."""
    return At(code, (bindings + k * (Operand.size() + 8 * code.lanes)).llvm, Operand)


def addresses(code: Code, table: Value) -> list[Value]:
    return [code.word(table + 8 * lane) for lane in range(code.lanes)]


def in_lanes(code: Code, pieces: list[Value]) -> list[Value]:
    """One short vector a lane to one vector of lanes an element."""
    height = pieces[0].llvm.type.count
    wide = pieces[:height]
    columns = [pieces[k : k + height] for k in range(0, len(pieces), height)]
    while len(columns) > 1:
        columns = [
            [code.join(x, y) for x, y in zip(*columns[k : k + 2], strict=True)] for k in range(0, len(columns), 2)
        ]
    wide = columns[0]
    return code.transpose_blocks(wide)


def out_of_lanes(code: Code, rows: list[Value]) -> list[Value]:
    """The inverse."""
    height = len(rows)
    wide = code.transpose_blocks(rows)
    return [code.part(wide[lane % height], lane // height * height, height) for lane in range(code.lanes)]


def load_contiguous(code: Code, table: Value, first: Value, last: Value, target: Value) -> None:
    """Real numbers first <= i < last, a multiple of QUAD, of every lane."""
    base, kind = addresses(code, table), ir.VectorType(code.real, QUAD)

    def chunk(i: Value, state: Any) -> Any:
        at = i * code.size_of_real
        for k, row in enumerate(in_lanes(code, [code.load_as(kind, x + at) for x in base])):
            code.store_as(target + (i - first) * LINE + k * LINE, row)
        return state

    code.fori(first, last, chunk, step=QUAD)


def store_contiguous(code: Code, *words: Value) -> None:
    """The inverse; ``step`` bytes between the rows of lanes, each of code.parts vectors."""
    table, first, last, source, step = words
    base = addresses(code, table)

    def chunk(i: Value, state: Any) -> Any:
        at = i * code.size_of_real
        top = source + (i - first) / code.parts * step
        places = [top + k // code.parts * step + k % code.parts * LINE for k in range(QUAD)]
        rows = [code.load_as(code.vector, place) for place in places]
        for address, piece in zip(base, out_of_lanes(code, rows), strict=True):
            code.store_as(address + at, piece)
        return state

    code.fori(first, last, chunk, step=QUAD)


def load_lines(code: Code, table: Value, first: Value, last: Value, target: Value) -> None:
    """Real numbers first <= i < last, a multiple of the lanes, of every lane; each of its cache lines is read once."""
    base = addresses(code, table)

    def square(i: Value, state: Any) -> Any:
        at = i * code.size_of_real
        for k, row in enumerate(code.transpose_blocks([code.load_as(code.vector, x + at) for x in base])):
            code.store_as(target + (i - first) * LINE + k * LINE, row)
        return state

    code.fori(first, last, square, step=code.lanes)


def store_lines(code: Code, table: Value, first: Value, last: Value, source: Value) -> None:
    """The inverse."""
    base = addresses(code, table)

    def square(i: Value, state: Any) -> Any:
        rows = [code.load_as(code.vector, source + (i - first) * LINE + k * LINE) for k in range(code.lanes)]
        for address, piece in zip(base, code.transpose_blocks(rows), strict=True):
            code.store_as(address + i * code.size_of_real, piece)
        return state

    code.fori(first, last, square, step=code.lanes)


def take_interleaved(code: Code, address: Value) -> Any:
    """A row of lanes from neighbours in memory."""
    pair = [code.load_as(code.vector, address + LINE * k) for k in range(code.parts)]
    if code.parts == 1:
        return pair[0]
    return Complex(*(code.shuffle(pair[0], pair[1], range(k, 2 * code.lanes, 2)) for k in range(2)))


def put_interleaved(code: Code, address: Value, x: Any, past_caches: bool = False) -> None:
    """The inverse."""
    if code.parts == 1:
        code.store_as(address, x, past_caches)
        return
    half = code.lanes // 2
    for k in range(2):
        order = [k * half + j // 2 + code.lanes * (j % 2) for j in range(code.lanes)]
        code.store_as(address + LINE * k, code.shuffle(x.real, x.imag, order), past_caches)


def load_interleaved(code: Code, table: Value, stride: Value, first: Value, last: Value, target: Value) -> None:
    base = code.word(table)

    def row(i: Value, state: Any) -> Any:
        code.store(target + (i - first) * code.row, take_interleaved(code, base + i * stride))
        return state

    code.fori(first, last, row)


def store_interleaved(code: Code, *words: Value) -> None:
    table, stride, first, last, source, step = words
    base = code.word(table)

    def row(i: Value, state: Any) -> Any:
        put_interleaved(code, base + i * stride, code.load(source + (i - first) * step))
        return state

    code.fori(first, last, row)


def load_same(code: Code, table: Value, stride: Value, first: Value, last: Value, target: Value) -> None:
    base = code.word(table)

    def row(i: Value, state: Any) -> Any:
        for k in range(code.parts):
            code.store_as(target + (i - first) * code.row + LINE * k, code.spread_part(base + i * stride, k))
        return state

    code.fori(first, last, row)


def load_scattered(code: Code, table: Value, stride: Value, first: Value, last: Value, target: Value) -> None:
    base = addresses(code, table)

    def row(i: Value, state: Any) -> Any:
        for k in range(code.parts):
            x = code.undefined(code.vector)
            for lane, address in enumerate(base):
                x = code.insert(x, code.load_as(code.real, address + i * stride + k * code.size_of_real), lane)
            code.store_as(target + (i - first) * code.row + LINE * k, x)
        return state

    code.fori(first, last, row)


def store_scattered(code: Code, *words: Value) -> None:
    """The inverse, row by row: lanes that are near each other share pages."""
    table, stride, first, last, source, step = words
    base = addresses(code, table)

    def row(i: Value, state: Any) -> Any:
        for k in range(code.parts):
            x = code.load_as(code.vector, source + (i - first) * step + LINE * k)
            for lane, address in enumerate(base):
                code.store_as(address + i * stride + k * code.size_of_real, code.extract(x, lane))
        return state

    code.fori(first, last, row)


def store_one(code: Code, *words: Value) -> None:
    """One lane of rows to memory; ``source`` is the address of that lane in the first row."""
    address, stride, first, last, source, step = words

    def row(i: Value, state: Any) -> Any:
        for k in range(code.parts):
            x = code.load_as(code.real, source + (i - first) * step + LINE * k)
            code.store_as(address + i * stride + k * code.size_of_real, x)
        return state

    code.fori(first, last, row)


def advance(code: Code, operand: Any, step: Value) -> None:
    """All addresses of an operand moved by ``step`` bytes."""
    table, kind = operand.addresses.lanes, ir.VectorType(I64, code.lanes)
    code.store_as(table, code.load_as(kind, table) + code.repeat(step, code.lanes))


def put_past_caches(code: Code, *words: Value) -> None:
    """Rows of ``size`` bytes to memory that nobody reads soon, past the caches where they are whole cache lines."""
    source, source_step, target, target_step, size, count = words

    def row(i: Value, state: Any) -> Any:
        start, to = source + i * source_step, target + i * target_step
        head = code.integer(0) - to & (LINE - 1)
        head = code.pick(head < size, head, size)
        lines = head + (size - head & -LINE)

        def entry(k: Value, state: Any) -> Any:
            code.store_as(to + k, code.load_as(code.real, start + k))
            return state

        def line(k: Value, state: Any) -> Any:
            code.store_as(to + k, code.load_as(code.vector, start + k), past_caches=True)
            return state

        code.fori(0, head, entry, step=code.size_of_real)
        code.fori(head, lines, line, step=LINE)
        code.fori(lines, size, entry, step=code.size_of_real)
        return state

    code.fori(0, count, row)


MOVES = Library("moves")
_load_contiguous = MOVES.add("load_contiguous", load_contiguous)
_store_contiguous = MOVES.add("store_contiguous", store_contiguous)
_load_lines, _store_lines = MOVES.add("load_lines", load_lines), MOVES.add("store_lines", store_lines)
_load_interleaved, _store_interleaved = (
    MOVES.add("load_interleaved", load_interleaved),
    MOVES.add("store_interleaved", store_interleaved),
)
_load_same, _load_scattered = MOVES.add("load_same", load_same), MOVES.add("load_scattered", load_scattered)
ADVANCE = MOVES.add("advance", advance)
_store_scattered = MOVES.add("store_scattered", store_scattered)
_store_one = MOVES.add("store_one", store_one)


@njit(**OPTIONS)
def bind(zero, operand, itemsize, stride, even, downwards):
    """How an operand is moved whose addresses are set, evenly spaced or not, and what to ask for ahead of use.

    ``downwards``: its rows are used last row first.
    """
    lanes, table = lanes_of(zero, ()), operand.addresses.lanes
    start, side = word(table), word(table + 8) - word(table)
    if not even:
        even = True
        for lane in range(2, lanes):
            even = even and word(table + 8 * lane) - start == lane * side
    kind, rotation, ahead, step = SCATTERED, 0, 0, 0
    if even and side == 0:
        kind = SAME
    elif even and side == itemsize:
        kind, ahead, step = INTERLEAVED, -ROWS_AHEAD * stride if downwards else ROWS_AHEAD * stride, stride
    elif stride == itemsize:
        kind, rotation, step = CONTIGUOUS, lanes - 1, itemsize // parts_of(zero, ())
        ahead = lanes * side
        if abs(ahead) >= NEXT_GROUP:
            ahead = -LINES_AHEAD * LINE if downwards else LINES_AHEAD * LINE
    operand.kind = kind
    operand.stride = stride
    operand.rotation = rotation
    operand.ahead = ahead
    operand.step = step


def ask(code: Code, operand: Any, i: Value) -> None:
    """Ask for memory of an operand that will be used after row i: some rows on, or the same row of the next group.

    Contiguous rows: a line of another lane at each row, so that requests are spread evenly over the sweep.
    """
    rotation, ahead, step = operand.rotation, operand.ahead, operand.step
    for part in range(code.parts):
        k = i * code.parts + part
        base = code.word(operand.addresses.lanes + (k & rotation) * 8)
        code.prefetch(base + ahead + (k & ~rotation) * step)


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
        _load_contiguous(zero, (table, start, even, target))
        if even < stop:  # the last few again, with some before them
            _load_contiguous(zero, (table, stop - QUAD, stop, target + (stop - QUAD - start) * LINE))
    elif kind == INTERLEAVED:
        _load_interleaved(zero, (table, stride, first, last, target))
    elif kind == SAME:
        _load_same(zero, (table, stride, first, last, target))
    else:
        _load_scattered(zero, (table, stride, first, last, target))


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
        _store_contiguous(zero, (table, start, even, source, step))
        if even < stop:
            _store_contiguous(zero, (table, stop - QUAD, stop, source + (stop - QUAD - start) // parts * step, step))
    elif used == lanes and kind == INTERLEAVED:
        _store_interleaved(zero, (table, stride, first, last, source, step))
    elif used == lanes:
        _store_scattered(zero, (table, stride, first, last, source, step))
    else:
        side = bytes_of_real(zero, ())
        for lane in range(used):
            _store_one(zero, (word(table + 8 * lane), stride, first, last, source + lane * side, step))


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
    _load_lines(zero, (table, first, even, target))
    if even < last:  # the last few again, with some before them
        _load_lines(zero, (table, last - lanes, last, target + (last - lanes - first) * LINE))


@njit(**OPTIONS)
def store_row(zero, operand, first, last, source):
    """The inverse, of all lanes."""
    lanes, table = lanes_of(zero, ()), operand.addresses.lanes
    if last - first < lanes or not clash(table):
        store_rows(zero, operand, first, last, source, LINE, lanes)
        return
    even = last - (last - first) % lanes
    _store_lines(zero, (table, first, even, source))
    if even < last:
        _store_lines(zero, (table, last - lanes, last, source + (last - lanes - first) * LINE))


@njit(**OPTIONS)
def store_lane(zero, operand, lane, rows, source):
    """The same row of lanes ``source`` to all rows of one lane."""
    _store_one(zero, (operand.lanes[lane], operand.stride, 0, rows, source, 0))


def load_mask(code: Code, operand: Any, rows: Value, target: Value, extent: Value) -> None:
    """A byte a lane and row. ``extent``: the first row that any lane keeps, behind the last, and how many all keep.

    The rows before the first and behind the last of ``target`` are those at the other end, for cyclic matrices.
    """
    base, stride = addresses(code, operand.addresses.lanes), operand.stride
    kind = ir.VectorType(I8, code.lanes)

    def row(i: Value, state: Any) -> Any:
        low, high, whole = state
        x = code.undefined(kind)
        for lane, address in enumerate(base):
            x = code.insert(x, code.load_as(I8, address + i * stride), lane)
        code.store_as(target + i * code.lanes, x)
        kept = code.bits(x != 0)
        some = kept != 0
        low = code.pick(some & (i < low), i, low)
        every = code.pick(kept == 2**code.lanes - 1, code.integer(1), code.integer(0))
        return low, code.pick(some, i + 1, high), whole + every

    zero = code.integer(0)
    for k, x in enumerate(code.fori(0, rows, row, (rows, zero, zero))):
        code.store_as(extent + 8 * k, x)
    for to, source in ((target - code.lanes, target + (rows - 1) * code.lanes), (target + rows * code.lanes, target)):
        code.store_as(to, code.load_as(kind, source))


LOAD_MASK = MOVES.add("load_mask", load_mask)
