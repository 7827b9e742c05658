"""The verbs on whole series: filter, smoother and log-likelihood."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.backends import KALMAN, Backend
from tridiag.calls import fast_path
from tridiag.calls.checks import check_flag
from tridiag.calls.state_space import Call, Intercepts, check_values, prepare
from tridiag.kalman.intercepts import without_intercepts
from tridiag.libraries.arrays import library_of, module_of
from tridiag.problems.state_space import PARAMETERS
from tridiag.selection.choose import choose

Array = Any
FILTER, SMOOTHER, LOG_LIKELIHOOD = KALMAN


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
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | None = None,
    method: str = "auto",
    backend: str = "auto",
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
        needs its time axis: (s, 1, k, k). Q and R may be singular, and 0. ``F[n-1]``, ``Q[n-1]`` are never read.
    m0, P0 : array
        Mean and covariance of x[0] before y[0] is seen, (..., k) and (..., k, k).
    state_intercept, obs_intercept : array
        Known vectors that are added in every step, c and d: (k,) and (p,), or (..., time, k) and (..., time, p) as the
        matrices above. ``state_intercept[n-1]`` is never read. None: 0.
    diffuse : sequence of int or bool
        The states of which nothing is known at first, as econometricians start trends, by their numbers or as a mask:
        exact limits of an infinite variance. Rows and columns of P0 are not read there. None: those whose variance in
        P0 is infinite, where its values can be read; inside `jax.jit` a P0 that is an argument needs ``diffuse``.
    method : str
        "sequential": one step after another. "parallel": logarithmic depth, for JAX arrays, by an associative scan
        (see the notes). "auto": what the backend chosen does, which is one step after another.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.

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
    computed again from square roots of covariances (L D L'), which takes about three times as long.

    States that are unknown at first are infinite in ``cov`` until observations tell them (J. Durbin and S. J. Koopman,
    Time Series Analysis by State Space Methods, 2012, chapter 5); the log-likelihood is the diffuse one, which counts
    the observations that do so by what they see: as in statsmodels. Those steps are computed one after another in
    Python or in a `jax.lax.scan`, the rest as any other; a smoother of such models is not compiled. An intercept of
    states is a recurrence of known numbers, which is taken off the observations and added to the states again. Inside
    `jax.jit` a series is NaN where that recurrence grows so far beyond it that half of the digits would be lost.

    The parallel filter is that of Sarkka and Garcia-Fernandez (Temporal parallelization of Bayesian smoothers, IEEE
    Transactions on Automatic Control 66, 2021) with elements that are finite for exact observations and singular Q as
    well. Its states are compared with the steps between them; where they have lost too many digits, as after a very
    diffuse P0 with hardly any noise, all are computed again one after another. An innovation covariance that would be
    0 but for rounding may be found positive definite by one method and not by the other. It takes several times the
    work and a compilation of some seconds: it pays on GPUs, for long series, not on the CPU.
    """
    return run(FILTER, y, (F, H, Q, R, m0, P0), Intercepts(state_intercept, obs_intercept), diffuse, method, backend)


