"""Quotients that underflow in plain elimination: such systems have no certificate; and pivots without reciprocal."""

from typing import Any

import numpy as np
import pytest
from helpers import Subject

DECADES = {"float32": (24, -21), "complex64": (24, -21), "float64": (162, -161), "complex128": (162, -161)}
PLACES = {"first": (0, 20), "inside": (20, 20), "last": (20, 0), "alone": (0, 0)}


def system(dtype: str, beside: tuple[int, int]) -> tuple[list[np.ndarray[Any, Any]], float]:
    """c / b of a row has one digit left; a times it is as large as the next diagonal entry. And x there."""
    big, small = (10.0**power for power in DECADES[dtype])
    bands = [0, big / 2], [big, small], [small, 0], [1, 1]
    made = [np.pad(np.array(v, dtype), beside, constant_values=x) for v, x in zip(bands, (0, 1, 0, 1), strict=True)]
    return made, 1 / small


def check(x: np.ndarray[Any, Any], row: int, exact: float) -> None:
    np.testing.assert_allclose(x[..., row], exact, rtol=10 * np.finfo(x.dtype).eps)


def factored(backend: Subject, a: Any, b: Any, c: Any, d: Any, pivoting: Any = "auto", **options: Any) -> Any:
    return backend.numpy(backend.factor(a, b, c, pivoting=pivoting).solve(backend.array(d), **options))


@pytest.mark.only(pivoting="auto")
@pytest.mark.parametrize("dtype", sorted(DECADES))
@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_quotient_with_one_digit_left(backend: Subject, dtype: str, place: str) -> None:
    beside = PLACES[place]
    (a, b, c, d), exact = system(dtype, beside)
    check(backend.solve(a, b, c, d), beside[0] + 1, exact)
    if place == "inside":
        check(backend.solve(*(np.tile(v, (70, 1)) for v in (a, b, c, d))), beside[0] + 1, exact)
        check(backend.solve(a, b, c, np.tile(d, (70, 1))), beside[0] + 1, exact)
        check(backend.solve(np.roll(c, 1), b, np.roll(a, -1), d, transpose=True), beside[0] + 1, exact)
        if backend.can(periodic=True):
            check(backend.solve(a, b, c, d, periodic=True), beside[0] + 1, exact)


@pytest.mark.only(pivoting="auto", verb="factor")
@pytest.mark.parametrize("dtype", sorted(DECADES))
def test_factors_with_one_digit_left(backend: Subject, dtype: str) -> None:
    """Not transposed: there the condition is 3e45, beyond the promise, and partial pivoting loses the digit too."""
    (a, b, c, d), exact = system(dtype, (20, 20))
    check(factored(backend, a, b, c, d), 21, exact)
    check(factored(backend, a, b, c, np.tile(d, (70, 1))), 21, exact)


@pytest.mark.only(pivoting="auto")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_long_system(backend: Subject, dtype: str) -> None:
    (a, b, c, d), exact = system(dtype, (1500, 1500))
    check(backend.solve(a, b, c, d), 1501, exact)


@pytest.mark.only(pivoting="auto")
def test_the_other_quotient(backend: Subject) -> None:
    """a / b vanishes, times x before it is all that there is in a row."""
    a, b, c, d = (np.array(v) for v in ([0, 1e-146], [1e186, 1e186], [0.0, 0], [1e306, 0.0]))
    np.testing.assert_allclose(backend.solve(a, b, c, d), [1e120, -1e-212], rtol=1e-14)
    if backend.can(verb="factor"):
        np.testing.assert_allclose(factored(backend, a, b, c, d), [1e120, -1e-212], rtol=1e-14)


@pytest.mark.only(pivoting=False, library=("numpy", "torch"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pivot_without_reciprocal(backend: Subject, dtype: str) -> None:
    """Without pivoting too: plain elimination divides there."""
    if backend.device != "cpu":
        pytest.skip("kernels of GPUs keep reciprocals")
    zero, b = np.zeros(3, dtype), np.array([2, np.finfo(dtype).tiny / 64, 2], dtype)
    for matrix in (b, np.tile(b, (40, 1)), np.tile(b[:, None], 40).T):
        np.testing.assert_array_equal(backend.solve(zero, matrix, zero, matrix, pivoting=False), 1)
    if backend.can(verb="factor"):
        x = factored(backend, zero, b, zero, np.tile(b, (40, 1)), pivoting=False)
        np.testing.assert_array_equal(x, 1)
