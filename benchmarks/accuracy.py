"""Backward and forward errors of every backend that keeps the promises "auto" and True, against LAPACK gtsv.

    python benchmarks/accuracy.py [--quick] [--backend NAME]... [--stand-in] [--output FILE]

Systems: see `CASES`. Right sides: normal, a unit vector, 24 decades. The backward error is componentwise (Oettli and
Prager), max |d - A x|_i / (|A||x| + |d|)_i, evaluated in long double; as in LAPACK's xGERFS, denominators that
rounding to subnormal numbers can reach are kept away from zero. The forward error is normwise, against elimination
with partial pivoting and refinement in long double. Bars, in eps of the dtype:

    "auto"   8 for each system of condition number up to 1e-3/eps; beyond, twice gtsv's in that system if it is more
    True     8, or twice gtsv's worst error in the case where that is more
    both     forward error at most 2 times gtsv's, in the geometric mean over a case; NaN in odd zero diagonals

A matrix of a condition number beyond 1/eps may be singular to one elimination and not to another, which round in
different orders: NaN is a right answer then. XLA's own operations flush subnormal numbers to zero: of backends written
in JAX systems of a condition number beyond 1e-3/eps are not judged where their solution comes within 1/eps of those.

Exits with 1 where a bar is missed. Needs SciPy; the full run takes some minutes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal, get_lapack_funcs

import tridiag
from tridiag.backends import BACKENDS, installed
from tridiag.benchmarking.conditions import conditions
from tridiag.calls.singular import to_host

DTYPES = ("float32", "float64", "complex64", "complex128")
PROMISES: tuple[Any, ...] = ("auto", True)
BAR, FORWARD_BAR, WELL_CONDITIONED = 8.0, 2.0, 1e-3
Array = np.ndarray[Any, Any]


class Random:
    """Numbers of a dtype; complex ones have both parts so distributed."""

    def __init__(self, seed: list[int], dtype: np.dtype[Any], size: tuple[int, int]) -> None:
        self.rng, self.dtype, self.size = np.random.default_rng(seed), dtype, size
        self.eps, self.tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)

    def real(self, low: float, high: float) -> Array:
        return self.rng.uniform(low, high, self.size)

    def uniform(self, low: float = -1, high: float = 1) -> Array:
        if self.dtype.kind == "c":
            return self.real(low, high) + 1j * self.real(low, high)
        return self.real(low, high)

    def sign(self) -> Array:
        x = self.uniform()
        return x / np.abs(x)

    def powers(self, decades: float) -> Array:
        return 10.0 ** self.real(-decades / 2, decades / 2)


def dominant(r: Random) -> Any:
    """Row-wise diagonally dominant, from strictly to just so."""
    a, c = r.uniform(), r.uniform()
    return a, r.sign() * (np.abs(a) + np.abs(c)) * (1 + r.real(0, 1) ** 8), c


def positive_definite(r: Random) -> Any:
    """L L^H of a bidiagonal L: not dominant."""
    diagonal, below = r.real(0.5, 1.5), r.uniform(-0.7, 0.7)
    c = np.zeros_like(below)
    c[:, :-1] = diagonal[:, :-1] * np.conj(below[:, 1:])
    b = diagonal**2 + np.abs(below) ** 2
    b[:, 0] = diagonal[:, 0] ** 2
    return lower(c), b.astype(c.dtype), c


def diffusion(r: Random) -> Any:
    """Symmetric positive definite: implicit diffusion with coefficients over 8 decades, and Poisson."""
    k = r.powers(8)
    k[::4] = 1
    c = np.zeros(r.size, r.dtype)
    c[:, :-1] = -k[:, 1:]
    b = np.ones(r.size)
    b[::4, 1:-1] = 0
    return lower(c), (b - np.real(lower(c)) - np.real(c)).astype(r.dtype), c


def uniform(r: Random) -> Any:
    return r.uniform(), r.uniform(), r.uniform()


def zero_diagonal(r: Random) -> Any:
    """Odd n: singular, every one."""
    return r.uniform(), 0 * r.uniform(), r.uniform()


def tiny_diagonal(r: Random) -> Any:
    """An odd n has condition 1e8 and more."""
    return r.uniform(), 1e-8 * r.sign(), r.uniform()


def scaled_rows(r: Random) -> Any:
    """uniform(-1, 1), every row times its own power of 10 over 12 decades: partial pivoting takes the wrong rows."""
    scale = r.powers(12)
    return scale * r.uniform(), scale * r.uniform(), scale * r.uniform()


def weak_couplings(r: Random) -> Any:
    """Couplings of 1e-50 (in single precision 1e-30, whose square is 0 too), in odd systems only every other one."""
    small = 1e-50 if r.tiny < 1e-50 else 1e-30
    a, b, c = r.uniform(), r.uniform(), r.uniform()
    weak = np.ones(r.size, bool)
    weak[1::2, ::2] = False
    return np.where(weak, small * a, a), b, np.where(weak, small * c, c)


def conditioned(r: Random, low: float = 0.0, high: float = WELL_CONDITIONED) -> Any:
    """Hermitian and indefinite, shifted until the condition number is between 10^low and high / eps."""
    c = r.uniform()
    c[:, -1] = 0
    b, (m, n) = r.real(-1, 1), r.size
    wanted = 10.0 ** r.rng.uniform(low, np.log10(high / r.eps), m)
    for k in range(m):
        at = int(r.rng.integers(n))
        (value,) = eigvalsh_tridiagonal(b[k], np.abs(c[k, :-1]), select="i", select_range=(at, at)) if n > 1 else b[k]
        b[k] -= value - 2 / wanted[k] * r.rng.choice((-1, 1))
    return lower(np.conj(c)), b.astype(c.dtype), c


def beyond(r: Random) -> Any:
    """Condition numbers from 1e-3/eps to 0.1/eps: as good as gtsv is enough."""
    return conditioned(r, np.log10(WELL_CONDITIONED / r.eps), 0.1)


def integers(r: Random) -> Any:
    """Small integers, many of them zeros: so solutions have exact zeros that depend on each other."""

    def some(share: float) -> Array:
        parts = [r.rng.integers(-9, 10, r.size) for _ in range(2 if r.dtype.kind == "c" else 1)]
        return np.where(r.rng.random(r.size) < share, parts[0] + 1j * parts[-1] if len(parts) > 1 else parts[0], 0.0)

    return some(0.9), some(0.6), some(0.9)


def lower(c: Array) -> Array:
    """c[i - 1] at i; the pad is 0."""
    a = np.roll(c, 1, axis=1)
    a[:, 0] = 0
    return a


CASES: dict[str, Callable[[Random], Any]] = {
    "dominant": dominant,
    "definite": positive_definite,
    "diffusion": diffusion,
    "uniform": uniform,
    "zero diag": zero_diagonal,
    "1e-8 diag": tiny_diagonal,
    "rows": scaled_rows,
    "1e-50": weak_couplings,
    "condition": conditioned,
    "beyond": beyond,
    "integers": integers,
}
SIZES = ((1, 50), (2, 100), (3, 100), (7, 100), (100, 1000), (101, 500), (10_000, 3))  # rows, systems of each case
MANY = {("uniform", 100): 20_000, ("integers", 7): 20_000}
QUICK = ((1, 8), (2, 8), (3, 8), (60, 40), (61, 40))


class Systems(NamedTuple):
    """Systems of one size and dtype, all cases together; what gtsv makes of them, and the truth in long double."""

    case: Array
    matrix: tuple[Array, Array, Array]  # (m, n)
    d: Array  # (3, m, n)
    condition: Array
    truth: Array
    singular: Array
    held: Array  # (3, m): regular, and the solution neither overflows nor is lost in long double
    backward: Array  # (3, m)
    forward: Array


@functools.cache
def make(n: int, systems: int, dtype_name: str) -> Systems:
    matrices, sides, names, dtype = [], [], [], np.dtype(dtype_name)
    for k, (name, case) in enumerate(CASES.items()):
        count = MANY.get((name, n), systems)
        random = Random([n, k, dtype.kind == "c"], dtype, (count, n))
        matrices.append(case(random))
        sides.append(right_sides(random))
        names += [name] * count
    a, b, c = (np.concatenate(band).astype(dtype) for band in zip(*matrices, strict=True))
    a[:, 0] = c[:, -1] = 0
    d = np.concatenate(sides, axis=1).astype(dtype)
    x, singular, condition = lapack(a, b, c, d)
    step = max(1, 500_000 // n)  # systems at a time: memory
    parts = [slice(at, at + step) for at in range(0, len(b), step)]
    truth = np.concatenate([long_solve(a[k], b[k], c[k], d[:, k]) for k in parts], axis=1)
    held = (np.abs(truth).max(-1) < np.finfo(dtype).max / 4) & ~singular
    errors = backward((a, b, c), x, d), forward(x, truth)
    return Systems(np.array(names), (a, b, c), d, condition, truth, singular, held, *errors)


def right_sides(r: Random) -> Array:
    m, n = r.size
    normal, unit = r.rng.standard_normal(r.size) * r.sign(), np.zeros(r.size)
    unit[np.arange(m), r.rng.integers(n, size=m)] = 1
    return np.stack((normal, unit, r.sign() * r.powers(24)))


def lapack(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array]:
    """x by gtsv of the dtype, where it met a zero pivot, the condition in the infinity norm (gtcon, in double)."""
    gtsv, (gttrf, gtcon) = get_lapack_funcs(("gtsv",), (b,))[0], get_lapack_funcs(("gttrf", "gtcon"), (b + 0j,))
    m, n = b.shape
    x, singular, condition = np.full_like(d, np.nan), np.zeros(m, bool), np.full(m, np.inf)
    if n == 1:
        with np.errstate(all="ignore"):
            singular = b[:, 0] == 0
            return np.where(singular[:, None], np.nan, d / b).astype(d.dtype), singular, np.where(singular, np.inf, 1.0)
    norm = (np.abs(a) + np.abs(b) + np.abs(c)).astype(float).max(1)
    for k in range(m):
        *_, y, info = gtsv(a[k, 1:], b[k], c[k, :-1], d[:, k].T)
        singular[k] = info > 0
        if info == 0:
            x[:, k] = y.T
            bands = [v.astype(complex) for v in (a[k, 1:], b[k], c[k, :-1])]
            if n == 2:
                condition[k] = np.linalg.cond(np.diag(bands[1]) + np.diag(bands[0], -1) + np.diag(bands[2], 1), np.inf)
                continue
            dl, dd, du, du2, pivots, info = gttrf(*bands)
            reciprocal = 0.0 if info else gtcon(dl, dd, du, du2, pivots, norm[k], norm="I")[0]
            condition[k] = 1 / reciprocal if reciprocal > 0 else np.inf
    return x, singular, condition


def long_solve(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Partial pivoting and two refinements in long double; a loop over rows, all systems at once."""
    kind = np.clongdouble if b.dtype.kind == "c" else np.longdouble
    a, b, c, d = (np.ascontiguousarray(np.moveaxis(v, -1, 0)).astype(kind) for v in (a, b, c, d))
    n = len(b)
    rows, swaps, multipliers = [], [], []
    with np.errstate(all="ignore"):
        p0, p1 = b[0], c[0]
        for i in range(1, n):
            swap = np.abs(a[i]) > np.abs(p0)
            q = np.where(swap, a[i], p0), np.where(swap, b[i], p1), np.where(swap, c[i], 0)
            o = np.where(swap, p0, a[i]), np.where(swap, p1, b[i]), np.where(swap, 0, c[i])
            factor = o[0] / q[0]
            p0, p1 = o[1] - factor * q[1], o[2] - factor * q[2]
            rows.append(q)
            swaps.append(swap)
            multipliers.append(factor)
        rows.append((p0, p1, np.zeros_like(p0)))

        def substitute(d: Array) -> Array:
            kept, carried = [], d[0]
            for i in range(1, n):
                q, o = np.where(swaps[i - 1], d[i], carried), np.where(swaps[i - 1], carried, d[i])
                kept.append(q)
                carried = o - multipliers[i - 1] * q
            x = np.zeros((n + 2, *carried.shape), carried.dtype)
            for i, q in zip(range(n - 1, -1, -1), [carried, *reversed(kept)], strict=True):
                q0, q1, q2 = rows[i]
                x[i] = (q - q1 * x[i + 1] - q2 * x[i + 2]) / q0
            return x[:n]

        x = substitute(d)
        for _ in range(2):
            r = d - b[:, None] * x
            r[1:] -= a[1:, None] * x[:-1]
            r[:-1] -= c[:-1, None] * x[1:]
            x = x + substitute(r)
    return np.moveaxis(x, 0, -1)


