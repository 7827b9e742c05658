"""Dask arrays: lazy in, lazy out, and the numbers that NumPy arrays give, however they are cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_parts import conductors

import tridiag

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("numba")
SHAPE = (4, 3, 24)
CHUNKS = {
    "batch": (2, 2, 24),
    "rows": (4, 3, 7),
    "both": (2, 2, (1, 11, 12)),
    "single rows": (4, 3, (1, 1, 22)),
    "empty": (2, 3, (0, 12, 0, 12)),
}
OPTIONS = [{"periodic": p, "transpose": t} for p, t in itertools.product((False, True), repeat=2)]


@pytest.fixture(autouse=True)
def nothing_is_computed_unasked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`computed` runs in the calling thread; whatever else would compute raises. Other processes have no such rule."""
    if request.node.name == "test_two_processes":
        return

    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("computed while the graph was built")

    monkeypatch.setattr("dask.threaded.get", refuse)
    monkeypatch.setitem(dask.config.config, "scheduler", refuse)


def computed(*arrays: Any) -> Any:
    found = dask.compute(*arrays, scheduler="synchronous")
    return found[0] if len(arrays) == 1 else found


def system(shape: tuple[int, ...] = SHAPE, dtype: str = "float64", seed: int = 0) -> list[Any]:
    """Dominant a, b, c, and d."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    found = [rng.uniform(-1, 1, shape) for _ in range(4)]
    found[1] = rng.uniform(3, 4, shape)
    if kind.kind == "c":
        found = [x + 1j * rng.uniform(-1, 1, shape) for x in found]
    return [x.astype(kind) for x in found]


def near(lazy: Any, wanted: Any, units: float = 1000) -> None:
    """Of the dtype and shape that were told, and the same but for rounding."""
    found = computed(lazy)
    assert isinstance(lazy, da.Array)
    assert found.dtype == wanted.dtype == lazy.dtype and found.shape == wanted.shape == lazy.shape
    eps = float(np.finfo(wanted.dtype).eps)
    np.testing.assert_allclose(found, wanted, rtol=units * eps, atol=units * eps)


def backward_error(a: Any, b: Any, c: Any, d: Any, x: Any, periodic: bool = False) -> Any:
    """The largest componentwise residual of each system along the last axis."""
    a, b, c, d, x = (np.array(v, np.longdouble) for v in np.broadcast_arrays(a, b, c, d, x))
    if not periodic:
        a[..., 0] = c[..., -1] = 0
    terms = a * np.roll(x, 1, -1), b * x, c * np.roll(x, -1, -1), -d
    return (abs(sum(terms)) / sum(map(abs, terms))).max(-1)


@pytest.fixture(params=["shared", "apart", "twice"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks share their memory and hold what they solved or solve it twice, or are told what they need of others."""
    for module in ("systems", "sequences"):
        monkeypatch.setattr(f"tridiag.chunked.{module}.share_memory", lambda: request.param != "apart")
    if request.param == "twice":
        monkeypatch.setitem(dask.config.config, "tridiag", {"hold": 0})
        monkeypatch.setattr("tridiag.chunked.sources.LARGE", 2**40)


# ------------------------------------------------------------------------------------------------------ systems


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("cut", CHUNKS)
def test_systems(cut: str, options: dict[str, bool]) -> None:
    a, b, c, d = system()
    lazy = [da.from_array(x, chunks=CHUNKS[cut]) for x in (a, b, c, d)]
    la, lb, lc, ld = lazy
    for given, plain in (
        (lazy, (a, b, c, d)),
        ((-1.0, b[0, 0], c[0], ld), (-1.0, b[0, 0], c[0], d)),  # scalars, NumPy arrays, fewer axes
        ((la[0, 0], lb, c[..., :1], d), (a[0, 0], b, c[..., :1], d)),  # the right side of NumPy
        ((la, lb, lc.rechunk((4, 3, 12)), ld[:, :1]), (a, b, c, d[:, :1])),  # cut in other places
    ):
        near(tridiag.solve(*given, **options), tridiag.solve(*plain, **options))
        near(tridiag.matmul(*given, **options), tridiag.matmul(*plain, **options))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis_and_masks(axis: int) -> None:
    """NaN in rows that are taken out, and in what couples others to them, reaches nothing, across cuts either."""
    a, b, c, d = system((8, 9, 10))
    keep = np.random.default_rng(1).random((8, 9, 10)) < 0.7
    for x in (a, b, c, d):
        x[~keep] = np.nan
    a[~np.roll(keep, 1, axis)] = c[~np.roll(keep, -1, axis)] = np.nan
    for chunks in ((3, 4, 5), tuple(3 if k == axis % 3 else -1 for k in range(3))):
        lazy = [da.from_array(x, chunks=chunks) for x in (a, b, c, d)]
        for where, options in itertools.product((keep, da.from_array(keep, chunks=4)), OPTIONS):
            near(
                tridiag.solve(*lazy, where=where, axis=axis, **options),
                tridiag.solve(a, b, c, d, where=keep, axis=axis, **options),
            )
            y = tridiag.matmul(*lazy, where=where, axis=axis, **options)
            near(y, tridiag.matmul(a, b, c, d, where=keep, axis=axis, **options))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_dtypes(dtype: str) -> None:
    """Halves are rounded once, at the end."""
    a, b, c, d = system(dtype=dtype)
    for cut in ("batch", "both"):
        lazy = [da.from_array(x, chunks=CHUNKS[cut]) for x in (a, b, c, d)]
        units = 2 if dtype == "float16" else 1000
        near(tridiag.solve(*lazy), tridiag.solve(a, b, c, d), units)
        near(tridiag.solve(a.real, b.real, c.real, lazy[3]), tridiag.solve(a.real, b.real, c.real, d), units)
        near(tridiag.matmul(*lazy), tridiag.matmul(a, b, c, d), units)
        near(tridiag.linear_recurrence(lazy[0], lazy[3]), tridiag.linear_recurrence(a, d), units)
    near(tridiag.solve(1, 4, 1, da.arange(6, chunks=4)), tridiag.solve(1, 4, 1, np.arange(6)))


