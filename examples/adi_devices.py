"""Heat spreads in a box whose three axes are cut over eight devices; the answer is that of one device.

    python examples/adi_devices.py [--size N] [--steps N] [--output FILE]

Implicit along each axis by turns (locally one-dimensional steps: Marchuk, Yanenko), with insulating walls. Every axis
is cut in two, so that each solve is of systems whose rows lie on two devices: they exchange two numbers a system, never
the field. CPU devices of one process stand for the devices here; nothing else would change.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from typing import Any

DEVICES = 8
if "jax" not in sys.modules:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

import tridiag  # noqa: E402

NUMBERS = (0.3, 0.3, 2.0)  # diffusivity times the time step over the spacing squared; along the vertical it is large


def diffuse(u: Any, axis: int) -> Any:
    """An implicit step along an axis: u - r (u[i-1] - 2 u[i] + u[i+1]) is the old u; nothing leaves at the walls."""
    n, r = u.shape[axis], NUMBERS[axis]
    row = jnp.arange(n)
    diagonal = 1 + jnp.where((row == 0) | (row == n - 1), r, 2 * r)
    return tridiag.solve(-r, diagonal, -r, u, axis=axis)


@functools.partial(jax.jit, static_argnums=1)
def march(u: Any, steps: int) -> Any:
    def step(_: Any, u: Any) -> Any:
        for axis in range(3):
            u = diffuse(u, axis)
        return u

    return jax.lax.fori_loop(0, steps, step, u)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="cells along each axis")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", help="a picture")
    options = parser.parse_args(given)
    jax.config.update("jax_enable_x64", True)
    if jax.device_count() < DEVICES:
        print(f"needs {DEVICES} devices, and there are {jax.device_count()}")
        return 1
    shape = (options.size,) * 3
    start = np.zeros(shape)
    start[tuple(slice(k // 4, k // 2) for k in shape)] = 100.0
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"), axis_types=(AxisType.Auto,) * 3)
    box = NamedSharding(mesh, PartitionSpec("x", "y", "z"))
    field = march(jax.device_put(start, box), options.steps)
    alone = march(jax.device_put(start, jax.devices()[0]), options.steps)
    difference = float(np.abs(np.asarray(field) - np.asarray(alone)).max())
    part = field.addressable_shards[0].data.shape
    print(f"{options.steps} steps of {shape} cells on {len(field.devices())} devices, each with {part}")
    print(f"heat kept: {float(field.sum() / start.sum()):.12f}")
    print(f"largest difference from one device: {difference:.1e} of {float(field.max()):.1f}")
    if options.output:
        draw(np.asarray(field), options.output)
    return int(difference > 1e-11)


def draw(field: Any, path: str) -> None:
    """The middle of the box from two sides, and where it is cut."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    middle = field.shape[0] * 3 // 8
    for one, plane, names in zip(axes, (field[:, middle], field[:, :, middle]), ("xz", "xy"), strict=True):
        image = one.imshow(plane.T, origin="lower", cmap="inferno", vmin=0, vmax=field.max())
        for line in (one.axvline, one.axhline):
            line(field.shape[0] / 2 - 0.5, color="white", linewidth=0.8, linestyle="--")
        one.set(xlabel=names[0], ylabel=names[1])
    figure.colorbar(image, ax=axes, label="temperature")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
