"""How fast is a cumulative sum of exponentials in logarithms, and which formulas lose it?

The second comparison has terms that rise by 2000 along each sequence: exp(x - max(x)) is 0 where they begin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import textbook

from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.errors import Array
from tridiag.benchmarking.problems import Problem
from tridiag.benchmarking.race import Contestant

SHAPE, TINY = (1000, 10_000), (4, 50)
USUAL = 1e5  # eps of max(1, abs(y)): what sums of rounded terms may lose
RISE = 2000.0


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    shape = TINY if rehearse else SHAPE
    yield of(Problem("logcumsumexp", shape), f"{shape}, normal terms")
    rising = Problem("logcumsumexp", shape)
    rising.__dict__["host"] = (rising.host[0] + np.linspace(-RISE, 0, shape[-1]),)
    yield of(rising, f"{shape}, terms that rise by {RISE:g}")


def of(problem: Problem, title: str) -> Comparison:
    import jax
    import jax.numpy as jnp

    def jitted() -> Problem:
        return problem.of("jax")

    def by_torch() -> Contestant:
        import torch

        return problem.of("torch").by(lambda x: torch.logcumsumexp(x, -1), USUAL)

    makers = {
        "tridiag, NumPy arrays": problem.contestant,
        "tridiag, JAX arrays in jit": lambda: jitted().contestant(),
        "tridiag, PyTorch tensors": lambda: problem.of("torch").contestant(),
        "JAX, lax.scan": lambda: jitted().by(textbook.by_scan, USUAL),
        "JAX, lax.associative_scan": lambda: jitted().by(
            lambda x: jax.lax.associative_scan(jnp.logaddexp, x, axis=-1), USUAL
        ),
        "JAX, lax.cumlogsumexp": lambda: jitted().by(lambda x: jax.lax.cumlogsumexp(x, x.ndim - 1), USUAL),
        "JAX, from the maximum of all": lambda: jitted().by(lambda x: textbook.by_global_maximum(x, jnp), USUAL),
        "NumPy, from the maximum of all": lambda: problem.by(in_numpy, USUAL),
        "NumPy, logaddexp.accumulate": lambda: problem.by(lambda x: np.logaddexp.accumulate(x, -1), USUAL),
        "PyTorch, torch.logcumsumexp": by_torch,
    }
    return Comparison(f"{title}, float64", makers, problem.words, problem.dtype, "PyTorch, torch.logcumsumexp")


def in_numpy(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(textbook.by_global_maximum(x, np))
