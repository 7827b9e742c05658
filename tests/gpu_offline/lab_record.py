"""What `benchmarks/gpu_lab.sh test` keeps of each test: a plugin of pytest, and the summary of what it wrote.

A line of JSON is written as soon as a test has ended, in whichever process it ran, so that a run may be cut off at any
moment. What passed at the same commit is not run again. Where an error has made the device useless, the process
ends, and pytest-xdist goes on with a new one.

    python tests/gpu_offline/lab_record.py RECORD COMMIT    a line for each file, then what the failures told
"""

from __future__ import annotations

import collections
import json
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TOLD = 60  # lines of a failure


class Outcome(NamedTuple):
    commit: str
    test: str
    outcome: str
    told: str = ""


def outcomes(record: Path, commit: str) -> Iterator[Outcome]:
    """Of this commit, as they came; a last line that was cut off is left out."""
    for line in record.read_text().splitlines() if record.exists() else ():
        try:
            found = Outcome(**json.loads(line))
        except ValueError:
            continue
        if found.commit == commit:
            yield found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reads a copy of the record that stays as it is: every process has to find the same tests."""
    done = outcomes(Path(os.environ["LAB_DONE"]), os.environ["COMMIT"])
    passed = {found.test for found in done if found.outcome == "passed"}
    config.hook.pytest_deselected(items=[item for item in items if name_of(item) in passed])
    items[:] = [item for item in items if name_of(item) not in passed]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if report.when != "call" and report.outcome == "passed":
        return report
    told = "" if report.outcome == "passed" else "\n".join(report.longreprtext.splitlines()[-TOLD:])
    write(Outcome(os.environ["COMMIT"], name_of(item), report.outcome, told))
    if report.outcome == "failed" and not device_works():
        os._exit(3)
    return report


def name_of(item: pytest.Item) -> str:
    """With its file, which pytest leaves out where that is somewhere else."""
    return f"{item.path}{item.nodeid}" if item.nodeid.startswith("::") else item.nodeid


def write(found: Outcome) -> None:
    """In one piece, since other processes write too."""
    file = os.open(os.environ["LAB_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, (json.dumps(found._asdict()) + "\n").encode())
    os.close(file)


def device_works() -> bool:
    """Whether no kernel before has left an error that every later call would be told."""
    import cupy

    try:
        cupy.cuda.runtime.deviceSynchronize()
    except Exception:
        return False
    return True


def summary(record: Path, commit: str) -> str:
    last = {found.test: found for found in outcomes(record, commit)}
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for found in last.values():
        counts[found.test.partition("::")[0]][found.outcome] += 1
    lines = [f"commit {commit}"]
    for file, of_file in sorted(counts.items()):
        lines.append(f"{file}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(of_file.items())))
    for found in last.values():
        if found.outcome == "failed":
            lines += ["", f"failed: {found.test}", found.told]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(summary(Path(sys.argv[1]), sys.argv[2]), end="")
