"""Rows of lanes, one system in each lane, in scratch memory and in that of the caller, contiguous or side by side."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


@dataclass(frozen=True)
class Rows:
    """Rows of lanes in memory."""

    code: Code
    base: Value
    stride: Any
    spread: bool = False  # one number a row, for all lanes

    def __getitem__(self, i: Any) -> Any:
        at = self.base + i * self.stride
        return self.code.spread(at) if self.spread else self.code.load(at)

    def store(self, i: Any, x: Any, past_caches: bool = False) -> None:
        self.code.store(self.base + i * self.stride, x, past_caches)

    def of_lanes(self, code: Code, first: int) -> Rows:
        """The same of some lanes: those that ``code`` has, from one on."""
        moved = 0 if self.spread else first * code.size_of_real
        return Rows(code, self.base + moved, self.stride, self.spread)


@dataclass(frozen=True)
class Mask:
    """Rows of bytes."""

    code: Code
    base: Value
    stride: Any

    def __getitem__(self, i: Any) -> Value:
        return self.code.load_bytes(self.base + i * self.stride)

    def of_lanes(self, code: Code, first: int) -> Mask:
        """The same of some lanes: those that ``code`` has, from one on."""
        return Mask(code, self.base + first, self.stride)


def planes(code: Code, base: Value, count: int, length: Value) -> list[Rows]:
    """Arrays of ``length`` rows, one behind the other."""
    return [Rows(code, base + length * (k * code.row), code.row) for k in range(count)]


def cut(code: Code, a: Value, b: Value, c: Value, mask: Value, count: Value) -> None:
    """Take rows out of the bands: couplings to them are cut, their diagonal is 1."""
    bands, keep = [Rows(code, x, code.row) for x in (a, b, c)], Mask(code, mask, code.lanes)

    def row(i: Value, state: Any) -> Any:
        kept = keep[i]
        coupled = kept & keep[i - 1], kept, kept & keep[i + 1]
        for band, here, gone in zip(bands, coupled, (code.zero(), code.one(), code.zero()), strict=True):
            band.store(i, code.where(here, band[i], gone))
        return state

    code.fori(0, count, row)


def erase(code: Code, x: Value, mask: Value, mask_step: Value, count: Value) -> None:
    """Zero in the rows that are taken out."""
    rows, keep = Rows(code, x, code.row), Mask(code, mask, mask_step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(keep[i], rows[i], code.zero()))
        return state

    code.fori(0, count, row)


def merge(code: Code, *words: Value) -> None:
    """x = y in some lanes."""
    x, x_step, y, y_step, lanes, count = words
    rows, others, chosen = Rows(code, x, x_step), Rows(code, y, y_step), code.mask(lanes)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.where(chosen, others[i], rows[i]))
        return state

    code.fori(0, count, row)


def fill(number: float, code: Code, x: Value, step: Value, count: Value) -> None:
    rows = Rows(code, x, step)

    def row(i: Value, state: Any) -> Any:
        rows.store(i, code.splat(number))
        return state

    code.fori(0, count, row)


# planes of a pivoted tile: a, b, c, d; q0, q1, q2, multiplier (and three more of a cyclic tile); y, r, x; exponents
BANDS, RIGHT, UPPER, ITERATE, REST, BEST, ROW_SCALES, COLUMN_SCALES, PLANES = 0, 3, 4, 11, 12, 13, 14, 15, 16
SWEEPS = Library("sweeps")
CUT, MERGE, ERASE = SWEEPS.add("cut", cut), SWEEPS.add("merge", merge), SWEEPS.add("erase", erase)
ZERO, NAN = (
    SWEEPS.add("zero", functools.partial(fill, 0.0)),
    SWEEPS.add("nan", functools.partial(fill, float("nan"))),
)
