"""Calls of every verb that need memory and threads, each with operands of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tridiag

Array = np.ndarray[Any, Any]
Make = Callable[[np.random.Generator, bool], "Call"]


class Call:
    """A verb with its operands; called, it gives a list of arrays."""

    def __init__(self, name: str, function: Callable[..., Any], *operands: Array) -> None:
        self.name, self.function, self.operands = name, function, operands

    def __call__(self) -> list[Array]:
        found = self.function(*self.operands)
        return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,)) if x is not None]

    def __str__(self) -> str:
        return f"{self.name} of {', '.join(f'{x.dtype}{list(x.shape)}' for x in self.operands)}"

    def moved(self, move: Callable[[Array], Array]) -> Call:
        return Call(self.name, self.function, *map(move, self.operands))


def same(found: list[Array], wanted: list[Array]) -> bool:
    """Up to the last digits: fewer threads may cut long sequences elsewhere."""
    return len(found) == len(wanted) and all(map(near, found, wanted))


def near(x: Array, y: Array) -> bool:
    largest = np.abs(y[np.isfinite(y)]).max(initial=1)
    return x.shape == y.shape and np.allclose(x, y, rtol=1e-7, atol=1e-9 * largest, equal_nan=True)


def shape(rng: np.random.Generator, small: bool) -> tuple[int, int]:
    """Systems and rows: few and long, many and short; small ones, and some above `systems.WORTH_A_THREAD`."""
    shapes = [(3, 7), (40, 9), (700, 33), (5000, 20), (3000, 50), (4, 40_000), (1, 100_003), (40, 5000)]
    return shapes[int(rng.integers(3 if small else len(shapes)))]


def system(rng: np.random.Generator, small: bool, hard: bool) -> tuple[list[Array], dict[str, Any]]:
    m, n = shape(rng, small)
    a, b, c, d = rng.uniform(-1, 1, (4, m, n))
    if not hard:
        b = np.copysign(2.5 + abs(b), b)
    if hard and m > 1:
        b[::2] += np.copysign(2.5, b[::2])
    axis = int(rng.integers(2))
    return [np.ascontiguousarray(x.T) if axis == 0 else x for x in (a, b, c, d)], {"axis": axis}


def solving(backend: str, hard: bool = False, **options: Any) -> Make:
    def make(rng: np.random.Generator, small: bool) -> Call:
        arrays, axis = system(rng, small, hard)

        def call(a: Array, b: Array, c: Array, d: Array) -> Array:
            return tridiag.solve(a, b, c, d, backend=backend, **axis, **options)

        return Call(f"solve {backend} {axis} {options}", call, *arrays)

    return make


def masked(rng: np.random.Generator, small: bool) -> Call:
    arrays, axis = system(rng, small, False)
    where = rng.random(arrays[0].shape) < 0.8

    def call(a: Array, b: Array, c: Array, d: Array, where: Array) -> Array:
        return tridiag.solve(a, b, c, d, where=where, **axis)

    return Call("solve, where", call, *arrays, where)


def shared(rng: np.random.Generator, small: bool) -> Call:
    m, n = shape(rng, small)
    a, b, c = rng.uniform(-1, 1, (3, n))
    return Call("solve, one matrix", lambda *x: tridiag.solve(*x), a, b + 4, c, rng.uniform(-1, 1, (m, n)))


def factored(rng: np.random.Generator, small: bool) -> Call:
    (a, b, c, d), axis = system(rng, small, bool(rng.integers(2)))
    transpose = bool(rng.integers(2))
    axis = {"axis": axis["axis"] - 2}

    def call(a: Array, b: Array, c: Array, d: Array) -> Any:
        made = tridiag.factor(a, b, c, **axis)
        return made.solve(d, transpose=transpose), *made.slogdet()

    return Call(f"factor {axis} transpose={transpose}", call, a, b, c, d)


def determinants(rng: np.random.Generator, small: bool) -> Call:
    (a, b, c, _), axis = system(rng, small, True)
    return Call("slogdet", lambda a, b, c: tuple(tridiag.slogdet(a, b, c, **axis)), a, b, c)


def blocks(rng: np.random.Generator, small: bool) -> Call:
    m = int(rng.choice([2, 3]))
    batch, n = [(3, 7), (50, 9), (2000, 20), (3, 5000)][int(rng.integers(2 if small else 4))]
    a, b, c = rng.uniform(-1, 1, (3, batch, n, m, m))
    return Call("solve_block", tridiag.solve_block, a, b + 4 * m * np.eye(m), c, rng.uniform(-1, 1, (batch, n, m)))


def recurrence(rng: np.random.Generator, small: bool) -> Call:
    m, n = shape(rng, small)
    reverse, axis = bool(rng.integers(2)), int(rng.integers(2))
    a, x = rng.uniform(-0.9, 0.9, (2, *((m, n) if axis else (n, m))))
    return Call("linear_recurrence", lambda a, x: tridiag.linear_recurrence(a, x, axis=axis, reverse=reverse), a, x)


def second_order(rng: np.random.Generator, small: bool) -> Call:
    m, n = shape(rng, small)
    a, e, x = rng.uniform(-0.45, 0.45, (3, m, n))
    return Call("linear_recurrence, order 2", lambda a, e, x: tridiag.linear_recurrence((a, e), x), a, e, x)


def logarithms(rng: np.random.Generator, small: bool) -> Call:
    m, n = shape(rng, small)
    axis = int(rng.integers(2))
    x = rng.normal(size=(m, n) if axis else (n, m))
    if rng.integers(2):
        return Call("logcumsumexp", lambda x: tridiag.logcumsumexp(x, axis=axis), x)
    return Call("log_linear_recurrence", lambda a, x: tridiag.log_linear_recurrence(a, x, axis=axis), 0.1 * x, x[::-1])


def matrices(rng: np.random.Generator, small: bool) -> Call:
    m = int(rng.choice([2, 3]))
    batch, n = [(3, 7), (50, 9), (2000, 20), (3, 5000)][int(rng.integers(2 if small else 4))]
    return Call(
        "matrix_recurrence",
        tridiag.matrix_recurrence,
        rng.uniform(-0.3, 0.3, (batch, n, m, m)),
        rng.uniform(-1, 1, (batch, n, m)),
    )


def scanned(rng: np.random.Generator, small: bool) -> Call:
    batch, n, channels = [(3, 7, 2), (5, 9, 20), (40, 50, 33), (1, 5000, 2)][int(rng.integers(2 if small else 4))]
    states = int(rng.choice([1, 4, 12, 40]))
    a, (B, C) = -rng.uniform(0, 1, (channels, states)), rng.uniform(-1, 1, (2, batch, n, 1, states))
    x, step = rng.uniform(0, 1, (2, batch, n, channels))
    return Call(
        "selective_scan",
        lambda a, x, B, C, step: tridiag.selective_scan(a, x, B, C, step=step, axis=1),
        a,
        x,
        B,
        C,
        step,
    )


def filtered(rng: np.random.Generator, small: bool) -> Call:
    series, n = [(3, 7), (50, 9), (500, 100), (3, 3000)][int(rng.integers(2 if small else 4))]
    verb = str(rng.choice(["filter", "smoother", "log_likelihood"]))
    y = rng.normal(size=(series, n, 1))
    if rng.integers(2):
        y[rng.random(y.shape) < 0.1] = np.nan
    model = {"F": np.array([[0.9, 0.1], [0.0, 0.8]]), "H": np.ones((1, 2)), "Q": 0.1 * np.eye(2), "R": np.eye(1)}

    def call(y: Array, m0: Array, P0: Array, *values: Array) -> Any:
        found = getattr(tridiag.kalman, verb)(y, m0=m0, P0=P0, **dict(zip(model, values, strict=True)))
        return found if verb == "log_likelihood" else tuple(found)

    return Call(f"kalman.{verb}", call, y, np.zeros(2), np.eye(2), *model.values())


def aligned(rng: np.random.Generator, small: bool) -> Call:
    pairs, first, second = [(3, 7, 9), (20, 33, 17), (300, 60, 70)][int(rng.integers(2 if small else 3))]
    scores = rng.normal(size=(pairs, first, second))
    lengths = np.stack([rng.integers(0, most + 1, pairs) for most in (first, second)], 1).astype(np.int32)
    gaps = {"gap_open": -2.0} if rng.integers(2) else {}
    return Call("smith_waterman", lambda s, k: tridiag.smith_waterman(s, k, gap=-1.0, **gaps), scores, lengths)


CALLS: dict[str, Make] = {
    "solve": solving("numba_thomas"),
    "solve, exchanges": solving("numba_thomas", True),
    "solve, pivoted": solving("numba_thomas", True, pivoting=True),
    "solve, periodic": solving("numba_thomas", periodic=True),
    "solve, periodic, exchanges": solving("numba_thomas", True, periodic=True),
    "solve, transposed": solving("numba_thomas", True, transpose=True),
    "solve, in chunks": solving("numba_partition"),
    "solve, in chunks, exchanges": solving("numba_partition", True),
    "masked": masked,
    "shared": shared,
    "factor": factored,
    "slogdet": determinants,
    "solve_block": blocks,
    "recurrence": recurrence,
    "order 2": second_order,
    "logarithms": logarithms,
    "matrix_recurrence": matrices,
    "selective_scan": scanned,
    "kalman": filtered,
    "smith_waterman": aligned,
}
