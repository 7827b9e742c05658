"""Copies of matrices and their factors in one piece of memory, made by one call of a kernel."""

from __future__ import annotations

import copy
import functools
import gc
import math
import pickle
from typing import Any

import numpy as np
import pytest
from helpers import in_threads

import tridiag
from tridiag.calls.fast_path import storage, stored_factors
from tridiag.calls.fast_path.factored import FACTORINGS
from tridiag.kernels.jobs.copies import BLOCK
from tridiag.kernels.jobs.storage import Storage
from tridiag.problems.forms import Form

SHAPES = [
    ((1,), 0), ((2,), 0), ((3,), 0), ((64,), 0), ((400,), 0), ((9000,), 0), ((1, 5), 1), ((2, 30), 1), ((3, 30), 1),
    ((4, 30), 1), ((5, 30), 1), ((7, 3), 1), ((8, 16), 1), ((33, 7), 1), ((100, 64), 1), ((40, 700), 1), ((3, 5, 9), 2),
    ((5, 1), 1), ((7, 3), 0), ((64, 100), 0), ((300, 90), 0), ((2, 9, 4), 1), ((1, 6), 0),
]  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[Any]:
    """Matrices that are dominant by rows, and right sides."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    found = [rng.uniform(*of, shape).astype(kind) for of in ((-1, 1), (3, 4), (-1, 1), (-1, 1))]
    if kind.kind == "c":
        found = [x + 0.3j * rng.uniform(-1, 1, shape).astype(kind) for x in found]
    return found


def assert_near(x: Any, wanted: Any) -> None:
    assert x.dtype == wanted.dtype and abs(x - wanted).max() <= 8 * np.finfo(x.dtype).eps * abs(wanted).max()


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_copies_and_factors(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    """The first call and those that a table finds; what becomes of the caller's arrays is not seen."""
    for turn in range(4):
        a, b, c, d = drawn(shape, dtype, turn)
        wanted, before = tridiag.solve(a, b, c, d, axis=axis), [x.copy() for x in (a, b, c)]
        matrix = tridiag.factor(a, b, c, axis=axis)
        for x in (a, b, c):
            x[...] = np.nan
        for held, given in zip(matrix._matrix, before, strict=False):
            assert held.tobytes() == given.tobytes() and held.dtype == given.dtype and held.shape == given.shape
        assert not matrix.status.any() and matrix.status.shape == tuple(np.delete(shape, axis))
        for each in (matrix, copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
            assert_near(each.solve(d), wanted)
        assert copy.copy(tridiag.factor(*before, axis=axis)).shape == shape


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_couplings_that_nobody_reads_may_be_anything(shape: tuple[int, ...], axis: int) -> None:
    a, b, c, d = drawn(shape, "float64")
    wanted = tridiag.solve(a, b, c, d, axis=axis)
    np.moveaxis(a, axis, 0)[0], np.moveaxis(c, axis, 0)[-1] = np.nan, np.inf
    for _ in range(3):
        matrix = tridiag.factor(a, b, c, axis=axis)
        assert not matrix.status.any()
        assert_near(matrix.solve(d), wanted)


@functools.cache
def troubled(systems: int, n: int) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    """Matrices, one of which is singular, or has NaN, or larger couplings, and their status as rows are eliminated."""
    rng, found = np.random.default_rng(0), {}
    for kind in ("singular", "nan", "coupled", "zero diagonal"):
        a, b, c, _ = drawn((systems, n), "float64")
        system, row = int(rng.integers(systems)), int(rng.integers(n))
        if kind == "singular":
            a[system, row] = b[system, row] = c[system, row] = 0
        elif kind == "nan":
            b[system, row] = np.nan
        elif kind == "coupled":
            a[system], c[system] = 7, 5
        else:
            b[system, row] = 0
        found[kind] = [a, b, c], tridiag.factor(a, b, c, backend="numpy_thomas", pivoting=True).status
    return found


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((1, 9000), 1), ((9000, 1), 0), ((70, 130), 0)])
def test_the_status_is_that_of_elimination_with_exchanges(
    shape: tuple[int, ...], axis: int, pivoting: bool | str
) -> None:
    """Where one system is singular, wherever it is, where one has NaN, and where couplings are larger."""
    n, batch = shape[axis], tuple(np.delete(shape, axis))
    for kind, (rows, wanted) in troubled(math.prod(batch), n).items():
        given = [np.ascontiguousarray(np.moveaxis(x.reshape(*batch, n), -1, axis)) for x in rows]
        for _ in range(3):
            found = tridiag.factor(*given, axis=axis, pivoting=pivoting).status
            assert found.tolist() == wanted.reshape(batch).tolist(), kind
        assert (np.count_nonzero(wanted) == 1) or kind != "singular"


