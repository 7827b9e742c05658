"""The contestants of `cpu.py` by name: `tridiag` in every way that it is called, and what it is measured against.

Those that take no ``out`` (all of JAX's, SciPy's) return fresh arrays; LAPACK keeps its inputs, as `tridiag` does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from cpu_problems import CERTIFIED, Problem

import tridiag
from tridiag.benchmarking.errors import Array, backward_errors, relative_error
from tridiag.benchmarking.past_caches import stream_past_caches
from tridiag.benchmarking.race import Contestant, Timing
from tridiag.benchmarking.streams import add_four, copy
from tridiag.kernels.jobs.systems import threads

ACCURATE = 16.0  # eps: the promise is 8, the residual in double precision may add some
PLAUSIBLE = 1e6  # eps: elimination without refinement, or without pivoting where it is due
STEPS = 10  # of the loop inside jit

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else the stream's threads spin on into the next contestant

MAKERS: dict[str, Callable[[Problem], Contestant]] = {}


def contestant(name: str) -> Callable[[Any], Any]:
    """Enter what makes a contestant for a problem under a name."""

    def enter(make: Any) -> Any:
        MAKERS[name] = make
        return make

    return enter


def worst(problem: Problem, periodic: bool = False) -> Callable[[Any], float]:
    """The backward error of the worst system."""
    return lambda x: problem.errors(x, periodic).max()


def without_pivoting(problem: Problem, call: Callable[..., Any], **more: Any) -> Contestant:
    """Plain elimination is exact enough in certified systems; in others it has to be plausible in half of them."""
    if problem.matrix in CERTIFIED:
        return Contestant(call, worst(problem), ACCURATE, **more)
    return Contestant(call, lambda x: np.median(problem.errors(x)), PLAUSIBLE, **more)


# Streams: as fast as the machine reads and writes the words of a problem.


@contestant("stream")
def stream(problem: Problem) -> Contestant:
    """Five words; as many threads as `tridiag` takes."""
    numba.set_num_threads(threads())
    arrays = [x.reshape(-1) for x in (*problem.host, problem.out)]
    return Contestant(lambda: add_four(*arrays), lambda _: relative_error(problem.out, sum(problem.host)), 4)


@contestant("stream past the caches")
def hard_stream(problem: Problem) -> Contestant:
    return stream_past_caches(*problem.host)


@contestant("stream of 2 words past the caches")
def hard_stream_of_two(problem: Problem) -> Contestant:
    return stream_past_caches(problem.host[3])


@contestant("stream of 2 words")
def stream_of_two(problem: Problem) -> Contestant:
    numba.set_num_threads(threads())
    d, out = problem.host[3].reshape(-1), problem.out.reshape(-1)
    return Contestant(lambda: copy(d, out), lambda _: relative_error(out, d), 0)


# NumPy arrays.


@contestant("a+b+c+d")
def summed(problem: Problem) -> Contestant:
    """What three calls of NumPy take; outputs are fresh."""
    a, b, c, d = problem.given
    return Contestant(lambda: a + b + c + d, lambda x: relative_error(x, sum(problem.host)), 4)


def solved(problem: Problem, **options: Any) -> Callable[[], Array]:
    return lambda: tridiag.solve(*problem.given, axis=problem.axis, out=problem.out, **options)


@contestant("solve")
def solve(problem: Problem) -> Contestant:
    """The default, pivoting="auto"."""
    return Contestant(solved(problem), worst(problem), ACCURATE, out=problem.out)


@contestant("solve, fresh output")
def solve_fresh(problem: Problem) -> Contestant:
    call = functools.partial(tridiag.solve, *problem.given, axis=problem.axis)
    return Contestant(call, worst(problem), ACCURATE)


@contestant("pivoting=False")
def plain(problem: Problem) -> Contestant:
    return without_pivoting(problem, solved(problem, pivoting=False), out=problem.out)


@contestant("pivoting=True")
def pivoted(problem: Problem) -> Contestant:
    limit = ACCURATE if problem.matrix in CERTIFIED else PLAUSIBLE
    return Contestant(solved(problem, pivoting=True), worst(problem), limit, out=problem.out)


@contestant("periodic")
def periodic(problem: Problem) -> Contestant:
    call, error = solved(problem, periodic=True), worst(problem, periodic=True)
    return Contestant(call, error, ACCURATE, out=problem.out)


@contestant("factor(...).solve")
def factored(problem: Problem) -> Contestant:
    *matrix, d = problem.given
    factors = tridiag.factor(*matrix, axis=problem.axis)
    return Contestant(lambda: factors.solve(d, out=problem.out), worst(problem), ACCURATE, out=problem.out)


@contestant("gtsv")
def gtsv(problem: Problem) -> Contestant:
    """LAPACK's, for one system."""
    from scipy.linalg import get_lapack_funcs

    a, b, c, d = problem.given
    (function,) = get_lapack_funcs(("gtsv",), (b,))
    return Contestant(lambda: function(a[1:], b, c[:-1], d)[3], worst(problem), PLAUSIBLE)


