"""Series whose steps lie on eight devices, or on some of them. Run by `test_sharding.py`, in their own process."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from split_recurrences import gathered, mesh_of, outside_branches
from test_jax_program import compiled
from test_kalman import model, series

import tridiag
from tridiag import kalman
from tridiag.problems.state_space import Model, StateSpace
from tridiag.xla import kalman as xla_kalman
from tridiag.xla import split_kalman

CHANGING = ("F", "H", "Q", "R")
CASES = {  # devices, series, steps, states, observed, missing, whether the model changes
    "missing": (8, (5,), 80, 2, 1, 0.2, False),
    "complete": (3, (3,), 30, 1, 1, 0.0, False),
    "not divided": (8, (), 83, 2, 2, 0.3, False),
    "changing": (8, (2, 3), 40, 2, 1, 0.2, True),
    "changing and not divided": (4, (5,), 23, 3, 1, 0.0, True),
    "two devices": (2, (4,), 9, 1, 2, 0.3, False),
    "many states": (2, (3,), 9, 9, 1, 0.2, False),
}


@pytest.fixture
def no_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed of gathered series is NaN."""
    whole = split_kalman.whole
    monkeypatch.setattr(split_kalman, "whole", lambda *v: jax.tree.map(lambda x: x * jnp.nan, whole(*v)))


def case_of(case: str) -> tuple[Any, Any, dict[str, Any]]:
    devices, batch, n, k, p, missing, changing = CASES[case]
    y, parameters = series(*batch, n, p, missing=missing), model(k, p, time=(n,) if changing else ())
    if changing:
        parameters["F"][-1] = parameters["Q"][-1] = np.nan  # never read
    return mesh_of(devices), y, parameters


