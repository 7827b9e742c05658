"""What a chunk does to a first-order recurrence: the product of its coefficients, and its last value from zero on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import scaled
from tridiag.algorithms.scaled import Scaled
from tridiag.libraries.numpy import Operations as ops

Array = np.ndarray[Any, Any]


class Summary(NamedTuple):
    """A chunk takes y to product * y + last; of logarithms, to logaddexp(sum + y, last)."""

    product: Any  # `Scaled`, or the sum of logarithms; None: of the first chunk, which has begun
    last: Array


def summary(coefficient: Array, rows: int, axis: int, last: Array, logarithms: bool) -> Summary:
    """Of a chunk of so many rows, along whose axis the coefficient may be constant, or which it may lack."""
    if coefficient.ndim == 0 or axis < 0:
        coefficient, axis = coefficient[None], 0
    if not logarithms:
        return Summary(product_along(coefficient, rows, axis), last)
    with np.errstate(all="ignore"):
        n = coefficient.shape[axis]
        return Summary(coefficient.sum(axis) * (1 if n == rows else rows), last)


def product_along(x: Array, rows: int, axis: int) -> Scaled:
    """The product of all rows, without their axis."""
    with np.errstate(all="ignore"):
        mantissa, exponent = scaled.product(ops, x.astype(np.result_type(x.dtype, np.float32), copy=False), rows, axis)
    return Scaled(np.squeeze(mantissa, axis), np.squeeze(exponent, axis))


def of_logarithm(sign: Any, logarithm: Any) -> Scaled:
    """sign exp(logarithm)."""
    sign, logarithm = np.asarray(sign), np.asarray(logarithm)
    finite = np.isfinite(logarithm)
    exponent = np.rint(np.where(finite, logarithm, 0).astype(float) / math.log(2))
    return Scaled(sign * np.exp(logarithm - exponent * math.log(2)).astype(logarithm.dtype), exponent)


def logarithm_of(x: Scaled) -> tuple[Array, Array]:
    """The sign, or the phase, and the logarithm of the size."""
    size = abs(x.mantissa)
    logarithm = np.log(size.astype(float)) + x.exponent * math.log(2)
    sign = x.mantissa / size if x.mantissa.dtype.kind == "c" else np.sign(x.mantissa)
    return np.where(size == 0, 0, sign).astype(x.mantissa.dtype), logarithm.astype(size.dtype)


def join(logarithms: bool, summaries: Sequence[Summary]) -> list[Array]:
    """A task: the value behind each chunk, of which the first has begun with the value before it."""
    values = [summaries[0].last]
    with np.errstate(all="ignore"):
        for product, last in summaries[1:]:
            before = values[-1]
            if logarithms:
                after = np.logaddexp(product + before, last)
            else:
                mantissa, power = scaled.split(ops, before)
                after = scaled.times_power(ops, product.mantissa * mantissa, product.exponent + power) + last
            values.append(np.asarray(after).astype(last.dtype, copy=False))
    return values
