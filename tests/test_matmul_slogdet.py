"""That the product and the determinant are those of the dense matrix."""

from typing import Any

import numpy as np
import pytest
from helpers import (
    DTYPES,
    EPS,
    REAL,
    SUBJECTS,
    Subject,
    aligned,
    dense,
    dominant,
    dtype_name,
    installed,
    let_tables_find_nothing,
    to_library,
    to_numpy,
    uniform,
    zero_diagonal,
)

import tridiag
from tridiag.algorithms import products
from tridiag.backends import BACKENDS
from tridiag.calls import execute, fast_path
from tridiag.kernels.jobs import products as jobs

LIBRARIES = {s.library: None if installed(s.library) else f"needs {s.library}" for s in SUBJECTS}
MASK = np.random.default_rng(3).uniform(size=(4, 20)) < 0.7


@pytest.fixture(params=[pytest.param(k, marks=[pytest.mark.skip(reason=v)] if v else []) for k, v in LIBRARIES.items()])
def library(request: pytest.FixtureRequest) -> str:
    return request.param


def product(library: str, a: Any, b: Any, c: Any, x: Any, *, where: Any = None, **options: Any) -> np.ndarray:
    given = [to_library(library, v) for v in (a, b, c, x)]
    return to_numpy(tridiag.matmul(*given, where=to_library(library, where), **options))


def assert_product(
    y: np.ndarray, a: Any, b: Any, c: Any, x: Any, *, axis: int = -1, where: Any = None, **options: Any
) -> None:
    keep = True if where is None else where
    (a, b, c, x, keep, y), _ = aligned([a, b, c, x, keep, y], axis)
    matrix = dense(a, b, c, where=keep, **options)
    x = np.where(keep, x, 0).astype(np.result_type(matrix, x))
    error = abs(y - np.einsum("...ij,...j->...i", matrix, x))
    eps = EPS[REAL.get(y.dtype.name, y.dtype.name)]
    assert (error <= 4 * eps * np.einsum("...ij,...j->...i", abs(matrix), abs(x))).all()
    assert not y[~keep].any()


