"""Recurrences of JAX arrays on CPU: each device computes the sequences that it has, or its rows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tridiag.algorithms.recurrence import Rows
from tridiag.problems.forms import Recurrence
from tridiag.xla import split_recurrences as split
from tridiag.xla.custom_call import call_matrices, calling_logarithms, calling_recurrence, shard_over_devices


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """The values, by custom calls of `numba_scan`."""
    coefficients, order = tuple(a.astype(x.dtype) for a in coefficients), len(coefficients)
    operands = [x, *coefficients, *init]
    return shard_over_devices(
        calling_recurrence(order), form, operands, None, split=rows_of(split.linear_recurrence, order)
    )


def matrix_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """Those of recurrences of matrices."""
    operands = [x, *(a.astype(x.dtype) for a in coefficients), *init]
    return shard_over_devices(call_matrices, form, operands, None, split=split.matrix_recurrence)


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """Those of recurrences of logarithms."""
    weighted = bool(coefficients)
    function, rows = calling_logarithms(weighted, bool(init)), rows_of(split.log_linear_recurrence, weighted)
    return shard_over_devices(function, form, [*coefficients, *init, x], None, split=rows)


@functools.cache
def rows_of(function: Callable[..., Any], known: Any) -> Callable[..., Any]:
    """A function of what is known of the operands, with that; one and the same at every call."""
    return functools.partial(function, known)
