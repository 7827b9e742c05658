"""Smoothers of states that are unknown at first, and that the first observations hardly see: against many digits."""

from typing import Any

import numpy as np
import pytest
from hardly_seen import hardly_seen
from helpers import Subject, to_library, to_numpy

from tridiag import kalman
from tridiag.problems.state_space import SMOOTHER

from test_kalman import named_unknown, run  # isort: skip
from test_kalman_accuracy import exact  # isort: skip
from test_kalman_diffuse import LARGE, limit  # isort: skip
from test_kalman_verbs import check_samples, generator  # isort: skip

EXAMPLE = {"F": np.array([[0.7, 0.2], [0.3, 1.2]]), "H": np.array([[2.9, -2.8]]), "Q": np.eye(2), "R": np.eye(1),
           "m0": np.zeros(2), "P0": np.diag([np.inf, 1])}  # fmt: skip
Y = np.array([[np.nan]] * 2 + [[0.0]] * 6)  # sees of the first state 1e-3, squared, at first
TOLERANCE = 1e-7  # of standard deviations


def with_before(parameters: dict[str, Any]) -> dict[str, Any]:
    """The model whose states have those of the step before behind them."""
    k = len(parameters["m0"])

    def wider(name: str, rows: int, columns: int) -> np.ndarray:
        x = parameters[name]
        return np.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, columns)])

    F = wider("F", k, k)
    F[..., k:, :k] = np.eye(k)
    return {"F": F, "H": wider("H", 0, k), "Q": wider("Q", k, k), "R": parameters["R"],
            "m0": np.append(parameters["m0"], np.zeros(k)), "P0": wider("P0", k, k)}  # fmt: skip


def deviations(covs: np.ndarray) -> np.ndarray:
    """Standard deviations, by which to measure errors: of what is unknown 1, and no less than 1e-4 of others."""
    variances = np.diagonal(covs, axis1=1, axis2=2)
    found = np.sqrt(np.where(abs(variances) > LARGE**0.5, 1, np.maximum(variances, 0)))
    return found + 1e-4 * found.max() + 1e-12


def check_covariances(found: np.ndarray, wanted: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    infinite = abs(wanted) > LARGE**0.5
    np.testing.assert_array_equal(found[infinite], np.copysign(np.inf, wanted[infinite]))
    error = np.where(infinite, 0, found) - np.where(infinite, 0, wanted)
    assert (abs(error) <= TOLERANCE * rows[:, :, None] * columns[:, None]).all()


def check_means(found: np.ndarray, wanted: np.ndarray, size: np.ndarray) -> None:
    assert (abs(found - wanted) <= TOLERANCE * (1 + size + abs(wanted))).all()


def check(y: np.ndarray, parameters: dict[str, Any], backend: str, library: str = "numpy") -> bool:
    """Every verb against the limits of many digits; False where the model is degenerate, or nearly."""
    try:
        with np.errstate(all="raise"):
            likelihood, *states = exact(y, **limit(with_before(parameters)))
    except (ZeroDivisionError, TypeError):  # a determinant that is 0, or negative by rounding
        return False
    k = len(parameters["m0"])
    updated, updated_cov, smoothed, smoothed_cov = (x[:, :k] if x.ndim == 2 else x for x in states)
    size, both = deviations(updated_cov[:, :k, :k]), deviations(smoothed_cov)
    between = np.logical_and(abs(smoothed_cov) > LARGE**0.25, abs(smoothed_cov) < LARGE**0.75)
    if abs(likelihood) > 1e4 or between.any():
        return False
    given = {name: to_library(library, x) for name, x in parameters.items()}
    given |= named_unknown(given["P0"], parameters)
    series = to_library(library, y)
    filtered, found, pairs = (
        getattr(kalman, verb)(series, backend=backend, **given) for verb in ("filter", "smoother", "lag_one_smoother")
    )
    check_covariances(to_numpy(filtered.cov), updated_cov[:, :k, :k], size, size)
    check_means(to_numpy(filtered.mean), updated, size)
    for states in (found, pairs):
        check_covariances(to_numpy(states.cov), smoothed_cov[:, :k, :k], both[:, :k], both[:, :k])
        check_means(to_numpy(states.mean), smoothed, both[:, :k])
    check_covariances(to_numpy(pairs.lag_one_cov), smoothed_cov[1:, :k, k:], both[1:, :k], both[1:, k:])
    told = 2 * (to_numpy(filtered.log_likelihood) - likelihood) / np.log(LARGE)
    np.testing.assert_allclose(told, round(float(told)), atol=1e-8)
    for states in (found, pairs):
        np.testing.assert_allclose(to_numpy(states.log_likelihood), to_numpy(filtered.log_likelihood), rtol=1e-9)
    return True


@pytest.mark.only(verb=SMOOTHER, parallel=False)
def test_what_is_hardly_seen_at_first(backend: Subject) -> None:
    """Later observations see it well: covariances are right, and positive."""
    if backend.can(verb=SMOOTHER):
        found = run(backend, "smoother", Y, EXAMPLE)
        np.testing.assert_allclose(found.cov[:3, 0, 0], [8.30365131, 3.21606343, 0.97815041], rtol=1e-8)


def test_every_verb_where_a_state_is_hardly_seen() -> None:
    assert check(Y, EXAMPLE, "numpy_scan")


# exact observations: 909, 1252 lose digits of variances that are nearly 0; F has hardly a rank: 508, 1576
LOST = 508, 909, 1252, 1576
BLOCKS = [range(25), *(pytest.param(range(i, i + 100), marks=pytest.mark.slow) for i in range(25, 1725, 100))]


@pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"from {seeds[0]}")
def test_random_models(seeds: range) -> None:
    """Of hardly seen, exact, degenerate, forgotten and never observed states; most are no degenerate models."""
    assert sum(check(*hardly_seen(seed), "numpy_scan") for seed in seeds if seed not in LOST) > 0.75 * len(seeds)


