"""Solutions with exact zeros that depend on each other: "auto" keeps its promise there too."""

import numpy as np
import pytest
from helpers import Subject, assert_solves, noise

pytestmark = pytest.mark.only(pivoting="auto")
ROWS = 6


def hanging(systems: int, dtype: str = "float64", seed: int = 0) -> list[np.ndarray]:
    """Integers. The third row says that x[1] = 0, so the first says that x[0] = 0; one refined the other's rounding."""
    rng, shape = np.random.default_rng(seed), (systems, ROWS)

    def integers(low: int, high: int) -> np.ndarray:
        x = rng.integers(low, high, shape) * rng.choice([-1, 1], shape)
        return (x + 1j * rng.integers(-9, 10, shape) if dtype.startswith("complex") else x).astype(dtype)

    a, b, c, d = integers(1, 10), integers(1, 10), integers(1, 10), np.zeros(shape, dtype)
    b[:, 3:] = integers(50, 60)[:, 3:]
    b[:, 2] = c[:, 2] = a[:, 0] = c[:, -1] = 0
    d[:, 1] = 1
    return [a, b, c, d]


def turned(system: list[np.ndarray]) -> list[np.ndarray]:
    """The last row first."""
    a, b, c, d = (np.ascontiguousarray(v[..., ::-1]) for v in system)
    return [c, b, a, d]


def test_the_smallest_system(backend: Subject) -> None:
    x = backend.solve(np.array([0, 7, -3.0]), np.array([5, 8, 0.0]), np.array([-4, -5, 0.0]), np.array([0, 1.0, 0]))
    assert x.tolist() == [0, 0, -0.2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_zeros_that_hang_together(backend: Subject, dtype: str) -> None:
    for system in (hanging(400, dtype), turned(hanging(400, dtype, seed=1))):
        assert_solves(backend.solve(*system), *system)


def test_transposed(backend: Subject) -> None:
    a, b, c, d = hanging(400)
    swapped = [np.roll(c, 1, 1), b, np.roll(a, -1, 1), d]
    assert_solves(backend.solve(*swapped, transpose=True), *swapped, transpose=True)


@pytest.mark.only(periodic=True)
def test_periodic(backend: Subject) -> None:
    system = hanging(400)
    assert_solves(backend.solve(*system, periodic=True), *system, periodic=True)


def test_between_rows_that_are_taken_out(backend: Subject) -> None:
    system, keep = hanging(400), np.ones((400, ROWS + 2), bool)
    keep[:, [0, -1]] = False
    system = [np.pad(v, ((0, 0), (1, 1)), constant_values=np.nan) for v in system]
    assert_solves(backend.solve(*system, where=keep), *[np.where(keep, v, 1) for v in system], where=keep)


@pytest.mark.only(verb="factor")
def test_from_factors(backend: Subject) -> None:
    a, b, c, d = hanging(400)
    assert_solves(backend.numpy(backend.factor(a, b, c).solve(backend.array(d))), a, b, c, d)


def test_one_matrix_for_many_right_sides(backend: Subject) -> None:
    for k in range(20):
        a, b, c, d = (v[k] for v in hanging(20))
        d = d * noise(np.random.default_rng(k), (50, 1), "float64")
        assert_solves(backend.solve(a, b, c, d), a, b, c, d)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_long_system(backend: Subject, dtype: str) -> None:
    """Many such pieces of one system."""
    system = [v.reshape(-1) for v in hanging(200, dtype)]
    assert_solves(backend.solve(*system), *system)
