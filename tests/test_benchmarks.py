"""The benchmarks on small systems: that they run, tell what they should, and give a wrong answer no figure."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.usefixtures("benchmarks_on_path")


@pytest.fixture
def cpu() -> ModuleType:
    import cpu

    return cpu


FIRST_LINES = (  # of the table of speeds in README.md: lines of `cpu.py`, figures of these
    ("rows-float64", "pivoting=False / stream"),
    ("jit-fresh", "jit: lax.linalg.tridiagonal_solve / jit: solve"),
    ("jit-fresh", "jit: lax.scan Thomas / jit: solve"),
    ("gradient", "jit: value_and_grad / jit: a sum and four arrays"),
    ("uniform-rows-float64", "solve / pivoting=False"),
    ("uniform-jit", "jit: lax.linalg.tridiagonal_solve / jit: solve"),
    ("long-decaying", "solve / stream"),
    ("long-decaying", "gtsv / solve"),
)


@pytest.mark.parametrize("core", ["znver4", "znver5"])
def test_the_readme_has_the_figures_of_the_record(core: str) -> None:
    """And the page of one suite, which says why its own differ: no record is measured again without them."""
    record = json.loads((FOLDER / "results" / "cpu" / f"amd_epyc_{core}.json").read_text())
    medians = {(row["name"], each["figure"]): each["median"] for row in record["lines"] for each in row["figures"]}
    text = (FOLDER.parent / "README.md").read_text()
    if core == "znver4":
        table = text[text.index("| `solve`, (100 000, 100) |") : text.index("| `linear_recurrence`")]
        cells = [re.sub("`[^`]*`", "", cell) for row in table.splitlines() for cell in row.split("|")[2:]]
        written = re.findall(r"[\d.]+", " ".join(cells))
    else:
        written = re.findall(r"[\d.]*\d", text[text.index("the first line is") :].partition("(")[0])
    assert len(written) == len(FIRST_LINES)
    for said, line in zip(written, FIRST_LINES, strict=True):
        assert float(said) == pytest.approx(medians[line], rel=0.05), line
    page = (FOLDER.parent / "docs" / "benchmarks" / "tdma.rst").read_text()
    assert f"{medians[FIRST_LINES[0]]:.2f}" in page


def test_every_bar_names_contestants(cpu: ModuleType) -> None:
    names = [line.name for line in cpu.LINES]
    assert len(set(names)) == len(names)
    unknown = {name for line in cpu.LINES for name in line.contestants} - set(cpu.MAKERS)
    assert not unknown


@pytest.mark.slow
def test_recurrences_have_lines_of_their_own(tmp_path: Path) -> None:
    import recurrences

    assert not {name for line in recurrences.LINES for name in line.contestants} - set(recurrences.MAKERS)
    names = "rows-float64", "gradient-columns", "associative-float64", "matrices-4"
    chosen = [word for name in names for word in ("--only", name)]
    path = tmp_path / "recurrences.json"
    assert recurrences.main(["--tiny", "--rounds", "2", "--json", str(path), *chosen]) == 0
    lines = json.loads(path.read_text())["lines"]
    assert len(lines) == 4
    assert all(np.isfinite(figure["median"]) for line in lines for figure in line["figures"]), lines


@pytest.mark.slow
def test_logarithms_have_lines_of_their_own(tmp_path: Path) -> None:
    import logarithms

    pytest.importorskip("torch")
    assert not {name for line in logarithms.LINES for name in line.contestants} - set(logarithms.MAKERS)
    path = tmp_path / "logarithms.json"
    chosen = ["--only", "rows-float64", "--only", "lax"]
    logarithms.main(["--tiny", "--rounds", "2", "--json", str(path), *chosen])  # so small that no bar is met
    lines = json.loads(path.read_text())["lines"]
    assert len(lines) == 2
    assert all(np.isfinite(figure["median"]) for line in lines for figure in line["figures"]), lines


@pytest.mark.slow
def test_kalman_filters_have_lines_of_their_own(tmp_path: Path) -> None:
    import kalman

    assert not {name for line in kalman.LINES for name in line.contestants} - set(kalman.MAKERS)
    path = tmp_path / "kalman.json"
    assert kalman.main(["--tiny", "--rounds", "1", "--json", str(path), "--only", "gradient-missing"]) == 0
    (line,) = json.loads(path.read_text())["lines"]
    assert all(np.isfinite(figure["median"]) for figure in line["figures"]), line


def test_modules_that_tests_import_have_names_of_their_own() -> None:
    """Tests put these folders on the path, some as long as the process lives: an equal name hides a module."""
    folders = [FOLDER, *(FOLDER.parent / name for name in ("docs", "examples", "tests", "tests/gpu_offline"))]
    paths = [path for folder in folders for path in folder.iterdir()]
    names = [path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert {name for name in names if names.count(name) > 1} <= {"conftest"}


def test_errors_of_logarithms_against_mpmath(tmp_path: Path) -> None:
    pytest.importorskip("mpmath")
    import logarithm_errors

    path = tmp_path / "errors.json"
    assert logarithm_errors.main(["--tiny", "--backend", "numpy_scan", "--json", str(path)]) == 0
    errors = json.loads(path.read_text())["errors"]
    assert {record["terms"] for record in errors} == set(logarithm_errors.TERMS)
    assert logarithm_errors.units(np.array([1.0 + 1e-15]), [1.0]) > 2  # it would tell


def test_the_command_prints_and_writes_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "cpu.json"
    chosen = ("--only", "rows-float64", "--only", "jit-donated", "--only", "small-*")
    options = ("--tiny", "--rounds", "2", "--json", path, *chosen)
    run = subprocess.run([sys.executable, FOLDER / "cpu.py", *options], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "pivoting=False / stream" in run.stdout
    record = json.loads(path.read_text())
    assert {"machine", "versions", "commit", "threads", "lines"} <= set(record)
    names = {line["name"] for line in record["lines"]}
    assert names == {"rows-float64", "jit-donated", "small-out", "small-fresh", "small-jit"}
    for line in record["lines"]:
        assert line["rounds"] >= 2, line
        for figure in line["figures"]:
            assert np.isfinite(figure["median"]) and set(figure["contestants"]) <= set(line["contestants"]), figure
            assert (figure["limit"] is None) == (figure["verdict"] == ""), figure


def test_a_wrong_answer_has_no_figure(cpu: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tridiag

    right, path = tridiag.solve, tmp_path / "cpu.json"

    def wrong_in_one_row(*arguments: np.ndarray, out: np.ndarray, **options: object) -> np.ndarray:
        right(*arguments, out=out, **options)
        out[-1, -1] *= 1 + 1e-12
        return out

    monkeypatch.setattr(tridiag, "solve", wrong_in_one_row)
    assert cpu.main(["--tiny", "--only", "auto-rows-float64", "--json", str(path)]) == 1
    (line,) = json.loads(path.read_text())["lines"]
    assert "WrongAnswer: solve" in line["refused"] and "figures" not in line


def test_pivoting_is_judged_by_what_it_promises() -> None:
    """LAPACK's solutions have componentwise errors of tens of eps, and are right; wrong ones are still told."""
    from scipy.linalg import lapack

    from tridiag.benchmarking.problems import Problem

    asked, usual = (Problem("solve", (2000, 100), pivoting=pivoting) for pivoting in (True, "auto"))
    systems = zip(*(np.broadcast_to(v, (2000, 100)) for v in asked.host), strict=True)
    x = np.stack([lapack.dgtsv(a[1:], b, c[:-1], d)[3] for a, b, c, d in systems])
    assert asked.error(x) < asked.limit < usual.error(x)
    x[7, 50] *= 1 + 1e-12
    assert asked.error(x) > asked.limit


