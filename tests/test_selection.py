"""That "auto" takes what is expected to be fastest, and that a file of measurements is read whole or not at all."""

import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import dominant, installed
from processes import started

import tridiag
from tridiag import commands
from tridiag.backends import BACKENDS, SYSTEMS, Problem
from tridiag.benchmarking import tuning
from tridiag.benchmarking.problems import Problem as Example
from tridiag.problems.state_space import FILTER, KALMAN, LIKELIHOOD
from tridiag.selection import choose, costs, measurements

SOLVE = Problem("solve", "numpy", "cpu", "float64", (4, 100), 1)
KIND = "solve cpu rows float64"
Record = dict[str, Any]


def record(**curves: dict[str, float]) -> Record:
    """Backends that take so many seconds for an unknown of a kind, whatever the number of rows."""
    grid = [(n, m) for n in (1, 10, 100) for m in (1, 10, 100)]
    return {
        "format": costs.FORMAT,
        "conditions": measurements.conditions(),
        "curves": {
            name: {kind: [(n, m, seconds * n * m) for n, m in grid] for kind, seconds in of.items()}
            for name, of in curves.items()
        },
        "calls": {},
    }


@pytest.fixture
def put_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], Path]]:
    """A function that puts a record where that of this machine is looked for."""
    path = tmp_path / "costs.json"
    monkeypatch.setattr(measurements, "path_of_machine", lambda: path)

    def put(content: Any) -> Path:
        path.write_bytes(content) if isinstance(content, bytes) else measurements.write(path, content)
        tuning.forget()
        return path

    tuning.forget()
    yield put
    tuning.forget()


# ------------------------------------------------------------------------------------------------------- curves


def test_a_curve_is_exact_at_its_points_and_where_times_are_powers() -> None:
    points = [(n, m, 3e-9 * n * m**0.5) for n in (1, 3, 70, 71) for m in (1, 4, 9, 100)]
    curve = costs.Curve(points)
    for n, m, seconds in points:
        assert curve.seconds(n, m) == pytest.approx(seconds, rel=1e-12)
    assert curve.seconds(20, 33) == pytest.approx(3e-9 * 20 * math.sqrt(33), rel=1e-12)


def test_beyond_its_points_the_time_grows_as_the_unknowns_do() -> None:
    curve = costs.Curve([(1, 1, 1e-6), (4, 1, 1e-6), (1, 3, 2e-6)])
    assert curve.seconds(4**6, 1) == pytest.approx(1e-6 * 4**5)
    assert curve.seconds(8, 30) == pytest.approx(curve.seconds(4, 3) * 2 * 10)


@pytest.mark.parametrize(("rows", "systems", "wanted"), [(4, 1.5, 6), (100, 1.5, 150), (1.5, 1.5, 3), (10, 6, 24)])
def test_where_nothing_was_measured_times_go_on_as_before(rows: float, systems: float, wanted: float) -> None:
    """In the plane of the three points before, unless the unknowns from either side say more, or less."""
    curve = costs.Curve([(1, 1, 1e-6), (4, 1, rows * 1e-6), (1, 2, systems * 1e-6)])
    assert curve.seconds(4, 2) == pytest.approx(wanted * 1e-6)


@pytest.mark.parametrize("points", [[], [(4, 1, 1e-6)], [(1, 1, 0.0)], [(1, 1, -1.0)], [(1, 1, math.inf)]])
def test_a_curve_without_times_is_refused(points: list[tuple[int, int, float]]) -> None:
    with pytest.raises(ValueError):
        costs.Curve(points)


