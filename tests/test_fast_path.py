"""That calls whose facts are known give what the way of all calls gives: the same bits, arrays and refusals."""

import copy
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import dominant, let_tables_find_nothing, to_library, to_numpy

import tridiag
from tridiag import kalman
from tridiag.backends import BACKENDS
from tridiag.calls import fast_path

pytest.importorskip("numba")

pytestmark = pytest.mark.usefixtures("forgetful")

N, SHORT = 17, 4
RNG = np.random.default_rng(5)
A, B, C, D = dominant((5, N))
SINGULAR = np.zeros(N)
MASK = np.arange(N) % 5 != 2
MATRICES = RNG.normal(size=(2, N, 3, 3)) / 4
OWN = MATRICES + 4 * np.eye(3)
COVARIANCES = OWN @ OWN.swapaxes(-1, -2)
VECTORS = RNG.normal(size=(2, N, 3))
SCORES = RNG.normal(size=(3, 6, 7))
Y = RNG.normal(size=(4, N, 1))
MODEL: dict[str, Any] = {
    "F": 0.9 * np.eye(2), "H": np.ones((1, 2)), "Q": np.eye(2), "R": np.eye(1), "m0": np.zeros(2), "P0": np.eye(2),
}  # fmt: skip


class Special(np.ndarray):
    """A kind of array that is no plain one."""


def factored(*given: Any, d: Any = D, use: dict[str, Any] | None = None, **options: Any) -> Any:
    """All that a factorization tells, the second time."""
    matrix, use = tridiag.factor(*given, **options), use or {}
    for _ in range(2):
        x = matrix.solve(d, **use)
    return (
        matrix.status,
        matrix.backend,
        *matrix.slogdet(),
        x,
        matrix.solve(d, **use | {"out": np.empty(x.shape, x.dtype)}),
    )


def final(verb: str, *given: Any, **options: Any) -> Any:
    return getattr(tridiag, verb)(*given, return_final=True, **options)


def model(verb: str, y: Any = Y, **changed: Any) -> Any:
    options = {k: changed.pop(k) for k in ("method", "backend") if k in changed}
    return getattr(kalman, verb)(y, **MODEL | changed, **options)


SCAN = {"a": np.linspace(0, 1, 4), "x": D, "B": D[:, :, None] * np.ones(4), "C": np.ones((N, 4)) / 3}


def scan(**given: Any) -> Any:
    return tridiag.selective_scan(**SCAN | given)


