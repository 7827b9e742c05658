"""What the choice of a backend costs once it has been made: at most 2 us.

    python benchmarks/selection_cost.py [--json FILE]

"choice": finding the plan of a call by its facts (dtypes, shapes, options) where it is kept, which holds the backend,
for NumPy, PyTorch and JAX arrays. "auto - named": a solve of five rows with ``backend="auto"``
less one that names the backend, alternating. Medians of batches of calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tridiag
from tridiag.benchmarking.conditions import conditions
from tridiag.calls import fast_path, plan
from tridiag.selection.places import Place

RESULTS = Path(__file__).parent / "results"
BAR = 2e-6  # seconds
CALLS, ROUNDS = 2000, 41
OPTIONS = ("auto", "auto", False, False, None, False)  # backend, pivoting, periodic, transpose, check, overwrite_d


def alternating(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of a call of each."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) / CALLS)
    return {name: statistics.median(some) for name, some in samples.items()}


def figures() -> dict[str, float]:
    given = [np.ones(5), np.full(5, 4.0), np.ones(5), np.ones(5)]
    facts = tuple(map(fast_path.facts_of, given))
    name = tridiag.explain("solve", *given).backend
    calls: dict[str, Callable[[], Any]] = {
        "nothing": lambda: None,
        "numpy": lambda: fast_path.bound_call(facts, None, None, -1, *OPTIONS),
        "auto": lambda: tridiag.solve(*given),
        "named": lambda: tridiag.solve(*given, backend=name),
    }
    for library in ("torch", "jax"):
        place = Place(library, "cpu")
        if not place.missing():
            calls[library] = kept(library, [place.array(x) for x in given])
    times = alternating(calls)
    found = {f"choice, {key}": times[key] - times["nothing"] for key in ("numpy", "torch", "jax") if key in times}
    return found | {"auto - named": times["auto"] - times["named"]}


def kept(library: str, arrays: list[Any]) -> Callable[[], Any]:
    """Looking up the plan of a call, as `tridiag.calls.plan.prepare` does it."""
    _, take = plan.taking(("a", "b", "c", "d"), *map(type, arrays), plan.NO_MASK)
    _, _, entries, settings = take(arrays, None)
    facts = ("solve", library, entries, settings, -1, "auto", False, False, False, "auto")
    return lambda: plan.cached_plan(*facts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, default=RESULTS / "selection_cost.json")
    options = parser.parse_args(arguments)
    found = figures()
    options.json.write_text(json.dumps(conditions() | {"seconds": found, "bar": BAR}, indent=1) + "\n")
    for name, seconds in found.items():
        print(f"{name:16} {1e6 * seconds:6.2f} us   {'pass' if seconds <= BAR else 'short'} (at most {1e6 * BAR:g})")
    return int(max(found.values()) > BAR)


if __name__ == "__main__":
    sys.exit(main())
