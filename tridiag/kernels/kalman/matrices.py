"""Matrices of lanes: the ``ops`` of `tridiag.algorithms.kalman_filter`, and how covariances are packed.

A matrix is a NumPy array of vectors, so the steps are written out for its size. Of a symmetric matrix only the upper
triangle is computed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_square_roots import Root
from tridiag.kernels.simd.registers import Scratch
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class Lanes:
    """The ``ops`` of `tridiag.algorithms.kalman_filter`."""

    one_by_one = True

    def __init__(self, code: Code, scratch: Scratch | None = None) -> None:
        self.code, self.scratch = code, scratch
        self.where = np.frompyfunc(self.choose, 3, 1)
        self.size, self.at_most = np.frompyfunc(code.size, 1, 1), np.frompyfunc(operator.le, 2, 1)
        self.one, self.limits = code.one, code.limits

    def choose(self, mask: Value, *sides: Any) -> Value:
        """Of vectors and numbers."""
        return self.code.where(mask, *(x if isinstance(x, Value) else self.code.splat(x) for x in sides))

    def nan(self, x: Any) -> Value:
        return self.code.splat(float("nan"))

    def reciprocal(self, x: Any) -> Any:
        return self.one(x) / x

    def zero(self, x: Any) -> Any:
        return np.full(x.shape, self.code.zero(), object)

    def identity(self, like: Any) -> Any:
        zero, one = self.code.zero(), self.code.one()
        return np.array([[one if i == j else zero for j in range(len(like))] for i in range(len(like))], object)

    def keep(self, x: Any) -> Any:
        """Where there is scratch memory it goes there, so that no more waits in registers than there are."""
        return x if self.scratch is None else self.scratch.keep(x)

    def row_by_row(self, f: Callable[..., Any], x: Any, y: Any, z: Any) -> Any:
        """``f(ops, x, y, z[:, i])`` for all i: the rows of what it makes, by a loop where there is scratch memory."""
        x, y = self.keep(x)[:, None], self.keep(y)[:, None]
        if self.scratch is None or z.shape[1] < 2:
            return f(self, x, y, z)
        return self.scratch.row_by_row(lambda row: f(self, x, y, row), z)

    def through(self, f: Callable[..., Any], rows: Any, states: Any) -> tuple[list[Any], Any]:
        """The states after ``row, state = f(row, state)`` for each row and state; what is left of rows."""
        if self.scratch is not None and len(rows) > 1:
            return self.scratch.through(f, rows, states)
        states, left = list(states), []
        for row in rows:
            for j, state in enumerate(states):
                row, states[j] = self.keep(f(row, state))
            left.append(row)
        return states, np.stack(left)

    @staticmethod
    def stack(rows: Any) -> Any:
        return np.stack(rows) if isinstance(rows[0], np.ndarray) else vector(rows)

    @staticmethod
    def join(x: Any, y: Any) -> Any:
        return np.concatenate((x, y))

    def product(self, x: Any, y: Any) -> Any:
        def of(x: Any) -> Any:
            return functools.reduce(operator.add, (x[:, j, None] * y[None, j] for j in range(x.shape[1])))

        if self.scratch is None or not self.scratch.rolled or len(x) < 2:
            return of(x)
        y = self.keep(y)
        (found,) = self.scratch.row_by_row(lambda row: (of(row.T).T,), x.T)
        return found.T

    def symmetric(self, x: Any) -> Any:
        found = x.copy()
        for i, j in zip(*np.triu_indices(len(x)), strict=True):
            found[i, j] = found[j, i] = self.keep(x[i, j])
        return found


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
