"""Products and sums rounded once, and what takes their place on processors that have no instruction for them.

There LLVM's ``fma`` is a call of a function for every single number, many times as long as the product itself.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tridiag.kernels.simd.processor import multiplies_and_adds
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

LOWER = {4: 12, 8: 27}  # by the bytes of a real: the bits of a mantissa that its upper half is without


def fused(code: Code, x: Value, y: Any, z: Value) -> Value:
    """x y + z, rounded once where that is one instruction, else the product too."""
    y, z = code.like(x, y), code.like(x, z)
    if multiplies_and_adds(code.size_of_real):
        return code.call("fma", x, y, z)
    return x * y + z


def remainder(code: Code, x: Value, y: Any, z: Value) -> Value:
    """x y + z for z close to -x y: no digit of the product is lost."""
    y, z = code.like(x, y), code.like(x, z)
    if multiplies_and_adds(code.size_of_real):
        return code.call("fma", x, y, z)
    product, error = product_and_error(code, x, y)
    return (product + z) + error


def inverse(code: Code, x: Value) -> tuple[Value, Value]:
    """1 / x in two numbers, the first of half as many digits."""
    high, (upper, lower) = halves(code, 1.0 / x)[0], halves(code, x)
    return high, ((1.0 - high * upper) - high * lower) / x


def multiple_less(x: Value, k: Value, y: tuple[Any, Any]) -> Value:
    """x - k y for the whole number k that is next to x / y: no digits of x are lost.

    Without fused operations, for a y in two numbers, the first of so few digits that its product with k is exact.
    """
    high, low = y
    return (x - k * high) - k * low


def product_and_error(code: Code, x: Value, y: Any) -> tuple[Value, Value]:
    """A rounded product of finite numbers, and what is lost by that (Dekker); where ``fma`` is no instruction."""
    y = code.like(x, y)
    (x_high, x_low), (y_high, y_low) = halves(code, x), halves(code, y)
    product = x * y
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def halves(code: Code, x: Value) -> tuple[Value, Value]:
    """x as a sum of two numbers of half as many digits, whose products are not rounded."""
    width = ir.VectorType(ir.IntType(8 * code.size_of_real), x.llvm.type.count)
    upper = Value(code, code.builder.bitcast(x.llvm, width)) & -(1 << LOWER[code.size_of_real])
    high = Value(code, code.builder.bitcast(upper.llvm, x.llvm.type))
    return high, x - high
