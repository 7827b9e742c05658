"""How long the JAX programs of Kalman filters are, which tells how long they compile: hardly longer for many states."""

from typing import Any

import numpy as np
import pytest

from tridiag import kalman

jax = pytest.importorskip("jax")

MOST = {"filter": 2800, "smoother": 4500, "log_likelihood": 2500}  # operations


def length(verb: str, k: int, p: int) -> int:
    """Of the program for series that share a model, where it is not known whether values are missing."""
    arrays = np.zeros((k, k)), np.zeros((p, k)), np.zeros((k, k)), np.zeros((p, p)), np.zeros(k), np.zeros((k, k))

    def states(y: Any, *arrays: Any) -> Any:
        given = dict(zip(("F", "H", "Q", "R", "m0", "P0"), arrays, strict=True))
        return getattr(kalman, verb)(y, **given, backend="jax_scan")

    given = [jax.numpy.asarray(x, "float32") for x in (np.zeros((6, 12, p)), *arrays)]
    return jax.jit(states).lower(*given).as_text().count("stablehlo.")


@pytest.mark.parametrize("verb", MOST)
def test_programs_are_short(verb: str) -> None:
    """Of 8 states and 4 values observed."""
    assert length(verb, 8, 4) <= MOST[verb]


@pytest.mark.parametrize("verb", ["filter", pytest.param("smoother", marks=pytest.mark.slow)])
def test_programs_are_as_long_for_many_states_as_for_few(verb: str) -> None:
    assert length(verb, 20, 12) <= 1.05 * length(verb, 12, 9)


def test_derivatives_of_states_keep_digits() -> None:
    """The first values say nothing of one state, whose variance is large: that of all later states is small."""
    y = np.array([[0.3, np.nan], [np.nan, -0.7], [0.2, 0.9], [1.1, -0.4]])
    F, H = np.array([[0.9, 0.3], [-0.2, 0.7]]), np.array([[1.0, 0.4], [-0.5, 0.8]])
    others = {"H": H, "Q": np.eye(2) / 4, "R": np.eye(2) / 2, "m0": np.zeros(2)}

    def last(F: Any, start: float) -> Any:
        found = kalman.filter(y, F=F, P0=start * np.eye(2), **others, backend="jax_scan")
        return found.cov[-1].sum() + found.mean[-1].sum()

    with jax.enable_x64(True):
        derivative = jax.jit(jax.grad(last))
        large, larger = (derivative(jax.numpy.asarray(F), start) for start in (1e13, 1e14))
    np.testing.assert_allclose(large, larger, rtol=1e-10)
