"""The CUDA C kernel of alignments on the CPU build: strips, warps, blocks in turn, four orders of threads, mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import EPS, STANDIN, assert_same_bits

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from alignment_oracle import alignment
from cupy import machine

from tridiag.backends import cupy_wavefront
from tridiag.cuda import instances, pairs
from tridiag.kernels.jobs.words.alignment import ENDS, TURNS, USUAL, Rules

SEEDS = range(4)
PARAMETERS = {2: (-0.7, 0.8), 3: (-0.7, -2.0, 0.8)}  # gap, perhaps gap_open, temperature
SPREADS = {"warps": 1, "blocks": 10**6}  # warps that fill a device: a pair has one, or as many as it has rows for
SOURCE = "alignment.cu"


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    full, blocks = pairs.FULL, pairs.BLOCKS
    yield
    machine.seed = 0
    planted.uproot()
    spread(full, blocks)


def spread(full: int, blocks: int = 2) -> None:
    """So many warps fill a device, and there are so many blocks at most."""
    pairs.FULL, pairs.BLOCKS = full, blocks
    pairs.alignment.cache_clear()


def problem(
    shape: tuple[int, ...], dtype: str = "float64", parameters: int = 2, with_lengths: bool = True
) -> tuple[np.ndarray, Any, tuple[np.ndarray, ...]]:
    """Scores, lengths of which the first is the longest and the second 0, and parameters for each pair."""
    rng, (count, rows, columns) = np.random.default_rng(shape), shape
    lengths = np.stack([rng.integers(1, k + 1, count) for k in (rows, columns)], axis=1).astype("int32")
    lengths[:1], lengths[1:2, 1] = (rows, columns), 0
    given = [np.full(count, x, dtype) * rng.uniform(0.8, 1.2, count).astype(dtype) for x in PARAMETERS[parameters]]
    return rng.normal(size=shape).astype(dtype), lengths if with_lengths else None, tuple(given)


def found(given: Any, derivatives: int = 2, rules: Rules = USUAL, seeds: Any = SEEDS) -> list[np.ndarray]:
    """The score and its derivatives, no bit of which an order of the threads may change."""
    scores, lengths, parameters = given
    on_device = (
        cupy.asarray(scores),
        None if lengths is None else cupy.asarray(lengths),
        [*map(cupy.asarray, parameters)],
    )
    results: list[list[np.ndarray]] = []
    for machine.seed in seeds:
        results.append([x.get() for x in cupy_wavefront.smith_waterman(*on_device, derivatives, rules)])
        for x, first in zip(results[-1], results[0], strict=True):
            assert_same_bits(x, first)
    return results[0]


def assert_right(results: Any, given: Any, rules: Rules = USUAL) -> None:
    """The score, the gradient by the scores, and by the parameters, that by the temperature being a difference."""
    limit = 60 * EPS[given[0].dtype.name]
    for k, (x, y) in enumerate(zip(results, alignment(*given, rules), strict=False)):
        scale = 1 if k < 2 else max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0)), given[0].shape[1])
        np.testing.assert_allclose(x, y, rtol=limit, atol=limit * scale, err_msg=str(k))


def shapes(dtype: str, derivatives: int) -> Iterator[tuple[int, int, int]]:
    """Rows around those of a thread, a warp and a block; few columns, and more than a warp has lanes."""
    warp = 32 * instances.ALIGNED_ROWS[dtype, derivatives]
    for rows, columns in ((1, 1), (2, 3), (3, 40), (warp - 1, 2), (warp, 1), (warp + 1, 5), (2 * warp + 3, 9)):
        yield 3, rows, columns


@pytest.mark.parametrize("width", SPREADS)
@pytest.mark.parametrize("derivatives", [0, 1, 2])
@pytest.mark.parametrize("parameters", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_sizes(dtype: str, parameters: int, derivatives: int, width: str) -> None:
    """Cells of every thread, strip and warp; pairs that a block takes after others, empty ones among them."""
    spread(SPREADS[width])
    for k, shape in enumerate(shapes(dtype, derivatives)):
        given = problem(shape, dtype, parameters, k % 2 == 0)
        assert_right(found(given, derivatives), given)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("turns", TURNS)
def test_alignments_that_do_not_count(turns: str, ends: str) -> None:
    spread(SPREADS["warps"])
    rules = Rules(ends, turns)
    for parameters in (2, 3) if turns == "both" else (3,):
        given = problem((4, 9, 70), parameters=parameters)
        given[1][:] = np.maximum(given[1], 2)  # with a second match
        assert_right(found(given, 2, rules, SEEDS[:2]), given, rules)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("parameters", [2, 3])
def test_numbers_of_all_sizes(parameters: int, dtype: str) -> None:
    """Weights far beyond the range of numbers, scores that forbid, and some that are infinite or no numbers."""
    spread(SPREADS["warps"])
    for size in (1e-3, 30.0, 300.0):
        scores, lengths, given = problem((6, 20, 23), dtype, parameters)
        scores *= size
        scores[2, ::2], scores[3], scores[4, 1, 0], scores[5, 0, 1] = -np.inf, -np.inf, np.inf, np.nan
        lengths[2:] = 20, 23
        results = found((scores, lengths, given), seeds=SEEDS[:2])
        assert np.isposinf(results[0][4]) and np.isnan(results[0][5]) and np.isneginf(results[0][[1, 3]]).all()
        for x in results[1:]:
            assert np.isnan(x[4:]).all() and np.isfinite(x[:4]).all() and not x[[1, 3]].any()
        few = scores[:3], lengths[:3], tuple(x[:3] for x in given)
        assert_right([x[:3] for x in results[:2]], few)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_that_are_fused(dtype: str) -> None:
    for parameters in (2, 3):
        given = problem((2, 70, 9), dtype, parameters)
        assert_right(found(given, seeds=SEEDS[:2]), given)


@pytest.mark.smoke
def test_one_size() -> None:
    given = problem((2, 33, 7), parameters=3)
    assert_right(found(given, seeds=(2,)), given)


def test_arguments_in_other_memory_and_one_parameter_for_all() -> None:
    """A shared parameter is read where it is, and is no array of the batch; lengths are of any integers."""
    scores, lengths, given = problem((5, 6, 7))
    wanted = alignment(scores, np.minimum(lengths, 3), tuple(x[:1].repeat(5) for x in given))
    shared = [cupy.broadcast_to(cupy.asarray(x[:1]), (5,)) for x in given]
    turned = cupy.asarray(np.ascontiguousarray(scores.swapaxes(1, 2))).swapaxes(1, 2)
    for dtype in ("int8", "uint8", "int64"):
        few = cupy.asarray(np.minimum(lengths, 3).astype(dtype))
        for x, y in zip(cupy_wavefront.smith_waterman(turned, few, tuple(shared), 2), wanted, strict=True):
            np.testing.assert_allclose(x.get(), y, rtol=1e-12, atol=1e-13)
    beyond = cupy.asarray(np.array([[6, 2**40], [-(2**40), 7], [2**32 + 2, 7], [6, 7], [9, 9]]))
    (clipped,) = cupy_wavefront.smith_waterman(turned, beyond, tuple(shared), 0)
    (full,) = cupy_wavefront.smith_waterman(turned, None, tuple(shared), 0)
    assert_same_bits(clipped.get(), np.where(np.arange(5) == 1, -np.inf, full.get()))


def test_pairs_take_the_scratch_memory_in_turn() -> None:
    """No more than that of the blocks at work is asked for, whatever their number."""
    one = (False, False)
    for shape in ((10**6, 100, 100), (100_000, 500, 500), (8, 3000, 3000), (1, 20_000, 20_000)):
        program = pairs.alignment(shape, "float64", USUAL, 2, True, one).program
        (step,), room = program.steps, int(program.jobs["room"][0])
        assert step.grid == min(shape[0], pairs.BLOCKS, max(1, pairs.ROOM // room))
        assert step.grid * room <= program.scratch < step.grid * room + 256
    assert pairs.alignment((1000, 60, 60), "float64", USUAL, 0, False, one).program.scratch == 0


# ------------------------------------------------------------------------------------------------- planted mistakes

MISTAKES = {
    "a corner of the row before": ("diagonal = above.corner;", ""),
    "the rows of a thread": ("Value own = before, across", "Value own = diagonal, across"),
    "the last row of another strip": ("if (s > 0 && column + 1", "if (s > 1 && column + 1"),
    "a warp that takes what is told later": ("((step + 1) & 1) * warps", "(step & 1) * warps"),
    "cells that are not there": ("      if (unsigned(column) < unsigned(columns)) {", "      if (column < columns) {"),
    "a place of another thread": ("threads - 1 - rank : rank", "rank : rank"),
    "places of another step": ("(Pass::BACK ? steps - 1 : 0)) * height", "0) * height"),
    "the same numbers by another order": ("const bool first = x.e >= y.e;", "const bool first = true;"),
    "the gradient beyond the lengths": ("j < job.columns; j +=", "j < columns; j +="),
    "a temperature that is too low": ("if (!(least > t)) break;", "break;"),
    "a gap that is not counted": ("if (N > 0) found.d[0] = found.d[0] + found.m;", ""),
    "a first gap that is not counted": ("if (N > 1) found.d[N - 1] = found.d[N - 1] + found.m;", ""),
    "the next block's pair": ("k += gridDim.x", "k += gridDim.x + 1"),
}  # fmt: skip


def cases() -> Iterator[tuple[Any, int]]:
    """Problems, and the warps that they fill a device with: strips of a warp, and blocks."""
    yield problem((5, 70, 3), parameters=3), SPREADS["warps"]
    yield problem((5, 70, 3), parameters=2), SPREADS["warps"]
    yield problem((2, 140, 1)), SPREADS["warps"]
    yield problem((5, 140, 5), parameters=3), SPREADS["blocks"]
    yield problem((2, 200, 2)), SPREADS["blocks"]


def is_wrong() -> bool:
    for given, full in cases():
        spread(full, 1 if len(given[0]) == 2 else 2)
        for machine.seed in SEEDS:
            try:
                results = found(given, seeds=(machine.seed,))
                assert_right(results, given)
            except (cpu_build.LaunchError, AssertionError):
                return True
    scores, _, (gap, _) = problem((2, 20, 30))
    cold, warm = (found((np.round(3 * scores), None, (gap, np.full(2, t))), 0, seeds=(0,))[0] for t in (1e-300, 1e-14))
    return not np.allclose(cold, warm, rtol=1e-12)


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_shows(name: str) -> None:
    there_is_one = planted.plant_one(SOURCE, MISTAKES, name)
    assert is_wrong() == there_is_one


@pytest.mark.parametrize("number", range(planted.barriers(SOURCE)))
def test_a_missing_barrier_shows(number: int) -> None:
    planted.plant({SOURCE: planted.barrier(number, "")})
    assert is_wrong()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_some_threads_miss_is_an_error(seed: int) -> None:
    spread(SPREADS["blocks"])
    planted.plant({SOURCE: planted.barrier(0, f"if (threadIdx.x % 2 == 0) {planted.BARRIER}")})
    with pytest.raises(cpu_build.LaunchError, match="barrier divergence"):
        found(problem((1, 140, 5)), seeds=(seed,))
