"""The times of a few calls, in a fraction of a second: for many problems, each of which is one point of a figure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

WARM = 3  # calls before the race
BEHIND = 3.0  # times slower than the fastest: out of the race
SHORTEST, BUDGET, ROUNDS = 2e-3, 0.3, 5  # seconds of a sample, seconds of a race; the fewest rounds

Calls = dict[str, Callable[[], Any]]


def race(calls: Calls, kept: Collection[str] = ()) -> dict[str, float]:
    """The time of each; medians over shuffled rounds of those that are near the fastest, and of those kept."""
    first = {name: least(one) for name, one in calls.items()}
    best = min(first.values())
    near = [name for name, seconds in first.items() if seconds <= BEHIND * best or name in kept]
    counts = {name: max(1, int(SHORTEST / first[name])) for name in near}
    samples: dict[str, list[float]] = {name: [] for name in near}
    start, rng = time.perf_counter(), np.random.default_rng(0)
    while len(samples[near[0]]) < ROUNDS or time.perf_counter() - start < BUDGET:
        for name in rng.permutation(near):
            begin = time.perf_counter()
            for _ in range(counts[name]):
                calls[name]()
            samples[name].append((time.perf_counter() - begin) / counts[name])
    return first | {name: statistics.median(some) for name, some in samples.items()}


def least(call: Callable[[], Any]) -> float:
    """The shortest of the calls after the first."""
    call()
    seconds = []
    for _ in range(WARM):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        if seconds[0] > BUDGET:
            break
    return min(seconds)
