"""The campaign, some seconds of it; and that it sees what it is there for."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")
if not sys.platform.startswith("linux"):
    pytest.skip("needs mmap, mprotect and signals as Linux has them", allow_module_level=True)

from guarded.planted import MISTAKES, QUICK

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
    """The same cases in every run, as many as fit in some seconds."""
    options = ("--seconds", "20", "--cases", "60", "--workers", "1", "--parts", "guarded")
    status, summary, told = run(tmp_path, *options)
    assert status == 0, told
    assert summary["parts"]["guarded"]["cases"] > 0, told


@pytest.mark.slow
def test_no_case_fails_in_a_minute(tmp_path: Path) -> None:
    """On all cores, from another seed than the cases that are always run.

    Without the search for errors, which `test_accuracy_search` runs from seeds of its own: what it still finds, rows
    whose terms are hundreds of decades apart, `make campaign` reports.
    """
    options = ("--parts", "guarded,failures", "--cases", "4000", "--first", "1000000")
    status, summary, told = run(tmp_path, "--seconds", "60", *options)
    assert status == 0, told
    assert all(part["cases"] > 0 for part in summary["parts"].values()), told


@pytest.mark.slow
def test_kernels_that_are_told_to_end(tmp_path: Path) -> None:
    """Wherever they ask, as after Ctrl-C: they touch nothing that is not theirs, and the next call is right."""
    status, summary, told = run(tmp_path, "--seconds", "40", "--parts", "stopped")
    assert status == 0, told
    assert summary["parts"]["stopped"]["cases"] > 0, told


@pytest.mark.parametrize("count", [QUICK, pytest.param(len(MISTAKES), marks=pytest.mark.slow)])
def test_each_mistake_is_seen(tmp_path: Path, count: int) -> None:
    """A verb that writes beside its result, reads too far, crashes, hangs, ...: each case is reported as what it is."""
    options = ("--seconds", "300", "--cases", str(count), "--workers", "1", "--no-shrink")
    status, summary, told = run(tmp_path, *options, "--parts", "planted=guarded.planted")
    assert status == 1, told
    assert summary["parts"]["planted"]["cases"] == count
    found = {problem["seed"]: f"{problem['kind']}: {problem['told']}" for problem in summary["problems"]}
    for seed, (mistake, (wanted, _)) in enumerate(list(MISTAKES.items())[:count]):
        report = found.get(seed, "")
        assert report.startswith(wanted) if wanted else not report, f"{mistake}: {report or 'not reported'}\n{told}"


@pytest.mark.slow
def test_a_campaign_goes_on(tmp_path: Path) -> None:
    """With the seeds that follow, and sums of both runs; not after another campaign's."""
    options = ("--seconds", "100", "--first", "3", "--workers", "1", "--parts", "guarded")
    run(tmp_path, *options, "--cases", "5")
    _, summary, told = run(tmp_path, *options, "--cases", "9", "--resume")
    assert len(summary["runs"]) == 2, told
    assert summary["parts"]["guarded"]["cases"] == 9 and summary["parts"]["guarded"]["following seed"] == 12
    assert summary["cpu seconds"] > summary["runs"][0]["cpu seconds"]
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"files": "others"}))
    status, _, told = run(tmp_path, *options, "--cases", "12", "--resume")
    assert status == 1 and "other files" in told


@pytest.mark.slow
def test_a_problem_is_made_simpler(tmp_path: Path) -> None:
    """What a case does without is dropped, and the command that shows the problem is printed."""
    options = ("--seconds", "100", "--cases", "1", "--first", "2", "--workers", "1")
    _, summary, told = run(tmp_path, *options, "--parts", "planted=guarded.planted")
    [simple] = summary["simplest"]
    assert "--part planted --seed 2 --drop " in simple["command"], told
