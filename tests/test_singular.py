"""That singular means the same on every backend: elimination with partial pivoting meets an exactly zero pivot."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest
from helpers import Subject, assert_solves, dominant, to_numpy

import tridiag
from tridiag.algorithms import row_loop
from tridiag.calls import singular
from tridiag.problems.forms import Form

ROW = 5


def one_singular(
    shape: tuple[int, ...] = (3, 4, 20), place: tuple[int, ...] = (1, 2), dtype: str = "float64"
) -> list[np.ndarray]:
    """Dominant systems; the one at ``place`` has a row of zeros."""
    system = dominant(shape, dtype)
    for x in system[:3]:
        x[(*place, ROW)] = 0
    return system


TOLD = r"1 of 12 systems.*\(1, 2\).*check=False.*where=.*singular=\"perturb\""


def test_a_singular_system_raises_and_tells_which(backend: Subject, pivoting: bool | str) -> None:
    a, b, c, d = one_singular()
    with pytest.raises(tridiag.SingularSystemError, match=TOLD) as caught:
        backend.solve(a, b, c, d, pivoting=pivoting)
    error = caught.value
    assert isinstance(error, np.linalg.LinAlgError)
    np.testing.assert_array_equal(error.indices, [[1, 2]])
    assert f"column {error.column})" in str(error) and pickle.loads(pickle.dumps(error)).column == error.column
    x = to_numpy(error.x).copy()
    assert np.isnan(x[1, 2]).all()
    x[1, 2] = 0
    where = np.ones(d.shape, bool)
    where[1, 2] = False
    assert_solves(x, a, b, c, d, where=where, pivoting=pivoting)


@pytest.mark.only(verb="factor")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_singular_complex_system(backend: Subject, pivoting: bool | str, dtype: str) -> None:
    system = one_singular(dtype=dtype)
    x = backend.solve(*system, pivoting=pivoting, check=False)
    assert np.isnan(x[1, 2]).all() and np.isfinite(np.delete(x.reshape(12, -1), 6, 0)).all()
    with pytest.raises(tridiag.SingularSystemError):
        backend.solve(*system, pivoting=pivoting)


def test_check_true_raises_as_well_and_false_never_does(backend: Subject, pivoting: bool | str) -> None:
    system = one_singular()
    with pytest.raises(tridiag.SingularSystemError):
        backend.solve(*system, pivoting=pivoting, check=True)
    x = backend.solve(*system, pivoting=pivoting, check=False)
    assert np.isnan(x[1, 2]).all() and np.isfinite(np.delete(x.reshape(12, -1), 6, 0)).all()


def test_one_row(backend: Subject, pivoting: bool | str) -> None:
    b, d = np.array([[2.0], [0.0], [1.0], [4.0]]), np.ones((4, 1))
    with pytest.raises(tridiag.SingularSystemError) as caught:
        backend.solve(np.nan, b, np.nan, d, pivoting=pivoting)
    np.testing.assert_array_equal(caught.value.indices, [[1]])
    np.testing.assert_array_equal(to_numpy(caught.value.x), [[0.5], [np.nan], [1], [0.25]])


def test_without_batch_axes(backend: Subject) -> None:
    with pytest.raises(tridiag.SingularSystemError, match="the system is singular") as caught:
        backend.solve(0.0, np.zeros(3), 0.0, np.ones(3))
    assert caught.value.indices.shape == (1, 0)


def test_the_axis_is_left_out_of_the_indices(backend: Subject) -> None:
    system = [np.moveaxis(x, -1, 1) for x in one_singular()]
    with pytest.raises(tridiag.SingularSystemError) as caught:
        backend.solve(*system, axis=1)
    np.testing.assert_array_equal(caught.value.indices, [[1, 2]])
    assert np.isnan(to_numpy(caught.value.x)[1, :, 2]).all()


def test_every_right_side_of_a_singular_matrix_counts(backend: Subject) -> None:
    a, b, c, d = one_singular((4, 20), (2,))
    with pytest.raises(tridiag.SingularSystemError) as caught:
        backend.solve(a, b, c, np.broadcast_to(d, (3, 4, 20)))
    np.testing.assert_array_equal(caught.value.indices, [[0, 2], [1, 2], [2, 2]])


def test_nan_and_inf_raise_nothing(backend: Subject, pivoting: bool | str) -> None:
    for bad in (np.nan, np.inf):
        for k in range(4):
            system = dominant((4, 20))
            system[k][2, ROW] = bad
            x = backend.solve(*system, pivoting=pivoting)
            assert np.isfinite(np.delete(x, 2, 0)).all()
            if np.isnan(bad):
                assert np.isnan(x[2]).all()
            elif k == 3:
                assert not np.isfinite(x[2]).any()


def test_a_neumann_problem_is_singular_and_regular_with_a_row_out(backend: Subject) -> None:
    n = 20
    b = np.full(n, 2.0)
    b[0] = b[-1] = 1
    d = np.random.default_rng(0).standard_normal((4, n))
    with pytest.raises(tridiag.SingularSystemError):
        backend.solve(-1.0, b, -1.0, d)
    where = np.arange(n) > 0
    assert_solves(backend.solve(-1.0, b, -1.0, d, where=where), -1.0, b, -1.0, d, where=where)


@pytest.mark.only(periodic=True)
def test_a_periodic_laplacian_with_a_row_out(backend: Subject) -> None:
    d, where = np.random.default_rng(0).standard_normal((4, 20)), np.arange(20) != 7
    x = backend.solve(-1.0, 2.0, -1.0, d, periodic=True, where=where)
    assert_solves(x, -1.0, 2.0, -1.0, d, periodic=True, where=where)


@pytest.mark.only(periodic=True)
def test_a_singular_periodic_system(backend: Subject, pivoting: bool | str) -> None:
    for row in (0, 7, 19):
        system = dominant((4, 20))
        for x in system[:3]:
            x[2, row] = 0
        with pytest.raises(tridiag.SingularSystemError) as caught:
            backend.solve(*system, periodic=True, pivoting=pivoting)
        np.testing.assert_array_equal(caught.value.indices, [[2]])


@pytest.mark.parametrize("n", [3, 5, 6, 8])
def test_column_0_of_a_periodic_system_is_its_last(n: int) -> None:
    """All columns of a periodic Laplacian depend on each other, and no fewer do."""
    d = np.zeros(n)
    d[0], d[n // 2] = 1, -1
    with pytest.raises(tridiag.SingularSystemError, match="column 0, the last one of a periodic system"):
        tridiag.solve(-1.0, 2.0, -1.0, d, periodic=True)


def test_a_long_singular_periodic_system_raises_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which systems are singular is found by a kernel where a loop over rows in Python would take minutes."""
    monkeypatch.setattr(row_loop, "eliminate", None)
    a, b, c, d = dominant((3, 200_000))
    for x in (a, b, c):
        x[1, 150_000] = 0
    a[2, 17] = np.nan
    with pytest.raises(tridiag.SingularSystemError) as caught:
        tridiag.solve(a, b, c, d, periodic=True, backend="numba_thomas")
    np.testing.assert_array_equal(caught.value.indices, [[1]])


