"""That `rcond` of a factorization is what LAPACK says of a matrix, never below the truth, and never raises."""

from typing import Any

import numpy as np
import pytest
from helpers import dense, dominant, gauss, to_library, to_numpy, uniform

import tridiag

LIBRARIES = ["numpy", "jax", "torch"]


def exact(a: Any, b: Any, c: Any, where: Any = None, **options: Any) -> np.ndarray:
    """In extended precision, from the inverse; of the rows that are kept."""
    matrix = dense(a, b, c, where=where, **options)
    n = matrix.shape[-1]
    keep = np.broadcast_to(True if where is None else where, matrix.shape[:-1])[..., None, :]
    columns = gauss(matrix[..., None, :, :], np.broadcast_to(np.eye(n, dtype=matrix.dtype), matrix.shape))
    norms = [(abs(x).sum(-1) * keep[..., 0, :]).max(-1) for x in (np.swapaxes(matrix, -1, -2), columns)]
    return (1 / norms[0] / norms[1]).astype(float)


def rcond(library: str, a: Any, b: Any, c: Any, where: Any = None, **options: Any) -> np.ndarray:
    a, b, c, where = (to_library(library, x) for x in (a, b, c, where))
    return to_numpy(tridiag.factor(a, b, c, where=where, **options).rcond)


def assert_estimates(found: np.ndarray, wanted: np.ndarray) -> None:
    """Of a norm that is no more than the true one, in most matrices nearly that, and never less than a third."""
    ratio = found / wanted
    assert (ratio > 1 - 1e-6).all() and (ratio < 3).all()
    assert np.mean(ratio < 1.1) > 0.7


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_random_matrices(library: str, dtype: str) -> None:
    for make in (dominant, uniform):
        a, b, c, _ = make((60, 17), dtype)
        assert_estimates(rcond(library, a, b, c), exact(a, b, c))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_ladder_of_conditions(library: str) -> None:
    """One pivot of each is as small as one likes; the estimate is exact."""
    sizes = 10.0 ** -np.arange(13)
    b = np.full((13, 8), 2.0)
    b[:, 0] = b[:, -1] = 1
    b[:, 3] += sizes
    np.testing.assert_allclose(rcond(library, -1.0, b, -1.0), exact(-1.0, b, -1.0), rtol=1e-2)
    found = rcond(library, -1.0, b, -1.0)
    assert (np.diff(found) < 0).all() and 1e-15 < found[-1] < 1e-12


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("options", [{"axis": 0}, {"periodic": True}, {"pivoting": False}])
def test_options(library: str, options: dict[str, Any]) -> None:
    a, b, c, _ = dominant((13, 13))
    of_matrix = {name: value for name, value in options.items() if name != "pivoting"}
    assert_estimates(rcond(library, a, b, c, **options), exact(a, b, c, **of_matrix))


