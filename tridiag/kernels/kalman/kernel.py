"""Kalman filters of many series: one series in each lane, and threads over groups of lanes.

Where series share their model and nothing is missing, what depends on covariances alone is computed once, before.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import types

from tridiag.algorithms.kalman_filter import LOG_TWO_PI
from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.kalman import Filter
from tridiag.kernels.kalman.gradient import Gradient, GradientRoom
from tridiag.kernels.kalman.loops import COUNT, EXPONENT, LOSS, MANTISSA, QUADRATIC, Loops, Room
from tridiag.kernels.kalman.matrices import Entries, Roots
from tridiag.kernels.kalman.moments import Moments, MomentsRoom
from tridiag.kernels.kalman.rest import Resting, RestRoom
from tridiag.kernels.kalman.series import bind_series, put
from tridiag.kernels.kalman.stretches import Stretches
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import piece
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function, load, pointer, set_word, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

LOG_TWO = math.log(2.0)

JOB = RecordAt(Filter)


def build(dtype: str, states: int, observed: int, kind: str):
    """The C function void run(job, helpers) for a dtype and models of one size."""
    zero, room = np.zeros((), dtype)[()], (Room if kind == K.SHARED else RestRoom)(states, observed)
    loops = Resting(room) if isinstance(room, RestRoom) else Loops(room)
    library, name = Library(f"filter_steps{states}_{observed}_{kind}"), f"tridiag_filter_{kind}"
    parts = parts_of(room)
    if kind == K.SHARED:
        before, after = both(library, parts, "covariances", loops.covariances), library.add("means", loops.means)
        prepare, work = common(room, parts, before), with_common(room, parts, after)
        return runner(zero, c_function(work, name, first=JOB), c_function(prepare, f"{name}_first", first=JOB))
    steps = both(library, parts, "filter", loops.filter, kind == K.MISSING)
    return runner(zero, c_function(alone(room, parts, steps, kind), name, first=JOB))


def both(library: Library, parts: Any, name: str, loop: Any, *more: Any) -> Any:
    """A loop with covariances as they stand; if that loses digits in any lane, again with their square roots."""
    plain = library.add(name, functools.partial(loop, Entries, *more))
    careful = library.add(f"{name}_by_roots", functools.partial(loop, Roots, *more))
    _, result = parts

    @compiled
    def run(zero, places):
        plain(zero, places)
        lost = False
        for lane in range(lanes_of(zero, ())):
            lost = lost or result(zero, places[1], LOSS, lane) > 0
        if lost:
            careful(zero, places)

    return run


def parts_of(room: Room) -> Any:
    """What points a worker at series, and what reads a row of its results."""
    result_at, binding_size = room.result, room.bind(1) - room.bind(0)

    @compiled
    def bind(zero, job, worker, first):
        bind_series(job, address_of(worker), binding_size, first, lanes_of(zero, ()))

    @compiled
    def result(zero, worker, row, lane):
        return types.float64(load(address_of(worker) + result_at + row * LINE + lane * bytes_of_real(zero, ()), zero))

    return bind, result


def build_moments(dtype: str, states: int, observed: int, kind: str, smooth: bool = False):
    """The same of the states of all steps, filtered or smoothed; series do not share covariances, which all want."""
    zero, room, name = np.zeros((), dtype)[()], MomentsRoom(states, observed), "smoother" if smooth else "moments"
    loops, library = Moments(room), Library(f"{name}_steps{states}_{observed}_{kind}")
    loop = loops.smoothed if smooth else loops.filtered
    parts = parts_of(room)
    work = alone(room, parts, both(library, parts, name, loop, kind == K.MISSING), kind, room.kept if smooth else 0)
    return runner(zero, c_function(work, f"tridiag_{name}_{kind}", first=JOB))


def build_smoother(dtype: str, states: int, observed: int, kind: str):
    """The same of the states given all observations."""
    return build_moments(dtype, states, observed, kind, smooth=True)


def build_stretch(dtype: str, states: int, observed: int, kind: str):
    """The same of what all steps make of the state before them; it tells where digits were lost, and goes on."""
    zero, room = np.zeros((), dtype)[()], Room(states, observed)
    library, name = Library(f"stretch_steps{states}_{observed}_{kind}"), f"tridiag_stretch_{kind}"
    steps = library.add("stretch", functools.partial(Stretches(room).stretch, kind == K.MISSING))
    return runner(zero, c_function(alone(room, parts_of(room), steps, kind), name, first=JOB))


def build_gradient(dtype: str, states: int, observed: int, kind: str):
    """The C function void run(job, helpers) of the derivatives of log-likelihoods, for models constant in time."""
    zero, room = np.zeros((), dtype)[()], GradientRoom(states, observed)
    loops, library = Gradient(room), Library(f"gradient_steps{states}_{observed}_{kind}")
    name, parts = f"tridiag_gradient_{kind}", parts_of(room)
    if kind == K.SHARED:
        before = library.add("in_common", loops.in_common)
        after = library.add("means", loops.means)
        careful = library.add("gradient_by_roots", functools.partial(loops.gradient, Roots, False))
        prepare, work = common_gradient(room, parts, before), gradients_with_common(room, parts[0], after, careful)
        return runner(zero, c_function(work, name, first=JOB), c_function(prepare, f"{name}_first", first=JOB))
    steps = both(library, parts, "gradient", loops.gradient, kind == K.MISSING)
    work = gradients(room, parts[0], steps, room.kept)
    return runner(zero, c_function(work, name, first=JOB))


def gradients(room: GradientRoom, bind: Any, steps: Any, kept: int) -> Any:
    """The derivatives of every series; ``kept`` lines of each step are remembered for the way back."""
    allocate, give_back = piece(room.layout)

    @compiled
    def work(job, zero):
        worker, lanes = allocate(job.steps * kept * LINE), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            bind(zero, job, worker, item * lanes)
            steps(zero, (job, worker, types.int64(0)))
        give_back(worker)

    return work


def common_gradient(room: GradientRoom, parts: Any, covariances: Any) -> Any:
    """What all series have in common, to memory of the job; without memory there is no task.

    Before it a word: not 0 where digits were lost. Then every series goes its own way, and nothing is in common.
    """
    bind, result = parts
    (allocate, give_back), record, count = piece(room.layout), room.record, room.entries_of_all

    @compiled
    def prepare(job, zero):
        worker = allocate(types.int64(0))
        memory = fresh(LINE + job.steps * record * bytes_of_real(zero, ()))
        job.owned = memory
        if address_of(worker) == 0 or memory == 0:
            job.task = 0
        else:
            bind(zero, job, worker, 0)
            covariances(zero, (job, worker, memory + LINE))
            lost = result(zero, worker, LOSS, 0) > 0
            set_word(memory, 1 if lost else 0)
            if lost:
                for e in range(count):
                    pointer(job.of_covariances, zero)[e] = 0
        if address_of(worker) != 0:
            give_back(worker)

    return prepare


def gradients_with_common(room: GradientRoom, bind: Any, means: Any, careful: Any) -> Any:
    """The derivatives of every series, from what they have in common or not."""
    (allocate, give_back), kept = piece(room.layout), max(room.kept, room.kept_of_means)

    @compiled
    def work(job, zero):
        worker, lanes, memory = (
            allocate(job.steps * kept * LINE),
            lanes_of(zero, ()),
            job.owned,
        )
        if address_of(worker) == 0:
            return
        for item in items(job):
            bind(zero, job, worker, item * lanes)
            if word(memory) != 0:
                careful(zero, (job, worker, types.int64(0)))
            else:
                means(zero, (job, worker, memory + LINE))
        give_back(worker)

    return work


def alone(room: Room, parts: Any, steps: Any, kind: str, kept: int = 0) -> Any:
    """Series by series; ``kept`` lines of each step are remembered for the way back."""
    bind, result = parts
    (allocate, give_back), observed, counts = piece(room.layout), room.observed, kind == K.MISSING

    @compiled
    def work(job, zero):
        worker, lanes = allocate(job.steps * kept * LINE), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            bind(zero, job, worker, item * lanes)
            steps(zero, (job, worker))
            for lane in range(lanes):
                count = result(zero, worker, COUNT, lane) if counts else types.float64(job.steps * observed)
                logarithm = math.log(result(zero, worker, MANTISSA, lane))
                logarithm += result(zero, worker, EXPONENT, lane) * LOG_TWO + count * LOG_TWO_PI
                put(zero, job, item * lanes + lane, -0.5 * (result(zero, worker, QUADRATIC, lane) + logarithm))
        give_back(worker)

    return work


def common(room: Room, parts: Any, covariances: Any) -> Any:
    """What all series have in common, to memory of the job; without memory there is no task."""
    bind, result = parts
    (allocate, give_back), record, observed = piece(room.layout), room.record, room.observed

    @compiled
    def prepare(job, zero):
        n, worker = job.steps, allocate(types.int64(0))
        memory = fresh(LINE + n * record * bytes_of_real(zero, ()))
        job.owned = memory
        if address_of(worker) == 0 or memory == 0:
            job.task = 0
        else:
            bind(zero, job, worker, 0)
            covariances(zero, (job, worker, memory + LINE))
            logarithm = math.log(result(zero, worker, MANTISSA, 0)) + result(zero, worker, EXPONENT, 0) * LOG_TWO
            logarithm += result(zero, worker, QUADRATIC, 0) + n * observed * LOG_TWO_PI
            pointer(memory, types.float64(0))[0] = logarithm
        if address_of(worker) != 0:
            give_back(worker)

    return prepare


def with_common(room: Room, parts: Any, means: Any) -> Any:
    """The rest of every series."""
    bind, result = parts
    allocate, give_back = piece(room.layout)

    @compiled
    def work(job, zero):
        worker, lanes, memory = allocate(types.int64(0)), lanes_of(zero, ()), job.owned
        if address_of(worker) == 0:
            return
        logarithm = pointer(memory, types.float64(0))[0]
        for item in items(job):
            bind(zero, job, worker, item * lanes)
            means(zero, (job, worker, memory + LINE))
            for lane in range(lanes):
                put(zero, job, item * lanes + lane, -0.5 * (result(zero, worker, QUADRATIC, lane) + logarithm))
        give_back(worker)

    return work
