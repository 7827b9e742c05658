"""That systems as other libraries take them arrive bit for bit, and have the solution that those libraries give.

What a call of theirs takes is built here from its documented formula, entry by entry, around a matrix of known entries.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, EPS, REAL, assert_same_bits, assert_solves, dominant, installed, to_library, to_numpy

import tridiag
from tridiag import conventions as from_them

ROWS = (1, 2, 3, 8)
BATCHES = ((), (3,), (2, 1, 3))
LIBRARIES = [
    pytest.param(name, marks=[] if name == "cupy" or installed(name) else [pytest.mark.skip(f"needs {name}")])
    for name in ("numpy", "jax", "torch", "cupy")
]
SPECIAL = (-0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-40)  # what arithmetic would change


def known(batch: tuple[int, ...], n: int, dtype: str) -> tuple[np.ndarray, ...]:
    """a, b and c: numbers that are all different, some of them special; NaN in what is never read."""
    rng = np.random.default_rng(n)
    a, b, c = (rng.normal(size=(*batch, n)).astype(dtype) for _ in range(3))
    if dtype.startswith("complex"):
        a, b, c = (x + 1j * rng.normal(size=x.shape).astype(REAL[dtype]) for x in (a, b, c))
    for x in (a, b, c):
        places = rng.permutation(x.size)[: x.size // 2]
        x.reshape(-1)[places] = np.resize(np.array(SPECIAL), places.size).astype(REAL.get(dtype, dtype))
    a[..., 0] = c[..., n - 1] = np.nan
    return a, b, c


def entries(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """(i, j, A[..., i, j]) for all entries of the matrices."""
    n = b.shape[-1]
    for i in range(n):
        for j, x in ((i - 1, a), (i, b), (i + 1, c)):
            if 0 <= j < n:
                yield i, j, x[..., i]


# ------------------------------------------------------------------- the arguments of their calls, as documented


def banded(a: Any, b: Any, c: Any) -> tuple[np.ndarray]:
    """SciPy: ab[u + i - j, j] = A[i, j]."""
    ab = np.full((*b.shape[:-1], 3, b.shape[-1]), np.nan, b.dtype)
    for i, j, x in entries(a, b, c):
        ab[..., 1 + i - j, j] = x
    return (ab,)


def lapack(a: Any, b: Any, c: Any) -> tuple[np.ndarray, ...]:
    """LAPACK: the (n-1) sub-diagonal elements, n, and n-1."""
    n = b.shape[-1]
    dl, d, du = (np.empty((*b.shape[:-1], length), b.dtype) for length in (n - 1, n, n - 1))
    for i, j, x in entries(a, b, c):
        (dl if j < i else du if j > i else d)[..., min(i, j)] = x
    return dl, d, du


def jax(a: Any, b: Any, c: Any) -> tuple[np.ndarray, ...]:
    """JAX: dl[i] = A[i, i-1], d[i] = A[i, i], du[i] = A[i, i+1]."""
    found = tuple(np.full(b.shape, np.nan, b.dtype) for _ in range(3))
    for i, j, x in entries(a, b, c):
        found[1 + j - i][..., i] = x
    return found


def compact(a: Any, b: Any, c: Any) -> tuple[np.ndarray]:
    """TensorFlow: [..., 3, M], superdiagonals, diagonals, subdiagonals; [..., 0, M-1] and [..., 2, 0] are ignored."""
    diagonals = np.full((*b.shape[:-1], 3, b.shape[-1]), np.nan, b.dtype)
    for i, j, x in entries(a, b, c):
        diagonals[..., 1 - (j - i), i] = x
    return (diagonals,)


def full_sequence(a: Any, b: Any, c: Any) -> tuple[list[np.ndarray]]:
    (diagonals,) = compact(a, b, c)
    return ([diagonals[..., k, :] for k in range(3)],)


def short_sequence(a: Any, b: Any, c: Any) -> tuple[tuple[np.ndarray, ...]]:
    dl, d, du = lapack(a, b, c)
    return ((du, d, dl),)


def dense(a: Any, b: Any, c: Any) -> tuple[np.ndarray]:
    """TensorFlow: elements outside of the three diagonals will be ignored."""
    matrix = np.full((*b.shape, b.shape[-1]), np.nan, b.dtype)
    for i, j, x in entries(a, b, c):
        matrix[..., i, j] = x
    return (matrix,)


def tensorflow(diagonals_format: str) -> Callable[..., Any]:
    def convert(diagonals: Any, rhs: Any = None) -> Any:
        return from_them.from_tensorflow(diagonals, rhs, diagonals_format)

    return convert


CONVENTIONS = {
    "scipy": (banded, from_them.from_scipy_banded),
    "lapack": (lapack, from_them.from_lapack),
    "jax": (jax, from_them.from_jax),
    "tensorflow-compact": (compact, from_them.from_tensorflow),
    "tensorflow-sequence": (full_sequence, tensorflow("sequence")),
    "tensorflow-short-sequence": (short_sequence, tensorflow("sequence")),
    "tensorflow-matrix": (dense, tensorflow("matrix")),
}


def given_to(library: str, arguments: Any) -> Any:
    """Arrays in a library, within lists and tuples too."""
    return type(arguments)(
        given_to(library, x) if isinstance(x, list | tuple) else to_library(library, x) for x in arguments
    )


def assert_arrived(system: dict[str, Any], wanted: tuple[np.ndarray, ...]) -> None:
    """Every entry that is read, bit for bit, in the shape of the right sides' matrices."""
    a, b, c = (to_numpy(system[name]) for name in "abc")
    assert system["axis"] == -1
    for x, y in ((a[..., 1:], wanted[0][..., 1:]), (b, wanted[1]), (c[..., :-1], wanted[2][..., :-1])):
        assert_same_bits(x, y)
    assert a.shape == b.shape == c.shape


