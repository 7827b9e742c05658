"""Recurrences step by step in NumPy: the reference (`tridiag.recursion`, `tridiag.logsum`, `tridiag.filtering`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag import filtering, logsum, recursion
from tridiag.filtering import Estimate
from tridiag.libraries.numpy import Operations as ops
from tridiag.models import Model, StateSpace
from tridiag.recursion import Rows
from tridiag.shapes import Recurrence


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """2 flops a coefficient and value."""
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        recursion.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


matrix_recurrence = linear_recurrence  # the form tells what is a matrix


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    y = ops.empty(form.shape, x) if out is None else out
    with np.errstate(all="ignore"):
        logsum.run(ops, coefficients, x, init, form, lambda t, row: ops.store(y, t, form.axis, row))
    return y


logcumsumexp = log_linear_recurrence


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 3 k**3 multiplications a step and series, and k**2 where series share their covariances."""
    with np.errstate(all="ignore"):
        model, y = filtering.front(ops, model, y)
        kept = ~np.isnan(y) if form.missing else None
        steps, surprise = run_forward(model, y, kept, form)
        logarithm = -surprise / 2
        if verb == "kalman.log_likelihood":
            return logarithm
        if verb == "kalman.smoother":
            return *stacked(run_backward(model, y, kept, form, steps), form), logarithm
        predicted, updated = zip(*steps, strict=True)
        return *stacked(updated, form), *stacked(predicted, form), logarithm


def run_forward(model: Model, y: Any, kept: Any, form: StateSpace) -> tuple[list[Any], Any]:
    """The predicted and the updated state of every step, and -2 times the log-likelihood."""
    steps, surprise, state = [], np.zeros(form.batch, y.dtype), blank(form, y)
    for t in range(form.n):
        predicted, state, more = filtering.forward(ops, model, y, kept, t, state)
        steps.append((predicted, state))
        surprise = surprise + more
    return steps, surprise


def run_backward(model: Model, y: Any, kept: Any, form: StateSpace, steps: list[Any]) -> list[Estimate]:
    """The smoothed state of every step."""
    ahead, smoothed = blank(form, y), []
    for t in reversed(range(form.n)):
        state, ahead = filtering.backward(ops, model, y, kept, t, steps[t], ahead)
        smoothed.append(state)
    return smoothed[::-1]


def blank(form: StateSpace, y: Any) -> Estimate:
    k, cov_batch = form.states, form.batch if form.missing else form.cov_batch
    return Estimate(np.zeros((k, *form.batch), y.dtype), np.zeros((k, k, *cov_batch), y.dtype))


def stacked(states: Any, form: StateSpace) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    means, covs = (np.stack(parts) for parts in zip(*states, strict=True))
    return tuple(np.ascontiguousarray(filtering.back(ops, x, form.batch)) for x in (means, covs))
