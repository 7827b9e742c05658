"""Starts of which nothing is known, without m0 and P0."""

from typing import Any

import numpy as np
import pytest
from helpers import to_library, to_numpy

import tridiag
from tridiag import kalman

from test_kalman import series  # isort: skip
from test_kalman_diffuse import gaps, trend  # isort: skip
from test_kalman_verbs import generator  # isort: skip

OF_MODELS = {  # verbs that take a model, as functions of series, a library and a model
    **{verb: lambda y, library, model, verb=verb: getattr(kalman, verb)(y, **model)
       for verb in ("filter", "smoother", "log_likelihood", "lag_one_smoother", "disturbance_smoother")},
    "likelihoods": lambda y, library, model: kalman.log_likelihood(y, **model, each_step=True),
    "forecast": lambda y, library, model: kalman.forecast(y, 2, **model),
    "simulation_smoother": lambda y, library, model: kalman.simulation_smoother(y, generator(library), size=3, **model),
}  # fmt: skip


@pytest.mark.parametrize("verb", OF_MODELS)
@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "cupy"])
def test_where_all_is_unknown_no_start_is_needed(verb: str, library: str) -> None:
    """Results are those of m0 = 0, with variances that are infinite, and of P0 = 0 beside what names all states."""
    pytest.importorskip(library)
    whole = trend(m0=np.zeros(2))
    model = {name: to_library(library, whole.pop(name)) for name in "FHQR"}
    start = {name: to_library(library, x) for name, x in whole.items()}
    y, run = to_library(library, gaps(7, 1, 2)), OF_MODELS[verb]
    right = run(y, library, model | start | {"diffuse": True})
    for given in ({"diffuse": True}, {"diffuse": [0, 1], "m0": start["m0"]}, {"diffuse": True, "P0": None}):
        check_equal(run(y, library, model | given), right)
    if library != "cupy":  # whose P0 is not read
        check_equal(run(y, library, model | {"P0": start["P0"]}), right)


def check_equal(found: Any, right: Any) -> None:
    for x, z in zip(*(part if isinstance(part, tuple) else (part,) for part in (found, right)), strict=True):
        assert x.dtype == z.dtype
        np.testing.assert_array_equal(to_numpy(x), to_numpy(z))


def test_series_of_which_nothing_is_known_under_jit() -> None:
    """With a model for each under vmap, in single precision, and gradients in all that is given."""
    jax = pytest.importorskip("jax")
    whole, y = trend(m0=np.zeros(2)), series(3, 6, 1)
    model = {name: jax.numpy.asarray(whole[name], "float32") for name in "FHQR"}

    def total(model: dict[str, Any], y: Any, Q: Any) -> Any:
        return kalman.log_likelihood(y, **model | {"Q": Q}, diffuse=True)

    variances = jax.numpy.stack([model["Q"], 2 * model["Q"], 3 * model["Q"]])
    each = jax.jit(jax.vmap(jax.value_and_grad(total), in_axes=(None, 0, 0)))
    value, slopes = each(model, jax.numpy.asarray(y, "float32"), variances)
    assert value.dtype == "float32"
    assert not any(np.isnan(slopes[name]).any() for name in "FHR")
    right = kalman.log_likelihood(y, **whole | {"Q": np.asarray(variances, float)[:, None]})
    np.testing.assert_allclose(value, right, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, r"m0 and P0 can be left out only where all states are unknown at first \(diffuse=True\); wanted"),
        ({"diffuse": ()}, r"m0 and P0 can be left out .*\(diffuse=True\); wanted"),
        ({"diffuse": [1], "m0": np.zeros(2)}, r"P0 can be left out .*, and states \[0\] are not; wanted"),
        ({"P0": np.diag([1, np.inf])}, r"m0 can be left out .*, and states \[0\] are not; wanted"),
        ({"m0": None, "P0": np.eye(2)}, r"m0 can be left out .*; wanted"),
    ],
)
def test_a_start_that_is_needed(given: dict[str, Any], told: str) -> None:
    model, y = {name: trend()[name] for name in "FHQR"} | given, series(5, 1)
    for run in OF_MODELS.values():
        with pytest.raises(TypeError, match=told):
            run(y, "numpy", model)
    with pytest.raises(TypeError, match=told):
        tridiag.explain("kalman.filter", y, **model)
    with pytest.raises(TypeError, match=r"simulate also needs .*(m0|P0)"):
        kalman.simulate(np.random.default_rng(0), 5, **model)


@pytest.mark.parametrize("verb", ["kalman.filter", "kalman.smoother", "kalman.log_likelihood"])
def test_a_choice_without_a_start_is_told(verb: str) -> None:
    model, y = {name: trend()[name] for name in "FHQR"}, series(5, 1)
    assert tridiag.explain(verb, y, **model, diffuse=True).backend == "numba_scan"
    assert tridiag.explain(verb, y, *model.values(), diffuse=True).backend == "numba_scan"
