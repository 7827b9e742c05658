"""The job of a Kalman filter, from the shapes of its arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import LINE, contiguous
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import WORTH_A_THREAD, threads
from tridiag.kernels.jobs.words import kalman as K
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import StateSpace

# for models of any size, in place of those that are written out for one; of series that share theirs, the second one
MANY = {
    "filter": ("filter_many", "filter_many_shared"),
    "moments": ("filter_many", "filter_many"),
    "smoother": ("smoother_many", "smoother_many"),
    "filter_gradient": ("gradient_many", "gradient_many_shared"),
}


def is_written_out(states: int, observed: int) -> bool:
    """Whether there are kernels for just this size; of larger ones, code takes too long to compile."""
    return max(states, observed) <= K.WRITTEN_OUT


def kind_of(form: StateSpace, missing: bool, states: bool = False) -> str:
    """What the kernel may rely on; where all ``states`` are wanted nothing is gained from covariances in common."""
    shared = not states and math.prod(form.batch) > 1 and math.prod(form.cov_batch) == 1
    return K.MISSING if missing else K.SHARED if shared else K.COMPLETE


def kernel_of(family: str, dtype: str, states: int, observed: int, kind: str) -> tuple[Any, ...]:
    """The kernel that is written out for a size, or the one for all larger ones."""
    if is_written_out(states, observed):
        return family, dtype, states, observed, kind
    return MANY[family][kind == K.SHARED], dtype


def make_job(family: str, kind: str, form: StateSpace, shapes: Sequence[Shape], dtype: np.dtype[Any]) -> Job:
    """For contiguous arrays; the shapes are those of the operands, () of one that is not there."""
    itemsize = dtype.itemsize
    series, lanes, ranks = math.prod(form.batch), LINE // itemsize, len(form.batch)
    shapes = [*shapes, *[()] * (K.OPERANDS - len(shapes))]
    strides = [stretched(shape, itemsize, ranks + 1) for shape in shapes]
    if not is_written_out(form.states, form.observed):
        lanes = K.TOGETHER * lanes if kind == K.SHARED else 1
    table, items = [own[ranks] for own in strides], -(-series // lanes)
    for axis, length in enumerate(form.batch):
        table += [length, *(own[axis] for own in strides)]
    words = K.Filter.filled(
        len(table), items=items, steps=form.n, series=series, axes=ranks, states=form.states, observed=form.observed
    )
    words[K.TABLE :] = table
    words.flags.writeable = False
    unknowns = unknowns_of(form)
    if not is_written_out(form.states, form.observed) and kind != K.SHARED:
        unknowns *= form.states
    helpers = min(threads(), items) - 1 if unknowns >= WORTH_A_THREAD else 0
    return Job(kernel_of(family, dtype.name, form.states, form.observed, kind), words, helpers, unknowns)


def expected(form: StateSpace, shapes: Sequence[Shape]) -> np.ndarray[Any, Any]:
    """What a small call expects of its values; ``shapes``: those of y and the model, as `make_job` takes them."""
    count = [math.prod(shapes[k][:-2]) for k in K.COVARIANCES]
    unread = [0] * len(count)
    if form.n < 2:
        count[0] = 0  # no Q is read
    elif shapes[K.Q][-3] == form.n:
        unread[0] = form.n
    rows = [shapes[k][-1] for k in K.COVARIANCES]
    facts = {"observations": math.prod(shapes[K.Y]), "missing": bool(form.missing)}
    return K.Expected.filled(matrices=count, rows=rows, unread=unread, **facts)


def is_small(form: StateSpace) -> bool:
    """Whether one thread computes a filter, and `expected` has room for its covariances."""
    largest = max(form.states, form.observed)
    return unknowns_of(form) < WORTH_A_THREAD and largest <= K.LARGEST


def unknowns_of(form: StateSpace) -> int:
    return math.prod(form.batch) * form.n * form.observed * form.states


def stretched(shape: Shape, itemsize: int, count: int) -> list[int]:
    """The strides of the first axes of an array, 0 where its length is 1."""
    steps = contiguous(shape, itemsize)
    return [step if length > 1 else 0 for step, length in zip(steps[:count], shape, strict=False)] + [0] * (
        count - len(shape)
    )