def test_the_kind_most_alike_tells() -> None:
    told = record(numba_thomas={KIND: 1e-9, "solve cpu rows shared float64": 2e-9, "solve cpu columns float32": 9e-9})
    known, entry = costs.Costs(told, "here"), BACKENDS["numba_thomas"]

    def per_unknown(problem: Problem) -> float:
        return known.seconds(entry, problem) / (4 * 100)

    assert per_unknown(SOLVE) == pytest.approx(1e-9)
    assert per_unknown(SOLVE._replace(shared=True)) == pytest.approx(2e-9)
    assert per_unknown(SOLVE._replace(dtype="float32")) == pytest.approx(1e-9)  # rather than the other layout
    assert per_unknown(SOLVE._replace(pivoting=True)) == pytest.approx(1e-9)
    assert per_unknown(SOLVE._replace(dtype="complex128")) == pytest.approx(2e-9)  # twice the numbers
    assert known.seconds(entry, SOLVE._replace(device="cuda")) is None
    assert known.seconds(entry, SOLVE._replace(verb="slogdet")) is None
    assert known.seconds(BACKENDS["numba_partition"], SOLVE) is None
    assert known.seconds(entry, SOLVE._replace(shape=(0, 100))) is None


def test_a_known_fault_of_jaxlib_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """jaxlib 0.11.1: each step of a scan on the CPU touches its whole result."""
    problem = Problem("solve", "jax", "cpu", "float32", (4, 10_000), 1)
    known = costs.Costs(record(jax_scan={KIND: 1e-9}, jax_lax={KIND: 1e-9}), "here")
    times = {}
    for version in ("0.11.0", "0.11.1"):
        monkeypatch.setitem(sys.modules, "jaxlib", SimpleNamespace(__version__=version))
        times[version] = [known.seconds(BACKENDS[name], problem) for name in ("jax_scan", "jax_lax")]
    assert times["0.11.0"][0] == times["0.11.0"][1] == times["0.11.1"][1]
    assert times["0.11.1"][0] > 1000 * times["0.11.0"][0]


# ---------------------------------------------------------------------------------------------------- the choice


def test_auto_takes_the_fastest(put_down: Callable[[Any], Path]) -> None:
    put_down(record(numba_thomas={KIND: 1e-6}, scipy_gtsv={KIND: 1e-9}, numpy_thomas={KIND: 2e-9}))
    wanted = "scipy_gtsv" if installed("scipy") else "numpy_thomas"
    found = tridiag.explain("solve", *dominant((4, 100)))
    assert found.backend == wanted and "measured here" in found.why
    assert found.seconds["numba_thomas"] == pytest.approx(4e-4)
    assert found.seconds["numba_partition"] is None
    assert "could; about 400 us are expected" in repr(found) and "has not been measured" in repr(found)
    named = tridiag.explain("solve", *dominant((4, 100)), backend="numba")
    assert named.backend == "numba_thomas" and named.why == "asked for by name"
    assert "400 us are expected" in repr(named)


def test_a_hair_faster_is_not_enough(put_down: Callable[[Any], Path]) -> None:
    """Otherwise another kernel would be compiled for nothing."""
    cases = (
        (1e-6, 0.95e-6, "numba_thomas"),
        (1e-6, 0.85e-6, "numba_partition"),
        (1e-9, 0.1e-9, "numba_thomas"),
        (5e-8, 2e-8, "numba_partition"),
    )
    for thomas, partition, wanted in cases:
        put_down(record(numba_thomas={KIND: thomas}, numba_partition={KIND: partition}))
        assert choose.choose(SOLVE).backend.name == wanted, (thomas, partition)


def test_what_is_not_eligible_is_not_taken_however_fast(put_down: Callable[[Any], Path]) -> None:
    put_down(record(numba_thomas={KIND: 1e-6}, numba_partition={KIND: 1e-9}))
    assert choose.choose(SOLVE._replace(periodic=True)).backend.name == "numba_thomas"


def test_a_backend_with_a_fault_has_to_be_asked_for(put_down: Callable[[Any], Path]) -> None:
    put_down(record(jax_scan={KIND: 1e-6}, jax_lax={KIND: 1e-9}))
    problem = SOLVE._replace(library="jax")
    assert choose.choose(problem, "jax").backend.name == "jax_scan"
    assert choose.choose(problem, "jax_lax").backend.name == "jax_lax"


