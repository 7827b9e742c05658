"""What is left of rows under a mask, and copies of operands without the rows that are taken out."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from tridiag.kernels.access.moves import put_interleaved, take_interleaved
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.chunks import CHUNKS
from tridiag.kernels.partition.state import bytes_of, cut
from tridiag.kernels.simd.compiled import inlined
from tridiag.kernels.simd.memory import load, store
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I8, Code

TOLD = 32  # rows that are told at a time, of which a block has a multiple


def tell(code: Code, source: Value, count: Value, target: Value) -> None:
    """What is left of ``count`` rows; ``source``: the mask of the first, side by side with those of its neighbours."""
    kind = ir.VectorType(I8, TOLD)
    every = P.OWN_ROW | P.ROW_BEFORE | P.ROW_BEHIND
    none, whole = (Value(code, code.constant(kind, bits)) for bits in (0, every))

    def some(k: Value, state: Any) -> Any:
        own, before, behind = (code.load_as(kind, source + k + move) != 0 for move in (0, -1, 1))
        told = code.where(own, whole, none)
        told = code.where(before, told, told & (every - P.ROW_BEFORE))
        code.store_as(target + k, code.where(behind, told, told & (every - P.ROW_BEHIND)))
        return state

    code.fori(0, count, some, step=TOLD)


def without(bit: int, gone: float, code: Code, source: Value, target: Value, told: Value, count: Value) -> None:
    """Rows of an operand to a copy, ``gone`` where the bit of what is left of a row is not set."""
    kind, side = ir.VectorType(I8, code.lanes), code.parts * code.size_of_real

    def some(k: Value, state: Any) -> Any:
        here = (code.load_as(kind, told + k) & bit) != 0
        x = code.where(here, take_interleaved(code, source + k * side), code.splat(gone))
        put_interleaved(code, target + k * side, x)
        return state

    code.fori(0, count, some, step=code.lanes)


TELL = CHUNKS.add("tell", tell)
WITHOUT_A = CHUNKS.add("without_a", lambda *words: without(P.ROW_BEFORE, 0.0, *words))
WITHOUT_B = CHUNKS.add("without_b", lambda *words: without(P.OWN_ROW, 1.0, *words))
WITHOUT_C = CHUNKS.add("without_c", lambda *words: without(P.ROW_BEHIND, 0.0, *words))
WITHOUT_D = CHUNKS.add("without_d", lambda *words: without(P.OWN_ROW, 0.0, *words))


@inlined
def tell_rows(zero, plan, room, first, count, target):
    """What is left of some rows, neither the first nor the last of all; ``room``: for their mask."""
    stride = plan.stride[P.WHERE]
    source = plan.address[P.WHERE] + first * stride
    if stride != 1:
        for i in range(count + 2):
            store(room + i, load(source + (i - 1) * stride, types.uint8(0)))
        source = room + 1
    TELL(zero, (source, count, target))


@inlined
def tell_block(zero, plan, room, block):
    rows = plan.height * lanes_of(zero, ())
    tell_rows(zero, plan, room, 1 + block * rows, rows, plan.left + block * rows)


@inlined
def cut_rows(zero, plan, room, first, last):
    """Rows of a, b, c and d to copies without those that are taken out; ``room``: of one thread."""
    inner = max(1, first)
    count = max(0, min(last, plan.rows - 1) - inner) // TOLD * TOLD
    told, side = room, bytes_of(zero, ())
    tell_rows(zero, plan, room + count, inner, count, told)
    for place in range(4):
        operand = place if place < P.WHERE else P.D
        source, target, even = plan.address[operand], plan.cut + place * plan.rows * side, count
        at, to = source + inner * side, target + inner * side
        if plan.stride[operand] == 0:
            even = 0
        elif operand == P.A:
            WITHOUT_A(zero, (at, to, told, count))
        elif operand == P.B:
            WITHOUT_B(zero, (at, to, told, count))
        elif operand == P.C:
            WITHOUT_C(zero, (at, to, told, count))
        else:
            WITHOUT_D(zero, (at, to, told, count))
        for i in range(first, inner):
            store(target + i * side, cut(zero, plan, operand, i))
        for i in range(inner + even, last):
            store(target + i * side, cut(zero, plan, operand, i))
