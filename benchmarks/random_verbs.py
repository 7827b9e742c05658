"""The problems of `random_shapes.py`: for each verb what draws one, with all contestants and a judge."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else the loops' threads spin on into the next contestant

import numba
import numpy as np
from plain_loops import LOOPS, factors, nothing, streams

import tridiag
from tridiag.benchmarking.errors import backward_errors, relative_error
from tridiag.kernels.jobs.systems import threads

EMPTY, STREAM, PARALLEL_STREAM = "an empty call", "a stream", "a parallel stream"
FLOORS = EMPTY, STREAM, PARALLEL_STREAM
SMALLEST, LARGEST = 20, 3e6  # values
MOST_STATES = 1, 16  # of a sequence of selective scans
WAYS = 7  # in which arrays lie
views = False  # whether operands and results of these verbs are views
OF_VIEWS = (
    "solve", "solve, where=mask", "factor(...).solve", "slogdet", "matmul", "solve_block", "linear_recurrence",
    "linear_recurrence, axis=0", "linear_recurrence(1.0, x)", "matrix_recurrence", "logcumsumexp",
    "log_linear_recurrence",
)  # fmt: skip
ACCURATE, PLAUSIBLE = 16.0, 1e5  # eps: of residuals; of values of recurrences that remember hundreds of steps

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


@dataclass(frozen=True)
class Problem:
    """Those of the contestants that are `FLOORS` compute nothing, or add up what is read; they do not compete."""

    told: str
    shape: tuple[int, ...]
    dtype: str
    contestants: dict[str, Callable[[], Any]]
    error: Callable[[Any], float]
    limit: float

    def __str__(self) -> str:
        return f"{self.told} {self.shape} {self.dtype}"


VERBS: dict[str, Callable[[Rng], Problem]] = {}
IN_JIT: dict[str, Callable[[Rng], Problem]] = {}


def verb(name: str, table: dict[str, Any] = VERBS) -> Callable[[Any], Any]:
    """Enter what draws problems of a verb under a name."""

    def enter(draw: Callable[[Rng, str], Problem]) -> Any:
        table[name] = functools.partial(draw, told=name)
        return draw

    return enter


def drawn(rng: Rng, last: tuple[int, int] | None = None, power: int = 2) -> tuple[tuple[int, ...], str]:
    """Two lengths, by their logarithms, and a dtype; ``last``: from where to where a third one goes, m of m**power."""
    m = int(rng.integers(last[0], last[1] + 1)) if last else 1
    size = np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST))) / m**power
    first = round(np.exp(rng.uniform(0, np.log(max(size, 2)))))
    shape = first, max(2, round(size / first))
    if rng.random() < 0.5 and first > 1:
        shape = shape[::-1]
    return (*shape, *((m,) if last else ())), str(rng.choice(["float32", "float64"]))


def plain(name: str, *arrays: Any, out: Any) -> dict[str, Callable[[], Any]]:
    """Both ways of a loop, which writes to ``out``; and those of one that adds up its operands."""
    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))

    results = out if isinstance(out, tuple) else (out,)
    serial, parallel = LOOPS[name]
    count = len(arrays) + (len(out) if isinstance(out, tuple) else 1)
    loops = {"loop": serial, "parallel loop": parallel, EMPTY: nothing(count)}
    calls = {told: written(function, *arrays, *results, returned=out) for told, function in loops.items()}
    return calls if views or isinstance(out, tuple) else calls | sums(arrays, np.empty_like(out))


def sums(arrays: Sequence[Any], out: Any) -> dict[str, Callable[[], Any]]:
    """Loops that add up the arrays of a result's shape, and those with more entries, on one thread and on several."""
    added = [x for x in arrays if np.shape(x) == out.shape]
    larger = [x for x in arrays if np.size(x) > out.size]
    if not added and not larger:
        return {}
    found = streams(len(added), len(larger))
    flat = [np.ravel(x) for x in (*added, *larger, out)]
    return {told: written(f, *flat) for told, f in zip((STREAM, PARALLEL_STREAM), found, strict=True)}


