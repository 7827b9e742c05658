"""One long matrix in windows of its rows: what they are, when they are made, and that nobody sees it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from helpers import installed
from processes import run_program

import tridiag
from tridiag.calls.fast_path.windows import SOLVED_BEFORE
from tridiag.kernels.jobs.windows import FEWEST, all_windows

pytestmark = pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed")

LONG = 3000, 3001, 10_007, 40_000
SETTLED = SOLVED_BEFORE + 2  # solves after which no more is made


def drawn(n: int, dtype: str = "float64", dominance: float = 3.0) -> list[Any]:
    rng = np.random.default_rng(n)
    bounds = (-1, 1), (dominance, dominance + 1), (-1, 1), (-1, 1)
    return [rng.uniform(*of, n).astype(dtype) for of in bounds]


def settled(matrix: Any, d: Any, **options: Any) -> Any:
    for _ in range(SETTLED):
        x = matrix.solve(d, **options)
    return x


def assert_near(x: Any, wanted: Any, digits: float = 16) -> None:
    assert x.dtype == wanted.dtype and x.shape == wanted.shape
    assert abs(x - wanted).max() <= digits * np.finfo(x.dtype).eps * abs(wanted).max()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was found of matrices that were to be cut into windows."""
    from tridiag.calls.fast_path import window_factors

    found, function = [], window_factors.factored

    def factored(bands: Any) -> Any:
        found.append(function(bands))
        return found[-1]

    monkeypatch.setattr(window_factors, "factored", factored)
    return found


