"""Systems that are pivoted in chunks, and how they are solved on the CPU build (`pivoted_chunks.cu`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import planted
import pytest
from cupy import machine
from helpers import uniform

import tridiag
from tridiag.cuda import solvers

SEEDS = range(4)
# what chunks leave to one thread comes out as NaN
UNHEALED = {
    "pivoted.cu": planted.replacing("kept.at(i, Y) = kept.at(i, RIGHT);", "kept.at(i, Y) = not_a_number(T(0));")
}
KINDS = ("plain", "transposed", "masked", "shared", "periodic", "periodic transposed masked")


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Systems of four rows are long, and chunks have three rows or more."""
    patch.setattr(solvers, "LONG", 4)
    patch.setattr(solvers, "FEW", 10**9)
    patch.setattr(solvers, "CHUNK_ROWS", 3)
    planted.decide_anew()


def shortened(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """For the time of a test; then no mistake is planted, and threads are in their order."""
    shorten(patch)
    yield
    planted.uproot()
    machine.seed = 0
    patch.undo()
    planted.decide_anew()


def problem(kind: str, shape: tuple[int, int], dtype: str, axis: int = 1) -> tuple[list[np.ndarray], dict[str, Any]]:
    """a, b, c, d, and what they mean; ``shape`` is (systems, rows)."""
    rng, options = np.random.default_rng(shape), {"transpose": "transposed" in kind, "periodic": "periodic" in kind}
    a, b, c, d = uniform(shape, dtype, seed=shape[0] * shape[1])
    if kind == "shared":
        a, b, c = a[:1], b[:1], c[:1]
    arrays, where = [a, b, c, d], rng.random(shape) < 0.8
    if axis == 0:
        arrays, where = [np.ascontiguousarray(v.T) for v in arrays], np.ascontiguousarray(where.T)
    return arrays, options | {"axis": axis} | ({"where": where} if "masked" in kind else {})


def solve(arrays: Any, **options: Any) -> np.ndarray:
    if (where := options.get("where")) is not None:
        options["where"] = cupy.asarray(where)
    machine.launches.clear()
    x = tridiag.solve(*map(cupy.asarray, arrays), backend="cupy_pcr", **options).get()
    assert any(name.startswith("pivoted_chunks") for name, *_ in machine.launches)
    return x


def wave(n: int, dtype: str) -> list[np.ndarray]:
    """Couplings that do not decay: what one end knows of the other goes through all chunks."""
    one = np.ones((4, n), dtype)
    b = np.array([[0.5], [1.3], [1.9], [-0.7]]) * one
    return [one, b.astype(dtype), one, np.random.default_rng(n).normal(size=(4, n)).astype(dtype)]


def growing(n: int, dtype: str) -> list[np.ndarray]:
    """The entries in the outermost unknowns grow by a factor a row where pivots are chosen by their size alone."""
    one = np.ones((4, n), dtype)
    return [-one / 2, one, one, np.random.default_rng(n).normal(size=(4, n)).astype(dtype)]


def dependent(first: int, nearly: float = 1.0) -> list[np.ndarray]:
    """Of three systems the second has two rows, from ``first`` on, that depend on each other and on no others."""
    a, b, c, d = uniform((3, 65), seed=first)
    a[1, first] = c[1, first + 1] = 0
    b[1, first], c[1, first], a[1, first + 1], b[1, first + 1] = 0.1, 0.3, 0.7, 0.7 * 0.3 / 0.1 * nearly
    return [a, b, c, d]
