"""What kernels take on a GPU, the host left out: a program's launches, over a copy on the device of the same bytes.

    python benchmarks/gpu_kernels.py [--json FILE]
    python benchmarks/gpu_kernels.py --host
    python benchmarks/gpu_kernels.py --others [--json FILE]
    python benchmarks/gpu_kernels.py --pairs [--json FILE]
    python benchmarks/gpu_kernels.py --matrices [--json FILE]
    python benchmarks/gpu_kernels.py --series [--json FILE]
    python benchmarks/gpu_kernels.py --hard [--json FILE]

A call is made once, for what it launches and where; these launches are then timed by events, several times in a row.
The copy moves as many bytes as the call has to: five words for each unknown of a solve, three for each value of a
linear recurrence, two of logcumsumexp. A solution is judged before it is timed. The least of three batches counts: the
device is nobody else's. What a user waits for, with the host, is in ``gpu.py``. Needs CuPy.

With ``--host``: the microseconds that a call of few small systems or sequences takes the host, in CuPy and, if they
have a device, PyTorch and JAX, which the device hardly keeps waiting; and those of its launches and of its memory
alone, or of a jitted sum. The rest is what Python and the choices cost. On the stand-in for CuPy nothing is launched.

With ``--pairs``: alignments, over copies of one word for each cell, or two with the gradient.

With ``--matrices``: determinants, the status of factors, and block tridiagonal systems, over copies of what they read
and write.

With ``--series``: Kalman filters, smoothers, log-likelihoods and the gradients of these, of series that share a model,
over copies of what they read and write.

With ``--hard``: long systems that need pivots, in chunks and by a thread each, over the copy of a solve.

With ``--others``: whole calls of the backends that launch by other means, Numba's and Triton's, over the same copies,
by the clock of the host: of problems large enough to keep the device busy for longer than the host takes.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from gpu_contestants import (
    ACCURATE,
    JOINED,
    REHEARSAL,
    UNREFINED,
    Problem,
    error_of_recurrence,
    error_of_sums,
)
from gpu_more import (
    GAPS,
    BlockProblem,
    HardProblem,
    PairProblem,
    SeriesProblem,
    error_of_determinants,
    error_of_gradients,
    error_of_pairs,
    error_of_series,
    function_of,
    parameters_of,
)

import tridiag
from tridiag.backends import BACKENDS, KALMAN, installed
from tridiag.benchmarking.conditions import conditions
from tridiag.calls import fast_path
from tridiag.cuda import launcher, record, solvers
from tridiag.problems.forms import Blocks, Form
from tridiag.problems.state_space import PARAMETERS, Model, StateSpace

BATCHES, CALLS = 3, 6
SYSTEMS = (
    *((100_000, 100), (1_000_000, 32), (131_072, 256), (16_384, 256), (16_384, 1024), (131_072, 1024)),
    *((16_384, 4096), (2048, 256)),
)
SEQUENCES = (
    *((100_000, 100), (1000, 10_000), (4, 10_000_000), (1, 40_000_000), (64, 100_000), (10_000, 1000)),
    (1_000_000, 32),
)
HARD = (1, 4096), (1, 65_536), (1, 1_000_000), (1, 10_000_000), (100, 4096), (1000, 4096)
SECONDS = 1_000_000  # rows for which one thread takes half of one; longer systems are not left to it
LONGER = (1_000_000, 200), (1000, 200_000), (4, 50_000_000)
OTHERS = {  # backends, by the library of their arrays, and problems
    "solve": (
        {"numba_cuda_thomas": "cupy", "cupy_thomas": "cupy", "triton_thomas": "torch"},
        ((1_000_000, 100), (3_000_000, 32), (400_000, 256)),
    ),
    "linear_recurrence": (SCANS := {"numba_cuda_scan": "cupy", "triton_scan": "torch"}, LONGER),
    "logcumsumexp": (SCANS, LONGER),
}
PAIRS = (100_000, 100, 100), (10_000, 300, 300), (1000, 500, 500), (8, 3000, 3000)  # pairs, rows, columns
ALIGNED = {"score": 0, "with its gradient": 1}  # derivatives; as many words are moved for each cell, and one more
DETERMINANTS = ((100_000, 100), (1_000_000, 32), (16_384, 1024), (100, 10_000))
# systems, block rows, rows of a block, right sides
BLOCKS = ((100_000, 100, 2, 1), (50_000, 50, 4, 1), (20_000, 25, 8, 1), (200, 1000, 4, 1), (20_000, 50, 4, 16))
# series, steps, states
SERIES = (
    *((100_000, 100, 1), (100_000, 100, 2), (100_000, 100, 3), (100_000, 100, 4), (20_000, 100, 8)),
    *((2000, 1000, 2), (2000, 1000, 4)),
)
WORDS = {"solve": 5, "linear_recurrence": 3, "logcumsumexp": 2}
SMALL, HOST_BATCHES, HOST_CALLS = (64, 100), 20, 100
TINY = 12  # the longest axis of a rehearsal


def launches(call: Callable[[], Any], results: int = 0) -> list[Callable[[], None]]:
    """What a call launches, ready to be launched again on the same arrays; ``results``: those behind scratch memory."""
    kept: list[Any] = []
    run = launcher.run

    def remember(program: record.Program, pointers: Any) -> None:
        kept.append((program, list(pointers)))
        run(program, pointers)

    launcher.run = remember
    try:
        returned = call()
    finally:
        launcher.run = run
    device, stream = cupy.cuda.device.get_device_id(), cupy.cuda.get_current_stream().ptr
    found = []
    for program, pointers in kept:
        scratch = cupy.empty(max(1, program.scratch), np.uint8)  # that of the call belongs to others by now
        pointers[len(pointers) - 1 - results] = scratch.data.ptr
        placed = record.Placed(program)
        placed.place(pointers)
        for k, step in enumerate(program.steps):
            if isinstance(step, record.Clear):
                place = int(placed.words[k, 0])
                found.append(lambda place=place, size=step.size: cupy.cuda.runtime.memsetAsync(place, 0, size, stream))
            else:
                function, grid, block, shared = launcher.launch_of(step, device)
                found.append(functools.partial(function, grid, block, (placed.jobs[k],), shared_mem=shared))
        found.append(functools.partial(id, (scratch, returned)))  # which live as long as they do
    return found


def seconds(calls: list[Callable[[], None]]) -> float:
    for call in calls:
        call()
    best = float("inf")
    for _ in range(BATCHES):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(CALLS):
            for call in calls:
                call()
        last.record()
        last.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(first, last) / 1e3 / CALLS)
    return best


def microseconds(call: Callable[[], Any], wait: Callable[[], Any] | None = None) -> float:
    """Of the host, the least of some batches; ``wait``: for the device, where its stream is not CuPy's."""
    best = float("inf")
    for _ in range(HOST_BATCHES):
        (wait or cupy.cuda.get_current_stream().synchronize)()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / HOST_CALLS)
    return best * 1e6


