"""Smooth local alignment by dynamic programming over rows of cells, a pair of sequences in each lane, threaded.

The kernels are in `tridiag.kernels.alignment.kernel`: about 35 operations of vectors a cell for the score, 70 with its
gradient, where scores and gaps are moderate and all alignments count; else twice as many, and every cell is a mantissa
with an exponent, so that no temperature and no length is out of range in float64; in float32 scores above
2**29 / (L1 + L2) temperatures count as NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.backends.numba_thomas import Checked, Threaded, view
from tridiag.kernels.jobs.alignment import WORTH_A_THREAD, all_three, kind_of, make_job
from tridiag.kernels.jobs.systems import threads
from tridiag.kernels.jobs.words.alignment import USUAL, Rules
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import call_of
from tridiag.libraries.arrays import library_of


def smith_waterman(
    scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int = 0, rules: Rules = USUAL
) -> tuple[Any, ...]:
    library = library_of(scores)
    if library == "jax":
        from tridiag.xla import alignment

        return alignment.smith_waterman(scores, lengths, parameters, derivatives, rules)
    batch = scores.shape[:-2]
    shapes = [batch, *[scores.shape] * (derivatives > 0), *[batch] * len(parameters) * (derivatives > 1)]
    new = scores.new_empty if library == "torch" else functools.partial(np.empty, dtype=scores.dtype)
    results = tuple(new(shape) for shape in shapes)
    align(contiguous(scores), contiguous(lengths), [*map(contiguous, parameters)], [*map(view, results)], rules)
    return results


def bound_alignment(shape: tuple[int, ...], dtype: np.dtype[Any], shared: tuple[bool, ...]) -> Callable[..., bool]:
    """The scores of alignments as a function of contiguous NumPy arrays.

    These are the scores of cells, of that shape, lengths or None, the three parameters of `all_three`, the result, and
    None for each gradient. ``shared``: which parameters are one number for all pairs.
    """
    facts, three = (shape, dtype, kind_of(len(shared), 0)), tuple(all_three([*shared]))
    if math.prod(shape) < WORTH_A_THREAD:
        return Checked(call_of(make_job, *facts, 1, three).run)
    return Threaded(lambda: call_of(make_job, *facts, threads(), three).run)


def align(scores: Any, lengths: Any, parameters: list[Any], results: list[Any], rules: Rules) -> None:
    """The same to arrays that are there: the score, and perhaps its gradients; all are contiguous NumPy arrays."""
    derivatives = min(2, len(results) - 1)
    kind = kind_of(len(parameters), derivatives, rules)
    call = call_of(make_job, scores.shape, scores.dtype, kind, threads()).run
    score, by_scores, by_parameters = results[0], results[1] if derivatives else None, results[2:]
    check(call(scores, lengths, *all_three(parameters), score, by_scores, *all_three(by_parameters, None)))


def contiguous(x: Any) -> Any:
    return None if x is None else np.ascontiguousarray(view(x))
