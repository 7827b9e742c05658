"""Systems whose rows lie on eight devices, two or three of them. Run by `test_sharding.py`, in their own process."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_jax_program import compiled
from test_parts import backward_error, conductors, systems

import tridiag
from tridiag.problems.forms import Cut
from tridiag.xla import exchange, split

EPS = np.finfo(np.float64).eps
ALL = (0, 1, 2, 3)
ROWS = P(None, "z")


def mesh_of(devices: int, kind: Any = AxisType.Auto) -> Mesh:
    return jax.make_mesh((devices,), ("z",), axis_types=(kind,), devices=jax.devices()[:devices])


def solve(*arguments: Any, **options: Any) -> Any:
    return tridiag.solve(*arguments, backend="numba_thomas", **options)


def placed(mesh: Mesh, arrays: Any, spec: Any = ROWS) -> list[Any]:
    return [jax.device_put(jnp.asarray(x), NamedSharding(mesh, spec)) for x in arrays]


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems of few rows too, but where a test says that these are exchanged whole."""
    monkeypatch.setattr(split, "SHORT_WORDS", 0)


@pytest.fixture
def whole_if_short(monkeypatch: pytest.MonkeyPatch, in_parts: None) -> None:
    monkeypatch.setattr(split, "SHORT_WORDS", 20_000)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    ("devices", "rows", "dtype"),
    [
        (8, 1, "float64"),
        (2, 2, "float64"),
        (3, 2, "float32"),
        (8, 5, "complex128"),
        (3, 33, "float64"),
        (8, 70, "float32"),
    ],
)
@pytest.mark.parametrize("hard", [False, True])
def test_one_answer(devices: int, rows: int, dtype: str, transpose: bool, periodic: bool, hard: bool) -> None:
    """As small a backward error as on one device, of hard matrices too, zero diagonals and odd parts among them."""
    rng, n = np.random.default_rng(rows), devices * rows
    a, b, c, d = systems(rng, (9, n), dtype, hard)
    if hard:
        b[:, 2::5] = 0
        b[3] += 4
    if not periodic:
        a[:, 0] = c[:, -1] = np.nan
    x = jax.jit(lambda *v: solve(*v, periodic=periodic, transpose=transpose))(*placed(mesh_of(devices), (a, b, c, d)))
    assert x.dtype == dtype
    if transpose:
        a, c = np.roll(c, 1, -1), np.roll(a, -1, -1)
    good = np.isfinite(np.asarray(tridiag.solve(a, b, c, d, periodic=periodic, check=False))).all(-1)
    assert good[3] and (backward_error(a, b, c, d, x, periodic)[good] <= 8 * np.finfo(dtype).eps).all()


@pytest.mark.parametrize("shape", [(64, 320), (1, 40_000), (2, 17_600)])
def test_many_and_long_systems(shape: tuple[int, int]) -> None:
    """Those that are joined by two exchanges, and those whose rows on a device are cut into chunks."""
    a, b, c, d = systems(np.random.default_rng(0), shape, "float64", hard=False)
    repeats = 10 if shape[0] == 64 else 1
    a, b, c, d = (np.tile(x, (repeats, 1)) for x in (a, b, c, d))
    x = jax.jit(solve)(*placed(mesh_of(8), (a, b, c, d)))
    assert (backward_error(a, b, c, d, x) <= 8 * EPS).all()


@pytest.mark.parametrize("transpose", [False, True])
def test_long_hard_systems_are_cut_into_chunks_when_they_are_gathered(transpose: bool) -> None:
    """Else each device eliminates them row by row, with a workspace of kilobytes a row."""
    a, b, c, d = systems(np.random.default_rng(0), (3, 20_000), "float64", hard=True)
    given = placed(mesh_of(8), (a, b, c, d))
    function = jax.jit(lambda *v: solve(*v, transpose=transpose))
    assert "tridiag_partition" in function.lower(*given).compile().as_text()
    x = function(*given)
    if transpose:
        a, c = np.roll(c, 1, -1), np.roll(a, -1, -1)
    assert (backward_error(a, b, c, d, x) <= 8 * EPS).all()


