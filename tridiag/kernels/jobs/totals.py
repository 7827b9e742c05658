"""The job of `tridiag.kernels.totals.kernel` from shapes and strides alone; pure."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import merge
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.logsumexp import shares
from tridiag.kernels.jobs.systems import lanes_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.problems.forms import Recurrence
from tridiag.problems.parts import SHORTEST, Chunks, alike


def chunks_of(n: int, sequences: int, dtype: np.dtype[Any], workers: int) -> Chunks:
    """How sequences are cut that do not fill the lanes of all threads; a few last rows are in no chunk."""
    wanted = -(-lanes_of(dtype) * workers // max(1, sequences))
    return alike(n, max(1, min(wanted, n // SHORTEST)), dtype)


@functools.lru_cache(1024)
def make_job(
    kind: str, form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int, first: int = 0
) -> Job:
    """From the shapes and the strides in bytes of coefficients (None: there are none) and of x.

    Totals are in the order of the batch axes, of rows from the ``first`` on.
    """
    given = {k: both for k, both in zip((J.LOG_A, J.TERMS), zip(shapes, strides, strict=True), strict=True) if both[0]}

    def steps(axis: int) -> tuple[int, ...]:
        own = (given.get(k) for k in range(J.OPERANDS))
        return (*(both[1][axis] if both and both[0][axis] != 1 else 0 for both in own), 0, 0)

    batch = merge([(length, steps(k)) for k, length in enumerate(form.shape) if k != form.axis and length != 1])
    count, lanes = math.prod(form.batch), lanes_of(dtype)
    side_by_side = batch and batch[-1][0] >= 2 * lanes and batch[-1][1][J.TERMS] == dtype.itemsize
    interleaved = batch[-1][0] if side_by_side else 0
    groups, run = shares(count, interleaved, form.n, lanes, workers)
    items = -(-run // (groups * lanes)) * (count // run)
    words = J.Logsumexp.filled(
        J.AXIS_WORDS * len(batch),
        items=items,
        rows=form.n,
        lanes=groups * lanes,
        flags=(form.backward and J.REVERSED) | J.GIVEN,
        matrices=count,
        chunks=1,
        matrix_axes=len(batch),
        interleaved=interleaved,
        strides=steps(form.axis)[: J.OPERANDS],
        start=[first * step for step in steps(form.axis)[: J.OPERANDS]],
    )
    words[J.AXES :] = [word for length, own in batch for word in (length, *own)]
    words.flags.writeable = False
    return Job(("totals", dtype.name, kind), words, min(workers, items) - 1, math.prod(form.shape))
