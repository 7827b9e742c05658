"""Layouts of rows, each by itself: what a sweep is given of each row, in which order, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import installed

if not installed("numba"):
    pytest.skip("needs numba, which is not installed", allow_module_level=True)

from tridiag.kernels.access import layouts
from tridiag.kernels.access.operands import QUAD
from tridiag.kernels.access.rows import Mask, Rows
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

from test_simd import REALS, lanes, written  # isort: skip

WEIGHTS = 1.0, 10.0, 100.0, 1000.0  # of the entries of a row: by the sum one sees which they were


class Sums:
    """A sweep whose state is the sum of all rows so far, and which stores it for each row; ``keep`` counts nothing."""

    registers = 2

    def __init__(self, code: Code, target: Any, stride: Any, between: Any = None) -> None:
        self.code, self.rows, self.between = code, Rows(code, target, stride), between

    def group(self, g: Value) -> Sums:
        """Of groups the sums of a row lie side by side, and each keeps its state behind the state of the one before."""
        places = self.rows.base + g * self.code.row, self.rows.stride, self.between + g * self.code.row
        return Sums(self.code, *places)

    def from_row(self, k: Value) -> Sums:
        return Sums(self.code, self.rows.base + k * self.rows.stride, self.rows.stride, self.between)

    def of_lanes(self, code: Code, first: int) -> Sums:
        return Sums(code, self.rows.of_lanes(code, first).base, self.rows.stride)

    def start(self) -> Any:
        return (self.code.zero() if self.between is None else self.code.load(self.between),)

    def step(self, state: Any, k: Value, keep: Value, *entries: Any) -> Any:
        (total,) = state
        for weight, x in zip(WEIGHTS, entries, strict=False):
            total = total + self.code.where(keep, x, self.code.zero()) * weight
        self.rows.store(k, total)
        return (total,)

    def solution(self, k: Value, state: Any) -> Any:
        return self.rows[k] + state[0] * 0.5

    def leave(self, state: Any) -> None:
        if self.between is not None:
            self.code.store(self.between, state[0])


def weighted(entries: Sequence[np.ndarray]) -> np.ndarray:
    """The sums of all rows so far, of entries (rows, lanes) each."""
    return np.cumsum(sum(w * x for w, x in zip(WEIGHTS, entries, strict=False)), 0)


def halves(x: np.ndarray) -> np.ndarray:
    """What `Sums.solution` makes of rows, last row first."""
    found = x.copy()
    for k in reversed(range(len(x) - 1)):
        found[k] += found[k + 1] / 2
    return found


def whole(count: int, wide: int, dtype: str) -> np.ndarray:
    """Small whole numbers, of which sums are exact."""
    return np.random.default_rng(count).integers(-4, 5, (count, wide)).astype(dtype)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("down", [True, False])
def test_views_take_rows_at_any_stride_and_leave_out_what_is_masked(dtype: str, down: bool) -> None:
    a, b = whole(14, lanes(dtype), dtype), whole(7, 2 * lanes(dtype), dtype)
    keep = np.random.default_rng(1).integers(0, 2, (7, lanes(dtype))).astype(np.int8)
    found = whole(7, lanes(dtype), dtype)
    before = found.copy()

    def body(code: Code, a: Value, b: Value, keep: Value, found: Value) -> None:
        bands = Rows(code, a, 2 * code.row), Rows(code, b, 2 * code.row)
        views = layouts.Views(code, bands, Mask(code, keep, code.lanes), lambda i: None)
        sweep, seven = Sums(code, found, code.row), code.integer(7)
        if down:
            views.down(code.integer(0), seven, sweep)
        else:
            views.up(sweep.rows, seven, sweep)

    written(body, dtype)(a, b, keep, found)
    if down:
        np.testing.assert_array_equal(found, weighted([a[::2] * keep, b[:, : lanes(dtype)] * keep]))
        return
    behind = np.zeros(lanes(dtype), dtype)
    for k in reversed(range(7)):
        behind = np.where(keep[k], before[k] + behind / 2, 0)
        np.testing.assert_allclose(found[k], behind, rtol=1e-6)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("count", [QUAD, 4 * QUAD])
def test_lines_are_turned_into_rows_and_moved(dtype: str, count: int) -> None:
    """Band c comes from a row later; a of the first row of all and c of the last one are zero."""
    wide = lanes(dtype)
    bands = [np.ascontiguousarray(whole(count + k, wide, dtype).T) for k in range(4)]  # a line for each lane
    bands[2] = np.ascontiguousarray(whole(count + 1, wide, dtype).T)  # of which row 0 is not read
    tables = np.array([[band.ctypes.data + lane * band.strides[0] for lane in range(wide)] for band in bands])
    found = np.zeros((count, wide), dtype)

    def body(code: Code, tables: Value, found: Value) -> None:
        zero, end = code.integer(0), code.integer(count)
        given = [SimpleNamespace(addresses=SimpleNamespace(lanes=tables + 8 * wide * k), ahead=zero) for k in range(4)]
        moves = zero, zero, code.integer(1), zero
        sweep = Sums(code, found, code.row)
        layouts.Contiguous(code, given, moves, (zero, end)).down(zero, end, sweep)

    written(body, dtype)(tables, found)
    a, b, c, d = (band.T[:count] for band in (bands[0], bands[1], bands[2][:, 1:], bands[3]))
    a, c = a.copy(), c.copy()
    a[0], c[-1] = 0, 0
    np.testing.assert_array_equal(found, weighted([a, b, c, d]))


@pytest.mark.parametrize("dtype", REALS)
def test_solutions_are_written_to_lines_last_row_first(dtype: str) -> None:
    count, wide = 3 * QUAD, lanes(dtype)
    kept, found = whole(count, wide, dtype), np.full((wide, count + 1), 7, dtype)
    table = np.array([found.ctypes.data + lane * found.strides[0] for lane in range(wide)])

    def body(code: Code, table: Value, kept: Value) -> None:
        output = SimpleNamespace(addresses=SimpleNamespace(lanes=table), ahead=code.integer(0))
        layouts.to_contiguous(code, output, code.integer(0), code.integer(count), Sums(code, kept, code.row))

    written(body, dtype)(table, kept)
    np.testing.assert_allclose(found[:, :count].T, halves(kept), rtol=1e-5, atol=1e-5)
    assert (found[:, count] == 7).all()


@pytest.mark.parametrize("past_caches", [True, False])
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("over", [0, 3])
def test_groups_that_lie_side_by_side(dtype: str, over: int, past_caches: bool) -> None:
    """The last group lies over a part of the one before it; groups go through each row in turn, and up again."""
    n, groups, wide = 5, 3, lanes(dtype)
    columns, itemsize = groups * wide - over, np.dtype(dtype).itemsize
    bands = [whole(n + k, columns, dtype)[:n] for k in range(4)]
    kept, states = np.zeros((n, groups * wide), dtype), np.zeros((groups, wide), dtype)
    memory = np.full((n * columns + 2 * LINE,), 7, dtype)
    begin = -memory.ctypes.data % LINE // itemsize if over == 0 else 1
    found = memory[begin : begin + n * columns].reshape(n, columns)

    def places(code: Code) -> tuple[Value, Value]:
        return code.integer(columns * itemsize), code.integer((columns - wide) * itemsize)

    def down(code: Code, a: Value, b: Value, c: Value, d: Value, kept: Value, states: Value) -> None:
        stride, most = places(code)
        given = [SimpleNamespace(stride=stride, lanes=[x]) for x in (a, b, c, d)]
        zero, end = code.integer(0), code.integer(n)
        layout = layouts.Interleaved(code, given, [zero] * 4, (most, end, code.integer(groups)), not past_caches)
        sweep = Sums(code, kept, code.integer(groups * LINE), states)
        for first, last in ((zero, code.integer(2)), (code.integer(2), end)):  # goes on where it was left
            layout.down(first, last, sweep.from_row(first))

    def up(code: Code, kept: Value, states: Value, found: Value) -> None:
        stride, most = places(code)
        sweep = Sums(code, kept, code.integer(groups * LINE), states)
        solution = layouts.solution_of_groups(sweep)
        count = code.integer(n)
        streams = past_caches and over == 0
        layouts.to_interleaved(streams, code, (found, stride, most), count, code.integer(groups), solution)

    written(down, dtype)(*bands, kept, states)
    a, b, c, d = (band.copy() for band in bands)
    a[0], c[-1] = 0, 0
    wanted = weighted([a, b, c, d])
    for g in range(groups):
        at = min(g * wide, columns - wide)
        np.testing.assert_array_equal(kept[:, g * wide : (g + 1) * wide], wanted[:, at : at + wide])
        np.testing.assert_array_equal(states[g], wanted[-1, at : at + wide])
    states[:] = 0
    written(up, dtype)(kept, states, found)
    np.testing.assert_allclose(found, halves(wanted), rtol=1e-5)
    outside = np.concatenate((memory[:begin], memory[begin + n * columns :]))
    assert (outside == 7).all()
