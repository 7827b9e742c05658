"""Determinants of matrices whose rows lie on eight devices. Run by `test_sharding.py`, in their own process."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dense
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from split_rows import ROWS, mesh_of, placed
from test_jax_program import compiled

import tridiag
from tridiag.xla import split_determinants

BANDS = (0, 1, 2)


def matrices(rng: Any, shape: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    """Indefinite ones, some with zero diagonals; a[0] and c[n-1] are given too."""
    bands = [rng.uniform(-1, 1, shape) for _ in range(3)]
    if np.dtype(dtype).kind == "c":
        bands = [x * np.exp(2j * np.pi * rng.uniform(size=shape)) for x in bands]
    bands[1][0] = 0
    bands[1][1, ::2] = 0
    return [x.astype(dtype) for x in bands]


def sensitivity(matrix: Any) -> Any:
    """How much log |det| changes with relative changes of entries."""
    return (abs(np.linalg.inv(matrix).swapaxes(-1, -2)) * abs(matrix)).sum((-1, -2))


def assert_determinants(found: Any, a: Any, b: Any, c: Any, **options: Any) -> None:
    """As near as changes of entries in their last bits leave them, with the rounding of what is compared with."""
    matrix, eps = dense(a, b, c, **options).astype(complex if np.iscomplexobj(b) else float), np.finfo(b.dtype).eps
    sign, logarithm = np.linalg.slogdet(matrix)
    within = 4 * eps * (sensitivity(matrix) + abs(logarithm)) + 16 * np.finfo(float).eps * sensitivity(matrix)
    assert found[0].dtype == b.dtype and found[0].shape == sign.shape
    assert (abs(np.asarray(found[0]) - sign) <= within).all()
    assert (abs(np.asarray(found[1]) - logarithm) <= within).all()


def log_of(**options: Any) -> Any:
    return lambda *bands: tridiag.slogdet(*bands, **options)[1].sum()


@pytest.fixture
def none_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN where systems would be gathered."""
    monkeypatch.setattr(split_determinants, "computed_whole", lambda run, cut, n, axis, y, *_, **__: y * np.nan)


@pytest.mark.usefixtures("none_in_doubt")
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("devices", "rows", "dtype"),
    [
        (8, 1, "float64"),
        (2, 2, "float64"),
        (3, 2, "complex64"),
        (8, 5, "complex128"),
        (3, 33, "float64"),
        (8, 16, "float32"),
    ],
)
def test_one_answer(devices: int, rows: int, dtype: str, periodic: bool) -> None:
    """Of indefinite matrices, zero diagonals among them, none of which is gathered; a[0] and c[n-1] are not read."""
    n = devices * rows
    if n % 2 and not periodic:
        n += devices  # a zero diagonal of odd length is singular
    a, b, c = matrices(np.random.default_rng(n), (9, n), dtype)
    if not periodic:
        a[:, 0] = c[:, -1] = np.nan
    found = jax.jit(functools.partial(tridiag.slogdet, periodic=periodic))(*placed(mesh_of(devices), (a, b, c)))
    if not periodic:
        a[:, 0] = c[:, -1] = 0
    assert_determinants(found, a, b, c, periodic=periodic)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("n", "masked"), [(9, True), (83, False), (83, True)])
