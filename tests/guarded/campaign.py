"""Run the campaign: see `guarded`.

python tests/guarded/campaign.py --seconds 600 --output benchmarks/results/campaign.json

The seconds are those of a clock on the wall, and include what workers take to start and kernels to be compiled: some
minutes of the first run on a machine. Every minute, where it ends, and where it is interrupted, it says how far it is,
and writes the summary so far. ``--resume`` goes on from there, with the seeds that follow, as long as the package and
the campaign are the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from guarded.supervisor import Problem, Supervisor

PARTS = {
    "guarded": "guarded.cases",
    "accuracy": "guarded.accuracy_search",
    "sequences": "guarded.accuracy_sequences",
    "failures": "guarded.failures",
    "stopped": "guarded.stopped",
}
TURN = 10.0  # seconds for which a core runs cases of one part
OFTEN = 60.0  # seconds from one line of progress to the next
ENDLESS = 2**62
SHRUNK = 12  # problems that are made simpler


class Campaign:
    """What has been counted so far, by all cores."""

    def __init__(
        self, parts: dict[str, str], first: int, cores: int, most: int = ENDLESS, output: Path | None = None
    ) -> None:
        self.parts, self.first, self.cores, self.most, self.output = parts, first, cores, most, output
        self.modules: dict[str, Any] = {name: importlib.import_module(module) for name, module in parts.items()}
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.cases: Counter[str] = Counter()
        self.kinds: dict[str, Counter[str]] = {name: Counter() for name in parts}
        self.systems: dict[str, Counter[str]] = {name: Counter() for name in parts}
        self.worst: dict[str, dict[str, float]] = {name: {} for name in parts}
        self.bytes: dict[str, int] = dict.fromkeys(parts, 0)
        self.problems: list[Problem] = []
        self.following = dict.fromkeys(parts, first)  # seeds
        self.runs: list[dict[str, Any]] = []  # those before this one: where, and how long
        self.failed: list[BaseException] = []
        self.supervisors: list[Supervisor] = []
        self.begin = self.told = time.monotonic()

    def run(self, seconds: float) -> bool:
        """Until so many seconds are over, or Ctrl-C; whether it was that."""
        self.begin = self.told = time.monotonic()
        threads = [threading.Thread(target=self.core, args=(k, self.begin + seconds)) for k in range(self.cores)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.05)
                if time.monotonic() - self.told > OFTEN:
                    self.tell()
        except KeyboardInterrupt:
            self.stop.set()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]
        return self.stop.is_set()

    def tell(self) -> None:
        """How far it is, in a line of standard error and in the file."""
        self.told = time.monotonic()
        with self.lock:
            found = self.summary()
        cases = ", ".join(f"{part['cases']} {name}" for name, part in found["parts"].items())
        told = f"{found['seconds']:.0f} s, {found['cpu seconds']:.0f} s of CPU: {cases}; {len(self.problems)} problems"
        print(told, file=sys.stderr, flush=True)
        self.write(found)

    def write(self, found: dict[str, Any]) -> None:
        """The whole file or none."""
        if self.output:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            new = self.output.with_name(f"{self.output.name}.{os.getpid()}")
            new.write_text(json.dumps(found, indent=1) + "\n")
            new.replace(self.output)

    def core(self, k: int, until: float) -> None:
        """The parts in turn, each for its share of the time, seeds k, k + cores, ..."""
        supervisors = {name: self.supervisor(name) for name in self.parts}
        with self.lock:
            self.supervisors += supervisors.values()
        spent, following = dict.fromkeys(self.parts, 0.0), {name: seed + k for name, seed in self.following.items()}
        try:
            while time.monotonic() < until and not self.stop.is_set():
                open_ = [name for name in self.parts if following[name] - self.first < self.most]
                if not open_:
                    break
                part = min(open_, key=lambda name: spent[name] / getattr(self.modules[name], "WEIGHT", 1.0))
                begin, last = time.monotonic(), min(ENDLESS, self.first + self.most)
                sums = supervisors[part].run(following[part], self.cores, last, min(until, begin + TURN))
                following[part] += sums.done * self.cores
                spent[part] += time.monotonic() - begin
                self.count(part, sums, following[part])
        except BaseException as error:
            self.failed.append(error)
            self.stop.set()
        finally:
            for supervisor in supervisors.values():
                supervisor.close()

    def supervisor(self, part: str) -> Supervisor:
        return Supervisor(part, self.parts[part], self.modules[part].LIMIT, self.stop)

    def count(self, part: str, sums: Any, following: int) -> None:
        with self.lock:
            self.following[part] = max(self.following[part], following)
            self.cases[part] += sums.done
            self.kinds[part].update(sums.kinds)
            self.systems[part].update(sums.systems)
            for name, worst in sums.worst.items():
                self.worst[part][name] = max(self.worst[part].get(name, 0.0), worst)
            self.bytes[part] = max(self.bytes[part], sums.bytes)
            self.problems += sums.problems
            for problem in sums.problems:
                print(f"{part} {problem.seed}: {problem.kind}: {problem.told.strip()[:600]}", flush=True)

    def simplest(self, problem: Problem) -> Problem:
        """The same problem without all that it does not need, in a worker of its own."""
        supervisor, module = self.supervisor(problem.part), self.modules[problem.part]
        try:
            for name in module.SIMPLER:
                drop = (*problem.drop, name)
                sums = supervisor.run(problem.seed, 1, problem.seed + 1, math.inf, drop)
                same = sums.problems and sums.problems[0].kind == problem.kind
                if same and (sums.problems[0].told != problem.told or problem.kind != "wrong"):
                    problem = sums.problems[0]
        finally:
            supervisor.close()
        return problem

    def summary(self) -> dict[str, Any]:
        from tridiag.benchmarking.conditions import conditions

        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = ended.ru_utime + ended.ru_stime + sum(supervisor.cpu() for supervisor in self.supervisors)
        parts = {}
        for name, cases in self.cases.items():
            found = Counter(problem.kind for problem in self.problems if problem.part == name)
            parts[name] = {
                "cases": cases,
                "problems": dict(found),
                "problems per million": round(1e6 * sum(found.values()) / max(1, cases), 1),
                "cases by kind": dict(sorted(self.kinds[name].items())),
                "systems": dict(sorted(self.systems[name].items())),
                "most bytes of a worker": self.bytes[name],
                "following seed": self.following[name],
                "worst": {kind: round(worst, 3) for kind, worst in sorted(self.worst[name].items())},
            }
        seconds = {"seconds": round(time.monotonic() - self.begin, 1), "cpu seconds": round(used, 1)}
        runs = [*self.runs, {**conditions(), "commit": commit(), "workers": self.cores, **seconds}]
        return {
            "files": digest(),
            **{name: round(sum(run[name] for run in runs), 1) for name in seconds},
            "first seed": self.first,
            "runs": runs,
            "parts": parts,
            "problems": [problem._asdict() for problem in self.problems[:200]],
        }

    def resume(self, found: dict[str, Any]) -> None:
        """Go on from a summary."""
        if found.get("files") != digest():
            raise SystemExit("the summary is that of other files of the package or of the campaign: begin anew")
        self.first, self.runs = found["first seed"], found["runs"]
        self.problems = [Problem(**{**problem, "drop": tuple(problem["drop"])}) for problem in found["problems"]]
        for name, part in found["parts"].items():
            self.cases[name], self.following[name] = part["cases"], part["following seed"]
            self.kinds[name].update(part["cases by kind"])
            self.systems[name].update(part["systems"])
            self.worst[name].update(part["worst"])
            self.bytes[name] = part["most bytes of a worker"]


def digest() -> str:
    """Of the sources of the package and of the campaign."""
    import tridiag

    found = hashlib.sha256()
    for folder in (Path(tridiag.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".cu"):
                found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def commit() -> str:
    """That of the checkout of these tests, or the version where there is none: the package may be installed."""
    from tridiag.benchmarking.conditions import commit as installed

    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(git, capture_output=True, text=True)
    except OSError:
        return installed()
    return found.stdout.strip() or installed()


def alike(problem: Problem) -> tuple[str, ...]:
    """What problems of one cause probably have in common: what is said, but for numbers."""
    first, second, *_ = [*problem.told.split("\n"), ""]
    words = re.sub(r"[\d.+-]+(e\d+)?|nan|inf", "", first)[:40]
    return problem.part, problem.kind, words, second.strip().split(" ")[0]


def command(problem: Problem) -> str:
    drop = f" --drop {','.join(problem.drop)}" if problem.drop else ""
    return f"python tests/guarded/campaign.py --part {problem.part} --seed {problem.seed}{drop}"


def show(summary: dict[str, Any]) -> None:
    for name, part in summary["parts"].items():
        print(f"\n{name}: {part['cases']} cases, {sum(part['problems'].values())} problems ", end="")
        print(f"({part['problems per million']} per million) {part['problems'] or ''}")
        for kind, count in part["cases by kind"].items():
            print(f"    {kind:32} {count:9} cases {part['systems'][kind]:11} systems, worst {part['worst'][kind]:.3g}")
    print(
        f"{summary['seconds']} s, {summary['cpu seconds']} s of CPU on {summary['runs'][-1]['workers']} cores, "
        f"{len(summary['runs'])} runs, from seed {summary['first seed']}"
    )


def again(part: str, module: str, seed: int, drop: tuple[str, ...]) -> int:
    """One case, in a worker."""
    loaded: Any = importlib.import_module(module)
    supervisor = Supervisor(part, module, loaded.LIMIT)
    sums = supervisor.run(seed, 1, seed + 1, math.inf, drop)
    supervisor.close()
    for problem in sums.problems:
        print(f"{problem.kind}: {problem.told}")
    print(loaded.describe(seed, frozenset(drop)), "fails" if sums.problems else "holds")
    return len(sums.problems)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--parts", default=",".join(PARTS), help="names, or name=module of others")
    parser.add_argument("--cases", type=int, default=ENDLESS, help="the most of each part")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--output", type=Path, help="a file for the summary, JSON")
    parser.add_argument("--resume", action="store_true", help="go on from what --output has, where it is there")
    parser.add_argument("--part", default="guarded", help="with --seed: of which part")
    parser.add_argument("--seed", type=int, help="run this case alone")
    parser.add_argument("--drop", default="", help="with --seed: what to leave out of it")
    parser.add_argument("--no-shrink", action="store_true")
    return parser


def named(parts: str) -> dict[str, str]:
    return {name: module or PARTS[name] for name, _, module in (word.partition("=") for word in parts.split(","))}


def main(given: list[str] | None = None) -> int:
    options = arguments().parse_args(given)
    if options.seed is not None:
        [(part, module)] = named(options.part).items()
        return 1 if again(part, module, options.seed, tuple(filter(None, options.drop.split(",")))) else 0
    campaign = Campaign(named(options.parts), options.first, options.workers, options.cases, options.output)
    if options.resume and options.output and options.output.exists():
        campaign.resume(json.loads(options.output.read_text()))
    interrupted = campaign.run(options.seconds)
    found = campaign.summary()
    campaign.write(found)
    show(found)
    kinds = {alike(problem): problem for problem in reversed(campaign.problems)}
    for problem in [] if options.no_shrink or interrupted else list(kinds.values())[:SHRUNK]:
        simple = campaign.simplest(problem)
        found.setdefault("simplest", []).append({"command": command(simple), "kind": simple.kind, "told": simple.told})
        print(f"\n{simple.kind}: {command(simple)}\n    {simple.told.strip()[:1500]}", flush=True)
        campaign.write(found)
    return 130 if interrupted else 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
