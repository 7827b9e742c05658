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


def conditions() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    needed = sorted({"numpy"} | {module for entry in BACKENDS.values() for module in entry.needs})
    packages = metadata.packages_distributions()  # of cupy that for one version of CUDA
    return {
        "machine": {"cpu": model, "cores": os.cpu_count(), "system": platform.system()},
        "versions": {"python": platform.python_version()}
        | {module: metadata.version(packages[module][0]) for module in needed if module in packages},
        "commit": commit(),
    }


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return found.stdout.strip() or f"tridiag {tridiag.__version__}"
