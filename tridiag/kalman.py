"""Kalman filters: linear Gaussian state-space models, many series at once.

x[t+1] = F[t] x[t] + N(0, Q[t]),  y[t] = H[t] x[t] + N(0, R[t]),  x[0] = N(m0, P0) before y[0] is seen.

    filter            the states, from what was observed up to each step; `Filtered`
    smoother          the states, from all that was observed; `Smoothed`
    log_likelihood    that of the observations
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import KALMAN, Backend
from tridiag.calls import fast_path, split
from tridiag.calls.state_space import Call, check_values, prepare
from tridiag.libraries.arrays import module_of
from tridiag.problems.state_space import PARAMETERS
from tridiag.selection.choose import choose

Array = Any
FILTER, SMOOTHER, LOG_LIKELIHOOD = KALMAN

__all__ = ["Filtered", "Smoothed", "filter", "log_likelihood", "smoother"]


class Filtered(NamedTuple):
    """What `filter` returns; a pytree under JAX. ``...`` are the batch axes."""

    mean: Array  # (..., n, k): of x[t], once y[t] is seen
    cov: Array  # (..., n, k, k)
    predicted_mean: Array  # the same before y[t] is seen
    predicted_cov: Array
    log_likelihood: Array  # (...)


class Smoothed(NamedTuple):
    """What `smoother` returns; a pytree under JAX."""

    mean: Array  # (..., n, k): of x[t], once all of y is seen
    cov: Array  # (..., n, k, k)
    log_likelihood: Array  # (...)


def filter(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array,
    P0: Array,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Filtered:
    r"""Estimate the states of many series from what was observed up to each step.

    .. math:: x_{t+1} = F_t x_t + \mathcal N(0, Q_t), \qquad y_t = H_t x_t + \mathcal N(0, R_t)

    Parameters
    ----------
    y : array
        The observations, (..., n, p): n steps of p values; NaN is a missing value, one of a step or all. float32 and
        float64; float16 and bfloat16 compute in float32; integers promote as in the library of the arrays.
    F, H, Q, R : array
        One matrix for all steps of all series, (k, k), (p, k), (k, k), (p, p), or (..., time, rows, columns), where
        time has length n or 1 and ``...`` broadcasts against the batch axes of ``y``. A model for each of s series
        needs its time axis: (s, 1, k, k). Q and R may be singular, and 0. ``F[n-1]``, ``Q[n-1]`` are never read.
    m0, P0 : array
        Mean and covariance of x[0] before y[0] is seen, (..., k) and (..., k, k).
    method : str
        "sequential": one step after another. "parallel": logarithmic depth, for JAX arrays, by an associative scan
        (see the notes). "auto": what the backend chosen does, which is one step after another.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    axis_name : str or tuple of str
        Inside `jax.shard_map`: the axis of its mesh, or the axes, along which the steps of series follow each other.
        Every device passes its own steps of ``y`` and of what changes with time, and gets the states of these; m0, P0
        and log-likelihoods are those of the whole series, the same on all devices.

    Returns
    -------
    Filtered
        ``mean`` (..., n, k) and ``cov`` (..., n, k, k) of x[t] given y[0] to y[t]; ``predicted_mean`` and
        ``predicted_cov`` given y[0] to y[t-1]; ``log_likelihood`` (...).

    Raises
    ------
    ValueError, TypeError, BackendError
        Shapes, dtypes, libraries or names do not fit; a covariance is not symmetric or not positive semidefinite, by
        more than rounding. Inside a JAX trace, where values cannot be read, one that is not symmetric or has a negative
        variance makes its series NaN; what any other indefinite one gives is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> kalman.filter(np.array([[2.0], [np.nan], [5.0]]), **walk).mean[:, 0]
    array([1.        , 1.        , 3.85714286])

    Notes
    -----
    A series whose innovation covariance, H P H' + R, is not positive definite in some step is NaN from there on, its
    log-likelihood too; no other series is. Where series share a model and nothing is missing, their covariances are the
    same, and are computed once.

    Where variances differ so much that covariances as they stand would lose digits, as after a diffuse P0, all is
    computed again from square roots of covariances (L D L'), which takes about three times as long. P0 = inf gives NaN.

    The parallel filter is that of Sarkka and Garcia-Fernandez (Temporal parallelization of Bayesian smoothers, IEEE
    Transactions on Automatic Control 66, 2021) with elements that are finite for exact observations and singular Q as
    well. Its states are compared with the steps between them; where they have lost too many digits, as after a very
    diffuse P0 with hardly any noise, all are computed again one after another. An innovation covariance that would be
    0 but for rounding may be found positive definite by one method and not by the other. It takes several times the
    work and a compilation of some seconds: it pays on GPUs, for long series, not on the CPU.
    """
    return run(FILTER, y, (F, H, Q, R, m0, P0), method, backend, axis_name)


def smoother(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array,
    P0: Array,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Smoothed:
    r"""Estimate the states of many series from all that was observed.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, method, backend, axis_name
        As in `tridiag.kalman.filter`.

    Returns
    -------
    Smoothed
        ``mean`` (..., n, k) and ``cov`` (..., n, k, k) of x[t] given all of y; ``log_likelihood`` (...).

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.filter`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> kalman.smoother(np.array([[2.0], [np.nan], [5.0]]), **walk).mean[:, 0].round(4)
    array([1.5714, 2.7143, 3.8571])

    Notes
    -----
    The fixed-interval smoother of Bryson and Frazier, which inverts no covariance of states: they may be singular.
    """
    return run(SMOOTHER, y, (F, H, Q, R, m0, P0), method, backend, axis_name)


def log_likelihood(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array,
    P0: Array,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""The logarithm of the probability density of many series under their models.

    .. math:: \log p(y) = -\tfrac12 \sum_t \left( p_t \log 2 \pi + \log \det S_t + v_t^T S_t^{-1} v_t \right)

    with :math:`v_t` the observations that are there less their prediction and :math:`S_t` the covariance of that.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, method, backend, axis_name
        As in `tridiag.kalman.filter`.

    Returns
    -------
    array
        One number for each series, over the batch axes. Under JAX it has gradients in every argument, in reverse mode
        (``jax.grad``, ``jax.hessian``): one pass backwards. A gradient in m0 or P0 that is smaller than others by more
        than 1/eps, as after a diffuse P0, has no digits.

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.filter`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> round(float(kalman.log_likelihood(np.array([[2.0], [np.nan], [5.0]]), **walk)), 6)
    -6.096546

    Notes
    -----
    JAX arrays that are sharded along time over CPU devices are not gathered, here and in `filter` and `smoother`: every
    device filters its own steps, from a state that all find together. So it is inside `jax.shard_map` with
    ``axis_name``.
    """
    return run(LOG_LIKELIHOOD, y, (F, H, Q, R, m0, P0), method, backend, axis_name)


def run(
    verb: str, y: Any, parameters: tuple[Any, ...], method: str, backend: str, axis_name: str | tuple[str, ...] | None
) -> Any:
    """Prepare the arguments, choose a backend, run it, give the result the caller's dtype."""
    if axis_name is None and type(y) is np.ndarray:
        found = fast_path.kalman(verb, [y, *parameters], method, backend)
        if found is not None:
            return result_of(verb, found)
    call = prepare(verb, y, parameters, method)
    entry = choose(call.problem, backend).backend
    call = call._replace(form=check_values(call, dict(zip(("y", *PARAMETERS), (y, *parameters), strict=True))))
    if axis_name is not None:
        call = split.series(call, (y, *parameters), axis_name)
    module = module_of(call.library)
    if call.form.n == 0 or 0 in call.form.batch:
        return nothing(verb, call)
    found = computing(verb, call, entry)(verb, call.y, call.model, call.form)
    result = [module.cast(x, call.dtype) for x in (found if isinstance(found, tuple) else (found,))]
    if axis_name is not None:
        result[-1] = split.on_all(call.form, axis_name, result[-1])
    return result[0] if verb == LOG_LIKELIHOOD else result_of(verb, result)


def computing(verb: str, call: Call, entry: Backend) -> Any:
    """What computes a verb: a backend, or what lets each device of JAX have some steps."""
    function = entry.module().kalman
    if call.form.cut and entry.name not in split.PARTS[verb]:
        from tridiag.derivatives import jax_kalman

        return functools.partial(jax_kalman.gathered, function)
    if verb == LOG_LIKELIHOOD or call.library != "jax" or entry.name != "jax_scan":
        return function
    from tridiag.derivatives import jax_kalman

    return jax_kalman.filtered


def result_of(verb: str, found: Any) -> Any:
    """What a backend has found, as the caller wants it."""
    if verb == LOG_LIKELIHOOD:
        return found
    return Filtered(*found) if verb == FILTER else Smoothed(*found)


def nothing(verb: str, call: Call) -> Any:
    """The result where there are no series, or series without steps."""
    ops, cast, form = module_of(call.library).Operations, module_of(call.library).cast, call.form

    def zeros(*shape: int) -> Array:
        return cast(ops.full((*form.batch, *shape), 0, call.y), call.dtype)

    means, covs = zeros(form.n, form.states), zeros(form.n, form.states, form.states)
    if verb == LOG_LIKELIHOOD:
        return zeros()
    return Filtered(means, covs, means, covs, zeros()) if verb == FILTER else Smoothed(means, covs, zeros())
