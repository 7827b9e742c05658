"""Tridiagonal matrices of every kind that may trouble a solver, and right sides that go with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from guarded.accuracy_breeding import Breeder

from drawn import Array
from drawn.levels import beside

Bands = tuple[Array, ...]
SINGULAR = ("zero row", "zero column", "equal rows")


class Matrices:
    """Of n rows, by the names of their kinds: a, b, c and a right side, (count, n) each."""

    def __init__(self, rng: np.random.Generator, n: int, dtype: str) -> None:
        self.rng, self.n, self.dtype = rng, n, np.dtype(dtype)
        self.info = np.finfo(self.dtype)

    def make(self, kind: str, count: int) -> Bands:
        """In the dtype of the call."""
        with np.errstate(all="ignore"):
            made = self.families(count) if kind == "families" else getattr(self, kind.replace(" ", "_"))(count)
            a, b, c, *d = made
            return tuple(x.astype(self.dtype) for x in (a, b, c, d[0] if d else self.noise(count)))

    def noise(self, count: int) -> Array:
        x = self.rng.uniform(-1, 1, (count, self.n))
        return x + 1j * self.rng.uniform(-1, 1, x.shape) if self.dtype.kind == "c" else x

    def nonzero(self, count: int) -> Array:
        """Of sizes from 1/2 to 1."""
        x = self.noise(count)
        return x / np.maximum(abs(x), 1e-9) * self.rng.uniform(0.5, 1, x.shape)

    def dominant(self, count: int) -> Bands:
        a, c = self.noise(count), self.noise(count)
        reach = np.maximum(abs(a) + abs(c), abs(np.roll(a, -1, 1)) + abs(np.roll(c, 1, 1)))
        return a, (reach + self.rng.uniform(0.1, 1, a.shape)) * self.rng.choice([-1, 1], a.shape), c

    def general(self, count: int) -> Bands:
        return self.noise(count), self.noise(count), self.noise(count)

    def families(self, count: int) -> Bands:
        """Of those that a search for large errors starts from."""
        return tuple(Breeder(self.rng, self.n, self.dtype.name, False, False).fresh(count)[:4])

    def diffusion(self, count: int) -> Bands:
        """Whose couplings hardly decay."""
        step = 10.0 ** self.rng.uniform(-9, 0, (count, 1))
        ones = np.ones((count, self.n))
        return -ones, 2 * ones + step, -ones

    def zero_diagonal(self, count: int) -> Bands:
        """Singular for an odd number of rows."""
        return self.nonzero(count), np.zeros((count, self.n)), self.nonzero(count)

    def leading(self, count: int) -> Bands:
        """Some leading blocks are singular, though the matrix is not."""
        a, b, c = self.nonzero(count), self.nonzero(count), self.nonzero(count)
        b[self.rng.random(b.shape) < 0.2] = 0
        b[:, 0] = 0
        some = self.rng.random(count) < 0.5
        for x in (a[:, 1:2], b[:, :2], c[:, :1]):
            x[some] = 1
        return a, b, c

    def singular(self, count: int) -> Bands:
        """Exactly: a row or a column of zeros, or two rows that are equal, and coupled to no others."""
        a, b, c = self.general(count) if self.rng.random() < 0.5 else self.dominant(count)
        ways = 2 if self.dtype.kind == "c" else 3  # a transposed pair of equal rows may leave a rounding of products
        row, way = self.rng.integers(self.n, size=count), self.rng.integers(ways, size=count)
        for k, i, name in zip(range(count), row, np.array(SINGULAR)[way], strict=True):
            b[k, i] = 0
            if name == "zero column":
                a[k, (i + 1) % self.n] = c[k, i - 1] = 0
            else:
                a[k, i] = c[k, i] = 0
            if name == "equal rows" and i + 1 < self.n:
                a[k, i + 1] = b[k, i] = c[k, i] = b[k, i + 1] = 1
                a[k, i + 1], c[k, i + 1], a[k, i] = 1, 0, 0
        return a, b, c

    def integers(self, count: int) -> Bands:
        """With zeros, and solutions with zeros."""
        a, b, c, x = (self.rng.integers(-2, 3, (count, self.n)) + 0.0 for _ in range(4))
        d = b * x
        d[:, 1:] += a[:, 1:] * x[:, :-1]
        d[:, :-1] += c[:, :-1] * x[:, 1:]
        return a, b, c, d

    def uncoupled(self, count: int) -> Bands:
        a, b, c = self.nonzero(count), self.nonzero(count), self.nonzero(count)
        for x in (a, c):
            x[self.rng.random(x.shape) < 0.3] = 0
        return a, b, c

    def graded(self, count: int) -> Bands:
        """Rows, and columns, over many decades."""
        a, b, c = self.general(count) if self.rng.random() < 0.5 else self.dominant(count)
        d, decades = self.noise(count), int(-np.log10(float(self.info.tiny))) / 4
        if self.rng.random() < 0.7:
            rows = 10.0 ** self.rng.uniform(-decades, decades, b.shape)
            a, b, c, d = (x * rows for x in (a, b, c, d))
        if self.rng.random() < 0.5:
            columns = 10.0 ** self.rng.uniform(-decades / 2, decades / 2, b.shape)
            a, b, c = a * np.roll(columns, 1, 1), b * columns, c * np.roll(columns, -1, 1)
        return a, b, c, d

    def wide(self, count: int) -> Bands:
        """Rows and columns times powers of 2: entries span most of the range of numbers, solutions stay within."""
        a, b, c = self.general(count) if self.rng.random() < 0.5 else self.dominant(count)
        most = 0.7 * -np.log2(float(self.info.tiny))
        share = self.rng.choice([0, 0.5, 1, self.rng.random()])
        rows, columns = (
            2.0 ** np.round(self.rng.uniform(-span * most, span * most, b.shape)) for span in (share, 1 - share)
        )
        a, b, c = ((x * rows) * near for x, near in zip((a, b, c), beside(columns), strict=True))
        return a, b, c, self.noise(count) * rows

    def scaled(self, count: int, size: float, of_general: float | None = None) -> Bands:
        """Solutions of general matrices may be large."""
        general = self.rng.random() < 0.3
        size = of_general if general and of_general is not None else size
        a, b, c = self.general(count) if general else self.dominant(count)
        return *(x * size for x in (a, b, c)), self.noise(count) * size

    def huge(self, count: int) -> Bands:
        """Next to overflow: three times an entry is still a number."""
        return self.scaled(count, float(self.info.max) / 64, float(self.info.max) / 2.0**30)

    def tiny(self, count: int) -> Bands:
        """Next to underflow."""
        return self.scaled(count, float(self.info.tiny) * 2.0 ** self.rng.integers(4, 40))

    def subnormal(self, count: int) -> Bands:
        return self.scaled(count, float(self.info.tiny) / 2.0 ** self.rng.integers(1, 10))

    def not_a_number(self, count: int) -> Bands:
        """Of which one entry will be none."""
        return self.general(count)

    def infinite(self, count: int) -> Bands:
        """Likewise."""
        return self.dominant(count)


KINDS = (
    *("dominant", "general", "families", "diffusion", "zero diagonal", "leading", "singular", "integers", "uncoupled"),
    *("graded", "wide", "huge", "tiny", "subnormal", "not a number", "infinite"),
)


def certainly_singular(kinds: Array, keep: Array, periodic: bool) -> Array:
    """Which matrices elimination is sure to find singular; with rows taken out others may be, too."""
    whole, odd = keep.all(1), np.zeros(keep.shape, bool)
    for i in range(keep.shape[1]):
        odd[:, i] = keep[:, i] & ~(odd[:, i - 1] if i else False)
    ends = keep & ~np.pad(keep, ((0, 0), (0, 1)))[:, 1:]
    by_parity = (odd & ends).any(1) if not periodic else np.zeros(len(keep), bool)
    return ((kinds == "singular") & whole) | ((kinds == "zero diagonal") & by_parity)


def spoil(rng: np.random.Generator, kinds: Array, systems: Any, readable: Any) -> tuple[list[Array], Array]:
    """NaN or infinity in one entry that is read of the systems that are to have it; and whether x must feel it."""
    found, must = [x.copy() for x in systems], np.zeros(len(kinds), bool)
    for k in np.flatnonzero((kinds == "not a number") | (kinds == "infinite")):
        band = int(rng.integers(4))
        rows = np.flatnonzero(readable[band][k])
        if len(rows) and found[band].shape[0] == len(kinds):
            infinite = kinds[k] == "infinite"
            found[band][k, rng.choice(rows)] = rng.choice([np.inf, -np.inf]) if infinite else np.nan
            must[k] = band == 3 or not infinite
    return found, must
