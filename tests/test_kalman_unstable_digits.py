"""Kalman smoothers in single precision of states that grow while nothing is observed, against double.

What later observations tell of a state is large before a gap, and all but lost once the state is observed: what is left
is a difference, unless it is found as a product.
"""

import numpy as np
import pytest
from helpers import Subject

from tridiag import kalman
from tridiag.problems.state_space import SMOOTHER

from test_kalman import run  # isort: skip

pytestmark = pytest.mark.only(verb=SMOOTHER, parallel=False)

SERIES, STEPS, STATES, OBSERVED = 120, 12, 3, 2
LARGEST, MOST = 80, 10  # eps of the largest variance that is predicted: of any covariance, and in nine series of ten


def problem() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng, (k, p) = np.random.default_rng(3), (STATES, OBSERVED)

    def covariance(*shape: int) -> np.ndarray:
        x = rng.normal(size=(*shape, shape[-1]))
        return x @ x.swapaxes(-1, -2)

    y = 2 * rng.normal(size=(SERIES, STEPS, p))
    y[rng.random(y.shape) < 0.5] = np.nan
    parameters = {
        "F": 1.5 * rng.normal(size=(SERIES, 1, k, k)) / np.sqrt(k),
        "H": rng.normal(size=(SERIES, 1, p, k)),
        "Q": covariance(SERIES, 1, k),
        "R": covariance(SERIES, 1, p) + 0.1 * np.eye(p),
        "m0": rng.normal(size=(SERIES, k)),
        "P0": covariance(SERIES, k),
    }
    return y.astype("float32"), {name: x.astype("float32") for name, x in parameters.items()}


def test_smoothed_covariances(backend: Subject) -> None:
    y, parameters = problem()
    wide = {name: x.astype(float) for name, x in parameters.items()}
    right = kalman.smoother(y.astype(float), **wide, backend="numpy_scan").cov
    filtered = kalman.filter(y.astype(float), **wide, backend="numpy_scan").cov
    predicted = wide["F"] @ filtered @ wide["F"].swapaxes(-1, -2) + wide["Q"]
    found = run(backend, "smoother", y, parameters, "float32").cov
    error = abs(found - right).max((1, 2, 3)) / (np.finfo("float32").eps * predicted.max((1, 2, 3)))
    assert error.max() < LARGEST
    assert np.quantile(error, 0.9) < MOST
