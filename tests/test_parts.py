"""Parts of systems: reduced, joined and finished they give what the whole system does, or say that they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tridiag
from tridiag import parts
from tridiag.algorithms import parts as algorithm
from tridiag.libraries.numpy import Operations
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks

pytest.importorskip("numba")
from tridiag.calls.part_sweeps import Kernels

DTYPES = ("float32", "float64", "complex64", "complex128")


def systems(rng: Any, shape: tuple[int, ...], dtype: str, hard: bool, axis: int = -1) -> list[Any]:
    """Random a, b, c, d; dominant ones, unless hard."""
    kind = np.dtype(dtype)
    found = [rng.uniform(-1, 1, shape) for _ in range(4)]
    if kind.kind == "c":
        found = [x + 1j * rng.uniform(-1, 1, shape) for x in found]
    if not hard:
        found[1] = found[1] + 3 * np.sign(found[1].real)
    return [np.moveaxis(x.astype(kind), -1, axis) for x in found]


def backward_error(a: Any, b: Any, c: Any, d: Any, x: Any, periodic: bool = False) -> Any:
    """The largest componentwise residual of each system along the last axis, in higher precision."""
    wide = np.clongdouble if np.iscomplexobj(x) else np.longdouble
    a, b, c, d, x = (np.array(v, wide) for v in (a, b, c, d, x))
    if not periodic:
        a[..., 0] = c[..., -1] = 0
    terms = a * np.roll(x, 1, -1), b * x, c * np.roll(x, -1, -1), -d
    return (abs(sum(terms)) / sum(map(abs, terms))).max(-1)


def solved(a: Any, b: Any, c: Any, d: Any, cuts: list[int], periodic: bool = False, **options: Any) -> Any:
    """x of systems along the last axis, cut before some rows."""
    places = [slice(i, j) for i, j in zip([0, *cuts], [*cuts, d.shape[-1]], strict=True)]
    where = options.pop("where", None)
    masks = [{} if where is None else {"where": where[..., k]} for k in places]
    told = [parts.reduce(a[..., k], b[..., k], c[..., k], d[..., k], **m) for k, m in zip(places, masks, strict=True)]
    values = parts.join(np.stack(told), periodic=periodic)
    found = [
        parts.finish(a[..., k], b[..., k], c[..., k], d[..., k], v, **m)
        for k, v, m in zip(places, values, masks, strict=True)
    ]
    return np.concatenate(found, -1)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), batch=st.integers(1, 20), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6)
)
def test_parts_give_the_whole(dtype: str, periodic: bool, seed: int, batch: int, lengths: list[int]) -> None:
    """Of any lengths, one row too."""
    n, cuts = sum(lengths), list(np.cumsum(lengths)[:-1])
    if periodic and n < 3:
        return
    rng = np.random.default_rng(seed)
    a, b, c, d = systems(rng, (batch, n), dtype, hard=False)
    if not periodic:
        a[:, 0] = c[:, -1] = np.nan
    x = solved(a, b, c, d, cuts, periodic)
    assert x.dtype == dtype
    assert (backward_error(a, b, c, d, x, periodic) <= 8 * np.finfo(dtype).eps).all()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(4, 40), count=st.integers(1, 20), axis=st.integers(0, 1))
@example(seed=10, rows=10, count=7, axis=0)  # an e that is nearly zero
def test_kernels_judge_the_rows_at_the_ends(
    dtype: str, transpose: bool, seed: int, rows: int, count: int, axis: int
) -> None:
    """As the definition does, whether the first or the last unknown is wrong, or e, f or none."""
    rng, row = np.random.default_rng(seed), slice(0, 1) if axis == 0 else np.s_[:, :1]
    a, b, c, d = systems(rng, (count, rows), dtype, hard=False, axis=axis)
    ends = [systems(rng, (count, 1), dtype, hard=False, axis=axis)[0] for _ in range(2)]
    behind = np.flip(d, axis)
    d[row] += ends[0]
    behind[row] += ends[1]
    x = tridiag.solve(a, b, c, d, axis=axis, transpose=transpose)
    first, last = x[row], np.flip(x, axis)[row]
    given = [-ends[0], first, last, -ends[1]]
    d[row] -= ends[0]
    behind[row] -= ends[1]
    wrong = rng.integers(0, 5, count)
    for k in range(4):  # off by more than rounding of what is of size one; a part of what is nearly zero would be less
        given[k] = given[k] + np.where(wrong == k, 0.01, 0).astype(dtype).reshape(-1, 1).swapaxes(0, 1 - axis)
    form = Form(d.shape, d.shape, axis, transpose=transpose)
    known = algorithm.Known(*given)
    x, good = Kernels.finish_judged(form, Chunks(1, rows), (a, b, c), d, known)
    wanted = algorithm.accurate(Operations, form, (a, b, c), d, x, known.e, known.f, Chunks(1, rows))
    np.testing.assert_array_equal(good, wanted)
    np.testing.assert_array_equal(good.ravel(), wrong == 4)
    np.testing.assert_array_equal(x[row], known.first)
    np.testing.assert_array_equal(np.flip(x, axis)[row], known.last)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "count"), [(1, 5), (0, 9)])
def test_kernels_reduce_the_ends_of_chunks(axis: int, count: int, dtype: str, transpose: bool) -> None:
    """As they reduce these rows alone."""
    given = systems(np.random.default_rng(0), (count, 40), dtype, hard=False, axis=axis)
    shape = given[3].shape
    form = Form(shape, shape, axis, transpose=transpose)
    found = Kernels.reduce(form, Chunks(2, 20, 6), tuple(given[:3]), given[3])
    for chunk, end in ((0, 0), (0, 1), (1, 0), (1, 1)):
        first = 20 * chunk + 14 * end
        rows = [np.take(x, range(first, first + 6), axis) for x in given]
        own = form._replace(shape=rows[3].shape, matrix_shape=rows[3].shape)
        wanted = Kernels.reduce(own, Chunks(1, 6), tuple(rows[:3]), rows[3])
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x.take(chunk, axis).take(end, axis), y.take(0, axis), rtol=1e-5)


def test_kernels_judge_the_elimination() -> None:
    """Rows between the ends whose pivots vanish have no certificate."""
    shape = (9, 20)
    a, b, c, d = systems(np.random.default_rng(0), shape, "float64", hard=False)
    a[4, 10] = c[4, 9] = b[4, 10] = 0.0  # a pivot that is zero
    ones = np.ones((9, 1))
    x = tridiag.solve(a, b, c, d, check=False)
    known = algorithm.Known(0 * ones, x[:, :1], x[:, -1:], 0 * ones)
    _, good = Kernels.finish_judged(Form(shape, shape, 1), Chunks(1, 20), (a, b, c), d, known)
    assert good.ravel().tolist() == [k != 4 for k in range(9)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(1, 30), min_size=2, max_size=5))
def test_hard_systems_are_right_or_nan(seed: int, lengths: list[int]) -> None:
    """What has no certificate is NaN throughout, and its neighbours are not."""
    rng = np.random.default_rng(seed)
    a, b, c, d = systems(rng, (9, sum(lengths)), "float64", hard=True)
    b[:, 3::7] = 0
    b[4] = 4  # has one
    x = solved(a, b, c, d, list(np.cumsum(lengths)[:-1]))
    told = np.isnan(x).any(-1)
    assert not told[4]
    assert (np.isnan(x).all(-1) | ~told | np.isfinite(x).any(-1)).all()
    assert (backward_error(a, b, c, d, x)[~told] <= 8 * np.finfo(float).eps).all()


@pytest.mark.parametrize("shape", [(1, 70_001), (2, 20_011), (3, 9001), (1, 8192), (40, 8193)])
def test_long_parts_are_cut_into_chunks(shape: tuple[int, int]) -> None:
    """And rows that are in no chunk: chunks of a part are joined as parts are."""
    a, b, c, d = systems(np.random.default_rng(0), shape, "float64", hard=False)
    x = solved(a, b, c, d, [shape[1] // 3 + 1])
    assert (backward_error(a, b, c, d, x) <= 8 * np.finfo(float).eps).all()


def test_where_couplings_do_not_decay() -> None:
    """The rows at the ends are judged: a Laplacian is right or NaN, never wrong."""
    a, b, c = np.full(90_000, -1.0), np.full(90_000, 2.0), np.full(90_000, -1.0)
    d = np.random.default_rng(0).standard_normal((2, 90_000))
    x = solved(a, b, c, d, [30_000, 60_000])
    right = ~np.isnan(x).any(-1)
    assert (backward_error(*np.broadcast_arrays(a, b, c, d), x)[right] <= 8 * np.finfo(float).eps).all()


def joined(a: Any, b: Any, c: Any, d: Any, cuts: list[int], periodic: bool = False) -> Any:
    """What is known at the ends of parts."""
    places = [slice(i, j) for i, j in zip([0, *cuts], [*cuts, d.shape[-1]], strict=True)]
    told = [parts.reduce(a[..., k], b[..., k], c[..., k], d[..., k]) for k in places]
    return parts.join(np.stack(told), periodic=periodic)


def conductors(rng: Any, systems: int, n: int, most: int, dtype: str, periodic: bool = False) -> list[Any]:
    """Networks of integer conductances that lead nowhere: singular, and eliminated without any rounding."""
    links = rng.integers(1, most + 1, (systems, n)).astype(dtype)
    if not periodic:
        links[:, -1] = 0
    before = np.roll(links, 1, -1)
    return [-before, before + links, -links]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize(("count", "rows"), [(2, 4), (2, 300), (8, 8), (8, 100), (33, 20)])
def test_singular_systems_are_nan(count: int, rows: int, periodic: bool, dtype: str) -> None:
    """Whatever the right side is, though rounding makes what joins their parts regular."""
    rng, n = np.random.default_rng(rows), count * rows
    cuts = [rows * k for k in range(1, count)]
    for most in (1, 10):
        a, b, c = conductors(rng, 50, n, most, dtype, periodic)
        d = np.zeros((50, n), dtype)
        d[:, 0], d[:, -1] = 1, -1
        assert np.isnan(joined(a, b, c, d, cuts, periodic)).all()
        b[:, n // 2] += 1  # one row leads somewhere
        assert np.isfinite(joined(a, b, c, d, cuts, periodic)).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_systems_that_decay_slowly_are_not_in_doubt(dtype: str) -> None:
    """Nor such whose condition number is large: only where it is beyond 1 / eps they may be singular."""
    rng = np.random.default_rng(0)
    for n in (3200, 1_000_000)[: 1 + (dtype == "float64")]:
        cuts = [n // 8 * k for k in range(1, 8)]
        d = rng.standard_normal(n).astype(dtype)
        mixing = (10.0 ** rng.uniform(-3, 3, n)).astype(dtype)
        ends = mixing[-1:], mixing[:-1]
        laplacian = [np.full(n, v, dtype) for v in (-1, 2, -1)]
        for a, b, c in (laplacian, [-np.concatenate(ends), 1 + mixing + np.concatenate(ends), -mixing]):
            assert np.isfinite(joined(a, b, c, d, cuts)).all()


def test_diagonals_of_a_long_part_broadcast_each_in_its_way() -> None:
    """Also where chunks of it are joined."""
    rng = np.random.default_rng(0)
    a, c, d = (rng.uniform(-1, 1, (*shape, 20_000)) for shape in ((3, 1), (2,), (3, 2)))
    full = np.broadcast_arrays(a, 4.0, c, d)
    told = parts.reduce(a, 4.0, c, d)
    np.testing.assert_array_equal(told, parts.reduce(*full))
    values = parts.join(told[None])[0]
    np.testing.assert_array_equal(parts.finish(a, 4.0, c, d, values), parts.finish(*full, values))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_and_shared_matrices(axis: int) -> None:
    a, b, c, _ = systems(np.random.default_rng(0), (12,), "float64", hard=False)
    shape = [3, 5, 2]
    shape[axis] = 12
    d = np.random.default_rng(1).standard_normal(shape)
    halves = [slice(0, 5), slice(5, 12)]
    index = [tuple(k if j == axis else slice(None) for j in range(3)) for k in halves]
    told = [parts.reduce(a[k], b[k], c[k], d[i], axis=axis) for k, i in zip(halves, index, strict=True)]
    values = parts.join(np.stack(told))
    x = [parts.finish(a[k], b[k], c[k], d[i], v, axis=axis) for k, i, v in zip(halves, index, values, strict=True)]
    np.testing.assert_allclose(np.concatenate(x, axis), tridiag.solve(a, b, c, d, axis=axis), rtol=1e-12)


def test_rows_that_are_taken_out() -> None:
    """Also at the ends of parts, where NaN may be what couples them."""
    rng = np.random.default_rng(0)
    a, b, c, d = systems(rng, (30, 24), "float64", hard=False)
    where = rng.random((30, 24)) < 0.6
    for entries, beside in ((a, np.roll(where, 1, -1)), (c, np.roll(where, -1, -1))):
        entries[~where | ~beside] = np.nan
    b[~where] = d[~where] = np.nan
    x = solved(a, b, c, d, [8, 9, 17], where=where)
    np.testing.assert_allclose(x, tridiag.solve(a, b, c, d, where=where), rtol=1e-10, atol=1e-14)


def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    d = torch.ones(3, 5, dtype=torch.float64)
    told = parts.reduce(-1.0, 4.0, -1.0, d)
    assert told.shape == (6, 3) and told.dtype == torch.float64
    values = parts.join(told[None])
    x = parts.finish(-1.0, 4.0, -1.0, d, values[0])
    torch.testing.assert_close(x, tridiag.solve(-1.0, 4.0, -1.0, d))


def test_what_is_refused() -> None:
    ones = np.ones((2, 3))
    with pytest.raises(ValueError, match="at least one row"):
        parts.reduce(1.0, 4.0, 1.0, ones[:, :0])
    with pytest.raises(ValueError, match=r"ends has shape \(5, 2\); wanted \(P, 6, \*batch\)"):
        parts.join(np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"values has shape \(4, 3\); wanted \(4, 2\)"):
        parts.finish(1.0, 4.0, 1.0, ones, np.ones((4, 3)))
    with pytest.raises(TypeError, match="ends is a list"):
        parts.join([ones])
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match=r"tridiag\.solve takes JAX arrays"):
        parts.reduce(1.0, 4.0, 1.0, jax.numpy.ones((2, 3)))