@pytest.mark.parametrize("unit", [1, pytest.param(1j, marks=pytest.mark.slow)])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("size", [1e-308, 1e-320, 1e-306, 1.7e308])
def test_sizes_near_the_ends_of_the_range(library: str, size: float, unit: complex) -> None:
    """Norms of the matrix or its inverse are out of range, and their product is not; complex ones too."""
    if library == "jax" and size < 1e-307:
        pytest.skip("XLA takes subnormal numbers for 0")
    b, where = np.full((2, 5), size), np.full((2, 5), True)
    b[1], where[1, 2] = 1, False
    b = unit * b
    wanted = rcond(library, -0.25, unit * np.ones(5), -0.25)
    np.testing.assert_allclose(rcond(library, -size / 4, b, -size / 4)[0], wanted, rtol=1e-3)
    if unit == 1:  # near a complex one an estimate is not as good
        assert_estimates(wanted, exact(-0.25, np.ones(5), -0.25))
    b[1, 2] = np.nan
    np.testing.assert_allclose(rcond(library, -size / 4, b, -size / 4, where)[0], wanted, rtol=1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_that_are_taken_out_do_not_count(library: str) -> None:
    a, b, c, _ = uniform((40, 11))
    where = np.random.default_rng(0).uniform(size=(40, 11)) < 0.8
    where[:, 3] = True
    b = np.where(where, b, 1e30)
    assert_estimates(rcond(library, a, b, c, where), exact(a, np.where(where, b, 1), c, where))


@pytest.mark.parametrize("library", LIBRARIES)
def test_singular_matrices_have_0_and_nan_stays(library: str) -> None:
    a, b, c, _ = dominant((4, 9))
    a[1, 4] = b[1, 4] = c[1, 4] = 0
    b[2, 5] = np.nan
    found = rcond(library, a, b, c)
    assert found.shape == (4,) and found[1] == 0 and np.isnan(found[2])
    np.testing.assert_allclose(found[[0, 3]], exact(a[[0, 3]], b[[0, 3]], c[[0, 3]]))


@pytest.mark.parametrize("library", LIBRARIES)
def test_shapes_and_dtypes(library: str) -> None:
    for shape in ((), (1,), (3, 1), (2, 0, 4), (2, 0)):
        b = np.full(shape or (5,), 2.0, "float32")
        found = rcond(library, np.zeros_like(b), b, np.zeros_like(b))
        assert found.shape == b.shape[:-1] and found.dtype == np.float32 and (found == 1).all()
    assert rcond(library, *(np.ones(3, "complex64") * k for k in (0, 2j, 0))).dtype == np.float32


def test_it_is_that_of_lapack() -> None:
    lapack = pytest.importorskip("scipy.linalg.lapack")
    if not hasattr(lapack, "dgtcon"):
        pytest.skip("this SciPy has no gtcon")
    a, b, c, _ = uniform((60, 25))
    wanted = []
    for dl, d, du, matrix in zip(a[:, 1:], b, c[:, :-1], dense(a, b, c), strict=True):
        *factors, _ = lapack.dgttrf(dl, d, du)
        wanted.append(lapack.dgtcon(*factors, float(abs(matrix).sum(0).max()))[0])
    assert np.mean(np.isclose(rcond("numpy", a, b, c), wanted, rtol=1e-8)) > 0.9


def test_inside_jit_and_vmap() -> None:
    jax = pytest.importorskip("jax")
    a, b, c, _ = dominant((4, 9))

    def function(*matrix: Any) -> Any:
        return tridiag.factor(*matrix).rcond

    wanted = function(a, b, c)
    found, gradient = jax.jit(jax.vmap(jax.value_and_grad(function, 1)))(a, b, c)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    alone = jax.jit(jax.grad(lambda b: function(a, b, c).sum()))(b)
    np.testing.assert_allclose(gradient, alone, rtol=1e-12)


def gradients(library: str, given: Any, where: Any, **options: Any) -> tuple[np.ndarray, ...]:
    """rcond, and the gradients of its sum in a, b and c."""
    if library == "jax":
        import jax

        def function(*matrix: Any) -> Any:
            found = tridiag.factor(*matrix, where=where, **options).rcond
            return found.sum(), found

        found, found_rcond = jax.jit(jax.grad(function, (0, 1, 2), has_aux=True))(*map(jax.numpy.asarray, given))
        return tuple(map(to_numpy, (found_rcond, *found)))
    import torch

    tensors = [torch.from_numpy(x).requires_grad_() for x in given]
    mask = None if where is None else torch.from_numpy(where)
    found = tridiag.factor(*tensors, where=mask, **options).rcond
    found.sum().backward()
    return tuple(to_numpy(x.detach()) for x in (found, *(x.grad for x in tensors)))


@pytest.mark.parametrize("library", LIBRARIES[1:])
@pytest.mark.parametrize("options", [{}, {"periodic": True}])
def test_gradients_are_those_of_the_number(library: str, options: dict[str, Any]) -> None:
    """Once they were 0 without a word. Where the estimate is exact, quotients of differences in higher precision."""
    pytest.importorskip(library)
    given = [x.copy() for x in dominant((5, 7))[:3]]
    where = np.ones((5, 7), bool)
    where[:, 4] = False
    if not options:
        given[0][:, 0] = given[2][:, -1] = np.nan  # are never read
    found, *grads = gradients(library, given, where, **options)
    step, of_pads = 1e-6, np.where(np.isnan(given), 0, given)
    sure = np.isclose(found, exact(*of_pads, where, **options), rtol=1e-9)
    assert sure.sum() >= 3
    for k, gradient in enumerate(grads):
        assert not gradient[:, 4].any()
        for i in (0, 1, 3, 6):
            ends = []
            for sign in (1, -1):
                moved = of_pads.copy()
                moved[k, :, i] += sign * step
                ends.append(exact(*moved, where, **options))
            scale = abs(gradient).max(1) + found
            wrong = abs((ends[0] - ends[1]) / (2 * step) - gradient[:, i]) > 1e-6 * scale
            assert not wrong[sure].any(), (k, i)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_matrix_without_rows_is_that_of_the_identity(library: str) -> None:
    """Which is what is left where all rows are taken out; its neighbours keep theirs."""
    a, b, c, _ = dominant((3, 9))
    where = np.ones((3, 9), bool)
    where[1] = False
    b[1] = 0
    found = rcond(library, a, b, c, where)
    assert found[1] == 1
    np.testing.assert_allclose(found[[0, 2]], rcond(library, a[[0, 2]], b[[0, 2]], c[[0, 2]]), rtol=1e-14)
    if library != "numpy":
        found, *grads = gradients(library, (a, b, c), where)
        assert found[1] == 1 and all(not x[1].any() and np.isfinite(x).all() and x[0].any() for x in grads)
