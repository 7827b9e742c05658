"""The derivatives of log-likelihoods by a loop over rows in more precision, with which kernels are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import kalman_rows
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.state_space import PARAMETERS, Model, StateSpace, derivatives_of

RANKS = dict(zip(PARAMETERS, (4, 4, 4, 4, 2, 3), strict=True))  # of series along one axis


def lifted(y: np.ndarray, parameters: dict[str, np.ndarray]) -> tuple[np.ndarray, Model, StateSpace]:
    """With a batch axis and one of time in every parameter, as backends take them."""
    model = Model(*(parameters[name][(None,) * (rank - parameters[name].ndim)] for name, rank in RANKS.items()))
    count, n, p = y.shape
    return y, model, StateSpace(n, p, model.F.shape[-1], (count,), (count,), None, True)


def derivatives(y: np.ndarray, model: Model, form: StateSpace, dtype: Any = float) -> list[np.ndarray]:
    """Of each series, in y and in its model; those with a vague start, which all take square roots, by themselves."""
    results, vague = [np.empty(shape, dtype) for shape in derivatives_of(form, True)], is_vague(model, form)
    for group in (np.flatnonzero(~vague), np.flatnonzero(vague)):
        if not len(group):
            continue
        several = np.append(group, group[0])  # one series would share its covariances
        own = Model(*(np.broadcast_to(x, (*form.batch, *x.shape[1:]))[several].astype(dtype) for x in model))
        same = form._replace(batch=several.shape, cov_batch=several.shape)
        with np.errstate(all="ignore"):  # as backends that are written in NumPy do
            of_y, of = kalman_rows.gradient(ops, y[several].astype(dtype), own, same, np.ones(several.shape, dtype))
        of_model = np.concatenate([x.reshape(len(several), -1) for x in of], 1)
        for x, found in zip(results, (of_y, of_model), strict=True):
            x[group] = found[:-1]
    return results


def is_vague(model: Model, form: StateSpace) -> np.ndarray:
    """Which series begin with a variance so large that they lose digits by it."""
    return np.broadcast_to(model.P0.max((-1, -2)) > 1e3, form.batch)
