"""Derivatives of the log-likelihoods of Kalman filters of NumPy arrays, by kernels: of models constant in time."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.kernels.jobs.kalman import kind_of, make_job, workers_for
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import call_of
from tridiag.problems.state_space import Model, StateSpace, entries


def derivatives(y: Any, model: Model, form: StateSpace, in_y: bool) -> tuple[Any, Any]:
    """Of each log-likelihood, in its y where that is wanted, else None, and in its own parameters in turn."""
    operands = [np.ascontiguousarray(x) for x in (y, *model)]
    kind, count = kind_of(form, bool(form.missing)), entries(form)
    of_y = np.empty((*form.batch, form.n, form.observed), y.dtype) if in_y else None
    of_model = np.empty((*form.batch, count), y.dtype)
    of_covariances = np.empty(count, y.dtype) if kind == K.SHARED else None
    shapes = tuple([() if x is None else x.shape for x in (*operands, of_y, of_model)])
    call = call_of(make_job, "filter_gradient", kind, form, shapes, y.dtype, workers_for(kind, form))
    nothing = [None] * (K.OPERANDS - len(shapes))
    check(call.run(*operands, of_y, of_model, *nothing, None, of_covariances))
    return of_y, of_model if of_covariances is None else of_model + of_covariances
