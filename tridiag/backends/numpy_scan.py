"""Recurrences, logarithms and Kalman filters step by step in NumPy: the reference (`tridiag.algorithms`)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.algorithms import kalman_rows, logsumexp, recurrence
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.problems.state_space import Model, StateSpace


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """2 flops a coefficient and value."""
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        recurrence.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        logsumexp.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


logcumsumexp = log_linear_recurrence


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 3 k**3 multiplications a step and series, and k**2 where series share their covariances.

    Where that would lose digits, all series again with square roots of covariances.
    """
    return kalman_with(functools.partial(kalman_rows.run, ops), verb, y, model, form)


def kalman_with(rest: kalman_rows.Run, verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """By ``rest``, but for steps whose states are unknown."""
    with np.errstate(all="ignore"):
        run = functools.partial(kalman_rows.from_diffuse, ops, rest=rest) if form.diffuse else rest
        found = run(verb, y, model, form)
    if verb == kalman_rows.LIKELIHOOD:
        return np.array(found) if form.each_step else found
    return *(np.require(x, requirements=("C", "W")) for x in found[:-1]), found[-1]
