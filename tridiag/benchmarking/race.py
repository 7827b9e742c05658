"""Timings to rely on: a gate before the clock, contestants that alternate in shuffled order, ratios within a round.

Where one contestant's answer fails its gate, nothing is timed, and the line has no figure. All contestants run in every
round, each round in another order; a figure is the median over the rounds of a ratio taken within the round, so that
what slows the whole machine for a while falls out of it.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.runtime import object_cache

SHORTEST = 60e-3  # seconds: shorter calls are timed in batches; after a pause the second core may come 6 ms late
PAUSE = 0.05  # seconds: XLA still frees memory for a while after its answer, at the cost of whatever runs then
SPARE_BUDGETS, FEWEST = 3, 3  # a slow line may take this many budgets; it ends then, after this many rounds

Seconds = np.ndarray[Any, Any]  # of one contestant, one number a round


class WrongAnswer(Exception):
    """A contestant failed its gate."""


class Timing(NamedTuple):
    """Seconds of one call, by the clock and on all cores together."""

    wall: float
    cpu: float


class Judged(NamedTuple):
    """The error of a right answer in eps; how long the first call took, and how many kernels were compiled in it."""

    error: float
    seconds: float
    compiled: int = 0


@dataclass(frozen=True)
class Contestant:
    """Something to time.

    ``call`` is what the clock sees. It takes what ``fresh`` makes outside the clock, and does ``steps`` steps.
    ``error`` judges its result, in eps: above ``limit``, or NaN, is wrong. ``out``, where the result goes, is NaN
    before that, so that what others have left there counts for nothing.
    """

    call: Callable[..., Any]
    error: Callable[[Any], float]
    limit: float
    fresh: Callable[[], Any] | None = None
    steps: int = 1
    out: Any = None

    def judge(self, name: str) -> Judged:
        if self.out is not None:
            self.out[...] = float("nan")
        arguments, before, start = self.arguments(), object_cache.compiled(), time.perf_counter()
        result = self.call(*arguments)
        seconds = time.perf_counter() - start
        error = float(self.error(result))
        if not error <= self.limit:
            raise WrongAnswer(f"{name}: an error of {error:.3g} eps, of {self.limit:.3g} allowed")
        return Judged(error, seconds, object_cache.compiled() - before)

    def arguments(self) -> Any:
        return self.fresh() if self.fresh else ()

    def repeat(self) -> int:
        """How many calls make a batch long enough to time, whether or not the first ones are slow."""
        calls = 1
        while self.fresh is None and any(self.sample(calls).wall * calls * self.steps < SHORTEST for _ in range(3)):
            calls *= 2
        return calls

    def sample(self, calls: int) -> Timing:
        """The time of a step, over a batch of calls. Results are freed after the clock, where there is one call."""
        call, arguments, count = self.call, self.arguments(), calls * self.steps
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(calls):
            result = call(*arguments)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        del result
        return Timing(wall / count, cpu / count)


class Race(NamedTuple):
    """What each contestant got at the gate, and its timings; how many cores other processes kept busy."""

    judged: dict[str, Judged]
    timings: dict[str, list[Timing]]
    others: float | None

    def walls(self) -> dict[str, Seconds]:
        return {name: np.array([timing.wall for timing in timings]) for name, timings in self.timings.items()}

    @property
    def rounds(self) -> int:
        return min(map(len, self.timings.values()))

    def summary(self, name: str) -> dict[str, Any]:
        """The median time of a contestant, CPU time over wall time (how many cores it kept busy), its error."""
        wall, cpu = np.array(self.timings[name]).T
        return {
            "seconds": float(np.median(wall)),
            "cpu_per_wall": float(cpu.sum() / wall.sum()),
            "error_in_eps": self.judged[name].error,
            "first_call_seconds": self.judged[name].seconds,
            "kernels_compiled_in_it": self.judged[name].compiled,
            "rounds": [float(f"{second:.4g}") for second in wall],
        }


def race(contestants: dict[str, Contestant], rounds: int = 11, budget: float = 8.0) -> Race:
    """Judge all contestants, then time them for at least so many rounds, and three times as many within the budget."""
    judged = {name: contestant.judge(name) for name, contestant in contestants.items()}
    return timed(contestants, judged, rounds, budget)


def timed(
    contestants: dict[str, Contestant],
    judged: dict[str, Judged],
    rounds: int,
    budget: float,
    progressed: Callable[[float], None] = lambda part: None,
) -> Race:
    """Time contestants that have passed their gates; ``progressed`` hears after each round how much is done."""
    calls = {name: contestant.repeat() for name, contestant in contestants.items()}
    timings: dict[str, list[Timing]] = {name: [] for name in contestants}
    order, shuffle = list(contestants), random.Random(0).shuffle
    before, start, done, spent = busy(), time.perf_counter(), 0, 0.0
    gc.collect()
    gc.disable()
    try:
        while wanted(done, spent, rounds, budget):
            progressed(min(1.0, done / rounds))
            shuffle(order)
            for name in order:
                time.sleep(PAUSE)
                timings[name].append(contestants[name].sample(calls[name]))
            done, spent = done + 1, time.perf_counter() - start
    finally:
        gc.enable()
    after = busy()
    return Race(judged, timings, None if before is None or after is None else round((after - before) / spent, 2))


def wanted(done: int, spent: float, rounds: int, budget: float) -> bool:
    if done >= min(rounds, FEWEST) and spent > SPARE_BUDGETS * budget:
        return False
    return done < rounds or (done < 3 * rounds and spent < budget)


def busy() -> float | None:
    """Core seconds that the machine has spent on other processes; only Linux tells."""
    if not Path("/proc/stat").exists():
        return None
    ticks = [int(word) for word in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    idle = ticks[3] + ticks[4]
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK") - own