def in_double(name: str, *arrays: Any, shape: tuple[int, ...]) -> Array:
    """The result of a loop in float64."""
    found = np.empty(shape)
    LOOPS[name][0](*(x.astype(float) for x in arrays), found)
    return found


def laid(rng: Rng, *arrays: Array) -> tuple[Array, ...]:
    """The arrays, or the same entries that lie in one of seven ways each, or all in one."""
    if not views:
        return arrays
    way = rng.integers(WAYS) if rng.random() < 0.4 else None
    return tuple(laid_out(x, int(rng.integers(WAYS) if way is None else way)) for x in arrays)


def empty_like(rng: Rng, x: Array) -> tuple[Array, Array]:
    """Room for two results that lie alike."""
    way = int(rng.integers(WAYS)) if views else 0
    return laid_out(np.empty(x.shape, x.dtype), way), laid_out(np.empty(x.shape, x.dtype), way)


def laid_out(x: Array, way: int) -> Array:
    """Contiguous, as of Fortran, every other entry or row, a part of longer rows, or backwards along either axis."""
    (rows, columns), rest = x.shape[:2], x.shape[2:]
    if way == 0:
        return np.ascontiguousarray(x)
    view: Array = (
        np.empty(x.shape, x.dtype, order="F"),
        np.empty((rows, 2 * columns, *rest), x.dtype)[:, ::2],
        np.empty((2 * rows, columns, *rest), x.dtype)[::2],
        np.empty((rows, columns + 3, *rest), x.dtype)[:, 1:-2],
        np.empty(x.shape, x.dtype)[:, ::-1],
        np.empty(x.shape, x.dtype)[::-1],
    )[way - 1]
    view[...] = x
    return view


def dominant(rng: Rng, shape: tuple[int, ...], dtype: str) -> tuple[Array, ...]:
    a, c = rng.uniform(-1, 1, shape), rng.uniform(-1, 1, shape)
    b = abs(a) + abs(c) + rng.uniform(0.01, 1, shape)
    given = tuple(x.astype(dtype) for x in (a, b, c, rng.standard_normal(shape)))
    return laid(rng, *given) if len(shape) == 2 else given


