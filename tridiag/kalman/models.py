"""Models that econometricians put together, as examples of how F, H, Q, R, m0 and P0 are built.

    model = models.local_linear_trend(level=1.0, slope=0.1, noise=2.0) + models.seasonal(12, variance=0.5)
    kalman.smoother(y, **model)

A model of one observed value; the states of a sum are those of its parts, one after another, and what is observed is
the sum of what they give. Variances and coefficients are numbers, or arrays without axes of NumPy, JAX or PyTorch,
through which gradients go. States of which nothing is known at first have an infinite variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.state_space import taken
from tridiag.libraries.arrays import module_of

Array = Any
NAMES = ("F", "H", "Q", "R", "m0", "P0")

__all__ = ["Structure", "arma", "autoregression", "local_level", "local_linear_trend", "regression", "seasonal"]


class Structure:
    """A model, or a part of one: ``**structure`` gives a verb its arguments, and ``+`` joins two.

    Attributes: ``F, H, Q, R, m0, P0`` as in `tridiag.kalman.filter`, ``diffuse``, the states unknown at first.

    Examples
    --------
    >>> from tridiag.kalman import models
    >>> (models.local_level(1.0, noise=2.0) + models.seasonal(4, 0.5)).F
    array([[ 1.,  0.,  0.,  0.],
           [ 0., -1., -1., -1.],
           [ 0.,  1.,  0.,  0.],
           [ 0.,  0.,  1.,  0.]])
    """

    def __init__(self, F: Array, H: Array, Q: Array, R: Array, m0: Array, P0: Array, diffuse: Sequence[int] = ()):
        self.F, self.H, self.Q, self.R, self.m0, self.P0 = F, H, Q, R, m0, P0
        self.diffuse = tuple(diffuse)

    def keys(self) -> Iterator[str]:
        """The names of its arguments."""
        return iter((*NAMES, "diffuse") if self.diffuse else NAMES)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"Structure of {self.F.shape[-1]} states, {len(self.diffuse)} unknown at first"

    def __add__(self, other: Structure) -> Structure:
        both = {f"{name} of {side}": model[name] for side, model in enumerate((self, other)) for name in NAMES}
        arguments = taken(both)
        ops, arrays = module_of(arguments.library).Operations, arguments.working()
        pairs = {name: (arrays[f"{name} of 0"], arrays[f"{name} of 1"]) for name in NAMES}
        diagonals = {name: block_diagonal(ops, *pairs[name]) for name in ("F", "Q", "P0")}
        return Structure(
            **diagonals,
            H=beside(ops, *pairs["H"], own=2),
            R=pairs["R"][0] + pairs["R"][1],
            m0=beside(ops, *pairs["m0"], own=1),
            diffuse=(*self.diffuse, *(i + self.F.shape[-1] for i in other.diffuse)),
        )


def beside(ops: Any, x: Array, z: Array, own: int) -> Array:
    """Joined along the last axis; those before the ``own`` ones broadcast."""
    batch = np.broadcast_shapes(x.shape[: x.ndim - own], z.shape[: z.ndim - own])
    x, z = (ops.broadcast(part, (*batch, *part.shape[part.ndim - own :])) for part in (x, z))
    return ops.concatenate((x, z), x.ndim - 1)


def block_diagonal(ops: Any, x: Array, z: Array) -> Array:
    """Two square matrices, with zeros beside them."""
    batch = np.broadcast_shapes(x.shape[:-2], z.shape[:-2])
    x, z = (ops.broadcast(part, (*batch, *part.shape[-2:])) for part in (x, z))
    k, m = x.shape[-1], z.shape[-1]
    rows = (
        ops.concatenate((x, ops.full((*batch, k, m), 0, x)), x.ndim - 1),
        ops.concatenate((ops.full((*batch, m, k), 0, x), z), x.ndim - 1),
    )
    return ops.concatenate(rows, x.ndim - 2)


class Numbers(NamedTuple):
    """The numbers that a model is made of, as arrays of one library."""

    ops: Any
    given: dict[str, Array]

    def fixed(self, x: Any) -> Array:
        like = next(iter(self.given.values()))
        return self.ops.converted(self.ops.placed(np.asarray(x, float), like), like)

    def total(self, *terms: tuple[Any, Any]) -> Array:
        """The sum of numbers, each times a fixed matrix."""
        return sum((number * self.fixed(x) for number, x in terms[1:]), start=terms[0][0] * self.fixed(terms[0][1]))


def numbers(**given: Any) -> Numbers:
    """Arrays of one library; numbers and lists go with those of any."""
    like = next((x for x in given.values() if hasattr(x, "new_tensor")), None)
    for name, x in given.items():
        if isinstance(x, list | tuple):
            given[name] = np.asarray(x, float) if like is None else like.new_tensor(x)
    arguments = taken(given)
    return Numbers(module_of(arguments.library).Operations, arguments.working())


def unit(k: int, i: int, j: int) -> np.ndarray:
    """A matrix with one 1."""
    made = np.zeros((k, k))
    made[i, j] = 1
    return made


def unknown(n: Numbers, k: int) -> dict[str, Any]:
    """A start of which nothing is known."""
    return {"m0": n.fixed(np.zeros(k)), "P0": n.fixed(np.diag([math.inf] * k)), "diffuse": range(k)}


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
    if not isinstance(period, int) or period < 2:
        raise ValueError(f"period is {period!r}; wanted a number of steps, 2 or more")
    n, k = numbers(variance=variance), period - 1
    F = np.eye(k, k, -1)
    F[0] = -1
    Q = n.total((n.given["variance"], unit(k, 0, 0)))
    return Structure(n.fixed(F), n.fixed(np.eye(1, k)), Q, n.fixed([[0]]), **unknown(n, k))


def autoregression(coefficients: Array, variance: Array) -> Structure:
    r"""A stationary AR(p) process.

    .. math:: x_t = \sum_{j=1}^p \phi_j x_{t-j} + \mathcal N(0, \text{variance})

    Parameters
    ----------
    coefficients : array
        phi, (p,), of a stationary process; for any other P0 is no covariance, and the verbs refuse it.
    variance : number or array without axes
        Of what is new in each step.

    Returns
    -------
    Structure
        As `arma`.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.autoregression([0.5], 3.0).P0
    array([[4.]])
    """
    return arma(coefficients, (), variance)


def arma(ar: Array, ma: Array, variance: Array) -> Structure:
    r"""A stationary ARMA(p, q) process.

    .. math:: x_t = \sum_{j=1}^p \phi_j x_{t-j} + e_t + \sum_{j=1}^q \theta_j e_{t-j}, \qquad
        e_t \sim \mathcal N(0, \text{variance})

    Parameters
    ----------
    ar, ma : array
        phi (p,) and theta (q,), of a stationary process.
    variance : number or array without axes
        Of e.

    Returns
    -------
    Structure
        max(p, q + 1) states, the value first, that begin with the covariance of the process, P = F P F' + Q.

    Raises
    ------
    ValueError
        ``ar`` or ``ma`` has not one axis.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.arma([0.5], [0.4], 1.0).F
    array([[0.5, 1. ],
           [0. , 0. ]])
    """
    n = numbers(variance=variance, ar=ar, ma=ma)
    phi, theta = n.given["ar"], n.given["ma"]
    for name, x in (("ar", phi), ("ma", theta)):
        if x.ndim != 1:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; wanted one axis, the coefficients")
    k, ops = max(len(phi), len(theta) + 1), n.ops
    F = n.total((1.0, np.eye(k, k, 1)), *((phi[j], unit(k, j, 0)) for j in range(len(phi))))
    moving = n.total((1.0, np.eye(1, k)[0]), *((theta[j], np.eye(1, k, j + 1)[0]) for j in range(len(theta))))
    Q = moving[:, None] * moving * n.given["variance"]
    both = (F[:, None, :, None] * F[None, :, None, :]).reshape(k * k, k * k)
    P0 = ops.symmetric(ops.solved(n.fixed(np.eye(k * k)) - both, Q.reshape(k * k)).reshape(k, k))
    return Structure(F, n.fixed(np.eye(1, k)), Q, n.fixed([[0]]), n.fixed(np.zeros(k)), P0)


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
    n = numbers(variance=variance, x=x)
    x = n.given["x"]
    if x.ndim != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; wanted (n, m): time, and the known values of a step")
    one = np.eye(x.shape[-1])
    Q = n.total((n.given["variance"], one))
    return Structure(n.fixed(one), x[:, None, :], Q, n.fixed([[0]]), **unknown(n, x.shape[-1]))
