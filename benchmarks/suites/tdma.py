"""Why are scans slower than expected? (issue 2491 of JAX: 100 000 tridiagonal systems of 100 rows)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import textbook

from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.problems import Problem

SHAPE, TINY = (100_000, 100), (40, 12)
UNREFINED = 1e3  # eps: loops without pivoting or refinement


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    problem = Problem("solve", TINY if rehearse else SHAPE)
    rows = replace(problem, shape=problem.shape[::-1], axis=0, library="jax")  # rows lie behind one another
    jax, torch = (lambda: problem.of("jax")), (lambda: problem.of("torch"))
    makers = {
        "tridiag, NumPy arrays": problem.contestant,
        "tridiag, JAX arrays in jit": lambda: jax().contestant(),
        "tridiag, PyTorch tensors": lambda: torch().contestant(),
        "NumPy, a loop over rows": lambda: problem.by(textbook.thomas_in_numpy, UNREFINED),
        "JAX, lax.scan between transposes": lambda: jax().by(textbook.thomas, UNREFINED),
        "JAX, lax.scan, rows first": lambda: rows.by(textbook.thomas_of_rows, UNREFINED),
        "JAX, fori_loop with at[].set": lambda: jax().by(textbook.thomas_by_scatter, UNREFINED),
        "JAX, fori_loop with dynamic slices": lambda: jax().by(textbook.thomas_by_slices, UNREFINED),
        "JAX, lax.linalg.tridiagonal_solve": lambda: jax().by(by_lax, UNREFINED),
        "Numba, the textbook in a prange": lambda: problem.by(thomas, UNREFINED),
        "SciPy, LAPACK gtsv in a loop": lambda: problem.by(by_lapack, UNREFINED),
        "PyTorch, a loop over rows": lambda: torch().by(textbook.thomas_in_torch, UNREFINED),
    }
    title = f"{problem.shape[0]} systems of {problem.shape[1]} rows, float64"
    yield Comparison(title, makers, problem.words, problem.dtype, "JAX, lax.scan between transposes")


def by_lax(a: Any, b: Any, c: Any, d: Any) -> Any:
    from jax import lax

    return lax.linalg.tridiagonal_solve(a, b, c, d[..., None])[..., 0]


def by_lapack(a: Any, b: Any, c: Any, d: Any) -> Any:
    """A call for each system."""
    from scipy.linalg import get_lapack_funcs

    (gtsv,) = get_lapack_funcs(("gtsv",), (b,))
    return np.array([gtsv(*system)[3] for system in zip(a[:, 1:], b, c[:, :-1], d, strict=True)])


@numba.njit(parallel=True)
def thomas(a, b, c, d):  # type: ignore[no-untyped-def]
    x, upper = np.empty_like(d), np.empty_like(d)
    n = d.shape[1]
    for k in numba.prange(d.shape[0]):
        upper[k, 0] = c[k, 0] / b[k, 0]
        x[k, 0] = d[k, 0] / b[k, 0]
        for i in range(1, n):
            pivot = 1 / (b[k, i] - a[k, i] * upper[k, i - 1])
            upper[k, i] = c[k, i] * pivot
            x[k, i] = (d[k, i] - a[k, i] * x[k, i - 1]) * pivot
        for i in range(n - 2, -1, -1):
            x[k, i] -= upper[k, i] * x[k, i + 1]
    return x
