"""Matrices whose rows lie on several devices, factored once. Run by `test_sharding.py`, in their own process."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from split_rows import ALL, EPS, ROWS, bands_of, mesh_of, placed
from test_jax_program import compiled
from test_parts import backward_error, systems

import tridiag
from tridiag.xla import split

KNOWN = (0, 1)  # the first conditional of a program, and its branch where factors are of as many devices


def factor(*bands: Any, **options: Any) -> Any:
    return tridiag.factor(*bands, backend="numba_thomas", **options)


def solved(matrix: Any, d: Any) -> Any:
    return matrix.solve(d)


solved_in_jit = jax.jit(solved)
both_in_jit = jax.jit(lambda a, b, c, d: factor(a, b, c).solve(d))


@pytest.fixture
def only_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would exchange more than two numbers, or solve whole systems, gives NaN."""
    every = split.join_all

    def join(*given: Any) -> Any:
        return every(*given) if len(given) == 6 else jax.tree.map(lambda x: x * jnp.nan, every(*given))

    monkeypatch.setattr(split, "join_all", join)
    monkeypatch.setattr(split, "solve_whole", lambda form, cut, own, x, *_: x * jnp.nan)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("devices", "rows", "dtype"),
    [(8, 1, "float64"), (2, 2, "float64"), (3, 2, "float32"), (8, 5, "complex128"), (3, 33, "float64")],
)
@pytest.mark.parametrize("hard", [False, True])
def test_one_answer(devices: int, rows: int, dtype: str, periodic: bool, hard: bool) -> None:
    """As small a backward error as on one device, of hard matrices too, zero diagonals and odd parts among them."""
    rng, n = np.random.default_rng(rows), devices * rows
    a, b, c, d = systems(rng, (9, n), dtype, hard)
    if hard:
        b[:, 2::5] = 0
        b[3] += 4
    if not periodic:
        a[:, 0] = c[:, -1] = np.nan
    *bands, right = placed(mesh_of(devices), (a, b, c, d))
    matrix = factor(*bands, periodic=periodic)
    one = tridiag.factor(a, b, c, periodic=periodic)
    np.testing.assert_array_equal(np.asarray(matrix.status) > 0, one.status > 0)
    good = one.status == 0
    assert good[3]
    for x in (matrix.solve(right) if good.all() else None, solved_in_jit(matrix, right)):
        if x is not None:
            assert x.dtype == dtype and x.sharding.spec == ROWS
            assert (backward_error(a, b, c, d, x, periodic)[good] <= 8 * np.finfo(dtype).eps).all()


@pytest.mark.parametrize("shape", [pytest.param((8, 160), marks=pytest.mark.smoke), (640, 160), (2, 17_600)])
@pytest.mark.usefixtures("only_known")
def test_what_joins_matrices_is_kept(shape: tuple[int, int]) -> None:
    """Few, many, and long systems: in eager calls, as an argument, and factored in the same program."""
    arrays = systems(np.random.default_rng(0), shape, "float64", hard=False)
    given = placed(mesh_of(8), arrays)
    matrix = factor(*given[:3])
    for x in (matrix.solve(given[3]), solved_in_jit(matrix, given[3]), both_in_jit(*given)):
        assert (backward_error(*arrays, x) <= 8 * EPS).all()