def test_windows_have_each_row_once() -> None:
    """The rows that are stored of all windows are those of the system, and lie between overlaps."""
    seen = 0
    for n in [*range(FEWEST - 2, FEWEST + 300), *range(2000, 99_999, 777), 99_999, 100_000]:
        for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            for number, rows, step, overlap in all_windows(n, dtype):
                seen += 1
                assert (number - 1) * step + rows == n and number % (64 // dtype.itemsize) == 0
                assert rows - overlap - step >= overlap > 0 and step > overlap
    assert seen


@pytest.mark.parametrize("n", LONG)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_solutions(n: int, dtype: str, made: list[Any]) -> None:
    """Of every call, with or without windows, of every kind of right side."""
    a, b, c, d = drawn(n, dtype)
    matrix, wanted = tridiag.factor(a, b, c), tridiag.solve(a, b, c, d)
    for _ in range(SETTLED):
        assert_near(matrix.solve(d), wanted)
    assert len(made) == 1 and made[0] is not None
    turned = tridiag.solve(a, b, c, d, transpose=True)
    out = np.full(n, np.nan, dtype)
    for _ in range(2):
        assert matrix.solve(d, out=out) is out
        assert_near(out, wanted)
        spread = np.repeat(d, 2)[::2]
        assert_near(matrix.solve(spread), wanted)
        strided = np.zeros(2 * n, dtype)[::2]
        assert matrix.solve(d, out=strided) is strided
        assert_near(strided, wanted)
        own = d.copy()
        assert matrix.solve(own, overwrite_d=True) is own
        assert_near(own, wanted)
        assert_near(matrix.solve(d, transpose=True), turned)
        assert_near(matrix.solve(np.stack([d, 2 * d])), np.stack([wanted, 2 * wanted]))
        assert_near(matrix.solve(d[None]), wanted[None])
        assert_near(matrix.solve(np.arange(n)), tridiag.solve(a, b, c, np.arange(n)))
        assert_near(matrix.solve(d), wanted)
        assert_near(matrix.solve(1j * d), 1j * wanted)
    for other in (copy.copy(matrix), copy.deepcopy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert_near(settled(other, d), wanted)


@pytest.mark.parametrize(("shape", "axis"), [((1, 3000), -1), ((3000, 1), 0), ((1, 3000, 1), 1)])
def test_axes_of_one_system(shape: tuple[int, ...], axis: int, made: list[Any]) -> None:
    a, b, c, d = (x.reshape(shape) for x in drawn(3000))
    matrix = tridiag.factor(a, b, c, axis=axis)
    assert_near(settled(matrix, d), tridiag.solve(a, b, c, d, axis=axis))
    assert made[0] is not None


def test_the_caller_keeps_its_arrays(made: list[Any]) -> None:
    """What becomes of them before windows are made is not seen; pads are never read."""
    a, b, c, d = drawn(5000)
    wanted = tridiag.solve(a, b, c, d)
    a[0] = c[-1] = np.nan
    matrix = tridiag.factor(a, b, c)
    for x in (a, b, c):
        x[...] = 0
    assert_near(settled(matrix, d), wanted)
    assert made[0] is not None


def test_windows_are_made_once_and_late(made: list[Any]) -> None:
    """Matrices that are solved for few right sides do without; a backend that was named solves everything."""
    a, b, c, d = drawn(4000)
    for _ in range(3):
        matrix = tridiag.factor(a, b, c)
        for _ in range(SOLVED_BEFORE):
            matrix.solve(d)
    assert not made
    for _ in range(3 * SETTLED):
        matrix.solve(d)
    assert len(made) == 1
    settled(tridiag.factor(a, b, c, backend="numba_thomas"), d)
    settled(tridiag.factor(a, b, c, pivoting=True), d)
    settled(tridiag.factor(a, b, c, periodic=True), d)
    settled(tridiag.factor(a, b, c, where=np.arange(4000) != 7), d)
    settled(tridiag.factor(*np.stack([a, b, c])[:, :900]), d[:900])
    assert len(made) == 1


def slow(n: int) -> list[Any]:
    a, b, c, d = drawn(n)
    a[...], b[...], c[...] = -1, 2.0001, -1
    return [a, b, c, d]


def slow_in_places(n: int) -> list[Any]:
    """Couplings decay in most rows, but not in one stretch in which a window begins, whatever it overlaps."""
    a, b, c, d = drawn(n)
    for windows in all_windows(n, b.dtype):
        at = slice(windows.step - 3, windows.step + 2 * windows.overlap + 3)
        a[at], b[at], c[at] = -1, 2.001, -1
    return [a, b, c, d]


def uncertified(n: int) -> list[Any]:
    """A row with a small diagonal, where elimination exchanges rows."""
    a, b, c, d = drawn(n)
    b[n // 2], a[n // 2], c[n // 2] = 1e-9, 1, 1
    return [a, b, c, d]


@pytest.mark.parametrize("kind", [slow, slow_in_places, uncertified])
@pytest.mark.parametrize("n", [3000, 10_000])
def test_matrices_that_cannot_be_cut(kind: Any, n: int, made: list[Any]) -> None:
    """Where what lies around a window is felt in it, or plain elimination is not accurate, there are none."""
    a, b, c, d = kind(n)
    matrix = tridiag.factor(a, b, c)
    assert_near(settled(matrix, d), tridiag.solve(a, b, c, d), 100)
    assert made == [None]


@pytest.mark.parametrize("dominance", [1.3, 1.6, 2.0, 2.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weak_dominance(dominance: float, dtype: str, made: list[Any]) -> None:
    """Overlaps that are longer, or none: the digits are those of a solve."""
    for n in (3000, 6001):
        a, b, c, d = drawn(n, dtype, dominance)
        exact = tridiag.solve(*(np.float64(x) for x in (a, b, c, d)), pivoting=True)
        matrix = tridiag.factor(a, b, c)
        x = settled(matrix, d)
        assert abs(x - exact).max() <= 8 * np.finfo(dtype).eps * abs(exact).max()
    assert len(made) == 2


def test_entries_that_are_not_finite(made: list[Any]) -> None:
    """One of a right side is felt in all rows, as in a solve."""
    a, b, c, d = drawn(10_000)
    matrix = tridiag.factor(a, b, c)
    settled(matrix, d)
    assert made[0] is not None
    for place in (0, 1, 4321, 9998, 9999):
        for value in (np.nan, np.inf, -np.inf):
            right = d.copy()
            right[place] = value
            assert not np.isfinite(matrix.solve(right)).any()
    assert_near(matrix.solve(d), tridiag.solve(a, b, c, d))
    assert_near(matrix.solve(1e300 * d), 1e300 * tridiag.solve(a, b, c, d))
    assert_near(matrix.solve(1e-300 * d), 1e-300 * tridiag.solve(a, b, c, d))


def residuals(a: Any, b: Any, c: Any, d: Any, x: Any) -> float:
    """The largest componentwise backward error, in eps."""
    a, b, c, d, z = (np.asarray(y, np.longdouble) for y in (a, b, c, d, x))
    below, own, above = a * np.append(0, z[:-1]), b * z, c * np.append(z[1:], 0)
    size = abs(below) + abs(own) + abs(above) + abs(d)
    off = abs(below + own + above - d)
    return float((off / np.where(size > 0, size, 1)).max() / np.finfo(x.dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3001, 10_007])
def test_right_sides_of_far_apart_sizes(n: int, dtype: str, made: list[Any]) -> None:
    """What windows do not see is small beside one entry, and not beside its neighbours: they are solved as before."""
    a, c, d = np.ones(n, dtype), np.ones(n, dtype), np.cos(np.arange(n)).astype(dtype)
    for diagonal in (4, 10):
        b = np.full(n, diagonal, dtype)
        matrix = tridiag.factor(a, b, c)
        settled(matrix, d)
        assert made[-1] is not None
        for place in [*range(0, n, 101), n - 1]:
            for size in (1e6, 1e14, 1e30):
                right = d.copy()
                right[place] = size
                assert residuals(a, b, c, right, matrix.solve(right)) < 8
    for place in range(0, n, 211):
        right = np.zeros(n, dtype)
        right[place] = 1
        x = matrix.solve(right)
        wanted = tridiag.solve(a, b, c, right)
        tiny = np.finfo(dtype).tiny / np.finfo(dtype).eps
        np.testing.assert_allclose(x[abs(wanted) > tiny], wanted[abs(wanted) > tiny], 1e3 * np.finfo(dtype).eps)


def test_rows_of_far_apart_sizes(made: list[Any]) -> None:
    """As right sides are, so are rows of a matrix that are small."""
    a, b, c, d = drawn(3001)
    for place in range(7, 3001, 101):
        scale = np.ones(3001)
        scale[place] = 1e-100
        bands = [scale * x for x in (a, b, c)]
        matrix = tridiag.factor(*bands)
        assert residuals(*bands, d, settled(matrix, d)) < 8
    assert any(x is not None for x in made)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_rows_beyond_the_range_of_numbers(library: str, made: list[Any]) -> None:
    """Rows at cuts do not hold, in numbers that overflow: the solution is what it was before there were windows."""
    if not installed(library):
        pytest.skip(f"needs {library}, which is not installed")
    rng, n = np.random.default_rng(0), 3001
    for _ in range(5):
        a, b, c = rng.uniform(-1, 1, (3, n))
        scale = 10.0 ** rng.uniform(-200, 200, n)
        bands = [scale * x for x in (a, 3 * np.sign(b) + b, c)]
        d = np.ones(n)
        if library == "torch":
            import torch

            *bands, d = map(torch.from_numpy, (*bands, d))
        matrix = tridiag.factor(*bands)
        before = np.asarray(matrix.solve(d, check=False))
        after = np.asarray(settled(matrix, d, check=False))
        np.testing.assert_array_equal(after, before)
    assert made[-1] is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors(dtype: str, made: list[Any]) -> None:
    """Those of PyTorch likewise; what is differentiated, and what lies otherwise, goes its own way."""
    torch = pytest.importorskip("torch")
    a, b, c, d = map(torch.from_numpy, drawn(10_000, dtype))
    matrix, wanted = tridiag.factor(a, b, c), tridiag.solve(a, b, c, d)
    for _ in range(2 * SETTLED):
        assert_near(matrix.solve(d).numpy(), wanted.numpy())
    assert len(made) == 1 and made[0] is not None
    right = d.clone().requires_grad_()
    x = matrix.solve(right)
    assert_near(x.detach().numpy(), wanted.numpy())
    x.sum().backward()
    turned = tridiag.solve(a, b, c, torch.ones_like(d), transpose=True)
    assert_near(right.grad.numpy(), turned.numpy())
    for _ in range(2):
        assert_near(matrix.solve(torch.ones_like(d), transpose=True).numpy(), turned.numpy())
        assert_near(matrix.solve(torch.stack([d, d], 1)[:, 0]).numpy(), wanted.numpy())
        assert_near(matrix.solve(torch.stack([d, -d])).numpy(), torch.stack([wanted, -wanted]).numpy())
        out = torch.empty_like(d)
        assert matrix.solve(d, out=out) is out
        assert_near(out.numpy(), wanted.numpy())
    right = d.clone()
    right[77] = float("nan")
    assert matrix.solve(right).isnan().all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_compilers_are_not_imported(library: str) -> None:
    """Where kernels are in the cache, as those are that ran before, windows wait for none of Numba's imports."""
    pytest.importorskip(library)
    convert = "numpy.asarray" if library == "numpy" else "torch.from_numpy"
    program = f"""
import sys, numpy, {library}
import tridiag
a, b, c, d = ({convert}(x) for x in (*numpy.full((2, 5000), 1.0), numpy.full(5000, 1.0), numpy.ones(5000)))
for _ in range(2):
    matrix = tridiag.factor(a, 4 * b, c)
    for _ in range({SETTLED}):
        matrix.solve(d)
    assert matrix._recall.windows
print("numba" in sys.modules)
"""
    first = run_program(program).strip()
    assert first == "False" or run_program(program).strip() == "False"
