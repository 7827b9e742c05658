"""Kernels compiled for narrower vectors than the machine has: what do users of other processors lose?

    python benchmarks/vector_widths.py [--only NAME]... [--rounds N] [--json FILE]

The lines of `guard.py` from NumPy, in three processes: kernels for this machine's own vectors, for AVX2
(``NUMBA_CPU_NAME=haswell``) and for vectors of 128 bits (``nehalem``), with no features beyond those of the name. The
processes take turns, in another order each round; a figure is the median over the rounds of the time over that with
this machine's own vectors. The first run compiles all kernels three times. The record of a whole run goes to
``benchmarks/results/vector_widths/``, a file a processor. Exits with 1 where a figure is short of its bar, or an answer
is wrong. Needs SciPy and rich.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bars import Bar, at_most
from guard_lines import LINES, makers
from lines import Line, add_choice, file_name, picked, save

from tridiag.benchmarking.conditions import conditions

RESULTS = Path(__file__).parent / "results" / "vector_widths"
OWN, ROUNDS = "own", 7
BARS = {"haswell": 1.3, "nehalem": 1.8}  # times the own vectors
SERVE = "--serve"


class Server:
    """A process whose kernels are compiled for a processor, and which times lines when it is asked."""

    def __init__(self, processor: str) -> None:
        named = {} if processor == OWN else {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
        command = [sys.executable, __file__, SERVE]
        self.process = subprocess.Popen(
            command, env=os.environ | named, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, name: str) -> float:
        """The seconds of a call."""
        assert self.process.stdin and self.process.stdout
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{name}: the process that measures it has ended")
        return float(answer)

    def end(self) -> None:
        with self.process:
            assert self.process.stdin
            self.process.stdin.close()


def serve() -> None:
    """Answer the names of lines with the seconds of a call; the arrays of one line are kept until the next."""
    lines, name, contestant, calls = {line.name: line for line in LINES}, "", None, 1
    for asked in map(str.strip, sys.stdin):
        if asked != name:
            contestant, name = None, asked
            contestant = ours(lines[name])
            contestant.judge(name)
            calls = contestant.repeat()
        assert contestant is not None
        print(contestant.sample(calls).wall, flush=True)


def ours(line: Line) -> Any:
    """What the first figure of a line is the time of, before its reference."""
    return makers(line.problem)[line.bars[0].names[0]](line.problem)


def from_numpy(line: Line) -> bool:
    return getattr(line.problem, "library", "numpy") == "numpy"


def measure(line: Line, servers: dict[str, Server], rounds: int) -> dict[str, Any]:
    order, walls = list(servers), {name: np.empty(rounds) for name in servers}
    for server in servers.values():
        server.ask(line.name)
    for k in range(rounds):
        random.Random(k).shuffle(order)
        for name in order:
            walls[name][k] = servers[name].ask(line.name)
    figures = [bar.judge(walls) for bar in bars()]
    return {"name": line.name, "problem": line.told, "rounds": rounds, "figures": figures}


def bars() -> list[Bar]:
    return [at_most(limit, name, OWN) for name, limit in BARS.items()]


def show(records: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("line", "problem", *(f"{name}, at most {limit:g}" for name, limit in BARS.items()))
    for record in records:
        colours = ("red" if figure["verdict"] == "short" else "green" for figure in record["figures"])
        cells = (f"[{c}]{f['median']:.2f}" for c, f in zip(colours, record["figures"], strict=True))
        table.add_row(record["name"], record["problem"], *cells)
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_choice(parser)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument(SERVE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    lines = picked(parser, list(filter(from_numpy, LINES)), options)
    here, records = conditions(), []
    path = options.json or (None if options.only else RESULTS / f"{file_name(here)}.json")
    servers = {name: Server(name) for name in (OWN, *BARS)}
    for count, line in enumerate(lines, 1):
        print(f"{count}/{len(lines)} {line.name}", file=sys.stderr, flush=True)
        records.append(measure(line, servers, options.rounds))
        if path:
            save(path, here | {"lines": records}, count == len(lines))
    for server in servers.values():
        server.end()
    show(records)
    return int(any(figure["verdict"] == "short" for record in records for figure in record["figures"]))


if __name__ == "__main__":
    sys.exit(main())