@pytest.mark.usefixtures("only_known")
def test_one_matrix_for_many_right_sides() -> None:
    """Of more axes too, complex ones, and of explicit axes of a mesh."""
    rng = np.random.default_rng(0)
    a, b, c, _ = systems(rng, (64,), "float64", hard=False)
    d = rng.standard_normal((3, 70, 64))
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = mesh_of(8, kind)
        matrix = factor(*placed(mesh, (a, b, c), P("z")))
        for right in (d, d[0, 0], d[:2] * (1 + 2j)):
            spec = P(*[None] * (right.ndim - 1), "z")
            x = matrix.solve(*placed(mesh, [right], spec))
            np.testing.assert_allclose(x, tridiag.solve(a, b, c, right), rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("only_known")
def test_lengths_that_the_devices_do_not_divide_and_masks() -> None:
    rng, n = np.random.default_rng(0), 83
    a, b, c, d = systems(rng, (5, n), "float64", hard=False)
    where = rng.random((5, n)) < 0.7
    where[2, 40:60] = False
    sharding = NamedSharding(mesh_of(8), ROWS)

    def function(masked: bool, *v: Any) -> Any:
        a, b, c, d, where = (jax.lax.with_sharding_constraint(x, sharding) for x in v)
        x = factor(a, b, c, where=where if masked else None).solve(d)
        return jax.lax.with_sharding_constraint(x, sharding)

    for masked in (False, True):
        wanted = tridiag.solve(a, b, c, d, where=where if masked else None)
        x = jax.jit(function, static_argnums=0)(masked, a, b, c, d, where)
        np.testing.assert_allclose(x, wanted, rtol=1e-12, atol=1e-14)


def test_another_number_of_devices() -> None:
    """What joins a matrix on eight devices joins none on four, and on one there is nothing to join."""
    arrays = systems(np.random.default_rng(0), (8, 48), "float64", hard=False)
    mesh = jax.make_mesh((2, 4), ("y", "z"), axis_types=(AxisType.Auto,) * 2)
    specs = P(None, ("y", "z")), ROWS, P("y", "z"), P(("y", "z")), P()
    for spec in specs:
        matrix = factor(*placed(mesh, arrays[:3], spec))
        for other in specs:
            (d,) = placed(mesh, arrays[3:], other)
            assert (backward_error(*arrays, solved_in_jit(matrix, d)) <= 8 * EPS).all()


@pytest.mark.smoke
def test_one_bad_matrix_harms_no_other() -> None:
    """Singular is NaN, its status tells the row; NaN stays where it is."""
    a, b, c, d = systems(np.random.default_rng(0), (5, 32), "float64", hard=False)
    b[1, 20] = a[1, 20] = c[1, 20] = 0
    a[3], b[3], c[3] = -1, 2, -1
    b[3, 0] = b[3, -1] = 1  # each part is regular
    d[2, 3] = np.nan
    *bands, right = placed(mesh_of(8), (a, b, c, d))
    matrix = factor(*bands)
    np.testing.assert_array_equal(matrix.status, tridiag.factor(a, b, c).status)
    assert list(np.flatnonzero(np.asarray(matrix.status))) == [1, 3]
    x = np.asarray(solved_in_jit(matrix, right))
    assert np.isnan(x[1]).all() and np.isnan(x[2]).any()
    assert (backward_error(a[::4], b[::4], c[::4], d[::4], x[::4]) <= 8 * EPS).all()
    with pytest.raises(tridiag.SingularSystemError, match=r"index \(1\), column"):
        matrix.solve(right)


@pytest.mark.parametrize("kind", ["slow", "one way", "point source", "hard"])
def test_couplings_that_do_not_decay(kind: str) -> None:
    arrays = [
        np.concatenate(pair) for pair in zip(bands_of("decayed", (2, 384)), bands_of(kind, (2, 384)), strict=True)
    ]
    given = placed(mesh_of(8), arrays)
    x = factor(*given[:3]).solve(given[3])
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_inside_shard_map(transpose: bool, periodic: bool, masked: bool) -> None:
    """Value, gradient and tangent, by the name of the axis; the status is alike on all devices."""
    n, rng = 8 * 7, np.random.default_rng(0)
    arrays = systems(rng, (3, n), "float64", hard=False)
    weights, where = rng.standard_normal((3, n)), rng.random((3, n)) < 0.8 if masked else None
    if not periodic:
        arrays[0][:, 0] = arrays[2][:, -1] = np.nan

    def local(*v: Any) -> Any:
        matrix = factor(*v[:3], where=v[4] if masked else None, axis_name="z", periodic=periodic)
        return matrix.solve(v[3], transpose=transpose), matrix.status

    extra = () if where is None else (where,)
    inside = jax.shard_map(local, mesh=mesh_of(8), in_specs=(ROWS,) * (4 + masked), out_specs=(ROWS, P()))
    tangents = tuple(jnp.asarray(rng.standard_normal((3, n))) for _ in ALL)

    def everything(function: Any) -> Any:
        def found(*v: Any) -> Any:
            x, dot = jax.jvp(lambda *v: function(*v, *extra), v, tangents)
            return x, dot, jax.grad(lambda *v: (function(*v, *extra) * weights).sum(), ALL)(*v)

        return jax.jit(found)(*arrays)

    def whole(*v: Any) -> Any:
        return tridiag.solve(*v[:4], where=where, transpose=transpose, periodic=periodic)

    found = everything(lambda *v: inside(*v)[0])
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(everything(whole)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)
    assert not np.asarray(jax.jit(inside)(*arrays, *extra)[1]).any()


def test_gradients_outside_of_shard_map() -> None:
    """Those of a matrix that is an argument, of its right sides and its entries."""
    a, b, c, d = systems(np.random.default_rng(0), (3, 40), "float64", hard=False)
    mesh = mesh_of(8)

    def loss(function: Any) -> Any:
        return lambda *v: (function(*v) ** 2).sum()

    wanted = jax.grad(loss(tridiag.solve), ALL)(*map(jnp.asarray, (a, b, c, d)))
    given = placed(mesh, (a, b, c, d))
    found = jax.jit(jax.grad(loss(lambda *v: factor(*v[:3]).solve(v[3])), ALL))(*given)
    matrix = factor(*given[:3])
    alone = jax.jit(jax.grad(lambda d, matrix: (matrix.solve(d) ** 2).sum()))(given[3], matrix)
    for x, y in zip((*found, alone), (*wanted, wanted[3]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)


def test_vmap_of_matrices_and_of_right_sides() -> None:
    arrays = systems(np.random.default_rng(0), (3, 40), "float64", hard=False)
    given = placed(mesh_of(8), arrays)
    matrix = jax.vmap(factor)(*given[:3])
    x = jax.jit(jax.vmap(solved))(matrix, given[3])
    assert matrix.status.shape == (3,) and (backward_error(*arrays, x) <= 8 * EPS).all()
    one = factor(*placed(mesh_of(8), [v[0] for v in arrays[:3]], P("z")))
    x = jax.jit(jax.vmap(one.solve))(given[3])
    bands = (np.broadcast_to(v[0], v.shape) for v in arrays[:3])
    assert (backward_error(*bands, arrays[3], x) <= 8 * EPS).all()


@pytest.mark.parametrize("devices", [1, 8])
def test_status_and_determinants_inside_shard_map(devices: int) -> None:
    """Those of the whole matrices, the same on all devices, also where there is but one."""

    def local(*bands: Any) -> Any:
        matrix = factor(*bands, axis_name="z")
        return matrix.status, *matrix.slogdet()

    bands = systems(np.random.default_rng(0), (3, 16), "float64", hard=False)[:3]
    bands[1][1, 12] = bands[0][1, 12] = bands[2][1, 12] = 0
    inside = jax.shard_map(local, mesh=mesh_of(devices), in_specs=(ROWS,) * 3, out_specs=P())
    status, *found = jax.jit(inside)(*bands)
    np.testing.assert_array_equal(status, tridiag.factor(*bands).status)
    assert list(np.flatnonzero(np.asarray(status))) == [1]
    for x, y in zip(found, tridiag.slogdet(*bands), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13)
    with pytest.raises(ValueError, match=r"axis_name='z': z is no axis of jax.shard_map here; call tridiag.factor"):
        factor(*bands, axis_name="z")


# ------------------------------------------------------------------------------------------------ what is exchanged


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize(
    ("devices", "count", "wanted"),
    [(8, 8, (1, 2 * 7)), (2, 8, (1, 2)), (8, 1024, (2, 5 * 7 / 8))],
)
def test_words_of_a_later_solve(devices: int, count: int, wanted: Any) -> None:
    """Two numbers of every device, or those of its share and what it tells of them; never an array."""
    from collectives import exchange

    given = placed(mesh_of(devices), systems(np.random.default_rng(0), (count, devices * 20), "float64", hard=False))
    program = compiled(solved, factor(*given[:3]), given[3])
    found = exchange(program, devices, taken=[KNOWN])
    assert (found.collectives, found.words / count) == wanted
    assert exchange(program, devices) == (0, 0)


@pytest.mark.usefixtures("benchmarks_on_path")
def test_words_of_factoring() -> None:
    """Four numbers of every device, once; nothing for a status that is not read."""
    from collectives import exchange

    given = placed(mesh_of(8), systems(np.random.default_rng(0), (8, 160), "float64", hard=False))
    program = compiled(lambda a, b, c, d, e: (m := factor(a, b, c)).solve(d) + m.solve(e), *given, given[3])
    assert exchange(program, 8) == (1, 4 * 7 * 8)
    assert exchange(program, 8, taken=[KNOWN]) == (2, (4 + 2) * 7 * 8)


def test_explain_tells_what_is_exchanged() -> None:
    arrays = systems(np.random.default_rng(0), (8, 160), "float64", hard=False)[:3]
    told = repr(tridiag.explain("factor", *placed(mesh_of(8), arrays), backend="numba_thomas"))
    assert "the rows of a system lie on 8 devices: one all_gather, 28 words received for each system" in told
    assert "each later solve one all_gather, 14 words" in told
    many = placed(mesh_of(8), [np.tile(x, (100, 1)) for x in arrays])
    assert "each later solve two all_to_all, 4.38 words" in repr(tridiag.explain("factor", *many))
    assert "and are gathered" in repr(tridiag.explain("factor", *many, backend="jax_scan"))