def of_host() -> None:
    """Print what calls take the host."""
    if REHEARSAL:
        launcher.function = lambda kernel, device: lambda *arguments, **options: None  # type: ignore[assignment]
        launcher.resident = lambda *arguments: 1  # type: ignore[assignment]
    problem = Problem(SMALL)
    libraries: dict[str, Any] = {"cupy": ((*problem.given, problem.out), cupy.empty_like)}
    if installed("torch") and (torch := importlib.import_module("torch")).cuda.is_available():
        libraries["torch"] = tuple(map(torch.from_dlpack, libraries["cupy"][0])), torch.empty_like
    for library, ((*system, out), empty_like) in libraries.items():
        a, _, _, d = system
        calls = {
            "solve": functools.partial(tridiag.solve, *system, backend="cupy_pcr"),
            "linear_recurrence": functools.partial(tridiag.linear_recurrence, a, d, backend="cupy_scan"),
            "logcumsumexp": functools.partial(tridiag.logcumsumexp, d, backend="cupy_scan"),
        }
        memory = microseconds(lambda out=out, empty_like=empty_like: empty_like(out))
        for verb, call in calls.items():
            again, given = launches(call), functools.partial(call, out=out)
            found = {
                "out=": microseconds(given),
                "without": microseconds(call),
                "launches": microseconds(lambda again=again: [launch() for launch in again]),
                "an array": memory,
            }
            tell_host(library, verb, found)
    if installed("jax") and (REHEARSAL or any(d.platform == "gpu" for d in importlib.import_module("jax").devices())):
        of_host_in_jax(problem)