def test_lengths_that_the_devices_do_not_divide(n: int, masked: bool, periodic: bool) -> None:
    """Some devices have no rows at all; rows that are taken out, and couplings to them, may be NaN. Gradients too."""
    rng, sharding = np.random.default_rng(0), jax.sharding.NamedSharding(mesh_of(8), ROWS)
    a, b, c = matrices(rng, (5, n))
    b += 0.3
    where = rng.random((5, n)) < 0.8 if masked else np.ones((5, n), bool)
    options = {"where": where if masked else None, "periodic": periodic}
    if masked:
        lone = [~(where & np.roll(where, by, -1)) for by in (1, -1)]
        a, b, c = (np.where(off, np.nan, x) for off, x in zip((lone[0], ~where, lone[1]), (a, b, c), strict=True))

    def function(*bands: Any) -> Any:
        return tridiag.slogdet(*(jax.lax.with_sharding_constraint(x, sharding) for x in bands), **options)

    def loss(function: Any) -> Any:
        return lambda *bands: (function(*bands)[1] * np.arange(1, 6)).sum()

    wanted = tridiag.slogdet(a, b, c, **options)
    for x, y in zip(jax.jit(function)(a, b, c), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11)
    whole = jax.jit(jax.grad(loss(functools.partial(tridiag.slogdet, **options)), BANDS))
    for x, y in zip(jax.jit(jax.grad(loss(function), BANDS))(a, b, c), whole(a, b, c), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("periodic", [pytest.param(False, marks=pytest.mark.smoke), True])
def test_singular_matrices_are_so_and_alone(periodic: bool) -> None:
    """Singular wherever it shows, in a row, on a device or only in the whole; NaN; and what regular ones are beside."""
    kept = matrices(np.random.default_rng(0), (2, 40))
    a, b, c = (np.concatenate([x, x[:1], x[:1], x[:1], x[:1], x[:1]]) for x in kept)
    a[2, 13] = b[2, 13] = c[2, 13] = 0
    a[3], b[3], c[3] = -1, 2, -1
    if not periodic:
        b[3, 0] = b[3, -1] = 1
    a[4, 10], c[4, 11], b[4, 10:12], c[4, 10], a[4, 11] = 0, 0, 1, 1, 1
    b[5, 20] = np.nan
    a[6], b[6], c[6] = 0, 1, 0
    b[6, 39] = 0
    function = jax.jit(functools.partial(tridiag.slogdet, periodic=periodic))
    sign, logarithm = map(np.asarray, function(*placed(mesh_of(8), (a, b, c))))
    scanned = jax.jit(functools.partial(tridiag.slogdet, periodic=periodic, backend="jax_scan"))
    for x, y in zip((sign, logarithm), scanned(*map(jnp.asarray, (a, b, c))), strict=True):
        # gathered ones are scanned; a ring of equal rows is singular up to rounding
        np.testing.assert_array_equal(x[2:], y[2:])
    np.testing.assert_array_equal(sign[[2, 4, 5, 6]], [0, 0, np.nan, 0])
    np.testing.assert_array_equal(logarithm[[2, 4, 5, 6]], [-np.inf, -np.inf, np.nan, -np.inf])
    assert periodic or sign[3] == 0
    assert_determinants((sign[:2], logarithm[:2]), *(x[:2] for x in (a, b, c)), periodic=periodic)


def test_determinants_that_no_number_holds() -> None:
    """Exponents are apart: of entries that are large or small, of many, and of some that underflow beside others."""
    rng = np.random.default_rng(0)
    n = 80
    a, b, c = (rng.uniform(0.5, 1, (4, n)) for _ in range(3))
    scale = np.array([1e300, 1e-290, 1.0, 1.0])[:, None]
    a, b, c = a * scale, b * scale * 3, c * scale
    a[2], c[2] = a[2] * 1e-200, c[2] * 1e200
    b[3] *= 10.0 ** rng.integers(-150, 150, n)
    wanted = tridiag.slogdet(a, b, c)
    for x, y in zip(tridiag.slogdet(*placed(mesh_of(8), (a, b, c))), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13)


def test_axes_shared_entries_and_other_axes_of_the_mesh() -> None:
    mesh = jax.make_mesh((2, 2, 2), ("p", "y", "z"), axis_types=(AxisType.Auto,) * 3)
    a, b, c = matrices(np.random.default_rng(0), (6, 40))
    found = jax.jit(tridiag.slogdet)(*placed(mesh, (a, b, c), P("p", ("y", "z"))))
    a[:, 0] = c[:, -1] = 0
    assert_determinants(found, a, b, c)
    assert found[1].sharding.spec == P("p")
    turned = placed(mesh, [np.ascontiguousarray(x.T) for x in (a, b, c)], P(("y", "z"), "p"))
    assert_determinants(jax.jit(functools.partial(tridiag.slogdet, axis=0))(*turned), a, b, c)
    lone = placed(mesh_of(8), [a[2]], P("z")) + placed(mesh_of(8), [b])
    assert_determinants(jax.jit(lambda a, b: tridiag.slogdet(a, b, 0.5))(*lone), a[2] + 0 * b, b, 0.5 + 0 * b)
    grown = jax.jit(jax.grad(lambda a, b: log_of()(a, b, 0.5), (0, 1)))(*lone)
    wanted = jax.grad(lambda a, b: log_of()(a, b, 0.5), (0, 1))(jnp.asarray(a[2]), jnp.asarray(b))
    for x, y in zip(grown, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize("periodic", [False, True])
def test_whole_matrices_are_found_where_they_lie(periodic: bool) -> None:
    """Each device calls the kernel with those that it has, and is told nothing by the others."""
    from collectives import exchange

    a, b, c = matrices(np.random.default_rng(0), (16, 40))
    bands = placed(mesh_of(8), (a, b, c), P("z"))
    program = compiled(functools.partial(tridiag.slogdet, periodic=periodic), *bands)
    assert exchange(program, 8).collectives == 0 and "tridiag_" in program
    found = jax.jit(functools.partial(tridiag.slogdet, periodic=periodic))(*bands)
    assert found[0].sharding.spec == found[1].sharding.spec == P("z")
    if not periodic:
        a[:, 0] = c[:, -1] = 0
    assert_determinants(found, a, b, c, periodic=periodic)
    grown = jax.jit(jax.grad(log_of(periodic=periodic), BANDS))(*bands)
    wanted = jax.jit(jax.grad(log_of(periodic=periodic), BANDS))(*map(jnp.asarray, (a, b, c)))
    for x, y in zip(grown, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_eager_calls_and_explicit_axes() -> None:
    a, b, c = matrices(np.random.default_rng(0), (6, 48))
    a[:, 0] = c[:, -1] = 0
    for kind in (AxisType.Auto, AxisType.Explicit):
        bands = placed(mesh_of(8, kind), (a, b, c))
        assert_determinants(tridiag.slogdet(*bands), a, b, c)
        entries = jax.jit(jax.grad(log_of(), BANDS))(*bands)
        assert all(x.sharding.spec == ROWS for x in entries)
    assert jax.grad(log_of())(*placed(mesh_of(8), (a, b, c))).sharding.spec == ROWS


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("periodic", [False, True])
def test_inside_shard_map(periodic: bool, dtype: str) -> None:
    """The same on every device, with tangent, gradient and second derivative, by the name of the axis."""
    rng = np.random.default_rng(0)
    bands = [jnp.asarray(x) for x in matrices(rng, (3, 24), dtype)]
    bands[1] = bands[1].at[2, 5].set(0).at[2, 4].set(0)
    where = rng.random((3, 24)) < 0.8
    if not periodic:
        bands[0], bands[2] = bands[0].at[:, 0].set(np.nan), bands[2].at[:, -1].set(np.nan)
    tangents = [jnp.asarray(rng.uniform(-1, 1, (3, 24)).astype(dtype)) for _ in BANDS]

    def local(a: Any, b: Any, c: Any, where: Any) -> Any:
        return tridiag.slogdet(a, b, c, where=where, axis_name="z", periodic=periodic)

    inside = jax.shard_map(local, mesh=mesh_of(8), in_specs=(ROWS,) * 4, out_specs=P())

    def everything(function: Any) -> Any:
        def loss(*bands: Any) -> Any:
            sign, logarithm = function(*bands, where)
            return (sign.real * np.arange(3) + sign.imag + logarithm * np.arange(1, 4)).sum()

        def found(*bands: Any) -> Any:
            _, twice = jax.jvp(jax.grad(loss, BANDS), bands, tuple(tangents))
            return jax.jvp(lambda *v: function(*v, where), bands, tuple(tangents)), jax.grad(loss, BANDS)(*bands), twice

        return jax.jit(found)(*bands)

    wanted = everything(lambda a, b, c, where: tridiag.slogdet(a, b, c, where=where, periodic=periodic))
    regular = np.asarray(tridiag.slogdet(*bands, where=where, periodic=periodic)[0]) != 0
    assert periodic or 0 < regular.sum() < 3
    found = everything(inside)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x[regular], y[regular], rtol=1e-8, atol=1e-9)
    for _, gradient, _ in (found, wanted):  # for which entries that of a singular matrix is NaN is left to the method
        assert np.isnan(np.stack(gradient))[:, ~regular].any((0, 2)).all()


def test_a_mesh_of_one_device() -> None:
    """JAX is told that what is of all rows is the same on all devices."""
    a, b, c = matrices(np.random.default_rng(0), (3, 12))
    inside = jax.shard_map(
        functools.partial(tridiag.slogdet, axis_name="z"), mesh=mesh_of(1), in_specs=(ROWS,) * 3, out_specs=P()
    )
    for x, y in zip(jax.jit(inside)(a, b, c), tridiag.slogdet(a, b, c), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_vmap_of_values_and_gradients() -> None:
    """Batches of sharded matrices; an entry that is not batched is shared."""
    a, b, c = matrices(np.random.default_rng(0), (5, 48))
    a[:, 0] = c[:, -1] = 0
    bands = placed(mesh_of(8), (a, b, c))
    assert_determinants(jax.jit(jax.vmap(tridiag.slogdet))(*bands), a, b, c)
    shared = jax.jit(jax.vmap(tridiag.slogdet, (None, 0, None)))(bands[0][2], bands[1], bands[2][3])
    assert_determinants(shared, a[2] + 0 * b, b, c[3] + 0 * b)
    together = jax.jit(jax.grad(log_of(), BANDS))(*bands)
    for x, y in zip(jax.jit(jax.vmap(jax.grad(log_of(), BANDS)))(*bands), together, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize(
    ("dtype", "periodic", "count", "wanted"),
    [
        ("float64", False, 9, (1, 5 * 7)),
        ("float64", True, 9, (1, 9 * 7)),
        ("complex128", False, 9, (1, 9 * 7)),
        ("float64", False, 1024, (2, 8 * 7 / 8)),
    ],
)
def test_words_received(dtype: str, periodic: bool, count: int, wanted: Any) -> None:
    """Four numbers and an exponent of every device; a gradient exchanges once more. Never an array."""
    from collectives import exchange

    bands = placed(mesh_of(8), matrices(np.random.default_rng(0), (count, 40), dtype))
    found = exchange(compiled(functools.partial(tridiag.slogdet, periodic=periodic), *bands), 8)
    assert (found.collectives, found.words / count) == wanted
    if count == 9:
        alone = exchange(compiled(jax.grad(log_of(periodic=periodic), BANDS), *bands), 8)
        assert (alone.collectives, alone.words / count) == wanted


def test_explain_tells_what_is_exchanged() -> None:
    bands = placed(mesh_of(8), matrices(np.random.default_rng(0), (8, 160)))
    told = repr(tridiag.explain("slogdet", *bands))
    assert "the rows of a system lie on 8 devices: one all_gather, 35 words received for each system" in told
    assert "systems that may be singular are gathered alone" in told
    assert "63 words" in repr(tridiag.explain("slogdet", *bands, periodic=True))


def test_axis_names_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"axis_name='z': z is no axis of jax.shard_map here; call tridiag.slogdet"):
        tridiag.slogdet(1.0, np.ones(3), 1.0, axis_name="z")
