"""Loops that do nothing but read and write words: as fast as the memory of the machine delivers them."""

from __future__ import annotations

import os

import numba
import numpy as np

from tridiag.benchmarking.libraries import array, called
from tridiag.benchmarking.race import Contestant
from tridiag.calls.singular import to_host
from tridiag.kernels.jobs.systems import threads


@numba.njit(parallel=True)
def copy(x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = x[i]


@numba.njit(parallel=True)
def add(a, x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = a[i] + x[i]


@numba.njit(parallel=True)
def add_four(a, b, c, d, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        out[i] = a[i] + b[i] + c[i] + d[i]


@numba.njit(parallel=True)
def add_rows(A, x, out):  # type: ignore[no-untyped-def]
    for i in numba.prange(out.size):
        total = x[i]
        for entry in A[i]:
            total += entry
        out[i] = total


def stream(reads: int, writes: int, dtype: str) -> Contestant:
    """So many words read and written, with as many threads as `tridiag` takes, or as many as Numba has.

    A loop of that mixture where there is one, else a copy of as many words.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else its threads spin on into the next contestant
    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))
    inputs, size = mixture(reads, writes)
    loop = LOOPS[inputs]
    arrays, out = [np.ones(size, dtype) for _ in range(inputs)], np.full(size, np.nan, dtype)
    return Contestant(lambda: loop(*arrays, out), lambda _: float((out != inputs).any()), 0)


def mixture(reads: int, writes: int) -> tuple[int, int]:
    """How many arrays a stream of so many words reads to write one, and their size."""
    inputs = reads // writes if writes and reads % writes == 0 else 1
    inputs = inputs if inputs in LOOPS else 1
    return inputs, max(1, (reads + writes) // (inputs + 1))


LOOPS = {1: copy, 2: add, 4: add_four}  # by the words that are read for each that is written


def device_stream(library: str, words: int, dtype: str, device: str | None) -> Contestant:
    """A copy of as many words on a device, by its library."""
    source = array(library, np.ones(max(1, words // 2), dtype), device)
    return Contestant(called(library, lambda x: x + 1, [source]), lambda y: float((to_host(y) != 2).any()), 0)
