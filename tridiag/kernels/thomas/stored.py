"""Factors that are made with copies of their matrices, in one piece of memory: its storage."""

from __future__ import annotations

from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.runtime.workspace import aligned
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_word
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.copies import COPY_LINES, COPY_LINES_PAST_CACHES

AT_ONCE = 8192  # unknowns whose bands are copied before they are eliminated: in one go, and few enough for the caches
FACTORS, CERTIFICATES, STATUS = 3, 4, 5  # places in a storage, behind the copies


@compiled
def begin_storage(job):
    """Point a job at what its storage holds; no matrix has met a zero pivot yet."""
    if job.flags & J.STORED == 0:
        return
    storage = aligned(job.factors)
    job.storage = storage
    job.factors = storage + job.places[FACTORS]
    job.certificates = storage + job.places[CERTIFICATES]
    job.status = storage + job.places[STATUS]
    for at in range(0, job.bytes_of_status, 8):  # of whole cache lines
        set_word(job.status + at, 0)


@compiled
def copy_shares(zero, job, first, last, shares):
    """Some of so many shares of the copies: about what their matrices have of a, b and c, which is in cache then."""
    if job.flags & J.STORED == 0:
        return
    for k in range(3):
        size = job.sizes[k]
        lines = size // LINE
        low, high = first * lines // shares * LINE, last * lines // shares * LINE
        if last == shares:
            high = size
        words = job.pointers[k] + low, job.storage + job.places[k] + low, high - low
        if job.large:
            COPY_LINES_PAST_CACHES(zero, words)
        else:
            COPY_LINES(zero, words)
