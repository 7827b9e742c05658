"""How much slower "auto" is than the best backend for a call, at random points that nothing was tuned on.

    python benchmarks/regret.py [--verb VERB] [--points N] [--seconds S] [--seed K] [--json FILE]

Rows and systems are drawn from 1 to 1e6 by their logarithms, up to 1e7 unknowns; the axis, the dtype and the library
(NumPy, jitted JAX, PyTorch) by chance, of those for which the verb has several backends. Every backend that can run the
problem does it once (systems are diagonally dominant; Kalman filters go one step after another); those up to three
times slower than the fastest then alternate, and their medians count. Choices are those of `tridiag.tune()` on this
machine if it has been called, else those that come with the package; the record says which. Verbs are those that have
curves, ``solve`` unless another one is asked for, or ``all``, in about four minutes.

Exits with 1 where the mean regret is above 5 % (15 % with what comes with the package) or the worst above 50 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from short_race import race

from tridiag.benchmarking import libraries
from tridiag.benchmarking.conditions import conditions
from tridiag.benchmarking.operands import STATES
from tridiag.benchmarking.problems import Problem
from tridiag.benchmarking.tuning import MATRICES, RECURRENCES, todo
from tridiag.problems.state_space import KALMAN
from tridiag.report import Explanation
from tridiag.selection import costs, measurements
from tridiag.selection.choose import eligible

RESULTS = Path(__file__).parent / "results"
LARGEST = 10_000_000  # unknowns
MEAN = {"tuned": 0.05, "shipped": 0.15}
WORST = 0.5
VERBS = ("solve", *MATRICES, *RECURRENCES, *costs.OWN)
LOOPS = ("numpy_thomas", "torch_thomas", "numpy_scan", "torch_scan")  # in Python
SLOW = 2.0  # seconds that a backend may be expected to take
BRIEF = 15.0  # seconds of each verb, of all


def libraries_of(verb: str) -> list[str]:
    """Those for whose arrays there is a choice."""
    having = {kind.place.library for kind in todo() if kind.verb == verb}
    return [library for library in ("numpy", "jax", "torch") if library in having]


def draw(rng: np.random.Generator, verb: str, among: list[str]) -> Problem:
    """Lengths, an axis, a library and a dtype; small matrices have 2 to 6 rows, steps of a series as many values."""
    side = int(rng.integers(2, 7)) if verb in costs.SIDES else 1
    entries = max(side, STATES if verb in KALMAN else 1) ** 2
    while True:
        rows, systems = (round(10 ** rng.uniform(0, 6)) for _ in range(2))
        columns = max(1, round(rows * rng.uniform(0.5, 2))) if verb == costs.ALIGNMENT else entries
        if rows * systems * columns <= LARGEST:
            break
    axis = int(rng.integers(2))
    shape: tuple[int, ...] = (systems, rows) if axis else (rows, systems)
    if verb in costs.OWN:
        shape, axis = (systems, rows, side if verb in costs.SIDES else columns), -1
    library, dtype = rng.choice(among), rng.choice(["float32", "float64"])
    return Problem(verb, shape, axis, str(dtype), str(library))


def point(problem: Problem) -> dict[str, Any]:
    """The times of those that may run; none where there is no choice."""
    chosen = problem.explain()
    asked = chosen.problem._replace(method="sequential") if problem.verb in KALMAN else chosen.problem
    names = [entry.name for entry, seconds in eligible(asked) if not too_slow(entry.name, chosen, seconds)]
    rivals = {chosen.backend, *names}
    times = race({name: call(name, problem) for name in rivals}, {chosen.backend}) if len(rivals) > 1 else {}
    best = min(times, key=times.__getitem__, default=chosen.backend)
    return {
        "library": problem.library, "shape": problem.shape, "axis": problem.axis, "dtype": problem.dtype,
        "auto": chosen.backend, "best": best, "regret": times[chosen.backend] / times[best] - 1 if times else 0.0,
        "seconds": {name: float(f"{seconds:.4g}") for name, seconds in times.items()},
    }  # fmt: skip


def too_slow(name: str, chosen: Explanation, seconds: float | None) -> bool:
    """Loops in Python over rows, or calls of LAPACK for each system, that would take minutes."""
    rows, _, _ = costs.sizes(chosen.problem)
    step = 3e-4 if chosen.problem.verb in KALMAN else 3e-5
    steps = rows * step if name in LOOPS else 0.0
    return steps + (0.0 if seconds is None else min(seconds, steps or seconds)) > SLOW


def call(name: str, problem: Problem) -> Callable[[], Any]:
    return libraries.called(problem.library, problem.function(name), problem.given)


def measured(verb: str, count: int, seconds: float, seed: int) -> dict[str, Any]:
    rng, among, points, end = np.random.default_rng(seed), libraries_of(verb), [], time.perf_counter() + seconds
    for _ in track(range(count), description=verb):
        points.append(point(draw(rng, verb, among)))
        if time.perf_counter() > end:
            break
    regrets = [one["regret"] for one in points]
    record = conditions() | {"verb": verb, "costs": measurements.known().origin, "seed": seed}
    return record | {"mean": float(np.mean(regrets)), "worst": float(np.max(regrets)), "points": points}


def tell(record: dict[str, Any], kind: str) -> bool:
    """Whether a verb has its bars."""
    for one in sorted(record["points"], key=lambda one: -one["regret"])[:8]:
        print({key: value for key, value in one.items() if key != "seconds"})
    mean, worst = record["mean"], record["worst"]
    bars = f"mean {100 * mean:.1f} % (at most {100 * MEAN[kind]:.0f}), worst {100 * worst:.0f} % (at most 50)"
    print(f"{record['verb']}, {kind}, {len(record['points'])} points: {bars}")
    return mean <= MEAN[kind] and worst <= WORST


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--verb", choices=(*VERBS, "all"), default="solve")
    parser.add_argument("--points", type=int, default=200, help="of each verb, at most (default 200)")
    told = f"of each verb, after which no point is drawn (default: {BRIEF:.0f} of all, no end of one)"
    parser.add_argument("--seconds", type=float, help=told)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the record goes; of all verbs one for each")
    options = parser.parse_args(arguments)
    verbs = VERBS if options.verb == "all" else (options.verb,)
    kind = "tuned" if measurements.known().origin == measurements.HERE else "shipped"
    brief = BRIEF if len(verbs) > 1 else math.inf
    seconds = brief if options.seconds is None else options.seconds
    records = {verb: measured(verb, options.points, seconds, options.seed) for verb in verbs}
    record = records if len(verbs) > 1 else records[verbs[0]]
    path = options.json or RESULTS / f"regret_{kind}{'' if options.verb == 'solve' else f'_{options.verb}'}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return int(not all([tell(record, kind) for record in records.values()]))


if __name__ == "__main__":
    sys.exit(main())
