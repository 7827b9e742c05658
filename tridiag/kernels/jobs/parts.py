"""The jobs of parts of systems from shapes and strides alone; pure."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import make_job
from tridiag.kernels.jobs.words import systems as J
from tridiag.problems.forms import Form, Shape
from tridiag.problems.parts import Chunks


@functools.lru_cache(1024)
def make_part_job(
    kind: str, form: Form, chunks: Chunks, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int
) -> Job:
    """The job that reduces or finishes the chunks of parts, from the shapes and the strides in bytes of a, b, c, d, x.

    The form is that of the parts; all arrays have its rank.
    """
    *bands, d, x = (cut_shape(shape, form.axis, chunks) for shape in shapes)
    *steps, d_steps, x_steps = (cut_strides(some, form.axis, chunks) for some in strides)
    every = in_chunks(form, chunks)._replace(periodic=True, pivoting=False)  # rows 0 and n-1 are coupled
    extents = (*bands, None, d, x), (*steps, None, d_steps, x_steps)
    job = make_job(every, *extents, (dtype, dtype), 0, workers)
    words = job.words.copy()
    view: Any = J.Systems.view(words)
    view.flags &= ~J.PERIODIC
    words.flags.writeable = False
    return job._replace(kernel=("parts", dtype.name, kind), words=words)


def in_chunks(form: Form, chunks: Chunks) -> Form:
    """The form of the chunks: an axis of them, and perhaps one of their two ends, stands before that of their rows."""
    shape = cut_shape(form.shape, form.axis, chunks)
    return form._replace(shape=shape, matrix_shape=shape, axis=form.axis + len(chunks.lengths) - 1)


def cut_shape(shape: Shape, axis: int, chunks: Chunks) -> Shape:
    """The shape of the chunks of an array; one that is constant along the axis has one chunk of one row."""
    lengths = chunks.lengths if shape[axis] != 1 else (1,) * len(chunks.lengths)
    return (*shape[:axis], *lengths, *shape[axis + 1 :])


def cut_strides(strides: Shape, axis: int, chunks: Chunks) -> Shape:
    return (*strides[:axis], *(strides[axis] * step for step in chunks.steps), *strides[axis + 1 :])
