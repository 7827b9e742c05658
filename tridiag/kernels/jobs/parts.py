"""The jobs of parts of systems from shapes and strides alone; pure.

Where systems are too few to fill the lanes of vectors, or so long that what is kept of them leaves the caches, a part
is cut into chunks, which are parts themselves.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import lanes_of, make_job
from tridiag.kernels.jobs.words import systems as J
from tridiag.problems.forms import Form, Shape

LONGEST = 8192  # rows of a chunk: c' and y' of a vector of them are 1 MiB
SHORTEST = 256  # rows of a chunk, where systems are cut for the lanes alone
VECTORS = 4  # of chunks, at least, where they can be filled
ONE_SET = 4096  # bytes: lanes that far apart share a set of the innermost cache


class Chunks(NamedTuple):
    """How many chunks a part is cut into, and their rows; the last rows are in none."""

    count: int
    rows: int


def chunks_of(n: int, systems: int, dtype: np.dtype[Any]) -> Chunks:
    """Enough chunks for the lanes, few enough to be short themselves."""
    wanted = VECTORS * lanes_of(dtype) / max(1, systems)
    count = max(math.ceil(n / LONGEST), min(math.ceil(wanted), n // SHORTEST), 1)
    rows = n // count
    if count > 1 and rows * dtype.itemsize % ONE_SET == 0:
        rows -= 4
    return Chunks(count, rows)


@functools.lru_cache(1024)
def make_part_job(kind: str, form: Form, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """The job that reduces or finishes parts: of a, b, c, where, d, x, of which where is None.

    The form is that of the parts; all arrays have its rank.
    """
    every = form._replace(matrix_shape=form.shape, periodic=True, pivoting=False)  # rows 0 and n-1 are coupled
    job = make_job(every, shapes, strides, (dtype, dtype), 0, workers)
    words = job.words.copy()
    view = J.Systems.view(words)
    view.flags &= ~J.PERIODIC
    words.flags.writeable = False
    return job._replace(kernel=("parts", dtype.name, kind), words=words)


def in_chunks(form: Form, chunks: Chunks) -> Form:
    """The form of the chunks: an axis of them stands before that of their rows."""
    shape = cut_shape(form.shape, form.axis, chunks)
    return form._replace(shape=shape, matrix_shape=shape, axis=form.axis + 1)


def cut_shape(shape: Shape, axis: int, chunks: Chunks) -> Shape:
    """The shape of the chunks of an array; one that is constant along the axis has one chunk of one row."""
    long = shape[axis] != 1
    return (*shape[:axis], *(tuple(chunks) if long else (1, 1)), *shape[axis + 1 :])


def cut_strides(strides: Shape, axis: int, chunks: Chunks) -> Shape:
    return (*strides[:axis], strides[axis] * chunks.rows, *strides[axis:])
