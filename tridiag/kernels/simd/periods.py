"""Places in periods, counted in the lanes of vectors: integers of the size of a real number."""

from __future__ import annotations

from llvmlite import ir

from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


def positions(code: Code, place: Value, period: Value) -> Value:
    """The places in their periods of entries, of which the first is at a place, or some vectors behind it."""
    kind = period.llvm.type
    order = code.integers(range(kind.count))
    if code.size_of_real < 8:
        order = Value(code, code.builder.trunc(order.llvm, kind))
    return remainder(code, lanes_of(code, place, kind.count) + order, period)


def step_of(code: Code, period: Value) -> Value:
    """How much further in its period an entry is that lies a vector behind."""
    lanes = period.llvm.type.count
    return remainder(code, lanes_of(code, code.integer(lanes), lanes), period)


def moved(code: Code, position: Value, step: Value, period: Value) -> Value:
    """Positions that much further."""
    further = position + step
    return code.where(further < period, further, further - period)


def remainder(code: Code, x: Value, period: Value) -> Value:
    """Of numbers that are less than 2 * lanes periods."""
    for times in (2**k for k in reversed(range(x.llvm.type.count.bit_length()))):
        less = x - period * times
        x = code.where(less >= 0, less, x)
    return x


def lanes_of(code: Code, number: Value, lanes: int) -> Value:
    """A number in so many integers of the size of a real one."""
    kind = ir.IntType(8 * code.size_of_real)
    narrow = code.builder.trunc(number.llvm, kind) if kind.width < 64 else number.llvm
    return code.repeat(Value(code, narrow), lanes)
