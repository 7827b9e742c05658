"""That a machine with hundreds of cores gets the same results, and nothing beside arrays is written, or read.

There stretches, blocks and chunks are narrow, or are fewer than threads; on two cores few shapes are cut so. The same
for views of larger arrays, whose axes lie apart in memory, in any order and direction.
"""

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import EPS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tridiag
from tridiag.backends import BACKENDS
from tridiag.kernels.jobs import recurrences, systems

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs mprotect, which this system does not have")

DTYPES = "float64", "float32"
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
    made = fenced_room(x.shape, x.dtype, behind)
    made[...] = x
    return made


def fenced_room(shape: Any, dtype: Any, behind: bool) -> np.ndarray:
    """Such memory, full of guards."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    for page in (address, address + mmap.PAGESIZE + size):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0) == 0
    start = mmap.PAGESIZE + (size - nbytes if behind else 0)
    room = np.frombuffer(memory, dtype, math.prod(shape), start).reshape(shape)
    room[...] = GUARD
    return room


@st.composite
def problems(draw: Any, dtype: str) -> tuple[list[np.ndarray], int, np.ndarray, int]:
    """Operands above `layout.WORTH_A_THREAD`, their axis, room with guards around the result, and where that begins."""
    beside = draw(st.one_of(st.integers(1, 70), st.sampled_from([100, 129, 500, 1000, 3000, 20_000])))
    before = draw(st.sampled_from([1, 1, 2, 5, 40]))
    rows = max(3, systems.WORTH_A_THREAD // (beside * before) + draw(st.integers(1, 20)))
    shape, axis = draw(st.sampled_from([((before, rows, beside), 1), ((before, beside, rows), 2), ((rows, beside), 0)]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    one = tuple(n if k == axis or not draw(st.booleans()) else 1 for k, n in enumerate(shape))
    a, c = rng.uniform(-0.9, 0.9, (2, *one)).astype(dtype)
    b, d = rng.uniform(2, 3, one).astype(dtype), rng.uniform(-1, 1, shape).astype(dtype)
    guards = [(0, 0)] * (len(shape) - 1) + [(draw(st.integers(0, 20)), draw(st.integers(0, 70)))]
    given = [fenced(x, draw(st.booleans())) for x in (a, b, c, d)]
    return given, axis, np.pad(np.full(shape, GUARD, dtype), guards, constant_values=GUARD), guards[-1][0]


@pytest.mark.parametrize(("name", "told"), CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
@MODEST
@given(data=st.data(), cores=st.sampled_from(CORES))
def test_many_cores(name: str, told: str, dtype: str, data: Any, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    operands, axis, room, begin = data.draw(problems(dtype))
    shape, call = operands[-1].shape, {**SOLVES, **SCANS}[told]
    inside = (..., slice(begin, begin + shape[-1]))
    monkeypatch.setattr(systems, "threads", lambda: 1)
    wanted = call(*operands, axis=axis, backend=name)
    monkeypatch.setattr(systems, "threads", lambda: cores)
    call(*operands, axis=axis, backend=name, out=room[inside])
    scale = 1 + abs(wanted).max()
    assert abs(room[inside] - wanted).max() <= 50 * EPS[str(room.dtype)] * scale
    room[inside] = GUARD
    assert (room == GUARD).all(), "what is beside the result was written"
    assert math.isfinite(scale)


# ------------------------------------------------------------------------------------------- views of larger arrays


class View(NamedTuple):
    """An array, and the memory in which it lies: with room behind each axis, in any order of axes, some turned."""

    array: np.ndarray
    room: np.ndarray


def drawn_view(draw: Any, shape: tuple[int, ...], dtype: str, order: list[int], turned: list[int]) -> View:
    """``order``: of the axes in memory, outermost first; ``turned``: -1 for those with negative strides."""
    if draw(st.integers(0, 11)) == 5:
        order, turned = draw(st.permutations(order)), draw(st.permutations(turned))
    behind, gaps = draw(st.booleans()), [draw(st.sampled_from([0, 0, 1, 2, 9])) for _ in shape]
    room = fenced_room([shape[k] + gaps[k] for k in order], dtype, behind)
    inside = [slice(gaps[k], None) if behind else slice(shape[k]) for k in order]  # it ends, or begins, with the room
    return View(room[tuple(inside)].transpose(np.argsort(order))[tuple(slice(None, None, k) for k in turned)], room)


def copied(view: View, x: np.ndarray) -> np.ndarray:
    view.array[...] = x
    return view.array


LENGTHS = st.sampled_from([2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 33, 64, 70])


@st.composite
def views(draw: Any, dtype: str) -> tuple[list[np.ndarray], int, View]:
    """Operands with up to three batch axes, which seldom merge; their axis; where the result goes."""
    batch = draw(st.one_of(*[st.tuples(*[LENGTHS] * k) for k in (1, 2, 2, 2, 3)]))
    rows = max(3, min(draw(st.sampled_from([3, 8, 9, 16, 17, 40, 257, 265, 530, 1100])), 50_000 // math.prod(batch)))
    axis, rank = draw(st.integers(0, len(batch))), 1 + len(batch)
    shape = (*batch[:axis], rows, *batch[axis:])
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    a, c = rng.uniform(-0.9, 0.9, (2, *shape)).astype(dtype)
    b, d = rng.uniform(2, 3, shape).astype(dtype), rng.uniform(-1, 1, shape).astype(dtype)
    constant = [k for k in range(rank) if k != axis and draw(st.sampled_from([False, False, True]))]
    whole = draw(st.booleans())  # or the matrix is constant along some axes, with strides of 0 or lengths of 1
    narrow = tuple(slice(1) if k in constant and not whole else slice(None) for k in range(rank))
    rows_last = [*(k for k in range(rank) if k != axis), axis]
    order = draw(st.one_of(st.just(rows_last), st.just([*range(rank)]), st.permutations(range(rank))))
    usual = order, [draw(st.sampled_from([1, 1, -1])) for _ in shape]
    given = [copied(drawn_view(draw, x.shape, dtype, *usual), x) for x in (a[narrow], b[narrow], c[narrow], d)]
    if draw(st.booleans()):
        given = [np.broadcast_to(x, shape) for x in given]
    return given, axis, drawn_view(draw, shape, dtype, *usual)


@pytest.mark.parametrize(("name", "told"), CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(MODEST, max_examples=25)
@given(data=st.data(), cores=st.sampled_from((1, *CORES)), caches=st.sampled_from([2**12, 2**15, 2**23]))
def test_views_that_do_not_merge(
    name: str, told: str, dtype: str, data: Any, cores: int, caches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small caches and threads at a hundredth of the size: every way to memory."""
    operands, axis, (out, room) = data.draw(views(dtype))
    call = {**SOLVES, **SCANS}[told]
    wanted = call(*map(np.ascontiguousarray, operands), axis=axis, backend=name)
    for module in (systems, recurrences):
        monkeypatch.setattr(module, "WORTH_A_THREAD", 1000)
    for module in (systems, recurrences):
        monkeypatch.setattr(module, "CACHES", caches)
        monkeypatch.setattr(module, "room_for_results", lambda: caches)
    monkeypatch.setattr(systems, "threads", lambda: cores)
    call(*operands, axis=axis, backend=name, out=out)
    scale = 1 + abs(wanted).max()
    assert abs(out - wanted).max() <= 50 * EPS[str(out.dtype)] * scale
    out[...] = GUARD
    assert (room == GUARD).all(), "what is beside the result was written"
    assert math.isfinite(scale)
