"""Whether matrices and right sides may be cut into windows of their rows, by what is known of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.fast_path.facts import Array, Facts, is_contiguous
from tridiag.kernels.jobs.windows import Windows, all_windows
from tridiag.problems.forms import Form

SOLVED_BEFORE = 8  # right sides of a matrix before its windows are factored, which takes the time of 4 to 14


class WindowFactors(NamedTuple):
    """The factors of the windows of a matrix."""

    windows: Windows
    tiles: Array
    kinds: Array


def may_have(eliminated: Any) -> bool:
    """Whether one matrix, as that of `tridiag.calls.fast_path.factored.Eliminated`, may have them, by its facts."""
    (*bands, where), options, kind = eliminated.matrix, eliminated.options, eliminated.kind
    shape, alike = kind.shapes[1], len(set(kind.shapes[:3])) == 1 and all([hasattr(x, "dtype") for x in bands])
    plain = where is None and not options["periodic"] and options["pivoting"] is not True and kind.axis_name is None
    alone = math.prod(shape) == kind.rows and plain and alike and eliminated.free and kind.library != "jax"
    return alone and next(all_windows(kind.rows, np.dtype(kind.dtype)), None) is not None


def suits(kind: Any, form: Form, d: Facts, x: Facts) -> bool:
    """Whether a right side, and what takes its solution, are to be cut as the matrix is, of which ``kind`` tells."""
    dtype = np.dtype(kind.dtype)
    alike = math.prod(form.shape) == kind.rows and d[:2] == (dtype, form.shape) and x[0] == dtype
    return alike and not form.transpose and is_contiguous(d) and is_contiguous(x)
