"""Systems whose entries span most of the range of numbers, on CUDA C (`wide_entries`)."""

from __future__ import annotations

from typing import Any

import cpu_build
import numpy as np
import pytest
from guarded.accuracy_bars import BAR, Matrix, errors
from helpers import DTYPES, STANDIN, dominant, uniform
from wide_entries import COUNT, SHARES, among_tame, ends_cut, wide

import tridiag

cupy: Any = pytest.importorskip("cupy", reason="needs CuPy, or the stand-in for it")
if STANDIN and (reason := cpu_build.why_not()):
    pytest.skip(reason, allow_module_level=True)

BACKENDS = ("cupy_pcr", "cupy_thomas")
LENGTHS = (*range(1, 10), 33, 100, 513, 1100)  # the last one is pivoted in chunks first


@pytest.mark.parametrize("scaled", SHARES)
@pytest.mark.parametrize("family", [dominant, uniform])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BACKENDS)
def test_they_are_solved(name: str, dtype: str, family: Any, scaled: str) -> None:
    for n in LENGTHS:
        systems = ends_cut(wide(n, dtype, scaled, family)[0])
        tame = [x.astype(dtype) for x in dominant((COUNT, n), dtype)]
        x = tridiag.solve(*map(cupy.asarray, among_tame(systems, tame)), backend=name, check=True).get()
        assert errors(Matrix(*systems), x[:COUNT], dtype).max() <= BAR, n
        alone = tridiag.solve(*map(cupy.asarray, tame), backend=name).get()
        assert x[COUNT:].tobytes() == alone.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", SHARES)
def test_periodic_ones_are_solved(scaled: str, dtype: str) -> None:
    for n in (*range(3, 10), 33, 100):
        systems, _ = wide(n, dtype, scaled, dominant, 0.5)
        x = tridiag.solve(*map(cupy.asarray, systems), backend="cupy_pcr", periodic=True).get()
        assert errors(Matrix(*systems), x, dtype).max() <= BAR, n


@pytest.mark.parametrize(("scaled", "periodic"), [*((scaled, False) for scaled in SHARES), ("rows", True)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_their_determinants(dtype: str, scaled: str, periodic: bool) -> None:
    """The logarithm is that of the matrix without powers of 2, and theirs; and none is told to be singular."""
    for n in (*range(3, 10), 33, 100):
        systems, plain = wide(n, dtype, scaled, dominant, 0.5)
        sign, logarithm = (x.get() for x in tridiag.slogdet(*map(cupy.asarray, systems[:3]), periodic=periodic))
        other, expected = tridiag.slogdet(*(x.astype(dtype) for x in plain[:3]), periodic=periodic)
        _, powers = tridiag.slogdet(
            *(np.zeros((COUNT, n)), abs(systems[1] / plain[1]).astype(float), np.zeros((COUNT, n)))
        )
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(sign, other, atol=100 * n * eps)
        bound = 100 * n * eps * (1 + abs(powers) + abs(expected))
        assert (abs(logarithm - (expected + powers)) <= bound).all(), n
        assert (
            not tridiag.factor(*map(cupy.asarray, systems[:3]), backend="cupy_pcr", periodic=periodic)
            .status.get()
            .any()
        )


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_singular_ones_are_told(dtype: str, name: str) -> None:
    for n in (1, 4, 33, 100):
        systems = ends_cut(wide(n, dtype, "rows", dominant)[0])
        for x in systems[:3]:
            x[1, n // 2] = 0
        with pytest.raises(tridiag.SingularSystemError) as told:
            tridiag.solve(*map(cupy.asarray, systems), backend=name, check=True)
        assert told.value.indices.tolist() == [[1]]


def test_an_unknown_between_chunks_that_overflows_is_no_solution() -> None:
    """Its residual and the bound of that are both infinite: so it has no certificate."""
    a, c = [0, 1.00232421e34, 4.69105731e237], [4.3486437e-39, 6.33713967e-128, 0]
    b, d = [-3.02532928e128, 1.59764121e-129, -4.1382231e134], [-0.12210706, 0.6559585, -0.2028366]
    system = [np.array([x]) for x in (a, b, c, d)]
    x = tridiag.solve(*map(cupy.asarray, system), backend="cupy_pcr").get()
    assert errors(Matrix(*system), x, "float64").max() <= BAR
