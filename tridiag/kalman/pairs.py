"""States together with those of the step before, given all that was observed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.calls.torch_compile import compiling, graph
from tridiag.kalman.intercepts import wider
from tridiag.kalman.larger import Given, given
from tridiag.libraries.arrays import module_of, place_of

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
    if compiling(y):
        return graph().outside(lag_one_smoother, y, **model)
    with place_of((y, *model.values())):
        return smoothed_in_pairs(given("lag_one_smoother", y, model))


def smoothed_in_pairs(arguments: Given) -> LagOneSmoothed:
    """States that carry those of the step before with them, from all arguments of a smoother."""
    call = arguments.call
    ops, own, k = module_of(call.library).Operations, call.model, call.form.states
    last = ops.concatenate((ops.identity(ops.full((k, k), 0, own.F)), ops.full((k, k), 0, own.F)), 1)
    last = ops.broadcast(last, (*own.F.shape[:-2], k, 2 * k))
    mean, cov, likelihood = arguments.smoothed(
        F=ops.concatenate((wider(ops, own.F, 0, k), last), own.F.ndim - 2),
        H=wider(ops, own.H, 0, k),
        Q=wider(ops, own.Q, k, k),
        R=own.R,
        P0=wider(ops, own.P0, k, k),
    )
    later = ops.slice(cov, slice(min(1, call.form.n), call.form.n), cov.ndim - 3)
    parts = mean[..., :k], cov[..., :k, :k], later[..., :k, k:], likelihood
    return LagOneSmoothed(*(module_of(call.library).cast(x, call.dtype) for x in parts))
