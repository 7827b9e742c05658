"""The speed of `tridiag` on the CPU: every figure that is promised, against its bar.

    python benchmarks/cpu.py [--only NAME]... [--rounds N] [--json FILE]

`LINES` is the table: what is solved, and the bars, which name the contestants that run. ``--list`` prints the names of
the lines. How they are timed: `tridiag.benchmarking.race`. A stream moves the words that a solve has to read and write,
a, b, c, d and x, through a parallel loop in Numba, over the same arrays with as many threads; "past the caches" one
whose stores fetch no line that they overwrite. Systems are float64 and
diagonally dominant, ``pivoting`` is the default, "auto", and ``out`` is given, unless a line or a contestant says
otherwise; inside jit, outputs are fresh. The record of a whole run goes to ``benchmarks/results/cpu/``, a
file a processor.

Exits with 1 where a figure is short of its bar or an answer is wrong. Needs SciPy, JAX and rich; takes some minutes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bars import Bar, above, at_most, faster, microseconds, seconds, streams
from cpu_contestants import MAKERS
from cpu_problems import Problem, dominant, laplacian, steady, uniform
from lines import Line, run

RESULTS = Path(__file__).parent / "results" / "cpu"

ROWS, COLUMNS, MIDDLE = ((100_000, 100), -1), ((100, 100_000), 0), ((50, 100, 2000), 1)
UNKNOWNS = 10_000_000
SIZES = (4, 16, 64, 256, 1024, 10_000, 100_000)
DTYPES = ("float64", "float32")


def line(name: str, told: str, problem: Problem, *bars: Bar) -> Line:
    return Line(name, told, problem, bars)


def each_dtype(name: str, told: str, layout: Any, *bars: Bar, matrix: Any = dominant) -> list[Line]:
    return [line(f"{name}-{t}", f"{told}, {t}", Problem(*layout, t, matrix), *bars) for t in DTYPES]


def plain(name: str, told: str, layout: Any, limit: float) -> list[Line]:
    return [
        line(f"{name}-{t}", f"{told}, {t}", Problem(*layout, t), *streams(limit, "pivoting=False", LIMIT[t]))
        for t in DTYPES
    ]


def no_cliff(n: int) -> list[Line]:
    batch = UNKNOWNS // n
    return [
        line(f"1e7-rows-{n}", f"1e7 unknowns, ({batch}, {n}), axis=-1", Problem((batch, n)), *NO_CLIFF),
        line(f"1e7-columns-{n}", f"1e7 unknowns, ({n}, {batch}), axis=0", Problem((n, batch), 0), *NO_CLIFF),
    ]


def long(name: str, told: str, matrix: Any, limit: float, lapack: float) -> Line:
    bars = *streams(limit, "solve"), faster(lapack, "solve", "gtsv"), faster(None, "solve", IN_PLACE)
    return line(f"long-{name}", f"one system, n = 1e7, {told}", Problem((UNKNOWNS,), matrix=matrix), *bars)


NO_CLIFF = streams(2, "solve")
PLAIN_ROWS, PLAIN_COLUMNS = 1.30, 1.15  # streams
LIMIT = {"float64": 1.15, "float32": 1.25}  # of what the machine can do: streams past the caches
AUTO, AUTO_PIVOTS = (at_most(limit, "solve", "pivoting=False") for limit in (1.10, 2.5))
PIVOTED = at_most(1.25, "pivoting=True", "pivoting=False")
SHARED = streams(1.4, "solve", stream="stream of 2 words")
# What the first solve imports counts; importing tridiag and NumPy, before it, is told beside it.
WARM, WITH_IMPORT = seconds(0.5, "first solve, warm cache"), seconds(None, "import and first solve, warm cache")
LAX = "jit: lax.linalg.tridiagonal_solve"
IN_PLACE = "gtsv, in place"
FRESH = "solve, fresh output"
BANDED = "scipy.linalg.solve_banded"
NO_SYSTEM = Problem(())  # the process makes its own
IN_JAX = Problem(*ROWS, library="jax")

LINES = [
    *plain("rows", "(100 000, 100), axis=-1", ROWS, PLAIN_ROWS),
    *plain("columns", "(100, 100 000), axis=0", COLUMNS, PLAIN_COLUMNS),
    *plain("middle", "(50, 100, 2000), axis=1", MIDDLE, PLAIN_COLUMNS),
    *each_dtype("auto-rows", 'pivoting="auto", dominant, axis=-1', ROWS, AUTO),
    *each_dtype("auto-columns", 'pivoting="auto", dominant, axis=0', COLUMNS, AUTO),
    *each_dtype("uniform-rows", 'pivoting="auto", uniform(-1, 1), axis=-1', ROWS, AUTO_PIVOTS, matrix=uniform),
    *each_dtype("uniform-columns", 'pivoting="auto", uniform(-1, 1), axis=0', COLUMNS, AUTO_PIVOTS, matrix=uniform),
    line(
        "uniform-jit",
        'pivoting="auto", uniform(-1, 1), inside jit',
        replace(IN_JAX, matrix=uniform),
        faster(5, "jit: solve", LAX),
    ),
    *each_dtype("pivoted-rows", "pivoting=True, uniform(-1, 1), axis=-1", ROWS, PIVOTED, matrix=uniform),
    *each_dtype("pivoted-columns", "pivoting=True, uniform(-1, 1), axis=0", COLUMNS, PIVOTED, matrix=uniform),
    *(one for n in SIZES for one in no_cliff(n)),
    long("decaying", "decaying couplings", dominant, 1.8, 12),
    long("laplacian", "Laplacian", laplacian, 2.8, 8),
    long("pivots", "random, needs pivots", uniform, 4.5, 7),
    line("shared-rows", "one matrix, 1000 right sides, axis=-1", Problem((1000, 10_000), shared=True), *SHARED),
    line("shared-columns", "one matrix, 1000 right sides, axis=0", Problem((10_000, 1000), 0, shared=True), *SHARED),
    line("factor", "factor(a, b, c).solve(d)", Problem(*ROWS), *streams(1.2, "factor(...).solve")),
    line("periodic", "periodic, (100 000, 100)", Problem(*ROWS), at_most(1.6, "periodic", "solve")),
    line(
        "jit-fresh",
        "inside jit, (100 000, 100)",
        IN_JAX,
        at_most(0.6, "jit: solve", "jit: a+b+c+d"),
        faster(9, "jit: solve", LAX),
        faster(7, "jit: solve", "jit: lax.scan Thomas"),
    ),
    line(
        "jit-donated",
        "inside jit, d overwritten and donated",
        IN_JAX,
        *streams(1.35, "jit: solve, d donated"),
        faster(13, "jit: solve, d donated", LAX),
    ),
    line(
        "jit-loop",
        "inside jit, a loop that overwrites d",
        replace(IN_JAX, matrix=steady),
        *streams(1.4, "jit: a step of fori_loop"),
    ),
    line(
        "gradient",
        "value and gradients of a, b, c, d inside jit",
        IN_JAX,
        at_most(1.0, "jit: value_and_grad", "jit: a sum and four arrays"),
    ),
    line("small-out", "one system, n = 64", Problem((64,)), at_most(0.5, "solve", BANDED), microseconds("solve")),
    line(
        "small-fresh",
        "one system, n = 64, fresh output",
        Problem((64,)),
        at_most(0.5, FRESH, BANDED),
        microseconds(FRESH),
    ),
    line(
        "small-jit",
        "one system, n = 64, inside jit",
        Problem((64,), library="jax"),
        above(2, "jit: solve", "jit: a+b+c+d"),
    ),
    line("threads", "(5 000, 100), 1 thread to 2", Problem((5_000, 100)), faster(1.8, "2 threads", "1 thread")),
    line("first-warm", "first solve in a new process", NO_SYSTEM, WARM, WITH_IMPORT),
    line("first-cold", "first solve in a new process", NO_SYSTEM, seconds(10, "first solve, cold cache")),
]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
