"""The campaign, some seconds of it; and that it sees what it is there for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs mmap, mprotect and signals as Linux has them"
)
CAMPAIGN = Path(__file__).parent / "campaign.py"


def run(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """The exit status of a campaign, its summary, and all it printed."""
    output = folder / "summary.json"
    command = [sys.executable, str(CAMPAIGN), "--output", str(output), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env=environment)
    told = done.stdout + done.stderr
    assert output.exists(), told
    return done.returncode, json.loads(output.read_text()), told


def test_no_case_fails(tmp_path: Path) -> None:
    """The same cases in every run."""
    status, summary, told = run(tmp_path, "--seconds", "300", "--cases", "60", "--workers", "1", "--parts", "guarded")
    assert status == 0, told
    assert summary["parts"]["guarded"]["cases"] == 60, told


@pytest.mark.slow
def test_no_case_fails_in_two_minutes(tmp_path: Path) -> None:
    """All parts, on all cores, from another seed than the cases that are always run."""
    status, summary, told = run(tmp_path, "--seconds", "120", "--first", "1000000")
    assert status == 0, told
    assert all(part["cases"] > 0 for part in summary["parts"].values()), told


def test_each_mistake_is_seen(tmp_path: Path) -> None:
    """A verb that writes beside its result, reads too far, crashes, hangs, ...: each case is reported as what it is."""
    from guarded.planted import MISTAKES

    count = str(len(MISTAKES))
    parts = "planted=guarded.planted"
    status, summary, told = run(
        tmp_path, "--seconds", "200", "--cases", count, "--workers", "1", "--parts", parts, "--no-shrink"
    )
    assert status == 1
    assert summary["parts"]["planted"]["cases"] == len(MISTAKES)
    found = {problem["seed"]: f"{problem['kind']}: {problem['told']}" for problem in summary["problems"]}
    for seed, (mistake, (wanted, _)) in enumerate(MISTAKES.items()):
        report = found.get(seed, "")
        assert report.startswith(wanted) if wanted else not report, f"{mistake}: {report or 'not reported'}\n{told}"


def test_a_problem_is_made_simpler(tmp_path: Path) -> None:
    """And comes with the command that shows it."""
    options = (
        "--seconds",
        "100",
        "--cases",
        "1",
        "--first",
        "5",
        "--workers",
        "1",
        "--parts",
        "planted=guarded.planted",
    )
    _, summary, told = run(tmp_path, *options)
    [simple] = summary["simplest"]
    assert simple["command"].endswith("--part planted --seed 5 --drop threads,n/2,layout"), told
