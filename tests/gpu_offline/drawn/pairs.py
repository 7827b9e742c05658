"""The scores of `smith_waterman`, and its derivatives."""

from __future__ import annotations

import cupy
import numpy as np
from alignment_oracle import alignment

from drawn import Array, Outcome, Where, chosen, same_bits
from drawn.memory import Memory
from tridiag.backends import BACKENDS
from tridiag.kernels.jobs.words.alignment import ENDS, TURNS, Rules

KINDS = ("normal", "small", "large", "very large", "forbidden in part", "forbidden", "not a number", "infinite")
SIZE = {"small": 1e-3, "large": 30.0, "very large": 300.0}
MOST = 800.0  # the typical sum of scores: weights stay in the range of long double
BAD = ("not a number", "infinite")
LIMIT = 60  # eps, next to what a result is at most
SIDES = (1, 2, 3, 5, 8, 20, 31, 32, 33, 40)


def smith_waterman(rng: np.random.Generator, where: Where) -> Outcome:
    dtype, derivatives = str(rng.choice(["float64", "float32"])), int(rng.integers(3))
    rows, columns = (int(rng.choice(SIDES)) for _ in range(2))
    if rng.random() < 0.05:
        rows, columns = sorted((65 + int(rng.integers(3)), min(columns, 5)), reverse=bool(rng.random() < 0.5))
    count = max(1, int(where.larger * min(2**15 / rows / columns, 3000) * 2 ** rng.uniform(-4, 0)))
    affine = bool(rng.random() < 0.5)
    turns = str(rng.choice(TURNS)) if affine and rng.random() < 0.3 else TURNS[0]
    rules = Rules(str(rng.choice(ENDS)) if rng.random() < 0.3 else ENDS[0], turns)
    kinds = chosen(rng, KINDS, count)
    scores = made(rng, kinds, (count, rows, columns)).astype(dtype)
    lengths = np.stack([rng.integers(0, k + 1, count) for k in (rows, columns)], 1).astype("int32")
    lengths[rng.random(count) < 0.5] = rows, columns
    values = (-0.7, -2.0, 0.8) if affine else (-0.7, 0.8)
    parameters = tuple(np.full(count, v, dtype) * rng.uniform(0.5, 2, count).astype(dtype) for v in values)
    seed, given, bad = int(rng.integers(2**60)), spoiled(rng, scores, lengths, kinds), np.isin(kinds, BAD)
    found = run(np.random.default_rng(seed), given, lengths, parameters, derivatives, rules)
    with np.errstate(all="ignore"):
        right = alignment(scores, lengths, parameters, rules)[: len(found)]
        sums = abs(np.where(np.isfinite(scores), scores, 0)).max((1, 2)) / parameters[-1] * min(rows, columns)
        terms = [1, 1, *[rows + columns] * len(parameters)]  # a gradient's: gaps, and what is over the temperature
        terms[-1] = terms[-1] + sums
        of_each = zip(found, right, terms, (0 * sums, *[sums] * 4), strict=False)
        error = np.max([distance(*of) for of in of_each], 0)
    error[bad] = np.where(np.isfinite(found[0][bad]) & (given != scores)[bad].any((1, 2)), np.inf, 0)
    if bad.any() and not bad.all():
        again = run(np.random.default_rng(seed), scores, lengths, parameters, derivatives, rules)
        same = np.all([same_bits(x, y) for x, y in zip(found, again, strict=True)], 0)
        error[~same & ~bad] = np.inf
    told = f"smith_waterman {dtype}, {scores.shape}, {len(parameters)} parameters, {derivatives} derivatives, {rules}"
    return Outcome(told, kinds, error)


def made(rng: np.random.Generator, kinds: Array, shape: tuple[int, ...]) -> Array:
    scores = rng.normal(size=shape)
    most = MOST / min(shape[1:])
    scores *= np.array([min(most, SIZE.get(str(kind), 1.0)) for kind in kinds])[:, None, None]
    scores[(kinds == "forbidden in part")[:, None, None] & (rng.random(shape) < 0.4)] = -np.inf
    scores[kinds == "forbidden"] = -np.inf
    return scores


def spoiled(rng: np.random.Generator, scores: Array, lengths: Array, kinds: Array) -> Array:
    """No numbers where nothing is read, and one that is no number, or infinite, in a pair that is to have it."""
    given = scores.copy()
    for k in np.flatnonzero(np.isin(kinds, BAD) & lengths.all(1)):
        given[k, rng.integers(lengths[k, 0]), rng.integers(lengths[k, 1])] = np.nan if kinds[k] == BAD[0] else np.inf
    return given


def run(
    rng: np.random.Generator,
    scores: Array,
    lengths: Array,
    parameters: tuple[Array, ...],
    derivatives: int,
    rules: Rules,
) -> list[Array]:
    memory = Memory(rng)
    given = memory.given(scores), memory.given(lengths), tuple(memory.given(x) for x in parameters)
    found = BACKENDS["cupy_wavefront"].module().smith_waterman(*given, derivatives, rules)
    memory.check()
    return [cupy.asnumpy(x) for x in found]


def distance(x: Array, y: Array, terms: int | Array, sums: Array) -> Array:
    """Of each pair, over what is allowed: some units of a result, or of its terms, and those of sums of scores.

    The rounding of what is in an exponent is relative to that; the score itself is an exponent.
    """
    terms, sums = (np.reshape(v, (-1, *[1] * (x.ndim - 1))) for v in (terms, sums))
    scale = np.maximum(terms, abs(np.where(np.isfinite(y), y, 0)))
    error = np.where(x == y, 0, abs(x - y) / ((LIMIT + sums) * np.finfo(x.dtype).eps * scale))
    return np.where(np.isnan(error), np.inf, error).reshape(len(x), -1).max(1)