# --------------------------------------------------------------------------------------------------- bit for bit


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CONVENTIONS)
def test_the_diagonals_arrive(name: str, library: str, dtype: str) -> None:
    build, convert = CONVENTIONS[name]
    for batch, n in itertools.product(BATCHES, ROWS):
        diagonals = known(batch, n, dtype)
        system = convert(*given_to(library, build(*diagonals)))
        assert {type(system[key]) for key in "abc"} == {type(to_library(library, diagonals[0]))}
        assert_arrived(system, diagonals)


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("lower", [False, True])
def test_the_diagonals_of_half_a_matrix_arrive(lower: bool, library: str, dtype: str, n: int) -> None:
    """SciPy: upper ab[u + i - j, j] = A[i, j] for i <= j, lower ab[i - j, j] for i >= j."""
    _, b, c = known((2,), n, dtype)
    b = b.real.astype(dtype)  # as of a Hermitian matrix
    a = np.concatenate((c[..., -1:], c[..., :-1].conj()), axis=-1)
    ab = np.full((2, 2, n), np.nan, dtype)
    for i, j, x in entries(a, b, c):
        if (i >= j) if lower else (i <= j):
            ab[:, i - j if lower else 1 + i - j, j] = x
    if dtype.startswith("complex"):
        ab[:, 0 if lower else 1].imag = 7.0  # which SciPy does not read
    system = from_them.from_scipy_hermitian(to_library(library, ab), lower=lower)
    assert_arrived(system, (a, b.real, c))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("stride", [5, 7])
def test_the_buffers_of_strided_systems_arrive(stride: int, library: str, dtype: str) -> None:
    """cuSPARSE: what belongs to system k begins at batchStride * k."""
    parts = (*known((3,), 5, dtype), known((3,), 5, dtype)[1])
    buffers = [np.full(3 * stride, np.nan, dtype) for _ in parts]
    for buffer, part in zip(buffers, parts, strict=True):
        for k in range(3):
            for i in range(5):
                buffer[stride * k + i] = part[k, i]
    system = from_them.from_cusparse_strided(*given_to(library, buffers), 5, stride)
    assert_arrived(system, parts[:3])
    assert_same_bits(to_numpy(system["d"]), parts[3])