def test_where_nothing_is_measured_the_table_decides(put_down: Callable[[Any], Path]) -> None:
    put_down(record(numpy_thomas={KIND: 1e-9}))
    assert choose.choose(SOLVE).backend.name == next(iter(BACKENDS))
    for verb in ("factor", "solve_block", "kalman.filter"):
        assert choose.choose(problem_of(verb)).why == choose.FIRST


def problem_of(verb: str, library: str = "numpy") -> Problem:
    promise = "auto" if verb in SYSTEMS else None
    return SOLVE._replace(verb=verb, library=library, shape=(4, 10, 10), axis=1, pivoting=promise, states=4)


def test_where_one_backend_can_there_is_no_choice() -> None:
    """Nothing is measured there, and `explain` says so."""
    for problem in (
        problem_of("smith_waterman"),
        problem_of("kalman.filter")._replace(states=33),
        problem_of("kalman.filter", "jax")._replace(method="parallel"),
    ):
        if problem.library == "numpy" or installed("jax"):
            assert choose.choose(problem).why == choose.ONLY
            assert [one.seconds for one in choose.eligible(problem)] == [None]
    measured = {(kind.verb, kind.place.library) for kind in tuning.todo() if kind.place.device == "cpu"}
    assert measured.isdisjoint({("smith_waterman", "numpy"), ("kalman.filter", "jax")})
    assert measured >= {("factor", "numpy"), *((verb, "numpy") for verb in KALMAN)}


def test_filters_work_in_parallel_for_those_who_ask(put_down: Callable[[Any], Path]) -> None:
    """However slow the other backends are: XLA compiles one that does for half a minute."""
    pytest.importorskip("jax")
    kind, problem = "kalman.log_likelihood jax cpu rows float64", problem_of(LIKELIHOOD, "jax")
    put_down(record(numba_scan={kind: 1e-6}, jax_scan={kind: 1.0}))
    assert [one.backend.name for one in choose.eligible(problem)] == ["numba_scan", "jax_scan", "jax_associative"]
    assert choose.choose(problem._replace(states=33)).backend.name == "jax_scan"
    assert choose.choose(problem._replace(method="parallel")).backend.name == "jax_associative"
    assert all(
        "jax_associative" not in [one.name for one in kind.able()] for kind in tuning.todo() if kind.verb in KALMAN
    )


def test_filters_and_factors_take_what_is_faster(put_down: Callable[[Any], Path]) -> None:
    kinds = "factor cpu rows float64", *(f"{verb} numpy cpu rows float64" for verb in KALMAN)
    slow, fast = dict.fromkeys(kinds, 1e-6), dict.fromkeys(kinds, 1e-9)
    put_down(record(numba_thomas=slow, numba_scan=slow, numpy_thomas=fast, numpy_scan=fast))
    a, b, c, x = dominant((4, 100))
    assert tridiag.factor(a, b, c).backend == "numpy_thomas"
    np.testing.assert_allclose(tridiag.factor(a, b, c).solve(x), tridiag.solve(a, b, c, x))
    model = Example("kalman.filter", (4, 100, 1))
    for verb in KALMAN:
        assert tridiag.explain(verb, **model.arguments(model.host)).backend == "numpy_scan"


def test_the_same_selection_serves_every_verb(put_down: Callable[[Any], Path]) -> None:
    verbs = ("slogdet", "linear_recurrence", "log_linear_recurrence", "logcumsumexp")
    kinds = [f"{verb} cpu rows float64" for verb in verbs]
    slow, fast = dict.fromkeys(kinds, 1e-6), dict.fromkeys(kinds, 1e-9)
    put_down(record(numba_thomas=slow, numba_scan=slow, numpy_thomas=fast, numpy_scan=fast))
    a, b, c, x = dominant((4, 100))
    operands = {
        "slogdet": (a, b, c),
        "linear_recurrence": (a, x),
        "log_linear_recurrence": (a, x),
        "logcumsumexp": (x,),
    }
    for verb in verbs:
        assert tridiag.explain(verb, *operands[verb]).backend.startswith("numpy_"), verb


