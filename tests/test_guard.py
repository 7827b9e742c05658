"""The regression guard: what it calls a loss, what its file may hold, and that it sees a loss that was planted."""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.usefixtures("benchmarks_on_path")
ROUNDS = 9


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import guard

    monkeypatch.setattr(guard, "PASSES", 1)
    return guard


def judged(*ratios: float, others: float | None = 0.0, here: bool = True, cores: float = 2.0) -> str:
    """The verdict on measurements of a line whose committed ratio is 1, and whose reference kept two cores busy."""
    import losses

    committed = losses.Committed(1.0, 2.0, here)
    return losses.verdict([losses.Measured(ratio, cores, others) for ratio in ratios], committed)


def test_a_loss_shows_in_all_measurements() -> None:
    assert judged(1.29) == "kept"
    assert judged(1.4, 1.4, 1.4) == "lost"
    assert judged(1.4, 1.4, 1.29) == "kept"
    assert judged(1.4, 1.4, 1.4, others=None) == "lost"  # the system does not tell


def test_on_a_busy_machine_only_a_ratio_five_times_as_large_is_lost() -> None:
    assert judged(1.4, 4.9, 1.4, others=0.5) == "undecided"
    assert judged(5.1, 5.2, 5.3, others=0.5) == "lost"
    assert judged(1.4, 1.4, 1.4, cores=1.2) == "undecided"  # something unseen held the reference up


def test_one_quiet_measurement_is_too_few() -> None:
    import losses

    quiet, busy = losses.Measured(1.5, 2.0, 0.0), losses.Measured(1.5, 2.0, 0.8)
    committed = losses.Committed(1.0, 2.0)
    assert losses.verdict([busy, quiet, busy], committed) == "undecided"
    assert losses.verdict([busy, quiet, quiet], committed) == "lost"


def test_on_another_machine_only_a_ratio_five_times_as_large_is_lost() -> None:
    assert judged(4.9, here=False) == "kept"
    assert judged(5.1, 5.1, 5.1, here=False, cores=0.5) == "lost"


def test_a_gain_is_told_where_the_machine_was_quiet() -> None:
    assert judged(0.76) == "better"
    assert judged(0.78) == "kept"
    assert judged(0.5, others=0.5) == judged(0.5, here=False) == "kept"


def verdict_of_made_up_rounds(rng: np.random.Generator, loss: float) -> str:
    """Of rounds with noise of 10 %, in which each contestant is held up now and then, for up to its own time again."""
    import losses
    from bars import at_most

    committed, measurements = losses.Committed(1.0, 2.0), []
    while len(measurements) < losses.MEASUREMENTS:
        walls = {
            name: true
            * rng.normal(1, 0.1, ROUNDS).clip(0.7)
            * (1 + rng.uniform(0, 1, ROUNDS) * (rng.random(ROUNDS) < 0.3))
            for name, true in (("ours", 1 + loss), ("reference", 1.0))
        }
        ratio = at_most(None, "ours", "reference").judge(walls)["median"]
        measurements.append(losses.Measured(ratio, 2.0, 0.0))
        if not losses.suspect(measurements, committed):
            break
    return losses.verdict(measurements, committed)


def test_noise_is_no_loss_and_hides_none() -> None:
    rng = np.random.default_rng(0)
    assert not any(verdict_of_made_up_rounds(rng, 0.0) == "lost" for _ in range(1000))
    assert sum(verdict_of_made_up_rounds(rng, 0.8) == "lost" for _ in range(200)) >= 190


# ---------------------------------------------------------------------------------------------------- the file


def entry(lines: dict[str, float], cpu: str = "this one", tiny: bool = False) -> dict[str, Any]:
    return {
        "machine": {"cpu": cpu, "caches": {"L1 data": "32K"}},
        "versions": {},
        "commit": "abc",
        "threads": 2,
        "tiny": tiny,
        "lines": {name: {"figure": "x / y", "ratio": ratio, "cores": 2.0} for name, ratio in lines.items()},
    }


