"""That a matrix eliminated once solves as `solve` does, owns what it needs, and keeps the promise it was made with."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import EPS, REAL, Subject, assert_solves, dense, dominant, dtype_name, noise, oracle, to_numpy, uniform

import tridiag
from tridiag.backends import BACKENDS
from tridiag.problems.forms import Form

pytestmark = pytest.mark.only(verb="factor")
numba_thomas = BACKENDS["numba_thomas"].module()
MASK = np.random.default_rng(3).uniform(size=(4, 20)) < 0.7


def solve(backend: Subject, matrix: tridiag.Factorization, d: np.ndarray, **options: bool) -> np.ndarray:
    return to_numpy(matrix.solve(backend.array(d), **options))


@pytest.mark.parametrize("transpose", [False, True])
def test_every_promise(backend: Subject, pivoting: bool | str, transpose: bool) -> None:
    a, b, c, d = (dominant if pivoting is False else uniform)((40, 20))
    matrix = backend.factor(a, b, c, pivoting=pivoting)
    assert matrix.backend == backend.name
    assert_solves(solve(backend, matrix, d, transpose=transpose), a, b, c, d, transpose=transpose, pivoting=pivoting)


@pytest.mark.only(promises=(True, "auto"))
def test_a_few_hard_systems_among_easy_ones(backend: Subject, pivoting: bool | str) -> None:
    a, b, c, d = dominant((40, 20))
    b[::7] = 0
    matrix = backend.factor(a, b, c, pivoting=pivoting)
    for transpose in (False, True):
        x = solve(backend, matrix, d, transpose=transpose)
        assert_solves(x, a, b, c, d, transpose=transpose, pivoting=pivoting)


@pytest.mark.parametrize("transpose", [False, True])
def test_where(backend: Subject, transpose: bool) -> None:
    a, b, c, d = uniform((4, 20))
    matrix = backend.factor(a, b, c, where=MASK)
    assert_solves(solve(backend, matrix, d, transpose=transpose), a, b, c, d, where=MASK, transpose=transpose)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_systems_that_keep_no_row(backend: Subject, dtype: str, transpose: bool) -> None:
    """All of those that are eliminated together, and right sides of their own or more."""
    a, b, c, d = dominant((20, 30), dtype)
    where = np.ones((20, 30), bool)
    where[:16] = False
    matrix = backend.factor(a, b, c, where=where)
    for right in (d, np.stack([d, 2 * d])):
        x = solve(backend, matrix, right, transpose=transpose)
        assert not x[..., :16, :].any()
        assert_solves(x[..., 16:, :], a[16:], b[16:], c[16:], right[..., 16:, :], transpose=transpose)


@pytest.mark.only(periodic=True)
@pytest.mark.parametrize("transpose", [False, True])
def test_periodic(backend: Subject, transpose: bool) -> None:
    a, b, c, d = dominant((4, 20))
    matrix = backend.factor(a, b, c, periodic=True, where=MASK)
    x = solve(backend, matrix, d, transpose=transpose)
    assert_solves(x, a, b, c, d, periodic=True, where=MASK, transpose=transpose)


def test_pads_and_masked_rows_are_never_read(backend: Subject) -> None:
    a, b, c, d = dominant((4, 20))
    where = MASK.copy()
    where[:, [0, -1]] = True
    bad = [np.where(where, x, np.nan) for x in (a, b, c)]
    bad[0][:, 0] = bad[2][:, -1] = np.inf
    for transpose in (False, True):
        x = solve(backend, backend.factor(*bad, where=where), d, transpose=transpose)
        np.testing.assert_array_equal(x, solve(backend, backend.factor(a, b, c, where=where), d, transpose=transpose))


@pytest.mark.parametrize("transpose", [False, True])
def test_x_of_rows_that_are_taken_out_is_0_beside_nan(backend: Subject, pivoting: bool | str, transpose: bool) -> None:
    """Whether a matrix has a right side of its own or more."""
    a, b, c, d = dominant((4, 20))
    where = np.ones((4, 20), bool)
    where[:, [8, 9, 15]] = False
    b[1, 7] = np.nan
    matrix = backend.factor(a, b, c, pivoting=pivoting, where=where)
    for right in (d, np.stack([d, 2 * d])):
        x = solve(backend, matrix, right, transpose=transpose)
        assert not x[..., ~where].any()
        assert np.isnan(x[..., 1, 7]).all()
        assert np.isfinite(x[..., [0, 2, 3], :]).all()


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_dtypes(backend: Subject, dtype: str) -> None:
    a, b, c, d = uniform((4, 20), dtype)
    x = solve(backend, backend.factor(a, b, c), d)
    assert x.dtype == dtype
    assert_solves(x, a, b, c, d)


def test_halves(backend: Subject) -> None:
    a, b, c, d = (backend.array(x, "float16") for x in dominant((4, 20)))
    x = tridiag.factor(a, b, c, backend=backend.name).solve(d)
    assert dtype_name(x) == "float16"
    assert_solves(to_numpy(x), *map(to_numpy, (a, b, c, d)))


def test_right_sides_of_other_dtypes(backend: Subject) -> None:
    """Complex ones are two real ones; doubles from a single matrix are solved in double."""
    a, b, c, d = dominant((4, 20), "float32")
    matrix = backend.factor(a, b, c)
    for right in (d.astype(np.float64), d + 1j * d[::-1], np.round(9 * d).astype(np.int64)):
        x = solve(backend, matrix, right)
        assert_solves(x, a, b, c, right)
    assert solve(backend, matrix, d.astype(np.float64)).dtype == np.float64


RIGHT_SIDES = {"one": (20,), "as many": (4, 20), "leading": (3, 4, 20), "lent a batch axis": (3, 1, 20)}


@pytest.mark.parametrize("case", RIGHT_SIDES)
def test_right_sides_broadcast(backend: Subject, case: str) -> None:
    a, b, c, _ = dominant((4, 20))
    b[2] = 0
    d = np.random.default_rng(0).standard_normal(RIGHT_SIDES[case])
    x = solve(backend, backend.factor(a, b, c), d)
    assert_solves(x, a, b, c, d)


def test_one_matrix_for_many_right_sides_along_any_axis(backend: Subject) -> None:
    a, b, c, _ = dominant((20,))
    d = np.random.default_rng(0).standard_normal((3, 20, 5))
    x = solve(backend, backend.factor(a, b, c, axis=0), d[0].T[0])
    assert_solves(x, a, b, c, d[0].T[0], axis=0)
    matrix = backend.factor(a[:, None], b[:, None], c[:, None], axis=-2)
    assert_solves(solve(backend, matrix, d), a[:, None], b[:, None], c[:, None], d, axis=-2)


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("n", range(1, 9))
def test_short_right_sides_of_one_matrix(backend: Subject, n: int, dtype: str) -> None:
    """End to end they are sorted in registers, and any others moved on from group to group: all give the same."""
    a, b, c, _ = dominant((n,), dtype)
    rng = np.random.default_rng(0)
    for count in (2, 15, 16, 17, 67):
        room = noise(rng, (3, count, 2 * n), dtype)
        wanted = oracle(a, b, c, room[0, :, :n])
        bound = 8 * EPS[REAL.get(dtype, dtype)]
        for d in (room[0, :, :n].copy(), room[0, :, :n], room[0, ::-1, :n][::-1], np.asfortranarray(room[0, :, :n])):
            for transpose in (False, True):
                x = backend.solve(a, b, c, d, transpose=transpose)
                assert_solves(x, a, b, c, d, transpose=transpose)
                assert_solves(
                    solve(backend, backend.factor(a, b, c), d, transpose=transpose), a, b, c, d, transpose=transpose
                )
            x = backend.solve(a, b, c, d)
            assert abs(x - wanted).max() <= bound * abs(wanted).max()
            own = d.copy()
            np.testing.assert_array_equal(tridiag.solve(a, b, c, own, overwrite_d=True, backend=backend.name), x)
        d = room[..., :n]
        assert_solves(backend.solve(a, b, c, d), a, b, c, d)


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("n", range(1, 9))
def test_short_right_sides_of_many_matrices(backend: Subject, n: int) -> None:
    """End to end they are sorted in registers where all matrices of a thread's share are certified."""
    rng = np.random.default_rng(n)
    for count in (7, 8, 9, 33, 20_011):
        a, b, c, _ = dominant((count, n))
        room = rng.standard_normal((count, 2 * n))
        for hard in (False, True):
            b[count // 2] = 0.0 if hard and n % 2 == 0 else b[count // 2]
            matrix = backend.factor(a, b, c)
            for d in (room[:, :n].copy(), room[:, :n], np.asfortranarray(room[:, :n])):
                x = solve(backend, matrix, d)
                assert_solves(x[-200:], a[-200:], b[-200:], c[-200:], d[-200:])
                assert_solves(x[: count // 2 + 1][-200:], *(v[: count // 2 + 1][-200:] for v in (a, b, c, d)))
                turned = solve(backend, matrix, d, transpose=True)
                assert_solves(turned[-200:], a[-200:], b[-200:], c[-200:], d[-200:], transpose=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_from_the_front_is_that_of_the_matrix(backend: Subject, axis: int) -> None:
    """Right sides with more axes would have another one there: once the substitution ran along that."""
    a, b, c, _ = dominant((20, 20))
    d = np.random.default_rng(0).standard_normal((3, 20, 20))
    matrix = backend.factor(a, b, c, axis=axis)
    assert_solves(solve(backend, matrix, d[0]), a, b, c, d[0], axis=axis)
    with pytest.raises(ValueError, match=rf"axis {axis} of factor counts in a, b, c .* factor with axis={axis - 2}"):
        matrix.solve(backend.array(d))
    assert_solves(solve(backend, backend.factor(a, b, c, axis=axis - 2), d), a, b, c, d, axis=axis - 2)
    sign, logarithm = map(to_numpy, matrix.slogdet())
    np.testing.assert_allclose(sign * logarithm, np.multiply(*tridiag.slogdet(a, b, c, axis=axis)), rtol=1e-12)


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("transpose", [False, True])
def test_any_axes_as_in_solve_or_an_error(backend: Subject, transpose: bool) -> None:
    check_axes(backend, transpose, 60)


@pytest.mark.slow
@pytest.mark.only(library="jax")
@pytest.mark.parametrize("transpose", [False, True])
def test_any_axes_of_jax_as_in_solve_or_an_error(backend: Subject, transpose: bool) -> None:
    check_axes(backend, transpose, 20)


def check_axes(backend: Subject, transpose: bool, count: int) -> None:
    """Any combination of ranks and axes: `factor` and then `solve` is `solve`, or raises and says why."""
    rng, refused = np.random.default_rng(5), 0
    for _ in range(count):
        lengths = [int(rng.integers(1, 4)) for _ in range(rng.integers(1, 4))]
        axis = int(rng.integers(-len(lengths), len(lengths)))
        n = lengths[axis] = int(rng.choice([3, 4, 9]))
        given = []
        for _ in range(4):
            shape = [k if k == n or rng.random() < 0.7 else 1 for k in lengths]
            missing = int(rng.integers(0, (axis % len(lengths)) + 1)) if rng.random() < 0.5 else 0
            given.append(rng.uniform(-1, 1, (n,) if rng.random() < 0.3 else shape[missing:]))
        a, b, c, d = (x.round(2) for x in given)
        b = b + 4
        if rng.random() < 0.3:
            d = rng.uniform(-1, 1, (2, *d.shape))
        try:
            wanted = to_numpy(backend.solve(a, b, c, d, axis=axis, transpose=transpose))
        except ValueError:  # they do not go together
            continue
        try:
            x = solve(backend, backend.factor(a, b, c, axis=axis), d, transpose=transpose)
        except ValueError as error:
            refused += 1
            assert "of factor counts in a, b, c" in str(error) or "out of range" in str(error), (a.shape, d.shape, axis)
        else:
            np.testing.assert_allclose(x, wanted, rtol=1e-9, atol=1e-12, err_msg=f"{a.shape} {d.shape} {axis}")
    assert refused < count / 2


@pytest.mark.only(library=("numpy", "torch", "cupy"))
def test_it_owns_copies(backend: Subject) -> None:
    for kind in (dominant, uniform):
        a, b, c, d = kind((4, 20))
        given = [backend.array(x.copy()) for x in (a, b, c)]
        matrix = tridiag.factor(*given, where=backend.array(MASK), backend=backend.name)
        for x in given:
            x[...] = np.nan
        assert_solves(solve(backend, matrix, d), a, b, c, d, where=MASK)


@pytest.mark.only(library=("numpy", "torch", "cupy"))
def test_out(backend: Subject) -> None:
    a, b, c, d = dominant((4, 20))
    matrix, out = backend.factor(a, b, c), backend.array(np.zeros((4, 20)))
    assert matrix.solve(backend.array(d), out=out) is out
    assert_solves(to_numpy(out), a, b, c, d)
    given = backend.array(d)
    with pytest.raises(ValueError, match="shares memory with d"):
        matrix.solve(given, out=given)


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("kind", [dominant, uniform])
def test_overwrite_d(backend: Subject, kind: Callable[..., Any]) -> None:
    """Each time, for one right side a matrix and for several, d is returned, with the solution in it."""
    a, b, c, d = kind((4, 20))
    matrix = backend.factor(a, b, c, where=MASK)
    for given in (d, np.stack([d, -d, 2 * d])):
        for transpose in (False, True, False):
            right = backend.array(given.copy())
            assert matrix.solve(right, transpose, overwrite_d=True) is right
            assert_solves(to_numpy(right), a, b, c, given, where=MASK, transpose=transpose)
    shared = backend.array(d[0])
    assert_solves(to_numpy(matrix.solve(shared, overwrite_d=True)), a, b, c, d[0], where=MASK)
    np.testing.assert_array_equal(to_numpy(shared), d[0])
    right, out = backend.array(d.copy()), backend.array(np.zeros(d.shape))
    assert matrix.solve(right, out=out, overwrite_d=True) is out
    np.testing.assert_array_equal(to_numpy(right), d)


def test_check(backend: Subject) -> None:
    """As that of `solve`: a singular system raises where values can be read, or is NaN and leaves the others alone."""
    a, b, c, d = dominant((4, 20))
    a[2, 7] = b[2, 7] = c[2, 7] = 0
    matrix, given = backend.factor(a, b, c), backend.array(d)
    for check in (None, True)[backend.device == "cuda" :]:
        with pytest.raises(tridiag.SingularSystemError, match="check=False") as caught:
            matrix.solve(given, check=check)
        np.testing.assert_array_equal(caught.value.indices, [[2]])
    x = to_numpy(matrix.solve(given, check=False))
    assert np.isnan(x[2]).all()
    others = np.array([0, 1, 3])
    assert_solves(x[others], a[others], b[others], c[others], d[others])
    with pytest.raises(TypeError, match="check is"):
        matrix.solve(given, check="no")
    with pytest.raises(TypeError, match="overwrite_d is"):
        matrix.solve(given, overwrite_d="d")


@pytest.mark.only(compiled=True, library="numpy")
def test_check_of_a_solve_in_place(backend: Subject) -> None:
    """A transposed matrix may meet a zero pivot where the matrix has none; d is gone then, and is not solved again."""
    a, b, c = np.array([0, -1, -0.1]), np.array([-0.7, 0.3, 0.1]), np.array([0.7, 0.7, 0])
    matrix = backend.factor(a, b, c)
    assert matrix.status == 0 and tridiag.factor([0, 0.7, 0.7], b, [-1, -0.1, 0]).status != 0
    for d in (np.ones(3), np.ones((2, 3))):
        with pytest.raises(tridiag.SingularSystemError) as caught:
            matrix.solve(right := d.copy(), True, overwrite_d=True)
        assert caught.value.x is right and np.isnan(right).all()
        assert np.isnan(matrix.solve(d.copy(), True, overwrite_d=True, check=False)).all()
        assert_solves(matrix.solve(d.copy(), overwrite_d=True), a, b, c, d)
    missing = np.array([1, np.nan, 1])  # is no singular system
    assert np.isnan(matrix.solve(missing, overwrite_d=True)).any()


@pytest.mark.only(library="jax")
def test_options_inside_jit(backend: Subject) -> None:
    import jax

    a, b, c, d = dominant((4, 20))
    matrix, right = backend.factor(a, b, c), backend.array(d)
    solve = jax.jit(lambda matrix, d: matrix.solve(d, overwrite_d=True, check=False), donate_argnums=1)
    assert_solves(to_numpy(solve(matrix, backend.array(d.copy()))), a, b, c, d)
    with pytest.raises(ValueError, match=r"check=True reads values.*factor\(...\).status"):
        jax.jit(lambda matrix, d: matrix.solve(d, check=True))(matrix, right)
    with pytest.raises(TypeError, match=r"out= cannot be written: JAX arrays are immutable; .* overwrite_d=True"):
        matrix.solve(right, out=right)


def test_the_product_undoes_the_solve(backend: Subject) -> None:
    """It is that of `matmul`, along the axis of the matrices."""
    a, b, c, x = dominant((4, 20))
    for axis, turn in ((-1, np.asarray), (0, np.transpose)):
        given = [backend.array(turn(v)) for v in (a, b, c, x)]
        matrix = tridiag.factor(*given[:3], axis=axis, backend=backend.name, where=backend.array(turn(MASK)))
        y = matrix @ given[3]
        assert type(y) is type(given[3])
        wanted = tridiag.matmul(*map(turn, (a, b, c, x)), axis=axis, where=turn(MASK))
        np.testing.assert_allclose(to_numpy(y), wanted, rtol=1e-6 if wanted.dtype == "f4" else 1e-13, atol=1e-13)
        np.testing.assert_allclose(to_numpy(matrix.solve(y)), np.where(MASK, x, 0) if axis else turn(MASK) * turn(x))
    with pytest.raises(ValueError, match="axis 0 of factor counts in a, b, c"):
        matrix @ backend.array(np.ones((2, 20, 4)))
    with pytest.raises(TypeError):
        np.ones(20) @ matrix


@pytest.mark.only(compiled=True)
def test_what_it_says_of_itself(backend: Subject) -> None:
    """Without a look at arrays, so that a trace, or a tree of anything, can be printed."""
    a, b, c, _ = dominant((4, 20, 3), "float32")
    matrix = backend.factor(a, b[:1], c, axis=1)
    assert (matrix.shape, matrix.axis, dtype_name(matrix)) == ((4, 20, 3), -2, "float32")
    told = f"Factorization(shape=(4, 20, 3), axis=-2, dtype=float32, library={backend.library}, backend={backend.name}"
    assert repr(matrix) == f"{told}, pivoting={backend.usual!r})"
    one = backend.factor(1.0, np.full(5, 4.0), 1.0, axis=2, periodic=True)
    assert (one.shape, one.axis) == ((5,), 2) and repr(one).endswith(", periodic=True)")


@pytest.mark.only(library="jax", compiled=True)
def test_what_it_says_of_itself_in_a_trace(backend: Subject) -> None:
    import jax

    matrix, seen = backend.factor(*dominant((4, 20))[:3]), []

    @jax.jit
    def solve(matrix: tridiag.Factorization, d: Any) -> Any:
        seen.append((repr(matrix), matrix.shape))
        return matrix.solve(d)

    for _ in range(2):
        solve(matrix, backend.array(np.ones((4, 20))))
        assert repr(matrix).startswith("Factorization(shape=(4, 20), axis=-1")
    assert seen == [(repr(matrix), (4, 20))]
    assert repr(jax.tree.map(lambda _: None, matrix)).startswith("Factorization(shape=unknown, axis=-1, dtype=float64")
    assert jax.tree.map(lambda x: x[None], matrix).shape == (1, 4, 20)


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("kind", [dominant, uniform])
def test_few_right_sides_of_one_long_matrix(backend: Subject, kind: Callable[..., Any]) -> None:
    """Fewer than fill a vector, from factors by name, and anew where that is quicker."""
    a, b, c, _ = kind((1, 40_000))
    for count in (1, 3, 8, 9, 33):
        d = np.random.default_rng(count).standard_normal((count, 40_000))
        for matrix in (backend.factor(a, b, c), tridiag.factor(a, b, c)):
            for transpose in (False, True):
                x = matrix.solve(d, transpose)
                y = tridiag.matmul(a, b, c, x, transpose=transpose)
                size = tridiag.matmul(*map(abs, (a, b, c, x)), transpose=transpose) + abs(d)
                assert (abs(y - d) <= 20 * EPS["float64"] * size).all()


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("count", range(1, 9))
def test_a_right_side_each_of_few_matrices(backend: Subject, count: int, axis: int) -> None:
    """Some at a time, where they lie as they like; a matrix without certificate among them is solved as the others."""
    for n in (1, 2, 3, 30):
        a, b, c, d = (np.moveaxis(x, -1, axis) for x in dominant((count, n)))
        d = np.concatenate((d, d), 1)[:, ::-2] if axis == 0 and count > 1 else d[..., ::-1]
        for hard in (False, True):
            if hard:
                b = b.copy()
                np.moveaxis(b, axis, -1)[-1] *= 1e-3
            before, shape = d.copy(), np.broadcast_shapes(b.shape, d.shape)
            for transpose in (False, True):
                matrix = backend.factor(a, b, c, axis=axis)
                x, out = matrix.solve(d, transpose), np.full((*shape[:-1], 2 * shape[-1]), np.nan)[..., ::2]
                matrix.solve(d, transpose, out=out)
                in_place = matrix.solve(d.copy(), transpose, overwrite_d=True)
                assert (x == out).all() and (x == in_place).all() and (d == before).all()
                y = tridiag.matmul(a, b, c, x, axis=axis, transpose=transpose)
                size = tridiag.matmul(*map(abs, (a, b, c, x)), axis=axis, transpose=transpose) + abs(d)
                assert (abs(y - d) <= 20 * EPS["float64"] * size).all()


def test_few_right_sides_that_leave_threads_idle_are_solved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once 8 of one long matrix took eight times as long from factors, which are not made for them; 2 nearly twice.

    With a matrix each they take less from factors, but for one, and where they are worth both threads.
    """
    monkeypatch.setattr(numba_thomas, "granted", lambda form: 2)
    for n, count, axis, few in [
        (40_000, 8, -1, True), (40_000, 16, -1, False), (20_000, 8, -1, False), (40_000, 8, 0, False),
        (30_000, 8, -1, True), (20_000, 2, -1, True), (20_000, 3, -1, False), (20_000, 2, 0, False),
    ]:  # fmt: skip
        shape, batch = ((count, n), (1, n)) if axis else ((n, count), (n, 1))
        form = Form(shape, batch, axis % 2)
        assert numba_thomas.too_few_for_factors(form, np.dtype("f8")) == few, (n, count, axis)
    for n, count, few in [(40_000, 1, True), (40_000, 2, False), (60_000, 2, True), (2_000, 7, False)]:
        own = Form((count, n), (count, n), 1)
        assert numba_thomas.too_few_for_factors(own, np.dtype("f8")) == few, (n, count)


def test_bad_right_sides(backend: Subject) -> None:
    matrix = backend.factor(*dominant((4, 20))[:3])
    with pytest.raises(ValueError, match=r"do not broadcast.*d \(4, 19\)"):
        matrix.solve(backend.array(np.ones((4, 19))))
    with pytest.raises(ValueError, match="broadcast"):
        matrix.solve(backend.array(np.ones((3, 20))))


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 5)])
def test_empty(backend: Subject, shape: tuple[int, ...]) -> None:
    matrix = backend.factor(1.0, np.full(shape, 4.0), 1.0)
    assert solve(backend, matrix, np.ones(shape)).shape == shape
    assert to_numpy(matrix.status).shape == shape[:-1]
    assert type(matrix.status) is type(backend.array(np.ones(1)))


def test_the_status_has_the_shape_and_the_library_of_the_matrices(backend: Subject) -> None:
    b = np.full((2, 20, 3), 4.0)
    b[1, 5, 2] = 0
    matrix = backend.factor(0.0, b, 0.0, axis=1)
    assert type(matrix.status) is type(backend.array(b))
    np.testing.assert_array_equal(to_numpy(matrix.status), [[0, 0, 0], [0, 0, 6]])
    assert to_numpy(backend.factor(*dominant((20,))[:3]).status).shape == ()


def test_slogdet(backend: Subject) -> None:
    a, b, c, _ = uniform((4, 20))
    wanted = np.linalg.slogdet(dense(a, b, c, where=MASK).astype(float))
    sign, log = map(to_numpy, backend.factor(a, b, c, where=MASK).slogdet())
    np.testing.assert_array_equal(sign, wanted[0])
    np.testing.assert_allclose(log, wanted[1], rtol=1e-12)


def test_it_can_be_copied(backend: Subject) -> None:
    a, b, c, d = dominant((4, 20))
    matrix = backend.factor(a, b, c)
    np.testing.assert_array_equal(solve(backend, copy.deepcopy(matrix), d), solve(backend, matrix, d))


@pytest.mark.only(library="jax")
def test_it_is_a_pytree(backend: Subject) -> None:
    import jax

    a, b, c, d = dominant((4, 20))
    matrix = backend.factor(a, b, c)
    leaves, tree = jax.tree.flatten(matrix)
    assert all(isinstance(x, jax.Array) for x in leaves)
    run = jax.jit(lambda matrix, d: matrix.solve(d))
    assert_solves(to_numpy(run(jax.tree.unflatten(tree, leaves), backend.array(d))), a, b, c, d)
    inside = jax.jit(lambda a, b, c, d: tridiag.factor(a, b, c, backend=backend.name).solve(d))
    assert_solves(to_numpy(inside(*map(backend.array, (a, b, c, d)))), a, b, c, d)


@pytest.mark.only(library="jax")
def test_it_is_mapped_as_a_pytree(backend: Subject) -> None:
    """Its factors lie otherwise than a, b and c: as many matrices as rows must not be mistaken."""
    import jax

    a, b, c, d = dominant((20, 20))
    outside = backend.factor(a, b, c)
    inside = jax.vmap(lambda a, b, c: tridiag.factor(a, b, c, backend=backend.name))(*map(backend.array, (a, b, c)))
    for matrix in (outside, inside):
        x = jax.vmap(lambda matrix, d: matrix.solve(d))(matrix, backend.array(d))
        assert_solves(to_numpy(x), a, b, c, d)
    assert_solves(solve(backend, inside, d), a, b, c, d)
    one = jax.tree.map(lambda x: x[2], inside)
    assert_solves(solve(backend, one, d[2]), a[2], b[2], c[2], d[2])
    front = jax.vmap(lambda a, b, c: tridiag.factor(a, b, c, axis=0))(*map(backend.array, (a, b, c)))
    for use in (lambda: front.solve(backend.array(d)), front.slogdet):
        with pytest.raises(ValueError, match=r"axis 0 of factor counts from the front, and the shapes .* have changed"):
            use()


@pytest.mark.only(library="jax")
def test_numpy_arrays_beside_jax_arrays_are_copied(backend: Subject) -> None:
    a, b, c, d = dominant((4, 20))
    given = [a.copy(), backend.array(b), c.copy()]
    where = MASK.copy()
    matrix = tridiag.factor(*given, where=where, backend=backend.name)
    given[0][...] = given[2][...] = np.nan
    where[...] = ~where
    assert_solves(solve(backend, matrix, d), a, b, c, d, where=MASK)


def test_a_numpy_matrix_with_jax_right_sides() -> None:
    """Taken as JAX takes NumPy arrays."""
    jax = pytest.importorskip("jax")
    matrix = tridiag.factor(1.0, np.full(5, 4.0), 1.0)
    d = jax.numpy.ones(5)
    for x in (matrix.solve(d), jax.jit(matrix.solve)(d)):
        assert isinstance(x, jax.Array)
        np.testing.assert_allclose(x, matrix.solve(np.ones(5)), rtol=1e-12)


@pytest.mark.parametrize("rows", [(), (1,), (400,)])
@pytest.mark.parametrize("kinds", ["ddd", "fdd", "dDf"])
def test_large_matrices_are_copied_in_one_piece(kinds: str, rows: tuple[int, ...]) -> None:
    """Of any dtypes and batches: what becomes of the caller's arrays is not seen, and copies keep them all."""
    rng, n = np.random.default_rng(0), 101
    shapes = (*rows, n), (400, n), (400, n)
    a, b, c = (rng.uniform(-1, 1, shape).astype(kind) for shape, kind in zip(shapes, kinds, strict=True))
    b += 3
    d = rng.uniform(-1, 1, (400, n))
    right = tridiag.solve(a, b, c, d)
    factored = tridiag.factor(a, b, c)
    for x in (a, b, c):
        x[:] = np.nan
    for each in (factored, copy.deepcopy(factored), pickle.loads(pickle.dumps(factored))):
        np.testing.assert_allclose(each.solve(d), right, rtol=1e-5 if "f" in kinds else 1e-12)
