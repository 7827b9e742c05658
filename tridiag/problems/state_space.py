"""Linear Gaussian state-space models: the shapes of their arrays, and what is asked of their covariances.

x[t+1] = F[t] x[t] + N(0, Q[t]),  y[t] = H[t] x[t] + N(0, R[t]),  x[0] = N(m0, P0)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tridiag.problems.forms import Cut, Shape

FILTER, SMOOTHER, LIKELIHOOD = KALMAN = "kalman.filter", "kalman.smoother", "kalman.log_likelihood"
MATRICES = {"F": "kk", "H": "pk", "Q": "kk", "R": "pp"}  # that may change with time, and their rows and columns
INTERCEPTS = {"state_intercept": "k", "obs_intercept": "p"}  # vectors that may change with time, and may not be given
CHANGING = MATRICES | INTERCEPTS
STATES = {"m0": "k", "P0": "kk"}  # of the first step
PARAMETERS = (*MATRICES, *STATES)
COVARIANCES = ("Q", "R", "P0")
LETTERS = {"k": "states", "p": "values observed in a step"}


class Model(NamedTuple):
    """The parameters of a model, every one with as many batch axes as the observations."""

    F: Any
    H: Any
    Q: Any
    R: Any
    m0: Any
    P0: Any


class StateSpace(NamedTuple):
    """What a backend must know beside the arrays; static and hashable."""

    n: int
    observed: int  # values observed in a step: p
    states: int  # k
    batch: Shape  # of the result
    cov_batch: Shape  # of what covariances depend on if nothing is missing: where this is 1, series share them
    missing: bool | None  # whether any observation is NaN; None: not known before the program runs
    checked: bool  # whether covariances were seen to be valid; else invalid ones make their series NaN
    diffuse: tuple[int, ...] = ()  # the states whose variance in P0 may be infinite
    each_step: bool = False  # whether the log-likelihood of every step is wanted, of a model with such states
    cut: Cut | None = None  # inside `jax.shard_map`, where the steps at hand are those of a device


def own_shapes(form: StateSpace) -> list[Shape]:
    """The shapes of all parameters of one model at one time."""
    k, p = form.states, form.observed
    return [(k, k), (p, k), (k, k), (p, p), (k,), (k, k)]


def entries(form: StateSpace) -> int:
    """How many numbers such a model has."""
    return sum(math.prod(shape) for shape in own_shapes(form))


def rank_of(name: str) -> int:
    """How many axes belong to one model: rows and columns, and time where the parameter may change with it."""
    return 1 + len(CHANGING[name]) if name in CHANGING else len(STATES[name])


def align(shapes: Mapping[str, Shape]) -> tuple[dict[str, Shape], Shape, Shape]:
    """The lifted shape of y and of every parameter, the batch shape, and that of what covariances depend on."""
    y = shapes["y"]
    if len(y) < 2:
        raise ValueError(f"y has shape {y}; wanted (..., n, p): time, and the values observed in a step; y[:, None]?")
    if y[-1] == 0:
        raise ValueError(f"y has shape {y}; wanted at least one value observed in a step")
    states = states_of(shapes)
    lengths = {"k": states, "p": y[-1]}
    check_matrices(shapes, lengths, y)
    batches, given = {"y": y[:-2]}, [name for name in (*PARAMETERS, *INTERCEPTS) if name in shapes]
    for name in given:
        batches[name] = shapes[name][: max(0, len(shapes[name]) - rank_of(name))]
    rank = max(map(len, batches.values()))
    batches = {name: (1,) * (rank - len(batch)) + batch for name, batch in batches.items()}
    full = common(batches, shapes)
    lifted = {"y": (*batches["y"], *y[-2:])}
    for name in given:
        own = shapes[name][-rank_of(name) :]
        lifted[name] = (*batches[name], *(1,) * (rank_of(name) - len(own)), *own)
    return lifted, full, common({name: batches[name] for name in PARAMETERS if name != "m0"}, shapes)


def states_of(shapes: Mapping[str, Shape]) -> int:
    """The number of states, which F tells."""
    if len(shapes["F"]) < 2 or shapes["F"][-1] != shapes["F"][-2]:
        raise ValueError(f"F has shape {shapes['F']}; wanted a square matrix, (k, k) or (..., time, k, k)")
    if shapes["F"][-1] == 0:
        raise ValueError(f"F has shape {shapes['F']}; wanted at least one state")
    return shapes["F"][-1]


def check_matrices(shapes: Mapping[str, Shape], lengths: Mapping[str, int], y: Shape) -> None:
    n, series = y[-2], y[-3] if len(y) > 2 else None
    for name, letters in (MATRICES | STATES | INTERCEPTS).items():
        if name not in shapes:
            continue
        wanted = checked_ending(name, shapes[name], letters, lengths)
        if name in CHANGING:
            check_time(name, shapes[name], wanted, n, series)


def checked_ending(name: str, shape: Shape, letters: str, lengths: Mapping[str, int]) -> Shape:
    """The lengths of the last axes of a parameter, which it has."""
    wanted = tuple(lengths[letter] for letter in letters)
    if shape[-len(wanted) :] != wanted:
        sizes = " and ".join(f"{lengths[x]} {LETTERS[x]}" for x in dict.fromkeys(letters))
        raise ValueError(f"{name} has shape {shape}; with {sizes} it ends in {wanted}")
    return wanted


def check_time(name: str, shape: Shape, wanted: Shape, n: int, series: int | None) -> None:
    """That the axis before those of one step is time, and that it is not the series that are meant."""
    before = shape[: -len(wanted)]
    if before and before[-1] not in (1, n):
        ending, axes = ", ".join(map(str, wanted)), ", :" * len(wanted)
        rows = "its rows" if len(wanted) == 2 else "its last"
        raise ValueError(
            f"{name} has shape {shape}: the axis before {rows} is time, of length n = {n} or 1; "
            f"a model per series needs its time axis too: (series, 1, {ending}), which is {name}[..., None{axes}]"
        )
    if before == (n,) and n == series and n > 1:
        raise ValueError(
            f"{name} has shape {shape}, and y has {n} steps and as many series: {name}[None] has a time axis and "
            f"serves all series, {name}[:, None] is a model per series, the same at all times; write the one meant"
        )


def common(batches: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> Shape:
    """The broadcast of batch axes."""
    try:
        return tuple(np.broadcast_shapes(*batches.values()))
    except ValueError:
        listed = ", ".join(f"{name} {shapes[name]}" for name in batches)
        message = f"the batch axes do not broadcast: {listed}; every one must have the full length or 1"
        raise ValueError(message) from None


@functools.cache
def tolerance(dtype: Any) -> float:
    """How far apart Q[i, j] and Q[j, i] may be, relative to the largest entry of the matrix."""
    return float(np.sqrt(np.finfo(dtype).eps))


@functools.cache
def rounding(dtype: Any) -> float:
    """How far below 0 an eigenvalue may be, relative to the largest entry; what was computed in float32 passes."""
    return max(tolerance(dtype), 16 * float(np.finfo(np.float32).eps))


def check_covariance(name: str, values: Any, n: int) -> None:
    """Refuse one that is not symmetric, has a negative variance or eigenvalue, but for rounding; NaN is let through."""
    values = np.asarray(values, np.result_type(values.dtype, np.float32))
    if name == "Q" and n < 2:
        return
    if name == "Q" and values.ndim > 2 and values.shape[-3] == n:
        values = values[..., :-1, :, :]  # the last is never read
    if is_small(values) and surely(values.reshape(values.shape[-2:]).tolist(), values.dtype):
        return
    good = sound(values)
    if good.all():
        return
    with np.errstate(invalid="ignore"):
        apart = abs(values - np.swapaxes(values, -1, -2))
        uneven = np.argwhere(apart > tolerance(values.dtype) * abs(values).max((-2, -1), keepdims=True, initial=0))
        least = -rounding(values.dtype) * abs(values).max((-2, -1), initial=0)[..., None]
        negative = np.argwhere(np.diagonal(values, axis1=-2, axis2=-1) < least)
    if len(uneven):
        *batch, i, j = map(int, uneven[0])
        one, other = (*batch, i, j), (*batch, j, i)
        raise ValueError(
            f"{name} is not symmetric: {name}{[*one]} is {values[one]:.6g} and {name}{[*other]} is {values[other]:.6g}"
        )
    if len(negative):
        at = (*map(int, negative[0]), int(negative[0][-1]))
        raise ValueError(f"{name}{[*at]} is {values[at]:.6g}; a variance is not negative")
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
        if not row[i] >= 0:
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


def sound(values: Any) -> Any:
    """Which are certainly symmetric and positive semidefinite; of the others only `check_covariance` can tell."""
    *batch, k, _ = values.shape
    every = values.reshape(-1, k, k)
    with np.errstate(all="ignore"):
        blocks = [every[first : first + BLOCK] for first in range(0, len(every), BLOCK)]
        found = [single(*block) if len(block) == 1 else eliminated(block) for block in blocks]
    return np.concatenate([np.ones(0, bool), *found]).reshape(batch)


def single(matrix: Any) -> list[bool]:
    """By LAPACK, of the matrix with `added` on its diagonal."""
    variances = matrix.diagonal()
    largest = variances.max()
    apart, more = largest * tolerance(matrix.dtype), added(largest, matrix.dtype)
    if not variances.min() >= 0 or not (abs(matrix - matrix.T) <= apart).all():
        return [False]
    try:
        return [bool(np.isfinite(np.linalg.cholesky(matrix + np.diag(np.full(len(matrix), more)))).all())]
    except np.linalg.LinAlgError:
        return [False]


def eliminated(values: Any) -> Any:
    """By elimination of all at once: whether all pivots are positive."""
    k = values.shape[-1]
    rows = [list(row) for row in np.ascontiguousarray(np.moveaxis(values, 0, -1))]
    variances = [rows[i][i] for i in range(k)]
    largest = functools.reduce(np.maximum, variances)
    apart, more = largest * tolerance(values.dtype), added(largest, values.dtype)
    good = functools.reduce(np.logical_and, [x >= 0 for x in variances])
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
