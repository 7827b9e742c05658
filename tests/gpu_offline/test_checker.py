"""The checks are not blind: a barrier that is taken out of a kernel, whichever it is, or that some threads miss, shows.

So no barrier is there for nothing. A read out of bounds: `test_sanitizers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cpu_build
import planted
import pytest
from helpers import STANDIN

pytest.importorskip("cupy", reason="needs the stand-in for CuPy")
if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

from cupy import machine
from small_cases import TOLERANCE, Case

DTYPE = "float64"
SEEDS = range(4)
# Couplings that reach across chunks, in several whole blocks; systems that need pivots at their ends alone
BLOCKS = {
    "chunks.cu": ("cupy_pcr", [(17, 200)], [(False, "laplacian"), ("auto", "laplacian"), ("auto", "mixed")]),
    "partition.cu": ("cupy_pcr", [(2, 9000)], [(False, "laplacian"), ("auto", "laplacian")]),
    "thomas.cu": ("cupy_thomas", [(70, 20), (70, 100)], [(False, "plain")]),
}
# Systems without a certificate come out as NaN: a doubt that has no cause would be healed by pivoting else
UNHEALED = {"pivoted.cu": planted.replacing("const T x = regular ? kept.at(i, Y) :", "const T x =")}
BARRIERS = [(source, number) for source in BLOCKS for number in range(planted.barriers(source))]


@pytest.fixture(autouse=True)
def uprooted() -> Iterator[None]:
    yield
    planted.uproot()
    machine.seed = 0


def cases(source: str, change: Any, seeds: Any = SEEDS) -> Iterator[Case]:
    """Small problems that run a source with a change, the order of its threads being that of a seed."""
    backend, shapes, kinds = BLOCKS[source]
    for shape, axis, (pivoting, kind), seed in itertools.product(shapes, (-1, 0), kinds, seeds):
        planted.plant({source: change} | ({} if kind == "mixed" else UNHEALED))
        machine.seed = seed
        yield Case(backend, shape, axis, DTYPE, pivoting, kind)


def shows(case: Case) -> bool:
    try:
        return not case.error() < TOLERANCE[DTYPE]
    except cpu_build.LaunchError:
        return True


@pytest.mark.parametrize("source", BLOCKS)
def test_nothing_shows_where_nothing_is_planted(source: str) -> None:
    assert not [case for case in cases(source, str) if shows(case)]


@pytest.mark.parametrize(("source", "number"), BARRIERS)
def test_a_missing_barrier_shows(source: str, number: int) -> None:
    assert any(map(shows, cases(source, planted.barrier(number, ""))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("source", BLOCKS)
def test_a_barrier_that_some_threads_miss_is_an_error(source: str, seed: int) -> None:
    divergent = planted.barrier(0, f"if (threadIdx.x % 2 == 0) {planted.BARRIER}")
    for case in cases(source, divergent, (seed,)):
        if case.axis == 0:
            continue  # some barriers are for rows that lie side by side
        with pytest.raises(cpu_build.LaunchError, match="barrier divergence"):
            case.error()
