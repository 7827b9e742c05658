"""What is to be expected after the last observation, with what certainty."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.checks import check_count
from tridiag.calls.state_space import parameters_of, taken
from tridiag.calls.torch_compile import compiling, graph
from tridiag.kalman.filters import filter
from tridiag.libraries.arrays import module_of, place_of
from tridiag.problems.state_space import CHANGING, one_axis

Array = Any


class Forecast(NamedTuple):
    """What `forecast` returns; a pytree under JAX. ``...`` are the batch axes."""

    mean: Array  # (..., steps, p): of the observations to come
    cov: Array  # (..., steps, p, p)
    state_mean: Array  # (..., steps, k): of the states behind them
    state_cov: Array  # (..., steps, k, k)


def forecast(y: Array, steps: int, **model: Any) -> Forecast:
    r"""Tell the distribution of the observations that follow a series.

    .. math:: y_{n+h} \sim \mathcal N(H x_{n+h} + d, \; H P_{n+h} H^T + R), \qquad h = 0 \ldots \text{steps} - 1

    Parameters
    ----------
    y : array
        The series, (..., n, p), as in `tridiag.kalman.filter`.
    steps : int
        How many steps after the last are wanted.
    **model
        F, H, Q, R, m0, P0 and the options of `tridiag.kalman.filter`. A parameter that changes with time has n + steps
        steps.

    Returns
    -------
    Forecast
        ``mean`` (..., steps, p) and ``cov`` (..., steps, p, p) of the observations, noise included; ``state_mean``
        (..., steps, k) and ``state_cov`` (..., steps, k, k). Where a state is still unknown ``state_cov`` is infinite,
        and ``cov`` is infinite or NaN.

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.filter`; ``steps`` is no number of steps.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
    >>> found = kalman.forecast(np.array([[2.0], [np.nan], [5.0]]), 2, **walk)
    >>> found.mean[:, 0], found.cov[:, 0, 0]
    (array([3.85714286, 3.85714286]), array([2.71428571, 3.71428571]))

    Notes
    -----
    The filter goes on over steps of which nothing is observed. Gradients are those of the filter.
    """
    if compiling(y):
        return graph().outside(forecast, y, steps, **model)
    steps = check_count("steps", steps, 0, "how many steps are forecast")
    with place_of((y, *model.values())):
        return filtered_on(y, steps, model)


def filtered_on(y: Array, steps: int, model: dict[str, Any]) -> Forecast:
    """What a filter says of so many steps behind those that are given."""
    parameters_of("forecast", model)
    given = taken({"y": y} | {name: model[name] for name in ("H", "R", "obs_intercept") if model.get(name) is not None})
    arrays, module = given.working(), module_of(given.library)
    ops, y = module.Operations, arrays["y"]
    if y.ndim < 2:
        raise ValueError(one_axis(tuple(y.shape)))
    check_lengths(model, y.shape[-2], steps)
    nothing = ops.full((*y.shape[:-2], steps, y.shape[-1]), math.nan, y)
    length = y.shape[-2] + steps
    found = filter(ops.concatenate((y, nothing), y.ndim - 2), **model)
    later = slice(length - steps, length)
    mean, cov = (ops.slice(x, later, x.ndim - own) for own, x in ((2, found.predicted_mean), (3, found.predicted_cov)))
    return Forecast(*(module.cast(x, given.dtype) for x in (*observed(arrays, mean, cov, length, steps), mean, cov)))


def check_lengths(model: dict[str, Any], n: int, steps: int) -> None:
    """Refuse a parameter that changes with time and ends with the series."""
    for name, own in CHANGING.items():
        shape = tuple(np.shape(model[name])) if model.get(name) is not None else ()
        if len(shape) > len(own) and shape[-len(own) - 1] == n not in (1, n + steps):
            of_regression = "; those of a regression are rows of x in models.regression" if name == "H" else ""
            raise ValueError(
                f"{name} has shape {shape}, with the {n} steps of y; a forecast of {steps} needs those to come too, "
                f"{n + steps} steps{of_regression}"
            )


def observed(arrays: dict[str, Array], mean: Array, cov: Array, length: int, steps: int) -> tuple[Array, Array]:
    """Mean and covariance of what is observed of states, in the last steps."""

    def last(name: str, own: int) -> Array:
        x = arrays[name]
        changes = x.ndim > own and x.shape[-own - 1] == length
        return x[(..., slice(length - steps, None), *(slice(None),) * own)] if changes else x

    H, R = last("H", 2), last("R", 2)
    seen = (H @ mean[..., None])[..., 0]
    seen = seen + last("obs_intercept", 1) if "obs_intercept" in arrays else seen
    return seen, H @ cov @ H.swapaxes(-1, -2) + R
