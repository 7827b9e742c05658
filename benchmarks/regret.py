"""How much slower "auto" is than the best backend for a call, at random points that nothing was tuned on.

    python benchmarks/regret.py [--points N] [--seed K] [--json FILE]

Rows and systems are drawn from 1 to 1e6 by their logarithms, up to 1e7 unknowns; the axis, the dtype and the library
(NumPy, jitted JAX, PyTorch) by chance. Every backend that can solve the systems, which are diagonally dominant, does it
once; those up to three times slower than the fastest then alternate, and their medians count. Choices are those of
`tridiag.tune()` on this machine if it has been called, else those that come with the package; the record says which.

Exits with 1 where the mean regret is above 5 % (15 % with what comes with the package) or the worst above 50 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.progress import track
from short_race import race

import tridiag
from tridiag.benchmarking.conditions import conditions
from tridiag.selection import measurements
from tridiag.selection.choose import eligible
from tridiag.selection.places import Place

RESULTS = Path(__file__).parent / "results"
LARGEST = 10_000_000  # unknowns
MEAN = {"tuned": 0.05, "shipped": 0.15}
WORST = 0.5
SLOW = 2.0  # seconds that a backend may be expected to take


def draw(rng: np.random.Generator) -> tuple[str, tuple[int, int], int, str]:
    """A library, a shape, an axis and a dtype."""
    while True:
        rows, systems = (round(10 ** rng.uniform(0, 6)) for _ in range(2))
        if rows * systems <= LARGEST:
            break
    axis = int(rng.integers(2))
    shape = (systems, rows) if axis else (rows, systems)
    library, dtype = rng.choice(["numpy", "jax", "torch"]), rng.choice(["float32", "float64"])
    return str(library), shape, axis, str(dtype)


def point(library: str, shape: tuple[int, int], axis: int, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, c, d = (rng.uniform(-1, 1, shape).astype(dtype) for _ in range(3))
    given = [Place(library, "cpu").array(x) for x in (a, rng.uniform(2.1, 3, shape).astype(dtype), c, d)]
    chosen = tridiag.explain("solve", *given, axis=axis)
    expected = dict(eligible_names(chosen.problem))
    names = [name for name, seconds in expected.items() if too_slow(name, shape, axis, seconds) is False]
    times = race({name: call(name, library, given, axis) for name in {chosen.backend, *names}}, {chosen.backend})
    best = min(times, key=times.__getitem__)
    return {
        "library": library, "shape": shape, "axis": axis, "dtype": dtype, "auto": chosen.backend, "best": best,
        "regret": times[chosen.backend] / times[best] - 1, "seconds": {k: float(f"{v:.4g}") for k, v in times.items()},
    }  # fmt: skip


def eligible_names(problem: Any) -> list[tuple[str, float | None]]:
    return [(entry.name, seconds) for entry, seconds in eligible(problem)]


def too_slow(name: str, shape: tuple[int, int], axis: int, seconds: float | None) -> bool:
    """Loops in Python over rows, or calls of LAPACK for each system, that would take minutes."""
    rows = shape[axis]
    steps = rows * 3e-5 if name in ("numpy_thomas", "torch_thomas") else 0.0
    return steps + (0.0 if seconds is None else min(seconds, steps or seconds)) > SLOW


def call(name: str, library: str, given: list[Any], axis: int) -> Callable[[], Any]:
    if library != "jax":
        return lambda: tridiag.solve(*given, axis=axis, backend=name)
    compiled = jax.jit(lambda *x: tridiag.solve(*x, axis=axis, backend=name))
    return lambda: compiled(*given).block_until_ready()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    kind = "tuned" if measurements.known().origin == measurements.HERE else "shipped"
    rng = np.random.default_rng(options.seed)
    points = [point(*draw(rng)) for _ in track(range(options.points), description="points")]
    regrets = [one["regret"] for one in points]
    mean, worst = float(np.mean(regrets)), float(np.max(regrets))
    record = conditions() | {"costs": measurements.known().origin, "seed": options.seed, "mean": mean, "worst": worst}
    record["points"] = points
    path = options.json or RESULTS / f"regret_{kind}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    for one in sorted(points, key=lambda one: -one["regret"])[:8]:
        print({key: value for key, value in one.items() if key != "seconds"})
    print(f"{kind}: mean {100 * mean:.1f} % (at most {100 * MEAN[kind]:.0f}), worst {100 * worst:.0f} % (at most 50)")
    return int(mean > MEAN[kind] or worst > WORST)


if __name__ == "__main__":
    sys.exit(main())