def near_determinants(given: Any, plain: Any, **options: Any) -> None:
    wanted = {name: computed(x) if isinstance(x, da.Array) else x for name, x in options.items()}
    for found, exact in zip(tridiag.slogdet(*given, **options), tridiag.slogdet(*plain, **wanted), strict=True):
        near(found, exact)


@pytest.mark.parametrize("options", [{}, {"periodic": True}, {"axis": 1}, {"axis": 0, "periodic": True}], ids=str)
@pytest.mark.parametrize("cut", CHUNKS)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_determinants(dtype: str, cut: str, options: dict[str, Any]) -> None:
    a, b, c, _ = system(dtype=dtype)
    la, lb, lc = (da.from_array(x, chunks=CHUNKS[cut]) for x in (a, b, c))
    near_determinants((la, lb, lc), (a, b, c), **options)
    near_determinants((-1.0, lb, 0.5), (-1.0, b, 0.5), **options)
    n = SHAPE[options.get("axis", -1)]
    near_determinants((np.arange(n), lb, lc[:1]), (np.arange(n), b, c[:1]), **options)


@pytest.mark.parametrize("periodic", [False, True])
def test_determinants_with_rows_that_are_taken_out(periodic: bool) -> None:
    """NaN in them, and in what couples others to them, reaches nothing, across cuts either."""
    every = np.random.default_rng(1).random((8, 9, 10)) < 0.7
    for keep, chunks in itertools.product((every, every[:1]), ((3, 4, 5), (8, 9, (1, 1, 3, 5)))):
        a, b, c = (np.where(keep, x, np.nan) for x in system((8, 9, 10))[:3])
        a, c = np.where(np.roll(keep, 1, -1), a, np.nan), np.where(np.roll(keep, -1, -1), c, np.nan)
        lazy = [da.from_array(x, chunks=chunks) for x in (a, b, c)]
        near_determinants(lazy, (a, b, c), where=keep, periodic=periodic)
        near_determinants(lazy, (a, b, c), where=da.from_array(keep, chunks=5), periodic=periodic)


