"""The words of the job of a Kalman filter; those that any kernel has are as in `tridiag.kernels.jobs.words.systems`.

The addresses of the operands, from POINTERS on, in their order: y and the model, and what is made for every series. An
address of 0 is that of nothing.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words import systems as J

STEPS, SERIES, AXES = 2, 3, 4  # how many of each
POINTERS = J.POINTERS
TABLE = 42  # for each operand its stride along time; for each batch axis its length, and the strides of all; in bytes

Y, F, H, Q, R, M0, P0 = range(7)
INPUTS = 7
OF_Y, OF_MODEL = 7, 8  # the derivatives of a log-likelihood in y, and in all entries of the parameters in turn
MEAN, COV, PREDICTED_MEAN, PREDICTED_COV = range(7, 11)  # of another kernel: the states of all steps
OPERANDS = 11
RESULT = POINTERS + OPERANDS  # for each series its log-likelihood
OF_COVARIANCES = RESULT + 1  # of all series of a shared model: what covariances alone contribute to OF_MODEL of each

COMPLETE, MISSING, SHARED = "complete", "missing", "shared"  # nothing is missing; the same, and one model for all