@pytest.mark.parametrize("stride", [5, 7])
def test_the_right_sides_of_gtsv2_arrive(stride: int) -> None:
    """cuSPARSE: B is a dense array of dimensions (ldb, n), column by column, and the diagonals have m elements."""
    diagonals, right = known((), 5, "float64"), np.arange(15.0).reshape(3, 5)
    buffer = np.full(3 * stride, np.nan)
    for k in range(3):
        buffer[stride * k : stride * k + 5] = right[k]
    system = from_them.from_cusparse_strided(*diagonals, buffer, 5, stride)
    assert_arrived(system, tuple(x[None] for x in diagonals))
    assert_same_bits(system["d"], right)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_buffers_of_interleaved_systems_arrive(library: str, dtype: str) -> None:
    """cuSPARSE: an m-by-batchCount array, row by row, whose column k is system k."""
    parts = (*known((3,), 5, dtype), known((3,), 5, dtype)[1])
    buffers = [np.full(15, np.nan, dtype) for _ in parts]
    for buffer, part in zip(buffers, parts, strict=True):
        for k in range(3):
            for i in range(5):
                buffer[3 * i + k] = part[k, i]
    system = from_them.from_cusparse_interleaved(*given_to(library, buffers), 5)
    assert system["axis"] == 0
    a, b, c, d = (to_numpy(system[key]).T for key in "abcd")
    for x, y in ((a[:, 1:], parts[0][:, 1:]), (b, parts[1]), (c[:, :-1], parts[2][:, :-1]), (d, parts[3])):
        assert_same_bits(np.ascontiguousarray(x), np.ascontiguousarray(y))


def test_nothing_is_copied_that_lies_as_it_is_wanted() -> None:
    diagonals, right = dominant((4, 6))[:3], np.ones((4, 6, 2))
    system = from_them.from_jax(*diagonals, right)
    assert all(np.shares_memory(system[key], x) for key, x in zip("abcd", (*diagonals, right), strict=True))
    (whole,) = compact(*diagonals)
    assert all(np.shares_memory(system[key], whole) for system in [from_them.from_tensorflow(whole)] for key in "abc")


# -------------------------------------------------------------------------------------------------- the solutions


