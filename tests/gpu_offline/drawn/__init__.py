"""Random problems for the CUDA C kernels, a module for each kind of verb; `random_problems` asks them.

A module has a function for each verb, which takes a generator of random numbers and `Where`, draws one call from them,
makes it, judges each of its problems and returns an `Outcome`. Everything is drawn on the host, so that a seed means
the same call on the stand-in for CuPy and on a device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES = ("float64", "float32", "complex128", "complex64")
BOUNDARIES = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513)
LONGEST = 9000


class Where(NamedTuple):
    """How large calls are, next to those of the CPU build."""

    larger: int = 1


class Outcome(NamedTuple):
    """What came of one call."""

    told: str  # what was called
    kinds: Array  # of each problem, by name
    error: Array  # of each problem, over the most that is allowed; inf where anything else is wrong


class Refused(Exception):
    """What is wrong with a call as a whole: memory that it wrote, an array that is not the one that was given."""


def sizes(rng: np.random.Generator, where: Where, most: int = 2**15, longest: int = LONGEST) -> tuple[int, int]:
    """How many problems a call has, and how many rows each of them: mostly few, some about boundaries, some many."""
    turn = rng.random()
    if turn < 0.6:
        n = int(rng.integers(1, 41))
    elif turn < 0.85:
        n = int(rng.choice(BOUNDARIES))
    else:
        n = int(2 ** rng.uniform(0, np.log2(longest)))
    entries = where.larger * most * 2 ** rng.uniform(-8, 0)
    return max(1, min(3000 * where.larger, int(entries / n))), min(n, longest)


def chosen(rng: np.random.Generator, kinds: Any, count: int) -> Array:
    """The kind of each problem: of all, one for all of a call, or two of them in turn."""
    names = list(kinds)
    some = names if rng.random() < 0.7 else list(rng.choice(names, 2))
    return rng.choice(np.array(some, object), count)


def in_kinds(kinds: Array, make: Any, *results: Array) -> None:
    """Fill arrays, whose first axis is that of the problems, by ``make(kind, count)`` for each kind that occurs."""
    for kind in dict.fromkeys(kinds):
        which = kinds == kind
        for result, part in zip(results, make(kind, int(which.sum())), strict=True):
            result[which] = part


def same_bits(x: Array, y: Array) -> Array:
    """Of each problem."""
    return np.array([one.tobytes() == other.tobytes() for one, other in zip(x, y, strict=True)], bool)
