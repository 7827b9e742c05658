"""The job of a Kalman filter.

The operands, in the order of their pointers: y and the model, and what is made for every series. An address of 0 is
that of nothing.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Record, Word, Words

Y, F, H, Q, R, M0, P0 = range(7)
INPUTS = 7
OF_Y, OF_MODEL = 7, 8  # the derivatives of a log-likelihood in y, and in all entries of the parameters in turn
MEAN, COV, PREDICTED_MEAN, PREDICTED_COV = range(7, 11)  # of another kernel: the states of all steps
STRETCH = 7  # of another: what all steps make of the state before them
UNSEEN = 9  # of states that are unknown at first: directions of which nothing is observed
AHEAD = 11  # of the derivatives: what is known behind the last step already, of the state that is predicted there
OPERANDS = 12


class Filter(Job):
    """Behind it, in bytes: for each operand its stride along time; for each batch axis its length, and all strides."""

    pointers = Words(OPERANDS)
    result = Word()  # for each series its log-likelihood
    of_covariances = Word()  # of all series of a shared model: what covariances alone contribute to OF_MODEL of each
    steps, series, axes = Word(), Word(), Word()  # how many of each
    states, observed = Word(), Word()
    alike, unknown = Word(), Word()  # of each series: how many share its covariances, and columns that are unknown


WRITTEN_OUT = 8  # states, and values observed in a step: of larger models the size is a number of the job
TOGETHER = 4  # vectors of series of such a model, where they share it
COVARIANCES = Q, R, P0
LARGEST = 32  # rows of a covariance that `Expected` has room for


class Expected(Record):
    """What the values of a call are like, for `tridiag.kernels.kalman.guard`."""

    observations = Word()  # how many numbers y has
    missing = Word()  # whether any of them is NaN
    matrices, rows = Words(len(COVARIANCES)), Words(len(COVARIANCES))  # of each covariance: how many, and of what size
    unread = Words(len(COVARIANCES))  # of so many matrices the last one is never read; 0: all are
    checked = Words(len(COVARIANCES))  # whether they are to be symmetric and positive semidefinite
    scratch = Words(LARGEST**2)  # of whoever has the GIL: rows of a matrix, each of whole vectors
    factor = Word()  # likewise: of a row that is subtracted from another


TABLE = Filter.words
COMPLETE, MISSING, SHARED = "complete", "missing", "shared"  # nothing is missing; the same, and one model for all
