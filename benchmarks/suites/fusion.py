"""What does compiling a chain of elementwise operations bring, and how is it timed right?

GELU by its formula with tanh. Compiled, it reads and writes each number once; uncompiled, each operation does so. The
first call, which compiles, stands apart. One contestant is timed wrong on purpose: its clock stops before JAX has a
result.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tridiag.benchmarking import libraries
from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.errors import relative_error
from tridiag.benchmarking.kinds import Words
from tridiag.benchmarking.race import Contestant, Timing

SIZE, TINY = 10_000_000, 1000
CLOSE = 100.0  # eps of the largest entry
Gelu = Callable[[Any], Any]


class NotWaitedFor(Contestant):
    """The clock stops when the call returns; its work is waited for afterwards, so that it delays nobody else."""

    def repeat(self) -> int:
        return 1

    def sample(self, calls: int) -> Timing:
        cpu, wall = time.process_time(), time.perf_counter()
        result = self.call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        result.block_until_ready()
        return Timing(wall, cpu)


def gelu(x: Any, tanh: Any) -> Any:
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    import jax
    import jax.numpy as jnp

    libraries.load("jax")  # with float64, which leaves float32 as it is
    x = np.random.default_rng(0).standard_normal(TINY if rehearse else SIZE, "float32")
    in_jax = functools.partial(gelu, tanh=jnp.tanh)

    def by(library: str, call: Callable[[Any], Callable[[], Any]], kind: type[Contestant] = Contestant) -> Contestant:
        given = libraries.array(library, x)
        return kind(call(given), lambda y: relative_error(y, gelu(x.astype(float), np.tanh)), CLOSE)

    def jitted(given: Any) -> Callable[[], Any]:
        return functools.partial(jax.jit(in_jax), given)

    makers = {
        "NumPy": lambda: by("numpy", lambda given: lambda: gelu(given, np.tanh)),
        "JAX, an operation at a time": lambda: by("jax", lambda given: lambda: in_jax(given).block_until_ready()),
        "JAX, jit": lambda: by("jax", lambda given: libraries.called("jax", in_jax, [given])),
        "JAX, jit, not waited for (wrong)": lambda: by("jax", jitted, NotWaitedFor),
        "PyTorch, eager": lambda: by("torch", lambda given: lambda: in_torch()(given)),
        "PyTorch, torch.compile": lambda: by("torch", lambda given: functools.partial(compiled(rehearse), given)),
    }
    yield Comparison(f"GELU of {x.size} numbers, float32", makers, Words(1, 1).times(x.size), "float32", "NumPy")


def in_torch() -> Gelu:
    import torch

    return functools.partial(gelu, tanh=torch.tanh)


def compiled(rehearse: bool) -> Gelu:
    """A rehearsal traces only: a C++ compiler takes a while."""
    import torch

    return torch.compile(in_torch(), backend="aot_eager" if rehearse else "inductor")
