"""Kalman smoothers in single precision of states that begin with variances of 1e10 beside others, against double.

Vectors whose weights are that far apart, and whose entries cancel, keep rounding errors that count: square roots of
covariances have to be found from them all the same.
"""

import numpy as np
import pytest
from helpers import Subject

from tridiag import kalman
from tridiag.problems.state_space import SMOOTHER

from test_kalman import run  # isort: skip

pytestmark = pytest.mark.only(verb=SMOOTHER, parallel=False)

LARGE = 1e10
MODELS, SERIES, STEPS, OBSERVED = 12, 3, 8, 3
SEEDS = {4: 3, 8: 7, 10: 7}  # for so many states: of some models updates lose digits too, and not of these
# bounds, relative to the largest number of a series; of covariances for most series that begin diffuse too
MEAN, COV, MOST, LIKELIHOOD = 1e-3, 2e-4, 4e-6, 5e-7


def problem(states: int, diffuse: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Three series of each of some models that change with time; one series of three begins diffuse."""
    k, p = states, OBSERVED
    rng, batch = np.random.default_rng([k, p, SEEDS[k]]), (MODELS, SERIES)
    P0 = np.tile(np.eye(k), (SERIES, 1, 1))
    P0[1, range(diffuse), range(diffuse)] = LARGE
    y = rng.normal(size=(*batch, STEPS, p))
    parameters = {
        "F": 0.5 * rng.normal(size=(MODELS, 1, STEPS, k, k)),
        "H": rng.normal(size=(MODELS, 1, 1, p, k)),
        "Q": np.eye(k),
        "R": 0.5 + 0.5 * np.eye(p),
        "m0": rng.normal(size=(*batch, k)),
        "P0": P0,
    }
    return y.astype("float32"), {name: x.astype("float32") for name, x in parameters.items()}


def errors(found: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of all series."""
    found, right = (x.reshape(MODELS, SERIES, -1) for x in (found, right))
    return abs(found - right).max(-1) / abs(right).max(-1)


@pytest.mark.parametrize("diffuse", ["one", "half", "all"])
@pytest.mark.parametrize("states", SEEDS)
def test_smoothed_states(backend: Subject, states: int, diffuse: str) -> None:
    if states > (backend.entry.states or states):
        pytest.skip(f"smooths up to {backend.entry.states} states")
    y, parameters = problem(states, {"one": 1, "half": states // 2, "all": states}[diffuse])
    found = run(backend, "smoother", y, parameters, "float32")
    wide = {name: x.astype(float) for name, x in parameters.items()}
    right = kalman.smoother(y.astype(float), **wide, backend="numpy_scan")
    assert errors(found.mean, right.mean).max() < MEAN
    of_covs = errors(found.cov, right.cov)
    assert of_covs.max() < COV
    assert np.median(of_covs[:, 1]) < MOST
    assert errors(found.log_likelihood, right.log_likelihood).max() < LIKELIHOOD
