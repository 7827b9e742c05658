"""Systems whose entries span most of the range of numbers, on the CPU (`wide_entries`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from guarded.accuracy_bars import BAR, Matrix, errors
from helpers import DTYPES, dominant, uniform
from wide_entries import COUNT, SHARES, among_tame, ends_cut, wide

import tridiag

BACKENDS = ("numba_thomas", "numba_partition", "numpy_thomas")
ROW_BY_ROW = ("numba_thomas", "numpy_thomas")
LENGTHS = (*range(1, 10), 33, 100, 600, 1100)


@pytest.mark.parametrize("scaled", SHARES)
@pytest.mark.parametrize("family", [dominant, uniform])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BACKENDS)
def test_they_are_solved(name: str, dtype: str, family: Any, scaled: str) -> None:
    """And their neighbours as they are beside others."""
    for n in LENGTHS:
        systems = ends_cut(wide(n, dtype, scaled, family)[0])
        tame = [x.astype(dtype) for x in dominant((COUNT, n), dtype)]
        x = tridiag.solve(*among_tame(systems, tame), backend=name)
        assert errors(Matrix(*systems), x[:COUNT], dtype).max() <= BAR, n
        among_others = tridiag.solve(*among_tame(tame, tame), backend=name)
        assert x[COUNT:].tobytes() == among_others[COUNT:].tobytes()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_however_they_lie(dtype: str, count: int, axis: int) -> None:
    """Few and many, side by side and end to end, in place, and of which rows are taken out."""
    for n in (3, 8, 100):
        systems = [np.resize(x, (count, n)) for x in ends_cut(wide(n, dtype, "rows", uniform)[0])]
        a, b, c, d = (np.ascontiguousarray(x if axis else x.T) for x in systems)
        x = tridiag.solve(a, b, c, d, axis=axis, backend="numba_thomas")
        assert errors(Matrix(*systems), x if axis else x.T, dtype).max() <= BAR
        masked = tridiag.solve(a, b, c, d, where=np.ones(d.shape, bool), axis=axis, backend="numba_thomas")
        assert errors(Matrix(*systems), masked if axis else masked.T, dtype).max() <= BAR
        x = tridiag.solve(a, b, c, d.copy(), axis=axis, backend="numba_thomas", overwrite_d=True)
        assert errors(Matrix(*systems), x if axis else x.T, dtype).max() <= BAR


@pytest.mark.parametrize("scaled", SHARES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_with_factors(name: str, dtype: str, scaled: str) -> None:
    """None is told to be singular; several right sides of one matrix."""
    for n in (3, 8, 33, 100):
        systems = ends_cut(wide(n, dtype, scaled, uniform)[0])
        factors = tridiag.factor(*systems[:3], backend=name)
        assert not factors.status.any()
        for d in (systems[3], systems[3] * 2):
            assert errors(Matrix(*systems[:3], d), factors.solve(d), dtype).max() <= BAR
        right = np.stack([systems[3][0], systems[3][0] * 2, systems[3][0] * 4])
        found = tridiag.solve(*(x[0] for x in systems[:3]), right, backend=name)
        matrices = [np.repeat(x[:1], 3, 0) for x in systems[:3]]
        assert errors(Matrix(*matrices, right), found, dtype).max() <= BAR


@pytest.mark.parametrize("scaled", SHARES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_periodic_ones_are_solved(name: str, scaled: str, dtype: str) -> None:
    for n in (*range(3, 10), 33, 100):
        systems, _ = wide(n, dtype, scaled, dominant, 0.5)
        x = tridiag.solve(*systems, backend=name, periodic=True)
        assert errors(Matrix(*systems), x, dtype).max() <= BAR, n


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_singular_ones_are_told(dtype: str, name: str) -> None:
    for n in (1, 4, 33, 100):
        systems = ends_cut(wide(n, dtype, "rows", dominant)[0])
        for x in systems[:3]:
            x[1, n // 2] = 0
        with pytest.raises(tridiag.SingularSystemError) as told:
            tridiag.solve(*systems, backend=name)
        assert told.value.indices.tolist() == [[1]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    for n in (3, 33):
        systems = ends_cut(wide(n, dtype, "rows", uniform)[0])
        for name in ("torch_thomas", "numba_thomas"):
            x = tridiag.solve(*map(torch.from_numpy, systems), backend=name).numpy()
            assert errors(Matrix(*systems), x, dtype).max() <= BAR


@pytest.mark.parametrize("name", ROW_BY_ROW)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("periodic", [False, True])
def test_transposed(name: str, dtype: str, periodic: bool) -> None:
    for n in (3, 33):
        a, b, c, d = wide(n, dtype, "columns", dominant, 0.5)[0]
        x = tridiag.factor(a, b, c, backend=name, periodic=periodic).solve(d, transpose=True)
        below, above = np.roll(c, 1, 1), np.roll(a, -1, 1)
        if not periodic:
            below[:, 0] = above[:, -1] = 0
        assert errors(Matrix(below, b, above, d), x, dtype).max() <= BAR
