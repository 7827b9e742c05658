"""`solve_block` by every backend: residuals and solutions in extended precision, gradients, errors."""

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, EPS, REAL, Subject, dtype_name, gauss, noise, to_numpy

import tridiag
from tridiag.calls import fast_path
from tridiag.problems.forms import Blocks

pytestmark = [
    pytest.mark.only(verb="solve_block"),
    # torch's own forward mode compiles its decompositions with what it has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
on_jax = pytest.mark.only(library="jax")
on_torch = pytest.mark.only(library="torch")
SOON = (1, "float32"), (2, "float64"), (3, "complex64"), (4, "float64")  # kernels of which the others differ little
IN_LANES = [
    one if one in SOON else pytest.param(*one, marks=pytest.mark.slow)
    for one in itertools.product(range(1, 10), DTYPES)
]


def dense(A: Any, B: Any, C: Any, batch: tuple[int, ...], n: int) -> np.ndarray:
    """The matrices (*batch, n m, n m) in extended precision."""
    m = np.shape(A)[-1]
    wide = np.clongdouble if any(np.iscomplexobj(v) for v in (A, B, C)) else np.longdouble
    A, B, C = (np.broadcast_to(np.asarray(v, wide), (*batch, n, m, m)) for v in (A, B, C))
    matrix = np.zeros((*batch, n, m, n, m), wide)
    for i in range(n):
        for j, block in ((i - 1, A), (i, B), (i + 1, C)):
            if 0 <= j < n:
                matrix[..., i, :, j, :] = block[..., i, :, :]
    return matrix.reshape(*batch, n * m, n * m)


def assert_solves(x: Any, A: Any, B: Any, C: Any, d: Any, dtype: str | None = None) -> None:
    """x has the shape of all arguments together, and its residual is rounding, row by row of |A| |x| + |d| at most."""
    shape = np.broadcast_shapes(*(np.shape(v)[:-1] for v in (A, B, C)), np.shape(d))
    assert x.shape == shape
    *batch, n, m = shape
    matrix, name = dense(A, B, C, tuple(batch), n), dtype or x.dtype.name
    right, y = (np.broadcast_to(v, shape).reshape(*batch, n * m, 1).astype(matrix.dtype) for v in (d.real, x.real))
    if np.iscomplexobj(x):
        right, y = (np.asarray(v, np.clongdouble).reshape(*batch, n * m, 1) for v in (np.broadcast_to(d, shape), x))
    residual = abs(right - matrix @ y)[..., 0].max(-1)
    sizes = (abs(matrix) @ abs(y) + abs(right))[..., 0].max(-1)
    bound = 8 * m * EPS[REAL.get(name, name)] + (EPS[name] if name == "float16" else 0)
    assert (residual <= bound * sizes).all(), f"off by {float((residual / sizes).max() / bound)} of the bound"


def solve(backend: Subject, *given: Any) -> np.ndarray:
    """From NumPy arrays to NumPy arrays."""
    return to_numpy(tridiag.solve_block(*map(backend.array, given), backend=backend.name))


def problem(shape: Any, m: int, dtype: str = "float64", seed: int = 0) -> Any:
    """A, B, C, d: entries in (-1, 1), which need pivoting."""
    rng = np.random.default_rng(seed)
    return tuple(noise(rng, s, dtype) for s in ((*shape, m, m),) * 3 + ((*shape, m),))


def dominant(shape: Any, m: int, dtype: str = "float64") -> Any:
    A, B, C, d = problem(shape, m, dtype)
    return A, (B + 4 * m * np.eye(m)).astype(dtype), C, d


# -------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(("shape", "m"), [((7,), 1), ((1,), 3), ((3, 9), 2), ((2, 11, 6), 4), ((2, 5), 7), ((4,), 16)])
def test_values(backend: Subject, shape: Any, m: int) -> None:
    given = problem(shape, min(m, backend.entry.rows or m))
    assert_solves(solve(backend, *given), *given)


def test_the_solution_of_systems_in_good_condition(backend: Subject) -> None:
    given = dominant((3, 6), 3)
    wanted = gauss(dense(*given[:3], (3,), 6), given[3].reshape(3, 18).astype(np.longdouble)).reshape(3, 6, 3)
    np.testing.assert_allclose(solve(backend, *given), wanted.astype(float), rtol=1e-13)


def test_blocks_of_one_row_are_a_tridiagonal_system(backend: Subject) -> None:
    A, B, C, d = problem((5, 12), 1)
    x = solve(backend, A, B, C, d)
    wanted = tridiag.solve(*(v[..., 0, 0] for v in (A, B, C)), d[..., 0], pivoting=True)
    np.testing.assert_allclose(x[..., 0], wanted, rtol=1e-11)


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 2, 3, *(pytest.param(m, marks=pytest.mark.slow) for m in (5, 8))])
def test_few_systems_as_among_many(backend: Subject, m: int, dtype: str) -> None:
    """They are eliminated one by one, with rows in vectors: transposed, backwards, singular, and with ends unread."""
    for n in (1, 2, 3, 10):
        A, B, C, d = problem((40, n), m, dtype, seed=n)
        for k in range(3):
            few = [v[k : k + 1] for v in (A, B, C, d)]
            assert_solves(solve(backend, *few), *few)
            turned = [v[k : k + 1].swapaxes(-1, -2) for v in (np.roll(C, 1, 1), B, np.roll(A, -1, 1))]
            form = Blocks((1, n, m, 1), transpose=True)
            x = backend.entry.module().solve_block(tuple(few[:3]), few[3][..., None], form)[..., 0]
            assert_solves(x, *turned, few[3])
            easy = [few[0], few[1] + 4 * m * np.eye(m, dtype=dtype), *few[2:]]
            many = solve(backend, *(np.repeat(v, 40, 0) for v in easy))
            tolerance = 64 * m * EPS[REAL.get(dtype, dtype)]
            x = solve(backend, *easy)
            np.testing.assert_allclose(x, many[:1], rtol=tolerance, atol=tolerance * abs(x).max())
            easy[0][:, 0], easy[2][:, -1] = np.nan, np.inf
            np.testing.assert_array_equal(solve(backend, *easy), x)
        B[1, n // 2], A[1, n // 2], C[1, n // 2] = 0, 0, 0
        x = solve(backend, A[:2], B[:2], C[:2], d[:2])
        assert np.isnan(x[1]).all() and np.isfinite(x[0]).all()


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize(("m", "dtype"), IN_LANES)
def test_systems_in_lanes(backend: Subject, m: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some lanes left over: few block rows, transposed, several right sides, singular in some lanes, ends unread."""
    from tridiag.kernels import table

    monkeypatch.setattr("tridiag.kernels.jobs.matrices.may_be_alone", lambda *facts: False)
    table.call_of.cache_clear()
    fast_path.forget()
    count, rng = 19, np.random.default_rng(m)
    for n in (1, 2, 3, 10):
        A, B, C, d = problem((count, n), m, dtype, seed=n)
        x = solve(backend, A, B, C, d)
        assert_solves(x, A, B, C, d)
        turned = [v.swapaxes(-1, -2) for v in (np.roll(C, 1, 1), B, np.roll(A, -1, 1))]
        for sides in (1, 2, 6):
            right = noise(rng, (count, n, m, sides), dtype)
            for transpose, matrix in ((False, [A, B, C]), (True, turned)):
                form = Blocks((count, n, m, sides), transpose=transpose)
                y = backend.entry.module().solve_block((A, B, C), right, form)
                for k in range(sides):
                    assert_solves(y[..., k], *matrix, right[..., k])
        A[:, 0], C[:, -1] = np.nan, np.inf
        np.testing.assert_array_equal(solve(backend, A, B, C, d), x)
        for k in (2, 17):
            B[k, n // 2], A[k, n // 2], C[k, n // 2] = 0, 0, 0
        y = solve(backend, A, B, C, d)
        assert np.isnan(y[[2, 17]]).all()
        np.testing.assert_array_equal(np.delete(y, [2, 17], 0), np.delete(x, [2, 17], 0))


@pytest.mark.only(compiled=True, library="numpy")
@pytest.mark.parametrize("alone", [False, True])
def test_a_long_system_is_eliminated_in_stretches(
    backend: Subject, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it keeps does not grow with its length; the last stretch is one block row. One of few is kept whole."""
    from tridiag.kernels import table

    monkeypatch.setattr("tridiag.kernels.jobs.matrices.may_be_alone", lambda *facts: alone)
    table.call_of.cache_clear()
    fast_path.forget()
    n = 2 * 65_536 + 1
    A, B, C, d = dominant((n,), 1)
    wanted = tridiag.solve(*(v[..., 0, 0] for v in (A, B, C)), d[..., 0])
    np.testing.assert_allclose(solve(backend, A, B, C, d)[..., 0], wanted, rtol=1e-12, atol=1e-15)
    given = dominant((20_000,), 3)
    x = solve(backend, *given)
    A, B, C, d = given
    residual = np.einsum("nij,nj->ni", B, x) - d
    residual[1:] += np.einsum("nij,nj->ni", A[1:], x[:-1])
    residual[:-1] += np.einsum("nij,nj->ni", C[:-1], x[1:])
    assert abs(residual).max() < 1e-14 * abs(B).max()


def test_rows_are_exchanged_between_blocks(backend: Subject) -> None:
    """Diagonal blocks that are 0: regular where the number of block rows is even."""
    A, B, C, d = problem((3, 6), 2)
    given = A, 0 * B, C, d
    assert_solves(solve(backend, *given), *given)


BROADCASTS = {  # the shapes of A, B, C and d
    "one matrix": ((6, 3, 3), (6, 3, 3), (6, 3, 3), (4, 2, 6, 3)),
    "one block for all": ((3, 3), (3, 3), (3, 3), (6, 3)),
    "a matrix for each row of systems": ((4, 1, 6, 3, 3), (4, 1, 1, 3, 3), (6, 3, 3), (4, 5, 6, 3)),
    "one right side": ((4, 6, 3, 3), (4, 6, 3, 3), (3, 3), (6, 3)),
    "a constant right side": ((4, 6, 3, 3), (6, 3, 3), (4, 1, 3, 3), (3,)),
    "more systems than either has": ((4, 1, 6, 3, 3), (6, 3, 3), (1, 2, 1, 3, 3), (5, 1, 1, 6, 3)),
}


@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcasting(backend: Subject, case: str) -> None:
    rng = np.random.default_rng(1)
    given = [rng.uniform(-1, 1, shape) for shape in BROADCASTS[case]]
    assert_solves(solve(backend, *given), *given)


def test_arrays_of_any_strides(backend: Subject) -> None:
    A, B, C, d = problem((4, 5), 3)
    given = A[::-1], B.swapaxes(-1, -2), C[:, ::-1], np.asfortranarray(d)
    np.testing.assert_allclose(solve(backend, *given), solve(backend, *map(np.ascontiguousarray, given)), rtol=1e-12)


def test_the_ends_are_never_read(backend: Subject) -> None:
    A, B, C, d = dominant((3, 5), 2)
    x = solve(backend, A, B, C, d)
    A[:, 0], C[:, -1] = np.nan, np.inf
    np.testing.assert_array_equal(solve(backend, A, B, C, d), x)


def test_a_singular_system_is_nan_and_no_other(backend: Subject) -> None:
    A, B, C, d = dominant((11, 4), 2)
    x = solve(backend, A, B, C, d)
    A[1], B[1], C[1] = 0, [[1, 2], [2, 4]], 0  # the last pivot of a block
    A[6], B[6], C[6] = 0, 0, 0
    B[9, 2, 1, 1] = np.nan  # not singular: it propagates
    y = solve(backend, A, B, C, d)
    assert np.isnan(y[[1, 6]]).all() and np.isnan(y[9]).any()
    regular = np.delete(np.arange(11), [1, 6, 9])
    np.testing.assert_array_equal(y[regular], x[regular])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_nothing_to_do(backend: Subject, shape: Any) -> None:
    assert solve(backend, *(np.ones((*shape, 2, 2)),) * 3, np.ones((*shape, 2))).shape == (*shape, 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(backend: Subject, dtype: str) -> None:
    given = problem((3, 6), 3, dtype)
    x = solve(backend, *given)
    assert x.dtype == dtype
    assert_solves(x, *given)


def test_a_real_matrix_with_complex_right_sides(backend: Subject) -> None:
    (A, B, C, _), (*_, d) = problem((3, 6), 3), problem((3, 6), 3, "complex128")
    x = solve(backend, A, B, C, d)
    assert x.dtype == "complex128"
    assert_solves(x, A, B, C, d)


def test_halves_come_back_as_they_came(backend: Subject) -> None:
    given = [backend.array(v, "float16") for v in dominant((3, 6), 3)]
    x = tridiag.solve_block(*given, backend=backend.name)
    assert dtype_name(x) == "float16"
    assert_solves(to_numpy(x), *map(to_numpy, given), dtype="float16")


# ----------------------------------------------------------------------------------------------------------- gradients

GRADIENTS = {
    "plain": ((2, 4, 2, 2), (2, 4, 2, 2), (2, 4, 2, 2), (2, 4, 2)),
    "one matrix": ((1, 2, 2), (4, 2, 2), (2, 2), (3, 4, 2)),
    "one row": ((1, 2, 2), (1, 2, 2), (1, 2, 2), (1, 2)),
}


def by(backend: Subject) -> Any:
    return lambda *arrays: tridiag.solve_block(*arrays, backend=backend.name)


def drawn(case: str, dtype: str = "float64") -> list[np.ndarray]:
    """B is dominant."""
    rng = np.random.default_rng(0)
    A, B, C, d = (noise(rng, shape, dtype) for shape in GRADIENTS[case])
    return [A, (B + 6 * np.eye(2)).astype(dtype), C, d]


@on_jax
@pytest.mark.parametrize("case", GRADIENTS)
def test_finite_differences_under_jax(backend: Subject, case: str) -> None:
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    arrays, order = [jax.numpy.asarray(v) for v in drawn(case)], 2 if case == "plain" and backend.compiled else 1
    check_grads(jax.jit(by(backend)), arrays, order=order, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
def test_complex_finite_differences_under_jax(backend: Subject) -> None:
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    arrays = [jax.numpy.asarray(v) for v in drawn("plain", "complex128")]
    check_grads(jax.jit(by(backend)), arrays, order=1, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
@pytest.mark.parametrize("dims", [(0, 0, 0, 0), (None, None, None, 0), (0, None, None, None)], ids=str)
def test_vmap_under_jax(backend: Subject, dims: Any) -> None:
    import jax

    gradient = jax.jit(jax.grad(lambda *v: (by(backend)(*v) ** 2).sum(), argnums=(0, 1, 2, 3)))
    given = [jax.numpy.asarray(v) if dim == 0 else v[0] for v, dim in zip(dominant((3, 5), 2), dims, strict=True)]
    found = jax.jit(jax.vmap(gradient, in_axes=dims))(*given)
    for k in range(3):
        right = gradient(*(v[k] if dim == 0 else v for v, dim in zip(given, dims, strict=True)))
        for one, other in zip(found, right, strict=True):
            np.testing.assert_allclose(one[k], other, rtol=1e-11, atol=1e-13)


@on_jax
def test_the_gradient_of_what_is_never_read_is_zero_under_jax(backend: Subject) -> None:
    import jax

    A, B, C, d = dominant((2, 4), 2)
    A[:, 0], C[:, -1] = np.nan, np.nan
    gradient = jax.jit(jax.grad(lambda *v: (by(backend)(*v) ** 2).sum(), argnums=(0, 1, 2, 3)))
    found = gradient(*map(jax.numpy.asarray, (A, B, C, d)))
    assert all(np.isfinite(v).all() for v in found) and not found[0][:, 0].any() and not found[2][:, -1].any()


@on_torch
@pytest.mark.parametrize(
    ("case", "dtype"),
    [("one matrix", "float64"), pytest.param("plain", "complex128", marks=pytest.mark.slow)],
)
def test_finite_differences_under_torch(backend: Subject, case: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(v, requires_grad=True) for v in drawn(case, dtype)]
    assert torch.autograd.gradcheck(by(backend), arrays, check_forward_ad=True)
    if dtype == "float64":
        assert torch.autograd.gradgradcheck(by(backend), arrays)


@on_torch
def test_vmap_under_torch(backend: Subject) -> None:
    torch = pytest.importorskip("torch")
    A, B, C, d = map(torch.tensor, dominant((3, 5), 2))
    found = torch.func.vmap(by(backend), (0, None, 0, 0))(A, B[0], C, d)
    for k in range(3):
        torch.testing.assert_close(found[k], by(backend)(A[k], B[0], C[k], d[k]))


# -------------------------------------------------------------------------------------------------------------- errors

BLOCK, RIGHT = np.ones((4, 6, 3, 3)), np.ones((4, 6, 3))


@pytest.mark.parametrize(
    ("kind", "text", "given", "options"),
    [
        (ValueError, r"do not broadcast", (BLOCK, BLOCK, BLOCK, np.ones((5, 6, 3))), {}),
        (ValueError, r"B has shape \(4, 6, 3\); wanted square matrices", (BLOCK, RIGHT, BLOCK, RIGHT), {}),
        (ValueError, "wanted vectors of length 3 along the last axis of d", (BLOCK, BLOCK, BLOCK, np.ones((4, 6))), {}),
        (ValueError, "d has shape .* and C", (BLOCK, BLOCK, np.ones((6, 2, 2)), RIGHT), {}),
        (ValueError, "A holds 17 x 17 matrices; wanted 1 to 16", (*(np.ones((2, 17, 17)),) * 3, np.ones((2, 17))), {}),
        (ValueError, "A holds 0 x 0 matrices", (*(np.ones((2, 0, 0)),) * 3, np.ones((2, 0))), {}),
        (ValueError, "no argument has the axis of the block rows", (*(np.eye(3),) * 3, np.ones(3)), {}),
        (TypeError, "A has dtype bool", (BLOCK > 0, BLOCK, BLOCK, RIGHT), {}),
        (tridiag.BackendError, "scipy_gtsv does not have the verb solve_block", (BLOCK, BLOCK, BLOCK, RIGHT),
         {"backend": "scipy_gtsv"}),
    ],
)  # fmt: skip
def test_bad_input(kind: type[Exception], text: str, given: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        tridiag.solve_block(*given, **options)


def test_libraries_do_not_mix() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="different libraries"):
        tridiag.solve_block(BLOCK, BLOCK, BLOCK, torch.ones((4, 6, 3)))


def test_explain() -> None:
    told = tridiag.explain("solve_block", BLOCK, BLOCK, BLOCK, RIGHT, backend="numpy")
    assert told.backend == "numpy_thomas" and told.problem.shape == (4, 6, 3)