def smoother(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array,
    P0: Array,
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | None = None,
    method: str = "auto",
    backend: str = "auto",
) -> Smoothed:
    r"""Estimate the states of many series from all that was observed.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, state_intercept, obs_intercept, diffuse, method, backend
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
    return run(SMOOTHER, y, (F, H, Q, R, m0, P0), Intercepts(state_intercept, obs_intercept), diffuse, method, backend)


def log_likelihood(
    y: Array,
    *,
    F: Array,
    H: Array,
    Q: Array,
    R: Array,
    m0: Array,
    P0: Array,
    state_intercept: Array | None = None,
    obs_intercept: Array | None = None,
    diffuse: Sequence[int] | None = None,
    each_step: bool = False,
    burn: int = 0,
    method: str = "auto",
    backend: str = "auto",
) -> Array:
    r"""The logarithm of the probability density of many series under their models.

    .. math:: \log p(y) = -\tfrac12 \sum_t \left( p_t \log 2 \pi + \log \det S_t + v_t^T S_t^{-1} v_t \right)

    with :math:`v_t` the observations that are there less their prediction and :math:`S_t` the covariance of that.

    Parameters
    ----------
    y, F, H, Q, R, m0, P0, state_intercept, obs_intercept, diffuse, method, backend
        As in `tridiag.kalman.filter`.
    each_step : bool
        Return the log-likelihood of every step, given those before it.
    burn : int
        How many of the first steps are not counted: they are 0 in every step. What they tell of the states is used.

    Returns
    -------
    array
        One number for each series, over the batch axes, or (..., n) with ``each_step``. Under JAX and PyTorch it has
        gradients in every argument, in reverse mode (``jax.grad``, ``jax.hessian``, ``backward``, which torch does not
        differentiate again): one pass backwards; with ``each_step`` or ``burn`` those of a filter. A gradient in m0 or
        P0 that is smaller than others by more than 1/eps, as after a large P0, has no digits.

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
    device filters its own steps, from a state that all find together.
    """
    intercepts = Intercepts(state_intercept, obs_intercept)
    parameters = (F, H, Q, R, m0, P0)
    check_flag("each_step", each_step)
    if not isinstance(burn, int) or burn < 0:
        raise ValueError(f"burn is {burn!r}; wanted how many of the first steps are left out, 0 or more")
    if not (each_step or burn):
        return run(LOG_LIKELIHOOD, y, parameters, intercepts, diffuse, method, backend)
    found = of_each_step(y, parameters, intercepts, diffuse, method, backend)
    return of_later(found, burn) if each_step else found[..., burn:].sum(-1)


def of_later(likelihoods: Array, burn: int) -> Array:
    """Those of every step, 0 in the first."""
    ops = module_of(library_of(likelihoods) or "numpy").Operations
    parts = ops.zero(likelihoods[..., :burn]), likelihoods[..., burn:]
    return ops.concatenate(parts, likelihoods.ndim - 1)


def run(
    verb: str,
    y: Any,
    parameters: tuple[Any, ...],
    intercepts: Intercepts,
    diffuse: Any,
    method: str,
    backend: str,
) -> Any:
    """Prepare the arguments, choose a backend, run it, give the result the caller's dtype."""
    plain = intercepts.state is None and intercepts.obs is None and diffuse is None
    if plain and type(y) is np.ndarray:
        found = fast_path.kalman(verb, [y, *parameters], method, backend)
        if found is not None and not is_diffuse(verb, found, parameters[-1]):
            return result_of(verb, found)
    call, known = without_intercepts(prepare(verb, y, parameters, method, intercepts, diffuse))
    entry, call = ready(call, (y, *parameters), backend)
    module = module_of(call.library)
    if call.form.n == 0 or 0 in call.form.batch:
        return nothing(verb, call)
    result = computing(verb, call, entry)(verb, call.y, call.model, call.form)
    if verb == LOG_LIKELIHOOD:
        return module.cast(result, call.dtype)
    *states, likelihood = result
    pairs = (known.back(*states[k : k + 2]) for k in range(0, len(states), 2))
    return result_of(verb, [module.cast(x, call.dtype) for x in (*itertools.chain(*pairs), likelihood)])


def ready(call: Call, given: tuple[Any, ...], backend: str) -> tuple[Backend, Call]:
    """The backend, and the call once its values were looked at."""
    entry = choose(call.problem, backend).backend
    return entry, call._replace(form=check_values(call, dict(zip(("y", *PARAMETERS), given, strict=True))))


def of_each_step(
    y: Any, parameters: tuple[Any, ...], intercepts: Intercepts, diffuse: Any, method: str, backend: str
) -> Any:
    """The log-likelihood of every step, (..., n): from the states that a filter predicts."""
    call, _ = without_intercepts(prepare(FILTER, y, parameters, method, intercepts, diffuse))
    entry, call = ready(call, (y, *parameters), backend)
    module, form = module_of(call.library), call.form
    ops = module.Operations
    if form.n == 0 or 0 in form.batch:
        return module.cast(ops.full((*form.batch, form.n), 0, call.y), call.dtype)
    if form.diffuse:
        form = form._replace(each_step=True)
        found = computing(LOG_LIKELIHOOD, call, entry)(LOG_LIKELIHOOD, call.y, call.model, form)
        return module.cast(found, call.dtype)
    predicted = computing(FILTER, call, entry)(FILTER, call.y, call.model, form)[2:4]
    model, values = kalman_filter.front(ops, call.model, call.y)
    count = len(form.batch)
    states = (ops.transpose(x, (*range(count, x.ndim), *range(count))) for x in predicted)
    kept = values == values if form.missing is not False else None
    found = kalman_filter.likelihoods(ops, model, values, kept, kalman_filter.Estimate(*states))
    return module.cast(ops.broadcast(found, (*form.batch, form.n)), call.dtype)


def is_diffuse(verb: str, found: Any, P0: Any) -> bool:
    """Whether results are of no use, since a variance in P0 is infinite: log-likelihoods are then NaN, or 0."""
    likelihood = found if verb == LOG_LIKELIHOOD else found[-1]
    suspect = likelihood != likelihood if likelihood.ndim == 0 else np.isnan(likelihood).any()
    return bool(suspect or verb != LOG_LIKELIHOOD) and bool(np.isposinf(P0).any())


def computing(verb: str, call: Call, entry: Backend) -> Any:
    """What computes a verb: a backend, or what knows its derivatives, or lets each device of JAX have some steps."""
    if call.library == "torch":
        from tridiag.derivatives import torch_kalman

        return functools.partial(torch_kalman.kalman, entry)
    if verb == LOG_LIKELIHOOD or call.library != "jax" or entry.name != "jax_scan":
        return entry.module().kalman
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
