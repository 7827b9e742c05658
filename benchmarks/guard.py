"""The regression guard: have the figures that users feel become worse than the committed ones?

    python benchmarks/guard.py [--only NAME]... [--json FILE]
    python benchmarks/guard.py --write [--only NAME]...

`guard_lines.LINES` is the table: a figure is the time of a call over that of a reference which asks the same of the
machine, a stream of the same words where there is one, in the same rounds (`tridiag.benchmarking.race`: gates before
the clock, alternation, medians). ``--write`` measures all lines several times over and puts the medians into
``benchmarks/results/guard.json``, beside those of other machines: those of the passes that no other process disturbed.
Without it every line is measured once and compared.

A figure more than 30 % above the committed one is suspect. It is measured twice more, on arrays made anew, when all
other lines are done and the machine is quiet, or a minute has been waited for that. It is lost if all three
measurements say so and in at least two of them no other process took more than a tenth of a core. With a busy machine
it is "undecided", told loudly, and passes, unless it is five times as large: that is lost in any case.

Ratios compare only on one kind of machine: the same processor, caches and number of threads. Elsewhere the largest
committed ratio of any machine counts, and only a figure five times as large is lost. So it is for a line that was
measured on other machines only.

Exits with 1 where a figure is lost or not in the file, or an answer is wrong; with 2 where there is no such file.
Needs SciPy, JAX, PyTorch and rich; takes three minutes, ``--write`` eight.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import committed
from guard_lines import LINES, makers
from lines import Line, add_choice, measure, picked
from losses import MEASUREMENTS, Committed, Measured, busy, change, least, suspect, verdict

from tridiag.benchmarking import race
from tridiag.benchmarking.comparison import BUSY
from tridiag.benchmarking.conditions import conditions

FILE = Path(__file__).parent / "results" / "guard.json"
ROUNDS, BUDGET = 9, 2.5  # of a measurement; in seconds
PASSES = 3  # of all lines, whose medians are committed
PATIENCE, GLANCE = 60.0, 0.5  # seconds that a quiet machine is waited for in all; and how long it is looked at
AGAIN = "python benchmarks/guard.py --write --only"
FAILURES = ("lost", "refused", "not in the file")
COLOURS = {"kept": "green", "better": "yellow", "undecided": "yellow", "missing": "yellow"}

Tell = Callable[[str], None]


@dataclass
class Result:
    """What became of a line; ``refused`` or ``missing`` says why it has no figure."""

    line: Line
    committed: Committed | None
    measurements: list[Measured] = field(default_factory=list)
    refused: str = ""
    missing: str = ""

    @property
    def figure(self) -> str:
        return self.line.bars[0].figure

    @property
    def suspect(self) -> bool:
        return bool(self.committed and self.measurements and suspect(self.measurements, self.committed))

    @property
    def verdict(self) -> str:
        if self.refused or self.missing:
            return "refused" if self.refused else "missing"
        return verdict(self.measurements, self.committed) if self.committed else "not in the file"

    def measure(self, tiny: bool) -> None:
        """Once, on new arrays."""
        line = self.line._replace(problem=replace(self.line.problem))
        record = measure(line, makers(line.problem), ROUNDS, tiny, BUDGET)
        self.refused, self.missing = record.get("refused", ""), record.get("missing", "")
        if "figures" in record:
            cores = record["contestants"][line.contestants[1]]["cpu_per_wall"]
            self.measurements.append(Measured(record["figures"][0]["median"], cores, record["cores_busy_with_others"]))


class Quiet:
    """Waits for a quiet machine, but not for ever."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience

    def wait(self) -> None:
        while self.patience > 0 and (before := race.busy()) is not None:
            time.sleep(GLANCE)
            self.patience -= GLANCE
            if (race.busy() or 0) - before <= BUSY * GLANCE:
                return


def compare(lines: list[Line], ratios: Any, tiny: bool, tell: Tell) -> list[Result]:
    """All lines once; then, again and again, those that look lost."""
    results = [Result(line, ratios.get((line.name, line.bars[0].figure))) for line in lines]
    for result in results:
        tell(result.line.name)
        result.measure(tiny)
    quiet = Quiet(0 if tiny else PATIENCE)
    for _ in range(MEASUREMENTS - 1):
        for result in results:
            if result.suspect:
                tell(f"{result.line.name} again")
                quiet.wait()
                result.measure(tiny)
    return results


def measured_anew(lines: list[Line], tiny: bool, tell: Tell) -> list[Result]:
    results, quiet = [Result(line, None) for line in lines], Quiet(0 if tiny else PASSES * PATIENCE)
    for count in range(PASSES):
        for result in results:
            tell(f"pass {count + 1} of {PASSES}: {result.line.name}")
            quiet.wait()
            result.measure(tiny)
    return results