@pytest.mark.slow
@pytest.mark.only(verb=SMOOTHER, parallel=False)
def test_random_models_by_every_backend(backend: Subject) -> None:
    if not backend.can(verb=SMOOTHER):
        pytest.skip("has no smoother")
    count = 6 if backend.library == "jax" else 200
    assert sum(check(*hardly_seen(seed), backend.name, backend.library) for seed in range(count)) > 0.75 * count


def test_series_of_different_kinds_in_one_call() -> None:
    """Hardly seen, never seen, known, of models of their own: each is as alone."""
    y = np.stack([Y, np.full_like(Y, np.nan), Y])
    given = EXAMPLE | {"P0": np.stack([EXAMPLE["P0"], EXAMPLE["P0"], np.eye(2)]),
                       "R": np.array([1.0, 2, 3]).reshape(3, 1, 1, 1)}  # fmt: skip
    found = kalman.smoother(y, **given)
    for i in range(3):
        alone = kalman.smoother(y[i], **EXAMPLE | {"P0": given["P0"][i], "R": given["R"][i, 0]})
        for part, own in zip(found, alone, strict=True):
            np.testing.assert_allclose(part[i], own, rtol=1e-10, atol=1e-12)
    assert np.isposinf(found.cov[1, :, 0, 0]).all() and np.isfinite(found.cov[[0, 2]]).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_samples_of_what_is_hardly_seen(library: str) -> None:
    pytest.importorskip(library)
    given = {name: to_library(library, x) for name, x in EXAMPLE.items()}
    found = to_numpy(kalman.simulation_smoother(to_library(library, Y), generator(library), size=(4000,), **given))
    states = kalman.smoother(Y, **EXAMPLE)
    for t in range(len(Y)):
        check_samples(found[:, t], states.mean[t], states.cov[t])


