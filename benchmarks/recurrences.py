"""The speed of `tridiag`'s recurrences on the CPU: every figure that is promised, against its bar.

    python benchmarks/recurrences.py [--only NAME]... [--rounds N] [--json FILE]

`LINES` is the table, and how it is measured is as in `cpu.py`. A stream reads a and x and writes y. Coefficients are
uniform in (0.5, 1) unless a line says otherwise. The record of a whole run goes to
``benchmarks/results/recurrences/``, a file a processor.

Exits with 1 where a figure is short of its bar or an answer is wrong. Needs JAX and rich; takes a few minutes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
import numpy as np
from bars import at_most, faster, streams
from cpu_contestants import jitted, with_gradients
from lines import Line, run

import tridiag
from tridiag.benchmarking.errors import Array, relative_error
from tridiag.benchmarking.past_caches import stream_past_caches
from tridiag.benchmarking.race import Contestant
from tridiag.benchmarking.streams import add, add_rows
from tridiag.kernels.jobs.systems import threads

RESULTS = Path(__file__).parent / "results" / "recurrences"
ACCURATE = 1e3  # eps of the largest value: sequences of 1e7 steps that forget their past
MAKERS: dict[str, Callable[[Any], Contestant]] = {}


def decaying(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.5, 1, shape)


def lasting(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Sequences never forget their past."""
    return rng.choice([-1.0, 1.0], shape)


