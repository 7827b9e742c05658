"""`tridiag.kalman.log_likelihood` against a loop over statsmodels and a jitted, vmapped `lax.scan` filter.

    python benchmarks/kalman.py [--only NAME]... [--rounds N] [--json FILE]

1000 series of 1000 steps, 4 states, 1 value observed, float64; 500 series of 200 steps with 8, 9, 16 and 32 states, and
100 of 1000 with 8 and 16: from 9 on kernels are for all sizes, and 9 cost at most twice as much as 8. F is dense, or of
trend and season.
The filter written with `lax.scan` is the textbook's; where nothing is missing it does not ask, and then JAX by itself
keeps one covariance for all series. Filters of statsmodels are made beforehand, one for each of 20 series, which stand
for all. Times are those of a series. Gradients are in every parameter of the model, jitted. The record of a whole run
goes to ``benchmarks/results/kalman/``, a file a processor.

Exits with 1 where a figure is short of its bar or an answer is wrong. Needs JAX, statsmodels and rich.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bars import at_most, faster
from lines import Line, run
from textbook import likelihood

from tridiag import kalman
from tridiag.benchmarking.race import Contestant
from tridiag.kalman import models

RESULTS = Path(__file__).parent / "results" / "kalman"
STATES = 4
SAMPLE = 20  # series that statsmodels is timed on
NAMES = ("F", "H", "Q", "R", "m0", "P0")
LIMIT = 1e-9 / np.finfo(float).eps  # 1e-9 relative
MAKERS: dict[str, Callable[[Any], Contestant]] = {}

Model = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """Observations and a stable model, or one for each series; made when first asked for."""

    shape: tuple[int, int]  # series, steps
    missing: float = 0.0  # how many of the observations
    own: bool = False  # whether each series has its own model
    states: int = STATES
    structural: bool = False  # trend and season, whose F is nearly all zeros, instead of a dense F

    @cached_property
    def host(self) -> tuple[np.ndarray, Model]:
        rng = np.random.default_rng(0)
        shape = (self.shape[0], 1) if self.own else ()
        k = self.states
        noise = rng.normal(size=(*shape, k, k))
        model = {
            "F": 0.9 * np.linalg.qr(noise)[0],
            "H": rng.normal(size=(*shape, 1, k)),
            "Q": noise @ noise.swapaxes(-1, -2) / k,
            "R": np.full((*shape, 1, 1), 0.5),
            "m0": np.zeros(k),
            "P0": 10 * np.eye(k),
        }
        if self.structural:
            structure = models.local_linear_trend(0.5, 0.1) + models.seasonal(k - 1, 0.2)
            model |= {name: np.asarray(structure[name]) for name in "FHQ"}
        y = rng.normal(size=(*self.shape, 1))
        y[rng.random(y.shape) < self.missing] = np.nan
        return y, model

    @cached_property
    def given(self) -> tuple[Any, Model]:
        """The same as JAX arrays."""
        jax.config.update("jax_enable_x64", True)
        return jax.block_until_ready(jax.tree.map(jnp.asarray, self.host))

    @cached_property
    def right(self) -> np.ndarray:
        y, model = self.host
        return kalman.log_likelihood(y, backend="numpy", **model)

    @cached_property
    def right_gradient(self) -> Model:
        return with_gradient(self, self.vmapped)()

    def error(self, found: Any) -> float:
        """The largest relative error, in eps."""
        found = np.asarray(found)
        return float(abs(found / self.right[: len(found)] - 1).max() / np.finfo(float).eps)

    def gradient_error(self, found: Model) -> float:
        """The same of gradients; those of the textbook's filter in the covariances are not symmetric."""
        pairs = [(even(name, found[name]), even(name, self.right_gradient[name])) for name in NAMES]
        return max(float(abs(x - z).max() / abs(z).max()) for x, z in pairs) / np.finfo(float).eps

    def vmapped(self, y: Any, model: Model) -> Any:
        """The textbook's filter of all series."""
        axes = [0, *[0 if self.own else None] * 4, None, None]
        filtered = jax.vmap(likelihood(self.missing > 0), in_axes=axes)
        return filtered(y, *(x[:, 0] if self.own and x.ndim == 4 else x for x in (model[name] for name in NAMES)))


def even(name: str, x: Any) -> np.ndarray:
    x = np.asarray(x)
    return (x + x.swapaxes(-1, -2)) / 2 if name in ("Q", "R", "P0") else x


def with_gradient(problem: Problem, function: Callable[[Any, Model], Any]) -> Callable[[], Any]:
    """In every parameter, jitted."""
    y, model = problem.given
    compiled = jax.jit(jax.grad(lambda model, y: function(y, model).sum()))
    return lambda: jax.block_until_ready(compiled(model, y))


def contestant(name: str) -> Callable[[Any], Any]:
    """Enter what makes a contestant for a problem under a name."""

    def enter(make: Any) -> Any:
        MAKERS[name] = make
        return make

    return enter


