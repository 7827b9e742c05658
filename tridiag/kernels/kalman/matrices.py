"""Matrices of lanes: the ``ops`` of `tridiag.algorithms.kalman_filter`, and how covariances are packed.

A matrix is a NumPy array of vectors, so the steps are written out for its size. Of a symmetric matrix only the upper
triangle is computed.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_square_roots import Root
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class Lanes:
    """The ``ops`` of `tridiag.algorithms.kalman_filter`."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.where = np.frompyfunc(self.choose, 3, 1)
        self.size, self.at_most = np.frompyfunc(code.size, 1, 1), np.frompyfunc(operator.le, 2, 1)
        self.one, self.limits = code.one, code.limits

    def choose(self, mask: Value, *sides: Any) -> Value:
        """Of vectors and numbers."""
        return self.code.where(mask, *(x if isinstance(x, Value) else self.code.splat(x) for x in sides))

    def nan(self, x: Any) -> Value:
        return self.code.splat(float("nan"))

    def zero(self, x: Any) -> Any:
        return np.full(x.shape, self.code.zero(), object)

    def identity(self, like: Any) -> Any:
        zero, one = self.code.zero(), self.code.one()
        return np.array([[one if i == j else zero for j in range(len(like))] for i in range(len(like))], object)

    @staticmethod
    def keep(x: Any) -> Any:
        return x

    @staticmethod
    def stack(rows: Any) -> Any:
        return np.stack(rows) if isinstance(rows[0], np.ndarray) else vector(rows)

    @staticmethod
    def join(x: Any, y: Any) -> Any:
        return np.concatenate((x, y))

    @staticmethod
    def product(x: Any, y: Any) -> Any:
        return functools.reduce(operator.add, (x[:, j, None] * y[None, j] for j in range(x.shape[1])))

    @staticmethod
    def symmetric(x: Any) -> Any:
        x = x.copy()
        for i, j in zip(*np.triu_indices(len(x), 1), strict=True):
            x[j, i] = x[i, j]
        return x


class Entries(kalman_filter.Entries):
    """How covariances as they stand are carried in registers and kept in memory: the upper triangle."""

    @staticmethod
    def packed(cov: Any) -> tuple[Value, ...]:
        return tuple(cov[np.triu_indices(len(cov))])

    @staticmethod
    def unpacked(values: Any, size: int) -> Any:
        cov = np.empty((size, size), object)
        for (i, j), value in zip(zip(*np.triu_indices(size), strict=True), values, strict=True):
            cov[i, j] = cov[j, i] = value
        return cov


class Roots(kalman_filter.Roots):
    """The same of square roots: weights, then columns."""

    @staticmethod
    def packed(root: Root) -> tuple[Value, ...]:
        return *root.weights, *(x for column in root.columns for x in column)

    @staticmethod
    def unpacked(values: Any, size: int) -> Root:
        weights, rest = list(values[:size]), iter(values[size:])
        return Root([vector([next(rest) for _ in range(size - 1 - j)]) for j in range(size)], weights)


Form = type[Entries] | type[Roots]


def vector(values: Any) -> Any:
    found = np.empty(len(values), object)
    found[:] = values
    return found
