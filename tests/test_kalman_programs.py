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


@pytest.mark.parametrize("verb", ["filter", "log_likelihood"])
def test_derivatives_of_what_hardly_varies(verb: str) -> None:
    """Of a moving average that is observed exactly: the variance of the last shock shrinks until its square is 0."""
    y = np.random.default_rng(0).normal(size=(300, 1))

    def model(factor: float) -> dict[str, Any]:
        found = kalman.models.arma([], [factor], 1.0)
        return {name: np.asarray(found[name], float) for name in ("F", "H", "Q", "R", "m0", "P0")}

    def total(of: dict[str, Any], backend: str) -> Any:
        if verb == "log_likelihood":
            return (kalman.log_likelihood(y, **of, each_step=True, backend=backend) * np.cos(np.arange(300))).sum()
        found = getattr(kalman, verb)(y, **of, backend=backend)
        return found.mean[:, 0].sum() + found.cov[:, 1, 1].sum()

    def along(f: Any) -> Any:
        return (f(0.4 + 1e-5) - f(0.4 - 1e-5)) / 2e-5

    with jax.enable_x64(True):
        given = {name: jax.numpy.asarray(x) for name, x in model(0.4).items()}
        gradient = jax.jit(jax.grad(lambda of: total(of, "jax_scan")))(given)
    larger, smaller = model(0.4 + 1e-5), model(0.4 - 1e-5)
    moves = {name: (x - smaller[name]) / 2e-5 for name, x in larger.items()}
    found = sum((np.asarray(gradient[name]) * move).sum() for name, move in moves.items())
    np.testing.assert_allclose(found, along(lambda factor: total(model(factor), "numpy_scan")), rtol=1e-7)
