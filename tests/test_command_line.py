"""`python -m tridiag`: what it tells, that a wrong answer has no time, that every suite can be run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import installed

import tridiag
from tridiag import commands
from tridiag.backends import BACKENDS, not_installed
from tridiag.benchmarking import comparison, conditions, contest, libraries, race
from tridiag.benchmarking.kinds import ALIKE, KINDS
from tridiag.benchmarking.past_caches import stream_past_caches
from tridiag.benchmarking.pictures import color_of
from tridiag.benchmarking.problems import Problem
from tridiag.verbs import VERBS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rich") is None, reason="needs rich, which is not installed")

SHAPES = {"kalman.log_likelihood": (3, 10, 1), "smith_waterman": (5, 6, 7), "solve_block": (3, 6, 2)}
SHAPES["matrix_recurrence"] = SHAPES["solve_block"]
USUAL = (4, 9)
SUITES = "tdma", "logcumsumexp", "kalman", "smith_waterman", "small_matvec", "fusion"
AT_ONCE = SUITES[:2]  # the others compile for long


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure counts here, and none has to be waited for."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(race, "SHORTEST", 1e-4)
    monkeypatch.setattr(race, "PAUSE", 0.0)


def shape(verb: str) -> str:
    return ",".join(map(str, SHAPES.get(ALIKE[verb].kind if verb in ALIKE else verb, USUAL)))


def test_info_names_every_backend(capsys: pytest.CaptureFixture) -> None:
    assert commands.main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in told["backends"]] == list(BACKENDS)
    assert told["machine"]["cpu"] and told["versions"]["tridiag"] and set(told["devices"]) == {"jax", "torch", "cupy"}
    assert told["selection"].startswith("measured ")
    assert told["kernels"]["kernels"]["determinants_float64"]["verb"] == "slogdet"


def test_a_checkout_without_git_is_told_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert conditions.commit() == f"tridiag {tridiag.__version__}"


def test_the_command_is_a_module() -> None:
    run = subprocess.run([sys.executable, "-m", "tridiag", "info"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "numba_thomas" in run.stdout and "usable" in run.stdout


def test_without_rich_a_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else find(name))
    with pytest.raises(SystemExit) as stopped:
        commands.main(["info"])
    assert stopped.value.code == 2
    assert 'pip install "batched-tridiag[cli]"' in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_explained(verb: str, capsys: pytest.CaptureFixture) -> None:
    assert commands.main(["explain", verb, "--shape", shape(verb), "--dtype", "float32"]) == 0
    assert ("-> jax" if verb == "scan" else "-> numba_") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain", "solve", "--shape", "3,x"], "'3,x' is no shape"),
        (["explain", "solve", "--shape", "-1,5"], "'-1,5' is no shape; wanted lengths of at least 1, as in 1000,100"),
        (["explain", "solve", "--shape", "99999999999,99999999999"], "has 1e+22 numbers; wanted 1e+15 at most"),
        (["bench", "solve", "--rounds", "-3"], "'-3' is no number of rounds"),
        (["tune", "solve"], "python -m tridiag tune: there is no argument solve; python -m tridiag tune --help tells"),
        (["bench", "solve", "--shpe", "1000,100"], "there is no argument --shpe 1000,100; did you mean --shape?"),
        (["nosuch"], "there is no command 'nosuch'. The commands are info, explain, tune, compile, bench; "),
        (["Explian", "solve"], "there is no command 'Explian'; did you mean explain? The commands are"),
        (["explain", "solve", "--pivoting", "maybe"], "'maybe' is none of auto, True, False"),
        (["explain", "solve", "--backend", "nonesuch"], "there is no backend 'nonesuch'"),
        (["bench"], "no verb was given; wanted bench solve"),
        (["bench", "solve", "--suite", "tdma"], "a verb and a suite were given; wanted bench solve"),
        (["bench", "solve", "--baseline", "fastest"], "the baseline 'fastest' is none of those compared: numba_thomas"),
        (["bench", "solve", "--backend", "jax_scan"], "jax_scan takes jax arrays, not numpy"),
        (["bench", "solve", "--plot", f"{__file__}/pictures"], "pictures"),
        (["bench", "kalman.filter"], "bench does not take the verb 'kalman.filter'; it takes solve, "),
        (["bench", "sovle"], "there is no verb 'sovle'; did you mean 'solve'? The verbs are solve, "),
        (["explain", "forcast"], "there is no verb 'forcast'; did you mean 'kalman.forecast'? The verbs are solve, "),
        (["explain", "explain"], "there is no verb 'explain'. The verbs are solve, "),
        (["compile", "solve-blok"], "there is no verb 'solve-blok'; did you mean 'solve_block'? The verbs are solve, "),
        (
            ["compile", "kalman.forecast"],
            "does not take the verb 'kalman.forecast', which runs kalman.filter over the steps to come too; it takes",
        ),
        (["explain", "matmul", "--backend", "numba"], "matmul has no argument backend"),
        (["bench", "--suite", "tdma", "--json", "x"], "the record of a suite goes to the folder that --output names"),
        (["bench", "--suite", "tdma", "--shape", "9"], "--shape does nothing with a suite; leave it out"),
        (["bench", "--suite", "tdma", "--backend", "numba"], "--backend does nothing with a suite; leave it out"),
        (["bench", "--suite", "tdma", "--gradient"], "--gradient does nothing with a suite; leave it out"),
        (["bench", "--suite", "tdma", "--plot", "x"], "--plot does nothing with a suite; leave it out"),
        (["bench", "solve", "--output", "x"], "--output does nothing with a verb; leave it out"),
        (["bench", "solve", "--rehearse"], "--rehearse does nothing with a verb; leave it out"),
        (["bench", "solve", "--device", "cuda"], "numpy arrays lie on cpu, not on cuda; take --library jax or torch"),
        (["bench", "solve", "--rounds", "0"], "'0' is no number of rounds; wanted 1 or more"),
        (["bench", "solve", "--rounds", "few"], "'few' is no number of rounds; wanted 1 or more"),
        (
            ["explain", "logcumsumexp", "--periodic"],
            "logcumsumexp has no argument periodic; solve, factor, slogdet, matmul have",
        ),
        (["explain", "solve", "--gradient"], "numpy arrays have no gradients; take --library jax or torch"),
        (["bench", "slogdet", "--periodic"], "--periodic is timed for solve alone, explained for others"),
        (["bench", "--suite", "tdma", "--periodic"], "--periodic does nothing with a suite; leave it out"),
        (["explain", "solve", "--device", "nonsense"], "invalid choice: 'nonsense'"),
        (["explain", "solve", "--device", "cuda"], "numpy arrays lie on cpu, not on cuda; take --library jax or torch"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        commands.main(arguments)
    assert stopped.value.code == 2
    found = capsys.readouterr().err
    assert told in found and found.count("\n") == 1


def test_an_axis_is_counted_from_behind(capsys: pytest.CaptureFixture) -> None:
    assert commands.main(["explain", "solve", "--axis", "-2", "--shape", "4,9"]) == 0
    assert "(4, 9)" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        commands.main(["--version"])
    assert stopped.value.code == 0 and capsys.readouterr().out == f"tridiag {tridiag.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_gradient_is_explained(verb: str, capsys: pytest.CaptureFixture) -> None:
    library = next((name for name in libraries.DIFFERENTIABLE if installed(name)), None)
    if library is None:
        pytest.skip("needs jax or torch, which are not installed")
    assert commands.main(["explain", verb, "--shape", shape(verb), "--library", library, "--gradient"]) == 0
    assert "Its gradient: " in capsys.readouterr().out


def test_shapes_that_nobody_gives_fit_the_verb(capsys: pytest.CaptureFixture) -> None:
    """Series of one value in each step, small blocks, and many short systems."""
    for verb, wanted in [
        ("solve", "(1000, 100)"),
        ("kalman.filter", "(1000, 100, 1)"),
        ("solve_block", "(1000, 100, 4)"),
    ]:
        assert commands.main(["explain", verb]) == 0
        assert f"of shape {wanted}" in " ".join(capsys.readouterr().out.split())


def test_cyclic_systems_are_explained_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert commands.main(["explain", "solve", "--periodic", "--shape", "4,9"]) == 0
    assert "solve periodic systems of shape (4, 9)" in capsys.readouterr().out
    (record,) = bench(tmp_path / "x.json", "solve", "--periodic", "--shape", "4,9", "--backend", "numpy")["comparisons"]
    assert record["periodic"] and [row["name"] for row in record["rows"]] == ["numpy_thomas"]


def test_what_is_done_is_said_at_once_and_reasons_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Where nobody is at a terminal too: a line for each contestant, on the error stream, before the tables."""
    bench(
        tmp_path / "x.json",
        "solve",
        "--shape",
        "4,9",
        "--backend",
        "numpy",
        "--backend",
        "jax_scan",
        "--backend",
        "jax_lax",
    )
    told = capsys.readouterr()
    assert "numpy_thomas: right; first call" in told.err
    assert told.out.count("takes jax arrays, not numpy") == 1 and "jax_scan, jax_lax" in told.out


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize("command", ["explain", "bench"])
def test_a_device_that_is_not_there_is_told(command: str, library: str, capsys: pytest.CaptureFixture) -> None:
    if not installed(library):
        pytest.skip(f"needs {library}, which is not installed")
    from tridiag.commands import info  # which needs rich

    if "cuda" in info.devices(library):
        pytest.skip("a GPU is there")
    with pytest.raises(SystemExit) as stopped:
        commands.main([command, "solve", "--library", library, "--device", "cuda"])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert f"{library} makes no array on cuda: " in told and "take another --device" in told


