"""How much water does the Nile carry, and will it? Its level is found, and a model of it fitted, by gradients.

    python examples/nile.py [--output nile.png]

The flow at Aswan in each year from 1871 to 1970 (statsmodels' data set) is a level that wanders, seen with noise: the
local-level model of Durbin and Koopman, Time Series Analysis by State Space Methods, chapter 2. The variances of both
are those that make the flows most likely: the gradient of the log-likelihood, by JAX, leads there. The years to come
are forecast with a band. Exit status 1 if a variance is more than 0.1 % away from the published maximum.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from rich.console import Console
from rich.table import Table
from statsmodels.datasets import nile

from tridiag import kalman

PUBLISHED = {"flow": 15_099.0, "level": 1_469.1}  # variances, in (1e8 m3)^2
BAR = 0.001
BAND = 1.645  # standard deviations: nine values in ten
AHEAD = 15  # years that are forecast


def local_level(variances: jax.Array) -> kalman.models.Structure:
    """The model: y[t] = level[t] + N(0, flow), level[t+1] = level[t] + N(0, level); at first nothing is known."""
    flow, level = variances
    return kalman.models.local_level(level, noise=flow)


def fit(flows: np.ndarray) -> tuple[np.ndarray, int]:
    """The most likely variances, and the gradients it took; the unknowns are logarithms, so no variance is negative."""
    y = jnp.asarray(flows)[:, None]
    scale = np.var(flows)

    @jax.jit
    @jax.value_and_grad
    def loss(logarithms: jax.Array) -> jax.Array:
        return -kalman.log_likelihood(y, **local_level(scale * jnp.exp(logarithms)))

    found = scipy.optimize.minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-6})
    return scale * np.exp(found.x), found.njev


def plot(years: np.ndarray, flows: np.ndarray, variances: np.ndarray, path: Path) -> kalman.Forecast:
    """Draw the level and the forecast, which is returned."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    y = jnp.asarray(flows)[:, None]
    smoothed, ahead = kalman.smoother(y, **local_level(variances)), kalman.forecast(y, AHEAD, **local_level(variances))
    level, spread = smoothed.mean[:, 0], BAND * np.sqrt(smoothed.cov[:, 0, 0])
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.fill_between(years, level - spread, level + spread, color="tab:blue", alpha=0.2, lw=0, label="90 % band")
    axes.plot(years, level, color="tab:blue", label="level, from all years")
    axes.plot(years, flows, "o", color="black", ms=3, label="flow of the year")
    later, flow, spread = years[-1] + 1 + np.arange(AHEAD), ahead.mean[:, 0], BAND * np.sqrt(ahead.cov[:, 0, 0])
    axes.fill_between(later, flow - spread, flow + spread, color="tab:orange", alpha=0.2, lw=0, label="90 % of flows")
    axes.plot(later, flow, color="tab:orange", label="forecast")
    axes.set(xlabel="year", ylabel="flow at Aswan (1e8 m³)", title="The Nile, 1871 to 1970")
    axes.legend(frameon=False, ncols=2)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return ahead


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("nile.png"), help="where to draw the level")
    output = parser.parse_args(arguments).output
    jax.config.update("jax_enable_x64", True)
    data = nile.load_pandas().data
    years, flows = data["year"].to_numpy(), data["volume"].to_numpy(float)
    variances, gradients = fit(flows)
    ahead = plot(years, flows, variances, output)

    table = Table("variance of", "found", "published", "apart")
    apart = abs(variances / np.array([*PUBLISHED.values()]) - 1)
    for name, found, ratio in zip(PUBLISHED, variances, apart, strict=True):
        table.add_row(f"the {name}", f"{found:,.1f}", f"{PUBLISHED[name]:,.1f}", f"{100 * ratio:.4f} %")
    console = Console()
    console.print(table)
    spread = BAND * np.sqrt(ahead.cov[[0, -1], 0, 0])
    console.print(
        f"forecast: {float(ahead.mean[0, 0]):,.0f}, nine flows in ten within {spread[0]:,.0f} of it next year,"
    )
    console.print(f"within {spread[1]:,.0f} in {AHEAD} years; {gradients} gradients; drawn in {output}")
    return int((apart > BAR).any())


if __name__ == "__main__":
    sys.exit(main())
