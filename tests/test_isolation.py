"""That NaN, inf and singular matrices stay where they are: everything else keeps every bit."""

import numpy as np
import pytest
from helpers import Subject, assert_same_bits, dominant, to_numpy, uniform

import tridiag

SHAPE = (40, 20)  # two full tiles of systems and half a one
BAD = (np.nan, np.inf, -np.inf)


def system_for(pivoting: bool | str, shape: tuple[int, int] = SHAPE, dtype: str = "float64") -> list[np.ndarray]:
    """Half of the systems dominant; the others too where plain elimination is all that is promised, else uniform.

    Some right sides are unit vectors: their solutions have zeros, and zeros have signs.
    """
    easy, hard = dominant(shape, dtype), (dominant if pivoting is False else uniform)(shape, dtype, seed=1)
    a, b, c, d = (np.where(np.arange(shape[0])[:, None] % 2, x, y) for x, y in zip(easy, hard, strict=True))
    d[::5] = np.eye(shape[0], shape[1])[::5]
    return [a, b, c, d]


@pytest.mark.parametrize("transpose", [False, True])
def test_pads_are_never_read(backend: Subject, pivoting: bool | str, transpose: bool) -> None:
    a, b, c, d = system_for(pivoting)
    a[:, 0] = c[:, -1] = 0
    wanted = backend.solve(a, b, c, d, pivoting=pivoting, transpose=transpose)
    for bad in BAD:
        a[:, 0] = c[:, -1] = bad
        assert_same_bits(backend.solve(a, b, c, d, pivoting=pivoting, transpose=transpose), wanted)


@pytest.mark.parametrize("transpose", [False, True])
def test_masked_rows_and_couplings_to_them_are_never_read(backend: Subject, transpose: bool) -> None:
    where = np.random.default_rng(2).uniform(size=SHAPE) < 0.8
    where[3] = False
    a, b, c, d = system_for(backend.usual)
    a[:, 0] = c[:, -1] = 0
    dead = ~where, ~where | ~np.roll(where, 1, 1), ~where | ~np.roll(where, -1, 1)

    def run(value: float) -> np.ndarray:
        given = [
            np.where(cut, value, x) for cut, x in zip((dead[1], dead[0], dead[2], dead[0]), (a, b, c, d), strict=True)
        ]
        return backend.solve(*given, where=where, transpose=transpose)

    wanted = run(0.0)
    for bad in BAD:
        assert_same_bits(run(bad), wanted)


@pytest.mark.only(periodic=True)
def test_masked_rows_of_a_periodic_system_are_never_read(backend: Subject) -> None:
    where = np.random.default_rng(2).uniform(size=SHAPE) < 0.8
    a, b, c, d = dominant(SHAPE)
    given = [np.where(where, x, np.nan) for x in (a, b, c, d)]
    wanted = backend.solve(*(np.where(where, x, 0) for x in (a, b, c, d)), where=where, periodic=True)
    assert_same_bits(backend.solve(*given, where=where, periodic=True), wanted)


def test_bad_numbers_in_one_system_stay_there(backend: Subject, pivoting: bool | str) -> None:
    system = system_for(pivoting)
    wanted = backend.solve(*system, pivoting=pivoting)
    for k in range(4):
        for bad, place in zip(BAD, (0, 17, 39), strict=True):
            given = [x.copy() for x in system]
            given[k][place, 7] = bad
            x = backend.solve(*given, pivoting=pivoting)
            others = np.arange(len(x)) != place
            assert_same_bits(x[others], wanted[others])


def test_a_bad_right_side_leaves_the_others_of_its_matrix(backend: Subject) -> None:
    a, b, c, _ = dominant((20,))
    d = dominant(SHAPE)[3]
    wanted = backend.solve(a, b, c, d)
    d[17, 5] = np.nan
    x = backend.solve(a, b, c, d)
    others = np.arange(len(d)) != 17
    assert_same_bits(x[others], wanted[others])
    assert np.isnan(x[17]).any()


def test_rows_taken_out_are_zero_beside_bad_numbers(backend: Subject) -> None:
    a, b, c, d = dominant(SHAPE)
    where = np.ones(SHAPE, bool)
    where[:, 9] = False
    for bad in BAD:
        right = d.copy()
        right[::2, 10] = bad
        x = backend.solve(a, b, c, right, where=where)
        assert not x[:, 9].any()
        assert np.isfinite(x[1::2]).all() and not np.isfinite(x[::2, 10]).any()