def test_gradients_of_smoothed_covariances() -> None:
    torch = pytest.importorskip("torch")
    noise = torch.tensor(EXAMPLE["R"], requires_grad=True)
    fixed = {name: torch.tensor(x) for name, x in EXAMPLE.items() if name != "R"}
    kalman.smoother(torch.tensor(Y), R=noise, **fixed).cov.sum().backward()
    low, high = (kalman.smoother(Y, **EXAMPLE | {"R": EXAMPLE["R"] + h}).cov.sum() for h in (-1e-5, 1e-5))
    np.testing.assert_allclose(noise.grad.item(), (high - low) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("verb", ["filter", "smoother"])
def test_gradients_in_a_noise_that_is_0(verb: str) -> None:
    """In which variances of states are 0 too, and quotients of them limits."""
    torch = pytest.importorskip("torch")
    given = EXAMPLE | {"R": np.zeros((1, 1))}
    noise = torch.tensor(given["R"], requires_grad=True)
    fixed = {name: torch.tensor(x) for name, x in given.items() if name != "R"}
    y = np.where(np.isnan(Y), np.nan, np.arange(8.0)[:, None])
    found, wanted = getattr(kalman, verb)(torch.tensor(y), R=noise, **fixed), getattr(kalman, verb)(y, **given)
    np.testing.assert_allclose(found.cov.detach(), wanted.cov, rtol=1e-12, atol=1e-14)
    found.mean[3:].sum().backward()
    value, near, far = (
        getattr(kalman, verb)(y, **given | {"R": np.full((1, 1), h)}).mean[3:].sum() for h in (0.0, 1e-6, 2e-6)
    )
    np.testing.assert_allclose(noise.grad.item(), (4 * near - 3 * value - far) / 2e-6, rtol=1e-4)


@pytest.mark.parametrize("start", [1.0, np.inf])
def test_gradients_beside_a_noise_that_is_0(start: float) -> None:
    """Of exact observations that see some states alone: also in what they do not see of the others."""
    torch = pytest.importorskip("torch")
    given = EXAMPLE | {"R": np.zeros((1, 1)), "H": np.array([[2.9, 0.0]]), "P0": np.diag([start, 1])}
    y = np.arange(8.0)[:, None]
    tensors = {name: torch.tensor(x, requires_grad=name in "FHQ") for name, x in given.items()}
    kalman.smoother(torch.tensor(y), **tensors).mean.sum().backward()
    for name in "FHQ":
        low, high = (kalman.smoother(y, **given | {name: given[name] + h}).mean.sum() for h in (-1e-6, 1e-6))
        np.testing.assert_allclose(tensors[name].grad.sum().item(), (high - low) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.only(verb=SMOOTHER, parallel=False)
def test_exact_observations_that_contradict_the_model(backend: Subject) -> None:
    """More of them than there are states, none of which moves by chance: rounding makes of none a likely series."""
    if not backend.can(verb=SMOOTHER):
        pytest.skip("has no smoother")
    for seed in range(1 if backend.library == "jax" else 12):
        rng = np.random.default_rng(seed)
        k, p = 1 + seed % 3, 1 + seed % 2
        unknown = rng.random(k) < 0.5
        given = {"F": [np.eye(k), rng.normal(size=(k, k))][seed % 2], "H": rng.normal(size=(p, k)),
                 "Q": np.zeros((k, k)), "R": np.zeros((p, p)), "m0": np.zeros(k),
                 "P0": np.diag(np.where(unknown, np.inf, 1.0))}  # fmt: skip
        y = rng.normal(size=(12, p))
        for verb in ("filter", "smoother"):
            found = run(backend, verb, y, given)
            assert np.isnan(found.log_likelihood) or found.log_likelihood < -1e10
            assert np.isnan(found.mean).any() or found.log_likelihood < -1e10


@pytest.mark.parametrize("loops", ["numpy_scan", "numba_scan"])
@pytest.mark.parametrize("seed", [84, 994, 1390, 1547, 1599, 4111, 4279, 4901])
def test_exact_states_of_which_rounding_alone_is_left(seed: int, loops: str) -> None:
    """No gain of a smoother is a quotient of rounding errors: means were off by up to 7e12 of their size."""
    assert check(*hardly_seen(seed), loops)


@pytest.mark.slow
@pytest.mark.xfail(strict=True, raises=AssertionError)
@pytest.mark.parametrize("seed", LOST)
def test_models_that_lose_digits(seed: int) -> None:
    check(*hardly_seen(seed), "numpy_scan")
