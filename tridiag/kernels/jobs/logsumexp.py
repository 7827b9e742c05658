"""The job of `tridiag.kernels.logsumexp.kernel` from shapes and strides alone; pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import contiguous, merge
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import WORTH_STARTING, lanes_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.problems.forms import Recurrence

ITEM = 32_768  # values claimed at a time, or fewer:
ITEMS_EACH = 16  # items for each of several threads
MOST_GROUPS = 64  # side by side in an item
FEWEST_ROWS = 256  # of a chunk: fewer are not worth a pass for their total and a thread
BETWEEN = {False: 96, True: 40}  # rows that take as long as what is done between two passes; with coefficients
WEIGHTED = 3  # steps without coefficients cost as much as one with them


def make_job(form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """From the shapes and the strides in bytes of log_a, init, x and y (None: not there)."""
    present = [k for k, shape in enumerate(shapes) if shape is not None]

    def steps(axis: int) -> tuple[int, ...]:
        own = [strides[k][axis] if k in present and shapes[k][axis] != 1 else 0 for k in range(4)]
        return (*own, 0, 0)

    n, rows = form.n, steps(form.axis)
    axes = [k for k, length in enumerate(form.shape) if k != form.axis and length != 1]
    batch = merge([(form.shape[k], steps(k)) for k in sorted(axes, key=lambda k: -sum(map(abs, steps(k))))])
    count, lanes = math.prod(length for length, _ in batch), lanes_of(dtype)
    chunks = chunks_of(n, count, lanes, workers, J.LOG_A in present)
    height = n // chunks
    start = [(n - height) * step if form.backward else 0 for step in rows]
    if chunks > 1:
        batch.append((chunks, tuple((-height if form.backward else height) * step for step in rows)))
    interleaved = neighbours(batch, present, dtype.itemsize, lanes) if chunks == 1 else 0  # chunks: a group at a time
    groups, run = shares(count * chunks, interleaved, height, lanes, workers)
    flags = (form.backward and J.REVERSED) | (J.LOG_A in present and J.WEIGHTED) | (J.INIT in present and J.GIVEN)
    flags |= end_to_end(n, rows, batch, present, dtype.itemsize) and J.SHORT
    items = -(-run // (groups * lanes)) * (count * chunks // run)
    words = J.Logsumexp.filled(
        J.AXIS_WORDS * len(batch),
        small=math.prod(form.shape) * (WEIGHTED if J.LOG_A in present else 1) < WORTH_STARTING,
        items=items,
        rows=height,
        lanes=groups * lanes,
        flags=flags,
        matrices=count * chunks,
        chunks=chunks,
        matrix_axes=len(batch),
        interleaved=interleaved,
        tail=n - chunks * height,
        strides=rows[: J.OPERANDS],
        start=start[: J.OPERANDS],
    )
    words[J.AXES :] = [word for length, own in batch for word in (length, *own)]
    words.flags.writeable = False
    return Job(("logsumexp", dtype.name), words, min(workers, items) - 1, math.prod(form.shape))


def end_to_end(n: int, rows: tuple[int, ...], batch: Any, present: list[int], itemsize: int) -> bool:
    """Whether sequences of few steps lie end to end (`tridiag.kernels.logsumexp.short`); nothing is before them."""
    if not J.FEWEST <= n <= J.MOST or J.INIT in present or len(batch) > 1:
        return False
    steps = batch[0][1] if batch else [n * itemsize] * len(rows)
    return all(rows[k] == itemsize and steps[k] == n * itemsize for k in present)


def sorted_elsewhere(form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any]) -> bool:
    """Whether sequences lie end to end if the result is contiguous, which this one is not.

    The bits of a result do not depend on where it lies.
    """
    side_by_side = contiguous(form.shape, dtype.itemsize)
    if form.n > J.MOST or all(
        n == 1 or s == t for n, s, t in zip(form.shape, strides[J.RESULT], side_by_side, strict=True)
    ):
        return False
    job = make_job(form, shapes, (*strides[: J.RESULT], side_by_side), dtype, 1)
    return bool(J.Logsumexp.view(job.words).flags & J.SHORT)


def chunks_of(n: int, count: int, lanes: int, workers: int, weighted: bool) -> int:
    """Into how many chunks sequences are cut: as many as fill the lanes of all threads, where sequences do not.

    Short ones fill those of one thread, if two passes over chunks, and what is done between them, take less time than
    one over a sequence.
    """
    chunks = lanes * workers // max(1, count)
    if chunks > 1 and n >= FEWEST_ROWS * chunks:
        return chunks
    chunks = lanes // max(1, count)
    return chunks if n * (chunks - 2) > BETWEEN[weighted] * chunks else 1


def neighbours(batch: Any, present: list[int], itemsize: int, lanes: int) -> int:
    """The sequences that lie side by side in memory; 0: too few do."""
    if not batch:
        return 0
    length, steps = batch[-1]
    wide = steps[J.TERMS] in (0, itemsize) and steps[J.RESULT] == itemsize
    return length if wide and length >= 2 * lanes else 0


def shares(count: int, interleaved: int, rows: int, lanes: int, workers: int) -> tuple[int, int]:
    """The groups of an item, and the sequences of which items are parts."""
    run = interleaved or count
    groups, total = -(-run // lanes), -(-count // lanes)
    share = -(-total // (ITEMS_EACH * workers)) if workers > 1 else groups
    if interleaved:
        return min(groups, MOST_GROUPS, max(share, 8)), run
    return min(groups, max(1, min(share, ITEM // (rows * lanes)))), run