def backward(matrix: tuple[Array, ...], x: Array, d: Array) -> Array:
    """The componentwise backward error of every system, in eps, from residuals in long double."""
    info = np.finfo(d.dtype)
    eps, smallest = float(info.eps), 4 * np.longdouble(info.tiny) / info.eps
    kind = np.clongdouble if d.dtype.kind == "c" else np.longdouble

    def part(here: slice) -> Array:
        a, b, c = (v[here].astype(kind) for v in matrix)
        y, right = x[:, here].astype(kind), d[:, here].astype(kind)
        with np.errstate(all="ignore"):
            r, scale = right - b * y, np.abs(right) + np.abs(b) * np.abs(y)
            r[..., 1:] -= a[:, 1:] * y[..., :-1]
            r[..., :-1] -= c[:, :-1] * y[..., 1:]
            scale[..., 1:] += np.abs(a[:, 1:]) * np.abs(y[..., :-1])
            scale[..., :-1] += np.abs(c[:, :-1]) * np.abs(y[..., 1:])
            floor = smallest * np.maximum(1, np.abs(a) + np.abs(b) + np.abs(c))
            error = ((np.abs(r) / np.maximum(scale, floor)).max(-1) / eps).astype(float)
        return np.where(np.isfinite(error), error, np.inf)

    return in_parts(part, d.shape)


