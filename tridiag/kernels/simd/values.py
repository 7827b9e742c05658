"""What compiled code computes with, while it is written: values whose operators write instructions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

FUSED = ("contract",)  # a product and a sum may become one fused operation


class Value:
    """An LLVM value whose operators write code."""

    __slots__ = ("code", "llvm")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Any, llvm: Any) -> None:
        self.code, self.llvm = code, llvm  # ``code``: a `tridiag.kernels.simd.vector.Code`

    def _write(self, integer: str, floating: str, other: Any, swapped: bool = False) -> Value:
        other = self.code.like(self, other).llvm
        x, y = (other, self.llvm) if swapped else (self.llvm, other)
        builder = self.code.builder
        if is_integer(self.llvm.type):
            return Value(self.code, getattr(builder, integer)(x, y))
        return Value(self.code, getattr(builder, floating)(x, y, flags=FUSED if self.code.fused else ()))

    def __add__(self, other: Any) -> Value:
        return self._write("add", "fadd", other)

    def __sub__(self, other: Any) -> Value:
        return self._write("sub", "fsub", other)

    def __mul__(self, other: Any) -> Value:
        return self._write("mul", "fmul", other)

    def __rsub__(self, other: Any) -> Value:
        return self._write("sub", "fsub", other, swapped=True)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Value:
        return self._write("sdiv", "fdiv", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._write("sdiv", "fdiv", other, swapped=True)

    def __neg__(self) -> Value:
        return Value(self.code, self.code.builder.fneg(self.llvm))

    def __and__(self, other: Any) -> Value:
        return self._write("and_", "", other)

    def __or__(self, other: Any) -> Value:
        return self._write("or_", "", other)

    def __invert__(self) -> Value:
        return Value(self.code, self.code.builder.not_(self.llvm))

    def _compare(self, operator: str, other: Any) -> Value:
        other, builder = self.code.like(self, other).llvm, self.code.builder
        if is_integer(self.llvm.type):
            return Value(self.code, builder.icmp_signed(operator, self.llvm, other))
        compare = builder.fcmp_unordered if operator == "!=" else builder.fcmp_ordered
        return Value(self.code, compare(operator, self.llvm, other))

    def __lt__(self, other: Any) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._compare(">=", other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare("!=", other)


class Stored(Value):
    """One in memory, so many bytes behind a base: it is loaded wherever it is used, and has no register until then."""

    __slots__ = ("base", "kind", "offset")

    def __init__(self, code: Any, base: Value, offset: int, kind: Any = None) -> None:
        self.code, self.base, self.offset, self.kind = code, base, offset, kind or code.vector

    @property
    def llvm(self) -> Any:
        return self.code.load_as(self.kind, self.base + self.offset).llvm


class Complex:
    """A vector of complex numbers as two real vectors."""

    __slots__ = ("imag", "real")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag

    def __add__(self, other: Any) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Any) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Any) -> Complex:
        x, y = self, other
        if isinstance(y, float):
            return Complex(x.real * y, x.imag * y)
        return Complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)

    def __rmul__(self, other: float) -> Complex:
        return self * other

    def __truediv__(self, other: Complex) -> Complex:
        """Smith's formula, the larger component of the divisor first."""
        where, size = self.real.code.where, self.real.code.magnitude
        steep = size(other.imag) > size(other.real)
        large, small = where(steep, other.imag, other.real), where(steep, other.real, other.imag)
        first, second = where(steep, self.imag, self.real), where(steep, self.real, self.imag)
        ratio = small / large
        scale = large + small * ratio
        cross = second - first * ratio
        return Complex((first + second * ratio) / scale, where(steep, -cross, cross) / scale)

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def __eq__(self, other: Any) -> Any:
        return (self.real == other) & (self.imag == other)


def is_integer(kind: Any) -> bool:
    return isinstance(getattr(kind, "element", kind), ir.IntType)


def flatten(state: Any) -> list[Value]:
    if isinstance(state, Value):
        return [state]
    return [x for part in parts_of(state) for x in flatten(part)]


def rebuild(like: Any, values: Any) -> Any:
    if isinstance(like, Value):
        return next(values)
    made = [rebuild(part, values) for part in parts_of(like)]
    if isinstance(like, Complex):
        return Complex(*made)
    return like._make(made) if hasattr(like, "_make") else tuple(made)


def parts_of(state: Any) -> Any:
    return (state.real, state.imag) if isinstance(state, Complex) else tuple(state)
