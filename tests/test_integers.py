"""That recurrences of integers are exact, in the dtype of their library's cumsum, and wrap around as it does."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import Subject, to_library, to_numpy

import tridiag

LIBRARIES = ["numpy", "jax", "torch"]
LARGE = 2**62


def reference(a: Any, x: np.ndarray, before: Any = 0) -> list[list[int]]:
    """In Python's integers, which have no range."""
    rows = []
    for line, start in zip(x.tolist(), np.broadcast_to(before, len(x)).tolist(), strict=True):
        row, y = [], start
        for factor, term in zip(np.broadcast_to(a, len(line)).tolist(), line, strict=True):
            y = factor * y + term
            row.append(y)
        rows.append(row)
    return rows


def given(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-LARGE // 32, LARGE // 32, (3, 12))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_have_all_their_digits(library: str, reverse: bool) -> None:
    """More than a double holds."""
    x, step = given(), -1 if reverse else 1
    found, last = tridiag.linear_recurrence(
        1, to_library(library, x), to_library(library, np.array([7, 0, -1])), reverse=reverse, return_final=True
    )
    wanted = np.array(reference(1, x[:, ::step], [7, 0, -1]))[:, ::step]
    np.testing.assert_array_equal(to_numpy(found), wanted)
    np.testing.assert_array_equal(to_numpy(last), wanted[:, 0 if reverse else -1])
    assert to_numpy(found).dtype == np.int64 and (wanted != wanted.astype(float).astype(int)).any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_coefficients_orders_and_matrices(library: str) -> None:
    x, a = given(1) % 100, np.arange(12) % 5 - 2
    found = to_numpy(tridiag.linear_recurrence(*(to_library(library, v) for v in (a, x))))
    np.testing.assert_array_equal(found, reference(a, x))
    zeros = to_library(library, np.zeros(90, int))
    fibonacci = tridiag.linear_recurrence((1, 1), zeros, (1, 0))
    assert int(fibonacci[-1]) == 4660046610375530309 > 2**53
    step, start = (to_library(library, v) for v in (np.array([[1, 1], [1, 0]]), np.array([1, 0])))
    pairs = tridiag.matrix_recurrence(step, zeros[:, None] * start, start)
    np.testing.assert_array_equal(to_numpy(pairs)[:, 0], to_numpy(fibonacci))


@pytest.mark.parametrize("library", LIBRARIES)
def test_beyond_the_range_they_wrap_around(library: str) -> None:
    x = np.full((2, 5), LARGE)
    for a in (1, 3):
        found = to_numpy(tridiag.linear_recurrence(a, to_library(library, x)))
        wrapped = [[(y + 2**63) % 2**64 - 2**63 for y in row] for row in reference(a, x)]
        assert found.tolist() == wrapped and max(map(max, reference(a, x))) > 2**63


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_dtypes_are_those_of_cumsum(dtype: str) -> None:
    x = np.full(5, 100, dtype)
    found = tridiag.linear_recurrence(np.ones(1, dtype), x)
    assert found.dtype == np.cumsum(x).dtype
    np.testing.assert_array_equal(found, np.cumsum(x))
    jnp = pytest.importorskip("jax.numpy")
    found = tridiag.linear_recurrence(jnp.ones(1, dtype), jnp.asarray(x))
    assert found.dtype == jnp.cumsum(jnp.asarray(x)).dtype
    np.testing.assert_array_equal(found, jnp.cumsum(jnp.asarray(x)))
    torch = pytest.importorskip("torch")
    if dtype != "uint64":
        found = tridiag.linear_recurrence(1, torch.tensor(x))
        assert found.dtype == torch.int64
        np.testing.assert_array_equal(found, torch.cumsum(torch.tensor(x), 0))


def test_one_number_that_is_no_integer_makes_all_of_them_such() -> None:
    x = np.arange(5)
    for a, init in ((1.0, None), (1, 0.5)):
        found = tridiag.linear_recurrence(a, x, init)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.cumsum(x) + (init or 0))


@pytest.mark.only(verb="linear_recurrence")
def test_backends_say_whether_they_can(backend: Subject) -> None:
    x = backend.array(np.arange(6))
    if backend.entry.integers or backend.library == "cupy":  # which makes them floats, as it always did
        found = tridiag.linear_recurrence(1, x, backend=backend.name)
        np.testing.assert_array_equal(backend.numpy(found), np.cumsum(np.arange(6)))
    else:
        with pytest.raises(tridiag.BackendError, match=rf"{backend.name} computes in .*, not in int64"):
            tridiag.linear_recurrence(1, x, backend=backend.name)


@pytest.mark.parametrize("a", [1, 2])
def test_where_the_result_goes_and_how_it_lies(a: int) -> None:
    x, out = given(2).T % 100, np.empty((12, 3), np.int64)
    assert tridiag.linear_recurrence(a, x, axis=0, out=out) is out
    np.testing.assert_array_equal(out.T, reference(a, x.T))
    with pytest.raises(TypeError, match="out has dtype float64; the result has dtype int64"):
        tridiag.linear_recurrence(a, x, axis=0, out=np.empty((12, 3)))


def test_programs_hold_them() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(given(3))

    def loss(scale: Any, x: Any) -> Any:
        return (scale * tridiag.linear_recurrence(1, x)).sum()

    gradient = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(2.0, x)
    np.testing.assert_allclose(gradient, np.cumsum(x, 1).astype(float).sum(1))


def test_chunks_of_dask_hand_them_on() -> None:
    da = pytest.importorskip("dask.array")
    x = given(4)
    found = tridiag.linear_recurrence(1, da.from_array(x, chunks=(3, 5))).compute()
    assert found.tolist() == reference(1, x) and math.log2(abs(found).max()) > 53


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_long_sequences(library: str, reverse: bool, shared: bool) -> None:
    """Which whole arrays double: all digits modulo 2**64, whatever is shared, from any start, along any axis."""
    rng, step = np.random.default_rng(3), -1 if reverse else 1
    x, start = rng.integers(-LARGE, LARGE, (300, 2)), np.array([5, -LARGE])
    a = np.array(-3) if shared else rng.integers(-LARGE, LARGE, (300, 2))
    y, last = tridiag.linear_recurrence(
        *(to_library(library, v) for v in (a, x, start)), axis=0, reverse=reverse, return_final=True
    )
    rows = np.broadcast_to(a, x.shape)[::step].T
    wanted = [reference(line, z[None], [s])[0] for line, z, s in zip(rows, x[::step].T, start, strict=True)]
    wrapped = (np.array(wanted, object) + 2**63) % 2**64 - 2**63
    np.testing.assert_array_equal(to_numpy(y), wrapped.astype(np.int64).T[::step])
    np.testing.assert_array_equal(to_numpy(last), to_numpy(y)[0 if reverse else -1])
