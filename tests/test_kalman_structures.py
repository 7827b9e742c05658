"""`kalman.models`: the log-likelihoods and forecasts of statsmodels' models of the same names, and gradients."""

import pydoc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import to_library, to_numpy

from tridiag import kalman
from tridiag.kalman import models
from tridiag.problems.state_space import PARAMETERS

from test_kalman import series  # isort: skip

Y = np.cumsum(series(60, 1), 0)
Y[20] = np.nan
X = series(60, 2, seed=4)


def unobserved(parameters: list[float], **options: Any) -> Any:
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    return structural.UnobservedComponents(Y[:, 0], use_exact_diffuse=True, **options).smooth(parameters)


def arma_of_statsmodels(parameters: list[float], **options: Any) -> Any:
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")
    return sarimax.SARIMAX(Y[:, 0], order=(2, 0, 1), **options).smooth(parameters)


STRUCTURES: dict[str, Any] = {
    "level": (models.local_level(0.4, noise=1.3), lambda: unobserved([1.3, 0.4], level="local level")),
    "trend": (models.local_linear_trend(0.4, 0.2, noise=1.3),
              lambda: unobserved([1.3, 0.4, 0.2], level="local linear trend")),
    "trend and months": (models.local_linear_trend(0.4, 0.2, noise=1.3) + models.seasonal(12, 0.7),
                         lambda: unobserved([1.3, 0.4, 0.2, 0.7], level="local linear trend", seasonal=12)),
    "level and AR(2)": (models.local_level(0.4, noise=1.3) + models.autoregression([0.5, 0.2], 0.7),
                        lambda: unobserved([1.3, 0.4, 0.7, 0.5, 0.2], level="local level", autoregressive=2)),
    "level, regression": (models.local_level(0.4, noise=1.3) + models.regression(X),
                          lambda: unobserved([1.3, 0.4], level="local level", exog=X, mle_regression=False)),
    "ARMA(2, 1)": (models.arma([0.5, 0.3], [0.4], 1.5), lambda: arma_of_statsmodels([0.5, 0.3, 0.4, 1.5])),
    "ARMA(2, 1), noise": (models.arma([0.5, 0.3], [0.4], 1.5, noise=0.6),
                          lambda: arma_of_statsmodels([0.5, 0.3, 0.4, 0.6, 1.5], measurement_error=True)),
    "level and cycle": (models.local_level(0.4, noise=1.3) + models.cycle(0.3, 0.7, damping=0.9),
                        lambda: unobserved([1.3, 0.4, 0.7, 0.3, 0.9], level="local level", cycle=True,
                                           stochastic_cycle=True, damped_cycle=True)),
    "fixed cycle": (models.local_level(0.4, noise=1.3) + models.cycle(0.3, 0.0),
                    lambda: unobserved([1.3, 0.4, 0.3], level="local level", cycle=True)),
    "five waves of a year": (models.local_level(0.4, noise=1.3) + models.trigonometric_seasonal(12, 0.7, harmonics=5),
                             lambda: unobserved([1.3, 0.4, 0.7], level="local level",
                                                freq_seasonal=[{"period": 12, "harmonics": 5}])),
    "all waves of a week": (models.local_level(0.4, noise=1.3) + models.trigonometric_seasonal(7, 0.7),
                            lambda: unobserved([1.3, 0.4, 0.7], level="local level", freq_seasonal=[{"period": 7}])),
    "a period of 6.5": (models.local_level(0.4, noise=1.3) + models.trigonometric_seasonal(6.5, 0.7, harmonics=2),
                        lambda: unobserved([1.3, 0.4, 0.7], level="local level",
                                           freq_seasonal=[{"period": 6.5, "harmonics": 2}])),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", STRUCTURES)
def test_structures_are_those_of_statsmodels(case: str) -> None:
    structure, theirs = STRUCTURES[case]
    right = theirs()
    np.testing.assert_allclose(kalman.log_likelihood(Y, **structure), right.llf, rtol=1e-8)
    if "regression" not in case:  # whose values to come are not known
        found, wanted = kalman.forecast(Y, 5, **structure), right.get_forecast(5)
        np.testing.assert_allclose(found.mean[:, 0], wanted.predicted_mean, rtol=1e-7)
        np.testing.assert_allclose(found.cov[:, 0, 0], wanted.var_pred_mean, rtol=1e-7)


def test_the_nile_is_that_of_statsmodels() -> None:
    """The level of a real series, nothing of which is known at first: its likelihood, smoothed states, forecasts."""
    structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
    nile = pytest.importorskip("statsmodels.datasets").nile
    flows = nile.load_pandas().data["volume"].to_numpy(float)
    right = structural.UnobservedComponents(flows, "llevel", use_exact_diffuse=True).smooth([15_099.0, 1_469.1])
    structure, y = models.local_level(1_469.1, noise=15_099.0), flows[:, None]
    smoothed, ahead, wanted = (
        kalman.smoother(y, **structure),
        kalman.forecast(y, 10, **structure),
        right.get_forecast(10),
    )
    np.testing.assert_allclose(smoothed.log_likelihood, right.llf, rtol=1e-12)
    np.testing.assert_allclose(smoothed.mean.T, right.smoothed_state, rtol=1e-8)
    np.testing.assert_allclose(smoothed.cov[:, 0, 0], right.smoothed_state_cov[0, 0], rtol=1e-8)
    np.testing.assert_allclose(ahead.mean[:, 0], wanted.predicted_mean, rtol=1e-8)
    np.testing.assert_allclose(ahead.cov[:, 0, 0], wanted.var_pred_mean, rtol=1e-8)


def loss(y: Any, numbers: Any) -> Any:
    structure = models.local_level(numbers[0], noise=numbers[1]) + models.arma(numbers[2:4], numbers[4:5], numbers[5])
    return kalman.log_likelihood(y, **structure)


def check_gradient(library: str, loss: Callable[[Any, Any], Any], given: np.ndarray, tolerance: float) -> None:
    """That of ``loss(y, numbers)`` in the numbers is what differences are."""
    module = pytest.importorskip(library)
    y, numbers = to_library(library, Y), to_library(library, given)
    if library == "torch":
        numbers.requires_grad_()
        loss(y, numbers).backward()
        gradient = to_numpy(numbers.grad)
    else:
        gradient = module.jit(module.grad(lambda numbers: loss(y, numbers)))(numbers)
    for i, step in enumerate(1e-5 * np.eye(len(given))):
        low, high = loss(Y, given - step), loss(Y, given + step)
        np.testing.assert_allclose(gradient[i], (high - low) / 2e-5, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_gradients_go_through_structures(library: str) -> None:
    check_gradient(library, loss, np.array([0.4, 1.3, 0.5, 0.2, 0.3, 0.7]), 1e-8)


def every(numbers: Any) -> models.Structure:
    """A sum of all parts."""
    structure = models.local_linear_trend(numbers[0], numbers[1], noise=numbers[2]) + models.seasonal(4, numbers[3])
    return structure + models.arma(numbers[4:6], numbers[6:7], numbers[7]) + models.regression(X, numbers[3])


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_structures_are_the_same_in_every_library(library: str) -> None:
    """Inside jit too, where no value can be read."""
    module = pytest.importorskip(library)
    given = np.array([0.4, 0.1, 1.3, 0.5, 0.5, 0.2, 0.3, 0.7])
    wanted = every(given)
    if library == "jax":
        made = module.jit(lambda numbers: [every(numbers)[name] for name in PARAMETERS])(given)
    else:
        with pytest.raises(TypeError, match="different libraries"):
            every(to_library(library, given))  # X is NumPy's
        made = [(models.local_level(x, noise=x) + models.arma(x[None], [], x))[name] for name in PARAMETERS
                for x in [to_library(library, given)[4]]]  # fmt: skip
        wanted = models.local_level(0.5, noise=0.5) + models.arma([0.5], [], 0.5)
    for name, x in zip(PARAMETERS, made, strict=True):
        np.testing.assert_allclose(to_numpy(x), wanted[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_structures_keep_their_dtype(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    number = torch.tensor(0.4, dtype=getattr(torch, dtype))
    assert str(models.arma([0.5], [], number).F.dtype) == f"torch.{dtype}"
    structure = models.local_level(number, noise=1.3)
    assert str(structure.P0.dtype) == f"torch.{dtype}"
    assert repr(structure) == "Structure of 1 states, 1 unknown at first"


def test_numbers_in_lists_stay_what_they_are_beside_integers() -> None:
    """A tensor of integers makes no integers of them."""
    torch = pytest.importorskip("torch")
    wanted = models.arma([0.5], [0.25], 2)
    for one in (torch.tensor(2), torch.tensor(2, dtype=torch.uint8)):
        made = models.arma([0.5], [0.25], one)
        for name in PARAMETERS:
            np.testing.assert_allclose(to_numpy(made[name]), wanted[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("period", [2, 3, 4, 12])
def test_waves_make_every_season(period: int) -> None:
    """Without noise, all harmonics are the patterns that sum to 0: what follows from one period is exact."""
    pattern = np.random.default_rng(period).normal(size=period)
    y = np.tile(pattern - pattern.mean(), 3)[:, None]
    structure = models.trigonometric_seasonal(period, 0.0)
    assert structure.F.shape == (period - 1, period - 1)
    found = kalman.forecast(y[:period], 2 * period, **structure | {"R": np.full((1, 1), 1e-12)})
    np.testing.assert_allclose(found.mean, y[period:], atol=1e-9)


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_gradients_go_through_the_frequency(library: str) -> None:
    def loss(y: Any, numbers: Any) -> Any:
        structure = models.cycle(numbers[0], numbers[1], damping=numbers[2])
        return kalman.log_likelihood(y, **structure | {"R": structure.Q[:1, :1]})

    check_gradient(library, loss, np.array([0.3, 0.7, 0.9]), 0.0)


def test_sums_keep_what_changes_with_time() -> None:
    both = models.regression(X) + models.seasonal(3, 0.5)
    assert both.H.shape == (60, 1, 4) and both.diffuse == (0, 1, 2, 3) and both.F.shape == (4, 4)
    np.testing.assert_array_equal(both.H[:, 0, :2], X)


def test_bad_structures() -> None:
    with pytest.raises(ValueError, match=r"period is 1; wanted a number of steps, 2 or more"):
        models.seasonal(1, 0.5)
    with pytest.raises(ValueError, match=r"period is 12\.0; wanted a number of steps, 2 or more, as an integer"):
        models.seasonal(12.0, 0.5)
    with pytest.raises(ValueError, match=r"period is nan; wanted a number of steps, 2 or more"):
        models.trigonometric_seasonal(float("nan"), 0.5)
    with pytest.raises(ValueError, match=r"harmonics is 7; a period of 12 has 6: wanted no more"):
        models.trigonometric_seasonal(12, 0.5, harmonics=7)
    with pytest.raises(ValueError, match=r"ar has shape \(\); wanted one axis"):
        models.autoregression(0.5, 1.0)
    with pytest.raises(ValueError, match=r"x has shape \(60,\); wanted \(n, m\)"):
        models.regression(X[:, 0])


def test_structures_are_summed_and_merged() -> None:
    level, season = models.local_level(1.0, noise=2.0), models.seasonal(4, 0.5)
    np.testing.assert_array_equal(sum([level, season]).F, (level + season).F)
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Structure' and 'int'"):
        level + 1
    assert "diffuse" not in level | {"P0": np.eye(1)}
    assert (level | {"m0": np.ones(1)})["diffuse"] == (0,)
    assert (
        [*level] == [*PARAMETERS, "diffuse"]
        and "Q" in level
        and len(level) == 7
        and "diffuse" not in models.arma([0.5], [0.1], 1)
    )
    with pytest.raises(KeyError, match=r"'q'; a structure has F, H, Q"):
        level["q"]
    assert ({"y": Y} | level).keys() == {"y", *PARAMETERS, "diffuse"}
    drawn = kalman.simulate(np.random.default_rng(0), 5, **level | {"P0": np.eye(1)})
    assert drawn.y.shape == (5, 1)


@pytest.mark.parametrize("ar", [[1.0], [1.2], [0.5, 0.5], [0.0, -1.0]])
def test_processes_that_are_not_stationary(ar: list[float]) -> None:
    """Have no covariance to begin with."""
    with pytest.raises(ValueError, match=r"ar is \[.*\], of no stationary process: a root is 1.* in size"):
        models.autoregression(ar, 1.0)


def test_a_forecast_of_a_regression_needs_the_values_to_come() -> None:
    structure = models.local_level(1.0, noise=1.0) + models.regression(X)
    with pytest.raises(ValueError, match=r"H has shape \(60, 1, 3\), with the 60 steps of y; .* 65 steps"):
        kalman.forecast(Y, 5, **structure)
    with pytest.raises(ValueError, match=r"y has shape \(60,\); wanted .*; y\[:, None\]\?"):
        kalman.forecast(Y[:, 0], 5, **models.local_level(1.0))


def test_the_module_offers_models_alone() -> None:
    assert dir(models) == sorted(models.__all__)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("level", lambda x: models.local_level(x, 1.0)),
        ("noise", lambda x: models.local_linear_trend(1.0, 1.0, x)),
        ("variance", lambda x: models.seasonal(3, x)),
        ("variance", lambda x: models.arma([0.5], [0.3], x)),
        ("variance", lambda x: models.regression(np.ones((4, 2)), x)),
        ("variance", lambda x: models.trigonometric_seasonal(4, x)),
        ("frequency", lambda x: models.cycle(x, 1.0)),
        ("damping", lambda x: models.cycle(0.3, 1.0, x)),
    ],
)
def test_numbers_have_no_axes(name: str, make: Any) -> None:
    """They would be broadcast into one matrix, which looks like a model."""
    for given in (np.array([0.5, 0.2]), [0.5, 0.2], np.ones(1)):
        with pytest.raises(ValueError, match=f"{name} has shape .*wanted one number"):
            make(given)


@pytest.mark.parametrize("given", [-1.0, np.nan, np.inf, np.array(-0.5)])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("level", models.local_level),
        ("noise", lambda x: models.local_level(1.0, x)),
        ("slope", lambda x: models.local_linear_trend(1.0, x)),
        ("variance", lambda x: models.seasonal(3, x)),
        ("variance", lambda x: models.autoregression([0.5], x)),
        ("noise", lambda x: models.arma([0.5], [0.3], 1.0, x)),
        ("variance", lambda x: models.regression(np.ones((4, 2)), x)),
        ("variance", lambda x: models.cycle(0.3, x)),
    ],
)
def test_variances_are_not_negative(name: str, make: Any, given: Any) -> None:
    """Told where the model is written, by the name that it has there, rather than by a filter, as an entry of Q."""
    with pytest.raises(ValueError, match=f"{name} is .*; wanted a variance: a number of at least 0, and finite"):
        make(given)


@pytest.mark.parametrize("damping", [1.5, -0.5, np.nan])
def test_a_cycle_does_not_grow(damping: float) -> None:
    with pytest.raises(ValueError, match=f"damping is {damping}; wanted a number from 0 to 1"):
        models.cycle(0.3, 1.0, damping)


def test_help_shows_functions_first() -> None:
    """And no methods of named tuples, of which there are a thousand lines."""
    text = pydoc.render_doc(kalman, renderer=pydoc.plaintext)
    assert "CLASSES" not in text and "FUNCTIONS" in text and len(text.splitlines()) < 600
    assert all(f"    {name}(" in text for name in kalman.__all__ if name.islower() and name != "models")
    assert set(kalman.__all__) - set(dir(kalman)) == {name for name in kalman.__all__ if not name.islower()}


@pytest.mark.parametrize("frequency", [12.0, -0.1, np.float32(3.2)])
def test_a_period_is_no_frequency(frequency: Any) -> None:
    with pytest.raises(ValueError, match=r"wanted radians a step, from 0 to pi: 2 pi / s for a period of s steps"):
        models.cycle(frequency, 0.5)
    assert models.cycle(np.float32(np.pi), 0.5).F.shape == (2, 2)


def test_a_table_with_a_series_in_each_column_is_told_what_to_pass() -> None:
    y = np.ones((80, 50))
    with pytest.raises(ValueError, match=r"where its columns are series of one value, y.T\[..., None\]"):
        kalman.filter(y, **models.local_level(1.0, 1.0))
    assert kalman.filter(y.T[..., None], **models.local_level(1.0, 1.0)).mean.shape == (50, 80, 1)


def test_structures_are_converted_item_by_item() -> None:
    """As a model of numbers is to meet observations that are tensors."""
    torch = pytest.importorskip("torch")
    structure = models.local_level(1.0, noise=2.0) + models.arma([0.5], [0.1], 1.0)
    assert [*structure.items()][-1] == ("diffuse", (0,)) and len(structure.values()) == 7
    tensors = {name: x if name == "diffuse" else torch.as_tensor(x) for name, x in structure.items()}
    value = kalman.log_likelihood(torch.as_tensor(Y), **tensors)
    np.testing.assert_allclose(value.item(), kalman.log_likelihood(Y, **structure), rtol=1e-13)


def test_parts_of_numbers_and_of_tensors_say_how_to_join_them() -> None:
    torch = pytest.importorskip("torch")
    level, season = models.local_level(torch.tensor(1.0), noise=2.0), models.seasonal(4, 0.5)
    with pytest.raises(TypeError, match=r"different libraries \(torch and numpy\); .* seasonal\(4, torch.tensor"):
        level + season
    with pytest.raises(TypeError, match=r"different libraries \(numpy and torch\)"):
        season + level
    assert (level + models.seasonal(4, torch.tensor(0.5))).F.shape == (4, 4)


def test_structures_are_pytrees_of_jax() -> None:
    """Arguments of jit, grad, vmap and tree.map, whatever their leaves are; which states are unknown is static."""
    jax = pytest.importorskip("jax")
    y = Y.astype(np.float32)
    structure = models.autoregression([0.5], 1.0) + models.arma([0.3], [0.1], 1.0)
    wanted = kalman.log_likelihood(Y, **structure)
    found = jax.jit(lambda y, model: kalman.log_likelihood(y, **model))(y, structure)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    doubled = jax.tree.map(lambda x: 2 * x, structure)
    assert type(doubled) is models.Structure and doubled.diffuse == structure.diffuse
    np.testing.assert_array_equal(doubled.Q, 2 * structure.Q)
    assert repr(jax.tree.map(lambda x: x.tolist(), structure)) == "Structure"
    leaves, treedef = jax.tree.flatten_with_path(structure)
    assert [path[0].name for path, _ in leaves] == [*PARAMETERS] and "Structure" in str(treedef)
    level = models.local_level(1.0, noise=2.0)
    assert jax.jit(lambda model: model + level)(structure).diffuse == (structure + level).diffuse
    slope = jax.jit(jax.grad(lambda model, y: kalman.log_likelihood(y, **model)))(structure, y)
    assert np.isfinite(slope.Q).all() and slope.diffuse == structure.diffuse
    both = jax.tree.map(lambda x: np.stack([x, x]), structure)
    of_each = jax.vmap(lambda model: kalman.log_likelihood(y, **model))(both)
    np.testing.assert_allclose(of_each, [wanted, wanted], rtol=1e-5)


def test_structures_import_no_jax() -> None:
    """And are pytrees once it is there and another one was made."""
    pytest.importorskip("jax")
    program = """
import sys
from tridiag.kalman import models
models.local_level(1.0, noise=2.0) + models.seasonal(4, 0.5)
assert "jax" not in sys.modules
import jax
assert len(jax.tree.leaves(models.local_level(1.0, noise=2.0))) == 6
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: models.regression([[1.0, 2.0], [1.0]]), r"x is a list .* differ in shape: x\[0\] has \(2,\)"),
        (lambda: models.autoregression([0.5, None], 1.0), r"ar\[1\] is None; wanted a number"),
    ],
)
def test_lists_that_are_no_arrays_are_named(make: Callable[[], Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        make()
