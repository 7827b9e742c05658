"""Gradients of log-likelihoods of tensors in host memory by kernels: those of the pass that differentiates again."""

from typing import Any

import numpy as np
import pytest
from test_kalman import model, series

from tridiag import kalman
from tridiag.algorithms import kalman_rows

torch = pytest.importorskip("torch")
pytest.importorskip("numba")


def own(y: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """A model for each series, one of which has no density."""
    parameters = model(2, 1, 3, 1) | {"m0": model(2, 1, 5)["m0"]}
    parameters["H"][1] = parameters["R"][1] = 0
    return parameters, y


CASES = {  # parameters, and observations
    "shared": (model(2, 1), series(20, 7, 1)),
    "some missing": (model(2, 2), series(20, 7, 2, missing=0.3)),
    "own": own(series(3, 5, 7, 1, missing=0.2)),
    "one series": (model(8, 1), series(9, 1)),
    "a step": (model(2, 1), series(4, 1, 1)),
    "unlike batches": (model(2, 1, 4), series(2, 4, 6, 1)),
    "9 states": (model(9, 2), series(3, 6, 2, missing=0.2)),
    "9 states, shared": (model(9, 1), series(33, 6, 1)),
    "lost digits": (model(2, 1, P0=1e9 * np.eye(2), Q=np.zeros((2, 2))), series(5, 6, 1)),
}


def leaf(x: np.ndarray, dtype: torch.dtype) -> Any:
    """A tensor that wants a gradient, matrices column by column."""
    tensor = torch.tensor(x, dtype=dtype)
    return (tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor).requires_grad_()


def assert_near(found: Any, wanted: Any, limit: float, name: str) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, name
    scale = wanted.nan_to_num().abs().max().item()
    np.testing.assert_allclose(found, wanted.detach(), rtol=limit, atol=limit * scale, err_msg=name)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        *(pytest.param(case, torch.float64, id=case) for case in CASES),
        pytest.param("own", torch.float32, id="own, float32"),
        pytest.param("9 states", torch.float32, id="9 states, float32", marks=pytest.mark.slow),
    ],
)
def test_gradients(case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all arguments at once, each series with a weight, and in the parameters alone; no step is one of torch."""
    parameters, y = CASES[case]
    given, observed = {name: leaf(x, dtype) for name, x in parameters.items()}, leaf(y, dtype)
    found = kalman.log_likelihood(observed, **given)
    weights = torch.arange(1.0, 1 + found.numel(), dtype=dtype).reshape(found.shape)
    leaves = {"y": observed} | given
    wanted = torch.autograd.grad(found, list(leaves.values()), weights, retain_graph=True, create_graph=True)
    without_y = kalman.log_likelihood(observed.detach(), **given)
    monkeypatch.setattr(kalman_rows, "gradient", None)
    gradients = torch.autograd.grad(found, list(leaves.values()), weights)
    alone = torch.autograd.grad(without_y, list(given.values()), weights)
    limit = 1e-8 if dtype == torch.float64 else 1e-3
    for name, x, z in zip(leaves, gradients, wanted, strict=True):
        assert_near(x, z, 1e-3 if case == "lost digits" and name in ("m0", "P0") else limit, name)
    for name, x, z in zip(given, alone, gradients[1:], strict=True):
        assert_near(x, z, limit, name)


def test_steps_after_unknown_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that are unknown at first: steps behind the first ones go to a kernel; the gradient is a difference."""
    y = torch.tensor(np.random.default_rng(0).normal(size=(40, 1)).cumsum(0))
    y[20:24] = torch.nan

    def function(logarithms: Any) -> Any:
        level, season, noise = logarithms.exp()
        parts = kalman.models.local_level(level, noise=noise) + kalman.models.seasonal(4, season)
        return kalman.log_likelihood(y, **parts)

    at = torch.tensor([-1.0, -3.0, 0.3], dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(kalman_rows, "gradient", None)
    (found,) = torch.autograd.grad(function(at), at)
    steps = 1e-5 * torch.eye(3, dtype=torch.float64)
    with torch.no_grad():
        wanted = [float(function(at + h) - function(at - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_models_that_change_with_time_and_second_derivatives_are_passes_of_torch() -> None:
    """They have no kernel, and are right all the same: differences of gradients."""
    given = {name: torch.tensor(x) for name, x in model(2, 1, time=(6,)).items()}
    y, scale = torch.tensor(series(6, 1)), torch.tensor(1.0, dtype=torch.float64, requires_grad=True)

    def function(scale: Any, given: dict[str, Any]) -> Any:
        return kalman.log_likelihood(y, **given | {"Q": scale * given["Q"]})

    def gradient(at: float, given: dict[str, Any]) -> float:
        point = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        return float(torch.autograd.grad(function(point, given), point)[0])

    low, high = (torch.tensor(1 + h, dtype=torch.float64) for h in (-1e-5, 1e-5))
    slope = float(function(high, given) - function(low, given)) / 2e-5
    np.testing.assert_allclose(gradient(1.0, given), slope, rtol=1e-6)
    constant = {name: torch.tensor(x) for name, x in model(2, 1).items()}
    (first,) = torch.autograd.grad(function(scale, constant), scale, create_graph=True)
    (second,) = torch.autograd.grad(first, scale)
    wanted = (gradient(1 + 1e-5, constant) - gradient(1 - 1e-5, constant)) / 2e-5
    np.testing.assert_allclose(float(second), wanted, rtol=1e-6)


@pytest.mark.parametrize("start", [1.0, np.inf], ids=["known", "unknown"])
@pytest.mark.parametrize("verb", ["log_likelihood", "each_step", "filter", "smoother"])
def test_what_a_single_step_does_not_read_has_a_gradient_of_0(verb: str, start: float) -> None:
    """F, Q and what is added to the states: gradients are 0, and not None, which an optimiser would pass over."""
    parameters = model(1, 1, P0=np.full((1, 1), start), state_intercept=np.ones(1))
    given = {name: torch.tensor(x, requires_grad=True) for name, x in parameters.items()}
    options: dict[str, Any] = {"each_step": True} if verb == "each_step" else {}
    function = getattr(kalman, "log_likelihood" if verb == "each_step" else verb)
    found = function(torch.ones(1, 1, dtype=torch.float64), **given, **options)
    for result in found if isinstance(found, tuple) else (found,):
        gradients = torch.autograd.grad(result.sum(), list(given.values()), retain_graph=True, allow_unused=True)
        for name, x in zip(given, gradients, strict=True):
            assert x is not None, name
            assert name not in ("F", "Q", "state_intercept") or not x.any()