OPTIONS = {
    "plain": {},
    "transpose": {"transpose": True},
    "where": {"where": MASK},
    "where, transpose": {"where": MASK, "transpose": True},
    "periodic": {"periodic": True},
    "periodic, where, transpose": {"periodic": True, "where": MASK, "transpose": True},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_products(library: str, case: str) -> None:
    system = uniform((4, 20))
    assert_product(product(library, *system, **OPTIONS[case]), *system, **OPTIONS[case])


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_in_other_dtypes(library: str, dtype: str) -> None:
    system = uniform((4, 20), dtype)
    y = product(library, *system)
    assert y.dtype == dtype
    assert_product(y, *system)
    real = [x.real.copy() for x in system[:3]]
    assert_product(product(library, *real, system[3]), *real, system[3])


@pytest.mark.parametrize("transpose", [False, True])
def test_products_broadcast(library: str, transpose: bool) -> None:
    a, b, _, _ = (x[:, 0] for x in uniform((20, 4)))
    x = uniform((3, 20, 5))[3]
    y = product(library, a, b[:, None], 2.0, x, axis=1, transpose=transpose)
    assert y.shape == x.shape
    assert_product(y, a, b[:, None], 2.0, x, axis=1, transpose=transpose)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_products_of_few_rows(library: str, n: int) -> None:
    system = uniform((4, n))
    y = product(library, *system)
    assert y.shape == (4, n)
    assert_product(y, *system)


def test_products_never_read_pads(library: str) -> None:
    a, b, c, x = uniform((4, 20))
    wanted = product(library, a, b, c, x), product(library, a, b, c, x, transpose=True)
    a[:, 0], c[:, -1] = np.nan, np.inf
    np.testing.assert_array_equal(product(library, a, b, c, x), wanted[0])
    np.testing.assert_array_equal(product(library, a, b, c, x, transpose=True), wanted[1])


def test_products_of_halves_and_integers(library: str) -> None:
    halves = [to_library(library, x, "float16") for x in uniform((4, 20))]
    assert dtype_name(tridiag.matmul(*halves)) == "float16"
    y = product(library, 1, np.array([2, 2, 2]), 1, np.array([1, 2, 3]))
    assert y.dtype.kind == "f" and y.tolist() == [4, 8, 8]


def test_the_product_undoes_the_solve(library: str) -> None:
    a, b, c, d = dominant((4, 20))
    x = tridiag.solve(*(to_library(library, v) for v in (a, b, c, d)), transpose=True)
    np.testing.assert_allclose(product(library, a, b, c, to_numpy(x), transpose=True), d, rtol=1e-11)


@pytest.mark.parametrize("axis", [0, -1])
def test_out(library: str, axis: int) -> None:
    """Is written and returned, whatever its strides; what cannot hold the product is refused."""
    given = uniform((4, 20), "float64")
    a, b, c, x = (to_library(library, v) for v in given)
    if library == "jax":
        with pytest.raises(TypeError, match="immutable"):
            tridiag.matmul(a, b, c, x, out=x)
        return
    wanted = product(library, *given, axis=axis)
    for where in (None, to_library(library, np.ones((4, 20), bool))):
        for _ in range(2):
            memory = to_library(library, np.full((4, 42), np.nan))
            y = tridiag.matmul(a, b, c, x, axis=axis, where=where, out=memory[:, 1:41:2])
            np.testing.assert_array_equal(to_numpy(y), wanted)
            np.testing.assert_array_equal(to_numpy(memory)[:, 1:41:2], wanted)
            assert np.isnan(to_numpy(memory)[:, ::2]).all()
    for out, error, match in (
        (x, ValueError, "overlap|share"),
        (memory, ValueError, "shape"),
        (to_library(library, np.empty((4, 20), "float32")), TypeError, "dtype"),
        ([1.0], TypeError, "list"),
    ):
        with pytest.raises(error, match=match):
            tridiag.matmul(a, b, c, x, axis=axis, out=out)


def laid_out(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same numbers in another place: every other one, backwards, in the order of Fortran, or constant."""
    way = rng.integers(5)
    if way == 0:
        return np.asfortranarray(x)
    if way == 1:
        return np.repeat(x, 2, 0)[::2]
    if way == 2:
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if way == 3:
        return x[tuple(slice(0, 1) if rng.random() < 0.5 else slice(None) for _ in x.shape)]
    return x


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_compiled_products_are_those_of_numpy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, zeros with their signs, wherever operands lie; complex ones within a few units."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(7)
    for case in range(150 if dtype == "float64" else 40):
        shape = tuple(map(int, np.exp(rng.uniform(0, (6, 3.5, 2.5)[case % 3], case % 3 + 1))))
        axis = int(rng.integers(len(shape)))
        given = [laid_out(rng, x * (rng.random(shape) > 0.2)) for x in uniform(shape, dtype)]
        where = laid_out(rng, rng.random(shape) < 0.7) if rng.random() < 0.4 else None
        shape = np.broadcast_shapes(*(x.shape for x in given), () if where is None else where.shape)
        options = {"axis": axis, "where": where, "transpose": bool(rng.integers(2))}
        options["periodic"] = bool(rng.integers(2)) and shape[axis] >= 3
        found = tridiag.matmul(*given, **options)
        with monkeypatch.context() as patch:
            let_tables_find_nothing(patch, fast_path.PRODUCTS)
            assert tridiag.matmul(*given, **options).tobytes() == found.tobytes()
            patch.setattr(execute, "compiled_products", lambda: None)
            wanted = tridiag.matmul(*given, **options)
        if found.dtype.kind == "f":
            assert found.tobytes() == wanted.tobytes(), (shape, options)
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-15)


def test_many_short_rows_of_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are left to NumPy, unless rows are taken out: the same either way."""
    pytest.importorskip("numba")
    x = uniform((3000, 4))[3]
    a, b, c, _ = uniform((4,))
    found = tridiag.matmul(a, b, c, x)
    monkeypatch.setattr(jobs, "MANY", 10**9)
    fast_path.forget()
    assert tridiag.matmul(a, b, c, x).tobytes() == found.tobytes()
    np.testing.assert_array_equal(tridiag.matmul(a, b, c, x, where=np.ones(4, bool)), found)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("large", [False, True])
def test_products_of_matrices_of_any_length(dtype: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors hold several matrices, one end of a matrix, or none; items end anywhere in a matrix, or in its ends."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(8)
    monkeypatch.setattr(BACKENDS["numba_thomas"].module(), "threads", lambda: 2)
    monkeypatch.setattr(jobs, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(jobs, "CACHES", 0 if large else jobs.CACHES)
    for case in range(200 if dtype == "float64" else 60):
        shape = tuple(map(int, np.exp(rng.uniform(0, (2, 5, 2.2), 3))))
        monkeypatch.setattr(jobs, "ITEM", int(rng.integers(1, 100)))
        given = list(uniform(shape, dtype))
        given[case % 4] = given[case % 4][0, 0, 0] if case % 3 == 0 else given[case % 4]
        options = {"axis": 1, "transpose": bool(rng.integers(2))}
        found = tridiag.matmul(*given, **options)
        with monkeypatch.context() as patch:
            let_tables_find_nothing(patch, fast_path.PRODUCTS)
            patch.setattr(execute, "compiled_products", lambda: None)
            wanted = tridiag.matmul(*given, **options)
        if found.dtype.kind == "f" and found.shape == wanted.shape:
            np.testing.assert_array_equal(found, wanted, err_msg=str((shape, case)))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


def empty_elsewhere(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Room for a result in the order of Fortran, every other entry, a part of longer rows, backwards."""
    *outer, n = shape
    ways = [np.empty(shape, dtype, order="F"), np.empty((*outer, 2 * n), dtype)[..., ::2], np.empty(shape, dtype)[::-1]]
    ways += [np.empty((*outer, n + 5), dtype)[..., 2 : n + 2], np.empty(shape, dtype)[..., ::-1]]
    return ways[rng.integers(len(ways))]


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
@pytest.mark.parametrize("masked", [False, True])
def test_products_of_arrays_that_lie_in_any_way(dtype: str, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are multiplied one by one, in blocks of rows, units by neighbours or not; the result lies anywhere."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(9)
    monkeypatch.setattr(BACKENDS["numba_thomas"].module(), "threads", lambda: 2)
    monkeypatch.setattr(jobs, "WORTH_A_THREAD", 0)
    for case in range(150):
        shape = tuple(map(int, np.exp(rng.uniform(0, (2, 4, 2.2), 3))))
        monkeypatch.setattr(jobs, "ITEM", int(rng.integers(1, 100)))
        monkeypatch.setattr(jobs, "FEW_ROWS", int(rng.integers(1, 9)))
        monkeypatch.setattr(jobs, "MANY_ROWS", int(rng.integers(1, 60)))
        given = [laid_out(rng, x) for x in uniform(shape, dtype)]
        shape = np.broadcast_shapes(*(x.shape for x in given))
        out = empty_elsewhere(rng, shape, dtype)
        keep = rng.random(shape) < 0.7 if masked else None
        axis = int(rng.integers(3))
        options = {
            "axis": axis,
            "transpose": case % 3 == 0,
            "where": keep,
            "periodic": case % 5 == 0 and shape[axis] > 2,
        }
        wanted = tridiag.matmul(*map(np.ascontiguousarray, given), **options)
        compare = np.testing.assert_allclose if dtype == "complex64" else np.testing.assert_array_equal
        for found in (tridiag.matmul(*given, **options), tridiag.matmul(*given, out=out, **options)):
            compare(found, wanted, err_msg=str((shape, case)))
        assert found is out


@pytest.mark.parametrize(("shape", "axis"), [((3, 40_000), -1), ((9000, 13), -1), ((200, 700), 0), ((70, 40, 50), 1)])
def test_large_products_on_threads(shape: Any, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items end anywhere in a matrix, and results go past the caches."""
    pytest.importorskip("numba")
    monkeypatch.setattr(BACKENDS["numba_thomas"].module(), "threads", lambda: 3)
    monkeypatch.setattr(jobs, "CACHES", 1000)
    a, b, c, x = uniform(shape)
    for matrix in ((a, b, c), (a[:1], b[..., :1], 2.0)):
        for options in ({}, {"periodic": True}, {"transpose": True}):
            found = tridiag.matmul(*matrix, x, axis=axis, **options)
            with monkeypatch.context() as patch:
                let_tables_find_nothing(patch, fast_path.PRODUCTS)
                patch.setattr(execute, "compiled_products", lambda: None)
                np.testing.assert_array_equal(found, tridiag.matmul(*matrix, x, axis=axis, **options))


def lying_at(offset: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array so many bytes behind the begin of a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    return memory[begin : begin + size].view(dtype).reshape(shape)


@pytest.mark.parametrize(("dtype", "offset"), [("complex128", 8), ("complex64", 4), ("float64", 4), ("float32", 1)])
@pytest.mark.parametrize("width", [50, 2])  # rows of some vectors, and of less than one
def test_large_products_where_no_entry_begins_a_cache_line(
    dtype: str, offset: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy calls complex numbers aligned at a multiple of half their size."""
    monkeypatch.setattr(jobs, "CACHES", 1000)
    a, b, c, x = (v.astype(dtype) for v in uniform((61, width)))
    wanted, out = tridiag.matmul(a, b, c, x), lying_at(offset, x.shape, dtype)
    np.testing.assert_array_equal(tridiag.matmul(a, b, c, x, out=out), wanted)


# ---------------------------------------------------------------------------------------------------- determinants


def growing(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Well conditioned; pivots chosen by their size alone make entries grow by a factor a row where it is periodic."""
    return [np.full(shape, v) for v in (-0.5, 1.0, 1.0, 1.0)]


MATRICES = {
    "uniform": ((4, 20), uniform, {}),
    "zero diagonal": ((4, 20), zero_diagonal, {}),
    "where": ((4, 20), uniform, {"where": MASK}),
    "periodic": ((4, 20), uniform, {"periodic": True}),
    "periodic, odd": ((4, 5), uniform, {"periodic": True}),
    "periodic, three rows": ((4, 3), uniform, {"periodic": True}),
    "periodic, entries that grow": ((2, 200), growing, {"periodic": True}),
    "periodic, where": ((4, 20), uniform, {"periodic": True, "where": MASK}),
    "one row": ((4, 1), uniform, {}),
    "two rows": ((4, 2), uniform, {}),
}


def assert_determinant(found: Any, matrix: np.ndarray, rtol: float = 1e-11) -> None:
    sign, log = np.linalg.slogdet(matrix.astype(complex if np.iscomplexobj(matrix) else float))
    assert found[0].shape == sign.shape
    np.testing.assert_allclose(found[0], sign, rtol=rtol)
    np.testing.assert_allclose(found[1], log, rtol=rtol, atol=rtol)


@pytest.mark.only(verb="slogdet")
@pytest.mark.parametrize("case", MATRICES)
def test_determinants(backend: Subject, case: str) -> None:
    shape, kind, options = MATRICES[case]
    a, b, c, _ = kind(shape)
    assert_determinant(backend.slogdet(a, b, c, **options), dense(a, b, c, **options))


@pytest.mark.only(verb="slogdet")
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_determinants_in_other_dtypes(backend: Subject, dtype: str) -> None:
    a, b, c, _ = uniform((4, 20), dtype)
    sign, log = backend.slogdet(a, b, c)
    assert sign.dtype == dtype and log.dtype == REAL.get(dtype, dtype)
    assert_determinant((sign, log), dense(a, b, c), 1e3 * EPS[REAL.get(dtype, dtype)])


@pytest.mark.only(verb="slogdet")
def test_determinants_along_any_axis(backend: Subject) -> None:
    a, b, c, _ = uniform((2, 20, 3))
    assert_determinant(backend.slogdet(a, b, c, axis=1), dense(a, b, c, axis=1))
    assert_determinant(backend.slogdet(a[0, :, 0], b, 2.0, axis=1), dense(a[0, :, 0], b, 2.0, axis=1))


@pytest.mark.only(verb="slogdet")
def test_a_singular_matrix_has_sign_0_and_logarithm_minus_inf(backend: Subject) -> None:
    for dtype in ("float64", "complex128"):
        a, b, c, _ = dominant((4, 20), dtype)
        regular = backend.slogdet(a, b, c)
        a[2, 5] = b[2, 5] = c[2, 5] = 0
        sign, log = backend.slogdet(a, b, c)
        assert sign[2] == 0 and log[2] == -np.inf
        for x, y in ((sign, regular[0]), (log, regular[1])):
            np.testing.assert_array_equal(np.delete(x, 2), np.delete(y, 2))


@pytest.mark.only(verb="slogdet", periodic=True)
def test_a_singular_periodic_matrix(backend: Subject) -> None:
    for row in (0, 7, 19):
        a, b, c, _ = dominant((4, 20))
        a[2, row] = b[2, row] = c[2, row] = 0
        sign, log = backend.slogdet(a, b, c, periodic=True)
        assert sign[2] == 0 and log[2] == -np.inf and np.isfinite(np.delete(log, 2)).all()


@pytest.mark.only(verb="slogdet")
@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 5)])
def test_empty_determinants(backend: Subject, shape: tuple[int, ...]) -> None:
    """As `numpy.linalg.slogdet`: a matrix without rows has determinant 1."""
    sign, log = backend.slogdet(1.0, np.full(shape, 4.0), 1.0)
    np.testing.assert_array_equal(sign, np.ones(shape[:-1]))
    np.testing.assert_array_equal(log, np.zeros(shape[:-1]))


@pytest.mark.only(verb="slogdet")
def test_nan_is_no_determinant(backend: Subject) -> None:
    a, b, c, _ = dominant((4, 20))
    b[2, 5] = np.nan
    _, log = backend.slogdet(a, b, c)
    assert np.isnan(log[2]) and np.isfinite(np.delete(log, 2)).all()


@pytest.mark.only(verb="slogdet")
def test_a_zero_pivot_in_any_row_is_determinant_zero(backend: Subject) -> None:
    """What follows a zero pivot is NaN; the determinant is 0 all the same, and NaN input stays NaN."""
    b = np.array([[1.0, 0, 1], [1, 1, 0], [0, 1, 1], [2, 2, 2], [1, np.nan, 1]])
    sign, log = backend.slogdet(0.0, b, 0.0)
    np.testing.assert_array_equal(sign, [0, 0, 0, 1, np.nan])
    np.testing.assert_allclose(log, [-np.inf, -np.inf, -np.inf, 3 * np.log(2), np.nan])


@pytest.mark.only(verb="slogdet")
@pytest.mark.parametrize("entry", [5e-324, 1e-310, 1e-308, 1.7e308])
def test_complex_pivots_at_the_ends_of_the_range(backend: Subject, entry: float) -> None:
    """Whose absolute values are subnormal, or overflow."""
    if backend.device == "cuda":
        pytest.skip("kernels for GPUs have no registers to spare for this")
    if backend.library == "jax" and not backend.compiled and entry < 1e-307:
        pytest.skip("XLA may take subnormal numbers for 0")
    b = np.full((3, 5), entry) * [[1 + 1j], [1 - 1j], [1j]]
    sign, log = backend.slogdet(0.0, b, 0.0)
    directions = np.array([1 + 1j, 1 - 1j, 1j])
    np.testing.assert_allclose(sign, (directions / abs(directions)) ** 5, rtol=1e-14)
    np.testing.assert_allclose(log, 5 * (np.log(entry) + np.log(abs(directions))), rtol=1e-14)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((40,), 0), ((2, 40), 1), ((40, 2), 0), ((9, 5), 1), ((5, 9), 0), ((3, 5, 4), 1)]
)
def test_products_a_block_at_a_time(
    shape: Any, axis: int, periodic: bool, transpose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Numba: the same as of all at once, bit for bit, wherever a block ends; of operands that broadcast too."""
    let_tables_find_nothing(monkeypatch, fast_path.PRODUCTS)
    monkeypatch.setattr(execute, "compiled_products", lambda: None)
    a, b, c, x = uniform(shape, axis=axis)
    options = {"axis": axis, "periodic": periodic, "transpose": transpose}
    for matrix in ((a, b, c), (a, 2.0, c * 1j), (a[:1], b, c) if axis else (a, b, c[..., :1])):
        every = np.ones(shape, bool)
        wanted = tridiag.matmul(*matrix, x, where=every, **options)
        for block in (1, 2, 7, 2**15):
            monkeypatch.setattr(products, "BLOCK", block)
            np.testing.assert_array_equal(tridiag.matmul(*matrix, x, **options), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_determinants_that_no_number_holds(dtype: str) -> None:
    """Pivots of any size, subnormal ones among them: the exponents of many rows add up, one logarithm is taken."""
    info = np.finfo(dtype)
    sizes = np.array([info.tiny / 8, info.max / 2, 1e-5, 3.0, 1.0 - info.eps, -1.0 - info.eps], dtype)
    b = np.concatenate([np.repeat(sizes[:, None], 500, 1), np.resize(sizes, (1, 500))])
    sign, log = tridiag.slogdet(0.0, b, 0.0)
    assert (sign == np.prod(np.sign(b), -1)).all()
    np.testing.assert_allclose(log, np.log(abs(b).astype(float)).sum(-1), rtol=8 * info.eps, atol=500 * info.eps)
