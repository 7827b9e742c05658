"""How wrong a result of a problem is, in eps: one judge for each verb."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tridiag.benchmarking.errors import Array, backward_errors
from tridiag.benchmarking.operands import Shape

SAMPLE = 4  # pairs whose alignment is judged


class Posed(Protocol):
    """What a judge asks of a problem (`tridiag.benchmarking.problems.Problem`)."""

    @property
    def host(self) -> tuple[Array, ...]: ...
    @property
    def exact(self) -> list[Array]: ...
    @property
    def wanted(self) -> Array: ...
    @property
    def eps(self) -> float: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def axis(self) -> int: ...
    @property
    def pivoting(self) -> bool | str: ...
    @property
    def periodic(self) -> bool: ...

    def reference(self, *arrays: Array) -> Array: ...


def largest(errors: Array, problem: Posed) -> float:
    return float(errors.max(initial=0)) / problem.eps


def solve_error(problem: Posed, x: Array) -> float:
    """By what is promised: ``pivoting=True`` has LAPACK's accuracy, whose errors are of the size of the largest row."""
    a, b, c, d = problem.host
    by_rows = problem.pivoting is not True
    errors = backward_errors(a, b, c, d, x, problem.axis, problem.periodic, by_rows)
    return float(errors.max(initial=0))


def determinant_error(problem: Posed, log: Array) -> float:
    """Of the sum of the logarithms of the pivots, of what they add up to without signs."""
    a, b, c = (np.moveaxis(x, problem.axis, 0) for x in problem.exact)
    logs, pivot = [np.log(abs(b[0]))], b[0]
    for above, (x, y) in zip(c[:-1], zip(a[1:], b[1:], strict=True), strict=True):
        pivot = y - x * above / pivot
        logs.append(np.log(abs(pivot)))
    return largest(abs(log - sum(logs)) / sum(map(abs, logs)), problem)


def block_error(problem: Posed, x: Array) -> float:
    """The componentwise residual, of what its terms add up to without signs."""
    *bands, d = problem.exact
    values = np.zeros_like(d), x.astype(d.dtype), np.zeros_like(d)
    values[0][..., 1:, :], values[2][..., :-1, :] = x[..., :-1, :], x[..., 1:, :]
    terms = [np.einsum("...ij,...j->...i", block, value) for block, value in zip(bands, values, strict=True)]
    sizes = [np.einsum("...ij,...j->...i", abs(block), abs(value)) for block, value in zip(bands, values, strict=True)]
    return largest(abs(d - sum(terms)) / (abs(d) + sum(sizes)), problem)


def step_error(problem: Posed, y: Array) -> float:
    """Of every step, y[t] = a[t] y[t-1] + x[t], of what its terms add up to without signs."""
    a, x = (np.moveaxis(v, problem.axis, 0) for v in problem.exact)
    y = np.moveaxis(y.astype(x.dtype), problem.axis, 0)
    term = a[1:] * y[:-1]
    later = abs(y[1:] - term - x[1:]) / (abs(y[1:]) + abs(term) + abs(x[1:]))
    return max(largest(abs(y[:1] - x[:1]), problem), largest(later, problem))


def matrix_step_error(problem: Posed, y: Array) -> float:
    A, x = problem.exact
    y = y.astype(x.dtype)
    term, size = (np.einsum("...ij,...j->...i", f(A[..., 1:, :, :]), f(y[..., :-1, :])) for f in (np.asarray, abs))
    later = abs(y[..., 1:, :] - term - x[..., 1:, :]) / (abs(y[..., 1:, :]) + size + abs(x[..., 1:, :]))
    return max(largest(abs(y[..., 0, :] - x[..., 0, :]), problem), largest(later, problem))


def selective_error(problem: Posed, y: Array) -> float:
    """Against the states of all steps, of what the terms of every result add up to without signs."""
    a, x, B, C = problem.exact
    x, B, C = np.moveaxis(x, problem.axis, 0), *(np.moveaxis(v, range(v.ndim - 1)[problem.axis], 0) for v in (B, C))
    h = size = np.zeros(B.shape[1:])
    errors = []
    for found, term, read in zip(np.moveaxis(y, problem.axis, 0), x[..., None] * B, C, strict=True):
        h, size = a * h + term, abs(a) * size + abs(term)
        errors.append(abs(found - (read * h).sum(-1)) / (abs(read) * size).sum(-1))
    return largest(np.array(errors), problem)


def logarithm_step_error(problem: Posed, y: Array) -> float:
    log_a, x = (np.moveaxis(v, problem.axis, 0) for v in problem.exact)
    y = np.moveaxis(y.astype(float), problem.axis, 0)
    later = abs(y[1:] - np.logaddexp(log_a[1:] + y[:-1], x[1:])) / np.maximum(1, abs(y[1:]))
    return max(largest(abs(y[:1] - x[:1]), problem), largest(later, problem))


def logarithm_error(problem: Posed, y: Array) -> float:
    """Against sums in long double: none of these terms overflows."""
    x = problem.exact[0]
    wanted = np.log(np.cumsum(np.exp(x.astype(np.promote_types(x.dtype, np.longdouble))), axis=problem.axis))
    return largest((abs(y - wanted) / np.maximum(1, abs(wanted))).astype(float), problem)


def scalar_error(problem: Posed, found: Array) -> float:
    """Of one number for each series."""
    return largest(abs(found / problem.wanted - 1), problem)


def score_error(problem: Posed, score: Array) -> float:
    """Of some pairs."""
    scores = problem.exact[0].reshape(-1, *problem.shape[-2:])[:SAMPLE]
    return largest(abs(score.reshape(-1)[:SAMPLE] / problem.reference(scores) - 1), problem)
