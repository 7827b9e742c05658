"""Derivatives of states that are found by square roots of covariances.

They are to be those of covariances as they stand, where these lose no digits, also in directions that give a singular
covariance a rank, or take it one; and those of the joint distribution of all steps, where these lose all.
"""

from typing import Any

import numpy as np
import pytest

from tridiag import kalman
from tridiag.algorithms import kalman_filter, kalman_loops, kalman_rows
from tridiag.problems.state_space import FILTER, SMOOTHER, Model, StateSpace

# states, values observed, ranks of Q, R and P0, whether the model changes with time, a model per series, missing values
CASES: dict[str, tuple[int, int, tuple[int, int, int], bool, bool, bool]] = {
    "singular": (3, 2, (1, 2, 0), False, False, False),
    "exact, changing": (3, 2, (3, 0, 3), True, True, True),
    "missing": (2, 2, (1, 2, 1), False, False, True),
    "one state": (1, 1, (0, 1, 1), True, False, False),
}
LATER = "missing", "one state"
N, SERIES = 5, 2


def problem(case: str) -> tuple[StateSpace, np.ndarray, Model, np.ndarray, Model]:
    """Series, their models, and changes of both, which are not symmetric."""
    k, p, ranks, changes, own, missing = CASES[case]
    rng = np.random.default_rng(len(case))
    time, batch = (N if changes else 1), (SERIES if own else 1)

    def cov(size: int, rank: int, *axes: int) -> np.ndarray:
        x = rng.normal(size=(*axes, size, rank))
        return x @ x.swapaxes(-1, -2)

    model = Model(
        F=0.7 * rng.normal(size=(batch, time, k, k)),
        H=rng.normal(size=(batch, time, p, k)),
        Q=cov(k, ranks[0], batch, time),
        R=cov(p, ranks[1], batch, time),
        m0=rng.normal(size=(batch, k)),
        P0=cov(k, ranks[2], batch),
    )
    y = rng.normal(size=(SERIES, N, p))
    if missing:
        y[0, 1, 0] = y[1, 3] = np.nan
    form = StateSpace(N, p, k, (SERIES,), (batch,), missing, True)
    return form, y, model, rng.normal(size=y.shape), Model(*(rng.normal(size=x.shape) for x in model))


def assert_alike(found: Any, wanted: Any) -> None:
    for x, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-9 * np.abs(np.asarray(z)).max())


