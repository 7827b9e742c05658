"""The job of a step of a Kalman filter of which some states are unknown; pure."""

from __future__ import annotations

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import ITEMS_EACH, WORTH_A_THREAD
from tridiag.kernels.jobs.words.unknown import Unknown, room


def items_of(series: int, states: int, workers: int) -> int:
    """How many parts there are of all series, for threads."""
    return min(series, ITEMS_EACH * workers) if series * states**3 >= WORTH_A_THREAD else 1


def make_job(
    items: int,
    series: int,
    states: int,
    observed: int,
    unknown: int,
    most: int,
    dtype: np.dtype[np.generic],
    workers: int,
) -> Job:
    share, scratch = -(-series // items), room(states, observed, unknown, most) * dtype.itemsize
    sizes = {"series": series, "states": states, "observed": observed, "unknown": unknown, "most": most}
    words = Unknown.filled(items=items, share=share, room=scratch, **sizes)
    words.flags.writeable = False
    return Job(("filter_unknown", dtype.name), words, min(workers, items) - 1, series * states**3)
