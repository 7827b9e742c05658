"""Recurrences in compiled loops with threads of their own; linear ones take 2 flops a coefficient and value.

The kernels are in `tridiag.kernels.recurrence`; which one runs depends on how x and the result lie in memory. Sequences
side by side, sequences that are contiguous, and long ones of first order are computed in the lanes of vectors; complex
ones, and those that lie in any other way, one by one. Every value comes from those before it, as in a plain loop.

Those of logarithms are in `tridiag.kernels.logscan`: exponentials and logarithms by polynomials, in the lanes of
vectors, arrays of any strides read where they lie; few long sequences are cut into chunks.
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
from tridiag.kernels import filter_job as K
from tridiag.kernels import job as J
from tridiag.kernels.cache import Kernel, obtain
from tridiag.kernels.call import check, function
from tridiag.layout import LINE, WORTH_A_THREAD, granted, threads
from tridiag.models import Model, StateSpace
from tridiag.recurrence_layout import make_job
from tridiag.recursion import Rows
from tridiag.shapes import Recurrence, Shape


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
    job = make_job(form, order, shapes, strides, dtype, workers)
    return function(compiled(dtype.name, order).address, job.words, job.helpers, math.prod(form.shape))


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if library_of(x) == "jax":
        from tridiag.libraries import xla

        return xla.linear_recurrence(coefficients, x, init, form)
    return in_memory(run_linear, coefficients, x, init, form, out)


def run_linear(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    operands = y, x, *(a.astype(x.dtype, copy=False) for a in coefficients), *init
    call = make_call(form, *extents(operands), x.dtype, len(coefficients), granted(form))
    check(call(*operands))


def in_memory(
    run: Callable[..., None], coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None
) -> Any:
    """What ``run`` makes of NumPy arrays, or of the memory of torch tensors: ``out``, or a new result."""
    if library_of(x) == "torch":
        y = x.new_empty(form.shape) if out is None else out
        run(tuple(map(view, coefficients)), view(x), tuple(map(view, init)), form, view(y))
    else:
        y = np.empty(form.shape, x.dtype) if out is None else out
        run(coefficients, x, init, form, y)
    return y


def log_kernel_name(dtype: str) -> str:
    return f"logarithms_{dtype}"


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
    if library_of(x) == "jax":
        from tridiag.libraries import xla

        return xla.log_linear_recurrence(coefficients, x, init, form)
    return in_memory(run_logarithms, coefficients, x, init, form, out)


def run_logarithms(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    operands = *(coefficients or (None,)), *(init or (None,)), x, y
    check(make_log_call(form, *extents(operands), x.dtype, granted(form))(*operands))


logcumsumexp = log_linear_recurrence


# ------------------------------------------------------------------------------------------------- Kalman filters


@functools.cache
def compiled_filter(dtype: str, states: int, observed: int, kind: str) -> Kernel:
    """The compiled kernel for models of one size."""

    def build() -> Any:
        from tridiag.kernels import filter

        return filter.build(dtype, states, observed, kind)

    return obtain(f"filter{states}_{observed}_{kind}_{dtype}", build)


@functools.lru_cache(1024)
def make_filter(form: StateSpace, strides: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[..., int]:
    """The kernel for such a problem as a function of the addresses of all operands and the result."""
    series, lanes = math.prod(form.batch), LINE // dtype.itemsize
    shared = series > 1 and math.prod(form.cov_batch) == 1
    kind = K.MISSING if form.missing else K.SHARED if shared else K.COMPLETE
    words = [0] * K.WORDS
    words[J.ITEMS] = -(-series // lanes)
    words[K.STEPS], words[K.SERIES], words[K.STRIDES : K.STRIDES + len(strides)] = form.n, series, strides
    work = series * form.n * form.observed * form.states
    helpers = min(threads(), words[J.ITEMS]) - 1 if work >= WORTH_A_THREAD else 0
    kernel = compiled_filter(dtype.name, form.states, form.observed, kind)
    return function(kernel.address, words, helpers, work)


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """The log-likelihood: about 3 k**3 multiplications a step and series, k**2 where series share their covariances."""
    operands = [np.ascontiguousarray(x) for x in (y, *model)]
    series = math.prod(form.batch)
    table = np.empty((K.OPERANDS, series), np.int64)
    for row, x in zip(table, operands, strict=True):
        row[:] = addresses(x, form.batch)
    ranks = len(form.batch)
    strides = tuple(x.strides[ranks] if x.shape[ranks] > 1 else 0 for x in operands[: K.M0])
    result = np.empty(form.batch)
    check(make_filter(form, strides, y.dtype)(table, result))
    return result


def addresses(x: np.ndarray[Any, Any], batch: Shape) -> np.ndarray[Any, Any]:
    """For each series, where its part of a contiguous array begins."""
    own = x.shape[: len(batch)]
    size = x.itemsize * math.prod(x.shape[len(batch) :])
    offsets = np.arange(math.prod(own), dtype=np.int64).reshape(own) * size + x.ctypes.data
    return np.broadcast_to(offsets, batch).ravel()
