"""The speed of `tridiag` on a GPU: every figure that is promised, against its bar.

    python benchmarks/gpu.py [--only NAME]... [--seconds S] [--folder FOLDER]

`LINES` is the table, shortest problems first. Speeds are ratios to a copy on the device that moves the same bytes: five
words for each unknown, read and written together, or the nine that a single long system has to move; three for each
value of a recurrence, two of logcumsumexp, and of alignments one for each cell, or two with the gradient. Times are
those of events on the device (JAX: of the host, around many calls), medians over rounds in which the contestants
alternate; an answer is judged before it is timed. Each figure is written as soon as it is there, to ``gpu.json`` and to
the table ``gpu.md`` in ``benchmarks/results`` or FOLDER. Where the time is up, the same command goes on later: lines
that have figures of the same commit, versions and device are not measured again.

On the stand-in for CuPy of the tests it is a rehearsal, of tiny problems (``benchmarks/gpu_lab.sh bench --rehearse``).
Exits with 1 where a figure is short of its bar or an answer is wrong. Needs CuPy; JAX for what is compared with it.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the memory is CuPy's as well

import cupy  # noqa: E402
from bars import Bar, at_most, faster  # noqa: E402
from gpu_contestants import BACKENDS_TIMED, MAKERS, REHEARSAL, Problem  # noqa: E402
from gpu_more import GAPS, BlockProblem, PairProblem, SeriesProblem  # noqa: E402
from lines import Line, add_choice, measure, picked  # noqa: E402

import tridiag  # noqa: E402
from tridiag.backends import KALMAN  # noqa: E402
from tridiag.benchmarking.conditions import conditions  # noqa: E402

BUDGET = 2.0  # seconds of timing for a line
ROUNDS = 11
LAYOUTS = {"rows": (lambda systems, n: (systems, n), -1), "columns": (lambda systems, n: (n, systems), 0)}
DTYPES = ("float64", "float32")
SMALL = ((2048, 32), (2048, 256), (16_384, 100))
LARGE = (
    *((131_072, 32), (1_000_000, 32), (100_000, 100), (1_000_000, 100), (16_384, 256), (131_072, 256)),
    *((1_000_000, 256), (4096, 1024), (16_384, 1024), (131_072, 1024), (2048, 4096), (16_384, 4096), (131_072, 4096)),
)
USUAL = (100_000, 100)
LONG = 100_000_000

# 80 % of the bandwidth of the copy, never under half of it; what is small may take twice as long
LARGE_BARS = at_most(1.25, "pivoting=False", "copy"), at_most(2, "pivoting=False", "copy")
SMALL_BARS = (at_most(2, "pivoting=False", "copy"),)
PROMISES = at_most(1.1, "solve", "pivoting=False"), at_most(1.5, "pivoting=True", "pivoting=False")
AGAINST = (  # what, a word for it, the layouts, the bar
    ("cusparse_interleaved", "interleaved", ("rows", "columns"), 1.5),
    ("cusparse_strided", "strided", ("rows",), 3),
    ("jax: lax.linalg.tridiagonal_solve", "lax", ("rows",), 3),
    ("jax: lax.scan Thomas", "scan", ("rows",), 50),
)
# words that a value of a recurrence moves; many side by side, many rows, few long ones
RECURRENCES = {"linear_recurrence": 3, "logcumsumexp": 2}
SEQUENCES = ((100_000, 100), (1000, 10_000), (4, 10_000_000))
MATRICES = {"slogdet": 3, "factor": 9}  # words a row: with the copies of the matrices
BLOCKS = ((100_000, 100, 2), (50_000, 50, 4), (20_000, 25, 8), (200, 1000, 4))  # systems, block rows, rows of a block
SERIES = ((100_000, 100, 1), (100_000, 100, 2), (100_000, 100, 4), (20_000, 100, 8))  # series, steps, states
PAIRS = ((100_000, 100, 100), (1000, 500, 500))  # pairs, rows, columns
BY_NAME = ("jax_pallas", "triton_thomas")  # at 60 % of the copy or better
# the same kernels inside JAX and PyTorch
IN_OTHERS = {
    "jax": (
        at_most(1.1, "jax: solve", "solve"),
        faster(3, "jax: solve", "jax: lax.linalg.tridiagonal_solve"),
        faster(50, "jax: solve", "jax: lax.scan Thomas"),
    ),
    "jax-gradient": (at_most(3.2, "jax: solve and gradient", "jax: solve"),),
    "torch-compiled": (at_most(1.1, "torch: compiled solve and gradient", "torch: solve and gradient"),),
}


def line(name: str, told: str, layout: str, systems: int, n: int, dtype: str, bars: tuple[Bar, ...]) -> Line:
    shape, axis = LAYOUTS[layout]
    where = f"{systems} systems of {n} rows, {layout}, {dtype}"
    return Line(f"{name}-{layout}-{dtype}", f"{told}{where}", Problem(shape(systems, n), axis, dtype), bars)


def lines() -> list[Line]:
    found = [
        line(f"plain-{systems}x{n}", "", layout, systems, n, dtype, bars)
        for shapes, bars in ((SMALL, SMALL_BARS), (LARGE, LARGE_BARS))
        for (systems, n), layout, dtype in itertools.product(shapes, LAYOUTS, DTYPES)
    ]
    for layout, dtype in itertools.product(LAYOUTS, DTYPES):
        found.append(line("promises", "", layout, *USUAL, dtype, PROMISES))
        for name in BACKENDS_TIMED:
            found.append(line(f"backend-{name}", "", layout, *USUAL, dtype, (at_most(None, name, "copy"),)))
        for name in BY_NAME:
            found.append(line(f"backend-{name}", "", layout, *USUAL, dtype, (at_most(1 / 0.6, name, "copy"),)))
    for name, word, layouts, limit in AGAINST:
        for layout in layouts:
            found.append(line(f"against-{word}", "", layout, *USUAL, "float64", (faster(limit, "solve", name),)))
    for (layout, dtype), (word, bars) in itertools.product(itertools.product(LAYOUTS, DTYPES), IN_OTHERS.items()):
        found.append(line(word, "", layout, *USUAL, dtype, bars))
    for (verb, words), (count, n), layout, dtype in itertools.product(RECURRENCES.items(), SEQUENCES, LAYOUTS, DTYPES):
        shape, axis = LAYOUTS[layout]
        told = f"{verb}, {count} sequences of {n} rows, {layout}, {dtype}"
        name = f"{verb}-{count}x{n}-{layout}-{dtype}"
        bars = (at_most(1.25, verb, f"copy of {words} words"),)
        found.append(Line(name, told, Problem(shape(count, n), axis, dtype), bars))
    found += others()
    for dtype, pivoting in itertools.product(DTYPES, ("solve", "pivoting=False")):
        bars = (at_most(3 if dtype == "float64" else None, pivoting, "copy of 9 words"),)
        word = "auto" if pivoting == "solve" else "plain"
        found.append(
            Line(f"long-{word}-{dtype}", f"one system of 1e8 rows, {dtype}", Problem((LONG,), -1, dtype), bars)
        )
    return sorted(found, key=lambda one: one.problem.bytes_needed)


def others() -> list[Line]:
    """Kernels of which no bar is promised."""
    found = []
    for (verb, words), layout, dtype in itertools.product(MATRICES.items(), LAYOUTS, DTYPES):
        bars = (at_most(None, verb, f"copy of {words} words"),)
        found.append(line(verb, f"{verb}, ", layout, *USUAL, dtype, bars))
    for (systems, n, rows), dtype in itertools.product(BLOCKS, DTYPES):
        problem = BlockProblem((systems, n), -1, dtype, rows)
        told = f"{systems} block tridiagonal systems of {n} blocks of {rows} rows, {dtype}"
        bars = (at_most(None, "solve_block", f"copy of {problem.words} words"),)
        found.append(Line(f"solve_block-{systems}x{n}x{rows}-{dtype}", told, problem, bars))
    for ((count, n, k), verb), dtype in itertools.product(itertools.product(SERIES, KALMAN), DTYPES):
        series = SeriesProblem((count, n), -1, dtype, k)
        told = f"{verb}, {count} series of {n} steps, {k} states, {dtype}"
        bars = (at_most(None, verb, f"copy of {series.words(verb)} words"),)
        found.append(Line(f"{verb}-{count}x{n}x{k}-{dtype}", told, series, bars))
    for (shape, gaps), dtype in itertools.product(itertools.product(PAIRS, GAPS), DTYPES):
        told = f"{shape[0]} pairs of {shape[1]} and {shape[2]}, {gaps} gaps, {dtype}"
        score = at_most(None, f"smith_waterman, {gaps}", "copy of 1 words")
        gradient = at_most(None, f"smith_waterman with gradient, {gaps}", "copy of 2 words")
        name = f"smith_waterman-{'x'.join(map(str, shape))}-{gaps}-{dtype}"
        found.append(Line(name, told, PairProblem(shape, -1, dtype), (score, gradient)))
    return found


LINES = lines()


def device() -> dict[str, Any]:
    found = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.get_device_id())
    free, total = cupy.cuda.Device().mem_info
    return {"name": found["name"].decode(), "memory": total, "free": free}


def measured(one: Line, free: int) -> dict[str, Any]:
    """The record of a line; its arrays are gone when it is there."""
    if not REHEARSAL and one.problem.bytes_needed > free:
        needed = one.problem.bytes_needed / 2**30
        return {"name": one.name, "problem": one.told, "missing": f"needs {needed:.0f} GiB of the device's memory"}
    own = one._replace(problem=replace(one.problem))
    record = measure(own, MAKERS, 2 if REHEARSAL else ROUNDS, REHEARSAL, BUDGET)
    del own
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    return record


def chosen(dtype: str, layout: str) -> str:
    """The backend that "auto" takes."""
    shape, axis = LAYOUTS[layout]
    return str(tridiag.explain("solve", *(cupy.ones(shape(64, 100), dtype) for _ in range(4)), axis=axis).backend)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_choice(parser)
    parser.add_argument("--seconds", type=float, default=540, help="no line begins later (default 540)")
    parser.add_argument("--folder", type=Path, default=HERE / "results", help="where the results go")
    options = parser.parse_args(arguments)
    return go_on(picked(parser, LINES, options), options.folder, options.seconds)


def go_on(wanted: list[Line], folder: Path, seconds: float) -> int:
    """Measure what has no figure yet, until the time is up."""
    start, run = time.perf_counter(), begun(folder / "gpu.json")
    done = {record["name"] for record in run["lines"] if "figures" in record}
    left = [one for one in wanted if one.name not in done]
    for k, one in enumerate(left):
        if time.perf_counter() - start > seconds:
            print(f"The time is up: {len(left) - k} lines are left; the same command goes on with them.")
            break
        print(f"{k + 1}/{len(left)} {one.name}", file=sys.stderr, flush=True)
        record = measured(one, int(0.9 * run["device"]["free"]))
        run["lines"] = [other for other in run["lines"] if other["name"] != one.name] + [record]
        write(folder, run)
    records = [record for record in run["lines"] if record["name"] in {one.name for one in wanted}]
    print(head(run) + table(records))
    verdicts = [figure["verdict"] for record in records for figure in record.get("figures", ())]
    return int(any("refused" in record for record in records) or ("short" in verdicts and not REHEARSAL))


def begun(path: Path) -> dict[str, Any]:
    """The record of a run that was cut off, if it was of this commit and device; else a new one."""
    run: dict[str, Any] = conditions() | {"device": device(), "rehearsal": REHEARSAL, "lines": []}
    run["chosen"] = {f"{layout}-{dtype}": chosen(dtype, layout) for layout in LAYOUTS for dtype in DTYPES}
    if path.exists():
        before = json.loads(path.read_text())
        same = all(before.get(key) == run[key] for key in ("commit", "rehearsal", "versions"))
        if same and before["device"]["name"] == run["device"]["name"]:
            run["lines"] = before["lines"]
    return run


def write(folder: Path, run: dict[str, Any]) -> None:
    """The record and its table; each replaces its file at once, so that neither is ever half written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("gpu.json", json.dumps(run, indent=1)), ("gpu.md", head(run) + table(run["lines"]))):
        scratch = folder / f".{name}"
        scratch.write_text(text + "\n")
        scratch.replace(folder / name)


def head(run: dict[str, Any]) -> str:
    told = "; a rehearsal on tiny systems: no figure counts" if REHEARSAL else ""
    return f"{run['device']['name']}, commit {run['commit']}{told}\n\n"


def table(records: list[dict[str, Any]]) -> str:
    rows = [("problem", "figure", "median", "quartiles", "bar", "verdict"), ("---",) * 6]
    for record in records:
        for figure in record.get("figures", ()):
            low, high = figure["quartiles"]
            told = f"{figure['median']:.3g}", f"{low:.3g} .. {high:.3g}", figure["bar"], figure["verdict"]
            rows.append((record["problem"], figure["figure"], *told))
        for why in ("refused", "missing"):
            if why in record:
                rows.append((record["problem"], " ".join(record[why].split())[:120], "", "", "", why))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(" | ".join(map(str.ljust, row, widths)).rstrip(" |") for row in rows)


if __name__ == "__main__":
    sys.exit(main())
