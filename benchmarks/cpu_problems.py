"""The systems that `cpu.py` solves, and how wrong an answer to them is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tridiag.benchmarking.errors import Array, backward_errors


def dominant(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Diagonally dominant: couplings decay."""
    a, c = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape)
    return a, np.abs(a) + np.abs(c) + rng.uniform(0.01, 1, shape), c


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Nearly all of them fail the certificate."""
    return rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape)


def laplacian(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.full(shape, -1.0), np.full(shape, 2.0), np.full(shape, -1.0)


def steady(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Dominant, and a solution is about as large as its right side: it can be the next one."""
    return rng.uniform(-0.2, 0.2, shape), rng.uniform(0.9, 1.1, shape), rng.uniform(-0.2, 0.2, shape)


CERTIFIED = (dominant, laplacian, steady)


@dataclass(frozen=True)
class Problem:
    """Systems of one shape along an axis; arrays are made when first asked for, and the same for all contestants."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float64"
    matrix: Any = dominant
    shared: bool = False  # one matrix for all right sides
    library: str = "numpy"

    @property
    def n(self) -> int:
        return self.shape[self.axis]

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """a, b, c, d in the library of the problem."""
        rng = np.random.default_rng(0)
        matrix = self.matrix(rng, (self.n,) if self.shared else self.shape)
        arrays = tuple(x.astype(self.dtype) for x in (*matrix, rng.standard_normal(self.shape)))
        if self.library == "numpy":
            return arrays
        import jax

        jax.config.update("jax_enable_x64", True)
        return tuple(jax.block_until_ready(jax.numpy.array(x)) for x in arrays)

    @cached_property
    def host(self) -> tuple[Array, ...]:
        """a, b, c, d where they lie, as NumPy arrays that broadcast."""
        arrays = [np.asarray(x) for x in self.given]
        if self.shared:
            along = [1] * len(self.shape)
            along[self.axis] = self.n
            arrays[:3] = (x.reshape(along) for x in arrays[:3])
        return tuple(arrays)

    @cached_property
    def out(self) -> Array:
        return np.full(self.shape, np.nan, self.dtype)

    def errors(self, x: Any, periodic: bool = False) -> Array:
        return backward_errors(*self.host, np.asarray(x), self.axis, periodic)
