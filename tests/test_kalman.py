"""`tridiag.kalman` by every backend: against conditioning of one joint normal distribution, and against statsmodels."""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import EPS, SUBJECTS, Subject, covariance, to_numpy

import tridiag
from tridiag import kalman
from tridiag.calls import fast_path, state_space
from tridiag.libraries.arrays import library_of
from tridiag.problems.state_space import FILTER, LIKELIHOOD

# the parallel one compiles for long: its own tests below
pytestmark = pytest.mark.only(verb=LIKELIHOOD, parallel=False)


# ---------------------------------------------------------------------------------------------------------- problems


def model(k: int, p: int, *batch: int, seed: int = 0, time: tuple[int, ...] = (), **replaced: Any) -> dict[str, Any]:
    """A random model, its parameters with batch axes and perhaps time."""
    rng = np.random.default_rng(seed)
    shape = (*batch, *(time or ((1,) if batch else ())))
    made = {
        "F": 0.9 * rng.normal(size=(*shape, k, k)) / np.sqrt(k),
        "H": rng.normal(size=(*shape, p, k)),
        "Q": covariance(rng, *shape, k),
        "R": covariance(rng, *shape, p) + 0.1 * np.eye(p),
        "m0": rng.normal(size=(*batch, k)),
        "P0": covariance(rng, *batch, k),
    }
    return made | replaced