def test_dominance_is_told_of_every_row() -> None:
    """A row that is not dominant is found in the first and the last block, at their ends, and in the last vector."""
    for n, edge in ((3 * BLOCK + 5, 1), (2 * BLOCK, 1), (300, 41), (7, 3 * BLOCK + 3)):
        shape = (n, edge)
        a, b, c, _ = drawn(shape, "float64")
        form = Form(shape, shape, 0)
        call = stored_factors.copying(form, [(x.dtype, x.shape) for x in (a, b, c)])
        assert call is not None
        memory = np.empty(call.storage.size, np.uint8)
        assert not call(a, b, c, memory)
        for place in {0, 1, 7, 8, edge, BLOCK - 1, BLOCK, BLOCK + 1, n * edge // 2, n * edge - 2, n * edge - 1}:
            for value in (0.0, np.nan, np.inf, 1e-305, -1e306):
                worse = b.copy()
                worse.flat[place] = value
                assert call(a, worse, c, memory), (n, edge, place, value)
                assert all(
                    x.tobytes() == y.tobytes() for x, y in zip((a, worse, c), call.storage.views(memory), strict=True)
                )


def test_dominance_that_is_rounding_is_not_taken_for_regular() -> None:
    """The last pivot of rows that add up to zero is zero."""
    n = 50
    a, b, c = -np.ones((2, n)), np.full((2, n), 2.0), -np.ones((2, n))
    b[0, 0] = b[0, -1] = 1
    for axis, given in ((1, (a, b, c)), (0, tuple(np.ascontiguousarray(x.T) for x in (a, b, c)))):
        for _ in range(3):
            assert tridiag.factor(*given, axis=axis).status.tolist() == [n, 0]


def test_the_short_way_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain elimination that breaks down is looked at again, not repeated first."""
    asked: list[int] = []
    taken = storage.POOL.take
    monkeypatch.setattr(storage.POOL, "take", lambda size: asked.append(size) or taken(size))
    a, b, c, _ = drawn((20, 30), "float64")
    b[3, 0] = 0
    assert not tridiag.factor(a, b, c, pivoting=False).status.any()  # with exchanges no pivot is zero
    assert len(asked) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(700, 300), (703, 300), (90_000, 3)])
def test_storages_that_are_larger_than_caches(shape: tuple[int, ...], dtype: str) -> None:
    """Their copies and factors go past these, whole rows of lanes of the last group too."""
    a, b, c, d = drawn(shape, dtype)
    wanted = tridiag.solve(a, b, c, d)
    matrix, hard = tridiag.factor(a, b, c), tridiag.factor(a, b * (np.arange(len(b)) % 50 != 7)[:, None], c)
    for held, given in zip(matrix._matrix, (a, b, c), strict=False):
        assert held.tobytes() == given.tobytes()
    assert not matrix.status.any()
    assert_near(matrix.solve(d), wanted)
    found = hard.solve(d, check=False)
    easy = np.arange(len(b)) % 50 != 7
    assert_near(found[easy], wanted[easy])


def test_memory_is_lent_once_and_comes_back() -> None:
    """Of factors that live nobody else gets the memory; a copy of an attribute keeps it as the factors do."""
    pool, size = storage.Pool(), 2 * storage.SMALLEST
    first, second = pool.take(size), pool.take(size)
    assert not np.may_share_memory(first, second)
    view = Storage.of([(np.dtype("f8"), (10, 10))]).views(first)[0].T[2:]
    place = first.__array_interface__["data"][0]
    del first
    gc.collect()
    assert not any(pool.free.values())
    del view
    (pieces,) = pool.free.values()
    assert [piece.__array_interface__["data"][0] for piece in pieces] == [place]
    assert pool.take(size - size // 9).__array_interface__["data"][0] == place
    del second
    assert len(pieces) == 2 and not pool.lent


def test_memory_that_nobody_has_is_bounded() -> None:
    """Of one size as much is kept as there is room for; of several those that were asked for last."""
    pool, share = storage.Pool(), storage.KEPT // 8
    lent = [pool.take(share) for _ in range(12)]
    lent.clear()
    assert {size: len(pieces) for size, pieces in pool.free.items()} == {share: 8}
    lent += [pool.take(2 * share) for _ in range(3)]
    lent.clear()
    assert {size: len(pieces) for size, pieces in pool.free.items()} == {2 * share: 3}
    largest = pool.take(storage.KEPT)
    del largest
    assert {size: len(pieces) for size, pieces in pool.free.items()} == {storage.KEPT: 1}


def test_factors_of_several_threads_do_not_share_memory() -> None:
    a, b, c, d = drawn((400, 100), "float64")
    wanted, wrong = tridiag.solve(a, b, c, d), []

    def run(k: int) -> None:
        for _ in range(20):
            matrix = tridiag.factor(a * (k + 1), b * (k + 1), c * (k + 1))
            if not np.allclose(matrix.solve(d) * (k + 1), wanted, rtol=1e-12):
                wrong.append(k)

    in_threads(run, 4)
    assert not wrong


def test_a_call_that_was_met_runs_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once one of 64 rows took fifteen times as long as a solve."""
    a, b, c, d = drawn((64,), "float64")
    for _ in range(3):
        tridiag.factor(a, b, c)
    monkeypatch.setattr("tridiag.calls.fast_path.factored.recalled", lambda *_: pytest.fail("asked"))
    assert_near(tridiag.factor(a, b, c).solve(d), tridiag.solve(a, b, c, d))
    assert FACTORINGS.call is not FACTORINGS.otherwise


def test_jax_programs_tell_the_status_as_solves_do() -> None:
    """Alone, mapped, scanned and inside a gradient, of dominant matrices, of others, and of singular ones."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    for shape, axis in (((6, 40), 1), ((40, 6), 0), ((5, 1), 1), ((1, 6), 0)):

        def status(*matrix: Any, axis: int = axis) -> Any:
            return tridiag.factor(*matrix, axis=axis - 2).status

        def scanned(*stacked: Any, status: Any = status) -> Any:
            return jax.lax.scan(lambda carry, matrix: (carry, status(*matrix)), 0, stacked)[1]

        alone, mapped, in_turn = jax.jit(status), jax.vmap(status), jax.jit(scanned)
        a, b, c, d = drawn(shape, "float64")
        by_factors, by_solves = gradients(axis)
        for kind in ("dominant", "nan where nobody reads", "not dominant", "singular"):
            a, b, c = (np.moveaxis(x, axis, 0).copy() for x in (a, b, c))
            if kind == "nan where nobody reads":
                a[0], c[-1] = np.nan, np.inf
            if kind == "not dominant":
                b *= 0.3
            if kind == "singular":
                a[-1], b[-1, ..., 0], c[-2:] = 0, 0, 0
            a, b, c = (np.moveaxis(x, 0, axis) for x in (a, b, c))
            wanted = tridiag.factor(a, b, c, axis=axis, backend="numpy_thomas", pivoting=True).status
            assert wanted.any() == (kind == "singular")
            given = [jnp.asarray(x) for x in (a, b, c)]
            stacked = [jnp.asarray(np.stack([x, x])) for x in (a, b, c)]
            for found in (alone(*given), mapped(*stacked)[1], in_turn(*stacked)[1]):
                assert found.tolist() == wanted.tolist()
            if kind != "singular":
                found, other = (gradient(*given, d) for gradient in (by_factors, by_solves))
                np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-12)


def gradients(axis: int) -> tuple[Any, Any]:
    """Programs of those of a sum of solutions with respect to b, by factors inside a program and without."""
    import jax

    def factored(a: Any, b: Any, c: Any, d: Any) -> Any:
        return tridiag.factor(a, b, c, axis=axis).solve(d, check=False).sum()

    def solved(a: Any, b: Any, c: Any, d: Any) -> Any:
        return tridiag.solve(a, b, c, d, axis=axis).sum()

    return jax.jit(jax.grad(factored, 1)), jax.jit(jax.grad(solved, 1))


def test_keys_of_compiled_programs_with_factors() -> None:
    """One program takes all factors of the same kind, and others those of another."""
    jax = pytest.importorskip("jax")
    seen = []

    @jax.jit
    def solved(matrix: Any, d: Any) -> Any:
        seen.append(matrix)
        return matrix.solve(d)

    a, b, c, d = (jax.numpy.asarray(x) for x in drawn((3, 20), "float64"))
    for k in range(3):
        matrix = tridiag.factor(a, b + k, c)
        for each in (matrix, jax.tree.map(lambda x: x, matrix), copy.copy(matrix)):
            np.testing.assert_allclose(solved(each, d), tridiag.solve(a, b + k, c, d), rtol=1e-12)
    assert len(seen) == 1
    solved(tridiag.factor(a, b, c, pivoting=True), d)
    assert len(seen) == 2
