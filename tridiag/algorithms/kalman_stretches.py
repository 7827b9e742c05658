"""What the steps of a filter make of the state before them, in one pass forwards, the same for every array library.

A filter that begins with N(z0, C) ends with a mean and a covariance. Had it begun with N(z0 + z, C), the mean would be
A z more, and what was observed exp(eta^T z - z^T J z / 2) times as likely: A, eta and J follow step by step. Together
they are a stretch as `tridiag.algorithms.kalman_parallel` joins them.

Arrays are as in `tridiag.algorithms.kalman_filter`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms.kalman_filter import Estimate, Observed, apply, outer, transpose


class Follow(NamedTuple):
    """How the steps depend on the state before them."""

    A: Any
    eta: Any
    J: Any


def start(ops: Any, like: Estimate) -> Follow:
    """Before the first step."""
    nothing = ops.zero(like.cov)
    return Follow(ops.identity(like.cov) + nothing, ops.zero(like.mean), nothing)


def follow(ops: Any, seen: Observed, F: Any, before: Follow) -> Follow:
    """A step more."""
    A, eta, J = before
    back = transpose(A)
    for weight, error, row, load in zip(seen.weights, seen.errors, seen.rows, seen.loads, strict=True):
        pulled = apply(back, load)
        scaled = pulled * weight
        A, eta, J = A - outer(row * weight, pulled), eta + scaled * error, J + outer(scaled, pulled)
    return Follow(ops.product(F, A), eta, J)
