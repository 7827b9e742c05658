"""`tridiag.kalman.log_likelihood` against a loop over statsmodels and a jitted, vmapped `lax.scan` filter.

    python benchmarks/kalman.py [--only gradient] [--rounds 11] [--tiny]

1000 series of 1000 steps, 4 states, 1 value observed, float64. The filter written with `lax.scan` is the textbook's;
where nothing is missing it does not ask, and then JAX by itself keeps one covariance for all series. Filters of
statsmodels are made beforehand, one for each of 20 series, which stand for all. Figures are times of a series.
"""

import argparse
import fnmatch
import os
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import Bar, Contestant, Race, faster, race
from rich.console import Console
from rich.table import Table

from tridiag import kalman

SAMPLE = 20  # series that statsmodels is timed on
NAMES = ("F", "H", "Q", "R", "m0", "P0")


def problem(series: int, steps: int, missing: float, own: bool, states: int = 4) -> tuple[np.ndarray, dict[str, Any]]:
    """Observations and a stable model, or one for each series."""
    rng = np.random.default_rng(0)
    shape = (series, 1) if own else ()
    noise = rng.normal(size=(*shape, states, states))
    model = {
        "F": 0.9 * np.linalg.qr(noise)[0],
        "H": rng.normal(size=(*shape, 1, states)),
        "Q": noise @ noise.swapaxes(-1, -2) / states,
        "R": np.full((*shape, 1, 1), 0.5),
        "m0": np.zeros(states),
        "P0": 10 * np.eye(states),
    }
    y = rng.normal(size=(series, steps, 1))
    y[rng.random(y.shape) < missing] = np.nan
    return y, model