@pytest.mark.parametrize("n", [9, 83])
def test_lengths_that_the_devices_do_not_divide(n: int) -> None:
    a, b, c, d = systems(np.random.default_rng(0), (5, n), "float64", hard=False)
    sharding = NamedSharding(mesh_of(8), ROWS)

    def function(*v: Any) -> Any:
        given = [jax.lax.with_sharding_constraint(x, sharding) for x in v]
        return jax.lax.with_sharding_constraint(solve(*given), sharding)

    def loss(function: Any) -> Any:
        return lambda *v: (function(*v) ** 2 * np.arange(n)).sum()

    assert (backward_error(a, b, c, d, jax.jit(function)(a, b, c, d)) <= 8 * EPS).all()
    found = jax.jit(jax.grad(loss(function), ALL))(a, b, c, d)
    for x, y in zip(found, jax.grad(loss(solve), ALL)(*map(jnp.asarray, (a, b, c, d))), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)


def test_eager_calls_and_explicit_axes() -> None:
    arrays = systems(np.random.default_rng(0), (6, 48), "float64", hard=False)
    for kind in (AxisType.Auto, AxisType.Explicit):
        x = solve(*placed(mesh_of(8, kind), arrays))
        assert x.sharding.spec == ROWS
        assert (backward_error(*arrays, x) <= 8 * EPS).all()
        y = tridiag.matmul(*placed(mesh_of(8, kind), [*arrays[:3], x]))
        assert kind == AxisType.Auto or y.sharding.spec == ROWS
        np.testing.assert_allclose(y, arrays[3], rtol=0, atol=1e-13)


def test_two_axes_of_the_mesh_and_one_beside() -> None:
    """The system axis cut over two of three axes, the batch over the other; and along another axis of the array."""
    mesh = jax.make_mesh((2, 2, 2), ("p", "y", "z"), axis_types=(AxisType.Auto,) * 3)
    a, b, c, d = systems(np.random.default_rng(0), (6, 40), "float64", hard=False)
    x = jax.jit(solve)(*placed(mesh, (a, b, c, d), P("p", ("y", "z"))))
    assert (backward_error(a, b, c, d, x) <= 8 * EPS).all()
    turned = [np.ascontiguousarray(v.T) for v in (a, b, c, d)]
    y = jax.jit(lambda *v: solve(*v, axis=0))(*placed(mesh, turned, P(("y", "z"), "p")))
    np.testing.assert_allclose(y.T, x, rtol=1e-12, atol=1e-14)


TURNED = ("z", "y"), ("r", "p", "q"), ("q", "p"), ("r", "q")