@pytest.mark.parametrize("verb", [FILTER, SMOOTHER])
@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LATER else []) for c in CASES])
def test_changes_in_jax(case: str, verb: str) -> None:
    jax = pytest.importorskip("jax")
    from tridiag.backends import jax_scan
    from tridiag.libraries.jax import Operations as ops

    form, y, model, *changes = jax.tree.map(
        lambda x: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x, problem(case)
    )
    states = jax_scan.filtered_by if verb == FILTER else jax_scan.smoothed_by

    def by(covs: Any) -> Any:
        def function(y: Any, model: Model) -> Any:
            model, y = kalman_filter.front(ops, model, y)
            return states(form, y, model, ~jax.numpy.isnan(y) if form.missing else None, covs)[0]

        return jax.jit(lambda y, model, *changes: jax.jvp(function, (y, model), changes))(y, model, *changes)

    for found, wanted in zip(by(kalman_loops.Roots), by(kalman_loops.Entries), strict=True):
        assert_alike(found, wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("verb", [FILTER, SMOOTHER])
@pytest.mark.parametrize("case", CASES)
def test_changes_in_torch(case: str, verb: str) -> None:
    torch = pytest.importorskip("torch")
    from tridiag.derivatives import torch_kalman_states
    from tridiag.libraries.torch import Operations as ops

    form, y, model, *changes = problem(case)
    given, along = (y, *model), (changes[0], *changes[1])

    def by(states: Any) -> Any:
        def function(y: Any, *given: Any) -> Any:
            model, y = kalman_filter.front(ops, Model(*given), y)
            kept = y == y if form.missing else None
            return states(ops, verb, model, y, kept, form)

        tensors = [torch.tensor(x, requires_grad=True) for x in given]
        found = function(*tensors)
        sizes = [torch.cos(torch.arange(x.numel(), dtype=x.dtype)).reshape(x.shape) for x in found]
        of = torch.autograd.grad(found, tensors, sizes)
        forwards = torch.func.jvp(function, tuple(map(torch.tensor, given)), tuple(map(torch.tensor, along)))[1]
        return [x.detach() for x in found], of, forwards

    entries = by(lambda *given: kalman_rows.by_entries(*given)[0])
    for found, wanted in zip(by(torch_kalman_states.by_roots), entries, strict=True):
        assert_alike(found, wanted)


def moving_average(coefficient: Any, y: np.ndarray, xp: Any) -> tuple[Any, Any]:
    """Means and covariances of the last shocks times the coefficient, from the joint distribution of all shocks."""
    n, seen = len(y), np.flatnonzero(~np.isnan(y))
    new, old = (xp.asarray(np.eye(n + 1)[part]) for part in (slice(1, None), slice(None, -1)))
    loads = (new + coefficient * old)[seen]
    gain = xp.linalg.solve(loads @ loads.T, loads).T
    mean, cov = gain @ xp.asarray(y[seen]), xp.asarray(np.eye(n + 1)) - gain @ loads
    return coefficient * mean[1:], coefficient**2 * xp.diagonal(cov)[1:]


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("coefficient", [0.4, pytest.param(-0.6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("library", ["jax", "torch"])
def test_moving_averages_observed_exactly(library: str, coefficient: float, gaps: bool) -> None:
    """What is left of the first shock shrinks with each step, to 1e-159 of it, and the gain back is its inverse."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    y[rng.random(200) < 0.3 * gaps] = np.nan
    if library == "jax":
        jax = pytest.importorskip("jax")
        xp, gradient = jax.numpy, lambda function: jax.jit(jax.jacrev(function))(coefficient)
    else:
        xp = torch = pytest.importorskip("torch")
        at = torch.tensor(coefficient, dtype=torch.float64)
        gradient = lambda function: torch.autograd.functional.jacobian(function, at)  # noqa: E731

    def found(x: Any) -> Any:
        model = kalman.models.arma(xp.zeros(0, dtype=xp.float64), x[None], 1.0)
        states = kalman.smoother(xp.asarray(y[:, None]), **model, backend=f"{library}_scan")
        return sums(states.mean[:, 1], states.cov[:, 1, 1])

    def sums(mean: Any, var: Any) -> Any:
        return xp.stack([mean.sum(), (mean**2).sum(), var.sum(), mean[3], var[-1]])

    wanted = gradient(lambda x: sums(*moving_average(x, y, xp)))
    np.testing.assert_allclose(gradient(found), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("verb", [FILTER, SMOOTHER])
def test_transforms_of_torch(verb: str) -> None:
    """Those of functions, forwards and backwards, and of a derivative, which `torch.vmap` takes several changes of."""
    torch = pytest.importorskip("torch")
    y, eye = torch.cos(torch.arange(12.0, dtype=torch.float64))[:, None], torch.eye(2, dtype=torch.float64)
    F, H = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64), eye[:1]

    def summed(variances: Any) -> Any:
        Q, R = torch.diag(variances[:2]), variances[2:].reshape(1, 1)
        found = getattr(kalman, verb.rpartition(".")[2])(
            y, F=F, H=H, Q=Q, R=R, m0=torch.zeros_like(eye[0]), P0=1e10 * eye
        )
        return found.mean[..., 0].sum() + found.cov[..., 0, 1].sum()

    at = torch.tensor([0.1, 0.2, 0.5], dtype=torch.float64)
    gradient = torch.func.grad(summed)
    assert_alike([torch.func.jacfwd(summed)(at), torch.func.jacrev(summed)(at)], 2 * [gradient(at)])
    step = 1e-5 * torch.eye(3, dtype=torch.float64)
    differences = torch.stack([(gradient(at + h) - gradient(at - h)) / 2e-5 for h in step])
    np.testing.assert_allclose(torch.func.hessian(summed)(at), differences, rtol=1e-6, atol=1e-6)
