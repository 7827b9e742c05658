"""States of which nothing is known before the first step, and intercepts: against many digits and statsmodels."""

import warnings
from typing import Any

import numpy as np
import pytest
from helpers import EPS, Subject, covariance, to_numpy

import tridiag
from tridiag import kalman
from tridiag.problems.state_space import FILTER, LIKELIHOOD, SMOOTHER

from test_kalman import model, moments, named_unknown, of_series, run, series, to_jax  # isort: skip
from test_kalman_accuracy import exact  # isort: skip

pytestmark = pytest.mark.only(verb=LIKELIHOOD, parallel=False)
LARGE = 1e40  # stands for infinity where there are 120 digits


def trend(**more: Any) -> dict[str, Any]:
    return {"F": np.array([[1.0, 1], [0, 1]]), "H": np.array([[1.0, 0]]), "Q": np.diag([0.3, 0.1]),
            "R": np.eye(1), "m0": np.array([0.5, -1]), "P0": np.diag([np.inf, np.inf])} | more  # fmt: skip


def diffuse(k: int, p: int, *unknown: int, seed: int = 0, **more: Any) -> dict[str, Any]:
    made = model(k, p, seed=seed) | more
    made["P0"] = made["P0"].copy()
    for i in unknown:
        made["P0"][i, :] = made["P0"][:, i] = 0
        made["P0"][i, i] = np.inf
    return made


def gaps(n: int, p: int, *missing: int) -> np.ndarray:
    y = series(n, p)
    y[list(missing)] = np.nan
    return y


CASES = {  # a model, its observations, and how many directions they tell
    "trend": (trend(), gaps(7, 1, 0, 2), 2),
    "trend, exact": (trend(R=np.zeros((1, 1)), Q=np.diag([0.0, 0.1])), gaps(7, 1, 1), 2),
    "one of three": (diffuse(3, 1, 1), gaps(6, 1), 1),
    "two observed, one unknown": (diffuse(3, 2, 0), gaps(6, 2), 1),
    "two observed, three unknown": (diffuse(4, 2, 0, 1, 3), gaps(6, 2, 1), 3),
    "changing": (diffuse(2, 2, 0, 1, **{x: model(2, 2, time=(6,))[x] for x in "FHQR"}), gaps(6, 2, 0), 2),
    "never observed": (diffuse(2, 1, 0, 1, F=np.diag([0.9, 0.8]), H=np.array([[1.0, 0]])), gaps(5, 1), 1),
    "forgotten": (diffuse(2, 1, 1, F=np.array([[0.9, 0], [0, 0]]), H=np.array([[1.0, 0]])), gaps(5, 1), 0),
    "nothing observed": (trend(), np.full((3, 1), np.nan), 0),
}


