"""The kernels that make and read factors with stamps, called with memory of which nothing more may be touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tridiag
from tridiag.backends.numba_thomas import extents
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.systems import granted, make_job
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.table import call_of
from tridiag.problems.forms import Form

pytest.importorskip("numba")
from guarded.memory import Rooms, plain  # isort: skip

SHAPES = [(1, 40), (5, 6), (7, 33), (8, 20), (9, 20), (13, 31), (16, 5), (17, 33), (33, 7), (40, 7)]
BETWEEN = (None,) * 6  # logarithm, solution, gradients, relations


def drawn(shape: tuple[int, ...], dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    found = [rng.uniform(*of, shape) for of in ((-1, 1), (4, 5), (-1, 1), (-1, 1))]
    if np.dtype(dtype).kind == "c":
        found = [x + 0.3j * rng.uniform(-1, 1, shape) for x in found]
    return [x.astype(dtype) for x in found]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_beyond_factors_is_touched(shape: tuple[int, int], dtype: str, behind: bool, transpose: bool) -> None:
    """They have no padding, and what is next to them belongs to others."""
    rooms, (count, n), kind = Rooms(), shape, np.dtype(dtype)
    given = drawn(shape, dtype)
    a, b, c, d = (rooms.copy(x, plain(2, behind)) for x in given)
    for held in (a, b, c, d):
        held.lock()
    form = Form(shape, shape, 1)
    tiles = rooms.hold((count, 3 * n), dtype, plain(2, behind))
    stamps = rooms.hold((count,), "int64", plain(1, behind))
    kinds, status, x = (
        np.full(count, 9, np.uint8),
        np.zeros(count, np.int32),
        rooms.hold(shape, dtype, plain(2, behind)),
    )
    facts, sizes = extents((a.array, b.array, c.array, None, None, None))
    call = call_of(make_job, form, facts, sizes, (kind, kind), J.FACTORING, granted(form))
    matrix = a.array, b.array, c.array, None
    assert not call.run(*matrix, None, None, status, tiles.array, kinds, *BETWEEN, stamps.array)
    assert not status.any() and not (stamps.array & 1).any()
    before = tiles.array.copy(), stamps.array.copy()
    own = (shape, contiguous(shape, kind.itemsize))
    facts, sizes = (*facts[:4], own[0], own[0]), (*sizes[:4], own[1], own[1])
    turned = form._replace(transpose=transpose)
    call = call_of(make_job, turned, facts, sizes, (kind, kind), J.FACTORED, granted(form))
    assert not call.run(*matrix, d.array, x.array, None, tiles.array, None, *BETWEEN, stamps.array)
    wanted = tridiag.solve(*given, transpose=transpose)
    assert abs(x.array - wanted).max() <= 16 * np.finfo(dtype).eps * abs(wanted).max()
    for was, held in zip(before, (tiles, stamps), strict=True):
        np.testing.assert_array_equal(was, held.array)
    assert not any(held.written_beside() for held in (tiles, stamps, x))
    rooms.give_back()
