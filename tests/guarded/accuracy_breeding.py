"""Tridiagonal systems to start a search from, and systems bred from those that came out worst."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
MUTATIONS = 3  # at most, of each child


class Systems(NamedTuple):
    """Systems of one size: (m, n) arrays of one dtype, and the rows that are not taken out."""

    a: Array
    b: Array
    c: Array
    d: Array
    keep: Array

    def take(self, which: Any) -> Systems:
        return Systems(*(x[which] for x in self))

    @classmethod
    def join(cls, parts: list[Systems]) -> Systems:
        return cls(*(np.concatenate(x) for x in zip(*parts, strict=True)))


class Breeder:
    """Random systems of one size and dtype."""

    def __init__(self, rng: np.random.Generator, n: int, dtype: str, masked: bool, dominant: bool) -> None:
        self.rng, self.n, self.dtype = rng, n, np.dtype(dtype)
        self.masked, self.dominant = masked, dominant
        info = np.finfo(self.dtype)
        self.eps, self.decades = float(info.eps), int(-np.log10(float(info.tiny)))
        self.complex = self.dtype.kind == "c"

    # ------------------------------------------------------------------------------------------------ new systems

    def fresh(self, m: int) -> Systems:
        """Systems of all families, some dozens of each."""
        share, parts = max(1, m // 40), []
        while sum(len(x.b) for x in parts) < m:
            parts.append(self.family(min(share, m - sum(len(x.b) for x in parts))))
        return self.settle(Systems.join(parts))

    def family(self, m: int) -> Systems:
        size = (m, self.n)
        with np.errstate(all="ignore"):
            a, b, c = self.structure([self.entries(size) for _ in range(3)])
            keep = np.ones(size, bool)
            if self.masked:
                keep = self.rng.random(size) < self.rng.choice([0.5, 0.9])
            exact = self.rng.random() < 0.3  # the right side of a solution that is known, of few and small numbers
            d = self.product(a, b, c, self.integers(size, 0.5)) if exact else self.right_side(size)
            a, b, c, d = self.scaled(a, b, c, d)
        return Systems(*(self.rounded(x) for x in (a, b, c, d)), keep)

    def entries(self, size: tuple[int, int]) -> Array:
        kind = self.rng.choice(["uniform", "integers", "few", "powers", "normal", "graded", "wide"])
        if kind == "integers":
            return self.integers(size, self.rng.choice([0.0, 0.2, 0.5]))
        if kind == "few":
            return self.integers(size, 0.3, 2)
        if kind == "powers":
            return self.signs(size) * 2.0 ** self.rng.integers(-4, 5, size)
        if kind == "graded":
            return self.signs(size) * float(self.rng.choice([0.5, 0.1, 0.9, 2, 3])) ** np.arange(size[1])
        if kind == "wide":
            return self.signs(size) * self.powers(size)
        return self.rng.standard_normal(size) * self.signs(size) if kind == "normal" else self.uniform(size)

    def structure(self, bands: list[Array]) -> tuple[Array, Array, Array]:
        a, b, c = bands
        kind = self.rng.choice(["any", "any", "symmetric", "skew", "dominant", "zero", "small", "constant", "singular"])
        if kind in ("symmetric", "skew"):
            a = np.roll(np.conj(c), 1, 1) * (1 if kind == "symmetric" else -1)
        if kind == "constant":
            a, b, c = (x[:, :1] + 0 * x for x in (a, b, c))
        if kind == "dominant" or self.dominant:
            b = self.signs(b.shape) * (abs(a) + abs(c)) * (1 + self.rng.random(b.shape) ** 8)
        if kind in ("zero", "small"):
            few = self.rng.random(b.shape) < self.rng.choice([0.2, 1.0])
            b = np.where(few, (0 if kind == "zero" else self.eps ** self.rng.random(b.shape)) * b, b)
        if kind == "singular":  # nearly: a pivot of some decades less than its diagonal
            b[:, 1:] = a[:, 1:] * c[:, :-1] / np.where(b[:, :-1] == 0, 1, b[:, :-1])
            b = b * (1 + self.eps ** self.rng.uniform(0.1, 0.8, b.shape))
        return a, b, c

    def right_side(self, size: tuple[int, int]) -> Array:
        kind = self.rng.choice(["normal", "unit", "sparse", "wide", "integers", "ones", "graded"])
        d = np.zeros(size)
        if kind == "unit":
            d[np.arange(size[0]), self.rng.integers(size[1], size=size[0])] = 1
            return d
        if kind == "sparse":
            return (self.rng.random(size) < 0.3) * self.integers(size, 0.0)
        if kind == "wide":
            return self.signs(size) * self.powers(size)
        if kind == "integers":
            return self.integers(size, 0.3)
        if kind == "graded":
            return self.signs(size) * float(self.rng.choice([1e-3, 0.1, 10, 1e3])) ** np.arange(size[1]).clip(0, 8)
        return d + 1 if kind == "ones" else self.rng.standard_normal(size) * self.signs(size)

    def scaled(self, a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
        """Rows, columns, or all times powers of ten over some decades, up to near overflow and to subnormal numbers."""
        kind = self.rng.choice(["none", "none", "rows", "columns", "both", "all", "right"])
        if kind in ("rows", "both"):
            rows = self.powers(b.shape)
            a, b, c, d = (x * rows for x in (a, b, c, d))
        if kind in ("columns", "both"):
            columns = self.powers(b.shape)
            a, b, c = a * np.roll(columns, 1, 1), b * columns, c * np.roll(columns, -1, 1)
        if kind == "all":
            whole = 10.0 ** self.rng.uniform(-0.98 * self.decades, 0.95 * self.decades, (len(b), 1))
            a, b, c = (x * whole for x in (a, b, c))
            d = d * whole if self.rng.random() < 0.5 else d
        if kind == "right":
            d = d * 10.0 ** self.rng.uniform(-0.98 * self.decades, 0.9 * self.decades, (len(b), 1))
        return a, b, c, d

    def powers(self, size: tuple[int, int]) -> Array:
        decades = self.rng.choice([2, 8, 24, 0.5 * self.decades, 1.4 * self.decades])
        return 10.0 ** self.rng.uniform(-decades / 2, decades / 2, size)

    def uniform(self, size: tuple[int, int]) -> Array:
        x = self.rng.uniform(-1, 1, size)
        return x + 1j * self.rng.uniform(-1, 1, size) if self.complex else x

    def signs(self, size: tuple[int, int]) -> Array:
        signs = self.rng.choice([-1.0, 1.0], size)
        if self.complex and self.rng.random() < 0.5:
            return np.exp(2j * np.pi * self.rng.random(size))
        return signs * self.rng.choice([1, 1j], size) if self.complex else signs

    def integers(self, size: tuple[int, int], zeros: float, most: int = 9) -> Array:
        x = self.rng.integers(-most, most + 1, size) * (self.rng.random(size) >= zeros)
        if self.complex:
            x = x + 1j * (self.rng.integers(-most, most + 1, size) * (self.rng.random(size) < 0.5))
        return x + 0.0

    @staticmethod
    def product(a: Array, b: Array, c: Array, x: Array) -> Array:
        d = b * x
        d[:, 1:] += a[:, 1:] * x[:, :-1]
        d[:, :-1] += c[:, :-1] * x[:, 1:]
        return d

    def rounded(self, x: Array) -> Array:
        """In the dtype; what is not finite there is another number."""
        most = float(np.finfo(self.dtype).max) / 4
        with np.errstate(all="ignore"):
            x = x.astype(np.complex128 if self.complex else np.float64)
            x = np.where(abs(x) < most, x, 1.0)
            return np.ascontiguousarray(x, self.dtype)

    # ------------------------------------------------------------------------------------------------ their children

    def bred(self, parents: Systems, m: int) -> Systems:
        """Children of one parent or two, each with a few changes."""
        mother, father = (parents.take(self.rng.integers(len(parents.b), size=m)) for _ in range(2))
        cut = np.where(self.rng.random(m) < 0.2, self.rng.integers(self.n + 1, size=m), self.n)
        first = np.arange(self.n) < cut[:, None]
        children = Systems(*(np.where(first, x, y) for x, y in zip(mother, father, strict=True)))
        for _ in range(int(self.rng.integers(1, MUTATIONS + 1))):
            which = np.array_split(self.rng.permutation(m), len(CHANGES))
            for change, some in zip(CHANGES, which, strict=True):
                with np.errstate(all="ignore"):
                    changed = change(self, children.take(some))
                for x, y in zip(children, changed, strict=True):
                    x[some] = y if x.dtype == bool else self.rounded(y)
        return self.settle(children)

    def settle(self, systems: Systems) -> Systems:
        """Dominant in rows, where plain elimination is asked for, and without NaN."""
        a, b, c, d, keep = systems
        if self.dominant:
            with np.errstate(all="ignore"):
                reach = (abs(a) + abs(c)).astype(b.real.dtype)
                wanted = np.where(abs(b) > 0, b / abs(b) * reach * (1 + 4 * self.eps), reach)
                b = self.rounded(np.where(abs(b) < reach, wanted, b))
                b = np.where(abs(b) < reach, self.rounded(2 * reach), b)
                b = np.where(b == 0, self.rounded(1 + 0 * reach), b)
        return Systems(a, b, c, d, keep if self.masked else np.ones_like(keep))

    def one_entry(self, systems: Systems, bands: int = 4) -> tuple[list[Array], int, tuple[Array, Array]]:
        """Copies, one of the bands, and a random row of it in every system."""
        m = len(systems.b)
        place = np.arange(m), self.rng.integers(self.n, size=m)
        return [x.copy() for x in systems], int(self.rng.integers(bands)), place


def scale_an_entry(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems)
    span = r.rng.choice([2, 10, 40, int(3.3 * r.decades)])
    found[band][place] *= 2.0 ** r.rng.integers(-span, span + 1, len(place[0]))
    return found


def clear_an_entry(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems)
    found[band][place] = 0
    return found


def small_integer(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems)
    found[band][place] = r.integers((len(place[0]), 1), 0.2)[:, 0]
    return found


def another_sign(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems)
    found[band][place] *= -1
    return found


def nudge(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems)
    found[band][place] *= 1 + r.rng.choice([-1, 1]) * r.eps ** r.rng.uniform(0.1, 1, len(place[0]))
    return found


def scale_a_row(r: Breeder, systems: Systems) -> list[Array]:
    found, _, place = r.one_entry(systems)
    scale = 2.0 ** r.rng.integers(-30, 31, len(place[0]))
    for x in found[:4]:
        x[place] *= scale
    return found


def scale_a_column(r: Breeder, systems: Systems) -> list[Array]:
    (a, b, c, d, keep), _, (system, row) = r.one_entry(systems)
    scale = 2.0 ** r.rng.integers(-30, 31, len(system))
    a[system, (row + 1) % r.n] *= scale
    b[system, row] *= scale
    c[system, (row - 1) % r.n] *= scale
    return [a, b, c, d, keep]


def another_right_side(r: Breeder, systems: Systems) -> list[Array]:
    found = list(systems)
    found[3] = r.right_side(systems.b.shape)
    return found


def right_side_of_zeros(r: Breeder, systems: Systems) -> list[Array]:
    """A solution with zeros, exact where the entries are integers."""
    found = list(systems)
    found[3] = r.product(*systems[:3], r.integers(systems.b.shape, 0.6))
    return found


def nearly_zero_pivot(r: Breeder, systems: Systems) -> list[Array]:
    (a, b, c, d, keep), _, (system, row) = r.one_entry(systems)
    above = (row - 1) % r.n
    pivot = np.where(b[system, above] == 0, 1, b[system, above])
    b[system, row] = a[system, row] * c[system, above] / pivot * (1 + r.eps ** r.rng.uniform(0.1, 1, len(row)))
    return [a, b, c, d, keep]


def copy_an_entry(r: Breeder, systems: Systems) -> list[Array]:
    found, band, place = r.one_entry(systems, 3)
    found[band][place] = found[int(r.rng.integers(3))][place[0], r.rng.integers(r.n, size=len(place[0]))]
    return found


def turn_a_row_out(r: Breeder, systems: Systems) -> list[Array]:
    found, _, place = r.one_entry(systems)
    found[4][place] ^= True
    return found


CHANGES = (
    scale_an_entry, clear_an_entry, small_integer, another_sign, nudge, scale_a_row, scale_a_column,
    another_right_side, right_side_of_zeros, nearly_zero_pivot, copy_an_entry, turn_a_row_out,
)  # fmt: skip
