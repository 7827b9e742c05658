"""Whether solutions of tridiagonal systems are what `docs/accuracy.rst` promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from guarded.accuracy_bars import BAR, Matrix, acting, dominant, errors, judged
from guarded.accuracy_breeding import Systems
from guarded.judging import beyond_promise, ill_conditioned, too_large

from drawn import Array
from drawn.kinds_of_systems import certainly_singular
from drawn.levels import levelled

if TYPE_CHECKING:
    from drawn.systems import Call

INVERTED = 40  # rows of the systems whose conditions are computed; of others they are estimated, one by one


def judge(call: Call, kinds: Array, clean: Systems, x: Array, singular: Array | None, must: Array) -> Array:
    """Of each system its backward error over what is promised; inf where anything else is wrong."""
    matrix = Matrix(*(v.astype(call.right) for v in acting(clean, call.periodic, call.transpose)))
    lost, bad = np.isnan(x).any(1), (kinds == "not a number") | (kinds == "infinite")
    certain = certainly_singular(kinds, clean.keep, call.periodic)
    error = errors(matrix, x, call.right, call.promise, call.backend == "cupy_pcr") / BAR
    wide = kinds == "wide"
    of_some((error > 1) & ~bad & ~certain & ~wide, error, lambda k: excess(call, take(matrix, k), x[k], BAR * error[k]))
    if call.promise == "auto":
        of_some((error > 1) & wide, error, lambda k: excess(call, *levelled(take(matrix, k), x[k]), BAR * error[k]))
    else:  # elimination in the numbers as they are leaves their range
        error[wide] = 0
    if call.pivoting is False:  # the reciprocal of a subnormal number overflows, and so may the quotient of a row
        sizes, info = abs(np.array(matrix[:3])), np.finfo(call.dtype)
        some = ((sizes > 0) & (sizes < info.tiny)).any((0, 2))
        some |= (sizes[2] > info.max * sizes[1].astype(np.longdouble)).any(1)
        error[some & ~np.isfinite(error)] = 0
    error[bad | certain] = 0
    wrong = (must & np.isfinite(x).all(1)) | (~bad & ~lost & ((x != 0) & ~clean.keep).any(1))
    if call.promise is not False:
        wrong |= certain & ~np.isnan(x).any(1)
        if singular is not None:
            # elimination takes a zero for larger than NaN: only where there is none NaN may not be singular
            wrong |= (certain & ~singular) | (singular & bad & clean.keep.all(1))
            of_some(singular & ~lost & ~bad, wrong, lambda k: ~np.array([is_ill(call, matrix, i) for i in k]))
    return np.where(wrong, np.inf, error)


def of_some(which: Array, result: Array, function: Any) -> None:
    """Write what a function says of some systems, by their numbers."""
    if which.any():
        result[which] = function(np.flatnonzero(which))


def take(matrix: Matrix, which: Array) -> Matrix:
    return Matrix(*(v[which] for v in matrix))


def is_ill(call: Call, matrix: Matrix, k: int) -> bool:
    return ill_conditioned((matrix.below, matrix.diagonal, matrix.above), k, matrix.d.dtype, call.periodic)


def excess(call: Call, matrix: Matrix, x: Array, error: Array) -> Array:
    """Errors over what is promised for the conditions that matrices have."""
    if call.n <= INVERTED:
        return judged(matrix, x, error, call.right, call.promise).excess
    held = dominant(matrix, call.right) if call.promise is False else np.ones(len(x), bool)
    held[held] = [not excused(call, matrix, x, k, float(error[k])) for k in np.flatnonzero(held)]
    return np.where(held, error / BAR, 0)


def excused(call: Call, matrix: Matrix, x: Array, k: int, error: float) -> bool:
    """Whether one system is beyond what is promised; nothing is of periodic ones in bad condition."""
    if call.periodic:
        return is_ill(call, matrix, k)
    bands = matrix.below, matrix.diagonal, matrix.above
    large = not np.isfinite(x[k]).all() and too_large(bands, matrix.d, x, k, False)
    return large or beyond_promise(bands, matrix.d, x, k, error, False)
