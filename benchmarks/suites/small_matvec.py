"""Where do libraries change their mind about products of very small matrices and vectors?

(1000, 1000, 3, k) @ (1000, 1000, k, 1) for k from 5 to 50; and a step of `matrix_recurrence`, which is a product of
square matrices with vectors and a sum: there each lane of a vector of the CPU holds a sequence, whatever the size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import tridiag
from tridiag.benchmarking import libraries
from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.errors import Array, relative_error
from tridiag.benchmarking.kinds import Words
from tridiag.benchmarking.race import Contestant

BATCH, TINY = (1000, 1000), (6, 5)
ROWS, COLUMNS, SQUARES = 3, (5, 8, 10, 12, 16, 20, 24, 32, 40, 50), (3, 4, 8, 16)
DTYPES = "float64", "float32"
CLOSE = 1e3  # eps of the largest entry
EINSUM = "...ij,...j->...i"


@dataclass(frozen=True)
class Products:
    """A matrix and a vector for each place of the batch."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    dtype: str

    @cached_property
    def host(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        shapes = (*self.batch, self.rows, self.columns), (*self.batch, self.columns)
        A, v = (np.asarray(rng.standard_normal(shape), self.dtype) for shape in shapes)
        return A, v

    @property
    def words(self) -> Words:
        return Words(self.rows * self.columns + self.columns, self.rows).times(math.prod(self.batch))

    @cached_property
    def wanted(self) -> Array:
        A, v = self.host
        return np.asarray((A * v[..., None, :]).sum(-1, dtype=float))

    def by(self, library: str, function: Callable[..., Any]) -> Contestant:
        arrays = [libraries.array(library, x) for x in self.host]
        return Contestant(libraries.called(library, function, arrays), lambda y: relative_error(y, self.wanted), CLOSE)


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    batch, dtypes = TINY if rehearse else BATCH, DTYPES[:1] if rehearse else DTYPES
    for dtype in dtypes:
        for k in COLUMNS[:2] if rehearse else COLUMNS:
            yield of(Products(batch, ROWS, k, dtype), f"(3, k) matrices, {dtype}", "columns k", k)
    for dtype in dtypes:
        for m in SQUARES[:2] if rehearse else SQUARES:
            yield of(Products(batch, m, m, dtype), f"(m, m) matrices, {dtype}", "rows m", m)


def of(problem: Products, panel: str, along: str, at: int) -> Comparison:
    def torch_einsum(A: Any, v: Any) -> Any:
        return libraries.load("torch").einsum(EINSUM, A, v)

    def jax_einsum(A: Any, v: Any) -> Any:
        return libraries.load("jax").einsum(EINSUM, A, v)

    makers = {
        "NumPy, matmul": lambda: problem.by("numpy", product),
        "NumPy, einsum": lambda: problem.by("numpy", lambda A, v: np.einsum(EINSUM, A, v)),
        "JAX, matmul in jit": lambda: problem.by("jax", product),
        "JAX, einsum in jit": lambda: problem.by("jax", jax_einsum),
        "JAX, multiply and sum in jit": lambda: problem.by("jax", lambda A, v: (A * v[..., None, :]).sum(-1)),
        "PyTorch, matmul": lambda: problem.by("torch", product),
        "PyTorch, einsum": lambda: problem.by("torch", torch_einsum),
    }
    if problem.rows == problem.columns:
        makers["tridiag.matrix_recurrence, a step"] = lambda: problem.by("numpy", step)
    shape = f"{(*problem.batch, problem.rows, problem.columns)}, {problem.dtype}"
    facts = {"panel": panel, "along": along, "at": at}
    return Comparison(shape, makers, problem.words, problem.dtype, "NumPy, matmul", facts=facts)


def product(A: Any, v: Any) -> Any:
    return (A @ v[..., None])[..., 0]


def step(A: Any, v: Any) -> Any:
    """One step of a recurrence from a state, to which nothing is added."""
    size = v.shape[-1]
    nothing = np.broadcast_to(np.zeros((), v.dtype), (math.prod(v.shape[:-1]), 1, size))
    y = tridiag.matrix_recurrence(A.reshape(-1, 1, size, size), nothing, v.reshape(-1, size))
    return y.reshape(v.shape)
