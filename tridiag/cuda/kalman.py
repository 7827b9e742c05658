"""Kalman filters by CUDA kernels: what is launched, and where the series and their models lie; pure.

A thread has a series. A kernel with covariances as they stand goes over all of them, and puts those that may have lost
digits on a list in scratch memory; the same kernel with square roots computes these again. A smoother has a pass
forwards, which leaves what is predicted in the place of the results, and one backwards.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Kernel, Program, Recording, address, walk
from tridiag.cuda.spread_systems import parts
from tridiag.cuda.struct import RANK, layout, steps_along
from tridiag.kernels.jobs.batches import Axis, contiguous, merge
from tridiag.problems.state_space import MATRICES, StateSpace

Y, LIKELIHOOD, STATES = 0, 7, 8  # before LIKELIHOOD y and the model; from STATES on means and covariances
OPERANDS = 12
TIMED = (*range(1 + len(MATRICES)), *range(STATES, OPERANDS))  # which of them have an axis of time
SERIES = layout(
    (
        ("operand", OPERANDS),
        ("kept", 1),
        ("doubtful", 1),
        ("lost", 1),
        ("room", 1),
        ("words", 1),
        ("n", 1),
        ("series", 1),
        ("observed", 1),
        ("stretch", 1),
        ("along", OPERANDS),
        ("time", OPERANDS),
        ("length", RANK),
        ("step", RANK * OPERANDS),
    ),
    ("operand", "kept", "doubtful", "lost"),
    OPERANDS,
)
RANKS = (2, 2, 2, 2, 1, 2)  # the axes of the parameters of a model that belong to one step
MOST = 2**17  # threads at work: more series than that are taken in turn
ROOM, ROOM_OF_GRADIENT = 2**28, 2**30  # bytes of scratch memory of all threads, at most
WHOLE = 64  # steps of a series whose gradient keeps the states of all of them
WORD, FLAG = 8, 4  # bytes of a number of a series and of an address, and of whether digits are lost


def operands_of(given: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
    """y and the model, then results as a backend returns them, in the order of the struct; None: not there.

    States by themselves are those of a smoother, which lie where a filter has those that it predicts.
    """
    *states, likelihood = results
    nothing = [None] * (OPERANDS - STATES - len(states))
    return (*given, likelihood, *nothing, *states)


def unrepeated(strides: Sequence[int], rank: int) -> tuple[slice, ...]:
    """The part of an array of which, along all but the last axes, the rest is a repetition."""
    return tuple(slice(None if step else 1) for step in strides[: len(strides) - rank])


class Lying(NamedTuple):
    """How results lie in memory: the shape there, and the axes of the result among its axes."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def result(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.axes)

    def strides(self, itemsize: int) -> tuple[int, ...]:
        """Of the result."""
        steps = contiguous(self.shape, itemsize)
        return tuple(steps[axis] for axis in self.axes)


def side_by_side(shape: tuple[int, ...], batch: int) -> Lying:
    """Steps first, and last the batch axes, so that the threads of a warp write words that lie side by side."""
    own = len(shape) - batch
    return Lying((*shape[batch:], *shape[:batch]), (*range(own, len(shape)), *range(own)))


def as_it_is(shape: tuple[int, ...]) -> Lying:
    """In C order."""
    return Lying(shape, tuple(range(len(shape))))


class Need(NamedTuple):
    """Numbers that a thread has in scratch memory, and in shared memory."""

    room: int
    words: int


def need_of(form: StateSpace, smooth: bool, by_roots: bool) -> Need:
    """As the kernels place them."""
    k, p = form.states, form.observed
    correlated = p * (k + 1) + triangle(p)  # Observations
    if smooth and by_roots:
        turns = p * (2 * k + 1)  # of Seen
        return Need(correlated + turns + returned(k), 0)
    if smooth:
        return Need(correlated + p * (k + 2), 2 * k + triangle(k))  # Ahead
    rotated, doubt = 2 * k + k**2, 2 * k + max(2 * k, triangle(k)) + p  # Roots, Doubt
    return Need(correlated if p > 1 else 0, rotated if by_roots else doubt)


def returned(k: int) -> int:
    """Of `Return`: a mean, a root, the weights of two vectors for each state, and these behind the gain."""
    return k + triangle(k) + 2 * k + k**2 + 2 * k**2


def triangle(rows: int) -> int:
    return rows * (rows + 1) // 2


