"""Smooth local alignment by dynamic programming over rows of cells, a pair of sequences in each lane, threaded.

The kernels are in `tridiag.kernels.alignment.kernel`: about 35 operations of vectors a cell for the score, 70 with its
gradient, where scores and gaps are moderate; else twice as many, and every cell is a mantissa with an exponent, so that
no temperature and no length is out of range in float64; in float32 scores above 2**29 / (L1 + L2) temperatures count as
NaN.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.backends.numba_thomas import view
from tridiag.kernels.jobs.systems import LINE, threads
from tridiag.kernels.jobs.words import alignment as P
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.runtime.object_cache import Kernel, made_by, obtain
from tridiag.kernels.runtime.python_call import check, function
from tridiag.libraries.arrays import library_of

KEPT = 32 * 1024 * 1024  # bytes of the cells that a thread keeps for the backward pass, where they fit
WORTH_A_THREAD = 50_000  # cells
ROWS_KEPT = {"linear": 2, "linear_parameters": 3, "affine": 2, "affine_parameters": 6}  # of lanes, for each cell


def kernel_name(dtype: str, kind: str) -> str:
    return f"wavefront_{kind}_{dtype}"


@functools.cache
def compiled(dtype: str, kind: str) -> Kernel:
    """The compiled kernel of a kind of gaps, with the gradients of the parameters or without, for a dtype."""
    return obtain(kernel_name(dtype, kind), made_by("alignment.kernel.build", dtype, kind))


def kind_of(parameters: int, derivatives: int) -> str:
    """The kind of kernel for so many parameters, the temperature among them."""
    return ("linear", "affine")[parameters - 2] + ("_parameters" if derivatives == 2 else "")


@functools.lru_cache(1024)
def words_of(shape: tuple[int, ...], itemsize: int, kind: str, workers: int) -> tuple[np.ndarray[Any, Any], int]:
    """The words of the job of such scores, and its helpers."""
    *batch, rows, columns = shape
    words, pairs = np.zeros(P.WORDS, np.int64), math.prod(batch)
    groups = -(-pairs * itemsize // LINE)
    block = max(KEPT // (columns * LINE * ROWS_KEPT[kind]), math.isqrt(rows) + 1)
    words[[J.ITEMS, P.PAIRS, P.ROWS, P.COLUMNS, P.BLOCK]] = groups, pairs, rows, columns, min(rows, block)
    words[P.FRESH] = sys.platform == "linux"
    words.flags.writeable = False
    return words, min(workers, groups) - 1 if math.prod(shape) >= WORTH_A_THREAD else 0


@functools.lru_cache(1024)
def make_call(shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, workers: int) -> Callable[..., int]:
    words, helpers = words_of(shape, dtype.itemsize, kind, workers)
    return function(compiled(dtype.name, kind).address, words, helpers, math.prod(shape))


def smith_waterman(scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int = 0) -> tuple[Any, ...]:
    library = library_of(scores)
    if library == "jax":
        from tridiag.xla import alignment

        return alignment.smith_waterman(scores, lengths, parameters, derivatives)
    batch = scores.shape[:-2]
    shapes = [batch, *[scores.shape] * (derivatives > 0), *[batch] * len(parameters) * (derivatives > 1)]
    new = scores.new_empty if library == "torch" else functools.partial(np.empty, dtype=scores.dtype)
    results = tuple(new(shape) for shape in shapes)
    align(contiguous(scores), contiguous(lengths), [*map(contiguous, parameters)], [*map(view, results)])
    return results


def align(scores: Any, lengths: Any, parameters: list[Any], results: list[Any]) -> None:
    """The same to arrays that are there: the score, and perhaps its gradients; all are contiguous NumPy arrays."""
    derivatives = min(2, len(results) - 1)
    call = make_call(scores.shape, scores.dtype, kind_of(len(parameters), derivatives), threads())
    score, by_scores, by_parameters = results[0], results[1] if derivatives else None, results[2:]
    check(call(scores, lengths, *all_three(parameters), score, by_scores, *all_three(by_parameters, None)))


def all_three(values: list[Any], missing: Any = ...) -> list[Any]:
    """For gap, gap_open and temperature: with linear gaps there is no gap_open."""
    if len(values) == 2:
        return [values[0], values[0] if missing is ... else missing, values[1]]
    return values


def contiguous(x: Any) -> Any:
    return None if x is None else np.ascontiguousarray(view(x))