def test_a_choice_is_kept_until_tune_measures(put_down: Callable[[Any], Path]) -> None:
    path = put_down(record(numba_thomas={KIND: 1e-6}, numpy_thomas={KIND: 1e-9}))
    assert tridiag.explain("solve", *dominant((4, 100))).backend == "numpy_thomas"
    measurements.write(path, record(numba_thomas={KIND: 1e-9}, numpy_thomas={KIND: 1e-6}))
    assert tridiag.explain("solve", *dominant((4, 100))).backend == "numpy_thomas"
    tuning.forget()
    assert tridiag.explain("solve", *dominant((4, 100))).backend == "numba_thomas"


# -------------------------------------------------------------------------------------------------- what is shipped


def test_what_is_shipped_tells_of_the_compiled_backends() -> None:
    known = measurements.shipped()
    assert "comes with tridiag" in known.origin
    for verb, names in (("solve", ("numba_thomas", "numba_partition")), ("logcumsumexp", ("numba_scan",))):
        problem = SOLVE._replace(verb=verb, pivoting="auto" if verb == "solve" else None)
        for shape in ((1, 1), (1, 10**7), (10**7, 1), (3000, 3000)):
            for axis in (0, 1):
                for name in names:
                    seconds = known.seconds(BACKENDS[name], problem._replace(shape=shape, axis=axis))
                    assert seconds is not None and 1e-7 < seconds < 10


@pytest.mark.parametrize(("threads", "told"), [(1, "1 thread,"), (2, "2 threads"), (64, "2 threads")])
def test_the_number_of_threads_counts(monkeypatch: pytest.MonkeyPatch, threads: int, told: str) -> None:
    monkeypatch.setattr(measurements, "threads", lambda: threads)
    assert told in measurements.shipped().origin


# ------------------------------------------------------------------------------------------------- files not to use


def foreign(**changes: Any) -> Record:
    told = record(numpy_thomas={KIND: 1e-12}, numba_thomas={KIND: 1.0})
    return told | {"conditions": told["conditions"] | changes}


