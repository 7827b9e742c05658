"""Recurrences of JAX arrays on CPU: each device computes the sequences that it has, or its rows of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from tridiag.algorithms.recurrence import Rows
from tridiag.problems.forms import Recurrence
from tridiag.xla import split_recurrences as split
from tridiag.xla.custom_call import call_matrices, calling_logarithms, calling_recurrence, shard_over_devices


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """The values, by custom calls of `numba_scan`."""
    order = len(coefficients)
    operands = [x, *(of_each_row(a.astype(x.dtype), form, order > 1) for a in coefficients), *init]
    return on_devices(calling_recurrence(order), rows_of(split.linear_recurrence, order), form, operands)


def matrix_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """Those of recurrences of matrices."""
    operands = [x, *(of_each_row(a.astype(x.dtype), form, True) for a in coefficients), *init]
    return on_devices(call_matrices, split.matrix_recurrence, form, operands)


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence) -> Any:
    """Those of recurrences of logarithms."""
    weighted = bool(coefficients)
    function, rows = calling_logarithms(weighted, bool(init)), rows_of(split.log_linear_recurrence, weighted)
    return on_devices(function, rows, form, [*coefficients, *init, x])


def on_devices(function: Callable[..., Any], parts: Callable[..., Any], form: Recurrence, operands: list[Any]) -> Any:
    """``function(form, *operands)``, or ``parts(form, cut, *operands)`` where a device has some rows of sequences."""
    if form.cut:
        return parts(split.whole_form(form), form.cut, *operands)
    return shard_over_devices(function, form, operands, None, split=parts)


def of_each_row(a: Any, form: Recurrence, moved: bool) -> Any:
    """A coefficient that may be constant on every device, and another one on each, where rows of it are moved."""
    if not (form.cut and form.transpose and moved):
        return a
    return jnp.broadcast_to(a, (*a.shape[: form.axis], form.n, *a.shape[form.axis + 1 :]))


@functools.cache
def rows_of(function: Callable[..., Any], known: Any) -> Callable[..., Any]:
    """A function of what is known of the operands, with that; one and the same at every call."""
    return functools.partial(function, known)
