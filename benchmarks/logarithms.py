"""The speed of `tridiag.logcumsumexp` on the CPU against PyTorch and JAX, and of a stream of its two words.

    python benchmarks/logarithms.py [--only NAME]... [--rounds N] [--json FILE]

`LINES` is the table, and how it is measured is as in `cpu.py`. Terms are normal. The record of a whole run goes to
``benchmarks/results/logarithms/``, a file a processor. Its errors are the subject of ``tests/test_logarithms.py``.

Exits with 1 where a figure is short of its bar or an answer is wrong. Needs PyTorch, JAX and rich; takes a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
import numpy as np
from bars import faster, streams
from lines import Line, run

import tridiag
from tridiag.benchmarking.past_caches import stream_past_caches
from tridiag.benchmarking.race import Contestant
from tridiag.benchmarking.streams import copy
from tridiag.kernels.jobs.systems import threads

RESULTS = Path(__file__).parent / "results" / "logarithms"
ACCURATE, USUAL = 4, 1e5  # eps of max(1, abs(y))
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """Terms of one shape along an axis; arrays are made when first asked for, and the same for all contestants."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float64"

    @cached_property
    def host(self) -> Array:
        return np.random.default_rng(0).standard_normal(self.shape).astype(self.dtype)

    @cached_property
    def out(self) -> Array:
        return np.full(self.shape, np.nan, self.dtype)

    @cached_property
    def wanted(self) -> Array:
        """In long double: no sum of these terms overflows."""
        return np.log(np.cumsum(np.exp(self.host.astype(np.longdouble)), axis=self.axis))

    def error(self, y: Any) -> float:
        size = np.maximum(1, abs(self.wanted))
        return float((abs(np.asarray(y) - self.wanted) / size).max() / np.finfo(self.dtype).eps)


def stream(problem: Problem) -> Contestant:
    """Two words; as many threads as `tridiag` takes."""
    numba.set_num_threads(threads())
    x, out = problem.host.reshape(-1), problem.out.reshape(-1)
    return Contestant(lambda: copy(x, out), lambda _: float((out != x).any()), 0)


def ours(problem: Problem) -> Contestant:
    def call() -> Array:
        return tridiag.logcumsumexp(problem.host, axis=problem.axis, out=problem.out)

    return Contestant(call, problem.error, ACCURATE, out=problem.out)


def ours_jitted(problem: Problem) -> Contestant:
    import jax

    jax.config.update("jax_enable_x64", True)
    x = jax.block_until_ready(jax.numpy.array(problem.host))
    compiled = jax.jit(lambda x: tridiag.logcumsumexp(x, axis=problem.axis))
    return Contestant(lambda: compiled(x).block_until_ready(), problem.error, ACCURATE)


def of_torch(problem: Problem) -> Contestant:
    import torch

    torch.set_num_threads(threads())
    x = torch.from_numpy(problem.host)
    return Contestant(lambda: torch.logcumsumexp(x, problem.axis).numpy(), problem.error, USUAL)


def of_lax(problem: Problem) -> Contestant:
    import jax

    jax.config.update("jax_enable_x64", True)
    x = jax.block_until_ready(jax.numpy.array(problem.host))
    compiled = jax.jit(lambda x: jax.lax.cumlogsumexp(x, problem.axis % x.ndim))
    return Contestant(lambda: compiled(x).block_until_ready(), problem.error, USUAL)


MAKERS: dict[str, Callable[[Any], Contestant]] = {
    "stream": stream,
    "stream past the caches": lambda problem: stream_past_caches(problem.host),
    "logcumsumexp": ours,
    "jit: logcumsumexp": ours_jitted,
    "torch.logcumsumexp": of_torch,
    "jit: lax.cumlogsumexp": of_lax,
}

ROWS, COLUMNS, LONG = ((1000, 10_000), -1), ((10_000, 1000), 0), ((100_000,), 0)
STREAMS = streams(None, "logcumsumexp")


def torch_bar(factor: float | None) -> Any:
    return faster(factor, "logcumsumexp", "torch.logcumsumexp")


LINES = [
    Line("rows-float64", f"{ROWS[0]}, float64", Problem(*ROWS), (torch_bar(14), *STREAMS)),
    Line("long-float64", f"{LONG[0]}, float64", Problem(*LONG), (torch_bar(10), *STREAMS)),
    Line("columns-float64", f"{COLUMNS[0]}, axis=0, float64", Problem(*COLUMNS), (torch_bar(None), *STREAMS)),
    Line("rows-float32", f"{ROWS[0]}, float32", Problem(*ROWS, "float32"), (torch_bar(None), *STREAMS)),
    Line("long-float32", f"{LONG[0]}, float32", Problem(*LONG, "float32"), (torch_bar(None), *STREAMS)),
    Line(
        "columns-float32", f"{COLUMNS[0]}, axis=0, float32", Problem(*COLUMNS, "float32"), (torch_bar(None), *STREAMS)
    ),
    Line(
        "lax",
        f"{ROWS[0]}, float64",
        Problem(*ROWS),
        tuple(
            faster(bar, name, "jit: lax.cumlogsumexp")
            for bar, name in ((120, "logcumsumexp"), (None, "jit: logcumsumexp"))
        ),
    ),
]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
