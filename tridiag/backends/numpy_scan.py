"""Recurrences, logarithms and Kalman filters step by step in NumPy: the reference (`tridiag.algorithms`)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.algorithms import complex_sums, kalman_rows, logsumexp, recurrence
from tridiag.algorithms import selective_scan as selective
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.problems.state_space import LIKELIHOOD, Model, StateSpace


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """2 flops a coefficient and value; sums of integers by `numpy.cumsum`, few long sequences of them by doubling."""
    if x.dtype.kind in "iu" and not form.matrices and len(coefficients) == 1 and (coefficients[0] == 1).all():
        return sums(x, init, form, out)
    if x.dtype.kind in "iu" and recurrence.is_doubled(coefficients, form):
        return written(recurrence.doubled(ops, coefficients[0], x, init, form), out)
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        recurrence.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


def sums(x: Any, init: Rows, form: Recurrence, out: Any) -> Any:
    """y[t] = y[t-1] + x[t] of integers."""
    turned = np.flip(np.broadcast_to(x, form.shape), form.axis) if form.backward else np.broadcast_to(x, form.shape)
    y = np.cumsum(turned, form.axis, x.dtype)
    for before in init:
        y += before
    y = np.flip(y, form.axis) if form.backward else y
    return written(y, out)


def written(y: Any, out: Any) -> Any:
    """y, in ``out`` if that is given."""
    if out is None:
        return np.ascontiguousarray(y)
    out[...] = y
    return out


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        logsumexp.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if x.dtype.kind != "c":
        return log_linear_recurrence(coefficients, x, init, form, out)
    with np.errstate(all="ignore"):
        y = complex_sums.logcumsumexp(ops, linear_recurrence, x, form)
    if out is not None:
        out[...] = y
    return y if out is None else out


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """The states of about sqrt(n) steps are stored at a time."""
    with np.errstate(all="ignore"):
        return selective.run(ops, linear_recurrence, operands, form, out)


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 3 k**3 multiplications a step and series, and k**2 where series share their covariances.

    Where that would lose digits, all series again with square roots of covariances.
    """
    return kalman_with(functools.partial(kalman_rows.run, ops), verb, y, model, form)


def kalman_with(
    rest: kalman_rows.Run, verb: str, y: Any, model: Model, form: StateSpace, begin: Any = None, smooth: Any = None
) -> Any:
    """By ``rest``, but where states are unknown at first: as `kalman_rows.from_diffuse`."""
    with np.errstate(all="ignore"):
        unknown = functools.partial(kalman_rows.from_diffuse, ops, rest=rest, begin=begin, smooth=smooth)
        run = unknown if form.diffuse else rest
        found = run(verb, y, model, form)
    if verb == LIKELIHOOD:
        return np.array(found) if form.each_step else found
    return *(np.require(x, requirements=("C", "W")) for x in found[:-1]), found[-1]
