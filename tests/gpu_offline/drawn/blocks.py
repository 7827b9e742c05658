"""`solve_block`."""

from __future__ import annotations

import numpy as np
from helpers import REAL, noise

import tridiag
from drawn import DTYPES, Array, Outcome, Refused, Where, chosen, in_kinds, same_bits, sizes
from drawn.memory import Memory

KINDS = ("general", "dominant", "no own block", "graded", "singular", "huge", "tiny", "not a number")
GROWTH = 8  # of errors, times the rows of a block
WIDE = {"float32": "float64", "complex64": "complex128", "float64": "longdouble", "complex128": "clongdouble"}
Blocks = tuple[Array, ...]


class Systems:
    """Of n block rows of m rows, by the names of their kinds."""

    def __init__(self, rng: np.random.Generator, n: int, m: int, dtype: str) -> None:
        self.rng, self.n, self.m, self.dtype, self.info = rng, n, m, dtype, np.finfo(dtype)

    def make(self, kind: str, count: int) -> Blocks:
        blocks = [noise(self.rng, (count, self.n, self.m, self.m), self.dtype) for _ in range(3)]
        if kind in ("dominant", "huge", "tiny") or (kind in ("general", "graded") and self.n > 40):
            blocks[1] = blocks[1] + 4 * self.m * np.eye(self.m)  # of others, long ones may have solutions too large
        if kind == "no own block" and self.n % 2 == 0:
            blocks[1] = np.where(self.rng.random((count, self.n, 1, 1)) < 0.5, 0, blocks[1])
        scale = {"huge": self.info.max / 2.0**12, "tiny": self.info.tiny * 2.0**12}.get(kind, 1.0)
        if kind == "graded":
            scale = 10.0 ** self.rng.uniform(-4, 4, (count, self.n, 1, 1))
        if kind == "singular":
            self.clear(blocks, count)
        return tuple((x * scale).astype(self.dtype) for x in blocks)

    def clear(self, blocks: list[Array], count: int) -> None:
        """A row of each matrix, or a column."""
        at = np.arange(count), self.rng.integers(self.n, size=count)
        k = self.rng.integers(self.m)
        if self.rng.random() < 0.5:
            for x in blocks:
                x[(*at, k)] = 0
        else:
            for x, by in zip(blocks, (1, 0, -1), strict=True):
                x[at[0], (at[1] + by) % self.n, :, k] = 0


def solve_block(rng: np.random.Generator, where: Where) -> Outcome:
    dtype, m = str(rng.choice(DTYPES)), int(rng.integers(1, 9))
    count, n = sizes(rng, where, 2**14 // m**2, 300)
    sides = int(rng.integers(1, 41)) if rng.random() < 0.3 else 1
    count = max(1, min(count, 500 * where.larger) // sides)
    kinds = chosen(rng, KINDS, count)
    blocks = [np.empty((count, n, m, m), dtype) for _ in range(3)]
    in_kinds(kinds, Systems(rng, n, m, dtype).make, *blocks)
    d = noise(rng, (sides, count, n, m), dtype) * abs(blocks[1]).max((1, 2, 3))[:, None, None].astype(
        blocks[0].real.dtype
    )
    if rng.random() < 0.5:
        blocks[0][:, 0] = blocks[2][:, -1] = np.nan  # which are not read
    seed, bad = int(rng.integers(2**60)), kinds == "not a number"
    clean = [*blocks, d]
    given = spoil(rng, clean, bad)
    told = f"solve_block {dtype}, {count} systems of {n} blocks of {m} rows, {sides} right sides"
    x = run(np.random.default_rng(seed), given)
    error = judge([v.astype(WIDE[dtype]) for v in (*clean, x)], REAL.get(dtype, dtype), m)
    singular, lost = kinds == "singular", np.isnan(x).all((2, 3))
    error[:, singular] = np.where(lost[:, singular], 0, np.inf)
    error[:, bad] = np.where(np.isfinite(x[:, bad]).any((2, 3)).all(0), np.inf, 0)
    if bad.any() and not bad.all():
        y = run(np.random.default_rng(seed), clean)
        error[:, ~bad] = np.where(
            [same_bits(one[~bad], other[~bad]) for one, other in zip(x, y, strict=True)], error[:, ~bad], np.inf
        )
    return Outcome(told, np.tile(kinds, sides), error.reshape(-1))


def spoil(rng: np.random.Generator, clean: list[Array], bad: Array) -> list[Array]:
    """NaN in one entry that is read."""
    given = [x.copy() for x in clean]
    n, m = given[1].shape[1:3]
    for k in np.flatnonzero(bad):
        row, i = rng.integers(n), rng.integers(m)
        if rng.random() < 0.5:
            given[1][k, row, i, rng.integers(m)] = np.nan
        else:
            given[3][:, k, row, i] = np.nan
    return given


def run(rng: np.random.Generator, given: list[Array]) -> Array:
    memory = Memory(rng)
    x = tridiag.solve_block(*map(memory.given, given), backend="cupy_thomas")
    memory.check()
    if x.shape != given[3].shape or x.dtype != given[3].dtype:
        raise Refused(f"the result is {x.dtype}{x.shape}")
    return x.get()


def judge(given: list[Array], real: str, m: int) -> Array:
    """Of each system its normwise backward error over what is allowed."""
    A, B, C, d, x = given
    A[:, 0], C[:, -1] = 0, 0
    residual, size = d.copy(), abs(d)
    with np.errstate(all="ignore"):
        for block, by in ((A, 1), (B, 0), (C, -1)):
            moved = np.roll(x, by, -2)[..., None, :]
            residual -= (block * moved).sum(-1)
            size = size + (abs(block) * abs(moved)).sum(-1)
        error = abs(residual).max((-1, -2)) / np.maximum(size.max((-1, -2)), np.finfo(real).tiny) / np.finfo(real).eps
    return np.where(np.isfinite(error), error / (GROWTH * m), np.inf).astype(float)
