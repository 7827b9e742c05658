"""What one does with a model beside filtering whole series: steps one by one, forecasts, streams, samples."""

from typing import Any

import numpy as np
import pytest
from helpers import Subject, to_library

import tridiag
from tridiag import kalman
from tridiag.problems.state_space import FILTER, SMOOTHER

from test_kalman import conditioned, joint, model, moments, named_unknown, run, series  # isort: skip
from test_kalman_diffuse import CASES, trend  # isort: skip

pytestmark = pytest.mark.only(verb=FILTER, parallel=False)


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
    burn = min(2, n)
    later = run(backend, "log_likelihood", y, parameters, burn=burn)
    np.testing.assert_allclose(later, found[..., burn:].sum(-1), rtol=1e-10, atol=1e-12)
    both = run(backend, "log_likelihood", y, parameters, burn=burn, each_step=True)
    np.testing.assert_array_equal(both[..., :burn], 0)
    np.testing.assert_allclose(both[..., burn:], found[..., burn:], rtol=1e-12)


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


@pytest.mark.parametrize("burn", [-1, 1.5, True])
def test_what_cannot_be_burnt(burn: Any) -> None:
    with pytest.raises(ValueError, match=r"burn is .*wanted how many of the first steps are left out"):
        kalman.log_likelihood(series(5, 1), **model(2, 1), burn=burn)


def test_no_more_steps_are_burnt_than_there_are() -> None:
    y, parameters = series(5, 1), model(2, 1)
    assert kalman.log_likelihood(y, **parameters, burn=5) == 0
    with pytest.raises(ValueError, match=r"burn is 6, and y has 5 steps; wanted"):
        kalman.log_likelihood(y, **parameters, burn=6)


@pytest.mark.parametrize(("shape", "meant"), [((1, 9), r"y\.swapaxes\(-1, -2\)"), ((4, 9), r"y\[\.\.\., None\]")])
def test_observations_whose_last_axis_is_time(shape: tuple[int, ...], meant: str) -> None:
    with pytest.raises(ValueError, match=f"9 values observed in each of .* steps; H has shape .* pass {meant}"):
        kalman.filter(np.ones(shape), **model(2, 1))


@pytest.mark.parametrize("more", [{"each_step": True}, {"burn": 2}])
def test_explain_tells_what_finds_each_step(more: dict[str, Any]) -> None:
    """The filter, which has no compiled loops for JAX arrays."""
    jnp = pytest.importorskip("jax.numpy")
    given = {"y": jnp.asarray(series(6, 1)), **model(2, 1)}
    assert tridiag.explain("kalman.log_likelihood", **given).backend == "numba_scan"
    assert tridiag.explain(kalman.log_likelihood, **given, **more).backend == "jax_scan"


def test_explain_tells_what_other_verbs_run() -> None:
    """The verb that does the work, of which problem; and what the call refuses."""
    y, given, generator = series(3, 6, 1), model(2, 1), np.random.default_rng(0)
    for verb, arguments, runs, shape, states in (
        (kalman.forecast, (y, 4), FILTER, (3, 10, 1), 2),
        (kalman.lag_one_smoother, (y,), SMOOTHER, (3, 6, 1), 4),
        (kalman.disturbance_smoother, (y,), SMOOTHER, (3, 6, 1), 5),
        (kalman.simulate, (generator, 9), "matrix_recurrence", (9, 2), 0),
        (kalman.simulation_smoother, (y, generator), SMOOTHER, (1, 3, 6, 1), 2),
    ):
        told = tridiag.explain(verb, *arguments, **given)
        assert (told.problem.verb, told.problem.shape, told.problem.states) == (runs, shape, states)
        assert told.runs.startswith(f"kalman.{verb.__name__} runs {runs}") and told.runs in repr(told)
    with pytest.raises(ValueError, match="steps is -1; wanted how many steps are forecast"):
        tridiag.explain(kalman.forecast, y, -1, **given)
    with pytest.raises(ValueError, match="P0 has an infinite variance"):
        tridiag.explain(kalman.simulate, generator, 9, **given | {"P0": np.diag([np.inf, 1.0])})


