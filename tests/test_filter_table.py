"""That filters which were met before are found again by compiled code only where their values are as they were."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import covariance

from tridiag import kalman
from tridiag.calls import fast_path
from tridiag.kernels.jobs import kalman as jobs
from tridiag.kernels.jobs.words.kalman import LARGEST
from tridiag.problems.covariances import check_covariance

pytest.importorskip("numba")

pytestmark = pytest.mark.usefixtures("forgetful")

N = 9
VERBS = "filter", "smoother", "log_likelihood"


def model(k: int, *time: int, dtype: str = "f8", p: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(k)
    made = {
        "F": rng.normal(size=(*time, k, k)) / k, "H": rng.normal(size=(p, k)), "Q": covariance(rng, *time, k),
        "R": covariance(rng, p) + np.eye(p), "m0": rng.normal(size=k), "P0": covariance(rng, k),
    }  # fmt: skip
    return {name: x.astype(dtype) for name, x in made.items()}


def series(*batch: int, missing: bool = False, dtype: str = "f8") -> Any:
    y = np.random.default_rng(3).normal(size=(*batch, N, 2)).astype(dtype)
    if missing:
        y[..., 4, 1] = np.nan
    return y


def found(verb: str, y: Any, parameters: dict[str, Any]) -> Any:
    """By the table; None where it has no such call."""
    given = y, *parameters.values(), "auto", "auto"
    tables = fast_path.filters.TABLES[f"kalman.{verb}"]
    answers = [table.call(*given) for table in tables]
    assert sum(x is not None for x in answers) <= 1
    return next((x for x in answers if x is not None), None)


def meet(verb: str, y: Any, parameters: dict[str, Any]) -> Any:
    for _ in range(3):
        result = getattr(kalman, verb)(y, **parameters)
    return result


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 19), (6000,)])  # the last is worth threads
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_results_are_those_of_the_backend(verb: str, batch: tuple[int, ...], dtype: str) -> None:
    """Whether or not values are missing, in turns."""
    parameters = model(2, dtype=dtype)
    given = [series(*batch, missing=missing, dtype=dtype) for missing in (False, True)]
    wanted = [getattr(kalman, verb)(y, **parameters) for y in given]
    for _ in range(3):
        for y, right in zip(given, wanted, strict=True):
            meet(verb, y, parameters)
            result = found(verb, y, parameters)
            assert result is not None
            for x, as_ever in zip(arrays(result), arrays(right), strict=True):
                assert (x.dtype, x.shape) == (as_ever.dtype, as_ever.shape)
                np.testing.assert_array_equal(x, as_ever)


def arrays(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


WRONG = {
    "asymmetric": ([[1.0, 0.5], [0.2, 1.0]], "not symmetric"),
    "a negative variance": ([[-1.0, 0.0], [0.0, 1.0]], "variance"),
    "indefinite": ([[1.0, 2.0], [2.0, 1.0]], "semidefinite"),
}


@pytest.mark.parametrize("name", ["Q", "R", "P0"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", VERBS)
def test_a_covariance_that_is_none_is_refused(verb: str, name: str, wrong: str) -> None:
    matrix, told = WRONG[wrong]
    parameters = model(2)
    meet(verb, series(3), parameters)
    assert found(verb, series(3), parameters) is not None
    for _ in range(2):
        with pytest.raises(ValueError, match=told):
            getattr(kalman, verb)(series(3), **parameters | {name: np.array(matrix)})
    assert found(verb, series(3), parameters) is not None


def test_what_may_be_a_covariance_goes_another_way() -> None:
    """NaN, and what only its eigenvalues show to be one, are let through as ever."""
    parameters = model(2)
    meet("log_likelihood", series(), parameters)
    odd = parameters | {"Q": np.full((2, 2), np.nan)}
    assert found("log_likelihood", series(), odd) is None
    assert np.isnan(kalman.log_likelihood(series(), **odd))


@pytest.mark.parametrize("k", [9, LARGEST])
def test_filters_of_many_states(k: int) -> None:
    """Their covariances are looked at as those of few."""
    y, parameters = series(), model(k)
    right = meet("log_likelihood", y, parameters)
    np.testing.assert_array_equal(found("log_likelihood", y, parameters), right)
    wrong = parameters["Q"] - 2 * parameters["Q"].max() * np.eye(k)
    with pytest.raises(ValueError, match="variance"):
        kalman.log_likelihood(y, **parameters | {"Q": wrong})
    indefinite = np.eye(k) - np.ones((k, k)) / 2
    assert found("log_likelihood", y, parameters | {"P0": indefinite}) is None
    with pytest.raises(ValueError, match="semidefinite"):
        kalman.log_likelihood(y, **parameters | {"P0": indefinite})


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_every_value_is_looked_at(dtype: str) -> None:
    """Those that fill vectors, and those that are left over: a call in which one is missing is another call."""
    complete, parameters = series(3, dtype=dtype), model(2, dtype=dtype)
    meet("log_likelihood", complete, parameters)
    for place in np.ndindex(complete.shape):
        y = complete.copy()
        y[place] = np.nan
        assert found("log_likelihood", y, parameters) is None, place
    assert found("log_likelihood", complete, parameters) is not None


@pytest.mark.parametrize("k", [3, 9, 17])
def test_each_covariance_of_many_models_is_looked_at(k: int) -> None:
    """By compiled code: correlated ones of every model, of which each in turn has a negative eigenvalue."""
    parameters, y = model(k, 30, 1), series(30)
    meet("log_likelihood", y, parameters)
    assert found("log_likelihood", y, parameters) is not None
    for place in range(30):
        wrong = parameters["Q"].copy()
        values, vectors = np.linalg.eigh(wrong[place, 0])
        wrong[place, 0] -= (values[0] + 0.01) * np.outer(vectors[:, 0], vectors[:, 0])
        assert found("log_likelihood", y, parameters | {"Q": wrong}) is None
        with pytest.raises(ValueError, match=rf"Q\[{place}, 0\] is not positive semidefinite"):
            kalman.log_likelihood(y, **(parameters | {"Q": wrong}))


def test_what_is_looked_at_for_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread of Python runs meanwhile."""
    y, parameters = series(40), model(3, 40, 1)
    monkeypatch.setattr(jobs, "MOST_CHECKED", 40 * N * 2)
    meet("log_likelihood", y, parameters)
    assert found("log_likelihood", y, parameters) is None


