"""JAX and PyTorch arrays on the CPU for a backend for GPUs: its table's line, device and stream are pretended.

What launches its kernels is the package's own code, on the stand-in for CuPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest
import standin_driver as driver
from helpers import switch_of

from tridiag.backends import BACKENDS
from tridiag.calls import fast_path, plan


def pretend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Until the test ends."""
    entry = BACKENDS[name]
    monkeypatch.setitem(BACKENDS, name, dataclasses.replace(entry, devices=(*entry.devices, "cpu")))
    plan.cached_plan.cache_clear()
    fast_path.forget()
    for library in {"jax", "torch"} & {*entry.arrays} if "cupy" in entry.needs else ():
        with contextlib.suppress(ModuleNotFoundError):
            lend_host_memory(monkeypatch, library)
    if hasattr(module := switch_of(entry), "INTERPRET"):
        monkeypatch.setattr(module, "INTERPRET", True)


def lend_host_memory(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Pointers are those of the host; the stand-in's current device and stream are as good as any."""
    module = importlib.import_module(f"tridiag.cuda.on_{library}")
    monkeypatch.setattr(module, "here", lambda *arguments: contextlib.nullcontext())
    if library == "jax":
        monkeypatch.setattr(module, "address", address)
        driver.pretend(monkeypatch)


def address(buffer: Any) -> int:
    """Where a buffer of XLA on the CPU begins; nowhere, as on a GPU, if it is empty."""
    return np.asarray(buffer).ctypes.data if 0 not in buffer.shape else 0
