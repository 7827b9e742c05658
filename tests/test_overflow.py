"""That entries near the largest number give the solution, or NaN where a pivot overflows."""

import numpy as np
import pytest
from helpers import EPS, Subject, to_numpy, uniform

import tridiag


def scaled(dtype: str, factor: float, *shape: int) -> list[np.ndarray]:
    a, b, c, d = uniform(shape, dtype)
    return [x * x.dtype.type(factor) for x in (a, b, c)] + [d * d.dtype.type(factor / 2.0**20)]


@pytest.mark.only(promises=(True, "auto"))
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_a_pivot_that_overflows_is_no_zero(backend: Subject, pivoting: object, dtype: str, periodic: bool) -> None:
    """Of systems with entries up to the largest number each is solved as one with smaller entries is, or is NaN."""
    if backend.device == "cuda":
        pytest.skip("on GPUs pivots overflow without a word")
    if not backend.can(periodic=periodic):
        pytest.skip("takes no periodic systems")
    of_scipy = "scipy" in backend.entry.needs
    if backend.name == "jax_lax" or (of_scipy and pivoting is True):
        pytest.skip("LAPACK's pivots overflow without a word")
    if backend.library == "jax" and not backend.compiled and dtype == "complex128":
        pytest.skip("XLA's complex quotients overflow without a word")
    largest = 0.99 * np.finfo(dtype).max
    options = {"pivoting": pivoting, "periodic": periodic, "check": False}
    found = to_numpy(backend.solve(*scaled(dtype, largest, 200, 7), **options))
    wanted = tridiag.solve(*scaled(dtype, largest / 2.0**20, 200, 7), backend="numpy_thomas", **options)
    solved = np.isfinite(found).all(-1)
    assert solved.any() or of_scipy
    assert not solved.all()
    size = abs(wanted).max(-1, keepdims=True)
    real = "float32" if dtype == "float32" else "float64"
    assert (abs(found - wanted) <= 1e6 * EPS[real] * size)[solved].all()
