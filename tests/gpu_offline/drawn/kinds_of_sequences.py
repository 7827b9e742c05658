"""Coefficients and inputs of recurrences of every kind that may trouble one that is computed in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hard_sequences import HARD
from helpers import noise

from drawn import Array

LINEAR = (
    *("tame", "growing", "growing from nothing", "sum", "alternating", "zeros", "huge", "tiny", "subnormal"),
    *("not a number", "infinite", *HARD),
)
LOGARITHMS = (
    *("normal", "wide", "zeros", "equal", "rising", "jumping", "very large"),
    *("not a number", "infinite", "minus infinity"),
)
BAD = ("not a number", "infinite")


class Linear:
    """Coefficients, of so many orders, and inputs, (count, n, ...) each, by the names of their kinds.

    ``inner``: the shape of a coefficient of a step, and of its input: () and (), or (m, m) and (m,) of matrices.
    """

    def __init__(self, rng: np.random.Generator, n: int, order: int, dtype: str, inner: Any = ((), ())) -> None:
        self.rng, self.n, self.order, self.dtype, self.info = rng, n, order, dtype, np.finfo(dtype)
        self.of_a, self.of_x = inner
        self.terms = order * (self.of_a[-1] if self.of_a else 1)

    def make(self, kind: str, count: int) -> list[Array]:
        rng, shape = self.rng, (count, self.n)
        a = [noise(rng, (*shape, *self.of_a), self.dtype) / self.terms for _ in range(self.order)]
        x = noise(rng, (*shape, *self.of_x), self.dtype)
        with np.errstate(all="ignore"):
            if kind in HARD:
                return self.hard(kind, a, x)
            if kind in ("growing", "sum", "alternating"):
                a = [self.steady(kind, v) for v in a]
            if kind == "zeros":
                a = [np.where(rng.random(v.shape) < 0.3, 0, v * 3) for v in a]
            if kind == "growing from nothing":  # products overflow, values do not
                a = [30 * v / np.maximum(abs(v), 1e-9) / self.terms for v in a]
                x[:, slice(-5) if rng.random() < 0.5 else slice(5, None)] = (
                    0  # the last steps come first where reversed
                )
            size = {
                "huge": self.info.max / 2.0**8,
                "tiny": self.info.tiny * 2.0**4,
                "subnormal": self.info.tiny / 2.0**6,
            }
            x = x * size.get(kind, 1.0)
            return [v.astype(self.dtype) for v in (*a, x)]

    def steady(self, kind: str, a: Array) -> Array:
        """Powers of numbers near one, or of two that grow, until zeros end them."""
        if kind == "growing":
            return np.where(self.rng.random(a.shape) < 0.05, 0, 4 * a)
        return (np.ones_like(a) if kind == "sum" else self.rng.choice([-1.0, 1.0], a.shape)) / self.terms

    def hard(self, kind: str, a: list[Array], x: Array) -> list[Array]:
        """The first coefficient alone, or that of the first of the numbers of a step, in the range of the dtype."""
        of_a, of_x = HARD[kind](self.n)
        most = float(self.info.max) / 2.0**20
        of_a, of_x = (np.clip(v, -most, most) if np.isfinite(v).all() else v for v in (of_a, of_x))
        first_a, first_x = a[0], x
        for _ in self.of_x:
            first_a, first_x = first_a[..., 0, 0], first_x[..., 0]
            a[0][..., 0, 1:] = 0
        first_a[...] = of_a
        first_x[...] = of_x
        for v in a[1:]:
            v[...] = 0
        return [v.astype(self.dtype) for v in (*a, x)]


class Logarithms:
    """Logarithms of coefficients, and of inputs."""

    def __init__(self, rng: np.random.Generator, n: int, dtype: str) -> None:
        self.rng, self.n, self.dtype = rng, n, dtype

    def make(self, kind: str, count: int) -> list[Array]:
        rng, shape, steps = self.rng, (count, self.n), np.arange(self.n)
        log_a, x = rng.normal(-0.1, 1, shape), rng.normal(size=shape)
        if kind == "wide":
            log_a, x = 30 * log_a, 300 * x
        if kind == "zeros":
            for v in (log_a, x):
                v[rng.random(shape) < 0.2] = -np.inf
        if kind in ("equal", "rising"):
            log_a = np.zeros(shape)
            slopes = rng.choice([-1, 1], (count, 1)) * 10.0 ** rng.uniform(-7, 1, (count, 1))
            x = np.zeros(shape) + rng.normal(size=(count, 1)) + (slopes * steps if kind == "rising" else 0)
        if kind == "jumping":
            x = np.choose(steps // 10 % 4, [0.0, 800.0, -800.0, 2000.0]) + x
        if kind == "very large":
            x, log_a = x * (float(np.finfo(self.dtype).max) / 2.0**10), 0 * log_a
            x[rng.random(shape) < 0.3] = -np.inf
        if kind == "minus infinity":
            x[:] = -np.inf
        return [v.astype(self.dtype) for v in (log_a, x)]


def spoil(rng: np.random.Generator, kinds: Array, given: list[Array]) -> list[Array]:
    """NaN or infinity in one entry of each sequence that is to have it; coefficients of the first steps stay."""
    found = [v.copy() for v in given]
    for k in np.flatnonzero(np.isin(kinds, BAD)):
        which = int(rng.integers(len(given))) if rng.random() < 0.5 else -1
        own = found[which][k]
        at = tuple(int(rng.integers(length)) for length in own.shape)
        if which in (-1, len(given) - 1) or at[0] >= len(given) - 1:
            own[at] = np.nan if kinds[k] == "not a number" else rng.choice([np.inf, -np.inf])
    return found
