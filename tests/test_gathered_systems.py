"""Systems of very few rows, each operand evenly spaced in its own way, in `numba_thomas`: gathered some at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, dominant, long_error, uniform

import tridiag
from tridiag.backends import numba_thomas
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.thomas.workspace import PITCH

ROWS = {"f": range(1, J.MOST_GATHERED + 1), "c": range(1, J.MOST_GATHERED // 2 + 1)}
COUNTS = 300, PITCH // 4 + 5, 3 * PITCH + 8  # more than both ends take; with a part of a vector; pieces
DTYPES = ["float64", "float32", *(pytest.param(x, marks=pytest.mark.slow) for x in ("complex64", "complex128"))]
LAYOUTS = 5


def placed(x: np.ndarray, layout: int) -> np.ndarray:
    """The same entries: side by side along the rows, or along the systems with gaps, backwards, among others."""
    n, count = x.shape
    view = (
        np.empty((count, n), x.dtype).T,
        np.empty((n, 2 * count), x.dtype)[:, ::2],
        np.empty((2 * n, count), x.dtype)[::-2, ::-1],
        np.empty((count, n + 1), x.dtype).T[1:],
        np.empty((n, count), x.dtype),
    )[layout % LAYOUTS]
    view[...] = x
    return view


def solve(system: Any, **options: Any) -> Any:
    return tridiag.solve(*system, axis=0, backend="numba_thomas", **options)


def apart(system: Any, seed: int) -> list[np.ndarray]:
    """Operands of which not all lie alike."""
    return [placed(x, layout) for x, layout in zip(system, np.arange(4) + seed, strict=True)]


def is_gathered(system: Any) -> bool:
    (n, count), dtype = system[0].shape, system[0].dtype
    form = numba_thomas.Form((n, count), (n, count), 0, pivoting="auto")
    a, b, c, d = system
    facts = form, *numba_thomas.extents([a, b, c, None, d, d]), (dtype,) * 2, 0, systems.granted(form)
    return bool(J.Systems.view(systems.make_job(*facts).words).flags & J.GATHERED)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_and_neighbours_change_no_bit(dtype: str) -> None:
    """Of systems some of which have no certificate; nothing is read of pads, nor written beside x; in place, too."""
    rng = np.random.default_rng(1)
    for n in ROWS[np.dtype(dtype).kind]:
        for seed, count in enumerate(COUNTS):
            a, b, c, _ = system = uniform((n, count), dtype, 0)
            b *= rng.choice([0.01, 1, 4], (1, count)).astype(dtype)
            b += np.where(b == 0, 1, 0).astype(dtype)
            a[0] = c[-1] = np.nan
            given = apart(system, seed)
            assert is_gathered(given)
            x = solve(given, check=False)
            fine = np.isfinite(x).all(0)
            assert fine.mean() > 0.99
            a[0] = c[-1] = 0
            assert long_error(*(v.T[fine] for v in (x, *system)), "auto") <= 8
            order = rng.permutation(count)
            moved = solve(apart([v[:, order] for v in given], seed + 2), check=False)
            assert_same_bits(moved, x[:, order])
            room = np.full((2 * n + 1, 2 * count + 1), 7, dtype)
            solve(apart(system, seed + 1), check=False, out=room[1::2, 1::2])
            assert_same_bits(room[1::2, 1::2], x)
            assert (room[::2] == 7).all() and (room[:, ::2] == 7).all()
            in_place = apart(system, seed)
            solve(in_place, check=False, overwrite_d=True)
            assert_same_bits(in_place[3], x)


def test_threads_and_shared_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    from tridiag.calls.fast_path import forget

    count, found = systems.WORTH_A_THREAD // 2, []
    a, b, c, d = apart(dominant((3, count), axis=0), 0)
    for number in (1, 2, 3):
        monkeypatch.setattr(systems, "threads", lambda number=number: number)
        forget()
        found.append(solve((a, b, c[:, :1], d)))
    forget()
    assert long_error(*(v.T for v in (found[0], a, b, np.broadcast_to(c[:, :1], b.shape), d))) <= 8
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


def test_a_singular_system_harms_no_neighbour() -> None:
    a, b, c, d = dominant((2, 1000), axis=0)
    wanted = solve(apart((a, b, c, d), 0))
    b[:, 501] = a[:, 501] = c[:, 501] = 0
    with pytest.raises(tridiag.SingularSystemError) as caught:
        solve(apart((a, b, c, d), 0))
    assert np.isnan(caught.value.x[:, 501]).all()
    assert_same_bits(np.delete(caught.value.x, 501, 1), np.delete(wanted, 501, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_right_sides_of_factors(dtype: str) -> None:
    """Whole vectors of them are gathered, those left over are not; one matrix may have no certificate."""
    for n, (seed, count) in itertools.product((1, 2, 3, 7, 8), enumerate(COUNTS)):
        a, b, c, d = dominant((n, count), dtype, 0)
        b[:, -20] *= 1e-3 if seed == 2 else 1
        factors, found = tridiag.factor(a, b, c, axis=0, backend="numba_thomas"), []
        for layout in range(1, LAYOUTS):
            room = np.full((2 * n + 1, 2 * count + 1), 7, dtype)
            found.append(factors.solve(placed(d, layout + seed), out=room[1::2, 1::2]))
            assert long_error(*(v.T for v in (found[-1], a, b, c, d))) <= 8
            assert_same_bits(found[-1], found[0])
            assert (room[::2] == 7).all() and (room[:, ::2] == 7).all()