def test_determinants_of_any_size() -> None:
    """Far out of range, 0, of singular chunks in matrices that are not, and with entries that are not read."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(-1, 1, (6, 4000)) for _ in range(3))
    b[1] *= 1e-3
    b[2] *= 1e200
    a[3], b[3], c[3] = 1, 0, 1  # singular in chunks of 1001 rows
    b[4, 1000], a[4, 1000], c[4, 1000] = 0, 0, 0
    a[:, 0] = c[:, -1] = np.nan
    for chunks in ((4, 1001), (6, 300), (6, (1, 1, 3998))):
        lazy = [da.from_array(x, chunks=chunks) for x in (a, b, c)]
        near_determinants(lazy, (a, b, c))
    sign, logarithm = tridiag.slogdet(*lazy)
    assert computed(sign)[4] == 0 and computed(logarithm)[4] == -np.inf


@pytest.mark.parametrize("options", [{}, {"periodic": True}, {"axis": 0}], ids=str)
def test_determinants_of_singular_matrices(options: dict[str, Any]) -> None:
    """Rounding between chunks does not make them regular; some of many, one that all share, and one alone."""
    periodic = options.get("periodic", False)
    a, b, c = conductors(np.random.default_rng(0), 5, 480, 9, "float64", periodic)
    b[3] += 1
    if "axis" in options:
        a, b, c = (np.ascontiguousarray(x.T) for x in (a, b, c))
    for chunks in (7, 160):
        cut = {0: chunks} if "axis" in options else {1: chunks}
        lazy = [da.from_array(x, chunks=-1).rechunk(cut) for x in (a, b, c)]
        sign, logarithm = map(computed, tridiag.slogdet(*lazy, **options))
        wanted = tridiag.slogdet(a, b, c, **options)
        np.testing.assert_array_equal(sign, wanted[0])
        np.testing.assert_allclose(logarithm[3], wanted[1][3], rtol=1e-12)
        if not periodic:
            assert (np.delete(logarithm, 3) == -np.inf).all()
    links = np.full(4096, -1.0)
    middle = np.full(4096, 2.0)
    middle[0] = middle[-1] = 1
    sign, logarithm = tridiag.slogdet(-1.0, da.from_array(middle, chunks=512), links[:1])
    assert (computed(sign), computed(logarithm)) == (0, -np.inf)


@pytest.mark.parametrize(("dtype", "length"), [("float32", 3200), ("float64", 1_000_000)])
def test_determinants_of_which_chunks_leave_no_digit(dtype: str, length: int) -> None:
    """Of long Laplacians the minors of chunks all but cancel, in every join."""
    middle = np.full(length, 2, dtype)
    logarithm = tridiag.slogdet(-1.0, da.from_array(middle, chunks=length // 8), -1.0)[1]
    assert float(computed(logarithm)) == pytest.approx(np.log(length + 1), rel=1e-3)


def test_determinants_that_are_not_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of slowly decaying matrices either, nor of such with zero diagonals, NaN or a row of zeros."""
    monkeypatch.setattr("tridiag.chunked.rest.Systems.together", None)
    laplacian = da.full(4096, 2.0, chunks=512)
    assert computed(tridiag.slogdet(-1.0, laplacian, -1.0)[1]) == pytest.approx(np.log(4097), abs=1e-9)
    a, b, c = (np.random.default_rng(0).uniform(-1, 1, (4, 300)) for _ in range(3))
    b[1, ::2] = 0
    b[2, 7] = np.nan
    a[3, 50] = b[3, 50] = c[3, 50] = 0
    near_determinants([da.from_array(x, chunks=(4, 31)) for x in (a, b, c)], (a, b, c))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_determinants_of_other_dtypes(dtype: str) -> None:
    a, b, c, _ = system((3, 600), dtype)
    near_determinants([da.from_array(x, chunks=(3, 70)) for x in (a, b, c)], (a, b, c))


def test_determinants_are_joined_as_a_tree() -> None:
    """No task takes more than one chunk of the matrix, but for what is in doubt."""
    b = da.zeros((64, 80), chunks=(8, 10))
    sign, _ = tridiag.slogdet(1.0, b, 1.0)
    assert tasks(sign) == 64 + 64 + 7 * 8 + 2 * 8 + 64 + 8


# ---------------------------------------------------------------------------------------------- long chunks

LONG = (700, 300, 500)  # rows of chunks that are solved alone


@pytest.fixture
def no_system_is_solved_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise AssertionError("a system is solved whole")

    monkeypatch.setattr("tridiag.chunked.rest.Systems.entries", refuse)


def long_system(axis: int, dtype: str = "float64") -> tuple[list[Any], tuple[Any, ...]]:
    """Dominant a, b, c and d, whose couplings decay within 64 rows, and how they are cut."""
    shape, chunks = [2, 3, 2], [2, 2, 2]
    shape[axis], chunks[axis] = sum(LONG), LONG  # type: ignore[call-overload]
    return system(tuple(shape), dtype), tuple(chunks)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_long_chunks(axis: int, options: dict[str, bool], memory: Any, no_system_is_solved_whole: Any) -> None:
    """Each is solved alone, and the rows around the cuts again, whatever is broadcast or taken out."""
    (a, b, c, d), chunks = long_system(axis)
    keep = np.random.default_rng(1).random(d.shape) < 0.7
    told = {**options, "axis": axis}
    la, lb, lc, ld = (da.from_array(x, chunks=chunks) for x in (a, b, c, d))
    line, one = np.moveaxis(c, axis, -1)[0, 0], np.take(a, [3], axis)
    for given, plain in (
        ((la, lb, lc, ld), (a, b, c, d)),
        ((-1.0, b, da.from_array(line, chunks=200), ld), (-1.0, b, line, d)),
        ((one, 4.0, lc, d), (one, 4.0, c, d)),
        ((la, lb, lc, ld + 1j), (a, b, c, d + 1j)),
    ):
        near(tridiag.solve(*given, **told), tridiag.solve(*plain, **told))
    nan = [np.where(keep, x, np.nan) for x in (a, b, c, d)]
    lazy = [da.from_array(x, chunks=chunks) for x in nan]
    near(tridiag.solve(*lazy, where=keep, **told), tridiag.solve(*nan, where=keep, **told))


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_long_chunks_of_any_dtype(dtype: str) -> None:
    (a, b, c, d), chunks = long_system(2, dtype)
    lazy = [da.from_array(x, chunks=chunks) for x in (a, b, c, d)]
    near(tridiag.solve(*lazy), tridiag.solve(a, b, c, d), 2 if dtype == "float16" else 1000)


