"""Filters of more states or observed values than kernels are written out for: every size, in one kernel.

Against mpmath where it matters, and against `numpy_scan`, which test_kalman.py judges, elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from guarded.hostile_models import hostile
from helpers import EPS

from tridiag import kalman
from tridiag.calls import state_space
from tridiag.calls.fast_path import filters

from test_kalman import model, of_series, series  # isort: skip

from test_kalman_accuracy import check, differences, exact, moved  # isort: skip

pytest.importorskip("numba")

NAME = "numba_scan"
SIZES = {  # k, p, steps, missing, time axis
    "nine": (9, 1, 6, 0.0, ()),
    "whole vectors, changing": (16, 3, 4, 0.3, (4,)),
    "a vector and one": (17, 2, 3, 0.3, ()),
    "few states, many observed": (2, 16, 3, 0.3, ()),
    "one state": (1, 9, 4, 0.0, ()),
    "one step": (12, 10, 1, 0.2, ()),
}


def each(y: np.ndarray, parameters: dict[str, Any], name: str = NAME) -> list[Any]:
    """Filter and smoother, and the log-likelihood by itself."""
    found = [getattr(kalman, verb)(y, backend=name, **parameters) for verb in ("filter", "smoother")]
    return [*found, kalman.log_likelihood(y, backend=name, **parameters)]


def assert_alike(found: list[Any], wanted: list[Any], limit: float) -> None:
    """Relative to the largest entry of a result."""
    pairs = [*zip(found[0], wanted[0], strict=True), *zip(found[1], wanted[1], strict=True), (found[2], wanted[2])]
    for x, z in pairs:
        np.testing.assert_allclose(x, z, rtol=limit, atol=limit * abs(np.nan_to_num(z)).max())


@pytest.mark.parametrize("case", SIZES)
def test_moments(case: str) -> None:
    """Of one series, with 120 digits."""
    k, p, n, missing, time = SIZES[case]
    y, parameters = series(n, p, missing=missing), model(k, p, time=time)
    likelihood, mean, cov, smoothed_mean, smoothed_cov = exact(y, **parameters)
    filtered, smoothed, found = each(y, parameters)
    np.testing.assert_allclose(found, likelihood, rtol=1e-13)
    wanted = mean, cov, smoothed_mean, smoothed_cov
    for x, z in zip((filtered.mean, filtered.cov, smoothed.mean, smoothed.cov), wanted, strict=True):
        np.testing.assert_allclose(x, z.reshape(x.shape), rtol=1e-9, atol=1e-12 * abs(z).max())
    np.testing.assert_array_equal(filtered.predicted_cov, filtered.predicted_cov.swapaxes(-1, -2))
    moved = parameters["F"] @ filtered.mean[..., None]
    np.testing.assert_allclose(filtered.predicted_mean[1:], moved[: n - 1, :, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [9, 15, 24, 25, 32])
def test_sizes(k: int, dtype: str) -> None:
    """Whatever is left over of rows, vectors and groups; observations of a step are dependent."""
    for p, batch, missing in ((1, (3,), 0.0), (4, (2, 3), 0.3), (11, (), 0.2)):
        y, parameters = series(*batch, 5, p, missing=missing), model(k, p)
        y, parameters = y.astype(dtype), {name: x.astype(dtype) for name, x in parameters.items()}
        found = each(y, parameters)
        wanted = each(y.astype(float), {name: x.astype(float) for name, x in parameters.items()}, "numpy")
        assert found[0].cov.dtype == dtype
        assert_alike(found, wanted, 2e4 * EPS[dtype])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [2, 8, 31, 33, 75])
def test_series_that_share_a_model(count: int, dtype: str) -> None:
    """The log-likelihood of as many as fill some vectors or not, also where digits would be lost."""
    limit = 1e4 * EPS[dtype]
    for start, time, p in ((1, (), 1), (1, (6,), 3), (1e9 if dtype == "float64" else 1e4, (), 2)):
        parameters = model(9, p, time=time)
        given = {name: x.astype(dtype) for name, x in (parameters | {"P0": start * parameters["P0"]}).items()}
        given["m0"] = np.random.default_rng(2).normal(size=(count, 9)).astype(dtype)  # that of each
        y = series(count, 6, p).astype(dtype)
        found = kalman.log_likelihood(y, backend=NAME, **given)
        wide = {name: x.astype(float) for name, x in given.items()}
        np.testing.assert_allclose(found, kalman.log_likelihood(y.astype(float), backend="numpy", **wide), rtol=limit)


SHARED = {
    "own": model(9, 2, 4, 3),
    "along the first axis": model(9, 2, 3, time=(5,)),
    "all but F": {"F": model(9, 2, 4, 1)["F"]},
    "all but P0": {"P0": model(9, 2, 4, 1)["P0"]},
}


@pytest.mark.parametrize("shared", SHARED)
def test_batches_of_series_and_models(shared: str) -> None:
    """Each result is that of its series alone; matrices that were copied for one series are not taken for another."""
    parameters, y = model(9, 2) | SHARED[shared], series(4, 3, 5, 2, missing=0.2)
    found = each(y, parameters)
    for index in np.ndindex(4, 3):
        alone = each(y[index], of_series(parameters, *index), "numpy")
        own = [type(x)(*(part[index] for part in x)) for x in found[:2]]
        assert_alike([*own, found[2][index]], alone, 1e-11)


def constant(p: int, start: float, noise: float) -> dict[str, Any]:
    """Nine numbers that are observed in other mixtures again and again, from a diffuse start."""
    rng = np.random.default_rng(0)
    H = rng.normal(size=(14, p, 9))
    y = H @ np.arange(1.0, 10.0) + np.sqrt(noise) * rng.normal(size=(14, p))
    return {"y": y, "F": np.eye(9), "H": H, "Q": np.zeros((9, 9)), "R": noise * np.eye(p), "m0": np.zeros(9),
            "P0": start * np.eye(9)}  # fmt: skip


@pytest.mark.parametrize(("p", "start", "noise"), [(1, 1e15, 1e-6), (2, 1e15, 1e-6), (1, 1e12, 1e-2)])
def test_no_digits_are_lost(p: int, start: float, noise: float) -> None:
    """Relative to standard deviations; symmetric, and no variance is negative."""
    parameters = constant(p, start, noise)
    y, limit = parameters.pop("y"), 1e6 * EPS["float64"]
    likelihood, mean, cov, smoothed_mean, smoothed_cov = exact(y, **parameters)
    filtered, smoothed, found = each(y, parameters)
    np.testing.assert_allclose(found, likelihood, rtol=limit)
    check(filtered, likelihood, mean, cov, limit)
    check(smoothed, likelihood, smoothed_mean, smoothed_cov, limit)
    many = kalman.log_likelihood(np.stack([y] * 9), backend=NAME, **parameters)
    np.testing.assert_allclose(many, likelihood, rtol=limit)


@pytest.mark.parametrize(
    ("name", "k", "seeds"),
    [
        *((NAME, k, range(10)) for k in (9, 17, 32)),
        ("numpy_scan", 17, range(10)),
        pytest.param(NAME, 8, (51, 74, 108), marks=pytest.mark.slow),  # by the kernel that is written out
    ],
)
def test_covariances_of_rank_one_in_single_precision(name: str, k: int, seeds: Sequence[int]) -> None:
    """From square roots: what is left where parts cancel again and again underflows, and is nothing."""
    for seed in seeds:
        one = np.random.default_rng(seed).normal(size=(k, 1)).astype("float32")
        y, parameters = (
            series(9, 3, seed=seed).astype("float32"),
            model(k, 3, seed=seed, P0=one @ one.T, Q=np.zeros((k, k))),
        )
        given = {name: x.astype("float32") for name, x in parameters.items()}
        wide = {name: x.astype(float) for name, x in given.items()} | {"P0": (x := one.astype(float)) @ x.T}
        found, wanted = (kalman.filter(z, backend=name, **m) for z, m in ((y, given), (y.astype(float), wide)))
        np.testing.assert_allclose(found.log_likelihood, wanted.log_likelihood, rtol=1e-4)
        np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-3, atol=1e-3 * abs(wanted.mean).max())


def test_models_that_cancel() -> None:
    """Some hundred of them, of any size: what `numpy_scan` finds, who are in doubt about other ones, or none."""
    judged = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        k, p = (int(rng.integers(9, 20)), int(rng.integers(1, 5))) if seed % 3 else (int(rng.integers(1, 8)), 11)
        given = hostile(rng, k, p, int(rng.integers(2, 15)))
        found, wanted = (kalman.log_likelihood(backend=name, **given) for name in (NAME, "numpy"))
        if np.isnan(wanted):  # a contradiction of what is exact, which rounding may hide
            assert np.isnan(found) or found < -1e10, seed
        elif not abs(wanted) > 1e13:  # else a variance is 0 but for rounding
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6, err_msg=str(seed))
            judged += 1
    assert judged > 75


def test_one_bad_series_is_nan_alone() -> None:
    """The others are, to the last bit, what they are without it; what is NaN is so for `numpy_scan`."""
    y, parameters = series(5, 6, 2), model(12, 2, 5)
    good = each(y, parameters)
    parameters["H"][1] = parameters["R"][1] = 0
    parameters["F"][3, 0, 2, 5] = np.nan
    found = each(y, parameters)
    wanted = each(y, parameters, "numpy")
    results = [(*filtered, *smoothed, likelihood) for filtered, smoothed, likelihood in (found, good, wanted)]
    for x, z, right in zip(*results, strict=True):
        np.testing.assert_array_equal(x[[0, 2, 4]], z[[0, 2, 4]])
        np.testing.assert_array_equal(np.isnan(x), np.isnan(right))
    assert np.isnan(found[2]).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("case", ["R", "Q"])
def test_an_infinite_variance_is_nan(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its step on, where values are not looked at, as in programs of JAX."""
    for module in (state_space, filters):
        monkeypatch.setattr(module, "check_covariance", lambda *_: None)
    parameters, y = model(9, 2), series(3, 2)
    parameters[case] = np.diag([np.inf] + [1.0] * (len(parameters[case]) - 1))
    first = 1 if case == "Q" else 0
    found = kalman.filter(y, backend=NAME, **parameters)
    assert np.isnan(found.log_likelihood) and np.isnan(kalman.log_likelihood(np.stack([y] * 3), **parameters)).all()
    for x in (found.mean, found.cov):
        assert np.isnan(x[first:]).all() and np.isfinite(x[:first]).all()


