"""`tridiag.smith_waterman`, score and gradient, against a jitted, vmapped `lax.scan` over anti-diagonals.

    python benchmarks/alignment.py [--only large] [--rounds 11] [--tiny]

float32, normal scores, gap = -1 (and gap_open = -2), inside jit, outputs fresh. A cell is an entry of the scores; both
are one cell's work. A first call is that of a new process that finds no compiled kernel, imports included.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import Bar, Contestant, Race, Timing, faster, race, seconds
from rich.console import Console
from rich.table import Table

import tridiag
from tridiag.layout import threads

OURS, THEIRS, FIRST = "score and gradient", "lax.scan", "first call"
SAMPLE = 4  # pairs that are judged
LIMIT = 1000  # eps: scores are sums of hundreds of terms, probabilities their exponentials
FIRST_CALL = """
import time
start = time.perf_counter(), time.process_time()
import json, jax, jax.numpy as jnp, numpy as np, tridiag
scores = jnp.asarray(np.random.default_rng(0).normal(size=(64, 100, 120)).astype("float32"))
ready = time.perf_counter(), time.process_time()
found = jax.jit(jax.value_and_grad(lambda x: tridiag.smith_waterman(x, gap=-1.0, gap_open=GAP_OPEN).sum()))(scores)
jax.block_until_ready(found)
print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]))
"""


def total(gap_open: float | None, **options: Any) -> Callable[[Any], Any]:
    """The scores and their gradient, jitted."""

    def function(x: Any) -> Any:
        found = tridiag.smith_waterman(x, gap=-1.0, gap_open=gap_open, **options)
        return found.sum(), found

    return jax.jit(jax.value_and_grad(function, has_aux=True))


def textbook() -> Callable[[Any], Any]:
    """A scan over the anti-diagonals of one pair, vmapped."""

    def one(s: Any) -> Any:
        rows, columns = s.shape
        i, none = jnp.arange(rows), jnp.full(rows, -1e30, s.dtype)

        def shift(x: Any) -> Any:
            return jnp.concatenate([none[:1], x[:-1]])

        def step(carry: Any, k: Any) -> Any:
            before, last = carry
            j = k - i
            w = s[i, jnp.clip(j, 0, columns - 1)]
            terms = shift(before) + w, shift(last) - 1, last - 1, w
            here = jnp.where((j >= 0) & (j < columns), jax.scipy.special.logsumexp(jnp.stack(terms), axis=0), -1e30)
            return (last, here), here

        cells = jax.lax.scan(step, (none, none), jnp.arange(rows + columns - 1))[1]
        return jax.scipy.special.logsumexp(cells)

    def function(x: Any) -> Any:
        found = jax.vmap(one)(x)
        return found.sum(), found

    return jax.jit(jax.value_and_grad(function, has_aux=True))


def judge(scores: np.ndarray, gap_open: float | None) -> Callable[[Any], float]:
    """The largest error of the scores and gradients of some pairs, in eps, relative to `jax_wavefront` in float64."""
    (_, right), by_right = total(gap_open, backend="jax_wavefront")(jnp.asarray(scores[:SAMPLE], jnp.float64))

    def error(found: Any) -> float:
        (_, score), by_scores = found
        errors = abs(score[:SAMPLE] / right - 1).max(), abs(by_scores[:SAMPLE] - by_right).max()
        return float(max(errors)) / float(np.finfo(np.float32).eps)

    return error


def contestant(function: Any, scores: np.ndarray, gap_open: float | None) -> Contestant:
    given = jnp.asarray(scores)
    return Contestant(lambda: jax.block_until_ready(function(given)), judge(scores, gap_open), LIMIT)


def rate(limit: float, cells: int) -> Bar:
    """How many cells a core does in a nanosecond."""
    return Bar(OURS, (OURS,), lambda x: cells / x / threads() / 1e9, limit, at_most=False, unit="e9 cells/s/core")


def make(shape: tuple[int, ...], gap_open: float | None, bars: list[Bar], baseline: bool) -> tuple[Any, list[Bar]]:
    scores = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    contestants = {OURS: contestant(total(gap_open), scores, gap_open)}
    if baseline:
        contestants[THEIRS] = contestant(textbook(), scores, gap_open)
    return contestants, bars


class NewProcess(Contestant):
    """What a new process with an empty cache takes; it tells itself."""

    def sample(self, calls: int) -> Timing:
        return Timing(*self.call())

    def repeat(self) -> int:
        return 1


def first(gap_open: float | None) -> tuple[Any, list[Bar]]:
    def call() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "XDG_CACHE_HOME": folder, "HOME": folder}
            program = FIRST_CALL.replace("GAP_OPEN", repr(gap_open))
            run = [sys.executable, "-c", program]
            return json.loads(subprocess.run(run, env=environment, capture_output=True, check=True, text=True).stdout)

    return {FIRST: NewProcess(call, lambda _: 0.0, 0.0)}, [seconds(10, FIRST)]


def lines(tiny: bool) -> dict[str, Callable[[], Any]]:
    small, large = ((64, 100, 120), (1024, 256, 256)) if not tiny else ((4, 9, 10), (4, 9, 10))
    cells = int(np.prod(large))
    return {
        "small": lambda: make(small, None, [faster(60, OURS, THEIRS)], True),
        "large": lambda: make(large, None, [rate(0.35, cells)], False),
        "large-affine": lambda: make(large, -2.0, [rate(0.175, cells)], False),
        "first": lambda: first(None),
        "first-affine": lambda: first(-2.0),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="a line, or a pattern: 'large*'")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: no bar counts")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    table, short, start = Table("line", "figure", "median", "quartiles", "bar", "", "ms"), False, time.perf_counter()
    for name, prepare in lines(options.tiny).items():
        if not fnmatch.fnmatchcase(name, options.only):
            continue
        contestants, bars = prepare()
        result: Race = race(contestants, 3 if name.startswith("first") else options.rounds)
        told = ", ".join(f"{who} {1e3 * result.summary(who)['seconds']:.3g}" for who in contestants)
        for bar in bars:
            found = bar.judge(result.walls())
            low, high = found["quartiles"]
            short |= found["verdict"] == "short"
            table.add_row(name, found["figure"], f"{found['median']:.3g}", f"{low:.3g} to {high:.3g}", found["bar"],
                          found["verdict"], told)  # fmt: skip
    Console(width=int(os.environ.get("COLUMNS", "150"))).print(table)
    print(f"{time.perf_counter() - start:.0f} s")
    return int(short and not options.tiny)


if __name__ == "__main__":
    sys.exit(main())
