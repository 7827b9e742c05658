"""The machine, the versions and the commit of a run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import tridiag
from tridiag.kernels.jobs import caches
from tridiag.kernels.jobs.systems import threads
from tridiag.selection.machine import cpu
from tridiag.selection.machine import versions as of_libraries

CHECKOUT = Path(tridiag.__file__).parents[1]
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def conditions() -> dict[str, Any]:
    return {"machine": machine(), "versions": versions(), "commit": commit(), "threads": threads()}


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {
        "cpu": cpu(),
        "core": core(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "cores granted": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": caches.sizes(),
        "memory in GiB": round(memory / 2**30, 1),
        "huge pages": PAGES.read_text().strip() if PAGES.exists() else "",
    }


def core() -> str:
    """What LLVM calls the generation of the processor, for which kernels are compiled: processors share names."""
    try:
        from llvmlite import binding
    except ImportError:
        return ""
    return str(os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name())


def versions() -> dict[str, str]:
    """Of Python, of this package, and of what its backends need, as far as it is installed."""
    return {"python": platform.python_version(), "tridiag": tridiag.__version__} | of_libraries()


def commit() -> str:
    """The commit of the checkout that the package was imported from, or its version where there is none, or no git."""
    if not (CHECKOUT / ".git").exists() or shutil.which("git") is None:
        return f"tridiag {tridiag.__version__}"
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return found.stdout.strip() or f"tridiag {tridiag.__version__}"
