"""The compiled first steps of models with unknown states, against loops over arrays, which have tests of their own."""

from typing import Any

import numpy as np
import pytest

from tridiag import kalman

from test_kalman import series  # isort: skip
from test_kalman_accuracy import exact  # isort: skip
from test_kalman_diffuse import diffuse, limit  # isort: skip
from test_kalman_unknown import hardly_seen  # isort: skip

first_steps = pytest.importorskip("tridiag.kernels.first_steps")
pytest.importorskip("numba")
VERBS = "log_likelihood", "filter", "smoother"


def seasonal(k: int) -> dict[str, Any]:
    """A level and the effects of k seasons."""
    F, H = np.diag([1.0] * (k > 0) + [0.0] * (k - 1)), np.zeros((1, k))
    F[1, 1:], H[0, :2] = -1, 1
    F[np.arange(2, k), np.arange(1, k - 1)] = 1
    return {"F": F, "H": H, "Q": np.diag([0.1, 0.05, *[0.0] * (k - 2)]), "R": np.eye(1), "m0": np.zeros(k),
            "P0": np.diag([np.inf] * k)}  # fmt: skip


CASES: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "seasonal": (seasonal(9), series(30, 1)),
    "some missing": (seasonal(5), np.where(np.arange(20) % 7 == 3, np.nan, series(20, 1)[:, 0])[:, None]),
    "two observed, one of them missing": (diffuse(4, 2, 0, 1, 3), np.where([True, False], series(9, 2), np.nan)),
    "changing": (diffuse(3, 2, 0, 2, F=np.stack([np.eye(3) * (0.5 + t) for t in range(7)])), series(7, 2)),
    "exact": (diffuse(3, 2, 0, 1, R=np.zeros((2, 2))), series(8, 2)),
    "series that share a model": (seasonal(4), np.stack([series(12, 1, seed=k) for k in range(6)])),
    "nothing observed in some series": (seasonal(3), np.where([[[True]], [[False]]], series(12, 1), np.nan)),
    "one step": (diffuse(3, 2, 0, 1), series(1, 2)),
    "never observed": (diffuse(2, 1, 0, 1, F=np.diag([0.9, 0.8]), H=np.array([[1.0, 0]])), series(5, 1)),
}


def flat(found: Any) -> Any:
    return found if isinstance(found, tuple) else (found,)


def assert_alike(y: np.ndarray, parameters: dict[str, Any], rtol: float = 1e-9) -> None:
    for verb in VERBS:
        found, wanted = (
            flat(getattr(kalman, verb)(y, backend=name, **parameters)) for name in ("numba_scan", "numpy_scan")
        )
        for x, right in zip(found, wanted, strict=True):
            finite = right[np.isfinite(right)]
            np.testing.assert_allclose(x, right, rtol=rtol, atol=rtol * abs(finite).max(initial=1))


@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_loops_over_arrays(case: str) -> None:
    parameters, y = CASES[case]
    assert_alike(y, parameters)


def test_models_of_their_own() -> None:
    """Of each series, of which some begin known; likelihoods of every step too."""
    one = seasonal(4)
    many = {name: np.stack([x] * 3) for name, x in one.items()}
    for name in "FHQR":
        many[name] = many[name][:, None]
    many["P0"][1] = np.eye(4)
    many["R"] = many["R"] * np.array([1.0, 2.0, 0.5]).reshape(3, 1, 1, 1)
    y = np.stack([series(15, 1, seed=k) for k in range(3)])
    assert_alike(y, many)
    steps = [kalman.log_likelihood(y, backend=name, each_step=True, **many) for name in ("numba_scan", "numpy_scan")]
    np.testing.assert_allclose(*steps, rtol=1e-10)


def test_smoothers_lose_no_digits_after_a_large_known_variance() -> None:
    """What is regressed comes from square roots of covariances, not from these: of series that share them too."""
    parameters = diffuse(4, 2, 0, P0=np.diag([np.inf, 1e12, 1, 1]))
    y = np.stack([series(6, 2, seed=k) for k in range(3)])
    found = kalman.smoother(y, backend="numba_scan", **parameters)
    for i in range(len(y)):
        mean, cov = exact(y[i], **limit(parameters))[3:5]
        np.testing.assert_allclose(found.mean[i], mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.cov[i], cov, rtol=1e-12, atol=1e-12)


def test_single_precision() -> None:
    parameters = {name: x.astype(np.float32) for name, x in seasonal(4).items()}
    assert_alike(series(20, 1).astype(np.float32), parameters, 2e-4)


def test_what_is_hardly_seen() -> None:
    """As many steps one by one, and no digits less."""
    for seed in range(8):
        parameters, y = hardly_seen(seed)[::-1]
        found = [kalman.log_likelihood(y, backend=name, **parameters) for name in ("numba_scan", "numpy_scan")]
        np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


def test_many_series_that_share_a_model_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_steps, "begin", None)
    y = np.broadcast_to(series(8, 1), (first_steps.MOST_SHARING + 1, 8, 1))
    assert np.isfinite(kalman.log_likelihood(y, **seasonal(3))).all()
