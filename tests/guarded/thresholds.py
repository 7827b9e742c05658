"""Sizes at which the package does something else, and the same thresholds set so low that small arrays cross them.

A problem of some hundred numbers then goes the ways of one of millions: in blocks, past the caches, over 300 threads.
Only what is a matter of speed is set: right results do not depend on it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from tridiag.kernels.jobs import logsumexp, recurrences, systems
from tridiag.kernels.jobs.caches import room_for_results

USUAL_THREADS = systems.threads
NAMES = "systems", "recurrences", "logsumexp", "kalman", "alignment", "selective", "products"
JOBS = {f"tridiag.kernels.jobs.{name}" for name in NAMES}
LOW: dict[str, tuple[int, ...]] = {
    "WORTH_A_THREAD": (1, 100, 1000),
    "CACHES": (0, 0, 4096),
    "SCRATCH": (4096, 32768),
    "FEWEST_ROWS": (1, 2, 3, 8, 16, 64),
    "CHUNK_OF_HARD": (1, 4),
    "LONG_HARD": (1, 64),
    "STRETCH": (64, 128, 512),
    "LONG_STRETCH": (128, 1024),
    "STREAMS": (0, 2, 5),
}
THREADS = {1: 30, 2: 25, 3: 15, 5: 10, 8: 6, 16: 4, 33: 2, 64: 1, 300: 1}  # and how often: threads cost time to start
_now: list[Any] = [None]
_usual: dict[tuple[str, str], int] = {}
_caches: dict[int, list[Any]] = {}


def widths() -> list[int]:
    """Lengths about which loops begin or end: lanes of vectors, heights of tiles and of blocks, chunks, powers of 2."""
    from tridiag.kernels.jobs.batches import LINE
    from tridiag.kernels.logsumexp import groups
    from tridiag.kernels.logsumexp import workspace as logarithms
    from tridiag.kernels.partition import state
    from tridiag.kernels.thomas import interleaved as interleaved
    from tridiag.kernels.thomas import one_vector, workspace

    known = [LINE // 8, LINE // 4, LINE, systems.OVERLAP, systems.FEWEST_MATRICES, systems.LONG]
    known += [recurrences.HEIGHT, logsumexp.FEWEST_ROWS, workspace.BLOCK, interleaved.EARLY, one_vector.EARLY]
    known += [one_vector.VERY_EARLY, logarithms.BLOCK, groups.HEAD, logarithms.BLOCK_INTERLEAVED, state.MOST_LISTED]
    known += [2**k for k in range(10)] + [3 * 2**k for k in range(7)]
    return sorted({max(1, n + step) for n in known for step in (-1, 0, 1)})


def draw(rng: random.Random) -> tuple[int, dict[str, int]]:
    """Threads, and thresholds other than usual."""
    low = {name: rng.choice(values) for name, values in LOW.items() if rng.random() < 0.5} if rng.random() < 0.6 else {}
    return rng.choices(list(THREADS), list(THREADS.values()))[0], low


def set_to(threads: int, low: dict[str, int]) -> None:
    """Give the package so many cores, and such thresholds, and let it forget what it has planned with others."""
    wanted = threads, tuple(sorted(low.items()))
    if _now[0] == wanted:
        return
    granted = _granting(threads)
    modules = [module for name, module in sys.modules.items() if name.startswith("tridiag.") and module is not None]
    for module in modules:
        names = vars(module)
        if "threads" in names and getattr(names["threads"], "guarded", names["threads"] is USUAL_THREADS):
            names["threads"] = granted
        if "room_for_results" in names and tells_a_job(module):
            names["room_for_results"] = _holding(low.get("CACHES"))
        for name in LOW:
            if name in names and isinstance(names[name], int) and tells_a_job(module):
                names[name] = low.get(name, _usual.setdefault((module.__name__, name), names[name]))
    for forget in _remembering(modules):
        forget.cache_clear()
    _now[0] = wanted


def tells_a_job(module: Any) -> bool:
    """Whether its constants are read where a job is made; those of kernels, and the numbers of words, are compiled."""
    return not module.__name__.startswith("tridiag.kernels.") or module.__name__ in JOBS


def _granting(threads: int) -> Callable[[], int]:
    def granted() -> int:
        return threads

    granted.guarded = True  # type: ignore[attr-defined]
    return granted


def _holding(low: int | None) -> Callable[[], int]:
    """What caches hold of rows of a result."""
    return room_for_results if low is None else lambda: low


def _remembering(modules: list[Any]) -> list[Any]:
    """The functions that remember plans."""
    if len(modules) not in _caches:
        found = {
            id(value): value
            for module in modules
            for name, value in vars(module).items()
            if hasattr(value, "cache_clear") and (name.startswith("make_") or name in ("bound_call", "call_of"))
        }
        _caches[len(modules)] = list(found.values())
    return _caches[len(modules)]
