"""Numbers as mantissa and exponent: products of many are far out of range where what they are multiplied with is not.

x = mantissa 2**exponent. Exponents are real numbers that are integers, in double precision whatever the mantissa is in:
sums of many are exact.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

Array = Any
TOGETHER = 16  # mantissas whose product is in range


class Scaled(NamedTuple):
    """mantissa 2**exponent."""

    mantissa: Array
    exponent: Array


def reach(ops: Any, x: Array) -> int:
    """The largest exponent of two whose inverse is a normal number."""
    return -round(math.log2(ops.limits(x.real)[1]))


def times_power(ops: Any, x: Array, exponent: Array) -> Array:
    """x 2**exponent, by steps none of which is out of range."""
    largest = 4 * (reach(ops, x) - 8)  # over- or underflows whatever it scales
    exponent = ops.converted(ops.clip(exponent, -largest, largest), x.real)
    quarter = ops.rint(exponent / 4)
    step = ops.power_of_two(quarter)
    return x * step * step * step * ops.power_of_two(exponent - 3 * quarter)


def split(ops: Any, x: Array) -> Scaled:
    """Numbers by mantissas of size 1/2 to 1 (a part of complex ones); those that are not finite stay."""
    exponent = exponent_of(ops, larger_part(ops, x))
    return Scaled(times_power(ops, x, -exponent), exponent)


def larger_part(ops: Any, x: Array) -> Array:
    """|x|, of complex numbers the larger one of their parts."""
    return abs(x) if x.real.dtype == x.dtype else ops.larger(abs(x.real), abs(x.imag))


def exponent_of(ops: Any, size: Array) -> Array:
    """e with x = m 2**e, m from 1/2 to 1; 0 of what is not finite."""
    exponent = ops.exponent_of(size)
    return ops.where(size - size == 0, exponent, ops.zero(exponent))


def product(ops: Any, x: Array, rows: int, axis: int) -> Scaled:
    """The product of all rows, of length 1 along the axis; x may be constant along it."""
    if x.shape[axis] != rows:
        return power(ops, split(ops, x), rows)
    exponent = ops.zero(ops.exponent_of(ops.slice(x, slice(0, min(rows, 1)), axis).real)).sum(axis)
    while x.shape[axis] != 1:
        if not in_range(ops, x):
            x, more = split(ops, x)
            exponent = exponent + more.sum(axis)
        x = grouped(ops, x, axis)
    x, more = split(ops, x)
    return Scaled(x, ops.unsqueeze(exponent, axis) + more)


def in_range(ops: Any, x: Array) -> bool:
    """Whether so many of these can be multiplied as they are."""
    if 0 in x.shape:
        return True
    limit = 2.0 ** (reach(ops, x) // (TOGETHER + 1))
    least, largest = ops.range_of_sizes(x)
    return bool(least >= 1 / limit and largest <= limit)


def grouped(ops: Any, x: Array, axis: int) -> Array:
    """Products of `TOGETHER` rows each, which are any, and the rows that are left."""
    n = x.shape[axis]
    count = n // TOGETHER
    if count == 0:
        return ops.unsqueeze(x.prod(axis), axis)
    whole = ops.slice(x, slice(0, count * TOGETHER), axis)
    whole = ops.reshape(whole, (*x.shape[:axis], TOGETHER, count, *x.shape[axis + 1 :])).prod(axis)
    return ops.concatenate([whole, ops.slice(x, slice(count * TOGETHER, n), axis)], axis)


def power(ops: Any, x: Scaled, count: int) -> Scaled:
    """x to a power, by repeated squares."""
    found = Scaled(ops.one(x.mantissa), ops.zero(x.exponent))
    while count:
        if count % 2:
            found = multiplied(ops, found, x)
        count //= 2
        x = multiplied(ops, x, x)
    return found


def multiplied(ops: Any, x: Scaled, y: Scaled) -> Scaled:
    """Their product."""
    mantissa, more = split(ops, x.mantissa * y.mantissa)
    return Scaled(mantissa, x.exponent + y.exponent + more)


def difference(ops: Any, x: Scaled, y: Scaled) -> Scaled:
    """x - y."""
    both = [ops.where(v.mantissa == 0, ops.zero(v.exponent) - 2.0**60, v.exponent) for v in (x, y)]
    common = ops.larger(*both)
    one, two = (times_power(ops, v.mantissa, e - common) for v, e in zip((x, y), both, strict=True))
    mantissa, more = split(ops, one - two)
    return Scaled(mantissa, ops.where(mantissa == 0, ops.zero(more), common + more))