@contestant("gtsv, in place")
def gtsv_in_place(problem: Problem) -> Contestant:
    """The same on copies, made outside the clock, that it may destroy."""
    from scipy.linalg import get_lapack_funcs

    a, b, c, d = problem.given
    (function,) = get_lapack_funcs(("gtsv",), (b,))
    overwrite = {f"overwrite_{name}": True for name in ("dl", "d", "du", "b")}
    return Contestant(
        lambda *copies: function(*copies, **overwrite)[3],
        worst(problem),
        PLAUSIBLE,
        fresh=lambda: (a[1:].copy(), b.copy(), c[:-1].copy(), d.copy()),
    )


@contestant("scipy.linalg.solve_banded")
def solve_banded(problem: Problem) -> Contestant:
    """For one system."""
    from scipy.linalg import solve_banded

    a, b, c, d = problem.given
    bands = np.stack((np.roll(c, 1), b, np.roll(a, -1)))
    return Contestant(lambda: solve_banded((1, 1), bands, d), worst(problem), PLAUSIBLE)


@contextlib.contextmanager
def thread_limit(count: int) -> Iterator[None]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def with_threads(count: int, problem: Problem) -> Contestant:
    call = solved(problem)

    def limited() -> Array:
        with thread_limit(count):
            return call()

    return Contestant(limited, worst(problem), ACCURATE, out=problem.out)


MAKERS["1 thread"] = functools.partial(with_threads, 1)
MAKERS["2 threads"] = functools.partial(with_threads, 2)


# JAX arrays: everything is jitted.


def jitted(problem: Problem, function: Callable[..., Any]) -> Callable[[], Any]:
    import jax

    arrays, compiled = problem.given, jax.jit(function)
    return lambda: compiled(*arrays).block_until_ready()


@contestant("jit: solve")
def jit_solve(problem: Problem) -> Contestant:
    return Contestant(jitted(problem, functools.partial(tridiag.solve, axis=problem.axis)), worst(problem), ACCURATE)


@contestant("jit: a+b+c+d")
def jit_sum(problem: Problem) -> Contestant:
    call = jitted(problem, lambda a, b, c, d: a + b + c + d)
    return Contestant(call, lambda x: relative_error(x, sum(problem.host)), 4)


@contestant("jit: lax.linalg.tridiagonal_solve")
def jit_lax(problem: Problem) -> Contestant:
    from jax import lax

    call = jitted(problem, lambda a, b, c, d: lax.linalg.tridiagonal_solve(a, b, c, d[..., None])[..., 0])
    return Contestant(call, worst(problem), PLAUSIBLE)


@contestant("jit: lax.scan Thomas")
def jit_scan(problem: Problem) -> Contestant:
    """The textbook's, for systems along the last axis."""
    from textbook import thomas

    return without_pivoting(problem, jitted(problem, thomas))


def donated(problem: Problem, function: Callable[..., Any], **more: Any) -> Contestant:
    """A function of a, b, c, d to which d is donated, each time a new one."""
    import jax

    *matrix, d = problem.given
    compiled = jax.jit(function, donate_argnums=3)
    return Contestant(
        lambda d: compiled(*matrix, d).block_until_ready(), fresh=lambda: (d.copy().block_until_ready(),), **more
    )


def overwriting(problem: Problem) -> Callable[..., Any]:
    return functools.partial(tridiag.solve, axis=problem.axis, overwrite_d=True)


@contestant("jit: solve, d donated")
def jit_donated(problem: Problem) -> Contestant:
    return donated(problem, overwriting(problem), error=worst(problem), limit=ACCURATE)


