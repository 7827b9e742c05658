"""States together with those of the step before, given all that was observed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.calls.state_space import Intercepts, named_states, parameters_of, prepare
from tridiag.kalman.filters import smoother
from tridiag.kalman.intercepts import wider
from tridiag.libraries.arrays import module_of
from tridiag.problems.state_space import INTERCEPTS, PARAMETERS, SMOOTHER

Array = Any


class LagOneSmoothed(NamedTuple):
    """What `lag_one_smoother` returns; a pytree under JAX."""

    mean: Array  # (..., n, k): of x[t], once all of y is seen
    cov: Array  # (..., n, k, k)
    lag_one_cov: Array  # (..., n - 1, k, k): of x[t+1] with x[t]
    log_likelihood: Array  # (...)


def lag_one_smoother(y: Array, **model: Any) -> LagOneSmoothed:
    r"""Estimate states from all that was observed, and how each depends on the one before it, as EM needs it.

    .. math:: \operatorname{Cov}(x_{t+1}, x_t \mid y)

    Parameters
    ----------
    y, **model
        As in `tridiag.kalman.smoother`.

    Returns
    -------
    LagOneSmoothed
        ``mean`` (..., n, k), ``cov`` (..., n, k, k), ``lag_one_cov`` (..., n - 1, k, k) and ``log_likelihood`` (...).

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.smoother`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> kalman.lag_one_smoother(np.array([[2.0], [np.nan], [5.0]]), **walk).lag_one_cov[:, 0, 0].round(4)
    array([0.2857, 0.4286])

    Notes
    -----
    A smoother of states that carry those of the step before with them: 2 k states, of which up to 32 are compiled.
    """
    options = {name: x for name, x in model.items() if name not in (*PARAMETERS, *INTERCEPTS, "diffuse")}
    diffuse = model.get("diffuse")
    intercepts = Intercepts(*(model.get(name) for name in INTERCEPTS))
    parameters = parameters_of("lag_one_smoother", model)
    call = prepare(SMOOTHER, y, tuple(parameters.values()), "auto", intercepts)
    ops, given, k = module_of(call.library).Operations, call.model, call.form.states
    last = ops.concatenate((identity_like(ops, given.F, k), ops.full((k, k), 0, given.F)), 1)
    last = ops.broadcast(last, (*given.F.shape[:-2], k, 2 * k))
    double = {
        "F": ops.concatenate((wider(ops, given.F, 0, k), last), given.F.ndim - 2),
        "H": wider(ops, given.H, 0, k),
        "Q": wider(ops, given.Q, k, k),
        "R": given.R,
        "m0": ops.concatenate((given.m0, ops.zero(given.m0)), given.m0.ndim - 1),
        "P0": wider(ops, given.P0, k, k),
        "diffuse": None if diffuse is None else named_states(diffuse, k),
        "obs_intercept": call.intercepts.obs,
    }
    if (added := call.intercepts.state) is not None:
        double["state_intercept"] = ops.concatenate((added, ops.zero(added)), added.ndim - 1)
    mean, cov, likelihood = smoother(call.y, **double, **options)
    parts = mean[..., :k], cov[..., :k, :k], cov[..., 1:, :k, k:], likelihood
    return LagOneSmoothed(*(module_of(call.library).cast(x, call.dtype) for x in parts))


def identity_like(ops: Any, x: Array, k: int) -> Array:
    return ops.identity(ops.full((k, k), 0, x))