def series(*shape: int, missing: float = 0.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = 2 * rng.normal(size=shape)
    y[rng.random(shape) < missing] = np.nan
    return y


def run(
    backend: Subject, verb: str, y: Any, parameters: dict[str, Any], dtype: str | None = None, **options: Any
) -> Any:
    """From NumPy arrays to NumPy arrays."""
    function = getattr(kalman, verb)
    given = {name: backend.array(x, dtype) for name, x in parameters.items()}
    options = named_unknown(given["P0"], parameters) | options
    result = function(backend.array(y, dtype), backend=backend.name, **given, **options)
    return type(result)(*map(to_numpy, result)) if isinstance(result, tuple) else to_numpy(result)


def named_unknown(P0: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The option that names what is unknown at first, where P0 cannot be read: on a GPU."""
    unknown = np.isposinf(np.diagonal(parameters["P0"], axis1=-2, axis2=-1)).reshape(-1, parameters["P0"].shape[-1])
    on_gpu = library_of(P0) == "cupy" or "cuda" in str(getattr(P0, "device", ""))
    named = on_gpu and unknown.all(0).any()
    return {"diffuse": [*np.flatnonzero(unknown.any(0))]} if named else {}


# ------------------------------------------------------------------------------------------------------ the definition


def step_of(x: np.ndarray, t: int) -> np.ndarray:
    return x if x.ndim == 2 else x[min(t, len(x) - 1)]


def joint(n: int, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> tuple[np.ndarray, ...]:
    """Mean and covariance of all states, and the matrix that observes them with its noise, of one series."""
    k, p = len(m0), step_of(H, 0).shape[0]
    mean, cov = np.zeros((n, k)), np.zeros((n, k, n, k))
    mean[0], cov[0, :, 0] = m0, P0
    for t in range(n - 1):
        f = step_of(F, t)
        mean[t + 1] = f @ mean[t]
        for s in range(t + 1):
            cov[t + 1, :, s] = f @ cov[t, :, s]
            cov[s, :, t + 1] = cov[t + 1, :, s].T
        cov[t + 1, :, t + 1] = f @ cov[t, :, t] @ f.T + step_of(Q, t)
    design, noise = np.zeros((n, p, n, k)), np.zeros((n, p, n, p))
    for t in range(n):
        design[t, :, t], noise[t, :, t] = step_of(H, t), step_of(R, t)
    return mean.ravel(), cov.reshape(n * k, n * k), design.reshape(n * p, n * k), noise.reshape(n * p, n * p)


def conditioned(y: np.ndarray, until: int, parts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of all states given the first observations, and the log-density of those."""
    mean, cov, design, noise = parts
    n, p = y.shape
    seen = np.flatnonzero(~np.isnan(y.ravel()) & (np.arange(n * p) < until * p))
    design, S = design[seen], (design @ cov @ design.T + noise)[np.ix_(seen, seen)]
    v = y.ravel()[seen] - design @ mean
    gain = np.linalg.solve(S, design @ cov).T if len(seen) else np.zeros((len(mean), 0))
    quadratic = v @ np.linalg.solve(S, v) if len(seen) else 0.0
    density = -(len(seen) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + quadratic) / 2
    return mean + gain @ v, cov - gain @ design @ cov, density


def moments(y: np.ndarray, parameters: dict[str, Any], ahead: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of x[t] given y[0] to y[ahead(t) - 1], and the log-likelihood of one series."""
    n, k = len(y), len(parameters["m0"])
    parts = joint(n, **parameters)
    means, covs = np.empty((n, k)), np.empty((n, k, k))
    for t in range(n):
        mean, cov, _ = conditioned(y, ahead(t), parts)
        means[t], covs[t] = mean.reshape(n, k)[t], cov.reshape(n, k, n, k)[t, :, t]
    return means, covs, conditioned(y, n, parts)[2]


def of_series(parameters: dict[str, Any], *index: int) -> dict[str, Any]:
    """The model of one series."""
    own = {}
    for name, x in parameters.items():
        rank = min(x.ndim, {"m0": 1, "P0": 2}.get(name, 3))
        places = index[len(index) - (x.ndim - rank) :]
        own[name] = x[tuple(i if length > 1 else 0 for i, length in zip(places, x.shape, strict=False))]
    return own


CASES = {  # k, p, steps, missing, time axis
    "one state": (1, 1, 7, 0.0, ()),
    "two observed": (2, 2, 6, 0.3, ()),
    "one step": (2, 1, 1, 0.0, ()),
    "changing": (2, 1, 6, 0.2, (6,)),
    "more observed than states": (1, 2, 4, 0.3, ()),
    "three observed": (3, 3, 5, 0.4, (5,)),
    "four states": (4, 1, 6, 0.2, (6,)),
    "five observed": (2, 5, 4, 0.3, ()),
}
LATER = "three observed", "four states", "five observed"  # each pair of k and p is a kernel or three of its own


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LATER else []) for c in CASES])
def test_moments_of_one_series(backend: Subject, case: str) -> None:
    k, p, n, missing, time = CASES[case]
    y, parameters = series(n, p, missing=missing), model(k, p, time=time)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-9)
    likelihood = moments(y, parameters, lambda t: n)[2]
    close(run(backend, "log_likelihood", y, parameters), likelihood)
    if backend.can(verb="kalman.filter"):
        found = run(backend, "filter", y, parameters)
        for part, ahead in (((found.mean, found.cov), 1), ((found.predicted_mean, found.predicted_cov), 0)):
            means, covs, _ = moments(y, parameters, lambda t, ahead=ahead: t + ahead)
            close(part[0], means)
            close(part[1], covs)
        close(found.log_likelihood, likelihood)
    if backend.can(verb="kalman.smoother"):
        smoothed = run(backend, "smoother", y, parameters)
        means, covs, _ = moments(y, parameters, lambda t: n)
        close(smoothed.mean, means)
        close(smoothed.cov, covs)
        close(smoothed.log_likelihood, likelihood)


SHARED = {
    "the model": {},
    "nothing": model(2, 2, 4, 3),
    "along the first axis": model(2, 2, 3, time=(5,)),
    "all but F": {"F": model(2, 2, 4, 1)["F"]},
    "all but m0": {"m0": model(2, 2, 3)["m0"]},
    "all but P0": {"P0": model(2, 2, 4, 1)["P0"]},
}


@pytest.mark.parametrize("shared", SHARED)
def test_batches_of_series_and_models(backend: Subject, shared: str) -> None:
    """Each result is that of its series alone, whatever is shared."""
    parameters = model(2, 2) | SHARED[shared]
    for missing in (0.0, 0.3):
        y = series(4, 3, 5, 2, missing=missing)
        found = run(backend, "log_likelihood", y, parameters)
        assert found.shape == (4, 3)
        for index in np.ndindex(4, 3):
            right = moments(y[index], of_series(parameters, *index), lambda t: 5)[2]
            np.testing.assert_allclose(found[index], right, rtol=1e-9, err_msg=str(index))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_batches_of_moments(backend: Subject, missing: float) -> None:
    y, parameters = series(3, 4, 2, missing=missing), model(2, 2)
    for verb, ahead in (("filter", lambda t: t + 1), ("smoother", lambda t: 4)):
        if backend.can(verb=f"kalman.{verb}"):
            found = run(backend, verb, y, parameters)
            assert found.cov.shape == (3, 4, 2, 2)
            for i in range(3):
                means, covs, _ = moments(y[i], parameters, ahead)
                np.testing.assert_allclose(found.mean[i], means, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(found.cov[i], covs, rtol=1e-9, atol=1e-9)


def test_a_model_of_many_series_may_serve_one(backend: Subject) -> None:
    y, parameters = series(5, 1), model(2, 1, 3)
    found = run(backend, "log_likelihood", y, parameters)
    alone = [run(backend, "log_likelihood", y, of_series(parameters, i)) for i in range(3)]
    np.testing.assert_allclose(found, alone, rtol=1e-12)


# ----------------------------------------------------------------------------------------------------- statsmodels


def by_statsmodels(y: np.ndarray, parameters: dict[str, Any]) -> Any:
    statespace = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")
    k, p = len(parameters["m0"]), y.shape[-1]
    filtered = statespace.KalmanSmoother(p, k)
    filtered.bind(np.array(y))
    names = {"F": "transition", "H": "design", "Q": "state_cov", "R": "obs_cov"}
    for name, told in names.items():
        filtered[told] = np.array(
            np.moveaxis(parameters[name], 0, -1) if parameters[name].ndim == 3 else parameters[name]
        )
    filtered["selection"] = np.eye(k)
    filtered.initialize_known(parameters["m0"], parameters["P0"])
    return filtered.smooth()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))])
def test_statsmodels(backend: Subject, seed: int) -> None:
    """20 random models, with missing data, R = 0 and singular Q among them."""
    rng = np.random.default_rng(seed)
    k, p, n = rng.integers(1, 9), rng.integers(1, 4), int(rng.integers(50, 200))
    time = (n,) if seed % 3 == 1 else ()
    y = series(n, p, missing=[0, 0.2][seed % 2], seed=seed)
    y[n // 2 : n // 2 + 5] = np.nan
    parameters = model(k, p, seed=seed, time=time, Q=covariance(rng, *time, k, rank=max(1, k - seed % 3)))
    if seed % 5 == 0:
        parameters["R"] = 0 * parameters["R"]
        parameters["Q"] = covariance(rng, *time, k)
    right = by_statsmodels(y, parameters)
    np.testing.assert_allclose(run(backend, "log_likelihood", y, parameters), right.llf, rtol=1e-9)
    if backend.can(verb="kalman.smoother") and seed % 4 == 0:
        found = run(backend, "smoother", y, parameters)
        np.testing.assert_allclose(found.mean, right.smoothed_state.T, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(found.cov, np.moveaxis(right.smoothed_state_cov, -1, 0), rtol=1e-7, atol=1e-7)


# ------------------------------------------------------------------------------------------------------ special models


def autoregression() -> dict[str, Any]:
    """AR(2): nothing but the newest value is noisy, and it is observed exactly."""
    F = np.array([[1.2, -0.5], [1.0, 0.0]])
    return {"F": F, "H": np.array([[1.0, 0.0]]), "Q": np.diag([1.0, 0.0]), "R": np.zeros((1, 1)),
            "m0": np.zeros(2), "P0": np.eye(2)}  # fmt: skip


def test_exact_observations_of_a_singular_model(backend: Subject) -> None:
    y, parameters = series(30, 1), autoregression()
    y[7] = np.nan
    likelihood = run(backend, "log_likelihood", y, parameters)
    np.testing.assert_allclose(likelihood, moments(y, parameters, lambda t: 30)[2], rtol=1e-9)
    if backend.can(verb="kalman.smoother"):
        found = run(backend, "smoother", y, parameters)
        seen = np.arange(30) != 7
        np.testing.assert_allclose(found.mean[seen, 0], y[seen, 0], rtol=1e-12)
        assert (abs(found.cov[seen, 0, 0]) < 1e-12).all() and found.cov[7, 0, 0] > 0.1


def test_an_innovation_covariance_that_is_not_positive_definite_is_nan_alone(backend: Subject) -> None:
    y, parameters = series(3, 6, 1), model(2, 1, 3)
    parameters["H"][1] = parameters["R"][1] = 0
    found = run(backend, "log_likelihood", y, parameters)
    assert np.isnan(found).tolist() == [False, True, False]
    single = run(backend, "log_likelihood", y[2], of_series(parameters, 2))
    np.testing.assert_allclose(found[2], single, rtol=1e-12)


INFINITE = {
    "R": {"R": np.diag([1.0, np.inf])},
    "R of one step": {"R": np.stack([np.eye(2), np.diag([np.inf, 1.0]), np.eye(2)])},
    "Q": {"Q": np.diag([1.0, np.inf])},
    "their sum": {"P0": 1e308 * np.eye(2), "H": np.ones((2, 2))},
}


@pytest.mark.parametrize("case", INFINITE)
def test_an_infinite_variance_is_no_other_one(backend: Subject, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of a state that is known, nor of an exact observation: NaN from that step on, of its series alone.

    Where values are not looked at, as on a GPU or in a trace.
    """
    for module in (state_space, fast_path.filters):
        monkeypatch.setattr(module, "check_covariance", lambda *_: None)
    parameters, y = model(2, 2, P0=np.eye(2)) | INFINITE[case], series(3, 2)
    first = {"Q": 1, "R of one step": 1}.get(case, 0)
    assert np.isnan(run(backend, "log_likelihood", y, parameters))
    found = run(backend, "filter", y, parameters) if backend.can(verb=FILTER) else None
    for x in (found.mean, found.cov) if found else ():
        assert np.isnan(x[first:]).all()
        assert np.isfinite(x[:first]).all()
    alone = model(2, 2, P0=np.eye(2))
    both = {name: np.stack([alone[name]] * 2) for name in parameters}
    both = {name: x if name in ("m0", "P0") else x[:, None] for name, x in both.items()}
    both["R"] = np.stack([np.eye(2), np.diag([1.0, np.inf])])[:, None]
    found = run(backend, "log_likelihood", np.stack([y, y]), both)
    np.testing.assert_allclose(found, [run(backend, "log_likelihood", y, alone | {"R": np.eye(2)}), np.nan], 1e-12)


def test_nothing_observed_tells_nothing(backend: Subject) -> None:
    y, parameters = series(2, 5, 2), model(2, 2)
    y[1] = np.nan
    assert run(backend, "log_likelihood", y, parameters)[1] == 0


def test_what_is_said_not_to_be_read_is_not(backend: Subject) -> None:
    """F[n-1], Q[n-1]; H and R of what is missing."""
    y, parameters = series(5, 2), model(2, 2, time=(5,))
    y[2, 1] = np.nan
    right = run(backend, "log_likelihood", y, parameters)
    for name, place in (("F", 4), ("Q", 4), ("H", (2, 1)), ("R", (2, 1)), ("R", (2, slice(None), 1))):
        parameters[name][place] = np.nan
    np.testing.assert_array_equal(run(backend, "log_likelihood", y, parameters), right)


def test_nan_in_a_model_is_its_own(backend: Subject) -> None:
    y, parameters = series(3, 5, 1), model(2, 1, 3)
    parameters["F"][1, 0, 0, 1] = np.nan
    assert np.isnan(run(backend, "log_likelihood", y, parameters)).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_other_precisions(backend: Subject, dtype: str) -> None:
    if dtype == "bfloat16" and backend.library in ("numpy", "cupy"):
        pytest.skip("NumPy and CuPy have no bfloat16")
    y, parameters = series(4, 20, 2, missing=0.1), model(2, 2)
    found = backend.array(0)
    found = kalman.log_likelihood(
        backend.array(y, dtype),
        backend=backend.name,
        **{name: backend.array(x, dtype) for name, x in parameters.items()},
    )
    assert str(found.dtype).endswith(dtype)
    rounded = {name: to_numpy(backend.array(x, dtype)).astype(float) for name, x in {**parameters, "y": y}.items()}
    right = run(backend, "log_likelihood", rounded.pop("y"), rounded)
    np.testing.assert_allclose(to_numpy(found).astype(float), right, rtol=max(1e-4, 4 * EPS[dtype]))


@pytest.mark.parametrize("shape", [(0, 2), (3, 0, 2), (0, 5, 2)])
def test_no_steps_and_no_series(backend: Subject, shape: Any) -> None:
    y, parameters = np.zeros(shape), model(2, 2)
    found = run(backend, "log_likelihood", y, parameters)
    assert found.shape == shape[:-2] and not found.any()
    if backend.can(verb="kalman.smoother"):
        assert run(backend, "smoother", y, parameters).cov.shape == (*shape[:-1], 2, 2)


# ---------------------------------------------------------------------------------------------------------- bad input

BAD = {
    "y of rank 1": ({"y": np.zeros(5)}, ValueError, r"y has shape \(5,\); wanted \(\.\.\., n, p\)"),
    "F not square": ({"F": np.zeros((2, 3))}, ValueError, r"F has shape \(2, 3\); wanted a square matrix"),
    "nothing observed": ({"y": np.zeros((6, 0))}, ValueError, r"y has shape \(6, 0\); wanted at least one value"),
    "no states": ({"F": np.zeros((0, 0))}, ValueError, "F has shape .*; wanted at least one state"),
    "H of other states": ({"H": np.zeros((1, 3))}, ValueError, r"H has shape \(1, 3\); with 1 values .* and 2 states"),
    "F of a number": ({"F": 1.0}, ValueError, r"F has shape \(\); wanted a square .*: np\.array\(\[\[F\]\]\)\?"),
    "m0 of a number": ({"m0": 0.0}, ValueError, r"m0 has shape \(\); with 2 states .* \(2,\): np\.full\(2, m0\)\?"),
    "R of other values": ({"R": np.eye(2)}, ValueError, r"R has shape \(2, 2\); with 1 values"),
    "m0 of other states": ({"m0": np.zeros(3)}, ValueError, r"m0 has shape \(3,\)"),
    "a step less": (
        {"F": np.zeros((5, 2, 2))},
        ValueError,
        r"has length 5, and y has 6 steps; .* np.concatenate\(\[F, F\[..., -1:, :, :\]\], axis=-3\)",
    ),
    "no time axis": ({"F": np.zeros((4, 2, 2))}, ValueError, r"time, of length n = 6 or 1; a model per series needs"),
    "batches": ({"P0": np.zeros((3, 2, 2))}, ValueError, r"the batch axes do not broadcast: y \(4, 6, 1\)"),
    "complex": ({"m0": np.zeros(2) * 1j}, TypeError, "complex128; wanted real numbers"),
    "text": ({"m0": np.array(["a", "b"])}, TypeError, "m0 has dtype"),
    "method": ({"method": "fast"}, ValueError, "method is 'fast'; wanted one of 'auto', 'sequential', 'parallel'"),
    "asymmetric": ({"Q": np.array([[1.0, 0.5], [0.2, 1.0]])}, ValueError,
                   r"Q is not symmetric: Q\[0, 1\] is 0.5 and Q\[1, 0\] is 0.2"),
    "negative": ({"R": np.array([[-1.0]])}, ValueError, r"R\[0, 0\] is -1; a variance is not negative"),
    "negative beyond bounds": ({"P0": np.diag([1.0, -np.inf])}, ValueError, r"P0\[1, 1\] is -inf; a variance is not"),
    "infinite Q": ({"Q": np.diag([1.0, np.inf])}, ValueError, r"Q\[1, 1\] is inf; wanted a finite .* in P0 a variance"),
    "infinite R at some time": ({"R": np.array([1, 1, np.inf, 1, 1, 1])[:, None, None]}, ValueError,
                                r"R\[2, 0, 0\] is inf; wanted a finite covariance; an observation .* NaN in y"),
    "infinite R of some series": ({"R": np.array([1, np.inf, 1, 1])[:, None, None, None]}, ValueError,
                                  r"R\[1, 0, 0, 0\] is inf; wanted"),
    "infinite between states": ({"P0": np.array([[1, -np.inf], [-np.inf, 1]])}, ValueError,
                                r"P0\[0, 1\] is -inf; wanted a finite covariance; in P0 a variance is inf"),
    "indefinite": ({"Q": np.array([[1.0, 2.0], [2.0, 1.0]])}, ValueError,
                   "Q is not positive semidefinite: its eigenvalues go from -1 to 3; those of a covariance are not"),
    "indefinite at some time": (
        {"Q": np.eye(2) + np.array([0, 0, 0, 2.0, 0, 3])[:, None, None] * np.array([[0, 1.0], [1, 0]])}, ValueError,
        r"Q\[3\] is not positive semidefinite: its eigenvalues go from -1 to 3"),
    "indefinite without variance": ({"P0": np.array([[0.0, 1.0], [1.0, 0.0]])}, ValueError,
                                    "P0 is not positive semidefinite: its eigenvalues go from -1 to 1"),
    "negative somewhere": ({"P0": np.eye(2) * np.array([1, -2.0, 1, 1])[:, None, None]}, ValueError,
                           r"P0\[1, 0, 0\] is -2"),
}  # fmt: skip


@pytest.mark.parametrize("verb", ["filter", "smoother", "log_likelihood"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, verb: str) -> None:
    replaced, kind, told = BAD[case]
    with pytest.raises(kind, match=told):
        getattr(kalman, verb)(**{"y": series(4, 6, 1), **model(2, 1), **replaced})


def test_libraries_are_not_mixed() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="different libraries"):
        kalman.log_likelihood(torch.zeros(5, 1), **model(2, 1))


def test_a_covariance_as_computed_is_symmetric_enough() -> None:
    G = np.random.default_rng(0).normal(size=(2, 40))
    Q = G @ np.diag(np.arange(40.0)) @ G.T
    assert np.isfinite(kalman.log_likelihood(series(6, 1), **model(2, 1, Q=Q)))
    kalman.log_likelihood(series(6, 1), **model(2, 1, Q=Q.astype(np.float32).astype(float)))


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_covariances_of_low_rank_are_positive_semidefinite(count: int) -> None:
    """Whatever their rank and the scales of their states; what is not finite is let through."""
    from tridiag.problems.covariances import check_covariance

    rng = np.random.default_rng(0)
    for rank in range(5):
        scale = 10.0 ** rng.integers(-8, 8, size=(count, 4, 1))
        for dtype in ("float64", "float32"):
            factor = (scale * rng.normal(size=(count, 4, rank))).astype(dtype)
            covs = factor @ factor.swapaxes(-1, -2)
            check_covariance("Q", covs, 7)
            check_covariance("Q", covs.astype(float), 7)
            covs[0, 1, 2] = covs[0, 2, 1] = np.nan
            check_covariance("Q", covs, 7)
            with pytest.raises(ValueError, match=rf"Q\[{count - 1}\] is not positive semidefinite"):
                check_covariance("Q", np.concatenate((covs[1:], np.ones((1, 4, 4)) - 0.5 * np.eye(4))), 7)


@pytest.mark.parametrize("k", [2, 8, 9])
@pytest.mark.parametrize("count", [1, 2])
def test_covariances_are_symmetric_but_for_rounding(k: int, count: int) -> None:
    """Alike in each of the ways in which few or many, small or large matrices are looked at."""
    from tridiag.problems.covariances import check_covariance, tolerance

    for place in ((1, 0), (k - 1, 0), (0, k - 1)):
        for excess, refused in ((0.1, False), (10, True)):
            covs = np.broadcast_to(np.eye(k), (count, k, k)).copy()
            covs[(-1, *place)] = excess * tolerance(covs.dtype)
            if refused:
                with pytest.raises(ValueError, match="R is not symmetric"):
                    check_covariance("R", covs, 5)
            else:
                check_covariance("R", covs, 5)


@pytest.mark.parametrize("k", [8, 9, 40])
def test_covariances_of_many_states_are_told_apart(k: int) -> None:
    """However many are looked at together, just those that are none are refused; what is not finite is let through."""
    from tridiag.problems.covariances import check_covariance, sound

    factors = np.random.default_rng(k).normal(size=(300, k, k))
    covs = factors @ factors.swapaxes(-1, -2)
    assert sound(covs).all()
    covs[[5, 17]] = np.nan
    check_covariance("Q", covs, 7)
    covs[[100, 299]] -= 2 * covs.max() * np.eye(k)
    assert np.flatnonzero(~sound(covs)).tolist() == [5, 17, 100, 299]
    covs[100] = np.eye(k) - np.ones((k, k)) / 2
    with pytest.raises(ValueError, match=r"Q\[100\] is not positive semidefinite"):
        check_covariance("Q", covs[:-1], 7)


def test_a_filter_goes_on_from_its_own_covariance() -> None:
    """Where one observation is exact a variance may come out below 0 by rounding; -1e-3 of the largest is none."""
    parameters = model(2, 1)
    parameters["P0"] = np.array([[100.0, 0.0], [0.0, -4.2e-15]])
    assert np.isfinite(kalman.log_likelihood(series(5, 1), **parameters))
    parameters["P0"][1, 1] = -0.1
    with pytest.raises(ValueError, match=r"P0\[1, 1\] is -0.1; a variance is not negative"):
        kalman.log_likelihood(series(5, 1), **parameters)


@pytest.mark.parametrize("name", ["F", "H", "Q", "R"])
def test_as_many_series_as_steps_leave_a_model_in_doubt(name: str) -> None:
    """Of each step or of each series: either would be taken in silence."""
    parameters, y = model(2, 1), series(7, 7, 1)
    several = np.stack([parameters[name]] * 7)
    with pytest.raises(ValueError, match=rf"{name}\[None\] has a time axis .* {name}\[:, None\] is a model per series"):
        kalman.log_likelihood(y, **parameters | {name: several})
    wanted = kalman.log_likelihood(y, **parameters)
    for one in (several[None], several[:, None]):
        np.testing.assert_allclose(kalman.log_likelihood(y, **parameters | {name: one}), wanted, rtol=1e-12)


def test_the_last_covariance_of_a_changing_model_is_not_checked() -> None:
    parameters = model(2, 1, time=(6,))
    parameters["Q"][5, 0, 0] = -1
    assert np.isfinite(kalman.log_likelihood(series(6, 1), **parameters))


def test_explain_knows_the_verbs() -> None:
    y, parameters = series(6, 1), model(2, 1)
    for name in ("filter", "smoother", "log_likelihood"):
        told = tridiag.explain(f"kalman.{name}", y, **parameters, backend="numpy")
        assert told.backend == tridiag.explain(getattr(kalman, name), y, **parameters, backend="numpy").backend
        assert told.backend == "numpy_scan"
    with pytest.raises(tridiag.BackendError, match="numpy"):
        tridiag.explain("kalman.filter", y, **parameters, method="parallel")
    if any(subject.library == "jax" for subject in SUBJECTS if subject.cannot_run_here() is None):
        assert tridiag.explain("kalman.filter", to_jax(y), **parameters, method="parallel").backend == "jax_associative"


# ------------------------------------------------------------------------------------------------------- numba_scan

compiled = pytest.mark.only(verb=LIKELIHOOD, library="numpy")


@compiled
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_more_series_than_lanes_and_threads(backend: Subject, dtype: str) -> None:
    """All three kernels, a last group that is not full, arrays that are not contiguous."""
    limit = {"float64": 1e-11, "float32": 1e-3}[dtype]
    for batch in ((), (3, 40)):
        for missing in (0.0, 0.2):
            y = series(3, 90, 60, 2, missing=missing)[:, ::-2][:, :40].astype(dtype)
            parameters = {name: x.astype(dtype) for name, x in model(2, 2, *batch).items()}
            found = kalman.log_likelihood(y, backend=backend.name, **parameters)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, kalman.log_likelihood(y, backend="numpy", **parameters), rtol=limit)


@compiled
def test_states_of_more_series_than_lanes(backend: Subject) -> None:
    """Filter and smoother of a model that changes with time, and of one for each; F[n-1], Q[n-1] are not read."""
    changing, own = model(2, 2, time=(9,)), model(2, 2, 40)
    for name in ("F", "Q"):
        changing[name][8] = np.nan
    for y, parameters in ((series(3, 40, 9, 2, missing=0.2), changing), (series(40, 9, 2), own)):
        for verb in ("filter", "smoother"):
            found, wanted = (getattr(kalman, verb)(y, backend=name, **parameters) for name in (backend.name, "numpy"))
            for x, z in zip(found, wanted, strict=True):
                np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-11)


@compiled
def test_variances_far_from_1(backend: Subject) -> None:
    """Their product leaves the range of the dtype after a few steps."""
    for scale in (1e-100, 1e100):
        y, parameters = series(2, 50, 1), model(2, 1)
        right = run(backend, "log_likelihood", y, parameters)
        squared = {"Q", "R", "P0"}
        parameters = {n: x * (scale**2 if n in squared else scale if n == "m0" else 1) for n, x in parameters.items()}
        found = run(backend, "log_likelihood", scale * y, parameters)
        np.testing.assert_allclose(found, right - 50 * np.log(scale), rtol=1e-10)


def test_larger_models_are_not_compiled() -> None:
    told = tridiag.explain("kalman.log_likelihood", series(6, 1), **model(33, 1))
    assert told.backend == "numpy_scan"
    assert told.others["numba_scan"] == "filters up to 32 states or observed values, not 33"
    assert tridiag.explain("kalman.log_likelihood", series(6, 1), **model(32, 1)).backend == "numba_scan"


# ---------------------------------------------------------------------------------------------------------------- JAX

in_jax = pytest.mark.only(verb=LIKELIHOOD, library="jax")
WALK = {"y": series(3, 8, 1, missing=0.2), **model(2, 1)}


def likelihood_of(backend: Subject, values: dict[str, Any]) -> Any:
    import jax.numpy as jnp

    return jnp.sum(kalman.log_likelihood(backend=backend.name, **values))


@in_jax
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_gradients_are_finite_differences(backend: Subject, missing: float) -> None:
    """In every argument; covariances move symmetrically. 0 for what is missing."""
    import jax

    y = series(3, 6, 2, missing=missing)
    values = {name: jax.numpy.asarray(x) for name, x in {"y": y, **model(2, 2)}.items()}
    gradient = jax.jit(jax.grad(functools.partial(likelihood_of, backend)))(values)
    rng = np.random.default_rng(3)
    for name, x in values.items():
        step = rng.normal(size=x.shape)
        step = step + step.swapaxes(-1, -2) if name in ("Q", "R", "P0") else step
        low, high = (likelihood_of(backend, {**values, name: x + h * step}) for h in (-1e-5, 1e-5))
        np.testing.assert_allclose((gradient[name] * step).sum(), (high - low) / 2e-5, rtol=2e-6, err_msg=name)
        assert np.isfinite(gradient[name]).all()
    assert not gradient["y"][np.isnan(y)].any()
    for name in ("Q", "R", "P0"):
        np.testing.assert_allclose(gradient[name], gradient[name].swapaxes(-1, -2), rtol=1e-9)


@in_jax
@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(model(2, 2, time=(5,)), id="shared, of each step"),
        pytest.param(model(2, 2, 3, time=(5,)), id="own, of each step", marks=pytest.mark.slow),
        pytest.param(model(2, 2, 3), id="own"),
    ],
)
def test_gradients_of_models_that_series_share_or_not(backend: Subject, parameters: dict[str, np.ndarray]) -> None:
    """As of one series after another; weights tell the series apart."""
    import jax

    jnp, weights = jax.numpy, jax.numpy.arange(1.0, 4.0)
    y = jnp.asarray(series(3, 5, 2, missing=0.3))

    def weighted(given: Any, y: Any, weights: Any) -> Any:
        return (weights * kalman.log_likelihood(y, **given, backend=backend.name)).sum()

    slope = jax.jit(jax.grad(weighted))
    gradient = slope({name: jnp.asarray(x) for name, x in parameters.items()}, y, weights)
    wanted = {name: np.zeros(x.shape) for name, x in parameters.items()}
    for i in range(3):
        own = {name: jnp.asarray(x) for name, x in of_series(parameters, i).items()}
        for name, x in slope(own, y[i], weights[i]).items():
            place = i if wanted[name].ndim > x.ndim else ...
            wanted[name][place] += x
    for name, x in gradient.items():
        np.testing.assert_allclose(x, wanted[name], rtol=1e-9, atol=1e-12, err_msg=name)