def need_of_gradient(form: StateSpace, stretch: int, by_roots: bool) -> Need:
    """As `gradient.cu` places them: `Observations`, `Sums`, and the states that are kept."""
    k, p = form.states, form.observed
    observations = p * (k + 1) + triangle(p)
    seen = p * (2 * k + 3) + triangle(p)
    sums = k**2 + p * k + triangle(k) + triangle(p) + k + triangle(k)
    by_return = p * k + k**2 + returned(k) if by_roots else 0
    parts = -(-form.n // stretch)
    states = (stretch + (parts if parts > 1 else 0)) * (k + triangle(k))
    return Need(observations + seen + sums + by_return + states, need_of(form, False, by_roots).words)


def stretch_of(n: int) -> int:
    """The steps of a part of a series: a short one is a part by itself, long ones are filtered twice."""
    return n if n <= WHOLE else math.isqrt(n - 1) + 1


class Placed(NamedTuple):
    """The series of a call: the job, the axes that the host walks through, and where operands begin."""

    job: Job
    outer: list[Axis]
    begin: np.ndarray[Any, Any]


def placed(form: StateSpace, shapes: Any, strides: Any, itemsize: int) -> Placed:
    """From the shapes and the strides in bytes of all operands; the model is contiguous along the last axes."""
    rank = len(form.batch)
    batch = merge([(length, steps_along(k, shapes, strides)) for k, length in enumerate(form.batch) if length != 1])
    outer, inner = batch[: max(0, len(batch) - RANK)], batch[-RANK:]
    job = np.zeros((), SERIES.job)
    job["n"], job["observed"] = form.n, form.observed
    job["series"] = math.prod(length for length, _ in inner)
    for k in (Y, *range(STATES, OPERANDS)):
        job["along"][k] = 0 if strides[k] is None else strides[k][-1] // itemsize
    for k in TIMED:
        timed = shapes[k] is not None and shapes[k][rank] != 1
        job["time"][k] = strides[k][rank] // itemsize if timed else 0
    job["length"] = 1
    for k, (length, found) in enumerate(inner, RANK - len(inner)):
        job["length"][k] = length
        job["step"].reshape(RANK, OPERANDS)[k] = [step // itemsize for step in found]
    begin = np.array([0 if shape is None else address(k) for k, shape in enumerate(shapes)], np.int64)
    return Placed(job, outer, begin)


@functools.lru_cache(1024)
def program(form: StateSpace, shapes: Any, strides: Any, dtype: str) -> Program:
    """The results that are among the operands (`operands_of`)."""
    itemsize = np.dtype(dtype).itemsize
    series = placed(form, shapes, strides, itemsize)
    smooth = shapes[STATES] is None and shapes[-1] is not None
    recording = Recording(SERIES)
    list_of_doubtful(recording, series.job)
    series.job["lost"] = recording.reserve(FLAG * int(series.job["series"])) if smooth else 0
    for job in walk(*series):
        recording.clear(int(job["doubtful"]), WORD)
        for by_roots, backwards in itertools.product((False, True), (False, True)[: 1 + smooth]):
            kernel = instances.kalman(dtype, form.states, backwards, by_roots)
            with recording.passing():
                launch(recording, kernel, job, need_of(form, backwards, by_roots), itemsize, ROOM)
    return recording.program()


@functools.lru_cache(1024)
def gradient(form: StateSpace, shapes: Any, strides: Any, dtype: str) -> Program:
    """The derivatives in a model that is constant in time, of each series in its own, and perhaps in y."""
    itemsize = np.dtype(dtype).itemsize
    series = placed(form, shapes, strides, itemsize)
    recording = Recording(SERIES)
    list_of_doubtful(recording, series.job)
    series.job["stretch"] = stretch = stretch_of(form.n)
    for job in walk(*series):
        recording.clear(int(job["doubtful"]), WORD)
        for by_roots in (False, True):
            kernel = instances.gradient(dtype, form.states, by_roots)
            with recording.passing():
                need = need_of_gradient(form, stretch, by_roots)
                launch(recording, kernel, job, need, itemsize, ROOM_OF_GRADIENT)
    return recording.program()


def list_of_doubtful(recording: Recording, job: Job) -> None:
    """Of the series that are to be computed again."""
    job["doubtful"] = recording.reserve(WORD * (int(job["series"]) + 1))


def launch(recording: Recording, kernel: Kernel, job: Job, need: Need, itemsize: int, room: int) -> None:
    """A thread for each series, as many at a time as there is scratch memory for."""
    block = kernel.threads
    most = max(1, min(MOST, room // (itemsize * max(1, need.room))) // block)
    grid = min(parts(int(job["series"]), block), most)
    job["room"], job["words"] = need.room, need.words
    job["kept"] = recording.reserve(grid * block * need.room * itemsize) if need.room else 0
    shared = block * (OPERANDS * WORD + need.words * itemsize)
    recording.launch(kernel, grid, block, job, shared, in_turn=True)