def written(function: Any, *given: Any, returned: Any = None, **options: Any) -> Callable[[], Any]:
    """A call as one writes it in a program, with no tuple or dictionary of arguments to take apart.

    It returns what the function does, or another object.
    """
    names = [f"given{k}" for k in range(len(given))]
    arguments = ", ".join([*names, *(f"{name}=option_{name}" for name in options)])
    lines = [
        f"def make(function, returned, {', '.join([*names, *(f'option_{name}' for name in options)])}):",
        "    def call():",
        f"        return function({arguments})" if returned is None else f"        function({arguments})",
        *([] if returned is None else ["        return returned"]),
        "    return call",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    call: Callable[[], Any] = made["make"](function, returned, *given, *options.values())
    return call


def ours(call: Callable[..., Any], *given: Any, **options: Any) -> dict[str, Callable[[], Any]]:
    return {"tridiag": written(call, *given, **options)}


# ---------------------------------------------------------------------------------------------------- systems


@verb("solve")
def solve(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    axis = int(rng.integers(2))
    *_, d = given = dominant(rng, shape, dtype)
    own, other = empty_like(rng, d)
    calls = ours(tridiag.solve, *given, axis=axis, out=own)
    calls |= plain("solve_rows" if axis else "solve_columns", *given, out=other)
    return Problem(f"{told}, axis={axis},", shape, dtype, calls, lambda x: worst_residual(*given, x, axis), ACCURATE)


@verb("solve, where=mask")
def solve_masked(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    axis = int(rng.integers(2))
    a, b, c, d = given = dominant(rng, shape, dtype)
    keep = masks(rng, shape)
    own, other = empty_like(rng, d)
    calls = ours(tridiag.solve, *given, axis=axis, where=keep, out=own)
    calls |= plain("solve_masked_rows" if axis else "solve_masked_columns", *given, keep, out=other)
    before, behind = np.zeros_like(keep), np.zeros_like(keep)
    rows = tuple(np.moveaxis(x, axis, 0) for x in (keep, before, behind))
    rows[1][1:], rows[2][:-1] = rows[0][:-1], rows[0][1:]
    cut = a * (keep & before), np.where(keep, b, 1), c * (keep & behind), d * keep
    return Problem(f"{told}, axis={axis},", shape, dtype, calls, lambda x: worst_residual(*cut, x, axis), ACCURATE)


def masks(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Some rows of each system taken out, or the same of all, or whole systems, which lie in any way as views."""
    full = shape[0] if rng.random() < 0.8 else 1, shape[1] if rng.random() < 0.8 else 1
    keep = np.broadcast_to(rng.random(full) < rng.choice([0.5, 0.9, 0.99]), shape)
    return laid(rng, keep)[0]


@verb("solve, one matrix")
def solve_one_matrix(rng: Rng, told: str) -> Problem:
    from scipy.linalg import solve_banded

    shape, dtype = drawn(rng)
    a, b, c, _ = dominant(rng, shape[1:], dtype)
    d = rng.standard_normal(shape).astype(dtype)
    bands = np.stack((np.roll(c, 1), b, np.roll(a, -1)))
    calls = ours(tridiag.solve, a, b, c, d, out=np.empty_like(d))
    calls |= plain("solve_one_matrix", a, b, c, d, out=np.empty_like(d))
    calls["solve_banded"] = lambda: solve_banded((1, 1), bands, d.T).T
    return Problem(told, shape, dtype, calls, lambda x: worst_residual(a, b, c, d, x), 4 * ACCURATE)


@verb("factor(...).solve")
def solve_factored(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    a, b, c, d = given = dominant(rng, shape, dtype)
    own, other = empty_like(rng, d)
    calls = ours(tridiag.factor(a, b, c).solve, d, out=own)
    calls |= plain("solve_factored", a, *factors(a, b, c), d, out=other)
    return Problem(told, shape, dtype, calls, lambda x: worst_residual(*given, x), ACCURATE)


def worst_residual(a: Any, b: Any, c: Any, d: Any, x: Any, axis: int = -1) -> float:
    return float(backward_errors(a, b, c, d, np.asarray(x), axis).max())


@verb("slogdet")
def slogdet(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    a, b, c, _ = dominant(rng, shape, dtype)
    exact = np.empty(shape[0]), np.empty(shape[0])
    LOOPS["slogdet"][0](*(x.astype(float) for x in (a, b, c)), *exact)
    calls = ours(tridiag.slogdet, a, b, c)
    calls |= plain("slogdet", a, b, c, out=(np.empty(shape[0], dtype), np.empty(shape[0], dtype)))

    def error(found: Any) -> float:
        return relative_error(found[1], exact[1]) if (found[0] == exact[0]).all() else np.inf

    return Problem(told, shape, dtype, calls, error, PLAUSIBLE)


@verb("matmul")
def matmul(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    a, b, c, x = given = dominant(rng, shape, dtype)
    exact = in_double("matmul", *given, shape=shape)
    own, other = empty_like(rng, x)
    calls = ours(tridiag.matmul, a, b, c, x, out=own) | plain("matmul", a, b, c, x, out=other)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), ACCURATE)


@verb("solve_block")
def solve_block(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng, (2, 6))
    square = (*shape, shape[-1])
    A, C = (rng.uniform(-1, 1, square) for _ in range(2))
    B = rng.uniform(-1, 1, square) + 4 * shape[-1] * np.eye(shape[-1])
    given = laid(rng, *(x.astype(dtype) for x in (A, B, C, rng.standard_normal(shape))))
    exact = in_double("solve_blocks", *given, shape=shape)
    calls = ours(tridiag.solve_block, *given) | plain("solve_blocks", *given, out=np.empty(shape, dtype))
    return Problem(told, shape, dtype, calls, lambda x: relative_error(x, exact), 4 * ACCURATE)


# ---------------------------------------------------------------------------------------------------- recurrences


def sequences(rng: Rng, told: str, axis: int) -> Problem:
    shape, dtype = drawn(rng)
    a, x = laid(rng, rng.uniform(0.5, 1, shape).astype(dtype), rng.standard_normal(shape).astype(dtype))
    loop = "recurrence_columns" if axis == 0 else "recurrence_rows"
    exact, (own, other) = in_double(loop, a, x, shape=shape), empty_like(rng, x)
    calls = ours(tridiag.linear_recurrence, a, x, axis=axis, out=own) | plain(loop, a, x, out=other)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


verb("linear_recurrence")(functools.partial(sequences, axis=-1))
verb("linear_recurrence, axis=0")(functools.partial(sequences, axis=0))


@verb("linear_recurrence(1.0, x)")
def cumulative_sum(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    (x,) = laid(rng, rng.standard_normal(shape).astype(dtype))
    exact, (own, other) = np.cumsum(x.astype(float), -1), empty_like(rng, x)
    calls = ours(tridiag.linear_recurrence, 1.0, x, out=own) | plain("sums", x, out=other)
    calls["cumsum"] = lambda: np.cumsum(x, -1, out=other)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("order 2, constant")
def constant_of_order_2(rng: Rng, told: str) -> Problem:
    from scipy.signal import lfilter

    shape, dtype = drawn(rng)
    x = rng.standard_normal(shape).astype(dtype)
    a1, a2 = (np.dtype(dtype).type(v) for v in (1.2, -0.5))
    numerator, denominator = np.ones(1, dtype), np.array([1, -a1, -a2], dtype)
    exact = lfilter(numerator.astype(float), denominator.astype(float), x.astype(float))
    calls = ours(tridiag.linear_recurrence, (a1, a2), x, out=np.empty_like(x))
    calls |= plain("filter_of_order_2", a1, a2, x, out=np.empty_like(x))
    calls["lfilter"] = lambda: lfilter(numerator, denominator, x)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("matrix_recurrence")
def matrices(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng, (2, 6))
    A = (rng.uniform(-1, 1, (*shape, shape[-1])) / np.sqrt(shape[-1])).astype(dtype)
    A, x = laid(rng, A, rng.standard_normal(shape).astype(dtype))
    exact, (own, other) = in_double("matrix_recurrence", A, x, shape=shape), empty_like(rng, x)
    calls = ours(tridiag.matrix_recurrence, A, x, out=own) | plain("matrix_recurrence", A, x, out=other)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("selective_scan")
def selective_rows(rng: Rng, told: str) -> Problem:
    """Sequences in rows, which share what multiplies inputs and states."""
    (*shape, states), dtype = drawn(rng, MOST_STATES, 1)
    B, C = rng.standard_normal((2, shape[1], states)).astype(dtype)
    given = rng.uniform(0.5, 1, states).astype(dtype), rng.standard_normal(shape).astype(dtype), B, C
    return scans(told, "selective_rows", given, dtype)


@verb("selective_scan, steps")
def selective_layer(rng: Rng, told: str) -> Problem:
    """Channels side by side, steps with sizes: a layer of Mamba."""
    (n, channels, states), dtype = drawn(rng, MOST_STATES, 1)
    a = -np.arange(1.0, states + 1) * np.ones((channels, 1))
    B, C = rng.standard_normal((2, n, states))
    step = np.exp(rng.uniform(np.log(0.001), np.log(0.1), (n, channels)))
    given = tuple(v.astype(dtype) for v in (a, rng.standard_normal((n, channels)), B, C, step))
    return scans(told, "selective_layer", given, dtype)


def scans(told: str, loop: str, given: Any, dtype: str) -> Problem:
    a, x, B, C, *step = given
    exact, options = in_double(loop, *given, shape=x.shape), {}
    if step:
        options = {"axis": 0, "step": step[0]}
        B, C = B[:, None], C[:, None]
    calls = ours(tridiag.selective_scan, a, x, B, C, out=np.empty_like(x), **options)
    calls |= plain(loop, *given, out=np.empty_like(x))
    return Problem(told, (*x.shape, a.shape[-1]), dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("logcumsumexp")
def logarithms(rng: Rng, told: str) -> Problem:
    import torch

    shape, dtype = drawn(rng)
    axis = int(rng.integers(2))
    (x,) = laid(rng, rng.standard_normal(shape).astype(dtype))
    exact, (own, other) = np.log(np.cumsum(np.exp(x.astype(float)), axis)), empty_like(rng, x)
    torch.set_num_threads(threads())
    tensor, result = torch.from_numpy(np.ascontiguousarray(x)), torch.empty(shape, dtype=getattr(torch, dtype))
    loop = "logcumsumexp_rows" if axis else "logcumsumexp_columns"
    calls = ours(tridiag.logcumsumexp, x, axis=axis, out=own) | plain(loop, x, out=other)
    calls["torch"] = lambda: torch.logcumsumexp(tensor, axis, out=result)
    return Problem(f"{told}, axis={axis},", shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("log_linear_recurrence")
def log_recurrence(rng: Rng, told: str) -> Problem:
    shape, dtype = drawn(rng)
    log_a = (-rng.exponential(size=shape)).astype(dtype)
    log_a, x = laid(rng, log_a, rng.standard_normal(shape).astype(dtype))
    exact, (own, other) = in_double("log_recurrence_rows", log_a, x, shape=shape), empty_like(rng, x)
    calls = ours(tridiag.log_linear_recurrence, log_a, x, out=own)
    calls |= plain("log_recurrence_rows", log_a, x, out=other)
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


# ---------------------------------------------------------------------------------------------------- the others


@verb("smith_waterman")
def alignments(rng: Rng, told: str) -> Problem:
    pairs, n = drawn(rng)[0]
    rows, dtype = max(2, round(n**0.5)), str(rng.choice(["float32", "float64"]))
    shape = pairs, rows, max(2, n // rows)
    scores, exact = rng.standard_normal(shape).astype(dtype), np.empty(pairs)
    LOOPS["smith_waterman"][0](scores.astype(float), -1.0, exact)
    calls = ours(tridiag.smith_waterman, scores, gap=-1.0)
    calls |= plain("smith_waterman", scores, -1.0, out=np.empty(pairs, dtype))
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("kalman.log_likelihood")
def likelihoods(rng: Rng, told: str) -> Problem:
    series, steps = drawn(rng)[0]
    m = int(rng.integers(1, 5))
    series = max(1, series // m**2)
    noise = rng.normal(size=(m, m))
    model = {
        "F": 0.9 * np.linalg.qr(noise)[0], "H": rng.normal(size=(1, m)), "Q": noise @ noise.T / m,
        "R": np.full((1, 1), 0.5), "m0": np.zeros(m), "P0": 10 * np.eye(m),
    }  # fmt: skip
    y, exact = rng.normal(size=(series, steps, 1)), np.empty(series)
    LOOPS["log_likelihood"][0](y, *model.values(), exact)
    calls = ours(tridiag.kalman.log_likelihood, y, **model)
    calls |= plain("log_likelihood", y, *model.values(), out=np.empty(series))
    shape = series, steps, m
    return Problem(told, shape, "float64", calls, lambda found: relative_error(found, exact), 1e7)


# ---------------------------------------------------------------------------------------------------- inside jit


def jitted(function: Callable[..., Any], *arrays: Array) -> Callable[[], Any]:
    import jax

    jax.config.update("jax_enable_x64", True)
    given, compiled = [jax.numpy.asarray(x) for x in arrays], jax.jit(function)
    return lambda: compiled(*given).block_until_ready()


def floors_in_jit(*arrays: Array) -> dict[str, Callable[[], Any]]:
    """A program that takes these arguments and returns one number, and loops that add them up.

    What adds them up is compiled by Numba and called by Python: what XLA makes of a sum may take longer than the verb.
    """
    return {EMPTY: jitted(lambda *given: given[-1][0, 0], *arrays), **sums(arrays, np.empty_like(arrays[-1]))}


@verb("jit: solve", IN_JIT)
def jit_solve(rng: Rng, told: str) -> Problem:
    from jax import lax

    shape, dtype = drawn(rng)
    given = dominant(rng, shape, dtype)
    calls = {
        "tridiag": jitted(tridiag.solve, *given),
        "lax": jitted(lambda a, b, c, d: lax.linalg.tridiagonal_solve(a, b, c, d[..., None])[..., 0], *given),
        **floors_in_jit(*given),
    }
    return Problem(told, shape, dtype, calls, lambda x: worst_residual(*given, x), 1e6)


@verb("jit: linear_recurrence", IN_JIT)
def jit_recurrence(rng: Rng, told: str) -> Problem:
    from jax import lax

    shape, dtype = drawn(rng)
    axis = int(rng.integers(2))
    a, x = rng.uniform(0.5, 1, shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    exact = in_double("recurrence_columns" if axis == 0 else "recurrence_rows", a, x, shape=shape)

    def join(earlier: Any, later: Any) -> Any:
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    def scanned(a: Any, x: Any) -> Any:
        import jax.numpy as jnp

        rows = tuple(jnp.moveaxis(v, axis, 0) for v in (a, x))
        found = lax.scan(lambda y, row: (row[0] * y + row[1],) * 2, jnp.zeros_like(rows[1][0]), rows)[1]
        return jnp.moveaxis(found, 0, axis)

    calls = {
        "tridiag": jitted(lambda a, x: tridiag.linear_recurrence(a, x, axis=axis), a, x),
        "associative_scan": jitted(lambda a, x: lax.associative_scan(join, (a, x), axis=axis)[1], a, x),
        "scan": jitted(scanned, a, x),
        **floors_in_jit(a, x),
    }
    return Problem(f"{told}, axis={axis},", shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("jit: logcumsumexp", IN_JIT)
def jit_logarithms(rng: Rng, told: str) -> Problem:
    from jax import lax

    shape, dtype = drawn(rng)
    axis = int(rng.integers(2))
    x = rng.standard_normal(shape).astype(dtype)
    exact = np.log(np.cumsum(np.exp(x.astype(float)), axis))
    calls = {
        "tridiag": jitted(lambda x: tridiag.logcumsumexp(x, axis=axis), x),
        "cumlogsumexp": jitted(lambda x: lax.cumlogsumexp(x, axis), x),
        **floors_in_jit(x),
    }
    return Problem(f"{told}, axis={axis},", shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)


@verb("jit: matrix_recurrence", IN_JIT)
def jit_matrices(rng: Rng, told: str) -> Problem:
    import jax.numpy as jnp
    from jax import lax

    shape, dtype = drawn(rng, (2, 6))
    A = (rng.uniform(-1, 1, (*shape, shape[-1])) / np.sqrt(shape[-1])).astype(dtype)
    x = rng.standard_normal(shape).astype(dtype)
    exact = in_double("matrix_recurrence", A, x, shape=shape)

    def scanned(A: Any, x: Any) -> Any:
        def step(y: Any, row: Any) -> Any:
            y = jnp.einsum("sij,sj->si", row[0], y) + row[1]
            return y, y

        return lax.scan(step, 0 * x[:, 0], (A.swapaxes(0, 1), x.swapaxes(0, 1)))[1].swapaxes(0, 1)

    calls = {
        "tridiag": jitted(tridiag.matrix_recurrence, A, x),
        "scan": jitted(scanned, A, x),
        **floors_in_jit(A, x),
    }
    return Problem(told, shape, dtype, calls, lambda y: relative_error(y, exact), PLAUSIBLE)