def test_what_is_said_not_to_be_read_is_not() -> None:
    """F[n-1], Q[n-1]; H and R of what is missing; what is below the diagonal of covariances by more than rounding."""
    y, parameters = series(5, 2), model(10, 2, time=(5,))
    y[2, 1] = np.nan
    y[3] = np.nan
    right = each(y, parameters)
    places = ("F", 4), ("Q", 4), ("H", (2, 1)), ("H", 3), ("R", (2, 1)), ("R", (2, slice(None), 1)), ("R", 3)
    for name, place in places:
        parameters[name][place] = np.nan
    for x, z in zip(each(y, parameters), right, strict=True):
        for part, whole in zip(x, z, strict=True) if isinstance(x, tuple) else ((x, z),):
            np.testing.assert_array_equal(part, whole)


def test_statsmodels() -> None:
    """A structural model of 13 states: level, slope and a season of twelve, R > 0 and a singular Q."""
    statespace = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")
    F, H = np.zeros((13, 13)), np.zeros((1, 13))
    F[:2, :2] = [[1, 1], [0, 1]]
    F[2, 2:], F[3:, 2:-1], H[0, [0, 2]] = -1, np.eye(10), 1
    Q, P0 = np.diag([0.1, 0.01, 0.2] + [0.0] * 10), 10 * np.eye(13)
    y = np.cumsum(np.random.default_rng(0).normal(size=(120, 1)), 0)
    y[50:60] = np.nan
    made = statespace.KalmanSmoother(1, 13)
    made.bind(y.copy())
    told = {"transition": F, "design": H, "state_cov": Q, "obs_cov": np.eye(1), "selection": np.eye(13)}
    for name, x in told.items():
        made[name] = x
    made.initialize_known(np.zeros(13), P0)
    right = made.smooth()
    found = kalman.smoother(y, F=F, H=H, Q=Q, R=np.eye(1), m0=np.zeros(13), P0=P0, backend=NAME)
    np.testing.assert_allclose(found.log_likelihood, right.llf, rtol=1e-10)
    np.testing.assert_allclose(found.mean, right.smoothed_state.T, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.cov, np.moveaxis(right.smoothed_state_cov, -1, 0), rtol=1e-8, atol=1e-8)


