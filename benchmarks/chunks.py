"""Dask arrays whose system axis is cut into 8 chunks, against chunks with whole systems and against rechunking first.

    python benchmarks/chunks.py [--systems N --rows N --batch N] [--rounds N] [--peaks N] [--threads N]
                                [--processes N] [--json FILE]

``cut``: 8 chunks along the axis, ``--batch`` beside it, each of ``--systems`` times ``--rows`` float64; where no size
is given chunks of 131 thousand entries, 64 beside the axis, and of a million, 8 beside it. ``whole``: as many chunks of
the same size, each with whole systems. ``rechunked``: the arrays of ``cut``, with one chunk along the axis, first.
``copied``: the floor, written by hand: a task for each chunk of ``cut`` that copies the right side, one that waits for
all chunks of a system, and one for each chunk of the result. All operands have entries of their own, in memory; results
are dropped chunk by chunk. Rounds are shuffled, figures are ratios of medians, answers are judged before the clock.
With ``--processes`` a cluster of so many on this machine runs the tasks, one thread each, instead of ``--threads`` in
one process. Figures without a bar are for comparison: ``rechunked / whole`` is what ``rechunked / cut`` would be if a
cut cost nothing, and ``floor`` and ``memory`` are what the others hold where ``peak`` is measured.

``twice``: chunks that are let go once solved, and solved again when all of their system are known (`tridiag.hold` of
Dask's configuration); the time is that of right sides that tasks make.

``peak``: what is allocated at once, in chunks of d for each thread, where operands are made by tasks: d alone, and a, b
and c are one matrix for all, or all four of them; the median of ``--peaks`` runs. The array is 20 times the chunks of a
system. The record of all sizes goes to ``benchmarks/results/chunks/``, a file a processor. Exits with 1 where a figure
is short of its bar or an answer is wrong. Needs Dask.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph
from lines import file_name

import tridiag
from tridiag.benchmarking.conditions import conditions

RESULTS = Path(__file__).parent / "results" / "chunks"
CUTS = 8
BARS = {"cut / whole": 1.3, "rechunked / cut": 2.0, "peak": 4.0}
LOWER = ("cut / whole", "peak")  # is better
Verb = Callable[..., Any]


class Size(NamedTuple):
    """Of a chunk, and how many lie beside the axis."""

    systems: int
    rows: int
    batch: int


SIZES = Size(64, 2048, 64), Size(512, 2048, 8)


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


def copied(*blocks: Any) -> Any:
    return blocks[-1].copy()


def corner_of(k: int, system: Any) -> Any:
    return corner(system[k])


def copies(*operands: Any) -> Any:
    """The floor: chunks of the last operand, copied beside all others and kept until those of their system are there.

    Of each chunk one number is left, as of `dropped`.
    """
    name, batch = f"copied-{dask.base.tokenize(*operands)}", operands[-1].numblocks[0]
    graph: dict[Any, Any] = {}
    for j in range(batch):
        keys = [(f"copy-{name}", j, k) for k in range(CUTS)]
        graph.update({key: (copied, *((x.name, *key[1:]) for x in operands)) for key in keys})
        graph[(f"system-{name}", j)] = (list, keys)
        graph.update({(name, j, k): (corner_of, k, (f"system-{name}", j)) for k in range(CUTS)})
    layers = HighLevelGraph.from_collections(name, graph, dependencies=operands)
    return da.Array(layers, name, ((1,) * batch, (1,) * CUTS), meta=np.empty((0, 0)))


def contestants(verb: Verb, systems: int, rows: int, batch: int) -> dict[str, Any]:
    """Lazy results, dropped, by the names of the contestants."""
    cut = operands(verb.__name__, (systems, rows), (batch, CUTS))
    whole = operands(verb.__name__, (systems // CUTS, rows * CUTS), (batch * CUTS, 1))
    results = {"cut": verb(*cut), "whole": verb(*whole), "rechunked": verb(*(x.rechunk({1: -1}) for x in cut))}
    return {"copied": copies(*cut), **{name: dropped(y) for name, y in results.items()}}


def judge(verb: Verb, systems: int, rows: int) -> None:
    """A wrong answer has no time."""
    cut = operands(verb.__name__, (systems, rows), (2, CUTS))
    wanted = verb(*(x.compute() for x in cut))
    error = abs(verb(*cut).compute() - wanted).max() / abs(wanted).max()
    if not error < 1e-12:
        raise SystemExit(f"{verb.__name__} of chunks is wrong: relative error {error:.1e}")


def race(results: dict[str, Any], rounds: int, threads: int) -> dict[str, float]:
    """Medians of shuffled rounds."""
    calls = {name: functools.partial(y.compute, num_workers=threads) for name, y in results.items()}
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
    return np.full((systems, rows), block.mean())


def solved(*operands: Any) -> Any:
    """Results, dropped, of matrices that are given, or of one for all."""
    d = operands[-1]
    matrix = operands[:-1] or (-1.0, np.full(d.shape[1], 4.0), -1.0)
    return dropped(tridiag.solve(*matrix, d))


def solved_twice(*operands: Any) -> Any:
    """The same, of chunks that are not held until all of a system are known."""
    with dask.config.set({"tridiag.hold": 0}):
        return solved(*operands)


def solved_rechunked(*operands: Any) -> Any:
    """The same, with one chunk along the axis first."""
    return solved(*(x.rechunk({1: -1}) for x in operands))


def tasks_make(systems: int, rows: int, whole: bool = False, own: bool = False) -> list[Any]:
    """Right sides of 20 chunks of the batch, and where each system has a matrix of its own a, b and c."""
    shape, counts = ((systems // CUTS, rows * CUTS), (20 * CUTS, 1)) if whole else ((systems, rows), (20, CUTS))
    chunks = tuple((length,) * count for length, count in zip(shape, counts, strict=True))

    def lazy(value: float) -> Any:
        seeds = da.full(counts, value, chunks=1)
        return da.map_blocks(made, seeds, *shape, chunks=chunks, dtype=float, meta=np.empty((0, 0)))

    return [lazy(x) for x in ((-1.0, 4.0, -1.0, 2.0) if own else (2.0,))]


def peak(solve: Verb, systems: int, rows: int, threads: int, whole: bool = False, own: bool = False) -> float:
    """The most memory at once, in chunks for each thread."""
    y = solve(*tasks_make(systems, rows, whole, own))
    y.compute(num_workers=threads)
    tracemalloc.start()
    y.compute(num_workers=threads)
    found = tracemalloc.get_traced_memory()[1] / (8 * systems * rows) / threads
    tracemalloc.stop()
    return found


def measure(size: Size, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a size, and the microseconds of a chunk."""
    found: dict[str, Any] = {"size": size._asdict(), "figures": {}, "microseconds a chunk": {}}
    figures = found["figures"]
    for verb in (tridiag.solve, tridiag.linear_recurrence, tridiag.logcumsumexp):
        judge(verb, size.systems, size.rows)
        seconds = race(contestants(verb, *size), options.rounds, options.threads)
        figures[f"{verb.__name__}: cut / whole"] = seconds["cut"] / seconds["whole"]
        for others in ("cut", "whole", "copied"):
            figures[f"{verb.__name__}: rechunked / {others}"] = seconds["rechunked"] / seconds[others]
        each = {name: round(1e6 * some / (CUTS * size.batch), 1) for name, some in seconds.items()}
        found["microseconds a chunk"][verb.__name__] = each
    if not options.processes:
        made = tasks_make(size.systems, size.rows)
        seconds = race({"held": solved(*made), "twice": solved_twice(*made)}, options.rounds, options.threads)
        figures["solve: twice / held"] = seconds["twice"] / seconds["held"]
        figures.update(peaks(size, options))
    return found


