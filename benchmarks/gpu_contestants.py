"""The contestants of `gpu.py` by name, the systems that they solve on a GPU, and how they are timed there.

A rehearsal runs the same code on the stand-in for CuPy of the tests, by the clock of the host.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cupy
import numpy as np

import tridiag
from tridiag.backends import BACKENDS
from tridiag.benchmarking.race import Contestant, Timing

REHEARSAL = "standin" in cupy.__version__
ACCURATE = 16.0  # eps: the promise is 8; the residual, in double precision, may add some
UNREFINED = 1e3  # eps: the worst of many systems by elimination that nothing corrects
JOINED = 1024.0  # eps: what a value that joins two stretches of a sequence may be off, as products are trusted
PIECE = 1 << 24  # unknowns whose errors are computed at once
BLOCK = 1 << 20  # random numbers, over and over
SPARE = 12  # words for each unknown: five arrays, two buffers of a copy, and the scratch memory of a solve

MAKERS: dict[str, Callable[[Problem], Contestant]] = {}
BACKENDS_TIMED = ("cupy_pcr", "cupy_thomas", "numba_cuda_thomas", "cusparse_interleaved", "cusparse_strided")


@dataclass(frozen=True)
class Problem:
    """Diagonally dominant systems along an axis, as CuPy arrays that are made when first asked for."""

    shape: tuple[int, ...]
    axis: int = -1
    dtype: str = "float64"

    @property
    def unknowns(self) -> int:
        return int(np.prod(self.shape))

    @property
    def bytes_needed(self) -> int:
        return SPARE * self.unknowns * np.dtype(self.dtype).itemsize

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """a, b, c, d."""
        rng = np.random.default_rng(0)
        a, c, more, d = rng.uniform(-1, 1, (4, min(BLOCK, self.unknowns)))
        return tuple(self.filled(block) for block in (a, abs(a) + abs(c) + abs(more) + 0.01, c, d))

    def filled(self, block: np.ndarray[Any, Any]) -> Any:
        x, part = cupy.empty(self.unknowns, self.dtype), cupy.asarray(block.astype(self.dtype))
        for k in range(0, x.size, part.size):
            x[k : k + part.size] = part[: x.size - k]
        return x.reshape(self.shape)

    @cached_property
    def out(self) -> Any:
        return cupy.full(self.shape, np.nan, self.dtype)

    def error(self, x: Any) -> float:
        """The largest componentwise backward error in eps; residuals in double precision, on the device."""
        arrays = [cupy.moveaxis(v, self.axis, -1) for v in (*self.given, x)]
        arrays = [v if v.ndim > 1 else v.reshape(1, -1) for v in arrays]
        systems, n = arrays[0].shape
        step = max(1, PIECE // n)
        worst = [worst_of(*(v[k : k + step].astype("float64") for v in arrays)) for k in range(0, systems, step)]
        return float(max(worst, key=lambda error: (error != error, error))) / float(np.finfo(self.dtype).eps)


def worst_of(a: Any, b: Any, c: Any, d: Any, x: Any) -> float:
    a[:, 1:] *= x[:, :-1]
    c[:, :-1] *= x[:, 1:]
    a[:, 0] = c[:, -1] = 0
    b *= x
    scale = abs(a) + abs(b) + abs(c) + abs(d)
    return float((abs(d - a - b - c) / cupy.maximum(scale, np.finfo("float64").tiny)).max())


# ------------------------------------------------------------------------------------------------ clocks


class OnDevice(Contestant):
    """Timed by events of CuPy's stream, behind a kernel that spins until all calls are queued: the device's own time.

    What a call costs the host is the CPU time of the record.
    """

    def repeat(self) -> int:
        if REHEARSAL:
            return 1
        calls = 1
        while calls < MOST_CALLS and self.sample(calls).wall * calls < LONG_ENOUGH:
            calls *= 2
        return calls

    def sample(self, calls: int) -> Timing:
        if REHEARSAL:
            return super().sample(calls)
        for wait in WAITS:
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            cpu, begin = time.process_time(), time.perf_counter()
            spin()((1,), (1,), (np.int64(calls * wait * clock()),))
            first.record()
            for _ in range(calls):
                self.call()
            last.record()
            cpu, queued = time.process_time() - cpu, time.perf_counter() - begin
            last.synchronize()
            if queued < calls * wait:
                break
        return Timing(cupy.cuda.get_elapsed_time(first, last) / 1e3 / calls, cpu / calls)


MOST_CALLS = 64  # that are queued at once: a device has room for a thousand kernels
LONG_ENOUGH = 5e-3  # seconds of a batch
WAITS = (1e-4, 3e-4, 1e-3, 1e-2)  # seconds that the device spins for each call: until the host has queued them all


@functools.cache
def clock() -> float:
    """The most cycles of the device in a second."""
    return 1e3 * float(cupy.cuda.Device().attributes.get("ClockRate", 2e6))


SPIN = """
extern "C" __global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
}
"""


@functools.cache
def spin() -> Any:
    return cupy.RawKernel(SPIN, "spin")


@dataclass(frozen=True)
class ByHost(Contestant):
    """Timed by the host, which waits for the last of its calls: JAX and PyTorch have streams of their own."""

    wait: Callable[[Any], Any] = id

    def sample(self, calls: int) -> Timing:
        cpu, wall, result = time.process_time(), time.perf_counter(), None
        for _ in range(calls):
            result = self.call()
        self.wait(result)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Timing(wall / calls, cpu / calls)


# ------------------------------------------------------------------------------------------------ contestants


def contestant(name: str) -> Callable[[Any], Any]:
    """Enter what makes a contestant for a problem under a name."""

    def enter(make: Any) -> Any:
        MAKERS[name] = make
        return make

    return enter


def copy(problem: Problem, words: int) -> Contestant:
    """A copy on the device that moves so many words for each unknown, read and written together."""
    size = words * problem.unknowns * np.dtype(problem.dtype).itemsize // 2
    source, target = cupy.zeros(size, "uint8"), cupy.empty(size, "uint8")

    def call() -> Any:
        if REHEARSAL:
            target[...] = source
        else:
            target.data.copy_from_device_async(source.data, size)
        return target

    return OnDevice(call, lambda x: float(x.max()), 0)


MAKERS["copy"] = functools.partial(copy, words=5)
for _words in (2, 3, 9):
    MAKERS[f"copy of {_words} words"] = functools.partial(copy, words=_words)


def solved(problem: Problem, pivoting: Any, backend: str = "auto") -> Contestant:
    if backend != "auto" and (reason := BACKENDS[backend].missing()):
        raise ImportError(reason)
    call = functools.partial(
        tridiag.solve, *problem.given, axis=problem.axis, out=problem.out, pivoting=pivoting, backend=backend
    )
    limit = UNREFINED if pivoting is False else ACCURATE
    return OnDevice(call, problem.error, limit, out=problem.out)


MAKERS["solve"] = functools.partial(solved, pivoting="auto")
MAKERS["pivoting=False"] = functools.partial(solved, pivoting=False)
MAKERS["pivoting=True"] = functools.partial(solved, pivoting=True)
for _name in BACKENDS_TIMED:
    MAKERS[_name] = functools.partial(solved, pivoting=False, backend=_name)


@contestant("linear_recurrence")
def recurrence(problem: Problem) -> Contestant:
    a, _, _, x = problem.given
    call = functools.partial(tridiag.linear_recurrence, a, x, axis=problem.axis, out=problem.out)
    return OnDevice(call, functools.partial(error_of_recurrence, problem), JOINED, out=problem.out)


def error_of_recurrence(problem: Problem, y: Any) -> float:
    """The largest residual of a step in eps, of the sum of its terms."""
    found, first, right = (cupy.moveaxis(v, problem.axis, -1) for v in (y, problem.given[0], problem.given[3]))
    term = first[..., 1:] * found[..., :-1]
    residual = abs(found[..., 1:] - term - right[..., 1:]) / (abs(term) + abs(right[..., 1:]))
    return float(residual.max()) / float(np.finfo(problem.dtype).eps)


@contestant("logcumsumexp")
def sums(problem: Problem) -> Contestant:
    call = functools.partial(tridiag.logcumsumexp, problem.given[3], axis=problem.axis, out=problem.out)
    return OnDevice(call, functools.partial(error_of_sums, problem), ACCURATE, out=problem.out)


def error_of_sums(problem: Problem, y: Any) -> float:
    """How far the shares of a value are from 1, in eps of its size."""
    found, right = (cupy.moveaxis(v, problem.axis, -1) for v in (y, problem.given[3]))
    now = found[..., 1:]
    shares = cupy.exp(found[..., :-1] - now) + cupy.exp(right[..., 1:] - now)
    return float((abs(shares - 1) / (1 + abs(now))).max()) / float(np.finfo(problem.dtype).eps)


def in_jax(problem: Problem, function: Callable[..., Any], bound: float = UNREFINED) -> Contestant:
    """A function of a, b, c and d, compiled by JAX; its first result is the solution, others the four gradients."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if not REHEARSAL and jax.default_backend() != "gpu":
        raise ImportError("needs JAX with CUDA")
    arrays = [jax.numpy.asarray(x.get()) for x in problem.given]
    compiled = jax.jit(function)
    return ByHost(
        lambda: compiled(*arrays),
        lambda found: max(errors(problem, [cupy.asarray(np.asarray(x)) for x in jax.tree.leaves(found)])),
        bound,
        wait=jax.block_until_ready,
    )


