"""The lines of a benchmark: what is measured against which bars; the table that shows it; the command that does it."""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bars import Bar

from tridiag.benchmarking.conditions import conditions
from tridiag.benchmarking.race import Contestant, race

BUDGET = 8.0  # seconds of timing for a line
TINY = 12  # the longest axis of a rehearsal

Makers = Mapping[str, Callable[[Any], Contestant]]  # what makes a contestant for a problem, by its name


class Line(NamedTuple):
    name: str
    told: str
    problem: Any  # with a shape
    bars: tuple[Bar, ...]

    @property
    def contestants(self) -> list[str]:
        return list(dict.fromkeys(name for bar in self.bars for name in bar.names))


def measure(line: Line, makers: Makers, rounds: int, tiny: bool, budget: float = BUDGET) -> dict[str, Any]:
    """The record of a line: its figures, or why it has none."""
    problem = line.problem
    if tiny:
        problem = replace(problem, shape=tuple(min(length, TINY) for length in problem.shape))
    record = {"name": line.name, "problem": line.told}
    try:
        timed = race({name: makers[name](problem) for name in line.contestants}, rounds, 0 if tiny else budget)
    except ImportError as error:
        return record | {"missing": str(error)}
    except Exception as error:  # the other lines have figures all the same
        return record | {"refused": f"{type(error).__name__}: {error}"}
    return record | {
        "rounds": timed.rounds,
        "cores_busy_with_others": timed.others,
        "contestants": {name: timed.summary(name) for name in line.contestants},
        "figures": [bar.judge(timed.walls()) for bar in line.bars],
    }


def show(records: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("problem", "figure")
    for head in ("median", "quartiles", "bar", "", "CPU/wall", "rounds"):
        table.add_column(head, no_wrap=True)
    for record in records:
        for why in ("refused", "missing"):
            if why in record:
                table.add_row(record["problem"], record[why], "", "", "", f"[red]{why}")
        for k, figure in enumerate(record.get("figures", ())):
            table.add_row("" if k else record["problem"], *cells(record, figure))
    others = max((record.get("cores_busy_with_others") or 0 for record in records), default=0)
    if others > 0.1:
        table.caption = f"Other processes kept up to {others:.1f} cores busy at the same time: measure again."
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def cells(record: dict[str, Any], figure: dict[str, Any]) -> list[str]:
    low, high = figure["quartiles"]
    loads = [f"{record['contestants'][name]['cpu_per_wall']:.2f}" for name in figure["contestants"]]
    return [
        figure["figure"],
        f"{figure['median']:.3g}{figure['unit']}",
        f"{low:.3g} .. {high:.3g}",
        figure["bar"],
        f"[{'red' if figure['verdict'] == 'short' else 'green'}]{figure['verdict']}",
        " / ".join(loads),
        str(record["rounds"]),
    ]


def file_name(here: dict[str, Any]) -> str:
    """Of the records of a kind of machine: processors of several generations have one name."""
    machine = here["machine"]
    return re.sub(r"[^a-z0-9]+", "_", f"{machine['cpu']} {machine['core']}".lower()).strip("_")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The options that pick lines."""
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a line, or a pattern: 'jit-*'; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the lines, and stop")


def picked(parser: argparse.ArgumentParser, known: list[Line], options: argparse.Namespace) -> list[Line]:
    """The lines that are asked for. Exits where there are none, or only their names are wanted."""
    patterns = options.only or ["*"]
    lines = [line for line in known if any(fnmatch.fnmatchcase(line.name, pattern) for pattern in patterns)]
    if not lines:
        parser.error("no line has such a name; --list prints them all")
    if options.list:
        print("\n".join(line.name for line in lines))
        parser.exit()
    return lines


def save(path: Path, record: dict[str, Any], whole: bool) -> None:
    """Keep a record, in a file beside the one it is for until it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    if whole:
        part.replace(path)


def run(told: str | None, known: list[Line], makers: Makers, results: Path, arguments: list[str] | None) -> int:
    """The command of a benchmark: ``told`` is its docstring; the record of a whole run to the folder ``results``."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description=(told or "").partition("\n")[0])
    add_choice(parser)
    parser.add_argument("--rounds", type=int, default=11, help="the fewest, unless a line is slow (default 11)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: small systems, and no bar counts")
    options = parser.parse_args(arguments)
    lines = picked(parser, known, options)
    records: list[dict[str, Any]] = []
    progress, start, here = Console(stderr=True), time.perf_counter(), conditions()
    path = options.json or (None if options.only or options.tiny else results / f"{file_name(here)}.json")
    for count, line in enumerate(lines, 1):
        progress.print(f"{count}/{len(lines)} {line.name}", highlight=False)
        records.append(measure(line, makers, options.rounds, options.tiny))
        if path:
            spent = round(time.perf_counter() - start)
            save(path, here | {"tiny": options.tiny, "seconds": spent, "lines": records}, count == len(lines))
    show(records)
    verdicts = [figure["verdict"] for record in records for figure in record.get("figures", ())]
    return int(any("refused" in record for record in records) or ("short" in verdicts and not options.tiny))
