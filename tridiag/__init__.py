"""Batched tridiagonal systems and linear recurrences from NumPy, JAX and PyTorch arrays, with gradients.

Row i is ``a[i] x[i-1] + b[i] x[i] + c[i] x[i+1] = d[i]``; ``a[0]`` and ``c[n-1]`` are never read.

    solve                    many tridiagonal systems
    factor                   matrices once, right sides later; a `Factorization`
    slogdet, matmul          determinants, products
    solve_block              block tridiagonal systems
    linear_recurrence        y[i] = a[i] y[i-1] + x[i], and of higher order
    matrix_recurrence        the same of small vectors
    log_linear_recurrence    the same of logarithms
    logcumsumexp             logarithms of cumulative sums
    selective_scan           recurrences of several states, and what is read from them
    smith_waterman           smooth local alignments
    scan                     `jax.lax.scan` over any axis
    kalman                   filters, smoothers, likelihoods: help(tridiag.kalman)
    parts                    systems whose rows lie in several places
    conventions, xarray      arguments as other libraries have them; labelled arrays

    explain, backends        which backend a call would use, and which there are
    tune                     measure this machine, for ``backend="auto"``

Errors are `SingularSystemError`, `BackendError`, ValueError and TypeError. Modules that are not named here are no
interface. On the command line: ``python -m tridiag``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tridiag._version import __version__
from tridiag.errors import BackendError, SingularSystemError
from tridiag.overview import backends

if TYPE_CHECKING:
    from tridiag import conventions, kalman, parts
    from tridiag.alignment import smith_waterman
    from tridiag.factorization import Factorization, factor
    from tridiag.recurrences import linear_recurrence, log_linear_recurrence, logcumsumexp, matrix_recurrence, scan
    from tridiag.report import explain
    from tridiag.selective import selective_scan
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
    "parts",
    "scan",
    "selective_scan",
    "slogdet",
    "smith_waterman",
    "solve",
    "solve_block",
    "tune",
]

# What is imported when it is first asked for, and the module that it is in; "": a module itself.
LATER = {
    "alignment": ("smith_waterman",),
    "factorization": ("Factorization", "factor"),
    "recurrences": ("linear_recurrence", "log_linear_recurrence", "logcumsumexp", "matrix_recurrence", "scan"),
    "report": ("explain",),
    "selective": ("selective_scan",),
    "systems": ("matmul", "slogdet", "solve", "solve_block"),
    "tuning": ("tune",),
    "": ("conventions", "kalman", "parts", "xarray"),
}


def __getattr__(name: str) -> Any:
    for module, names in LATER.items():
        if name in names:
            found = getattr(import_module(f"tridiag.{module}"), name) if module else import_module(f"tridiag.{name}")
            globals()[name] = found  # this function is called once for each name
            return found
    raise AttributeError(f"module 'tridiag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
