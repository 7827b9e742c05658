"""What measurements depend on: the processor, and the versions of the libraries."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path

from tridiag.backends import BACKENDS

DISTRIBUTIONS = {  # of modules whose distribution has another name, or one of several
    "absl": ("absl-py",),
    "numba_cuda": ("numba-cuda",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x"),
}


def cpu() -> str:
    """What the processor is called."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of what the backends need, as far as it is installed."""
    needed = sorted({"numpy", "jaxlib"} | {module for entry in BACKENDS.values() for module in entry.needs})
    return {module: version for module in needed if (version := version_of(module))}


def version_of(module: str) -> str | None:
    for name in DISTRIBUTIONS.get(module, (module,)):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
