"""The noise of states and of observations, given all that was observed: against one joint normal distribution."""

from typing import Any

import numpy as np
import pytest
from helpers import Subject, to_library, to_numpy

import tridiag
from tridiag import kalman
from tridiag.problems.state_space import SMOOTHER

from test_kalman import model, run, series, step_of  # isort: skip
from test_kalman_accuracy import HARD  # isort: skip
from test_kalman_diffuse import CASES as UNKNOWN  # isort: skip
from test_kalman_diffuse import limit, trend  # isort: skip

pytestmark = pytest.mark.only(verb=SMOOTHER, parallel=False)


def conditioned(y: np.ndarray, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> list[np.ndarray]:
    """Means and covariances of w[0] to w[n-2] and v[0] to v[n-1], with 120 digits: all are linear in y."""
    mp = pytest.importorskip("mpmath")
    (n, p), k, exactly = y.shape, len(m0), np.frompyfunc(mp.mpf, 1, 1)
    with mp.workdps(120):
        blocks = [P0, *(step_of(Q, t) for t in range(n - 1)), *(step_of(R, t) for t in range(n))]
        starts = np.cumsum([0, *map(len, blocks)])
        cov = exactly(np.zeros((starts[-1], starts[-1])))
        for start, block in zip(starts[:-1], blocks, strict=True):
            cov[start : start + len(block), start : start + len(block)] = exactly(block)
        units, mean, sights, errors = exactly(np.eye(len(cov))), exactly(m0), [], []
        state = units[:k]
        for t in range(n):
            h, own = exactly(step_of(H, t)), starts[n + t]
            sights.append(h @ state + units[own : own + p])
            errors.append(exactly(np.nan_to_num(y[t])) - h @ mean)
            if t < n - 1:
                f, own = exactly(step_of(F, t)), starts[1 + t]
                state, mean = f @ state + units[own : own + k], f @ mean
        there = ~np.isnan(y.ravel())
        sight, error = np.concatenate(sights)[there], np.concatenate(errors)[there]
        across = sight @ cov
        inverse = mp.matrix((across @ sight.T).tolist()) ** -1 if there.any() else mp.zeros(0)
        gain = across.T @ np.array(inverse.tolist(), object).reshape(len(error), len(error))
        means, covs = (x.astype(float) for x in (gain @ error, cov - gain @ across))
    parts = []
    for count, size, first in ((n - 1, k, k), (n, p, n * k)):
        own = range(first, first + count * size, size)
        parts.append(np.array([means[i : i + size] for i in own]).reshape(count, size))
        parts.append(np.array([covs[i : i + size, i : i + size] for i in own]).reshape(count, size, size))
    return parts


def check(found: Any, wanted: list[np.ndarray], y: np.ndarray, limit: float = 1e-8) -> None:
    """Within a share of the standard deviation of each disturbance, which may be 0; y itself is known to an eps."""
    rounding = 1e-15 * np.nanmax(abs(y))
    for mean, cov, right, right_cov in zip(found[0:4:2], found[1:4:2], wanted[0:4:2], wanted[1:4:2], strict=True):
        assert mean.shape == right.shape and cov.shape == right_cov.shape
        size = np.sqrt(np.maximum(np.diagonal(right_cov, axis1=-2, axis2=-1), 0))
        assert (abs(mean - right) <= limit * (size + abs(right)) + rounding).all()
        assert (abs(cov - right_cov) <= limit * size[..., None] * size[..., None, :] + 1e-16).all()
        np.testing.assert_array_equal(cov, cov.swapaxes(-1, -2))


LOW_RANK = np.outer([1.0, 2, -1, 0.5], [1.0, 2, -1, 0.5])
CASES = {
    "one state": (model(1, 1), series(6, 1, missing=0.3)),
    "four states": (model(4, 1), series(6, 1)),
    "changing": (model(3, 3, time=(5,)), series(5, 3, missing=0.3)),
    "Q and R change": (model(3, 3) | {x: model(3, 3, time=(5,))[x] for x in "QR"}, series(5, 3)),
    "exact, of low rank": (model(4, 2, Q=LOW_RANK, R=np.diag([0.0, 0.5])), series(6, 2, missing=0.2)),
    "some unknown": UNKNOWN["two observed, three unknown"][:2],
    "one step": (model(4, 1), series(1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_disturbances(backend: Subject, case: str) -> None:
    """Missing values, exact ones, noise of low rank, models that change with time, states that are unknown at first."""
    if backend.library == "jax" and case != "one state":
        pytest.skip("compiles for long; the steps are those of the other libraries")
    parameters, y = CASES[case]
    largest = backend.entry.states
    if largest is not None and 2 * len(parameters["m0"]) + y.shape[-1] > largest:
        pytest.skip(f"{backend.name} has no kernel for as many states, with those that carry the noise")
    found = run(backend, "disturbance_smoother", y, parameters)
    check(found, conditioned(y, **limit(parameters)), y)
    likelihood = kalman.log_likelihood(y, **parameters, backend="numpy_scan")
    np.testing.assert_allclose(found.log_likelihood, likelihood, rtol=1e-9)


@pytest.mark.parametrize("case", HARD)
def test_no_digits_are_lost(case: str) -> None:
    """Diffuse starts, exact observations, states of other units: no disturbance is a difference of states."""
    parameters, allowed = HARD[case]
    parameters = dict(parameters)
    y = parameters.pop("y")
    found = kalman.disturbance_smoother(y, **parameters, backend="numpy_scan")
    check(found, conditioned(y, **parameters), y, allowed * 1e-15)


@pytest.mark.parametrize("size", [1e-6, 1e-14, 1e-30])
@pytest.mark.parametrize("name", ["Q", "R"])
def test_tiny_noise(name: str, size: float) -> None:
    """Beside large states, from which it would be the difference of two."""
    parameters = model(2, 1) | {name: size * model(2, 1)[name], "m0": np.array([1e3, -1e3])}
    y = 1e3 * series(7, 1, missing=0.2)
    check(kalman.disturbance_smoother(y, **parameters, backend="numpy_scan"), conditioned(y, **parameters), y)


def test_batches_and_intercepts() -> None:
    """Each series is as alone; known vectors are no noise."""
    parameters, y = model(2, 1, 3, 1), series(3, 2, 6, 1, missing=0.2)
    more = {"state_intercept": np.array([1.0, -2]), "obs_intercept": np.array([3.0])}
    found = kalman.disturbance_smoother(y, **parameters, **more, backend="numpy_scan")
    assert found.state_disturbance.shape == (3, 2, 5, 2) and found.obs_disturbance_cov.shape == (3, 2, 6, 1, 1)
    for i in np.ndindex(3, 2):
        own = {name: x[i[0], 0] for name, x in parameters.items()}
        alone = kalman.disturbance_smoother(y[i], **own, **more, backend="numpy_scan")
        for part, right in zip(found, alone, strict=True):
            np.testing.assert_allclose(part[i], right, rtol=1e-9, atol=1e-12)
    states = kalman.smoother(y, **parameters, **more, backend="numpy_scan").mean
    F, H = parameters["F"], parameters["H"]
    moved = states[..., 1:, :] - (F @ states[..., :-1, :, None])[..., 0] - more["state_intercept"]
    np.testing.assert_allclose(found.state_disturbance, moved, atol=1e-9)
    seen = y - (H @ states[..., None])[..., 0] - more["obs_intercept"]
    there = ~np.isnan(y)
    np.testing.assert_allclose(found.obs_disturbance[there], seen[there], atol=1e-9)


@pytest.mark.parametrize("verb", [kalman.disturbance_smoother, kalman.lag_one_smoother])
def test_what_is_unknown_in_some_series_alone(verb: Any) -> None:
    """Each by its own start."""
    y = np.random.default_rng(0).normal(size=(2, 20, 1))
    unknown = np.stack([np.diag([np.inf, 1.0]), np.diag([np.inf, np.inf])])
    plain = {
        "F": [[1.0, 1.0], [0.0, 1.0]],
        "H": [[1.0, 0.0]],
        "Q": np.diag([0.1, 0.01]),
        "R": [[0.5]],
        "m0": [0.0, 0.0],
    }
    found = verb(y, **plain, P0=unknown)
    for k in range(2):
        for part, alone in zip(found, verb(y[k], **plain, P0=unknown[k]), strict=True):
            np.testing.assert_allclose(part[k], alone, rtol=1e-10, atol=1e-12)


def test_what_is_0_is_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state without noise costs nothing; what a gradient is wanted of, or cannot be read, is never taken for 0."""
    sizes = []
    smoother = kalman.larger.smoother

    def counted(y: Any, **given: Any) -> Any:
        sizes.append(given["F"].shape)
        return smoother(y, **given)

    monkeypatch.setattr(kalman.larger, "smoother", counted)
    parameters = model(3, 2, Q=np.diag([0.0, 1, 0]), R=np.diag([0.5, 0]))
    found = kalman.disturbance_smoother(series(5, 2), **parameters, backend="numpy_scan")
    assert sizes == [(1, 5, 5)]
    np.testing.assert_array_equal(found.state_disturbance[:, [0, 2]], 0)
    np.testing.assert_array_equal(found.obs_disturbance_cov[:, 1], 0)
    torch = pytest.importorskip("torch")
    tensors = {name: torch.tensor(x, requires_grad=name == "Q") for name, x in parameters.items()}
    kalman.disturbance_smoother(torch.tensor(series(5, 2)), **tensors)
    assert sizes[1] == (1, 7, 7)


def test_empty_series() -> None:
    found = kalman.disturbance_smoother(series(2, 0, 1), **model(2, 1))
    assert found.state_disturbance.shape == (2, 0, 2) and found.obs_disturbance_cov.shape == (2, 0, 1, 1)


@pytest.mark.filterwarnings("ignore")
def test_disturbances_are_those_of_statsmodels() -> None:
    """Of states that are unknown at first, with a gap; theirs of states are before the selection matrix."""
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    y = np.cumsum(series(30, 1), 0)
    y[10:13] = np.nan
    theirs = structural.UnobservedComponents(y[:, 0], "local linear trend", use_exact_diffuse=True)
    right = theirs.smooth([1.0, 0.3, 0.1]).smoother_results
    found = kalman.disturbance_smoother(y, **trend(m0=np.zeros(2)), backend="numpy_scan")
    pairs = (
        (found.state_disturbance, right.smoothed_state_disturbance[:, :-1]),
        (found.state_disturbance_cov, right.smoothed_state_disturbance_cov[..., :-1]),
        (found.obs_disturbance, right.smoothed_measurement_disturbance),
        (found.obs_disturbance_cov, right.smoothed_measurement_disturbance_cov),
    )
    for part, wanted in pairs:
        np.testing.assert_allclose(part, np.moveaxis(wanted, -1, 0), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_gradients(library: str) -> None:
    """In every parameter: differences of the same in NumPy."""
    pytest.importorskip(library)
    parameters, y = model(1, 1), series(4, 1)
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=part.shape) for part in kalman.disturbance_smoother(y, **parameters)]

    def total(given: dict[str, Any], data: Any, weights: Any) -> Any:
        found = kalman.disturbance_smoother(data, **given)
        return sum((w * x).sum() for w, x in zip(weights, found, strict=True))

    if library == "jax":
        import jax

        found = jax.jit(jax.grad(total))(*(jax.tree.map(jax.numpy.asarray, x) for x in (parameters, y, weights)))
    else:
        tensors = {name: to_library(library, x).requires_grad_() for name, x in parameters.items()}
        total(tensors, to_library(library, y), [to_library(library, w) for w in weights]).backward()
        found = {name: x.grad for name, x in tensors.items()}
    for name, x in parameters.items():
        low, high = (total(parameters | {name: x + h}, y, weights) for h in (-1e-6, 1e-6))
        wanted = (high - low) / 2e-6
        np.testing.assert_allclose(to_numpy(found[name]).sum(), wanted, rtol=1e-5, err_msg=name)


def test_bad_input() -> None:
    """Covariances are named as the caller knows them."""
    with pytest.raises(TypeError, match=r"disturbance_smoother also needs Q, R"):
        kalman.disturbance_smoother(series(5, 1), F=np.eye(2), H=np.eye(1, 2))
    with pytest.raises(ValueError, match=r"R\[0, 0\] is -1; a variance is not negative"):
        kalman.disturbance_smoother(series(5, 1), **model(2, 1, R=-np.eye(1)))
    with pytest.raises(ValueError, match=r"R\[0, 0\] is -1; a variance is not negative"):
        tridiag.explain(kalman.disturbance_smoother, series(5, 1), **model(2, 1, R=-np.eye(1)))
