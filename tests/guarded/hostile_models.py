"""State-space models whose covariances lose digits where they are carried as they stand, and their log-likelihoods."""

from __future__ import annotations

import math

import numpy as np

from guarded import Ran, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, Array

DIGITS = 80
LARGEST = 1e25  # of a sum of squares over variances; beyond, one is 0 but for the rounding of the model


def hostile(rng: np.random.Generator, k: int, p: int, n: int) -> dict[str, Array]:
    """States that move, stay, turn or grow, some of them known and some not at all, seldom observed."""
    moves = np.eye(k), np.eye(k, k, -1), np.eye(k) + np.eye(k, k, 1), np.linalg.qr(rng.normal(size=(k, k)))[0]
    F = moves[rng.integers(4)].copy()
    F[0, -1] += rng.choice([0.0, 0.7, 1.0])
    F *= rng.choice([1.0, 1.0, 1.0, 0.5, 1.05])
    H = rng.normal(size=(p, k)) * (rng.random((p, k)) < rng.choice([0.3, 0.6, 1]))
    Q = np.diag(10 ** rng.uniform(-8, 8, k) * (rng.random(k) < rng.choice([0, 0.3, 1])))
    R = np.diag(10 ** rng.uniform(-10, 2, p) * (rng.random(p) < rng.choice([0.5, 1])))
    P0 = np.diag(rng.choice([0, 1, 1e4, 1e7, 1e10, 1e15], k))
    y = rng.normal(size=(n, p)) * 10 ** rng.uniform(-2, 4)
    y[rng.random((n, p)) < rng.choice([0, 0.3, 0.6, 0.8])] = np.nan
    y[rng.integers(1, n) : rng.integers(1, n + 1)] = np.nan
    return {"y": y, "F": F, "H": H, "Q": Q, "R": R, "m0": np.zeros(k), "P0": P0}


def log_likelihood(y: Array, F: Array, H: Array, Q: Array, R: Array, m0: Array, P0: Array) -> tuple[float, ...]:
    """That of a model that is constant in time, the sum of the sizes of its terms, and the ratio of its variances.

    That is of the largest that a state has to the smallest of an observation; all are infinite where S is singular. One
    observation after another, with many digits: R is diagonal.
    """
    import mpmath as mp

    with mp.workdps(DIGITS):
        mean, cov, f = mp.matrix(m0.tolist()), mp.matrix(P0.tolist()), mp.matrix(F.tolist())
        total = size = widest = mp.mpf(0)
        smallest = mp.inf
        for values in y:
            widest = max(widest, *(cov[i, i] for i in range(len(m0))))
            for j in np.flatnonzero(~np.isnan(values)):
                h = mp.matrix([H[j].tolist()])
                column, error = cov * h.T, mp.mpf(float(values[j])) - (h * mean)[0]
                variance = (h * column)[0] + mp.mpf(float(R[j, j]))
                if variance <= 0:
                    return math.nan, math.inf, math.inf
                smallest = min(smallest, variance)
                terms = mp.log(2 * mp.pi * variance) / 2, error**2 / variance / 2
                total, size = total - terms[0] - terms[1], size + abs(terms[0]) + terms[1]
                mean, cov = mean + column * (error / variance), cov - column * column.T / variance
            mean, cov = f * mean, f * cov * f.T + mp.matrix(Q.tolist())
        return float(total), float(size), float(widest / smallest)


def run(draw: Draw, library: str) -> Ran:
    """log_likelihood of some models side by side, each with its own matrices."""
    from tridiag import kalman

    rng, stream = draw.values, draw.stream("series")
    k, p = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    n, count = draw.shrunk("n", stream.choice((2, 5, 9, 14))), draw.shrunk("batch", stream.choice((1, 2, 3)))
    models = [hostile(rng, k, p, n) for _ in range(count)]
    given = {name: np.stack([model[name] for model in models]) for name in models[0]}
    for name in "FHQR":
        given[name] = given[name][:, None]
    draw.words.insert(0, f"hostile model {library} k={k} p={p} n={n} series={count}")
    operands = {name: draw.operand(name, x, library) for name, x in given.items()}
    backend = draw.choose("backend of kalman", ("numba_scan", "numba_scan", "numpy_scan"), "backend")
    with scratch.arrays():
        found = in_numpy(kalman.log_likelihood(**operands, backend=backend))
    draw.finish()
    for value, model in zip(found, models, strict=True):
        right, size, ratio = log_likelihood(**model)
        if not size < LARGEST:
            continue
        if not abs(value - right) <= (1e-6 + 4 * EPS["float64"] * math.sqrt(ratio)) * (1 + size):
            raise AssertionError(
                f"{value} instead of {right}: {float(abs(value - right) / size / EPS['float64']):.3g} eps"
            )
    return Ran("hostile models", library, systems=count)