def in_parts(function: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
    """Some systems at a time, on all cores."""
    step = max(1, 100_000 // shape[-1])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(function, (slice(at, at + step) for at in range(0, shape[1], step)))
        return np.concatenate([np.zeros((shape[0], 0)), *parts], axis=1)


def forward(x: Array, truth: Array) -> Array:
    """The relative error of every system in the maximum norm, in eps."""
    eps = float(np.finfo(x.dtype).eps)

    def part(here: slice) -> Array:
        with np.errstate(all="ignore"):
            distance, size = np.abs(x[:, here] - truth[:, here]).max(-1), np.abs(truth[:, here]).max(-1)
            return (distance / size / eps).astype(float)

    return in_parts(part, x.shape)


def to_library(library: str, x: Array) -> Any:
    if library == "torch":
        import torch

        return torch.from_numpy(x).to(torch.get_default_device())
    if library == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(x)
    if library == "cupy":
        import cupy

        return cupy.asarray(x)
    return x


def use_stand_in() -> None:
    """Run CUDA C on the CPU, for arrays of the stand-in for CuPy: slow, and the same but for fused products."""
    folder = Path(__file__).parents[1] / "tests" / "gpu_offline"
    sys.path[:0] = [str(folder / "standin"), str(folder)]


def runners(names: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """Every backend that keeps the promise "auto" and runs here, with every array library that it takes.

    Those for GPUs with CuPy: the arrays of other libraries are made on the CPU.
    """
    for name, entry in BACKENDS.items():
        if (names and name not in names) or "auto" not in entry.pivoting:
            continue
        if entry.unusable():
            print(f"{name}: {entry.unusable()}", file=sys.stderr)
            continue
        there = [library for library in entry.arrays if installed(library)]
        yield from ((name, library) for library in there if library == "cupy" or "cpu" in entry.devices)


class Row(NamedTuple):
    """One case of one backend: the worst backward error in eps, the bar there, and gtsv's worst."""

    backend: str
    arrays: str
    dtype: str
    promise: str
    case: str
    systems: int
    backward: float
    bar: float
    gtsv: float
    forward: float  # ratio to gtsv, geometric mean
    passed: bool


def judge(parts: list[tuple[Systems, Array]], key: tuple[str, str, str], promise: Any) -> Iterator[Row]:
    """One row a case over all sizes."""
    limit = WELL_CONDITIONED / float(np.finfo(key[2]).eps)
    measured = [(s, backward(s.matrix, x, s.d), forward(x, s.truth), np.isnan(x).all(-1)) for s, x in parts]
    for case in CASES:
        errors, bars, reference, ratios, lost = [], [], [], [], False
        for systems, error, distance, dead in measured:
            here = (systems.case == case) & systems.held
            here = here & ~(dead & (systems.condition > 1 / float(np.finfo(key[2]).eps)))
            if key[0].startswith("jax"):
                here = here & ~(near_underflow(systems) & (systems.condition > limit))
            gtsv = systems.backward[here]
            bar = np.maximum(BAR, 2 * gtsv)
            if promise == "auto":
                bar = np.where(np.broadcast_to(systems.condition <= limit, here.shape)[here], BAR, bar)
            errors.append(error[here])
            bars.append(bar)
            reference.append(gtsv)
            ratios.append(np.log((distance[here] + 0.5) / (systems.forward[here] + 0.5)))
            lost |= case == "zero diag" and not dead[:, (systems.case == case) & systems.singular].all()
        error, bar, gtsv, ratio = map(np.concatenate, (errors, bars, reference, ratios))
        if promise is True:
            bar[:] = max(BAR, 2 * gtsv.max())
        worst, mean = int(np.argmax(error / bar)), float(np.exp(ratio.mean()))
        passed = not lost and bool((error <= bar).all()) and mean <= FORWARD_BAR
        figures = float(error[worst]), float(bar[worst]), float(gtsv.max()), mean
        yield Row(*key, str(promise), case, error.size, *figures, passed)


def near_underflow(systems: Systems) -> Array:
    """For each right side and system: whether a component that is not zero is below tiny / eps."""
    info, size = np.finfo(systems.d.dtype), np.abs(systems.truth)
    return np.where(size == 0, np.inf, size).min(-1) < float(info.tiny) / float(info.eps)


def measure(
    sizes: tuple[tuple[int, int], ...], pairs: list[tuple[str, str]], dtypes: tuple[str, ...] = DTYPES
) -> Iterator[Row]:
    for dtype in dtypes:
        systems = [make(n, count, dtype) for n, count in sizes]
        for backend, library in pairs:
            for promise in PROMISES:
                solved = []
                for s in systems:
                    arguments = [to_library(library, v) for v in (*s.matrix, s.d)]
                    x = tridiag.solve(*arguments, backend=backend, pivoting=promise, check=False)
                    solved.append((s, to_host(x)))
                yield from judge(solved, (backend, library, dtype), promise)
        if len(dtypes) > 1:
            make.cache_clear()


def show(rows: Iterator[Row]) -> list[Row]:
    """A line for a backend, dtype and promise, a column for a case: the backward error nearest to its bar, in eps."""
    head = f"{'backend':13} {'arrays':6} {'dtype':10} {'promise':7}" + "".join(f"{case:>11}" for case in CASES)
    print(f"{head}   forward / gtsv's, geometric mean\n{'-' * len(head)}")
    done: list[Row] = []
    line: list[Row] = []
    for row in rows:
        done.append(row)
        line.append(row)
        if row.case == list(CASES)[-1]:
            cells = "".join(f"{r.backward:10.3g}{' ' if r.passed else '!'}" for r in line)
            forwards = f"{min(r.forward for r in line):.2f} to {max(r.forward for r in line):.2f}"
            print(f"{row.backend:13} {row.arrays:6} {row.dtype:10} {row.promise:7}{cells}   {forwards}", flush=True)
            line = []
    return done


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small systems and few of them: seconds")
    parser.add_argument("--backend", action="append", help="only this one; may be repeated")
    parser.add_argument("--stand-in", action="store_true", help="GPU backends on the CPU; name them by --backend")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args(arguments)
    if options.stand_in:
        use_stand_in()
    start, pairs = time.perf_counter(), list(runners(options.backend))
    if idle := {*(options.backend or ())} - {name for name, _ in pairs}:
        able = sorted({name for name, _ in runners()})
        parser.error(f'{", ".join(sorted(idle))}: not a backend that promises "auto" and runs here; those: {able}')
    rows = show(measure(QUICK if options.quick else SIZES, pairs))
    missed = [row for row in rows if not row.passed]
    for row in missed:
        print(
            f"missed: {row.backend} on {row.arrays} {row.dtype}, {row.promise}, {row.case}: "
            f"{row.backward:.3g} eps, bar {row.bar:.3g}, forward {row.forward:.2f}"
        )
    seconds = time.perf_counter() - start
    print(
        f"{len(rows)} figures, {len(missed)} missed, {sum(r.systems for r in rows)} systems solved in {seconds:.0f} s"
    )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        record = conditions() | {"quick": options.quick, "seconds": round(seconds), "rows": [r._asdict() for r in rows]}
        options.output.write_text(json.dumps(record, indent=1) + "\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