def show(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("line", "figure", "problem")
    for head in ("committed", "now", "change", "verdict"):
        table.add_column(head, no_wrap=True)
    for result in results:
        table.add_row(result.line.name, result.figure, result.line.told, *cells(result))
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def cells(result: Result) -> list[str]:
    wanted, found = result.committed, result.measurements
    return [
        f"{wanted.ratio:.3g}" if wanted else "",
        ", ".join(f"{one.ratio:.3g}" for one in found),
        f"{100 * least(found, wanted):+.0f} %" if wanted and found else "",
        f"[{COLOURS.get(result.verdict, 'red')}]{result.verdict}",
    ]


def sentences(results: list[Result]) -> list[str]:
    """What there is to say of lines that are not simply kept."""
    return [f"{result.line.name}: {sentence(result)}" for result in results if result.verdict != "kept"]


def sentence(result: Result) -> str:
    if result.refused or result.missing:
        return result.refused or result.missing
    if result.committed is None:
        return f"{result.figure} is not in the file; on a quiet machine: {AGAIN} {result.line.name}"
    told = ", ".join(f"{100 * change(one, result.committed):+.0f} %" for one in result.measurements)
    if result.verdict == "better":
        return (
            f"{told}; commit it, or a loss from there will not be seen; on a quiet machine: {AGAIN} {result.line.name}"
        )
    if result.verdict == "undecided":
        loads = ", ".join(f"{one.others or 0:.1f}" for one in result.measurements if busy(one, result.committed))
        return f"UNDECIDED: {told}, but the machine was busy ({loads} cores with others); measure again"
    return f"LOST: {result.figure} has {told}; if that is meant, on a quiet machine: {AGAIN} {result.line.name}"


def summary(result: Result) -> dict[str, Any]:
    """What is committed of a line: medians over the passes that nothing disturbed, or over all where all were."""
    quiet = [one for one in result.measurements if (one.others or 0) <= BUSY]
    passes = quiet or result.measurements
    return {
        "figure": result.figure,
        "ratio": rounded(statistics.median(one.ratio for one in passes)),
        "cores": rounded(statistics.median(one.cores for one in passes)),
        "passes": [rounded(one.ratio) for one in passes],
        "quiet": bool(quiet),
    }


def rounded(x: float) -> float:
    return float(f"{x:.4g}")


def write(path: Path, entries: list[committed.Entry], here: committed.Entry, results: list[Result]) -> int:
    """The exit status: where a line has no figure nothing is written."""
    for result in results:
        if result.refused or result.missing:
            print(f"{result.line.name}: {sentence(result)}\nnothing is written")
            return 1
    lines = {result.line.name: summary(result) | {"commit": here["commit"]} for result in results}
    for name, line in lines.items():
        disturbed = "" if line["quiet"] else f"  BUSY: measure it again: {AGAIN} {name}"
        print(f"{name}: {line['figure']} = {line['ratio']} of {line['passes']}{disturbed}")
    committed.write(path, entries, here | {"lines": lines})
    return 0


def main(arguments: list[str] | None = None) -> int:
    from rich.console import Console

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_choice(parser)
    parser.add_argument("--write", action="store_true", help="measure the ratios that are committed")
    parser.add_argument("--file", type=Path, default=FILE, help=f"that of the committed ratios (default {FILE.name})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record of a comparison goes")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: small systems, compared with others as small")
    options = parser.parse_args(arguments)
    lines = picked(parser, LINES, options)
    tell, here = Console(stderr=True, highlight=False).print, conditions() | {"tiny": options.tiny}
    try:
        entries = [] if options.write and not options.file.exists() else committed.read(options.file)
    except committed.BadFile as error:
        print(error)
        return 2
    if options.write:
        return write(options.file, entries, here, measured_anew(lines, options.tiny, tell))
    results = compare(lines, committed.ratios(entries, here), options.tiny, tell)
    show(results)
    print(*sentences(results), *circumstances(entries, here), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(here | {"lines": [record(result) for result in results]}, indent=1) + "\n")
    return int(any(result.verdict in FAILURES for result in results))


def circumstances(entries: list[committed.Entry], here: committed.Entry) -> list[str]:
    """What else differs from when the ratios were committed."""
    own = committed.entry_of(entries, here)
    if own is None:
        told = f"{here['machine']['cpu']}, {here['threads']} threads"
        return [f"No ratios are committed for this machine ({told}): lost are only those five times as large."]
    changed = [
        f"{name} {own['versions'].get(name, 'missing')} then, {here['versions'].get(name, 'missing')} now"
        for name in sorted(own["versions"].keys() | here["versions"].keys())
        if own["versions"].get(name) != here["versions"].get(name)
    ]
    elsewhere = [line.name for line in LINES if line.name not in own["lines"]]
    if elsewhere:
        changed.append(
            f"Of other machines only are the ratios of {', '.join(elsewhere)}: lost are only those five times as large."
        )
    unmeasured = sorted(own["lines"].keys() - {line.name for line in LINES})
    return changed + [f"{name} is in the file, but no line measures it" for name in unmeasured]


def record(result: Result) -> dict[str, Any]:
    return {
        "name": result.line.name,
        "figure": result.figure,
        "verdict": result.verdict,
        "committed": result.committed and result.committed._asdict(),
        "measurements": [one._asdict() for one in result.measurements],
        "why": result.refused or result.missing,
    }


if __name__ == "__main__":
    sys.exit(main())
