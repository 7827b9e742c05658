"""A small vector language over LLVM: functions that run once, while a kernel is compiled, and write its inner loops.

A `Value` holds what the machine will hold: an address or a count (an int64), one vector of lanes, or a mask over the
lanes. Its operators write instructions. `fori` writes a loop, with the state that it carries in registers, as
`jax.lax.fori_loop` does. A complex vector is a pair of real ones (`Complex`). So the steps of
`tridiag.algorithms.elimination`, which ask for no more than operators and ``ops.where``, run here as they do on NumPy
rows. What they write is straight SIMD code, which LLVM neither has to find by itself nor can miss. One vector is LINE
bytes, a cache line; where registers are narrower, LLVM splits it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from tridiag.kernels.simd import interrupts
from tridiag.kernels.simd.processor import first_level_is_large
from tridiag.kernels.simd.values import Complex, Value, flatten, rebuild

LINE = 64
I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)


class Code:
    """What the functions of this language are given: the builder, the dtype, and the operations that are no operators.

    It serves as the ``ops`` of `tridiag.algorithms.elimination`.
    """

    def __init__(self, builder: Any, dtype: str) -> None:
        real = np.dtype(dtype).type(0).real.dtype
        self.builder = builder
        self.fused = True  # False: every operation rounds, as in LAPACK
        self.depth = 0  # of the loop that is being written
        self.dtype = dtype
        self.parts = 2 if np.dtype(dtype).kind == "c" else 1  # vectors in a row of lanes
        self.size_of_real = real.itemsize
        self.lanes = LINE // real.itemsize
        self.real = ir.DoubleType() if real.itemsize == 8 else ir.FloatType()
        self.vector = ir.VectorType(self.real, self.lanes)
        self.row = LINE * self.parts  # bytes of a row of lanes
        self.eps, self.tiny = float(np.finfo(real).eps), float(np.finfo(real).tiny)

    def of_lanes(self, count: int) -> Code:
        """What writes the same for so many lanes: the first of a row, or some rows side by side as one vector."""
        made = Code(self.builder, self.dtype)
        made.fused, made.depth = self.fused, self.depth
        made.lanes, made.vector = count, ir.VectorType(self.real, count)
        return made

    # ------------------------------------------------------------------------------------------- constants

    def like(self, x: Value, other: Any) -> Value:
        """A Python number as a constant of the type of ``x``."""
        return other if isinstance(other, Value) else Value(self, self.constant(x.llvm.type, other))

    def constant(self, kind: Any, number: float) -> Any:
        if isinstance(kind, ir.VectorType):
            return ir.Constant(kind, [self.constant(kind.element, number)] * kind.count)
        return ir.Constant(kind, int(number) if isinstance(kind, ir.IntType) else float(number))

    def integers(self, numbers: Sequence[int]) -> Value:
        """A vector of int64."""
        return Value(self, ir.Constant(ir.VectorType(I64, len(numbers)), list(numbers)))

    def integer(self, number: int) -> Value:
        return Value(self, ir.Constant(I64, number))

    def real_zero(self) -> Value:
        return Value(self, self.constant(self.vector, 0.0))

    def splat(self, number: float) -> Any:
        x = Value(self, self.constant(self.vector, number))
        return x if self.parts == 1 else Complex(x, self.real_zero())

    def all_lanes(self) -> Value:
        return Value(self, self.constant(ir.VectorType(I1, self.lanes), 1))

    # ------------------------------------------------------------------------------------------- elementwise

    def zero(self, x: Any = None) -> Any:
        return self.splat(0.0)

    def one(self, x: Any = None) -> Any:
        return self.splat(1.0)

    def limits(self, x: Any = None) -> tuple[float, float]:
        return self.eps, self.tiny

    def where(self, mask: Value, x: Any, y: Any) -> Any:
        if isinstance(x, Complex):
            return Complex(self.where(mask, x.real, y.real), self.where(mask, x.imag, y.imag))
        return Value(self, self.builder.select(mask.llvm, x.llvm, y.llvm))

    def size(self, x: Any) -> Value:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return self.magnitude(x.real) + self.magnitude(x.imag) if isinstance(x, Complex) else self.magnitude(x)

    def magnitude(self, x: Value) -> Value:
        return self.call("fabs", x)

    def quotient(self, x: Any, y: Any) -> Any:
        """x / y, at the ends of the range as well, where Smith's formula leaves no digits, or overflows."""
        if not isinstance(y, Complex):
            return x / y
        usual, large, less, more = (
            Value(self, self.constant(self.vector, k)) for k in (0.25, 1 / self.eps, self.eps, 4.0)
        )
        small = [self.size(z) < self.tiny / self.eps for z in (x, y)]
        above, below = (self.where(where, large, usual) for where in small)
        ratio = Complex(x.real * above, x.imag * above) / Complex(y.real * below, y.imag * below)
        back = self.where(small[0], less, more)
        return Complex(ratio.real * below * back, ratio.imag * below * back)

    def maximum(self, x: Value, y: Any) -> Value:
        return self.call("maxnum", x, self.like(x, y))

    def call(self, name: str, *arguments: Value) -> Value:
        """An LLVM intrinsic on vectors, or on single numbers."""
        kind = arguments[0].llvm.type
        count = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        symbol = f"llvm.{name}.{count}f{8 * self.size_of_real}"
        function = self.builder.module.globals.get(symbol)
        if function is None:
            function = ir.Function(self.builder.module, ir.FunctionType(kind, [kind] * len(arguments)), symbol)
        return Value(self, self.builder.call(function, [x.llvm for x in arguments]))

    def pick(self, condition: Value, x: Value, y: Value) -> Value:
        """One of two integers."""
        return Value(self, self.builder.select(condition.llvm, x.llvm, y.llvm))

    def shift(self, x: Value, by: int) -> Value:
        """An integer shifted to the left, or to the right where ``by`` is negative."""
        amount = self.constant(x.llvm.type, abs(by))
        return Value(self, (self.builder.shl if by > 0 else self.builder.lshr)(x.llvm, amount))

    def power(self, k: Value) -> Value:
        """Two to an integer power."""
        return Value(self, self.builder.shl(ir.Constant(I64, 1), k.llvm))

    def everywhere(self, condition: Value) -> Value:
        """A condition as a mask."""
        return self.repeat(condition, self.lanes)

    def split(self, x: Value) -> tuple[Value, Value]:
        """Positive normal numbers as the integer e and m with 1 <= m < 2, x = m 2**e."""
        digits, bias = (52, 1023) if self.size_of_real == 8 else (23, 127)
        kind = ir.VectorType(ir.IntType(8 * self.size_of_real), self.lanes)
        bits, one = Value(self, self.builder.bitcast(x.llvm, kind)), self.builder.bitcast(self.splat(1.0).llvm, kind)
        mantissa = (bits & (2**digits - 1)) | Value(self, one)
        return self.shift(bits, -digits) - bias, Value(self, self.builder.bitcast(mantissa.llvm, self.vector))

    def to_real(self, x: Value) -> Value:
        """A vector of integers, or a mask as 0 and 1, as numbers."""
        convert = self.builder.uitofp if x.llvm.type.element == I1 else self.builder.sitofp
        return Value(self, convert(x.llvm, self.vector))

    def bits(self, mask: Value) -> Value:
        """A mask as an integer, lane 0 in the lowest bit."""
        narrow = self.builder.bitcast(mask.llvm, ir.IntType(self.lanes))
        return Value(self, self.builder.zext(narrow, I64))

    def mask(self, bits: Value) -> Value:
        narrow = self.builder.trunc(bits.llvm, ir.IntType(self.lanes))
        return Value(self, self.builder.bitcast(narrow, ir.VectorType(I1, self.lanes)))

    def product(self, x: Any, y: Any) -> Any:
        """A product that is rounded, so that another product of the same sum is fused."""
        fused, self.fused = self.fused, False
        result = x * y
        self.fused = fused
        return result

    # ------------------------------------------------------------------------------------------- memory

    def pointer(self, address: Value, kind: Any) -> Any:
        return self.builder.inttoptr(address.llvm, kind.as_pointer())

    def load_as(self, kind: Any, address: Value) -> Value:
        loaded = self.builder.load(self.pointer(address, kind))
        loaded.align = 1
        return Value(self, loaded)

    def store_as(self, address: Value, value: Value, past_caches: bool = False) -> None:
        """``past_caches``: to memory that nobody reads soon, at an address where a cache line begins."""
        done = self.builder.store(value.llvm, self.pointer(address, value.llvm.type))
        done.align = LINE if past_caches else 1
        if past_caches:
            one = self.builder.module.add_metadata([ir.Constant(I32, 1)])
            done.set_metadata("nontemporal", one)

    def load_some(self, address: Value, mask: Value) -> Value:
        """Lanes of a vector at an address, 0 in the others, whose memory need not be mapped."""
        operands = [self.pointer(address, self.vector), ir.Constant(I32, 1), mask.llvm, self.real_zero().llvm]
        return Value(self, self.builder.call(self.masked("load", self.vector, operands), operands))

    def store_some(self, address: Value, value: Value, mask: Value) -> None:
        operands = [value.llvm, self.pointer(address, self.vector), ir.Constant(I32, 1), mask.llvm]
        self.builder.call(self.masked("store", ir.VoidType(), operands), operands)

    def masked(self, name: str, result: Any, operands: list[Any]) -> Any:
        symbol = f"llvm.masked.{name}.v{self.lanes}f{8 * self.size_of_real}.p0"
        function = self.builder.module.globals.get(symbol)
        if function is None:
            function = ir.Function(self.builder.module, ir.FunctionType(result, [x.type for x in operands]), symbol)
        return function

    def word(self, address: Value) -> Value:
        """The int64 at an address."""
        return self.load_as(I64, address)

    def load(self, address: Value) -> Any:
        """A row of lanes."""
        first = self.load_as(self.vector, address)
        return first if self.parts == 1 else Complex(first, self.load_as(self.vector, address + LINE))

    def store(self, address: Value, x: Any, past_caches: bool = False) -> None:
        """``past_caches``: as in `store_as`."""
        if isinstance(x, Complex):
            self.store_as(address, x.real, past_caches)
            self.store_as(address + LINE, x.imag, past_caches)
        else:
            self.store_as(address, x, past_caches)

    def load_bytes(self, address: Value) -> Value:
        """The mask over the lanes that one byte each at an address holds."""
        return self.load_as(ir.VectorType(I8, self.lanes), address) != 0

    def store_bytes(self, address: Value, mask: Value) -> None:
        self.store_as(address, self.widen(mask))

    def widen(self, mask: Value) -> Value:
        return Value(self, self.builder.zext(mask.llvm, ir.VectorType(I8, self.lanes)))

    def store_pair(self, address: Value, low: Value, high: Value) -> None:
        """Two masks in the bits of a byte a lane."""
        self.store_as(address, self.widen(low) + self.widen(high) * 2)

    def load_pair(self, address: Value) -> tuple[Value, Value]:
        both = self.load_as(ir.VectorType(I8, self.lanes), address)
        return (both & 1) != 0, (both & 2) != 0

    def prefetch(self, address: Value, write: bool = False, near: bool = False) -> None:
        """Ask for the cache line at an address, which need not be mapped.

        ``near``: of one stream of memory, read in order. What lanes far from each other read, a group or some rows
        ahead of use, displaces what they use from a small cache, and so goes to the second level there.
        """
        byte = I8.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        function = self.builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        options = [ir.Constant(I32, k) for k in (int(write), 3 if near or first_level_is_large() else 2, 1)]
        self.builder.call(function, [self.builder.inttoptr(address.llvm, byte), *options])

    # ------------------------------------------------------------------------------------------- lanes

    def spread(self, address: Value) -> Any:
        """One number in memory to all lanes."""
        parts = [self.spread_part(address, k) for k in range(self.parts)]
        return parts[0] if self.parts == 1 else Complex(*parts)

    def spread_part(self, address: Value, part: int) -> Value:
        return self.repeat(self.load_as(self.real, address + part * self.size_of_real), self.lanes)

    def repeat(self, scalar: Value, count: int) -> Value:
        empty = ir.Constant(ir.VectorType(scalar.llvm.type, count), ir.Undefined)
        single = self.builder.insert_element(empty, scalar.llvm, ir.Constant(I32, 0))
        return self.shuffle(Value(self, single), Value(self, single), [0] * count)

    def shuffle(self, x: Value, y: Value, order: Sequence[int]) -> Value:
        mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        return Value(self, self.builder.shuffle_vector(x.llvm, y.llvm, mask))

    def join(self, x: Value, y: Value) -> Value:
        """Two vectors end to end."""
        return self.shuffle(x, y, range(2 * x.llvm.type.count))

    def part(self, x: Value, first: int, count: int) -> Value:
        return self.shuffle(x, x, range(first, first + count))

    def insert(self, x: Value, scalar: Value, lane: int) -> Value:
        return Value(self, self.builder.insert_element(x.llvm, scalar.llvm, ir.Constant(I32, lane)))

    def extract(self, x: Value, lane: int) -> Value:
        return Value(self, self.builder.extract_element(x.llvm, ir.Constant(I32, lane)))

    def undefined(self, kind: Any) -> Value:
        return Value(self, ir.Constant(kind, ir.Undefined))

    # ------------------------------------------------------------------------------------------- control

    def fori(self, first: Any, last: Any, body: Callable[[Value, Any], Any], state: Any = (), step: int = 1) -> Any:
        """for i in range(first, last, step): state = body(i, state); the state is a tuple, nested as it likes.

        A loop in no other one, of any number of rows, may end early, after a PIECE of them: see `interrupts`.
        """
        zero = self.integer(0)
        first, last, start = self.like(zero, first), self.like(zero, last), flatten(state)
        if self.depth or all(isinstance(x.llvm, ir.Constant) for x in (first, last)):
            return rebuild(state, iter(self._rows(first, last, body, state, start, step)[0]))
        builder, before = self.builder, self.builder.block
        piece, go_on, end = (builder.function.append_basic_block(f"rows.{name}") for name in ("piece", "more", "left"))
        builder.branch(piece)
        builder.position_at_end(piece)
        phis = [builder.phi(x.llvm.type) for x in (first, *start)]
        for phi, x in zip(phis, (first, *start), strict=True):
            phi.add_incoming(x.llvm, before)
        i, *begin = (Value(self, phi) for phi in phis)
        stop = i + interrupts.PIECE * step
        reached = stop < last if step > 0 else stop > last
        stop = Value(self, builder.select(reached.llvm, stop.llvm, last.llvm))
        self.depth += 1
        found, i = self._rows(i, stop, body, rebuild(state, iter(begin)), begin, step)
        self.depth -= 1
        asking = builder.function.append_basic_block("rows.check")
        builder.cbranch((i < last if step > 0 else i > last).llvm, asking, end).set_weights([1, 1000])
        builder.position_at_end(asking)
        interrupts.leave_or_go_on(builder, end, go_on)
        builder.position_at_end(go_on)
        for phi, x in zip(phis, (i, *found), strict=True):
            phi.add_incoming(x.llvm, go_on)
        builder.branch(piece)
        builder.position_at_end(end)
        return rebuild(state, iter(found))

    def _rows(self, first: Value, last: Value, body: Any, state: Any, start: list[Value], step: int) -> Any:
        """Such a loop without an early end: its state, flat, and the first i that it does not reach."""
        builder, before = self.builder, self.builder.block
        function = builder.function
        head, inside, after = (function.append_basic_block(f"rows.{name}") for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(I64)
        index.add_incoming(first.llvm, before)
        phis = [builder.phi(x.llvm.type) for x in start]
        for phi, x in zip(phis, start, strict=True):
            phi.add_incoming(x.llvm, before)
        carried = [Value(self, phi) for phi in phis]
        i = Value(self, index)
        builder.cbranch((i < last if step > 0 else i > last).llvm, inside, after)
        builder.position_at_end(inside)
        new = flatten(body(i, rebuild(state, iter(carried))))
        for phi, x in zip(phis, new, strict=True):
            phi.add_incoming(x.llvm, builder.block)
        index.add_incoming((i + step).llvm, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return carried, i