GRADIENTS = {  # a model, and what is missing
    "shared": (model(2, 1), 0.0),
    "some missing": (model(2, 1), 0.3),
    "own": (model(2, 1, 3, 1) | {"m0": model(2, 1, 20)["m0"]}, 0.0),
    "singular": ("autoregression", 0.0),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in ("shared", "own") else [pytest.mark.slow]) for case in GRADIENTS]
)
def test_compiled_gradients_are_those_of_a_scan(case: str) -> None:
    """In every argument, of more series than lanes; one whose covariance is not positive definite is NaN alone."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("numba")

    parameters, missing = GRADIENTS[case]
    parameters = autoregression() if parameters == "autoregression" else {n: x.copy() for n, x in parameters.items()}
    if case == "own":
        parameters["H"][1] = parameters["R"][1] = 0
    y = jax.numpy.asarray(series(3, 20, 7, 1, missing=missing))
    weights = jax.numpy.asarray(np.random.default_rng(5).normal(size=(3, 20)))

    def total(values: dict[str, Any], name: str) -> Any:
        return (weights * kalman.log_likelihood(backend=name, **values)).sum()

    values = {"y": y} | {name: jax.numpy.asarray(x) for name, x in parameters.items()}
    found, wanted = (jax.jit(jax.grad(total), static_argnums=1)(values, name) for name in ("numba_scan", "jax_scan"))
    without_y = jax.jit(jax.grad(lambda model: total({"y": y} | model, "numba_scan")))(
        {name: x for name, x in values.items() if name != "y"}
    )
    for name, x in wanted.items():
        scale = np.nan_to_num(abs(x)).max()
        np.testing.assert_allclose(found[name], x, rtol=1e-8, atol=1e-9 * scale, err_msg=name)
        if name != "y":
            np.testing.assert_allclose(without_y[name], found[name], rtol=1e-12, err_msg=name)
    if case == "own":
        assert np.isnan(found["F"]).all((-1, -2)).ravel().tolist() == [False, True, False]
        assert np.isnan(found["y"]).all((-1, -2)).all(1).tolist() == [False, True, False]


def test_gradients_of_one_series_after_another() -> None:
    """`vmap` of a gradient, in the observations and in the model: in one call, each as alone."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("numba")

    y, parameters = jax.numpy.asarray(series(3, 6, 1)), {n: jax.numpy.asarray(x) for n, x in model(2, 1).items()}
    noise = parameters["R"] * jax.numpy.arange(1.0, 4.0)[:, None, None]
    gradient = jax.grad(
        lambda y, R: kalman.log_likelihood(y, backend="numba_scan", **parameters | {"R": R}), argnums=(0, 1)
    )
    for axes in ((0, None), (None, 0), (0, 0)):
        given = y if axes[0] == 0 else y[1], noise if axes[1] == 0 else noise[1]
        found = jax.vmap(gradient, axes)(*given)
        for i in range(3):
            alone = gradient(y[i if axes[0] == 0 else 1], noise[i if axes[1] == 0 else 1])
            for x, wanted in zip(found, alone, strict=True):
                np.testing.assert_allclose(x[i], wanted, rtol=1e-10)


