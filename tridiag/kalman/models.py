"""Models that econometricians put together, as examples of how F, H, Q, R, m0 and P0 are built::

    model = models.local_linear_trend(level=1.0, slope=0.1, noise=2.0) + models.seasonal(12, variance=0.5)
    kalman.smoother(y, **model)

A model of one observed value; the states of a sum are those of its parts, one after another, and what is observed is
the sum of what they give. Variances and coefficients are numbers, or arrays without axes of NumPy, JAX, PyTorch or
CuPy; gradients go through those of JAX and PyTorch. States of which nothing is known at first have an infinite
variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.calls.checks import check_count
from tridiag.calls.state_space import is_readable, to_numpy
from tridiag.kalman.cycles import cycle, trigonometric_seasonal
from tridiag.kalman.structure import Structure, numbers, unit, unknown, where_they_are

Array = Any

__all__ = [
    "Structure",
    "arma",
    "autoregression",
    "cycle",
    "local_level",
    "local_linear_trend",
    "regression",
    "seasonal",
    "trigonometric_seasonal",
]


def __dir__() -> list[str]:
    return [*__all__]


@where_they_are
def local_level(level: Array, noise: Array = 0.0) -> Structure:
    r"""A level that wanders, seen with noise.

    .. math:: y_t = \mu_t + \mathcal N(0, \text{noise}), \qquad \mu_{t+1} = \mu_t + \mathcal N(0, \text{level})

    Parameters
    ----------
    level, noise : number or array without axes
        Variances.

    Returns
    -------
    Structure
        One state, unknown at first.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> y = np.array([[1.0], [2.0], [4.0]])
    >>> kalman.filter(y, **kalman.models.local_level(1.0, noise=1.0)).mean[:, 0]
    array([1.        , 1.66666667, 3.125     ])

    Notes
    -----
    A. C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, has all of these models.
    """
    n = numbers(level=level, noise=noise)
    one = np.ones((1, 1))
    Q, R = (n.total((x, one)) for x in n.given.values())
    return Structure(n.fixed(one), n.fixed(one), Q, R, **unknown(n, 1))


@where_they_are
def local_linear_trend(level: Array, slope: Array, noise: Array = 0.0) -> Structure:
    r"""A level whose slope wanders too.

    .. math:: \mu_{t+1} = \mu_t + \beta_t + \mathcal N(0, \text{level}), \qquad
        \beta_{t+1} = \beta_t + \mathcal N(0, \text{slope})

    Parameters
    ----------
    level, slope, noise : number or array without axes
        Variances; ``noise`` is that with which the level is seen.

    Returns
    -------
    Structure
        Two states, level and slope, unknown at first.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.local_linear_trend(1.0, 0.1, noise=2.0).Q
    array([[1. , 0. ],
           [0. , 0.1]])
    """
    n = numbers(level=level, slope=slope, noise=noise)
    level, slope, noise = n.given.values()
    Q = n.total((level, unit(2, 0, 0)), (slope, unit(2, 1, 1)))
    F, H = n.fixed([[1, 1], [0, 1]]), n.fixed([[1, 0]])
    return Structure(F, H, Q, n.total((noise, np.ones((1, 1)))), **unknown(n, 2))


@where_they_are
def seasonal(period: int, variance: Array) -> Structure:
    r"""A pattern that comes again, and changes slowly: over each period it sums to a noise.

    .. math:: \gamma_{t+1} = -\sum_{j=1}^{s-1} \gamma_{t+1-j} + \mathcal N(0, \text{variance})

    Parameters
    ----------
    period : int
        s, at least 2.
    variance : number or array without axes
        How much the pattern changes in each step.

    Returns
    -------
    Structure
        s - 1 states, unknown at first, the newest value first.

    Raises
    ------
    ValueError
        ``period`` is no number of at least 2.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.seasonal(12, 0.5)
    Structure of 11 states, 11 unknown at first
    """
    k = check_count("period", period, 2, "a number of steps") - 1
    n = numbers(variance=variance)
    F = np.eye(k, k, -1)
    F[0] = -1
    Q = n.total((n.given["variance"], unit(k, 0, 0)))
    return Structure(n.fixed(F), n.fixed(np.eye(1, k)), Q, n.fixed([[0]]), **unknown(n, k))


@where_they_are
def autoregression(coefficients: Array, variance: Array, noise: Array = 0.0) -> Structure:
    r"""A stationary AR(p) process.

    .. math:: x_t = \sum_{j=1}^p \phi_j x_{t-j} + \mathcal N(0, \text{variance})

    Parameters
    ----------
    coefficients : array
        phi, (p,), of a stationary process.
    variance : number or array without axes
        Of what is new in each step.
    noise : number or array without axes
        The variance with which the process is seen.

    Returns
    -------
    Structure
        As `arma`.

    Raises
    ------
    ValueError
        As `arma`.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.autoregression([0.5], 3.0).P0
    array([[4.]])
    """
    return arma(coefficients, (), variance, noise)


@where_they_are
def arma(ar: Array, ma: Array, variance: Array, noise: Array = 0.0) -> Structure:
    r"""A stationary ARMA(p, q) process.

    .. math:: x_t = \sum_{j=1}^p \phi_j x_{t-j} + e_t + \sum_{j=1}^q \theta_j e_{t-j}, \qquad
        e_t \sim \mathcal N(0, \text{variance})

    Parameters
    ----------
    ar, ma : array
        phi (p,) and theta (q,), of a stationary process.
    variance : number or array without axes
        Of e.
    noise : number or array without axes
        The variance with which the process is seen, which statsmodels calls measurement error.

    Returns
    -------
    Structure
        max(p, q + 1) states, the value first, that begin with the covariance of the process, P = F P F' + Q.

    Raises
    ------
    ValueError
        ``ar`` or ``ma`` has not one axis; ``ar`` is of no stationary process, where its values can be read: else P0 is
        no covariance.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.arma([0.5], [0.4], 1.0).F
    array([[0.5, 1. ],
           [0. , 0. ]])
    """
    n = numbers("ar", "ma", variance=variance, noise=noise, ar=ar, ma=ma)
    phi, theta = n.given["ar"], n.given["ma"]
    for name, x in (("ar", phi), ("ma", theta)):
        if x.ndim != 1:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; wanted one axis, the coefficients")
    k, ops = max(len(phi), len(theta) + 1), n.ops
    if is_readable(n.library, n.device, phi):
        check_stationary(to_numpy(phi))
    F = n.total((1.0, np.eye(k, k, 1)), *((phi[j], unit(k, j, 0)) for j in range(len(phi))))
    moving = n.total((1.0, np.eye(1, k)[0]), *((theta[j], np.eye(1, k, j + 1)[0]) for j in range(len(theta))))
    Q = moving[:, None] * moving * n.given["variance"]
    both = (F[:, None, :, None] * F[None, :, None, :]).reshape(k * k, k * k)
    P0 = ops.symmetric(ops.solved(n.fixed(np.eye(k * k)) - both, Q.reshape(k * k)).reshape(k, k))
    R = n.total((n.given["noise"], np.ones((1, 1))))
    return Structure(F, n.fixed(np.eye(1, k)), Q, R, n.fixed(np.zeros(k)), P0)


def check_stationary(phi: np.ndarray) -> None:
    """Refuse a process that has no covariance: every root of z^p - phi[0] z^(p-1) - ... is smaller than 1."""
    largest = abs(np.roots([1.0, *-phi.astype(float)])).max(initial=0)
    if not largest < 1 - np.finfo(float).eps * len(phi):
        raise ValueError(
            f"ar is {phi.tolist()}, of no stationary process: a root is {largest:.6g} in size, wanted all below 1; for "
            "1, take differences of y, or local_level"
        )


@where_they_are
def regression(x: Array, variance: Array = 0.0) -> Structure:
    r"""A regression on known series, with coefficients that are unknown at first, and may wander.

    .. math:: y_t = x_t^T \beta_t, \qquad \beta_{t+1} = \beta_t + \mathcal N(0, \text{variance} \cdot I)

    Parameters
    ----------
    x : array
        (n, m): m known values in each of n steps; for a forecast those of the steps to come too.
    variance : number or array without axes
        How much each coefficient changes in each step.

    Returns
    -------
    Structure
        m states.

    Raises
    ------
    ValueError
        ``x`` has not two axes.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> kalman.models.regression(np.ones((10, 2))).H.shape
    (10, 1, 2)
    """
    n = numbers("x", variance=variance, x=x)
    x = n.given["x"]
    if x.ndim != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; wanted (n, m): time, and the known values of a step")
    one = np.eye(x.shape[-1])
    Q = n.total((n.given["variance"], one))
    return Structure(n.fixed(one), x[:, None, :], Q, n.fixed([[0]]), **unknown(n, x.shape[-1]))
