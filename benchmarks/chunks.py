"""Dask arrays whose system axis is cut into 8 chunks, against chunks with whole systems and against rechunking first.

    python benchmarks/chunks.py [--systems N] [--rows N] [--batch N] [--rounds N] [--threads N] [--processes N]

``cut``: 8 chunks along the axis, 64 beside it, each of ``--systems`` times ``--rows`` float64. ``whole``: as many
chunks of the same size, each with whole systems. ``rechunked``: the arrays of ``cut``, brought to 64 chunks first. All
operands have entries of their own, in memory; results are dropped chunk by chunk. Rounds are shuffled, figures are
ratios of medians, answers are judged before the clock. With ``--processes`` a cluster of so many on this machine runs
the tasks, one thread each, instead of ``--threads`` in one process.

``peak``: what is allocated at once, in chunks of d for each thread, where d is made by tasks and a, b and c are one
matrix for all. The array is 20 times the chunks of a system. Exits with 1 where a figure is short of its bar
or an answer is wrong. Needs Dask.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

import tridiag

CUTS = 8
BARS = {"cut / whole": 1.3, "rechunked / cut": 2.0, "peak": 4.0}
LOWER = ("cut / whole", "peak")  # is better
Verb = Callable[..., Any]


def entries(seed: Any, shape: tuple[int, int], low: float, high: float) -> Any:
    return np.random.default_rng(seed.item()).uniform(low, high, shape)


def operand(number: int, shape: tuple[int, int], counts: tuple[int, int], bounds: tuple[float, float]) -> Any:
    """A Dask array whose blocks are in memory, of the workers if there are some."""
    seeds = da.arange(counts[0] * counts[1], chunks=1).reshape(counts) + number * 10**6
    chunks = tuple((length,) * count for length, count in zip(shape, counts, strict=True))
    lazy = da.map_blocks(entries, seeds, shape, *bounds, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    return lazy.persist()


def operands(verb: str, shape: tuple[int, int], counts: tuple[int, int]) -> list[Any]:
    bounds = {"solve": ((-1, 1), (3, 4), (-1, 1), (-1, 1)), "linear_recurrence": ((-1, 1), (-1, 1))}
    return [operand(k, shape, counts, some) for k, some in enumerate(bounds.get(verb, ((-1, 1),)))]


def corner(x: Any) -> Any:
    return x[:1, :1].copy()


def dropped(y: Any) -> Any:
    """A result of which each chunk leaves one number."""
    return y.map_blocks(corner, dtype=float, chunks=tuple((1,) * len(some) for some in y.chunks), meta=np.empty((0, 0)))


def contestants(verb: Verb, systems: int, rows: int, batch: int) -> dict[str, Any]:
    """Lazy results, by the names of the contestants."""
    cut = operands(verb.__name__, (systems, rows), (batch, CUTS))
    whole = operands(verb.__name__, (systems // CUTS, rows * CUTS), (batch * CUTS, 1))
    return {"cut": verb(*cut), "whole": verb(*whole), "rechunked": verb(*(x.rechunk({1: -1}) for x in cut))}


def judge(verb: Verb, systems: int, rows: int) -> None:
    """A wrong answer has no time."""
    cut = operands(verb.__name__, (systems, rows), (2, CUTS))
    wanted = verb(*(x.compute() for x in cut))
    error = abs(verb(*cut).compute() - wanted).max() / abs(wanted).max()
    if not error < 1e-12:
        raise SystemExit(f"{verb.__name__} of chunks is wrong: relative error {error:.1e}")


def race(results: dict[str, Any], rounds: int, threads: int) -> dict[str, float]:
    """Medians of shuffled rounds."""
    calls = {name: functools.partial(dropped(y).compute, num_workers=threads) for name, y in results.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    rng = np.random.default_rng(0)
    for turn in range(rounds + 1):
        for name in rng.permutation(list(calls)):
            start = time.perf_counter()
            calls[name]()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(some) for name, some in seconds.items()}


def made(block: Any, systems: int, rows: int) -> Any:
    return np.full((systems, rows), 1.0 + block.mean())


def peak(systems: int, rows: int, threads: int, whole: bool) -> float:
    """The most memory at once, in chunks for each thread."""
    shape, counts = ((systems // CUTS, rows * CUTS), (20 * CUTS, 1)) if whole else ((systems, rows), (20, CUTS))
    seeds = da.ones(counts, chunks=1)
    chunks = tuple((length,) * count for length, count in zip(shape, counts, strict=True))
    d = da.map_blocks(made, seeds, *shape, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    y = dropped(tridiag.solve(-1.0, np.full(rows * CUTS, 4.0), -1.0, d))
    y.compute(num_workers=threads)
    tracemalloc.start()
    y.compute(num_workers=threads)
    found = tracemalloc.get_traced_memory()[1] / (8 * systems * rows) / threads
    tracemalloc.stop()
    return found


def measure(options: argparse.Namespace) -> dict[str, float]:
    """All figures."""
    found = {}
    for verb in (tridiag.solve, tridiag.linear_recurrence, tridiag.logcumsumexp):
        judge(verb, options.systems, options.rows)
        seconds = race(contestants(verb, options.systems, options.rows, options.batch), options.rounds, options.threads)
        found[f"{verb.__name__}: cut / whole"] = seconds["cut"] / seconds["whole"]
        found[f"{verb.__name__}: rechunked / cut"] = seconds["rechunked"] / seconds["cut"]
    if options.processes:
        return found
    found["solve: peak"] = peak(options.systems, options.rows, options.threads, False)
    found["solve, whole systems: peak"] = peak(options.systems, options.rows, options.threads, True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"systems": 64, "rows": 2048, "batch": 64, "rounds": 7, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--processes", type=int, default=0)
    options = parser.parse_args()
    if options.processes:
        from distributed import Client

        cluster = {"n_workers": options.processes, "threads_per_worker": 1, "dashboard_address": None}
        with Client(**cluster):
            found = measure(options)
    else:
        found = measure(options)
    short = []
    for name, figure in found.items():
        kind = name.rpartition(": ")[2]
        good = figure <= BARS[kind] if kind in LOWER else figure >= BARS[kind]
        short += [] if good else [name]
        print(f"{name:32} {figure:6.2f}   bar {BARS[kind]:g}{'' if good else ', missed'}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
