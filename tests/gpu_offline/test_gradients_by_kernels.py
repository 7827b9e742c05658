"""Gradients of log-likelihoods of JAX and PyTorch arrays: when the kernel of `cupy_scan` runs, and when a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cpu_build
import numpy as np
import pretence
import pytest
from helpers import STANDIN

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

from cupy import machine
from test_kalman import model, series

from tridiag import kalman

Values = dict[str, np.ndarray]
WEIGHTS = np.arange(1.0, 6.0)


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    pretence.pretend(monkeypatch, "cupy_scan")
    machine.launches.clear()


def problem(**replaced: Any) -> Values:
    """Series with gaps, whose models differ in F."""
    given = {"y": series(5, 9, 2, missing=0.2), **model(2, 2)}
    return given | {"F": given["F"] * np.linspace(0.5, 1.0, 5)[:, None, None, None]} | replaced


def in_torch(backend: str, values: Values, constant: tuple[str, ...] = (), **options: Any) -> Values:
    torch = pytest.importorskip("torch")
    given = {name: torch.tensor(x, requires_grad=name not in constant) for name, x in values.items()}
    (kalman.log_likelihood(**given, backend=backend, **options) * torch.tensor(WEIGHTS)).sum().backward()
    return {name: x.grad.numpy() for name, x in given.items() if name not in constant}


def in_jax(backend: str, values: Values, constant: tuple[str, ...] = (), **options: Any) -> Values:
    jax = pytest.importorskip("jax")
    given = {name: jax.numpy.asarray(x) for name, x in values.items()}

    def weighted(some: Any) -> Any:
        return (kalman.log_likelihood(**(given | some), backend=backend, **options) * WEIGHTS).sum()

    found = jax.jit(jax.grad(weighted))({name: x for name, x in given.items() if name not in constant})
    return {name: np.asarray(x) for name, x in found.items()}


def is_by_kernel() -> bool:
    return any(name.startswith("gradient<") for name, *_ in machine.launches)


def assert_same(found: Values, right: Values, tolerance: float = 1e-12) -> None:
    assert found.keys() == right.keys()
    for name, x in found.items():
        np.testing.assert_allclose(x, right[name], rtol=0, atol=tolerance * abs(right[name]).max(), err_msg=name)


@pytest.mark.parametrize("gradient", [in_jax, in_torch])
@pytest.mark.parametrize("constant", [(), ("y", "H")])
def test_weighted_sums(gradient: Callable[..., Values], constant: tuple[str, ...]) -> None:
    """Summed over series that share a parameter, of what is differentiated alone."""
    found = gradient("cupy_scan", problem(), constant)
    assert is_by_kernel()
    assert_same(found, in_torch("torch_scan", problem(), constant))


def test_models_that_change_with_time() -> None:
    values = problem(Q=model(2, 2, time=(9,))["Q"])
    found = in_torch("cupy_scan", values)
    assert not is_by_kernel()
    assert_same(found, in_torch("torch_scan", values))


def test_states_that_are_unknown_at_first() -> None:
    """The steps that find them are a loop, the others are left to the kernel."""
    values = problem(P0=np.diag([np.inf, 1.0]), y=series(5, 30, 2, missing=0.2))
    found = in_torch("cupy_scan", values, diffuse=[0])
    assert is_by_kernel()
    assert_same(found, in_torch("torch_scan", values, diffuse=[0]), 1e-10)


def test_second_derivatives_in_torch() -> None:
    """Of a loop, whose operations are differentiated."""
    torch = pytest.importorskip("torch")
    given = {name: torch.tensor(x) for name, x in problem().items()}

    def function(scale: Any) -> Any:
        return kalman.log_likelihood(**(given | {"R": given["R"] * scale}), backend="cupy_scan").sum()

    at = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(function(at), at, create_graph=True)
    assert not is_by_kernel()
    (curvature,) = torch.autograd.grad(slope, at)
    low, high = (torch.tensor(1 + h, dtype=torch.float64, requires_grad=True) for h in (-1e-5, 1e-5))
    slopes = [torch.autograd.grad(function(x), x)[0] for x in (low, high)]
    assert is_by_kernel()
    np.testing.assert_allclose(curvature, (slopes[1] - slopes[0]) / 2e-5, rtol=1e-6)
