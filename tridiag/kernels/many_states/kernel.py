"""Kalman filters of many states: one series after another, and threads over series.

A step costs about 3 k**3 / 2 multiplications, as many at a time as a vector has lanes. Where series share their model
and nothing is missing, what depends on covariances alone is computed once, before; the rest for vectors of series.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.kalman import Filter
from tridiag.kernels.kalman.series import bind_series, put
from tridiag.kernels.many_states import records, shared_gradient, workspace
from tridiag.kernels.many_states.common import allocate_common, common_of
from tridiag.kernels.many_states.filter import filtered, filtered_by_roots
from tridiag.kernels.many_states.gradient import differentiated, differentiated_by_roots
from tridiag.kernels.many_states.hessenberg import change_basis, pays
from tridiag.kernels.many_states.records import VECTORS, allocate_means, means_of_series
from tridiag.kernels.many_states.shared_gradient import (
    allocate_common_slopes,
    allocate_slopes,
    common_slopes_of,
    slopes_of_series,
)
from tridiag.kernels.many_states.smoother import smoothed, smoothed_by_roots
from tridiag.kernels.many_states.steps import forget_model, put_number
from tridiag.kernels.many_states.workspace import allocate_states
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of

JOB = RecordAt(Filter)
give_back_states, give_back_means, give_back_slopes = workspace.give_back, records.give_back, shared_gradient.give_back


def series_by_series(name: str, dtype: str, do: Any, keep: int, slopes: int):
    """The C function void run(job, helpers) that calls ``do`` for each series; the rest: as of `allocate_states`."""
    zero = np.zeros((), dtype)[()]

    @compiled
    def work(job, zero):
        worker = allocate_states(zero, job, keep, slopes)
        if address_of(worker) == 0:
            return
        for series in items(job):
            bind_series(job, worker.addresses.bindings, 8, series, 1)
            do(zero, job, worker, series)
        give_back_states(worker)

    return runner(zero, c_function(work, name, first=JOB))


def build(dtype: str):
    """The C function void run(job, helpers) of log-likelihoods, and of all states where they are wanted."""
    eps = float(np.finfo(dtype).eps)
    steps, by_roots = filtered(eps), filtered_by_roots(eps)

    @compiled
    def do(zero, job, worker, series):
        deviance, _, loss = steps(zero, job, worker, 0, 0)
        if loss > 0:
            deviance, _ = by_roots(zero, job, worker, 0, 0)
        put(zero, job, series, -0.5 * deviance)

    return series_by_series("tridiag_filter_series", dtype, do, 0, 0)


def build_shared(dtype: str):
    """The same of log-likelihoods where series share their model."""
    eps, zero = float(np.finfo(dtype).eps), np.zeros((), dtype)[()]
    steps, by_roots = filtered(eps), filtered_by_roots(eps)

    @compiled
    def common_steps(zero, job, worker, common):
        """The records, in another basis of the states if that pays and loses no digits, and the logarithms of all."""
        bind_series(job, worker.addresses.bindings, 8, 0, 1)
        common.moved = 0
        if pays(job):
            change_basis(zero, job, worker, common)
        _, logarithms, loss = steps(zero, job, worker, common.records, 0)
        if loss > 0:
            common.moved = 0
            bind_series(job, worker.addresses.bindings, 8, 0, 1)
            forget_model(worker)
            _, logarithms = by_roots(zero, job, worker, common.records, 0)
        put_number(zero, common.logarithms, 0, logarithms)

    @compiled
    def prepare(job, zero):
        """What series have in common, to memory of the job; or there is no task."""
        worker, common = allocate_states(zero, job, 0, 0), allocate_common(zero, job)
        job.owned = common.memory if address_of(common) != 0 else 0
        if address_of(worker) == 0 or job.owned == 0:
            job.task = 0
        else:
            common_steps(zero, job, worker, common)
        if address_of(worker) != 0:
            give_back_states(worker)

    @compiled
    def work(job, zero):
        worker, common, lanes = allocate_means(zero, job), common_of(job), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            first = item * VECTORS * lanes
            means_of_series(zero, job, worker, first, min(VECTORS, (job.series - first + lanes - 1) // lanes), common)
        give_back_means(worker)

    name = "tridiag_filter_many_shared"
    return runner(zero, c_function(work, name, first=JOB), c_function(prepare, f"{name}_first", first=JOB))


def build_smoother(dtype: str):
    """The same of the states given all observations."""
    eps = float(np.finfo(dtype).eps)
    steps, by_roots = smoothed(eps), smoothed_by_roots(eps)

    @compiled
    def do(zero, job, worker, series):
        deviance, loss = steps(zero, job, worker)
        if loss > 0:
            deviance = by_roots(zero, job, worker)
        put(zero, job, series, -0.5 * deviance)

    return series_by_series("tridiag_smoother_series", dtype, do, 1, 0)


def build_gradient(dtype: str):
    """The same of the derivatives of log-likelihoods, for models constant in time."""
    eps = float(np.finfo(dtype).eps)
    steps, by_roots = differentiated(eps), differentiated_by_roots(eps)

    @compiled
    def do(zero, job, worker, series):
        target = worker.bindings[K.OF_MODEL]
        if steps(zero, job, worker, target, 0) > 0:
            by_roots(zero, job, worker, target)

    return series_by_series("tridiag_gradient_series", dtype, do, 1, 1)


def build_shared_gradient(dtype: str):
    """The same of the derivatives where series share their model; where digits are lost, each goes its own way."""
    eps, zero = float(np.finfo(dtype).eps), np.zeros((), dtype)[()]
    in_common, by_roots = differentiated(eps, common=True), differentiated_by_roots(eps)

    @compiled
    def prepare(job, zero):
        worker, slopes = allocate_states(zero, job, 1, 1), allocate_common_slopes(zero, job)
        job.owned = slopes.memory if address_of(slopes) != 0 else 0
        if address_of(worker) == 0 or job.owned == 0:
            job.task = 0
        else:
            bind_series(job, worker.addresses.bindings, 8, 0, 1)
            slopes.lost = 1 if in_common(zero, job, worker, job.of_covariances, slopes.records) > 0 else 0
            if slopes.lost != 0:
                k, p = job.states, job.observed
                for e in range(3 * k * k + p * k + p * p + k):
                    put_number(zero, job.of_covariances, e, 0.0)
        if address_of(worker) != 0:
            give_back_states(worker)

    @compiled
    def together(job, zero):
        worker, lanes = allocate_slopes(zero, job), lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            first = item * VECTORS * lanes
            vectors = min(VECTORS, (job.series - first + lanes - 1) // lanes)
            slopes_of_series(zero, job, worker, first, vectors, common_slopes_of(job).records)
        give_back_slopes(worker)

    @compiled
    def apart(job, zero):
        worker, count = allocate_states(zero, job, 1, 1), VECTORS * lanes_of(zero, ())
        if address_of(worker) == 0:
            return
        for item in items(job):
            for series in range(item * count, min(job.series, (item + 1) * count)):
                bind_series(job, worker.addresses.bindings, 8, series, 1)
                by_roots(zero, job, worker, worker.bindings[K.OF_MODEL])
        give_back_states(worker)

    @compiled
    def work(job, zero):
        if common_slopes_of(job).lost == 0:
            together(job, zero)
        else:
            apart(job, zero)

    name = "tridiag_gradient_many_shared"
    return runner(zero, c_function(work, name, first=JOB), c_function(prepare, f"{name}_first", first=JOB))