WAYS: dict[str, Callable[[], Any]] = {
    # products
    "product": lambda: tridiag.matmul(A, B, C, D),
    "product, columns": lambda: tridiag.matmul(A.T, B.T, C.T, D.T, axis=0),
    "product, transposed corners": lambda: tridiag.matmul(A, B, C, D, transpose=True, periodic=True),
    "product, mask": lambda: tridiag.matmul(A, B, C, D, where=MASK),
    "product, mask that is none": lambda: tridiag.matmul(A, B, C, D, where=np.ones(N)),
    "product, numbers": lambda: tridiag.matmul(-1, 2.5, -1, D),
    "product, numbers of NumPy": lambda: tridiag.matmul(np.float64(-1), np.float32(2.5), -1, D),
    "product, integer of 65 bits": lambda: tridiag.matmul(2**64, 2.5, -1, D),
    "product, integers": lambda: tridiag.matmul(-1, 2, -1, np.arange(N)),
    "product, complex": lambda: tridiag.matmul(A * 1j, B, C, D * 1j),
    "product, real matrix": lambda: tridiag.matmul(A, B, C, D * 1j),
    "product, halves": lambda: tridiag.matmul(*(x.astype("f2") for x in (A, B, C, D))),
    "product, out": lambda: tridiag.matmul(A, B, C, D, out=np.empty_like(D)),
    "product, mask, out": lambda: tridiag.matmul(A, B, C, D, where=MASK, out=np.empty_like(D)),
    "product, strided out": lambda: tridiag.matmul(A, B, C, D, out=np.empty((5, 2 * N))[:, ::2]),
    "product, mask, strided out": lambda: tridiag.matmul(A, B, C, D, where=MASK, out=np.empty((5, 2 * N))[:, ::2]),
    "product, out is x": lambda: tridiag.matmul(A, B, C, x := D.copy(), out=x),
    "product, one matrix": lambda: tridiag.matmul(A[0], B[0], 1.0, D[:, ::-1]),
    "product, special": lambda: tridiag.matmul(A, B, C, D.view(Special)),
    "product, no systems": lambda: tridiag.matmul(A[:0], B[:0], C[:0], D[:0]),
    "product, two corners": lambda: tridiag.matmul(A[:, :2], B[:, :2], C[:, :2], D[:, :2], periodic=True),
    "product, shapes": lambda: tridiag.matmul(A, B, C, D[:, 1:]),
    "product, axis": lambda: tridiag.matmul(A, B, C, D, axis=2),
    "product, flag": lambda: tridiag.matmul(A, B, C, D, transpose=1),
    "product, no hash": lambda: tridiag.matmul(A, B, C, D, periodic=[]),
    # determinants
    "determinants": lambda: tridiag.slogdet(A, B, C),
    "determinant": lambda: tridiag.slogdet(A[0], B[0], C[0]),
    "determinants, columns": lambda: tridiag.slogdet(A.T, B.T, C.T, axis=0, where=MASK[:, None]),
    "determinants, corners": lambda: tridiag.slogdet(A, B, 1, periodic=True),
    "determinants, two batch axes": lambda: tridiag.slogdet(
        *(x.reshape(5, N, 1) * np.ones(3) for x in (A, B, C)), axis=1
    ),
    "determinants, transposed batch": lambda: tridiag.slogdet(
        *((x[:, None] * np.ones((3, 1))).transpose(1, 0, 2) for x in (A, B, C))
    ),
    "determinants, singular": lambda: tridiag.slogdet(SINGULAR, SINGULAR, SINGULAR),
    "determinants, complex": lambda: tridiag.slogdet(A, B * 1j, C),
    "determinants, another backend": lambda: tridiag.slogdet(A, B, C, backend="numpy"),
    "determinants, no such backend": lambda: tridiag.slogdet(A, B, C, backend="nobody"),
    "determinants, halves": lambda: tridiag.slogdet(*(x.astype("f2") for x in (A, B, C))),
    "determinants, no rows": lambda: tridiag.slogdet(A[:, :0], B[:, :0], C[:, :0]),
    # factors
    "factors": lambda: factored(A, B, C),
    "factors, transposed": lambda: factored(A, B, C, use={"transpose": True}),
    "factors of one matrix": lambda: factored(A[0], B[0], C[0]),
    "factors of one matrix, columns": lambda: factored(A[0], B[0], C[0], d=D.T, axis=0),
    "factors, columns": lambda: factored(A.T, B.T, C.T, d=D.T, axis=0),
    "factors, axis from the front": lambda: factored(A, B, C, d=D[None], axis=1),
    "factors, mask": lambda: factored(A, B, C, where=MASK),
    "factors, corners": lambda: factored(A, B, C, periodic=True),
    "factors, exchanges": lambda: factored(A, 0 * B, C, d=D, pivoting=True),
    "factors, none": lambda: factored(A, B, C, pivoting=False),
    "factors, numbers": lambda: factored(-1, B, 2),
    "factors, numbers of NumPy": lambda: factored(np.float64(-1), B, np.float32(2)),
    "factors, strides": lambda: factored(A[:, ::-1], B[::1, ::-1], C[:, ::-1]),
    "factors, integers": lambda: factored(np.ones(N, int), np.full(N, 4), np.ones(N, int), d=np.arange(N)),
    "factors, single": lambda: factored(*(x.astype("f4") for x in (A, B, C)), d=D.astype("f4")),
    "factors, of another dtype": lambda: factored(*(x.astype("f4") for x in (A, B, C)), d=D),
    "factors, complex right sides": lambda: factored(A, B, C, d=D * 1j),
    "factors, singular": lambda: factored(SINGULAR, SINGULAR, SINGULAR, d=np.ones(N)),
    "factors, broken down": lambda: factored(A[0], np.where(np.arange(N) == 0, 0.0, B[0]), C[0], pivoting=False),
    "factors, shapes": lambda: factored(A, B, C, d=D[:, 1:]),
    "factors, in place": lambda: tridiag.factor(A, B, C).solve(d := D.copy(), out=d),
    "factors, out of another shape": lambda: tridiag.factor(A, B, C).solve(D, out=np.empty(N)),
    "factors, another backend": lambda: factored(A, B, C, backend="numpy"),
    "factors, no such promise": lambda: factored(A, B, C, pivoting="none"),
    "factors, no rows": lambda: tridiag.factor(A[:, :0], B[:, :0], C[:, :0]).status,
    # last values
    "last": lambda: final("linear_recurrence", A / 9, D),
    "last, reverse": lambda: final("linear_recurrence", A.T / 9, D.T, np.ones(5), axis=0, reverse=True),
    "last, order 2": lambda: final("linear_recurrence", (0.3, A / 9), D),
    "last, a tuple of one": lambda: final("linear_recurrence", (A / 9,), D, (1.0,)),
    "last, few steps": lambda: final("linear_recurrence", (0.3, 0.2), D[:, :1]),
    "last, out": lambda: final("linear_recurrence", 0.5, D, out=np.empty_like(D)),
    "last, logarithms": lambda: final("log_linear_recurrence", A, D, 0.0),
    "last, one sequence": lambda: final("log_linear_recurrence", -0.5, D[0]),
    "complex, real coefficient": lambda: tridiag.linear_recurrence(1.0, D * 1j),
    "complex, real coefficients": lambda: tridiag.linear_recurrence((A / 9, B[0] / 9), D * 1j, (0.5, A[0, 0])),
    "complex, strided coefficients": lambda: tridiag.linear_recurrence(A[:, ::-1] / 9, D * 1j, reverse=True),
    "complex, a view": lambda: tridiag.linear_recurrence(np.resize(A, (5, 2 * N))[:, ::2] / 9, D * 1j),
    "last, no boolean": lambda: tridiag.linear_recurrence(0.5, D, return_final=1),
    # single steps of filters
    "predict": lambda: kalman.predict(VECTORS[0, 0], COVARIANCES[0, 0], F=MATRICES[0, 0], Q=COVARIANCES[0, 1]),
    "predict, models": lambda: kalman.predict(VECTORS, COVARIANCES, F=MATRICES, Q=COVARIANCES[0]),
    "update": lambda: kalman.update(
        VECTORS[0, 0], COVARIANCES[0, 0], Y[0, 0], H=MATRICES[0, 0, :1], R=COVARIANCES[0, 0, :1, :1]
    ),
    # selective scans
    "scan": lambda: scan(),
    "scan, reverse": lambda: scan(reverse=True, init=np.ones(4)),
    "scan, numbers": lambda: scan(a=0.5, B=1, C=np.float64(2)),
    "scan, a layer": lambda: scan(x=D.T, B=A[0, :, None, None], C=C[0, :, None, None], step=abs(D.T), axis=0),
    "scan, last": lambda: scan(init=np.ones((5, 4)), return_final=True),
    "scan, last, out": lambda: scan(return_final=True, out=np.empty_like(D)),
    "scan, out": lambda: scan(out=np.empty_like(D)),
    "scan, strided out": lambda: scan(out=np.empty((5, 2 * N))[:, ::2]),
    "scan, out is x": lambda: scan(x=(x := D.copy()), out=x),
    "scan, strided states": lambda: scan(a=np.linspace(0, 1, 8)[::2]),
    "scan, two dtypes": lambda: scan(a=np.linspace(0, 1, 4, dtype="f4")),
    "scan, single": lambda: scan(**{k: v.astype("f4") for k, v in SCAN.items()}),
    "scan, halves": lambda: scan(**{k: v.astype("f2") for k, v in SCAN.items()}),
    "scan, complex": lambda: scan(x=D * 1j),
    "scan, integers": lambda: scan(a=1, x=np.arange(N), B=1, C=1),
    "scan, integer of 65 bits": lambda: scan(B=2**64),
    "scan, none": lambda: scan(a=None),
    "scan, shapes": lambda: scan(B=np.ones(3)),
    "scan, axis": lambda: scan(axis=2),
    "scan, no sequences": lambda: scan(x=D[:0]),
    "scan, no boolean": lambda: scan(return_final=1),
    "scan, no hash": lambda: scan(backend=[]),
    "scan, another backend": lambda: scan(backend="numpy"),
    # small matrices
    "matrices": lambda: tridiag.matrix_recurrence(MATRICES, VECTORS),
    "matrices, one": lambda: tridiag.matrix_recurrence(MATRICES[0, 0], VECTORS, np.ones(3), reverse=True),
    "matrices, a number": lambda: tridiag.matrix_recurrence(0.5, VECTORS),
    "matrices, none": lambda: tridiag.matrix_recurrence(None, VECTORS),
    "matrices, last": lambda: final("matrix_recurrence", MATRICES, VECTORS, VECTORS[:, 0]),
    "matrices, out": lambda: tridiag.matrix_recurrence(MATRICES, VECTORS, out=np.empty_like(VECTORS)),
    "matrices, out is x": lambda: tridiag.matrix_recurrence(MATRICES, x := VECTORS.copy(), out=x),
    "matrices, strides": lambda: tridiag.matrix_recurrence(MATRICES.swapaxes(-1, -2), VECTORS[:, ::-1]),
    "matrices of one row": lambda: tridiag.matrix_recurrence(MATRICES[..., :1, :1], VECTORS[..., :1]),
    "matrices, two dtypes": lambda: tridiag.matrix_recurrence(MATRICES.astype("f4"), VECTORS),
    "matrices, complex vectors": lambda: tridiag.matrix_recurrence(MATRICES, VECTORS * 1j),
    "matrices, shapes": lambda: tridiag.matrix_recurrence(MATRICES[..., :2, :2], VECTORS),
    # blocks
    "blocks": lambda: tridiag.solve_block(MATRICES, OWN, MATRICES, VECTORS),
    "blocks, one for all rows": lambda: tridiag.solve_block(MATRICES[0, 0], OWN[0], np.zeros((3, 3)), VECTORS[0]),
    "blocks, shared": lambda: tridiag.solve_block(MATRICES[0], OWN[0], MATRICES[0], VECTORS),
    "blocks, strides": lambda: tridiag.solve_block(MATRICES.swapaxes(-1, -2), OWN, MATRICES, VECTORS[..., ::-1]),
    "blocks, two dtypes": lambda: tridiag.solve_block(MATRICES.astype("f4"), OWN, MATRICES, VECTORS),
    "blocks, complex vectors": lambda: tridiag.solve_block(MATRICES, OWN, MATRICES, VECTORS * 1j),
    "blocks, singular": lambda: tridiag.solve_block(0 * MATRICES, 0 * OWN, 0 * MATRICES, VECTORS),
    "blocks, another backend": lambda: tridiag.solve_block(MATRICES, OWN, MATRICES, VECTORS, backend="numpy"),
    "blocks, shapes": lambda: tridiag.solve_block(MATRICES, OWN, MATRICES, VECTORS[..., :2]),
    # alignments
    "alignments": lambda: tridiag.smith_waterman(SCORES, gap=-1.0),
    "alignment": lambda: tridiag.smith_waterman(SCORES[0], gap=-1, temperature=2),
    "alignments, affine": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, gap_open=np.array([-3.0, -2.0, -1.0])),
    "alignments, lengths": lambda: tridiag.smith_waterman(SCORES, np.array([6, 5]), gap=-1.0),
    "alignments, lengths in a list": lambda: tridiag.smith_waterman(SCORES, [6, 5], gap=-1.0),
    "alignments, too long": lambda: tridiag.smith_waterman(SCORES, np.array([6, 8]), gap=-1.0),
    "alignments, lengths that are none": lambda: tridiag.smith_waterman(SCORES, np.ones(2), gap=-1.0),
    "alignments, cold": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, temperature=0.0),
    "alignments, one cold": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, temperature=np.array([1.0, 1.0, -1.0])),
    "alignments, hot": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, temperature=1e300),
    "alignments, no temperature": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, temperature=np.nan),
    "alignments, single": lambda: tridiag.smith_waterman(SCORES.astype("f4"), gap=-1.0, temperature=0.5),
    "alignments, single and hot": lambda: tridiag.smith_waterman(SCORES.astype("f4"), gap=-1.0, temperature=1e200),
    "alignments, numbers of NumPy": lambda: tridiag.smith_waterman(
        SCORES, gap=np.float64(-1), temperature=np.float32(2)
    ),
    "alignments, a cold number of NumPy": lambda: tridiag.smith_waterman(SCORES, gap=-1.0, temperature=np.float64(0)),
    "alignments, strides": lambda: tridiag.smith_waterman(SCORES[:, ::-1], gap=np.full(6, -1.0)[::2]),
    "alignments, integers": lambda: tridiag.smith_waterman(np.ones((2, 3, 3), int), gap=-1),
    "alignments, a huge gap": lambda: tridiag.smith_waterman(SCORES, gap=-(2**70)),
    "alignments, no gap": lambda: tridiag.smith_waterman(SCORES, gap=None),
    "alignments, none": lambda: tridiag.smith_waterman(SCORES[:, :0], gap=-1.0),
    "alignments, complex": lambda: tridiag.smith_waterman(SCORES * 1j, gap=-1.0),
    # filters
    "likelihood": lambda: model("log_likelihood"),
    "likelihood of one series": lambda: model("log_likelihood", Y[0]),
    "filter": lambda: model("filter"),
    "smoother": lambda: model("smoother", Y[:1]),
    "likelihood, missing": lambda: model("log_likelihood", np.where(Y > 1, np.nan, Y)),
    "likelihood, models": lambda: model("log_likelihood", Q=np.eye(2) * np.arange(1.0, 5)[:, None, None, None]),
    "likelihood, lists": lambda: model("log_likelihood", R=[[1.0]]),
    "likelihood, two dtypes": lambda: model("log_likelihood", R=np.eye(1, dtype="f4")),
    "likelihood, another backend": lambda: model("log_likelihood", backend="numpy"),
    "likelihood, no covariance": lambda: model("log_likelihood", P0=np.array([[1.0, 2.0], [2.0, 1.0]])),
    "likelihood, not symmetric": lambda: model("log_likelihood", Q=np.array([[1.0, 0.5], [0.0, 1.0]])),
    "likelihood, no steps": lambda: model("log_likelihood", Y[:, :0]),
    "likelihood, shapes": lambda: model("log_likelihood", H=np.ones((2, 2))),
    "likelihood, no such method": lambda: model("log_likelihood", method="best"),
}
NAMES = "smith_waterman", "kalman"  # functions; other verbs ask their tables
LONG = (
    "tridiag.systems.prepare", "tridiag.systems.prepare_blocks", "tridiag.factorization.prepare",
    "tridiag.recurrences.PREPARERS", "tridiag.selective.prepare", "tridiag.kalman.execute.prepare",
)  # fmt: skip