def solvable(batch: tuple[int, ...], n: int, dtype: str) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Diagonals with NaN in what is never read, a right side for each matrix, and two that are columns."""
    *diagonals, d = dominant((*batch, n), dtype)
    diagonals[0][..., 0] = diagonals[2][..., n - 1] = np.nan
    return diagonals, d, np.stack((d, 1 + d[..., ::-1]), axis=-1)


def close(x: Any, y: Any) -> None:
    """Two solutions of well-conditioned systems."""
    eps = EPS[REAL.get(y.dtype.name, y.dtype.name)]
    np.testing.assert_allclose(to_numpy(x), y, rtol=0, atol=200 * eps * abs(y).max())
    assert to_numpy(x).dtype == y.dtype


def assert_solved(x: Any, diagonals: list[np.ndarray], right: np.ndarray, columns: bool) -> None:
    """In the shape of the right side, and as accurate as `tridiag.solve` promises."""
    x = to_numpy(x)
    assert x.shape == right.shape
    if not columns:
        x, right = x[..., None], right[..., None]
    a, b, c = (y[..., None] for y in diagonals)
    a[..., 0, :] = c[..., -1, :] = 1.0  # the oracle multiplies by 0 what it does not read
    assert_solves(x, a, b, c, right, axis=-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("name", "columns"),
    [(name, columns) for name in CONVENTIONS for columns in (False, True) if name != "jax" or columns],
)
def test_solutions(name: str, library: str, dtype: str, columns: bool) -> None:
    batch = () if name in ("scipy", "lapack") and not columns else (3,)  # two axes are columns there
    build, convert = CONVENTIONS[name]
    check = True if library == "cupy" else None
    for n in ROWS:
        diagonals, right, beside = solvable(batch, n, dtype)
        right = beside if columns else right
        system = convert(*given_to(library, build(*diagonals)), to_library(library, right))
        assert_solved(tridiag.solve(**system, check=check), diagonals, right, columns)


@pytest.mark.parametrize("shape", ["vector", "columns", "batch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ROWS)
def test_solutions_are_those_of_scipy(n: int, dtype: str, shape: str) -> None:
    pytest.importorskip("scipy", "1.16" if shape == "batch" else None)
    from scipy import linalg

    diagonals, right, beside = solvable((3,) if shape == "batch" else (), n, dtype)
    right = right if shape == "vector" else beside
    (ab,) = banded(*diagonals)
    theirs = linalg.solve_banded((1, 1), ab, right, check_finite=False)
    close(tridiag.solve(**from_them.from_scipy_banded(ab, right)), theirs)
    if n > 1 and shape != "batch":  # xGTSV as SciPy wraps it
        (routine,) = linalg.get_lapack_funcs(("gtsv",), (ab,))
        *_, theirs, info = routine(*lapack(*diagonals), right)
        assert info == 0
        close(tridiag.solve(**from_them.from_lapack(*lapack(*diagonals), right)), theirs.reshape(right.shape))


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ROWS[1:])  # SciPy takes no matrix of one row
def test_solutions_are_those_of_scipy_for_half_a_matrix(n: int, dtype: str, lower: bool) -> None:
    linalg = pytest.importorskip("scipy.linalg")
    _, right, columns = solvable((), n, dtype)
    side = dominant(n, dtype, seed=1)[0]
    ab = np.stack((abs(side).max() * 3 + 0 * side, side) if lower else (side, abs(side).max() * 3 + 0 * side))
    for d in (right, columns):
        theirs = linalg.solveh_banded(ab, d, lower=lower)
        close(tridiag.solve(**from_them.from_scipy_hermitian(ab, d, lower=lower)), theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ROWS)
def test_solutions_are_those_of_jax(n: int, dtype: str) -> None:
    """Inside `jit` too."""
    module = pytest.importorskip("jax")
    diagonals, _, columns = solvable((3,), n, dtype)
    given = [to_library("jax", x) for x in (*jax(*diagonals), columns)]
    theirs = np.asarray(module.lax.linalg.tridiagonal_solve(*given))
    ours = module.jit(lambda *arguments: tridiag.solve(**from_them.from_jax(*arguments)))
    close(ours(*given), theirs)
    close(tridiag.solve(**from_them.from_jax(*given)), theirs)


def test_the_solution_goes_where_that_of_cusparse_goes() -> None:
    a, b, c, d = dominant((3, 6))
    for parts, convert, back in (
        ((a, b, c, d), from_them.from_cusparse_strided, lambda x: x.reshape(3, 6)),
        ([x.T for x in (a, b, c, d)], from_them.from_cusparse_interleaved, lambda x: x.reshape(6, 3).T),
    ):
        buffers = [x.flatten() for x in parts]
        kept = [x.copy() for x in buffers[:3]]
        tridiag.solve(**convert(*buffers, 6), overwrite_d=True)
        assert_solves(back(buffers[3]), a, b, c, d)
        assert all(map(np.array_equal, buffers[:3], kept))


def test_without_a_right_side_the_other_verbs_take_it() -> None:
    diagonals, right, _ = solvable((), 5, "float64")
    (ab,) = banded(*diagonals)
    system = from_them.from_scipy_banded(ab)
    assert_solved(tridiag.factor(**system).solve(right), diagonals, right, False)
    sign, logarithm = tridiag.slogdet(**system)
    (matrix,) = dense(*diagonals)
    wanted = np.linalg.slogdet(np.nan_to_num(matrix))
    assert sign == wanted.sign and abs(logarithm - wanted.logabsdet) < 1e-13


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_graph_of_torch_compile_holds_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    build, convert = CONVENTIONS[name]
    diagonals, _, columns = solvable((3,), 4, "float64")
    given = given_to("torch", (*build(*diagonals), columns))
    torch._dynamo.reset()
    solve = torch.compile(lambda *arguments: tridiag.solve(**convert(*arguments)), fullgraph=True, backend="aot_eager")
    assert_same_bits(solve(*given), tridiag.solve(**convert(*given)))


def test_gradients_pass() -> None:
    torch = pytest.importorskip("torch")
    dl, d, du = (torch.full((n,), value, dtype=torch.float64) for n, value in ((2, 1.0), (3, 4.0), (2, 1.0)))
    arguments = [x.requires_grad_() for x in (dl, d, du, torch.ones(3, dtype=torch.float64))]
    assert torch.autograd.gradcheck(lambda *given: tridiag.solve(**from_them.from_lapack(*given)), arguments)


# ----------------------------------------------------------------------------------------------------- what is wrong

ONES = np.ones((4, 6))
WRONG = {
    "bands": (from_them.from_scipy_banded, (ONES,), r"ab has shape \(4, 6\); wanted \(\.\.\., 3, n\): the super-diag"),
    "flat bands": (from_them.from_scipy_banded, (ONES[0],), r"ab has shape \(6,\); wanted \(\.\.\., 3, n\)"),
    "half": (from_them.from_scipy_hermitian, (ONES[:3],), r"ab has shape \(3, 6\); wanted \(\.\.\., 2, n\)"),
    "rows": (
        from_them.from_scipy_banded,
        (ONES[:3], ONES),
        r"b has shape \(4, 6\); wanted \(\.\.\., n, k\) with n = 6",
    ),
    "row": (
        from_them.from_scipy_banded,
        (ONES[:3], ONES[:, 0]),
        r"b has shape \(4,\); wanted \(\.\.\., n\) with n = 6",
    ),
    "padded": (from_them.from_lapack, (ONES[0],) * 3, "dl has length 6 and d 6; wanted dl of length 5"),
    "short": (from_them.from_lapack, (ONES[0, 1:], ONES[0], ONES[0, 2:]), "du has length 4 and d 6; wanted du of .* 5"),
    "jax lengths": (from_them.from_jax, (ONES[:, 1:], ONES, ONES), "dl has length 5 and d 6; wanted dl of length 6"),
    "jax vector": (
        from_them.from_jax,
        (ONES,) * 4,
        r"b has shape \(4, 6\) and d \(4, 6\); wanted .* pass b\[..., None\]",
    ),
    "format": (
        from_them.from_tensorflow,
        (ONES, None, "dense"),
        "is 'dense'; wanted one of 'compact', 'sequence', 'mat",
    ),
    "compact": (from_them.from_tensorflow, (ONES,), r"diagonals has shape \(4, 6\); wanted \(\.\.\., 3, n\)"),
    "dense": (
        from_them.from_tensorflow,
        (ONES, None, "matrix"),
        r"shape \(4, 6\); wanted square matrices \(\.\.\., n, n\)",
    ),
    "sequence": (
        from_them.from_tensorflow,
        (ONES, None, "sequence"),
        "no sequence of three arrays; wanted the super-diag",
    ),
    "lengths": (
        from_them.from_tensorflow,
        ([ONES, ONES, ONES[:, 2:]], None, "sequence"),
        "the sub-diagonal has length 4 and the diagonal 6; wanted the sub-diagonal of length 5 or 6",
    ),
    "rank": (
        from_them.from_tensorflow,
        (ONES[:3], ONES[None]),
        r"rhs has shape \(1, 4, 6\) and the diagonal \(6,\); wanted \(\.\.\., n\), or \(\.\.\., n, k\)",
    ),
    "number": (from_them.from_jax, (1.0, ONES, ONES), "dl is a number; wanted an array, whose last axis"),
    "strides": (from_them.from_cusparse_strided, (ONES,) * 4 + (6, 7), "dl has 24 entries; wanted .* a multiple of 7"),
    "stride": (from_them.from_cusparse_strided, (ONES,) * 4 + (6, 5), "m is 6 and stride 5; wanted .* at least m"),
    "no rows": (from_them.from_cusparse_strided, (ONES,) * 4 + (0,), "m is 0 and stride 0; wanted at least one row"),
    "interleaved": (from_them.from_cusparse_interleaved, (ONES,) * 4 + (5,), "dl has 24 entries; .* a multiple of 5"),
    "none interleaved": (from_them.from_cusparse_interleaved, (ONES,) * 4 + (0,), "m is 0; wanted at least one row"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    convert, arguments, text = WRONG[case]
    with pytest.raises(ValueError, match=text):
        convert(*arguments)


MISUSED = {
    "no pair": (from_them.from_scipy_banded, (1, ONES[:3], ONES), "l_and_u is no pair of numbers; wanted"),
    "no bands": (from_them.from_scipy_banded, ((1, 1),), "from_scipy_banded also needs ab"),
    "m first": (from_them.from_cusparse_strided, (6, *[ONES] * 4), "m is an array; wanted .* order dl, d, du, x, m "),
    "interleaved": (from_them.from_cusparse_interleaved, (6, *[ONES] * 4), "m is an array; wanted .* du, x, m$"),
    "stride": (from_them.from_cusparse_strided, (*[ONES] * 4, 6, 7.5), "stride is 7.5; wanted a whole number"),
    "no m": (from_them.from_cusparse_interleaved, (*[ONES] * 4, None), "m is None; wanted a whole number"),
}


@pytest.mark.parametrize("case", MISUSED)
def test_another_order_is_told(case: str) -> None:
    convert, arguments, text = MISUSED[case]
    with pytest.raises(TypeError, match=text):
        convert(*arguments)


def test_the_call_of_scipy_is_taken_with_and_without_its_pair() -> None:
    """`scipy.linalg.solve_banded((1, 1), ab, b)`, by position and by name; another pair is another matrix."""
    ab, b = np.arange(9.0).reshape(3, 3), np.ones(3)
    wanted = from_them.from_scipy_banded(ab, b)
    for found in (
        from_them.from_scipy_banded((1, 1), ab, b),
        from_them.from_scipy_banded([1, np.int64(1)], ab, b=b),
        from_them.from_scipy_banded(l_and_u=(1, 1), ab=ab, b=b),
        from_them.from_scipy_banded(ab=ab, b=b),
        from_them.from_scipy_banded(ab, b=b),
    ):
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert "d" not in from_them.from_scipy_banded((1, 1), ab)
    with pytest.raises(ValueError, match=r"l_and_u is \(2, 1\); wanted \(1, 1\)"):
        from_them.from_scipy_banded((2, 1), ab, b)


def test_arrays_of_two_libraries() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"different libraries \(dl: torch, d: numpy, du: numpy\)"):
        from_them.from_jax(torch.ones(6), ONES[0], ONES[0])
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="ab is a sparse matrix"):
        from_them.from_scipy_banded(sparse.eye_array(3))


@pytest.mark.parametrize("name", ["dl", "d", "du"])
@pytest.mark.parametrize("convert", [from_them.from_jax, from_them.from_lapack])
def test_none_is_named(convert: Any, name: str) -> None:
    """The right sides alone may be left out."""
    given = {"dl": np.ones(3), "d": np.ones(3), "du": np.ones(3)} | {name: None}
    with pytest.raises(TypeError, match=f"{name} is None; wanted numbers"):
        convert(**given)
