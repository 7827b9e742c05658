"""`tridiag.selective_scan` of a layer, forward and with gradients, against `linear_recurrence` and a sum over states.

    python benchmarks/selective_scan.py [--only NAME]... [--rounds N] [--json FILE]
    python benchmarks/selective_scan.py memory

`LINES` is the table, and how it is measured is as in `cpu.py`. float32, (batch, steps, channels) and 16 states; B and
C are those of all channels, coefficients exp(step a). What is compared makes them, and the states of all steps. From
PyTorch on the CPU, and in JAX inside jit. The record of a whole run goes to ``benchmarks/results/selective_scan/``, a
file a processor. With ``memory`` it tells, of a process each, the largest memory that a call needs beside what was
there before it, as a multiple of x.

Exits with 1 where an answer is wrong. Needs PyTorch, JAX and rich; takes two minutes.
"""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from bars import faster
from lines import Line, run

import tridiag
from tridiag.benchmarking.errors import relative_error
from tridiag.benchmarking.race import Contestant

RESULTS = Path(__file__).parent / "results" / "selective_scan"
STATES = 16
ACCURATE = 1e3  # eps of the largest value of each result
NAMES = "a", "x", "B", "C", "step"
KEPT = 1024  # bytes of what the system counts memory in


@dataclass(frozen=True)
class Layer:
    """Arrays of a shape (batch, steps, channels), made when first asked for, and the same for all contestants."""

    shape: tuple[int, ...]

    @cached_property
    def host(self) -> tuple[Any, ...]:
        rng, (batch, n, channels) = np.random.default_rng(0), self.shape
        a = -np.arange(1.0, STATES + 1) * np.ones((channels, 1))
        B, C = rng.standard_normal((2, batch, n, 1, STATES))
        x, step = rng.standard_normal(self.shape), np.exp(rng.uniform(np.log(0.001), np.log(0.1), self.shape))
        return tuple(v.astype(np.float32) for v in (a, x, B, C, step))

    @cached_property
    def wanted(self) -> Any:
        """By NumPy, in double precision."""
        a, x, B, C, step = (v.astype(float) for v in self.host)
        return tridiag.selective_scan(a, x, B, C, step=step, axis=1, backend="numpy_scan")

    @cached_property
    def gradients(self) -> list[Any]:
        """Of half the sum of squares, by the reference in double precision."""
        leaves = [v.double().requires_grad_() for v in on_torch(self)]
        half_of_squares(fused(*leaves, backend="torch_scan")).backward()
        return [leaf.grad.numpy() for leaf in leaves]

    def error(self, y: Any) -> float:
        return relative_error(np.asarray(y), self.wanted)

    def error_of_gradients(self, found: Any) -> float:
        return max(relative_error(np.asarray(v), w) for v, w in zip(found, self.gradients, strict=True))


def on_torch(layer: Layer) -> list[Any]:
    import torch

    return [torch.tensor(v) for v in layer.host]


def fused(a: Any, x: Any, B: Any, C: Any, step: Any, **options: Any) -> Any:
    return tridiag.selective_scan(a, x, B, C, step=step, axis=1, **options)


def composed(a: Any, x: Any, B: Any, C: Any, step: Any) -> Any:
    exp = sys.modules["torch"].exp if hasattr(x, "detach") else sys.modules["jax"].numpy.exp
    step = step[..., None]
    return (tridiag.linear_recurrence(exp(step * a), step * x[..., None] * B, axis=1) * C).sum(-1)


def half_of_squares(y: Any) -> Any:
    return 0.5 * (y * y).sum()


def of_torch(function: Callable[..., Any], layer: Layer) -> Contestant:
    given = on_torch(layer)
    return Contestant(lambda: function(*given), layer.error, ACCURATE)


def gradient_of_torch(function: Callable[..., Any], layer: Layer) -> Contestant:
    given = [v.requires_grad_() for v in on_torch(layer)]

    def call() -> Any:
        import torch

        return torch.autograd.grad(half_of_squares(function(*given)), given)

    return Contestant(call, layer.error_of_gradients, ACCURATE)


def of_jax(function: Callable[..., Any], layer: Layer) -> Contestant:
    import jax

    given, compiled = [jax.numpy.asarray(v) for v in layer.host], jax.jit(function)
    return Contestant(lambda: jax.block_until_ready(compiled(*given)), layer.error, ACCURATE)


def gradient_of_jax(function: Callable[..., Any], layer: Layer) -> Contestant:
    import jax

    given = [jax.numpy.asarray(v) for v in layer.host]
    compiled = jax.jit(jax.grad(lambda *v: half_of_squares(function(*v)), (0, 1, 2, 3, 4)))
    return Contestant(lambda: jax.block_until_ready(compiled(*given)), layer.error_of_gradients, ACCURATE)


WAYS = {"torch": of_torch, "torch, gradients": gradient_of_torch, "jit": of_jax, "jit, gradients": gradient_of_jax}
MAKERS: dict[str, Callable[[Any], Contestant]] = {
    f"{way}: {told}": functools.partial(make, function)
    for way, make in WAYS.items()
    for told, function in (("selective_scan", fused), ("linear_recurrence and a sum", composed))
}
SHAPES = {"layer": (2, 1024, 512), "long": (1, 8192, 128)}
LINES = [
    Line(
        f"{name}-{way.replace(', ', '-')}",
        f"{shape}, {STATES} states, {way}",
        Layer(shape),
        (faster(None, f"{way}: selective_scan", f"{way}: linear_recurrence and a sum"),),
    )
    for name, shape in SHAPES.items()
    for way in WAYS
]


def peak() -> int:
    """The largest memory of this process so far, in bytes."""
    return KEPT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory() -> int:
    """What a first call in a process of its own adds to that of a call on a small layer, for each contestant."""
    for line in LINES:
        for name in line.contestants:
            command = [sys.executable, __file__, "of", line.name, name]
            found = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{line.told:45} {name:50} {float(found.stdout):6.1f} times x", flush=True)
    return 0


def memory_of(line: str, name: str) -> int:
    layer = next(one.problem for one in LINES if one.name == line)
    MAKERS[name](Layer((1, 64, 16))).call()
    contestant, before = MAKERS[name](layer), peak()
    contestant.call()
    print((peak() - before) / layer.host[1].nbytes)
    return 0


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given == ["memory"]:
        return memory()
    if given[:1] == ["of"]:
        return memory_of(*given[1:])
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