def damaged(change: Callable[[dict[str, Any]], Any]) -> str:
    whole = {"entries": [entry({"rows": 1.5})]}
    change(whole["entries"][0])
    return json.dumps(whole)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        '{"lines": {}}',
        '{"entries": [3]}',
        damaged(lambda entry: entry.pop("machine")),
        damaged(lambda entry: entry["lines"]["rows"].pop("figure")),
        damaged(lambda entry: entry["lines"]["rows"].update(ratio=0)),
        damaged(lambda entry: entry["lines"]["rows"].update(ratio=float("nan"))),
        damaged(lambda entry: entry["lines"]["rows"].update(ratio="1.5")),
        damaged(lambda entry: entry.update(machine={"model": "x"})),
    ],
)
def test_a_damaged_file_is_told(
    guard: ModuleType, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guard.json"
    path.write_text(text)
    assert guard.main(["--tiny", "--only", "small", "--file", str(path)]) == 2
    told = capsys.readouterr().out
    assert f"{path} does not hold committed ratios" in told and "take it from git" in told


def test_a_file_that_is_not_there_is_told(
    guard: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guard.main(["--tiny", "--file", str(tmp_path / "none.json")]) == 2
    assert "--write" in capsys.readouterr().out


def test_every_plain_loop_of_the_guard_is_right(guard: ModuleType) -> None:
    """A reference that does less than the verb would hide a loss."""
    import guard_verbs

    for name in ("slogdet", "linear_recurrence of order 2"):
        problem = guard_verbs.Problem(name, (5, 12))
        contestant = guard_verbs.MAKERS[name](problem)
        assert contestant.judge(name).error <= 1e3
        problem.exact[-1] += 1e-6
        assert not contestant.error(contestant.call()) <= contestant.limit


def test_ratios_are_those_of_this_machine_or_the_largest() -> None:
    import committed

    entries = [entry({"rows": 1.5}), entry({"rows": 1.2, "long": 3.0}, cpu="another"), entry({"rows": 9}, tiny=True)]
    own = committed.ratios(entries, entry({}))
    assert {name: (known.ratio, known.here) for (name, _), known in own.items()} == {
        "rows": (1.5, True),
        "long": (3.0, False),
    }
    foreign = committed.ratios(entries, entry({}, cpu="a third"))
    assert {name: known.ratio for (name, _), known in foreign.items()} == {"rows": 1.5, "long": 3.0}
    assert not any(known.here for known in foreign.values())


def test_writing_keeps_other_machines_and_other_lines(tmp_path: Path) -> None:
    import committed

    path = tmp_path / "deep" / "guard.json"
    committed.write(path, [], entry({"rows": 1.5, "long": 2.0}))
    committed.write(path, committed.read(path), entry({"rows": 1.1}, cpu="another"))
    committed.write(path, committed.read(path), entry({"rows": 1.4}))
    found = {
        one["machine"]["cpu"]: {name: line["ratio"] for name, line in one["lines"].items()}
        for one in committed.read(path)
    }
    assert found == {"another": {"rows": 1.1}, "this one": {"rows": 1.4, "long": 2.0}}


def test_the_committed_file_has_every_figure(guard: ModuleType) -> None:
    import committed
    from guard_lines import LINES, makers

    wanted = {line.name: line.bars[0].figure for line in LINES}
    assert len(wanted) == len(LINES)
    assert not {name for line in LINES for name in line.contestants if name not in makers(line.problem)}
    entries = committed.read(guard.FILE)
    committed_lines = [(name, line["figure"]) for known in entries for name, line in known["lines"].items()]
    assert {*committed_lines} == {*wanted.items()}
    assert not any(known["tiny"] for known in entries)
    assert len({committed.kind(known) for known in entries}) == len(entries) > 0


# ---------------------------------------------------------------------------------------------------- rehearsals


SMALL = ("--tiny", "--only", "small")


@pytest.fixture
def written(guard: ModuleType, tmp_path: Path) -> Path:
    path = tmp_path / "guard.json"
    assert guard.main([*SMALL, "--write", "--file", str(path)]) == 0
    return path


def plant(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Something else is called, or judged, in the place of `tridiag.solve` with fresh output."""
    import cpu_contestants

    name = "solve, fresh output"
    make = cpu_contestants.MAKERS[name]
    monkeypatch.setitem(cpu_contestants.MAKERS, name, lambda problem: dataclasses.replace(make(problem), **changed))


def test_a_rehearsal_finds_what_was_written(
    guard: ModuleType, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "now.json"
    assert guard.main([*SMALL, "--file", str(written), "--json", str(record)]) == 0
    assert "a+b+c+d" in capsys.readouterr().out
    (line,) = json.loads(record.read_text())["lines"]
    assert line["verdict"] in ("kept", "better", "undecided") and line["measurements"]


def test_a_planted_loss_is_found(
    guard: ModuleType, written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tridiag

    rng = np.random.default_rng(0)
    a, c, d = (rng.uniform(-1, 1, 12) for _ in range(3))

    def slow() -> Any:
        time.sleep(1e-3)
        return tridiag.solve(a, 3 + 0 * a, c, d)

    plant(monkeypatch, call=slow, error=lambda x: 0.0)
    assert guard.main([*SMALL, "--file", str(written)]) == 1
    told = capsys.readouterr().out
    assert "LOST: solve, fresh output / a+b+c+d" in told and "--write --only small" in told


def test_a_wrong_answer_fails(
    guard: ModuleType, written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, error=lambda x: np.nan)
    before = written.read_text()
    assert guard.main([*SMALL, "--file", str(written)]) == 1
    assert guard.main([*SMALL, "--write", "--file", str(written)]) == 1
    assert capsys.readouterr().out.count("WrongAnswer") >= 2
    assert written.read_text() == before


def test_lines_that_only_one_side_knows_are_told(
    guard: ModuleType, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(written.read_text())
    lines = whole["entries"][0]["lines"]
    lines["gone"] = lines.pop("small")
    written.write_text(json.dumps(whole))
    assert guard.main([*SMALL, "--file", str(written)]) == 1
    told = capsys.readouterr().out
    assert "gone is in the file, but no line measures it" in told
    assert "small: solve, fresh output / a+b+c+d is not in the file" in told


def test_another_machine_is_told(guard: ModuleType, written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(written.read_text())
    whole["entries"][0]["machine"]["cpu"] = "another one"
    written.write_text(json.dumps(whole))
    assert guard.main([*SMALL, "--file", str(written)]) == 0
    assert "No ratios are committed for this machine" in capsys.readouterr().out