BAD = {
    "empty": b"",
    "cut off": json.dumps(foreign()).encode()[:-40],
    "not text": b"\xff\xfe\x00",
    "a list": b"[1, 2]",
    "another format": foreign() | {"format": 99},
    "no curves": {key: value for key, value in foreign().items() if key != "curves"},
    "a curve of words": foreign() | {"curves": {"numpy_thomas": {KIND: [[1, 1, "fast"]]}}},
    "a negative time": foreign() | {"curves": {"numpy_thomas": {KIND: [[1, 1, -1.0]]}}},
    "a point cut short": foreign() | {"curves": {"numpy_thomas": {KIND: [[1]]}}},
    "no rows": foreign() | {"curves": {"numpy_thomas": {KIND: [[0, 1, 1e-6], [1, 1, 1e-6]]}}},
    "another machine": foreign(machine="PDP-11"),
    "other threads": foreign(threads=4711),
    "another version": foreign(tridiag="0.0.0"),
    "other libraries": foreign(versions={"numpy": "0.1"}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_damaged_or_foreign_file_is_ignored_with_one_warning(put_down: Callable[[Any], Path], name: str) -> None:
    path = put_down(BAD[name])
    with pytest.warns(RuntimeWarning, match="is ignored") as caught:
        chosen = tridiag.explain("solve", *dominant((4, 100)))
    assert len(caught) == 1 and str(path) in str(caught[0].message) and "tune()" in str(caught[0].message)
    assert chosen.backend == "numba_thomas" and "comes with tridiag" in chosen.why
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = tridiag.solve(*dominant((5, 70)))
    assert np.isfinite(x).all()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(put_down: Callable[[Any], Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "costs.json")
    with pytest.warns(RuntimeWarning, match="no regular file"):
        assert "comes with tridiag" in measurements.known().origin


def test_what_differs_is_said(put_down: Callable[[Any], Path]) -> None:
    put_down(foreign(machine="PDP-11"))
    with pytest.warns(RuntimeWarning, match="machine was PDP-11, is "):
        measurements.known()


# ------------------------------------------------------------------------------------------------------------ tune


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems, each timed once."""
    for name, value in (("LARGEST", 4**3), ("LARGEST_COMPILED", 1), ("SAMPLES", 1)):
        monkeypatch.setattr(tuning, name, value)
    monkeypatch.setattr(tuning, "SAMPLE", 1e-6)
    host = tuple(place for place in tuning.PLACES if place.device == "cpu" and place.library != "jax")
    monkeypatch.setattr(tuning, "PLACES", host)
    tuning.numbers.cache_clear()


@pytest.mark.usefixtures("small")
def test_what_is_measured_is_used_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "costs.json"
    monkeypatch.setattr(measurements, "path_of_machine", lambda: path)
    tuning.forget()
    assert "comes with tridiag" in tridiag.explain("solve", *dominant((4, 100))).why
    assert tridiag.tune(progress=False) == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert "measured here" in tridiag.explain("solve", *dominant((4, 100))).why
    known = measurements.known()
    assert {kind for _, kind in known.curves} >= {kind.name for kind in tuning.todo()}
    assert all(known.seconds(BACKENDS["numba_thomas"], SOLVE._replace(dtype=dtype)) for dtype in costs.DTYPES)
    tuning.forget()


def test_small_matrices_count_by_their_entries_and_alignments_by_their_cells() -> None:
    """A problem of what `tune` measures has the sizes of its point; larger matrices take longer, and none is free."""
    for verb in costs.OWN:
        kind = tuning.Kind(tuning.PLACES[0], verb)
        assert costs.sizes(kind.problem(13, 205)) == (13, 205, 1)
        assert next(costs.kinds(kind.problem(13, 205), True)) == kind.name
    blocks = tuning.Kind(tuning.PLACES[0], "solve_block").problem(13, 4)
    assert [costs.sizes(blocks._replace(shape=(4, 13, m)))[1] for m in (1, 3, 6)] == [1, 4, 16]
    assert costs.sizes(blocks._replace(shape=(0, 13, 3)))[1] == 0
    filters = tuning.Kind(tuning.PLACES[0], FILTER).problem(13, 4)
    assert [costs.sizes(filters._replace(states=k))[1] for k in (1, 4, 8)] == [1, 4, 16]
    assert costs.sizes(tuning.Kind(tuning.PLACES[0], costs.ALIGNMENT).problem(6, 5)._replace(shape=(5, 4, 9)))[0] == 6


@pytest.mark.usefixtures("small")
def test_a_run_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial, measure, seen = tmp_path / "costs.partial", tuning.curves, []

    def failing(kind: tuning.Kind, others: costs.Costs) -> Any:
        seen.append(kind)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return measure(kind, others)

    monkeypatch.setattr(tuning, "curves", failing)
    with pytest.raises(KeyboardInterrupt):
        tuning.measured(partial, progress=False)
    made = tuning.measured(partial, progress=False)
    assert seen[2] == seen[3] and len(seen) == len(tuning.todo()) + 1
    assert len(made["done"]) == len(tuning.todo())


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("content", [b"", b"{}", json.dumps(foreign(threads=4711) | {"done": [[1]]}).encode()])
def test_what_is_left_of_another_run_is_measured_anew(tmp_path: Path, content: bytes) -> None:
    partial = tmp_path / "costs.partial"
    partial.write_bytes(content)
    assert tuning.begun(partial)["done"] == []


def test_what_is_far_slower_is_looked_at_where_that_is_soon_done() -> None:
    points = [(1, 1, 1e-6), (4, 1, 1e-3)]
    assert not tuning.worth_a_look(points, 16, 1, 2e-4, False)  # it took five times as long for a quarter of the rows
    assert tuning.worth_a_look(points, 16, 1, 2e-4, True)  # 4 ms
    assert not tuning.worth_a_look(points, 64, 1, 2e-4, True)  # 16 ms
    assert tuning.worth_a_look(points, 16, 1, 3e-4, False)
    assert tuning.worth_a_look(points, 1, 4, 2e-4, False)
    assert not tuning.worth_a_look([(1, 1, 0.02)], 4, 1, 0.006, True)  # 80 ms
    assert tuning.worth_a_look([], 1000, 1000, 1e-9, False)


@pytest.mark.usefixtures("small")
def test_a_backend_that_fails_leaves_the_others_to_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tuning.calls_of

    def fragile(*asked: Any) -> Callable[[str], Callable[[], Any]]:
        call = make(*asked)
        return lambda name: broken if name == "numpy_thomas" else call(name)

    def broken() -> None:
        raise OSError("out of order")

    monkeypatch.setattr(tuning, "calls_of", fragile)
    with pytest.warns(RuntimeWarning, match="numpy_thomas is left out for .*: OSError: out of order"):
        made = tuning.measured(tmp_path / "partial", progress=False)
    assert "numba_thomas" in made["curves"] and not made["curves"].get("numpy_thomas")


KILLED = """
import sys
from pathlib import Path
import tridiag
from tridiag.benchmarking import tuning
from tridiag.selection import measurements
tuning.LARGEST, tuning.SAMPLES, tuning.SAMPLE = 4**3, 1, 1e-6
tuning.PLACES = tuning.PLACES[:1]
measurements.path_of_machine = lambda: Path(sys.argv[1])
while True:
    print(tridiag.tune(progress=False), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_killed_at_any_moment_it_leaves_a_readable_file_or_none(tmp_path: Path) -> None:
    path, rng, found = tmp_path / "costs.json", np.random.default_rng(0), 0
    for _ in range(6):
        with started("-c", KILLED, str(path)):
            deadline = time.monotonic() + 60
            while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.01)  # until it has begun to write
            time.sleep(float(rng.uniform(0, 1.5)))
        for file in (path, path.with_suffix(".partial")):
            if file.exists():
                costs.Costs(json.loads(file.read_text()), "here")
                found += 1
    assert found


def test_the_command_tunes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, small: None
) -> None:
    pytest.importorskip("rich")
    path = tmp_path / "costs.json"
    monkeypatch.setattr(measurements, "path_of_machine", lambda: path)
    assert commands.main(["tune"]) == 0
    assert str(path) in capsys.readouterr().out and path.exists()
    tuning.forget()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="whoever may write everywhere sees no refusal")
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setattr(measurements, "path_of_machine", lambda: tmp_path / "deep" / "costs.json")
    with pytest.raises(OSError, match="deep"):
        tridiag.tune(progress=False)


@pytest.mark.gpu_offline
@pytest.mark.usefixtures("small")
def test_backends_for_gpus_are_measured_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in for CuPy: the kernels of CUDA C, each from the library that comes first."""
    monkeypatch.setattr(tuning, "PLACES", (tuning.Place("cupy", "cuda"),))
    monkeypatch.setattr(tuning, "LARGEST", 4)
    able = tuning.Kind.able
    monkeypatch.setattr(tuning.Kind, "able", lambda kind: [one for one in able(kind) if one.name.startswith("cupy_")])
    path = tmp_path / "costs.json"
    measurements.write(path, tuning.measured(tmp_path / "partial", progress=False))
    monkeypatch.setattr(measurements, "path_of_machine", lambda: path)
    tuning.forget()
    problem = Problem("solve", "cupy", "cuda", "float64", (3, 4), 1)
    found = choose.choose(problem)
    assert "measured here" in found.why and found.backend.name in ("cupy_pcr", "cupy_thomas")
    tuning.forget()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_long_complex_systems_that_fill_no_vector_are_cut(dtype: str) -> None:
    """As rows that lie anyhow are; blocks of rows, in which real ones are solved, do not take them."""
    pytest.importorskip("numba")
    for count, wanted in ((2, "numba_partition"), (5, "numba_partition"), (16, "numba_thomas")):
        system = [np.ones((60_000, count), dtype)] * 4
        assert tridiag.explain("solve", *system, axis=0).backend == wanted
