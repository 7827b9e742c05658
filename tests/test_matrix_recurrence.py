"""`matrix_recurrence` by every backend: values against the definition in extended precision, gradients, errors."""

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, EPS, REAL, Subject, dtype_name, noise, to_numpy

import tridiag
from tridiag.backends import BACKENDS

pytestmark = [
    pytest.mark.only(verb="matrix_recurrence"),
    # torch's own forward mode compiles its decompositions with what it has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
turned = pytest.mark.parametrize("reverse", [False, True])
on_jax = pytest.mark.only(library="jax")
on_torch = pytest.mark.only(library="torch")

# ------------------------------------------------------------------------------------------------------ the definition


def oracle(A: Any, x: Any, init: Any = None, *, reverse: bool = False) -> np.ndarray:
    """Step by step in long double."""
    wide = np.clongdouble if any(np.iscomplexobj(v) for v in (A, x, init)) else np.longdouble
    A, x = np.asarray(A, wide), np.asarray(x, wide)
    shape = np.broadcast_shapes(A.shape[:-1], (*x.shape[:-1], 1))[:-1]
    m, n = x.shape[-1], shape[-1]
    A, x = np.broadcast_to(A, (*shape, m, m)), np.broadcast_to(x, (*shape, m))
    y = np.zeros(x.shape, wide)
    before = None if init is None else np.broadcast_to(np.asarray(init, wide), (*shape[:-1], m))
    for t in reversed(range(n)) if reverse else range(n):
        y[..., t, :] = x[..., t, :]
        if before is not None:
            y[..., t, :] += np.einsum("...ij,...j->...i", A[..., t, :, :], before)
        before = y[..., t, :]
    return y


def assert_recurs(y: Any, A: Any, x: Any, init: Any = None, dtype: str | None = None, **options: Any) -> None:
    """y is the sequence up to the rounding of n steps, each relative to the sum of the sizes of its terms."""
    right = oracle(A, x, init, **options)
    sizes = oracle(abs(np.asarray(A)), abs(np.asarray(x)), None if init is None else abs(np.asarray(init)), **options)
    y = np.asarray(y)
    assert y.shape == right.shape
    name, (n, m) = dtype or y.dtype.name, y.shape[-2:]
    bound = 8 * (n + m) * EPS[REAL.get(name, name)] * sizes
    bound += EPS[name] * abs(right) if name in ("float16", "bfloat16") else 0
    assert (abs(y - right) <= bound).all(), f"off by up to {float((abs(y - right) / np.maximum(bound, 1e-300)).max())}"


def recur(backend: Subject, A: Any, x: Any, init: Any = None, **options: Any) -> np.ndarray:
    """From NumPy arrays to NumPy arrays."""
    return to_numpy(tridiag.matrix_recurrence(*map(backend.array, (A, x, init)), backend=backend.name, **options))


def problem(shape: Any, m: int, dtype: str = "float64", seed: int = 0) -> Any:
    """A, x, init: sequences that neither grow nor vanish."""
    rng = np.random.default_rng(seed)
    A, x, init = (noise(rng, s, dtype) for s in ((*shape, m, m), (*shape, m), (*shape[:-1], m)))
    return (A / np.sqrt(m)).astype(dtype), x, init


# -------------------------------------------------------------------------------------------------------------- values


@turned
@pytest.mark.parametrize(("shape", "m"), [((30,), 1), ((1,), 2), ((2,), 3), ((4, 20), 4), ((3, 2, 7), 5), ((25,), 16)])
def test_values(backend: Subject, shape: Any, m: int, reverse: bool) -> None:
    A, x, init = problem(shape, m)
    assert_recurs(recur(backend, A, x, reverse=reverse), A, x, reverse=reverse)
    assert_recurs(recur(backend, A, x, init, reverse=reverse), A, x, init, reverse=reverse)


def test_more_rows_than_are_compiled(backend: Subject) -> None:
    """Loops take any; compiled backends say how many they have code for."""
    A, x, init = problem((5,), 17)
    if most := BACKENDS[backend.name].rows:
        with pytest.raises(tridiag.BackendError, match=f"multiplies matrices of up to {most} rows, not 17"):
            recur(backend, A, x, init)
    else:
        assert_recurs(recur(backend, A, x, init), A, x, init)


@turned
@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("m", range(2, 10))
def test_sequences_abreast_and_left_over(backend: Subject, m: int, dtype: str, reverse: bool) -> None:
    """Four sequences are computed together, and those along one axis in a row: none is left out, or takes another's."""
    for count, steps, rows in itertools.product((1, 2, 3, 4, 5, 11), (1, 2, 5), (1, 3)):
        A, x, init = problem((count, rows, steps), m, dtype, seed=count)
        A, x, init = A[:, :1], x.transpose(1, 0, 2, 3), init.transpose(1, 0, 2)  # rows share their matrices
        A = A.transpose(1, 0, 2, 3, 4)
        for before in (None, init):
            assert_recurs(recur(backend, A, x, before, reverse=reverse), A, x, before, reverse=reverse)


@turned
@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("m", range(2, 9))
def test_an_entry_that_is_not_finite_stays_in_its_row(backend: Subject, m: int, dtype: str, reverse: bool) -> None:
    """Of matrices whose columns share vectors no entry meets those of another row, nor what lies behind a vector."""
    for count, row, column in itertools.product((1, 4), range(m), range(m)):
        A, x, _ = problem((count, 3), m, dtype)
        A[:, 1, row, column] = np.inf
        y = recur(backend, A, x, reverse=reverse)
        others = np.arange(m) != row
        assert not np.isfinite(y[:, 1, row]).any()
        assert np.isfinite(y[:, 1, others]).all() and np.isfinite(y[:, 2 if reverse else 0]).all()


BROADCASTS = {  # the shapes of A, of x and of init
    "one matrix": ((3, 3), (4, 20, 3), (4, 3)),
    "one matrix for each sequence": ((4, 1, 3, 3), (4, 20, 3), (3,)),
    "matrices for all sequences": ((20, 3, 3), (4, 20, 3), (4, 3)),
    "one x": ((4, 20, 3, 3), (20, 3), (1, 3)),
    "a constant x": ((4, 20, 3, 3), (3,), (4, 3)),
    "more sequences than either has": ((4, 1, 20, 3, 3), (3, 20, 3), (4, 3, 3)),
}


@turned
@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcasting(backend: Subject, case: str, reverse: bool) -> None:
    rng = np.random.default_rng(1)
    A, x, init = (rng.uniform(-0.5, 0.5, shape) for shape in BROADCASTS[case])
    assert_recurs(recur(backend, A, x, reverse=reverse), A, x, reverse=reverse)
    assert_recurs(recur(backend, A, x, init, reverse=reverse), A, x, init, reverse=reverse)


def test_companion_matrices_are_a_recurrence_of_higher_order(backend: Subject) -> None:
    rng = np.random.default_rng(2)
    a, x = rng.uniform(-0.5, 0.5, (3, 40)), rng.normal(size=40)
    A = np.zeros((40, 3, 3))
    A[:, 0], A[:, 1, 0], A[:, 2, 1] = a.T, 1, 1
    y = recur(backend, A, np.stack([x, 0 * x, 0 * x], -1))
    wanted = tridiag.linear_recurrence(tuple(a), x, backend="numpy")
    np.testing.assert_allclose(y[:, 0], wanted, rtol=1e-12, atol=1e-12)


@turned
def test_the_first_matrix_is_not_read_without_init(backend: Subject, reverse: bool) -> None:
    A, x, _ = problem((4, 20), 3)
    cut = A.copy()
    cut[:, -1 if reverse else 0] = np.nan
    assert_recurs(recur(backend, cut, x, reverse=reverse), A, x, reverse=reverse)


@turned
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_where_the_sequence_is(backend: Subject, dtype: str, reverse: bool) -> None:
    """Products of the matrices of a stretch overflow, or vanish, where no value does."""
    n, growth = 2000, 30 if dtype in ("float32", "complex64") else 300
    A, x, init = np.zeros((4, n, 2, 2)), np.zeros((4, n, 2)), np.zeros((4, 2))
    A[0, :, 0, 0], A[0, :, 1, 1] = 10, 10  # nothing to grow
    A[1, :, 0, 0], A[1, :, 1, 1], init[1, 1] = 10, 1, 1  # only the constant component is there
    A[2] = A[0]  # a zero ends what grows, and something else begins
    x[2, 0], A[2, growth], x[2, n - growth] = 1, 0, 1
    A[3, :, 0, 0] = 0.1  # a stretch vanishes, and the next one grows back
    A[3, growth // 2 : growth, 0, 0], A[3, growth:, 0, 0], init[3, 0] = 10, 0.5, 1
    if reverse:
        A, x = A[:, ::-1], x[:, ::-1]
    A, x, init = (v.astype(dtype) for v in (A, x, init))
    y = recur(backend, A, x, init, reverse=reverse)
    right = oracle(A, x, init, reverse=reverse)
    assert np.isfinite(y).all() and not y[0].any()
    real = np.finfo(REAL.get(dtype, dtype))
    np.testing.assert_allclose(y, right.astype(dtype), rtol=2000 * real.eps, atol=real.tiny / real.eps)


def test_what_is_not_finite_stays_in_its_future(backend: Subject) -> None:
    A, x, _ = problem((3, 40), 2)
    clean = recur(backend, A, x)
    x[0, 20, 1] = np.nan
    found = recur(backend, A, x)
    np.testing.assert_allclose(found[0, :20], clean[0, :20], rtol=1e-12)
    np.testing.assert_allclose(found[1:], clean[1:], rtol=1e-12)
    assert np.isnan(found[0, 21:]).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_nothing_to_do(backend: Subject, shape: Any) -> None:
    init = np.full((*shape[:-1], 2), 3.0)
    given = map(backend.array, (np.ones((*shape, 2, 2)), np.ones((*shape, 2)), init))
    y, last = tridiag.matrix_recurrence(*given, backend=backend.name, return_final=True)
    assert to_numpy(y).shape == (*shape, 2)
    np.testing.assert_array_equal(to_numpy(last), init)


@turned
def test_the_final_value_continues_the_sequence(backend: Subject, reverse: bool) -> None:
    A, x, init = problem((4, 12), 3)
    state, parts = backend.array(init), []
    for part in (slice(5, None), slice(0, 5)) if reverse else (slice(0, 5), slice(5, None)):
        given = (backend.array(np.ascontiguousarray(v[:, part])) for v in (A, x))
        y, state = tridiag.matrix_recurrence(*given, state, backend=backend.name, reverse=reverse, return_final=True)
        parts.append(to_numpy(y))
    whole = np.concatenate(parts[::-1] if reverse else parts, axis=1)
    np.testing.assert_allclose(whole, recur(backend, A, x, init, reverse=reverse), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(backend: Subject, dtype: str) -> None:
    A, x, init = problem((3, 20), 3, dtype)
    y = recur(backend, A, x, init)
    assert y.dtype == dtype
    assert_recurs(y, A, x, init)


def test_real_matrices_of_complex_vectors(backend: Subject) -> None:
    (A, _, _), (_, x, init) = problem((3, 20), 3), problem((3, 20), 3, "complex128")
    y = recur(backend, A, x, init)
    assert y.dtype == "complex128"
    assert_recurs(y, A, x, init)


def test_halves_come_back_as_they_came(backend: Subject) -> None:
    given = [backend.array(v, "float16") for v in problem((3, 20), 3)]
    y = tridiag.matrix_recurrence(*given, backend=backend.name)
    assert dtype_name(y) == "float16"
    assert_recurs(to_numpy(y), *map(to_numpy, given), dtype="float16")


@pytest.mark.only(library=("numpy", "torch"))
def test_out_takes_the_result(backend: Subject) -> None:
    A, x, init = map(backend.array, problem((3, 20), 3))
    out = backend.array(np.zeros((3, 20, 3)))
    assert tridiag.matrix_recurrence(A, x, init, backend=backend.name, out=out) is out
    np.testing.assert_array_equal(to_numpy(out), recur(backend, *map(to_numpy, (A, x, init))))


def strewn(x: np.ndarray, way: str) -> np.ndarray:
    """The same numbers, elsewhere in memory."""
    if way == "planes":  # a sequence of each entry, as of a matrix that is written down entry by entry
        k = 2 if x.ndim == 4 else 1
        return np.moveaxis(np.moveaxis(x, range(-k, 0), range(k)).copy(), range(k), range(-k, 0))
    if way == "as of Fortran":
        return np.asfortranarray(x)
    if way == "every other":
        wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x[..., ::-1].copy()[..., ::-1]  # "backwards"


@pytest.mark.only(library=("numpy", "torch"))
@turned
@pytest.mark.parametrize("way", ["planes", "as of Fortran", "every other", "backwards"])
@pytest.mark.parametrize("m", [2, 3, 8, 9])
def test_numbers_that_lie_anywhere(backend: Subject, m: int, way: str, reverse: bool) -> None:
    """Kernels read them where they are; of all operands, or of one, and where the result goes."""
    if backend.library == "torch" and way == "backwards":
        pytest.skip("tensors have no negative strides")
    given = problem((5, 6), m, seed=m)
    place = strewn(np.zeros((5, 6, m)), way)
    for chosen in ([0], [1], [2], [0, 1, 2]):
        views = [strewn(x, way) if k in chosen else x for k, x in enumerate(given)]
        arrays = [backend.array(x) for x in views]
        y = tridiag.matrix_recurrence(*arrays, backend=backend.name, reverse=reverse, out=backend.array(place))
        assert_recurs(to_numpy(y), *given, reverse=reverse)
        without = tridiag.matrix_recurrence(*arrays[:2], backend=backend.name, reverse=reverse)
        assert_recurs(to_numpy(without), *given[:2], reverse=reverse)


@on_torch
@pytest.mark.parametrize("m", [2, 5])
def test_gradients_of_numbers_that_lie_anywhere(backend: Subject, m: int) -> None:
    """The recurrence is turned and transposed."""
    torch = pytest.importorskip("torch")
    given, found = problem((5, 6), m, seed=m), []
    for lie in (np.ascontiguousarray, lambda x: strewn(x, "planes")):
        leaves = [torch.from_numpy(lie(x)).requires_grad_() for x in given]
        y = tridiag.matrix_recurrence(*leaves, backend=backend.name)
        found.append(torch.autograd.grad((y * torch.arange(y.numel()).reshape(y.shape)).sum(), leaves))
    for strewn_about, usual in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(strewn_about, usual, rtol=1e-13, atol=1e-13)


# ----------------------------------------------------------------------------------------------------------- gradients

GRADIENTS = {  # the shapes of A, of x and of init
    "plain": ((2, 5, 3, 3), (2, 5, 3)),
    "from a state": ((2, 5, 3, 3), (2, 5, 3), (2, 3)),
    "one matrix": ((3, 3), (2, 5, 3), (3,)),
    "a constant x": ((5, 2, 2), (2,), (2,)),
    "one step": ((1, 2, 2), (1, 2), (2,)),
}


def by(backend: Subject, **options: Any) -> Any:
    return lambda *arrays: tridiag.matrix_recurrence(*arrays, backend=backend.name, **options)


def drawn(case: str, dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [noise(rng, shape, dtype, -0.6, 0.6) for shape in GRADIENTS[case]]


def check_jax(backend: Subject, case: str, order: int = 1) -> None:
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    arrays = [jax.numpy.asarray(v) for v in drawn(case)]
    function = jax.jit(by(backend, reverse=case == "from a state"))
    check_grads(function, arrays, order=order, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
@pytest.mark.parametrize("case", GRADIENTS)
def test_finite_differences_under_jax(backend: Subject, case: str) -> None:
    check_jax(backend, case)


@on_jax
def test_second_differences_under_jax(backend: Subject) -> None:
    check_jax(backend, "from a state", 2)


@on_jax
def test_complex_finite_differences_under_jax(backend: Subject) -> None:
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    arrays = [jax.numpy.asarray(v) for v in drawn("from a state", "complex128")]
    check_grads(jax.jit(by(backend)), arrays, order=1, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
def test_vmap_under_jax(backend: Subject) -> None:
    import jax

    gradient = jax.jit(jax.grad(lambda *v: (by(backend)(*v) ** 2).sum(), argnums=(0, 1, 2)))
    A, x, init = map(jax.numpy.asarray, problem((3, 6), 2))
    for dims in ((0, 0, 0), (None, 0, None), (0, None, 0)):
        given = [v if dim == 0 else v[0] for v, dim in zip((A, x, init), dims, strict=True)]
        found = jax.jit(jax.vmap(gradient, in_axes=dims))(*given)
        for k in range(3):
            right = gradient(*(v[k] if dim == 0 else v for v, dim in zip(given, dims, strict=True)))
            for one, other in zip(found, right, strict=True):
                np.testing.assert_allclose(one[k], other, rtol=1e-11, atol=1e-13)


@on_jax
@turned
def test_the_gradient_of_what_is_never_read_is_zero_under_jax(backend: Subject, reverse: bool) -> None:
    import jax

    A, x, _ = problem((2, 5), 3)
    A[:, -1 if reverse else 0] = np.nan
    function = by(backend, reverse=reverse)
    gradient = jax.jit(jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1)))
    found = gradient(*map(jax.numpy.asarray, (A, x)))
    assert all(np.isfinite(v).all() for v in found) and not found[0][:, -1 if reverse else 0].any()


@on_torch
@pytest.mark.parametrize("case", GRADIENTS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_finite_differences_under_torch(backend: Subject, case: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = [torch.tensor(v, requires_grad=True) for v in drawn(case, dtype)]
    function = by(backend, reverse=case == "from a state")
    assert torch.autograd.gradcheck(function, arrays, check_forward_ad=True)
    if dtype == "float64":
        assert torch.autograd.gradgradcheck(function, arrays)


@on_torch
def test_vmap_under_torch(backend: Subject) -> None:
    torch = pytest.importorskip("torch")
    A, x, init = map(torch.tensor, problem((3, 6), 2))
    found = torch.func.vmap(by(backend), (0, None, 0))(A, x[0], init)
    for k in range(3):
        torch.testing.assert_close(found[k], by(backend)(A[k], x[0], init[k]))


# -------------------------------------------------------------------------------------------------------------- errors

MATRICES, VECTORS = np.ones((4, 6, 3, 3)), np.ones((4, 6, 3))


@pytest.mark.parametrize(
    ("kind", "text", "given", "options"),
    [
        (ValueError, r"do not broadcast: A \(4, 6, 3, 3\), x \(5, 6, 3\)", (MATRICES, np.ones((5, 6, 3))), {}),
        (ValueError, r"A has shape \(4, 6, 3\); wanted square matrices", (VECTORS, VECTORS), {}),
        (ValueError, "A has shape .*; wanted square matrices", (2.0, VECTORS), {}),
        (ValueError, "wanted vectors of length 3 along the last axis of x", (MATRICES, np.ones((4, 6))), {}),
        (ValueError, "wanted vectors of length 3", (MATRICES, 1.0), {}),
        (ValueError, "A has shape .*; wanted matrices with at least one", (np.ones((2, 0, 0)), np.ones((2, 0))), {}),
        (ValueError, "one of them must have the axis of the steps", (np.eye(3), np.ones(3)), {}),
        (ValueError, r"init has shape \(4,\); wanted one that ends in 3", (MATRICES, VECTORS, np.ones(4)), {}),
        (ValueError, r"init has shape \(\)", (MATRICES, VECTORS, 1.0), {}),
        (ValueError, r"init has shape \(6, 3\)", (MATRICES, VECTORS, np.ones((6, 3))), {}),
        (TypeError, "A has dtype bool", (MATRICES > 0, VECTORS), {}),
        (TypeError, "A is a tuple of arrays, and this recurrence is of first order", ((MATRICES,) * 2, VECTORS), {}),
        (TypeError, "reverse is 'yes'", (MATRICES, VECTORS), {"reverse": "yes"}),
        (ValueError, r"out has shape \(6,\)", (MATRICES, VECTORS), {"out": np.ones(6)}),
        (ValueError, "out shares memory with x", (MATRICES, VECTORS), {"out": VECTORS}),
        (tridiag.BackendError, "numba_thomas does not have the verb matrix_recurrence", (MATRICES, VECTORS),
         {"backend": "numba_thomas"}),
    ],
)  # fmt: skip
def test_bad_input(kind: type[Exception], text: str, given: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        tridiag.matrix_recurrence(*given, **options)


def test_explain() -> None:
    told = tridiag.explain("matrix_recurrence", MATRICES, VECTORS, reverse=True, backend="numpy")
    assert told.backend == "numpy_scan" and told.problem.shape == (4, 6, 3)