def of_host_in_jax(problem: Problem) -> None:
    """Jitted calls, and a jitted program that adds up what it is given."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    a, b, c, d = (jax.device_put(x.get(), device) for x in problem.given)
    named = {} if REHEARSAL else {"backend": "cupy_pcr"}, {} if REHEARSAL else {"backend": "cupy_scan"}
    calls = {
        "solve": (functools.partial(tridiag.solve, **named[0]), (a, b, c, d)),
        "linear_recurrence": (functools.partial(tridiag.linear_recurrence, **named[1]), (a, d)),
        "logcumsumexp": (functools.partial(tridiag.logcumsumexp, **named[1]), (d,)),
    }
    for verb, (function, given) in calls.items():
        program, least = jax.jit(function), jax.jit(lambda *arrays: sum(arrays))
        found = {}
        for told, compiled in {"jitted": program, "a sum": least}.items():
            compiled(*given).block_until_ready()
            found[told] = microseconds(
                functools.partial(compiled, *given),
                lambda compiled=compiled, given=given: jax.block_until_ready(compiled(*given)),
            )
        tell_host("jax", verb, found)


def tell_host(library: str, verb: str, found: dict[str, float]) -> None:
    told = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    print(f"{library} {verb}, us of the host: {told}", flush=True)


def copy(words: int, problem: Problem) -> float:
    """Of so many words for each number, read and written together."""
    given = cupy.empty(words * problem.unknowns * np.dtype(problem.dtype).itemsize // 2, np.uint8)
    to = cupy.empty_like(given)
    return seconds([lambda: cupy.copyto(to, given)])


def problem_of(count: int, n: int, axis: int, dtype: str) -> Problem:
    count, n = (min(count, TINY), min(n, TINY)) if REHEARSAL else (count, n)
    return Problem((count, n) if axis else (n, count), axis, dtype)


def ratios(shape: tuple[int, int], axis: int, dtype: str, verbs: tuple[str, ...]) -> dict[str, float]:
    problem, found = problem_of(*shape, axis, dtype), {}
    for name in verbs:
        verb, _, promise = name.partition(", ")
        options = {"pivoting": "auto" if promise == "auto" else False, "backend": "cupy_pcr"} if promise else {}
        call = call_of(verb, problem.given, problem.out, axis=axis, **options)
        again = judged(verb, problem, functools.partial(launches, call))
        found[name] = 1.0 if REHEARSAL else seconds(again) / copy(WORDS[verb], problem)
    return found


def of_others(lines: list[dict[str, Any]]) -> None:
    """Whole calls of other backends: a line for each problem."""
    for verb, (backends, shapes) in OTHERS.items():
        for dtype in ("float64", "float32"):
            for shape in shapes:
                for axis in (-1, 0):
                    problem, found = problem_of(*shape, axis, dtype), {}
                    floor = 1.0 if REHEARSAL else copy(WORDS[verb], problem)
                    for backend, library in backends.items():
                        if (reason := BACKENDS[backend].missing()) is None:
                            found[backend] = 1.0 if REHEARSAL else whole(verb, backend, library, problem) / floor
                        else:
                            print(f"{backend}: {reason}")
                    tell(lines, dtype, shape, axis, {f"{verb}, {backend}": ratio for backend, ratio in found.items()})


def whole(verb: str, backend: str, library: str, problem: Problem) -> float:
    """Seconds of a call, whose answer is judged first."""
    given, out = problem.given, problem.out
    if library == "torch":
        torch = importlib.import_module("torch")
        given, out = tuple(map(torch.from_dlpack, given)), torch.from_dlpack(out)
    options = {"pivoting": False} if verb == "solve" else {}
    call = call_of(verb, given, out, axis=problem.axis, backend=backend, **options)
    judged(verb, problem, call)
    best = float("inf")
    for _ in range(BATCHES):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        cupy.cuda.Device().synchronize()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def call_of(verb: str, given: Any, out: Any, **options: Any) -> Callable[[], Any]:
    """A call of a verb on the arrays of a problem: all four, a and d, or d."""
    arguments = given if verb == "solve" else given[::3] if verb == "linear_recurrence" else given[3:]
    return functools.partial(getattr(tridiag, verb), *arguments, out=out, **options)


def judged(verb: str, problem: Problem, run: Callable[[], Any]) -> Any:
    """What a function returns that writes the result of a problem; stop where that is wrong, or nothing is written."""
    problem.out[...] = np.nan
    returned = run()
    if verb == "linear_recurrence":
        error, bound = error_of_recurrence(problem, problem.out), JOINED
    elif verb == "logcumsumexp":
        error, bound = error_of_sums(problem, problem.out), ACCURATE
    else:
        error, bound = problem.error(problem.out), UNREFINED
    accept(error, bound, f"{verb} of {problem.shape}, axis {problem.axis}, {problem.dtype}")
    return returned


def accept(error: float, bound: float, told: str) -> None:
    """Stop where an answer is wrong."""
    if not error <= bound:
        raise SystemExit(f"{told}: wrong by {error:.3g} eps")


def tell(lines: list[dict[str, Any]], dtype: str, shape: tuple[int, int], axis: int, found: dict[str, float]) -> None:
    """Of a problem, at once."""
    lines.append({"dtype": dtype, "count": shape[0], "n": shape[1], "axis": axis, "ratios": found})
    told = ", ".join(f"{verb}: {ratio:.2f}" for verb, ratio in found.items())
    print(f"{dtype} {shape[0]} x {shape[1]}, axis {axis}: {told}", flush=True)
    cupy.get_default_memory_pool().free_all_blocks()


def of_kernels(lines: list[dict[str, Any]]) -> None:
    """The launches of our own kernels: a line for each problem."""
    for shapes, verbs in (
        (SYSTEMS, ("solve, pivoting=False", "solve, auto")),
        (SEQUENCES, ("linear_recurrence", "logcumsumexp")),
    ):
        for dtype in ("float64", "float32"):
            for shape in shapes:
                for axis in (-1, 0):
                    tell(lines, dtype, shape, axis, ratios(shape, axis, dtype, verbs))


def of_pairs(lines: list[dict[str, Any]]) -> None:
    """Alignments by ``cupy_wavefront``, over copies of what they read and write: a line for each problem."""
    for dtype in ("float64", "float32"):
        for shape in PAIRS:
            small = tuple(min(k, TINY) for k in shape) if REHEARSAL else shape
            (scores,) = PairProblem(small, -1, dtype).given
            cases = itertools.product(GAPS, ALIGNED.items())
            found = {f"{told}, {gaps} gaps": aligned(scores, gaps, k) for gaps, (told, k) in cases}
            tell(lines, dtype, shape[:2], -1, found)


def aligned(scores: Any, gaps: str, derivatives: int) -> float:
    """The time of a call, whose answers of two pairs are judged first, over that of the copy."""
    module, given, results = BACKENDS["cupy_wavefront"].module(), parameters_of(scores, gaps), []

    def call() -> None:
        results[:] = module.smith_waterman(scores, None, given, derivatives)

    again = launches(call)
    accept(error_of_pairs(scores, gaps, results), UNREFINED, f"alignments of {scores.shape}, {scores.dtype}")
    if REHEARSAL:
        return 1.0
    to = cupy.empty_like(scores)
    return seconds(again) / seconds([lambda: cupy.copyto(to, scores)]) * 2 / (1 + derivatives)


def of_matrices(lines: list[dict[str, Any]]) -> None:
    """Determinants, the status of factors, block tridiagonal systems: a line for each problem."""
    for dtype in ("float64", "float32"):
        for shape in DETERMINANTS:
            for axis in (-1, 0):
                tell(lines, dtype, shape, axis, eliminated(problem_of(*shape, axis, dtype)))
        for count, n, rows, sides in BLOCKS:
            count, n = (min(count, TINY), min(n, TINY)) if REHEARSAL else (count, n)
            problem = BlockProblem((count, n), -1, dtype, rows)
            tell(lines, dtype, (count, n), -1, {f"blocks of {rows}, {sides} sides": of_blocks(problem, sides)})


def eliminated(problem: Problem) -> dict[str, float]:
    """The times of determinants and of the status of factors, over that of a copy of three words."""
    *matrix, _ = problem.given
    module, form = BACKENDS["cupy_pcr"].module(), Form(problem.shape, problem.shape, problem.axis % 2)
    calls = {"slogdet": module.slogdet, "factor": module.factor}
    found: dict[str, float] = {}
    for verb, function in calls.items():
        results: list[Any] = []

        def call(function: Any = function, results: list[Any] = results) -> Any:
            results[:] = function((*matrix, None), form)
            return tuple(results)

        again = launches(call, results=3)
        error = error_of_determinants(problem, results) if verb == "slogdet" else float(abs(results[0]).max())
        accept(error, UNREFINED if verb == "slogdet" else 0, f"{verb} of {problem.shape}, {problem.dtype}")
        found[verb] = 1.0 if REHEARSAL else seconds(again) / copy(3, problem)
    return found


def of_blocks(problem: BlockProblem, sides: int) -> float:
    """The time of block tridiagonal systems with so many right sides, over that of a copy of what is moved."""
    *matrix, d = problem.given
    form = Blocks((*problem.shape, problem.rows, sides))
    right, results = cupy.stack([d] * sides, -1), []

    def call() -> None:
        results[:] = [BACKENDS["cupy_thomas"].module().solve_block(tuple(matrix), right, form)]

    again = launches(call)
    worst = max(problem.error(results[0][..., k]) for k in range(sides))
    accept(worst, UNREFINED, f"solve_block of {form.shape}, {problem.dtype}")
    return 1.0 if REHEARSAL else seconds(again) / copy(3 * problem.rows + 2 * sides, problem)


def of_series(lines: list[dict[str, Any]]) -> None:
    """Kalman filters by ``cupy_scan``, and the gradient of log-likelihoods: a line for each problem."""
    for dtype in ("float64", "float32"):
        for count, n, states in SERIES:
            count, n = (min(count, TINY), min(n, TINY)) if REHEARSAL else (count, n)
            problem = SeriesProblem((count, n), -1, dtype, states)
            found = {verb: filtered(problem, verb) for verb in KALMAN} | {"gradient": derived(problem)}
            tell(lines, dtype, (count, n), -1, {f"{verb}, {states} states": ratio for verb, ratio in found.items()})


def filtered(problem: SeriesProblem, verb: str) -> float:
    """The time of a filter, a smoother or a log-likelihood, judged first, over that of the copy."""
    y, *model = problem.given
    given = dict(zip(PARAMETERS, model, strict=True))
    results: list[Any] = []

    def call() -> None:
        results[:] = [function_of(verb)(y, **given, backend="cupy_scan")]

    again = launches(call)
    error = error_of_series(problem, verb, results[0])
    accept(error, UNREFINED, f"{verb} of {problem.shape}, {problem.states} states, {problem.dtype}")
    return 1.0 if REHEARSAL else seconds(again) / copy(problem.words(verb), problem)


def derived(problem: SeriesProblem) -> float:
    """The time of the derivatives in y and in the model of each series, over a copy of y."""
    (y, F, H, Q, R, m0, P0), (count, n) = problem.given, problem.shape
    model = Model(*(x[None, None] for x in (F, H, Q, R)), m0[None], P0[None])
    form = StateSpace(n, 1, problem.states, (count,), (count,), None, True)
    results: list[Any] = []

    def call() -> None:
        results[:] = BACKENDS["cupy_scan"].module().kalman_gradient(y, model, form, True)

    again = launches(call)
    accept(error_of_gradients(problem, results[0]), 1, f"gradient of {problem.shape}, {problem.dtype}")
    return 1.0 if REHEARSAL else seconds(again) / copy(2, problem)


def of_hard(lines: list[dict[str, Any]]) -> None:
    """Long systems that are pivoted, in chunks and by a thread each: a line for each problem."""
    for dtype in ("float64", "float32"):
        for shape in HARD:
            small = tuple(min(k, TINY) for k in shape) if REHEARSAL else shape
            problem = HardProblem(small, -1, dtype)
            found = {"in chunks": pivoted(problem, solvers.LONG)}
            if shape[1] <= SECONDS:
                found["a thread each"] = pivoted(problem, 2 * SECONDS)
            tell(lines, dtype, shape, -1, found)


def pivoted(problem: Problem, rows: int) -> float:
    """The time of a solution over that of the copy, where systems of so many rows or more are pivoted in chunks."""
    usual, solvers.LONG = solvers.LONG, rows
    try:
        solvers.solution.cache_clear()
        fast_path.forget()
        call = call_of("solve", problem.given, problem.out, axis=problem.axis, backend="cupy_pcr")
        again = judged("solve", problem, functools.partial(launches, call))
        return 1.0 if REHEARSAL else seconds(again) / copy(WORDS["solve"], problem)
    finally:
        solvers.LONG = usual


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument("--host", action="store_true", help="what calls take the host instead")
    parser.add_argument("--others", action="store_true", help="whole calls of Numba's and Triton's backends instead")
    parser.add_argument("--pairs", action="store_true", help="alignments instead")
    parser.add_argument("--matrices", action="store_true", help="determinants, factors and block systems instead")
    parser.add_argument("--series", action="store_true", help="Kalman filters, smoothers and gradients instead")
    parser.add_argument("--hard", action="store_true", help="long systems that need pivots instead")
    options = parser.parse_args(arguments)
    if options.host:
        of_host()
        return 0
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.get_device_id())["name"].decode()
    lines: list[dict[str, Any]] = []
    if options.others:
        of_others(lines)
    elif options.pairs:
        of_pairs(lines)
    elif options.matrices:
        of_matrices(lines)
    elif options.series:
        of_series(lines)
    elif options.hard:
        of_hard(lines)
    else:
        of_kernels(lines)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        kept = conditions() | {"device": name, "lines": lines}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
