"""What does a log-likelihood of many series cost, and its gradient, as they get longer? (4 states, 1 value observed)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from textbook import likelihood

from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.problems import Problem

VALUES, LENGTHS = 1_000_000, (100, 1000, 10_000)
TINY_VALUES, TINY_LENGTHS = 60, (10,)


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    values = TINY_VALUES if rehearse else VALUES
    for gradient in (False, True):
        for n in TINY_LENGTHS if rehearse else LENGTHS:
            yield of(values // n, n, gradient)


def of(series: int, n: int, gradient: bool) -> Comparison:
    problem = Problem("kalman.log_likelihood", (series, n, 1), library="jax", gradient=gradient)
    makers = {
        "tridiag, JAX arrays in jit": problem.contestant,
        "JAX, lax.scan vmapped": lambda: problem.by(vmapped),
    }
    if not gradient:
        makers["tridiag, NumPy arrays"] = problem.of("numpy").contestant
    panel = "with its gradient" if gradient else "log-likelihood"
    facts = {"panel": panel, "along": "steps of a series", "at": n}
    title = f"{panel}: {series} series of {n} steps, float64"
    return Comparison(title, makers, problem.words, problem.dtype, "JAX, lax.scan vmapped", facts=facts)


def vmapped(y: Any, *model: Any) -> Any:
    """The textbook's filter of all series."""
    import jax

    return jax.vmap(likelihood(), in_axes=(0, *[None] * len(model)))(y, *model)
