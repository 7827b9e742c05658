"""What `numba_thomas` does with long systems that lie side by side; all backends' tests have short ones."""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, dominant, installed, long_error, noise, positive, uniform

import tridiag
from tridiag.backends import numba_thomas
from tridiag.calls import fast_path
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.table import call_of, kernel

NAME = "numba_thomas"
SHAPES = [
    (2051, 16),
    (2050, 49),
    (1100, 9),
    (1500, 3),
    (2, 700, 5),
    (2, 600, 31),
    (700, 37),
    (400, 100),
    (3, 600, 40),
    (130, 17),
    (70, 33),
    (5, 50),
]
MANY = ["float64", *(pytest.param(name, marks=pytest.mark.slow) for name in ("float32", "complex64", "complex128"))]
OPTIONS = [(False, dominant), ("auto", dominant), (True, dominant), ("auto", uniform), (True, uniform)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Systems of some hundred rows are long, and have several blocks, spans and chunks."""
    for name, value in {"SCRATCH": 1, "CHUNK": 0, "BLOCK": 4, "WHOLE": 4, "SPAN": 2}.items():
        monkeypatch.setattr(systems, name, value)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    for plans in (systems.make_job, call_of, fast_path.bound_call):
        plans.cache_clear()


def plan(system: Any, out: Any, axis: int = 0, pivoting: bool | str = "auto") -> Any:
    form = numba_thomas.Form(out.shape, out.shape, axis, pivoting=pivoting)
    a, b, c, d = system
    given = numba_thomas.extents((a, b, c, None, d, out))
    return systems.make_job(form, *given, (out.dtype, out.dtype), 0, systems.granted(form))


def solved_again(system: Any, pivoting: bool | str = "auto") -> int:
    """Of systems along axis 0 the number that are not solved by their blocks; the solutions are those of `solve`."""
    x = np.empty_like(system[3])
    job = plan(system, x, pivoting=pivoting)
    words = job.words.copy()
    first = J.Systems.pointers.word
    words[[first + k for k in (J.A_, J.B_, J.C_, J.D_, J.X_)]] = [v.ctypes.data for v in (*system, x)]
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(kernel(*job.kernel).address)
    run(words.ctypes.data, job.helpers)
    assert J.Systems.view(words).next >= J.Systems.view(words).items
    wanted = tridiag.solve(*system, axis=0, pivoting=pivoting, backend=NAME, check=False)
    assert_same_bits(x[:, ~np.isnan(x).any(0)], wanted[:, ~np.isnan(wanted).any(0)])
    return int(J.Systems.view(words).again)


def check(x: Any, system: Any, axis: int = 0, pivoting: bool | str = "auto") -> None:
    x, *system = (np.moveaxis(v, axis, -1) for v in (x, *system))
    assert long_error(x, *system, pivoting) <= 8


@pytest.mark.parametrize("dtype", MANY)
@pytest.mark.parametrize(("pivoting", "kind"), OPTIONS)
def test_every_promise_and_shape(pivoting: bool | str, kind: Any, dtype: str) -> None:
    for shape in SHAPES:
        axis = len(shape) - 2
        system = kind(shape, dtype, axis)
        out = np.full(shape, np.nan, dtype)
        wide = shape[-1] >= systems.lanes_of(out.dtype)
        narrow = pivoting is not True and out.dtype.kind == "f" and shape[axis] >= 2 * systems.BLOCK * systems.OVERLAP
        assert (plan(system, out, axis, pivoting).kernel[0] == "row_blocks") == (wide or narrow)
        tridiag.solve(*system, axis=axis, pivoting=pivoting, backend=NAME, out=out)
        check(out, system, axis, pivoting)


@pytest.mark.parametrize("dtype", MANY)
@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_where_couplings_decay_blocks_suffice(pivoting: bool | str, dtype: str) -> None:
    """And a solution has the bits of a sweep over all rows, wherever a system lies in its vector."""
    system = dominant((2050, 49), dtype, 0)
    assert solved_again(system, pivoting) == 0


@pytest.mark.parametrize("count", [2, 7, 8])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_they_suffice_where_systems_fill_no_vector(dtype: str, count: int) -> None:
    """The lanes without a system say nothing."""
    assert solved_again(dominant((2050, count), dtype, 0)) == 0


@pytest.mark.parametrize("pivoting", [False, "auto"])
def test_where_they_do_not_systems_are_swept_as_a_whole(pivoting: bool | str) -> None:
    shape = (2050, 40)
    laplacian = [np.full(shape, v, float) for v in (-1, 2, -1)] + [noise(np.random.default_rng(0), shape, "float64")]
    assert solved_again(laplacian, pivoting) == 40
    check(tridiag.solve(*laplacian, axis=0, pivoting=pivoting, backend=NAME), laplacian)


def test_only_what_does_not_decay_or_has_no_certificate_is_solved_again() -> None:
    """Anywhere in its vector; the last vector lies over the one before it. The others keep every bit."""
    system, hard = dominant((2050, 45), "float64", 0), [0, 7, 21, 38, 44]
    alone = tridiag.solve(*system, axis=0, backend=NAME)
    for place, k in enumerate(hard):
        for v, w in zip(system[:3], (uniform if place % 2 else positive)((2050, 1), "float64", 0), strict=False):
            v[:, k] = w[:, 0]
    system[1][:, 44], system[0][:, 44], system[2][:, 44] = 2, -1, -1
    assert solved_again(system) <= len(hard)
    x = tridiag.solve(*system, axis=0, backend=NAME)
    check(x, system)
    assert_same_bits(np.delete(x, hard, 1), np.delete(alone, hard, 1))


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
@pytest.mark.parametrize("row", [0, 511, 1025, 2049])
def test_a_singular_system_harms_no_other(row: int, pivoting: bool | str) -> None:
    a, b, c, _ = system = dominant((2050, 45), "float64", 0)
    alone = tridiag.solve(*system, axis=0, pivoting=pivoting, backend=NAME)
    for v in (a, b, c):
        v[row, 40] = 0
    with pytest.raises(tridiag.SingularSystemError) as caught:
        tridiag.solve(*system, axis=0, pivoting=pivoting, backend=NAME)
    assert np.array_equal(caught.value.indices, [[40]]) and np.isnan(caught.value.x[:, 40]).all()
    assert_same_bits(np.delete(caught.value.x, 40, 1), np.delete(alone, 40, 1))


def test_a_bad_number_harms_no_other_system() -> None:
    system = dominant((2050, 45), "float64", 0)
    alone = tridiag.solve(*system, axis=0, backend=NAME)
    system[3][1000, 3], system[1][2000, 42] = np.nan, np.inf
    x = tridiag.solve(*system, axis=0, backend=NAME)
    assert np.isnan(x[:, 3]).any() and np.isfinite(x[[0, -1]][:, 42]).all()
    assert_same_bits(np.delete(x, [3, 42], 1), np.delete(alone, [3, 42], 1))


def test_pads_are_never_read() -> None:
    system = dominant((2050, 45), "float64", 0)
    x = tridiag.solve(*system, axis=0, backend=NAME)
    system[0][0] = system[2][-1] = np.nan
    assert_same_bits(tridiag.solve(*system, axis=0, backend=NAME), x)
    assert solved_again(system) == 0


@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_transposed(pivoting: bool | str) -> None:
    a, b, c, d = dominant((2050, 45), "float64", 0)
    x = tridiag.solve(a, b, c, d, axis=0, transpose=True, pivoting=pivoting, backend=NAME)
    check(x, (np.roll(c, 1, 0), b, np.roll(a, -1, 0), d), pivoting=pivoting)


@pytest.mark.parametrize("count", [45, 9])
@pytest.mark.parametrize("dtype", MANY)
def test_in_place_and_into_any_memory(dtype: str, count: int) -> None:
    system = dominant((2050, count), dtype, 0)
    x, size = tridiag.solve(*system, axis=0, backend=NAME), np.dtype(dtype).itemsize
    for shift in (0, 1, size, 5 * size):
        memory = np.full(2050 * count * size + 64 + shift, 255, np.uint8)
        out = memory[shift : shift + 2050 * count * size].view(dtype).reshape(2050, count)
        tridiag.solve(*system, axis=0, backend=NAME, out=out)
        assert_same_bits(out, x)
        assert (memory[:shift] == 255).all() and (memory[shift + out.nbytes :] == 255).all()
    surely_disjoint = np.zeros((2050, 64), dtype)[:, 3 : 3 + count]
    assert_same_bits(tridiag.solve(*system, axis=0, backend=NAME, out=surely_disjoint), x)
    assert not surely_disjoint.base[:, :3].any() and not surely_disjoint.base[:, 3 + count :].any()
    d = system[3].copy()
    assert tridiag.solve(*system[:3], d, axis=0, backend=NAME, overwrite_d=True) is d
    check(d, system)


def test_strided_and_shared_bands() -> None:
    a, b, c, d = dominant((4100, 45), "float64", 0)
    system = [v[::2] for v in (a, b, c, d)]
    check(tridiag.solve(*system, axis=0, backend=NAME), system)
    few = np.broadcast_to(4.0, (2050, 45)), d[:2050]
    check(tridiag.solve(a[:2050], 4.0, c[:2050], few[1], axis=0, backend=NAME), (a[:2050], few[0], c[:2050], few[1]))


@pytest.mark.skipif(not installed("torch"), reason="needs torch")
def test_gradients() -> None:
    import torch

    system = [torch.tensor(v, requires_grad=True) for v in dominant((2050, 20), "float64", 0)]
    found = torch.autograd.grad(tridiag.solve(*system, axis=0, backend=NAME).sum(), system)
    wanted = torch.autograd.grad(tridiag.solve(*system, axis=0, backend="torch_thomas").sum(), system)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_blocks_cover_all_rows_and_chunks_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for n in (1_000, 5_000, 100_000, 10_000_000):
        for beside in (8, 9, 15, 16, 17, 100, 1_000, 30_000):
            for workers in (1, 2, 7):
                blocks, spans, groups, height, overlap = systems.blocks(beside, 1, n, 8, 128, workers)
                assert blocks * spans <= max(spans, systems.ITEMS_EACH * workers) and n // blocks >= overlap
                assert groups * spans * 8 >= beside and beside // spans >= 8
                for rows in {n // blocks, -(-n // blocks)}:
                    assert rows // -(-rows // height) >= overlap


def test_every_thread_finds_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are hired by the blocks of a job, not by the few tiles that systems side by side make."""
    monkeypatch.undo()
    for count in (9, 16, 40):
        x = np.empty((1_000_000, count))
        form = numba_thomas.Form(x.shape, x.shape, 0)
        given = numba_thomas.extents((x, x, x, None, x, x))
        job = systems.make_job(form, *given, (x.dtype, x.dtype), 0, 16)
        assert job.kernel[0] == "row_blocks" and job.helpers == 15