def bench(path: Path, *arguments: str, status: int = 0) -> dict:
    assert commands.main(["bench", *arguments, "--rounds", "1", "--json", str(path)]) == status
    return json.loads(path.read_text())


def test_bench_ranks_right_answers(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    chosen = ["--backend", "numpy_thomas", "--backend", "numba_thomas", "--backend", "jax_scan"]
    whole = bench(tmp_path / "deep" / "bench.json", "solve", "--shape", "30,8", *chosen)
    assert {"machine", "versions", "commit", "threads"} <= set(whole)
    (record,) = whole["comparisons"]
    assert {row["name"] for row in record["rows"]} == {"numpy_thomas", "numba_thomas"}
    ratios = [row["over_stream"] for row in record["rows"]]
    assert ratios == sorted(ratios) and all(ratio > 0 for ratio in ratios)
    assert record["stream_past_caches"]["error_in_eps"] <= 12
    for row in record["rows"]:
        assert row["over_stream_past_caches"] > 0
        assert row["seconds"] > 0 and row["first_call_seconds"] > 0 and row["error_in_eps"] <= 16, row
        assert row["gigabytes_per_second"] == pytest.approx(30 * 8 * 5 * 8 / row["seconds"] / 1e9)
    assert {row["name"]: row["times_baseline"] for row in record["rows"]}[record["baseline"]] == 1
    assert record["refused"] == [{"name": "jax_scan", "why": "takes jax arrays, not numpy"}]
    shown = capsys.readouterr().out
    assert "takes jax arrays, not numpy" in shown and "numpy_thomas" in shown


@pytest.mark.parametrize("alone", ["numpy_scan", pytest.param(None, marks=pytest.mark.slow)])
def test_a_library_that_cannot_run_a_problem_is_refused_and_the_others_run(alone: str | None, tmp_path: Path) -> None:
    """CuPy, or the stand-in for it that these tests import, has no logarithms of complex sums."""
    chosen = ["logcumsumexp", "--shape", "3,10", "--dtype", "complex128", "--library", "all"]
    named = ["--backend", alone] if alone else []
    (record,) = bench(tmp_path / "bench.json", *chosen, *named)["comparisons"]
    assert "numpy: numpy_scan" in {row["name"] for row in record["rows"]}
    (why,) = [entry["why"] for entry in record["refused"] if entry["name"] == "cupy"]
    assert why.startswith("no backend can run logcumsumexp") and "cupy" not in record["library"]
    assert record["baseline"] == f"numpy: {alone or 'numba_scan'}"


def test_gradients_are_compared_in_libraries_that_have_them(tmp_path: Path) -> None:
    if not installed("jax"):
        pytest.skip("needs jax, which is not installed")
    chosen = ["logcumsumexp", "--shape", "3,10", "--library", "all", "--gradient"]
    (record,) = bench(tmp_path / "bench.json", *chosen)["comparisons"]
    assert "jax" in record["library"] and "numpy" not in record["library"]
    assert record["baseline"].startswith("jax: ") and all(row["times_baseline"] for row in record["rows"])


def test_a_wrong_backend_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Problem.function

    def broken(problem: Problem, backend: str, **more: object) -> object:
        function = right(problem, backend, **more)
        return (lambda *arrays: function(*arrays) * (1 + 1e-12)) if backend == "numpy_thomas" else function

    monkeypatch.setattr(Problem, "function", broken)
    chosen = ["--backend", "numpy_thomas", "--backend", "numba_thomas"]
    (record,) = bench(tmp_path / "bench.json", "solve", "--shape", "30,8", *chosen, status=1)["comparisons"]
    assert [row["name"] for row in record["rows"]] == ["numba_thomas"]
    (refused,) = record["refused"]
    assert refused["name"] == "numpy_thomas" and refused["why"].startswith("WrongAnswer")


def test_the_stream_takes_no_more_threads_than_numba_has() -> None:
    command = "from tridiag.benchmarking.streams import stream; print(stream(4, 1, 'float64').judge('stream').error)"
    one = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": ""}
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=one)
    assert run.stdout == "0.0\n", run.stderr


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("size", [1, 8, 1000])
def test_the_stream_past_the_caches_writes_every_sum(size: int, dtype: str) -> None:
    """Whole lines and the rest; one that left something out would be too fast."""
    sources = [np.random.default_rng(k).uniform(1, 2, size).astype(dtype) for k in range(2)]
    contestant = stream_past_caches(*sources)
    found = contestant.call()
    assert contestant.error(found) <= contestant.limit and np.array_equal(found.view(dtype), sum(sources))
    found[-1] = np.nan
    assert not contestant.error(found) <= contestant.limit


