"""A filter one step at a time, for series that come as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_filter import Estimate, Roots
from tridiag.calls import fast_path, steps
from tridiag.calls.state_space import is_readable, taken, to_numpy
from tridiag.calls.torch_compile import compiling, graph
from tridiag.libraries.arrays import module_of, place_of, working_dtype
from tridiag.problems.covariances import check_each, is_few
from tridiag.problems.state_space import STEP, align_step

Array = Any


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
        with `tridiag.kalman.filter`, and go on from its last state. Where values cannot be read, that is NaN. A
        covariance is not symmetric or not positive semidefinite, by more than rounding: of arrays of up to 1024
        entries, as one matrix of 32 rows; larger ones, and values that cannot be read, are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> kalman.predict(np.zeros(1), np.eye(1), F=np.eye(1), Q=np.eye(1)).cov
    array([[2.]])
    """
    plain = type(mean) is np.ndarray and is_alike(state_intercept, mean)
    if plain and (quick := fast_path.STEPS["predict"].call(mean, cov, F, Q)) is not None:
        return Predicted(quick[0] if state_intercept is None else quick[0] + state_intercept, quick[1])
    if compiling(mean, cov):
        return graph().outside(predict, mean, cov, F=F, Q=Q, state_intercept=state_intercept)
    with place_of((mean, cov, F, Q)):
        step = step_of({"mean": mean, "cov": cov, "F": F, "Q": Q}, {"state_intercept": state_intercept})
        found = step.compiled("predict") or step.by_operations(predicted)
        mean = found[0] if state_intercept is None else found[0] + step.arrays["state_intercept"]
        return Predicted(*step.restored(mean, found[1]))


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
    By square roots of covariances (L D L'), Bierman's update; kernels for more than 8 states or values observed take
    covariances as they stand, and square roots where digits would be lost. Whole series are faster by
    `tridiag.kalman.filter`, which also knows of states that are unknown at first.
    """
    if type(mean) is type(y) is np.ndarray and is_alike(obs_intercept, y):
        seen = y if obs_intercept is None else y - obs_intercept
        if (quick := fast_path.STEPS["update"].call(mean, cov, seen, H, R)) is not None:
            return Updated(*quick)
    if compiling(mean, cov, y):
        return graph().outside(update, mean, cov, y, H=H, R=R, obs_intercept=obs_intercept)
    needed = {"mean": mean, "cov": cov, "y": y, "H": H, "R": R}
    with place_of(needed.values()):
        step = step_of(needed, {"obs_intercept": obs_intercept})
        if obs_intercept is not None:
            step.arrays["y"] = step.arrays["y"] - step.arrays["obs_intercept"]
        return Updated(*step.restored(*(step.compiled("update") or step.by_operations(updated))))


def is_alike(intercept: Any, x: np.ndarray[Any, Any]) -> bool:
    """Whether an intercept, where there is one, is a vector of the dtype of x: one for all batch axes, or for each."""
    if intercept is None:
        return True
    return type(intercept) is np.ndarray and intercept.dtype == x.dtype and intercept.shape in (x.shape, x.shape[-1:])


class Step(NamedTuple):
    """The arrays of one step, in the dtype in which all is computed."""

    library: str
    device: str
    dtype: str  # of the results
    batch: tuple[int, ...]
    arrays: dict[str, Array]

    @property
    def ops(self) -> Any:
        return module_of(self.library).Operations

    def given(self, verb: str) -> list[Array]:
        """The arguments of a verb, in their order."""
        return [self.arrays[name] for name in steps.ARGUMENTS[verb]]

    def takes_kernel(self, verb: str) -> bool:
        """Whether a kernel makes the results: of arrays in host memory; none has derivatives."""
        if self.library == "torch":
            from tridiag.derivatives import torch_kalman

            if not torch_kalman.takes_kernels(self.given(verb)):
                return False
        return self.library in ("numpy", "torch") and steps.has_kernel(self.batch)

    def compiled(self, verb: str) -> tuple[Array, ...] | None:
        """What a kernel makes, if one does."""
        if not self.takes_kernel(verb):
            return None
        given = self.given(verb)
        if self.library == "torch":
            given = [*map(module_of("torch").settled, given)]
        found = steps.step(verb, [*map(np.asarray, given)], np.dtype(working_dtype(self.dtype)))
        if found is None or self.library == "numpy":
            return found
        return tuple(module_of(self.library).cast(x, working_dtype(self.dtype)) for x in found)

    def by_operations(self, function: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:
        """What a function makes of the operations of the library and the arrays: in JAX one program."""
        if self.library == "jax":
            from tridiag.derivatives import jax_kalman

            return jax_kalman.step(function, self.front())
        return function(self.ops, self.front())

    def front(self) -> dict[str, Array]:
        """Those of the step itself with matrices first, and then as many batch axes in all."""
        found, count = {}, len(self.batch)
        for name, x in self.arrays.items():
            own = len(STEP[name])
            x = x.reshape((*(1,) * (count + own - x.ndim), *x.shape))
            found[name] = self.ops.transpose(x, (*range(count, count + own), *range(count)))
        return found

    def restored(self, *parts: Array) -> list[Array]:
        """Mean, covariance and log-likelihood with all batch axes, in the dtype of the caller."""
        found = []
        for x, own in zip(parts, (1, 2, 0), strict=False):
            x = self.ops.broadcast(x, (*self.batch, *x.shape[x.ndim - own :]))
            found.append(module_of(self.library).cast(x, self.dtype))
        return found


def predicted(ops: Any, step: dict[str, Array]) -> tuple[Array, ...]:
    """Mean and covariance a step later, of arrays of any library."""
    state = Estimate(step["mean"], Roots.start(ops, ops.symmetric(step["cov"])))
    found = kalman_filter.predict(ops, step["F"], step["Q"], state, Roots)
    return back(ops, found.mean, Roots.whole(ops, found.cov))


def updated(ops: Any, step: dict[str, Array]) -> tuple[Array, ...]:
    """Mean and covariance once the observations are known, and how likely these were, of arrays of any library."""
    state = Estimate(step["mean"], Roots.start(ops, ops.symmetric(step["cov"])))
    kept = step["y"] == step["y"]
    observed, found = kalman_filter.observe(ops, step["H"], step["R"], step["y"], kept, state, Roots)
    likelihood = -kalman_filter.deviance(ops, observed, kept) / 2
    return back(ops, found.mean, Roots.whole(ops, found.cov), likelihood)


def back(ops: Any, *parts: Array) -> tuple[Array, ...]:
    """The same with batch axes first."""
    return tuple(ops.transpose(x, (*range(own, x.ndim), *range(own))) for x, own in zip(parts, (1, 2, 0), strict=False))


def step_of(needed: dict[str, Any], more: dict[str, Any]) -> Step:
    """The arguments of a verb, checked."""
    arguments = taken(needed | {name: x for name, x in more.items() if x is not None})
    arrays = arguments.working()
    _, batch = align_step({name: tuple(x.shape) for name, x in arrays.items()})
    for name in ("cov", "Q", "R"):
        few = name in arrays and is_few(arrays[name].shape)
        if (few or name == "cov") and is_readable(arguments.library, arguments.device, arrays[name]):
            values = to_numpy(arrays[name])
            if name == "cov":
                check_known(values)
            if few:
                check_each(name, values)
    return Step(arguments.library, arguments.device, arguments.dtype, batch, arrays)


def check_known(cov: Any) -> None:
    """Refuse states that are unknown: an infinite covariance does not tell in which directions they are."""
    infinite = np.isposinf(np.diagonal(cov, axis1=-2, axis2=-1)).reshape(-1, cov.shape[-1]).any(0)
    if infinite.any():
        i = int(np.argmax(infinite))
        raise ValueError(
            f"cov[{i}, {i}] is inf: a single step knows nothing of states that are unknown; take the first steps with "
            "kalman.filter until none is, and go on from its last mean and cov"
        )