@pytest.mark.parametrize("result", [0.0, np.nan, np.inf])
def test_a_gate_is_before_the_clock(result: float) -> None:
    from tridiag.benchmarking.race import Contestant, WrongAnswer, race

    calls = []
    contestant = Contestant(lambda: calls.append(1) or result, lambda x: abs(x - 1), limit=0.5)
    with pytest.raises(WrongAnswer, match="broken"):
        race({"broken": contestant})
    assert len(calls) == 1


def test_figures_are_medians_of_ratios_within_rounds() -> None:
    from bars import at_most, faster

    walls = {"ours": np.array([1.0, 10.0, 4.0]), "theirs": np.array([2.0, 20.0, 2.0])}
    assert at_most(0.5, "ours", "theirs").judge(walls)["median"] == 0.5
    assert at_most(0.5, "ours", "theirs").judge(walls)["verdict"] == "pass"
    assert faster(2.1, "ours", "theirs").judge(walls)["median"] == 2
    assert faster(2.1, "ours", "theirs").judge(walls)["verdict"] == "short"


@pytest.mark.slow
def test_alignments_have_lines_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    import alignment

    assert not {name for line in alignment.LINES for name in line.contestants} - set(alignment.MAKERS)
    path = tmp_path / "alignment.json"
    chosen = ["--tiny", "--only", "small", "--only", "large", "--rounds", "1", "--json", str(path)]
    assert alignment.main(chosen) == 0
    assert "cells/s/core" in capsys.readouterr().out
    lines = json.loads(path.read_text())["lines"]
    assert all(np.isfinite(figure["median"]) for line in lines for figure in line["figures"]), lines