def outcome(way: str) -> Any:
    """What comes of the fourth call, which a table may find: the results, or what was raised."""
    for _ in range(4):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = WAYS[way]()
        except (ValueError, TypeError, OverflowError, tridiag.BackendError, tridiag.SingularSystemError) as error:
            told: Any = type(error), str(error), error.__context__
        else:
            told = [told_of(x) for x in flat(found)]
    return told


def flat(found: Any) -> list[Any]:
    return [x for part in found for x in flat(part)] if isinstance(found, tuple) else [found]


def told_of(x: Any) -> Any:
    return (type(x), x.dtype.str, x.shape, x.strides, x.tobytes()) if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("way", WAYS)
def test_the_short_way_is_as_good_as_the_long_one(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, the same refusal, and no warning."""
    found = outcome(way)
    for name in NAMES:
        monkeypatch.setattr(fast_path, name, lambda *arguments: None)
    let_tables_find_nothing(monkeypatch, *fast_path.TABLES)
    assert found == outcome(way)


@pytest.mark.parametrize(
    "way",
    [
        "product", "product, mask", "product, numbers", "product, out", "product, integers", "product, complex",
        "product, strided out", "product, mask, strided out", "matrices, strides", "blocks, strides", "determinants",
        "determinants, corners", "determinants, complex", "last", "last, order 2", "last, logarithms", "matrices",
        "matrices, one", "matrices, last", "matrices, two dtypes", "blocks", "blocks, one for all rows", "likelihood",
        "likelihood, missing", "likelihood, models", "filter", "smoother", "factors", "factors, transposed",
        "factors, mask", "factors, numbers", "factors, corners", "complex, real coefficient", "scan", "scan, numbers",
        "scan, a layer", "scan, last", "scan, out", "scan, two dtypes", "predict", "predict, models", "update",
    ],
)  # fmt: skip
def test_the_short_way_is_taken(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is out of the ordinary."""
    wanted = outcome(way)
    for name in LONG:
        monkeypatch.setattr(name, None)
    assert outcome(way) == wanted


def test_alignments_are_recalled() -> None:
    """Each of these facts once."""
    for _ in range(3):
        for way in ("alignments", "alignments, affine", "alignments, lengths"):
            WAYS[way]()
    assert fast_path.alignments.bound_alignment.cache_info().misses == 3


@pytest.mark.parametrize(
    ("way", "binding"),
    [
        ("product", "matrices.bound_product"),
        ("product, mask", "matrices.bound_product"),
        ("product, out", "matrices.bound_product"),
        ("product, strided out", "matrices.bound_product"),
        ("product, mask, out", "matrices.bound_product"),
        ("matrices", "recurrences.bound_recurrence"),
        ("matrices, out", "recurrences.bound_recurrence"),
        ("blocks", "blocks.bound_blocks"),
        ("predict", "streams.known_step"),
        ("update", "streams.known_step"),
        ("scan", "selective.bound_scan"),
        ("scan, a layer", "selective.bound_scan"),
        ("scan, last", "selective.bound_scan"),
        ("scan, out", "selective.bound_scan"),
    ],
)
def test_compiled_code_finds_them(way: str, binding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table of their verb, from the third or fourth call on."""
    wanted = outcome(way)
    module, name = binding.split(".")
    monkeypatch.setattr(getattr(fast_path, module), name, None)
    assert outcome(way) == wanted


def test_what_is_recalled_is_bounded_and_forgotten() -> None:
    for way in ("product", "determinants", "factors", "last", "blocks", "alignments", "likelihood", "update", "scan"):
        WAYS[way]()
    tridiag.solve(A, B, C, D)
    for cache in fast_path.CACHES:
        assert cache.cache_info().maxsize and cache.cache_info().currsize
    fast_path.forget()
    assert not any(cache.cache_info().currsize for cache in fast_path.CACHES)


def test_few_long_systems_are_not_slower_with_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each has one right side, the backend that solves them anew takes over; not where one was named."""
    given = [np.resize(x[0], 20_000) for x in (A, B, C)]
    d = np.resize(D, 20_000)
    wanted = tridiag.solve(*given, d, backend="numba_partition")
    matrix, named = tridiag.factor(*given), tridiag.factor(*given, backend="numba_thomas")
    assert matrix.solve(d).tobytes() == matrix.solve(d).tobytes() == wanted.tobytes()
    let_tables_find_nothing(monkeypatch, fast_path.FACTORED_SOLVES)
    assert matrix.solve(d).tobytes() == wanted.tobytes()
    monkeypatch.setattr(BACKENDS["numba_partition"].module(), "solve", None)
    np.testing.assert_allclose(named.solve(d), wanted, rtol=1e-12)
    np.testing.assert_allclose(matrix.solve(np.stack((d, d, d)))[1], wanted, rtol=1e-12)


def test_few_long_systems_keep_the_factors_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the matrix alone, until right sides share it: then the factors of the named backend, made once."""
    given = [np.resize(x[0], 20_000) for x in (A, B, C)]
    d, one = np.resize(D, (3, 20_000)), given[1].nbytes
    named = tridiag.factor(*given, backend="numba_thomas")
    tridiag.factor(*given)
    tracemalloc.start()
    try:
        matrix = tridiag.factor(*given)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3.2 * one and most < 4.2 * one
    assert copy.deepcopy(matrix).solve(d).tobytes() == matrix.solve(d).tobytes() == named.solve(d).tobytes()
    assert matrix.solve(d[0]).tobytes() == tridiag.solve(*given, d[0], backend="numba_partition").tobytes()
    for name in LONG:
        monkeypatch.setattr(name, None)
    assert matrix.solve(d, True).tobytes() == named.solve(d, True).tobytes()


@pytest.mark.parametrize("short_way", [True, False])
@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_matrices_that_keep_no_factors_are_solved_as_solve_does(
    pivoting: bool | str, short_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that exchange rows are eliminated again: once by a kernel that solves long ones in thrice the time."""
    if not short_way:
        let_tables_find_nothing(monkeypatch, fast_path.FACTORED_SOLVES)
    rng = np.random.default_rng(0)
    for shape, count in (((1, 20_000), 10), ((2, 20_000), 3), ((1, 20_000), 1)):
        a, b, c = rng.uniform(-1, 1, (3, *shape))
        d, matrix = rng.uniform(-1, 1, (count, *shape)), tridiag.factor(a, b, c, pivoting=pivoting)
        for transpose in (False, True):
            wanted = tridiag.solve(a, b, c, d, pivoting=pivoting, transpose=transpose)
            assert matrix.solve(d, transpose).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
@pytest.mark.parametrize("short_way", [True, False])
def test_few_long_systems_have_the_status_of_factors(
    short_way: bool, pivoting: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which says where the last pivot alone is 0, a column is, rows are taken out, and numbers are none."""
    if not short_way:
        let_tables_find_nothing(monkeypatch, fast_path.FACTORINGS)
    weights = np.random.default_rng(1).integers(1, 9, (4, 6000)).astype(float)
    weights[:, [0, -1]] = 0
    a, c = -weights[:, :-1], -weights[:, 1:]
    b, where = -(a + c), np.ones(a.shape, bool)
    b[1] += 1
    b[1, 3000] = a[1, 3001] = c[1, 2999] = 0
    b[2, 17] = np.nan
    where[3, 5] = False
    for mask, wanted in ((None, [5999, 3001, 0, 5999]), (where, [5999, 3001, 0, 0])):
        matrix = tridiag.factor(a, b, c, where=mask, pivoting=pivoting)
        assert matrix.status.tolist() == wanted
        assert matrix.status.dtype == tridiag.factor(A, B, C).status.dtype
        if pivoting is not False:  # else a zero pivot may be rounding in the solution
            with pytest.raises(tridiag.SingularSystemError) as caught:
                matrix.solve(b)
            assert caught.value.indices.tolist() == [[k] for k in np.flatnonzero(wanted).tolist()]


@pytest.mark.parametrize("options", [{"axis": 0}, {"periodic": True}, {"pivoting": True}])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("short_way", [True, False])
def test_one_right_side_each_is_solved_as_solve_does_where_factors_save_nothing(
    library: str, short_way: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From factors systems side by side took up to three times as long. Nothing is factored before that is wanted."""
    pytest.importorskip(library)
    if not short_way:
        let_tables_find_nothing(monkeypatch, fast_path.FACTORINGS)
        monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
        let_tables_find_nothing(monkeypatch, fast_path.FACTORED_SOLVES)
    a, b, c, d = (to_library(library, x) for x in dominant((40, 50)))
    matrix, named = (tridiag.factor(a, b, c, backend=name, **options) for name in ("auto", "numba_thomas"))
    assert matrix._factors is None and named._factors is not None
    for transpose in (False, True):
        wanted = to_numpy(tridiag.solve(a, b, c, d, transpose=transpose, **options))
        for one in (matrix, named):
            assert to_numpy(one.solve(d, transpose)).tobytes() == wanted.tobytes()
    assert matrix._factors is None


@pytest.mark.parametrize("options", [{"axis": 0}, {"axis": 0, "pivoting": False}, {"periodic": True}])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(12, 12), (4, 30), (30, 4), (64, 9), (2, 40)])
def test_the_status_without_factors(shape: tuple[int, ...], masked: bool, options: dict[str, Any]) -> None:
    """That of elimination with partial pivoting, of integers with many zero pivots and of what is not finite."""
    rng, seen = np.random.default_rng(0), []
    for turn in range(8):
        a, b, c = rng.integers(-2, 3, (3, *shape)).astype(float)
        a, b = a * (rng.uniform(size=shape) < 0.4), b + 4 * (rng.uniform(size=shape) < 1 - 1 / len(b))
        where = rng.uniform(size=shape) < 0.8 if masked else None
        if turn == 7:
            b.flat[7] = np.nan
        found = tridiag.factor(a, b, c, where=where, **options)
        wanted = tridiag.factor(a, b, c, where=where, backend="numpy_thomas", **options | {"pivoting": True}).status
        assert found._factors is None and found.status.tolist() == wanted.tolist()
        seen += wanted.tolist()
    assert 0 in seen and any(seen)


def test_factors_own_what_they_are_made_of() -> None:
    """What becomes of the caller's arrays later changes nothing."""
    given = [x.copy() for x in (A, B, C, MASK)]
    matrix = tridiag.factor(*given[:3], where=given[3])
    wanted = matrix.solve(D), *matrix.slogdet()
    for x in given:
        x[...] = 0
    for x, y in zip(wanted, (matrix.solve(D), *matrix.slogdet()), strict=True):
        np.testing.assert_array_equal(x, y)
