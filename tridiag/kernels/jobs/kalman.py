"""The job of a Kalman filter, from the shapes of its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import LINE, contiguous
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import WORTH_A_THREAD, threads
from tridiag.kernels.jobs.words import kalman as K
from tridiag.problems.covariances import is_few
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import StateSpace


class Many(NamedTuple):
    """The kernels for models of any size, in place of those that are written out for one."""

    one: str  # one series after another
    lanes: str  # a series in each lane
    shared: str  # of series that share their model


MANY = {
    "filter": Many("filter_many", "filter_in_lanes", "filter_many_shared"),
    "moments": Many("filter_many", "filter_in_lanes", "filter_many"),
    "smoother": Many("smoother_many", "smoother_in_lanes", "smoother_many"),
    "filter_gradient": Many("gradient_many", "gradient_in_lanes", "gradient_many_shared"),
    "predict": Many("predict_many", "predict_in_lanes", "predict_many"),
    "update": Many("filter_many", "filter_in_lanes", "filter_many"),
}
MOST_CHECKED = 2**22  # multiplications and values that are looked at while no other thread of Python runs: 2 ms
MOST_KEPT = 64 * 1024 * 1024  # bytes, of a worker
LARGE = 7  # states: of so many on, a series by itself takes less than one lane of a kernel that is written out
GROUP = 3  # series by themselves, in whose time as many are computed as a vector has lanes


def is_written_out(states: int, observed: int = 1) -> bool:
    """Whether there are kernels for just this size; of larger ones, code takes too long to compile."""
    return max(states, observed) <= K.WRITTEN_OUT


def kind_of(form: StateSpace, missing: bool, states: bool = False) -> str:
    """What the kernel may rely on; where all ``states`` are wanted nothing is gained from covariances in common."""
    shared = not states and math.prod(form.batch) > 1 and math.prod(form.cov_batch) == 1
    return K.MISSING if missing else K.SHARED if shared else K.COMPLETE


def kernels_for(family: str, dtype: str, states: int, observed: int, kind: str) -> list[tuple[Any, ...]]:
    """The kernel that is written out for a size, or those for all larger ones; of two, few series take the first."""
    if is_written_out(states, observed):
        written_out = (family, dtype, states, observed, kind)
        by_themselves = states >= LARGE and kind != K.SHARED and family in MANY
        return [(MANY[family].one, dtype), written_out] if by_themselves else [written_out]
    many = MANY[family]
    return [(name, dtype) for name in ([many.shared] if kind == K.SHARED else dict.fromkeys((many.one, many.lanes)))]


def kernels_for_step(verb: str, dtype: str, states: int, observed: int) -> list[tuple[Any, ...]]:
    """As `kernels_for`, of `tridiag.kalman.predict` or `tridiag.kalman.update`."""
    sizes = (states,) if verb == "predict" else (states, observed)
    return [(verb, dtype, *sizes)] if is_written_out(*sizes) else [(name, dtype) for name in MANY[verb][:2]]


def fill_lanes(form: StateSpace, lanes: int, workers: int, kept: bool) -> bool:
    """Whether series are computed sooner in groups that fill the lanes of a vector than one after another.

    ``kept``: whether workers keep the states of all steps, which has to be little enough.
    """
    series, k = math.prod(form.batch), form.states
    groups = -(-series // lanes)
    if kept and form.n * (k + k * (k + 1) // 2) * LINE > MOST_KEPT:
        return False
    return GROUP * -(-groups // workers) <= -(-series // workers)


def workers_for(kind: str, form: StateSpace) -> int:
    """The threads that a filter may have, where it is worth them."""
    return threads() if worth(kind, form) >= WORTH_A_THREAD else 1


def worth(kind: str, form: StateSpace) -> int:
    """What a filter takes, in the measure of `WORTH_A_THREAD`."""
    many = not is_written_out(form.states, form.observed)
    return unknowns_of(form) * (form.states if many and kind != K.SHARED else 1)


def make_job(
    family: str, kind: str, form: StateSpace, shapes: Sequence[Shape], dtype: np.dtype[Any], workers: int
) -> Job:
    """For contiguous arrays; the shapes are those of the operands, () of one that is not there."""
    itemsize = dtype.itemsize
    series, lanes, ranks = math.prod(form.batch), LINE // itemsize, len(form.batch)
    shapes = [*shapes, *[()] * (K.OPERANDS - len(shapes))]
    strides = [stretched(shape, itemsize, ranks + 1) for shape in shapes]
    kernels = kernels_for(family, dtype.name, form.states, form.observed, kind)
    many = not is_written_out(form.states, form.observed)
    if many and kind == K.SHARED:
        lanes *= K.TOGETHER
    elif not many:
        if len(kernels) > 1 and series <= workers:
            lanes, kernels = 1, kernels[:1]
    elif len(kernels) == 1 or not fill_lanes(form, lanes, workers, family == "filter_gradient"):
        lanes, kernels = 1, kernels[:1]
    items = -(-series // lanes)
    words = words_of(form, form.batch, strides, items)
    return Job(kernels[-1], words, max(0, min(workers, items) - 1), worth(kind, form))


def make_step_job(
    family: str, form: StateSpace, shapes: Sequence[Shape | None], dtype: np.dtype[Any], workers: int
) -> Job:
    """Of a single step: for contiguous arrays that have all batch axes, and none for time; None: not there."""
    itemsize, lanes, ranks = dtype.itemsize, LINE // dtype.itemsize, len(form.batch)
    shapes = [*shapes, *[None] * (K.OPERANDS - len(shapes))]
    strides = [[*stretched(shape or (), itemsize, ranks), 0] for shape in shapes]
    kernels = kernels_for_step(family, dtype.name, form.states, form.observed)
    if len(kernels) > 1 and not fill_lanes(form, lanes, workers, False):
        lanes, kernels = 1, kernels[:1]
    items = -(-math.prod(form.batch) // lanes)
    words = words_of(form, form.batch, strides, items)
    return Job(kernels[-1], words, min(workers, items) - 1, work_of_step(form))


def work_of_step(form: StateSpace) -> int:
    """In the measure of `unknowns_of`."""
    work = math.prod(form.batch) * form.states * (form.states + form.observed)
    return work if is_written_out(form.states, form.observed) else work * form.states


def words_of(form: StateSpace, batch: Shape, strides: Sequence[Sequence[int]], items: int, **more: int) -> Any:
    """The record of a job, with the strides of its operands."""
    ranks = len(batch)
    table = [own[ranks] for own in strides]
    for axis, length in enumerate(batch):
        table += [length, *(own[axis] for own in strides)]
    facts = {"items": items, "steps": form.n, "series": math.prod(batch), "axes": ranks}
    words = K.Filter.filled(len(table), states=form.states, observed=form.observed, **facts, **more)
    words[K.TABLE :] = table
    words.flags.writeable = False
    return words


def make_regression_job(
    form: StateSpace, batch: Shape, alike: int, shapes: Sequence[Shape], dtype: np.dtype[Any], workers: int
) -> Job:
    """Of a smoother of states that are unknown at first: of each of a batch, so many series share its covariances.

    For contiguous arrays, with series that share covariances behind time.
    """
    shapes = [*shapes, *[()] * (K.OPERANDS - len(shapes))]
    strides = [stretched(shape, dtype.itemsize, len(batch) + 1) for shape in shapes]
    items, q = math.prod(batch), len(form.diffuse)
    work = items * form.n * form.states * (form.states + form.observed + alike + q)
    words = words_of(form, batch, strides, items, alike=alike, unknown=q)
    helpers = max(0, min(workers if work >= WORTH_A_THREAD else 1, items) - 1)
    return Job(("smoother_unknown", dtype.name), words, helpers, work)


def expected(form: StateSpace, shapes: Sequence[Shape]) -> np.ndarray[Any, Any]:
    """What a call expects of its values; ``shapes``: those of y and the model, as `make_job` takes them."""
    count = [math.prod(shapes[k][:-2]) for k in K.COVARIANCES]
    unread = [0] * len(count)
    if form.n < 2:
        count[0] = 0  # no Q is read
    elif shapes[K.Q][-3] == form.n:
        unread[0] = form.n
    rows = [shapes[k][-1] for k in K.COVARIANCES]
    facts = {"observations": math.prod(shapes[K.Y]), "missing": bool(form.missing)}
    return K.Expected.filled(matrices=count, rows=rows, unread=unread, checked=[1] * len(count), **facts)


def expected_of_step(shapes: Mapping[int, Shape]) -> np.ndarray[Any, Any]:
    """The same for a step: of the covariance before it and that of its noise, which have these shapes."""
    given = [shapes.get(k, (0, 0, 0)) for k in K.COVARIANCES]
    count, rows = [math.prod(x[:-2]) for x in given], [x[-1] for x in given]
    return K.Expected.filled(matrices=count, rows=rows, checked=[*map(is_few, given)])


def is_soon_checked(expected: np.ndarray[Any, Any]) -> bool:
    """Whether values are compared with what is expected within `MOST_CHECKED`, and there is room for covariances."""
    words = K.Expected
    counts, rows = (expected[x.word : x.word + len(K.COVARIANCES)] for x in (words.matrices, words.rows))
    work = expected[words.observations.word] + (counts * rows**2 * (rows // 6 + 1)).sum()
    return bool(work <= MOST_CHECKED and max(rows) <= K.LARGEST)


def unknowns_of(form: StateSpace) -> int:
    return math.prod(form.batch) * form.n * form.observed * form.states


def stretched(shape: Shape, itemsize: int, count: int) -> list[int]:
    """The strides of the first axes of an array, 0 where its length is 1."""
    steps = contiguous(shape, itemsize)
    return [step if length > 1 else 0 for step, length in zip(steps[:count], shape, strict=False)] + [0] * (
        count - len(shape)
    )
