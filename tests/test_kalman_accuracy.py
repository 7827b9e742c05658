"""Kalman filters of models that cancel: diffuse starts, exact observations, states of other units; against mpmath.

A covariance as it stands would keep no digit of what is certain here, and lose its sign.
"""

from typing import Any

import numpy as np
import pytest
from guarded.hostile_models import hostile
from helpers import EPS, Subject

from tridiag import kalman
from tridiag.algorithms import kalman_rows
from tridiag.problems.state_space import LIKELIHOOD

from test_kalman import run, step_of  # isort: skip

pytestmark = pytest.mark.only(verb=LIKELIHOOD, parallel=False)


def exact(y: np.ndarray, F: Any, **others: Any) -> tuple[np.ndarray, ...]:
    """The log-likelihood, and means and covariances of the filter and of the smoother, with 120 digits."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(120):
        total, steps = forward(mp, y, F, **others)
        r, N, found = 0 * steps[0][0], 0 * steps[0][1], []
        for t in reversed(range(len(y))):
            mean, cov, news, told, left = steps[t]
            found.insert(0, (mean, cov, mean + cov * r, cov - cov * N * cov))
            r, N = news + left.T * r, told + left.T * N * left
            f = matrix(mp, step_of(F, max(t - 1, 0)))
            r, N = f.T * r, f.T * N * f
        return np.array(total, float), *(np.array([values(x) for x in part]) for part in zip(*found, strict=True))


def forward(mp: Any, y: np.ndarray, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> tuple[Any, list[Any]]:
    """The log-likelihood, and of every step the state and what the way back needs."""
    mean, cov, total, steps = mp.matrix(list(map(float, m0))), matrix(mp, P0), mp.mpf(0), []
    for t in range(len(y)):
        seen = ~np.isnan(y[t])
        both = seen & seen[:, None]
        h, r = np.where(seen[:, None], step_of(H, t), 0), np.where(both, step_of(R, t), np.eye(len(seen)))
        h, r, v = matrix(mp, h), matrix(mp, r), matrix(mp, np.where(seen, y[t], 0)[:, None])
        S, v = h * cov * h.T + r, v - h * mean
        inverse = S**-1
        total -= (int(seen.sum()) * mp.log(2 * mp.pi) + mp.log(mp.det(S)) + (v.T * inverse * v)[0]) / 2
        news, told, gain = h.T * inverse * v, h.T * inverse * h, cov * h.T * inverse
        mean, cov = mean + gain * v, cov - gain * h * cov
        steps.append((mean, cov, news, told, mp.eye(len(m0)) - gain * h))
        f = matrix(mp, step_of(F, t))
        mean, cov = f * mean, f * cov * f.T + matrix(mp, step_of(Q, t))
    return total, steps


def matrix(mp: Any, x: Any) -> Any:
    return mp.matrix(np.asarray(x, float).tolist())


def values(x: Any) -> np.ndarray:
    found = np.array(x.tolist(), float)
    return found[:, 0] if found.shape[1] == 1 else found


def constant(
    seed: int = 0, p: int = 1, n: int = 9, start: float = 1e15, noise: float = 1e-6, k: int = 3
) -> dict[str, Any]:
    """Three numbers, or more, that are observed in other mixtures again and again."""
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(n, p, k))
    y = (H @ np.arange(1.0, k + 1)) + np.sqrt(noise) * rng.normal(size=(n, p))
    return {"y": y, "F": np.eye(k), "H": H, "Q": np.zeros((k, k)), "R": noise * np.eye(p), "m0": np.zeros(k),
            "P0": start * np.eye(k)}  # fmt: skip


def in_units(given: dict[str, Any], state: float, value: float = 1.0) -> dict[str, Any]:
    """The same with states, and values that are observed, that many times as large."""
    factors = {"y": value, "H": value / state, "Q": state**2, "R": value**2, "m0": state, "P0": state**2}
    return {name: x * factors.get(name, 1.0) for name, x in given.items()}


def trend(units: float = 1.0) -> dict[str, Any]:
    """Level and slope, the slope in other units, from a diffuse start, a gap in the middle."""
    unit, rng = np.array([1.0, units]), np.random.default_rng(1)
    y = np.cumsum(1 + rng.normal(size=(12, 1)), 0)
    y[5:7] = np.nan
    return {"y": y, "F": np.array([[1.0, 1.0], [0.0, 1.0]]) * unit[:, None] / unit, "H": np.array([[1.0, 0.0]]),
            "Q": np.diag([0.0, 1e-4]) * unit[:, None] * unit, "R": np.array([[1.0]]), "m0": np.zeros(2),
            "P0": 1e12 * np.eye(2) * unit[:, None] * unit}  # fmt: skip


def doubled(p: int = 2) -> dict[str, Any]:
    """Two states that are observed by two instruments that are nearly the same, and perhaps by a third one."""
    H = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-7], [1.0, -1.0]])[:p]
    y = np.random.default_rng(2).normal(size=(8, 1)) * 1e-3 + (H @ [1.0, 2.0])
    return {"y": y, "F": np.eye(2), "H": H, "Q": np.full((2, 2), 1e-8), "R": 1e-6 * np.eye(p), "m0": np.zeros(2),
            "P0": 1e8 * np.eye(2)}  # fmt: skip


def gap() -> dict[str, Any]:
    """Two mixtures of two states observed once each, then nothing, then a third one."""
    H, y = np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 0.3]]), np.full((6, 3), np.nan)
    y[0, 0], y[1, 1], y[3:, 2] = 3.0, -1.0, 1.6
    return {"y": y, "F": np.eye(2), "H": H, "Q": np.zeros((2, 2)), "R": 1e-6 * np.eye(3), "m0": np.zeros(2),
            "P0": 1e15 * np.eye(2)}  # fmt: skip


def delayed(ring: bool = False) -> dict[str, Any]:
    """What one instrument sees at once comes to another one after some steps, from states that were known as 0."""
    k = 3
    F, H, y = np.eye(k, k, -1), np.zeros((2, k)), np.random.default_rng(4).normal(size=(12, 2)) * 1e5
    F[0, -1 if ring else 0] = 1.0 if ring else 0.9
    H[0, 0], H[1, k - 1], y[: k - 1, 1] = 1.0, 1.0, 0.0
    if ring:
        y[1:], y[[0, 2, 5, 8], [0, 1, 1, 1]] = np.nan, 1e5
    return {"y": y, "F": F, "H": H, "Q": np.diag([1e10 * (not ring), 0, 0]), "R": 1e-6 * np.eye(2),
            "m0": np.zeros(k), "P0": np.diag([1e13 if ring else 1e10, 0, 0])}  # fmt: skip


def growing() -> dict[str, Any]:
    """A state that grows while nobody observes it, and its rounding errors with it."""
    y = np.full((82, 1), np.nan)
    y[0] = y[-1] = 0
    return {"y": y, "F": np.diag([1.5, 1.0]), "H": np.array([[3.0, 0.0]]), "Q": np.zeros((2, 2)),
            "R": np.array([[1e-6]]), "m0": np.zeros(2), "P0": np.diag([1e15, 1.0])}  # fmt: skip


HARD = {  # a model, and how many eps a result may be off
    "diffuse, constant": (constant(), 1e5),
    "diffuse, constant, two observed": (constant(p=2), 1e5),
    "exact": (constant(start=1e12, noise=0.0, n=3), 1e5),
    "more diffuse": (constant(start=1e25), 1e5),
    "trend": (trend(), 1e3),
    "units": (trend(1e-8), 1e3),
    "delayed": (delayed(), 1e6),
    "delayed in a ring": (delayed(ring=True), 1e6),
    "doubled": (doubled(), 1e9),  # of a mean as large as 1e4 standard deviations
    "doubled, and a third": (doubled(3), 1e9),
    "gap": (gap(), 1e5),
}
LATER = "doubled, and a third", "gap"  # with three observed values: kernels that nothing else needs


@pytest.mark.parametrize("case", [pytest.param(c, marks=[pytest.mark.slow] if c in LATER else []) for c in HARD])
def test_no_digits_are_lost(backend: Subject, case: str) -> None:
    """Relative to standard deviations; symmetric, and no variance is negative."""
    parameters, allowed = HARD[case]
    parameters = dict(parameters)
    y = parameters.pop("y")
    right = exact(y, **parameters)
    limit = allowed * EPS["float64"]
    np.testing.assert_allclose(run(backend, "log_likelihood", y, parameters), right[0], rtol=limit)
    for verb, mean, cov in (("filter", *right[1:3]), ("smoother", *right[3:])):
        if backend.can(verb=f"kalman.{verb}"):
            check(run(backend, verb, y, parameters), right[0], mean, cov, limit)


def check(found: Any, likelihood: Any, mean: np.ndarray, cov: np.ndarray, limit: float) -> None:
    np.testing.assert_allclose(found.log_likelihood, likelihood, rtol=limit)
    spread = np.sqrt(np.maximum(np.einsum("tii->ti", cov), 0))
    assert (abs(found.mean - mean) <= limit * (spread + abs(mean))).all()
    assert (abs(found.cov - cov) <= limit * spread[:, None] * spread[:, :, None] + 1e-30).all()
    assert (np.einsum("tii->ti", found.cov) >= 0).all()
    np.testing.assert_array_equal(found.cov, found.cov.swapaxes(-1, -2))


def test_a_state_that_grows_unobserved(backend: Subject) -> None:
    """The log-likelihood: the smoother of such a model has fewer digits."""
    parameters = growing()
    y = parameters.pop("y")
    right, limit = exact(y, **parameters)[0], 1e5 * EPS["float64"]
    np.testing.assert_allclose(run(backend, "log_likelihood", y, parameters), right, rtol=limit)


def test_float32(backend: Subject) -> None:
    """A start that is hardly diffuse is too much for float32."""
    parameters = {name: x.astype("float32").astype(float) for name, x in constant(start=1e6, noise=1e-2).items()}
    y = parameters.pop("y")
    found = run(backend, "log_likelihood", y, parameters, "float32")
    np.testing.assert_allclose(found, exact(y, **parameters)[0], rtol=1e3 * EPS["float32"])


@pytest.mark.parametrize(
    ("state", "value"),
    [(2.0**-56, 1.0), (2.0**-56, 2.0**40), (2.0**52, 2.0**-24)],
    ids=["small variances", "large H", "small H"],
)
def test_float32_in_other_units(backend: Subject, state: float, value: float) -> None:
    """Variances that are nearly subnormal, and squares of H beyond the range, above or below."""
    rounded = {name: x.astype("float32").astype(float) for name, x in constant(start=1e6, noise=1e-2).items()}
    parameters = in_units(rounded, state, value)
    y = parameters.pop("y")
    found = run(backend, "log_likelihood", y, parameters, "float32")
    np.testing.assert_allclose(found, exact(y, **parameters)[0], rtol=1e3 * EPS["float32"])


@pytest.mark.parametrize("states", [3, 9])
def test_variances_of_the_smallest_numbers(backend: Subject, states: int) -> None:
    """Nothing but rounding is taken for 0."""
    if states == 9 and not backend.compiled:
        pytest.skip("other texts are the same for all numbers of states")
    given = constant(start=1e4, noise=1e-2, k=states)
    y, unit, limit = given["y"], 2.0**-490, 1e5 * EPS["float64"]
    right = exact(**given)
    small = in_units(given, unit)
    small.pop("y")
    for verb, mean, cov in (("filter", *right[1:3]), ("smoother", *right[3:])):
        if backend.can(verb=f"kalman.{verb}"):
            found = run(backend, verb, y, small)
            found = found._replace(mean=found.mean / unit, cov=found.cov / unit / unit)
            check(found, right[0], mean, cov, limit)


def test_easy_neighbours(backend: Subject) -> None:
    """A hard model among easy ones, more than a vector has lanes: all are right, with and without missing values."""
    parameters = constant()
    del parameters["y"]
    easy = 2.0 * np.eye(3), np.eye(1)
    P0, R = (np.broadcast_to(x, (21, *x.shape)).copy() for x in easy)
    P0[13], R[13] = parameters["P0"], parameters["R"]
    given = parameters | {"P0": P0, "R": R[:, None]}
    for missing in (False, True):
        y = np.broadcast_to(constant()["y"], (21, 9, 1)).copy()
        if missing:
            y[:, 4] = np.nan
        found = run(backend, "log_likelihood", y, given)
        for i in (0, 13, 20):
            alone = exact(y[i], **given | {"P0": P0[i], "R": R[i]})[0]
            np.testing.assert_allclose(found[i], alone, rtol=1e-10)


def turning(seed: int = 3) -> dict[str, Any]:
    """A start that is diffuse, a state that turns, one row of H."""
    rng = np.random.default_rng(seed)
    F = 0.99 * np.linalg.qr(rng.normal(size=(3, 3)))[0]
    y = rng.normal(size=(8, 1))
    return {"y": y, "F": F, "H": rng.normal(size=(1, 3)), "Q": np.zeros((3, 3)), "R": np.array([[1e-6]]),
            "m0": np.zeros(3), "P0": 1e15 * np.eye(3)}  # fmt: skip


@pytest.mark.only(library="jax")
@pytest.mark.parametrize("series", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_gradients_keep_digits(backend: Subject, series: int) -> None:
    """Differences of what mpmath finds; in m0 and P0, which hardly matter, they are finite.

    What digits rounding leaves varies from model to model: of five the median is judged, and the worst less strictly.
    """
    import jax

    errors: dict[str, list[float]] = {}
    for seed in range(3, 8):
        parameters = turning(seed)
        y = parameters.pop("y")
        many = jax.numpy.asarray(np.repeat(y[None], series, 0))

        def total(given: dict[str, Any], many: Any = many) -> Any:
            return kalman.log_likelihood(many, backend=backend.name, **given).mean()

        found = jax.grad(total)({name: jax.numpy.asarray(x) for name, x in parameters.items()})
        for name, step in (("F", 1e-9), ("H", 1e-9), ("R", 1e-10)):
            for place in ((0, 0), (2, 1)) if name == "F" else ((0, 0),):
                low, high = (moved(parameters, name, place, h) for h in (-step, step))
                wanted = differences(y, low, high, step)
                errors.setdefault(f"{name}{place}", []).append(float(abs(found[name][place] / wanted - 1)))
        assert all(np.isfinite(x).all() for x in found.values())
    for name, found_errors in errors.items():
        assert np.median(found_errors) < 1e-5 and max(found_errors) < 5e-5, (name, found_errors)


@pytest.mark.only(library="jax")
def test_vmap_computes_once(backend: Subject) -> None:
    """One condition for all: with one for each, every series would be filtered in both ways."""
    import jax

    parameters = {name: jax.numpy.asarray(x) for name, x in turning().items()}
    y = parameters.pop("y")

    def value(R: Any) -> Any:
        return kalman.log_likelihood(y, backend=backend.name, **parameters | {"R": R})

    noises = jax.numpy.asarray([[[1.0]], [[1e-6]]])
    text = str(jax.make_jaxpr(jax.vmap(value))(noises))
    assert "cond[" in text or backend.name not in ("jax_scan", "jax_associative")
    np.testing.assert_allclose(jax.vmap(value)(noises), [value(noises[0]), value(noises[1])], rtol=1e-9)


def moved(parameters: dict[str, Any], name: str, place: tuple[int, int], step: float) -> dict[str, Any]:
    x = parameters[name].copy()
    x[place] += step
    return parameters | {name: x}


def differences(y: np.ndarray, low: dict[str, Any], high: dict[str, Any], step: float) -> float:
    """A central difference, of values with 120 digits."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(120):
        below, above = (forward(mp, y, **parameters)[0] for parameters in (low, high))
        return float((above - below) / (2 * step))


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_lost_digits_are_noticed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever covariances as they stand are trusted with, square roots of them find as well."""
    by_entries, found = kalman_rows.by_entries, []

    def both(*given: Any) -> Any:
        value, doubtful = by_entries(*given)
        if not doubtful:
            found.append((value, kalman_rows.by_roots(*given)))
        return value, doubtful

    monkeypatch.setattr(kalman_rows, "by_entries", both)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 6), rng.integers(1, 4), rng.integers(2, 25)
        kalman.log_likelihood(backend="numpy_scan", **hostile(rng, *map(int, sizes)))
    assert len(found) > count / 10
    for seed, (value, right) in enumerate(found):
        np.testing.assert_allclose(value, right, rtol=1e-6, atol=1e-6, err_msg=f"model {seed} of those trusted")