def peaks(size: Size, options: argparse.Namespace) -> dict[str, float]:
    """Medians of runs that take turns."""
    found: dict[str, list[float]] = {}
    for _ in range(options.peaks):
        for matrices, own in {"": False, ", own matrices": True}.items():
            for name, solve, whole in (
                ("solve{}: peak", solved, False),
                ("solve{}, twice: peak", solved_twice, False),
                ("solve{}, whole systems: peak", solved, True),
                ("rechunked{}: memory", solved_rechunked, False),
                ("copied{}: floor", copies, False),
            ):
                one = peak(solve, size.systems, size.rows, options.threads, whole=whole, own=own)
                found.setdefault(name.format(matrices), []).append(one)
    return {name: statistics.median(some) for name, some in found.items()}


def missed(figures: dict[str, float]) -> list[str]:
    """The figures that are short of their bars; all are printed."""
    short = []
    for name, figure in figures.items():
        kind = name.rpartition(": ")[2]
        if kind not in BARS:
            print(f"{name:41} {figure:6.2f}")
            continue
        good = figure <= BARS[kind] if kind in LOWER else figure >= BARS[kind]
        short += [] if good else [name]
        print(f"{name:41} {figure:6.2f}   bar {BARS[kind]:g}{'' if good else ', missed'}")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in Size._fields:
        parser.add_argument(f"--{name}", type=int)
    for name, value in {"rounds": 9, "peaks": 5, "threads": 2, "processes": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    given = [getattr(options, name) for name in Size._fields]
    some = any(n is not None for n in given)
    first = Size(*(n or usual for n, usual in zip(given, SIZES[0], strict=True)))
    record: dict[str, Any] = {**conditions(), "dask": dask.__version__, "workers": options.threads, "sizes": []}
    for size in (first,) if some else SIZES:
        if options.processes:
            from distributed import Client

            cluster = {"n_workers": options.processes, "threads_per_worker": 1, "dashboard_address": None}
            with Client(**cluster):
                found = measure(size, options)
        else:
            found = measure(size, options)
        record["sizes"].append({**found, "short": missed(found["figures"])})
    path = options.json or (None if some or options.processes else RESULTS / f"{file_name(record)}.json")
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(found["short"] for found in record["sizes"]) else 0


if __name__ == "__main__":
    sys.exit(main())