def test_compiled_gradients_inside_shard_map() -> None:
    """Their types vary over the mesh as those of the arguments do."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("numba")
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("s",))
    split, whole = jax.sharding.PartitionSpec("s"), jax.sharding.PartitionSpec()
    y, parameters = to_jax(series(3, 6, 1)), to_jax(model(2, 1))

    def likelihood(y: Any, parameters: dict[str, Any]) -> Any:
        return kalman.log_likelihood(y, backend="numba_scan", **parameters)

    mapped = jax.shard_map(likelihood, mesh=mesh, in_specs=(split, whole), out_specs=split)
    found, wanted = (jax.grad(lambda p, f=f: f(y, p).sum())(parameters) for f in (mapped, likelihood))
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-12, err_msg=name)


@in_jax
def test_second_derivatives(backend: Subject) -> None:
    import jax

    given = {name: jax.numpy.asarray(x) for name, x in model(2, 1).items()}
    y = jax.numpy.asarray(series(6, 1))
    function = lambda scale: kalman.log_likelihood(y, **given | {"Q": scale * given["Q"]}, backend=backend.name)  # noqa: E731
    gradient = jax.grad(function)
    wanted = (gradient(1 + 1e-5) - gradient(1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.hessian(function)(1.0), wanted, rtol=1e-7)


@pytest.mark.parametrize("case", ["known", "ill-conditioned"])
@pytest.mark.only(verb=LIKELIHOOD, library="torch")
def test_second_derivatives_in_torch(backend: Subject, case: str) -> None:
    """By `hessian`, in `torch.func` and in a second pass backwards: none is 0 without a word."""
    import torch

    hard = {"P0": 1e9 * np.eye(2), "Q": np.zeros((2, 2))} if case == "ill-conditioned" else {}
    given = {name: torch.tensor(x) for name, x in (model(2, 1) | hard).items()}
    y, noise = torch.tensor(series(6, 1, missing=0.2)), torch.eye(2, dtype=torch.float64)

    def function(scale: Any) -> Any:
        return kalman.log_likelihood(y, **given | {"Q": given["Q"] + scale * noise}, backend=backend.name)

    def gradient(scale: float) -> float:
        at = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
        return float(torch.autograd.grad(function(at), at)[0])

    at = torch.tensor(1.0, dtype=torch.float64)
    wanted = (gradient(1 + 1e-5) - gradient(1 - 1e-5)) / 2e-5
    for second in (torch.autograd.functional.hessian(function, at), torch.func.jacrev(torch.func.jacrev(function))(at)):
        np.testing.assert_allclose(to_numpy(second), wanted, rtol=1e-6)


@pytest.mark.only(verb=LIKELIHOOD, library="torch")
def test_torch_vmap(backend: Subject) -> None:
    """Of values, and of gradients in what each series has of its own and in what all share; there once, told."""
    import torch

    given = {name: torch.tensor(x) for name, x in model(2, 1).items()}

    def function(y: Any, scale: Any) -> Any:
        return kalman.log_likelihood(y, **given | {"Q": scale * given["Q"]}, backend=backend.name)

    y, scale = torch.tensor(series(3, 6, 1)), torch.tensor(0.7, dtype=torch.float64)
    gradient = torch.func.grad_and_value(function, argnums=(0, 1))
    (of_y, of_scale), values = torch.func.vmap(gradient, in_dims=(0, None))(y, scale)
    for i in range(3):
        (wanted_y, wanted_scale), value = gradient(y[i], scale)
        assert_same((of_y[i], of_scale[i], values[i]), (wanted_y, wanted_scale, value))
    assert_same((torch.func.vmap(function)(y, scale.expand(3)),), (values,))
    with pytest.raises(RuntimeError, match=r"differentiable once inside torch\.vmap"):
        torch.func.vmap(torch.func.jacrev(torch.func.jacrev(function, 1), 1), in_dims=(0, None))(y, scale)


def assert_same(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for x, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(to_numpy(x), to_numpy(z), rtol=1e-12)


@in_jax
def test_jit_and_vmap(backend: Subject) -> None:
    import jax

    values = {name: jax.numpy.asarray(x) for name, x in WALK.items()}
    y = values.pop("y")
    plain = kalman.log_likelihood(y, backend=backend.name, **values)
    function = functools.partial(kalman.log_likelihood, backend=backend.name)
    np.testing.assert_allclose(jax.jit(function)(y, **values), plain, rtol=1e-12)
    np.testing.assert_allclose(jax.vmap(lambda y: function(y, **values))(y), plain, rtol=1e-12)
    noise = values["R"] * jax.numpy.arange(1.0, 4.0)[:, None, None]
    each = jax.vmap(lambda R: function(y[0], **values | {"R": R}))(noise)
    np.testing.assert_allclose(each, function(y[0], **values | {"R": noise[:, None]}), rtol=1e-12)


@in_jax
def test_results_are_pytrees_under_jit(backend: Subject) -> None:
    import jax

    if not backend.can(verb="kalman.filter"):
        pytest.skip("has no filter")
    found = jax.jit(lambda y: kalman.filter(y, backend=backend.name, **model(2, 1)))(WALK["y"])
    assert isinstance(found, kalman.Filtered) and found.cov.shape == (3, 8, 2, 2)


@in_jax
def test_violations_inside_a_trace_are_nan(backend: Subject) -> None:
    import jax

    y, parameters = series(3, 6, 1), model(2, 1, 3)
    good = kalman.log_likelihood(jax.numpy.asarray(y), backend=backend.name, **parameters)
    for name, place in (("Q", (1, 0, 0, 1)), ("P0", (1, 1, 1)), ("R", (1, 0, 0, 0))):
        broken = {key: x.copy() for key, x in parameters.items()}
        broken[name][place] -= 50
        found = jax.jit(functools.partial(kalman.log_likelihood, backend=backend.name))(y, **broken)
        assert np.isnan(found).tolist() == [False, True, False]
        np.testing.assert_allclose(found[::2], good[::2], rtol=1e-12)


# -------------------------------------------------------------------------------------------------- parallel in time


def lagged() -> dict[str, Any]:
    """AR(2) whose value before the newest is observed exactly: the observation tells nothing but the past state."""
    return autoregression() | {"H": np.array([[0.0, 1.0]])}


PARALLEL = {
    "shared": (model(2, 1), 0.0),
    "changing, missing": (model(2, 1, time=(9,)), 0.3),
    "exact observations of the past": (lagged(), 0.2),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "shared" else [pytest.mark.slow]) for case in PARALLEL]
)
def test_parallel_is_sequential(case: str) -> None:
    pytest.importorskip("jax")
    parameters, missing = PARALLEL[case]
    y = series(3, 9, 1, missing=missing)
    for verb in ("filter", "smoother") if missing else ("log_likelihood",):
        wanted = getattr(kalman, verb)(y, backend="numpy_scan", **parameters)
        found = getattr(kalman, verb)(to_jax(y), method="parallel", **to_jax(parameters))
        for x, z in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-10)


def to_jax(x: Any) -> Any:
    import jax

    return jax.tree.map(jax.numpy.asarray, x)


def test_states_of_the_parallel_scan() -> None:
    """They are right by themselves, a few eps off: not computed again one after another."""
    jax = pytest.importorskip("jax")
    from tridiag.algorithms import kalman_filter, kalman_parallel
    from tridiag.problems.state_space import PARAMETERS

    y, parameters = to_jax(series(2, 9, 1, missing=0.2)), to_jax(lagged())
    call = state_space.prepare(LIKELIHOOD, y, tuple(parameters[name] for name in PARAMETERS), "parallel")

    def scanned(y: Any, given: Any) -> Any:
        given, y = kalman_filter.front(kalman_parallel.ops, given, y)
        return kalman_parallel.scan(call.form, y, given, ~jax.numpy.isnan(y))

    found = jax.jit(scanned)(call.y, call.model)
    wanted = kalman.filter(np.asarray(y), backend="numpy_scan", **lagged())
    np.testing.assert_allclose(np.moveaxis(found.mean, -1, 0), wanted.mean, atol=1e-14)
    np.testing.assert_allclose(np.moveaxis(found.cov, -1, 0), wanted.cov, atol=1e-14)


@pytest.mark.slow
def test_a_parallel_scan_that_lost_its_digits_is_not_the_result() -> None:
    """A diffuse start, exact constants, little noise: then steps are computed one after another."""
    pytest.importorskip("jax")
    y, parameters = series(40, 1), model(2, 1, time=(40,))
    parameters |= {"F": np.eye(2), "Q": np.zeros((2, 2)), "R": np.array([[1e-6]]), "P0": 1e12 * np.eye(2)}
    wanted = kalman.log_likelihood(y, backend="numpy_scan", **parameters)
    found = kalman.log_likelihood(to_jax(y), method="parallel", **to_jax(parameters))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.slow
def test_parallel_gradients() -> None:
    """Those of one step after another; a series whose innovation covariance is not positive definite is NaN alone."""
    jax = pytest.importorskip("jax")
    y, parameters = to_jax(series(3, 7, 1, missing=0.2)), model(2, 1, 3)
    parameters["H"][1] = parameters["R"][1] = 0

    def total(parameters: dict[str, Any], y: Any, method: str) -> Any:
        values = kalman.log_likelihood(y, method=method, **parameters)
        return values.sum(), values

    gradient = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True), static_argnums=2)
    found, values = gradient(to_jax(parameters), y, "parallel")
    assert np.isnan(values).tolist() == [False, True, False]
    wanted, _ = gradient(to_jax(parameters), y, "sequential")
    for x, z in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-8, atol=1e-10)


def test_every_library_has_a_backend() -> None:
    assert {s.library for s in SUBJECTS if s.can(verb=LIKELIHOOD)} == {"numpy", "jax", "torch", "cupy"}
