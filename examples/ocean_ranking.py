"""One day's system on every backend usable here: checked first, then timed in turns against a stream of its words."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numba
import numpy as np
from rich.progress import Progress

import tridiag

ROUNDS = 7  # each backend once a round, in turns
PATIENCE = 1.0  # s: a backend that has used them up sits out the rounds left
TOLERANCE = 1e-11  # of |x - reference| / |reference|, the largest of each column: cond(A) reaches 1e4


@dataclass
class Row:
    name: str
    pivoting: str | bool
    call: Callable[[], object]
    error: float = 0.0
    on_cpu: bool = True
    times: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        return float(np.median(self.times))

    @property
    def agrees(self) -> bool:
        return self.error <= TOLERANCE


@numba.njit(nogil=True)
def _stream(a, b, c, d, where, x, first, last):  # reads 3 words, 1 byte and 2 words of d, writes 2
    for i in range(first, last):
        x[0, i] = d[0, i] + a[i] + c[i]
        x[1, i] = d[1, i] + b[i] + where[i]


def threads() -> int:
    """The cores granted to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stream(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, where: np.ndarray) -> Row:
    """The floor: a kernel that moves what a solve must move, on as many threads as there are cores."""
    pool, edges = ThreadPoolExecutor(threads()), np.linspace(0, a.size, threads() + 1).astype(int)
    flat = (a.reshape(-1), b.reshape(-1), c.reshape(-1), d.reshape(2, -1), where.reshape(-1), np.zeros((2, a.size)))
    return Row("stream", "", lambda: list(pool.map(lambda lo, hi: _stream(*flat, lo, hi), edges[:-1], edges[1:])))


def to_library(library: str, arrays: tuple[np.ndarray, ...]) -> tuple[list, Callable[[object], object], bool]:
    """The arrays in that library; how to wait for a result; whether that is on the CPU."""
    if library == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        return [jax.numpy.asarray(v) for v in arrays], jax.block_until_ready, jax.default_backend() == "cpu"
    if library in ("torch", "triton"):
        import torch

        gpu = library == "triton"
        moved = [torch.from_numpy(v).to("cuda" if gpu else "cpu") for v in arrays]
        return moved, lambda x: torch.cuda.synchronize() if gpu else None, not gpu
    if library == "cupy":
        import cupy

        return [cupy.asarray(v) for v in arrays], lambda x: cupy.cuda.get_current_stream().synchronize(), False
    return list(arrays), lambda x: None, True


def to_numpy(x: object) -> np.ndarray:
    x = x.cpu() if hasattr(x, "cpu") else x  # torch
    return x.get() if hasattr(x, "get") else np.asarray(x)  # CuPy; all others


def column_error(x: np.ndarray, reference: np.ndarray) -> float:
    """The worst column's |x - reference| / |reference|, maximum norms; NaN counts as infinite."""
    scale = np.abs(reference).max(-1)
    error = np.abs(x - reference).max(-1) / np.where(scale > 0, scale, 1)
    return float(np.nan_to_num(error, nan=np.inf).max())


def candidate(name: str, problem: tuple[np.ndarray, ...], moved: dict) -> Row | str:
    """The backend's row, or the sentence that says why it does not run; pivoting is given up only where it must be."""
    library = tridiag.backends()[name].arrays[0]
    if library not in moved:
        moved[library] = to_library(library, problem)
    (a, b, c, d, where), wait, on_cpu = moved[library]
    for pivoting in ("auto", False):
        why_not = tridiag.explain("solve", a, b, c, d, where=where, pivoting=pivoting).others.get(name)
        if why_not is None:
            options = {"where": where, "pivoting": pivoting, "backend": name}
            if library == "numpy":
                options["out"] = np.zeros_like(d)  # pages that exist: fresh ones would cost more than the solve
            return Row(name, pivoting, partial(call, wait, (a, b, c, d), options), on_cpu=on_cpu)
    return why_not


def call(wait: Callable[[object], object], arrays: tuple, options: dict) -> object:
    x = tridiag.solve(*arrays, **options)
    wait(x)
    return x


def rank_backends(problem: tuple[np.ndarray, ...], progress: Progress) -> tuple[list[Row], dict[str, str]]:
    """Rows, the stream first and then the fastest first, and the sentence of each backend that does not run."""
    moved: dict = {}
    refused = {entry.name: entry.why_not for entry in tridiag.backends() if not entry.usable}
    found = {entry.name: candidate(entry.name, problem, moved) for entry in tridiag.backends() if entry.usable}
    refused |= {name: row for name, row in found.items() if isinstance(row, str)}
    rows = [row for row in found.values() if isinstance(row, Row)]
    check(rows, progress)
    return time_in_turns([stream(*problem), *(row for row in rows if row.agrees)], rows, progress), refused


def check(rows: list[Row], progress: Progress) -> None:
    """Fill in the errors; LAPACK is the reference where SciPy is there, else the first backend of the table."""
    rows.sort(key=lambda row: row.name != "scipy_gtsv")
    reference = None
    for row in progress.track(rows, description="checking the backends"):
        x = to_numpy(row.call())
        reference = x.copy() if reference is None else reference
        row.error = column_error(x, reference)


def time_in_turns(runners: list[Row], rows: list[Row], progress: Progress) -> list[Row]:
    runners[0].call()  # compiles
    for _ in progress.track(range(ROUNDS), description="timing them in turns"):
        for row in runners:
            if sum(row.times) < PATIENCE:
                start = time.perf_counter()
                row.call()
                row.times.append(time.perf_counter() - start)
    wrong = [row for row in rows if not row.agrees]
    return [runners[0], *sorted(runners[1:], key=lambda row: row.time), *wrong]
