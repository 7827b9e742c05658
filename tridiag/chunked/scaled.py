"""Numbers as a mantissa and an exponent of two: products may be far out of range where what they are for is not.

What a chunk does to a first-order recurrence is such a product, of its coefficients, and its last value from zero on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

ROWS = 64  # of which the mantissas can be multiplied in single precision, none of them below a half
FAR = 1 << 20  # an exponent that is out of range in every dtype, and after a sum of two as well

Array = np.ndarray[Any, Any]


class Scaled(NamedTuple):
    """mantissa 2**exponent."""

    mantissa: Array
    exponent: Array

    @staticmethod
    def of(x: Array) -> Scaled:
        mantissa, exponent = split(x)
        return Scaled(mantissa, exponent.astype(np.int64))

    @staticmethod
    def of_logarithm(sign: Any, logarithm: Any) -> Scaled:
        """sign exp(logarithm)."""
        sign, logarithm = np.asarray(sign), np.asarray(logarithm)
        finite = np.isfinite(logarithm)
        exponent = np.where(finite, np.rint(np.where(finite, logarithm, 0).astype(float) / math.log(2)), 0)
        return Scaled(
            sign * np.exp(logarithm - exponent * math.log(2)).astype(logarithm.dtype), exponent.astype(np.int64)
        )

    def logarithm(self) -> tuple[Array, Array]:
        """The sign, or the phase, and the logarithm of the size."""
        size = abs(self.mantissa)
        logarithm = np.log(size.astype(float)) + self.exponent * math.log(2)
        sign = self.mantissa / size if self.mantissa.dtype.kind == "c" else np.sign(self.mantissa)
        return np.where(size == 0, 0, sign).astype(self.mantissa.dtype), logarithm.astype(size.dtype)

    def nothing(self) -> Scaled:
        """0 of the same shape."""
        return Scaled(np.zeros_like(self.mantissa), np.zeros_like(self.exponent))

    def negative(self) -> Scaled:
        return Scaled(-self.mantissa, self.exponent)

    def times(self, other: Scaled) -> Scaled:
        mantissa, more = split(np.asarray(self.mantissa * other.mantissa))
        return Scaled(mantissa, self.exponent + other.exponent + more)

    def minus(self, other: Scaled) -> Scaled:
        one, two = (np.where(x.mantissa == 0, -FAR * FAR, x.exponent) for x in (self, other))
        common = np.maximum(one, two)
        difference = moved(self.mantissa, one - common) - moved(other.mantissa, two - common)
        mantissa, more = split(np.asarray(difference))
        return Scaled(mantissa, np.where(mantissa == 0, 0, common + more))


def moved(x: Array, power: Array) -> Array:
    """x 2**power, for a power in any range."""
    return join_parts(np.asarray(x), np.clip(power, -FAR, FAR).astype(np.int32))


class Summary(NamedTuple):
    """A chunk takes y to product * y + last; of logarithms, to logaddexp(product + y, last)."""

    product: Array | None  # a mantissa, or the sum of logarithms; None: of the first chunk, which has begun
    exponent: Array | int
    last: Array


def summary(coefficient: Array, rows: int, axis: int, last: Array, logarithms: bool) -> Summary:
    """Of a chunk of so many rows, along whose axis the coefficient may be constant, or which it may lack."""
    a = np.moveaxis(coefficient, axis, 0) if coefficient.ndim and axis >= 0 else coefficient[None]
    a = np.broadcast_to(a, (rows, *a.shape[1:]))
    with np.errstate(all="ignore"):
        product, exponent = (a.sum(axis=0), 0) if logarithms else scaled_product(a)
    return Summary(product, exponent, last)


@np.errstate(all="ignore")
def scaled_product(a: Array) -> tuple[Array, Array]:
    """The product along the first axis: a mantissa and an exponent."""
    kind = np.result_type(a.dtype, np.float32)
    mantissa = np.ones(a.shape[1:], kind)
    exponent = np.zeros(a.shape[1:], np.int64)
    for first in range(0, len(a), ROWS):
        rows = a[first : first + ROWS].astype(kind, copy=False)
        product, powers = rows.prod(axis=0), 0
        if not in_range(rows, product):
            parts, own = split(rows)
            product, powers = parts.prod(axis=0), own.sum(axis=0, dtype=np.int64)
        product, power = split(product)
        mantissa, more = split(mantissa * product)
        exponent += power + more + powers
    return mantissa, exponent


def in_range(rows: Array, product: Array) -> bool:
    """Whether the products of so few rows overflow nowhere on the way, and lose no digits."""
    half = -np.finfo(rows.dtype).minexp / 2  # the bits that factors may gain together, and that products may lose
    largest, least = abs(rows).max(initial=0), abs(product).min(initial=1)
    return bool(largest <= 2 ** (half / ROWS) and least > 2**-half)


def split(x: Array) -> tuple[Array, Array]:
    """Mantissas and exponents; of complex numbers one exponent for both of their parts."""
    if x.dtype.kind != "c":
        mantissa, power = np.frexp(x)
        return mantissa, power
    _, power = np.frexp(np.maximum(abs(x.real), abs(x.imag)))
    return join_parts(x, -power), power


def join_parts(x: Array, power: Array) -> Array:
    """x * 2**power."""
    if x.dtype.kind != "c":
        return np.ldexp(x, power)
    found = np.empty(np.broadcast_shapes(x.shape, power.shape), x.dtype)
    found.real, found.imag = np.ldexp(x.real, power), np.ldexp(x.imag, power)
    return found


def join(logarithms: bool, summaries: Sequence[Summary]) -> list[Array]:
    """A task: the value behind each chunk, of which the first has begun with the value before it."""
    values = [summaries[0].last]
    with np.errstate(all="ignore"):
        for product, exponent, last in summaries[1:]:
            before = values[-1]
            if logarithms:
                values.append(np.logaddexp(product + before, last).astype(last.dtype, copy=False))
                continue
            mantissa, power = split(before)
            after = moved(np.asarray(product * mantissa), exponent + power) + last
            values.append(after.astype(last.dtype, copy=False))
    return values
