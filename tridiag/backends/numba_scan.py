"""Recurrences in compiled loops with threads of their own; linear ones take 2 flops a coefficient and value.

The kernels are in `tridiag.kernels.recurrence`; which one runs depends on how x and the result lie in memory. Sequences
side by side, sequences that are contiguous, and long ones of first order are computed in the lanes of vectors; complex
ones, and those that lie in any other way, one by one. Every value comes from those before it, as in a plain loop.

Those of logarithms are in `tridiag.kernels.logscan`: exponentials and logarithms by polynomials, in the lanes of vectors,
arrays of any strides read where they lie; few long sequences are cut into chunks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tridiag import log_layout
from tridiag.arrays import library_of
from tridiag.backends.numba_thomas import extents, view
from tridiag.kernels.cache import Kernel, obtain
from tridiag.kernels.call import check, function
from tridiag.layout import granted
from tridiag.recurrence_layout import Job, make_job
from tridiag.recursion import Rows
from tridiag.shapes import Recurrence


def kernel_name(dtype: str, order: int) -> str:
    return f"scan{order}_{dtype}"


@functools.cache
def compiled(dtype: str, order: int) -> Kernel:
    """The compiled kernel of an order for a dtype."""

    def build() -> Any:
        from tridiag.kernels import recurrence

        return recurrence.build(dtype, order)

    return obtain(kernel_name(dtype, order), build)


@functools.lru_cache(1024)
def make_call(
    form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], order: int, workers: int
) -> Callable[..., int]:
    """The kernel for such arrays as a function of the result, x, the coefficients and the values before."""
    job: Job = make_job(form, order, shapes, strides, dtype, workers)
    return function(compiled(dtype.name, order).address, job.words, job.helpers, math.prod(form.shape))


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    library = library_of(x)
    if library == "torch":
        y = x.new_empty(form.shape) if out is None else out
        linear_recurrence(tuple(map(view, coefficients)), view(x), tuple(map(view, init)), form, view(y))
        return y
    y = np.empty(form.shape, x.dtype) if out is None else out
    operands = y, x, *(a.astype(x.dtype, copy=False) for a in coefficients), *init
    call = make_call(form, *extents(operands), x.dtype, len(coefficients), granted(form))
    check(call(*operands))
    return y


def log_kernel_name(dtype: str) -> str:
    return f"log_scan_{dtype}"


@functools.cache
def compiled_logarithms(dtype: str) -> Kernel:
    """The compiled kernel of recurrences of logarithms for a dtype."""

    def build() -> Any:
        from tridiag.kernels import logscan

        return logscan.build(dtype)

    return obtain(log_kernel_name(dtype), build)


@functools.lru_cache(1024)
def make_log_call(
    form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int
) -> Callable[..., int]:
    """The kernel for such arrays as a function of log_a, the value before, x and the result; None is no array."""
    job = log_layout.make_job(form, shapes, strides, dtype, workers)
    return function(compiled_logarithms(dtype.name).address, job.words, job.helpers, math.prod(form.shape))


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    library = library_of(x)
    if library == "torch":
        y = x.new_empty(form.shape) if out is None else out
        log_linear_recurrence(tuple(map(view, coefficients)), view(x), tuple(map(view, init)), form, view(y))
        return y
    y = np.empty(form.shape, x.dtype) if out is None else out
    operands = *(coefficients or (None,)), *(init or (None,)), x, y
    check(make_log_call(form, *extents(operands), x.dtype, granted(form))(*operands))
    return y


logcumsumexp = log_linear_recurrence
