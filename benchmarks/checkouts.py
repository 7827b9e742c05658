"""Two checkouts of the package, measured in turns: is one slower than the other?

    python benchmarks/checkouts.py OLD [NEW] [--rounds N] [--only NAME]... [--json FILE]

Each round runs the `guard.py` of both, each on its own package, in an order that changes; a figure is the time of a
call over that of a reference. Of each line the median over the rounds of new over old is told, with the smallest and
the largest. NEW is this checkout unless it is said. A round takes four minutes with all lines; compiled kernels go to
the user's cache, under names that differ where their sources do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from tridiag.benchmarking.conditions import conditions

HERE = Path(__file__).resolve().parent.parent


def figures(checkout: Path, names: list[str]) -> dict[str, float]:
    """The figures of a checkout, each of the quietest of its measurements."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guard.json"
        command = [sys.executable, str(checkout / "benchmarks" / "guard.py"), "--json", str(path)]
        for name in names:
            command += ["--only", name]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not path.exists():
            raise SystemExit(f"{checkout}: {done.stdout}{done.stderr}")
        lines = json.loads(path.read_text())["lines"]
    return {line["name"]: quietest(line["measurements"]) for line in lines if line["measurements"]}


def quietest(measurements: list[dict[str, Any]]) -> float:
    return float(min(measurements, key=lambda one: one["others"] or 0)["ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a line of guard.py")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = defaultdict(list)
    for k in range(options.rounds):
        found = {}
        for checkout in (options.old, options.new)[:: 1 if k % 2 == 0 else -1]:
            found[checkout] = figures(checkout.resolve(), options.only)
        for name in found[options.old].keys() & found[options.new].keys():
            ratios[name].append(found[options.new][name] / found[options.old][name])
    for name, values in sorted(ratios.items()):
        print(f"{name:40s} {statistics.median(values):.3f}  ({min(values):.3f} to {max(values):.3f})")
    if options.json:
        commits = [commit(checkout) for checkout in (options.old, options.new)]
        record = conditions() | {"old": commits[0], "new": commits[1], "new over old": ratios}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