def errors(problem: Problem, found: list[Any]) -> list[float]:
    """Of a solution, and of gradients where d was the cotangent: of the last as a solution, of others as products."""
    x, *gradients = found
    if not gradients:
        return [problem.error(x)]
    of_a, of_b, of_c, w = (cupy.moveaxis(v, problem.axis, -1) for v in gradients)
    a, b, c, d = problem.given
    below, above = (cupy.roll(v, step, problem.axis) for v, step in ((c, 1), (a, -1)))
    turned = replace(problem)
    turned.__dict__["given"] = below, b, above, d
    x, eps = cupy.moveaxis(x, problem.axis, -1), float(np.finfo(problem.dtype).eps)
    products = (of_b, w * x), (of_a[..., 1:], w[..., 1:] * x[..., :-1]), (of_c[..., :-1], w[..., :-1] * x[..., 1:])
    apart = [float((abs(found + product) / (abs(product) + eps)).max()) / eps for found, product in products]
    return [problem.error(found[0]), turned.error(gradients[3]), *apart]


@contestant("jax: solve")
def jax_solve(problem: Problem) -> Contestant:
    return in_jax(problem, functools.partial(tridiag.solve, axis=problem.axis), ACCURATE)


@contestant("jax_pallas")
def pallas_solve(problem: Problem) -> Contestant:
    if reason := BACKENDS["jax_pallas"].missing():
        raise ImportError(reason)
    if REHEARSAL or int(cupy.cuda.Device().compute_capability) < 90:
        raise ImportError("jax_pallas needs a GPU of the Hopper generation or newer")
    solve = functools.partial(tridiag.solve, axis=problem.axis, backend="jax_pallas", pivoting=False)
    return in_jax(problem, solve)


