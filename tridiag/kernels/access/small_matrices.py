"""Small matrices, one in each lane: how they come from memory into lanes.

The numbers of a matrix, of a vector, or of a row of right sides lie side by side in memory; those of different systems
lie anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.access.operands import QUAD
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code


def gather(code: Code, base: Sequence[Value], count: int) -> list[Any]:
    """So many numbers side by side at the address of each lane, as rows of lanes."""
    rows = gather_reals(code, base, count * code.parts)
    return rows if code.parts == 1 else [Complex(*rows[k : k + 2]) for k in range(0, len(rows), 2)]


def gather_reals(code: Code, base: Sequence[Value], count: int) -> list[Value]:
    rows: list[Value] = []
    for first in range(0, count, QUAD):
        length = min(QUAD, count - first)
        places = [address + first * code.size_of_real for address in base]
        if length == 1:
            row = code.undefined(code.vector)
            for lane, place in enumerate(places):
                row = code.insert(row, code.load_as(code.real, place), lane)
            rows.append(row)
            continue
        pieces = [code.load_as(ir.VectorType(code.real, length), place) for place in places]
        if length == 3:
            pieces = [code.shuffle(piece, piece, [0, 1, 2, 2]) for piece in pieces]
        rows += in_lanes(code, pieces)[:length]
    return rows


def scatter(code: Code, base: Sequence[Value], values: Sequence[Any]) -> None:
    """The inverse."""
    rows = list(values) if code.parts == 1 else [part for x in values for part in (x.real, x.imag)]
    for first in range(0, len(rows), QUAD):
        some = rows[first : first + QUAD]
        places = [address + first * code.size_of_real for address in base]
        if len(some) == 1:
            for lane, place in enumerate(places):
                code.store_as(place, code.extract(some[0], lane))
            continue
        pieces = out_of_lanes(code, some if len(some) != 3 else [*some, some[2]])
        for place, piece in zip(places, pieces, strict=True):
            code.store_as(place, code.part(piece, 0, 3) if len(some) == 3 else piece)