def test_jax() -> None:
    """In jit and vmap, with what is missing known or not."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    parameters = {name: jnp.asarray(x) for name, x in model(9, 2).items()}
    for missing in (0.0, 0.3):
        y = series(3, 4, 2, missing=missing)
        wanted = kalman.log_likelihood(y, backend="numpy", **model(9, 2))
        value = lambda y, R: kalman.log_likelihood(y, backend=NAME, **parameters | {"R": R})  # noqa: E731
        np.testing.assert_allclose(jax.jit(value)(jnp.asarray(y), parameters["R"]), wanted, rtol=1e-12)
        each_R = jax.vmap(value, (0, None))(jnp.asarray(y), parameters["R"])
        np.testing.assert_allclose(each_R, wanted, rtol=1e-12)


def derivatives(y: np.ndarray, parameters: dict[str, Any]) -> dict[str, np.ndarray]:
    jax = pytest.importorskip("jax")
    values = {name: jax.numpy.asarray(x) for name, x in {"y": y, **parameters}.items()}
    found = jax.jit(jax.grad(lambda given: kalman.log_likelihood(backend=NAME, **given).sum()))(values)
    return {name: np.asarray(x) for name, x in found.items()}


SLOPES = {
    "shared": (9, 1, 5, 0.0),
    "missing": (17, 3, 4, 0.3),
    "many observed": (2, 11, 4, 0.2),
    "a step": (9, 1, 1, 0.0),
}


@pytest.mark.parametrize("case", SLOPES)
def test_gradients_are_finite_differences(case: str) -> None:
    """In every argument; covariances move symmetrically. 0 for what is missing."""
    k, p, n, missing = SLOPES[case]
    y, parameters = series(3, n, p, missing=missing), model(k, p)
    found, values, rng = derivatives(y, parameters), {"y": y, **parameters}, np.random.default_rng(3)
    for name, x in values.items():
        step = rng.normal(size=x.shape)
        step = step + step.swapaxes(-1, -2) if name in ("Q", "R", "P0") else step
        low, high = (kalman.log_likelihood(backend=NAME, **values | {name: x + h * step}).sum() for h in (-1e-5, 1e-5))
        np.testing.assert_allclose((found[name] * step).sum(), (high - low) / 2e-5, rtol=1e-5, atol=1e-8, err_msg=name)
    assert not found["y"][np.isnan(y)].any()
    for name in ("Q", "R", "P0"):
        np.testing.assert_array_equal(found[name], found[name].swapaxes(-1, -2))


def test_gradients_of_own_models() -> None:
    """Each as alone; one whose innovation covariance is not positive definite is NaN alone."""
    y, parameters = series(4, 5, 2, missing=0.2), model(9, 2, 4)
    good = derivatives(y, parameters)
    parameters["H"][1] = parameters["R"][1] = 0
    found = derivatives(y, parameters)
    for name, x in found.items():
        np.testing.assert_array_equal(x[[0, 2, 3]], good[name][[0, 2, 3]])
        assert np.isnan(x[1]).any()
    alone = derivatives(y[2], of_series(parameters, 2))
    for name, x in alone.items():
        np.testing.assert_allclose(good[name][2].reshape(x.shape), x, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("k", "p", "count", "start"), [(9, 3, 75, 1), (17, 1, 33, 1), (2, 11, 8, 1), (9, 2, 35, 1e10)])
def test_gradients_of_series_that_share_a_model(k: int, p: int, count: int, start: float) -> None:
    """The sum of those of each alone, in y and m0 that of each; also where digits would be lost."""
    y, parameters = series(count, 6, p), model(k, p)
    parameters |= {"P0": start * parameters["P0"], "m0": np.random.default_rng(0).normal(size=(count, k))}
    found = derivatives(y, parameters)
    some = {name: np.broadcast_to(x, (count, 1, *x.shape)).copy() for name, x in parameters.items() if name in "FHQR"}
    own = derivatives(y, parameters | some)  # a covariance of each
    for name, x in found.items():
        wanted = own[name].sum((0, 1)) if name in some else own[name]
        limit = 1e-6 if start > 1 and name in ("m0", "P0") else 1e-9
        np.testing.assert_allclose(x, wanted, rtol=limit, atol=limit * abs(wanted).max(), err_msg=name)


@pytest.mark.parametrize("p", [1, 2])
def test_gradients_keep_digits(p: int) -> None:
    """Differences of what mpmath finds, from a start that is diffuse; dependent noises."""
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(p, p))
    parameters = {
        "F": 0.99 * np.linalg.qr(rng.normal(size=(9, 9)))[0], "H": rng.normal(size=(p, 9)), "Q": np.zeros((9, 9)),
        "R": 1e-2 * (np.eye(p) + noise @ noise.T), "m0": np.zeros(9), "P0": 1e10 * np.eye(9),
    }  # fmt: skip
    y = rng.normal(size=(14, p))
    found = derivatives(y, parameters)
    for name, place in (("F", (0, 0)), ("F", (7, 3)), ("H", (0, 4)), ("R", (0, 0))):
        low, high = (moved(parameters, name, place, h) for h in (-1e-9, 1e-9))
        np.testing.assert_allclose(found[name][place], differences(y, low, high, 1e-9), rtol=1e-6, err_msg=name)


# ------------------------------------------------------------------------------------------------------- products


def run_of(dtype: str) -> Any:
    """A product of rows, as a C function of the address of its arguments."""
    from numba import cfunc, types

    from tridiag.kernels.many_states.rows import Numbers, Rows, add_product, subtract_product
    from tridiag.kernels.simd.compiled import compiled
    from tridiag.kernels.simd.functions import definition
    from tridiag.kernels.simd.memory import c_function, call, word

    zero = np.zeros((), dtype)[()]

    @compiled
    def work(at: int, zero: Any) -> None:
        target, right = Rows(word(at), word(at + 8)), Rows(word(at + 16), word(at + 24))
        start = Rows(word(at + 32), word(at + 40))
        left = Numbers(word(at + 48), word(at + 56), word(at + 64))
        rows, inner, vectors, low, sign = word(at + 72), word(at + 80), word(at + 88), word(at + 96), word(at + 104)
        if sign > 0:
            add_product(zero, target, left, right, start, rows, inner, vectors, low)
        else:
            subtract_product(zero, target, left, right, start, rows, inner, vectors, low)

    function = c_function(work, "tridiag_test_product")
    define = definition(function)

    def enter(at: int) -> None:
        define(zero)
        call(function(zero), (at,))

    return cfunc(types.void(types.int64), error_model="numpy")(enter)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_of_all_sizes(dtype: str) -> None:
    """Rows, vectors and triangles that blocks of registers do not fill; nothing beside the result is written."""
    made = run_of(dtype)
    run, itemsize = ctypes.CFUNCTYPE(None, ctypes.c_int64)(made.address), np.dtype(dtype).itemsize
    rng, lanes = np.random.default_rng(0), 64 // itemsize
    for rows, inner, vectors, low, turned, sign in (
        (m, k, v, low, turned, sign)
        for m in (1, 3, 4, 5, 8, 9, 18) for k in (0, 1, 7) for v in (1, 2, 3, 4, 5, 7)
        for low in (0, 1) for turned in (False, True) for sign in (1, -1)
    ):  # fmt: skip
        width = vectors * lanes
        left, right = rng.normal(size=(rows, inner)).astype(dtype), rng.normal(size=(inner + 1, width)).astype(dtype)
        stored = np.ascontiguousarray(left.T) if turned else left
        start, target = rng.normal(size=(rows, width)).astype(dtype), np.full((rows + 1, width), 7, dtype)
        steps = (itemsize, rows * itemsize) if turned else (inner * itemsize, itemsize)
        row = width * itemsize
        words = [target.ctypes.data, row, right.ctypes.data, row, start.ctypes.data, row, stored.ctypes.data, *steps]
        words = np.array([*words, rows, inner, vectors, low, sign], np.int64)
        run(words.ctypes.data)
        wanted = start + sign * (left.astype(float) @ right[:inner].astype(float))
        for i in range(rows):
            first = min(i // lanes * low, vectors) * lanes
            np.testing.assert_allclose(target[i, first:], wanted[i, first:], rtol=0, atol=40 * EPS[dtype])
            assert (target[i, :first] == 7).all()
        assert (target[rows] == 7).all()