def test_without_a_stream_there_are_no_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def none(*words: object) -> None:
        raise MemoryError("no room for it")

    monkeypatch.setattr(comparison, "stream", none)
    with pytest.raises(SystemExit):
        commands.main(["bench", "solve", "--shape", "30,8", "--backend", "numpy_thomas"])
    assert "the stream cannot run: MemoryError: no room for it" in capsys.readouterr().err


@pytest.mark.parametrize("verb", KINDS)
def test_every_verb_has_a_judge(verb: str) -> None:
    problem = Problem(verb, SHAPES.get(verb, USUAL))
    result = np.array(problem.contestant().call())
    assert problem.error(result) <= problem.limit
    assert problem.error(result * (1 + 1e-8)) > problem.limit
    assert problem.words.total > 0


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize("verb", KINDS)
def test_every_gradient_has_a_judge(verb: str, library: str) -> None:
    if not installed(library):
        pytest.skip(f"needs {library}, which is not installed")
    problem = Problem(verb, SHAPES.get(verb, USUAL), library=library, gradient=True)
    if verb.startswith("kalman") and library == "torch":
        pytest.skip("Kalman filters take no PyTorch arrays")
    value, gradients = problem.contestant().call()
    assert problem.error((value, gradients)) <= problem.limit
    assert problem.error((value, [*gradients[:-1], 1.1 * gradients[-1]])) > problem.limit