def test_explain_of_what_has_one_implementation() -> None:
    given, mean, cov = model(2, 1), np.zeros(2), np.eye(2)
    step = {"F": given["F"], "Q": given["Q"]}
    assert tridiag.explain(kalman.predict, mean, cov, **step).backend in ("numba_scan", "numpy")
    told = tridiag.explain("kalman.update", mean, cov, np.zeros((7, 1)), H=given["H"], R=given["R"])
    assert told.problem.shape == (7, 2) and "the only implementation" in told.why
    with pytest.raises(ValueError, match=r"cov\[0, 0\] is inf"):
        tridiag.explain(kalman.predict, mean, np.diag([np.inf, 1.0]), **step)
    torch = pytest.importorskip("torch")
    cov = torch.eye(2, dtype=torch.float64, requires_grad=True)
    step = {name: torch.from_numpy(x) for name, x in step.items()}
    assert tridiag.explain(kalman.predict, torch.zeros(2).double(), cov, **step).backend == "torch"


# ------------------------------------------------------------------------------------------------------------ forecasts


@pytest.mark.parametrize("case", ["one model", "changing"])
def test_forecasts(backend: Subject, case: str) -> None:
    """As a filter of a series that ends in gaps, by conditioning; their noise is that of the observations."""
    time, steps = (8,) if case == "changing" else (), 3
    parameters = model(2, 2, time=time) | {"obs_intercept": np.array([1.0, -2])}
    y = series(2, 5, 2, missing=0.2)
    given = {name: backend.array(x) for name, x in parameters.items()}
    found = kalman.forecast(backend.array(y), steps, backend=backend.name, **given)
    found = kalman.Forecast(*map(backend.numpy, found))
    assert found.mean.shape == (2, 3, 2)
    plain = {name: x for name, x in parameters.items() if name != "obs_intercept"}
    for i in range(2):
        longer = np.concatenate((y[i] - [1, -2], np.full((3, 2), np.nan)))
        means, covs, _ = moments(longer, plain, lambda t: t)
        for h in range(3):
            H, R = (parameters[name][5 + h] if time else parameters[name] for name in "HR")
            np.testing.assert_allclose(found.state_mean[i, h], means[5 + h], rtol=1e-9)
            np.testing.assert_allclose(found.state_cov[i, h], covs[5 + h], rtol=1e-9)
            np.testing.assert_allclose(found.mean[i, h], H @ means[5 + h] + [1, -2], rtol=1e-9)
            np.testing.assert_allclose(found.cov[i, h], H @ covs[5 + h] @ H.T + R, rtol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_forecasts_are_those_of_statsmodels() -> None:
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    y = np.cumsum(series(30, 1), 0)
    theirs = structural.UnobservedComponents(y[:, 0], "local linear trend", use_exact_diffuse=True)
    right = theirs.filter([1.0, 0.3, 0.1]).get_forecast(12)
    found = kalman.forecast(y, 12, **trend(m0=np.zeros(2)))
    np.testing.assert_allclose(found.mean[:, 0], right.predicted_mean, rtol=1e-8)
    np.testing.assert_allclose(found.cov[:, 0, 0], right.var_pred_mean, rtol=1e-8)


def test_bad_forecasts() -> None:
    with pytest.raises(ValueError, match=r"steps is -1; wanted how many"):
        kalman.forecast(series(5, 1), -1, **model(2, 1))
    with pytest.raises(
        ValueError, match=r"F has shape \(5, 2, 2\), with the 5 steps of y; a forecast of 3 needs .*, 8 steps"
    ):
        kalman.forecast(series(5, 1), np.int64(3), **model(2, 1, time=(5,)))
    with pytest.raises(TypeError, match=r"forecast also needs Q, R"):
        kalman.forecast(series(5, 1), 3, F=np.eye(2), H=np.eye(1, 2))
    assert kalman.forecast(series(5, 1), 0, **model(2, 1)).mean.shape == (0, 1)


# -------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.only(verb=FILTER, compiled=False, parallel=False)
def test_a_stream_is_the_filter(backend: Subject) -> None:
    """Step by step, of series with models of their own and missing values, and intercepts."""
    parameters, y = model(2, 2, 3), series(3, 6, 2, missing=0.3)
    c, d = np.array([0.5, -1]), np.array([2.0, 0])
    wanted = kalman.filter(y, **parameters, state_intercept=c, obs_intercept=d, backend="numpy_scan")
    F, H, Q, R = (backend.array(parameters[name][:, 0]) for name in "FHQR")
    mean, cov, total = backend.array(parameters["m0"]), backend.array(parameters["P0"]), 0.0
    for t in range(6):
        mean, cov, more = kalman.update(mean, cov, backend.array(y[:, t]), H=H, R=R, obs_intercept=backend.array(d))
        total = total + backend.numpy(more)
        np.testing.assert_allclose(backend.numpy(mean), wanted.mean[:, t], rtol=1e-9)
        np.testing.assert_allclose(backend.numpy(cov), wanted.cov[:, t], rtol=1e-9, atol=1e-12)
        mean, cov = kalman.predict(mean, cov, F=F, Q=Q, state_intercept=backend.array(c))
    np.testing.assert_allclose(total, wanted.log_likelihood, rtol=1e-10)


def test_one_model_for_many_streams() -> None:
    parameters, y = model(2, 1), series(4, 3, 1)
    found = kalman.update(parameters["m0"], parameters["P0"], y, H=parameters["H"], R=parameters["R"])
    assert found.mean.shape == (4, 3, 2) and found.cov.shape == (4, 3, 2, 2) and found.log_likelihood.shape == (4, 3)
    for i in np.ndindex(4, 3):
        alone = kalman.filter(y[i][None], **parameters)
        np.testing.assert_allclose(found.mean[i], alone.mean[0], rtol=1e-12)


def test_numbers_in_place_of_matrices_are_told_how_to_become_some() -> None:
    with pytest.raises(
        ValueError, match=r"Q has shape \(\); with 2 states it ends in \(2, 2\): np.eye\(2\) times it\?"
    ):
        kalman.predict(np.zeros(2), np.eye(2), F=np.eye(2), Q=0.1)


def test_bad_steps() -> None:
    with pytest.raises(ValueError, match=r"F has shape \(3, 3\); with 2 states it ends in \(2, 2\)"):
        kalman.predict(np.zeros(2), np.eye(2), F=np.eye(3), Q=np.eye(2))
    with pytest.raises(ValueError, match=r"H has shape \(1, 2\); with 2 values observed in a step and 2 states"):
        kalman.update(np.zeros(2), np.eye(2), np.zeros(2), H=np.ones((1, 2)), R=np.eye(2))
    for nothing in (np.zeros(()), np.zeros((3, 0))):
        with pytest.raises(ValueError, match=r"mean has shape \(.*\); wanted \(\.\.\., k\), at least one value"):
            kalman.predict(nothing, np.eye(2), F=np.eye(2), Q=np.eye(2))
    with pytest.raises(ValueError, match=r"the batch axes do not broadcast"):
        kalman.predict(np.zeros((3, 2)), np.eye(2), F=np.ones((4, 2, 2)), Q=np.eye(2))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_a_single_step_of_unknown_states(library: str) -> None:
    """Infinite covariances do not tell directions: NaN would be all that comes out."""
    pytest.importorskip(library)
    mean, cov, one = (to_library(library, x) for x in (np.zeros(2), np.diag([1.0, np.inf]), np.eye(2)))
    with pytest.raises(ValueError, match=r"cov\[1, 1\] is inf: .* take the first steps with kalman.filter"):
        kalman.predict(mean, cov, F=one, Q=one)
    with pytest.raises(ValueError, match=r"cov\[1, 1\] is inf: .* take the first steps with kalman.filter"):
        kalman.update(mean, cov, mean, H=one, R=one)


# -------------------------------------------------------------------------------------------------------------- samples


def generator(library: str) -> Any:
    """Of random numbers, where arrays are made."""
    if library == "numpy":
        return np.random.default_rng(0)
    if library == "cupy":
        import cupy

        return cupy.random.default_rng(0)
    if library == "torch":
        import torch

        return torch.Generator(torch.get_default_device()).manual_seed(0)
    import jax

    return jax.random.key(0)


def check_samples(found: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> None:
    """Means and covariances of samples, (count, size), within five standard errors: exact where there is no noise."""
    count = len(found)
    variances = np.diagonal(cov)
    apart = abs(found.mean(0) - mean)
    assert (apart <= 5 * np.sqrt(np.maximum(variances, 0) / count) + 1e-7).all()
    error = np.sqrt((np.outer(variances, variances) + cov**2) / count)
    assert (abs(np.cov(found.T) - cov) <= 5 * error + 1e-7).all()


LIBRARIES = pytest.mark.only(verb=FILTER, compiled=False, parallel=False, library=("numpy", "torch", "jax", "cupy"))
COUNT = 4000


@LIBRARIES
def test_samples_have_the_moments_of_the_model(backend: Subject) -> None:
    """Singular Q and R, a model that changes with time, intercepts; states and observations together."""
    parameters = model(2, 2, time=(3,), Q=np.diag([0.7, 0.0]), R=np.diag([0.0, 0.5]))
    c, d = np.array([1.0, -1]), np.array([5.0, 0])
    given = {name: backend.array(x) for name, x in parameters.items()}
    more = {"state_intercept": backend.array(c), "obs_intercept": backend.array(d)}
    found = kalman.simulate(generator(backend.library), 3, size=(COUNT,), **given, **more)
    states, y = (np.asarray(backend.numpy(x)).reshape(COUNT, -1) for x in found)
    mean, cov, design, noise = joint(3, **parameters)
    for t in range(2):
        mean.reshape(3, 2)[t + 1] = parameters["F"][t] @ mean.reshape(3, 2)[t] + c
    both = np.block([[cov, cov @ design.T], [design @ cov, design @ cov @ design.T + noise]])
    check_samples(np.hstack((states, y)), np.concatenate((mean, design @ mean + np.tile(d, 3))), both)


@LIBRARIES
@pytest.mark.parametrize("case", ["known", "unknown"])
def test_samples_of_states_have_the_moments_of_the_smoother(backend: Subject, case: str) -> None:
    """Those of the states of all steps together."""
    if backend.library == "jax" and case == "unknown":
        pytest.skip("compiles for long; the steps are those of the other libraries")
    parameters = model(2, 1) if case == "known" else trend()
    y = series(4, 1)
    y[2] = np.nan
    intercept = np.array([0.3, -0.2])
    given = {name: backend.array(x) for name, x in (parameters | {"state_intercept": intercept}).items()}
    given |= named_unknown(given["P0"], parameters)
    found = kalman.simulation_smoother(backend.array(y), generator(backend.library), size=(COUNT,), **given)
    found = backend.numpy(found)
    assert found.shape == (COUNT, 4, 2)
    finite = parameters | {"P0": np.where(np.isposinf(parameters["P0"]), 1e8, parameters["P0"])}
    mean, cov, design, noise = joint(4, **finite)
    for t in range(3):
        mean.reshape(4, 2)[t + 1] = parameters["F"] @ mean.reshape(4, 2)[t] + intercept
    mean, cov, _ = conditioned(y, 4, (mean, cov, design, noise))
    check_samples(found.reshape(COUNT, -1), mean, cov)


def test_samples_of_several_models() -> None:
    found = kalman.simulate(np.random.default_rng(0), 5, size=(2, 3), **model(2, 1, 4))
    assert found.states.shape == (2, 3, 4, 5, 2) and found.y.shape == (2, 3, 4, 5, 1)
    states = kalman.simulation_smoother(found.y, np.random.default_rng(0), **model(2, 1, 4))
    assert states.shape == found.states.shape
    assert kalman.simulate(np.random.default_rng(0), 5, size=3, **model(2, 1)).y.shape == (3, 5, 1)


@LIBRARIES
def test_samples_of_more_states_than_recurrences_compile(backend: Subject) -> None:
    """What is drawn follows the model step by step, but for the one state that has noise; exact observations hold."""
    if backend.library == "jax":
        pytest.skip("compiles for long; recurrences of as many rows have a test of their own")
    if backend.library == "cupy":
        pytest.skip("has kernels for up to 8 states")
    parameters = model(17, 1, Q=np.diag([1.0, *[0] * 16]), R=np.zeros((1, 1)))
    given = {name: backend.array(x) for name, x in parameters.items()}
    states, y = map(backend.numpy, kalman.simulate(generator(backend.library), 3, **given))
    np.testing.assert_allclose(states[1:, 1:], (states[:-1] @ parameters["F"].T)[:, 1:], rtol=1e-9, atol=1e-9)
    drawn = kalman.simulation_smoother(backend.array(y), generator(backend.library), size=(2,), **given)
    seen = backend.numpy(drawn) @ parameters["H"].T
    np.testing.assert_allclose(seen, np.broadcast_to(y, seen.shape), rtol=1e-9, atol=1e-9)


def test_what_cannot_be_drawn() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"P0 has an infinite variance, from which nothing can be drawn"):
        kalman.simulate(random, 5, **trend())
    with pytest.raises(ValueError, match=r"of states \[0\], which are unknown at first; give one that is finite"):
        kalman.simulate(random, 5, **kalman.models.local_level(1.0))
    with pytest.raises(TypeError, match=r"simulation_smoother takes y first, and then the generator"):
        kalman.simulation_smoother(random, series(5, 1), **model(2, 1))
    with pytest.raises(TypeError, match=r"generator is 0; NumPy arrays want a numpy.random.Generator"):
        kalman.simulate(0, 5, **model(2, 1))
    with pytest.raises(ValueError, match=r"steps is 0; wanted the length of the series"):
        kalman.simulate(random, 0, **model(2, 1))
    with pytest.raises(ValueError, match=r"size is 1.5; wanted how many are drawn"):
        kalman.simulate(random, 5, size=(2, 1.5), **model(2, 1))
    with pytest.raises(TypeError, match=r"simulate has no argument method"):
        kalman.simulate(random, 5, **model(2, 1), method="auto")
    with pytest.raises(TypeError, match=r"simulate also needs H, Q, R, m0, P0"):
        kalman.simulate(random, 5, F=np.eye(2))


# --------------------------------------------------------------------------------------------- with the step before


@pytest.mark.only(verb=SMOOTHER, parallel=False)
@pytest.mark.parametrize("case", ["known", "changing", "exact"])
def test_covariances_with_the_step_before(backend: Subject, case: str) -> None:
    """By conditioning the joint distribution of all states; singular covariances are nothing special."""
    parameters = model(2, 1, time=(6,) if case == "changing" else ())
    if case == "exact":
        parameters |= {"R": np.zeros((1, 1)), "Q": np.diag([1.0, 0])}
    y = series(6, 1, missing=0.2)
    given = {name: backend.array(x) for name, x in parameters.items()}
    found = kalman.lag_one_smoother(backend.array(y), backend=backend.name, **given)
    found = kalman.LagOneSmoothed(*map(backend.numpy, found))
    mean, cov, likelihood = conditioned(y, 6, joint(6, **parameters))
    np.testing.assert_allclose(found.mean, mean.reshape(6, 2), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.log_likelihood, likelihood, rtol=1e-9)
    cov = cov.reshape(6, 2, 6, 2)
    for t in range(5):
        np.testing.assert_allclose(found.cov[t], cov[t, :, t], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.lag_one_cov[t], cov[t + 1, :, t], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_no_step_has_one_before_it(library: str, n: int) -> None:
    """Of series without steps, as of one: the other results are there."""
    pytest.importorskip(library)
    given = {name: to_library(library, x) for name, x in model(2, 1).items()}
    found = kalman.lag_one_smoother(to_library(library, np.zeros((3, n, 1))), **given)
    assert [tuple(x.shape) for x in found] == [(3, n, 2), (3, n, 2, 2), (3, 0, 2, 2), (3,)]


@pytest.mark.filterwarnings("ignore")
def test_covariances_with_the_step_before_are_those_of_statsmodels() -> None:
    """Of states that are unknown at first, with an intercept; theirs are of a state with the one before it."""
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    y = np.cumsum(series(30, 1), 0)
    theirs = structural.UnobservedComponents(y[:, 0], "local linear trend", use_exact_diffuse=True)
    right = theirs.smooth([1.0, 0.3, 0.1]).smoother_results.smoothed_state_autocov
    found = kalman.lag_one_smoother(y, **trend(m0=np.zeros(2)))
    right = np.moveaxis(right, -1, 0)[:-1]
    np.testing.assert_allclose(found.lag_one_cov[3:], right[3:], rtol=1e-7, atol=1e-9)
