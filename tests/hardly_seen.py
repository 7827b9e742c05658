"""Random models of which some states begin unknown: hardly seen, forgotten, never seen, exact, degenerate."""

from typing import Any

import numpy as np

LATEST = 4  # the last step that may be the first to be observed


def hardly_seen(seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Observations and a model of 1 to 4 states, of which up to 3 are unknown at first, and 1 or 2 values observed."""
    rng = np.random.default_rng(seed)
    k, p, n = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(4, 10))
    time = (n,) if rng.random() < 0.2 else ()
    F = rng.normal(size=(*time, k, k)) * rng.choice([0.5, 0.9, 1.3]) / np.sqrt(k)
    F = [F, np.where(rng.random(F.shape) < 0.4, 0, F), np.broadcast_to(np.eye(k), F.shape).copy()][rng.integers(3)]
    H = rng.normal(size=(*time, p, k)) * 3
    H = np.where(rng.random(H.shape) < rng.choice([0, 0.4]), 0, H)
    made = {"F": F, "H": H, "Q": noise(rng, k, time), "R": noise(rng, p, time) + rng.choice([0, 0.1, 1]) * np.eye(p)}
    unknown = rng.permutation(k)[: rng.integers(1, 4)]
    P0 = noise(rng, k, ())
    P0[unknown], P0[:, unknown] = 0, 0
    P0[unknown, unknown] = np.inf
    y = 2 * rng.normal(size=(n, p))
    y[rng.random((n, p)) < rng.choice([0, 0.3])] = np.nan
    first = int(rng.integers(0, LATEST))
    y[: first if rng.random() < 0.5 else 0] = np.nan
    if len(unknown) and not time and rng.random() < 0.6:
        direction = np.linalg.matrix_power(F, first)[:, unknown[0]]
        length = direction @ direction
        if length > 0:
            made["H"] = H - (1 - 10.0 ** -rng.uniform(1, 6)) * np.outer(H @ direction, direction) / length
    return y, made | {"m0": rng.normal(size=k), "P0": P0}


def noise(rng: np.random.Generator, k: int, time: tuple[int, ...]) -> np.ndarray:
    """A covariance, perhaps singular, or 0, without rounding errors: a product of small numbers."""
    x = rng.integers(-3, 4, size=(*time, k, int(rng.integers(0, k + 1)))) / 2
    return x @ x.swapaxes(-1, -2)
