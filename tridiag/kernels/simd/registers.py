"""Rows of lanes in pieces of a register each."""

from __future__ import annotations

from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.vector import Code


def narrow(code: Code) -> list[tuple[Code, int]]:
    """Codes of the lanes of a register, and the first lane of each: what a row of lanes consists of.

    Where registers are narrow there are few of them, and one after the other needs no more.
    """
    lanes = min(code.lanes, bytes_of_register() // code.size_of_real)
    return [(code.of_lanes(lanes), first) for first in range(0, code.lanes, lanes)]
