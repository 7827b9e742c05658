"""Long systems pivoted in chunks, on the CPU build: lengths around those of chunks, four orders of the threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import cpu_build
import numpy as np
import planted
import pytest
from helpers import DTYPES, STANDIN, assert_same_bits, assert_solves, uniform, zero_diagonal

import tridiag

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
import long_systems
from cupy import machine
from long_systems import KINDS, SEEDS, UNHEALED, dependent, growing, problem, solve, wave

from tridiag.cuda import instances, solvers
from tridiag.cuda.launcher import OPTIONS

LENGTHS = (4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from long_systems.shortened(monkeypatch)


def test_scratch_memory_is_as_large_as_the_kernel_takes_it(tmp_path: Path) -> None:
    """The words of a row, and those of a joint."""
    (tmp_path / "words.cu").write_text(
        '#include "pivoted_chunks.cu"\nstruct Told { long long* words; };\n'
        "__global__ void words(Told told) { told.words[0] = Chunk<double>::WORDS, told.words[1] = KNOWN; }\n"
    )
    found = np.zeros(2, np.int64)
    options = f"-I{cpu_build.SOURCES}", *OPTIONS[1:]
    library = cpu_build.build("words.cu", ("words",), options, folder=tmp_path)
    library.launch("words", 1, 1, np.array([found.ctypes.data], np.int64))
    assert found.tolist() == [solvers.WORDS[True] + solvers.MORE_WORDS, solvers.JOINT_WORDS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_lengths(dtype: str, kind: str) -> None:
    for n, axis, promise in itertools.product(LENGTHS, (0, 1), ("auto", True)):
        arrays, options = problem(kind, (3, n), dtype, axis)
        found = []
        for machine.seed in SEEDS:
            found.append(solve(arrays, pivoting=promise, **options))
        for x in found:
            assert_same_bits(x, found[0])
        assert_solves(found[0], *arrays, pivoting=promise, **options)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", KINDS)
def test_one_length(kind: str) -> None:
    arrays, options = problem(kind, (2, 65), "float64")
    assert_solves(solve(arrays, **options), *arrays, **options)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_solve_nearly_all_systems_by_themselves(dtype: str) -> None:
    planted.plant(UNHEALED)
    for kind in KINDS:
        arrays, options = problem(kind, (50, 400), dtype)
        assert np.isnan(solve(arrays, **options)).any(1).mean() <= 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_that_chunks_find_hard(dtype: str) -> None:
    """They solve them, all the same."""
    planted.plant(UNHEALED)
    for make, n in itertools.product((wave, growing), (400, 1000, 3000)):
        arrays = make(n, dtype)
        assert_solves(solve(arrays), *arrays)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_diagonals_and_couplings(dtype: str) -> None:
    """A zero diagonal; blocks of two rows whose first pivot is zero; weak couplings; rows over 12 decades."""
    for n in (64, 66, 100):
        regular = zero_diagonal((3, n), dtype)
        swaps = [v.copy() for v in uniform((3, n), dtype)]
        swaps[1][...], swaps[0][:, ::2], swaps[2][:, 1::2] = 0, 0, 0
        weak = [v.copy() for v in uniform((3, n), dtype)]
        weak[0][...], weak[2][...] = weak[0] * 1e-30, weak[2] * 1e-30
        graded = [v.copy() for v in uniform((3, n), dtype)]
        scale = 10.0 ** np.random.default_rng(n).uniform(-6, 6, (3, n))
        for k in range(3):
            graded[k] = (graded[k] * scale).astype(dtype)
        for arrays in (regular, swaps, weak, graded):
            assert_solves(solve(arrays), *arrays)


def singular_ones(n: int, dtype: str) -> Iterator[list[np.ndarray]]:
    """Five systems each, of which the third is singular, somewhere."""
    for row in (0, 1, 2, 3, n // 2, n - 2, n - 1):
        a, b, c, d = uniform((5, n), dtype, seed=row)
        a[2, row] = b[2, row] = c[2, row] = 0
        yield [a, b, c, d]  # a row
        a, b, c, d = uniform((5, n), dtype, seed=row)
        b[2, row] = 0
        if row > 0:
            c[2, row - 1] = 0
        if row + 1 < n:
            a[2, row + 1] = 0
        yield [a, b, c, d]  # a column
    for first in range(3, n - 6):
        a, b, c, d = uniform((5, n), dtype, seed=first)
        a[2, first] = c[2, first + 2] = 0
        b[2, first : first + 3] = 0
        yield [a, b, c, d]  # a block of three rows with a zero diagonal
    a, b, c, d = uniform((5, n), dtype)
    a[2], b[2], c[2] = -1, 2, -1
    b[2, 0] = b[2, -1] = 1
    yield [a, b, c, d]  # diffusion between two walls


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_systems_are_nan_and_nothing_else_is(dtype: str) -> None:
    for n in (27, 32):
        for machine.seed, arrays in enumerate(singular_ones(n, dtype)):
            x = solve(arrays)
            assert np.isnan(x[2]).all()
            others = [np.delete(v, 2, 0) for v in (x, *arrays)]
            assert_solves(*others)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_singular_but_for_rounding_is_left_to_one_thread(dtype: str) -> None:
    """Chunks round in another order: a zero pivot need not be zero there, and must not pass for a number."""
    planted.plant(UNHEALED)
    for n in (100, 1000, 5000):
        one, d = np.ones((1, n)), np.random.default_rng(n).normal(size=(1, n))
        c = np.random.default_rng(n).uniform(0.5, 2, (1, n))
        for arrays in ([-one, 2 * one, -one, d], [-np.roll(c, 1, 1), c + np.roll(c, 1, 1), -c, d]):
            x = solve([v.astype(dtype) for v in arrays], periodic=True)
            assert np.isnan(x).all()


def test_what_is_left_to_one_thread_is_solved() -> None:
    """Two rows that depend on each other but for two bits: regular, and too near to singular for chunks."""
    for first in (2, 20, 21, 22, 40):
        arrays = dependent(first, 1 + 2**-50)
        assert_solves(solve(arrays), *arrays)
        planted.plant(UNHEALED)
        assert np.isnan(solve(arrays))[1].all()
        planted.uproot()


def test_what_is_not_finite_is_its_systems_alone() -> None:
    for value, operand in itertools.product((np.nan, np.inf), range(4)):
        arrays = uniform((3, 50))
        arrays[operand][1, 30] = value
        x = solve(arrays)
        assert not np.isfinite(x[1]).all() or (value == np.inf and operand < 3)
        assert_solves(x[[0, 2]], *(v[[0, 2]] for v in arrays))


def test_blocks_take_systems_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where scratch memory is short; and no word of it is another's."""
    arrays = uniform((40, 60))
    whole = solve(arrays)
    monkeypatch.setattr(solvers, "LEAST_SCRATCH", 0)
    planted.decide_anew()
    for machine.seed in SEEDS:
        assert_same_bits(solve(arrays), whole)
    (grid,) = (grid for name, grid, *_ in machine.launches if name.startswith("pivoted_chunks"))
    assert 1 <= grid < 40


def test_right_sides_may_be_written_over() -> None:
    arrays = uniform((3, 100))
    given = [cupy.asarray(v) for v in arrays]
    x = tridiag.solve(*given, backend="cupy_pcr", overwrite_d=True)
    assert x is given[3]
    assert_solves(x.get(), *arrays)


def test_few_long_systems_have_chunks_and_many_a_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    planted.decide_anew()
    for shape, in_chunks in (((2, 1024), True), ((2, 1023), False), ((2000, 1024), False), ((1, 3000), True)):
        machine.launches.clear()
        tridiag.solve(*map(cupy.asarray, uniform(shape)), backend="cupy_pcr")
        names = [name.partition("<")[0] for name, *_ in machine.launches]
        assert names[-2:] == ["pivoted_chunks", "pivoted"] or not in_chunks
        assert ("pivoted_chunks" in names) == in_chunks
    threads = [block for name, _, block, *_ in machine.launches if name.startswith("pivoted_chunks")]
    assert threads == [3000 // solvers.CHUNK_ROWS] and threads[0] <= instances.CHUNKED_THREADS
