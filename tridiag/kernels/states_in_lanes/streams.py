"""One step of filters of many states and many series, for `tridiag.kalman.predict`: a series in each lane."""

from __future__ import annotations

import numpy as np

from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.kernel import JOB
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.kernel import group_work
from tridiag.kernels.states_in_lanes.matrices import library
from tridiag.kernels.states_in_lanes.steps import load_motion, load_start, predict, write_state
from tridiag.kernels.states_in_lanes.workspace import LOSS


def doubt(code: Code, worker: At, size: Value) -> None:
    """As `tridiag.kernels.many_states.streams.keeps_digits`, with what independent states give in ``spread``."""
    share, at = code.eps ** (1 / 3), worker.sums + LOSS * LINE

    def one(i: Value) -> None:
        variance, least = code.load(worker.cov + i * (size + 1) * LINE), code.load(worker.spread + i * LINE) * share
        kept = (variance >= least) & (variance >= 0.0) & (variance < float("inf"))
        code.store(at, code.where(kept, code.load(at), code.one()))

    each(code, 0, size, one)


doubt_predicted = library.add("doubt", doubt)


@compiled
def predicted(zero, job, worker):
    """The next step of a group."""
    load_start(zero, job, worker)
    load_motion(zero, job, worker, 0)
    predict(zero, job, worker, True)
    doubt_predicted(zero, (worker, job.states))
    write_state(zero, job, worker, 0, K.MEAN, K.COV)


def build_predict(dtype: str, alone: str):
    """The C function void run(job, helpers) that carries states to the next step."""
    zero = np.zeros((), dtype)[()]
    return runner(zero, c_function(group_work(predicted, alone), "tridiag_predict_groups", first=JOB))