@pytest.mark.slow
def test_one_call_of_every_verb_is_right(tmp_path: Path) -> None:
    """Each verb from each library passes its gate, and has a figure."""
    import one_call

    pytest.importorskip("torch")
    path = tmp_path / "one_call.json"
    one_call.main(["--tiny", "--rounds", "1", "--json", str(path)])
    lines = json.loads(path.read_text())["lines"]
    assert [line["name"] for line in lines] == [line.name for line in one_call.LINES]
    assert all(np.isfinite(figure["median"]) for line in lines for figure in line["figures"]), lines
    assert not path.with_suffix(".part").exists()


@pytest.mark.slow
def test_kernels_for_narrow_vectors_are_timed_beside_others(tmp_path: Path) -> None:
    import vector_widths

    path = tmp_path / "widths.json"
    assert vector_widths.main(["--rounds", "1", "--only", "small", "--json", str(path)]) in (0, 1)
    (line,) = json.loads(path.read_text())["lines"]
    assert [figure["contestants"] for figure in line["figures"]] == [["haswell", "own"], ["nehalem", "own"]]
    assert all(0 < figure["median"] < 100 for figure in line["figures"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "views"), [("matmul", False), ("order 2, constant", False), ("jit: logcumsumexp", False), ("matmul", True)]
)
def test_shapes_are_drawn_at_random(verb: str, views: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    import random_shapes
    import random_verbs
    import short_race

    monkeypatch.setattr(random_verbs, "LARGEST", 1000)
    monkeypatch.setattr(short_race, "BUDGET", 0.0)
    path = tmp_path / "shapes.json"
    options = ["--views"] if views else []
    monkeypatch.setattr(random_verbs, "views", False)
    random_shapes.main(["--only", verb, "--shapes", "2", "--json", str(path), *options])  # whatever the bars say of two
    (found,) = json.loads(path.read_text())["verbs"]
    assert found["verb"] == verb and len({point["problem"] for point in found["points"]}) == 2
    for point in found["points"]:
        assert point["ratio"] == pytest.approx(point["seconds"] / point["of the best"], rel=1e-3)
    worst = found["geometric mean"], found["worst"], found["microseconds behind"]
    assert found["short"] == any(x > bar for x, bar in zip(worst, random_shapes.BARS[found["in jit"]], strict=True))


@pytest.mark.slow
def test_random_shapes_of_wrong_answers_have_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    import random_shapes
    import random_verbs

    import tridiag

    monkeypatch.setattr(random_verbs, "LARGEST", 1000)
    monkeypatch.setattr(tridiag, "matmul", lambda a, b, c, x, out: b * x)
    with pytest.raises(SystemExit, match=r"matmul.*tridiag has an error of .* eps"):
        random_shapes.main(["--only", "matmul", "--shapes", "1"])


@pytest.mark.parametrize(
    "verb", ["solve", "kalman.filter", *(pytest.param(verb, marks=pytest.mark.slow) for verb in ("factor", "all"))]
)
def test_the_regret_of_a_choice_has_a_record(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("rich")
    import regret
    import short_race

    monkeypatch.setattr(regret, "LARGEST", 100)
    monkeypatch.setattr(short_race, "BUDGET", 0.0)
    path = tmp_path / "regret.json"
    regret.main(["--verb", verb, "--points", "2", "--json", str(path)])  # its bars are for more, and larger, points
    record = json.loads(path.read_text())
    records = record if verb == "all" else {verb: record}
    assert set(records) == set(regret.VERBS if verb == "all" else [verb])
    for record in records.values():
        assert len(record["points"]) == 2 and "which comes with tridiag" in record["costs"]
        for point in record["points"]:
            assert point["seconds"][point["auto"]] >= point["seconds"][point["best"]] > 0


def test_the_cost_of_selection_has_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import selection_cost

    monkeypatch.setattr(selection_cost, "ROUNDS", 3)
    path = tmp_path / "cost.json"
    selection_cost.main(["--json", str(path)])
    assert {"choice, numpy", "auto - named"} <= set(json.loads(path.read_text())["seconds"])


def test_factors_have_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a named line and of shapes that are drawn; an answer that is wrong ends it."""
    pytest.importorskip("scipy")
    import factors

    monkeypatch.setattr(factors, "LARGEST", 200)
    path = tmp_path / "factors.json"
    factors.main(["--only", "numpy float64 (64,)", "--json", str(path)])
    (line,) = json.loads(path.read_text())["lines"]
    assert {"factor / solve", "F.solve / solve", "us behind gttrs"} == set(line["figures"])
    factors.main(["--only", "numpy float64*", "--shapes", "2", "--seed", "3", "--json", str(path)])
    assert len(json.loads(path.read_text())["lines"]) == 2

    monkeypatch.setattr(factors, "lapack", lambda a, b, c, d: lambda: d / b)
    with pytest.raises(SystemExit, match=r"numpy float64 \(64,\): gttrs has a relative error"):
        factors.main(["--only", "numpy float64 (64,)"])


VERBS_OF_CHUNKS = "solve", "linear_recurrence", "logcumsumexp"


def test_the_floor_of_chunks_copies_them_and_waits_for_those_of_a_system() -> None:
    """As many tasks as a cut solve has, and of each chunk the number that is left of a result."""
    da = pytest.importorskip("dask.array")
    import chunks

    x = np.arange(4.0 * 80).reshape(4, 80)
    operands = [da.from_array(x + k, chunks=(2, 10)) for k in range(4)]
    found = chunks.copies(*operands)
    np.testing.assert_array_equal(found.compute(), (x + 3)[::2, ::10])
    assert len(dict(found.__dask_graph__())) == sum(len(dict(y.__dask_graph__())) for y in operands) + 2 * 16 + 2


def test_chunks_have_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are judged first; what Dask takes for small chunks is short of every bar."""
    pytest.importorskip("dask.array")
    import chunks

    sizes = {"systems": 8, "rows": 10, "batch": 2, "rounds": 1, "peaks": 1, "threads": 1}
    monkeypatch.setattr("sys.argv", ["chunks.py", *(f"--{name}={size}" for name, size in sizes.items())])
    chunks.main()
    lines = capsys.readouterr().out.splitlines()
    without = [line.split("  ")[0] for line in lines if " bar " not in line]
    bounds = [f"{verb}: rechunked / {other}" for verb in VERBS_OF_CHUNKS for other in ("whole", "copied")]
    kinds = [f"{name}{matrices}" for matrices in ("", ", own matrices") for name in ("rechunked", "copied")]
    memory = [f"{name}: {'floor' if 'copied' in name else 'memory'}" for name in kinds]
    assert without == [*bounds, "solve: twice / held", *memory]
    assert len(lines) == len(without) + 2 * len(VERBS_OF_CHUNKS) + 6

    def solve(a: Any, b: Any, c: Any, d: Any) -> Any:
        return d / b if isinstance(d, np.ndarray) else d * b

    monkeypatch.setattr(chunks.tridiag, "solve", solve)
    with pytest.raises(SystemExit, match="solve of chunks is wrong: relative error"):
        chunks.main()


@pytest.mark.parametrize(("compiled", "told"), [({}, "41 ms"), ({"kernels_compiled_in_it": 0}, "41 ms"),
                                                ({"kernels_compiled_in_it": 3}, "41 ms, cold")])  # fmt: skip
def test_tables_of_pages_tell_cold_first_calls(compiled: dict[str, int], told: str) -> None:
    from suites import pages

    figures = {"over_stream": 2.0, "over_stream_past_caches": None, "quartiles": (1.0, 3.0), "error_in_eps": 1.0}
    row = figures | {"name": "tridiag", "gigabytes_per_second": 5.0, "times_baseline": 1.0, "first_call_seconds": 0.041}
    assert pages.cells(row | compiled)[pages.HEAD.index("first call")] == told
