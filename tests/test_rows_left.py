"""Numbers of rows that are not whole tiles: the few that are left are taken with rows that were, or will be, done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, assert_solves, dominant, uniform

import tridiag
from tridiag.kernels.jobs.systems import lanes_of

NAME = "numba_thomas"
ROWS = range(8, 26)
DTYPES = ["float64", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("float32", "complex128"))]
KINDS: dict[str, dict[str, Any]] = {
    "certified": {},
    "exchanges": {"pivoting": True},
    "periodic": {"periodic": True},
    "transposed": {"transpose": True},
}


def count_of(dtype: str) -> int:
    """Two vectors of systems, and some that fill none."""
    return 2 * lanes_of(np.dtype(dtype)) + 3


def in_the_midst(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """A copy between other numbers, as far from each other as rows without gaps are, and all of its memory."""
    memory = np.full(x.size + 16, 7, x.dtype)
    inside = memory[8:-8].reshape(x.shape)
    inside[...] = x
    return inside, memory


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_solutions(kind: str, dtype: str) -> None:
    for n in ROWS:
        draw = dominant if kind in ("certified", "transposed") else uniform
        system = draw((count_of(dtype), n), dtype, seed=n)
        x, memory = in_the_midst(np.zeros_like(system[3]))
        tridiag.solve(*system, out=x, backend=NAME, **KINDS[kind])
        assert_solves(x, *system, **KINDS[kind])
        assert (memory[:8] == 7).all() and (memory[-8:] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_system_as_if_alone(dtype: str) -> None:
    """One without certificate among others changes none of their bits, whichever of its rows is to blame."""
    count = count_of(dtype)
    for n in ROWS:
        a, b, c, d = dominant((count, n), dtype, seed=n)
        wanted = tridiag.solve(a, b, c, d, backend=NAME)
        for row in (0, n - 4, n - 1):
            hard = b.copy()
            hard[1, row] = 0
            x = tridiag.solve(a, hard, c, d, backend=NAME)
            assert_same_bits(np.delete(x, 1, 0), np.delete(wanted, 1, 0))
            assert_solves(x[1], a[1], hard[1], c[1], d[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose", [False, True])
def test_rows_taken_out(transpose: bool, dtype: str) -> None:
    """Both ends of some systems are."""
    rng = np.random.default_rng(0)
    for n in ROWS:
        a, b, c, d = dominant((count_of(dtype), n), dtype, seed=n)
        where = rng.random(d.shape) < 0.8
        x = tridiag.solve(a, b, c, d, where=where, transpose=transpose, backend=NAME)
        assert_solves(x, a, b, c, d, where=where, transpose=transpose)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose", [False, True])
def test_factors(transpose: bool, dtype: str) -> None:
    """Of a matrix of each right side, and of one for all."""
    for n in ROWS:
        a, b, c, d = dominant((count_of(dtype), n), dtype, seed=n)
        for matrix in ((a, b, c), (a[0], b[0], c[0])):
            factors = tridiag.factor(*matrix, backend=NAME)
            x, memory = in_the_midst(np.zeros_like(d))
            factors.solve(d, out=x, transpose=transpose)
            assert_solves(x, *matrix, d, transpose=transpose)
            assert (memory[:8] == 7).all() and (memory[-8:] == 7).all()


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_short_recurrences(dtype: str) -> None:
    """Steps that fill no tile come in half of one, or in a whole one."""
    for n in ROWS:
        rng = np.random.default_rng(n)
        a, x = rng.uniform(-0.9, 0.9, (2, count_of(dtype), n)).astype(dtype)
        y, memory = in_the_midst(np.zeros_like(x))
        tridiag.linear_recurrence(a, x, out=y, backend="numba_scan")
        wanted = np.zeros((len(x), n))
        for i in range(n):
            wanted[:, i] = x[:, i] + (a[:, i].astype(float) * wanted[:, i - 1] if i else 0)
        assert abs(y - wanted).max() <= 16 * np.finfo(dtype).eps * abs(wanted).max(), n
        assert (memory[:8] == 7).all() and (memory[-8:] == 7).all()
