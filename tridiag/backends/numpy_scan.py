"""Recurrences, logarithms and Kalman filters step by step in NumPy: the reference (`tridiag.algorithms`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import complex_sums, kalman_filter, kalman_smoother, logsumexp, recurrence
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.recurrence import Rows
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.problems.state_space import Model, StateSpace


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """2 flops a coefficient and value; sums of integers by `numpy.cumsum`."""
    if x.dtype.kind in "iu" and not form.matrices and len(coefficients) == 1 and (coefficients[0] == 1).all():
        return sums(x, init, form, out)
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


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 3 k**3 multiplications a step and series, and k**2 where series share their covariances.

    Where that would lose digits, all series again with square roots of covariances.
    """
    with np.errstate(all="ignore"):
        model, y = kalman_filter.front(ops, model, y)
        kept = ~np.isnan(y) if form.missing else None
        result, doubtful = by_entries(verb, model, y, kept, form)
        return by_roots(verb, model, y, kept, form) if doubtful else result


def by_entries(verb: str, model: Model, y: Any, kept: Any, form: StateSpace) -> tuple[Any, bool]:
    """The result from covariances as they stand, and whether digits may be lost."""
    steps, deviance, doubtful = run_forward(model, y, kept, form, kalman_filter.Entries)
    if doubtful or verb == "kalman.log_likelihood":
        return -deviance / 2, doubtful
    smoothed = run_backward(model, y, kept, form, steps) if verb == "kalman.smoother" else [None] * form.n
    for (predicted, updated, _), state in zip(steps, smoothed, strict=True):
        covs = predicted.cov, updated.cov, *([state.cov] if state else [])
        doubtful |= bool(np.any(kalman_filter.lost(ops, *covs) > 0))
    if verb == "kalman.filter":
        return collected(steps, deviance, form, kalman_filter.Entries), doubtful
    return (*stacked(smoothed, form), -deviance / 2), doubtful


def by_roots(verb: str, model: Model, y: Any, kept: Any, form: StateSpace) -> Any:
    """The result from square roots of covariances."""
    covs = kalman_filter.Roots
    steps, deviance, _ = run_forward(model, y, kept, form, covs)
    if verb == "kalman.log_likelihood":
        return -deviance / 2
    if verb == "kalman.filter":
        return collected(steps, deviance, form, covs)
    smoothed = [steps[-1].updated]
    for t in reversed(range(form.n - 1)):
        F, Q = (ops.row(x, t, 0) for x in (model.F, model.Q))
        smoothed.append(kalman_smoother.smooth(ops, F, Q, steps[t].updated, steps[t + 1].predicted.mean, smoothed[-1]))
    return *stacked([whole(covs, state) for state in smoothed[::-1]], form), -deviance / 2


def collected(steps: list[Any], deviance: Any, form: StateSpace, covs: kalman_filter.Form) -> tuple[Any, ...]:
    """What a filter returns."""
    updated, predicted = ([whole(covs, getattr(step, name)) for step in steps] for name in ("updated", "predicted"))
    return *stacked(updated, form), *stacked(predicted, form), -deviance / 2


def run_forward(
    model: Model, y: Any, kept: Any, form: StateSpace, covs: kalman_filter.Form
) -> tuple[list[Any], Any, bool]:
    """The states of every step, -2 times the log-likelihood, and whether digits may be lost."""
    steps, deviance, carried = [], np.zeros(form.batch, y.dtype), kalman_filter.begin(ops, form, y, kept, covs)
    for t in range(form.n):
        carried, step, more = kalman_filter.forward(ops, model, y, kept, t, carried, covs)
        steps.append(step)
        deviance = deviance + more
    return steps, deviance, kalman_filter.doubtful(ops, carried, deviance)


def run_backward(model: Model, y: Any, kept: Any, form: StateSpace, steps: list[Any]) -> list[Estimate]:
    """The smoothed state of every step."""
    ahead, smoothed = kalman_filter.blank(ops, form, y, kept), []
    for t in reversed(range(form.n)):
        state, ahead = kalman_smoother.backward(ops, model, y, kept, t, steps[t][:2], ahead)
        smoothed.append(state)
    return smoothed[::-1]


def whole(covs: kalman_filter.Form, state: Estimate) -> Estimate:
    return Estimate(state.mean, covs.whole(ops, state.cov))


def stacked(states: Any, form: StateSpace) -> tuple[Any, ...]:
    """Means and covariances of all steps, batch axes first."""
    means, covs = (np.stack(parts) for parts in zip(*states, strict=True))
    return tuple(np.ascontiguousarray(kalman_filter.back(ops, x, form.batch)) for x in (means, covs))
