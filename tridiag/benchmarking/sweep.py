"""A problem at other lengths and numbers of systems: throughput, the choices of "auto", a roofline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tridiag.benchmarking import pictures
from tridiag.benchmarking.comparison import Comparison, compare
from tridiag.benchmarking.contest import contest
from tridiag.benchmarking.problems import Problem
from tridiag.errors import BackendError
from tridiag.selection.choose import choose

POINTS, ROUNDS = 6, 3
LENGTHS = SYSTEMS = tuple(10**k for k in range(7))
LARGEST = 10**8  # unknowns in the map
SIDE, PRODUCTS = 1024, 5  # of the matrices whose products tell the peak


def plot(
    problem: Problem,
    record: dict[str, Any],
    backends: Sequence[str],
    rounds: int,
    folder: Path,
    progressed: Callable[[str, float], None],
) -> list[Path]:
    """All the pictures of a problem; those that its verb has."""
    paths = []
    if problem.options.get("axis") is not None and len(problem.shape) == 2:
        points = list(swept(problem))
        records = []
        for k, (panel, along, at, other) in enumerate(points):
            progressed(f"{panel}: {at}", k / len(points))
            facts = {"panel": panel, "along": along, "at": at}
            records.append(compare(with_facts(contest([other], backends), facts), min(rounds, ROUNDS), budget=0))
        paths.append(folder / "throughput.png")
        pictures.throughput(records, paths[-1])
        paths.append(folder / "choices.png")
        title = f'what "auto" takes: {problem.verb}, {problem.library}, {problem.dtype}, axis={problem.axis}'
        pictures.choices(choices(problem), LENGTHS, SYSTEMS, title, paths[-1])
    if problem.kind.operations and not problem.gradient:
        operations = problem.kind.operations(problem.shape[-1]) * math.prod(problem.shape)
        paths.append(folder / "roofline.png")
        pictures.roofline(record, operations, peak(problem.dtype), paths[-1])
    return paths


def with_facts(comparison: Comparison, facts: dict[str, Any]) -> Comparison:
    return replace(comparison, facts={**comparison.facts, **facts})


def swept(problem: Problem) -> list[tuple[str, str, int, Problem]]:
    """The same number of unknowns in longer systems, and more systems of the same length."""
    n, unknowns = problem.shape[problem.axis], math.prod(problem.shape)
    lengths = sorted({int(x) for x in np.geomspace(4, max(8, unknowns // 4), POINTS)})
    batches = sorted({int(x) for x in np.geomspace(1, max(2, unknowns // n), POINTS)})
    found = [(f"{unknowns} unknowns", "rows n", k, shaped(problem, k, max(1, unknowns // k))) for k in lengths]
    return found + [(f"systems of {n} rows", "systems", k, shaped(problem, n, k)) for k in batches]


def shaped(problem: Problem, n: int, systems: int) -> Problem:
    along_last = problem.axis % len(problem.shape) == len(problem.shape) - 1
    return replace(problem, shape=(systems, n) if along_last else (n, systems))


def choices(problem: Problem) -> list[list[str]]:
    """The name of the backend for each length, and for each number of systems."""
    asked = problem.explain().problem

    def name(n: int, systems: int) -> str:
        if n * systems > LARGEST:
            return ""
        try:
            return choose(asked._replace(shape=shaped(problem, n, systems).shape)).backend.name
        except BackendError:
            return ""

    return [[name(n, systems) for systems in SYSTEMS] for n in LENGTHS]


def peak(dtype: str) -> float:
    """Operations in a second: those of the best of some products of matrices by NumPy."""
    x = np.ones((SIDE, SIDE), dtype)
    best = math.inf
    for _ in range(PRODUCTS):
        start = time.perf_counter()
        x @ x
        best = min(best, time.perf_counter() - start)
    return 2 * SIDE**3 / best
