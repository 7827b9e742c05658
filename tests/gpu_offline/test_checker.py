"""The checks are not blind: a barrier that is taken out of a kernel, whichever it is, or that some threads miss, shows.

So no barrier is there for nothing. A read out of bounds: `test_sanitizers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import STANDIN

import tridiag
from tridiag.cuda import instances, recurrences

cupy: Any = pytest.importorskip("cupy", reason="needs the stand-in for CuPy")
if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

from cupy import machine  # noqa: E402
from small_cases import TOLERANCE, Case, Sequence  # noqa: E402

DTYPE = "float64"
SEEDS = range(4)
# Couplings that reach across chunks, in several whole blocks; systems that need pivots at their ends alone
BLOCKS = {
    "chunks.cu": ("cupy_pcr", [(17, 200)], [(False, "laplacian"), ("auto", "laplacian"), ("auto", "mixed")]),
    "partition.cu": ("cupy_pcr", [(2, 9000)], [(False, "laplacian"), ("auto", "laplacian")]),
    "thomas.cu": ("cupy_thomas", [(70, 20), (70, 100)], [(False, "plain")]),
}
# Systems without a certificate come out as NaN: a doubt that has no cause would be healed by pivoting else
UNHEALED = {
    "pivoted.cu": planted.replacing("kept.at(i, Y) = kept.at(i, RIGHT);", "kept.at(i, Y) = not_a_number(T(0));"),
    "pivoted_chunks.cu": planted.replacing("!chunk.solve() &&", ""),
}
SCANS = "scans.cu"
ROWS = recurrences.LEAST  # of a chunk,
TILE = instances.TILE_THREADS * ROWS  # and of a tile that one sequence has
WAYS = ((0, 32), (10**9, 1), (10**9, 8))  # tiles in turn; chained, in groups of so many
VERBS = {"linear_recurrence": 1, "logcumsumexp": 0}
SOURCES = (*BLOCKS, SCANS)
EVERYWHERE = {SCANS: 2}  # a barrier that every schedule has, if it is not the first
BARRIERS = [(source, number) for source in SOURCES for number in range(planted.barriers(source))]
# What would be wrong of recurrences under some order of blocks and threads, or for some coefficients
MISTAKES = {
    "blocks that do not begin in the order of tiles": ("Index(atomicAdd(chain.tickets, 1ULL))", "Index(blockIdx.x)"),
    "parts in another order": (
        "from_lane(part, at.first + next)",
        "from_lane(part, at.first + nearest - 1 - next)",
    ),
    "parts of a group in another order": ("Rows::join(left, folded)", "Rows::join(folded, left)"),
    "a part of a group that cannot be trusted": ("good = good && left_good;", ""),
    "a tile that others cannot pass by": ("!(good && Rows::sound(before))) before =", "false) before ="),
    "a group that is not told": ("if (marks[at.s] & GROUP)", "if (false)"),
    "copies that are not waited for": ("    wait_for_copies();", ""),
    "a part that is not waited for": ("if (Rows::sound(state)) continue;", "continue;"),
    "a part that cannot be trusted": ("look.there && !(marks[s] & UNTOLD);", "look.there;"),
    "a value that is not told": ("marks[at.s] & UNTOLD) {", "false) {"),
    "a chunk that is joined twice": ("if (chunk >= step) own", "own"),
    "products that underflow": ("if (least < small(Real<T>(0))) {", "if (false) {"),
    "products that are trusted": (
        "return size(part.factor) <= Real<T>(TRUSTED) && is_finite(part.value);",
        "return true;",
    ),
    "values that are not finite": (
        "bool sound(const State& y) { return is_finite(y); }",
        "bool sound(const State&) { return true; }",
    ),
    "the value before another warp": ("if (q == at.rank) before = state;", "if (q + 1 == at.rank) before = state;"),
    "the same 16 bytes again": ("line += more, i += down;", "line += more;"),
    "the first coefficient": ("chunk_rows.a[0] = T(0);", ";"),
}


@pytest.fixture(autouse=True)
def uprooted() -> Iterator[None]:
    full, group = recurrences.FULL, recurrences.GROUP
    yield
    planted.uproot()
    machine.seed = 0
    recurrences.FULL, recurrences.GROUP = full, group
    planted.decide_anew()


def cases(source: str, change: Any, seeds: Any = SEEDS) -> Iterator[Any]:
    """Small problems that run a source with a change, the order of its threads being that of a seed."""
    if source == SCANS:
        yield from sequences(change, seeds)
        return
    backend, shapes, kinds = BLOCKS[source]
    for shape, axis, (pivoting, kind), seed in itertools.product(shapes, (-1, 0), kinds, seeds):
        planted.plant({source: change} | ({} if kind == "mixed" else UNHEALED))
        machine.seed = seed
        yield Case(backend, shape, axis, DTYPE, pivoting, kind)


def sequences(change: Any, seeds: Any) -> Iterator[Sequence]:
    """Recurrences with several tiles, in turn and chained, forwards and backwards."""
    planted.plant({SCANS: change})
    for recurrences.FULL in (0, 10**9):
        planted.decide_anew()
        places = itertools.product(VERBS.items(), ((3, 5000), (40, 150)), (-1, 0), (False, True), seeds)
        for (verb, order), shape, axis, reverse, machine.seed in places:
            yield Sequence("cupy_scan", verb, order, shape, axis, DTYPE, reverse)


def shows(case: Any) -> bool:
    try:
        return not case.error() < TOLERANCE[DTYPE]
    except cpu_build.LaunchError:
        return True


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_shows_where_nothing_is_planted(source: str) -> None:
    assert not [case for case in cases(source, str) if shows(case)]


@pytest.mark.parametrize(("source", "number"), BARRIERS)
def test_a_missing_barrier_shows(source: str, number: int) -> None:
    found = any(map(shows, cases(source, planted.barrier(number, ""))))
    assert found or (source == SCANS and a_stretch_shows())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_barrier_that_some_threads_miss_is_an_error(source: str, seed: int) -> None:
    divergent = planted.barrier(EVERYWHERE.get(source, 0), f"if (threadIdx.x % 2 == 0) {planted.BARRIER}")
    for case in cases(source, divergent, (seed,)):
        if case.axis == 0:
            continue  # some barriers are for rows that lie side by side
        with pytest.raises(cpu_build.LaunchError, match="barrier divergence"):
            case.error()


def stretches() -> Iterator[Any]:
    """Sequences of which some tiles tell nothing of the value behind them, but what their rows make of that before."""
    rng, n = np.random.default_rng(0), 7000
    a, x = rng.uniform(-1, 1, (3, n)), rng.normal(size=(3, n))
    yield a[:1], x[:1]
    start = 600 * ROWS  # of a chunk, whose product is subnormal
    a[0, start : start + 20], x[0, start - 1 : start + 20] = 1, 0
    x[0, start - 1], a[0, start : start + ROWS] = 1e305, 10 ** (-322 / ROWS)
    start = 2 * TILE  # of a tile, whose first chunk makes more than the largest number of it, and its rows do not
    a[1, start:], x[1, start:], a[1, start - 1], x[1, start - 1] = 1, 0, 0, np.finfo(DTYPE).max
    a[1, start : start + ROWS], x[1, start : start + ROWS] = 0.610734162988008, 6.997805228328912e307
    a[:, 0] = np.nan
    for k in range(3):
        yield a[k : k + 1], x[k : k + 1]
    shrinks = np.arange(n) % TILE < TILE // 2  # what comes then hides what was before
    a, x = (np.tile(np.where(shrinks, *values), (3, 1)) for values in ((0.5, 2.0), (0.5, -1.0)))
    x[:, 0] = 1
    yield a, x
    a, x = np.ones((1, n)), np.zeros((1, n))  # one tile grows too much, and shrinks again; those behind keep it
    x[0, 0], a[0, TILE : TILE + TILE // 2], a[0, TILE + TILE // 2 : 2 * TILE] = 1, 2, 0.5
    yield a, x
    a, x = (rng.uniform(0, 1, (3, n)) for _ in range(2))
    x[1, 5000] = np.inf
    yield a, x


def is_wrong(a: np.ndarray, x: np.ndarray, axis: int) -> bool:
    """By all orders of blocks and threads, tiles in turn and chained, in groups of several sizes."""
    right = tridiag.linear_recurrence(a, x, backend="numpy_scan")
    given = [cupy.asarray(np.ascontiguousarray(v if axis else v.T)) for v in (a, x)]
    for (recurrences.FULL, recurrences.GROUP), machine.seed in itertools.product(WAYS, range(2, 8)):
        planted.decide_anew()
        sign = (-1) ** machine.seed  # so that what a launch before has left in memory is wrong
        try:
            y = sign * tridiag.linear_recurrence(given[0], sign * given[1], axis=axis, backend="cupy_scan").get()
        except cpu_build.LaunchError:
            return True
        if not np.allclose(y if axis else y.T, right, rtol=1e-9, atol=1e-20, equal_nan=True):
            return True
    return False


def a_stretch_shows() -> bool:
    return any(is_wrong(a, x, axis) for (a, x), axis in itertools.product(stretches(), (1, 0)))


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_in_a_scan_shows(name: str) -> None:
    if name in MISTAKES:
        planted.plant({SCANS: planted.replacing(*MISTAKES[name])})
    assert a_stretch_shows() == (name in MISTAKES)
