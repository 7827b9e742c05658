"""What a step leaves that depends on covariances alone: other series take it over, or later steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tridiag.algorithms import kalman_filter
from tridiag.kernels.kalman.matrices import vector
from tridiag.kernels.simd.values import Value


class Recorded(NamedTuple):
    """Of each observation of a step: its weight, gains, and the column of L below its diagonal."""

    weights: Sequence[Value]
    gains: Sequence[Any]
    factors: Sequence[Any]

    @classmethod
    def of(cls, weights: Sequence[Value], rows: Sequence[Any], factors: Sequence[Any]) -> Recorded:
        return cls(weights, [row * weight for row, weight in zip(rows, weights, strict=True)], factors)

    @property
    def numbers(self) -> list[Value]:
        """All of it, as it is kept."""
        return [
            *self.weights,
            *(x for gain in self.gains for x in gain),
            *(x for column in self.factors for x in column),
        ]

    @classmethod
    def taken(cls, numbers: Iterator[Value], states: int, observed: int) -> Recorded:
        """From the first of such numbers."""
        weights = [next(numbers) for _ in range(observed)]
        gains = [vector([next(numbers) for _ in range(states)]) for _ in range(observed)]
        return cls(weights, gains, [vector([next(numbers) for _ in range(observed - 1 - j)]) for j in range(observed)])

    def update(self, H: Any, y: Any, mean: Any) -> tuple[Any, list[Value]]:
        """The mean once observations are known, and their independent errors."""
        errors = kalman_filter.reduced(list(self.factors), y - kalman_filter.apply(H, mean))
        for gain, error in zip(self.gains, errors, strict=True):
            mean = mean + gain * error
        return mean, errors

    def add_squares(self, errors: list[Value], quadratic: Value) -> Value:
        """A sum of squares, and of those errors, each over its variance."""
        for weight, error in zip(self.weights, errors, strict=True):
            quadratic = quadratic + error * error * weight
        return quadratic
