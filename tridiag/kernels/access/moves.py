"""Rows of lanes from memory and back, for each kind of operand."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.operands import LANES_ASKED, QUAD, addresses
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.registers import joined
from tridiag.kernels.simd.transpose import transpose_blocks, transpose_in_memory
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import I8, I64, LINE, Code


def in_lanes(code: Code, pieces: list[Value]) -> list[Value]:
    """One short vector a lane to one vector of lanes an element."""
    height, lanes = pieces[0].llvm.type.count, len(pieces)
    if lanes < height:
        squares = [[code.part(piece, k, lanes) for piece in pieces] for k in range(0, height, lanes)]
        return [row for square in squares for row in transpose_blocks(code, square)]
    columns = [pieces[k : k + height] for k in range(0, lanes, height)]
    return transpose_blocks(code, [joined(code, parts) for parts in zip(*columns, strict=True)])


def in_register(code: Code, row: Value) -> Value:
    """A vector of which the compiler does not know how it was shuffled: its parts are taken of it as it is."""
    kind = row.llvm.type
    return Value(code, code.builder.asm(ir.FunctionType(kind, [kind]), "", "=v,0", [row.llvm], False))


def out_of_lanes(code: Code, rows: list[Value]) -> list[Value]:
    """The inverse."""
    height, lanes = len(rows), code.lanes
    if lanes < height:
        squares = [transpose_blocks(code, rows[k : k + lanes]) for k in range(0, height, lanes)]
        return [joined(code, parts) for parts in zip(*squares, strict=True)]
    wide = transpose_blocks(code, rows)
    if bytes_of_register() == LINE and height < lanes:
        wide = [in_register(code, row) for row in wide]
    return [code.part(wide[lane % height], lane // height * height, height) for lane in range(lanes)]


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
        transpose_in_memory(code, lambda k: base[k] + at, lambda k: target + (i - first) * LINE + k * LINE)
        return state

    code.fori(first, last, square, step=code.lanes)


def store_lines(code: Code, *words: Value) -> None:
    """The inverse; ``step`` bytes between the rows of lanes."""
    table, first, last, source, step = words
    base = addresses(code, table)

    def square(i: Value, state: Any) -> Any:
        transpose_in_memory(code, lambda k: source + (i - first + k) * step, lambda k: base[k] + i * code.size_of_real)
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


def in_groups(code: Code, count: Value, together: int, body: Callable[[int, Value], None]) -> None:
    """``body(together, first)`` for so many of ``count`` at a time, and then for each one that is left."""

    def some(many: int) -> Callable[[Value, Any], Any]:
        def group(first: Value, state: Any) -> Any:
            body(many, first)
            return state

        return group

    even = count / together * together
    code.fori(0, even, some(together), step=together)
    code.fori(even, count, some(1))


def first_lanes(code: Code, count: Value) -> Value:
    """So many lanes, as a mask."""
    return code.integers(range(code.lanes)) < code.repeat(count, code.lanes)


def same_in_all(code: Code, x: Value, lane: int) -> Value:
    """What one lane holds, in all lanes."""
    return code.shuffle(x, x, [lane] * code.lanes)


def load_narrow(code: Code, operand: Any, first: Value, last: Value, target: Value) -> None:
    """Rows of real numbers that fill no vector; no memory beside them is touched."""
    base, stride, used = code.word(operand.addresses.lanes), operand.stride, first_lanes(code, operand.used)

    def row(i: Value, state: Any) -> Any:
        x = code.load_some(base + i * stride, used)
        code.store_as(target + (i - first) * LINE, code.where(used, x, same_in_all(code, x, 0)))
        return state

    code.fori(first, last, row)


def store_narrow(code: Code, operand: Any, first: Value, last: Value, source: Value, step: Value) -> None:
    """The inverse, of the lanes that are used."""
    base, stride, used = code.word(operand.addresses.lanes), operand.stride, first_lanes(code, operand.used)

    def row(i: Value, state: Any) -> Any:
        code.store_some(base + i * stride, code.load_as(code.vector, source + (i - first) * step), used)
        return state

    code.fori(first, last, row)


def load_scattered(code: Code, *words: Value) -> None:
    """Unless ``ahead`` is zero what lies so many bytes further on is asked for, of some lanes at each row."""
    table, stride, ahead, first, last, target = words
    base, apart = addresses(code, table), code.lanes // LANES_ASKED

    def row(i: Value, state: Any) -> Any:
        for k in range(code.parts):
            x = code.undefined(code.vector)
            for lane, address in enumerate(base):
                x = code.insert(x, code.load_as(code.real, address + i * stride + k * code.size_of_real), lane)
            code.store_as(target + (i - first) * code.row + LINE * k, x)
        return state

    def asking(i: Value, state: Any) -> Any:
        for k in range(0, code.lanes, apart):
            code.prefetch(code.word(table + ((i + k) & (code.lanes - 1)) * 8) + (i * stride + ahead))
        return row(i, state)

    asked = code.pick(ahead != 0, last, first)
    code.fori(first, asked, asking)
    code.fori(asked, last, row)


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
LOAD_CONTIGUOUS = MOVES.add("load_contiguous", load_contiguous)
STORE_CONTIGUOUS = MOVES.add("store_contiguous", store_contiguous)
LOAD_LINES, STORE_LINES = MOVES.add("load_lines", load_lines), MOVES.add("store_lines", store_lines)
LOAD_INTERLEAVED, STORE_INTERLEAVED = (
    MOVES.add("load_interleaved", load_interleaved),
    MOVES.add("store_interleaved", store_interleaved),
)
LOAD_SAME, LOAD_SCATTERED = MOVES.add("load_same", load_same), MOVES.add("load_scattered", load_scattered)
LOAD_NARROW, STORE_NARROW = MOVES.add("load_narrow", load_narrow), MOVES.add("store_narrow", store_narrow)
ADVANCE = MOVES.add("advance", advance)
STORE_SCATTERED = MOVES.add("store_scattered", store_scattered)
STORE_ONE = MOVES.add("store_one", store_one)


def zip_bytes(code: Code, x: Value, y: Value, half: int = 0) -> Value:
    """Eight bytes of each of two vectors, in turn; ``half``: the first or the second eight."""
    first, count = 8 * half, x.llvm.type.count
    return code.shuffle(x, y, [first + k // 2 + count * (k % 2) for k in range(16)])


def square_of_bytes(code: Code, lanes: list[Value]) -> list[Value]:
    """Eight bytes of each of eight lanes as four vectors of the lanes of two rows each."""
    pairs = [zip_bytes(code, lanes[k], lanes[k + 4]) for k in range(4)]
    fours = [zip_bytes(code, pairs[k], pairs[k + 2], half) for half in range(2) for k in range(2)]
    return [zip_bytes(code, fours[k], fours[k + 1], half) for k in (0, 2) for half in range(2)]


def bytes_of_lanes(
    code: Code, base: list[Value], stride: Value, rows: Value, target: Value, target_step: Value
) -> None:
    """Rows of a byte a lane, side by side.

    A row at a time where they are in memory; where rows are contiguous in each lane eight of eight lanes at a time.
    """
    kind, zero = ir.VectorType(I8, 8), code.integer(0)

    def eight(i: Value, state: Any) -> Any:
        for first in range(0, code.lanes, 8):
            pairs = square_of_bytes(code, [code.load_as(kind, x + i) for x in base[first : first + 8]])
            for k in range(8):
                row = code.part(pairs[k // 2], k % 2 * 8, 8)
                code.store_as(target + (i + k) * target_step + first, row)
        return state

    def one(i: Value, state: Any) -> Any:
        x = code.undefined(ir.VectorType(I8, code.lanes))
        for lane, address in enumerate(base):
            x = code.insert(x, code.load_as(I8, address + i * stride), lane)
        code.store_as(target + i * target_step, x)
        return state

    def whole(i: Value, state: Any) -> Any:
        code.store_as(target + i * target_step, code.load_as(ir.VectorType(I8, code.lanes), base[0] + i * stride))
        return state

    aside = code.integer(0) == 0
    for lane, address in enumerate(base):
        aside = aside & (address == base[0] + lane)
    contiguous = (stride == 1) & (rows >= 8) & ~aside
    code.fori(0, code.pick(aside, rows, zero), whole)
    code.fori(0, code.pick(contiguous, rows - 7, zero), eight, step=8)
    code.fori(code.pick(contiguous, rows - 8, zero), code.pick(contiguous, rows - 7, zero), eight)
    code.fori(0, code.pick(contiguous | aside, zero, rows), one)


def zero_bytes(word: Value) -> Value:
    """Not zero where a byte of a word is."""
    ones, high = (int.from_bytes(8 * bytes([byte]), "little", signed=True) for byte in (1, 128))
    return (word - ones) & ~word & high


def load_mask(code: Code, operand: Any, rows: Value, target: Value, extent: Value) -> None:
    """A byte a lane and row. ``extent``: the first row that any lane keeps, behind the last, and how many all keep.

    The rows before the first and behind the last of ``target`` are those at the other end, for cyclic matrices.
    """
    base, stride, kind = addresses(code, operand.addresses.lanes), operand.stride, ir.VectorType(I8, code.lanes)
    bytes_of_lanes(code, base, stride, rows, target, code.integer(code.lanes))

    def row(i: Value, state: Any) -> Any:
        low, high, whole = state
        words = [code.word(target + (i * code.lanes + first)) for first in range(0, code.lanes, 8)]
        any_kept, any_gone = (
            functools.reduce(operator.or_, words),
            functools.reduce(operator.or_, map(zero_bytes, words)),
        )
        some = any_kept != 0
        low = code.pick(some & (i < low), i, low)
        every = code.pick(any_gone == 0, code.integer(1), code.integer(0))
        return low, code.pick(some, i + 1, high), whole + every

    zero = code.integer(0)
    for k, x in enumerate(code.fori(0, rows, row, (rows, zero, zero))):
        code.store_as(extent + 8 * k, x)
    for to, source in ((target - code.lanes, target + (rows - 1) * code.lanes), (target + rows * code.lanes, target)):
        code.store_as(to, code.load_as(kind, source))


LOAD_MASK = MOVES.add("load_mask", load_mask)
