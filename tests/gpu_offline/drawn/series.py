"""`kalman.filter`, `kalman.smoother`, `kalman.log_likelihood`, and the gradient of that."""

from __future__ import annotations

from typing import NamedTuple

import cupy
import loop_gradients
import numpy as np

import tridiag
from drawn import Array, Outcome, Where, chosen, same_bits
from drawn.conditions import by_loops, distance, excuse
from drawn.memory import Memory
from tridiag.backends import BACKENDS
from tridiag.problems.state_space import PARAMETERS, Model

KINDS = ("usual", "gaps", "nothing observed", "low rank", "vague", "trend", "exact", "not a number", "infinite")
BAD = ("not a number", "infinite")
STEPS = (1, 2, 3, 4, 5, 8, 12, 20, 40)
Given = tuple[Array, dict[str, Array]]


class Call(NamedTuple):
    """All but the numbers."""

    verb: str
    dtype: str
    count: int
    n: int
    k: int
    p: int
    changing: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, where: Where, verb: str) -> Call:
        k, p = (int(rng.choice([1, 1, 2, 2, 3, 4, 5, 8])) for _ in range(2))
        n, dtype = int(rng.choice(STEPS)), str(rng.choice(["float64", "float32"]))
        count = max(1, int(where.larger * 300 * 2 ** rng.uniform(-5, 0)))
        return cls(verb, dtype, count, n, k, p, bool(rng.random() < 0.3) and verb != "gradient")


def covariance(rng: np.random.Generator, *shape: int, rank: int | None = None) -> Array:
    x = rng.normal(size=(*shape, shape[-1] if rank is None else rank))
    return x @ x.swapaxes(-1, -2)


def made(rng: np.random.Generator, call: Call, kinds: Array) -> Given:
    """Every series has a model of its own."""
    count, n, k, p = call[2:6]
    time = n if call.changing else 1
    of = {str(kind): (kinds == kind) for kind in KINDS}
    y = 2 * rng.normal(size=(count, n, p))
    y[of["gaps"][:, None, None] & (rng.random(y.shape) < 0.4)] = np.nan
    y[of["nothing observed"]] = np.nan
    F = 0.9 * rng.normal(size=(count, time, k, k)) / np.sqrt(k)
    F[of["trend"]] = np.eye(k) + np.eye(k, k, 1)
    Q, R, P0 = (
        covariance(rng, count, time, k),
        covariance(rng, count, 1, p) + 0.1 * np.eye(p),
        covariance(rng, count, k),
    )
    Q[of["low rank"]], P0[of["low rank"]] = 0, covariance(rng, int(of["low rank"].sum()), k, rank=1) if k > 1 else 1
    P0[of["vague"]] = (1e8 if call.dtype == "float64" else 1e4) * (P0[of["vague"]] + np.eye(k))
    R[of["exact"]] *= 1e-4 if call.dtype == "float64" else 1e-2
    if rng.random() < 0.5:
        R = R * np.eye(p)
    parameters = {
        "F": F,
        "H": rng.normal(size=(count, 1, p, k)),
        "Q": Q,
        "R": R,
        "m0": rng.normal(size=(count, k)),
        "P0": P0,
    }
    return y.astype(call.dtype), {name: x.astype(call.dtype) for name, x in parameters.items()}


def spoiled(rng: np.random.Generator, call: Call, kinds: Array, given: Given) -> Given:
    """NaN in a parameter, or an infinite variance, of the series that are to have it."""
    y, parameters = given
    found = {name: x.copy() for name, x in parameters.items()}
    for s in np.flatnonzero(kinds == "not a number"):
        name = str(rng.choice(["H", "R", "m0", "P0"]))
        found[name][s] = np.nan
    for s in np.flatnonzero(kinds == "infinite"):
        found["R"][s, 0, 0, 0] = np.inf
    if call.changing and call.n > 1 and rng.random() < 0.5:
        for name in ("F", "Q"):
            found[name][:, -1] = np.nan  # which are not read
    return y, found


def run(rng: np.random.Generator, call: Call, given: Given) -> list[Array]:
    memory = Memory(rng)
    y, parameters = given
    arrays = {name: memory.given(x) for name, x in parameters.items()}
    observed = memory.given(y)
    if call.verb == "gradient":
        form = loop_gradients.lifted(y, parameters)[2]
        found = (
            BACKENDS["cupy_scan"]
            .module()
            .kalman_gradient(observed, Model(*(arrays[x] for x in PARAMETERS)), form, True)
        )
    else:
        found = getattr(tridiag.kalman, call.verb)(observed, **arrays, backend="cupy_scan")
    memory.check()
    return [cupy.asnumpy(x) for x in (found if isinstance(found, tuple | list) else (found,))]


def ask(rng: np.random.Generator, where: Where, verb: str) -> Outcome:
    call = Call.draw(rng, where, verb)
    kinds = chosen(rng, KINDS, call.count)
    clean = made(rng, call, kinds)
    given, seed, bad = spoiled(rng, call, kinds, clean), int(rng.integers(2**60)), np.isin(kinds, BAD)
    found = run(np.random.default_rng(seed), call, given)
    right = by_loops(call, clean, np.longdouble)
    error = distance(call, clean, found, right)
    excuse(call, clean, right, error, np.flatnonzero((error > 1) & ~bad))
    error[bad] = np.where(
        np.isnan(found[-1][bad]).reshape(int(bad.sum()), np.prod(found[-1].shape[1:], dtype=int)).any(1), 0, np.inf
    )
    if bad.any() and not bad.all():
        again = run(np.random.default_rng(seed), call, clean)
        same = np.all([same_bits(x, y) for x, y in zip(found, again, strict=True)], 0)
        error[~same & ~bad] = np.inf
    return Outcome(str(call), kinds, error)


def filter(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "filter")


def smoother(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "smoother")


def log_likelihood(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "log_likelihood")


def gradient(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "gradient")
