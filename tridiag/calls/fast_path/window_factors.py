"""Factors of windows of one long matrix, and calls with them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag.algorithms.elimination import DECAYED
from tridiag.backends.numba_thomas import bound_factor, bound_factored_solve, checked
from tridiag.calls.fast_path.windows import WindowFactors
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.windows import Windows, all_windows, make_windows_job
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.table import call_of

Array = np.ndarray[Any, Any]
SAMPLED = 64  # rows by which one tells that couplings do not decay, before anything is eliminated


def factored(bands: list[Array]) -> WindowFactors | None:
    """Those of the diagonals of one matrix; None where couplings do not decay within the overlaps."""
    n, dtype = bands[1].size, bands[1].dtype
    if any([x.dtype != dtype or x.strides != contiguous(x.shape, dtype.itemsize) for x in bands]):
        return None
    bands = [x.reshape(-1) for x in bands]
    needed = rows_of_decay(*bands)
    for windows in all_windows(n, dtype):
        found = eliminated(windows, bands) if needed <= windows.overlap else None
        if found is not None:
            return found
    return None


def rows_of_decay(a: Array, b: Array, c: Array) -> float:
    """About how many rows it takes a coupling to decay, by some of the rows."""
    some = slice(1, -1, max(1, b.size // SAMPLED))
    with np.errstate(all="ignore"):
        rates = np.log(np.abs(b[some] / np.array([a[some], c[some]]))).mean(1)
    slowest = float(rates.min())
    return -math.log(DECAYED * np.finfo(b.dtype).eps) / slowest if slowest > 0 else math.inf


def eliminated(windows: Windows, bands: list[Array]) -> WindowFactors | None:
    """The factors of windows; None where some have no certificate, or depend on what lies around them."""
    dtype = bands[1].dtype
    factor, depend, _ = calls(windows, dtype)
    shape, strides = windows.form.shape, windows.strides(dtype.itemsize)
    views = [np.ndarray(shape, dtype, x, 0, strides) for x in bands]
    factors = factor(*views, None)
    if (factors.kinds != J.CERTIFIED).any():
        return None
    outside, found = np.zeros(shape, dtype), np.empty(shape, dtype)
    outside[1:, 0], outside[:-1, -1] = views[0][1:, 0], views[2][:-1, -1]
    depend(*views, None, outside, found, None, factors.tiles, factors.kinds)
    top, bottom, found = windows.overlap, windows.overlap + windows.step, np.abs(found)
    most = found[:, top:bottom].max(), found[0, :top].max(), found[-1, bottom:].max()
    decayed = max(most) <= DECAYED * np.finfo(dtype).eps
    return WindowFactors(windows, factors.tiles, factors.kinds) if decayed else None


@functools.lru_cache(256)
def calls(windows: Windows, dtype: np.dtype[Any]) -> tuple[Any, Callable[..., bool], Callable[..., bool]]:
    """How windows are factored, solved as systems of their own, and solved as the one that they are of."""
    form, strides = windows.form, windows.strides(dtype.itemsize)
    matrix, steps = ((x, x, x, None) for x in (form.shape, strides))
    lies = contiguous(form.shape, dtype.itemsize)
    alone = (*matrix, form.shape, form.shape), (*steps, lies, lies)
    factor = bound_factor(form, (*matrix, None, None), (*steps, None, None), dtype)
    depend = bound_factored_solve(form, *alone, (dtype, dtype))
    return factor, depend, checked(form, lambda: call_of(make_windows_job, windows, dtype).run, False)


def bound_solve(windows: Windows, dtype: np.dtype[Any]) -> Callable[..., bool]:
    """The solve of a contiguous right side as a function of a, b, c, where, d, x, None, and the tiles and kinds."""
    return calls(windows, dtype)[2]
