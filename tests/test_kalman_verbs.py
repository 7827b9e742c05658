"""What one does with a model beside filtering whole series: steps one by one, forecasts, streams, samples."""

from typing import Any

import numpy as np
import pytest
from helpers import Subject

from tridiag import kalman
from tridiag.backends import KALMAN

from test_kalman import model, run, series  # isort: skip
from test_kalman_diffuse import CASES, trend  # isort: skip

pytestmark = pytest.mark.only(verb=KALMAN[0], parallel=False)


# ------------------------------------------------------------------------------------------------------ of every step

OF_STEPS = {
    "known": (model(2, 2, time=(6,)), series(2, 6, 2, missing=0.3)),
    "one model": (model(2, 1), series(3, 6, 1)),
    "unknown": CASES["two observed, three unknown"][:2],
    "one step": (model(2, 1), series(1, 1)),
}


@pytest.mark.parametrize("case", OF_STEPS)
def test_log_likelihoods_of_steps(backend: Subject, case: str) -> None:
    """Each is what the series says more than the same one a step shorter; those burnt are left out."""
    if backend.library == "jax" and case == "unknown":
        pytest.skip("compiles for long; the steps are those of the other libraries")
    parameters, y = OF_STEPS[case]
    parameters = parameters | {"obs_intercept": np.ones(y.shape[-1])}
    n = y.shape[-2]
    found = run(backend, "log_likelihood", y, parameters, each_step=True)
    assert found.shape == y.shape[:-1]
    until = [0.0]
    for t in range(n):
        shorter = y.copy()
        shorter[..., t + 1 :, :] = np.nan
        until.append(kalman.log_likelihood(shorter, backend="numpy_scan", **parameters))
    np.testing.assert_allclose(np.cumsum(found, -1), np.stack(until[1:], -1), rtol=1e-9, atol=1e-9)
    later = run(backend, "log_likelihood", y, parameters, burn=2)
    np.testing.assert_allclose(later, found[..., 2:].sum(-1), rtol=1e-10, atol=1e-12)
    both = run(backend, "log_likelihood", y, parameters, burn=2, each_step=True)
    np.testing.assert_array_equal(both[..., :2], 0)
    np.testing.assert_allclose(both[..., 2:], found[..., 2:], rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_log_likelihoods_of_steps_are_those_of_statsmodels() -> None:
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    y = np.cumsum(series(30, 1), 0)
    theirs = structural.UnobservedComponents(y[:, 0], "local linear trend", use_exact_diffuse=True)
    right = theirs.filter([1.0, 0.3, 0.1])
    found = kalman.log_likelihood(y, **trend(m0=np.zeros(2)), each_step=True)
    np.testing.assert_allclose(found, right.llf_obs, rtol=1e-8)
    burnt = kalman.log_likelihood(y, **trend(m0=np.zeros(2)), burn=5)
    np.testing.assert_allclose(burnt, right.llf_obs[5:].sum(), rtol=1e-8)


@pytest.mark.parametrize("burn", [-1, 1.5])
def test_what_cannot_be_burnt(burn: Any) -> None:
    with pytest.raises(ValueError, match=r"burn is .*wanted how many of the first steps are left out"):
        kalman.log_likelihood(series(5, 1), **model(2, 1), burn=burn)