@pytest.mark.parametrize("names", TURNED)
def test_neighbours_along_axes_in_another_order_than_the_mesh(names: tuple[str, ...]) -> None:
    """Rows follow each other in the order in which axes are named, which need not be that of the mesh."""
    lengths = (4, 2) if "z" in names else (2, 2, 2)
    mesh = jax.make_mesh(lengths, ("y", "z") if "z" in names else ("p", "q", "r"))
    rows, count = P(names), int(np.prod([mesh.shape[name] for name in names]))

    def beside(x: Any) -> tuple[Any, ...]:
        return exchange.passed(Cut.along(names, mesh.shape), x, x, False)

    given = np.arange(1, count + 1)
    with jax.set_mesh(mesh):
        found = jax.jit(jax.shard_map(beside, mesh=mesh, in_specs=rows, out_specs=rows))(jax.device_put(given, rows))
    np.testing.assert_array_equal(found, [[0, *given[:-1]], [*given[1:], 0]])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_masks_along_axes_in_another_order_than_the_mesh(transpose: bool, inside: bool) -> None:
    """Which couplings a mask cuts at the ends of devices, and their products, follow the order of the rows."""
    mesh = jax.make_mesh((2, 2), ("y", "z"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
    rng, n, spec = np.random.default_rng(0), 520, P(None, ("z", "y"))
    a, b, c, d = systems(rng, (6, n), "float64", hard=False)
    where = rng.uniform(size=(6, n)) < 0.7

    def each(*v: Any) -> Any:
        *v, keep = v
        return solve(*v, where=keep, transpose=transpose, **({"axis_name": ("z", "y")} if inside else {}))

    function = jax.shard_map(each, mesh=mesh, in_specs=(spec,) * 5, out_specs=spec) if inside else each

    def everything(function: Any, arrays: Any) -> Any:
        pull = jax.vjp(lambda *v: function(*v, arrays[4]), *arrays[:4])[1]
        tangent = jax.jvp(lambda *v: function(*v, arrays[4]), arrays[:4], [x / 2 for x in arrays[:4]])[1]
        return function(*arrays), pull(jnp.asarray(d)), tangent

    arrays = [jnp.asarray(x) for x in (a, b, c, d, where)]
    wanted = everything(lambda *v: solve(*v[:4], where=v[4], transpose=transpose), arrays)
    found = jax.jit(functools.partial(everything, function))(placed(mesh, arrays, spec))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)


def test_shared_matrices_and_constants() -> None:
    mesh, rng = mesh_of(8), np.random.default_rng(0)
    a, b, c, _ = systems(rng, (64,), "float64", hard=False)
    d = rng.standard_normal((3, 2, 64))
    given = [*placed(mesh, (a, b, c), P("z")), *placed(mesh, [d], P(None, None, "z"))]
    np.testing.assert_allclose(jax.jit(solve)(*given), tridiag.solve(a, b, c, d), rtol=1e-12, atol=1e-14)
    x = jax.jit(lambda d: solve(-1.0, 4.0, -1.0, d))(given[3])
    np.testing.assert_allclose(x, tridiag.solve(-1.0, 4.0, -1.0, d), rtol=1e-12, atol=1e-14)
    z = jax.jit(lambda d: solve(-1.0, 4.0, -1.0, d + 1j))(given[3])
    np.testing.assert_allclose(z, tridiag.solve(-1.0, 4.0, -1.0, d + 1j), rtol=1e-12, atol=1e-14)


@pytest.mark.smoke
def test_one_bad_system_harms_no_other() -> None:
    """Singular is NaN, NaN stays where it is; eager calls name the singular one and its row."""
    a, b, c, d = systems(np.random.default_rng(0), (4, 32), "float64", hard=False)
    b[1, 20] = a[1, 20] = c[1, 20] = 0
    d[2, 3] = np.nan
    given = placed(mesh_of(8), (a, b, c, d))
    x = np.asarray(jax.jit(solve)(*given))
    assert np.isnan(x[1]).all() and np.isnan(x[2]).any()
    assert (backward_error(a[::3], b[::3], c[::3], d[::3], x[::3]) <= 8 * EPS).all()
    with pytest.raises(tridiag.SingularSystemError, match=r"1 of 4 systems .* index \(1\), column"):
        solve(*given)


@pytest.mark.parametrize("asked", ["neighbours", "all"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(
    ("devices", "rows", "dtype"), [(2, 40, "float64"), (8, 8, "float32"), (8, 40, "complex128"), (3, 300, "float64")]
)
def test_singular_systems_are_found(
    monkeypatch: pytest.MonkeyPatch, devices: int, rows: int, dtype: str, transpose: bool, asked: str
) -> None:
    """With right sides that they have solutions for, by factors too: rounding does not make them regular."""
    monkeypatch.setattr(split, "WORTH_ASKING", 0 if asked == "neighbours" else 1e9)
    n = devices * rows
    a, b, c = conductors(np.random.default_rng(0), 25, n, 9, dtype)
    a[::2, rows + 2] = c[::2, rows + 1] = 0  # a cut goes through a short one
    b[::2, rows + 1] = -a[::2, rows + 1]
    d = np.zeros((25, n), dtype)
    d[:, 0], d[:, 1] = 1, -1
    b[5] += 1
    given = placed(mesh_of(devices), (a, b, c, d))
    with pytest.raises(tridiag.SingularSystemError, match="24 of 25 systems are singular"):
        solve(*given, transpose=transpose)
    status = tridiag.factor(*given[:3], backend="numba_thomas").status
    assert np.flatnonzero(status == 0).tolist() == [5]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.usefixtures("always_asked")
def test_inside_shard_map(transpose: bool, periodic: bool, masked: bool, rows: int) -> None:
    """Value, gradient and tangent, by the name of the axis, of couplings that reach far and of such that decay."""
    n, rng = 8 * rows, np.random.default_rng(0)
    arrays = systems(rng, (3, n), "float64", hard=False)
    weights, where = rng.standard_normal((3, n)), rng.random((3, n)) < 0.8 if masked else None
    options = {"transpose": transpose, "periodic": periodic}
    if not periodic:
        arrays[0][:, 0] = arrays[2][:, -1] = np.nan

    def local(*v: Any) -> Any:
        return solve(*v[:4], where=v[4] if masked else None, axis_name="z", **options)

    extra = () if where is None else (where,)
    function = jax.shard_map(local, mesh=mesh_of(8), in_specs=(ROWS,) * (4 + masked), out_specs=ROWS)
    tangents = tuple(jnp.asarray(rng.standard_normal((3, n))) for _ in ALL)

    def everything(function: Any) -> Any:
        def found(*v: Any) -> Any:
            x, dot = jax.jvp(lambda *v: function(*v, *extra), v, tangents)
            return x, dot, jax.grad(lambda *v: (function(*v, *extra) * weights).sum(), ALL)(*v)

        return jax.jit(found)(*arrays)

    wanted = everything(lambda *v: solve(*v[:4], where=where, **options))
    for x, y in zip(jax.tree.leaves(everything(function)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)


def test_every_axis_of_the_mesh_and_vmap_inside_shard_map() -> None:
    mesh = jax.make_mesh((2, 4), ("y", "z"), axis_types=(AxisType.Auto,) * 2)
    arrays = systems(np.random.default_rng(0), (3, 16), "float64", hard=False)

    def local(*v: Any) -> Any:
        return jax.vmap(lambda *row: solve(*row, axis_name=("y", "z")))(*v)

    spec = P(None, ("y", "z"))
    x = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(spec,) * 4, out_specs=spec))(*arrays)
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


def test_backends_without_parts_gather() -> None:
    arrays = systems(np.random.default_rng(0), (3, 16), "float64", hard=False)
    function = jax.shard_map(
        lambda *v: tridiag.solve(*v, axis_name="z", backend="jax_scan"),
        mesh=mesh_of(4),
        in_specs=(ROWS,) * 4,
        out_specs=ROWS,
    )
    assert (backward_error(*arrays, jax.jit(function)(*arrays)) <= 8 * EPS).all()


def test_axis_names_that_are_none() -> None:
    with pytest.raises(
        ValueError, match=r"axis_name='z': z is no axis of jax.shard_map here; call tridiag.solve inside"
    ):
        tridiag.solve(1.0, 4.0, 1.0, np.ones(3), axis_name="z")
    with pytest.raises(ValueError, match=r"axis_name=\('z', 'z'\) names an axis of the mesh twice; name each once"):
        tridiag.solve(1.0, 4.0, 1.0, np.ones(3), axis_name=("z", "z"))
    with pytest.raises(TypeError, match="axis_name is 3; wanted the name of an axis"):
        tridiag.solve(1.0, 4.0, 1.0, np.ones(3), axis_name=3)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ what is exchanged


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize(
    ("devices", "rows", "count", "transpose", "alone", "besides"),
    [
        (8, 20, 448, False, (2, 4), (1, 6 * 7)),
        (8, 20, 448, True, (2, 6), (1, 8 * 7)),  # the neighbours have the couplings
        (8, 20, 1024, False, (2, 4), (2, 9 * 7 / 8)),  # each device joins its share
        (8, 20, 8, False, (1, 6 * 7), (0, 0)),  # few words
        (8, 4, 448, False, (1, 6 * 7), (0, 0)),  # too few rows for anything to decay
        (2, 4, 8, True, (1, 3), (0, 0)),
        (2, 4, 8, False, (1, 2), (0, 0)),  # two devices are neighbours, and there are no others
    ],
)
def test_words_received(devices: int, rows: int, count: int, transpose: bool, alone: Any, besides: Any) -> None:
    """Four numbers of neighbours, and six of every device where these are not enough; never an array."""
    from collectives import exchange

    arrays = placed(mesh_of(devices), systems(np.random.default_rng(0), (count, devices * rows), "float64", hard=False))
    program = compiled(lambda *v: solve(*v, transpose=transpose), *arrays)
    found = exchange(program, devices)
    assert (found.collectives, found.words / count) == alone
    if besides[0]:
        both = exchange(program, devices, taken=[0])
        assert (both.collectives - found.collectives, (both.words - found.words) / count) == besides


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize(("shape", "all_tell"), [((8, 1024), 6 * 7), ((1, 8 * 16_000), 6 * 7)])
def test_words_where_ends_of_devices_are_enough(shape: tuple[int, int], all_tell: int) -> None:
    """Four of neighbours; those of all only behind the flag."""
    from collectives import exchange

    program = compiled(solve, *placed(mesh_of(8), systems(np.random.default_rng(0), shape, "float64", hard=False)))
    found, both = exchange(program, 8), exchange(program, 8, taken=[1])
    assert found == (2, 4 * shape[0])
    assert (both.collectives - found.collectives, both.words - found.words) == (1, all_tell * shape[0])


@pytest.mark.usefixtures("benchmarks_on_path")
def test_collectives_of_a_gradient() -> None:
    """One exchange in either direction."""
    from collectives import exchange

    for count, alone in ((8, False), (448, True)):
        arrays = placed(mesh_of(8), systems(np.random.default_rng(0), (count, 160), "float64", hard=False))
        program = compiled(jax.grad(lambda *v: (solve(*v) ** 2).sum(), ALL), *arrays)
        of_all = (6 + 10) * 7
        assert exchange(program, 8) == ((4, (4 + 8) * count) if alone else (2, of_all * count))
        assert not alone or exchange(program, 8, taken=[0, 2]) == (6, (4 + 8 + of_all) * count)


# ------------------------------------------------------------------------------------------------ whole systems


@pytest.mark.parametrize(
    ("devices", "n", "count", "dtype", "options"),
    [
        (8, 16, 11, "float64", {}),
        (8, 61, 9, "complex128", {"periodic": True}),
        (3, 7, 5, "float32", {"transpose": True}),
        (2, 2, 3, "float64", {"pivoting": True}),
        (8, 5, 8, "float64", {"periodic": True, "transpose": True}),
    ],
)
@pytest.mark.usefixtures("whole_if_short")
def test_short_systems_are_exchanged_whole(devices: int, n: int, count: int, dtype: str, options: Any) -> None:
    """Systems that the devices do not divide, rows either, masks, shared and constant bands, real ones of complex
    systems; with gradients: as on one device."""
    rng = np.random.default_rng(n)
    a, b, c, d = systems(rng, (count, n), dtype, hard=False)
    keep, kind = rng.uniform(size=(count, n)) < 0.8, d.real.dtype
    eps, mesh = np.finfo(dtype).eps, mesh_of(devices)
    rows = NamedSharding(mesh, ROWS)

    def cut(*given: Any, **more: Any) -> Any:
        return solve(*(jax.lax.with_sharding_constraint(v, rows) for v in given), **options, **more)

    def close(found: Any, wanted: Any) -> None:
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=64 * eps * np.abs(y).max())

    given = [(a, b, c), (a[:1], b[:1], c[:1]), (a, 3 + 0 * b[:, :1], c), (a.real, 3 + abs(b), c[:1].real)]
    for bands, where in zip(given, (keep, None, None, keep), strict=True):
        arrays = [*(np.asarray(x, x.dtype if np.iscomplexobj(x) else kind) for x in bands), d]
        found = jax.jit(lambda *v, where=where: cut(*v, where=where))(*arrays)
        close(found, tridiag.solve(*arrays, **options, where=where))
    slopes = [
        jax.jit(jax.grad(lambda *v, f=f: (abs(f(*v)) ** 2).sum(), ALL))(a, b, c, d) for f in (cut, one_device(options))
    ]
    close(*slopes)


def one_device(options: Any) -> Any:
    return lambda *given: solve(*given, **options)


@pytest.mark.usefixtures("benchmarks_on_path", "whole_if_short")
@pytest.mark.parametrize("pivoting", ["auto", True])
def test_words_of_whole_systems(pivoting: Any) -> None:
    """Four operands one way and a solution back, each in one message; where all rows are pivoted, of any length."""
    from collectives import exchange

    for rows in (2, 40) if pivoting is True else (2, 32):
        arrays = placed(mesh_of(8), systems(np.random.default_rng(0), (64, 8 * rows), "float64", hard=False))
        found = exchange(compiled(lambda *v: solve(*v, pivoting=pivoting), *arrays), 8)
        assert found == (2, 5 * rows * 7 / 8 * 64)
        told = repr(tridiag.explain("solve", *arrays, pivoting=pivoting))
        assert f"whole systems by two all_to_all, {5 * rows * 7 / 8:.3g} words received for each system" in told


# ------------------------------------------------------------------------------------------------ neighbours


@pytest.fixture
def always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours are asked first also of few systems."""
    monkeypatch.setattr(split, "WORTH_ASKING", 0)


def bands_of(kind: str, shape: tuple[int, int], periodic: bool = False) -> list[Any]:
    """Systems whose couplings decay within some rows, or do not."""
    rng = np.random.default_rng(0)
    a, b, c, d = systems(rng, shape, "float64", hard=False)
    if kind == "slow":
        a, b, c = (np.full(shape, v) for v in (-1.0, 2.01, -1.0))
    elif kind == "one way":
        a, b, c = (np.full(shape, v) for v in (-1.0, 1.01 if periodic else 1.0, 0.0))
    elif kind == "point source":
        d = np.zeros(shape)
        d[:, shape[1] // 3] = 1
    elif kind == "hard":
        b[:, ::7] = 0
    return [a, b, c, d]


@pytest.mark.parametrize(
    ("kind", "all_asked"),
    [("decayed", False), ("hard", False), ("slow", True), ("one way", True), ("point source", True)],
)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.usefixtures("always_asked")
def test_who_is_asked(monkeypatch: pytest.MonkeyPatch, kind: str, all_asked: bool, transpose: bool) -> None:
    """Neighbours alone where couplings have decayed, as measured by what they would add: nothing decays beside zeros.

    Systems without certificate are solved whole in any case, and take no others with them.
    """
    every, shape = split.join_all, (5, 8 * 48)
    bands = [np.concatenate(pair) for pair in zip(bands_of("decayed", shape), bands_of(kind, shape), strict=True)]
    monkeypatch.setattr(split, "join_all", lambda *given: jax.tree.map(lambda x: x * jnp.nan, every(*given)))
    monkeypatch.setattr(split, "solve_whole", lambda form, cut, own, x, *_: x)
    x = np.asarray(jax.jit(lambda *v: solve(*v, transpose=transpose))(*placed(mesh_of(8), bands)))
    assert np.isnan(x[:5]).any() == all_asked
    assert kind != "hard" or np.isnan(x[5:]).any()


@pytest.mark.parametrize(
    ("kind", "enough"),
    [("decayed", True), ("hard", False), ("slow", False), ("one way", False), ("point source", False)],
)
def test_ends_of_devices_are_enough_where_couplings_decay(
    monkeypatch: pytest.MonkeyPatch, kind: str, enough: bool
) -> None:
    """Then no pass goes over all rows but the one that writes x; what it finds to be wrong is solved another way."""
    monkeypatch.setattr(split, "solve_reduced", lambda form, cut, own, *_: (jnp.full(own.shape, jnp.nan), []))
    bands = bands_of("decayed", (3, 3 * 256)), bands_of(kind, (3, 3 * 256))
    given = [np.concatenate(pair) for pair in zip(*bands, strict=True)]
    x = np.asarray(jax.jit(lambda *v: solve(*v))(*placed(mesh_of(3), given)))
    assert np.isnan(x).any() == (not enough)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("devices", "rows"), [(2, 48), (3, 48), (8, 48), (2, 128), (3, 129)])
@pytest.mark.usefixtures("always_asked")
def test_decay_of_all_kinds_in_one_batch(devices: int, rows: int, transpose: bool, periodic: bool) -> None:
    """Decayed, slow and uncertified systems side by side; each is right, alone and with the others."""
    kinds, shape = ("decayed", "slow", "one way", "point source", "hard"), (2, devices * rows)
    every = {kind: bands_of(kind, shape, periodic) for kind in kinds}
    every["all"] = [np.concatenate(same) for same in zip(*every.values(), strict=True)]
    function = jax.jit(lambda *v: solve(*v, transpose=transpose, periodic=periodic))
    for kind, (a, b, c, d) in every.items():
        if not periodic:
            a[:, 0] = c[:, -1] = np.nan
        x = function(*placed(mesh_of(devices), (a, b, c, d)))
        if transpose:
            a, c = np.roll(c, 1, -1), np.roll(a, -1, -1)
        assert (backward_error(a, b, c, d, x, periodic) <= 8 * EPS).all(), kind


def test_explain_tells_what_is_exchanged_of_transposed_systems() -> None:
    """Couplings too; `test_words_received` counts the same in the program."""
    arrays = systems(np.random.default_rng(0), (448, 160), "float64", hard=False)
    told = repr(tridiag.explain("solve", *placed(mesh_of(8), arrays), transpose=True))
    assert "8 devices: neighbours alone, 6 words received for each system, where couplings decay within devices" in told
    assert "else one all_gather besides, 56 words" in told
    many = placed(mesh_of(8), [np.tile(x, (2, 1)) for x in arrays])
    assert "else two all_to_all besides, 9.62 words" in repr(tridiag.explain("solve", *many, transpose=True))
    two = repr(tridiag.explain("solve", *placed(mesh_of(2), arrays), transpose=True))
    assert "2 devices: neighbours alone, 3 words" in two


def test_explain_tells_what_is_exchanged() -> None:
    arrays = systems(np.random.default_rng(0), (8, 160), "float64", hard=False)
    told = repr(tridiag.explain("solve", *placed(mesh_of(8), arrays)))
    assert "the rows of a system lie on 8 devices: one all_gather, 42 words received for each system" in told
    more, many = (placed(mesh_of(8), [np.tile(x, (count, 1)) for x in arrays]) for count in (50, 100))
    told = repr(tridiag.explain("solve", *more))
    assert "8 devices: neighbours alone, 4 words received for each system, where couplings decay within devices" in told
    assert "else one all_gather besides, 42 words" in told
    assert "else two all_to_all besides, 7.88 words" in repr(tridiag.explain("solve", *many))
    short = placed(mesh_of(8), [np.tile(x[:, :16], (100, 1)) for x in arrays])
    assert "8 devices: two all_to_all, 7.88 words received for each" in repr(tridiag.explain("solve", *short))
    assert "2 devices: neighbours alone, 2 words" in repr(tridiag.explain("solve", *placed(mesh_of(2), arrays)))
    assert "and are gathered" in repr(tridiag.explain("solve", *placed(mesh_of(8), arrays), backend="jax_scan"))
    assert tridiag.explain("solve", *placed(mesh_of(8), arrays, P("z"))).exchange is None
