"""Mistakes in the kernel that pivots in chunks show under some order of the threads, and missing barriers too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import cpu_build
import numpy as np
import planted
import pytest
from helpers import STANDIN, assert_solves, dominant, uniform

if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import long_systems
from cupy import machine
from long_systems import KINDS, SEEDS, UNHEALED, dependent, growing, problem, solve

SOURCE = "pivoted_chunks.cu"
MISTAKES = {
    "the iterate before": ("own > 0 ? own - 1 : last", "own > 0 ? own : last"),
    "the iterate after": ("own < last ? own + 1 : 0", "own < last ? own : 0"),
    "a chunk's first row": ("chunk * system.job.n / joints.chunks;", "chunk * (system.job.n / joints.chunks);"),
    "the sides of a joint": ("none, none}, rounding(other, j)", "none, T(1)}, rounding(other, j)"),
    "what is exchanged": ("exchange(at(other, EXCHANGED + k) == T(1), right[c], right[j]);", ""),
    "the unknown between two": (
        "at(chunk, LAST) = last, at(chunk, AFTER)",
        "at(chunk, LAST) = first, at(chunk, AFTER)",
    ),
    "who is joined": ("own % (2 * width) == 0", "own % width == 0"),
    "doubt about joints": ("doubt = doubt || is_doubtful(size(row[c].v[c]), row[c].rounding);", ""),
    "doubt about the corner": ("own == 0 && corner().doubtful", "false"),
    "residuals that are too large": ("large = large || !(error <= bar);", ""),
    "the system": ("const System<T> system(job, place);", "const System<T> system(job, k);"),
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from long_systems.shortened(monkeypatch)


def is_wrong() -> bool:
    """Whether some system is not solved by chunks, or is that had to be left to one thread."""
    try:
        for kind, axis, machine.seed in itertools.product(KINDS, (0, 1), SEEDS):
            arrays, options = problem(kind, (4, 65), "float64", axis)
            assert_solves(solve(arrays, **options), *arrays, **options)
        arrays = growing(1000, "float64")
        assert_solves(solve(arrays), *arrays)
        arrays = [np.concatenate(pair) for pair in zip(dominant((5, 65)), uniform((2, 65)), strict=True)]
        assert_solves(solve(arrays), *arrays)  # the last two alone are on the list
        for arrays in map(dependent, range(2, 62)):
            x = solve(arrays)
            assert np.isnan(x[1]).all()
            assert_solves(x[[0, 2]], *(v[[0, 2]] for v in arrays))
        one, d = np.ones((1, 1000)), np.random.default_rng(0).normal(size=(1, 1000))
        return not np.isnan(solve([-one, 2 * one, -one, d], periodic=True)).all()
    except (AssertionError, cpu_build.LaunchError):
        return True


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_shows(name: str) -> None:
    change = planted.replacing(*MISTAKES[name]) if name in MISTAKES else str
    planted.plant(UNHEALED | {SOURCE: change})
    assert is_wrong() == (name in MISTAKES)


@pytest.mark.parametrize("number", range(planted.barriers(SOURCE)))
def test_a_missing_barrier_shows(number: int) -> None:
    planted.plant(UNHEALED | {SOURCE: planted.barrier(number, "")})
    assert is_wrong()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_some_threads_miss_is_an_error(seed: int) -> None:
    planted.plant({SOURCE: planted.barrier(0, f"if (threadIdx.x % 2 == 0) {planted.BARRIER}")})
    machine.seed = seed
    with pytest.raises(cpu_build.LaunchError, match="barrier divergence"):
        solve(uniform((2, 65)))