SLOW = {"steep": 0.3, "slow": 0.02, "hardly": 1e-4, "not at all": 0.0}  # more than dominant by


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("decay", SLOW)
def test_couplings_that_decay_slowly(decay: str, periodic: bool, memory: Any) -> None:
    """More rows are solved again, or all: every row of the result has a residual that is rounding."""
    d = np.random.default_rng(0).standard_normal((40, 6000))
    if periodic:
        d[:, 0] += 0.5
    b = 2 + max(SLOW[decay], 1e-6 if periodic else 0)
    x = computed(tridiag.solve(-1.0, b, -1.0, da.from_array(d, chunks=(20, 1500)), periodic=periodic))
    assert (backward_error(-1.0, b, -1.0, d, x, periodic) <= 8 * np.finfo(float).eps).all()


def test_what_lies_beyond_a_cut_may_be_larger_by_any_factor() -> None:
    """Rows that are small, or 0, are solved again as far as what comes from the other chunk counts in them."""
    d = np.zeros((5, 2000))
    d[0, 400] = d[1, 399] = d[4, 100] = 1
    d[2] = np.where(np.arange(2000) < 400, 1, 1e-30)
    d[3] = 10.0 ** (-np.arange(2000) / 8)
    x = computed(tridiag.solve(-1.0, 3.0, -1.0, da.from_array(d, chunks=(5, 400))))
    wanted = tridiag.solve(-1.0, 3.0, -1.0, d)
    np.testing.assert_allclose(x, wanted, rtol=1e-13)


def test_one_system_of_many_may_be_uncertified_singular_or_nan(memory: Any) -> None:
    """It is solved whole, and its neighbours are not touched."""
    rng = np.random.default_rng(0)
    a, b, c, d = system((9, 1200))
    a[2], b[2], c[2] = (rng.uniform(-1, 1, 1200) for _ in range(3))
    b[3, 300:302], a[3, 301], c[3, 300] = 1, 1, 1
    a[3, 300] = c[3, 301] = 0
    d[4, 500] = np.nan
    chunks = ((4, 5), (300, 400, 500))
    lazy = [da.from_array(x, chunks=chunks) for x in (a, b, c, d)]
    with pytest.raises(
        tridiag.SingularSystemError, match=r"a system is singular \(batch index \(3\).*perturb"
    ) as caught:
        computed(tridiag.solve(*lazy))
    assert caught.value.indices.tolist() == [[3]] and caught.value.column == 1199  # rows change places down to it
    x = computed(tridiag.solve(*lazy, check=False))
    np.testing.assert_array_equal(np.isnan(x).all(-1), [k in (3, 4) for k in range(9)])
    good = [k for k in range(9) if k not in (3, 4)]
    assert (backward_error(*(v[good] for v in (a, b, c, d, x))) <= 8 * np.finfo(float).eps).all()


def test_a_long_chunk_may_be_singular_where_the_system_is_not() -> None:
    a, b, c, d = system((3, 900))
    a[1, 899], b[1, 899] = 1, 0
    b[1, 299], a[1, 299], b[1, 298], c[1, 298] = 1, 1, 1, 1
    a[1, 298] = 0
    near(tridiag.solve(a, b, c, da.from_array(d, chunks=(3, 300))), tridiag.solve(a, b, c, d), 1e5)


