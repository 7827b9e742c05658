"""`benchmarks/gpu_lab.sh`, rehearsed on the stand-in for CuPy: that it runs, keeps what it found, and goes on later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cpu_build
import numpy as np
import pytest
from helpers import STANDIN

HERE = Path(__file__).parent
LAB = HERE.parents[1] / "benchmarks" / "gpu_lab.sh"
pytestmark = [
    pytest.mark.skipif(not STANDIN, reason="CuPy and a device are here: no need to rehearse"),
    pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not())),
]


def lab(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"PYTHON": sys.executable, "OUT": str(folder)} | environment
    return subprocess.run([str(LAB), *words], env=given, capture_output=True, text=True)


def test_every_bar_names_contestants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(LAB.parent)
    import gpu

    names = [line.name for line in gpu.LINES]
    assert len(set(names)) == len(names)
    assert not {name for line in gpu.LINES for name in line.contestants} - set(gpu.MAKERS)
    sizes = [line.problem.bytes_needed for line in gpu.LINES]
    assert sizes == sorted(sizes)  # shortest first


def test_the_benchmark_runs_and_goes_on(tmp_path: Path) -> None:
    first = ("bench", "--rehearse", "--only", "plain-2048x32-rows-float64")
    more = ("--only", "promises-rows-float64", "--only", "against-lax-*", "--only", "l*-1000x10000-rows-float64")
    done = lab(tmp_path, *first)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pivoting=False / copy" in done.stdout and "no figure counts" in done.stdout
    other_verbs = {"slogdet-rows-float64", "factor-columns-float32", "solve_block-100000x100x2-float64"}
    other_verbs.add("smith_waterman-1000x500x500-affine-float64")
    done = lab(tmp_path, *first, *more, *(word for name in other_verbs for word in ("--only", name)))
    assert done.returncode == 0 and "plain" not in done.stderr, done.stdout + done.stderr  # is not measured again
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert {"machine", "versions", "commit", "device", "chosen", "rehearsal", "lines"} <= set(record)
    lines = {line["name"]: line for line in record["lines"]}
    recurrences = {f"{verb}-1000x10000-rows-float64" for verb in ("linear_recurrence", "logcumsumexp")}
    systems = {"plain-2048x32-rows-float64", "promises-rows-float64", "against-lax-rows-float64"}
    assert other_verbs <= set(lines) and all("figures" in lines.pop(name) for name in other_verbs)
    assert set(lines) == systems | recurrences
    assert all("figures" in lines[name] for name in recurrences)
    assert "figures" in lines["against-lax-rows-float64"] or "jax" in lines["against-lax-rows-float64"]["missing"]
    figures = [figure for line in lines.values() for figure in line.get("figures", ())]
    assert len(figures) >= 3 and all(np.isfinite(figure["median"]) for figure in figures)
    assert "promises" not in (tmp_path / "gpu.md").read_text() and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("part", ["matrices", "pairs", "hard"])
def test_kernels_that_are_timed_by_themselves(part: str, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (HERE, HERE / "standin", LAB.parents[1])))
    command = [sys.executable, str(LAB.with_name("gpu_kernels.py")), f"--{part}", "--json", str(tmp_path / "told.json")]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line["dtype"] for line in json.loads((tmp_path / "told.json").read_text())["lines"]} == {
        "float32",
        "float64",
    }


def test_a_wrong_answer_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from tridiag.cuda import launcher\n"
        "right = launcher.text\n"
        "launcher.text = lambda name: right(name).replace('T(1) / x', 'T(1.001) / x').replace('1.0 / x', '1.001 / x')\n"
    )
    words = "bench", "--rehearse", "--only", "plain-2048x32-rows-float64"
    done = lab(tmp_path / "out", *words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = json.loads((tmp_path / "out" / "gpu.json").read_text())["lines"]
    assert "WrongAnswer: pivoting=False" in line["refused"] and "figures" not in line


def test_the_suite_is_recorded_test_by_test(tmp_path: Path) -> None:
    """What has passed is not run again."""
    good, bad = tmp_path / "test_cupy_good.py", tmp_path / "test_cupy_bad.py"
    mark = "import pytest\npytestmark = pytest.mark.smoke\ndef test_cupy(): "
    good.write_text(mark + "pass\n")
    bad.write_text(mark + "raise AssertionError('what went wrong')\n")
    words = "test", "--rehearse", str(good), str(bad)
    done = lab(tmp_path / "out", *words, JOBS="1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_cupy_good.py: 1 passed" in done.stdout and "test_cupy_bad.py: 1 failed" in done.stdout
    told = (tmp_path / "out" / "gpu_test.txt").read_text()
    assert "what went wrong" in told and "what went wrong" not in done.stdout
    bad.write_text(mark + "pass\n")
    done = lab(tmp_path / "out", *words, JOBS="1")
    assert done.returncode == 0 and "test_cupy_bad.py: 1 passed" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "out" / "gpu_test.jsonl").read_text().count("test_cupy_good") == 1


def test_no_time_is_left_for_what_comes_later(tmp_path: Path) -> None:
    done = lab(tmp_path, "sanitize", "--rehearse", LIMIT="0")
    assert done.returncode == 3 and "goes on with it" in done.stdout


def test_without_a_gpu_or_a_part_it_says_what_it_needs(tmp_path: Path) -> None:
    done = lab(tmp_path)
    assert done.returncode == 2 and "compute-sanitizer" in done.stderr
    done = lab(tmp_path, "bench")
    assert done.returncode == 2 and "--rehearse does without" in done.stderr