def cut(mesh: Any, y: Any, parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arrays of a trace, along time on the devices."""
    steps = P(*[None] * (y.ndim - 2), "z")
    found = {k: x for k, x in parameters.items() if k not in CHANGING or x.ndim < 3}
    found |= {k: constrained(mesh, x, P("z")) for k, x in parameters.items() if k not in found}
    return constrained(mesh, y, steps), found


def constrained(mesh: Any, x: Any, spec: Any) -> Any:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def likelihood(mesh: Any = None) -> Any:
    def function(y: Any, parameters: dict[str, Any]) -> Any:
        y, parameters = (y, parameters) if mesh is None else cut(mesh, y, parameters)
        return kalman.log_likelihood(y, **parameters, backend="numba_scan")

    return function


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("case", CASES)
def test_one_answer(case: str) -> None:
    """That of one device, without gathering anything."""
    mesh, y, parameters = case_of(case)
    found = jax.jit(likelihood(mesh))(y, parameters)
    np.testing.assert_allclose(found, kalman.log_likelihood(y, **parameters), rtol=1e-13)


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("verb", ["filter", "smoother"])
@pytest.mark.parametrize("case", ["not divided", "changing", "complete"])
def test_states(case: str, verb: str) -> None:
    """Those of one device, which every device keeps of its own steps."""
    mesh, y, parameters = case_of(case)

    def function(y: Any, parameters: dict[str, Any]) -> Any:
        y, parameters = cut(mesh, y, parameters)
        return getattr(kalman, verb)(y, **parameters, backend="jax_scan")

    for x, z in zip(jax.jit(function)(y, parameters), getattr(kalman, verb)(y, **parameters), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_states_where_digits_are_lost_and_their_derivatives() -> None:
    """Which gather series, under `jax.vmap` too."""
    y, parameters = series(3, 32, 1), model(2, 1, P0=1e12 * np.eye(2))
    y[:, :12] = np.nan
    placed = jax.device_put(y, NamedSharding(mesh_of(4), P(None, "z")))

    def function(y: Any) -> Any:
        return kalman.smoother(y, **parameters, backend="jax_scan")

    for x, z in zip(jax.jit(jax.vmap(function))(placed), kalman.smoother(y, **parameters), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-9)
    derivative = jax.grad(lambda y: jnp.sin(function(y).mean).sum())
    np.testing.assert_allclose(jax.jit(derivative)(placed), jax.jit(derivative)(y), rtol=1e-8, atol=1e-9)


def test_numbers_that_states_need() -> None:
    """Nothing as long as a series is gathered."""
    y = jax.device_put(series(5, 160, 1, missing=0.2), NamedSharding(mesh_of(8), P(None, "z")))
    parameters = {name: jnp.asarray(x) for name, x in model(2, 1).items()}
    program = outside_branches(compiled(lambda y: kalman.smoother(y, **parameters, backend="jax_scan"), y))
    assert {int(np.prod(shape)) // (8 * 5) for shape in gathered(program)} == {16, 9, 1}


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("case", ["missing", "complete", "not divided", "two devices", "many states"])
def test_gradients(case: str) -> None:
    """In the observations and in every parameter."""
    mesh, y, parameters = case_of(case)

    def loss(function: Any) -> Any:
        return lambda *v: jnp.sin(function(*v)).sum()

    found = jax.jit(jax.grad(loss(likelihood(mesh)), (0, 1)))(y, parameters)
    wanted = jax.grad(loss(likelihood()), (0, 1))(*jax.tree.map(jnp.asarray, (y, parameters)))
    for x, z in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-11)


def test_a_gradient_of_a_model_that_changes() -> None:
    mesh, y, parameters = case_of("changing and not divided")
    found = jax.jit(jax.grad(lambda *v: likelihood(mesh)(*v).sum(), (0, 1)))(y, parameters)
    wanted = jax.grad(lambda *v: likelihood()(*v).sum(), (0, 1))(*jax.tree.map(jnp.asarray, (y, parameters)))
    for x, z in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-11)


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_eager_calls_and_a_model_of_each_series(kind: Any) -> None:
    """Series along one axis of the mesh, steps along two."""
    mesh = jax.make_mesh((2, 2, 2), ("p", "q", "z"), axis_types=(kind,) * 3)
    y, parameters = series(4, 24, 1, missing=0.2), model(2, 1, 4)
    placed = jax.device_put(y, NamedSharding(mesh, P("p", ("q", "z"))))
    given = {name: jax.device_put(x, NamedSharding(mesh, P())) for name, x in parameters.items()}
    wanted = kalman.log_likelihood(y, **parameters)
    np.testing.assert_allclose(kalman.log_likelihood(placed, **given, backend="numba_scan"), wanted, rtol=1e-13)
    for verb in (kalman.filter, kalman.smoother):
        wanted = verb(y, **parameters)
        for call in (verb, jax.jit(verb)):
            for x, z in zip(call(placed, **given), wanted, strict=True):
                np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-12)
    if kind is AxisType.Auto:
        gradient = jax.jit(jax.grad(lambda *v: likelihood()(*v).sum(), (0, 1)))(placed, given)
        expected = jax.grad(lambda *v: likelihood()(*v).sum(), (0, 1))(*jax.tree.map(jnp.asarray, (y, parameters)))
        for x, z in zip(*map(jax.tree.leaves, (gradient, expected)), strict=True):
            np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-11)


EXPLICIT = {
    "burn": lambda y, given: kalman.log_likelihood(y, burn=5, **given),
    "each step": lambda y, given: kalman.log_likelihood(y, burn=5, each_step=True, **given),
    "parallel": lambda y, given: kalman.log_likelihood(y, method="parallel", **given),
    "diffuse": lambda y, given: kalman.log_likelihood(
        y, diffuse=True, **{name: x for name, x in given.items() if name not in ("m0", "P0")}
    ),
    "forecast": lambda y, given: kalman.forecast(y, 3, **given),
    "lag_one_smoother": lambda y, given: kalman.lag_one_smoother(y, **given),
    "disturbance_smoother": lambda y, given: kalman.disturbance_smoother(y, **given),
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_steps_that_types_say_are_sharded(name: str) -> None:
    """Verbs that take parts of a series, or put some behind it, whose lengths the devices need not divide."""
    mesh = jax.make_mesh((2, 2), ("p", "z"), axis_types=(AxisType.Explicit,) * 2, devices=jax.devices()[:4])
    y, parameters = series(2, 16, 1, missing=0.2), model(2, 1)
    steps = P(None if name == "parallel" else "p", "z")
    found = jax.jit(EXPLICIT[name])(jax.device_put(y, NamedSharding(mesh, steps)), parameters)
    wanted = EXPLICIT[name](jnp.asarray(y), parameters)
    for x, z in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-12)


def test_where_digits_are_lost() -> None:
    """A diffuse state, first observed by a later device, and one that no device knows alone: series are gathered."""
    mesh, y = mesh_of(4), series(3, 32, 1)
    y[:, :12] = np.nan
    diffuse = model(2, 1, F=np.array([[1.0, 1.0], [0.0, 1.0]]), H=np.array([[1.0, 0.0]]), P0=1e12 * np.eye(2))
    exact = diffuse | {"R": np.zeros((1, 1)), "Q": np.diag([0.0, 1e-6])}
    for parameters in (diffuse, exact):
        found = jax.jit(likelihood(mesh))(y, parameters)
        np.testing.assert_allclose(found, kalman.log_likelihood(y, **parameters), rtol=1e-9)
        gradient = jax.jit(jax.grad(lambda y, p: likelihood(mesh)(y, p).sum()))(y, parameters)
        wanted = jax.grad(lambda y, p: likelihood()(y, p).sum())(jnp.asarray(y), parameters)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.smoke
def test_a_series_that_is_not_a_number() -> None:
    """Harms no other, and is what it is on one device."""
    mesh, (y, parameters) = mesh_of(4), (series(3, 32, 1), model(2, 1, 3))
    parameters["R"][1] = -100.0
    found = np.asarray(jax.jit(likelihood(mesh))(y, parameters))
    assert np.isnan(found[1])
    kept = {name: x[::2] for name, x in parameters.items()}
    np.testing.assert_allclose(found[::2], kalman.log_likelihood(y[::2], **kept), rtol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_what_steps_make_of_the_state_before_them(missing: float) -> None:
    """Where they end, and how likely they are, from one state and from another."""
    k, n = 2, 20
    y, parameters = series(5, n, 1, missing=missing), model(k, 1)
    form = StateSpace(n, 1, k, (5,), (1,), missing > 0, True)
    lifted = Model(*(parameters[x][None, None] for x in CHANGING), *(parameters[x][None] for x in ("m0", "P0")))
    value, found = xla_kalman.stretch(y, Model(*map(jnp.asarray, lifted)), form, missing > 0)
    moved = np.array([0.7, -1.9])
    longer = np.concatenate((y, np.full((5, 1, 1), np.nan)), 1)  # the state that is predicted behind the last step
    one, other = (kalman.filter(longer, **parameters | {"m0": parameters["m0"] + z}) for z in (0 * moved, moved))
    np.testing.assert_allclose(value, one.log_likelihood, rtol=1e-13)
    np.testing.assert_allclose(
        jnp.moveaxis(found.behind.mean, 0, -1), one.predicted_mean[:, -1], rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(jnp.moveaxis(found.behind.cov, -1, 0), one.predicted_cov[:, -1], rtol=1e-12, atol=1e-14)
    A, eta, J = found.follow
    apart = np.einsum("ijs,j->si", A, moved)
    np.testing.assert_allclose(apart, (other.mean - one.mean)[:, -1], rtol=1e-10, atol=1e-13)
    told = eta.T @ moved - np.einsum("ijs,i,j->s", J, moved, moved) / 2
    np.testing.assert_allclose(told, other.log_likelihood - one.log_likelihood, rtol=1e-10)


def test_numbers_that_are_exchanged() -> None:
    """2 k^2 + 4 k of a series and device, and one of each observed value; a gradient exchanges k (3 k + 3) / 2 more."""
    y, parameters = series(5, 160, 1, missing=0.2), model(2, 1)
    placed = jax.device_put(y, NamedSharding(mesh_of(8), P(None, "z")))

    def sizes(function: Any) -> set[int]:
        program = outside_branches(compiled(function, placed))
        assert not re.findall(r"(all-to-all|collective-permute|reduce-scatter)\(", program)
        return {int(np.prod(shape)) // (8 * 5) for shape in gathered(program)}

    known = {name: jnp.asarray(x) for name, x in parameters.items()} | {"P0": jnp.eye(2)[None].repeat(5, 0)}

    def function(y: Any) -> Any:
        return likelihood()(y, known).sum()

    assert sizes(function) == {16, 1}
    assert sizes(jax.grad(function)) == {16, 9, 1}


def test_explain_tells_what_is_exchanged() -> None:
    parameters = model(2, 1)
    placed = jax.device_put(series(5, 160, 1), NamedSharding(mesh_of(8), P(None, "z")))
    told = repr(tridiag.explain("kalman.log_likelihood", placed, **parameters))
    assert "the steps of a series lie on 8 devices: two all_gather, 119 words received for each series" in told
    told = repr(tridiag.explain("kalman.smoother", placed, **parameters))
    assert "three all_gather, 182 words received" in told and "; derivatives gather them" in told
    told = repr(tridiag.explain("kalman.smoother", placed, **parameters, backend="jax_associative", method="parallel"))
    assert "and are gathered" in told
    told = repr(tridiag.explain("kalman.log_likelihood", placed, **parameters | {"P0": jnp.zeros((2, 2))}, diffuse=[0]))
    assert "and are gathered" in told
    changing = repr(tridiag.explain("kalman.log_likelihood", placed, **model(2, 1, time=(160,))))
    assert "the gradient of a model that changes with time gathers them" in changing


def test_explain_tells_what_verbs_made_of_others_gather() -> None:
    """Of a forecast all steps, as its program does."""
    parameters, y = model(2, 1), series(5, 160, 1)
    placed = jax.device_put(y, NamedSharding(mesh_of(8), P(None, "z")))
    told = tridiag.explain("kalman.forecast", placed, 8, **parameters).exchange
    assert told == "the steps of a series lie on 8 devices, and are gathered"
    program = outside_branches(compiled(lambda y: kalman.forecast(y, 8, **parameters).mean, placed))
    assert (5, 160, 1) in map(tuple, gathered(program))
    for verb, more in (
        ("lag_one_smoother", ()),
        ("disturbance_smoother", ()),
        ("simulation_smoother", (jax.random.key(0),)),
    ):
        told = tridiag.explain(f"kalman.{verb}", placed, *more, **parameters).exchange
        assert told == (
            "the steps of a series lie on 8 devices: exchanged as those of kalman.smoother, whose results are gathered"
        )
        assert tridiag.explain(f"kalman.{verb}", jnp.asarray(y), *more, **parameters).exchange is None


# ------------------------------------------------------------------------------------------------ inside shard_map


def inside(verb: str, mesh: Any, y: Any, parameters: dict[str, Any], backend: str = "auto", **options: Any) -> Any:
    """A verb of y and the model, each device with its own steps."""
    steps = P(*[None] * (y.ndim - 2), "z")
    specs = {k: P("z") if k in CHANGING and x.ndim > 2 else P() for k, x in parameters.items()}
    results = {"log_likelihood": P(), "filter": kalman.Filtered(*[steps] * 4, P())}
    results["smoother"] = kalman.Smoothed(steps, steps, P())

    def local(y: Any, parameters: dict[str, Any]) -> Any:
        return getattr(kalman, verb)(y, **parameters, backend=backend, axis_name="z", **options)

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(steps, specs), out_specs=results[verb]))


@pytest.mark.usefixtures("no_gathering")
@pytest.mark.parametrize("verb", ["log_likelihood", "filter", "smoother"])
@pytest.mark.parametrize("case", ["missing", "changing", "complete"])
def test_inside_shard_map(case: str, verb: str) -> None:
    """As on one device, without gathering; log-likelihoods are the same on all devices, as types tell."""
    mesh, y, parameters = case_of(case)
    wanted = getattr(kalman, verb)(y, **parameters)
    found = inside(verb, mesh, y, parameters)(y, parameters)
    for x, z in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("changing", [False, True])
def test_intercepts_inside_shard_map(changing: bool, devices: int) -> None:
    """Of states, which a device hands on to the next one, and of observations; also the log-likelihood of each step."""
    rng, mesh, y, parameters = np.random.default_rng(0), mesh_of(devices), series(3, 16, 1), model(2, 1)
    lengths = (16,) if changing else ()
    given = {"state_intercept": rng.normal(size=(*lengths, 2)), "obs_intercept": rng.normal(size=(*lengths, 1))}
    steps, specs = P(None, "z"), P("z") if changing else P()

    def local(y: Any, given: Any) -> Any:
        values = [
            kalman.log_likelihood(y, **parameters, **given, axis_name="z", each_step=each) for each in (False, True)
        ]
        return *values, kalman.smoother(y, **parameters, **given, axis_name="z").mean

    function = jax.shard_map(local, mesh=mesh, in_specs=(steps, specs), out_specs=(P(), steps, steps))
    value, each, mean = jax.jit(function)(y, given)
    np.testing.assert_allclose(value, kalman.log_likelihood(y, **parameters, **given), rtol=1e-11)
    np.testing.assert_allclose(each, kalman.log_likelihood(y, **parameters, **given, each_step=True), rtol=1e-10)
    np.testing.assert_allclose(mean, kalman.smoother(y, **parameters, **given).mean, rtol=1e-9, atol=1e-10)


def test_an_intercept_that_is_nan_on_one_device() -> None:
    """Makes its series NaN, and is no missing value."""
    y, parameters, added = series(2, 16, 1), model(2, 1), np.zeros((2, 16, 1))
    added[1, 13] = np.nan

    def local(y: Any, added: Any) -> Any:
        return kalman.log_likelihood(y, **parameters, obs_intercept=added, axis_name="z")

    steps = P(None, "z")
    found = jax.jit(jax.shard_map(local, mesh=mesh_of(4), in_specs=(steps, steps), out_specs=P()))(y, added)
    assert np.isnan(found).tolist() == [False, True]


def refused(**more: Any) -> Any:
    y, parameters, steps = series(3, 16, 1), model(2, 1), P(None, "z")
    verb = more.pop("verb", kalman.log_likelihood)
    local = jax.shard_map(
        lambda y: verb(y, **parameters | more, axis_name="z"), mesh=mesh_of(4), in_specs=steps, out_specs=steps
    )
    return jax.jit(local)(y)


def test_what_needs_whole_series_is_refused_inside_shard_map() -> None:
    with pytest.raises(ValueError, match=r"states that are unknown at first are for whole series.* give a finite P0"):
        refused(diffuse=[0], P0=jnp.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"burn counts the first steps of whole series"):
        refused(burn=1)
    with pytest.raises(TypeError, match=r"lag_one_smoother is for whole series"):
        refused(verb=kalman.lag_one_smoother)


@pytest.mark.parametrize("verb", ["log_likelihood", "filter", "smoother"])
@pytest.mark.parametrize("devices", [1, 4])
def test_inside_shard_map_where_series_are_gathered(devices: int, verb: str) -> None:
    """Backends without parts, a device alone, and one step a device."""
    mesh, (y, parameters) = mesh_of(devices), (series(3, 12, 1, missing=0.2), model(2, 1))
    wanted = getattr(kalman, verb)(y, **parameters)
    found = [inside(verb, mesh, y, parameters, method="parallel")(y, parameters)]
    if verb == "log_likelihood":
        found.append(inside(verb, mesh, y, parameters, "jax_scan")(y, parameters))
    for each in found:
        for x, z in zip(jax.tree.leaves(each), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-10)
    short = inside(verb, mesh, y[:, :devices], parameters)(y[:, :devices], parameters)
    wanted = getattr(kalman, verb)(y[:, :devices], **parameters)
    for x, z in zip(jax.tree.leaves(short), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("changing", [False, True])
def test_gradients_inside_shard_map(changing: bool) -> None:
    """In y and the model, outside of `jax.shard_map` and within it, and derivatives of states."""
    y, parameters = series(3, 16, 1, missing=0.2), model(2, 1, time=(16,) if changing else ())
    mesh = mesh_of(4)
    function = inside("log_likelihood", mesh, y, parameters)
    found = jax.jit(jax.grad(lambda *v: jnp.sin(function(*v)).sum(), (0, 1)))(y, parameters)
    wanted = jax.grad(lambda y, v: jnp.sin(kalman.log_likelihood(y, **v)).sum(), (0, 1))(jnp.asarray(y), parameters)
    for x, z in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-11)

    def local(y: Any) -> Any:
        value = kalman.log_likelihood
        return jax.grad(lambda y: value(y, **parameters, axis_name="z").sum())(y)

    if changing:
        return
    steps = P(None, "z")
    alone = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=steps, out_specs=steps))(y)
    np.testing.assert_allclose(
        alone, jax.grad(lambda y: kalman.log_likelihood(y, **parameters).sum())(jnp.asarray(y)), rtol=1e-10, atol=1e-11
    )


@pytest.mark.slow
def test_derivatives_of_states_inside_shard_map() -> None:
    """Which gather series."""
    y, parameters = series(3, 16, 1), model(2, 1)
    function = inside("smoother", mesh_of(4), y, parameters)
    found = jax.jit(jax.grad(lambda *v: jnp.sin(function(*v).mean).sum(), (0, 1)))(y, parameters)
    wanted = jax.jit(jax.grad(lambda y, v: jnp.sin(kalman.smoother(y, **v).mean).sum(), (0, 1)))(y, parameters)
    for x, z in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-8, atol=1e-9)


def test_one_bad_covariance_is_told_to_all_devices() -> None:
    """The series that has it is NaN, on devices that do not see it too; no other is."""
    y, parameters = series(2, 16, 1), model(2, 1, time=(16,))
    Q = np.tile(parameters["Q"], (2, 1, 1, 1))
    Q[1, 13, 0, 0] = -1
    specs = {k: P("z") if k in CHANGING and x.ndim > 2 else P() for k, x in parameters.items()} | {"Q": P(None, "z")}

    def local(y: Any, parameters: dict[str, Any]) -> Any:
        return kalman.log_likelihood(y, **parameters, axis_name="z")

    function = jax.shard_map(local, mesh=mesh_of(4), in_specs=(P(None, "z"), specs), out_specs=P())
    found = np.asarray(jax.jit(function)(y, parameters | {"Q": Q}))
    assert np.isfinite(found[0]) and np.isnan(found[1])


def test_axis_names_that_are_none() -> None:
    y, parameters = series(3, 16, 1), model(2, 1)
    with pytest.raises(ValueError, match=r"axis_name='z': z is no axis .* call tridiag.kalman.filter inside of it"):
        kalman.filter(jnp.asarray(y), **parameters, axis_name="z")
    with pytest.raises(TypeError, match="wanted the name of an axis"):
        kalman.smoother(jnp.asarray(y), **parameters, axis_name=2)  # type: ignore[arg-type]
