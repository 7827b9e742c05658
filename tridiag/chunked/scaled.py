"""What a chunk does to a first-order recurrence: the product of its coefficients, and its last value begun from zero.

The product is a mantissa and an exponent of two: it may be far out of range where the sequence is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

ROWS = 64  # of which the mantissas can be multiplied in single precision, none of them below a half
FAR = 1 << 20  # an exponent that is out of range in every dtype, and after a sum of two as well

Array = np.ndarray[Any, Any]


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
            total = np.clip(exponent + power, -FAR, FAR).astype(np.int32)
            values.append((join_parts(np.asarray(product * mantissa), total) + last).astype(last.dtype, copy=False))
    return values