def close_or_infinite(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    infinite = abs(wanted) > LARGE**0.5
    np.testing.assert_array_equal(found[infinite], np.copysign(np.inf, wanted[infinite]))
    np.testing.assert_allclose(found[~infinite], wanted[~infinite], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_results_are_limits(backend: Subject, case: str) -> None:
    """Of a variance that grows beyond all bounds; the log-likelihood less what it loses by that."""
    if backend.library == "jax" and case not in ("trend", "two observed, one unknown"):
        pytest.skip("compiles for long; the steps are those of the other libraries")
    parameters, y, told = CASES[case]
    likelihood, updated, updated_cov, smoothed, smoothed_cov = exact(y, **limit(parameters))
    right = likelihood + told * np.log(LARGE) / 2
    np.testing.assert_allclose(run(backend, "log_likelihood", y, parameters), right, rtol=1e-11, atol=1e-11)
    if backend.can(verb=FILTER):
        found = run(backend, "filter", y, parameters)
        np.testing.assert_allclose(found.log_likelihood, right, rtol=1e-11, atol=1e-11)
        close_or_infinite(found.cov, updated_cov, 1e-10)
        np.testing.assert_allclose(found.mean, updated, rtol=1e-10, atol=1e-10)
        assert (
            np.isposinf(np.diagonal(found.predicted_cov[0])).tolist()
            == np.isposinf(np.diagonal(parameters["P0"])).tolist()
        )
    if SMOOTHER in backend.entry.diffuse and backend.can(verb=SMOOTHER):
        states = run(backend, "smoother", y, parameters)
        close_or_infinite(states.cov, smoothed_cov, 1e-9)
        np.testing.assert_allclose(states.mean, smoothed, rtol=1e-9, atol=1e-9)


def limit(parameters: dict[str, Any]) -> dict[str, Any]:
    return parameters | {"P0": np.where(np.isposinf(parameters["P0"]), LARGE, parameters["P0"])}


def test_a_seasonal_model_of_13_states(backend: Subject) -> None:
    """As econometricians fit it: level, slope and a dummy for each month, all unknown; against many digits."""
    if backend.library == "jax":
        pytest.skip("compiles for long; the steps are those of the other libraries")
    if (backend.entry.states or 13) < 13:
        pytest.skip(f"filters up to {backend.entry.states} states")
    F, H = np.zeros((13, 13)), np.zeros((1, 13))
    F[0, :2], F[1, 1], F[2, 2:], H[0, [0, 2]] = 1, 1, -1, 1
    F[np.arange(3, 13), np.arange(2, 12)] = 1
    Q = np.diag([0.1, 0.01, 0.05, *[0] * 10])
    given = {"F": F, "H": H, "Q": Q, "R": np.eye(1), "m0": np.zeros(13), "P0": np.diag([np.inf] * 13)}
    y = gaps(40, 1, 3, 17)
    right = exact(y, **limit(given))
    np.testing.assert_allclose(run(backend, "log_likelihood", y, given), right[0] + 13 * np.log(LARGE) / 2, 1e-10)
    if SMOOTHER in backend.entry.diffuse:
        np.testing.assert_allclose(run(backend, "smoother", y, given).mean, right[3], rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.only(library="jax")
def test_programs_are_as_long_for_many_states_as_for_few(backend: Subject) -> None:
    """Columns are taken in loops, which compile once."""
    import jax

    if not backend.compiled:
        pytest.skip("square roots of what is left of a series are written out")
    lengths = []
    for k in (17, 30):
        given = diffuse(k, 1, *range(k)) | {"F": np.eye(k), "Q": np.eye(k), "H": np.ones((1, k))}
        program = jax.jit(lambda y, given=given: kalman.log_likelihood(y, backend=backend.name, **given))
        lengths.append(program.lower(np.zeros((100, 1))).as_text().count("stablehlo."))
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))])
def test_statsmodels(seed: int) -> None:
    """Random models with states unknown and intercepts, some that change with time, and with missing values."""
    pytest.importorskip("statsmodels")
    from statsmodels.tsa.statespace.initialization import Initialization
    from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

    rng = np.random.default_rng(seed)
    k, p, n = int(rng.integers(1, 6)), int(rng.integers(1, 4)), 40
    unknown = [i for i in range(k) if rng.random() < 0.6] or [0]
    parameters, y = diffuse(k, p, *unknown, seed=seed), series(n, p, missing=[0, 0.3][seed % 2], seed=seed)
    parameters["P0"] = np.diag(np.where(np.isin(np.arange(k), unknown), np.inf, rng.uniform(1, 2, k)))
    parameters["m0"][unknown] = 0
    added = {
        "state_intercept": rng.normal(size=(n, k) if seed % 3 == 0 else k),
        "obs_intercept": rng.normal(size=(n, p) if seed % 3 == 1 else p),
    }
    theirs = KalmanSmoother(p, k)
    theirs.bind(y.copy())
    names = {"F": "transition", "H": "design", "Q": "state_cov", "R": "obs_cov"}
    for name, told in names.items():
        theirs[told] = parameters[name]
    for name, x in added.items():
        theirs[name] = x.reshape(-1, x.shape[-1]).T.copy()
    theirs["selection"] = np.eye(k)
    start = Initialization(k)
    for i in range(k):
        m, v = parameters["m0"][i : i + 1], parameters["P0"][i : i + 1, i : i + 1]
        start.set(i, "diffuse") if i in unknown else start.set(i, "known", constant=m, stationary_cov=v)
    theirs.initialize(start)
    with warnings.catch_warnings():  # statsmodels would show its own, whatever the filters say
        warnings.simplefilter("ignore")
        right = theirs.smooth()
    found, states = (getattr(kalman, verb)(y, **parameters, **added) for verb in ("log_likelihood", "smoother"))
    one = with_constant(parameters, added["state_intercept"], n)
    likelihood, _, _, means, covariances = exact(y - added["obs_intercept"], **limit(one))
    likelihood += len(unknown) * np.log(LARGE) / 2
    np.testing.assert_allclose(found, likelihood, rtol=1e-12)
    np.testing.assert_allclose(states.mean, means[:, :k], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(states.cov, covariances[:, :k, :k], rtol=1e-10, atol=1e-12)
    if gives_up(right):
        assert abs(right.llf - likelihood) > 1
        return
    np.testing.assert_allclose(found, right.llf, rtol=1e-8)
    np.testing.assert_allclose(states.mean, right.smoothed_state.T, rtol=1e-8, atol=1e-8)
    theirs_cov = np.moveaxis(right.smoothed_state_cov, -1, 0)  # rounding leaves it unequal beside the diagonal
    np.testing.assert_allclose(states.cov, theirs_cov, rtol=1e-8, atol=1e-8 * np.abs(covariances).max())
    filtered = kalman.filter(y, **parameters, **added)
    np.testing.assert_allclose(filtered.mean[12:], right.filtered_state.T[12:], rtol=1e-8, atol=1e-8)


def gives_up(theirs: Any) -> bool:
    """Whether statsmodels takes for known what is not: where its square is below 1e-10, and more than rounding."""
    squares = (theirs.predicted_diffuse_state_cov**2).max((0, 1))
    return bool(((squares > 1e-24) & (squares < 1e-10)).any())


def test_smoothed_covariances_of_what_is_hardly_told() -> None:
    """Three states that one value tells of, the last by 4e-3 of its size: variances of 3e5 beside a noise of 1."""
    y, parameters = series(40, 1, missing=0.3, seed=25), diffuse(3, 1, 0, 1, 2, seed=25)
    wanted = exact(y, **limit(parameters))[4]
    np.testing.assert_allclose(kalman.smoother(y, **parameters).cov, wanted, rtol=1e-9, atol=1e-12)


def test_what_is_unknown_may_be_said(backend: Subject) -> None:
    """By numbers or a mask, as by P0; then rows and columns of P0 are not read."""
    parameters, y = trend(), series(2, 6, 1)
    right = run(backend, "log_likelihood", y, parameters)
    parameters["P0"] = np.zeros((2, 2))
    for told in ((0, 1), [-1, 0], np.array([True, True])):
        np.testing.assert_allclose(run(backend, "log_likelihood", y, parameters, diffuse=told), right, rtol=1e-12)
    one = diffuse(2, 1, 1)
    right = run(backend, "log_likelihood", y, one)
    one["P0"] = np.array([[one["P0"][0, 0], np.nan], [np.nan, np.nan]])
    np.testing.assert_allclose(run(backend, "log_likelihood", y, one, diffuse=[1]), right, rtol=1e-12)


def test_series_with_other_unknowns_and_gaps(backend: Subject) -> None:
    """Each as alone: one whose start is known, one that is not observed at first, and one never."""
    if not backend.on_host:
        pytest.skip("diffuse names the same states in all series, and P0 cannot be read")
    y, parameters = series(4, 8, 1), trend(P0=np.stack([np.eye(2), *[np.diag([np.inf, np.inf])] * 3]))
    y[2, :3] = np.nan
    y[3] = np.nan
    found = run(backend, "log_likelihood", y, parameters)
    for i in range(4):
        right, *_ = exact(y[i], **limit(of_series(parameters, i)))
        told = [0, 2, 2, 0][i]
        np.testing.assert_allclose(found[i], right + told * np.log(LARGE) / 2, rtol=1e-11, atol=1e-11)
    if backend.can(verb=FILTER):
        states = run(backend, "filter", y, parameters)
        for i in range(4):
            alone = run(backend, "filter", y[i], of_series(parameters, i))
            np.testing.assert_allclose(states.cov[i], alone.cov, rtol=1e-12)


def test_a_start_that_is_given_for_an_unknown_state() -> None:
    """It would be forgotten without a word: in a dictionary that still has ``diffuse``."""
    y, level = series(5, 1), kalman.models.local_level(1.0, noise=1.0)
    for verb in ("filter", "smoother", "log_likelihood", "lag_one_smoother"):
        with pytest.raises(ValueError, match=r"P0\[0, 0\] is 4, and diffuse=.* names state 0 .* leave diffuse out"):
            getattr(kalman, verb)(y, **{**level, "P0": np.array([[4.0]])})
    known = {name: level[name] for name in ("F", "H", "Q", "R", "m0")} | {"P0": np.array([[4.0]])}
    right = kalman.log_likelihood(y, **known)
    assert kalman.log_likelihood(y, **known, diffuse=()) == right
    assert kalman.log_likelihood(y, **level | {"P0": np.array([[4.0]])}) == right
    with pytest.raises(ValueError, match=r"P0\[1, 1\] is inf, and diffuse=.* does not name state 1; .*, or leave"):
        kalman.filter(y, **trend(), diffuse=[0])


@pytest.mark.parametrize(("told", "named"), [(True, (0, 1)), (np.True_, [True, True]), (False, ())])
def test_one_boolean_for_all_states(told: Any, named: Any) -> None:
    y, model = series(5, 1), {**trend(), "P0": np.zeros((2, 2))}
    right = kalman.log_likelihood(y, **model, diffuse=named)
    assert kalman.log_likelihood(y, **model, diffuse=told) == right
    assert tridiag.explain("kalman.log_likelihood", y, **model, diffuse=told).backend == "numba_scan"


@pytest.mark.parametrize("told", [[2], [-3], [0.5], [[0]], [True], [True, 1], [True, [False]], "level"])
def test_no_such_states(told: Any) -> None:
    with pytest.raises(ValueError, match=r"diffuse is .*wanted the numbers of states .*from 0 to 1, or 2 booleans"):
        kalman.filter(series(5, 1), **trend(), diffuse=told)


def test_such_models_are_compiled() -> None:
    for verb in ("filter", "smoother", "log_likelihood"):
        assert tridiag.explain(f"kalman.{verb}", series(5, 1), **trend()).backend == "numba_scan"


def test_the_finite_part_is_checked() -> None:
    with pytest.raises(ValueError, match=r"P0\[1, 1\] is -1; a variance is not negative"):
        kalman.log_likelihood(series(5, 1), **trend(P0=np.diag([np.inf, -1.0])))


# ---------------------------------------------------------------------------------------------------------- intercepts


def with_constant(parameters: dict[str, Any], c: np.ndarray, n: int) -> dict[str, Any]:
    """The model with a state more, which is always 1."""
    k = len(parameters["m0"])
    F = np.zeros((n, k + 1, k + 1))
    F[:, :k, :k], F[:, :k, k], F[:, k, k] = parameters["F"], c, 1
    made = parameters | {"F": F, "H": np.pad(parameters["H"], [(0, 0)] * (parameters["H"].ndim - 1) + [(0, 1)])}
    for name in ("Q", "P0"):
        made[name] = np.pad(parameters[name], [(0, 0)] * (parameters[name].ndim - 2) + [(0, 1), (0, 1)])
    return made | {"m0": np.append(parameters["m0"], 1)}


INTERCEPTS = {  # a model, and the intercept of its states and of its observations
    "constant": (model(2, 1), model(2, 1, seed=5)["m0"], np.array([3.0])),
    "of each step": (model(2, 2), series(6, 2), series(6, 2, seed=4)),
    "changing": (model(2, 1, time=(6,)), series(6, 2), np.array([1.0])),
    "grows": (model(2, 1) | {"F": np.diag([30.0, 0.5])}, np.array([1e3, 1.0]), np.zeros(1)),
    "one state": (model(1, 1), np.array([0.5]), np.zeros(1)),
}


@pytest.mark.parametrize("case", INTERCEPTS)
def test_intercepts(backend: Subject, case: str) -> None:
    """As of a state that is always 1; that of the last step is not read."""
    if not backend.on_host and case == "grows":
        pytest.skip("NaN, as in a trace: whether too many digits are lost is a value, which is not read on a GPU")
    parameters, c, d = INTERCEPTS[case]
    y = series(6, d.shape[-1], missing=0.2)
    given = parameters | {"state_intercept": c.copy(), "obs_intercept": d}
    if c.ndim == 2:
        given["state_intercept"][-1] = np.nan
    oracle = with_constant(parameters, c, 6)
    likelihood, *states = exact(y - d, **oracle)
    np.testing.assert_allclose(run(backend, "log_likelihood", y, given), likelihood, rtol=1e-9)
    for verb, means, covs in (("filter", *states[:2]), ("smoother", *states[2:])):
        if backend.can(verb=f"kalman.{verb}") and (backend.library != "jax" or case == "constant"):
            found, k = run(backend, verb, y, given), len(parameters["m0"])
            np.testing.assert_allclose(found.mean, means[:, :k], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(found.cov, covs[:, :k, :k], rtol=1e-8, atol=1e-8)


def test_an_unstable_model_keeps_digits() -> None:
    """What an intercept alone would make of it grows to 1e30; what is observed does not."""
    y, c = series(60, 1), -0.5 * np.ones((60, 1))
    given = {"F": [[3.0]], "H": [[1.0]], "Q": [[1e-2]], "R": [[1e-2]], "m0": [0.25], "P0": [[1e-2]]}
    given = {name: np.array(x) for name, x in given.items()}
    right, *_ = exact(y, **with_constant(given, c, 60))
    np.testing.assert_allclose(kalman.log_likelihood(y, **given, state_intercept=c), right, rtol=1e-12)


def test_an_unstable_model_inside_jit_is_nan_and_not_wrong() -> None:
    """Where values cannot be read: only the series that would lose its digits, and no gradient of another."""
    jax = pytest.importorskip("jax")
    given = {"F": [[3.0]], "H": [[1.0]], "Q": [[1e-2]], "R": [[1e-2]], "m0": [0.25], "P0": [[1e-2]]}
    given = {name: np.array(x) for name, x in given.items()}
    y = series(2, 60, 1)
    c = -0.5 * np.stack([np.ones((60, 1)), np.zeros((60, 1))])
    found = jax.jit(lambda y: kalman.log_likelihood(y, **given, state_intercept=c))(y)
    assert np.isnan(found).tolist() == [True, False]
    np.testing.assert_allclose(found[1], kalman.log_likelihood(y[1], **given), rtol=1e-12)


def test_batches_of_intercepts(backend: Subject) -> None:
    parameters, c = model(2, 1), series(3, 1, 2)
    y, d = series(3, 6, 1, missing=0.2), series(3, 6, 1, seed=2)
    found = run(backend, "log_likelihood", y, parameters | {"state_intercept": c, "obs_intercept": d})
    for i in range(3):
        right = moments(y[i] - d[i], with_constant(parameters, c[i], 6), lambda t: 6)[2]
        np.testing.assert_allclose(found[i], right, rtol=1e-9)


def test_an_intercept_that_is_no_number_is_nan_alone(backend: Subject) -> None:
    """And is not read where nothing was observed."""
    y, parameters = series(3, 6, 1), model(2, 1)
    d = np.zeros((3, 6, 1))
    d[1, 2], d[2, 3], y[2, 3] = np.nan, np.nan, np.nan
    found = run(backend, "log_likelihood", y, parameters | {"obs_intercept": d})
    assert np.isnan(found).tolist() == [False, True, False]


def test_models_with_many_states_and_an_intercept() -> None:
    """More than a compiled recurrence of matrices has."""
    y, parameters, c = series(4, 1), model(17, 1), np.arange(17.0)
    found = kalman.log_likelihood(y, **parameters, state_intercept=c)
    np.testing.assert_allclose(found, moments(y, with_constant(parameters, c, 4), lambda t: 4)[2], rtol=1e-9)


@pytest.mark.parametrize(
    "name, x, told",
    [
        ("state_intercept", np.zeros(3), r"state_intercept has shape \(3,\); with 2 states it ends in \(2,\)"),
        (
            "obs_intercept",
            np.zeros((5, 1)),
            r"obs_intercept has shape \(5, 1\): the axis before its last is time",
        ),
    ],
)
def test_bad_intercepts(name: str, x: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        kalman.filter(series(6, 1), **model(2, 1), **{name: x})


# ------------------------------------------------------------------------------------------------------------ gradients


def slopes(y: np.ndarray, parameters: dict[str, Any], rng: np.random.Generator) -> dict[str, tuple[np.ndarray, float]]:
    """For each parameter a direction, and the change of the log-likelihood along it: variances may be 0, and grow."""
    found, h = {}, 1e-5
    for name, x in parameters.items():
        step = rng.normal(size=x.shape)
        if name in ("Q", "R", "P0"):
            known = np.isfinite(np.diagonal(x))
            step = step @ step.T * known * known[:, None]
        value, near, far = (
            kalman.log_likelihood(y, backend="numpy_scan", **parameters | {name: x + t * step}).sum()
            for t in (0.0, h, 2 * h)
        )
        found[name] = step, (4 * near - 3 * value - far) / (2 * h)
    return found


def numbers(structure: Any) -> dict[str, np.ndarray]:
    """The matrices of a model of `kalman.models`."""
    return {name: np.asarray(x, float) for name, x in dict(structure).items() if name != "diffuse"}


GRADIENTS = {
    "known": model(2, 2),
    "unknown": diffuse(2, 2, 0),
    "unknown, exact": diffuse(2, 1, 0, 1, R=np.zeros((1, 1))),
    "unknown, without noise": numbers(kalman.models.local_linear_trend(0.5, 0.0, noise=1.0)),
    "unknown, zeros among transitions": numbers(
        kalman.models.local_level(0.5, noise=1.0) + kalman.models.autoregression([0.5, 0.2], 1.0)
    ),
    "unknown, one noise for all": diffuse(2, 2, 0, Q=np.outer([1, 0.6], [1, 0.6]), R=np.outer([0.7, 0.3], [0.7, 0.3])),
    "ill-conditioned": model(2, 2) | {"P0": 1e9 * np.eye(2), "Q": np.zeros((2, 2))},
}


@pytest.mark.parametrize("case", GRADIENTS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.only(verb=LIKELIHOOD, library="torch")
def test_gradients_in_torch(backend: Subject, case: str, missing: float) -> None:
    """In every parameter, of covariances that move symmetrically; those of variances that are 0 too."""
    import torch

    p = len(GRADIENTS[case]["R"])
    given = GRADIENTS[case] | {"obs_intercept": np.ones(p)}
    given["state_intercept"] = np.array([0.1, -0.3, 0.2])[: len(given["F"])]
    y = series(3, 7, p, missing=missing)
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in given.items()}
    observed = torch.tensor(y, requires_grad=True)
    told = named_unknown(leaves["P0"], given)
    kalman.log_likelihood(observed, backend=backend.name, **leaves, **told).sum().backward()
    assert observed.grad is not None and not observed.grad[torch.isnan(observed)].any()
    for name, (step, slope) in slopes(y, given, np.random.default_rng(2)).items():
        found = float((to_numpy(leaves[name].grad) * step).sum())
        np.testing.assert_allclose(found, slope, rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.only(verb=FILTER, library="torch")
def test_gradients_of_states_in_torch(backend: Subject) -> None:
    import torch

    given, y = diffuse(2, 1, 0), series(7, 1)
    noise = torch.tensor(given["R"], requires_grad=True)
    fixed = {name: torch.tensor(x) for name, x in given.items() if name != "R"}
    told = named_unknown(fixed["P0"], given)
    kalman.smoother(torch.tensor(y), R=noise, **fixed, **told).mean.sum().backward()
    low, high = (kalman.smoother(y, **given | {"R": given["R"] + h}).mean.sum() for h in (-1e-5, 1e-5))
    np.testing.assert_allclose(noise.grad.item(), (high - low) / 2e-5, rtol=1e-6)


@pytest.mark.only(verb=LIKELIHOOD, library="jax")
@pytest.mark.parametrize(
    "case", ["unknown, seen at once", "unknown, zeros among transitions", "unknown, one noise for all"]
)
def test_gradients_in_jax(backend: Subject, case: str) -> None:
    """Inside jit, where P0 is an argument as well, of series of which one is observed late."""
    import jax

    given = GRADIENTS.get(case, diffuse(2, 1, 0))
    p = len(given["R"])
    given = given | {"obs_intercept": np.ones(p)}
    given["state_intercept"] = np.array([0.1, -0.3, 0.2])[: len(given["F"])]
    y = series(2, 8, p)
    y[1, :5] = np.nan

    def total(parameters: dict[str, Any]) -> Any:
        return kalman.log_likelihood(jax.numpy.asarray(y), diffuse=[0], backend=backend.name, **parameters).sum()

    value, gradient = jax.jit(jax.value_and_grad(total))(to_jax(given))
    np.testing.assert_allclose(value, kalman.log_likelihood(y, **given).sum(), rtol=1e-12)
    for name, (step, slope) in slopes(y, given, np.random.default_rng(2)).items():
        np.testing.assert_allclose((gradient[name] * step).sum(), slope, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.only(verb=FILTER, library="jax")
def test_gradients_of_states_in_jax_by_what_a_covariance_lacks(backend: Subject) -> None:
    """One noise moves two states; filters and smoothers by square roots know what a second one would change."""
    import jax

    given, y = model(2, 1, P0=np.diag([1e9, 1.0]), R=np.array([[1e-5]])), series(9, 1)
    del given["Q"]
    Q, step = np.outer([1, 0.5], [1, 0.5]), np.outer([0.3, -1.0], [0.3, -1.0])
    for verb in (kalman.filter, kalman.smoother):
        value, near, far = (verb(y, **given, Q=Q + h * step).mean.sum() for h in (0.0, 1e-6, 2e-6))
        gradient = jax.grad(lambda Q, verb=verb: verb(y, backend=backend.name, **given, Q=Q).mean.sum())(
            jax.numpy.asarray(Q)
        )
        np.testing.assert_allclose((gradient * step).sum(), (4 * near - 3 * value - far) / 2e-6, rtol=1e-4)


# --------------------------------------------------------------------------------------------------------- covariances


def test_a_filter_goes_on_from_its_own_covariance(backend: Subject) -> None:
    """After exact observations and tiny noise: no variance is negative, and none is refused."""
    if not backend.can(verb=FILTER) or backend.library == "jax":
        pytest.skip("as the other libraries")
    rng = np.random.default_rng(0)
    cases = [{"F": np.eye(2), "H": np.array([[1, 0.5], [0.3, 1]]), "Q": np.zeros((2, 2)), "R": np.zeros((2, 2)),
              "m0": np.zeros(2), "P0": 100 * np.eye(2)}]  # fmt: skip
    for seed in range(20):
        noise = 10.0 ** -rng.integers(6, 16) * np.eye(2)
        cases.append(model(2, 2, seed=seed, R=noise, Q=covariance(rng, 2, rank=1)))
    for parameters in cases:
        y = series(20 if np.any(parameters["R"]) else 1, 2)
        for verb in ("filter", "smoother"):
            found = run(backend, verb, y, parameters)
            assert (np.diagonal(found.cov, axis1=-2, axis2=-1) >= 0).all()
            least = np.linalg.eigvalsh(found.cov).min(-1)
            assert (least >= -64 * EPS["float64"] * abs(found.cov).max((-2, -1))).all()
        again = parameters | {"m0": found.mean[-1], "P0": found.cov[-1], "R": np.eye(2)}
        assert np.isfinite(run(backend, "log_likelihood", y, again))