@pytest.mark.parametrize("verb", VERBS)
def test_a_start_that_is_unknown_is_not_found_as_known(verb: str) -> None:
    """Also where nothing is observed, and no result of the kernel would tell that it is of no use."""
    parameters = model(2)
    unknown = parameters | {"P0": np.diag([np.inf, 1.0])}
    for y in (series(), np.full((N, 2), np.nan)):
        meet(verb, y, parameters)
        assert found(verb, y, parameters) is not None and found(verb, y, unknown) is None
        wanted = getattr(kalman, verb)(y, **unknown, backend="numpy_scan")
        for x, right in zip(arrays(meet(verb, y, unknown)), arrays(wanted), strict=True):
            np.testing.assert_allclose(x, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("place", range(N))
def test_each_covariance_of_a_model_that_changes_is_looked_at(place: int) -> None:
    """But the last Q, which is never read."""
    parameters = model(2, N)
    meet("log_likelihood", series(), parameters)
    assert found("log_likelihood", series(), parameters) is not None
    parameters["Q"][place] = -1.0
    if place < N - 1:
        with pytest.raises(ValueError, match=rf"Q\[{place}, 0, 0\] is -1; a variance is not negative"):
            kalman.log_likelihood(series(), **parameters)
    else:
        assert np.isfinite(found("log_likelihood", series(), parameters))


@pytest.mark.parametrize(
    ("k", "dtype"),
    [
        # the guard is one code for all; each number of states is a kernel of its own, to be compiled
        pytest.param(k, dtype, marks=[] if k == 2 or (dtype == "f8" and k in (1, LARGEST)) else pytest.mark.slow)
        for dtype in ("f8", "f4")
        for k in range(1, LARGEST + 1)
    ],
)
def test_covariances_of_any_rank(k: int, dtype: str) -> None:
    """What the guard lets through `check_covariance` does too."""
    rng, parameters, y = np.random.default_rng(k), model(k, dtype=dtype), series(dtype=dtype)
    meet("log_likelihood", y, parameters)
    let_through = 0
    for draw in range(60):
        x, shift = rng.normal(size=(k, rng.integers(k + 1))), 10.0 ** rng.uniform(-9, 0) * rng.choice([0, -1])
        matrix = ((x @ x.T + shift * np.eye(k)) * 10.0 ** rng.uniform(-6, 6)).astype(dtype)
        if draw % 2:
            matrix[0, -1] *= 1 + 10.0 ** rng.uniform(-9, -1)
        try:
            check_covariance("P0", matrix, N)
            sound = True
        except ValueError:
            sound = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if found("log_likelihood", y, parameters | {"P0": matrix}) is not None:
                assert sound
                let_through += 1
    assert let_through > 10


def test_arrays_in_any_place_are_read_as_they_lie() -> None:
    parameters = model(2)
    right = meet("log_likelihood", series(3), parameters)
    turned = {name: np.asfortranarray(x) for name, x in parameters.items()}
    backwards = series(3)[:, ::-1][:, ::-1]
    for _ in range(4):
        np.testing.assert_array_equal(kalman.log_likelihood(backwards, **turned), right)
    assert found("log_likelihood", series(3), turned) is None
    assert found("log_likelihood", series(3), parameters) is not None


def test_threads_with_models_of_their_own() -> None:
    """Of one layout, so that they find one call; some have a covariance that is none."""
    parameters, y = model(2), series(2)
    scales = [float(k) for k in range(1, 9)]
    wanted = {s: kalman.log_likelihood(y, **parameters | {"P0": s * parameters["P0"]}) for s in scales}

    def work(scale: float) -> bool:
        P0 = scale * parameters["P0"]
        for _ in range(200):
            np.testing.assert_array_equal(kalman.log_likelihood(y, **parameters | {"P0": P0}), wanted[scale])
            with pytest.raises(ValueError, match="P0"):
                kalman.log_likelihood(y, **parameters | {"P0": -P0})
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, scales))
