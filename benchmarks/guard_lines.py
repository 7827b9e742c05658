"""The lines of `guard.py`: what users feel, each against a reference that asks the same of the machine.

What is measured against a stream moves 400 MB or more: whether less of it stays in a cache changes from run to run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import alignment
import cpu_contestants
import cpu_problems
import guard_verbs
import kalman
import logarithms
import recurrences
from bars import at_most
from cpu_problems import uniform
from lines import Line, Makers

from tridiag.benchmarking.race import Contestant

LONGER = 0.3  # seconds of a batch in JAX: results are fresh memory, which costs more in some calls than in others


class Patient(Contestant):
    """Timed in batches so long that what happens in one call, or at the beginning, does not count."""

    def repeat(self) -> int:
        calls = super().repeat()
        while self.fresh is None and self.sample(calls).wall * calls * self.steps < LONGER:
            calls *= 2
        return calls


def makers(problem: Any) -> Makers:
    """Those for problems of a kind, by the names of contestants."""
    found = MAKERS[type(problem)]
    if getattr(problem, "library", "numpy") != "jax":
        return found
    return {name: functools.partial(patient, make) for name, make in found.items()}


def patient(make: Callable[[Any], Contestant], problem: Any) -> Contestant:
    return Patient(**vars(make(problem)))


MAKERS: dict[type, Makers] = {
    cpu_problems.Problem: cpu_contestants.MAKERS,
    recurrences.Problem: recurrences.MAKERS,
    logarithms.Problem: logarithms.MAKERS,
    kalman.Problem: kalman.MAKERS,
    alignment.Problem: alignment.MAKERS,
    guard_verbs.Problem: guard_verbs.MAKERS,
}

ROWS, COLUMNS = ((100_000, 100), -1), ((100, 100_000), 0)
MORE_ROWS, MORE_COLUMNS = ((200_000, 100), -1), ((100, 200_000), 0)
System, Sequence = cpu_problems.Problem, recurrences.Problem


def line(name: str, told: str, problem: Any, of: str, to: str = "stream") -> Line:
    return Line(name, told, problem, (at_most(None, of, to),))


def verb(name: str, told: str, of: str, shape: tuple[int, ...]) -> Line:
    return line(name, told, guard_verbs.Problem(of, shape), of, guard_verbs.LOOP)


LINES = [
    line("rows", "(100 000, 100)", System(*ROWS), "solve"),
    line("rows-float32", "(200 000, 100), float32", System(*MORE_ROWS, "float32"), "solve"),
    line("columns", "(100, 100 000), axis=0", System(*COLUMNS), "solve"),
    line("columns-float32", "(100, 200 000), axis=0, float32", System(*MORE_COLUMNS, "float32"), "solve"),
    line("pivots-rows", "(100 000, 100), uniform(-1, 1)", System(*ROWS, matrix=uniform), "solve"),
    line("pivots-columns", "(100, 100 000), axis=0, uniform(-1, 1)", System(*COLUMNS, matrix=uniform), "solve"),
    line("shared", "one matrix, (4000, 10 000)", System((4000, 10_000), shared=True), "solve", "stream of 2 words"),
    line("factor", "(100 000, 100)", System(*ROWS), "factor(...).solve"),
    line("long", "one system, n = 1e7", System((10_000_000,)), "solve"),
    line("small", "one system, n = 64", System((64,)), "solve, fresh output", "a+b+c+d"),
    line("jit", "(100 000, 100)", System(*ROWS, library="jax"), "jit: solve", "jit: a+b+c+d"),
    line("jit-small", "one system, n = 64", System((64,), library="jax"), "jit: solve", "jit: a+b+c+d"),
    line(
        "gradient", "(100 000, 100)", System(*ROWS, library="jax"), "jit: value_and_grad", "jit: a sum and four arrays"
    ),
    line("recurrence", "(200 000, 100)", Sequence(*MORE_ROWS), "linear_recurrence"),
    line("recurrence-long", "n = 2e7", Sequence((20_000_000,), 0), "linear_recurrence"),
    line("logcumsumexp", "(1000, 2000)", logarithms.Problem((1000, 2000)), "logcumsumexp", "torch.logcumsumexp"),
    line(
        "kalman", "1000 series, 200 steps", kalman.Problem((1000, 200), 0.1), "log_likelihood", "jit: vmapped lax.scan"
    ),
    verb("masked-columns", "(500, 2000), axis=0, where=mask", "solve, where=mask, axis=0", (500, 2000)),
    verb("slogdet", "(2000, 500)", "slogdet", (2000, 500)),
    verb("matmul", "(2000, 500)", "matmul", (2000, 500)),
    verb("blocks", "(1000, 100, 3)", "solve_block", (1000, 100, 3)),
    verb("recurrence-columns", "(500, 2000), axis=0", "linear_recurrence, axis=0", (500, 2000)),
    verb("recurrence-order-2", "(2000, 500), constant", "linear_recurrence of order 2", (2000, 500)),
    verb("recurrence-matrices", "(1000, 100, 3)", "matrix_recurrence", (1000, 100, 3)),
    verb("recurrence-logarithms", "(1000, 200)", "log_linear_recurrence", (1000, 200)),
    line("smith-waterman", "64 of (100, 120)", alignment.Problem((64, 100, 120)), alignment.OURS, alignment.THEIRS),
]