def test_what_compiles_for_long_is_compared_where_it_is_asked_for() -> None:
    pytest.importorskip("jax")
    problem, name = Problem("kalman.log_likelihood", SHAPES["kalman.log_likelihood"], library="jax"), "jax_associative"
    found = contest.contest([problem])
    assert name not in found.makers and "half a minute" in found.refused[name]
    assert "--backend jax_associative" in found.refused[name]
    for asked in ({"backends": [name]}, {"baseline": name}):
        assert name in contest.contest([problem], **asked).makers
    assert name in contest.contest([Problem("logcumsumexp", USUAL, library="jax")]).makers


def test_arrays_without_gradients_say_so() -> None:
    with pytest.raises(ValueError, match="numpy arrays have no gradients; take --library jax or torch"):
        Problem("solve", USUAL, gradient=True).contestant()
    assert not_installed("nonesuch") == "needs nonesuch, which is not installed"


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch.compile looks at it
@pytest.mark.parametrize(
    "suite", [suite if suite in AT_ONCE else pytest.param(suite, marks=pytest.mark.slow) for suite in SUITES]
)
def test_every_suite_rehearses(suite: str, tmp_path: Path) -> None:
    for library in ("jax", "torch", "scipy", "matplotlib"):
        pytest.importorskip(library)
    assert commands.main(["bench", "--suite", suite, "--rehearse", "--output", str(tmp_path)]) == 0
    record = json.loads((tmp_path / f"{suite}.json").read_text())
    assert record["rehearsal"] and record["question"].endswith((")", "?"))
    told = [entry["why"] for comparison in record["comparisons"] for entry in comparison["refused"]]
    assert all(why.startswith("WrongAnswer") or "GPU" in why for why in told), told
    assert ("WrongAnswer" in str(told)) == (suite == "logcumsumexp")  # the formula that loses its terms
    rows = [row for comparison in record["comparisons"] for row in comparison["rows"]]
    page = (tmp_path / f"{suite}.inc").read_text()
    assert "A rehearsal" in page and record["commit"] in page and all(row["name"] in page for row in rows)
    assert 0 < (tmp_path / f"{suite}.png").stat().st_size < 100_000