def textbook(missing: bool) -> Callable[..., Any]:
    """The log-likelihood of one series, one value observed, as `lax.scan`."""

    def likelihood(y: Any, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> Any:
        def step(carry: Any, value: Any) -> Any:
            mean, cov, total = carry
            seen = ~jnp.isnan(value[0]) if missing else True
            S, v = (H @ cov @ H.T + R)[0, 0], jnp.where(seen, value[0], 0) - (H @ mean)[0]
            gain = (cov @ H.T)[:, 0] / S
            new = mean + gain * v, cov - jnp.outer(gain, H @ cov), total - (jnp.log(2 * jnp.pi * S) + v * v / S) / 2
            if missing:
                new = tuple(jnp.where(seen, x, old) for x, old in zip(new, carry, strict=True))
            mean, cov, total = new
            return (F @ mean, F @ cov @ F.T + Q, total), None

        return jax.lax.scan(step, (m0, P0, jnp.zeros(())), y)[0][2]

    return likelihood


def vmapped(missing: bool, own: bool) -> Callable[..., Any]:
    """The same of all series."""
    axes = [0, *[0 if own else None] * 4, None, None]
    filtered = jax.vmap(textbook(missing), in_axes=axes)

    def all_series(y: Any, model: dict[str, Any]) -> Any:
        return filtered(y, *(model[name][:, 0] if own and model[name].ndim == 4 else model[name] for name in NAMES))

    return all_series


def by_statsmodels(y: np.ndarray, model: dict[str, Any], own: bool) -> Callable[[], np.ndarray]:
    """A loop over some series."""
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    def made(i: int) -> Any:
        matrices = {name: x[i, 0] if own and x.ndim == 4 else x for name, x in model.items()}
        found = KalmanFilter(1, len(model["m0"]))
        for name, told in {"F": "transition", "H": "design", "Q": "state_cov", "R": "obs_cov"}.items():
            found[told] = matrices[name]
        found["selection"] = np.eye(len(model["m0"]))
        found.initialize_known(model["m0"], model["P0"])
        return found

    filters = [made(i) for i in range(SAMPLE)]
    for i, one in enumerate(filters):
        one.bind(y[i])
    return lambda: np.array([one.loglike() for one in filters])


def off(right: np.ndarray) -> Callable[[Any], float]:
    """The largest error relative to the definition, in eps."""

    def judge(found: Any) -> float:
        found = np.asarray(found)
        return float(abs(found / right[: len(found)] - 1).max() / np.finfo(float).eps)

    return judge


LIMIT = 1e-9 / np.finfo(float).eps  # 1e-9 relative


def values(series: int, steps: int, missing: float, own: bool, bars: tuple[float, float]) -> tuple[Any, list[Bar]]:
    y, model = problem(series, steps, missing, own)
    right = kalman.log_likelihood(y, backend="numpy", **model)
    given = jnp.asarray(y), {name: jnp.asarray(x) for name, x in model.items()}
    compiled = jax.jit(vmapped(missing > 0, own))
    ours = {
        "tridiag": Contestant(lambda: kalman.log_likelihood(y, **model), off(right), LIMIT, steps=series),
        "lax.scan": Contestant(lambda: compiled(*given).block_until_ready(), off(right), LIMIT, steps=series),
        "statsmodels": Contestant(by_statsmodels(y, model, own), off(right), LIMIT, steps=SAMPLE),
    }
    return ours, [faster(bars[0], "tridiag", "statsmodels"), faster(bars[1], "tridiag", "lax.scan")]


def gradient(series: int, steps: int, missing: float, own: bool, bar: float) -> tuple[Any, list[Bar]]:
    """In every parameter, jitted."""
    y, model = problem(series, steps, missing, own)
    given = jnp.asarray(y), {name: jnp.asarray(x) for name, x in model.items()}

    def total(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = jax.jit(jax.grad(lambda model, y: function(y, model).sum()))
        return lambda: jax.block_until_ready(compiled(given[1], given[0]))

    theirs = total(vmapped(missing > 0, own))
    ours = total(lambda y, model: kalman.log_likelihood(y, **model))
    right = theirs()

    def judge(found: dict[str, Any]) -> float:
        """The covariances' gradients of the textbook's filter are not symmetric."""
        pairs = [(even(name, found[name]), even(name, right[name])) for name in NAMES]
        return max(float(abs(x - z).max() / abs(z).max()) for x, z in pairs) / np.finfo(float).eps

    contestants = {
        "gradient": Contestant(ours, judge, LIMIT, steps=series),
        "grad(lax.scan)": Contestant(theirs, judge, LIMIT, steps=series),
    }
    return contestants, [faster(bar, "gradient", "grad(lax.scan)")]


def even(name: str, x: Any) -> np.ndarray:
    x = np.asarray(x)
    return (x + x.swapaxes(-1, -2)) / 2 if name in ("Q", "R", "P0") else x


LINES: dict[str, Callable[..., Any]] = {
    "shared": lambda size: values(*size, 0.0, False, (60, 2.5)),
    "missing": lambda size: values(*size, 0.1, False, (20, 3)),
    "own": lambda size: values(*size, 0.0, True, (20, 3)),
    "own-missing": lambda size: values(*size, 0.1, True, (20, 3)),
    "gradient-shared": lambda size: gradient(*size, 0.0, False, 2.5),
    "gradient-missing": lambda size: gradient(*size, 0.1, False, 2.5),
    "gradient-own": lambda size: gradient(*size, 0.0, True, 2.5),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="a line, or a pattern: 'gradient*'")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: no bar counts")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    table, short = Table("line", "figure", "median", "quartiles", "bar", "", "us a series"), False
    for name in [name for name in LINES if fnmatch.fnmatchcase(name, options.only)]:
        contestants, bars = LINES[name]((40, 50) if options.tiny else (1000, 1000))
        result: Race = race(contestants, options.rounds)
        told = ", ".join(f"{who} {1e6 * result.summary(who)['seconds']:.3g}" for who in contestants)
        for bar in bars:
            found = bar.judge(result.walls())
            low, high = found["quartiles"]
            short |= found["verdict"] == "short"
            table.add_row(name, found["figure"], f"{found['median']:.3g}", f"{low:.3g} to {high:.3g}", found["bar"],
                          found["verdict"], told)  # fmt: skip
            told = ""
    Console(width=int(os.environ.get("COLUMNS", "150"))).print(table)
    return int(short and not options.tiny)


if __name__ == "__main__":
    sys.exit(main())
