"""Modules of Triton kernels, compiled or interpreted: that is decided when a module is loaded."""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType

import triton


@functools.cache
def load(name: str, others: tuple[str, ...], interpreted: bool) -> ModuleType:
    """A module of kernels, and the others that have kernels which it calls."""
    if not interpreted:
        return importlib.import_module(name)
    names = *others, name
    loaded = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        with triton.knobs.runtime.scope():
            triton.knobs.runtime.interpret = True
            return importlib.import_module(name)
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(loaded)
