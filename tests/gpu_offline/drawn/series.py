"""`kalman.filter`, `kalman.smoother`, `kalman.log_likelihood`, and the gradient of that."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import loop_gradients
import numpy as np

import tridiag
from drawn import Array, Outcome, Where, chosen
from drawn.memory import Memory
from drawn.systems import same_bits
from tridiag.backends import BACKENDS
from tridiag.problems.state_space import COVARIANCES, PARAMETERS, Model, StateSpace, own_shapes

KINDS = ("usual", "gaps", "nothing observed", "low rank", "vague", "trend", "exact", "not a number", "infinite")
BAD = ("not a number", "infinite")
LIMIT = 8  # times eps^(2/3), of the largest number of a result: what entries may lose before square roots are taken
MOVED, LOST = 10_000, 100  # times what an eps of all arguments moves, and the loop in NumPy loses
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


def by_loops(call: Call, given: Given, dtype: Any) -> list[Array]:
    """The results by loops over steps in NumPy."""
    y, parameters = given
    lifted = loop_gradients.lifted(y.astype(dtype), {name: x.astype(dtype) for name, x in parameters.items()})
    if call.verb == "gradient":
        return loop_gradients.derivatives(*lifted, dtype)
    found = BACKENDS["numpy_scan"].module().kalman(f"kalman.{call.verb}", *lifted)
    return list(found if isinstance(found, tuple) else (found,))


def ask(rng: np.random.Generator, where: Where, verb: str) -> Outcome:
    call = Call.draw(rng, where, verb)
    kinds = chosen(rng, KINDS, call.count)
    clean = made(rng, call, kinds)
    given, seed, bad = spoiled(rng, call, kinds, clean), int(rng.integers(2**60)), np.isin(kinds, BAD)
    found = run(np.random.default_rng(seed), call, given)
    right = by_loops(call, clean, np.longdouble)
    error = distance(call, found, right)
    excuse(call, clean, right, error, np.flatnonzero((error > 1) & ~bad))
    error[bad] = np.where(
        np.isnan(found[-1][bad]).reshape(int(bad.sum()), np.prod(found[-1].shape[1:], dtype=int)).any(1), 0, np.inf
    )
    if bad.any() and not bad.all():
        again = run(np.random.default_rng(seed), call, clean)
        same = np.all([same_bits(x, y) for x, y in zip(found, again, strict=True)], 0)
        error[~same & ~bad] = np.inf
    return Outcome(str(call), kinds, error)


def excuse(call: Call, given: Given, right: list[Array], error: Array, doubtful: Array) -> None:
    """Models in bad condition lose digits: what an eps of all arguments changes, or the loop in NumPy loses.

    That one series at a time: together all would be computed from square roots where one of them has to be.
    """
    for k in doubtful:
        own = given[0][k : k + 1], {name: x[k : k + 1] for name, x in given[1].items()}
        same = [x[k : k + 1] for x in right]
        moved = [distance(call, by_loops(call, nudged(call, own, seed), np.longdouble), same) for seed in range(3)]
        theirs = distance(call, by_loops(call, own, call.dtype), same)
        error[k] /= max(1, MOVED * float(np.max(moved)), LOST * float(theirs[0]))


def nudged(call: Call, given: Given, seed: int) -> Given:
    """The same series and model but for an eps of every entry; covariances stay symmetric."""
    rng, eps = np.random.default_rng(seed), np.finfo(call.dtype).eps

    def nudge(name: str, x: Array) -> Array:
        some = rng.uniform(-1, 1, x.shape).astype(np.longdouble)
        return x * (1 + eps * (np.tril(some) + np.tril(some, -1).swapaxes(-1, -2) if name in COVARIANCES else some))

    return nudge("y", given[0]), {name: nudge(name, x) for name, x in given[1].items()}


def distance(call: Call, found: list[Array], right: list[Array]) -> Array:
    """Of each series the largest of any result, over what is allowed next to the largest number in that."""
    pairs = [*zip(found, right, strict=True)]
    if call.verb == "gradient":  # each parameter is a result
        form = StateSpace(call.n, call.p, call.k, (), (), None, True)
        ends = np.cumsum([int(np.prod(shape)) for shape in own_shapes(form)])[:-1]
        pairs = [pairs[0], *zip(*(np.split(x, ends, 1) for x in pairs[1]), strict=True)]
    error = np.zeros(len(right[0]))
    with np.errstate(all="ignore"):
        for x, y in pairs:
            x, y = x.reshape(len(error), -1), y.reshape(len(error), -1)
            scale = np.maximum(abs(y).max(1), 1e-3) * LIMIT * np.finfo(call.dtype).eps ** (2 / 3)
            off = (abs(x - y).max(1) / scale).astype(float)
            error = np.maximum(error, np.where(np.isfinite(off), off, np.inf))
    return error


def filter(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "filter")


def smoother(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "smoother")


def log_likelihood(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "log_likelihood")


def gradient(rng: np.random.Generator, where: Where) -> Outcome:
    return ask(rng, where, "gradient")
