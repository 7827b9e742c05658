"""Whether series are filtered as by loops over steps in extended precision, but for what their models lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loop_gradients
import numpy as np

from drawn import Array
from tridiag.backends import BACKENDS
from tridiag.problems.state_space import COVARIANCES, StateSpace, own_shapes

if TYPE_CHECKING:
    from drawn.series import Call, Given

LIMIT = 8  # times eps^(2/3), of the largest number of a result: what entries may lose before square roots are taken
MOVED, LOST = 10_000, 100  # times what an eps of all arguments moves, and the loop in NumPy loses


def by_loops(call: Call, given: Given, dtype: Any) -> list[Array]:
    """The results by loops over steps in NumPy."""
    y, parameters = given
    lifted = loop_gradients.lifted(y.astype(dtype), {name: x.astype(dtype) for name, x in parameters.items()})
    if call.verb == "gradient":
        return loop_gradients.derivatives(*lifted, dtype)
    found = BACKENDS["numpy_scan"].module().kalman(f"kalman.{call.verb}", *lifted)
    return list(found if isinstance(found, tuple) else (found,))


def excuse(call: Call, given: Given, right: list[Array], error: Array, doubtful: Array) -> None:
    """Models in bad condition lose digits: what an eps of all arguments changes, or the loop in NumPy loses.

    That one series at a time: together all would be computed from square roots where one of them has to be.
    """
    for k in doubtful:
        own = given[0][k : k + 1], {name: x[k : k + 1] for name, x in given[1].items()}
        same = [x[k : k + 1] for x in right]
        near = [*(nudged(call, own, seed) for seed in range(3)), definite(call, own)]
        moved = max(float(distance(call, own, by_loops(call, other, np.longdouble), same)[0]) for other in near)
        theirs = float(distance(call, own, by_loops(call, own, call.dtype), same)[0])
        error[k] /= max(1, MOVED * moved, LOST * theirs)


def nudged(call: Call, given: Given, seed: int) -> Given:
    """The same series and model but for an eps of every entry; covariances stay symmetric."""
    rng, eps = np.random.default_rng(seed), np.finfo(call.dtype).eps

    def nudge(name: str, x: Array) -> Array:
        some = rng.uniform(-1, 1, x.shape).astype(np.longdouble)
        return x * (1 + eps * (np.tril(some) + np.tril(some, -1).swapaxes(-1, -2) if name in COVARIANCES else some))

    return nudge("y", given[0]), {name: nudge(name, x) for name, x in given[1].items()}


def definite(call: Call, given: Given) -> Given:
    """The same series and model but for an eps of every variance.

    A covariance of low rank that has been rounded may be indefinite, or definite: two models, where states grow.
    """
    eps = np.finfo(call.dtype).eps

    def raised(x: Array) -> Array:
        return x * (1 + eps * np.eye(x.shape[-1], dtype=np.longdouble))

    return given[0], {name: raised(x) if name in COVARIANCES else x for name, x in given[1].items()}


def distance(call: Call, given: Given, found: list[Array], right: list[Array]) -> Array:
    """Of each series the largest of any result, over what is allowed next to the largest number in that.

    A covariance has the digits of the one that it was before observations, P0 at first.
    """
    pairs = [*zip(found, right, strict=True)]
    if call.verb == "gradient":  # each parameter is a result
        form = StateSpace(call.n, call.p, call.k, (), (), None, True)
        ends = np.cumsum([int(np.prod(shape)) for shape in own_shapes(form)])[:-1]
        pairs = [pairs[0], *zip(*(np.split(x, ends, 1) for x in pairs[1]), strict=True)]
    error = np.zeros(len(right[0]))
    with np.errstate(all="ignore"):
        for x, y in pairs:
            before = abs(given[1]["P0"]).max((1, 2)) if y.ndim == 4 else 0
            x, y = x.reshape(len(error), -1), y.reshape(len(error), -1)
            scale = np.maximum(np.maximum(abs(y).max(1), 1e-3), before) * LIMIT * np.finfo(call.dtype).eps ** (2 / 3)
            off = (abs(x - y).max(1) / scale).astype(float)
            error = np.maximum(error, np.where(np.isfinite(off), off, np.inf))
    return error
