"""One step of filters of many states, for `tridiag.kalman.predict`; `tridiag.kalman.update` is a filter of one step."""

from __future__ import annotations

import math

import numpy as np

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.many_states.kernel import series_by_series
from tridiag.kernels.many_states.roots import load_noise, load_start_root, predict_root, whole
from tridiag.kernels.many_states.rows import Numbers, Rows, add_product_of_squares
from tridiag.kernels.many_states.steps import (
    load_motion,
    load_start,
    number,
    predict_covariance,
    predict_mean,
    write_state,
)
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.vector import LINE


@compiled
def keeps_digits(zero, job, worker, share):
    """Whether no variance of the next step is below its share of what independent states would give it."""
    k, row, size = job.states, worker.row, bytes_of_real(zero, ())
    before, turned = Numbers(worker.variances_before, 0, size), Rows(worker.F_turned, row)
    moved, noise = Rows(worker.moved, row), Rows(worker.Q_diagonal, 0)
    add_product_of_squares(zero, moved, before, turned, noise, 1, k, row // LINE, 0)
    for i in range(k):
        variance = number(zero, worker.cov + i * row, i)
        if not max(0.0, share * number(zero, worker.moved, i)) <= variance < math.inf:
            return False
    return True


def build_predict(dtype: str):
    """The C function void run(job, helpers) that carries states to the next step."""
    eps = float(np.finfo(dtype).eps)
    share = eps ** (1 / 3)

    @compiled
    def do(zero, job, worker, series):
        load_start(zero, job, worker)
        F = load_motion(zero, job, worker, 0)
        predict_mean(zero, job, worker)
        predict_covariance(zero, job, worker, F)
        if not keeps_digits(zero, job, worker, share):
            load_start(zero, job, worker)
            load_start_root(zero, job, worker, eps)
            load_noise(zero, job, worker, 0, eps)
            predict_mean(zero, job, worker)
            predict_root(zero, job, worker)
            whole(zero, job, worker)
        write_state(zero, job, worker, 0, K.MEAN, K.COV)

    return series_by_series("tridiag_predict_series", dtype, do, 0, 0)
