"""`tridiag.smith_waterman`, score and gradient, against a jitted, vmapped `lax.scan` over anti-diagonals.

    python benchmarks/alignment.py [--only NAME]... [--rounds N] [--json FILE]

`LINES` is the table, and how it is measured is as in `cpu.py`. float32, normal scores, gap = -1 (and gap_open = -2),
inside jit, outputs fresh. A cell is an entry of the scores; both are one cell's work. A first call is that of a new
process that finds no compiled kernel, imports included. The record of a whole run goes to
``benchmarks/results/alignment/``, a file a processor.

Exits with 1 where a figure is short of its bar or an answer is wrong. Needs JAX and rich; takes two minutes.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bars import Bar, faster, seconds
from lines import Line, run
from textbook import align_by_scan

import tridiag
from tridiag.benchmarking.race import Contestant, Timing
from tridiag.kernels.jobs.systems import threads

RESULTS = Path(__file__).parent / "results" / "alignment"
GAP = -1.0
OURS, THEIRS, FIRST = "score and gradient", "lax.scan", "first call"
SAMPLE = 4  # pairs that are judged
LIMIT = 1000  # eps: scores are sums of hundreds of terms, probabilities their exponentials
FIRST_CALL = """
import time
start = time.perf_counter(), time.process_time()
import json, jax, jax.numpy as jnp, numpy as np, tridiag
scores = jnp.asarray(np.random.default_rng(0).normal(size=SHAPE).astype("float32"))
ready = time.perf_counter(), time.process_time()
found = jax.jit(jax.value_and_grad(lambda x: tridiag.smith_waterman(x, gap=-1.0, gap_open=GAP_OPEN).sum()))(scores)
jax.block_until_ready(found)
print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]))
"""


@dataclass(frozen=True)
class Problem:
    """Pairs of one shape; scores are made when first asked for, and the same for all contestants."""

    shape: tuple[int, ...]
    gap_open: float | None = None

    @cached_property
    def scores(self) -> np.ndarray[Any, Any]:
        return np.random.default_rng(0).normal(size=self.shape).astype(np.float32)

    @cached_property
    def right(self) -> Any:
        """Of the first pairs, by `jax_wavefront` in float64: the scores, and their gradient."""
        jax.config.update("jax_enable_x64", True)
        (_, score), by_scores = total(verb(self.gap_open, backend="jax_wavefront"))(
            jnp.asarray(self.scores[:SAMPLE], float)
        )
        return np.asarray(score), np.asarray(by_scores)

    def error(self, found: Any) -> float:
        """The largest error of the scores and gradients of some pairs, in eps."""
        (_, score), by_scores = found
        right, by_right = self.right
        errors = abs(score[:SAMPLE] / right - 1).max(), abs(by_scores[:SAMPLE] - by_right).max()
        return float(max(errors)) / float(np.finfo(np.float32).eps)


def total(align: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The scores and their gradient, jitted."""

    def function(x: Any) -> Any:
        found = align(x)
        return found.sum(), found

    return jax.jit(jax.value_and_grad(function, has_aux=True))


def verb(gap_open: float | None, **options: Any) -> Callable[[Any], Any]:
    return functools.partial(tridiag.smith_waterman, gap=GAP, gap_open=gap_open, **options)


def contestant(problem: Problem, function: Any) -> Contestant:
    given = jnp.asarray(problem.scores)
    return Contestant(lambda: jax.block_until_ready(function(given)), problem.error, LIMIT)


def ours(problem: Problem) -> Contestant:
    return contestant(problem, total(verb(problem.gap_open)))


def theirs(problem: Problem) -> Contestant:
    return contestant(problem, total(lambda x: align_by_scan(x, GAP)))


class NewProcess(Contestant):
    """What a new process with an empty cache takes; it tells itself."""

    def sample(self, calls: int) -> Timing:
        return Timing(*self.call())

    def repeat(self) -> int:
        return 1


def first(problem: Problem) -> Contestant:
    program = FIRST_CALL.replace("SHAPE", repr(problem.shape)).replace("GAP_OPEN", repr(problem.gap_open))

    def call() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "XDG_CACHE_HOME": folder, "HOME": folder}
            told = [sys.executable, "-c", program]
            return json.loads(subprocess.run(told, env=environment, capture_output=True, check=True, text=True).stdout)

    return NewProcess(call, lambda _: 0.0, 0.0)


MAKERS: dict[str, Callable[[Any], Contestant]] = {OURS: ours, THEIRS: theirs, FIRST: first}
SMALL, LARGE = (64, 100, 120), (1024, 256, 256)


def rate(limit: float) -> Bar:
    """How many cells of the large problem a core does in a nanosecond."""
    cells = int(np.prod(LARGE))
    return Bar(OURS, (OURS,), lambda x: cells / x / threads() / 1e9, limit, at_most=False, unit="e9 cells/s/core")


LINES = [
    Line("small", f"{SMALL}", Problem(SMALL), (faster(60, OURS, THEIRS),)),
    Line("large", f"{LARGE}", Problem(LARGE), (rate(0.35),)),
    Line("large-affine", f"{LARGE}, affine gaps", Problem(LARGE, -2.0), (rate(0.175),)),
    Line("first", f"{SMALL}, a new process", Problem(SMALL), (seconds(10, FIRST),)),
    Line("first-affine", f"{SMALL}, affine gaps, a new process", Problem(SMALL, -2.0), (seconds(10, FIRST),)),
]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
