"""Which mixing made these temperatures? The gradient of 200 implicit steps, by JAX, finds the coefficient again.

    python examples/mixing_inverse.py [--iterations 300] [--output mixing_inverse.png]

Eight profiles of 60 levels mix for 200 days with an unknown K(z); all that is known is their temperature, once a day.
From a first guess ten times too large, Adam descends the mean squared misfit in log10 K, one unknown per interface.
K leaves no trace where nothing is mixed: interfaces count where the gradient of temperature, root mean square over
profiles and days, is above 5 % of its largest value. Exit status 1 if one of them is more than 0.05 off.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

import tridiag

LEVELS, STEPS, PROFILES = 60, 200, 8
DZ, DAY = 15.0, 86400.0  # m, s
BAR = 0.05  # of log10 K
NEGLIGIBLE = 0.05  # of the largest gradient of temperature
MIDDLE = DZ * (np.arange(LEVELS) + 0.5)
INTERFACE = DZ * np.arange(1, LEVELS)


def true_log_k() -> np.ndarray:
    """log10 of K in m2/s: stirred by the wind at the top, quiet in the thermocline, tides over the bottom."""
    wind = 2.5 * np.exp(-((INTERFACE / 90) ** 2))
    tides = 1.5 / (1 + np.exp((600 - INTERFACE) / 60))
    return -5 + wind + tides


def first_profiles(count: int = PROFILES) -> np.ndarray:
    """Synthetic thermoclines, each deeper than the one before; below 800 m all of them are uniform."""
    depth = np.linspace(40, 680, count)[:, None]
    fronts = 8 * (1 - np.tanh((MIDDLE - depth) / 60))
    waves = np.cos(np.pi * np.arange(1, count + 1)[:, None] * MIDDLE / 400)
    return 4 + (fronts + waves) / (1 + np.exp((MIDDLE - 800) / 12))


def forward(log_k: jax.Array, first: jax.Array, steps: int = STEPS) -> jax.Array:
    """(steps, profiles, levels): (1 + g_k-1 + g_k) T_k - g_k-1 T_k-1 - g_k T_k+1 = T_k of the day before."""
    g = 10.0**log_k * (DAY / DZ**2)
    above, below = jnp.pad(g, (1, 0)), jnp.pad(g, (0, 1))  # 0 at the surface and at the bottom

    @jax.checkpoint  # the backward pass keeps the temperatures and makes the rest again
    def step(temperature: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        temperature = tridiag.solve(-above, 1 + above + below, -below, temperature)
        return temperature, temperature

    return jax.lax.scan(step, first, length=steps)[1]


def visible(temperatures: np.ndarray) -> np.ndarray:
    """The interfaces that count: where the gradient of temperature is not negligible."""
    gradient = np.sqrt((np.diff(temperatures, axis=-1) ** 2).mean((0, 1)))
    return gradient > NEGLIGIBLE * gradient.max()


def adam(gradient: Callable, start: jax.Array, iterations: int, rate: float = 0.1) -> tuple[jax.Array, list[float]]:
    """Adam with a rate that falls to 0 as a cosine; the point it ends at and the misfits on the way."""

    @jax.jit
    def update(i: jax.Array, x: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        loss, g = gradient(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        slope = m / (1 - 0.9 ** (i + 1)) / (jnp.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-30)
        return loss, x - rate * (1 + jnp.cos(jnp.pi * i / iterations)) / 2 * slope, m, v

    x, m, v, losses = start, jnp.zeros_like(start), jnp.zeros_like(start), []
    for i in track(range(iterations), description="descent"):
        loss, x, m, v = update(jnp.float64(i), x, m, v)
        losses.append(float(loss))
    return x, losses


def recover(iterations: int = 300, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """log10 K as recovered, the interfaces that count, and the misfits on the way."""
    jax.config.update("jax_enable_x64", True)
    first, truth = jnp.asarray(first_profiles()), jnp.asarray(true_log_k())
    observed = jax.jit(forward, static_argnums=2)(truth, first, steps)
    misfit = jax.value_and_grad(lambda log_k: ((forward(log_k, first, steps) - observed) ** 2).mean())
    found, losses = adam(misfit, truth + 1, iterations)  # ten times too large everywhere
    return np.asarray(found), visible(np.asarray(observed)), losses


def picture(path: Path, found: np.ndarray, counts: np.ndarray, losses: list[float]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
    left.plot(first_profiles().T, MIDDLE, lw=1)
    left.set(title="first profiles, \N{DEGREE SIGN}C", ylabel="depth, m")
    middle.plot(true_log_k() + 1, INTERFACE, "0.6", ls="--", label="first guess")
    middle.plot(true_log_k(), INTERFACE, "k", label="truth")
    middle.plot(found[counts], INTERFACE[counts], "o", ms=4, label="recovered")
    middle.plot(found[~counts], INTERFACE[~counts], "x", ms=4, c="0.6", label="not counted: nothing to mix")
    middle.set(title="log10 of K, m2/s")
    middle.legend(loc="lower left")
    right.semilogy(losses)
    right.set(title="misfit, \N{DEGREE SIGN}C squared", xlabel="iteration")
    left.invert_yaxis()
    middle.invert_yaxis()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--output", type=Path, help="where a picture goes, if one is wanted")
    options = parser.parse_args(arguments)
    console, start = Console(), time.perf_counter()
    found, counts, losses = recover(options.iterations)
    error = np.abs(found - true_log_k())[counts].max()
    if options.output:
        picture(options.output, found, counts, losses)
    console.print(f"{LEVELS} levels, {STEPS} days, {PROFILES} profiles; misfit {losses[0]:.1e} -> {losses[-1]:.1e}")
    console.print(
        f"log10 K at {counts.sum()} of {counts.size} interfaces (gradient above {NEGLIGIBLE:.0%} of the largest)"
    )
    console.print(
        f"first guess off by 1, recovered within {error:.1e} (bar {BAR}); {time.perf_counter() - start:.0f} s"
    )
    return 0 if error < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
