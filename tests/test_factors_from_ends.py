"""Factors of one matrix from both ends: which matrices have them, and what is solved from them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from helpers import installed

import tridiag
from tridiag.kernels.jobs.words import systems as J

pytestmark = pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed")

ROWS = *range(1, 20), 64, 101, 400, 1000


def drawn(n: int, dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.uniform(*of, n).astype(dtype) for of in ((-1, 1), (3, 4), (-1, 1), (-1, 1))]


def kind_of(matrix: Any) -> int:
    assert matrix._factors.kinds.size == 1
    return int(matrix._factors.kinds[0])


def assert_near(x: Any, wanted: Any) -> None:
    assert x.dtype == wanted.dtype and x.shape == wanted.shape
    assert abs(x - wanted).max() <= 16 * np.finfo(x.dtype).eps * abs(wanted).max()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("n", ROWS)
def test_right_sides(n: int, dtype: str) -> None:
    """Every kind of them; complex matrices, and those without a row in the middle, have no such factors."""
    a, b, c, d = drawn(n, dtype)
    matrix, wanted = tridiag.factor(a, b, c, backend="numba_thomas"), tridiag.solve(a, b, c, d, pivoting=True)
    assert kind_of(matrix) == (J.FROM_BOTH_ENDS if n >= 3 and dtype != "complex128" else J.CERTIFIED)
    for each in (matrix, copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert_near(each.solve(d), wanted)
        assert_near(each.solve(np.repeat(d, 3)[::3]), wanted)
        assert_near(each.solve(d[::-1].copy()[::-1]), wanted)
        out = np.full(2 * n, np.nan, dtype)[::2]
        assert each.solve(d, out=out) is out
        assert_near(out, wanted)
        own = d.copy()
        assert each.solve(own, overwrite_d=True) is own
        assert_near(own, wanted)
        assert_near(each.solve(d, transpose=True), tridiag.solve(a, b, c, d, transpose=True, pivoting=True))
        assert_near(each.solve(np.stack([d] * 3)), np.stack([wanted] * 3))
        assert_near(each.solve(np.stack([d] * 40)), np.stack([wanted] * 40))


def test_bands_that_lie_anyhow() -> None:
    """Along the first axis, backwards, spread, and of one number; pads are never read."""
    a, b, c, d = drawn(50)
    wanted = tridiag.solve(a, b, c, d)
    a[0] = c[-1] = np.nan
    given = [np.repeat(x, k + 2)[:: k + 2] for k, x in enumerate((a, b, c))]
    backwards = [x[::-1].copy()[::-1] for x in (a, b, c)]
    columns = [x[:, None] for x in (a, b, c)]
    for bands, axis in ((given, -1), (backwards, -1), (columns, 0)):
        matrix = tridiag.factor(*bands, axis=axis, backend="numba_thomas")
        assert_near(matrix.solve(d[:, None] if axis == 0 else d).reshape(-1), wanted)
    number = tridiag.factor(-1.0, b, 0.5, backend="numba_thomas")
    assert_near(number.solve(d), tridiag.solve(-1.0, b, 0.5, d))


def test_matrices_with_a_certificate_from_above_alone() -> None:
    """Two rows near the end that are harmless from above but not from below, and the other way round."""
    a, b, c, d = drawn(30)
    pivot = b[0]
    for i in range(1, 28):
        pivot = b[i] - a[i] * c[i - 1] / pivot
    a[28], b[28], c[28], c[27] = 1, 1, 3, -pivot
    a[29], b[29] = 1, 1
    for bands, wanted in (((a, b, c), J.CERTIFIED), ((c[::-1], b[::-1], a[::-1]), J.UNCERTIFIED)):
        matrix = tridiag.factor(*bands, backend="numba_thomas")
        assert kind_of(matrix) == wanted
        for transpose in (False, True):
            x = tridiag.solve(*bands, d, transpose=transpose, pivoting=True)
            assert_near(matrix.solve(d, transpose=transpose), x)


def test_a_middle_row_that_is_not_harmless() -> None:
    """Both halves are certified; what they leave of the diagonal between them is rounding."""
    n, middle = 31, 15
    a, b, c, d = (np.zeros(n) for _ in range(4))
    b[:], d[:], a[1:], c[:-1] = 4, np.arange(n), 1, 1
    top = bottom = 4.0
    for _ in range(middle - 1):
        top, bottom = 4 - 1 / top, 4 - 1 / bottom
    b[middle] = 1 / top + 1 / bottom + 5e-16
    matrix = tridiag.factor(a, b, c, backend="numba_thomas")
    assert kind_of(matrix) != J.FROM_BOTH_ENDS
    x = matrix.solve(d, check=False)
    assert matrix.status or abs(tridiag.matmul(a, b, c, x) - d).max() <= 1e-15 * 6 * abs(x).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residuals_of_any_matrices(dtype: str) -> None:
    """Of entries of all sizes, some of them zero: as small as those of a solve, singular ones told alike."""
    rng = np.random.default_rng(7)
    kinds = set()
    for _ in range(400):
        n = int(rng.integers(1, 40))
        bands = rng.normal(size=(4, n)) * np.exp(rng.normal(size=(4, n)) * rng.uniform(0, 4))
        bands[:3][rng.random((3, n)) < rng.uniform(0, 0.2)] = 0
        bands[1] *= rng.choice([1, 4, 20])
        a, b, c, d = bands.astype(dtype)
        matrix = tridiag.factor(a, b, c, backend="numba_thomas")
        kinds.add(kind_of(matrix))
        x, other = matrix.solve(d, check=False), tridiag.solve(a, b, c, d, check=False)
        assert np.isnan(x).all() == np.isnan(other).all() == (matrix.status != 0)
        if matrix.status == 0:
            size = tridiag.matmul(abs(a), abs(b), abs(c), abs(x)) + abs(d)
            rest = abs(tridiag.matmul(a, b, c, x) - d)
            assert (rest <= 100 * np.finfo(dtype).eps * size.max()).all()
    assert kinds == {J.CERTIFIED, J.UNCERTIFIED, J.FROM_BOTH_ENDS}
