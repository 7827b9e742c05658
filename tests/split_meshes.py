"""Every verb inside `jax.set_mesh`, and where types name meshes. Run by `test_sharding.py`, on eight devices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import tridiag
from tridiag import kalman
from tridiag.backends import BACKENDS

BATCH = 8, 24
NAMES = "F", "H", "Q", "R", "m0", "P0"
Verb = Callable[..., Any]


def system(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.solve(a, b, c, d, backend=backend)


def factored(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.factor(a, b, c, backend=backend).solve(d)


def determinant(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.slogdet(a, b, c, backend=backend)[1]


def product(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.matmul(a, b, c, d)


def blocks(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    a, b, c = (x[..., None, None] * jnp.eye(2) + 0.1 for x in (a, b, c))
    return tridiag.solve_block(a, b, c, jnp.stack((d, d), -1), backend=backend)


def recurrence(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.linear_recurrence(a, d, backend=backend)


def second_order(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.linear_recurrence((a / 2, c / 2), d, backend=backend)


def of_matrices(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.matrix_recurrence(a[..., None, None] * jnp.eye(2) / 2, jnp.stack((d, d), -1), backend=backend)


def logarithms(backend: str, a: Any, b: Any, c: Any, d: Any) -> Any:
    return tridiag.logcumsumexp(d, backend=backend)


VERBS: dict[Verb, str] = {
    system: "solve",
    factored: "factor",
    determinant: "slogdet",
    product: "matmul",
    blocks: "solve_block",
    recurrence: "linear_recurrence",
    second_order: "linear_recurrence",
    of_matrices: "matrix_recurrence",
    logarithms: "logcumsumexp",
}
NAMED = (
    (verb, name)
    for name in ("numba_thomas", "numba_scan", "jax_scan", "jax_lax", "jax_associative")
    for verb, has in VERBS.items()
    if has in BACKENDS[name].verbs and (verb is not second_order or BACKENDS[name].order != 1)
)


@functools.cache
def operands() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.uniform(-1, 1, BATCH) for _ in range(4))
    return a, b + 4, c, d


@functools.cache
def mesh_of(kind: str) -> Any:
    return jax.make_mesh((8,), ("z",), axis_types=(getattr(AxisType, kind),))


def filtered(method: str, which: Verb) -> Verb:
    """A filter of series of one value and two states as a function of y and the model."""

    def function(y: Any, model: dict[str, Any]) -> tuple[Any, ...]:
        found = which(y, **model, method=method)
        return tuple(jax.tree.leaves(found))

    return function


def series(own: bool) -> tuple[Any, dict[str, Any]]:
    """Observations, and a model; ``own``: one for each series."""
    rng = np.random.default_rng(0)
    F = np.array([[0.9, 0.2], [-0.1, 0.8]])
    F = F * rng.uniform(0.5, 1, (8, 1, 1, 1)) if own else F
    values = F, np.ones((1, 2)), np.eye(2), np.eye(1), np.zeros(2), np.eye(2)
    return rng.normal(size=(*BATCH, 1)), dict(zip(NAMES, values, strict=True))


def assert_near(found: Any, wanted: Any) -> None:
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", [pytest.param("Explicit", marks=pytest.mark.smoke), "Auto"])
@pytest.mark.parametrize("verb", VERBS)
def test_arrays_of_one_device_inside_of_a_mesh(verb: Verb, kind: str) -> None:
    """Such a program runs on every device of the mesh, of which no array says that it is there."""
    wanted = verb("auto", *operands())
    with jax.set_mesh(mesh_of(kind)):
        arrays = [jnp.asarray(x) for x in operands()]
        assert_near(verb("auto", *arrays), wanted)
        assert_near(jax.jit(functools.partial(verb, "auto"))(*arrays), wanted)


@pytest.mark.parametrize("verb", [system, recurrence, pytest.param(second_order, marks=pytest.mark.smoke)])
def test_gradients_inside_of_a_mesh(verb: Verb) -> None:
    def loss(*arrays: Any) -> Any:
        return (verb("auto", *arrays) ** 2).sum()

    arrays = [jnp.asarray(x) for x in operands()]
    wanted = jax.grad(loss, (0, 3))(*arrays)
    with jax.set_mesh(mesh_of("Explicit")):
        assert_near(jax.grad(loss, (0, 3))(*arrays), wanted)


@pytest.mark.parametrize("spec", [P("z"), P(None, "z")])
@pytest.mark.parametrize(("verb", "name"), [*((verb, "auto") for verb in VERBS), *NAMED])
def test_every_backend_takes_arrays_whose_type_names_a_mesh(verb: Verb, name: str, spec: Any) -> None:
    """Sharded along the batch, or along the systems, which what cannot split them gathers."""
    wanted = verb(name, *map(jnp.asarray, operands()))
    arrays = [jax.device_put(x, NamedSharding(mesh_of("Explicit"), spec)) for x in operands()]
    assert_near(verb(name, *arrays), wanted)
    assert_near(jax.jit(functools.partial(verb, name))(*arrays), wanted)


PARALLEL = (
    ("parallel", kalman.log_likelihood, "F"),
    ("parallel", kalman.log_likelihood, "time"),
    ("parallel", kalman.filter, "y"),
)
SEQUENTIAL = (
    ("sequential", verb, which)
    for verb in (kalman.log_likelihood, kalman.filter, kalman.smoother)
    for which in ("y", "F", "both", "time")
)


@pytest.mark.parametrize(("method", "verb", "which"), [*PARALLEL, *SEQUENTIAL])
def test_filters_of_arrays_whose_type_names_a_mesh(method: str, verb: Verb, which: str) -> None:
    """Observations or a matrix of each model are sharded along the series, or observations along time."""
    y, model = series(own=True)
    function = filtered(method, verb)
    wanted = function(jnp.asarray(y), {name: jnp.asarray(x) for name, x in model.items()})
    specs = {"y": P("z")} if which in ("y", "both") else {"y": P(None, "z")} if which == "time" else {}
    specs |= {"F": P("z")} if which in ("F", "both") else {}
    mesh = mesh_of("Explicit")
    given = {
        name: jax.device_put(x, NamedSharding(mesh, specs[name])) if name in specs else jnp.asarray(x)
        for name, x in {"y": y, **model}.items()
    }
    assert_near(jax.jit(function)(given.pop("y"), given), wanted)


@pytest.mark.parametrize("spec", [P("z"), P(None, "z")])
@pytest.mark.parametrize("inside", [False, True])
def test_gradients_of_filters_whose_types_name_a_mesh(inside: bool, spec: Any) -> None:
    y, model = series(own=False)

    def loss(y: Any, model: Any) -> Any:
        return kalman.log_likelihood(y, **model).sum()

    model = {name: jnp.asarray(x) for name, x in model.items()}
    wanted = jax.grad(loss, (0, 1))(jnp.asarray(y), model)
    spread = jax.device_put(y, NamedSharding(mesh_of("Explicit"), spec))
    with jax.set_mesh(mesh_of("Explicit")) if inside else contextlib.nullcontext():
        assert_near(jax.jit(jax.grad(loss, (0, 1)))(spread, model), wanted)


@pytest.mark.parametrize("spec", [P("z"), P(None, "z")])
def test_condition_numbers_where_types_name_a_mesh(spec: Any) -> None:
    wanted = tridiag.factor(*map(jnp.asarray, operands()[:3])).rcond
    bands = [jax.device_put(x, NamedSharding(mesh_of("Explicit"), spec)) for x in operands()[:3]]
    with jax.set_mesh(mesh_of("Explicit")):
        assert_near(tridiag.factor(*bands).rcond, wanted)
        assert_near(jax.jit(lambda *bands: tridiag.factor(*bands).rcond)(*bands), wanted)
