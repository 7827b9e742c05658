"""A part of the campaign: sequences evolved towards errors of recurrences and of logcumsumexp above what is promised.

Bars: of `linear_recurrence` 8 n eps of the sum of the sizes of all terms, as in its tests; of `logcumsumexp` the units
in the last place of max(1, |y|) that the table of backends promises. What leaves the range of the dtype is excused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tridiag
from guarded import Ran
from guarded.accuracy_breeding import Array
from tridiag.backends import BACKENDS

SIMPLER = ("layout",)
LIMIT = 300.0
WEIGHT = 0.5
GENERATIONS, PARENTS, ENTRIES = 12, 100, 60_000
STEPS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 129, 300)
WIDE = {"float32": np.float64, "complex64": np.complex128, "float64": np.longdouble, "complex128": np.clongdouble}


class Call(NamedTuple):
    verb: str
    backend: str
    dtype: str
    n: int
    columns: bool
    reverse: bool


def start() -> None:
    pass


def draw(rng: np.random.Generator, drop: frozenset[str] = frozenset()) -> Call:
    verb = str(rng.choice(["linear_recurrence", "order 2", "logcumsumexp"]))
    dtype = str(rng.choice(["float32", "float64"] if verb == "logcumsumexp" else list(WIDE)))
    backend = str(rng.choice(["numba_scan", "numba_scan", "numpy_scan"]))
    layout = "layout" not in drop
    columns, reverse = layout and bool(rng.integers(2)), layout and bool(rng.integers(2))
    return Call(verb, backend, dtype, int(rng.choice(STEPS)), columns, reverse)


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    return str(draw(np.random.default_rng(seed), drop))


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    rng = np.random.default_rng(seed)
    call = draw(rng, drop)
    m, worst = max(16, ENTRIES // call.n), 0.0
    bands = 1 if call.verb == "logcumsumexp" else 2 if call.verb == "linear_recurrence" else 3
    sequences = [fresh(call, rng, m) for _ in range(bands)]
    for generation in range(GENERATIONS):
        with np.errstate(all="ignore"):
            excess = judged(call, sequences, solved(call, sequences))
        k = int(excess.argmax())
        if excess[k] > 1:
            told = [x[k].tolist() for x in sequences]
            raise AssertionError(f"{excess[k]:.3g} times the bar, generation {generation}\n    {call}\n    {told}")
        worst = max(worst, float(excess[k]))
        order = np.argsort(-excess, kind="stable")[:PARENTS]
        sequences = bred(call, rng, [x[order] for x in sequences], m)
    return Ran(call.verb, call.backend, GENERATIONS * m, worst)


def fresh(call: Call, rng: np.random.Generator, m: int) -> Array:
    """Numbers of several kinds, a third of the rows each: near 1, of many sizes, integers with zeros."""
    size, logs = (m, call.n), call.verb == "logcumsumexp"
    slope = rng.choice([-1, 1], (m, 1)) * 10.0 ** rng.uniform(-6, 1, (m, 1)) * np.arange(call.n)
    near = (
        slope if logs else rng.choice([-1, 1], (m, 1)) * (1 + rng.normal(size=size) * 10 ** rng.uniform(-8, 0, (m, 1)))
    )
    wide = rng.choice([-1, 1], size) * 10.0 ** rng.uniform(*((-5, 5) if logs else (-6, 2)), size)
    few = rng.integers(-2, 3, size) + 0.0
    kinds = [near, wide, few, rng.normal(size=size)]
    x = np.select([np.arange(m)[:, None] % 4 == k for k in range(4)], kinds)
    if call.dtype.startswith("complex"):
        x = x * np.exp(2j * np.pi * rng.integers(0, 9, size) / 8)
    return np.ascontiguousarray(x, call.dtype)


def bred(call: Call, rng: np.random.Generator, parents: list[Array], m: int) -> list[Array]:
    """Children with some entries scaled, cleared, nudged or from another kind; a third of all are new."""
    which, old = rng.integers(len(parents[0]), size=m), np.arange(m)[:, None] >= m // 3
    eps, found = np.finfo(call.dtype).eps, []
    for x in parents:
        child, new = x[which], fresh(call, rng, m)
        some = rng.random(child.shape) < 2 / call.n
        kind = rng.integers(4, size=(m, 1))
        nudged = child * (1 + eps ** rng.uniform(0.1, 1, (m, 1)))
        changed = np.select([kind == 0, kind == 1, kind == 2], [2 * child, 0 * child, nudged], new)
        found.append(np.where(old, np.where(some, changed, child), new).astype(call.dtype))
    return found


def solved(call: Call, sequences: list[Array]) -> Array:
    axis: int = 0 if call.columns else -1
    given: list[Any] = [np.ascontiguousarray(x.T) if call.columns else x for x in sequences]
    options: dict[str, Any] = {"axis": axis, "reverse": call.reverse, "backend": call.backend}
    if call.verb == "logcumsumexp":
        y = tridiag.logcumsumexp(given[0], **options)
    else:
        a = given[0] if len(given) == 2 else tuple(given[:2])
        y = tridiag.linear_recurrence(a, given[-1], **options)
    return y.T if call.columns else y


def judged(call: Call, sequences: list[Array], y: Array) -> Array:
    """By how much each sequence is above its bar."""
    info, kind = np.finfo(call.dtype), WIDE[call.dtype]
    turn = slice(None, None, -1) if call.reverse else slice(None)
    given, y = [x[:, turn].astype(kind) for x in sequences], y[:, turn]
    if call.verb == "logcumsumexp":
        right = log_of_sums(given[0])
        unit = np.spacing(np.maximum(1, abs(right)).astype(call.dtype))
        units = BACKENDS[call.backend].units
        assert units is not None
        bar = unit * (units + 0.1)  # of what it is compared with
    else:
        right, size = recurrence(given), recurrence([abs(x) for x in given])
        bar = 8 * call.n * info.eps * size + 8 * call.n * info.tiny
        held = size.max(1) < info.max / 4
        right, y = right[held], y[held]
        excess = np.zeros(len(held))
        excess[held] = np.nan_to_num((abs(y - right) / bar[held]).max(1).astype(float), nan=np.inf)
        return excess
    return np.nan_to_num((abs(y - right) / bar).max(1).astype(float), nan=np.inf)


def recurrence(given: list[Array]) -> Array:
    *a, x = given
    y = np.zeros_like(x)
    for t in range(x.shape[1]):
        y[:, t] = x[:, t]
        for k, v in enumerate(a, 1):
            if t >= k:
                y[:, t] += v[:, t] * y[:, t - k]
    return y


def log_of_sums(x: Array) -> Array:
    """With the sum relative to the running maximum."""
    top, total, y = x[:, 0].copy(), np.ones_like(x[:, 0]), x.copy()
    for t in range(1, x.shape[1]):
        new = np.maximum(top, x[:, t])
        total = total * np.exp(top - new) + np.exp(x[:, t] - new)
        top = new
        y[:, t] = top + np.log(total)
    return y
