"""The machine, the versions and the commit of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import tridiag
from tridiag.backends import BACKENDS
from tridiag.layout import threads

CHECKOUT = Path(tridiag.__file__).parents[1]
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def conditions() -> dict[str, Any]:
    return {"machine": machine(), "versions": versions(), "commit": commit(), "threads": threads()}


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "cores granted": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": dict(sorted(caches())),
        "memory in GiB": round(memory / 2**30, 1),
        "huge pages": PAGES.read_text().strip() if PAGES.exists() else "",
    }


def cpu() -> str:
    """What the processor is called."""
    model = platform.processor() or platform.machine()
    if not Path("/proc/cpuinfo").exists():
        return model
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)


def caches() -> list[tuple[str, str]]:
    found = []
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = ((cache / word).read_text().strip() for word in ("level", "type", "size"))
        found.append((f"L{level} {kind.lower()}", size))
    return found


def versions() -> dict[str, str]:
    """Of Python, of this package, and of what its backends need, as far as it is installed."""
    needed = sorted({"numpy"} | {module for entry in BACKENDS.values() for module in entry.needs})
    packages = metadata.packages_distributions()  # of cupy that for one version of CUDA
    known = {module: metadata.version(packages[module][0]) for module in needed if module in packages}
    return {"python": platform.python_version(), "tridiag": tridiag.__version__} | known


def commit() -> str:
    """The commit of the checkout that the package was imported from; an installed one is told by its version."""
    if not (CHECKOUT / ".git").exists():
        return f"tridiag {tridiag.__version__}"
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return found.stdout.strip() or f"tridiag {tridiag.__version__}"
