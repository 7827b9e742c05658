"""Log-likelihoods of models whose covariances come to rest: what is held then is what each step would have found.

Observations that are missing end a rest; covariances that go round in circles, or grow unseen, never begin one.
"""

import numpy as np
import pytest
from helpers import Subject
from hypothesis import given, settings
from hypothesis import strategies as st

from tridiag import kalman
from tridiag.problems.state_space import LIKELIHOOD

from test_kalman import run  # isort: skip

pytestmark = pytest.mark.only(verb=LIKELIHOOD, library="numpy", compiled=True)

STEPS = 400  # covariances rest from step 30 to 180 on
WITHIN = 2000  # eps, relative to the log-likelihood


def model(rng: np.random.Generator, series: tuple[int, ...], states: int, observed: int) -> dict[str, np.ndarray]:
    """One for each series, or for all; states fade by 0.9 in a step."""
    noise = rng.normal(size=(*series, states, states))
    return {
        "F": 0.9 * np.linalg.qr(noise)[0],
        "H": rng.normal(size=(*series, observed, states)),
        "Q": noise @ noise.swapaxes(-1, -2) / states,
        "R": np.broadcast_to(0.5 * np.eye(observed), (*series, observed, observed)).copy(),
        "m0": rng.normal(size=states),
        "P0": 10 * np.eye(states),
    }


def check(backend: Subject, y: np.ndarray, parameters: dict[str, np.ndarray], dtype: str = "float64") -> None:
    """Against the definition, which holds nothing, in float64."""
    y, parameters = y.astype(dtype), {name: x.astype(dtype) for name, x in parameters.items()}
    found = run(backend, "log_likelihood", y, parameters, dtype)
    wide = {name: x.astype(float) for name, x in parameters.items()}
    right = kalman.log_likelihood(y.astype(float), backend="numpy", **wide)
    assert abs(found / right - 1).max() < WITHIN * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("observed", [1, 3])
@pytest.mark.parametrize("states", [2, 9, 17])
@pytest.mark.parametrize("series", [1, 37])
def test_a_rest_is_what_steps_would_find(backend: Subject, series: int, states: int, observed: int, dtype: str) -> None:
    rng = np.random.default_rng([series, states, observed])
    y = rng.normal(size=(series, STEPS, observed))
    check(backend, y, model(rng, (series, 1), states, observed), dtype)


@pytest.mark.parametrize("states", [2, 12])
@pytest.mark.parametrize("series", [1, 32])
@pytest.mark.parametrize("gap", [1, 5])
def test_missing_observations_end_a_rest(backend: Subject, series: int, states: int, gap: int) -> None:
    """Soon after it began, and later; in one series, some of what is observed, or all."""
    rng = np.random.default_rng([series, states, gap])
    y = rng.normal(size=(series, STEPS, 2))
    y[0, 250 : 250 + gap] = np.nan
    y[-1, 300 : 300 + gap, 1] = np.nan
    y[:, -1] = np.nan
    check(backend, y, model(rng, (series, 1), states, 2))


@pytest.mark.parametrize("every", [2, 4, 7, 8])
@pytest.mark.parametrize("series", [1, 24])
@pytest.mark.parametrize("states", [2, 9])
def test_gaps_that_return(backend: Subject, states: int, series: int, every: int) -> None:
    """Covariances are what they were some steps ago, and others between."""
    rng = np.random.default_rng([series, every])
    y = rng.normal(size=(series, STEPS, 1))
    y[:, 1::every] = np.nan
    check(backend, y, model(rng, (series, 1), states, 1))


@pytest.mark.parametrize("period", [2, 4, 8, 9])
@pytest.mark.parametrize("series", [1, 24])
def test_states_that_go_round(backend: Subject, series: int, period: int) -> None:
    """What is not known of a season is, a step later, of another one; the noise of observations hides most."""
    rng = np.random.default_rng([series, period])
    F = np.zeros((9, 9))
    F[:period, :period] = np.roll(np.eye(period), 1, axis=0)
    H = np.zeros((1, 9))
    H[0, 0] = 1
    parameters = {"F": F, "H": H, "Q": 1e-13 * np.eye(9), "R": np.array([[1e9]]), "m0": np.zeros(9)}
    parameters |= {"P0": np.diag(10.0 ** rng.integers(0, 6, 9))}
    y = 1e3 * rng.normal(size=(series, STEPS, 1))
    check(
        backend,
        y,
        {name: np.broadcast_to(x, (series, 1, *x.shape)) if name in "FHQR" else x for name, x in parameters.items()},
    )


@pytest.mark.parametrize("series", [1, 24])
@pytest.mark.parametrize("noise", [1e-2, 1e-8, 1e-14])
def test_what_grows_unseen(backend: Subject, series: int, noise: float) -> None:
    """Random walks: one is seen, and of the others nothing, until sight is lost of the first too."""
    rng = np.random.default_rng(series)
    parameters = model(rng, (series, 1), 9, 1)
    parameters["F"][:] = np.eye(9)
    parameters["H"][..., 1:] = 0
    parameters["Q"] *= noise
    y = rng.normal(size=(series, STEPS, 1))
    y[:, 350] = np.nan
    check(backend, y, parameters)


@pytest.mark.parametrize("name", "FHQR")
def test_a_model_that_changes_has_no_rest(backend: Subject, name: str) -> None:
    rng = np.random.default_rng(0)
    parameters = model(rng, (), 9, 1)
    parameters[name] = np.stack([parameters[name]] * STEPS)
    parameters[name][STEPS * 3 // 4 :] *= 1.05
    check(backend, rng.normal(size=(8, STEPS, 1)), parameters)


def test_a_neighbour_without_rest_changes_nothing(backend: Subject) -> None:
    """NaN, or infinite: only its own result."""
    rng = np.random.default_rng(0)
    parameters, y = model(rng, (16, 1), 9, 1), rng.normal(size=(16, STEPS, 1))
    right = run(backend, "log_likelihood", y, parameters)
    parameters["R"][5] = np.nan
    y[3, 10] = np.inf
    found = run(backend, "log_likelihood", y, parameters)
    others = np.arange(16)[~np.isin(np.arange(16), (3, 5))]
    assert not np.isfinite(found[[3, 5]]).any()
    np.testing.assert_allclose(found[others], right[others], rtol=1e-13)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_model(seed: int) -> None:
    """Noises of any size, states that fade, stay or grow, few or many gaps."""
    rng = np.random.default_rng(seed)
    states, series = int(rng.choice([2, 9, 11, 12, 13])), int(rng.choice([1, 3, 24]))
    own = (series, 1) if rng.random() < 0.7 else ()
    parameters = model(rng, own, states, int(rng.choice([1, 2])))
    parameters["F"] *= rng.choice([0.5, 1, 1.1, 1.11, 1.12])
    parameters["Q"] *= 10.0 ** -rng.integers(0, 10)
    y = rng.normal(size=(series, int(rng.integers(50, STEPS)), parameters["H"].shape[-2]))
    y[rng.random(y.shape) < rng.choice([0, 0, 1e-3, 1e-2])] = np.nan
    found, right = (kalman.log_likelihood(y, backend=name, **parameters) for name in ("numba_scan", "numpy"))
    assert abs(found / right - 1).max() < 1e-11