@dataclass(frozen=True)
class Problem:
    """Sequences of one shape along an axis; arrays are made when first asked for, and the same for all contestants."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float64"
    coefficients: Any = decaying
    library: str = "numpy"

    @cached_property
    def host(self) -> tuple[Array, Array]:
        """a and x."""
        rng = np.random.default_rng(0)
        a, x = self.coefficients(rng, self.shape), rng.standard_normal(self.shape)
        return a.astype(self.dtype), x.astype(self.dtype)

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """The same in the library of the problem."""
        return self.host if self.library == "numpy" else on_jax(self.host)

    @cached_property
    def out(self) -> Array:
        return np.full(self.shape, np.nan, self.dtype)

    @cached_property
    def wanted(self) -> Array:
        return in_order(*self.host, self.axis)

    def error(self, y: Any) -> float:
        return relative_error(y, self.wanted)


def on_jax(arrays: tuple[Array, ...]) -> tuple[Any, ...]:
    import jax

    jax.config.update("jax_enable_x64", True)
    return tuple(jax.block_until_ready(jax.numpy.array(x)) for x in arrays)


def in_order(a: Array, x: Array, axis: int) -> Array:
    """Step by step in float64."""
    y = np.moveaxis(x.astype(float), axis, -1).copy()
    accumulate(np.moveaxis(a.astype(float), axis, -1).reshape(-1, y.shape[-1]), y.reshape(-1, y.shape[-1]))
    return np.moveaxis(y, -1, axis)


@numba.njit
def accumulate(a, y):  # type: ignore[no-untyped-def]
    for k in range(y.shape[0]):
        for t in range(1, y.shape[1]):
            y[k, t] += a[k, t] * y[k, t - 1]


def contestant(name: str) -> Callable[[Any], Any]:
    """Enter what makes a contestant for a problem under a name."""

    def enter(make: Any) -> Any:
        MAKERS[name] = make
        return make

    return enter


@contestant("stream")
def stream(problem: Problem) -> Contestant:
    """Three words; as many threads as `tridiag` takes."""
    numba.set_num_threads(threads())
    arrays = [x.reshape(-1) for x in (*problem.host, problem.out)]
    return Contestant(lambda: add(*arrays), lambda _: relative_error(problem.out, sum(problem.host)), 4)


@contestant("stream past the caches")
def hard_stream(problem: Problem) -> Contestant:
    return stream_past_caches(*problem.host)


@contestant("linear_recurrence")
def recurrence(problem: Problem) -> Contestant:
    def call() -> Array:
        return tridiag.linear_recurrence(*problem.host, axis=problem.axis, out=problem.out)

    return Contestant(call, problem.error, ACCURATE, out=problem.out)


@contestant("linear_recurrence, reverse")
def reversed_recurrence(problem: Problem) -> Contestant:
    a, x = (np.flip(v, problem.axis).copy() for v in problem.host)

    def call() -> Array:
        return tridiag.linear_recurrence(a, x, axis=problem.axis, reverse=True, out=problem.out)

    return Contestant(call, lambda y: problem.error(np.flip(y, problem.axis)), ACCURATE, out=problem.out)


@contestant("jit: linear_recurrence")
def jit_recurrence(problem: Problem) -> Contestant:
    call = jitted(problem, lambda a, x: tridiag.linear_recurrence(a, x, axis=problem.axis))
    return Contestant(call, problem.error, ACCURATE)


@contestant("jit: lax.associative_scan")
def jit_associative(problem: Problem) -> Contestant:
    from jax import lax

    def join(earlier: Any, later: Any) -> Any:
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    call = jitted(problem, lambda a, x: lax.associative_scan(join, (a, x), axis=problem.axis)[1])
    return Contestant(call, problem.error, ACCURATE)


def scanned(problem: Problem, a: Any, x: Any) -> Any:
    """The recurrence as a step for `tridiag.scan`."""

    def step(y: Any, row: Any) -> Any:
        y = row[0] * y + row[1]
        return y, y

    return tridiag.scan(step, 0 * x.take(0, problem.axis), (a, x), axis=problem.axis)[1]


def half(problem: Problem) -> Problem:
    """Sequences half as long."""
    shape = list(problem.shape)
    shape[problem.axis] //= 2
    return replace(problem, shape=tuple(shape))


@contestant("jit: scan")
def jit_scan(problem: Problem) -> Contestant:
    return Contestant(jitted(problem, functools.partial(scanned, problem)), problem.error, ACCURATE)


@contestant("jit: scan, n / 2")
def jit_scan_half(problem: Problem) -> Contestant:
    return jit_scan(half(problem))


@contestant("jit: value_and_grad")
def jit_gradient(problem: Problem) -> Contestant:
    return gradient(problem, functools.partial(tridiag.linear_recurrence, axis=problem.axis))


@contestant("jit: value_and_grad of scan")
def jit_scan_gradient(problem: Problem) -> Contestant:
    return gradient(problem, functools.partial(scanned, problem))


@contestant("jit: value_and_grad of scan, n / 2")
def jit_scan_gradient_half(problem: Problem) -> Contestant:
    return jit_scan_gradient(half(problem))


def gradient(problem: Problem, recurrence: Callable[[Any, Any], Any]) -> Contestant:
    """Of half the sum of squares of y, in a and x."""
    import jax

    def loss(a: Any, x: Any) -> Any:
        y = recurrence(a, x)
        return 0.5 * (y * y).sum()

    def error(result: Any) -> float:
        value, (of_a, of_x) = jax.tree.map(np.asarray, result)
        (a, _), y, axis = problem.host, problem.wanted, problem.axis
        w = np.flip(in_order(np.roll(np.flip(a, axis), 1, axis), np.flip(y, axis), axis), axis)
        before = np.roll(y, 1, axis)
        np.moveaxis(before, axis, 0)[0] = 0
        pairs = (value, 0.5 * (y * y).sum()), (of_a, w * before), (of_x, w)
        return max(relative_error(*pair) for pair in pairs)

    return Contestant(with_gradients(problem, jax.value_and_grad(loss, (0, 1))), error, ACCURATE)


@contestant("jit: a sum and two arrays")
def jit_two(problem: Problem) -> Contestant:
    """Elementwise: reads what `value_and_grad` reads, writes as many fresh arrays."""

    def error(result: Any) -> float:
        pairs = [*zip(result[1], (array + 1 for array in problem.host), strict=True)]
        total = problem.host[1]
        eps = np.finfo(problem.dtype).eps
        off = abs(float(result[0]) - total.sum(dtype=float)) / np.abs(total).sum(dtype=float) / eps
        return max(off, *(relative_error(*pair) for pair in pairs))

    return Contestant(with_gradients(problem, lambda a, x: (x.sum(), (a + 1, x + 1))), error, 100)


@dataclass(frozen=True)
class Matrices:
    """Sequences of vectors (series, n, m) that neither grow nor vanish, a matrix for every step."""

    shape: tuple[int, ...]
    dtype: str = "float64"

    @cached_property
    def host(self) -> tuple[Array, Array]:
        rng, (*steps, m) = np.random.default_rng(0), self.shape
        A, x = rng.uniform(-1, 1, (*steps, m, m)) / np.sqrt(m), rng.standard_normal(self.shape)
        return A.astype(self.dtype), x.astype(self.dtype)

    @cached_property
    def given(self) -> tuple[Any, ...]:
        return on_jax(self.host)

    @cached_property
    def out(self) -> Array:
        return np.full(self.shape, np.nan, self.dtype)

    @cached_property
    def wanted(self) -> Array:
        (A, x), y = (v.astype(float) for v in self.host), np.zeros(self.shape)
        for t in range(self.shape[1]):
            y[:, t] = x[:, t] + (np.einsum("sij,sj->si", A[:, t], y[:, t - 1]) if t else 0)
        return y

    def error(self, y: Any) -> float:
        return relative_error(y, self.wanted)


@contestant("stream of A, x and y")
def matrix_stream(problem: Matrices) -> Contestant:
    numba.set_num_threads(threads())
    (A, x), m = problem.host, problem.shape[-1]
    arrays = A.reshape(-1, m), x.reshape(-1), problem.out.reshape(-1)
    return Contestant(lambda: add_rows(*arrays), lambda _: relative_error(problem.out, A.sum(-1) + x), 100)


@contestant("stream of A, x and y past the caches")
def hard_matrix_stream(problem: Matrices) -> Contestant:
    A, x = problem.host
    return stream_past_caches(*A.reshape(problem.shape[-1], -1), x)


@contestant("matrix_recurrence")
def matrix_recurrence(problem: Matrices) -> Contestant:
    call = functools.partial(tridiag.matrix_recurrence, *problem.host, out=problem.out)
    return Contestant(call, problem.error, ACCURATE, out=problem.out)


@contestant("jit: matrix_recurrence")
def jit_matrix_recurrence(problem: Matrices) -> Contestant:
    return Contestant(jitted(problem, tridiag.matrix_recurrence), problem.error, ACCURATE)


@contestant("jit: lax.scan")
def jit_matrix_scan(problem: Matrices) -> Contestant:
    """As one writes it, over all series at once."""
    import jax
    from jax import numpy as jnp

    def scanned(A: Any, x: Any) -> Any:
        def step(y: Any, row: Any) -> Any:
            y = jnp.einsum("sij,sj->si", row[0], y) + row[1]
            return y, y

        return jax.lax.scan(step, 0 * x[:, 0], (A.swapaxes(0, 1), x.swapaxes(0, 1)))[1].swapaxes(0, 1)

    return Contestant(jitted(problem, scanned), problem.error, ACCURATE)


LAYOUTS = {"short-rows": ((100_000, 100), -1), "rows": ((1000, 10_000), -1), "columns": ((10_000, 1000), 0)}
DTYPES = ("float64", "float32")
LONG = ((10_000_000,), 0)
STREAMS, TURNED = streams(1.2, "linear_recurrence"), at_most(None, "linear_recurrence, reverse", "stream")
LONG_STREAMS = streams(1.35, "linear_recurrence")
ASSOCIATIVE = faster(25, "linear_recurrence", "jit: lax.associative_scan")
ASSOCIATIVE_JIT = faster(None, "jit: linear_recurrence", "jit: lax.associative_scan")
GRADIENT = at_most(1.5, "jit: value_and_grad", "jit: a sum and two arrays")
SCANS = (
    at_most(3, "jit: value_and_grad of scan", "jit: scan"),
    at_most(2.3, "jit: scan", "jit: scan, n / 2"),
    at_most(2.3, "jit: value_and_grad of scan", "jit: value_and_grad of scan, n / 2"),
)


MATRICES = (
    *streams(None, "matrix_recurrence", stream="stream of A, x and y"),
    faster(None, "jit: matrix_recurrence", "jit: lax.scan"),
)


def told(layout: Any, dtype: str) -> str:
    shape, axis = layout
    return f"{shape}, axis={axis}, {dtype}".replace(",)", ")")


LINES = [
    *(
        Line(f"{name}-{dtype}", told(layout, dtype), Problem(*layout, dtype), (*STREAMS, TURNED))
        for name, layout in LAYOUTS.items()
        for dtype in DTYPES
    ),
    *(Line(f"long-{t}", told(LONG, t), Problem(*LONG, t), (*LONG_STREAMS, TURNED)) for t in DTYPES),
    *(
        Line(f"long-lasting-{t}", f"the same, a = -1 or 1, {t}", Problem(*LONG, t, lasting), LONG_STREAMS)
        for t in DTYPES
    ),
    *(
        Line(f"associative-{t}", told(LONG, t), Problem(*LONG, t, library="jax"), (ASSOCIATIVE, ASSOCIATIVE_JIT))
        for t in DTYPES
    ),
    *(
        Line(f"gradient-{name}", told(layout, "float64"), Problem(*layout, library="jax"), (GRADIENT,))
        for name, layout in {**LAYOUTS, "long": LONG}.items()
    ),
    *(
        Line(f"scan-{n}", f"scan, (100, {n}), axis=-1", Problem((100, n), library="jax"), SCANS)
        for n in (1250, 2500, 5000, 10_000)
    ),
    *(
        Line(f"matrices-{m}", f"matrix_recurrence, (1000, 500, {m})", Matrices((1000, 500, m)), MATRICES)
        for m in (3, 4, 8)
    ),
]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