@contestant("log_likelihood")
def ours(problem: Problem) -> Contestant:
    y, model = problem.host
    return Contestant(lambda: kalman.log_likelihood(y, **model), problem.error, LIMIT, steps=len(y))


@contestant("log_likelihood: 8 states")
def ours_of_eight(problem: Problem) -> Contestant:
    """The largest models with a kernel of their own."""
    return ours(replace(problem, states=8))


@contestant("jit: log_likelihood")
def ours_in_jax(problem: Problem) -> Contestant:
    y, model = problem.given
    compiled = jax.jit(lambda y, model: kalman.log_likelihood(y, **model))
    return Contestant(lambda: compiled(y, model).block_until_ready(), problem.error, LIMIT, steps=len(y))


@contestant("jit: vmapped lax.scan")
def scanned(problem: Problem) -> Contestant:
    y, model = problem.given
    compiled = jax.jit(problem.vmapped)
    return Contestant(lambda: compiled(y, model).block_until_ready(), problem.error, LIMIT, steps=len(y))


@contestant("statsmodels")
def by_statsmodels(problem: Problem) -> Contestant:
    """A loop over some series."""
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    y, model = problem.host

    def made(i: int) -> Any:
        matrices = {name: x[i, 0] if problem.own and x.ndim == 4 else x for name, x in model.items()}
        found = KalmanFilter(1, problem.states)
        for name, told in {"F": "transition", "H": "design", "Q": "state_cov", "R": "obs_cov"}.items():
            found[told] = matrices[name]
        found["selection"] = np.eye(problem.states)
        found.initialize_known(model["m0"], model["P0"])
        found.bind(y[i])
        return found

    filters = [made(i) for i in range(min(SAMPLE, len(y)))]
    return Contestant(lambda: np.array([one.loglike() for one in filters]), problem.error, LIMIT, steps=len(filters))


@contestant("jit: grad")
def gradient(problem: Problem) -> Contestant:
    call = with_gradient(problem, lambda y, model: kalman.log_likelihood(y, **model))
    return Contestant(call, problem.gradient_error, LIMIT, steps=problem.shape[0])


@contestant("jit: grad of lax.scan")
def scanned_gradient(problem: Problem) -> Contestant:
    return Contestant(with_gradient(problem, problem.vmapped), problem.gradient_error, LIMIT, steps=problem.shape[0])


SHAPE = (1000, 1000)
PROBLEMS = {  # a problem, how it is called, and how many times faster than statsmodels and than lax.scan
    "shared": (Problem(SHAPE), "one model, nothing missing", 60, 2.5),
    "missing": (Problem(SHAPE, 0.1), "one model, 10 % missing", 20, 3),
    "own": (Problem(SHAPE, own=True), "a model per series", 20, 3),
    "own-missing": (Problem(SHAPE, 0.1, own=True), "a model per series, 10 % missing", 20, 3),
}
FEWER = (500, 200)
MANY_STATES = {  # the same; the gradient is told
    f"{name}-{k}": (Problem(FEWER, missing, own, k, structural), f"{k} states, {told}")
    for k in (8, 9, 16, 32)
    for name, missing, own, structural, told in (
        ("shared", 0.0, False, False, "one model, nothing missing"),
        ("missing", 0.1, False, False, "one model, 10 % missing"),
        ("own", 0.0, True, False, "a model per series"),
        ("season", 0.1, False, True, "trend and season, 10 % missing"),
    )
}
MANY_STATES |= {
    f"long-{k}": (Problem((100, 1000), own=True, states=k), f"{k} states, a model per series") for k in (8, 16)
}
JITTED = faster(None, "jit: log_likelihood", "jit: vmapped lax.scan")
GRADIENT = faster(2.5, "jit: grad", "jit: grad of lax.scan")
LINES = [
    *(
        Line(
            name,
            f"{SHAPE}, {told}",
            problem,
            (
                faster(loop, "log_likelihood", "statsmodels"),
                faster(scan, "log_likelihood", "jit: vmapped lax.scan"),
                JITTED,
            ),
        )
        for name, (problem, told, loop, scan) in PROBLEMS.items()
    ),
    *(
        Line(f"gradient-{name}", f"{SHAPE}, {told}: gradient", problem, (GRADIENT,))
        for name, (problem, told, _, _) in PROBLEMS.items()
    ),
    *(
        Line(
            name,
            f"{problem.shape}, {told}",
            problem,
            (
                faster(20, "log_likelihood", "statsmodels"),
                faster(3, "log_likelihood", "jit: vmapped lax.scan"),
                JITTED,
                faster(None, "jit: grad", "jit: grad of lax.scan"),
                *(() if problem.states != 9 else (at_most(2, "log_likelihood", "log_likelihood: 8 states"),)),
            ),
        )
        for name, (problem, told) in MANY_STATES.items()
    ),
]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
