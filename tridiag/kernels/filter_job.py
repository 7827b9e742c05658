"""The words of the job of a Kalman filter; those that any kernel has are as in `tridiag.kernels.job`."""

from __future__ import annotations

from tridiag.kernels import job as J

STEPS, SERIES, STRIDES = 2, 3, 4  # the strides along time, in bytes, of y, F, H, Q and R
ADDRESSES, RESULT = J.POINTERS, J.POINTERS + 1  # for each operand and series an address; for each series a float64
WORDS = 42

Y, F, H, Q, R, M0, P0 = range(7)
OPERANDS = 7
COMPLETE, MISSING, SHARED = "complete", "missing", "shared"  # nothing is missing; the same, and one model for all
