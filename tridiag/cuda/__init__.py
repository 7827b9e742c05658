"""The host's side of the CUDA C kernels in `tridiag.kernels`: what is launched, with which numbers, and how."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from tridiag.arrays import library_of


def on(x: Any) -> ModuleType:
    """What runs programs on arrays of its library."""
    return importlib.import_module(f"tridiag.cuda.on_{library_of(x)}")