def raised_where_nan(backend: Subject, periodic: bool) -> None:
    """Complex networks that lead nowhere: in some of them backends meet a zero pivot where others meet rounding."""
    rng = np.random.default_rng(0)
    for n in (3, 5, 8, 11):
        links = rng.integers(1, 4, (60, n)) + 1j * rng.integers(-2, 3, (60, n))
        links[::2] *= 1 + 0.1j
        if not periodic:
            links[:, -1] = 0
        above, d = np.roll(links, 1, -1), np.ones((60, n), complex)
        system = -above, above + links, -links, d
        system[1][5] += 1
        d[5, 1] = np.nan  # which raises nothing
        x = to_numpy(backend.solve(*system, periodic=periodic, check=False))
        nan = np.flatnonzero(np.isnan(x).any(-1))
        assert 5 in nan and (n > 3 or len(nan) > 5)
        with pytest.raises(tridiag.SingularSystemError) if len(nan) > 1 else nullcontext() as caught:
            backend.solve(*system, periodic=periodic)
        if caught:
            np.testing.assert_array_equal(caught.value.indices[:, 0], nan[nan != 5])


@pytest.mark.only(pivoting="auto", dtype="complex128")
def test_what_is_nan_for_a_zero_pivot_raises(backend: Subject) -> None:
    raised_where_nan(backend, periodic=False)


