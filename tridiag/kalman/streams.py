"""A filter one step at a time, for series that come as a stream."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_filter import Estimate, Roots
from tridiag.calls.state_space import is_readable, taken, to_numpy
from tridiag.calls.torch_compile import compiling, graph
from tridiag.libraries.arrays import module_of
from tridiag.problems.state_space import CHANGING, checked_ending, common

Array = Any
OWN = {"mean": "k", "cov": "kk", "y": "p"} | CHANGING  # the axes of one step


class Predicted(NamedTuple):
    """What `predict` returns; a pytree under JAX."""

    mean: Array  # (..., k)
    cov: Array  # (..., k, k)


class Updated(NamedTuple):
    """What `update` returns; a pytree under JAX."""

    mean: Array  # (..., k)
    cov: Array  # (..., k, k)
    log_likelihood: Array  # (...): of the observations, given those before


def predict(mean: Array, cov: Array, *, F: Array, Q: Array, state_intercept: Array | None = None) -> Predicted:
    r"""Carry states to the next step.

    .. math:: x \mapsto F x + c + \mathcal N(0, Q)

    Parameters
    ----------
    mean, cov : array
        Of the states, (..., k) and (..., k, k), as `update` returns them.
    F, Q, state_intercept : array
        The model of this step, (..., k, k), (..., k, k) and (..., k), as in `tridiag.kalman.filter` without time.

    Returns
    -------
    Predicted
        ``mean`` (..., k) and ``cov`` (..., k, k).

    Raises
    ------
    ValueError, TypeError
        Shapes, dtypes or libraries do not fit; a variance is infinite, as of states that are unknown at first: begin
        with `tridiag.kalman.filter`, and go on from its last state. Where values cannot be read, that is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> kalman.predict(np.zeros(1), np.eye(1), F=np.eye(1), Q=np.eye(1)).cov
    array([[2.]])
    """
    if compiling(mean, cov):
        return graph().outside(predict, mean, cov, F=F, Q=Q, state_intercept=state_intercept)
    ops, step, given = lifted({"mean": mean, "cov": cov, "F": F, "Q": Q}, {"state_intercept": state_intercept})
    state = Estimate(step["mean"], Roots.start(ops, ops.symmetric(step["cov"])))
    found = kalman_filter.predict(ops, step["F"], step["Q"], state, Roots)
    ahead = found.mean + step["state_intercept"] if "state_intercept" in step else found.mean
    return Predicted(*restored(given, (ahead, 1), (Roots.whole(ops, found.cov), 2)))


def update(mean: Array, cov: Array, y: Array, *, H: Array, R: Array, obs_intercept: Array | None = None) -> Updated:
    r"""Take the observations of a step in.

    .. math:: y = H x + d + \mathcal N(0, R)

    Parameters
    ----------
    mean, cov : array
        Of the states before, (..., k) and (..., k, k), as `predict` returns them.
    y : array
        (..., p); NaN is a missing value, one or all.
    H, R, obs_intercept : array
        The model of this step, (..., p, k), (..., p, p) and (..., p), as in `tridiag.kalman.filter` without time.

    Returns
    -------
    Updated
        ``mean`` (..., k), ``cov`` (..., k, k), no variance of which is negative, and ``log_likelihood`` (...). A series
        whose innovation covariance, H P H' + R, is not positive definite is NaN, and no other.

    Raises
    ------
    ValueError, TypeError
        As `predict`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> mean, cov = np.zeros(1), np.eye(1)
    >>> for y in ([2.0], [np.nan], [5.0]):
    ...     mean, cov, _ = kalman.update(mean, cov, np.array(y), H=np.eye(1), R=np.eye(1))
    ...     print(mean)
    ...     mean, cov = kalman.predict(mean, cov, F=np.eye(1), Q=np.eye(1))
    [1.]
    [1.]
    [3.85714286]

    Notes
    -----
    By square roots of covariances (L D L'), Bierman's update. Whole series are faster by `tridiag.kalman.filter`, which
    also knows of states that are unknown at first.
    """
    if compiling(mean, cov, y):
        return graph().outside(update, mean, cov, y, H=H, R=R, obs_intercept=obs_intercept)
    needed = {"mean": mean, "cov": cov, "y": y, "H": H, "R": R}
    ops, step, given = lifted(needed, {"obs_intercept": obs_intercept})
    state = Estimate(step["mean"], Roots.start(ops, ops.symmetric(step["cov"])))
    kept = step["y"] == step["y"]
    seen_of = step["y"] - step["obs_intercept"] if "obs_intercept" in step else step["y"]
    seen, found = kalman_filter.observe(ops, step["H"], step["R"], seen_of, kept, state, Roots)
    likelihood = -kalman_filter.deviance(ops, seen, kept) / 2
    return Updated(*restored(given, (found.mean, 1), (Roots.whole(ops, found.cov), 2), (likelihood, 0)))


class Given(NamedTuple):
    module: Any
    dtype: str  # of the results
    batch: tuple[int, ...]


def lifted(needed: dict[str, Any], more: dict[str, Any]) -> tuple[Any, dict[str, Array], Given]:
    """The arrays of one step, matrices first and then as many batch axes in all."""
    arguments = taken(needed | {name: x for name, x in more.items() if x is not None})
    module, arrays = module_of(arguments.library), arguments.working()
    lengths = {letter: length_of(name, arrays[name]) for name, letter in (("mean", "k"), ("y", "p")) if name in arrays}
    for name, x in arrays.items():
        checked_ending(name, tuple(x.shape), OWN[name], lengths)
    batch = common(
        {name: tuple(x.shape)[: x.ndim - len(OWN[name])] for name, x in arrays.items()},
        {name: tuple(x.shape) for name, x in arrays.items()},
    )
    if is_readable(arguments.library, arguments.device, arrays["cov"]):
        check_known(to_numpy(arrays["cov"]))
    step = {}
    for name, x in arrays.items():
        own = len(OWN[name])
        x = x.reshape((*(1,) * (len(batch) + own - x.ndim), *x.shape))
        step[name] = module.Operations.transpose(x, (*range(len(batch), x.ndim), *range(len(batch))))
    return module.Operations, step, Given(module, arguments.dtype, batch)


def check_known(cov: Any) -> None:
    """Refuse states that are unknown: an infinite covariance does not tell in which directions they are."""
    infinite = np.isposinf(np.diagonal(cov, axis1=-2, axis2=-1)).reshape(-1, cov.shape[-1]).any(0)
    if infinite.any():
        i = int(np.argmax(infinite))
        raise ValueError(
            f"cov[{i}, {i}] is inf: a single step knows nothing of states that are unknown; take the first steps with "
            "kalman.filter until none is, and go on from its last mean and cov"
        )


def length_of(name: str, vector: Array) -> int:
    if not vector.ndim or not vector.shape[-1]:
        raise ValueError(f"{name} has shape {tuple(vector.shape)}; wanted (..., {OWN[name]}), at least one value")
    return int(vector.shape[-1])


def restored(given: Given, *parts: tuple[Array, int]) -> list[Array]:
    """Results with batch axes first, in the dtype of the caller; with each, how many axes come before those."""
    ops, found = given.module.Operations, []
    for x, own in parts:
        x = ops.broadcast(x, (*x.shape[:own], *given.batch))
        x = ops.transpose(x, (*range(own, x.ndim), *range(own)))
        found.append(given.module.cast(x, given.dtype))
    return found
