"""That a machine with hundreds of cores gets the same results, and nothing beside arrays is written, or read.

There stretches, blocks and chunks are narrow, or are fewer than threads; on two cores few shapes are cut so.
"""

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import EPS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tridiag
from tridiag import layout
from tridiag.backends import BACKENDS

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs mprotect, which this system does not have")

CORES = (2, 3, 8, 16, 64, 300)
GUARD = 7.0
MODEST = settings(
    deadline=None, derandomize=True, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
Call = Callable[..., np.ndarray]
SOLVES: dict[str, Call] = {
    "dominant": lambda a, b, c, d, **options: tridiag.solve(a, b, c, d, **options),
    "transposed": lambda a, b, c, d, **options: tridiag.solve(a, b, c, d, transpose=True, **options),
    "pivoted": lambda a, b, c, d, **options: tridiag.solve(a, b, c, d, pivoting=True, **options),
    "periodic": lambda a, b, c, d, **options: tridiag.solve(a, b, c, d, periodic=True, **options),
}
SCANS: dict[str, Call] = {
    "first order": lambda a, b, c, d, **options: tridiag.linear_recurrence(a, d, **options),
    "backwards": lambda a, b, c, d, **options: tridiag.linear_recurrence(a, d, reverse=True, **options),
    "second order": lambda a, b, c, d, **options: tridiag.linear_recurrence((a / 2, c / 2), d, **options),
    "logarithms": lambda a, b, c, d, **options: tridiag.log_linear_recurrence(a, d, **options),
    "logcumsumexp": lambda a, b, c, d, **options: tridiag.logcumsumexp(d, **options),
}
CALLS = [(name, told) for name in ("numba_thomas", "numba_partition") for told in SOLVES]
CALLS = [(name, told) for name, told in CALLS if told != "periodic" or BACKENDS[name].periodic]
CALLS += [("numba_scan", told) for told in SCANS]


def fenced(x: np.ndarray, behind: bool) -> np.ndarray:
    """A copy that ends, or begins, where memory does: what reads beyond it is killed."""
    size = -(-x.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    room = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
    address = np.frombuffer(room, np.uint8).ctypes.data
    for page in (address, address + mmap.PAGESIZE + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0) == 0
    made = np.frombuffer(room, x.dtype, x.size, mmap.PAGESIZE + (size - x.nbytes if behind else 0)).reshape(x.shape)
    made[...] = x
    return made


@st.composite
def problems(draw: Any) -> tuple[list[np.ndarray], int, np.ndarray, int]:
    """Operands above `layout.WORTH_A_THREAD`, their axis, room with guards around the result, and where that begins."""
    beside = draw(st.one_of(st.integers(1, 70), st.sampled_from([100, 129, 500, 1000, 3000, 20_000])))
    before = draw(st.sampled_from([1, 1, 2, 5, 40]))
    rows = max(3, layout.WORTH_A_THREAD // (beside * before) + draw(st.integers(1, 20)))
    shape, axis = draw(st.sampled_from([((before, rows, beside), 1), ((before, beside, rows), 2), ((rows, beside), 0)]))
    dtype, rng = draw(st.sampled_from(["float64", "float32"])), np.random.default_rng(draw(st.integers(0, 10**6)))
    one = tuple(n if k == axis or not draw(st.booleans()) else 1 for k, n in enumerate(shape))
    a, c = rng.uniform(-0.9, 0.9, (2, *one)).astype(dtype)
    b, d = rng.uniform(2, 3, one).astype(dtype), rng.uniform(-1, 1, shape).astype(dtype)
    guards = [(0, 0)] * (len(shape) - 1) + [(draw(st.integers(0, 20)), draw(st.integers(0, 70)))]
    given = [fenced(x, draw(st.booleans())) for x in (a, b, c, d)]
    return given, axis, np.pad(np.full(shape, GUARD, dtype), guards, constant_values=GUARD), guards[-1][0]


@pytest.mark.parametrize(("name", "told"), CALLS)
@MODEST
@given(problem=problems(), cores=st.sampled_from(CORES))
def test_many_cores(name: str, told: str, problem: Any, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operands, axis, room, begin = problem
    shape, call = operands[-1].shape, {**SOLVES, **SCANS}[told]
    inside = (..., slice(begin, begin + shape[-1]))
    monkeypatch.setattr(layout, "threads", lambda: 1)
    wanted = call(*operands, axis=axis, backend=name)
    monkeypatch.setattr(layout, "threads", lambda: cores)
    call(*operands, axis=axis, backend=name, out=room[inside])
    scale = 1 + abs(wanted).max()
    assert abs(room[inside] - wanted).max() <= 50 * EPS[str(room.dtype)] * scale
    room[inside] = GUARD
    assert (room == GUARD).all(), "what is beside the result was written"
    assert math.isfinite(scale)
