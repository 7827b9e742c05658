"""That singular systems get the finite solutions of A + delta I where asked for, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest
from helpers import EPS, REAL, Subject, assert_solves, backward_errors, dominant, oracle, to_library, to_numpy

import tridiag
from tridiag import conventions

LIBRARIES = ["numpy", "jax", "torch"]


def neumann(batch: int = 3, n: int = 12, dtype: str = "float64") -> list[np.ndarray]:
    """Laplacians with all fluxes given; the second of them alone is singular."""
    b = np.full((batch, n), 2.0)
    b[1, 0] = b[1, -1] = 1
    d = np.random.default_rng(0).standard_normal((batch, n))
    return [x.astype(dtype) for x in (np.full(n, -1.0), b, np.full(n, -1.0), d)]


def perturbed(backend: Subject, *system: Any, **options: Any) -> np.ndarray:
    return backend.solve(*system, singular="perturb", **options)


def assert_perturbed(x: np.ndarray, a: Any, b: Any, c: Any, d: Any, **options: Any) -> None:
    """x is finite, and for the least delta = 64^k eps max |A| with which it may be, solves with b + delta.

    The matrices are nearly singular: what can be asked of x is a small normwise backward error.
    """
    assert np.isfinite(x).all()
    real = REAL.get(x.dtype.name, x.dtype.name)
    largest = max(np.abs(v).max() for v in (a, b, c)) or 1
    for k in range(12):
        delta = np.asarray(EPS[real] * largest * 64.0**k, real)
        _, error = backward_errors(x, a, b + delta, c, d, **options)
        if error.max() <= 8 * EPS[real]:
            return
    raise AssertionError("x solves with no delta")


@pytest.mark.only(promises=(True, "auto"))
def test_a_singular_system_gets_a_huge_solution_and_its_neighbours_keep_theirs(
    backend: Subject, pivoting: bool | str
) -> None:
    a, b, c, d = neumann()
    plain = backend.solve(a, b, c, d, pivoting=pivoting, check=False)
    x = perturbed(backend, a, b, c, d, pivoting=pivoting)
    assert np.isnan(plain[1]).all()
    np.testing.assert_array_equal(x[[0, 2]], plain[[0, 2]])
    assert np.abs(x[1]).min() > 1e12
    assert_perturbed(x[1], a, b[1], c, d[1])


@pytest.mark.only(promises=(True, "auto"), library="numpy")
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_other_dtypes(backend: Subject, pivoting: bool | str, dtype: str) -> None:
    a, b, c, d = neumann(dtype=dtype)
    x = perturbed(backend, a, b, c, d, pivoting=pivoting)
    assert x.dtype == dtype and np.abs(x[1]).min() > 0.01 / EPS[REAL.get(dtype, dtype)]
    assert_perturbed(x[1], a, b[1], c, d[1])


@pytest.mark.parametrize("library", LIBRARIES)
def test_consistent_right_sides_leave_only_the_constant_open(library: str) -> None:
    """Where d has no part in the null space x is a solution of the singular system itself."""
    a, b, c, _ = neumann()
    d = np.zeros(b.shape)
    d[:, 0], d[:, -1] = 1, -1
    x = to_numpy(tridiag.solve(*(to_library(library, v) for v in (a, b, c, d)), singular="perturb"))
    where = np.arange(b.shape[1]) > 0
    wanted = oracle(a, b[1], c, d[1], where=where).astype(float)
    assert np.abs(np.diff(x[1]) - np.diff(wanted)).max() < 1e-12


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("options", "batch"), [({"periodic": True}, False), ({"transpose": True}, False), ({"axis": 0}, False), ({}, True)]
)
def test_options_and_shared_matrices(library: str, options: dict[str, Any], batch: bool) -> None:
    """A matrix that is singular is so for all its right sides."""
    n = 9
    a, b, c, _ = dominant((n,))
    a[4] = b[4] = c[4] = 0
    d = np.random.default_rng(1).standard_normal((4, n) if batch else (n, 4) if "axis" in options else (n,))
    x = to_numpy(tridiag.solve(*(to_library(library, v) for v in (a, b, c, d)), singular="perturb", **options))
    assert np.isnan(to_numpy(tridiag.solve(a, b, c, d, check=False, **options))).all()
    assert np.abs(x).max() > 1e12
    for k in np.ndindex(d.shape[:-1] if batch else d.shape[1:]):
        one = (*k, slice(None)) if batch else (slice(None), *k)
        assert_perturbed(x[one], a, b, c, d[one], **{**options, "axis": 0})


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_that_are_taken_out_stay_so(library: str) -> None:
    a, b, c, d = neumann()
    where = np.ones(b.shape, bool)
    where[:, 6] = False
    b[1, 5] = b[1, 0]  # the part above the row is singular, whatever stands in the row
    a[6], b[:, 6], c[6], d[:, 6] = np.nan, 1e30, np.nan, np.nan
    given = [to_library(library, v) for v in (a, b, c, d, where)]
    x = to_numpy(tridiag.solve(*given[:4], where=given[4], singular="perturb"))
    assert (x[:, 6] == 0).all() and np.abs(x[1, :6]).min() > 1e12
    assert_perturbed(x[1, :6], a[:6], b[1, :6], c[:6], d[1, :6])
    assert_solves(x[1, 7:], a[7:], b[1, 7:], c[7:], d[1, 7:])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n", [1, 2, 30, 300])
def test_many_zero_pivots(library: str, n: int) -> None:
    """delta grows until the solution is finite; of no entries at all it is eps."""
    for entry in (1.0, 0.0):
        a, b, c, d = np.zeros(n), np.zeros(n), np.full(n, entry), np.ones((2, n))
        x = to_numpy(tridiag.solve(*(to_library(library, v) for v in (a, b, c, d)), singular="perturb"))
        assert_perturbed(x, a, b, c, d)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_not_finite_stays_so(library: str) -> None:
    a, b, c, d = dominant((6, 10))
    a[3] = b[3] = c[3] = 0
    d[0, 4], d[1, 4], b[2, 4], d[3, 4], d[4, 4] = np.nan, np.inf, np.nan, np.nan, np.inf
    given = [to_library(library, v) for v in (a, b, c, d)]
    x = to_numpy(tridiag.solve(*given, singular="perturb"))
    plain = to_numpy(tridiag.solve(*given, check=False))
    np.testing.assert_array_equal(x, plain)
    assert np.isfinite(x[5]).all() and not np.isfinite(x[[0, 2, 3]]).any()


def test_halves_have_a_delta_of_their_own() -> None:
    """That of single precision would make solutions that they cannot hold."""
    a, b, c, d = neumann(dtype="float16")
    x = tridiag.solve(a, b, c, d, singular="perturb")
    assert x.dtype == np.float16 and np.isfinite(x).all() and np.abs(x[1]).min() > 1


@pytest.mark.parametrize("option", ["out", "overwrite_d"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_where_the_solution_goes(library: str, option: str) -> None:
    a, b, c, d = (to_library(library, v) for v in neumann())
    wanted = to_numpy(tridiag.solve(a, b, c, d, singular="perturb"))
    place = d if option == "overwrite_d" else to_library(library, np.empty(wanted.shape))
    given: dict[str, Any] = {"overwrite_d": True} if option == "overwrite_d" else {"out": place}
    assert tridiag.solve(a, b, c, d, singular="perturb", **given) is place
    np.testing.assert_array_equal(to_numpy(place), wanted)


def test_derivatives_are_those_of_the_system_that_is_solved() -> None:
    """Under JAX: of both orders, in both modes, below vmap and jit."""
    jax = pytest.importorskip("jax")
    a, b, c, d = neumann()
    a, c = np.broadcast_to(a, b.shape), np.broadcast_to(c, b.shape)
    delta = np.zeros((3, 1))
    delta[1] = 2 * EPS["float64"]

    def value(solve: Any, *system: Any) -> Any:
        return (solve(*system) * np.arange(12.0)).sum()

    def plain(a: Any, b: Any, c: Any, d: Any) -> Any:
        return tridiag.solve(a, b + delta, c, d)

    def asked(*system: Any) -> Any:
        return tridiag.solve(*system, singular="perturb")

    everything = (0, 1, 2, 3)
    gradient = jax.jit(jax.grad(value, (1, 2, 3, 4)), static_argnums=0)
    wanted = gradient(plain, a, b, c, d)
    for function in (asked, jax.vmap(asked)):
        found = gradient(function, a, b, c, d)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    tangents = tuple(np.random.default_rng(k).standard_normal(b.shape) for k in everything)
    first, second = (
        jax.jit(lambda s, f=f: jax.jvp(lambda *s: jax.jvp(f, s, tangents)[1], s, tangents))((a, b, c, d))
        for f in (asked, plain)
    )
    for x, y in zip(first, second, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


def test_derivatives_under_pytorch() -> None:
    torch = pytest.importorskip("torch")
    a, b, c, d = map(torch.tensor, neumann())
    delta = torch.zeros((3, 1), dtype=torch.float64)
    delta[1] = 2 * EPS["float64"]

    def value(b: Any, d: Any) -> Any:
        return (tridiag.solve(a, b, c, d, singular="perturb") * torch.arange(12)).sum()

    def plain(b: Any, d: Any) -> Any:
        return (tridiag.solve(a, b + delta, c, d) * torch.arange(12)).sum()

    wanted = torch.func.grad(plain, (0, 1))(b, d)
    given = b.clone().requires_grad_(), d.clone().requires_grad_()
    for found in (torch.autograd.grad(value(*given), given), torch.func.grad(value, (0, 1))(b, d)):
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
    mapped = torch.func.vmap(lambda b, d: tridiag.solve(a, b, c, d, singular="perturb"))(b, d)
    np.testing.assert_array_equal(mapped, tridiag.solve(a, b, c, d, singular="perturb"))


def test_a_graph_of_torch_compile_holds_it() -> None:
    torch = pytest.importorskip("torch")
    system = [*map(torch.tensor, neumann())]

    def solve(*system: Any) -> Any:
        return tridiag.solve(*system, singular="perturb")

    compiled = torch.compile(solve, fullgraph=True, backend="aot_eager")
    np.testing.assert_array_equal(compiled(*system), solve(*system))


@pytest.mark.parametrize("name", ["from_jax", "from_tensorflow"])
def test_conventions_say_it_as_their_libraries_do(name: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    a, b, c, d = (jnp.asarray(np.broadcast_to(x, (3, 12))) for x in neumann())
    given = (a, b, c, d[..., None]) if name == "from_jax" else (jnp.stack((c, b, a), -2), d[..., None])
    function = getattr(conventions, name)
    assert "singular" not in function(*given)
    x = tridiag.solve(**function(*given, perturb_singular=True))
    np.testing.assert_array_equal(x[..., 0], tridiag.solve(a, b, c, d, singular="perturb"))
    with pytest.raises(ValueError, match=r"perturb_singular is True and \w+ is left out"):
        function(*given[: -1 if name == "from_jax" else 1], perturb_singular=True)


def test_singular_systems_are_as_large_as_those_of_jax() -> None:
    pytest.importorskip("jax")
    from jax import lax

    a, b, c, d = neumann()
    try:
        wanted = lax.linalg.tridiagonal_solve(
            *(np.broadcast_to(x, b.shape) for x in (a, b, c)), d[..., None], perturb_singular=True
        )[..., 0]
    except (TypeError, RuntimeError):
        pytest.skip("this JAX has no perturb_singular")
    x = tridiag.solve(a, b, c, d, singular="perturb")
    np.testing.assert_allclose(x[[0, 2]], wanted[np.array([0, 2])], rtol=1e-10)
    assert (abs(np.log10(np.abs(x[1] / wanted[1]))) < 3).all()


def test_dask() -> None:
    da = pytest.importorskip("dask.array")
    a, b, c, d = neumann()
    x = tridiag.solve(a, da.from_array(b, chunks=(1, 12)), c, d, singular="perturb")
    np.testing.assert_array_equal(x.compute(), tridiag.solve(a, b, c, d, singular="perturb"))
    with pytest.raises(ValueError, match=r"singular is 'perturb'.*cut into 2 chunks; rechunk"):
        tridiag.solve(a, da.from_array(b, chunks=(1, 6)), c, d, singular="perturb")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"singular": "raise"}, r"singular is 'raise'; wanted 'nan' or 'perturb'"),
        ({"singular": True}, r"singular is True; wanted 'nan' or 'perturb'"),
        ({"singular": "perturb", "pivoting": False}, "partial pivoting.*leave one of them out"),
        ({"singular": "perturb", "axis_name": "x"}, "axis_name.*leave one of them out"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tridiag.solve(*neumann(), **options)


def test_a_backend_without_pivoting_says_no() -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(tridiag.BackendError, match="cannot keep the promise pivoting='auto'"):
        tridiag.solve(*map(jnp.asarray, neumann()), singular="perturb", backend="jax_pcr")