def test_bad_numbers_behind_a_masked_row_do_not_tell_of_other_systems(backend: Subject) -> None:
    """What a certified system with inf gives does not depend on whether another system needs exchanges."""
    a, b, c, d = dominant(SHAPE)
    where = np.ones(SHAPE, bool)
    where[3, 9] = False
    d[3, 10] = np.inf
    wanted = backend.solve(a, b, c, d, where=where)
    b[20] = 0
    x = backend.solve(a, b, c, d, where=where, check=False)
    others = np.arange(len(x)) != 20
    np.testing.assert_array_equal(x[others], wanted[others])


def test_matmul_cuts_the_couplings_of_masked_rows() -> None:
    """0 * inf is NaN, and a row taken out gives 0."""
    x = np.array([1.0, np.inf, 5.0, 2.0])
    y = tridiag.matmul(1.0, 2.0, 1.0, x, where=np.array([True, True, False, True]))
    np.testing.assert_array_equal(y, [np.inf, np.inf, 0, 4])


# ------------------------------------------------------------------------------------- one singular system of 1000

PLACES = (0, 1, 15, 16, 17, 500, 984, 999)


def check_neighbours(backend: Subject, pivoting: bool | str, dtype: str) -> None:
    a, b, c, d = system_for(pivoting, (1000, 12), dtype)
    wanted = backend.solve(a, b, c, d, pivoting=pivoting, check=False)
    assert np.isfinite(wanted).all()
    for k, place in enumerate(PLACES):
        given = [x.copy() for x in (a, b, c)]
        for x in given:
            x[place, k] = 0  # a row of zeros
        x = backend.solve(*given, d, pivoting=pivoting, check=False)
        others = np.arange(1000) != place
        assert np.isnan(x[place]).all()
        assert_same_bits(x[others], wanted[others])


def test_one_singular_system_anywhere(backend: Subject, pivoting: bool | str) -> None:
    check_neighbours(backend, pivoting, "float64")


@pytest.mark.only(verb="factor")
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_one_singular_system_anywhere_in_other_dtypes(backend: Subject, dtype: str) -> None:
    check_neighbours(backend, backend.usual, dtype)


@pytest.mark.only(periodic=True)
def test_one_singular_periodic_system_anywhere(backend: Subject) -> None:
    a, b, c, d = dominant((1000, 12))
    wanted = backend.solve(a, b, c, d, periodic=True)
    for place in PLACES[1::2]:
        singular = [np.where(np.arange(1000)[:, None] == place, np.arange(12) != 5, 1) * x for x in (a, b, c)]
        x = backend.solve(*singular, d, periodic=True, check=False)
        others = np.arange(1000) != place
        assert_same_bits(x[others], wanted[others])
        assert np.isnan(x[place]).all()


@pytest.mark.only(verb="factor")
def test_one_singular_system_of_a_factorization(backend: Subject) -> None:
    a, b, c, d = system_for(backend.usual)
    wanted = to_numpy(backend.factor(a, b, c).solve(backend.array(d)))
    a[17] = b[17] = c[17] = 0
    try:
        x = backend.factor(a, b, c).solve(backend.array(d))
    except tridiag.SingularSystemError as error:
        np.testing.assert_array_equal(error.indices, [[17]])
        x = error.x
    others = np.arange(len(d)) != 17
    assert_same_bits(to_numpy(x)[others], wanted[others])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("promise", [False, True, "auto"])
def test_neighbours_and_places_in_memory_change_no_bit(axis: int, dtype: str, promise: bool | str) -> None:
    """Though systems that need more than others are put off, and gathered."""
    arrays, count = system_for(promise, (300, 40), dtype), 300
    rng, wanted = np.random.default_rng(3), None
    for start in (0, 1, 5):
        order, out = rng.permutation(count), np.empty(40 * count + start, dtype)[start:]
        turned = [np.ascontiguousarray(x[order].T if axis == 0 else x[order]) for x in arrays]
        out = out.reshape(turned[0].shape)
        tridiag.solve(*turned, axis=axis, pivoting=promise, out=out, backend="numba_thomas")
        x = np.empty((count, 40), dtype)
        x[order] = out.T if axis == 0 else out
        wanted = x if wanted is None else wanted
        assert_same_bits(x, wanted)


@pytest.mark.only(pivoting="auto")
def test_a_pivot_that_overflows_has_no_certificate(backend: Subject) -> None:
    """Of a regular matrix: its solution is LAPACK's."""
    largest = np.finfo(np.float64).max
    b, off, d = (np.full((20, 2), part * largest) for part in (0.55, 0.94, 0.55))
    wanted = np.linalg.solve([[0.55, 0.94], [0.94, 0.55]], [0.55, 0.55])
    np.testing.assert_allclose(backend.solve(off, b, off, d), np.broadcast_to(wanted, d.shape), rtol=1e-14)