@contestant("jit: a step of fori_loop")
def jit_loop(problem: Problem) -> Contestant:
    """The solution is the next right side. Judged by LAPACK, in some systems along the last axis."""
    from jax import lax

    step = overwriting(problem)

    def loop(a: Any, b: Any, c: Any, d: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, d: step(a, b, c, d), d)

    def error(x: Any) -> float:
        some = slice(None, None, max(1, len(x) // 100))
        return relative_error(np.asarray(x)[some], lapack_steps(*(array[some] for array in problem.host)))

    return donated(problem, loop, error=error, limit=STEPS * ACCURATE, steps=STEPS)


def lapack_steps(a: Array, b: Array, c: Array, d: Array) -> Array:
    from scipy.linalg import get_lapack_funcs

    (gtsv,) = get_lapack_funcs(("gtsv",), (b,))
    x = d.copy()
    for k in range(len(x)):
        for _ in range(STEPS):
            x[k] = gtsv(a[k, 1:], b[k], c[k, :-1], x[k])[3]
    return x


def with_gradients(problem: Problem, function: Callable[..., Any]) -> Callable[[], Any]:
    """A call of a function that returns a scalar and four arrays."""
    import jax

    arrays, compiled = problem.given, jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arrays))


@contestant("jit: value_and_grad")
def jit_gradient(problem: Problem) -> Contestant:
    """Of half the sum of squares of x, in a, b, c and d, along the last axis."""
    import jax

    def loss(*arrays: Any) -> Any:
        x = tridiag.solve(*arrays, axis=problem.axis)
        return 0.5 * (x * x).sum()

    def error(result: Any) -> float:
        """The adjoint w by its residual with the transpose; the value and the other gradients from x and w."""
        value, (of_a, of_b, of_c, w) = jax.tree.map(np.asarray, result)
        a, b, c, d = problem.host
        x = tridiag.solve(a, b, c, d)
        below, above = np.roll(x, 1, -1), np.roll(x, -1, -1)
        below[..., 0] = above[..., -1] = 0
        pairs = (value, 0.5 * (x * x).sum()), (of_a, -w * below), (of_b, -w * x), (of_c, -w * above)
        transposed = np.roll(c, 1, -1), b, np.roll(a, -1, -1)
        backward = [problem.errors(x).max(), backward_errors(*transposed, x, w, -1).max()]
        return max(*backward, *(relative_error(*pair) for pair in pairs))

    call = with_gradients(problem, jax.value_and_grad(loss, (0, 1, 2, 3)))
    return Contestant(call, error, 100 * ACCURATE)


@contestant("jit: a sum and four arrays")
def jit_four(problem: Problem) -> Contestant:
    """Elementwise: reads what `value_and_grad` reads, writes as many fresh arrays."""

    def four(a: Any, b: Any, c: Any, d: Any) -> Any:
        return d.sum(), (a + 1, b + 1, c + 1, d + 1)

    def error(result: Any) -> float:
        pairs = zip(result[1], problem.host, strict=True)
        total = abs(float(result[0]) - problem.host[3].sum()) / np.abs(problem.host[3]).sum()
        return max(total / np.finfo(problem.dtype).eps, *(relative_error(x, array + 1) for x, array in pairs))

    return Contestant(with_gradients(problem, four), error, 100)


# New processes.


class NewProcess(Contestant):
    """The first solve in a new process; the clock is the process's own."""

    def repeat(self) -> int:
        return 1

    def sample(self, calls: int) -> Timing:
        return self.call()["timing"]


@functools.cache
def kept_cache() -> tempfile.TemporaryDirectory[str]:
    """For kernels and bytecode; filled by the run for the gate, and removed when the benchmark ends."""
    return tempfile.TemporaryDirectory(prefix="tridiag-benchmark-")


def new_process(cold: bool, imports: bool, problem: Problem) -> Contestant:
    """With a cache of compiled kernels that is empty, or kept from run to run.

    The bytecode of all modules, which pip writes as it installs them, is there from the run for the gate on.
    """

    def run() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="tridiag-benchmark-") as empty:
            cache = empty if cold else kept_cache().name
            places = {"NUMBA_CACHE_DIR": cache, "XDG_CACHE_HOME": cache, "PYTHONPYCACHEPREFIX": kept_cache().name}
            there = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            program = [sys.executable, Path(__file__).with_name("first_solve.py")]
            done = subprocess.run(program, env=there | places, capture_output=True, text=True)
        if done.returncode:
            raise ChildProcessError(done.stderr.strip().rpartition("\n")[2])
        record = json.loads(done.stdout)
        parts = [record["solve"], record["imports"]] if imports else [record["solve"]]
        return record | {"timing": Timing(*map(sum, zip(*parts, strict=True)))}

    return NewProcess(run, lambda record: record["error"], ACCURATE)


MAKERS["first solve, warm cache"] = functools.partial(new_process, False, False)
MAKERS["import and first solve, warm cache"] = functools.partial(new_process, False, True)
MAKERS["first solve, cold cache"] = functools.partial(new_process, True, False)
