"""The job of a Kalman filter.

The operands, in the order of their pointers: y and the model, and what is made for every series. An address of 0 is
that of nothing.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

Y, F, H, Q, R, M0, P0 = range(7)
INPUTS = 7
OF_Y, OF_MODEL = 7, 8  # the derivatives of a log-likelihood in y, and in all entries of the parameters in turn
MEAN, COV, PREDICTED_MEAN, PREDICTED_COV = range(7, 11)  # of another kernel: the states of all steps
OPERANDS = 11


class Filter(Job):
    """Behind it, in bytes: for each operand its stride along time; for each batch axis its length, and all strides."""

    pointers = Words(OPERANDS)
    result = Word()  # for each series its log-likelihood
    of_covariances = Word()  # of all series of a shared model: what covariances alone contribute to OF_MODEL of each
    steps, series, axes = Word(), Word(), Word()  # how many of each


TABLE = Filter.words
COMPLETE, MISSING, SHARED = "complete", "missing", "shared"  # nothing is missing; the same, and one model for all
