"""What is asked of covariances: that they are finite, symmetric and positive semidefinite, but for rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


@functools.cache
def tolerance(dtype: Any) -> float:
    """How far apart Q[i, j] and Q[j, i] may be, relative to the largest entry of the matrix."""
    return float(np.sqrt(np.finfo(dtype).eps))


@functools.cache
def rounding(dtype: Any) -> float:
    """How far below 0 an eigenvalue may be, relative to the largest entry; what was computed in float32 passes."""
    return max(tolerance(dtype), 16 * float(np.finfo(np.float32).eps))


UNKNOWN = "in P0 a variance is inf, of a state of which nothing is known at first, and nothing else"
ADVICE = {
    "Q": UNKNOWN,
    "R": "an observation that tells nothing is left out: NaN in y",
    "P0": UNKNOWN,
    "cov": "a single step knows nothing of states that are unknown",
}


def check_covariance(name: str, values: Any, n: int) -> None:
    """As `check_each`, of those of a series of n steps that are read."""
    if name == "Q" and n < 2:
        return
    if name == "Q" and values.ndim > 2 and values.shape[-3] == n:
        values = values[..., :-1, :, :]  # the last is never read
    check_each(name, values)


def check_each(name: str, values: Any) -> None:
    """Refuse one that is not finite or symmetric, has a negative variance or eigenvalue, but for rounding.

    NaN is let through.
    """
    values = np.asarray(values, np.result_type(values.dtype, np.float32))
    if is_small(values) and surely(values.reshape(values.shape[-2:]).tolist(), values.dtype):
        return
    good = sound(values)
    if good.all():
        return
    with np.errstate(invalid="ignore"):
        apart = abs(values - np.swapaxes(values, -1, -2))
        uneven = np.argwhere(apart > tolerance(values.dtype) * abs(values).max((-2, -1), keepdims=True, initial=0))
        least = -rounding(values.dtype) * abs(values).max((-2, -1), initial=0)[..., None]
        variances = np.diagonal(values, axis1=-2, axis2=-1)
        negative = np.argwhere((variances < least) | np.isneginf(variances))
    if len(uneven):
        *batch, i, j = map(int, uneven[0])
        one, other = (*batch, i, j), (*batch, j, i)
        raise ValueError(
            f"{name} is not symmetric: {name}{[*one]} is {values[one]:.6g} and {name}{[*other]} is {values[other]:.6g}"
        )
    if len(negative):
        at = (*map(int, negative[0]), int(negative[0][-1]))
        raise ValueError(f"{name}{[*at]} is {values[at]:.6g}; a variance is not negative")
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        at = (*map(int, infinite[0]),)
        raise ValueError(f"{name}{[*at]} is {values[at]:.6g}; wanted a finite covariance; {ADVICE[name]}")
    check_eigenvalues(name, values, ~good)


def check_eigenvalues(name: str, values: Any, suspect: Any) -> None:
    """Refuse what has an eigenvalue below 0 by more than `rounding` of the largest entry; not finite: let through."""
    for at in map(tuple, np.argwhere(suspect & np.isfinite(values).all((-2, -1)))):
        found = np.linalg.eigvalsh(values[at])
        if found[0] < -rounding(values.dtype) * abs(values[at]).max():
            place = f"{name}{[*map(int, at)]}" if at else name
            raise ValueError(
                f"{place} is not positive semidefinite: its eigenvalues go from {found[0]:.6g} to {found[-1]:.6g}; "
                "those of a covariance are not negative"
            )


ENTRIES = 1024  # of covariances that are looked at in each step of a stream: a few microseconds


def is_few(shape: Sequence[int]) -> bool:
    """Whether covariances of this shape are looked at in each step of a stream."""
    return math.prod(shape) <= ENTRIES


FEW = 8  # rows of a matrix that is looked at by itself, number by number


def is_small(values: Any) -> bool:
    *batch, k, _ = values.shape
    return k <= FEW and math.prod(batch) == 1


def surely(rows: list[list[float]], dtype: Any) -> bool:
    """What `sound` says, of one matrix, faster than any call of NumPy; ``rows`` are overwritten."""
    k = len(rows)
    largest = max([rows[i][i] for i in range(k)])
    apart, more = largest * tolerance(dtype), added(largest, dtype)
    for i, row in enumerate(rows):
        if not 0 <= row[i] < math.inf:
            return False
        for j in range(i):
            if not abs(row[j] - rows[j][i]) <= apart:
                return False
    for j, first in enumerate(rows):
        pivot = first[j] + more
        if not pivot > 0:
            return False
        for i in range(j + 1, k):
            factor = first[i] / pivot
            if factor:
                row = rows[i]
                for m in range(i, k):
                    row[m] -= factor * first[m]
    return True


BLOCK = 4096  # matrices that are looked at together
BLOCK_OF_LAPACK = 2**14  # entries of those, where LAPACK looks at them; of more, NumPy's copies are new pages of memory


def sound(values: Any) -> Any:
    """Which are certainly finite, symmetric and positive semidefinite; of others only `check_covariance` can tell."""
    *batch, k, _ = values.shape
    every = values.reshape(-1, k, k)
    size, look = BLOCK, eliminated
    if k > FEW or len(every) == 1:
        size, look = max(1, BLOCK_OF_LAPACK // k**2), by_lapack
    with np.errstate(all="ignore"):
        found = [look(every[first : first + size]) for first in range(0, len(every), size)]
    return np.concatenate([np.ones(0, bool), *found]).reshape(batch)


def by_lapack(values: Any) -> Any:
    """By LAPACK, with `added` on the diagonals: of halves, where it says no to one of several."""
    count, k, _ = values.shape
    variances, turned = np.diagonal(values, axis1=1, axis2=2), values.swapaxes(1, 2)
    largest = variances.max(1)
    good = variances.min(1) >= 0
    if not (values == turned).all():
        good &= abs(values - turned).reshape(count, k * k).max(1) <= largest * tolerance(values.dtype)
    raised = values.reshape(count, k * k).copy()
    raised[:, :: k + 1] += added(largest, values.dtype)[:, None]
    try:
        factors = np.linalg.cholesky(raised.reshape(values.shape))
    except np.linalg.LinAlgError:
        if count == 1:
            return np.zeros(1, bool)
        return np.concatenate([by_lapack(values[: count // 2]), by_lapack(values[count // 2 :])])
    return good & np.isfinite(np.diagonal(factors, axis1=1, axis2=2)).all(1)


def eliminated(values: Any) -> Any:
    """By elimination of all at once: whether all pivots are positive."""
    k = values.shape[-1]
    rows = [list(row) for row in np.ascontiguousarray(np.moveaxis(values, 0, -1))]
    variances = [rows[i][i] for i in range(k)]
    largest = functools.reduce(np.maximum, variances)
    apart, more = largest * tolerance(values.dtype), added(largest, values.dtype)
    good = functools.reduce(np.logical_and, [x >= 0 for x in variances], largest < math.inf)
    for i in range(k):
        for j in range(i):
            good &= abs(rows[i][j] - rows[j][i]) <= apart
    for j in range(k):
        pivot = rows[j][j] + more
        good &= pivot > 0
        for i in range(j + 1, k):
            factor = rows[j][i] / pivot
            for m in range(i, k):
                rows[i][m] = rows[i][m] - factor * rows[j][m]
    return good


def added(largest: Any, dtype: Any) -> Any:
    """What rounding may have taken from every eigenvalue, and a little for a matrix of zeros."""
    return largest * rounding(dtype) + least(dtype)


@functools.cache
def least(dtype: Any) -> float:
    return float(np.sqrt(np.finfo(dtype).tiny))