@pytest.mark.only(periodic=True)
def test_what_is_nan_for_a_zero_pivot_of_a_periodic_matrix_raises(backend: Subject) -> None:
    raised_where_nan(backend, periodic=True)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_long_periodic_systems_are_singular_where_short_ones_are(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small integers: of many matrices some are singular."""
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(-2, 3, (3, 60, 50)).astype(dtype)
    b[:, ::3] = 5
    form = Form(b.shape, b.shape, 1, True, False, True)
    found = []
    for least in (1_000, 10):
        monkeypatch.setattr(singular, "LONG_CYCLE", least)
        found.append(singular.exact_status(np.ones(60, bool), (a, b, c, None), form) != 0)
    assert 5 < found[0].sum() < 55
    np.testing.assert_array_equal(*found)


@pytest.mark.only(periodic=True)
def test_a_periodic_matrix_whose_open_part_is_singular(backend: Subject) -> None:
    """Sherman and Morrison's way fails here; the matrix itself is regular."""
    a, b, c, d = dominant((4, 5))
    b[:] = 0
    x = backend.solve(a, b, c, d, periodic=True)
    assert_solves(x, a, b, c, d, periodic=True, pivoting=True)


@pytest.mark.only(promises=(True, "auto"))
def test_nearly_singular_returns_the_large_solution(backend: Subject, pivoting: bool | str) -> None:
    n = 20
    b = np.full((4, n), 2.0)
    b[:, 0] = b[:, -1] = 1
    b[1, -1] += 2.0**-50
    b[3, -1] = 3
    b[0, -1] = b[2, -1] = 1 + 1e-13
    x = backend.solve(-1.0, b, -1.0, np.ones((4, n)), pivoting=pivoting)
    assert np.isfinite(x).all() and abs(x[1]).min() > 1e14
    assert_solves(x, -1.0, b, -1.0, np.ones((4, n)), pivoting=True)


def test_a_regular_matrix_that_plain_elimination_cannot_solve(backend: Subject) -> None:
    b, d = np.full((4, 20), 4.0), np.ones((4, 20))
    b[1] = 0  # even: regular
    x = backend.solve(1.0, b, 1.0, d, pivoting=False)
    assert_solves(x[[0, 2, 3]], 1.0, b[[0, 2, 3]], 1.0, d[[0, 2, 3]])
    if not np.isnan(x[1]).all():  # LAPACK pivots all the same
        assert_solves(x[1], 1.0, b[1], 1.0, d[1])


# --------------------------------------------------------------------------------------------------------- status


@pytest.mark.only(verb="factor")
def test_the_status_is_that_of_lapack(backend: Subject, pivoting: bool | str) -> None:
    gtsv = pytest.importorskip("scipy.linalg.lapack").dgtsv
    rng = np.random.default_rng(4)
    a, b, c = rng.integers(-1, 2, (3, 60, 6)).astype(float)
    wanted = [gtsv(x[1:], y, z[:-1], np.ones(6))[-1] for x, y, z in zip(a, b, c, strict=True)]
    assert 20 < np.count_nonzero(wanted) < 60 and len(set(wanted)) > 4
    status = backend.factor(a, b, c, pivoting=pivoting).status
    np.testing.assert_array_equal(to_numpy(status), wanted)


@pytest.mark.only(verb="factor")
def test_factor_raises_nothing_and_its_solve_does(backend: Subject) -> None:
    a, b, c, d = one_singular((4, 20), (2,))
    matrix = backend.factor(a, b, c)
    np.testing.assert_array_equal(np.flatnonzero(to_numpy(matrix.status)), [2])
    if not backend.on_host:  # nothing waits for a GPU unasked
        np.testing.assert_array_equal(np.isnan(to_numpy(matrix.solve(backend.array(d)))).all(-1), [0, 0, 1, 0])
        return
    with pytest.raises(tridiag.SingularSystemError) as caught:
        matrix.solve(backend.array(d))
    np.testing.assert_array_equal(caught.value.indices, [[2]])


@pytest.mark.only(verb="factor")
def test_a_matrix_that_is_singular_only_when_transposed(backend: Subject) -> None:
    """Rounding may hide a zero pivot from factors, and not from the transpose: then it raises, and is no silent NaN."""
    matrix = backend.factor(np.array([0, 3.0, -2.0]), np.full(3, -2.0), np.array([2.0, 1.0, 0]))
    if backend.device == "cuda":  # nothing waits for a GPU unasked
        return
    try:
        x = to_numpy(matrix.solve(backend.array(np.ones(3)), transpose=True))
    except tridiag.SingularSystemError as error:
        x = to_numpy(error.x)
        assert np.isnan(x).all()
    else:
        assert abs(x).min() > 1e15


# ---------------------------------------------------------------------------------------------------- inside a trace


@pytest.mark.only(library="jax")
def test_inside_a_trace_singular_systems_are_nan(backend: Subject) -> None:
    import jax

    given = [backend.array(x) for x in one_singular()]

    def run(*arrays: jax.Array) -> jax.Array:
        return tridiag.solve(*arrays, backend=backend.name, pivoting=backend.usual)

    x = to_numpy(jax.jit(run)(*given))
    assert np.isnan(x[1, 2]).all() and np.isfinite(np.delete(x.reshape(12, -1), 6, 0)).all()


def test_check_true_inside_a_trace_names_the_status() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match=r"check=True reads values.*factor\(\.\.\.\)\.status"):
        jax.jit(lambda d: tridiag.solve(1.0, 4.0, 1.0, d, check=True))(jax.numpy.ones(5))


