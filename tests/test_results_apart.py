"""Recurrences whose results lie anywhere, by `numba_scan`: neighbours are joined in scratch memory, and then copied."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits

import tridiag
from tridiag.kernels.jobs import recurrences as jobs
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.problems.forms import Recurrence

pytest.importorskip("numba")

SHAPES = (  # end to end; in pieces; with few steps left over; long; one stream in pieces; three axes
    (40, 3), (40, 13), (700, 9), (5, 5000), (17, 70), (1, 30_000), (3, 2600), (9, 9001), (3, 7, 21), (2, 3, 6000),
)  # fmt: skip
LAYOUTS = 7


def room_for(shape: tuple[int, ...], dtype: str, layout: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory full of sevens, and a view of some of it: side by side along the batch, backwards, among others."""
    *batch, n = shape
    room = np.full((*batch, 2 * n + 1), 7, dtype)
    if layout == 0:
        room = np.full((n + 2, *batch[::-1]), 7, dtype)
        return room, room[1:-1].T
    if layout == 6:
        room = np.full((n, *batch, 2), 7, dtype)
        return room, np.moveaxis(room[..., 1], 0, -1)
    views = room[..., 1::2], room[..., n : 2 * n], room[..., n:0:-1], room[::-1, ..., -1:0:-2], room[..., 1 : n + 1]
    return room, views[layout - 1]


def coefficients(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> list[Any]:
    kind = np.dtype(dtype).type
    own, growing = (rng.uniform(-1, 1, shape) * size for size in (1, 1.5))
    return [kind(1), kind(0.9), (kind(1.2), kind(-0.5)), own.astype(dtype), growing.astype(dtype)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_result_is_the_same_wherever_it_lies(dtype: str) -> None:
    """To the last bit, whatever joins its steps; and nothing beside it is written."""
    rng = np.random.default_rng(3)
    for (k, shape), reverse in itertools.product(enumerate(SHAPES), (False, True)):
        x = rng.standard_normal(shape).astype(dtype)
        if k % 3 == 1:
            x[(0,) * (len(shape) - 1)][shape[-1] // 2] = np.inf
        init = rng.standard_normal(shape[:-1]).astype(dtype)
        for a, before in itertools.product(coefficients(rng, shape, dtype), (None, init)):
            before = (before, -before) if type(a) is tuple and before is not None else before
            with np.errstate(all="ignore"):
                wanted = tridiag.linear_recurrence(a, x, before, reverse=reverse, backend="numba_scan")
            for layout in range(LAYOUTS):
                room, out = room_for(shape, dtype, layout)
                spared = room.size - out.size
                found = tridiag.linear_recurrence(a, x, before, reverse=reverse, out=out, backend="numba_scan")
                assert found is out
                if len(shape) == 2 or k % 3 != 1:  # sequences beside one that is not finite may be joined or not
                    assert_same_bits(out, wanted)
                out[...] = 7
                assert (room == 7).all() and room.size - out.size == spared


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("a", [(0.5,), (1, 0.25)])
def test_pieces_of_a_long_result_depend_on_no_threads(dtype: str, a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tridiag.calls.fast_path import forget
    from tridiag.kernels.jobs import systems

    rng = np.random.default_rng(4)
    for shape in ((1, 300_001), (2, 70_000), (9001, 13), (130, 1100)):
        x = rng.standard_normal(shape).astype(dtype)
        factors = tuple(np.dtype(dtype).type(w) for w in a) if len(a) > 1 else rng.uniform(-1, 1, shape).astype(dtype)
        for threads in (1, 2, 3):
            monkeypatch.setattr(systems, "threads", lambda threads=threads: threads)
            forget()
            wanted = tridiag.linear_recurrence(factors, x, backend="numba_scan")
            for layout in range(LAYOUTS):
                _, out = room_for(shape, dtype, layout)
                tridiag.linear_recurrence(factors, x, out=out, backend="numba_scan")
                assert_same_bits(out, wanted)
    forget()


def test_what_joins_the_steps_of_such_results() -> None:
    """Constant coefficients, end to end or not, streams, and blocks of long sequences: all are tried above."""

    def facts(shape: tuple[int, int], constant: bool, workers: int = 1) -> tuple[str, int, int]:
        x, out = np.empty(shape), np.empty((*shape, 2))[..., 0]
        a = np.broadcast_to(0.5, (1, 1)) if constant else x
        given = out, x, a
        shapes, strides = [v.shape for v in given], [v.strides for v in given]
        job = jobs.make_job(Recurrence(shape, 1), 1, shapes, strides, x.dtype, workers)
        words = C.Recurrences.view(job.words)
        flags = int(words.flags)
        return job.kernel[0], int(words.kind), flags & (C.APART | C.END_TO_END)

    assert facts((40, 13), True) == ("constant", C.SCALAR, C.APART | C.END_TO_END)
    assert facts((9, 9001), True) == ("constant", C.SCALAR, C.APART)
    assert facts((1, 200), False) == ("recurrence", C.STREAM, C.APART)
    assert facts((1, 300_001), False, 2) == ("recurrence", C.LONG, C.APART)
    assert facts((40, 13), False) == ("recurrence", C.SCALAR, 0)
