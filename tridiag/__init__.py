"""Batched tridiagonal systems and linear recurrences from NumPy, JAX and PyTorch arrays, with gradients.

Row i is ``a[i] x[i-1] + b[i] x[i] + c[i] x[i+1] = d[i]``; ``a[0]`` and ``c[n-1]`` are never read.
"""

from tridiag import conventions, kalman
from tridiag._version import __version__
from tridiag.alignment import smith_waterman
from tridiag.errors import BackendError, SingularSystemError
from tridiag.factorization import Factorization, factor
from tridiag.recurrences import linear_recurrence, log_linear_recurrence, logcumsumexp, matrix_recurrence, scan
from tridiag.report import backends, explain
from tridiag.systems import matmul, slogdet, solve, solve_block
from tridiag.tuning import tune

__all__ = [
    "BackendError",
    "Factorization",
    "SingularSystemError",
    "__version__",
    "backends",
    "conventions",
    "explain",
    "factor",
    "kalman",
    "linear_recurrence",
    "log_linear_recurrence",
    "logcumsumexp",
    "matmul",
    "matrix_recurrence",
    "scan",
    "slogdet",
    "smith_waterman",
    "solve",
    "solve_block",
    "tune",
]
