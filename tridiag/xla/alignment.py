"""The compiled alignment kernels for JAX arrays on CPU: one XLA custom call."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tridiag.kernels.jobs.alignment import all_three, kind_of, make_job
from tridiag.kernels.jobs.systems import threads
from tridiag.kernels.jobs.words.alignment import Alignment, Rules
from tridiag.xla.custom_call import helpers_of, target


def smith_waterman(
    scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int, rules: Rules
) -> tuple[Any, ...]:
    """The score and its derivatives; parameters have the shape of the batch."""
    kind, dtype = kind_of(len(parameters), derivatives, rules), np.dtype(scores.dtype)
    job = make_job(scores.shape, dtype, kind, threads())
    each = jax.ShapeDtypeStruct(scores.shape[:-2], dtype)
    results = {Alignment.score.word: each}
    if derivatives > 0:
        results[Alignment.gradient.word] = jax.ShapeDtypeStruct(scores.shape, dtype)
    if derivatives > 1:
        first = Alignment.by_parameters.word
        places = [first, *[first + 1] * (len(parameters) - 2), first + 2]
        results |= dict.fromkeys(places, each)
    operands = {Alignment.scores.word: scores, Alignment.lengths.word: lengths}
    first = Alignment.parameters.word
    operands |= dict(zip(range(first, first + 3), all_three([*parameters]), strict=True))
    operands = {place: x for place, x in operands.items() if x is not None}
    function = jax.ffi.ffi_call(target(*job.kernel), tuple(results.values()))
    words = np.concatenate((job.words, [helpers_of(job), 0], [*operands, *results]))
    return tuple(function(*operands.values(), job=words))
