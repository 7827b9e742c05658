"""Recurrences by CUDA kernels: which is launched, and how sequences are spread over blocks and threads; pure."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Kernel, Program, Recording, walk
from tridiag.cuda.sequences import COEFFICIENT, INIT, SEQUENCES, Sequences, sequences_of
from tridiag.cuda.spread_systems import MANY, WARP, parts
from tridiag.problems.forms import Recurrence


@functools.lru_cache(1024)
def program(verb: str, form: Recurrence, shapes: Any, strides: Any, dtypes: tuple[Any, Any]) -> Program:
    """y of a verb, from the shapes and the strides in bytes of its operands (`tridiag.cuda.sequences.operands_of`).

    The dtypes are those of the coefficients and of x.
    """
    sequences, recording = sequences_of(form, shapes, strides, dtypes), Recording(SEQUENCES)
    order = sum(shape is not None for shape in shapes[COEFFICIENT:INIT])
    kernel = kernel_of(verb, form, sequences, order)
    for job in walk(sequences.job, sequences.outer, sequences.begin):
        by_columns(recording, kernel, job, sequences)
    return recording.program()


def kernel_of(verb: str, form: Recurrence, sequences: Sequences, order: int) -> Kernel:
    """With a thread for each sequence."""
    if form.matrices:
        return instances.matrices(sequences.dtype, next(m for m in instances.MATRICES if m >= form.shape[-1]))
    if verb == "linear_recurrence":
        return instances.linear(sequences.dtype, order)
    return instances.logarithmic(sequences.dtype, order > 0)


def by_columns(recording: Recording, kernel: Kernel, job: Job, sequences: Sequences) -> None:
    """A thread for each sequence; where they are few, spread over as many multiprocessors as there may be."""
    block = kernel.threads if sequences.total >= MANY else WARP
    recording.launch(kernel, parts(sequences.total, block), block, job)
