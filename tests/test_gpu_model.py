"""That the model by which "auto" chooses on a GPU says what was measured on one, and gives way to measurements."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tridiag.backends import BACKENDS, Problem
from tridiag.selection import choose, costs, measurements
from tridiag.selection.gpu_model import CALL, COPIED, LINES, MODEL, WORDS

RECORDS = Path(__file__).parents[1] / "benchmarks/results/gpu"
FIRST = {"solve, pivoting=False": "solve, cupy_pcr", "slogdet": "slogdet, cupy_pcr", "factor": "factor, cupy_pcr"}
FIRST |= {verb: f"{verb}, cupy_scan" for verb in ("linear_recurrence", "logcumsumexp")}
TABLE = sys.modules["tridiag.backends"]  # the package has a function of that name
AGREES = 4  # few sequences and short rows are at its ends


def measured() -> Iterator[tuple[Problem, dict[str, float]]]:
    """Problems, and the seconds that backends took on an NVIDIA H200; the host's are in those of whole calls alone."""
    for name in ("kernels", "matrices", "others"):
        for line in json.loads((RECORDS / f"{name}_nvidia_h200.json").read_text())["lines"]:
            (count, n), last, dtype = (line["count"], line["n"]), line["axis"] == -1, line["dtype"]
            host = 0.0 if name == "others" else CALL
            found: dict[str, dict[str, float]] = {}
            for told, ratio in line["ratios"].items():
                verb, _, backend = FIRST.get(told, told).partition(", ")
                if backend in LINES.get(verb, {}):
                    words = WORDS[verb] * count * n * int(dtype[-2:]) / 8
                    found.setdefault(verb, {})[backend] = host + ratio * words / COPIED
            for verb, seconds in found.items():
                shape = (count, n) if last else (n, count)
                yield Problem(verb, "cupy", "cuda", dtype, shape, int(last)), seconds


def expected(backend: str, problem: Problem) -> float:
    seconds = MODEL.seconds(BACKENDS[backend], problem)
    assert seconds is not None
    return seconds


def test_the_model_agrees_with_what_was_measured() -> None:
    """Each time within a factor, and of two that differ by as much the same one is the shorter."""
    compared = 0
    for problem, seconds in measured():
        for backend, took in seconds.items():
            assert took / AGREES < expected(backend, problem) < took * AGREES
            for other, longer in seconds.items():
                if longer > AGREES * took:
                    assert expected(other, problem) > expected(backend, problem)
                    compared += 1
    assert compared > 4


@pytest.mark.parametrize("verb", LINES)
def test_the_model_has_lines_for_backends_that_have_the_verb(verb: str) -> None:
    assert set(LINES) == set(WORDS)
    assert all(verb in BACKENDS[name].verbs and "cuda" in BACKENDS[name].devices for name in LINES[verb])


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"device": "cpu"}, False),
        ({"device": "rocm"}, False),
        ({"shape": (0, 100)}, False),
        ({"verb": "matrix_recurrence"}, False),
        ({"verb": "linear_recurrence", "dtype": "int64"}, False),
    ],
)
def test_what_the_model_does_not_know(change: dict[str, Any], known: bool) -> None:
    problem = Problem("solve", "torch", "cuda", "float64", (4, 100), 1)._replace(**change)
    found = [MODEL.seconds(BACKENDS[name], problem) for name in ("cupy_pcr", "cupy_scan", "torch_thomas", "jax_pcr")]
    assert [seconds is not None for seconds in found] == [known, False, known, False]


@pytest.mark.parametrize(
    ("there", "library", "verb", "wanted"),
    [
        ({"torch", "triton"}, "torch", "solve", "triton_thomas"),
        ({"torch", "triton", "cupy"}, "torch", "solve", "cupy_pcr"),
        ({"torch", "triton"}, "torch", "linear_recurrence", "triton_scan"),
        ({"torch", "triton"}, "torch", "logcumsumexp", "triton_scan"),
        ({"torch"}, "torch", "solve", "torch_thomas"),
        ({"jax"}, "jax", "solve", "jax_scan"),
        ({"jax", "absl"}, "jax", "solve", "jax_scan"),
    ],
)
def test_auto_on_a_gpu(monkeypatch: pytest.MonkeyPatch, there: set[str], library: str, verb: str, wanted: str) -> None:
    """With what is installed: the kernel that is expected to be the fastest, rather than a loop of launches."""
    monkeypatch.setattr(TABLE, "installed", lambda module: module in there)
    for dtype in ("float32", "float64"):
        for shape, axis in (((4, 100), 1), ((100, 50_000), 0), ((300_000,), 0)):
            problem = Problem(verb, library, "cuda", dtype, shape, axis, "auto" if verb == "solve" else None)
            assert choose.choose(problem).backend.name == wanted


def test_what_was_measured_goes_before_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """And `explain` tells which of them it was."""
    monkeypatch.setattr(TABLE, "installed", lambda module: module in ("torch", "triton"))
    problem = Problem("solve", "torch", "cuda", "float64", (4, 100), 1)
    assert "model" in choose.choose(problem).why
    curves = {"torch_thomas": 1e-9, "triton_thomas": 1e-6}
    kind = "solve cuda rows float64"
    record = {
        "format": costs.FORMAT,
        "conditions": measurements.conditions(),
        "curves": {name: {kind: [(1, 1, seconds)]} for name, seconds in curves.items()},
        "calls": {},
    }
    monkeypatch.setattr(measurements, "known", lambda: costs.Costs(record, "measured here"))
    found = choose.choose(problem)
    assert found.backend.name == "torch_thomas" and found.why == "the fastest, as measured here"
