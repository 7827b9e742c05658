"""Single entries of rows of lanes, in nopython code."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from tridiag.kernels.simd.compiled import OPTIONS
from tridiag.kernels.simd.vector import I64, LINE


@intrinsic
def entry(typing, address, like):
    """One entry of a row of lanes, of the type of ``like``; the imaginary part is a line behind the real part."""

    def generate(context, builder, signature, args):
        real = context.get_value_type(getattr(like, "underlying_float", like))
        parts = []
        for k in range(2 if like in types.complex_domain else 1):
            at = builder.add(args[0], ir.Constant(I64, k * LINE))
            parts.append(builder.load(builder.inttoptr(at, real.as_pointer())))
        if len(parts) == 1:
            return parts[0]
        made = context.make_complex(builder, like)
        made.real, made.imag = parts
        return made._getvalue()

    return like(types.int64, like), generate


def unit(zero):
    """One."""


@overload(unit, jit_options=OPTIONS)
def _unit(zero):
    one = np.dtype(str(zero)).type(1)
    return lambda zero: one


def turn(sign, pivot):
    """sign times pivot / |pivot|, which neither overflows nor is subnormal; 0 for 0."""


@overload(turn, jit_options=OPTIONS)
def _turn(sign, pivot):
    if isinstance(pivot, types.Complex):
        make = np.dtype(str(pivot)).type
        return lambda sign, pivot: make(sign * (pivot * (1 / abs(pivot))) if abs(pivot) > 0 else sign * pivot)
    return lambda sign, pivot: -sign if pivot < 0 else (sign if pivot > 0 else pivot)
