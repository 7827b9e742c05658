"""Kalman smoothers of moving averages that are observed exactly, against the joint distribution of all steps.

From step to step the filtered variance of the last shock shrinks by the square of a factor, and the gain with which a
smoother comes back to it is the inverse of that factor: an error that is not as small as the variance grows.
"""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import Subject

from tridiag import kalman
from tridiag.problems.state_space import SMOOTHER

from test_kalman import run  # isort: skip

pytestmark = pytest.mark.only(verb=SMOOTHER)

MODELS: dict[str, tuple[list[float], list[float]]] = {
    "MA(1)": ([], [0.4]),
    "ARMA(2, 1)": ([0.5, 0.3], [0.4]),
    "MA(3)": ([], [0.5, 0.3, 0.4]),
}
LARGE = [], [0.5, 0.3, 0.4, 0.1, 0.05, 0.2, 0.1, 0.1, 0.3]  # 10 states
GAPS = slice(5, 6), slice(40, 43), slice(-30, -20), slice(-2, -1)
WITHIN = 1e-11


def problem(order: tuple[list[float], list[float]], n: int, gaps: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    model = kalman.models.arma(*order, 1.1)
    parameters = {name: np.asarray(model[name]) for name in ("F", "H", "Q", "R", "m0", "P0")}
    assert not parameters["R"].any()
    y = kalman.simulate(np.random.default_rng(0), n, **parameters).y
    for part in GAPS if gaps else ():
        y[part] = np.nan
    return y, parameters


def joint(y: np.ndarray, F: Any, H: Any, Q: Any, P0: Any, **_: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and covariances of the states given the observations; with those of each step and the one before it."""
    n, k = len(y), len(F)
    across, P = np.zeros((n, k, n, k)), P0
    for t in range(n):
        block = P
        for u in range(t, n):
            across[u, :, t], across[t, :, u] = block, block.T
            block = F @ block
        P = F @ P @ F.T + Q
    seen = ~np.isnan(y[:, 0])
    with_states = np.einsum("i,tiul->tul", H[0], across)[seen]
    S = np.einsum("tul,l->tu", with_states, H[0])[:, seen]
    told = np.linalg.solve(S, with_states.reshape(len(S), -1))
    mean = y[seen, 0] @ told
    cov = across.reshape(n * k, n * k) - with_states.reshape(len(S), -1).T @ told
    steps, cov = np.arange(n), cov.reshape(n, k, n, k)
    return mean.reshape(n, k), cov[steps, :, steps], cov[steps[1:], :, steps[:-1]]


@functools.cache
def judged(name: str, n: int, gaps: bool) -> tuple[np.ndarray, dict[str, np.ndarray], tuple[np.ndarray, ...]]:
    """A problem, and what the joint distribution says, for all backends."""
    y, parameters = problem(MODELS.get(name, LARGE), n, gaps)
    return y, parameters, joint(y, **parameters)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("order", MODELS)
def test_smoothed_states(backend: Subject, order: str, gaps: bool) -> None:
    y, parameters, (mean, cov, _) = judged(order, 300, gaps)
    found = run(backend, "smoother", y, parameters, "float64")
    np.testing.assert_allclose(found.mean, mean, atol=WITHIN)
    np.testing.assert_allclose(found.cov, cov, atol=WITHIN)


@pytest.mark.parametrize("gaps", [False, True])
def test_more_states(backend: Subject, gaps: bool) -> None:
    if (backend.entry.states or 10) < 10:
        pytest.skip(f"smooths up to {backend.entry.states} states")
    y, parameters, (mean, cov, _) = judged("10 states", 100, gaps)
    found = run(backend, "smoother", y, parameters, "float64")
    np.testing.assert_allclose(found.mean, mean, atol=WITHIN)
    np.testing.assert_allclose(found.cov, cov, atol=WITHIN)


@pytest.mark.parametrize("order", MODELS)
def test_series_beside_each_other(backend: Subject, order: str) -> None:
    """Of one model, and with a batch of covariances."""
    problems = [judged(order, 90, gaps) for gaps in (False, True)]
    y, parameters = np.stack([y for y, _, _ in problems]), problems[0][1]
    found = run(backend, "smoother", y, parameters, "float64")
    for i, (_, _, (mean, cov, _)) in enumerate(problems):
        np.testing.assert_allclose(found.mean[i], mean, atol=WITHIN)
        np.testing.assert_allclose(found.cov[i], cov, atol=WITHIN)


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_derivatives_of_smoothed_states(library: str) -> None:
    """In the coefficient: Q has rank 1 whatever that is; what is rounding in its derivative grows with each step."""
    if library == "jax":
        jax = pytest.importorskip("jax")
        array, derivative = jax.numpy.asarray, jax.jit(jax.grad(lambda x: spread(x, y)))
    else:
        torch = pytest.importorskip("torch")
        array, derivative = torch.asarray, torch.func.grad(lambda x: spread(x, y))

    def spread(coefficient: Any, y: Any) -> Any:
        model = kalman.models.arma(array(np.zeros(0)), coefficient, 1.0)
        found = kalman.smoother(y, **model, backend=f"{library}_scan")
        return found.cov[..., 1, 1].sum() + (found.mean[:, 1] ** 2).sum()

    numbers = problem(MODELS["MA(1)"], 200, True)[0]
    y, step = array(numbers), 1e-5
    high, low = (spread(array(np.array([0.4 + x])), y) for x in (step, -step))
    found = derivative(array(np.array([0.4])))
    np.testing.assert_allclose(float(found[0]), float(high - low) / (2 * step), rtol=1e-6)


@pytest.mark.only(compiled=False, library="numpy")
@pytest.mark.parametrize("order", MODELS)
def test_verbs_that_smooth(backend: Subject, order: str) -> None:
    """Lag-one covariances, disturbances and draws."""
    y, parameters = problem(MODELS[order], 300, True)
    mean, cov, lagged = joint(y, **parameters)
    found = kalman.lag_one_smoother(y, **parameters)
    np.testing.assert_allclose(found.mean, mean, atol=WITHIN)
    np.testing.assert_allclose(found.cov, cov, atol=WITHIN)
    np.testing.assert_allclose(found.lag_one_cov, lagged, atol=WITHIN)
    assert np.abs(kalman.simulation_smoother(y, np.random.default_rng(1), size=3, **parameters)).max() < 10
    moves = kalman.disturbance_smoother(y, **parameters).state_disturbance
    np.testing.assert_allclose(moves[: len(y) - 1], mean[1:] - mean[:-1] @ parameters["F"].T, atol=WITHIN)