@pytest.mark.parametrize(("rows", "length"), [(10, 40), (512, 4096)])
def test_a_singular_system_that_holds_nan_is_told(rows: int, length: int) -> None:
    """As if it lay in one chunk: NaN in a right side says nothing of a matrix; with it in a matrix nothing is told."""
    b, d = np.full((4, length), 2.0), np.ones((4, length))
    b[:2, [0, -1]] = 1
    b[3, length // 2] = d[0, -5] = d[2, 5] = np.nan
    lazy = da.from_array(d, chunks=(4, rows))
    with pytest.raises(tridiag.SingularSystemError) as caught:
        computed(tridiag.solve(-1.0, b, -1.0, lazy))
    assert caught.value.indices.tolist() == [[0], [1]]
    assert np.isnan(computed(tridiag.solve(-1.0, b, -1.0, lazy, check=False))).all()
    x = computed(tridiag.solve(-1.0, b[2:], -1.0, da.from_array(d[2:], chunks=(2, rows))))
    assert np.isnan(x).all()


def test_results_may_be_computed_again() -> None:
    """What a task has written to is written to as before."""
    (a, b, c, d), chunks = long_system(2)
    x = tridiag.solve(a, b, c, da.from_array(d, chunks=chunks))
    np.testing.assert_array_equal(computed(x), computed(x))
    lazy = [da.from_array(v, chunks=chunks) for v in (a, b, c, d)]
    computed(tridiag.solve(*lazy))
    for one, other in zip(lazy, (a, b, c, d), strict=True):
        np.testing.assert_array_equal(computed(one), other)


def test_tasks_are_told_apart_where_they_may_not_share_memory() -> None:
    from tridiag.chunked.operands import share_memory

    for name, shared in (("threads", True), ("synchronous", True), ("processes", False), ("distributed", False)):
        with dask.config.set(scheduler=name):
            assert share_memory() == shared


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("diagonal", "double", "single"), [(4.0, 32, 32), (2.1, 192, 64), (2.01, 512, 192), (2.0, 512, 512)]
)
def test_other_workers_are_told_no_more_rows_than_couplings_decay_in(
    diagonal: float, double: int, single: int, dtype: Any
) -> None:
    """Of all systems but one in sixteen; whichever of the bands are constant."""
    from tridiag.chunked import cuts
    from tridiag.chunked.rest import Systems

    rows = np.full((32, 2048), diagonal, dtype)
    rows[3] = 2
    for b in (rows, np.array(diagonal, dtype), np.full((2048,), diagonal, dtype), rows[:, :1]):
        moving = ("b", "d") if b.shape[-1:] == (2048,) else ("d",)
        systems = Systems(tridiag.solve, ("a", "b", "c", "d"), moving, 1, 2, {"transpose": False}, False)
        values = np.array(-1, dtype), b, np.array(-1, dtype), np.ones((32, 2048), dtype)
        told = cuts.Alone(systems, False).told(cuts.Solved(values[3], values))
        width = double if dtype == np.float64 else single
        assert {x.shape for name in ("x", *moving) for x in told[name]} <= {(32, width + 2), (1, width + 2)}


# ---------------------------------------------------------------------------------------------- doubtful systems


def test_systems_without_certificate_are_solved_whole(memory: Any) -> None:
    """They, and no others; and those whose couplings do not decay, which the check of end rows may refuse."""
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.uniform(-1, 1, (9, 40)) for _ in range(4))
    b[:, 3::7] = 0
    b[4] = 4
    x = computed(tridiag.solve(a, b, c, da.from_array(d, chunks=(5, 7))))
    assert (backward_error(a, b, c, d, x) <= 8 * np.finfo(float).eps).all()
    d = rng.standard_normal((2, 30_000))
    x = computed(tridiag.solve(-1.0, 2.0, -1.0, da.from_array(d, chunks=(1, 10_000))))
    assert (backward_error(-1.0, 2.0, -1.0, d, x) <= 8 * np.finfo(float).eps).all()


def test_a_part_may_be_singular_where_the_system_is_not(memory: Any) -> None:
    a, b, c, d = np.ones(6), np.array([1.0, 1.0, 0.0, 1.0, 1.0, 0.0]), np.ones(6), np.arange(6.0)
    near(tridiag.solve(a, b, c, da.from_array(d, chunks=2)), tridiag.solve(a, b, c, d))


@pytest.mark.parametrize(("rows", "length"), [(8, 64), (300, 2400)])
def test_rounding_does_not_make_singular_systems_regular(rows: int, length: int, memory: Any) -> None:
    """With a right side that they have solutions for; chunks that are joined, and such that are solved alone."""
    a, b, c = conductors(np.random.default_rng(0), 20, length, 9, "float64")
    d = np.zeros((20, length))
    d[:, 0], d[:, -1] = 1, -1
    b[3] += 1
    for transpose in (False, True):
        lazy = [da.from_array(x, chunks=(20, rows)) for x in (a, b, c, d)]
        with pytest.raises(tridiag.SingularSystemError, match="19 systems of a chunk are singular"):
            computed(tridiag.solve(*lazy, transpose=transpose))


@pytest.mark.parametrize("chunks", [(2, 4), (2, 2)])
def test_singular_systems_raise_when_they_are_computed(chunks: tuple[int, int], memory: Any) -> None:
    """By their index in the whole array; with check=False they are NaN, and their neighbours are not."""
    b = np.full((6, 4), 4.0)
    b[3] = [1, 1, 4, 4]
    d = da.ones((6, 4), chunks=chunks)
    a = c = np.array([1.0, 1.0, 0.0, 0.0])
    x = tridiag.solve(c, b, a, d)
    with pytest.raises(
        tridiag.SingularSystemError, match=r"a system is singular \(batch index \(3\).*perturb"
    ) as caught:
        computed(x)
    assert caught.value.indices.tolist() == [[3]] and caught.value.column == 1
    found = computed(tridiag.solve(c, b, a, d, check=False))
    np.testing.assert_array_equal(np.isnan(found).all(-1), np.arange(6) == 3)
    assert not np.isnan(found[np.arange(6) != 3]).any()