def test_the_status_inside_a_trace() -> None:
    jax = pytest.importorskip("jax")
    status = jax.jit(lambda b: tridiag.factor(1.0, b, 1.0).status)
    np.testing.assert_array_equal(status(jax.numpy.array([[4.0, 4, 4], [0, 0, 0]])), [0, 3])


# ------------------------------------------------------------------------------------------------------- the error


@pytest.mark.only(verb="factor")
def test_the_solution_it_carries_is_what_the_call_returns(backend: Subject) -> None:
    """In the dtype of the caller, and in ``out`` where the caller gave one."""
    system = [backend.array(x, "float16") for x in one_singular()]
    with pytest.raises(tridiag.SingularSystemError) as caught:
        tridiag.solve(*system, backend=backend.name, pivoting=backend.usual, check=True)
    assert str(caught.value.x.dtype).removeprefix("torch.") == "float16"


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("option", ["out", "overwrite_d"])
def test_the_solution_is_in_out_too(backend: Subject, option: str) -> None:
    a, b, c, d = (backend.array(x) for x in one_singular())
    out = d if option == "overwrite_d" else backend.array(np.zeros(d.shape))
    with pytest.raises(tridiag.SingularSystemError) as caught:
        options = {"backend": backend.name, "pivoting": backend.usual, option: out if option == "out" else True}
        tridiag.solve(a, b, c, d, check=True, **options)
    np.testing.assert_array_equal(to_numpy(out), to_numpy(caught.value.x))


def test_it_survives_a_process_boundary() -> None:
    with pytest.raises(tridiag.SingularSystemError) as caught:
        tridiag.solve(0.0, np.zeros(3), 0.0, np.ones(3))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    np.testing.assert_array_equal(copy.indices, caught.value.indices)
