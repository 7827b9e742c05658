"""The noise that has moved the states, and that of the observations, given all that was observed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.state_space import Call, is_readable, to_numpy
from tridiag.calls.torch_compile import compiling, graph
from tridiag.kalman.intercepts import wider
from tridiag.kalman.larger import Given, given, longer
from tridiag.kalman.structure import beside, block_diagonal
from tridiag.libraries.arrays import module_of, place_of

Array = Any


class DisturbanceSmoothed(NamedTuple):
    """What `disturbance_smoother` returns; a pytree under JAX. ``...`` are the batch axes."""

    state_disturbance: Array  # (..., n - 1, k): of w[t], once all of y is seen
    state_disturbance_cov: Array  # (..., n - 1, k, k)
    obs_disturbance: Array  # (..., n, p): of v[t]
    obs_disturbance_cov: Array  # (..., n, p, p)
    log_likelihood: Array  # (...)


def disturbance_smoother(y: Array, **model: Any) -> DisturbanceSmoothed:
    r"""Estimate, from all that was observed, the noise of every step: where a model was surprised.

    .. math:: x_{t+1} = F_t x_t + c_t + w_t, \qquad y_t = H_t x_t + d_t + v_t

    Parameters
    ----------
    y, **model
        As in `tridiag.kalman.smoother`.

    Returns
    -------
    DisturbanceSmoothed
        ``state_disturbance`` (..., n - 1, k) and ``state_disturbance_cov`` (..., n - 1, k, k), mean and covariance of
        w[t] given all of y, where w[n-1] moves nothing; ``obs_disturbance`` (..., n, p) and ``obs_disturbance_cov``
        (..., n, p, p), those of v[t], of missing values too; ``log_likelihood`` (...). Gradients are those of the
        smoother.

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.smoother`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> found = kalman.disturbance_smoother(np.array([[2.0], [np.nan], [5.0]]), **walk)
    >>> found.state_disturbance[:, 0].round(4), found.obs_disturbance[:, 0].round(4)
    (array([1.1429, 1.1429]), array([0.4286, 0.    , 1.1429]))

    Notes
    -----
    What S. J. Koopman's disturbance smoother finds (Biometrika 80, 1993; J. Durbin and S. J. Koopman, Time Series
    Analysis by State Space Methods, 2012, section 4.5), by a smoother of states that carry the noise of their step with
    them: k states, and one for each variance in Q and R that is not 0 in every step, or cannot be read; models of up
    to 32 such states are compiled. No disturbance is a difference of states, so that each is right to rounding errors
    of its own standard deviation; a series whose innovation covariance is not positive definite is NaN.
    """
    if compiling(y):
        return graph().outside(disturbance_smoother, y, **model)
    with place_of((y, *model.values())):
        return smoothed_with_noise(given("disturbance_smoother", y, model))


def smoothed_with_noise(arguments: Given) -> DisturbanceSmoothed:
    """States that carry the noise of their step with them, from all arguments of a smoother."""
    call = arguments.call
    module, own, form = module_of(call.library), call.model, call.form
    ops, k, n = module.Operations, form.states, form.n
    moved, seen = noises(call)
    Q, R = (chosen(ops, x, rows, -2, -1) for x, rows in ((own.Q, moved), (own.R, seen)))
    more = len(moved) + len(seen)
    F = beside(ops, own.F, unit_columns(ops, own.F, k, moved), own=2)
    H = beside(ops, wider(ops, own.H, 0, len(moved)), unit_columns(ops, own.H, form.observed, seen), own=2)
    noise = block_diagonal(ops, later(ops, Q, n, n - 1), later(ops, R, n, n))
    start = block_diagonal(ops, first(ops, Q, n > 1), first(ops, R, n > 0))
    found = arguments.smoothed(
        F=wider(ops, F, more, len(seen)),
        H=H,
        Q=block_diagonal(ops, ops.full((k, k), 0, own.Q), noise),
        R=ops.zero(own.R),
        P0=block_diagonal(ops, own.P0, start),
    )
    parts = []
    for rows, size, low, steps in ((moved, k, k, max(n - 1, 0)), (seen, form.observed, k + len(moved), n)):
        own_part = slice(low, low + len(rows))
        place = np.full(size, len(rows))  # zeros lie behind what was found
        place[rows] = range(len(rows))
        mean, cov = found.mean[..., own_part], found.cov[..., own_part, own_part]
        if steps < n:
            mean, cov = (ops.slice(x, slice(0, steps), len(form.batch)) for x in (mean, cov))
        parts += [chosen(ops, longer(ops, mean, 1), place, -1), chosen(ops, wider(ops, cov, 1, 1), place, -2, -1)]
    return DisturbanceSmoothed(*(module.cast(x, call.dtype) for x in (*parts, found.log_likelihood)))


def noises(call: Call) -> tuple[Any, Any]:
    """Which noise of states, and of observations, the states carry with them."""
    return noisy(call, call.model.Q), noisy(call, call.model.R)


def noisy(call: Call, cov: Array) -> Any:
    """Which rows of a covariance are not 0 in every step; all, where that cannot be read, or a gradient is wanted."""
    size = cov.shape[-1]
    if getattr(cov, "requires_grad", False) or not is_readable(call.library, call.problem.device, cov):
        return np.arange(size)
    return np.flatnonzero((to_numpy(cov) != 0).reshape(-1, size).any(0))


def chosen(ops: Any, x: Array, rows: Any, *axes: int) -> Array:
    """Entries along some of the last axes, in this order."""
    for axis in axes:
        along = x.ndim + axis
        x = ops.take(x, rows, along) if len(rows) else ops.slice(x, slice(0, 0), along)
    return x


def unit_columns(ops: Any, like: Array, size: int, rows: Any) -> Array:
    """Of the identity matrix."""
    return ops.converted(ops.placed(np.eye(size)[:, rows], like), like)


def first(ops: Any, cov: Array, is_read: bool) -> Array:
    """The covariance of the first step."""
    return cov[..., 0, :, :] if is_read else ops.full((*cov.shape[:-3], *cov.shape[-2:]), 0, cov)


def later(ops: Any, cov: Array, n: int, count: int) -> Array:
    """Of every step that of the next one, of which so many are read; 0 after these."""
    axis = cov.ndim - 3
    if cov.shape[axis] != n or n < 2:
        return cov
    rest = ops.full((*cov.shape[:axis], 1 + n - count, *cov.shape[-2:]), 0, cov)
    return ops.concatenate((ops.slice(cov, slice(1, count), axis), rest), axis)
