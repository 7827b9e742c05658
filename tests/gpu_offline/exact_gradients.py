"""The derivatives of log-likelihoods in parameters of a model, to many digits: differences in extended precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np

from tridiag.problems.state_space import COVARIANCES

DIGITS = 60
STEP = mpmath.mpf(10) ** -20
Parameters = dict[str, np.ndarray]


def log_likelihood(y: np.ndarray, model: dict[str, Any]) -> Any:
    """Of one series and matrices of mpmath, by the textbook's filter, with inverses."""
    mean, cov, found = model["m0"], model["P0"], mpmath.mpf(0)
    for values in y:
        there = np.flatnonzero(~np.isnan(values)).tolist()
        if there:
            H, R = part(model["H"], there, range(mean.rows)), part(model["R"], there, there)
            error = mpmath.matrix([float(values[j]) for j in there]) - H * mean
            S = H * cov * H.T + R
            gain = cov * H.T * S**-1
            square = (error.T * S**-1 * error)[0]
            found -= (len(there) * mpmath.log(2 * mpmath.pi) + mpmath.log(mpmath.det(S)) + square) / 2
            mean, cov = mean + gain * error, cov - gain * H * cov
        mean, cov = model["F"] * mean, model["F"] * cov * model["F"].T + model["Q"]
    return found


def part(x: Any, rows: Any, columns: Any) -> Any:
    return mpmath.matrix([[x[i, j] for j in columns] for i in rows])


def derivatives(y: np.ndarray, parameters: Parameters) -> Parameters:
    """In each entry of a model that is constant in time; covariances move symmetrically."""
    with mpmath.workdps(DIGITS):
        exact = {name: mpmath.matrix(x.tolist()) for name, x in parameters.items()}
        found = {name: np.empty(x.shape) for name, x in parameters.items()}
        for name, x in parameters.items():
            for place in np.ndindex(x.shape):
                low, high = (
                    log_likelihood(y, exact | {name: exact[name] + change(name, x.shape, place, sign)})
                    for sign in (-STEP, STEP)
                )
                found[name][place] = float((high - low) / (2 * STEP))
    return found


def change(name: str, shape: tuple[int, ...], place: tuple[int, ...], step: Any) -> Any:
    moved = mpmath.zeros(shape[0], shape[1] if len(shape) > 1 else 1)
    for turned in both(place) if name in COVARIANCES else [place]:
        moved[turned if len(shape) > 1 else turned[0]] += step / (2 if name in COVARIANCES else 1)
    return moved


def both(place: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield place
    yield place[::-1]