@contestant("jax: solve and gradient")
def jax_gradient(problem: Problem) -> Contestant:
    import jax

    def both(*given: Any) -> Any:
        x, pull = jax.vjp(functools.partial(tridiag.solve, axis=problem.axis), *given)
        return x, *pull(given[3])

    return in_jax(problem, both, ACCURATE)


@contestant("jax: lax.linalg.tridiagonal_solve")
def lax_solve(problem: Problem) -> Contestant:
    from jax import lax

    solve = along(problem, lambda a, b, c, d: lax.linalg.tridiagonal_solve(a, b, c, d[..., None])[..., 0])
    return in_jax(problem, solve)


@contestant("jax: lax.scan Thomas")
def scan_thomas(problem: Problem) -> Contestant:
    from textbook import thomas

    return in_jax(problem, along(problem, thomas))


def along(problem: Problem, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function for systems along the last axis, along that of the problem."""
    import jax.numpy as jnp

    def turned(*given: Any) -> Any:
        return jnp.moveaxis(function(*(jnp.moveaxis(x, problem.axis, -1) for x in given)), -1, problem.axis)

    return turned


def in_torch(problem: Problem, compiled: bool) -> Contestant:
    """The solution and its gradient in all four arguments, where d is the cotangent."""
    import torch

    if not REHEARSAL and not torch.cuda.is_available():
        raise ImportError("needs PyTorch with CUDA")
    device = "cpu" if REHEARSAL else "cuda"
    given = [torch.as_tensor(x.get(), device=device).requires_grad_() for x in problem.given]
    solve: Callable[..., Any] = functools.partial(tridiag.solve, axis=problem.axis)
    solve = (
        torch.compile(solve, fullgraph=True, backend="aot_eager" if REHEARSAL else "inductor") if compiled else solve
    )

    def call() -> Any:
        x = solve(*given)
        return x, *torch.autograd.grad(x, given, given[3].detach())

    return ByHost(
        call,
        lambda found: max(errors(problem, [cupy.asarray(x.detach().cpu().numpy()) for x in found])),
        ACCURATE,
        wait=lambda found: None if REHEARSAL else torch.cuda.synchronize(),
    )


MAKERS["torch: solve and gradient"] = functools.partial(in_torch, compiled=False)
MAKERS["torch: compiled solve and gradient"] = functools.partial(in_torch, compiled=True)


@contestant("triton_thomas")
def triton_solve(problem: Problem) -> Contestant:
    if reason := BACKENDS["triton_thomas"].missing():
        raise ImportError(reason)
    import torch

    if REHEARSAL or not torch.cuda.is_available():
        raise ImportError("needs PyTorch with CUDA")
    given = [torch.as_tensor(x.get(), device="cuda") for x in problem.given]
    options = {"axis": problem.axis, "backend": "triton_thomas", "pivoting": False}
    return ByHost(
        functools.partial(tridiag.solve, *given, out=torch.empty_like(given[3]), **options),
        lambda x: problem.error(cupy.asarray(x.cpu().numpy())),
        UNREFINED,
        wait=lambda found: torch.cuda.synchronize(),
    )