@pytest.mark.parametrize("chunks", [(2, 4), (2, 2)])
def test_nan_stays_in_its_system(chunks: tuple[int, int], memory: Any) -> None:
    d = np.ones((6, 4))
    d[2, 1] = np.nan
    found = computed(tridiag.solve(1.0, 4.0, 1.0, da.from_array(d, chunks=chunks)))
    np.testing.assert_array_equal(found, tridiag.solve(1.0, 4.0, 1.0, d) if chunks[1] == 4 else found)
    np.testing.assert_array_equal(np.isnan(found).all(-1), np.arange(6) == 2)


# --------------------------------------------------------------------------------------------------- recurrences

STARTS = {"zero": lambda a: None, "given": lambda a: a[..., 0], "shared": lambda a: a[0, :, 0]}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("many", [False, True], ids=["joined", "in turn"])
@pytest.mark.parametrize("cut", CHUNKS)
def test_recurrences(cut: str, many: bool, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tridiag.chunked.sequences.MANY", 0 if many else 1000)
    a, _, _, x = system()
    la, lx = (da.from_array(v, chunks=CHUNKS[cut]) for v in (a, x))
    options = {"reverse": reverse, "return_final": True}
    for (lazy, plain), start in itertools.product(((la, a), (la[0, 0], a[0, 0]), (0.5, 0.5), (la[0], a[0])), STARTS):
        for verb in (tridiag.linear_recurrence, tridiag.log_linear_recurrence):
            init = STARTS[start](a)
            found = verb(lazy, lx, None if init is None else da.from_array(init, chunks=2), **options)
            for one, wanted in zip(found, verb(plain, x, init, **options), strict=True):
                near(one, wanted)
    near(tridiag.logcumsumexp(lx, reverse=reverse), tridiag.logcumsumexp(x, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences_in_turn(reverse: bool, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the chunk before are at hand, or its last values are."""
    monkeypatch.setattr("tridiag.chunked.sequences.MANY", 0)
    a, _, _, x = system()
    la, lx = (da.from_array(v, chunks=CHUNKS["both"]) for v in (a, x))
    for verb in (tridiag.linear_recurrence, tridiag.log_linear_recurrence):
        near(verb(la, lx, a[..., 0], reverse=reverse), verb(a, x, a[..., 0], reverse=reverse))
    near(tridiag.logcumsumexp(lx, reverse=reverse), tridiag.logcumsumexp(x, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cut", CHUNKS)
def test_higher_orders(cut: str, reverse: bool) -> None:
    a, b, _, x = system()
    la, lx = (da.from_array(v, chunks=CHUNKS[cut]) for v in (a, x))
    for init in (None, (a[..., 1], 2.0)):
        y, final = tridiag.linear_recurrence((la, b / 9), lx, init, reverse=reverse, return_final=True)
        wanted = tridiag.linear_recurrence((a, b / 9), x, init, reverse=reverse, return_final=True)
        near(y, wanted[0])
        for one, other in zip(final, wanted[1], strict=True):
            near(one, other)


def test_fewer_rows_than_values_before() -> None:
    """The last values are those before the first step."""
    x = np.ones((4, 1))
    init = (np.arange(4.0), np.full(4, 7.0))
    _, final = tridiag.linear_recurrence((0.5, 0.5), da.from_array(x, chunks=2), init, return_final=True)
    wanted = tridiag.linear_recurrence((0.5, 0.5), x, init, return_final=True)[1]
    for one, other in zip(final, wanted, strict=True):
        near(one, other)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_products_of_coefficients_may_overflow_where_the_sequence_does_not(dtype: str) -> None:
    n = 80_000
    x = np.zeros((2, n), dtype)
    x[0, -200], x[1, -1] = 1e-100, 3.0
    for a in (10.0, np.full(n, 10.0), np.full(n, -10.0, dtype), np.full(n, 1e-200), np.full((2, 1), 10.0)):
        found = computed(tridiag.linear_recurrence(a, da.from_array(x, chunks=(2, n // 8))))
        wanted = tridiag.linear_recurrence(a, x)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
    first = np.array([1e-300, 0.0])  # grows to a value, and shrinks
    a = np.r_[np.full(250, 10.0), np.full(250, 0.1)]
    found = computed(tridiag.linear_recurrence(a, da.zeros((2, 500), chunks=(2, 50)), first))
    np.testing.assert_allclose(found, tridiag.linear_recurrence(a, np.zeros((2, 500)), first), rtol=1e-10)


def test_a_coefficient_that_multiplies_nothing_is_not_read() -> None:
    a, x = np.full(12, 0.5), np.ones((2, 12))
    a[0] = np.nan
    near(tridiag.linear_recurrence(a, da.from_array(x, chunks=(2, 4))), tridiag.linear_recurrence(a, x))


def test_infinite_logarithms() -> None:
    x = np.zeros((4, 12))
    x[0, :] = -np.inf
    x[1, 3] = np.inf
    x[2, 5] = np.nan
    for chunks in ((4, 12), (2, 4)):
        found = computed(tridiag.logcumsumexp(da.from_array(x, chunks=chunks)))
        np.testing.assert_allclose(found, tridiag.logcumsumexp(x), atol=1e-15)


# ------------------------------------------------------------------------------------------------ graphs and errors


def tasks(array: Any) -> int:
    return len(dict(array.__dask_graph__()))


def test_the_number_of_tasks() -> None:
    """One a chunk where systems are whole; else a few a chunk and a few for every chunk of the batch."""
    whole, cut = (da.zeros((64, 80), chunks=chunks) for chunks in ((1, 80), (8, 10)))
    assert tasks(tridiag.solve(1.0, 4.0, 1.0, whole)) == 2 * 64
    assert tasks(tridiag.linear_recurrence(0.5, whole)) == 2 * 64
    assert tasks(tridiag.logcumsumexp(whole)) == 2 * 64
    assert tasks(tridiag.solve(1.0, 4.0, 1.0, cut)) == 64 + 3 * 64 + 2 * 8
    assert tasks(tridiag.solve(1.0, 4.0, 1.0, da.zeros((64, 8000), chunks=(8, 1000)))) == 64 + 2 * 64 + 8
    assert tasks(tridiag.linear_recurrence(0.5, cut)) == 64 + 64
    assert tasks(tridiag.linear_recurrence(0.5, cut[:16])) <= 2 * 64 + 3 * 16 + 2
    assert tasks(tridiag.matmul(1.0, 4.0, 1.0, cut)) == 64 + 2 * 64


def test_chunks_stay_as_they_are() -> None:
    for chunks in ((3, 20), ((1, 2, 3), (5, 15)), (6, 7)):
        d = da.zeros((6, 20), chunks=chunks)
        for y in (
            tridiag.solve(1.0, np.full(20, 4.0), da.ones(20, chunks=d.chunks[1]), d),
            tridiag.matmul(1.0, 4.0, 1.0, d),
            tridiag.linear_recurrence(np.full((6, 20), 0.5), d),
            tridiag.logcumsumexp(d),
        ):
            assert y.chunks == d.chunks


def test_the_same_call_has_the_same_name() -> None:
    d = da.zeros((6, 20), chunks=5)
    names = [tridiag.solve(1.0, 4.0, 1.0, d, check=check).name for check in (None, None, False)]
    assert names[0] == names[1] != names[2]


def test_elementwise_work_before_and_behind_is_in_the_same_task() -> None:
    d = da.zeros((6, 20), chunks=(2, 20))
    (y,) = dask.optimize(2 * tridiag.solve(1.0, 4.0, 1.0, d + 1))
    assert tasks(y) <= 2 * 3


@pytest.mark.parametrize("rows", [20, 2000])
def test_work_behind_a_cut_is_in_the_task_of_the_result(rows: int, memory: Any) -> None:
    """No task more for it, and none that only renames."""
    d = da.zeros((6, rows), chunks=(3, rows // 4))
    x = tridiag.solve(1.0, 4.0, 1.0, d)
    (alone,), (behind,) = dask.optimize(x), dask.optimize(2 * x + 1)
    assert tasks(behind) == tasks(alone)


def test_results_keep_no_right_sides() -> None:
    """Where tasks share their memory a result needs what settles it alone, which has no arguments."""
    for length in (10, 1000):
        x = tridiag.solve(1.0, 4.0, 1.0, da.zeros((4, 4 * length), chunks=(4, length)))
        graph = x.__dask_graph__()
        assert all(
            {key[0].split("-")[0] for key in graph.get_all_dependencies()[k]} == {"settle"}
            for k in x.__dask_keys__()[0]
        )


def test_what_is_refused() -> None:
    """While the graph is built, with the words of arrays in memory."""
    d = da.zeros((6, 20), chunks=(2, 5))
    for options in ({"out": np.zeros((6, 20))}, {"overwrite_d": True}):
        with pytest.raises(TypeError, match="Dask arrays are not computed yet; leave it out"):
            tridiag.solve(1.0, 4.0, 1.0, d, **options)
    with pytest.raises(TypeError, match="leave it out"):
        tridiag.logcumsumexp(d, out=np.zeros((6, 20)))
    with pytest.raises(TypeError, match="check is 1; wanted True, False or None"):
        tridiag.solve(1.0, 4.0, 1.0, d, check=1)
    with pytest.raises(tridiag.BackendError, match="the system axis is cut into 4 chunks"):
        tridiag.solve(1.0, 4.0, 1.0, d, backend="numba_thomas")
    with pytest.raises(ValueError, match="a has length 19 along the system axis"):
        tridiag.solve(np.ones(19), 4.0, 1.0, d)
    with pytest.raises(ValueError, match="the shapes do not broadcast"):
        tridiag.solve(np.ones((5, 20)), 4.0, 1.0, d)
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        tridiag.linear_recurrence(0.5, d, axis=2)
    with pytest.raises(TypeError, match="where has dtype float64; wanted booleans"):
        tridiag.solve(1.0, 4.0, 1.0, d, where=d)
    with pytest.raises(TypeError, match="d has dtype bool"):
        tridiag.solve(1.0, 4.0, 1.0, d > 0)
    with pytest.raises(TypeError, match="logarithms of positive numbers, which are real"):
        tridiag.log_linear_recurrence(0.0, 1j * d)
    with pytest.raises(TypeError, match="complex128 where whole sequences are in one place"):
        tridiag.logcumsumexp(1j * d)
    with pytest.raises(ValueError, match=r"some of it unknown; call d.compute_chunk_sizes\(\) first"):
        tridiag.solve(1.0, 4.0, 1.0, d[d[:, 0] > 0])
    masked = da.ma.masked_equal(da.arange(6, chunks=3).astype(float), 2)
    with pytest.raises(
        TypeError, match=r"blocks of numpy.ma.*; wanted .*ma.getdata\(d\) .*=~dask.array.ma.getmaskarray\(d\)"
    ):
        tridiag.solve(1.0, 4.0, 1.0, masked)
    x = tridiag.solve(1.0, 4.0, 1.0, da.ma.getdata(masked), where=~da.ma.getmaskarray(masked))
    near(x, tridiag.solve(1.0, 4.0, 1.0, np.arange(6.0), where=np.arange(6) != 2))


def test_other_libraries_beside_dask() -> None:
    torch = pytest.importorskip("torch")
    lazy = da.zeros((6, 20), chunks=5)
    with pytest.raises(TypeError, match=r"different libraries \(b: torch, others: dask\)"):
        tridiag.solve(1.0, torch.ones(20), 1.0, lazy)
    with pytest.raises(TypeError, match=r"different libraries \(d: torch, others: dask\)"):
        tridiag.solve(1.0, lazy, 1.0, torch.ones(6, 20))
    with pytest.raises(TypeError, match=r"different libraries \(x: torch, others: dask\)"):
        tridiag.linear_recurrence(lazy, torch.ones(6, 20))


@pytest.mark.slow
def test_two_processes() -> None:
    """Tasks and what goes between them are pickled."""
    from tridiag.chunked.operands import share_memory

    distributed = pytest.importorskip("distributed")
    a, b, c, d = system((6, 90))
    b[1, ::4], b[2] = 0, 0.1
    lazy = [da.from_array(x, chunks=(2, 20)) for x in (a, b, c, d)]
    long, chunks = long_system(2)
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        shared = share_memory()
        x, y, z, s, t = client.compute(
            [
                tridiag.solve(*lazy),
                tridiag.linear_recurrence(lazy[0], lazy[3]),
                tridiag.matmul(*lazy),
                tridiag.solve(*lazy, transpose=True, periodic=True),
                tridiag.solve(*(da.from_array(v, chunks=chunks) for v in long)),
            ],
            sync=True,
        )
        singular = tridiag.solve(0.0, da.zeros(6, chunks=2), 0.0, 1.0)
        with pytest.raises(tridiag.SingularSystemError):
            client.compute(singular, sync=True)
    assert not shared
    np.testing.assert_allclose(t, tridiag.solve(*long), rtol=1e-9)
    assert (backward_error(a, b, c, d, x) <= 8 * np.finfo(float).eps).all()
    np.testing.assert_allclose(y, tridiag.linear_recurrence(a, d))
    np.testing.assert_allclose(z, tridiag.matmul(a, b, c, d))
    np.testing.assert_allclose(s, tridiag.solve(a, b, c, d, transpose=True, periodic=True), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_of_many_sizes_keep_their_digits(dtype: str) -> None:
    """Also where they leave the range on the way, or come near it, and return."""
    from tridiag.chunked.scaled import product_along

    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    reach = -np.finfo(kind).minexp
    for bits in (0.5, 8, reach / 3, reach * 0.9):
        powers = rng.uniform(-bits, bits, (200, 5))
        powers[:100] = -abs(powers[:100])
        powers[100:] = abs(powers[100:])
        a = (rng.choice([-1.0, 1.0], (200, 5)) * 2.0**powers).astype(kind)
        if kind.kind == "c":
            a = (a * np.exp(1j * rng.uniform(0, 6, (200, 5)))).astype(kind)
        mantissa, exponent = product_along(a, len(a), 0)
        with np.errstate(all="ignore"):
            logarithms = np.log2(abs(a).astype(np.longdouble)).sum(0)
        np.testing.assert_allclose(np.log2(abs(mantissa)) + exponent, logarithms, atol=2000 * np.finfo(kind).eps)
    assert product_along(np.zeros((70, 2), kind), 70, 0)[0].tolist() == [0, 0]
    mantissa, exponent = product_along(np.ones((0, 2), kind), 0, 0)
    assert (mantissa * 2**exponent).tolist() == [1, 1]
    assert np.isnan(product_along(np.full((70, 1), np.nan, kind), 70, 0)[0]).all()
