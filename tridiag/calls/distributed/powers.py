"""Products of many coefficients, as mantissa and exponent: they overflow where the sequences do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tridiag.libraries.torch import Operations as ops

TOGETHER = 16  # mantissas whose product is in range
LARGEST = {torch.float32: 480, torch.float64: 4000}  # an exponent beyond it over- or underflows whatever it scales


class Scaled(NamedTuple):
    """mantissa 2**exponent; the exponent is a real number that is an integer."""

    mantissa: Any
    exponent: Any

    def times(self, x: Any) -> Any:
        """The product with a number, in range where that is."""
        return times_power(self.mantissa * x, self.exponent)


def times_power(x: Any, exponent: Any) -> Any:
    """x 2**exponent, by steps none of which is out of range."""
    limit = LARGEST[exponent.dtype]
    exponent = exponent.clamp(-limit, limit)
    quarter = (exponent / 4).trunc()
    step = ops.power_of_two(quarter)
    return x * step * step * step * ops.power_of_two(exponent - 3 * quarter)


def split(x: Any) -> Scaled:
    """Numbers by mantissas of size 1/2 to 1 (a part of complex ones); those that are not finite stay."""
    size = torch.maximum(x.real.abs(), x.imag.abs()) if x.is_complex() else x.abs()
    exponent = torch.frexp(size).exponent.to(size.dtype)
    exponent = torch.where(torch.isfinite(size), exponent, 0)
    return Scaled(times_power(x, -exponent), exponent)


def product(x: Any, rows: int, axis: int) -> Scaled:
    """The product of all rows, of length 1 along the axis; x may be constant along it."""
    if x.shape[axis] != rows:
        return power(split(x), rows)
    mantissa, exponent = split(x.movedim(axis, -1))
    exponent = exponent.sum(-1, keepdim=True)
    while mantissa.shape[-1] > 1:
        filled = -mantissa.shape[-1] % TOGETHER
        groups = torch.cat([mantissa, mantissa.new_ones((*mantissa.shape[:-1], filled))], -1)
        mantissa, more = split(groups.unflatten(-1, (-1, TOGETHER)).prod(-1))
        exponent = exponent + more.sum(-1, keepdim=True)
    return Scaled(mantissa.movedim(-1, axis), exponent.movedim(-1, axis))


def power(x: Scaled, count: int) -> Scaled:
    """x to a power, by repeated squares."""
    found = Scaled(torch.ones_like(x.mantissa), torch.zeros_like(x.exponent))
    while count:
        if count % 2:
            found = multiplied(found, x)
        count //= 2
        x = multiplied(x, x)
    return found


def multiplied(x: Scaled, y: Scaled) -> Scaled:
    mantissa, more = split(x.mantissa * y.mantissa)
    return Scaled(mantissa, x.exponent + y.exponent + more)
