"""Compare backends on a problem, or run a named suite: answers first, then speed against a stream of the same words."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from tridiag.backends import installed
from tridiag.benchmarking import pictures
from tridiag.benchmarking.comparison import BUSY, PAST_CACHES, STREAM, compare, first_call, wrong
from tridiag.benchmarking.conditions import conditions
from tridiag.benchmarking.contest import contest
from tridiag.benchmarking.libraries import DIFFERENTIABLE, LIBRARIES
from tridiag.benchmarking.sweep import plot
from tridiag.commands.arguments import add_problem, positive, problem_of
from tridiag.commands.terminal import Bars, progress, show
from tridiag.report import format_time

HEAD = ("", "name", "/ stream", "/ past caches", "time", "GB/s", "error (eps)", "speed", "first call", "CPU/wall")
SPARE = ("CPU/wall", "GB/s", "/ past caches", "first call", "error (eps)")  # left out first where lines are short
KEPT = "no record was written; what was compiled is kept"
BUDGET = 8.0  # seconds of timing for a comparison
OF_PROBLEMS = (
    "shape",
    "axis",
    "dtype",
    "library",
    "pivoting",
    "device",
    "gradient",
    "periodic",
    "backend",
    "baseline",
    "plot",
)
OF_SUITES = ("output", "rehearse")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_problem(parser, timed=True)
    parser.add_argument("--backend", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--baseline", metavar="NAME", help='what speeds are compared with (default: what "auto" takes)')
    parser.add_argument("--rounds", type=positive, default=11, help="the fewest, unless they are slow (default 11)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="pictures, of other lengths and batches too")
    parser.add_argument("--suite", metavar="NAME", help="run that, or all, instead of a problem; in a checkout")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="a suite's record, table and picture")
    parser.add_argument("--rehearse", action="store_true", help="a suite on tiny arrays: no figure counts")
    parser.set_defaults(usual=parser.get_default)


def run(options: argparse.Namespace) -> int:
    if (options.verb is None) == (options.suite is None):
        given = "a verb and a suite were given" if options.suite else "no verb was given"
        raise ValueError(f"{given}; wanted bench solve --shape 100000,100, or a suite, bench --suite tdma")
    if options.suite and options.json:
        raise ValueError("the record of a suite goes to the folder that --output names")
    unused, where = (OF_PROBLEMS, "a suite") if options.suite else (OF_SUITES, "a verb")
    for name in unused:
        if getattr(options, name) != options.usual(name):
            raise ValueError(f"--{name} does nothing with {where}; leave it out")
    if options.plot or options.output:
        pictures.pyplot()  # says so if it is missing
    for folder in filter(None, (options.plot, options.output)):
        folder.mkdir(parents=True, exist_ok=True)  # before anything is measured
    if options.suite is None:
        if options.periodic and options.verb != "solve":
            raise ValueError(f"--periodic is timed for solve alone, explained for others: explain {options.verb}")
        return run_problem(options)
    known = suites()
    if options.suite not in (*known.SUITES, "all"):
        raise ValueError(f"there is no suite {options.suite!r}; the names are {', '.join(known.SUITES)}, and all")
    names, before = known.SUITES if options.suite == "all" else (options.suite,), conditions()
    return max(run_suite(known, name, options, before) for name in names)


def suites() -> Any:
    """The suites of a checkout: this folder, or that of the package."""
    for folder in (Path.cwd(), Path(__file__).parents[2]):
        if (folder / "benchmarks" / "suites" / "__init__.py").is_file():
            if str(folder / "benchmarks") not in sys.path:
                sys.path.insert(0, str(folder / "benchmarks"))
            return importlib.import_module("suites")
    raise ValueError("the suites are in the repository, in benchmarks/suites: run this in a checkout of it")


def run_problem(options: argparse.Namespace) -> int:
    problems = {name: problem_of(options, name) for name in wanted(options)}
    comparison = contest([*problems.values()], options.backend, options.baseline)
    with progress() as progressed:
        whose = functools.partial(progressed, comparison.title)
        record = compare(comparison, options.rounds, progressed=whose, told=functools.partial(tell, progressed))
        drawing = functools.partial(progressed, "pictures")
        first = problems[record["library"][0]]
        drawn = plot(first, record, options.backend, options.rounds, options.plot, drawing) if options.plot else []
    whole = conditions() | {"comparisons": [record]}
    show_comparison(record, whole)
    for path in drawn:
        print(path)
    if options.json:
        write(options.json, whole)
    return int(wrong(record))


def tell(bars: Bars, name: str, found: float | str) -> None:
    """Of a contestant whose answer was judged."""
    bars.say(f"{name}: {found}" if isinstance(found, str) else f"{name}: right; first call {format_time(found)}")


def wanted(options: argparse.Namespace) -> list[str]:
    """The libraries: the one that is named, or all that are installed and can do what is asked for."""
    if options.library != "all":
        return [options.library]
    able = DIFFERENTIABLE if options.gradient else LIBRARIES
    if found := [name for name in able if installed(name)]:
        return found
    raise ValueError(f"a gradient needs {' or '.join(able)}, and none of them is installed")


def run_suite(known: Any, suite: str, options: argparse.Namespace, before: dict[str, Any]) -> int:
    """All its comparisons, under the conditions before any file was written. A wrong answer is no failure here."""
    rounds, budget = (1, 0.0) if options.rehearse else (options.rounds, BUDGET)
    records = []
    with progress() as progressed:
        for comparison in known.comparisons(suite, options.rehearse):
            records.append(compare(comparison, rounds, budget, functools.partial(progressed, comparison.title)))
    whole = before | {"suite": suite, "question": known.question(suite), "rehearsal": options.rehearse}
    whole["comparisons"] = records
    for record in records:
        show_comparison(record, whole)
    if options.output:
        write(options.output / f"{suite}.json", whole)
        (options.output / f"{suite}.inc").write_text(known.fragment(suite, whole))
        pictures.draw(records, options.output / f"{suite}.png")
    return 0


def write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def show_comparison(record: dict[str, Any], whole: dict[str, Any]) -> None:
    """The ranked table; what has no time has its sentence below."""
    rows = [cells(str(rank), row) for rank, row in enumerate(record["rows"], 1)]
    for key, name, of, past in (("stream", STREAM, "1", ""), ("stream_past_caches", PAST_CACHES, "", "1")):
        if stream := record[key]:
            figures = format_time(stream["seconds"]), f"{stream['gigabytes_per_second']:.3g}"
            rows.append(("", name, of, past, *figures, "", "", "", f"{stream['cpu_per_wall']:.2f}"))
    caption = f"{whole['machine']['cpu']}, {whole['threads']} threads, {whole['commit']}; {record['rounds']} rounds"
    caption += f"; speed: times that of {record['baseline']}"
    if (others := record["cores_busy_with_others"] or 0) > BUSY:
        caption += f". Other processes kept {others:.1f} cores busy: measure again"
    if any(row["kernels_compiled_in_it"] for row in record["rows"]):
        caption += "; first calls are cold where kernels were compiled in them"
    show(record["title"], HEAD, rows, caption, text=2, spare=SPARE)
    if record["refused"]:
        names: dict[str, list[str]] = {}
        for entry in record["refused"]:
            names.setdefault(entry["why"], []).append(entry["name"])
        show("Without a time", ("name", "why"), [(", ".join(found), why) for why, found in names.items()], text=2)


def cells(rank: str, row: dict[str, Any]) -> tuple[str, ...]:
    past, speed = (
        "" if row[name] is None else f"{row[name]:.3g}" for name in ("over_stream_past_caches", "times_baseline")
    )
    return (
        rank,
        row["name"],
        f"{row['over_stream']:.3g}",
        past,
        format_time(row["seconds"]),
        f"{row['gigabytes_per_second']:.3g}",
        f"{row['error_in_eps']:.3g}",
        speed,
        first_call(row),
        f"{row['cpu_per_wall']:.2f}",
    )
