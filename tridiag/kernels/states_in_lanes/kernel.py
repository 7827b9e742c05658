"""Kalman filters of many states and many series: groups of series, one in each lane, and threads over groups.

Matrices lie in memory, an entry of all series of a group side by side; about 3 k**3 / 2 multiplications a step, as many
at a time as a vector has lanes. Series that may lose digits are computed again, each by itself and from square roots,
by the kernel for one series after another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from tridiag.algorithms.kalman_filter import LOG_TWO_PI
from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.kalman import Filter
from tridiag.kernels.jobs.words.symbols import PREFIX
from tridiag.kernels.kalman.kernel import LOG_TWO
from tridiag.kernels.kalman.series import bind_series, put
from tridiag.kernels.many_states.filter import ASKING, PREDICTED, UPDATED
from tridiag.kernels.many_states.hessenberg import pays
from tridiag.kernels.many_states.rest import is_constant
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, pointer, set_word, word
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.states_in_lanes.hessenberg import change_basis
from tridiag.kernels.states_in_lanes.rest import observe_at_rest, predict_at_rest, rests
from tridiag.kernels.states_in_lanes.steps import (
    load_motion,
    load_start,
    look_at,
    lost,
    observe,
    predict,
    table,
    update_covariance,
    write_state,
)
from tridiag.kernels.states_in_lanes.workspace import (
    COUNT,
    EXPONENT,
    JOB_OF_ONE,
    LOSS,
    MANTISSA,
    QUADRATIC,
    allocate_group,
    give_back,
)

JOB, job_at = RecordAt(Filter), at(Filter)


@compiled
def sum_of(zero, worker, row, lane):
    return types.float64(pointer(worker.sums + row * LINE, zero)[lane])


@compiled
def deviance(zero, worker, lane):
    """-2 times the log-likelihood of a series."""
    logarithm = math.log(sum_of(zero, worker, MANTISSA, lane)) + sum_of(zero, worker, EXPONENT, lane) * LOG_TWO
    return sum_of(zero, worker, QUADRATIC, lane) + logarithm + sum_of(zero, worker, COUNT, lane) * LOG_TWO_PI


@compiled
def filtered(zero, job, worker):
    """All steps of a group."""
    (predicted_mean, predicted_cov), (updated_mean, updated_cov) = PREDICTED, UPDATED
    wanted, constant = job.pointers[updated_cov] != 0, is_constant(job)
    complete, resting = 0, False
    load_start(zero, job, worker)
    if pays(job):
        change_basis(zero, job, worker)
    for t in range(job.steps):
        if stopping_at(t, ASKING):
            break
        if resting:
            resting = look_at(zero, (job, worker, t)) != 0
            if resting:
                observe_at_rest(zero, job, worker)
                predict_at_rest(zero, job, worker)
                continue
            complete = 0
        rest = constant and rests(zero, job, worker, t, complete)
        write_state(zero, job, worker, t, predicted_mean, predicted_cov)
        complete = complete + 1 if observe(zero, job, worker, t, 0) else 0
        resting = rest and complete > 0
        if wanted:
            update_covariance(zero, job, worker)
            lost(zero, (worker, worker.before, job.states))
            write_state(zero, job, worker, t, updated_mean, updated_cov)
        if resting:
            predict_at_rest(zero, job, worker)
        elif t + 1 < job.steps:
            load_motion(zero, job, worker, t)
            predict(zero, job, worker, wanted)


@compiled
def job_of_one(zero, job, worker, lane, index):
    """The address of a job of a series of a group, which begins at once."""
    place = worker.alone
    for k in range(JOB_OF_ONE // 8):
        set_word(place + 8 * k, 0)
    one = job_at(place)
    one.items, one.series, one.small = 1, 1, job.small
    one.steps, one.states, one.observed = job.steps, job.states, job.observed
    if job.result != 0:
        one.result = job.result + index * bytes_of_real(zero, ())
    for operand in range(K.OPERANDS):
        if job.pointers[operand] != 0:
            one.pointers[operand] = word(table(zero, worker, operand) + 8 * lane)
        set_word(place + 8 * (K.TABLE + operand), word(address_of(job) + 8 * (K.TABLE + operand)))
    return place


def group_work(steps: Any, alone: str, back: int = 0, slope: int = 0) -> Any:
    """What a thread does: ``steps`` of each group, and those again, by the kernel ``alone``, that may lose digits.

    ``back`` and ``slope``: as `allocate_group` takes them.
    """
    again = types.ExternalFunction(PREFIX + alone, types.void(types.int64, types.int64))

    @compiled
    def work(job, zero):
        worker, lanes = allocate_group(zero, job, back, slope), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            first = item * lanes
            bind_series(job, worker.bindings, 8 * lanes, first, lanes)
            steps(zero, job, worker)
            for lane in range(min(lanes, job.series - first)):
                found = deviance(zero, worker, lane)
                if job.result != 0:
                    put(zero, job, first + lane, -0.5 * found)
                if found != found or sum_of(zero, worker, LOSS, lane) > 0:
                    again(job_of_one(zero, job, worker, lane, first + lane), 0)
        give_back(worker)

    return work


def build(dtype: str, alone: str):
    """The C function void run(job, helpers) of log-likelihoods, and of all states where they are wanted."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, c_function(group_work(filtered, alone), "tridiag_filter_groups", first=JOB))
