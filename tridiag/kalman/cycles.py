"""Models that go round: a cycle, and a season made of waves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.calls.checks import check_count
from tridiag.calls.state_space import is_readable, to_numpy
from tridiag.kalman.structure import Structure, numbers, unknown, where_they_are

Array = Any

HALF_TURN = 3.141593  # pi, and what rounding makes of it in any dtype but half precision


@where_they_are
def cycle(frequency: Array, variance: Array, damping: Array = 1.0) -> Structure:
    r"""A wave whose height and phase change slowly, as of business.

    .. math:: \begin{pmatrix} \psi_{t+1} \\ \psi^*_{t+1} \end{pmatrix} =
        \rho \begin{pmatrix} \cos\lambda & \sin\lambda \\ -\sin\lambda & \cos\lambda \end{pmatrix}
        \begin{pmatrix} \psi_t \\ \psi^*_t \end{pmatrix} + \mathcal N(0, \text{variance} \cdot I)

    Parameters
    ----------
    frequency : number or array without axes
        lambda, in radians a step: 2 pi / 40 comes again after 40 steps.
    variance : number or array without axes
        How much each of the two changes in each step; 0: a fixed wave.
    damping : number or array without axes
        rho, from 0 to 1. Below 1 the cycle is stationary, of variance ``variance / (1 - rho^2)``.

    Returns
    -------
    Structure
        Two states, the wave first, unknown at first, as in statsmodels' ``UnobservedComponents`` whatever the damping;
        ``cycle(...) | {"P0": variance / (1 - rho**2) * np.eye(2)}`` begins a stationary one as what it is.

    Raises
    ------
    ValueError
        An argument has axes; ``damping`` is not from 0 to 1, or ``frequency`` not from 0 to pi, where its value can be
        read.

    Examples
    --------
    >>> import math
    >>> from tridiag import kalman
    >>> kalman.models.cycle(math.pi / 3, 0.5, damping=0.9).F.round(3)
    array([[ 0.45 ,  0.779],
           [-0.779,  0.45 ]])

    Notes
    -----
    A. C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 2.3.
    """
    n = numbers(frequency=frequency, variance=variance, damping=damping)
    frequency, variance, damping = n.given.values()
    if is_readable(n.library, n.device, damping) and not 0 <= float(to_numpy(damping)) <= 1:
        raise ValueError(
            f"damping is {float(to_numpy(damping))}; wanted a number from 0 to 1: a cycle that grows ends nowhere"
        )
    if is_readable(n.library, n.device, frequency) and not 0 <= float(to_numpy(frequency)) <= HALF_TURN:
        raise ValueError(
            f"frequency is {float(to_numpy(frequency)):.6g}; wanted radians a step, from 0 to pi: 2 pi / s for a "
            "period of s steps"
        )
    turn = ((n.ops.cos(frequency), np.eye(2)), (n.ops.sin(frequency), np.array([[0, 1], [-1, 0]])))
    F, Q = damping * n.total(*turn), n.total((variance, np.eye(2)))
    return Structure(F, n.fixed([[1, 0]]), Q, n.fixed([[0]]), **unknown(n, 2))


@where_they_are
def trigonometric_seasonal(period: Any, variance: Array, harmonics: int | None = None) -> Structure:
    r"""A pattern that comes again, as a sum of waves that change slowly.

    .. math:: \gamma_t = \sum_{j=1}^h \gamma_{j,t}, \qquad \gamma_j \text{ a fixed cycle of frequency }
        \lambda_j = 2 \pi j / s \text{ with noise } \mathcal N(0, \text{variance} \cdot I)

    With all harmonics it has as many states as `seasonal`, and without noise the same patterns; the noise of its months
    is more alike. With few of them, the pattern is smooth, and a long period has few states.

    Parameters
    ----------
    period : number
        s, at least 2, and not necessarily whole: 365.25.
    variance : number or array without axes
        How much each part of a wave changes in each step.
    harmonics : int
        h, at most s / 2, as many as there are by default.

    Returns
    -------
    Structure
        2 h states, one less where h = s / 2 (the wave that changes its sign in each step is one number), all unknown
        at first: of each harmonic, slow ones first, the wave and its companion.

    Raises
    ------
    ValueError
        ``period`` is no number of at least 2, ``harmonics`` no whole number from 1 to half of it.

    Examples
    --------
    >>> from tridiag import kalman
    >>> kalman.models.trigonometric_seasonal(12, 0.5)
    Structure of 11 states, 11 unknown at first
    >>> kalman.models.trigonometric_seasonal(365.25, 0.5, harmonics=2)
    Structure of 4 states, 4 unknown at first

    Notes
    -----
    J. Durbin and S. J. Koopman, Time Series Analysis by State Space Methods, 2nd edition 2012, section 3.2.2.
    """
    if isinstance(period, bool) or not isinstance(period, int | float | np.number) or not 2 <= period < math.inf:
        raise ValueError(f"period is {period!r}; wanted a number of steps, 2 or more")
    most = int(float(period) // 2)
    count = most if harmonics is None else check_count("harmonics", harmonics, 1, "a number of waves")
    if count > most:
        raise ValueError(f"harmonics is {harmonics!r}; a period of {period} has {most}: wanted no more")
    n, k = numbers(variance=variance), 2 * count - (2 * count == period)
    F = np.zeros((2 * count, 2 * count))
    for j in range(count):
        angle = 2 * math.pi * (j + 1) / float(period)
        part = slice(2 * j, 2 * j + 2)
        F[part, part] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    H = np.resize([1.0, 0.0], (1, k))
    Q = n.total((n.given["variance"], np.eye(k)))
    return Structure(n.fixed(F[:k, :k]), n.fixed(H), Q, n.fixed([[0]]), **unknown(n, k))
