"""The job of a step of a Kalman filter of which some states are unknown; pure."""

from __future__ import annotations

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.words.unknown import Unknown


def make_job(series: int, states: int, observed: int, unknown: int, most: int, dtype: np.dtype[np.generic]) -> Job:
    words = Unknown.filled(items=1, series=series, states=states, observed=observed, unknown=unknown, most=most)
    words.flags.writeable = False
    return Job(("filter_unknown", dtype.name), words, 0, series * states**3)
