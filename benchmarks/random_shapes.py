"""Every verb on shapes that nobody tuned on, against what a user would write or call himself.

    python benchmarks/random_shapes.py [--seed K] [--shapes N] [--only VERB]... [--views] [--json FILE]

For each verb shapes are drawn by their logarithms, 20 to 3e6 values in all, float32 or float64. Contestants are the
loops of `plain_loops`, on one thread and on as many as `tridiag` takes, and SciPy, NumPy or PyTorch where they have the
verb; inside jit what `jax.lax` has. All get operands and, where they take one, ``out``. Answers are judged before the
clock. A figure is our time over that of the best of the others: the geometric mean over the shapes, the worst of those
that take 10 us or more, by how many microseconds the worst of the shorter ones is behind, and how many are behind by
more than a tenth. The floor is the geometric mean of one who takes as long as an empty call, and no less than adding up
the operands by a plain loop, on one thread or several; in jit as long as an empty program and that loop together.
With ``--views`` operands and results lie in memory as views do, in one of seven ways each; the floor is an empty call.
The ten worst shapes of all are told by name.

The record goes to ``benchmarks/results/random_shapes/``, a file a processor and seed. Exits with 1 where a figure is
short of its bar, or an answer is wrong. Needs SciPy, PyTorch, JAX and rich.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import random_verbs
from lines import file_name
from random_verbs import EMPTY, FLOORS, IN_JIT, OF_VIEWS, PARALLEL_STREAM, STREAM, VERBS, Problem
from rich.console import Console
from rich.progress import track
from rich.table import Table
from short_race import race

from tridiag.benchmarking.conditions import conditions

RESULTS = Path(__file__).parent / "results" / "random_shapes"
OURS = "tridiag"
LONG = 10e-6  # seconds: from here on ratios count, below differences
BEHIND = 1.1  # times slower: a shape that is lost
WORST = 10  # shapes that are told


class Bars(NamedTuple):
    mean: float
    worst: float  # of those that take LONG or more
    behind: float  # microseconds, of the others


BARS = {False: Bars(0.6, 1.25, 4.0), True: Bars(0.25, 1.1, 4.0)}  # in jit or not


def point(problem: Problem) -> dict[str, Any]:
    """The times of all contestants for a problem whose answers are right; ours has to be."""
    right, contestants = {}, dict(problem.contestants)
    floors = race({name: contestants.pop(name) for name in FLOORS if name in contestants}, FLOORS)
    for name, contestant in contestants.items():
        error = problem.error(contestant())
        if error <= problem.limit:
            right[name] = contestant
        elif name == OURS:
            raise SystemExit(f"{problem}: {name} has an error of {error:.3g} eps, of {problem.limit:.3g} allowed")
    times = race(right, {OURS})
    others = {name: seconds for name, seconds in times.items() if name != OURS}
    best = min(others, key=others.__getitem__)
    return {
        "problem": str(problem), "seconds": rounded(times[OURS]), "best": best, "of the best": rounded(times[best]),
        "ratio": rounded(times[OURS] / times[best]), "others": {k: rounded(v) for k, v in (others | floors).items()},
    }  # fmt: skip


def rounded(x: float) -> float:
    return float(f"{x:.4g}")


def figures(points: list[dict[str, Any]], in_jit: bool) -> dict[str, float]:
    ratios = np.array([one["ratio"] for one in points])
    long = [one["ratio"] for one in points if max(one["seconds"], one["of the best"]) >= LONG]
    short = [one["seconds"] - one["of the best"] for one in points if max(one["seconds"], one["of the best"]) < LONG]
    floors = [floor(one["others"], in_jit) / one["of the best"] for one in points]
    return {
        "geometric mean": mean(ratios),
        "floor": mean(floors),
        "worst": rounded(max(long, default=0.0)),
        "microseconds behind": rounded(1e6 * max(short, default=0.0)),
        "lost": rounded(float((ratios > BEHIND).mean())),
    }


def floor(others: dict[str, float], in_jit: bool) -> float:
    """The time of the empty call or of the fastest stream, whichever is longer; of a program, both."""
    stream = min((others[name] for name in (STREAM, PARALLEL_STREAM) if name in others), default=0.0)
    return others[EMPTY] + stream if in_jit else max(others[EMPTY], stream)


def mean(ratios: Any) -> float:
    """The geometric one."""
    return rounded(float(np.exp(np.log(ratios).mean())))


def short_of(found: dict[str, float], bars: Bars) -> bool:
    names = "geometric mean", "worst", "microseconds behind"
    return any(found[name] > bar for name, bar in zip(names, bars, strict=True))


def show(records: list[dict[str, Any]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 180)
    table = Table("verb", "geometric mean", "floor", "worst", "us behind", "lost", "shapes", "")
    for record in records:
        cells = [f"{record[name]:.2f}" for name in ("geometric mean", "floor", "worst", "microseconds behind")]
        bar = "/".join(f"{bar:g}" for bar in BARS[record["in jit"]])
        verdict = f"[red]short of {bar}" if record["short"] else "[green]pass"
        table.add_row(record["verb"], *cells, f"{100 * record['lost']:.0f} %", str(len(record["points"])), verdict)
    console.print(table)
    points = [one for record in records for one in record["points"]]
    for one in sorted(points, key=lambda one: -one["ratio"])[:WORST]:
        ours, best = 1e6 * one["seconds"], 1e6 * one["of the best"]
        console.print(f"{one['ratio']:.2f}  {one['problem']}: {ours:.1f} us, {one['best']} {best:.1f}", highlight=False)


def measure(verb: str, seed: int, shapes: int) -> dict[str, Any]:
    in_jit = verb in IN_JIT
    rng = np.random.default_rng([seed, *verb.encode()])
    drawn = (VERBS | IN_JIT)[verb]
    points = [point(drawn(rng)) for _ in track(range(shapes), description=verb, console=Console(stderr=True))]
    found = figures(points, in_jit)
    return {"verb": verb, "in jit": in_jit, **found, "short": short_of(found, BARS[in_jit]), "points": points}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=int, default=100, help="of each verb (default 100)")
    parser.add_argument("--only", action="append", metavar="VERB", help="a verb, or a pattern; may be repeated")
    parser.add_argument("--json", type=Path, help="where the record goes")
    parser.add_argument("--list", action="store_true", help="print the names of the verbs, and stop")
    parser.add_argument("--views", action="store_true", help="operands and results that are not contiguous")
    options = parser.parse_args(arguments)
    random_verbs.views = options.views
    known = OF_VIEWS if options.views else (*VERBS, *IN_JIT)
    verbs = [verb for verb in known if any(fnmatch.fnmatchcase(verb, p) for p in options.only or "*")]
    if not verbs:
        parser.error("no verb has such a name; --list prints them all")
    if options.list:
        print("\n".join(verbs))
        return 0
    records = [measure(verb, options.seed, options.shapes) for verb in verbs]
    show(records)
    here = conditions()
    path = options.json or (
        None if options.only else RESULTS / f"{file_name(here)}{'_views' * options.views}_{options.seed}.json"
    )
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(here | {"seed": options.seed, "verbs": records}, indent=1) + "\n")
    return int(any(record["short"] for record in records))


if __name__ == "__main__":
    sys.exit(main())