def test_suites_are_found_in_a_checkout_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tridiag.commands import bench

    assert bench.suites().SUITES == SUITES
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "a" / "b" / "bench.py"))
    with pytest.raises(ValueError, match="in the repository"):
        bench.suites()


def test_pictures_of_a_problem(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    bench(tmp_path / "bench.json", "solve", "--shape", "20,8", "--backend", "numpy_thomas", "--plot", str(tmp_path))
    assert {path.name for path in tmp_path.glob("*.png")} == {"throughput.png", "choices.png", "roofline.png"}


def test_a_backend_has_a_color_of_its_own_in_all_pictures() -> None:
    """Behind its library too, as in pictures of several libraries."""
    pytest.importorskip("matplotlib")
    colors = {name: color_of(name) for name in BACKENDS}
    assert len(set(colors.values())) == len(BACKENDS)
    assert all(color_of(f"{entry.arrays[0]}: {name}") == colors[name] for name, entry in BACKENDS.items())


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_a_page(suite: str) -> None:
    folder = Path(__file__).parents[1] / "docs" / "benchmarks"
    assert f".. include:: {suite}.inc" in (folder / f"{suite}.rst").read_text()
    assert f"   {suite}\n" in (folder / "index.rst").read_text()
    written = (folder / f"{suite}.inc").read_text()
    assert f"--suite {suite} " in written and "A rehearsal" not in written


@pytest.mark.parametrize("command", ["info", "explain", "tune", "compile", "bench"])
def test_help_keeps_to_the_width_of_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        commands.main([command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 79


def test_info_keeps_to_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for more in ([], ["--kernels"]):
        assert commands.main(["info", *more]) == 0
        told = capsys.readouterr().out
        assert "not yet made" in told and max(map(len, told.splitlines())) <= 80
        assert not [line for line in told.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("columns", ["0", "1", "8"])
def test_info_where_hardly_any_columns_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """0 says that it is not known."""
    monkeypatch.setenv("COLUMNS", columns)
    assert commands.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Machine" and any("cores" in line for line in lines)
    assert (max(map(len, lines)) > 80) == (columns == "0")


def test_a_reader_who_has_seen_enough() -> None:
    """As ``| head -1``: nothing is said of it."""
    command = [sys.executable, "-m", "tridiag", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.skipif(os.name != "posix", reason="closes a stream by a shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(closed: str) -> None:
    """Who closes them hears nothing, and no traceback."""
    command = f'exec "{sys.executable}" -m tridiag explain solve --shape 9,9 {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert ("numba_thomas" in done.stdout) == (closed == "2>&-")
