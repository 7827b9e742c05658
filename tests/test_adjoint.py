"""The backward pass in one kernel: bit for bit the transposed solve and three products, in every layout."""

from typing import Any

import numpy as np
import pytest
from helpers import dominant, installed, zero_diagonal

import tridiag

if not (installed("jax") and installed("numba")):
    pytest.skip("needs jax and numba, which are not both installed", allow_module_level=True)

import jax
import jax.numpy as jnp

from tridiag.backends import numba_thomas
from tridiag.problems.forms import Form

# more systems than a tile takes, and one that is alone; rows that no vector divides, and fewer than one
SHAPES = [((70, 37), -1), ((1, 5), -1), ((9, 2), -1), ((5, 1), -1), ((1, 1), -1), ((3, 700), 0), ((7, 3, 300), 0)]
SHAPES += [((3, 11, 300), 1), ((70, 7, 5), 1), ((3, 7, 64), 1), ((4, 5, 1), 1)]
OPTIONS: list[dict[str, Any]] = [{}, {"transpose": True}, {"periodic": True}, {"periodic": True, "transpose": True}]


def adjoint(arrays: Any, g: Any, x: Any, axis: int, *, where: Any = None, shape: Any = None, **options: Any) -> Any:
    """w and the gradients of a, b, c from the kernel."""
    form = Form(x.shape, x.shape, axis % x.ndim, **options)
    arrays = [*map(jnp.asarray, arrays), where if where is None else jnp.asarray(where)]
    return [np.asarray(v) for v in jax.jit(numba_thomas.adjoint, static_argnums=3)(arrays, g, x, form)]


def moved(x: np.ndarray, by: int, axis: int, periodic: bool) -> np.ndarray:
    """x[i - by] at i."""
    x = np.roll(x, by, axis)
    if by and not periodic:
        x[(slice(None),) * (axis % x.ndim) + (0 if by == 1 else -1,)] = 0
    return x


def wanted(arrays: Any, g: Any, x: Any, axis: int, *, where: Any = None, **options: Any) -> list[np.ndarray]:
    turned = options | {"transpose": not options.get("transpose", False)}
    w = tridiag.solve(*arrays, g, axis=axis, where=where, backend="numba_thomas", check=False, **turned)
    here, beside = (x, w) if options.get("transpose") else (w, x)
    periodic = options.get("periodic", False)
    found = [-here * moved(beside, by, axis, periodic) for by in (1, 0, -1)]
    if where is not None:
        kept = [where & moved(where, by, axis, True) for by in (1, 0, -1)]
        found = [np.where(keep, y, 0) for keep, y in zip(kept, found, strict=True)]
    return [w, *found]


def assert_alike(found: Any, right: Any) -> None:
    for name, x, y in zip("wabc", found, right, strict=True):
        if np.iscomplexobj(y):  # products may be fused
            np.testing.assert_allclose(x, y, rtol=1e-5 if y.dtype.name == "complex64" else 1e-14, err_msg=name)
        else:
            np.testing.assert_array_equal(x, y, err_msg=name)


def problem(shape: tuple[int, ...], axis: int, dtype: str = "float64", make: Any = dominant) -> tuple[Any, Any, Any]:
    *arrays, g = make(shape, dtype, axis=axis)
    return arrays, g, dominant(shape, dtype, axis=axis, seed=1)[3]


@pytest.mark.parametrize("masked", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_every_layout(shape: Any, axis: int, options: Any, masked: bool) -> None:
    if options.get("periodic") and shape[axis] < 3:
        pytest.skip("needs 3 rows or more, and has fewer")
    given = *problem(shape, axis), axis
    where = np.random.default_rng(0).uniform(size=shape) < 0.7 if masked else None
    assert_alike(adjoint(*given, where=where, **options), wanted(*given, where=where, **options))


@pytest.mark.usefixtures("usual_caches")
@pytest.mark.parametrize("axis", [0, 1])
def test_large_gradients(axis: int) -> None:
    """They go to memory past the caches, rows that are taken out among them."""
    shape = (1203, 901)
    given = *problem(shape, axis), axis
    assert given[1].nbytes > 8 * 2**20
    where = np.random.default_rng(0).uniform(size=shape) < 0.99
    assert_alike(adjoint(*given, where=where), wanted(*given, where=where))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [*(pytest.param(*case, marks=pytest.mark.slow) for case in [((70, 37), -1), ((37, 70), 0)]), ((3, 7, 5), 1)],
    ids=str,
)
def test_every_dtype(dtype: str, shape: Any, axis: int) -> None:
    given = *problem(shape, axis, dtype), axis
    assert_alike(adjoint(*given), wanted(*given))


@pytest.mark.parametrize("pivoting", [True, "auto"])
@pytest.mark.parametrize(("shape", "axis"), [((70, 38), -1), ((38, 70), 0)], ids=str)
def test_lanes_that_need_pivoting(shape: Any, axis: int, pivoting: Any) -> None:
    """They are solved again within the tile, and multiplied after that; so are their neighbours, once."""
    hard, easy = problem(shape, axis, make=zero_diagonal), problem(shape, axis)
    chosen = np.expand_dims(np.random.default_rng(0).uniform(size=70) < 0.2, axis)
    arrays = [np.where(chosen, x, y) for x, y in zip(hard[0], easy[0], strict=True)]
    given = arrays, *easy[1:], axis
    assert_alike(adjoint(*given, pivoting=pivoting), wanted(*given, pivoting=pivoting))


def test_entries_shared_by_systems() -> None:
    """Systems have matrices of their own where any entry is theirs; the gradients are of full size all the same."""
    (a, b, c), g, x = problem((70, 37), -1)
    given = [a[:1], b, c[:, :1]], g, x, -1
    right = wanted(*given)
    assert_alike(adjoint(*given), right)


def test_what_does_not_exist_has_a_zero_gradient() -> None:
    """Beside NaN and infinities too: pads, rows that are taken out, couplings to them."""
    arrays, g, x = problem((20, 9), -1)
    where = np.ones((20, 9), bool)
    where[:, 4] = False
    g[::2], g[1::2, 5], x[::3] = np.nan, np.inf, np.nan
    _, of_a, of_b, of_c = adjoint(arrays, g, x, -1, where=where)
    for y, rows in ((of_a, [0, 4, 5]), (of_b, [4]), (of_c, [3, 4, 8])):
        np.testing.assert_array_equal(y[:, rows], 0)


def test_a_singular_system_spoils_its_own_gradients_only() -> None:
    arrays, g, x = problem((70, 37), -1)
    arrays[1][33] = arrays[0][33] = arrays[2][33] = 0
    found = adjoint(arrays, g, x, -1)
    others = np.arange(70) != 33
    assert_alike([y[others] for y in found], [y[others] for y in wanted(arrays, g, x, -1)])
    assert np.isnan(found[0][33]).all() and np.isnan(found[2][33]).all()


def test_threads_share_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    given = *problem((3000, 100), -1), -1
    right = wanted(*given)
    for count in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        jax.clear_caches()
        assert_alike(adjoint(*given), right)


def test_a_gradient_is_the_forward_kernel_and_this_one() -> None:
    """Nothing is left to multiply."""
    arrays = [jnp.asarray(x) for x in dominant((6, 7))]
    gradient = jax.grad(lambda *x: tridiag.solve(*x, backend="numba_thomas").sum(), (0, 1, 2, 3))
    program = jax.jit(gradient).lower(*arrays).compile().as_text()
    assert program.count(" custom-call(") == 2 and "thomas_adjoint" in program
    assert " multiply(" not in program and " negate(" not in program
