"""The verbs on whole series: filter, smoother and log-likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tridiag.kalman.execute import Filtered, Options, Smoothed, by_steps, run
from tridiag.problems.state_space import FILTER, LIKELIHOOD, SMOOTHER

Array = Any


def filter(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array | None = None,
    P0: Array | None = None,
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | bool | None = None,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Filtered:
    r"""Estimate the states of many series from what was observed up to each step.

    .. math:: x_{t+1} = F_t x_t + c_t + \mathcal N(0, Q_t), \qquad y_t = H_t x_t + d_t + \mathcal N(0, R_t)

    Parameters
    ----------
    y : array
        The observations, (..., n, p): n steps of p values; NaN is a missing value, one of a step or all. float32 and
        float64; float16 and bfloat16 compute in float32; integers promote as in the library of the arrays.
    F, H, Q, R : array
        One matrix for all steps of all series, (k, k), (p, k), (k, k), (p, p), or (..., time, rows, columns), where
        time has length n or 1 and ``...`` broadcasts against the batch axes of ``y``. A model for each of s series
        needs its time axis: (s, 1, k, k). Q and R may be singular, and 0, and are finite: what tells nothing is NaN in
        ``y``. ``F[n-1]``, ``Q[n-1]`` are never read.
    m0, P0 : array
        Mean and covariance of x[0] before y[0] is seen, (..., k) and (..., k, k). A state whose variance is infinite is
        unknown at first. Where the values of P0 cannot be read, as those of an argument of `jax.jit` or on a GPU,
        ``diffuse`` has to name it: without that its series are NaN. None, where all states are unknown: m0 is 0.
    state_intercept, obs_intercept : array
        Known vectors that are added in every step, c and d: (k,) and (p,), or (..., time, k) and (..., time, p) as the
        matrices above. ``state_intercept[n-1]`` is never read. None: 0.
    diffuse : tuple of int or bool, bool
        The states of which nothing is known at first, as econometricians start trends, by their numbers or as a mask,
        or True, all: exact limits of an infinite variance. Their variances in P0 are inf, NaN or 0, and their rows and
        columns are not read; another number raises, where it can be read, as it would be forgotten without a word:
        leave ``diffuse`` out, or pass (), for the start that P0 tells. None: those whose variance in P0 is infinite.
        Where it names all, m0 and P0 can be left out.
    method : str
        "sequential": one step after another. "parallel": logarithmic depth, for JAX arrays, by an associative scan
        (see the notes), of models with a finite P0. "auto": what the backend chosen does: one step after another.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    axis_name : str or tuple of str
        Inside `jax.shard_map`: the axis of its mesh, or the axes, along which the steps of series follow each other.
        Every device passes its own steps of ``y`` and of what changes with time, and gets the states of these; m0, P0
        and log-likelihoods are those of the whole series, the same on all devices. No state may be unknown at first.

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
    A series whose innovation covariance, H P H' + R, is not positive definite in some step has means that are NaN from
    there on, and a log-likelihood that is NaN; no other series has. Where R = 0 lets an observation contradict what is
    known exactly, that covariance is 0 but for rounding, which decides, in each backend by itself, whether this is
    found in that step, in a later one or not at all: then the log-likelihood is -1e10 or less, and no result is of use.
    Where series share a model and nothing is missing, their covariances are the same, and are computed once.

    Where variances differ so much that covariances as they stand would lose digits, as after a diffuse P0, all is
    computed again from square roots of covariances (L D L'), which takes about three times as long.

    States that are unknown at first are infinite in ``cov`` until observations tell them (J. Durbin and S. J. Koopman,
    Time Series Analysis by State Space Methods, 2012, chapter 5); the log-likelihood is the diffuse one, which counts
    the observations that do so by what they see: as in statsmodels. Those steps are computed one after another in
    Python or in a `jax.lax.scan`, the rest as any other. An intercept of states is a recurrence of known numbers, which
    is taken off the observations and added to the states again. Inside `jax.jit` a series is NaN where that recurrence
    grows so far beyond it that half of the digits would be lost.

    The parallel filter is that of Sarkka and Garcia-Fernandez (Temporal parallelization of Bayesian smoothers, IEEE
    Transactions on Automatic Control 66, 2021) with elements that are finite for exact observations and singular Q as
    well. Its states are compared with the steps between them; where they have lost too many digits, as after a very
    diffuse P0 with hardly any noise, all are computed again one after another. An innovation covariance that would be
    0 but for rounding may be found positive definite by one method and not by the other. It takes several times the
    work and a compilation of some seconds: it pays on GPUs, for long series, not on the CPU.
    """
    options = state_intercept, obs_intercept, diffuse, method, backend, axis_name
    return run(FILTER, y, (F, H, Q, R, m0, P0), options)


def smoother(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array | None = None,
    P0: Array | None = None,
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | bool | None = None,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Smoothed:
    r"""Estimate the states of many series from all that was observed.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, state_intercept, obs_intercept, diffuse, method, backend, axis_name
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

    States that are unknown at first are regression coefficients (P. de Jong, Journal of the American Statistical
    Association 84, 1989), for each of which one series more is smoothed; what the first observations hardly see costs
    no digits. What no observation sees has an infinite variance, and its mean is what m0 says; a covariance with what
    is seen is finite, that of two such states infinite where they move together, -infinity where against each other.
    """
    options = state_intercept, obs_intercept, diffuse, method, backend, axis_name
    return run(SMOOTHER, y, (F, H, Q, R, m0, P0), options)


def log_likelihood(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array | None = None,
    P0: Array | None = None,
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | bool | None = None,
    each_step: bool = False,
    burn: int = 0,
    method: str = "auto",
    backend: str = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""The logarithm of the probability density of many series under their models.

    .. math:: \log p(y) = -\tfrac12 \sum_t \left( p_t \log 2 \pi + \log \det S_t + v_t^T S_t^{-1} v_t \right)

    with :math:`v_t` the observations that are there less their prediction and :math:`S_t` the covariance of that.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, state_intercept, obs_intercept, diffuse, method, backend, axis_name
        As in `tridiag.kalman.filter`.
    each_step : bool
        Return the log-likelihood of every step, given those before it.
    burn : int
        How many of the first steps are not counted: they are 0 in every step. What they tell of the states is used.

    Returns
    -------
    array
        One number for each series, over the batch axes, or (..., n) with ``each_step``. Under JAX and PyTorch it has
        gradients in every argument, in reverse mode (``jax.grad``, ``jax.hessian``; ``backward``, which torch
        differentiates again): one pass backwards; with ``each_step`` or ``burn`` those of a filter. A gradient in m0 or
        P0 that is smaller than others by more than 1/eps, as after a large P0, has no digits. Where a variance of R
        is exactly 0, that in it has none either while states are unknown at first, as that of `filter` and `smoother`,
        and under JAX that in H: give R a variance that is small, as 1e-10. While states are unknown at
        first, gradients in Q, R and P0 are those of changes that leave their rank, and of others where they lack one
        rank and no variance is 0; where they are diagonal, in all variances. Where some states are known exactly
        (P0 = 0) beside unknown ones, a gradient in Q at Q = 0 may be wrong: give Q such a variance too.

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
    JAX arrays that are sharded along time over CPU devices are not gathered, here and in `filter` and `smoother`, but
    where states are unknown at first: every device filters its own steps, from a state that all find together. So it is
    inside `jax.shard_map` with ``axis_name``.
    """
    options = state_intercept, obs_intercept, diffuse, method, backend, axis_name
    parameters = F, H, Q, R, m0, P0
    if each_step is False and type(burn) is int and burn == 0:
        return run(LIKELIHOOD, y, parameters, options)
    return by_steps(y, parameters, Options(*options), each_step, burn)
